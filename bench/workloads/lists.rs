//! Four lists of falling length, walked one after the other: `lists [NODES [ROUNDS]]`.
//!
//! A list is a vector of nodes of 64 bytes in random order; the longest lies in memory, the shortest in the
//! second-level cache.

#[repr(align(64))]
#[derive(Clone, Default)]
struct Node {
    next: u32,
    value: u32,
}

fn linked(count: usize, state: &mut u64) -> Vec<Node> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    for last in (1..count).rev() {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (*state >> 33) as usize % (last + 1));
    }
    let mut nodes = vec![Node::default(); count];
    for (at, &node) in order.iter().enumerate() {
        nodes[node as usize] = Node { next: order[(at + 1) % count], value: node % 5 };
    }
    nodes
}

#[inline(never)]
fn sum(nodes: &[Node]) -> u64 {
    let (mut at, mut sum) = (0, 0);
    for _ in 0..nodes.len() {
        let node = &nodes[at as usize];
        (at, sum) = (node.next, sum + u64::from(node.value));
    }
    sum
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<usize>().expect("a number"));
    let nodes = arguments.next().unwrap_or(1 << 20);
    let rounds = arguments.next().unwrap_or(3);
    let mut state = 1;
    let longest = linked(nodes, &mut state);
    let long = linked(nodes / 4, &mut state);
    let short = linked(nodes / 16, &mut state);
    let shortest = linked(nodes / 256, &mut state);
    let mut checksum = 0;
    for _ in 0..rounds {
        checksum += sum(&longest) + sum(&long) + sum(&short) + sum(&shortest);
    }
    println!("lists {nodes} rounds {rounds} checksum {checksum}");
}
