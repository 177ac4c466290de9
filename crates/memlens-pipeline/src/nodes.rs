//! In which memory node (NUMA) pages lie, and which misses go to another one.
//!
//! The kernel takes a page from the node of the core that first touches it (Linux, Documentation/admin-guide/mm/numa_memory_policy.rst: the system
//! default policy, local allocation). The first access to a page misses the last level, as each first access to a line does: so misses alone tell
//! who was first. Pages have the machine's ordinary size; huge pages, of which 2 MiB come from the node of the first access to them, are not
//! told apart.
//!
//! Cores are dealt to nodes in turn, and threads to cores: thread 0 runs on node 0, thread 1 on node 1, as a program of as many threads as there are
//! cores would be spread.

use crate::sharing::{Segment, Sharing};
use memlens_sim::{CoreId, MachineDescription, Outcome};
use memlens_types::AccessAttr;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// What is known besides the model, batch after batch.
#[derive(Debug)]
pub struct Beside {
    /// Of lines that go from core to core.
    pub sharing: Sharing,
    /// Of memory nodes, if there are several.
    pub nodes: Option<Nodes>,
}

impl Beside {
    /// Nothing, of this machine.
    pub fn new(machine: &MachineDescription) -> Self {
        Self { sharing: Sharing::new(machine), nodes: Nodes::of(machine) }
    }
}

/// Pages of which it is kept together where they lie.
const GROUP: u64 = 512;
/// Nobody has touched it.
const NOWHERE: u8 = u8::MAX;
/// A node misses a page most if it has so many of this many of its misses.
const MOST: (u32, u32) = (2, 3);

/// Where pages lie.
#[derive(Debug)]
pub struct Nodes {
    count: u16,
    page_bytes: u64,
    /// By page number over [`GROUP`].
    groups: FxHashMap<u64, Group>,
}

/// Pages side by side.
#[derive(Debug)]
struct Group {
    /// Their nodes.
    homes: [u8; GROUP as usize],
    /// Page by page, by node: misses.
    misses: Box<[u32]>,
}

impl Group {
    fn new(nodes: u16) -> Self {
        let misses = vec![0; GROUP as usize * usize::from(nodes)];
        Self { homes: [NOWHERE; GROUP as usize], misses: misses.into_boxed_slice() }
    }

    fn forget(&mut self, pages: Range<usize>, nodes: usize) {
        self.homes[pages.clone()].fill(NOWHERE);
        self.misses[pages.start * nodes..pages.end * nodes].fill(0);
    }
}

/// Positions of accesses of a batch, in the order in which the model took them.
#[derive(Debug, Default)]
pub struct FoundOfNodes {
    /// Last-level misses whose line lies in another node's memory, …
    pub remote: Vec<u32>,
    /// … and those of them that a hardware prefetcher covers.
    pub remote_prefetched: Vec<u32>,
    /// … and those to pages that the same node misses most.
    pub misplaced: Vec<u32>,
    /// Accesses that touched a page first.
    pub first_touches: Vec<u32>,
}

/// Accesses, who made them, and what the model found.
#[derive(Clone, Copy)]
pub struct Accesses<'a> {
    /// Byte addresses.
    pub addrs: &'a [u64],
    /// Kinds and sizes.
    pub attrs: &'a [AccessAttr],
    /// Whose they are.
    pub segments: &'a [Segment],
    /// What the model found.
    pub outcome: &'a Outcome,
}

impl Nodes {
    /// No page has been touched. None: the machine has one node.
    pub fn of(machine: &MachineDescription) -> Option<Self> {
        (machine.nodes > 1).then(|| Self {
            count: machine.nodes,
            page_bytes: u64::from(machine.page_bytes.max(1)),
            groups: FxHashMap::default(),
        })
    }

    fn of_core(&self, core: CoreId) -> u8 {
        (core.0 % self.count) as u8
    }

    /// These pages are gone.
    pub fn unmap(&mut self, memory: &Range<u64>) {
        let pages = memory.start / self.page_bytes..memory.end.div_ceil(self.page_bytes);
        let groups = pages.start / GROUP..pages.end.div_ceil(GROUP);
        let nodes = usize::from(self.count);
        let forget = |number: u64, group: &mut Group| {
            let first = number * GROUP;
            let gone = pages.start.max(first)..pages.end.min(first + GROUP);
            group.forget((gone.start - first) as usize..(gone.end - first) as usize, nodes);
        };
        if groups.end - groups.start > self.groups.len() as u64 {
            let gone = self.groups.iter_mut().filter(|(number, _)| groups.contains(number));
            gone.for_each(|(&number, group)| forget(number, group));
        } else {
            groups.for_each(|number| {
                if let Some(group) = self.groups.get_mut(&number) {
                    forget(number, group);
                }
            });
        }
    }

