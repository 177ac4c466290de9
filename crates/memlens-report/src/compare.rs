//! How close two profiles of one program are: objects [matched](crate::matching), ranked and held side by side.
//!
//! # Figures
//!
//! Shares are parts of the column's sum over the profile's objects, computation left out: time of a
//! sampled profile that waits for no data has nothing to be compared with. Correlations and the overlap of the top use the
//! *objects that matter*: the smallest sets of most expensive objects that make [`COST_SHARE`] of
//! the column in A and in B, together. What only one profile has, costs 0 in the other.
//!
//! A share that was estimated has its 95 % interval, as in the report. So has the difference of two, of which one at least was
//! estimated: [`of_difference`]. Differences whose interval does not have 0 in
//! it are *beyond chance*.
//! Cost: linear in the objects, quadratic in the objects that matter.

use memlens_locality::DelinquentComparison;
use memlens_profile::{ObjectIx, Profile};
use memlens_types::ObjectKind;

use crate::column::{Column, Content};
use crate::delinquent::compare_delinquent;
use crate::header::command;
use crate::interval::{Certainties, of_difference};
use crate::matching::match_objects;
use crate::namesakes::Namesakes;
use crate::place::object_place;
use crate::rank;
use crate::row::{Whole, leading_share};
use crate::table::cost_word;

/// Which part of the cost the objects that are ranked make.
pub const COST_SHARE: f64 = 0.95;

/// Why two profiles cannot be compared. Reads after "failed to compare: ".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// The column holds no amount that adds up.
    #[error("‘{0}’ adds up to nothing over objects; compare by wait, loads, stores, l1_misses, llc_misses …")]
    NoAmount(&'static str),
    /// One profile does not know the column.
    #[error(
        "profile {profile} has no {column}: its mode does not count that, or its machine does not model it"
    )]
    Unknown {
        /// `A` or `B`.
        profile: char,
        /// The column.
        column: &'static str,
    },
    /// In both profiles the column is 0 everywhere.
    #[error("neither profile has an object with any {0}: there is nothing to rank")]
    Empty(&'static str),
    /// No object of one is in the other.
    #[error(
        "the profiles have no object in common; A is of ‘{a}’, B of ‘{b}’: compare two profiles of one program, or let memlens diff \
         show what is gone and what is new"
    )]
    NothingInCommon {
        /// A's command.
        a: String,
        /// B's command.
        b: String,
    },
}

/// One object in both profiles.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedObject {
    /// Its class.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
    /// Where it was allocated or declared.
    pub place: Option<String>,
    /// Numbers of A's objects, from the profile.
    pub ids_a: Vec<u32>,
    /// Numbers of B's objects.
    pub ids_b: Vec<u32>,
    /// The column's value in A (for [`Column::Share`] a share), 0 if A does not have the object.
    pub value_a: f64,
    /// The column's value in B.
    pub value_b: f64,
    /// Part of A's sum, 0 to 1.
    pub share_a: f64,
    /// Part of B's sum, 0 to 1.
    pub share_b: f64,
    /// 95 % interval of A's share, where it is estimated and what it rests on is known: of waits, stalls and samples.
    pub interval_a: Option<(f64, f64)>,
    /// The same of B's.
    pub interval_b: Option<(f64, f64)>,
    /// Rank in A from 1; equal values share their mean rank. `None` if A does not have the object.
    pub rank_a: Option<f64>,
    /// Rank in B.
    pub rank_b: Option<f64>,
    /// Whether it is among the objects that the correlations are of.
    pub matters: bool,
}

impl ComparedObject {
    /// B's share less A's.
    pub fn difference(&self) -> f64 {
        self.share_b - self.share_a
    }

    /// Its 95 % interval; `None` where neither share has one, so that the difference is counted, or anything.
    pub fn difference_interval(&self) -> Option<(f64, f64)> {
        if self.interval_a.is_none() && self.interval_b.is_none() {
            return None;
        }
        Some(of_difference((self.share_a, self.interval_a), (self.share_b, self.interval_b)))
    }

    /// Whether the shares differ by more than chance; `None` where [`ComparedObject::difference_interval`] is.
    pub fn is_beyond_chance(&self) -> Option<bool> {
        self.difference_interval().map(|(low, high)| low > 0.0 || high < 0.0)
    }
}

