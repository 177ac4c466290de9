//! Lists and trees: each node's address is loaded from the node before, so nothing but a place near that one makes it come sooner.
//!
//! ```text
//!  blocks of their own     ▢ ──► ▢   ▢ ──► ▢        a pool puts them side by side
//!  parts of one block      ▢▢▢▢▢▢▢▢▢▢▢▢▢▢▢▢▢        their order in it is what can be changed
//! ```
//!
//! Nodes that lie in the order of the walk already have nothing to gain. Where each way along links is short and begins anew, at a key's
//! bucket or at a tree's root, and may end early, it is a search: what is to be changed is how many nodes there are.

use std::collections::BTreeMap;

use memlens_profile::{AccessPattern, Cell};
use memlens_types::{Counts, ObjectKind, PatternKind};

use crate::{About, Finding, Member, Remedy};

/// A larger block holds more than one node: it is an array, an arena, a page of an allocator.
const MOST_NODE_BYTES: u64 = 1024;
/// Fewer blocks at a time are few lines, wherever they lie.
const FEWEST_BLOCKS: u64 = 64;
/// A step that so many of a thousand are like is that of the walk.
const ONE_STEP: u32 = 800;
/// A walk of which prefetchers cover this part of the second level's misses goes in order …
const IN_ORDER: f64 = 0.75;
/// … or this part, if its steps are alike and lead to the next node: the first ones in a page are not covered, and of large nodes
/// there are few in a page.
const IN_EQUAL_STEPS: f64 = 0.25;
/// With fewer second-level misses, as a part of the first level's, prefetchers say nothing.
const TELLING: f64 = 0.1;

/// A way of more nodes is a walk, from one end of its data to the other, rather than a search.
const MOST_IN_A_SEARCH: f64 = 64.0;
/// Of one that has fewer on average the first is what waits.
const FEWEST_IN_A_BUCKET: f64 = 1.5;
/// A binary tree of fewer levels has little to wait for; a B-tree has as few.
const FEWEST_IN_A_TREE: f64 = 8.0;
/// Levels of a binary tree that a line of a B-tree, or of a sorted array in its order, stands for: it has eight keys of eight bytes.
const LEVELS_A_LINE: f64 = 3.0;

/// What the links of a chain lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nodes {
    /// Blocks of their own.
    Blocks,
    /// Parts of a larger block: an array, an arena, a mapping.
    Parts,
}

/// What is searched along links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Searched {
    /// A short list for each of many keys: a hash table's buckets.
    Lists,
    /// A binary tree.
    Tree,
}

impl Searched {
    fn of(pattern: &AccessPattern) -> Option<Self> {
        let nodes = mean_nodes(pattern)?;
        match pattern.links? {
            _ if nodes > MOST_IN_A_SEARCH => None,
            // What visits all nodes searches for none.
            1 if pattern.exits == Some(1) => None,
            1 => (nodes >= FEWEST_IN_A_BUCKET).then_some(Self::Lists),
            _ => (nodes >= FEWEST_IN_A_TREE).then_some(Self::Tree),
        }
    }

    /// How many lines would do for a search through so many nodes.
    fn fewest_lines(self, nodes: f64) -> f64 {
        match self {
            Self::Lists => 1.0,
            Self::Tree => (nodes / LEVELS_A_LINE).max(1.0),
        }
    }
}

fn mean_nodes(pattern: &AccessPattern) -> Option<f64> {
    Some(pattern.trips_permille? as f64 / 1000.0)
}

