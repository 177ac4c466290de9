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

/// A sample of data records for plots of address against time: every n-th one, n chosen so that they fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Points {
    /// One in so many data records is kept.
    pub every: u64,
    /// Cycles, virtual address of the line, object, whether it was written.
    pub points: Vec<(u64, u64, u32, bool)>,
    until_next: u64,
}

const MAX_POINTS: usize = 1 << 17;

impl Default for Points {
    fn default() -> Self {
        Self { every: 1, points: Vec::new(), until_next: 0 }
    }
}

impl Points {
    /// Takes every n-th record.
    #[inline]
    pub fn offer(&mut self, cycles: u64, vaddr: u64, object: u32, write: bool) {
        if self.until_next > 0 {
            self.until_next -= 1;
            return;
        }
        self.keep((cycles, vaddr, object, write));
    }

    #[cold]
    fn keep(&mut self, point: (u64, u64, u32, bool)) {
        if self.points.len() >= MAX_POINTS {
            let mut is_kept = false;
            self.points.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.every *= 2;
        }
        self.points.push(point);
        self.until_next = self.every - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_thinned_evenly() {
        let mut points = Points::default();
        (0..1_000_000).for_each(|at| points.offer(at, 0, 0, false));
        assert_eq!(points.every, 8);
        assert!(points.points.windows(2).all(|two| two[1].0 - two[0].0 == 8));
        assert!(points.points.len() > MAX_POINTS / 2 && points.points.len() <= MAX_POINTS);
    }
}
