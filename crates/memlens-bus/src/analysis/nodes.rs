//! From which memory node (NUMA) lines come.

use serde::{Deserialize, Serialize};

/// What a memory node delivered and took. Units: lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCounts {
    /// First physical byte address of the node.
    pub start: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Lines of data read.
    pub reads: u64,
    /// Lines of data written back.
    pub writes: u64,
    /// Lines of page tables read.
    pub walk_reads: u64,
}

/// Counts by node and object. Without nodes in the header nothing is counted, and it costs a comparison a record.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct NodeLines {
    nodes: Vec<NodeCounts>,
    /// By object, a number for each node.
    by_object: Vec<u64>,
}

impl NodeLines {
    /// Counts for nodes as a header names them: start and bytes.
    pub fn new(nodes: &[(u64, u64)]) -> Self {
        let node = |&(start, bytes): &(u64, u64)| NodeCounts { start, bytes, ..NodeCounts::default() };
        Self { nodes: nodes.iter().map(node).collect(), by_object: Vec::new() }
    }

    /// Whether there are no nodes to count for.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds another's counts, for the same nodes, and takes them from it.
    pub fn absorb(&mut self, other: &mut Self) {
        for (mine, theirs) in self.nodes.iter_mut().zip(&mut other.nodes) {
            mine.reads += std::mem::take(&mut theirs.reads);
            mine.writes += std::mem::take(&mut theirs.writes);
            mine.walk_reads += std::mem::take(&mut theirs.walk_reads);
        }
        let lines = self.by_object.len().max(other.by_object.len());
        self.by_object.resize(lines, 0);
        self.by_object.iter_mut().zip(other.by_object.drain(..)).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// The node of an address.
    fn find(&self, paddr: u64) -> Option<usize> {
        let node = self.nodes.partition_point(|node| node.start <= paddr).checked_sub(1)?;
        (paddr - self.nodes[node].start < self.nodes[node].bytes).then_some(node)
    }

    /// Counts a line of an object's data.
    pub fn data(&mut self, paddr: u64, object: u32, write: bool) {
        let Some(node) = self.find(paddr) else { return };
        let counts = &mut self.nodes[node];
        counts.reads += u64::from(!write);
        counts.writes += u64::from(write);
        let place = object as usize * self.nodes.len() + node;
        if self.by_object.len() <= place {
            self.by_object.resize(place + 1, 0);
        }
        self.by_object[place] += 1;
    }

    /// Counts a read of a page table.
    pub fn walk(&mut self, paddr: u64) {
        if let Some(node) = self.find(paddr) {
            self.nodes[node].walk_reads += 1;
        }
    }

    /// An object's lines by node.
    pub fn of_object(&self, object: u32) -> Vec<u64> {
        let first = object as usize * self.nodes.len();
        (first..first + self.nodes.len()).map(|at| self.by_object.get(at).copied().unwrap_or(0)).collect()
    }

    /// The nodes.
    pub fn into_counts(self) -> Vec<NodeCounts> {
        self.nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_where_their_node_is() {
        let mut lines = NodeLines::new(&[(0, 4096), (8192, 4096)]);
        // Before the hole, in it, behind it, beyond the end.
        for (paddr, write) in [(4095, false), (4096, false), (8192, true), (8200, false), (12288, false)] {
            lines.data(paddr, 2, write);
        }
        lines.walk(9000);
        assert_eq!((lines.of_object(2), lines.of_object(0)), (vec![1, 2], vec![0, 0]));
        let counts = lines.into_counts();
        assert_eq!((counts[0].reads, counts[0].writes, counts[0].walk_reads), (1, 0, 0));
        assert_eq!((counts[1].reads, counts[1].writes, counts[1].walk_reads), (1, 1, 1));
    }

    #[test]
    fn without_nodes_nothing_is_counted() {
        let mut lines = NodeLines::new(&[]);
        lines.data(0, 1, false);
        assert!(lines.of_object(1).is_empty() && lines.into_counts().is_empty());
    }
}
