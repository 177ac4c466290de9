//! [`ObjectPages`] against a sorted map of ranges.

use std::collections::BTreeMap;

use memlens_objects::{CHUNK_BYTES, MAX_ID, ObjectPages};
use proptest::prelude::*;

const GB: u64 = 1 << 30;

/// The slow twin: start → (end, id), ranges never overlap.
#[derive(Default)]
struct Ranges(BTreeMap<u64, (u64, u32)>);

impl Ranges {
    fn fill(&mut self, start: u64, end: u64, id: u32) {
        if start >= end {
            return;
        }
        let touched: Vec<_> =
            self.0.iter().filter(|(s, (e, _))| **s < end && *e > start).map(|(s, v)| (*s, *v)).collect();
        for (s, (e, owner)) in touched {
            self.0.remove(&s);
            if s < start {
                self.0.insert(s, (start, owner));
            }
            if e > end {
                self.0.insert(end, (e, owner));
            }
        }
        if id != 0 {
            self.0.insert(start, (end, id));
        }
    }

    fn get(&self, addr: u64) -> u32 {
        match self.0.range(..=addr).next_back() {
            Some((_, &(end, id))) if addr < end => id,
            _ => 0,
        }
    }

    fn runs(&self, start: u64, end: u64) -> Vec<(u64, u64, u32)> {
        let mut runs: Vec<(u64, u64, u32)> = Vec::new();
        for (&s, &(e, id)) in &self.0 {
            let (s, e) = (s.max(start), e.min(end));
            if s >= e {
                continue;
            }
            match runs.last_mut() {
                Some(last) if last.1 == s && last.2 == id => last.1 = e,
                _ => runs.push((s, e, id)),
            }
        }
        runs
    }
}

fn runs(pages: &ObjectPages, start: u64, end: u64) -> Vec<(u64, u64, u32)> {
    let mut runs = Vec::new();
    pages.owned_runs(start, end, |from, to, id| {
        runs.push((from, to, id));
        true
    });
    runs
}

/// Places where a level of the tree begins or ends, and the ends of the address space.
fn base() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![
        64,
        0x10000,
        0x5555_0003_0000,
        0x7fff_c000_0000 - 64,
        7 * GB,
        1 << 47,
        (1 << 47) + 5 * GB,
        (1 << 56) - 64,
        0xffff_ffff_ff60_0000,
    ])
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    let len = prop_oneof![
        8 => 0u64..80,
        2 => 0u64..3 * CHUNK_BYTES,
        2 => (1u64..5).prop_map(|chunks| chunks * CHUNK_BYTES),
        1 => 0..3 * GB,
        1 => (1u64..4).prop_map(|gbs| gbs * GB),
    ];
    let offset = prop_oneof![4 => -64i64..64, 1 => Just(0i64), 1 => -3 * (CHUNK_BYTES as i64)..0];
    (base(), offset, len).prop_map(|(base, offset, len)| {
        let start = base.saturating_add_signed(offset);
        (start, start.saturating_add(len))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn agrees_with_a_sorted_map(fills in prop::collection::vec((range(), 0u32..6), 1..60)) {
        let mut pages = ObjectPages::new();
        let mut twin = Ranges::default();
        let mut edges = Vec::new();
        let filled: Vec<_> = fills.iter().map(|(range, _)| *range).collect();
        for ((start, end), id) in fills {
            prop_assert_eq!(pages.is_clear(start, end), twin.runs(start, end).is_empty());
            prop_assert_eq!(runs(&pages, start, end), twin.runs(start, end));
            pages.fill(start, end, id);
            twin.fill(start, end, id);
            for edge in [start, end] {
                edges.extend((0..40).map(|d| edge.saturating_sub(20).saturating_add(d)));
            }
            edges.push(start / 2 + end / 2);
            for addr in &edges {
                prop_assert_eq!(pages.get(*addr), twin.get(*addr), "at {:#x}", addr);
            }
        }
        // Everything given back leaves no chunk behind.
        for (start, end) in filled {
            pages.fill(start, end, 0);
        }
        prop_assert_eq!(pages.live_leaves(), 0);
    }
}

#[test]
fn a_tail_shorter_than_a_granule_is_exact() {
    let mut pages = ObjectPages::new();
    // 40 bytes from 0x1000: granules 0x1000 and 0x1010 whole, 8 bytes of 0x1020.
    pages.fill(0x1000, 0x1028, 7);
    assert_eq!([0xfff, 0x1000, 0x101f, 0x1020, 0x1027, 0x1028].map(|a| pages.get(a)), [0, 7, 7, 7, 7, 0]);
}

#[test]
fn eight_byte_blocks_share_a_granule() {
    let mut pages = ObjectPages::new();
    pages.fill(0x1000, 0x1008, 1);
    pages.fill(0x1008, 0x1010, 2);
    assert_eq!([0x1007, 0x1008, 0x100f, 0x1010].map(|a| pages.get(a)), [1, 2, 2, 0]);
    pages.fill(0x1000, 0x1008, 0);
    assert_eq!([0x1007, 0x1008].map(|a| pages.get(a)), [0, 2]);
    pages.fill(0x1008, 0x1010, 0);
    assert_eq!(pages.live_leaves(), 0);
}

#[test]
fn a_hundred_gigabytes_cost_two_leaves() {
    let mut pages = ObjectPages::new();
    let start = 0x7f00_0000_1010;
    let before = pages.memory_bytes();
    pages.fill(start, start + 100 * GB, MAX_ID);
    assert_eq!(
        [start - 1, start, start + 50 * GB, start + 100 * GB].map(|a| pages.get(a)),
        [0, MAX_ID, MAX_ID, 0]
    );
    // The two ragged ends: a leaf each, and a node each (Vec growth may round up to four).
    assert_eq!(pages.live_leaves(), 2);
    assert!(pages.memory_bytes() - before <= 4 * (16 + 64) * 1024 + 64, "{}", pages.memory_bytes() - before);
    pages.fill(start, start + 100 * GB, 0);
    assert_eq!(pages.live_leaves(), 0);
}