/// How many of the most expensive objects of A are among those of B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// How many are in both.
    pub common: usize,
    /// Of how many; fewer than asked for if neither profile has so many with any cost.
    pub of: usize,
    /// Whether they are the same in the same order.
    pub same_order: bool,
}

/// The result.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What was compared.
    pub by: Column,
    /// All objects of both, by falling larger share.
    pub objects: Vec<ComparedObject>,
    /// How many objects the correlations are of.
    pub ranked: usize,
    /// Spearman's ρ; see [`rank::spearman`].
    pub spearman: Option<f64>,
    /// Kendall's τ-b; see [`rank::kendall`].
    pub kendall: Option<f64>,
    /// Overlap of the top 3 of the objects that matter: the order of others is chance.
    pub top3: Overlap,
    /// The same of the top 10.
    pub top10: Overlap,
    /// Mean of the absolute differences of shares over the objects that matter, 0 to 1.
    pub mean_error: f64,
    /// The largest absolute difference of shares over all objects, 0 to 1.
    pub largest_error: f64,
    /// Half the sum of all absolute differences: the part of the cost that is on other objects.
    pub misplaced: f64,
    /// Part of A's cost on objects that B does not have.
    pub only_a: f64,
    /// Part of B's cost on objects that A does not have.
    pub only_b: f64,
    /// Sum of the column over A's objects, without computation.
    pub sum_a: f64,
    /// The same of B.
    pub sum_b: f64,
    /// Part of A's column that is computation and left out of everything else.
    pub computation_a: f64,
    /// The same of B.
    pub computation_b: f64,
    /// B's delinquent loads as a prediction of A's; `None` where one has no last-level load misses.
    pub delinquent: Option<DelinquentComparison>,
}

/// The column that reports of both are ranked by: the stalls, where both model a core that waits, or one does and the other's samples are of
/// time; else the share of the cost.
pub fn leading_column(a: &Profile, b: &Profile) -> Column {
    let [of_a, of_b] = [a, b].map(|profile| match leading_share(profile) {
        Column::StallShare => Some(true),
        _ => (cost_word(profile) != "time").then_some(false),
    });
    // Samples of time go with either.
    match (of_a, of_b) {
        (Some(true), Some(true) | None) | (None, Some(true)) => Column::StallCycles,
        _ => Column::Share,
    }
}

/// Compares two profiles by a column.
///
/// # Errors
/// If the column cannot be compared, or no object of one profile is in the other.
pub fn compare(a: &Profile, b: &Profile, by: Column) -> Result<Comparison, CompareError> {
    // Its parts are those of the cycles.
    let by = if by == Column::StallShare { Column::StallCycles } else { by };
    let (values_a, computation_a) = without_computation(a, values(a, by, 'A')?);
    let (values_b, computation_b) = without_computation(b, values(b, by, 'B')?);
    let (sum_a, sum_b) = (values_a.iter().sum::<f64>(), values_b.iter().sum::<f64>());
    if sum_a <= 0.0 && sum_b <= 0.0 {
        return Err(CompareError::Empty(by.as_str()));
    }
    // What has come into being, or is gone, is a part of one alone.
    let part = |value: f64, sum: f64| if sum > 0.0 { value / sum } else { 0.0 };
    let certainty_a = Certainty::of(a, b, by, computation_a);
    let certainty_b = Certainty::of(b, a, by, computation_b);
    let groups = match_objects(a, b);
    if !groups.iter().any(|(of_a, of_b)| !of_a.is_empty() && !of_b.is_empty()) {
        return Err(CompareError::NothingInCommon { a: command(a), b: command(b) });
    }
    let mut objects: Vec<ComparedObject> = groups
        .into_iter()
        .map(|(of_a, of_b)| {
            let add = |members: &[usize], values: &[f64]| members.iter().map(|&at| values[at]).sum::<f64>();
            let ids = |members: &[usize], profile: &Profile| {
                members.iter().map(|&at| profile.objects[at].id).collect::<Vec<_>>()
            };
            let (value_a, value_b) = (add(&of_a, &values_a), add(&of_b, &values_b));
            let (profile, first) = match of_a.first() {
                Some(&first) => (a, &a.objects[first]),
                None => (b, &b.objects[of_b[0]]),
            };
            ComparedObject {
                kind: first.kind,
                name: first.name.clone(),
                place: object_place(profile, first),
                ids_a: ids(&of_a, a),
                ids_b: ids(&of_b, b),
                value_a,
                value_b,
                share_a: part(value_a, sum_a),
                share_b: part(value_b, sum_b),
                interval_a: certainty_a.interval(&of_a, part(value_a, sum_a)),
                interval_b: certainty_b.interval(&of_b, part(value_b, sum_b)),
                rank_a: None,
                rank_b: None,
                matters: false,
            }
        })
        .collect();
    objects.sort_by(|x, y| {
        let larger = |object: &ComparedObject| object.share_a.max(object.share_b);
        larger(y)
            .total_cmp(&larger(x))
            .then_with(|| x.ids_a.cmp(&y.ids_a))
            .then_with(|| x.ids_b.cmp(&y.ids_b))
    });
    let delinquent = compare_delinquent(a, b);
    Ok(Comparison { sum_a, sum_b, computation_a, computation_b, delinquent, ..figures(objects, by) })
}

