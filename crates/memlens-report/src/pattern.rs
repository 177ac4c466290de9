//! What a profile's patterns say of an object, a line, an instruction.
//!
//! Patterns are of operands, and of what an operand does in one object, where that is otherwise. A row of several takes the one that has most
//! of its stalls, where rows are ranked by these, else of its waiting beyond the first-level cache; where none has a clear majority it is
//! *mixed*.

use std::collections::{BTreeMap, HashMap};

use memlens_profile::{AccessPattern, Cell, CodeIx, ObjectIx, PatternIndex, Profile};
use memlens_types::{Counts, PatternKind};

use crate::Column;
use crate::row::leading_share;

/// A row's pattern has at least this part of the waiting that has a pattern.
const MAJORITY: f64 = 0.6;

/// The profile's patterns by operand, and what the loads bring that make addresses.
pub(crate) struct PatternWords<'a> {
    profile: &'a Profile,
    index: PatternIndex<'a>,
    /// By operand that loads an address or index: the object that it is loaded from.
    loaded_from: HashMap<CodeIx, &'a str>,
    /// Whether rows are ranked by their stalls.
    is_by_stall: bool,
}

impl<'a> PatternWords<'a> {
    /// Linear in the cells, where there are patterns.
    pub(crate) fn new(profile: &'a Profile) -> Self {
        let named = |(code, object): (CodeIx, ObjectIx)| {
            Some((code, profile.objects.get(object.index())?.name.as_str()))
        };
        let loaded_from = profile.loaded_from().into_iter().filter_map(named).collect();
        let is_by_stall = leading_share(profile) == Column::StallShare;
        Self { profile, index: PatternIndex::new(profile), loaded_from, is_by_stall }
    }

