//! What a change did: two profiles' rows, by any grouping, with how much more or less each has.
//!
//! [`compare`](crate::compare()) asks how alike two rankings are; this asks what has become more and less, where, and holds data and code
//! against each other that only one of both has: it is *gone*, or *new*.
//!
//! | room | does |
//! |---|---|
//! | `runs.rs` | [`Runs`]: one profile of each side, or several |
//! | `groups.rs` | which rows belong together, where source was edited, too; what each run has of them |
//! | `amount.rs` | how sure amounts and their differences are |
//! | `unplaced.rs` | memory that goes by its site in one run and by a pointer in the other |
//! | `text.rs`, `data.rs` | a table; JSON and CSV |

mod amount;
mod data;
mod groups;
mod runs;
mod text;
mod unplaced;

use crate::column::Column;
use crate::row::{By, Row, leading_share};
use crate::table::cost_word;
use crate::unlike::{is_modelled, unlike};
use amount::{Side, difference};
use groups::{Group, groups};

pub use data::{DIFF_SCHEMA, diff_csv, diff_json};
pub use runs::{Runs, RunsError};
pub use text::diff_table;

/// Why two profiles have no difference. Reads after "cannot hold B against A: ".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiffError {
    /// The column holds no amount that one could have more or less of.
    #[error("‘{0}’ is no amount; --of takes wait, stall_cycles, loads, llc_misses, bytes …")]
    NoAmount(&'static str),
    /// One profile does not know the column.
    #[error(
        "{profile} has no {column}: its mode does not count that, its machine does not model it, or it is not known by {by}"
    )]
    Unknown {
        /// `A` or `B`.
        profile: char,
        /// The column.
        column: &'static str,
        /// The grouping.
        by: &'static str,
    },
    /// The costs are of different kinds.
    #[error(
        "A's cost is {a}, B's {b}: record both in one mode, or name what both count (--of loads, --of bytes)"
    )]
    Costs {
        /// What A's cost is.
        a: &'static str,
        /// What B's is.
        b: &'static str,
    },
}

/// One row of either profile or of both.
#[derive(Clone, Debug, PartialEq)]
pub struct DiffRow {
    /// Its name, in B if that has it.
    pub name: String,
    /// Its name in A, if that is another one: lines move.
    pub was: Option<String>,
    /// Whether it is a line whose text in A was another one.
    pub is_edited: bool,
    /// Kind of object, or of access.
    pub kind: Option<String>,
    /// Where it was allocated or declared, or where the code is; in B if that has it.
    pub place: Option<String>,
    /// For code: the objects that it touches, in B if that has it.
    pub objects: Option<String>,
    /// Numbers of A's objects.
    pub ids_a: Vec<u32>,
    /// Numbers of B's objects.
    pub ids_b: Vec<u32>,
    /// How much A has of it, the mean of its runs; `None`: A has no such row.
    pub a: Option<f64>,
    /// How much B has.
    pub b: Option<f64>,
    /// 95 % interval of the change, where it is estimated and what it rests on is known.
    pub change_interval: Option<(f64, f64)>,
}

impl DiffRow {
    /// What B has more than A.
    pub fn change(&self) -> f64 {
        self.b.unwrap_or(0.0) - self.a.unwrap_or(0.0)
    }

    /// Whether the change is more than chance; `None`: it is not estimated, or nothing is known of that.
    pub fn is_beyond_chance(&self) -> Option<bool> {
        self.change_interval.map(|(low, high)| low > 0.0 || high < 0.0)
    }

    /// `gone`, `new`, or nothing.
    pub fn fate(&self) -> Option<&'static str> {
        match (self.a, self.b) {
            (Some(_), None) => Some("gone"),
            (None, Some(_)) => Some("new"),
            _ => None,
        }
    }
}

/// What amounts are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Processor time.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// Cycles, accesses, misses …: this word, as columns are written.
    Count(&'static str),
}

/// Two profiles held against each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// What rows stand for.
    pub by: By,
    /// What they are held against each other by.
    pub of: Column,
    /// What amounts are of.
    pub unit: Unit,
    /// The whole program's amount in A; `None`: only its parts are known.
    pub total_a: Option<f64>,
    /// The whole program's in B.
    pub total_b: Option<f64>,
    /// 95 % interval of their difference, where it is estimated.
    pub total_interval: Option<(f64, f64)>,
    /// By falling change, whether more or less; then by falling amount.
    pub rows: Vec<DiffRow>,
    /// How many rows are left out because their amount is not known in A or in B: frames have no size.
    pub unknown: usize,
}

impl Diff {
    /// What B has more than A.
    pub fn change(&self) -> Option<f64> {
        Some(self.total_b? - self.total_a?)
    }
}

