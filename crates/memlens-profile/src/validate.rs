//! A profile's invariants.

use memlens_types::{Counts, Sampled};

use crate::packed_counts::values;
use crate::{ObjectPattern, PackedCounts, Profile};

/// What is wrong with a profile, and where. Messages stand alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Inconsistency {
    /// An index points behind the end of its table.
    #[error("row {row} of {table} refers to row {target} of {target_table}, which does not exist")]
    DanglingIndex {
        /// The table with the index.
        table: &'static str,
        /// Its row.
        row: usize,
        /// The table referred to.
        target_table: &'static str,
        /// The row referred to.
        target: u32,
    },
    /// An id is 0 or used twice.
    #[error("row {row} of {table} has the id {id}, which is 0 or used before")]
    BadId {
        /// The table.
        table: &'static str,
        /// Its row.
        row: usize,
        /// The id.
        id: u32,
    },
    /// Two cells have the same code, object and thread.
    #[error("row {row} of cells repeats an earlier row's code, object and thread")]
    RepeatedCell {
        /// The row of the second one.
        row: usize,
    },
    /// A slice ends before it begins, or begins elsewhere than the one before ends.
    #[error(
        "row {row} of slices does not begin where the row before ends, ends before it begins, or beyond all times"
    )]
    BrokenTime {
        /// Its row.
        row: usize,
    },
    /// A slice has an object twice.
    #[error("row {row} of slice_uses repeats an earlier row's slice and object")]
    RepeatedUse {
        /// The row of the second one.
        row: usize,
    },
    /// There are more slices than any profile has.
    #[error("there are {0} slices, and at most {MOST_SLICES_READ} can be")]
    TooManySlices(usize),
    /// Two rows of path samples have the same path and object.
    #[error("row {row} of path_samples repeats an earlier row's path and object")]
    RepeatedPath {
        /// The row of the second one.
        row: usize,
    },
    /// Counts are not the sum of the cells.
    #[error("row {row} of {table} does not hold the sum of its cells")]
    SumMismatch {
        /// The table.
        table: &'static str,
        /// Its row.
        row: usize,
    },
    /// Write-backs are charged to something other than an object.
    #[error("row {row} of {table} has dram_writes, which belong to objects only")]
    WriteBacksOutsideObjects {
        /// The table.
        table: &'static str,
        /// Its row.
        row: usize,
    },
    /// Counts that no run can have: more modifies than loads or stores, samples found
    /// more than once, or sums beyond 2⁶⁰.
    #[error("row {row} of {table} has counts that no run can have")]
    ImpossibleCounts {
        /// The table.
        table: &'static str,
        /// Its row, at which the sum over the rows becomes too large if the row alone is possible.
        row: usize,
    },
    /// The reasons for unknown accesses do not add up.
    #[error("the reasons explain {explained} unknown accesses of {unknown}")]
    UnexplainedUnknown {
        /// Sum over the reasons.
        explained: u64,
        /// Unknown accesses.
        unknown: u64,
    },
}

