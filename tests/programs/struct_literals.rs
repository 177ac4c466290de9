// Vectors made inside of a structure's literal are called after its fields, each for itself, with what they hold.
//
// 1,000 structures of 64 bytes, whose k is stored once and loaded twice for each of 4,000 indices.
//
// expect heap world.entries: blocks=1 bytes=64000
// expect heap world.indices: blocks=1 bytes=32000
// field heap world.entries k: offset=0 bytes=8 loads=8000
// field heap world.indices at: offset=0 bytes=4 loads=8000
// prints: 3996000
#![allow(dead_code)]

struct Entry {
    k: u64,
    rest: [u64; 7],
}

struct Index {
    at: u32,
    weight: u32,
}

struct World {
    entries: Vec<Entry>,
    indices: Vec<Index>,
}

#[inline(never)]
fn sum(world: &World) -> u64 {
    world.indices.iter().map(|index| world.entries[index.at as usize].k).sum()
}

fn main() {
    let n = 999 + std::env::args().count();
    let mut world = World {
        entries: Vec::with_capacity(n),
        indices: Vec::with_capacity(n * 4),
    };
    for k in 0..n {
        world.entries.push(Entry { k: k as u64, rest: [1; 7] });
    }
    for i in 0..n * 4 {
        world.indices.push(Index { at: (i * 7 % n) as u32, weight: 1 });
    }
    println!("{}", sum(&world) + sum(&world));
}