/// What a profile's shares by a column rest on.
struct Certainty<'a> {
    profile: &'a Profile,
    by: Column,
    /// What shares are parts of.
    whole: Whole,
    /// Whether the other profile's shares are from the same model.
    is_same_model: bool,
}

impl<'a> Certainty<'a> {
    /// `computation`: the part of the column that is left out.
    fn of(profile: &'a Profile, other: &Profile, by: Column, computation: f64) -> Self {
        let mut whole = Whole::of(profile, &profile.totals());
        whole.cost = (whole.cost as f64 * (1.0 - computation)) as u64;
        let is_same_model = profile.run.mode == other.run.mode && profile.machine == other.machine;
        Self { profile, by, whole, is_same_model }
    }

    /// The 95 % interval of the share that these objects have together.
    fn interval(&self, members: &[usize], share: f64) -> Option<(f64, f64)> {
        let objects = members.iter().map(|&at| &self.profile.objects[at]);
        let certainties = if members.is_empty() {
            Certainties::of_part(self.profile, self.whole)
        } else {
            Certainties::of_objects(self.profile, objects, self.whole)
        };
        let certainty = match self.by {
            Column::Share => certainties.share,
            // In the place of a sample's stalls stands its cost.
            Column::StallCycles if self.profile.run.sampling.is_some() => certainties.share,
            Column::StallCycles => certainties.stall,
            _ => None,
        };
        let certainty = certainty?;
        if self.is_same_model { certainty.of_same_model() } else { certainty }.interval(share)
    }
}

/// The values with those of computation made 0, and the part that they were.
fn without_computation(profile: &Profile, mut values: Vec<f64>) -> (Vec<f64>, f64) {
    let sum: f64 = values.iter().sum();
    let mut left_out = 0.0;
    for (object, value) in profile.objects.iter().zip(&mut values) {
        if object.kind == ObjectKind::Computation {
            left_out += std::mem::take(value);
        }
    }
    (values, if sum > 0.0 { left_out / sum } else { 0.0 })
}