impl Profile {
    /// Checks that every index is in range and every id is unique. Linear.
    ///
    /// # Errors
    /// The first violation found.
    pub fn validate_references(&self) -> Result<(), Inconsistency> {
        for (row, frame) in self.frames.iter().enumerate() {
            check("frames", row, frame.module.map(|ix| ix.0), "modules", self.modules.len())?;
        }
        for (row, stack) in self.stacks.iter().enumerate() {
            for frame in &stack.0 {
                check("stacks", row, Some(frame.0), "frames", self.frames.len())?;
            }
        }
        for (row, object) in self.objects.iter().enumerate() {
            check("objects", row, object.site.map(|ix| ix.0), "stacks", self.stacks.len())?;
            check("objects", row, object.module.map(|ix| ix.0), "modules", self.modules.len())?;
        }
        unique_ids("objects", self.objects.iter().map(|object| object.id))?;
        for (row, code) in self.code.iter().enumerate() {
            check("code", row, code.stack.map(|ix| ix.0), "stacks", self.stacks.len())?;
            check("code", row, code.module.map(|ix| ix.0), "modules", self.modules.len())?;
        }
        unique_ids("code", self.code.iter().map(|code| code.id))?;
        for (row, cell) in self.cells.iter().enumerate() {
            check("cells", row, Some(cell.code.0), "code", self.code.len())?;
            check("cells", row, Some(cell.object.0), "objects", self.objects.len())?;
            check("cells", row, Some(cell.thread.0), "threads", self.threads.len())?;
        }
        for (row, pattern) in self.patterns.iter().enumerate() {
            check("patterns", row, Some(pattern.code.0), "code", self.code.len())?;
            check("patterns", row, pattern.loaded_by.map(|ix| ix.0), "code", self.code.len())?;
        }
        for (row, ObjectPattern { object, pattern }) in self.object_patterns.iter().enumerate() {
            check("object_patterns", row, Some(object.0), "objects", self.objects.len())?;
            check("object_patterns", row, Some(pattern.code.0), "code", self.code.len())?;
            check("object_patterns", row, pattern.loaded_by.map(|ix| ix.0), "code", self.code.len())?;
        }
        for (row, field) in self.fields.iter().enumerate() {
            check("fields", row, Some(field.object.0), "objects", self.objects.len())?;
        }
        for (row, part) in self.field_uses.iter().enumerate() {
            check("field_uses", row, Some(part.code.0), "code", self.code.len())?;
            check("field_uses", row, Some(part.field.0), "fields", self.fields.len())?;
        }
        for (row, path) in self.paths.iter().enumerate() {
            check("paths", row, Some(path.frame.0), "frames", self.frames.len())?;
            // A parent comes before its child, so its row is below the child's.
            check("paths", row, path.parent.map(|ix| ix.0), "paths", row)?;
        }
        for (row, part) in self.path_cells.iter().enumerate() {
            check("path_samples", row, part.path.map(|ix| ix.0), "paths", self.paths.len())?;
            check("path_samples", row, Some(part.object.0), "objects", self.objects.len())?;
        }
        for (row, part) in self.slice_uses.iter().enumerate() {
            check("slice_uses", row, Some(part.slice.0), "slices", self.slices.len())?;
            check("slice_uses", row, part.object.map(|ix| ix.0), "objects", self.objects.len())?;
        }
        for (row, mark) in self.marks.iter().enumerate() {
            check("marks", row, mark.thread.map(|ix| ix.0), "threads", self.threads.len())?;
        }
        Ok(())
    }

    /// Checks that counts are possible: afterwards no sum over a table overflows. Linear.
    ///
    /// # Errors
    /// The first violation found.
    pub fn validate_counts(&self) -> Result<(), Inconsistency> {
        possible("objects", self.objects.iter().map(|object| object.counts))?;
        possible("code", self.code.iter().map(|code| code.counts.get()))?;
        possible("cells", self.cells.iter().map(|cell| cell.counts.get()))?;
        possible("path_samples", self.path_cells.iter().map(|cell| cell.counts.get()))?;
        self.validate_slices()?;
        possible("threads", self.threads.iter().map(|thread| thread.counts))
    }

    /// Checks everything: references, possible counts, that counts are the cells' sums, that reasons add up.
    /// O(n log n) in the cells.
    ///
    /// # Errors
    /// The first violation found.
    pub fn validate(&self) -> Result<(), Inconsistency> {
        self.validate_references()?;
        self.validate_counts()?;
        let mut order: Vec<usize> = (0..self.cells.len()).collect();
        let key = |row: usize| (self.cells[row].code, self.cells[row].object, self.cells[row].thread);
        order.sort_unstable_by_key(|&row| (key(row), row));
        if let Some(pair) = order.windows(2).find(|pair| key(pair[0]) == key(pair[1])) {
            return Err(Inconsistency::RepeatedCell { row: pair[1] });
        }
        no_write_backs("cells", self.cells.iter().map(|cell| cell.counts.get()))?;

        let mut objects = vec![Counts::default(); self.objects.len()];
        let mut code = vec![PackedCounts::default(); self.code.len()];
        let mut threads = vec![Counts::default(); self.threads.len()];
        for cell in &self.cells {
            let counts = cell.counts.get();
            objects[cell.object.index()] += &counts;
            code[cell.code.index()] += &counts;
            threads[cell.thread.index()] += &counts;
        }
        for (sum, object) in objects.iter_mut().zip(&self.objects) {
            sum.dram_writes = object.counts.dram_writes;
        }
        same("objects", objects.iter().zip(self.objects.iter().map(|object| &object.counts)))?;
        same("code", code.iter().zip(self.code.iter().map(|code| &code.counts)))?;
        same("threads", threads.iter().zip(self.threads.iter().map(|thread| &thread.counts)))?;

        self.validate_path_cells()?;
        let explained = self.attribution.unknown_reasons.values().sum();
        let unknown = self.attribution.unknown_accesses;
        if explained == unknown {
            Ok(())
        } else {
            Err(Inconsistency::UnexplainedUnknown { explained, unknown })
        }
    }
}