    /// Whose they are.
    pub(crate) fn profile(&self) -> &'a Profile {
        self.profile
    }

    /// Whether there are any.
    pub(crate) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The pattern of an operand, whatever it accesses.
    pub(crate) fn of_code(&self, code: CodeIx) -> Option<&'a AccessPattern> {
        self.index.of_code(code)
    }

    /// The pattern of what a cell counts; `None`: nothing is known, or the operand's is that of other data.
    fn of_cell(&self, cell: &Cell, counts: &Counts) -> Option<&'a AccessPattern> {
        let found = self.index.of(cell.code, cell.object)?;
        (self.index.has_several(cell.code) || !self.is_of_other_data(found, counts)).then_some(found)
    }

    /// The word for a row of these cells; `None`: nothing is known of them.
    pub(crate) fn word<'c>(&self, cells: impl Iterator<Item = &'c Cell>) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        // Of each pattern: stalls of the modelled core, and waiting.
        let mut costs: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for cell in cells {
            let counts = cell.counts.get();
            if let Some(pattern) = self.of_cell(cell, &counts) {
                let (stalls, waits) = costs.entry(self.describe(pattern)).or_default();
                *stalls += counts.stall_cycles;
                *waits += self.profile.cost_beyond_first_level(&counts) + 1;
            }
        }
        // What has none, has what it waits.
        let is_by_stall = self.is_by_stall && costs.values().any(|(stalls, _)| *stalls > 0);
        let costs =
            costs.into_iter().map(|(word, (stalls, waits))| (word, if is_by_stall { stalls } else { waits }));
        let costs: BTreeMap<String, u64> = costs.collect();
        let all: u64 = costs.values().sum();
        let (word, most) = costs.into_iter().max_by_key(|(_, cost)| *cost)?;
        Some(if most as f64 >= MAJORITY * all as f64 { word } else { "mixed".to_owned() })
    }

    /// The parts of these cells' waiting beyond the first level that each kind of pattern has, the largest first.
    pub(crate) fn shares<'c>(&self, cells: impl Iterator<Item = &'c Cell>) -> Vec<(PatternKind, f64)> {
        let mut costs: HashMap<PatternKind, u64> = HashMap::new();
        let mut all = 0;
        for cell in cells {
            let stall = self.profile.cost_beyond_first_level(&cell.counts.get());
            all += stall;
            if let Some(pattern) = self.index.of(cell.code, cell.object) {
                *costs.entry(pattern.kind).or_default() += stall;
            }
        }
        let mut shares: Vec<_> = costs
            .into_iter()
            .filter(|(_, cost)| *cost > 0)
            .map(|(kind, cost)| (kind, cost as f64 / all as f64))
            .collect();
        shares.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.as_str().cmp(other.0.as_str())));
        shares
    }

    /// Whether an operand's pattern is that of other data than has these counts: a stream comes to a new line once in several accesses, and
    /// cannot miss the first level at each. One loop may go through one array line by line, and through a column of another.
    fn is_of_other_data(&self, pattern: &AccessPattern, counts: &Counts) -> bool {
        /// Fewer accesses say nothing.
        const FEWEST: u64 = 64;
        /// More misses than lines by this factor are no stream's.
        const MORE: f64 = 4.0;
        let (PatternKind::Stream, Some(step)) = (pattern.kind, pattern.stride_bytes) else { return false };
        let misses = counts.l1_misses().saturating_sub(counts.shared.coherence_misses);
        let line_bytes = f64::from(self.profile.machine.line_bytes.max(1));
        let lines = counts.waiting() as f64 * (step.unsigned_abs() as f64 / line_bytes).min(1.0);
        counts.waiting() >= FEWEST && misses as f64 > MORE * lines
    }

    /// `stream +8`, `indirect by column`.
    fn describe(&self, pattern: &AccessPattern) -> String {
        let word = pattern.kind.as_str();
        match (pattern.kind, pattern.stride_bytes) {
            (PatternKind::Stream | PatternKind::Stride, Some(bytes)) => format!("{word} {bytes:+}"),
            (PatternKind::Indirect, _) => {
                let from = pattern.loaded_by.and_then(|code| self.loaded_from.get(&code));
                from.filter(|name| !name.is_empty())
                    .map_or(word.to_owned(), |name| format!("{word} by {name}"))
            }
            _ => word.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use memlens_profile::{CodeLocation, CoreInfo, Object, Thread, ThreadIx};

    use super::*;

    /// A stream that waits longest, and a chase that the core stalls for.
    #[test]
    fn the_pattern_is_of_what_rows_are_ranked_by() {
        let mut profile = Profile::default();
        profile.machine.line_bytes = 64;
        profile.machine.core = Some(CoreInfo::default());
        profile.objects = vec![Object { id: 1, ..Object::default() }];
        profile.threads = vec![Thread::default()];
        profile.code = vec![CodeLocation::default(), CodeLocation::default()];
        let pattern = |code, kind| AccessPattern { code: CodeIx(code), kind, ..AccessPattern::default() };
        profile.patterns = vec![pattern(0, PatternKind::Stream), pattern(1, PatternKind::PointerChase)];
        let cell = |code, loads, stall_cycles| {
            let (l1, l2, llc) = (loads, loads, loads);
            let counts = Counts {
                loads,
                l1_load_misses: l1,
                l2_load_misses: l2,
                llc_load_misses: llc,
                stall_cycles,
                ..Counts::default()
            };
            Cell { code: CodeIx(code), object: ObjectIx(0), thread: ThreadIx(0), counts: counts.into() }
        };
        profile.cells = vec![cell(0, 1000, 5000), cell(1, 100, 90_000)];
        profile.sum_cells();
        let word = |profile: &Profile| PatternWords::new(profile).word(profile.cells.iter());
        assert_eq!(word(&profile).as_deref(), Some("stream"), "no core's time is known");
        profile.run.core_cycles = Some(200_000);
        assert_eq!(word(&profile).as_deref(), Some("pointer-chase"));
        profile.cells.pop();
        profile.cells[0].counts.change(|counts| counts.stall_cycles = 0);
        assert_eq!(word(&profile).as_deref(), Some("stream"), "it has no stalls");
        // Eight accesses a line, of which each misses: what the operand does elsewhere.
        profile.patterns[0].stride_bytes = Some(8);
        assert_eq!(word(&profile), None);
        profile.cells[0].counts.change(|counts| counts.l1_load_misses = 125);
        assert_eq!(word(&profile).as_deref(), Some("stream +8"));
    }
}
