//! What lines cost that another memory node (NUMA) brings.
//!
//! A thread stays on one processor, asks the kernel for memory of one node after the other (set_mempolicy(2)), and measures each as memory of
//! its own node is. It asks as a preference, so that a node without room costs nobody's process its life; where the pages then lie
//! the kernel is asked, too.

use std::io;
use std::thread;

use memlens_backing::{MemoryNodes, PageNode, page_nodes};

use crate::chain::Chain;
use crate::clock::Latency;
use crate::mapping::prefer_node;
use crate::transfer::{Cpus, bind_to};

/// Pages that are looked at, and the part of them that has to lie in the node.
const LOOKED_AT: usize = 64;
const LEAST_PART: f64 = 0.9;

/// What memory of a node costs on processors of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct NodeLatency {
    /// The node's number.
    pub node: u32,
    /// What a line from there takes.
    pub cycles: Latency,
}

/// Measures at most so many nodes beside that of the first processor, each by `measure`, which makes a chain and follows it, of so many bytes. None
/// where there is one node, or the kernel does not let memory be asked for or looked up.
///
/// # Errors
/// Those of `measure`.
pub(crate) fn of_others(
    most: usize,
    bytes: usize,
    measure: impl Fn() -> io::Result<Option<(Latency, Chain)>> + Sync,
) -> io::Result<Vec<NodeLatency>> {
    let nodes = MemoryNodes::of_this_machine();
    let Some((here, others)) = others(&nodes, &Cpus::allowed()?.0, most) else { return Ok(Vec::new()) };
    // The preference ends with the thread.
    thread::scope(|scope| {
        let measuring = thread::Builder::new().spawn_scoped(scope, || {
            let mut found = Vec::new();
            if bind_to(here).is_err() {
                return Ok(found);
            }
            for &node in &others {
                // A control group may forbid the node.
                if prefer_node(node).is_err() {
                    continue;
                }
                let Some((cycles, chain)) = measure()? else { continue };
                if lies_in(&chain, bytes, node) {
                    found.push(NodeLatency { node, cycles });
                }
            }
            Ok(found)
        });
        measuring.map_or_else(|_| Ok(Vec::new()), |thread| thread.join().unwrap_or_else(|_| Ok(Vec::new())))
    })
}

/// The first processor of these, and so many of the nodes that are not its own, from the first to the last.
fn others(nodes: &MemoryNodes, processors: &[usize], most: usize) -> Option<(usize, Vec<u32>)> {
    let here = *processors.first()?;
    let own = nodes.of_processor(u32::try_from(here).ok()?)?;
    let all: Vec<u32> = nodes.with_memory().iter().copied().filter(|&node| node != own).collect();
    let last = all.len().checked_sub(1)?;
    let count = all.len().min(most.max(1));
    let some = (0..count).map(|at| all[if count > 1 { at * last / (count - 1) } else { last }]);
    Some((here, some.collect()))
}

/// Whether a chain's memory is of a node, as far as some of its pages tell.
fn lies_in(chain: &Chain, bytes: usize, node: u32) -> bool {
    let apart = (bytes / LOOKED_AT).max(1);
    let pages: Vec<u64> = (0..bytes).step_by(apart).map(|at| (chain.first().addr() + at) as u64).collect();
    let mut found = Vec::new();
    let is_told = page_nodes(std::process::id(), &pages, &mut found).is_ok();
    let there = found.iter().filter(|&&page| page == PageNode::Node(node)).count();
    // Between the lines of a chain there may be pages that nobody has touched.
    let touched = found.iter().filter(|page| matches!(page, PageNode::Node(_))).count();
    is_told && touched > 0 && there as f64 >= LEAST_PART * touched as f64
}

/// The nearest and the farthest, if there are several.
pub(crate) fn nearest_and_farthest(all: &[NodeLatency]) -> Option<(NodeLatency, NodeLatency)> {
    let by_cycles = |a: &&NodeLatency, b: &&NodeLatency| a.cycles.cycles.total_cmp(&b.cycles.cycles);
    let nearest = all.iter().min_by(by_cycles).filter(|_| all.len() > 1)?;
    Some((*nearest, *all.iter().max_by(by_cycles)?))
}

/// Of all of them the mean: threads and their data are anywhere.
pub(crate) fn mean(all: &[NodeLatency]) -> Option<Latency> {
    let count = all.len() as f64;
    (!all.is_empty()).then(|| Latency {
        cycles: all.iter().map(|of| of.cycles.cycles).sum::<f64>() / count,
        spread: all.iter().map(|of| of.cycles.spread).fold(0.0, f64::max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Pages;

    fn machine(count: u32) -> MemoryNodes {
        MemoryNodes::read(|file| {
            let node = file.strip_prefix("node").and_then(|rest| rest.strip_suffix("/cpulist"));
            Some(node.map_or_else(|| format!("0-{}", count - 1), str::to_owned))
        })
    }

    #[test]
    fn others_are_spread_over_all_nodes() {
        // Processor n is of node n.
        let some = |count, here, most| others(&machine(count), &[here, 0], most);
        assert_eq!(some(1, 0, 4), None);
        assert_eq!(some(2, 1, 4), Some((1, vec![0])));
        assert_eq!(some(8, 2, 3), Some((2, vec![0, 4, 7])));
        assert_eq!(some(4, 0, 1), Some((0, vec![3])));
        assert_eq!(some(4, 9, 4), None, "a processor of no node");
        assert_eq!(others(&machine(4), &[], 4), None);
    }

    #[test]
    fn the_mean_counts_and_the_ends_are_shown() {
        let of = |node, cycles| NodeLatency { node, cycles: Latency { cycles, spread: cycles / 1e4 } };
        let all = [of(1, 400.0), of(2, 300.0), of(3, 500.0)];
        assert_eq!(mean(&all), Some(Latency { cycles: 400.0, spread: 0.05 }));
        let ends = nearest_and_farthest(&all).expect("several");
        assert_eq!((ends.0.node, ends.1.node), (2, 3));
        assert_eq!((nearest_and_farthest(&all[..1]), mean(&[])), (None, None));
    }

    #[test]
    fn memory_lies_in_one_of_the_nodes_and_not_in_others() {
        const BYTES: usize = 1 << 20;
        let chain = Chain::over(BYTES, Pages::Small).expect("memory");
        // A container may forbid asking, and then it lies nowhere.
        let nodes = MemoryNodes::of_this_machine();
        let homes = nodes.with_memory().iter().filter(|&&node| lies_in(&chain, BYTES, node)).count();
        assert!(homes <= 1);
        assert!(!lies_in(&chain, BYTES, 1 << 20));
    }
}