/// Holds B against A, row by row. `of`: an amount; [`Column::Share`] is the cost. Linear in cells and rows.
///
/// # Errors
/// If there is nothing to be held against each other.
pub fn diff(runs_a: &Runs, runs_b: &Runs, by: By, of: Column) -> Result<Diff, DiffError> {
    let (a, b) = (runs_a.whole(), runs_b.whole());
    let words = [cost_word(a), cost_word(b)];
    let of = match of {
        // A share is a part of these.
        Column::StallShare => Column::StallCycles,
        // The cost of what is counted.
        Column::WaitCycles if words == ["wait"; 2] => Column::Share,
        of => of,
    };
    if !of.adds_up() {
        return Err(DiffError::NoAmount(of.as_str()));
    }
    if of == Column::Share && words[0] != words[1] {
        return Err(DiffError::Costs { a: words[0], b: words[1] });
    }
    let sides = [runs_a, runs_b].map(|runs| Side::of(runs, of));
    let (unknown, known): (Vec<Group>, Vec<Group>) = groups([runs_a, runs_b], by, of)
        .into_iter()
        .partition(|group| group.amounts.iter().any(|amounts| amounts.is_unknown));
    for (side, profile) in ['A', 'B'].into_iter().enumerate() {
        let has_any = |groups: &[Group]| groups.iter().any(|group| group.rows[side].is_some());
        // A field's bytes are its size.
        if (has_any(&unknown) && !has_any(&known)) || (by == By::Field && of.is_of_program()) {
            return Err(DiffError::Unknown { profile, column: of.as_str(), by: by.as_str() });
        }
    }
    // What a model does wrong, it does in both.
    let same_model = a.run.mode == b.run.mode && (!is_modelled(a) || a.machine == b.machine);
    let row = |group: Group| {
        let estimate =
            |at: usize| sides[at].estimate(group.rows[at].as_ref(), &group.amounts[at], same_model);
        let estimates = [estimate(0), estimate(1)];
        let [of_a, of_b] = group.rows;
        let ids = |row: &Option<Row>| row.as_ref().map(|row| row.ids.clone()).unwrap_or_default();
        let (a, b) = (of_a.as_ref().map(|_| estimates[0].value), of_b.as_ref().map(|_| estimates[1].value));
        let (ids_a, ids_b) = (ids(&of_a), ids(&of_b));
        let was =
            of_a.as_ref().zip(of_b.as_ref()).filter(|(a, b)| a.name != b.name).map(|(a, _)| a.name.clone());
        let text = |row: &Option<Row>| {
            row.as_ref().and_then(|row| row.source_text.as_deref().map(|text| text.trim().to_owned()))
        };
        let is_edited = by == By::Line && text(&of_a).zip(text(&of_b)).is_some_and(|(a, b)| a != b);
        let Row { name, kind, place, objects, .. } = of_b.or(of_a)?;
        let change_interval = difference(&estimates[0], &estimates[1]).map(|(low, high)| match (a, b) {
            // What nobody saw in one of both has not become less there.
            (None, _) => (low.max(0.0), high),
            (_, None) => (low, high.min(0.0)),
            _ => (low, high),
        });
        Some(DiffRow { name, was, is_edited, kind, place, objects, ids_a, ids_b, a, b, change_interval })
    };
    let mut rows: Vec<DiffRow> = known.into_iter().filter_map(row).collect();
    if by == By::Object {
        unplaced::allow_for_names(&mut rows);
    }
    let most = |row: &DiffRow| row.a.unwrap_or(0.0).max(row.b.unwrap_or(0.0));
    rows.sort_by(|x, y| {
        let changes = y.change().abs().total_cmp(&x.change().abs()).then(most(y).total_cmp(&most(x)));
        changes.then_with(|| (&x.name, &x.ids_a, &x.ids_b).cmp(&(&y.name, &y.ids_a, &y.ids_b)))
    });
    let totals = sides.map(|side| side.total_estimate());
    let total_interval = match &totals {
        [Some(a), Some(b)] => difference(a, b),
        _ => None,
    };
    let [total_a, total_b] = totals.map(|total| total.map(|total| total.value));
    let unit = match of {
        Column::Share if words[0] == "time" => Unit::Nanoseconds,
        Column::Share if words[0] == "wait" => Unit::Count("wait_cycles"),
        Column::Share => Unit::Count(words[0]),
        of if of.is_bytes() => Unit::Bytes,
        of => Unit::Count(of.as_str()),
    };
    Ok(Diff { by, of, unit, total_a, total_b, total_interval, rows, unknown: unknown.len() })
}

/// What makes the sides unlike, besides the change.
fn unlike_sides(a: &Runs, b: &Runs) -> Vec<String> {
    let (a, b) = (a.whole(), b.whole());
    let modes = (a.run.mode != b.run.mode)
        .then(|| format!("A is of {} mode, B of {} mode: they do not count alike", a.run.mode, b.run.mode));
    modes.into_iter().chain(unlike(a, b)).collect()
}

/// What a difference is of if nobody says: the stalls, where both profiles have them and reports of either are ranked by them; else the cost.
pub fn leading_amount(a: &Runs, b: &Runs) -> Column {
    let both = [a, b].map(Runs::whole);
    let leads = both.iter().any(|profile| leading_share(profile) == Column::StallShare);
    if leads && both.iter().all(|profile| profile.has_stalls()) { Column::StallCycles } else { Column::Share }
}
