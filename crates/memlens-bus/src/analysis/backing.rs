//! How much of each object pages of which size map.

use super::object_space::ObjectSpaces;
use super::reverse_table::ReverseTable;
use crate::format::{ObjectEvent, PageEvent, PageRecord};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Bytes of an object by the size of the pages that map them, in all processes together, when most of it was mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedBytes {
    /// In pages of 4 KiB.
    pub bytes_in_4k_pages: u64,
    /// In pages of 2 MiB. Whether they are transparent or from hugetlbfs, page tables do not say.
    pub bytes_in_2m_pages: u64,
    /// In pages of 1 GiB.
    pub bytes_in_1g_pages: u64,
}

impl MappedBytes {
    /// In pages of any size.
    pub fn total(&self) -> u64 {
        self.bytes_in_4k_pages + self.bytes_in_2m_pages + self.bytes_in_1g_pages
    }

    fn of_level(&mut self, level: u8) -> &mut u64 {
        match level {
            1 => &mut self.bytes_in_4k_pages,
            2 => &mut self.bytes_in_2m_pages,
            _ => &mut self.bytes_in_1g_pages,
        }
    }
}

/// Follows mappings and objects. Each event first takes out what it concerns, as it was, and then puts it in again, as
/// it is: so nothing is counted twice, in whatever order objects and mappings come and go.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ObjectBacking {
    /// By object: now, and when it was most.
    objects: Vec<(MappedBytes, MappedBytes)>,
}

/// A leaf entry, or the part of it that an event concerns: addresses and level.
type Leaf = (Range<u64>, u8);

impl ObjectBacking {
    /// Takes out what a page-table event ends or changes; it happens next.
    pub fn before_pages(&mut self, table: &ReverseTable, spaces: &ObjectSpaces, record: &PageRecord) {
        let pages = record.page..record.page + PageRecord::pages(record.level);
        let leaves: Vec<Leaf> = match record.event {
            PageEvent::Map => table.leaves(record.pid, pages).map(whole).collect(),
            PageEvent::Unmap => {
                let same = |leaf: &(u64, u8)| *leaf == (record.page, record.level);
                table.leaves(record.pid, pages).filter(same).map(whole).collect()
            }
            PageEvent::ProcessEnd => table.leaves(record.pid, 0..u64::MAX).map(whole).collect(),
            _ => return,
        };
        self.change(spaces, record.pid, &leaves, false);
    }

    /// Puts in what it begins; it has happened.
    pub fn after_pages(&mut self, spaces: &ObjectSpaces, record: &PageRecord) {
        if record.event == PageEvent::Map {
            self.change(spaces, record.pid, &[whole((record.page, record.level))], true);
        }
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
        let part =
            |(range, level): Leaf| (range.start.max(addresses.start)..range.end.min(addresses.end), level);
        let leaves: Vec<Leaf> = table.leaves(pid, pages).map(whole).map(part).collect();
        self.change(spaces, pid, &leaves, false);
        let found = spaces.apply(event);
        self.change(spaces, pid, &leaves, true);
        found
    }

    fn change(&mut self, spaces: &ObjectSpaces, pid: u32, leaves: &[Leaf], adds: bool) {
        for (addresses, level) in leaves {
            spaces.pieces(pid, addresses.clone(), |object, bytes| {
                let index = object as usize;
                if self.objects.len() <= index {
                    self.objects.resize(index + 1, Default::default());
                }
                let (now, most) = &mut self.objects[index];
                let place = now.of_level(*level);
                *place = if adds { *place + bytes } else { place.saturating_sub(bytes) };
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

/// A leaf with all addresses that it maps.
fn whole((page, level): (u64, u8)) -> Leaf {
    (page << 12..(page + PageRecord::pages(level)) << 12, level)
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
            let record = PageRecord::new(event, level, 1, frame, page, 0);
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
                let (addresses, level) = whole(leaf);
                self.spaces.pieces(1, addresses, |object, bytes| {
                    *counts[object as usize].of_level(level) += bytes;
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
                    3 => followed.page(PageEvent::Map, 2, (8 - place) * 512, place * 512),
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
