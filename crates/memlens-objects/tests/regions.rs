//! [`Regions`] against one label per 16-byte cell.

use memlens_objects::{HeapObjects, Layer, Merge, Regions, Sites, frame_key, split_frame_key};
use proptest::prelude::*;

proptest! {
    #[test]
    fn agrees_with_a_label_per_cell(ops in prop::collection::vec((0u64..64, 0u64..40, 0u32..5), 1..60)) {
        let mut regions = Regions::new();
        let mut cells = [0u32; 128];
        for (start, len, label) in ops {
            let range = start * 16..(start + len) * 16;
            if label == 0 { regions.remove(range) } else { regions.insert(range, label) }
            cells[start as usize..(start + len) as usize].fill(label);
            for (at, &label) in cells.iter().enumerate() {
                let addr = at as u64 * 16 + 5;
                let (range, found) = regions.get_or_gap(addr);
                prop_assert!(range.contains(&addr));
                prop_assert_eq!(found.unwrap_or(0), label);
                prop_assert_eq!(regions.get(addr).map(|(_, l)| l), found);
                for cell in range.start.div_ceil(16)..(range.end / 16).min(128) {
                    prop_assert_eq!(cells[cell as usize], label);
                }
            }
        }
    }
}

#[test]
fn mremap_moves_pieces_and_extends_the_last() {
    let mut regions = Regions::new();
    // 0x1000 ──1── 0x2000 ──2── 0x3000, then 3 lies where they go.
    regions.insert(0x1000..0x2000, 1);
    regions.insert(0x2000..0x3000, 2);
    regions.insert(0x8000..0xa000, 3);
    assert_eq!(regions.moved(0x1000..0x3000, 0x9000, 0x4000), 2);
    let all: Vec<_> = regions.iter().collect();
    assert_eq!(all, [(0x8000..0x9000, 3), (0x9000..0xa000, 1), (0xa000..0xd000, 2)]);
}

#[test]
fn equal_stacks_are_one_site() {
    let mut sites = Sites::new();
    let (a, b, empty) = (sites.intern(&[1, 2]), sites.intern(&[1]), sites.intern(&[]));
    assert_eq!((sites.intern(&[1, 2]), sites.intern(&[1]), sites.intern(&[])), (a, b, empty));
    let (named, other) = (sites.intern_named(&[1, 2], "red"), sites.intern_named(&[1, 2], "green"));
    assert!(named != other && ![a, b, empty].contains(&named) && ![a, b, empty].contains(&other));
    assert_eq!((sites.intern_named(&[1, 2], "red"), sites.intern(&[1, 2])), (named, a));
    assert_eq!(sites.stack(other), [1, 2]);
    assert_eq!((sites.stack(a), sites.stack(b), sites.stack(empty)), (&[1, 2][..], &[1][..], &[][..]));
    assert_eq!((sites.len(), split_frame_key(frame_key(3, 0x1234))), (5, (3, 0x1234)));
}

#[test]
fn realloc_keeps_the_object_and_statistics_follow() {
    let mut heap = HeapObjects::new(Merge::BySite);
    let object = heap.allocated(0x1000, 100, Layer::HEAP, &[1], 1).unwrap();
    assert_eq!(heap.reallocated(0x1000, 0x5000, 300, Layer::HEAP, &[2], 2), Ok(object));
    heap.freed(0x5000, Layer::HEAP).unwrap();
    let stats = heap.objects().stats(object);
    // 100 bytes, then 200 more; one block throughout.
    assert_eq!((stats.blocks, stats.total_bytes, stats.max_live_bytes, stats.live_bytes), (1, 300, 300, 0));
    // realloc(NULL, n) is malloc; without merging each block is an object of its own.
    let mut heap = HeapObjects::new(Merge::Off);
    let a = heap.reallocated(0, 0x1000, 8, Layer::HEAP, &[1], 1).unwrap();
    let b = heap.allocated(0x1010, 8, Layer::HEAP, &[1], 2).unwrap();
    assert_ne!(a, b);
    assert_eq!(heap.objects().key(a).and_then(|k| k.site()), heap.objects().key(b).and_then(|k| k.site()));
}
