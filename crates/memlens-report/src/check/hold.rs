//! Holds a profile against conditions.
//!
//! What is counted is as it is. Shares of samples and bursts have 95 % intervals, and fail only beyond chance: what a share is above
//! its limit is a sum of parts that were estimated one by one, *s* − *f·b* for a limit of *f* times the baseline's share *b*, and its
//! interval is made of theirs as that of a difference (G. Y. Zou, A. Donner, Construction of Confidence Limits about Effect Measures: A
//! General Approach, Statistics in Medicine 27, 2008; of a plain difference it is Newcombe's method 10, as in [`compare`](crate::compare())).
//! Counts of samples and bursts have no interval, and are refused.
//!
//! Cost: linear in the objects, for each condition.

use std::collections::{BTreeMap, BTreeSet};

use memlens_profile::{ObjectIx, Profile};
use memlens_types::{Counts, ObjectKind};

use super::condition::{Condition, Subject};
use crate::UnknownWord;
use crate::column::{Column, Content};
use crate::interval::of_difference;
use crate::namesakes::Namesakes;
use crate::row::{Row, Whole};
use crate::unlike::{end, machine_differences, merged};
use crate::word::the_one;

/// Of less than this part of the whole, growth and ratios are not looked at where a condition is of each object.
const LEAST_PART: f64 = 0.01;

/// Why a condition cannot be held against a profile. Reads after "cannot check PROFILE: ".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// A limit is one against a baseline, and there is none.
    #[error("‘{0}’ is held against another profile: give it with --baseline")]
    NoBaseline(String),
    /// A profile does not know the column.
    #[error("{profile} has no {column}: its mode does not count that, or its machine does not model it")]
    Unknown {
        /// Which of both.
        profile: &'static str,
        /// The column.
        column: &'static str,
    },
    /// The whole program has no such value.
    #[error("the whole program has no {column}, only its objects have: ‘OBJECT:{column}’")]
    OfObjects {
        /// The column.
        column: &'static str,
    },
    /// Estimates that nobody knows the error of.
    #[error(
        "{column} of {mode} mode is an estimate without an interval, and would pass or fail by chance: hold a share (‘OBJECT:share’, \
         ‘OBJECT:stall_share’), or record with --mode exact"
    )]
    Estimated {
        /// The column.
        column: &'static str,
        /// The profile's mode.
        mode: String,
    },
    /// No object of either profile has the name.
    #[error("{0}")]
    NoObject(UnknownWord),
    /// No object of either profile fits the pattern.
    #[error("no object's name fits ‘{0}’")]
    NoneFits(String),
    /// The recording was cut short.
    #[error("{0} ends before its program did: what it counts is too little")]
    Truncated(&'static str),
    /// The profiles have different modes or costs.
    #[error("it was recorded in {profile}, the baseline in {baseline}: record both alike")]
    Modes {
        /// The profile's.
        profile: String,
        /// The baseline's.
        baseline: String,
    },
    /// One ended in another way.
    #[error("its program {profile}, the baseline's {baseline}: what they did is not the same")]
    Ends {
        /// How the profile's program ended.
        profile: String,
        /// How the baseline's did.
        baseline: String,
    },
    /// Different machines were modelled.
    #[error("its machine is not the baseline's ({0}): record both with one --machine")]
    Machines(String),
    /// Counts of several runs are added up.
    #[error("its counts are of {profile}, the baseline's of {baseline}: they were added up")]
    Merged {
        /// How many runs the profile is of.
        profile: String,
        /// How many the baseline is of.
        baseline: String,
    },
}

/// How a profile stands to a condition that it must not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It meets it.
    Fails,
    /// It is beyond the limit, but by no more than chance.
    Unsure,
    /// It does not meet it.
    Passes,
    /// There is nothing to be held: a ratio of nothing, or of what the baseline does not have.
    Nothing,
}

impl Verdict {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fails => "fails",
            Self::Unsure => "unsure",
            Self::Passes => "passes",
            Self::Nothing => "nothing",
        }
    }
}

