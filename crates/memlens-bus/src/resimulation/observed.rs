//! The page walks of a program in the pages that its kernel really gives it.
//!
//! Rules:
//!
//! 1. Whether memory lies in huge pages is asked when a page of the 2 MiB around it is first accessed, and kept until
//!    memory there is mapped, unmapped, moved or advised. The program is ahead of the model by then: it has touched the
//!    page, and the answer is what the kernel decided.
//! 2. Memory that is not there any more when it is asked about counts as 4-KiB pages; that is counted.
//! 3. A huge page is one of 2 MiB: pages of 1 GiB are counted like 512 of them.
//! 4. Nothing is flushed when memory is unmapped, as in the other trials.
//!
//! Not modelled: huge pages that the kernel makes or splits later, on its own account.

use super::{WalkCounts, WalksByObject};
use crate::analysis::ObjectSpaces;
use crate::format::ObjectEvent;
use crate::system::{fork_events, unborn_pid};
use memlens_sim::{CoreId, MachineDescription, ModelError, PageSize, Translator};
use memlens_types::AccessAttr;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;

/// Pages of 4 KiB in a huge one.
const HUGE: u64 = 512;

/// Knows the sizes of running processes' pages.
pub trait PageSizeSource: Send {
    /// Whether a page (address ÷ 4,096) of a process lies in a huge page now; `None`: it is not in memory, or not told.
    fn is_huge(&mut self, pid: u32, page: u64) -> Option<bool>;
    /// The process has ended or executes another program.
    fn forget(&mut self, pid: u32);
}

/// What was asked about pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AskedPages {
    /// 2 MiB of memory that were found in a huge page.
    pub huge: u64,
    /// The same, in small ones.
    pub small: u64,
    /// Accesses of pages that were not in memory any more, or not told.
    pub unknown: u64,
}

/// A program whose page walks are counted.
pub struct ObservedWalks {
    translator: Translator,
    source: Box<dyn PageSizeSource>,
    objects: ObjectSpaces,
    /// By process, by address ÷ 2 MiB: whether that is a huge page.
    known: FxHashMap<u32, BTreeMap<u64, bool>>,
    /// By object.
    counts: FxHashMap<u32, WalkCounts>,
    asked: AskedPages,
    /// Where each core was last: process and page. There it stays in its TLB.
    cores: Vec<(u32, u64)>,
}

impl ObservedWalks {
    /// On this machine's TLBs.
    ///
    /// # Errors
    /// When the machine cannot be modelled.
    pub fn new(machine: &MachineDescription, source: Box<dyn PageSizeSource>) -> Result<Self, ModelError> {
        Ok(Self {
            translator: Translator::new(machine)?,
            source,
            objects: ObjectSpaces::default(),
            known: FxHashMap::default(),
            counts: FxHashMap::default(),
            asked: AskedPages::default(),
            cores: Vec::new(),
        })
    }

    /// A process accesses memory on a core.
    #[inline]
    pub fn access(&mut self, pid: u32, core: CoreId, vaddr: u64, attr: AccessAttr) {
        let last = vaddr.saturating_add(u64::from(attr.size_bytes().max(1)) - 1);
        self.touch(pid, core, vaddr);
        if last >> 12 != vaddr >> 12 {
            self.touch(pid, core, last);
        }
    }

    #[inline]
    fn touch(&mut self, pid: u32, core: CoreId, vaddr: u64) {
        if self.cores.get(usize::from(core.0)) != Some(&(pid, vaddr >> 12)) {
            self.enter_page(pid, core, vaddr);
        }
    }

    fn enter_page(&mut self, pid: u32, core: CoreId, vaddr: u64) {
        let at = usize::from(core.0);
        if self.cores.len() <= at {
            self.cores.resize(at + 1, (0, u64::MAX));
        }
        self.cores[at] = (pid, vaddr >> 12);
        let size = self.page_size(pid, vaddr >> 12);
        let took = self.translator.translate(core, pid, vaddr, size);
        if took.stlb_miss {
            let counts = self.counts.entry(self.objects.at(pid, vaddr).0).or_default();
            counts.walks += 1;
            counts.entries += u64::from(took.entries_read);
        }
    }

    fn page_size(&mut self, pid: u32, page: u64) -> PageSize {
        let known = self.known.entry(pid).or_default();
        let is_huge = match known.get(&(page / HUGE)) {
            Some(&is_huge) => Some(is_huge),
            None => {
                let told = self.source.is_huge(pid, page);
                match told {
                    Some(true) => self.asked.huge += 1,
                    Some(false) => self.asked.small += 1,
                    None => self.asked.unknown += 1,
                }
                if let Some(is_huge) = told {
                    known.insert(page / HUGE, is_huge);
                }
                told
            }
        };
        if is_huge == Some(true) { PageSize::Size2M } else { PageSize::Size4K }
    }