impl Profile {
    /// One slice after the other, and no sum that overflows.
    fn validate_slices(&self) -> Result<(), Inconsistency> {
        if self.slices.len() > MOST_SLICES_READ {
            return Err(Inconsistency::TooManySlices(self.slices.len()));
        }
        let mut at = self.slices.first().map_or(0, |first| first.begin);
        for (row, slice) in self.slices.iter().enumerate() {
            if slice.begin != at || slice.end < slice.begin || slice.end > MOST {
                return Err(Inconsistency::BrokenTime { row });
            }
            at = slice.end;
        }
        let mut sum = 0u64;
        let mut seen = std::collections::HashSet::new();
        for (row, part) in self.slice_uses.iter().enumerate() {
            if !seen.insert((part.slice, part.object)) {
                return Err(Inconsistency::RepeatedUse { row });
            }
            let most = part.cost.max(part.dram_reads.unwrap_or(0)).max(part.live_bytes.unwrap_or(0));
            sum = sum.saturating_add(most);
            if sum > MOST {
                return Err(Inconsistency::ImpossibleCounts { table: "slice_uses", row });
            }
        }
        Ok(())
    }

    /// Each pair once, and together all that the objects have or nothing. Which samples were found in which way paths do not tell.
    fn validate_path_cells(&self) -> Result<(), Inconsistency> {
        let mut seen = std::collections::HashSet::new();
        let mut sum = Counts::default();
        for (row, cell) in self.path_cells.iter().enumerate() {
            if !seen.insert((cell.path, cell.object)) {
                return Err(Inconsistency::RepeatedPath { row });
            }
            sum += &cell.counts.get();
        }
        let of_either_way = |Sampled { samples, cost, .. }| Sampled { samples, cost, ..Sampled::default() };
        let totals = self.totals();
        let totals = Counts { dram_writes: 0, sampled: of_either_way(totals.sampled), ..totals };
        sum.sampled = of_either_way(sum.sampled);
        if self.path_cells.is_empty() || sum == totals {
            return Ok(());
        }
        Err(Inconsistency::SumMismatch { table: "path_samples", row: self.path_cells.len() - 1 })
    }
}

fn check(
    table: &'static str,
    row: usize,
    target: Option<u32>,
    target_table: &'static str,
    target_len: usize,
) -> Result<(), Inconsistency> {
    match target {
        Some(target) if target as usize >= target_len => {
            Err(Inconsistency::DanglingIndex { table, row, target_table, target })
        }
        _ => Ok(()),
    }
}

fn unique_ids(table: &'static str, ids: impl Iterator<Item = u32>) -> Result<(), Inconsistency> {
    let mut seen = std::collections::HashSet::new();
    for (row, id) in ids.enumerate() {
        if id == 0 || !seen.insert(id) {
            return Err(Inconsistency::BadId { table, row, id });
        }
    }
    Ok(())
}

/// Slices at most, of any version: who shows them has room for all of them for each object.
const MOST_SLICES_READ: usize = 1024;

/// What no sum over a table reaches.
const MOST: u64 = 1 << 60;

fn possible(table: &'static str, counts: impl Iterator<Item = Counts>) -> Result<(), Inconsistency> {
    let mut sum = 0u64;
    for (row, counts) in counts.enumerate() {
        let Counts { loads, stores, modifies, sampled, .. } = counts;
        let Sampled { samples, by_hardware, by_registers, by_code, .. } = sampled;
        // The largest of a row bounds each of its counts, so the sum of the largest bounds each sum.
        sum = sum.saturating_add(values(&counts).into_iter().fold(0, u64::max));
        let found = by_hardware.saturating_add(by_registers).saturating_add(by_code);
        if sum > MOST || modifies > loads.min(stores) || found > samples {
            return Err(Inconsistency::ImpossibleCounts { table, row });
        }
    }
    Ok(())
}

fn no_write_backs(
    table: &'static str,
    mut counts: impl Iterator<Item = Counts>,
) -> Result<(), Inconsistency> {
    match counts.position(|counts| counts.dram_writes != 0) {
        Some(row) => Err(Inconsistency::WriteBacksOutsideObjects { table, row }),
        None => Ok(()),
    }
}

fn same<'a, T: PartialEq + 'a>(
    table: &'static str,
    mut pairs: impl Iterator<Item = (&'a T, &'a T)>,
) -> Result<(), Inconsistency> {
    match pairs.position(|(sum, held)| sum != held) {
        Some(row) => Err(Inconsistency::SumMismatch { table, row }),
        None => Ok(()),
    }
}
