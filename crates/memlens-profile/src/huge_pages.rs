//! Data that the kernel had in huge pages, where translations are modelled as of small ones.

use std::cmp::Reverse;

use memlens_types::Counts;

use crate::{Object, ObjectBacking, Profile};

/// x86-64's huge pages, and those of AArch64 with small pages of 4 KiB.
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// What is left of an object's TLB misses, 0 to 1: of those of the first level, and of the second, which are page walks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Left {
    first: f64,
    second: f64,
}

impl Left {
    /// Of these counts.
    fn of(self, counts: &Counts) -> Counts {
        let part = |left: f64| move |count: u64| (count as f64 * left).round() as u64;
        counts.with_tlb_misses(part(self.first), part(self.second))
    }
}

impl Profile {
    /// Takes off the TLB misses and page walks that data does not have since the kernel had it in huge pages, and says so in a note. One entry
    /// of a TLB serves 512 times as much then: with no more huge pages, of all such data together, than entries none is left, and of more
    /// those that have no entry of their own, as if they were accessed at random. What lay in small pages keeps its own.
    ///
    /// For cells whose counts are estimates of this machine's. Counts of objects, code and threads are to be summed afterwards
    /// ([`Self::sum_cells`]). Linear in the cells, if there is such data.
    pub fn translate_in_huge_pages(&mut self) {
        let huge_bytes = |object: &Object| {
            let backing = object.backing.as_ref()?;
            Some(backing.resident_bytes() - backing.small_bytes)
        };
        let pages: u64 =
            self.objects.iter().filter_map(huge_bytes).map(|bytes| bytes.div_ceil(HUGE_PAGE_BYTES)).sum();
        let (Some(first), true) = (self.machine.dtlb, pages > 0) else { return };
        let second = self.machine.stlb.unwrap_or(first);
        let served = |entries: u32| (f64::from(entries) / pages as f64).min(1.0);
        let (by_first, by_second) = (served(first.entries), served(second.entries));
        let left: Vec<Option<Left>> = (self.objects.iter())
            .map(|object| {
                let share = object.backing.as_ref().and_then(ObjectBacking::huge_share)?;
                (share > 0.0)
                    .then_some(Left { first: 1.0 - share * by_first, second: 1.0 - share * by_second })
            })
            .collect();
        let (mut all, mut taken) = (0, vec![0; self.objects.len()]);
        for cell in &mut self.cells {
            let counts = cell.counts.get();
            all += counts.stlb_misses;
            let Some(Some(left)) = left.get(cell.object.index()) else { continue };
            let then = left.of(&counts);
            taken[cell.object.index()] += counts.stlb_misses - then.stlb_misses;
            cell.counts = then.into();
        }
        let gone: u64 = taken.iter().sum();
        let mut huge: Vec<(u64, &Object)> =
            taken.into_iter().zip(&self.objects).filter(|(walks, _)| *walks > 0).collect();
        huge.sort_by_key(|&(walks, _)| Reverse(walks));
        let Some((_, most)) = huge.first() else { return };
        self.run.notes.push(format!(
            "{} lay in huge pages: {:.0} % of the page walks that small pages would have had are left out, and the TLB misses with them.",
            and_others(&most.name, huge.len()),
            100.0 * gone as f64 / all.max(1) as f64
        ));
    }

    /// Says in a note, before others, that translations are modelled as of small pages, where a tenth of the page walks or more are of data
    /// that lay in huge ones. To be called once, when all rows and counts are there.
    pub fn note_huge_pages(&mut self) {
        let walks = |object: &Object| object.counts.page_walk_accesses;
        let in_huge =
            |object: &Object| object.backing.as_ref().and_then(ObjectBacking::huge_share).unwrap_or(0.0);
        let all: u64 = self.objects.iter().map(walks).sum();
        let mut huge: Vec<&Object> =
            self.objects.iter().filter(|it| in_huge(it) > 0.5 && walks(it) > 0).collect();
        let theirs: u64 = huge.iter().map(|object| walks(object)).sum();
        if self.is_of_bus() || theirs * 10 < all || theirs == 0 {
            return;
        }
        huge.sort_by_key(|object| Reverse(walks(object)));
        let note = format!(
            "{:.0} % of the page walks are of data that lay in huge pages ({}), but are modelled as in pages of {} KiB: in truth \
             there are fewer walks and TLB misses, and less is waited for them.",
            100.0 * theirs as f64 / all as f64,
            and_others(&huge[0].name, huge.len()),
            self.machine.page_bytes / 1024
        );
        self.run.notes.insert(0, note);
    }
}

/// `table`, `table and 2 more`.
fn and_others(name: &str, all: usize) -> String {
    if all > 1 { format!("{name} and {} more", all - 1) } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cell, CodeIx, CodeLocation, ObjectIx, Thread, ThreadIx, TlbInfo};

    /// A table of so many huge pages beside as many bytes in small ones, and an array of which nothing is known.
    fn profile(huge_pages: u64, small_bytes: u64) -> Profile {
        let mut profile = Profile::default();
        profile.machine.dtlb = Some(TlbInfo { entries: 64, ways: 64 });
        profile.machine.stlb = Some(TlbInfo { entries: 2048, ways: 8 });
        let backing =
            ObjectBacking { small_bytes, transparent_bytes: huge_pages << 21, ..ObjectBacking::default() };
        let object = |name: &str, backing| Object { name: name.into(), backing, ..Object::default() };
        profile.objects = vec![object("table", Some(backing)), object("array", None)];
        profile.code = vec![CodeLocation::default()];
        profile.threads = vec![Thread::default()];
        let cell = |object| {
            let counts = Counts {
                loads: 1000,
                dtlb_misses: 800,
                stlb_misses: 300,
                page_walk_accesses: 600,
                walk_cycles: 9000,
                ..Counts::default()
            };
            Cell { code: CodeIx(0), object: ObjectIx(object), thread: ThreadIx(0), counts: counts.into() }
        };
        profile.cells = vec![cell(0), cell(1)];
        profile.translate_in_huge_pages();
        profile.sum_cells();
        profile
    }

    fn walks(profile: &Profile, object: usize) -> [u64; 4] {
        let counts = &profile.objects[object].counts;
        [counts.dtlb_misses, counts.stlb_misses, counts.page_walk_accesses, counts.walk_cycles]
    }

    #[test]
    fn what_huge_pages_spare_is_not_counted() {
        // 64 pages have an entry each in both TLBs.
        let few = profile(64, 0);
        assert_eq!((walks(&few, 0), walks(&few, 1)), ([0; 4], [800, 300, 600, 9000]));
        let note =
            "table lay in huge pages: 50 % of the page walks that small pages would have had are left out";
        assert!(few.run.notes[0].starts_with(note), "{:?}", few.run.notes);
        // Of 4,096 the first level serves one in 64, the second half.
        assert_eq!(walks(&profile(4096, 0), 0), [788, 150, 300, 4500]);
        // Half of it lay in small pages.
        assert_eq!(walks(&profile(32, 64 << 20), 0), [400, 150, 300, 4500]);
        let none = profile(0, 64 << 20);
        assert_eq!((walks(&none, 0), none.run.notes.len()), ([800, 300, 600, 9000], 0));
    }
}
