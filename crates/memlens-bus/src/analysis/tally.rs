//! What is counted of records, so that several threads can count for themselves: sums do not depend on who counted what.

use super::counts::{ObjectCounts, Point, TotalCounts};
use super::nodes::NodeLines;
use super::piece::{Class, Piece};
use super::reverse_table::Place;
use super::tables::Tables;
use super::time_bins::TimeBins;
use crate::format::{BusBlock, FrameUse};
use serde::{Deserialize, Serialize};

/// Sums over records. Whose walk reads are is settled before the next event: until then only their lines are counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Tally {
    /// By object.
    #[serde(with = "super::checkpoint::exact_counts")]
    pub counts: Vec<ObjectCounts>,
    pub totals: TotalCounts,
    pub bins: TimeBins,
    pub nodes: NodeLines,
    /// Lines of page tables that were read for the first time since they were settled: table and line.
    #[serde(skip)]
    pub fresh: Vec<(u32, u32)>,
    /// Data records with their ordinal numbers: one in so many as [`Self::count`] was told.
    #[serde(skip)]
    pub points: Vec<(u64, Point)>,
}

impl Tally {
    /// Nothing yet, for memory nodes as a header names them.
    pub fn new(nodes: &[(u64, u64)]) -> Self {
        Self { nodes: NodeLines::new(nodes), ..Self::default() }
    }

    /// The counts of an object.
    #[inline]
    pub fn of(&mut self, object: u32) -> &mut ObjectCounts {
        let index = object as usize;
        if self.counts.len() <= index {
            self.make_room(index);
        }
        &mut self.counts[index]
    }

    #[cold]
    fn make_room(&mut self, index: usize) {
        self.counts.resize(index + 1, ObjectCounts::default());
    }

    /// Counts the resolved records of a piece; one in `every` data records is kept as a point.
    pub fn count(&mut self, tables: &Tables, block: &BusBlock, piece: &Piece, every: u64) {
        let records = piece.records.start..piece.end();
        let (writes, durations) = (&block.writes[records.clone()], &block.durations[records.clone()]);
        self.bins.add_all(piece.start_cycles, durations, writes);
        let mut data = piece.first_data;
        let mut next_point = data.next_multiple_of(every);
        let (mut timed, mut cycles) = (0, piece.start_cycles);
        let has_nodes = !self.nodes.is_empty();
        for (at, (resolved, &write)) in piece.resolved.iter().zip(writes).enumerate() {
            match resolved.class {
                Class::Page | Class::SharedPage | Class::FormerPage => {
                    let counts = self.of(resolved.number);
                    counts.reads += u64::from(!write);
                    counts.writes += u64::from(write);
                    // Rare, so that the branch is cheaper than the addition.
                    if resolved.class != Class::Page {
                        counts.shared += u64::from(resolved.class == Class::SharedPage);
                        counts.late += u64::from(resolved.class == Class::FormerPage);
                    }
                    if has_nodes {
                        let paddr = block.lines[records.start + at] << tables.line_shift;
                        self.nodes.data(paddr, resolved.number, write);
                    }
                    if data == next_point {
                        cycles =
                            durations[timed..=at].iter().fold(cycles, |sum, time| sum.wrapping_add(*time));
                        timed = at + 1;
                        let line = block.lines[records.start + at];
                        self.points.push((data, (cycles, vaddr(tables, line), resolved.number, write)));
                        next_point += every;
                    }
                    data += 1;
                }
                Class::Table => {
                    let line = block.lines[records.start + at];
                    self.table(tables, resolved.number, line << tables.line_shift, write);
                }
                Class::Used(FrameUse::Kernel) => self.totals.kernel += 1,
                Class::Used(FrameUse::PageCache) => self.totals.page_cache += 1,
                Class::Used(FrameUse::Device) => self.totals.device += 1,
                Class::Unknown => self.totals.unknown += 1,
                Class::OutOfRange => self.totals.out_of_range += 1,
            }
        }
    }

    fn table(&mut self, tables: &Tables, number: u32, paddr: u64, write: bool) {
        if write {
            self.totals.table_writes += 1;
            return;
        }
        let Some(table) = tables.reverse.tables().get(number as usize) else { return };
        let line = (paddr & 0xfff) as usize >> tables.line_shift;
        let first = tables.reverse.pages_of_line(table, line).start;
        self.nodes.walk(paddr);
        self.totals.walk_reads[usize::from(table.level - 1) % 4] += 1;
        if table.level <= 3 && tables.is_leaf(table.pid, table.level, first) {
            self.totals.leaf_reads[usize::from(table.level - 1)] += 1;
        }
        if tables.reverse.count_read(table, line) {
            self.fresh.push((number, line as u32));
        }
    }

    /// Adds another's sums, and empties it. Its points and fresh lines stay.
    pub fn absorb(&mut self, other: &mut Self) {
        for (object, counts) in other.counts.iter_mut().enumerate() {
            let counts = std::mem::take(counts);
            if counts != ObjectCounts::default() {
                *self.of(object as u32) += counts;
            }
        }
        self.totals += std::mem::take(&mut other.totals);
        self.bins.absorb(&mut other.bins);
        self.nodes.absorb(&mut other.nodes);
    }
}

/// The virtual address of a line of a mapped page.
fn vaddr(tables: &Tables, line: u64) -> u64 {
    match tables.reverse.place(line >> tables.frame_shift) {
        Place::Page { page, .. } => page << 12 | (line << tables.line_shift) & 0xfff,
        _ => 0,
    }
}
