//! How much of each object pages of which size map.

use super::object_space::ObjectSpaces;
use super::reverse_table::ReverseTable;
use crate::format::{HugeKind, ObjectEvent, PageEvent, PageRecord};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Bytes of an object by the pages that map them, in all processes together, when most of it was mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MappedBytes {
    /// In pages of 4 KiB.
    pub bytes_in_4k_pages: u64,
    /// In pages of 2 MiB.
    pub bytes_in_2m_pages: u64,
    /// In pages of 1 GiB.
    pub bytes_in_1g_pages: u64,
    /// Of those of 2 MiB and 1 GiB, in transparent ones.
    pub bytes_in_transparent_pages: u64,
    /// Of those of 2 MiB and 1 GiB, in ones from hugetlbfs.
    pub bytes_in_hugetlb_pages: u64,
}

impl MappedBytes {
    /// In pages of any size.
    pub fn total(&self) -> u64 {
        self.bytes_in_4k_pages + self.huge()
    }

    /// In pages of 2 MiB and 1 GiB.
    pub fn huge(&self) -> u64 {
        self.bytes_in_2m_pages + self.bytes_in_1g_pages
    }

    /// In pages of 2 MiB and 1 GiB of which the trace does not say where the kernel took them from.
    pub fn huge_of_untold_kind(&self) -> u64 {
        self.huge() - self.bytes_in_transparent_pages - self.bytes_in_hugetlb_pages
    }

    /// What bytes in a leaf of this level and kind count for.
    fn places(&mut self, level: u8, kind: Option<HugeKind>) -> [Option<&mut u64>; 2] {
        let by_size = match level {
            1 => &mut self.bytes_in_4k_pages,
            2 => &mut self.bytes_in_2m_pages,
            _ => &mut self.bytes_in_1g_pages,
        };
        let by_kind = kind.map(|kind| match kind {
            HugeKind::Transparent => &mut self.bytes_in_transparent_pages,
            HugeKind::Hugetlb => &mut self.bytes_in_hugetlb_pages,
        });
        [Some(by_size), by_kind]
    }
}

/// Follows mappings and objects. Each event first takes out what it concerns, as it was, and then puts it in again, as
/// it is: so nothing is counted twice, in whatever order objects and mappings come and go.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ObjectBacking {
    /// By object: now, and when it was most.
    objects: Vec<(MappedBytes, MappedBytes)>,
    /// Where large pages are from, as far as that was told: by process, by first page of those of levels 2 and 3.
    kinds: FxHashMap<u32, [FxHashMap<u64, HugeKind>; 2]>,
}

/// A leaf entry, or the part of it that an event concerns.
#[derive(Clone, Debug)]
struct Leaf {
    addresses: Range<u64>,
    level: u8,
    kind: Option<HugeKind>,
}

impl ObjectBacking {
    /// Takes out what a page-table event ends or changes; it happens next.
    pub fn before_pages(&mut self, table: &ReverseTable, spaces: &ObjectSpaces, record: &PageRecord) {
        let pages = record.page..record.page + PageRecord::pages(record.level);
        let ending: Vec<(u64, u8)> = match record.event {
            PageEvent::Map => table.leaves(record.pid, pages).collect(),
            PageEvent::Unmap => {
                let same = |leaf: &(u64, u8)| *leaf == (record.page, record.level);
                table.leaves(record.pid, pages).filter(same).collect()
            }
            PageEvent::ProcessEnd => table.leaves(record.pid, 0..u64::MAX).collect(),
            _ => return,
        };
        let leaves: Vec<Leaf> = ending.iter().map(|&leaf| self.whole(record.pid, leaf)).collect();
        self.change(spaces, record.pid, &leaves, false);
        ending.into_iter().for_each(|(page, level)| self.set_kind(record.pid, page, level, None));
    }

    /// Puts in what it begins; it has happened.
    pub fn after_pages(&mut self, spaces: &ObjectSpaces, record: &PageRecord) {
        if record.event == PageEvent::Map {
            self.set_kind(record.pid, record.page, record.level, record.huge);
            let leaf = self.whole(record.pid, (record.page, record.level));
            self.change(spaces, record.pid, &[leaf], true);
        }
    }

