//! Memory that lies in another node (NUMA) than the threads that use it.
//!
//! The kernel takes a page from the node of the thread that first touches it. Where one thread fills what several then use in parts, each part but one
//! is remote, and would not be if each thread had filled its own.

use std::collections::{BTreeMap, BTreeSet};

use memlens_profile::{Cell, CodeIx, ThreadIx};
use memlens_types::{Counts, Numa};

use crate::{About, Finding, Remedy, costliest};

/// Who touched this part of the pages first has them all.
const NEARLY_ALL: f64 = 0.9;

/// Who touched nearly all pages first, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstTouch {
    /// The thread.
    pub thread: ThreadIx,
    /// The code that touched most of them.
    pub code: CodeIx,
    /// Pages.
    pub pages: u64,
}

impl About<'_> {
    /// If each page lay in the node that misses it most.
    pub(crate) fn place(&self) -> Option<Finding> {
        let misplaced = |cell: &&Cell| cell.counts.get().numa.misplaced;
        let cells: Vec<&Cell> = self.cells().filter(|cell| misplaced(cell) > 0).collect();
        let mut now = Counts::default();
        cells.iter().for_each(|cell| now += &cell.counts.get());
        let Numa { remote_misses, remote_prefetched, misplaced, .. } = now.numa;
        if misplaced == 0 {
            return None;
        }
        // Of what is prefetched as large a part is misplaced as of all.
        let left = 1.0 - misplaced as f64 / remote_misses.max(1) as f64;
        let numa = Numa {
            remote_misses: remote_misses.saturating_sub(misplaced),
            remote_prefetched: (remote_prefetched as f64 * left) as u64,
            misplaced: 0,
            ..now.numa
        };
        let gain = self.saved(&now, &Counts { numa, ..now });
        let users = cells.iter().map(|cell| cell.thread).collect::<BTreeSet<_>>().len();
        let remedy = Remedy::Place { remote_misses, misplaced, users, first: self.first_touch() };
        Some(self.finding(remedy, gain, &cells))
    }

    fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.members.iter().flat_map(|member| member.cells.iter().copied())
    }

    /// None: several threads touched them, or it is not known.
    fn first_touch(&self) -> Option<FirstTouch> {
        let mut by_thread: BTreeMap<ThreadIx, u64> = BTreeMap::new();
        let touched = |cell: &Cell| cell.counts.get().numa.first_touches;
        for cell in self.cells().filter(|cell| touched(cell) > 0) {
            *by_thread.entry(cell.thread).or_default() += touched(cell);
        }
        let all: u64 = by_thread.values().sum();
        let (&thread, &pages) = by_thread.iter().max_by_key(|&(_, pages)| pages)?;
        let of_thread = self.cells().filter(|cell| cell.thread == thread);
        let code = costliest(of_thread.map(|cell| (cell.code, touched(cell)))).first().copied()?;
        (pages as f64 >= NEARLY_ALL * all as f64).then_some(FirstTouch { thread, code, pages })
    }
}
