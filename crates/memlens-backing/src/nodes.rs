//! The machine's memory nodes (NUMA), and which processors are near which (Documentation/admin-guide/mm/numaperf.rst).

use std::fs;

/// Where Linux describes them.
const NODES: &str = "/sys/devices/system/node";
/// Nodes and processors have smaller numbers.
const MOST: u32 = 1 << 16;

/// The nodes of a machine. Their numbers can have gaps; one can have memory alone, or processors alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryNodes {
    /// Those with memory, in order.
    with_memory: Vec<u32>,
    /// By processor: its node.
    of_processors: Vec<Option<u32>>,
}

impl MemoryNodes {
    /// Those of this machine; none where the kernel does not tell them.
    pub fn of_this_machine() -> Self {
        Self::read(|file| fs::read_to_string(format!("{NODES}/{file}")).ok())
    }

    /// From the files of the kernel's folder of nodes, by their names there.
    pub fn read(file: impl Fn(&str) -> Option<String>) -> Self {
        let list = |name: &str| file(name).and_then(|text| numbers(&text)).unwrap_or_default();
        let mut of_processors = Vec::new();
        for node in list("online") {
            for processor in list(&format!("node{node}/cpulist")) {
                let at = processor as usize;
                if of_processors.len() <= at {
                    of_processors.resize(at + 1, None);
                }
                of_processors[at] = Some(node);
            }
        }
        Self { with_memory: list("has_memory"), of_processors }
    }

    /// Those with memory, in order.
    pub fn with_memory(&self) -> &[u32] {
        &self.with_memory
    }

    /// Those with processors, in order.
    pub fn with_processors(&self) -> Vec<u32> {
        let mut nodes: Vec<u32> = self.of_processors.iter().copied().flatten().collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Whether memory can lie in more than one.
    pub fn are_several(&self) -> bool {
        self.with_memory.len() > 1
    }

    /// The node of a processor. None: the kernel does not tell.
    pub fn of_processor(&self, processor: u32) -> Option<u32> {
        self.of_processors.get(processor as usize).copied().flatten()
    }

    /// The processors of a node, in order.
    pub fn processors_of(&self, node: u32) -> impl Iterator<Item = u32> {
        let all = self.of_processors.iter().zip(0..);
        all.filter(move |&(&of, _)| of == Some(node)).map(|(_, processor)| processor)
    }
}

/// Numbers as the kernel lists them: `0-1,4`.
fn numbers(list: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for piece in list.trim().split(',').filter(|piece| !piece.is_empty()) {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        let last = last.parse().ok().filter(|&last| last < MOST)?;
        numbers.extend(first.parse::<u32>().ok()?..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_gaps_and_some_nodes_have_no_processors() {
        let nodes = MemoryNodes::read(|file| {
            let text = match file {
                "online" => "0,2,5",
                "has_memory" => "0,5",
                "node0/cpulist" => "0-1,4",
                "node2/cpulist" => "2-3",
                // Memory alone, as that of CXL is.
                "node5/cpulist" => "",
                _ => return None,
            };
            Some(format!("{text}\n"))
        });
        assert_eq!(nodes.with_memory(), [0, 5]);
        assert_eq!(nodes.with_processors(), [0, 2]);
        assert!(nodes.are_several());
        assert_eq!([0, 1, 2, 3, 4, 5, 99].map(|processor| nodes.of_processor(processor)), {
            [Some(0), Some(0), Some(2), Some(2), Some(0), None, None]
        });
        let processors = |node| nodes.processors_of(node).collect::<Vec<_>>();
        assert_eq!([0, 2, 5].map(processors), [vec![0, 1, 4], vec![2, 3], vec![]]);
        assert_eq!(MemoryNodes::read(|_| None), MemoryNodes::default());
        assert!(!MemoryNodes::default().are_several());
        assert_eq!(
            ["0-x", "3-4294967295", "", " 7\n"].map(numbers),
            [None, None, Some(vec![]), Some(vec![7])]
        );
    }

    #[test]
    fn this_machines_are_as_it_says() {
        let nodes = MemoryNodes::of_this_machine();
        for &node in nodes.with_memory() {
            assert!(nodes.processors_of(node).all(|processor| nodes.of_processor(processor) == Some(node)));
        }
    }
}