    fn set_kind(&mut self, pid: u32, page: u64, level: u8, kind: Option<HugeKind>) {
        let Some(of_level) = usize::from(level).checked_sub(2) else { return };
        match kind {
            Some(kind) => {
                self.kinds.entry(pid).or_default()[of_level].insert(page, kind);
            }
            None => {
                if let Some(levels) = self.kinds.get_mut(&pid) {
                    levels[of_level].remove(&page);
                }
            }
        }
    }

    /// A leaf with all addresses that it maps.
    fn whole(&self, pid: u32, (page, level): (u64, u8)) -> Leaf {
        let kinds =
            usize::from(level).checked_sub(2).and_then(|of_level| self.kinds.get(&pid)?.get(of_level));
        let kind = kinds.and_then(|kinds| kinds.get(&page)).copied();
        Leaf { addresses: page << 12..(page + PageRecord::pages(level)) << 12, level, kind }
    }

    /// Lets an object event happen, and moves the bytes that it concerns from object to object.
    pub fn apply(
        &mut self,
        table: &ReverseTable,
        spaces: &mut ObjectSpaces,
        event: &ObjectEvent,
    ) -> Option<(u32, Range<u64>)> {
        let Some((pid, addresses)) = spaces.concerned(event) else { return spaces.apply(event) };
        let pages = addresses.start >> 12..addresses.end.div_ceil(4096);
        let part = |leaf: Leaf| {
            let (start, end) = (leaf.addresses.start, leaf.addresses.end);
            Leaf { addresses: start.max(addresses.start)..end.min(addresses.end), ..leaf }
        };
        let leaves: Vec<Leaf> = table.leaves(pid, pages).map(|leaf| part(self.whole(pid, leaf))).collect();
        self.change(spaces, pid, &leaves, false);
        let found = spaces.apply(event);
        self.change(spaces, pid, &leaves, true);
        found
    }

    fn change(&mut self, spaces: &ObjectSpaces, pid: u32, leaves: &[Leaf], adds: bool) {
        for leaf in leaves {
            spaces.pieces(pid, leaf.addresses.clone(), |object, bytes| {
                let index = object as usize;
                if self.objects.len() <= index {
                    self.objects.resize(index + 1, Default::default());
                }
                let (now, most) = &mut self.objects[index];
                for place in now.places(leaf.level, leaf.kind).into_iter().flatten() {
                    *place = if adds { *place + bytes } else { place.saturating_sub(bytes) };
                }
                if now.total() > most.total() {
                    *most = *now;
                }
            });
        }
    }