    /// Finds what misses of the last level had to do with nodes; the lists are emptied before. Some ns a miss.
    pub fn find(&mut self, accesses: Accesses<'_>, found: &mut FoundOfNodes) {
        let FoundOfNodes { remote, remote_prefetched, misplaced, first_touches } = found;
        remote.clear();
        remote_prefetched.clear();
        misplaced.clear();
        first_touches.clear();
        let Accesses { addrs, attrs, segments, outcome } = accesses;
        let mut prefetched = outcome.llc_prefetched.iter().peekable();
        let mut before = None;
        for &index in &outcome.llc_misses {
            let behind = segments.partition_point(|segment| segment.start <= index as usize);
            let own = self.of_core(segments[behind - 1].core);
            let (addr, attr) = (addrs[index as usize], attrs[index as usize]);
            // Twice: its two lines.
            let is_second = before.replace(index) == Some(index);
            let addr = if is_second { addr + u64::from(attr.size_bytes().max(1) - 1) } else { addr };
            let is_prefetched = prefetched.next_if_eq(&&index).is_some();
            let (home, misses) = self.page(addr);
            let of_own = &mut misses[usize::from(own)];
            *of_own = of_own.saturating_add(1);
            let of_own = *of_own;
            if *home == NOWHERE {
                *home = own;
                first_touches.push(index);
            } else if *home != own {
                remote.push(index);
                if is_prefetched {
                    remote_prefetched.push(index);
                }
                let all = misses.iter().fold(0_u32, |sum, &misses| sum.saturating_add(misses));
                if u64::from(of_own) * u64::from(MOST.1) >= u64::from(all) * u64::from(MOST.0) {
                    misplaced.push(index);
                }
            }
        }
    }