impl About<'_> {
    /// One finding for nodes that are blocks, and one for those that are parts of some, each by what is searched, if anything is. A list's
    /// blocks may come from several places, so they are counted together.
    pub(crate) fn chains(&self) -> Vec<Finding> {
        let mut chains: BTreeMap<(Nodes, Option<Searched>), Vec<&Cell>> = BTreeMap::new();
        let mut blocks = 0_u64;
        for member in &self.members {
            let Some(nodes) = nodes(member) else { continue };
            if nodes == Nodes::Blocks {
                blocks = blocks.saturating_add(blocks_at_a_time(member).unwrap_or(u64::MAX));
            }
            let is_to_place = |cell: &&Cell| self.is_chase(cell) && !self.is_in_order(member, nodes, cell);
            for cell in member.own.iter().copied().filter(is_to_place) {
                let searched = self.known.patterns.of(cell.code, cell.object).and_then(Searched::of);
                chains.entry((nodes, searched)).or_default().push(cell);
            }
        }
        if blocks < FEWEST_BLOCKS {
            chains.retain(|&(nodes, _), _| nodes != Nodes::Blocks);
        }
        let finding = |((nodes, searched), cells): ((Nodes, Option<Searched>), Vec<&Cell>)| {
            let counts = crate::sum_alone(&cells);
            let all = self.saved(&counts, &all_hits(&counts));
            match searched {
                None => self.finding(Remedy::Pack { nodes }, all, &cells),
                Some(searched) => {
                    let nodes = self.nodes_on_average(&cells);
                    let gain = all * (1.0 - searched.fewest_lines(nodes) / nodes);
                    self.finding(Remedy::Shorten { searched, nodes }, gain, &cells)
                }
            }
        };
        chains.into_iter().map(finding).collect()
    }

    /// Nodes of a search, of several places in the code by how often these miss.
    fn nodes_on_average(&self, cells: &[&Cell]) -> f64 {
        let (mut nodes, mut misses) = (0.0, 0.0);
        for cell in cells {
            let pattern = self.known.patterns.of(cell.code, cell.object);
            if let Some(mean) = pattern.and_then(mean_nodes) {
                let weight = 1.0 + cell.counts.get().l1_misses() as f64;
                nodes += weight * mean;
                misses += weight;
            }
        }
        if misses > 0.0 { nodes / misses } else { 1.0 }
    }

    fn is_chase(&self, cell: &Cell) -> bool {
        self.known
            .patterns
            .of(cell.code, cell.object)
            .is_some_and(|pattern| pattern.kind == PatternKind::PointerChase)
    }

    /// Whether the walk goes from each node to the one beside it. What prefetchers cover is of this object; steps may be those
    /// of all that the code walks.
    fn is_in_order(&self, member: &Member<'_>, nodes: Nodes, cell: &Cell) -> bool {
        let machine = &self.known.profile.machine;
        let pattern = self.known.patterns.of(cell.code, cell.object);
        let step =
            pattern.filter(|pattern| pattern.stride_permille >= ONE_STEP).and_then(|it| it.stride_bytes);
        let node_bytes = match nodes {
            Nodes::Blocks => block_bytes(member),
            Nodes::Parts => member.object.element.as_ref().map(|element| element.bytes),
        };
        // Allocators put a few bytes before each block, and round up.
        let near = |node: u64| (2 * node).max(u64::from(machine.line_bytes));
        if step.zip(node_bytes).is_some_and(|(step, node)| step.unsigned_abs() > near(node)) {
            return false;
        }
        let counts = cell.counts.get();
        let misses = counts.l2_misses() as f64;
        if machine.prefetcher_streams == 0 || misses <= TELLING * counts.l1_misses() as f64 {
            return step.is_some();
        }
        counts.l2_prefetched as f64 >= misses * if step.is_some() { IN_EQUAL_STEPS } else { IN_ORDER }
    }
}

/// `None`: nobody knows what is there.
fn nodes(member: &Member<'_>) -> Option<Nodes> {
    match member.object.kind {
        ObjectKind::Unknown => None,
        // What is not known to be one block may be many.
        ObjectKind::Heap if block_bytes(member).is_none_or(|bytes| bytes <= MOST_NODE_BYTES) => {
            Some(Nodes::Blocks)
        }
        _ => Some(Nodes::Parts),
    }
}

/// The mean, if any allocation is known.
fn block_bytes(member: &Member<'_>) -> Option<u64> {
    member.object.bytes?.checked_div(member.object.blocks)
}

fn blocks_at_a_time(member: &Member<'_>) -> Option<u64> {
    member.bytes()?.checked_div(block_bytes(member)?)
}

/// Nothing but hits of the first level, which page tables are not asked for.
fn all_hits(counts: &Counts) -> Counts {
    counts.with_misses(|_| 0, |_| 0, |_| 0).with_tlb_misses(|_| 0, |_| 0)
}