    /// An object's bytes when most of it was mapped.
    pub fn of_object(&self, object: u32) -> MappedBytes {
        self.objects.get(object as usize).map_or_else(MappedBytes::default, |(_, most)| *most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    /// What is kept against what a walk through all pages finds, and the state of an object at its most.
    struct Followed {
        table: ReverseTable,
        spaces: ObjectSpaces,
        backing: ObjectBacking,
    }

    impl Followed {
        fn new() -> Self {
            let backing = ObjectBacking::default();
            Self { table: ReverseTable::new(64), spaces: ObjectSpaces::default(), backing }
        }

        fn page(&mut self, event: PageEvent, level: u8, frame: u64, page: u64) {
            self.page_of_kind(event, level, frame, page, None);
        }

        fn page_of_kind(
            &mut self,
            event: PageEvent,
            level: u8,
            frame: u64,
            page: u64,
            huge: Option<HugeKind>,
        ) {
            let record = PageRecord { huge, ..PageRecord::new(event, level, 1, frame, page, 0) };
            self.backing.before_pages(&self.table, &self.spaces, &record);
            self.table.apply(&record);
            self.backing.after_pages(&self.spaces, &record);
        }

        fn object(&mut self, line: &str) {
            let event = ObjectEvent::parse(line).expect("an event");
            self.backing.apply(&self.table, &mut self.spaces, &event);
        }

        fn counted(&self) -> Vec<MappedBytes> {
            let mut counts = vec![MappedBytes::default(); self.spaces.objects().len()];
            for leaf in self.table.leaves(1, 0..u64::MAX) {
                let Leaf { addresses, level, kind } = self.backing.whole(1, leaf);
                self.spaces.pieces(1, addresses, |object, bytes| {
                    let places = counts[object as usize].places(level, kind);
                    places.into_iter().flatten().for_each(|place| *place += bytes);
                });
            }
            counts
        }

        fn now(&self) -> Vec<MappedBytes> {
            let now = |at: usize| self.backing.objects.get(at).map_or_else(Default::default, |found| found.0);
            (0..self.spaces.objects().len()).map(now).collect()
        }
    }

    #[test]
    fn the_state_with_most_memory_is_kept() {
        let mut followed = Followed::new();
        followed.object("object 1 1 mmap arena");
        followed.object("object 1 2 heap column");
        followed.object(&format!("region 1 0 {} 1", 8 * MIB));
        followed.object(&format!("block 1 1 {} {} 2", 2 * MIB, 3 * MIB));
        followed.page(PageEvent::Map, 2, 512, 512);
        followed.page(PageEvent::Map, 1, 7, 1024);
        let column = |followed: &Followed| {
            let found = followed.backing.of_object(2);
            (found.bytes_in_4k_pages, found.bytes_in_2m_pages, found.bytes_in_1g_pages)
        };
        assert_eq!(column(&followed), (4096, 2 * MIB, 0));
        // It ends before its pages do: they are the arena's then, and what it had is still known.
        followed.object(&format!("end 1 1 {}", 2 * MIB));
        assert_eq!(followed.backing.of_object(1).total(), 2 * MIB + 4096);
        followed.page(PageEvent::ProcessEnd, 0, 0, 0);
        assert_eq!(followed.now().iter().map(MappedBytes::total).sum::<u64>(), 0);
        assert_eq!(column(&followed), (4096, 2 * MIB, 0));
    }

    #[test]
    fn transparent_and_reserved_pages_are_told_apart_as_long_as_they_are_mapped() {
        let mut followed = Followed::new();
        followed.object("object 1 1 heap table");
        followed.object(&format!("block 1 1 0 {} 1", 8 * MIB));
        followed.page_of_kind(PageEvent::Map, 2, 512, 0, Some(HugeKind::Transparent));
        followed.page_of_kind(PageEvent::Map, 2, 1024, 512, Some(HugeKind::Hugetlb));
        followed.page_of_kind(PageEvent::Map, 2, 1536, 1024, Some(HugeKind::Hugetlb));
        followed.page(PageEvent::Map, 2, 2048, 1536);
        let kinds = |found: MappedBytes| {
            let told = [found.bytes_in_transparent_pages, found.bytes_in_hugetlb_pages];
            (told.map(|bytes| bytes / MIB), found.huge_of_untold_kind() / MIB)
        };
        assert_eq!(kinds(followed.backing.of_object(1)), ([2, 4], 2));
        // The same page again, split, and gone: the kind is that of what is mapped.
        followed.page(PageEvent::Map, 2, 2560, 512);
        assert_eq!(kinds(followed.now()[1]), ([2, 2], 4));
        followed.page(PageEvent::Unmap, 2, 0, 1024);
        followed.page(PageEvent::Map, 1, 7, 0);
        assert_eq!(kinds(followed.now()[1]), ([0, 0], 4));
        assert!(followed.backing.kinds[&1].iter().all(FxHashMap::is_empty));
        followed.page(PageEvent::ProcessEnd, 0, 0, 0);
        assert_eq!(followed.now()[1], MappedBytes::default());
    }

    proptest! {
        #[test]
        fn whatever_comes_and_goes_every_byte_is_counted_once(
            steps in prop::collection::vec((0_u8..6, 0_u64..4, 0_u64..3, 1_u64..9), 1..80)
        ) {
            let mut followed = Followed::new();
            (1..4).for_each(|id| followed.object(&format!("object 1 {id} heap a{id}")));
            for (kind, place, offset, size) in steps {
                let start = place * 2 * MIB + offset * 5000;
                match kind {
                    0 => followed.object(&format!("region 1 {start} {} {}", size * 300_000, 1 + size % 3)),
                    1 => followed.object(&format!("block 1 1 {start} {} {}", size * 3000, 1 + size % 3)),
                    2 => followed.object(&format!("end 1 1 {start}")),
                    3 => {
                        let kinds = [None, Some(HugeKind::Transparent), Some(HugeKind::Hugetlb)];
                        let kind = kinds[size as usize % 3];
                        followed.page_of_kind(PageEvent::Map, 2, (8 - place) * 512, place * 512, kind);
                    }
                    4 => followed.page(PageEvent::Map, 1, 9000 + size, place * 512 + offset),
                    _ => {
                        let level = 1 + (size % 2) as u8;
                        followed.page(PageEvent::Unmap, level, 0, place * 512 + if level == 2 { 0 } else { offset });
                    }
                }
                prop_assert_eq!(followed.now(), followed.counted());
            }
        }
    }
}
