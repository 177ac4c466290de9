//! ns per insert, lookup and remove of the live-block index, next to a `BTreeMap` of starts.
//!
//! Run with `cargo bench -p memlens-objects`.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use memlens_objects::{Block, Layer, LiveBlocks, ObjectId};

const BASE: u64 = 0x5555_5560_0000;

/// A generator good enough to spread addresses (Marsaglia, "Xorshift RNGs", 2003).
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn ns(count: usize, work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_nanos() as f64 / count as f64
}

fn workload(name: &str, count: u64, len: u64, pitch: u64) {
    let mut rng = Xorshift(88172645463325252);
    let mut starts: Vec<u64> = (0..count).map(|i| BASE + i * pitch).collect();
    for i in (1..starts.len()).rev() {
        starts.swap(i, rng.below(i as u64 + 1) as usize);
    }
    let probes: Vec<u64> = (0..4_000_000).map(|_| BASE + rng.below(count * pitch)).collect();
    let Some(object) = ObjectId::new(1) else { return };
    let block = |start| Block { start, len_bytes: len, object, layer: Layer::HEAP, serial: 0 };

    let mut index = LiveBlocks::new();
    let insert = ns(starts.len(), || {
        for &start in &starts {
            let _ = index.insert(block(start), &mut |_| {});
        }
    });
    let lookup = ns(probes.len(), || {
        for &addr in &probes {
            black_box(index.object_at(addr));
        }
    });
    let with_block = ns(probes.len(), || {
        for &addr in &probes {
            black_box(index.block_at(addr));
        }
    });
    let memory = index.memory_bytes();
    let churn = ns(starts.len(), || {
        for &start in &starts {
            index.remove(start, Layer::HEAP, &mut |_| {});
            let _ = index.insert(block(start), &mut |_| {});
        }
    });
    let remove = ns(starts.len(), || {
        for &start in &starts {
            index.remove(start, Layer::HEAP, &mut |_| {});
        }
    });

    let mut map = BTreeMap::new();
    let map_insert = ns(starts.len(), || {
        for &start in &starts {
            map.insert(start, (start + len, object));
        }
    });
    let map_lookup = ns(probes.len(), || {
        for &addr in &probes {
            black_box(map.range(..=addr).next_back().filter(|(_, (end, _))| addr < *end).map(|(_, v)| v.1));
        }
    });
    let map_remove = ns(starts.len(), || {
        for start in &starts {
            map.remove(start);
        }
    });
    println!(
        "{name:26} insert {insert:8.1}  object_at {lookup:6.1}  block_at {with_block:6.1}  \
         remove {remove:8.1}  remove+insert {churn:8.1}  {:7.1} MB",
        memory as f64 / 1e6
    );
    println!(
        "{:26} insert {map_insert:8.1}  lookup    {map_lookup:6.1}                   remove {map_remove:8.1}",
        "  BTreeMap"
    );
}

fn main() {
    println!("ns per operation; blocks inserted and removed in random order, random lookups");
    workload("1 M blocks of 40 B", 1_000_000, 40, 48);
    workload("1 k blocks of 40 B", 1_000, 40, 48);
    workload("10 k blocks of 4 KB", 10_000, 4096, 4112);
    workload("8 blocks of 64 MB", 8, 64 << 20, (64 << 20) + 4096);
    workload("2 blocks of 100 GB", 2, 100 << 30, (100 << 30) + 4096);
}