fn figures(mut objects: Vec<ComparedObject>, by: Column) -> Comparison {
    let shares_a: Vec<f64> = objects.iter().map(|object| object.share_a).collect();
    let shares_b: Vec<f64> = objects.iter().map(|object| object.share_b).collect();
    let ranks_a = rank_within(&objects, &shares_a, |object| !object.ids_a.is_empty());
    let ranks_b = rank_within(&objects, &shares_b, |object| !object.ids_b.is_empty());
    let (order_a, order_b) = (order(&shares_a), order(&shares_b));
    for (order, shares) in [(&order_a, &shares_a), (&order_b, &shares_b)] {
        let mut covered = 0.0;
        for &at in order {
            if covered >= COST_SHARE {
                break;
            }
            covered += shares[at];
            objects[at].matters = true;
        }
    }
    let mattering =
        |order: Vec<usize>| -> Vec<usize> { order.into_iter().filter(|&at| objects[at].matters).collect() };
    let (order_a, order_b) = (mattering(order_a), mattering(order_b));
    for (object, (rank_a, rank_b)) in objects.iter_mut().zip(ranks_a.into_iter().zip(ranks_b)) {
        (object.rank_a, object.rank_b) = (rank_a, rank_b);
    }
    let ranked: Vec<&ComparedObject> = objects.iter().filter(|object| object.matters).collect();
    let of_a: Vec<f64> = ranked.iter().map(|object| object.share_a).collect();
    let of_b: Vec<f64> = ranked.iter().map(|object| object.share_b).collect();
    let error = |object: &ComparedObject| object.difference().abs();
    let only = |missing: fn(&ComparedObject) -> bool, share: fn(&ComparedObject) -> f64| {
        objects.iter().filter(|object| missing(object)).map(share).sum()
    };
    Comparison {
        by,
        ranked: ranked.len(),
        spearman: rank::spearman(&of_a, &of_b),
        kendall: rank::kendall(&of_a, &of_b),
        top3: overlap(&order_a, &order_b, 3),
        top10: overlap(&order_a, &order_b, 10),
        mean_error: ranked.iter().map(|object| error(object)).sum::<f64>() / ranked.len().max(1) as f64,
        largest_error: objects.iter().map(error).fold(0.0, f64::max),
        misplaced: objects.iter().map(error).sum::<f64>() / 2.0,
        only_a: only(|object| object.ids_b.is_empty(), |object| object.share_a),
        only_b: only(|object| object.ids_a.is_empty(), |object| object.share_b),
        sum_a: 0.0,
        sum_b: 0.0,
        computation_a: 0.0,
        computation_b: 0.0,
        delinquent: None,
        objects,
    }
}

/// Positions with any share, the largest first.
fn order(shares: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..shares.len()).filter(|&at| shares[at] > 0.0).collect();
    order.sort_by(|&x, &y| shares[y].total_cmp(&shares[x]));
    order
}

/// Ranks among the objects that a profile has.
fn rank_within(
    objects: &[ComparedObject],
    shares: &[f64],
    has: impl Fn(&ComparedObject) -> bool,
) -> Vec<Option<f64>> {
    let members: Vec<usize> = (0..objects.len()).filter(|&at| has(&objects[at])).collect();
    let ranks = rank::ranks(&members.iter().map(|&at| shares[at]).collect::<Vec<_>>());
    let mut all = vec![None; objects.len()];
    members.into_iter().zip(ranks).for_each(|(at, rank)| all[at] = Some(rank));
    all
}

fn overlap(a: &[usize], b: &[usize], top: usize) -> Overlap {
    let of = top.min(a.len().max(b.len()));
    let (a, b) = (&a[..of.min(a.len())], &b[..of.min(b.len())]);
    Overlap { common: a.iter().filter(|at| b.contains(at)).count(), of, same_order: a == b }
}

/// Each object's value; unknown everywhere is an error, unknown for one object is 0.
fn values(profile: &Profile, by: Column, name: char) -> Result<Vec<f64>, CompareError> {
    let whole = Whole::of(profile, &profile.totals());
    let mut known = profile.objects.is_empty() || whole.cost == 0;
    let mut values = Vec::with_capacity(profile.objects.len());
    for index in 0..profile.objects.len() {
        let row = Namesakes::one(profile, ObjectIx::from_index(index)).row(whole);
        let value = match by.content(&row) {
            // Samples of time are of what is left when the hidden part is gone.
            _ if by == Column::StallCycles && !row.waits => Some(row.cost as f64),
            _ if by == Column::Id => return Err(CompareError::NoAmount(by.as_str())),
            Content::Count(value) | Content::Bytes(value) => value.map(|value| value as f64),
            Content::Ratio(value) if by == Column::Share => value,
            Content::Ratio(_) | Content::Text(_) => return Err(CompareError::NoAmount(by.as_str())),
        };
        known |= value.is_some();
        values.push(value.unwrap_or(0.0));
    }
    if known { Ok(values) } else { Err(CompareError::Unknown { profile: name, column: by.as_str() }) }
}