/// Objects of one name, or the whole program, against a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// The objects' name; `None`: the whole program.
    pub name: Option<String>,
    /// Their kind: names of other kinds are others.
    pub kind: Option<ObjectKind>,
    /// Where they were allocated or declared, where that is one place.
    pub place: Option<String>,
    /// Their numbers in the profile, costliest first.
    pub ids: Vec<u32>,
    /// The profile's value, in the column's unit.
    pub value: Option<f64>,
    /// The baseline's; `None` as well if the limit is not one against it.
    pub baseline: Option<f64>,
    /// What the value is held against.
    pub limit: Option<f64>,
    /// 95 % interval of what the value is more than the limit, where it is estimated.
    pub excess_interval: Option<(f64, f64)>,
    /// How it stands.
    pub verdict: Verdict,
}

impl Held {
    /// What the value is more than the limit.
    pub fn excess(&self) -> Option<f64> {
        Some(self.value? - self.limit?)
    }
}

/// A condition with all that was held against it.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldCondition {
    /// The condition.
    pub condition: Condition,
    /// Failing ones first, then by how far they are beyond the limit, or near it.
    pub held: Vec<Held>,
    /// Objects that have too little for their growth or ratio to matter.
    pub left_out: usize,
}

impl HeldCondition {
    /// The worst of all; [`Verdict::Nothing`] if nothing was held.
    pub fn verdict(&self) -> Verdict {
        self.held.iter().map(|held| held.verdict).min().unwrap_or(Verdict::Nothing)
    }
}

/// A profile held against conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// In the order in which they were given.
    pub conditions: Vec<HeldCondition>,
}

impl Check {
    /// Whether no condition is met.
    pub fn passes(&self) -> bool {
        self.count(Verdict::Fails) == 0
    }

    /// How many conditions stand so.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.conditions.iter().filter(|condition| condition.verdict() == verdict).count()
    }
}

/// Holds a profile against conditions.
///
/// # Errors
/// If one cannot be held.
pub fn check(
    profile: &Profile,
    baseline: Option<&Profile>,
    conditions: &[Condition],
) -> Result<Check, CheckError> {
    let profile = Objects::of(profile, "the profile");
    let baseline = baseline.map(|baseline| Objects::of(baseline, "the baseline"));
    for objects in [Some(&profile), baseline.as_ref()].into_iter().flatten() {
        if objects.profile.attribution.truncated {
            return Err(CheckError::Truncated(objects.who));
        }
    }
    let hold = |condition: &Condition| hold(&profile, baseline.as_ref(), condition);
    Ok(Check { conditions: conditions.iter().map(hold).collect::<Result<_, _>>()? })
}

/// A profile's objects by their names.
struct Objects<'a> {
    profile: &'a Profile,
    who: &'static str,
    whole: Whole,
    totals: Counts,
    by_name: BTreeMap<Named<'a>, Vec<ObjectIx>>,
}

/// Name and kind: a pointer is often called as what it points to.
type Named<'a> = (&'a str, ObjectKind);

impl<'a> Objects<'a> {
    fn of(profile: &'a Profile, who: &'static str) -> Self {
        let totals = profile.totals();
        let mut by_name: BTreeMap<Named<'_>, Vec<ObjectIx>> = BTreeMap::new();
        for (at, object) in profile.objects.iter().enumerate() {
            by_name.entry((&object.name, object.kind)).or_default().push(ObjectIx::from_index(at));
        }
        Self { profile, who, whole: Whole::of(profile, &totals), totals, by_name }
    }