    /// Memory changes: what was asked about it does not hold any more.
    pub fn change(&mut self, pid: u32, range: Range<u64>) {
        self.cores.fill((0, u64::MAX));
        let Some(known) = self.known.get_mut(&pid) else { return };
        let places = (range.start >> 12) / HUGE..(range.end.div_ceil(4096)).div_ceil(HUGE);
        let found: Vec<u64> = known.range(places).map(|(&place, _)| place).collect();
        for place in found {
            known.remove(&place);
        }
    }

    /// Objects begin, end, get names.
    pub fn tell_objects(&mut self, events: &[ObjectEvent]) {
        for event in events {
            self.objects.apply(event);
        }
    }

    /// A process is about to fork: its objects are copied now, for a child named later.
    pub fn prepare_fork(&mut self, parent: u32, token: u64) {
        self.tell_objects(&[ObjectEvent::Fork { parent, child: unborn_pid(token) }]);
    }

    /// The forked process begins; None: it failed, or is not watched.
    pub fn fork(&mut self, token: u64, child: Option<u32>) {
        self.tell_objects(&fork_events(token, child));
    }

    /// The process ended, or executes another program.
    pub fn end_process(&mut self, pid: u32) {
        self.known.remove(&pid);
        self.source.forget(pid);
        self.tell_objects(&[ObjectEvent::Exit { pid }]);
    }

    /// The walks by object, and what was asked.
    pub fn finish(self) -> (WalksByObject, AskedPages) {
        (WalksByObject::new(self.counts, self.objects.objects()), self.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_types::{AccessKind, ObjectKind};
    use std::sync::{Arc, Mutex};

    const MIB: u64 = 1 << 20;
    const PID: u32 = 3;

    /// Ranges of pages, and whether they are huge.
    type Ranges = Vec<(Range<u64>, bool)>;

    /// What it is told; nothing is known of other pages.
    #[derive(Clone, Default)]
    struct Told(Arc<Mutex<Ranges>>);

    impl PageSizeSource for Told {
        fn is_huge(&mut self, _: u32, page: u64) -> Option<bool> {
            let told = self.0.lock().expect("one thread");
            told.iter().find(|(range, _)| range.contains(&page)).map(|(_, is_huge)| *is_huge)
        }

        fn forget(&mut self, _: u32) {}
    }

    /// Two arrays of 1,024 pages in turns on the e5504, whose TLBs hold 512 small pages and 32 huge ones: all of a small
    /// array's pages miss in each round, of a huge one's two pages each misses once.
    #[test]
    fn walks_are_those_of_the_pages_that_were_told() {
        let machine = MachineDescription::named("e5504").expect("shipped");
        let (first, second, gone) = (0x7000_0000_0000_u64, 0x7100_0000_0000_u64, 0x7200_0000_0000_u64);
        let pages = |start: u64| start >> 12..(start + 4 * MIB) >> 12;
        let told = Told(Arc::new(Mutex::new(vec![(pages(first), true), (pages(second), false)])));
        let mut run = ObservedWalks::new(&machine, Box::new(told.clone())).expect("valid");
        for (id, name, start) in [(1, "first", first), (2, "second", second), (3, "gone", gone)] {
            run.tell_objects(&[
                ObjectEvent::Object { pid: PID, id, kind: ObjectKind::Heap, name: name.into() },
                ObjectEvent::Block { pid: PID, layer: 1, start, bytes: 4 * MIB, id },
            ]);
        }
        let walk = |start: u64, run: &mut ObservedWalks| {
            let attr = AccessAttr::new(AccessKind::Load, 8);
            (0..1024).for_each(|page| run.access(PID, CoreId(0), start + page * 4096, attr));
        };
        for _ in 0..3 {
            walk(first, &mut run);
            walk(second, &mut run);
        }
        walk(gone, &mut run);
        // The kernel takes its huge pages back, and the program says so by mapping the memory again.
        told.0.lock().expect("one thread")[0].1 = false;
        walk(first, &mut run);
        run.change(PID, first..first + 4 * MIB);
        walk(first, &mut run);
        let (found, asked) = run.finish();
        let walks: Vec<(&str, u64)> =
            found.objects.iter().map(|(object, counts)| (object.name.as_str(), counts.walks)).collect();
        assert_eq!(walks, [("second", 3 * 1024), ("first", 2 + 1024), ("gone", 1024)]);
        assert_eq!(found.total.walks, 5 * 1024 + 2);
        assert_eq!(asked, AskedPages { huge: 2, small: 2 + 2, unknown: 1024 });
    }
}
