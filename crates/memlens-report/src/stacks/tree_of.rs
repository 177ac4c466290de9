//! Stacks as a tree, so that each level is there once for all stacks that it begins.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// A level with those above it: its place in its tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Node(u32);

impl Node {
    /// Above all stacks, and no level of them.
    pub(super) const ROOT: Self = Self(0);

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// The levels of stacks. Those above a node come before it.
#[derive(Clone, Debug)]
pub(super) struct TreeOf<L> {
    /// Of each node but the root: what is above it, and its level.
    nodes: Vec<(Node, L)>,
    known: FxHashMap<(Node, L), Node>,
}

impl<L: Copy + Eq + Hash + Ord> TreeOf<L> {
    /// Only the root.
    pub(super) fn new() -> Self {
        Self { nodes: Vec::new(), known: FxHashMap::default() }
    }

    /// So many levels below a node.
    pub(super) fn below(&mut self, node: Node, levels: impl IntoIterator<Item = L>) -> Node {
        levels.into_iter().fold(node, |above, level| {
            *self.known.entry((above, level)).or_insert_with(|| {
                self.nodes.push((above, level));
                Node(self.nodes.len() as u32)
            })
        })
    }

    /// All nodes but the root, those above others first.
    pub(super) fn nodes(&self) -> impl DoubleEndedIterator<Item = Node> + use<L> {
        (1..=self.nodes.len() as u32).map(Node)
    }

    /// What is above a node; the root's is the root.
    pub(super) fn above(&self, node: Node) -> Node {
        self.get(node).map_or(Node::ROOT, |(above, _)| above)
    }

    /// The levels down to a node, the innermost first.
    pub(super) fn levels(&self, node: Node) -> impl Iterator<Item = L> {
        let mut at = self.get(node);
        std::iter::from_fn(move || {
            let (above, level) = at?;
            at = self.get(above);
            Some(level)
        })
    }

    fn get(&self, node: Node) -> Option<(Node, L)> {
        node.index().checked_sub(1).and_then(|at| self.nodes.get(at)).copied()
    }

    /// A place for something of each node and the root.
    pub(super) fn column<T: Clone + Default>(&self) -> Column<T> {
        Column(vec![T::default(); self.nodes.len() + 1])
    }

    /// The place of each node if all stacks are put in order, level by level from the outermost, shorter ones first.
    pub(super) fn ranks(&self) -> Column<u32> {
        let mut children: Column<Vec<Node>> = self.column();
        for node in self.nodes() {
            children.get_mut(self.above(node)).push(node);
        }
        let mut ranks: Column<u32> = self.column();
        let (mut next, mut open) = (0, vec![Node::ROOT]);
        while let Some(node) = open.pop() {
            *ranks.get_mut(node) = next;
            next += 1;
            let mut below = std::mem::take(children.get_mut(node));
            below.sort_unstable_by_key(|child| std::cmp::Reverse(self.get(*child).map(|(_, level)| level)));
            open.extend(below);
        }
        ranks
    }
}

/// Something of each node.
#[derive(Clone, Debug)]
pub(super) struct Column<T>(Vec<T>);

impl<T> Column<T> {
    pub(super) fn get(&self, node: Node) -> &T {
        &self.0[node.index()]
    }

    pub(super) fn get_mut(&mut self, node: Node) -> &mut T {
        &mut self.0[node.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_share_what_they_begin_with_and_come_in_order() {
        let mut tree = TreeOf::new();
        let stacks = [vec![2, 1], vec![2], vec![1, 9], vec![2, 1, 0], vec![2, 0]];
        let nodes: Vec<Node> =
            stacks.iter().map(|stack| tree.below(Node::ROOT, stack.iter().copied())).collect();
        assert_eq!(tree.nodes().count(), 6);
        assert_eq!(tree.below(tree.above(nodes[0]), [1]), nodes[0]);
        for (stack, &node) in stacks.iter().zip(&nodes) {
            let mut levels: Vec<i32> = tree.levels(node).collect();
            levels.reverse();
            assert_eq!(&levels, stack);
        }
        let ranks = tree.ranks();
        let mut by_rank: Vec<usize> = (0..stacks.len()).collect();
        by_rank.sort_by_key(|&at| ranks.get(nodes[at]));
        let mut in_order = stacks.to_vec();
        in_order.sort();
        assert_eq!(by_rank.into_iter().map(|at| stacks[at].clone()).collect::<Vec<_>>(), in_order);
        assert_eq!(tree.above(Node::ROOT), Node::ROOT);
    }
}