    /// Those of a name; perhaps none.
    fn named(&self, named: Named<'_>) -> Namesakes<'a> {
        Namesakes::of(self.profile, self.by_name.get(&named).cloned().unwrap_or_default())
    }

    /// What those of a name cost, and how many bytes they are.
    fn cost(&self, named: Named<'_>) -> (u64, u64) {
        let objects = self.named(named);
        let bytes = objects.objects().filter_map(|object| object.bytes).fold(0, u64::saturating_add);
        (self.profile.cost(&objects.counts()), bytes)
    }

    /// The value of a row, 0 where there are no such objects; `None`: there is nothing that it would be a ratio of.
    fn value(&self, row: &Row, has_objects: bool, column: Column) -> Result<Option<f64>, CheckError> {
        match column.content(row) {
            Content::Count(Some(value)) | Content::Bytes(Some(value)) => return Ok(Some(value as f64)),
            Content::Ratio(Some(value)) => return Ok(Some(value)),
            Content::Count(None) | Content::Bytes(None) if !has_objects => return Ok(Some(0.0)),
            _ => {}
        }
        let parts = match column {
            Column::L1MissRatio => Column::L1Misses,
            Column::LlcMissRatio => Column::LlcMisses,
            Column::LlcPrefetchedRatio => Column::LlcPrefetched,
            Column::FalseSharingRatio => Column::FalseSharing,
            Column::RemoteRatio => Column::RemoteMisses,
            column if is_of_some(column) => return Ok(None),
            _ => column,
        };
        match parts.content(row).is_unknown() {
            true => Err(CheckError::Unknown { profile: self.who, column: column.as_str() }),
            false => Ok(None),
        }
    }
}

/// Whether it is known of some objects only: frames have no size, and how memory is backed is looked up for large blocks.
fn is_of_some(column: Column) -> bool {
    let is_live = matches!(column, Column::MaxLiveBytes | Column::LiveAtPeakBytes | Column::LiveAtEndBytes);
    is_live || matches!(column, Column::Bytes | Column::HugeShare)
}

/// What is held, in one profile.
struct Value {
    value: Option<f64>,
    interval: Option<(f64, f64)>,
    /// Part of what makes the whole wait.
    leading_share: f64,
}

impl Value {
    fn of(
        objects: &Objects<'_>,
        row: &Row,
        has_objects: bool,
        condition: &Condition,
    ) -> Result<Self, CheckError> {
        let column = condition.column;
        let value = objects.value(row, has_objects, column)?;
        let certainty = match column {
            Column::Share => row.certainties.share,
            Column::StallShare => row.certainties.stall,
            _ => None,
        };
        // What the model does wrong, it does in both.
        let is_relative = condition.limit.is_relative();
        let certainty = certainty.map(|it| if is_relative { it.of_same_model() } else { it });
        let interval = certainty.zip(value).and_then(|(certainty, value)| certainty.interval(value));
        Ok(Self { value, interval, leading_share: row.leading_share().unwrap_or(0.0) })
    }
}

fn hold(
    profile: &Objects<'_>,
    baseline: Option<&Objects<'_>>,
    condition: &Condition,
) -> Result<HeldCondition, CheckError> {
    let column = condition.column;
    let baseline = match (condition.limit.is_relative(), baseline) {
        (true, None) => return Err(CheckError::NoBaseline(condition.to_string())),
        (true, baseline) => baseline,
        (false, _) => None,
    };
    let has_interval = matches!(column, Column::Share | Column::StallShare | Column::HugeShare);
    for objects in [Some(profile), baseline].into_iter().flatten() {
        let run = &objects.profile.run;
        if run.estimated && !has_interval && !column.is_of_program() {
            return Err(CheckError::Estimated { column: column.as_str(), mode: run.mode.clone() });
        }
    }
    if let Some(baseline) = baseline {
        alike(profile.profile, baseline.profile, column)?;
    }
    let both = || [Some(profile), baseline].into_iter().flatten();
    let names = || both().flat_map(|objects| objects.by_name.keys().copied());
    let of_name = |named: Named<'_>| -> Result<(Held, f64), CheckError> {
        let (objects, old) = (profile.named(named), baseline.map(|baseline| baseline.named(named)));
        let of = |side: &Objects<'_>, objects: &Namesakes<'_>| {
            let row = Row {
                // What several have at one time is known of each alone: the most of one.
                max_live_bytes: objects.objects().filter_map(|object| object.max_live_bytes).max(),
                ..objects.row(side.whole)
            };
            Value::of(side, &row, !objects.members().is_empty(), condition)
        };
        let value = of(profile, &objects)?;
        let old = baseline.zip(old.as_ref()).map(|(side, objects)| of(side, objects)).transpose()?;
        let share = old.as_ref().map_or(0.0, |old| old.leading_share).max(value.leading_share);
        let row = objects.row(profile.whole);
        let held = Held {
            name: Some(named.0.to_owned()),
            kind: Some(named.1),
            place: row.place,
            ids: objects.objects().map(|object| object.id).collect(),
            ..judged(condition, value, old)
        };
        Ok((held, share))
    };
    match &condition.subject {
        Subject::Program => {
            let of = |objects: &Objects<'_>| {
                let row = Row::of_program(objects.profile, &objects.totals);
                let has_none = matches!(column, Column::MaxLiveBytes | Column::HugeShare);
                match has_none && column.content(&row).is_unknown() {
                    true => Err(CheckError::OfObjects { column: column.as_str() }),
                    false => Value::of(objects, &row, true, condition),
                }
            };
            let (value, old) = (of(profile)?, baseline.map(of).transpose()?);
            let held = vec![judged(condition, value, old)];
            Ok(HeldCondition { condition: condition.clone(), held, left_out: 0 })
        }
        Subject::Named(wanted) => {
            let what = ["object of the profile", "single object of the profile"];
            let all = names().map(|(name, _)| name);
            let name = the_one(all, wanted, what).map_err(CheckError::NoObject)?;
            let cost = |named| both().map(|objects| objects.cost(named)).max();
            let costliest = names().filter(|(of, _)| *of == name).max_by_key(|&named| cost(named));
            let held: Vec<Held> = costliest.map(of_name).transpose()?.into_iter().map(|it| it.0).collect();
            if is_of_some(column) && held.iter().all(|held| held.value.is_none()) {
                return Err(CheckError::Unknown { profile: profile.who, column: column.as_str() });
            }
            Ok(HeldCondition { condition: condition.clone(), held, left_out: 0 })
        }
        Subject::Each(glob) => {
            let fits = |&(name, kind): &Named<'_>| kind != ObjectKind::Computation && glob.matches(name);
            let fitting: BTreeSet<Named<'_>> = names().filter(fits).collect();
            if fitting.is_empty() {
                return Err(CheckError::NoneFits(glob.to_string()));
            }
            let all = fitting.into_iter().map(of_name).collect::<Result<Vec<_>, _>>()?;
            let sum = |of: fn(&Held) -> Option<f64>| all.iter().filter_map(|(held, _)| of(held)).sum::<f64>();
            let (sum_new, sum_old) = (sum(|held| held.value), sum(|held| held.baseline));
            let has_part = |(held, share): &(Held, f64)| {
                let is_part = |value: Option<f64>, sum: f64| value.is_some_and(|it| it >= LEAST_PART * sum);
                match (column.is_ratio(), condition.limit.is_relative()) {
                    (true, _) => *share >= LEAST_PART,
                    (false, true) => is_part(held.value, sum_new) || is_part(held.baseline, sum_old),
                    (false, false) => true,
                }
            };
            let count = all.len();
            let mut held: Vec<Held> = all.into_iter().filter(has_part).map(|(held, _)| held).collect();
            let left_out = count - held.len();
            let sign = if condition.side.is_above() { 1.0 } else { -1.0 };
            // As a part of the limit: that of one object is not that of another.
            let beyond = |held: &Held| {
                let part = held.excess().zip(held.limit).map(|(excess, limit)| sign * excess / limit.abs());
                part.filter(|part| !part.is_nan()).unwrap_or(f64::NEG_INFINITY)
            };
            held.sort_by(|a, b| a.verdict.cmp(&b.verdict).then(beyond(b).total_cmp(&beyond(a))));
            Ok(HeldCondition { condition: condition.clone(), held, left_out })
        }
    }
}

