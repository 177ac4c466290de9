//! Physical memory in nodes (NUMA): each core has a node of its own, from which it gets frames first.

use super::frames::Frames;
use memlens_sim::CoreId;
use std::ops::Range;

/// Frames of one or more memory nodes.
///
/// Cores are dealt to nodes in equal parts, in order. Memory is handed out by the kernel's default policy: from
/// the node of the core that touches it first, and from the next ones when that is full.
#[derive(Clone, Debug)]
pub struct NodeFrames {
    /// Frames of each node, whether they are handed out or not.
    ranges: Vec<Range<u64>>,
    frames: Vec<Frames>,
    cores: usize,
}

impl NodeFrames {
    /// Nodes of these frames, of which those in `usable` are free.
    pub fn new(ranges: &[Range<u64>], usable: Range<u64>, cores: u16) -> Self {
        let free = |range: &Range<u64>| {
            let start = range.start.max(usable.start);
            Frames::new(start..range.end.min(usable.end).max(start))
        };
        Self {
            frames: ranges.iter().map(free).collect(),
            ranges: ranges.to_vec(),
            cores: usize::from(cores.max(1)),
        }
    }

    /// The node of a core.
    fn node_of(&self, core: CoreId) -> usize {
        usize::from(core.0) % self.cores * self.frames.len() / self.cores
    }

    /// A block of 2^order frames for a core; `None` if no node has one.
    pub fn allocate(&mut self, order: usize, core: CoreId) -> Option<u64> {
        let (own, nodes) = (self.node_of(core), self.frames.len());
        (0..nodes).find_map(|distance| self.frames[(own + distance) % nodes].allocate(order))
    }

    /// Gives a block back to its node.
    pub fn release(&mut self, frame: u64, order: usize) {
        let node = self.ranges.partition_point(|range| range.end <= frame);
        if let Some(frames) = self.frames.get_mut(node) {
            frames.release(frame, order);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_gets_its_own_node_s_memory_first_and_then_the_next() {
        let mut nodes = NodeFrames::new(&[0..8, 8..16], 0..16, 4);
        // Cores 0 and 1 belong to the first node, 2 and 3 to the second.
        assert_eq!([0, 1, 2, 3].map(|core| nodes.allocate(0, CoreId(core))), [0, 1, 8, 9].map(Some));
        // Of the first node 2 to 7 are left, of the second 10 to 15.
        assert_eq!([(); 7].map(|()| nodes.allocate(0, CoreId(0))), [2, 3, 4, 5, 6, 7, 10].map(Some));
        nodes.release(10, 0);
        nodes.release(5, 0);
        assert_eq!([0, 0, 3].map(|core| nodes.allocate(0, CoreId(core))), [5, 10, 11].map(Some));
        let rest = [Some(12), Some(13), Some(14), Some(15), None];
        assert_eq!([(); 5].map(|()| nodes.allocate(0, CoreId(0))), rest);
    }
}
