//! Dominators and natural loops.

use crate::control_flow::{ControlFlow, Step};

/// Immediate dominators by block; the entry is its own, unreachable blocks have none.
///
/// Source: K. D. Cooper, T. J. Harvey, K. Kennedy, "A Simple, Fast Dominance Algorithm", Rice
/// University TR-06-33870 (2001). Quadratic in the worst case, in practice linear in the edges.
pub fn immediate_dominators<I: Step>(flow: &ControlFlow<I>) -> Vec<Option<usize>> {
    let order = flow.reverse_postorder();
    let mut number = vec![usize::MAX; flow.blocks.len()];
    order.iter().enumerate().for_each(|(at, &block)| number[block] = at);
    let mut dominators: Vec<Option<usize>> = vec![None; flow.blocks.len()];
    if let Some(entry) = dominators.first_mut() {
        *entry = Some(0);
    }
    let mut changed = true;
    while changed {
        changed = false;
        for &block in order.iter().skip(1) {
            let mut new: Option<usize> = None;
            for &predecessor in flow.blocks[block].predecessors.iter() {
                if dominators[predecessor].is_none() {
                    continue;
                }
                new = Some(match new {
                    None => predecessor,
                    Some(other) => meet(&dominators, &number, predecessor, other),
                });
            }
            if dominators[block] != new {
                dominators[block] = new;
                changed = true;
            }
        }
    }
    dominators
}

fn meet(dominators: &[Option<usize>], number: &[usize], mut a: usize, mut b: usize) -> usize {
    while a != b {
        while number[a] > number[b] {
            a = dominators[a].unwrap_or(0);
        }
        while number[b] > number[a] {
            b = dominators[b].unwrap_or(0);
        }
    }
    a
}

/// A natural loop: a header and all blocks that reach a jump back to it without passing it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NaturalLoop {
    /// The block through which the loop is entered.
    pub header: usize,
    /// Its blocks, the header's and those of inner loops included, ascending.
    pub blocks: Vec<usize>,
    /// The smallest loop around it.
    pub parent: Option<usize>,
    /// How many loops it is in, itself included.
    pub depth: usize,
}

/// The loops of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loops {
    /// The loops, outer ones before those inside them. Loops with the same header are one.
    pub loops: Vec<NaturalLoop>,
    /// For each block, the innermost loop that holds it.
    pub innermost: Vec<Option<usize>>,
    /// For each block, its immediate dominator; see [`immediate_dominators`].
    pub dominators: Vec<Option<usize>>,
    /// Jumps back to a block that does not dominate them: loops with several entries, not found.
    pub irreducible: usize,
}

impl Loops {
    /// Finds all natural loops (A. V. Aho et al., *Compilers*, 2nd edition, section 9.6).
    pub fn new<I: Step>(flow: &ControlFlow<I>) -> Self {
        let dominators = immediate_dominators(flow);
        let dominates = |header: usize, mut block: usize| loop {
            match dominators[block] {
                _ if block == header => return true,
                Some(next) if next != block => block = next,
                _ => return false,
            }
        };
        let order = flow.reverse_postorder();
        let mut number = vec![usize::MAX; flow.blocks.len()];
        order.iter().enumerate().for_each(|(at, &block)| number[block] = at);
        let mut irreducible = 0;
        let mut loops: Vec<NaturalLoop> = Vec::new();
        // By block: the header whose loop it was last found in.
        let mut found_in = vec![usize::MAX; flow.blocks.len()];
        for &header in &order {
            let mut members = vec![header];
            found_in[header] = header;
            let mut is_header = false;
            for &from in flow.blocks[header].predecessors.iter() {
                if number[from] == usize::MAX || number[from] < number[header] {
                    continue;
                }
                if !dominates(header, from) {
                    irreducible += 1;
                    continue;
                }
                is_header = true;
                let mut open = vec![from];
                while let Some(block) = open.pop() {
                    if std::mem::replace(&mut found_in[block], header) != header {
                        members.push(block);
                        let reachable = |p: &&usize| number[**p] != usize::MAX;
                        open.extend(flow.blocks[block].predecessors.iter().filter(reachable));
                    }
                }
            }
            if is_header {
                members.sort_unstable();
                // An interpreter's loop has hundreds inside, each with thousands of blocks.
                members.shrink_to_fit();
                loops.push(NaturalLoop { header, blocks: members, parent: None, depth: 1 });
            }
        }
        loops.sort_by_key(|one| (std::cmp::Reverse(one.blocks.len()), one.header));
        let mut innermost = vec![None; flow.blocks.len()];
        for index in 0..loops.len() {
            // Larger loops came before, so what holds the header now is the smallest one around.
            let parent: Option<usize> = innermost[loops[index].header];
            loops[index].parent = parent;
            loops[index].depth = parent.map_or(1, |parent| loops[parent].depth + 1);
            for &block in &loops[index].blocks {
                innermost[block] = Some(index);
            }
        }
        Self { loops, innermost, dominators, irreducible }
    }
}