    /// The node of an address's page, and by node how often it was missed.
    fn page(&mut self, addr: u64) -> (&mut u8, &mut [u32]) {
        let Self { count, page_bytes, ref mut groups } = *self;
        let (page, nodes) = (addr / page_bytes, usize::from(count));
        let Group { homes, misses } = groups.entry(page / GROUP).or_insert_with(|| Group::new(count));
        let at = (page % GROUP) as usize;
        (&mut homes[at], &mut misses[at * nodes..(at + 1) * nodes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_types::AccessKind;

    const PAGE: u64 = 4096;

    fn nodes(count: u16) -> Nodes {
        let mut machine = MachineDescription::named("e5504").expect("shipped");
        machine.nodes = count;
        Nodes::of(&machine).expect("several")
    }

    /// What is found of misses at these addresses, of so many bytes, by threads of these cores.
    fn find(nodes: &mut Nodes, misses: &[(u16, u64, u32)], prefetched: &[u32]) -> [Vec<u32>; 3] {
        let addrs: Vec<u64> = misses.iter().map(|&(_, addr, _)| addr).collect();
        let attrs: Vec<_> =
            misses.iter().map(|&(.., size)| AccessAttr::new(AccessKind::Load, size)).collect();
        let segment = |(start, &(core, ..)): (usize, &(u16, u64, u32))| Segment {
            thread: core.into(),
            core: CoreId(core),
            start,
        };
        let segments: Vec<Segment> = misses.iter().enumerate().map(segment).collect();
        // An access over two lines misses twice.
        let lines = |index: u32| {
            let (_, addr, size) = misses[index as usize];
            if addr / 64 == (addr + u64::from(size) - 1) / 64 { 1 } else { 2 }
        };
        let llc_misses = (0..misses.len() as u32).flat_map(|index| vec![index; lines(index)]).collect();
        let outcome = Outcome { llc_misses, llc_prefetched: prefetched.into(), ..Outcome::default() };
        let mut found = FoundOfNodes::default();
        let (addrs, attrs, segments) = (&addrs[..], &attrs[..], &segments[..]);
        nodes.find(Accesses { addrs, attrs, segments, outcome: &outcome }, &mut found);
        let FoundOfNodes { remote, remote_prefetched, misplaced, first_touches } = found;
        assert!(misplaced.iter().all(|index| remote.contains(index)));
        [remote, remote_prefetched, first_touches]
    }

    #[test]
    fn pages_that_one_other_node_misses_are_misplaced() {
        let mut nodes = nodes(2);
        let mut misplaced = |misses: &[(u16, u64, u32)]| {
            let addrs: Vec<u64> = misses.iter().map(|&(_, addr, _)| addr).collect();
            let attrs = vec![AccessAttr::new(AccessKind::Load, 8); misses.len()];
            let segment = |(start, &(core, ..)): (usize, &(u16, u64, u32))| Segment {
                thread: core.into(),
                core: CoreId(core),
                start,
            };
            let segments: Vec<Segment> = misses.iter().enumerate().map(segment).collect();
            let outcome = Outcome { llc_misses: (0..misses.len() as u32).collect(), ..Outcome::default() };
            let (addrs, attrs, segments) = (&addrs[..], &attrs[..], &segments[..]);
            let mut found = FoundOfNodes::default();
            nodes.find(Accesses { addrs, attrs, segments, outcome: &outcome }, &mut found);
            found.misplaced
        };
        // Node 0 has touched it; of its misses node 1 has 1 of 2, 2 of 3 and 3 of 4.
        let mine = |line: u64| (1, PAGE + 64 * line, 8);
        assert_eq!(misplaced(&[(0, PAGE, 8), mine(1), mine(2), mine(3)]), [2, 3]);
        // Of one that both miss alike none.
        let both: Vec<_> = (0..40).map(|line| (line as u16 % 2, 2 * PAGE + 64 * line, 8)).collect();
        assert!(misplaced(&both).is_empty());
    }

    #[test]
    fn who_touches_a_page_first_has_it() {
        let mut nodes = nodes(2);
        // Core 0 and 2 are of node 0, core 1 of node 1. Pages 1 and 2 become node 0's and node 1's.
        let misses = [
            (0, PAGE, 8),
            (1, 2 * PAGE, 8),
            (1, PAGE + 64, 8),
            (2, PAGE + 128, 8),
            (2, 2 * PAGE + 64, 8),
            (0, 2 * PAGE + 128, 8),
        ];
        assert_eq!(find(&mut nodes, &misses, &[3, 4]), [vec![2, 4, 5], vec![4], vec![0, 1]]);
        // In the next batch they have it still, until it is unmapped.
        assert_eq!(find(&mut nodes, &[(1, PAGE, 8)], &[]), [vec![0], vec![], vec![]]);
        nodes.unmap(&(PAGE..2 * PAGE));
        assert_eq!(find(&mut nodes, &[(1, PAGE, 8), (0, 2 * PAGE, 8)], &[]), [vec![1], vec![], vec![0]]);
    }

    #[test]
    fn an_access_over_two_pages_is_to_both() {
        let mut nodes = nodes(2);
        find(&mut nodes, &[(0, PAGE, 8), (1, 2 * PAGE, 8)], &[]);
        assert_eq!(find(&mut nodes, &[(0, 2 * PAGE - 4, 8)], &[]), [vec![0], vec![], vec![]]);
        assert_eq!(find(&mut nodes, &[(0, 5 * PAGE - 4, 8)], &[]), [vec![], vec![], vec![0, 0]]);
    }

    #[test]
    fn what_is_unmapped_ends_where_it_ends() {
        let mut nodes = nodes(3);
        let group = GROUP * PAGE;
        let pages = [group - PAGE, group, 2 * group - PAGE, 2 * group, 40 * group];
        let touched: Vec<_> = pages.iter().map(|&page| (2, page, 8)).collect();
        find(&mut nodes, &touched, &[]);
        nodes.unmap(&(group..2 * group));
        let again: Vec<_> = pages.iter().map(|&page| (1, page + 64, 8)).collect();
        assert_eq!(find(&mut nodes, &again, &[]), [vec![0, 3, 4], vec![], vec![1, 2]]);
        // Far more than there is.
        nodes.unmap(&(0..1 << 47));
        assert_eq!(find(&mut nodes, &again, &[])[2], [0, 1, 2, 3, 4]);
    }

    #[test]
    fn one_node_needs_no_looking() {
        for count in [0, 1] {
            let mut machine = MachineDescription::named("e5504").expect("shipped");
            machine.nodes = count;
            assert!(Beside::new(&machine).nodes.is_none());
        }
    }
}
