//! What is counted.

use serde::{Deserialize, Serialize};

/// What the bus saw of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ObjectCounts {
    /// Lines read.
    pub reads: u64,
    /// Lines written back.
    pub writes: u64,
    /// Of both, those of frames that several pages map.
    pub shared: u64,
    /// Of the writes, those after the page was unmapped.
    pub late: u64,
    /// Reads of lines of page-table entries, by level (1: 4-KiB leaves … 4: the root); shares, because a line
    /// can have entries of several objects.
    pub walks: [f64; 4],
    /// Of the walk reads, those of lines with leaf entries of the object's pages: TLB misses, as far as they
    /// reach the bus.
    pub tlb_misses: f64,
}

impl ObjectCounts {
    /// Walk reads of all levels.
    pub fn walk_reads(&self) -> f64 {
        self.walks.iter().sum()
    }
}

impl std::ops::AddAssign for ObjectCounts {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.shared += other.shared;
        self.late += other.late;
        self.walks.iter_mut().zip(other.walks).for_each(|(sum, walks)| *sum += walks);
        self.tlb_misses += other.tlb_misses;
    }
}

/// What the bus saw altogether. Units: records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TotalCounts {
    /// Records read from the trace.
    pub records: u64,
    /// Reads of mapped pages.
    pub data_reads: u64,
    /// Writes of mapped pages.
    pub data_writes: u64,
    /// Of both, those of frames that several pages map.
    pub shared: u64,
    /// Accesses of frames after their last mapping ended.
    pub late: u64,
    /// Reads of page tables, by level.
    pub walk_reads: [u64; 4],
    /// Of those, reads of lines with leaf entries, by page size: 4 KiB, 2 MiB, 1 GiB.
    pub leaf_reads: [u64; 3],
    /// Writes of page tables.
    pub table_writes: u64,
    /// Tags.
    pub tags: u64,
    /// Accesses of frames that no page maps: the kernel's own …
    pub kernel: u64,
    /// … of the page cache …
    pub page_cache: u64,
    /// … of devices' buffers …
    pub device: u64,
    /// … and of those that the page-table trace does not mention.
    pub unknown: u64,
    /// Addresses beyond the memory that the header states.
    pub out_of_range: u64,
}

impl std::ops::AddAssign for TotalCounts {
    fn add_assign(&mut self, other: Self) {
        let Self { records, data_reads, data_writes, shared, late, walk_reads, leaf_reads, .. } = other;
        let Self { table_writes, tags, kernel, page_cache, device, unknown, out_of_range, .. } = other;
        self.records += records;
        self.data_reads += data_reads;
        self.data_writes += data_writes;
        self.shared += shared;
        self.late += late;
        self.walk_reads.iter_mut().zip(walk_reads).for_each(|(sum, reads)| *sum += reads);
        self.leaf_reads.iter_mut().zip(leaf_reads).for_each(|(sum, reads)| *sum += reads);
        self.table_writes += table_writes;
        self.tags += tags;
        self.kernel += kernel;
        self.page_cache += page_cache;
        self.device += device;
        self.unknown += unknown;
        self.out_of_range += out_of_range;
    }
}

/// Cycles, virtual address of the line, object, whether it was written.
pub type Point = (u64, u64, u32, bool);

/// A sample of data records for plots of address against time: those whose ordinal numbers are multiples of n, n chosen
/// so that they fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Points {
    /// One in so many data records is kept.
    pub every: u64,
    /// The points.
    pub points: Vec<Point>,
}

const MAX_POINTS: usize = 1 << 17;

impl Default for Points {
    fn default() -> Self {
        Self { every: 1, points: Vec::new() }
    }
}

impl Points {
    /// Takes the data record of this ordinal number if it is one in [`Self::every`]. Numbers come in order.
    pub fn offer(&mut self, ordinal: u64, point: Point) {
        if !ordinal.is_multiple_of(self.every) {
            return;
        }
        if self.points.len() >= MAX_POINTS {
            let mut is_kept = false;
            self.points.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            // The number of this one is a multiple: so many were kept before.
            self.every *= 2;
        }
        self.points.push(point);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_thinned_evenly() {
        let mut points = Points::default();
        (0..1_000_000).for_each(|at| points.offer(at, (at, 0, 0, false)));
        assert_eq!(points.every, 8);
        assert!(points.points.windows(2).all(|two| two[1].0 - two[0].0 == 8));
        assert!(points.points.len() > MAX_POINTS / 2 && points.points.len() <= MAX_POINTS);
    }
}