/// Whether two profiles' values of a column can be held against each other.
fn alike(profile: &Profile, baseline: &Profile, column: Column) -> Result<(), CheckError> {
    if !column.is_of_program() {
        let mode = |profile: &Profile| format!("{} mode ({})", profile.run.mode, profile.run.primary_cost);
        let (of_profile, of_baseline) = (mode(profile), mode(baseline));
        if of_profile != of_baseline {
            return Err(CheckError::Modes { profile: of_profile, baseline: of_baseline });
        }
        let differences = machine_differences(baseline, profile);
        if !column.is_of_accesses() && !differences.is_empty() {
            return Err(CheckError::Machines(differences.join(", ")));
        }
    }
    let (of_profile, of_baseline) = (end(profile), end(baseline));
    if of_profile != of_baseline {
        return Err(CheckError::Ends { profile: of_profile, baseline: of_baseline });
    }
    let (of_profile, of_baseline) = (merged(profile), merged(baseline));
    if of_profile != of_baseline && !column.is_ratio() {
        return Err(CheckError::Merged { profile: of_profile, baseline: of_baseline });
    }
    Ok(())
}

/// A value against the condition's limit; who it is of comes later.
fn judged(condition: &Condition, new: Value, old: Option<Value>) -> Held {
    let (limit, side) = (condition.limit, condition.side);
    let is_relative = limit.is_relative();
    let baseline = old.as_ref().and_then(|old| old.value);
    let against = if is_relative { baseline.map(|baseline| limit.of(baseline)) } else { Some(limit.of(0.0)) };
    let excess = new.value.zip(against).map(|(value, against)| value - against);
    let old_interval = old.as_ref().and_then(|old| old.interval);
    let excess_interval = excess.filter(|_| new.interval.is_some() || old_interval.is_some()).map(|excess| {
        let (value, factor) = (new.value.unwrap_or(0.0), limit.factor());
        let base = factor * baseline.unwrap_or(0.0);
        let of_base = old_interval.map(|(low, high)| (factor * low, factor * high));
        let (low, high) = of_difference((base, of_base), (value, new.interval));
        let more = excess - (value - base);
        (low + more, high + more)
    });
    let verdict = match (excess, excess_interval) {
        (None, _) => Verdict::Nothing,
        (Some(excess), _) if !side.has(excess) => Verdict::Passes,
        (Some(_), Some((low, _))) if side.is_above() && !side.has(low) => Verdict::Unsure,
        (Some(_), Some((_, high))) if !side.is_above() && !side.has(high) => Verdict::Unsure,
        (Some(_), _) => Verdict::Fails,
    };
    Held {
        name: None,
        kind: None,
        place: None,
        ids: Vec::new(),
        value: new.value,
        baseline,
        limit: against,
        excess_interval,
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_profile::{CacheInfo, MERGED_FROM, Object};

    fn object(id: u32, name: &str, loads: u64, misses: u64) -> Object {
        let counts = Counts { loads, l1_load_misses: misses, ..Counts::default() };
        Object {
            id,
            name: name.into(),
            bytes: Some(8 * u64::from(id)),
            blocks: 1,
            counts,
            ..Object::default()
        }
    }

    /// Counted, on a machine that has a first level alone.
    fn profile(objects: Vec<Object>) -> Profile {
        let mut profile = Profile { objects, ..Profile::default() };
        profile.run.mode = "exact".into();
        profile.machine.l1d = Some(CacheInfo { bytes: 1024, ways: 2, ..CacheInfo::default() });
        profile
    }

    fn of(profile: &Profile, baseline: Option<&Profile>, condition: &str) -> HeldCondition {
        let condition = condition.parse().unwrap_or_else(|error| panic!("{condition}: {error}"));
        let check = check(profile, baseline, std::slice::from_ref(&condition));
        check.unwrap_or_else(|error| panic!("{condition}: {error}")).conditions.remove(0)
    }

    #[test]
    fn values_are_held_on_the_side_that_the_condition_says() {
        let large = |object: Object, bytes| Object { max_live_bytes: Some(bytes), ..object };
        let pointer = Object { kind: ObjectKind::Local, ..object(4, "a", 0, 0) };
        let (one, other) = (large(object(1, "a", 1000, 110), 70), large(object(2, "a", 100, 10), 90));
        let new = profile(vec![one, other, object(3, "b", 10, 0), pointer]);
        let old = profile(vec![object(9, "a", 1000, 100), object(8, "gone", 500, 7)]);
        use Verdict::{Fails, Nothing, Passes};
        for (condition, value, baseline, verdict) in [
            ("l1_misses > 119", Some(120.0), None, Fails),
            ("l1_misses > 120", Some(120.0), None, Passes),
            ("l1_misses >= 120", Some(120.0), None, Fails),
            ("l1_misses < 120", Some(120.0), None, Passes),
            ("l1_misses <= 120", Some(120.0), None, Fails),
            // 107 before.
            ("l1_misses > +12%", Some(120.0), Some(107.0), Fails),
            ("l1_misses > +13%", Some(120.0), Some(107.0), Passes),
            ("l1_misses > +13", Some(120.0), Some(107.0), Passes),
            ("l1_misses > +12", Some(120.0), Some(107.0), Fails),
            ("l1_misses < -1%", Some(120.0), Some(107.0), Passes),
            // All objects of a name are one.
            ("a:l1_misses > +19%", Some(120.0), Some(100.0), Fails),
            ("a:blocks > +1", Some(2.0), Some(1.0), Passes),
            ("blocks > 3", Some(4.0), None, Fails),
            ("bytes > 79", Some(80.0), None, Fails),
            // The pointer is not: what it points to costs more.
            ("a:bytes > 23", Some(24.0), None, Fails),
            ("a:max_live_bytes > 89", Some(90.0), None, Fails),
            // What is not there has none of anything.
            ("gone:l1_misses > +0%", Some(0.0), Some(7.0), Passes),
            ("gone:l1_misses < -50%", Some(0.0), Some(7.0), Fails),
            ("b:loads > +50%", Some(10.0), Some(0.0), Fails),
            ("gone:share > +1pp", Some(0.0), Some(0.11515), Passes),
            // There is no ratio of nothing.
            ("gone:l1_miss_ratio > +1pp", None, Some(0.014), Nothing),
            ("a:l1_miss_ratio > 10.9%", Some(120.0 / 1100.0), None, Fails),
            ("a:l1_miss_ratio > +0.9pp", Some(120.0 / 1100.0), Some(0.1), Fails),
            ("a:l1_miss_ratio > +0.91pp", Some(120.0 / 1100.0), Some(0.1), Passes),
        ] {
            let held = of(&new, Some(&old), condition);
            let [one] = held.held.as_slice() else { panic!("{condition}: {held:?}") };
            let near = |found: Option<f64>, wanted: Option<f64>| match (found, wanted) {
                (Some(found), Some(wanted)) => (found - wanted).abs() < 1e-4,
                (found, wanted) => found == wanted,
            };
            assert!(near(one.value, value), "{condition}: {one:?}");
            let is_relative = condition.contains(['+', '-']);
            assert!(near(one.baseline, baseline.filter(|_| is_relative)), "{condition}: {one:?}");
            assert_eq!((one.verdict, held.verdict()), (verdict, verdict), "{condition}");
        }
    }

    #[test]
    fn each_name_is_held_by_itself_the_worst_first() {
        let new = profile(vec![object(1, "x", 900, 90), object(2, "y", 900, 300), object(3, "tiny", 9, 2)]);
        let old = profile(vec![object(1, "x", 900, 80), object(2, "y", 900, 200), object(3, "tiny", 9, 1)]);
        let names = |held: &HeldCondition| -> Vec<String> {
            held.held.iter().map(|held| held.name.clone().expect("an object")).collect()
        };
        let grown = of(&new, Some(&old), "*:l1_misses > +5%");
        assert_eq!((names(&grown), grown.left_out), (vec!["y".into(), "x".into()], 1));
        assert!(grown.held.iter().all(|held| held.verdict == Verdict::Fails));
        // What is fixed, is so for what is small, too.
        let fixed = of(&new, None, "?*:l1_misses < 91");
        assert_eq!((names(&fixed), fixed.left_out), (vec!["tiny".into(), "x".into(), "y".into()], 0));
        assert_eq!(fixed.held[2].verdict, Verdict::Passes);
        // Of what is not known nothing is said, unless it is asked for by name.
        let live = of(&new, None, "*:max_live_bytes > 5");
        assert!(live.held.iter().all(|held| held.verdict == Verdict::Nothing), "{live:?}");
        let ratio = of(&new, None, "*:l1_miss_ratio > 20%");
        assert_eq!(names(&ratio), ["y", "x"], "{ratio:?}");
        assert_eq!((ratio.verdict(), ratio.left_out), (Verdict::Fails, 1));
    }

    #[test]
    fn shares_of_bursts_fail_beyond_chance_alone() {
        let estimated = |misses, bursts| {
            let mut profile = profile(vec![object(1, "x", 1000, misses), object(2, "y", 1000, 500)]);
            profile.run.mode = "burst".into();
            profile.run.estimated = true;
            profile.run.effective_bursts = Some(bursts);
            profile
        };
        // 50 and 61 % of the wait.
        let (old, few, many) = (estimated(500, 1e6), estimated(800, 20.0), estimated(800, 1e6));
        for (condition, verdict_of_few, verdict_of_many) in [
            ("x:share > 51%", Verdict::Unsure, Verdict::Unsure),
            ("x:share > 30%", Verdict::Fails, Verdict::Fails),
            ("x:share > 70%", Verdict::Passes, Verdict::Passes),
            ("x:share < 70%", Verdict::Unsure, Verdict::Unsure),
            ("x:share < 99%", Verdict::Fails, Verdict::Fails),
            ("x:share > +1pp", Verdict::Unsure, Verdict::Fails),
            ("x:share > +30pp", Verdict::Passes, Verdict::Passes),
            ("x:share > -10%", Verdict::Unsure, Verdict::Fails),
        ] {
            for (new, verdict) in [(&few, verdict_of_few), (&many, verdict_of_many)] {
                let held = of(new, Some(&old), condition);
                assert_eq!(held.verdict(), verdict, "{condition}: {held:?}");
                let (low, high) = held.held[0].excess_interval.expect("it is estimated");
                let excess = held.held[0].excess().expect("it is known");
                assert!(low < excess && excess < high, "{held:?}");
            }
        }
        let mut merged = estimated(500, 20.0);
        merged.run.notes.push(format!("{MERGED_FROM} 3 runs"));
        assert_eq!(of(&many, Some(&merged), "x:share > +30pp").verdict(), Verdict::Passes);
        let error = check(&few, None, &["l1_misses > 1".parse().expect("it is one")]).unwrap_err();
        assert!(error.to_string().contains("would pass or fail by chance"), "{error}");
    }

    #[test]
    fn what_cannot_be_held_is_refused() {
        let exact = profile(vec![object(1, "x", 1000, 10)]);
        let with = |change: fn(&mut Profile)| {
            let mut profile = exact.clone();
            change(&mut profile);
            profile
        };
        let other_machine =
            with(|it| it.machine.l1d = Some(CacheInfo { bytes: 2048, ..CacheInfo::default() }));
        let other_mode = with(|it| it.run.mode = "burst".into());
        let merged = with(|it| it.run.notes.push("merged from 3 runs".into()));
        let aborted = with(|it| it.run.signal = Some(6));
        let truncated = with(|it| it.attribution.truncated = true);
        let refused = |baseline: Option<&Profile>, condition: &str, part: &str| {
            let condition = condition.parse().expect("it is one");
            let error = check(&exact, baseline, &[condition]).expect_err("it is refused").to_string();
            assert!(error.contains(part), "{error}");
        };
        refused(None, "l1_misses > +5%", "give it with --baseline");
        refused(None, "llc_misses > 5", "the profile has no llc_misses");
        refused(None, "x:llc_miss_ratio > 5%", "the profile has no llc_miss_ratio");
        refused(None, "x:stall_share > 5%", "the profile has no stall_share");
        refused(None, "x:max_live_bytes > 5", "the profile has no max_live_bytes");
        refused(None, "max_live_bytes > 5", "‘OBJECT:max_live_bytes’");
        refused(None, "xs:loads > 5", "did you mean ‘x’");
        refused(None, "y*:loads > 5", "no object's name fits ‘y*’");
        refused(Some(&other_machine), "l1_misses > +5%", "L1d 2 KiB 0-way → 1 KiB 2-way");
        refused(Some(&other_mode), "loads > +5%", "the baseline in burst mode");
        refused(Some(&merged), "loads > +5%", "of one run, the baseline's of 3 runs");
        refused(Some(&aborted), "x:bytes > +5%", "the baseline's was ended by signal 6");
        refused(Some(&truncated), "loads > 5", "the baseline ends before");
        // What the program decides alone is the same everywhere.
        assert_eq!(of(&exact, Some(&other_machine), "loads > +5%").verdict(), Verdict::Passes);
        assert_eq!(of(&exact, Some(&other_mode), "x:bytes > +5%").verdict(), Verdict::Passes);
    }

    #[test]
    fn columns_hold_what_their_units_say() {
        let profile = profile(vec![object(1, "x", 1000, 10)]);
        let row = Row::of_program(&profile, &profile.totals());
        for column in Column::ALL {
            let content = column.content(&row);
            let is_end = !column.is_amount() && !column.is_text() && !column.is_place();
            assert_eq!(column.is_ratio(), matches!(content, Content::Ratio(_)), "{column:?}");
            assert_eq!(column.is_bytes(), matches!(content, Content::Bytes(_)), "{column:?}");
            assert_eq!(column.is_text(), matches!(content, Content::Text(_)), "{column:?}");
            assert!(!is_end || column.as_str().ends_with("_low") || column.as_str().ends_with("_high"));
        }
    }
}
