//! What page walks would be if some objects lay in huge pages: the program's accesses once more, through several
//! translations at once.
//!
//! ```text
//!                             ┌─► all in 4 KiB         ─► walks by object
//!  accesses, mappings, objects├─► candidate 1 in 2 MiB ─► walks by object, memory
//!                             ├─► …
//!                             └─► all that can be      ─► walks by object, memory
//! ```
//!
//! Rules:
//!
//! 1. A translation counts as in [`memlens_sim::Translator`]: TLBs and paging-structure caches of the machine, one set a
//!    core. Large blocks are moved to the start of a huge page, as `memlens apply` has them; anonymous mappings, the
//!    heap and variables stay and get the aligned huge pages that lie wholly in them (the heap: all that it touches).
//! 2. Where small blocks are meant, the whole heap (`brk`) is in huge pages. Blocks that glibc maps by themselves today
//!    and would move into that heap are not: there the prediction is too careful.
//! 3. Memory freed and allocated again in the same size lies where it lay. Nothing is flushed when memory is unmapped.
//! 4. The price is what the touched huge pages take at their most, less what small pages would at theirs.
//!
//! Not modelled: huge pages that the kernel does not find; what the program itself asks for (`MAP_HUGETLB`, `madvise`):
//! all of its memory starts in 4 KiB; caches for page-table entries: a walk that hits them counts as any other.
//!
//! It knows objects by what [`ObjectEvent`]s say. Cost: some ns an access within a page, 50 to 100 ns for each trial when
//! a core goes to another page.

mod observed;
mod placed;
mod trials;

use crate::analysis::{ObjectInfo, ObjectSpaces};
use crate::format::ObjectEvent;
use crate::system::{Mapping, fork_events, unborn_pid};
use memlens_sim::{CoreId, MachineDescription, ModelError};
use memlens_types::{AccessAttr, ObjectKind};
use placed::{HUGE_PAGE_BYTES, Layer};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;
use trials::{Groups, Trials};

pub use observed::{AskedPages, ObservedWalks, PageSizeSource};
pub use trials::WalkCounts;

/// Candidates at most: each has a bit, and one is for the rest.
pub const MAX_CANDIDATES: usize = 63;
/// The group of all that can lie in huge pages and belongs to no candidate.
const THE_REST: Groups = 1 << 63;

/// An object that may be put into huge pages, and how it is known again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// Blocks or mappings that were allocated by a call stack that begins like this, innermost first: file and module
    /// offset.
    Site(Vec<(String, u64)>),
    /// The same, of small blocks: the heap is put into huge pages.
    Heap,
    /// A variable, by name and size.
    Variable {
        /// Its name.
        name: String,
        /// Its bytes.
        bytes: u64,
    },
}

/// Page walks and who caused them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WalksByObject {
    /// All page walks.
    pub total: WalkCounts,
    /// The objects that caused them, most walks first.
    pub objects: Vec<(ObjectInfo, WalkCounts)>,
}

impl WalksByObject {
    /// From counts by the objects' numbers.
    fn new(counts: FxHashMap<u32, WalkCounts>, infos: &[ObjectInfo]) -> Self {
        let mut total = WalkCounts::default();
        let mut objects: Vec<(u32, WalkCounts)> = counts.into_iter().collect();
        objects.sort_unstable_by_key(|&(number, counts)| (std::cmp::Reverse(counts.walks), number));
        for (_, counts) in &objects {
            total.walks += counts.walks;
            total.entries += counts.entries;
        }
        let named = |(number, counts): (u32, WalkCounts)| Some((infos.get(number as usize)?.clone(), counts));
        Self { total, objects: objects.into_iter().filter_map(named).collect() }
    }
}

/// What a trial came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrialOutcome {
    /// Its page walks.
    pub walks: WalksByObject,
    /// Memory that it costs at its most, in bytes.
    pub extra_bytes: u64,
}

/// A program that runs once more.
pub struct Resimulation {
    candidates: Vec<Candidate>,
    trials: Trials,
    objects: ObjectSpaces,
    /// Groups of objects, by number: 0 for those that no trial places.
    groups: FxHashMap<u32, Groups>,
    /// Anonymous memory: start and end, by process.
    anonymous: FxHashMap<u32, BTreeMap<u64, u64>>,
}

impl Resimulation {
    /// A trial for each set of candidates (indices), the empty one included if it is wanted; `None`: everything that
    /// can lie in huge pages.
    ///
    /// # Errors
    /// When the machine cannot be modelled.
    pub fn new(
        machine: &MachineDescription,
        mut candidates: Vec<Candidate>,
        trials: &[Option<Vec<usize>>],
    ) -> Result<Self, ModelError> {
        candidates.truncate(MAX_CANDIDATES);
        let set = |trial: &Option<Vec<usize>>| match trial {
            None => Groups::MAX,
            Some(set) => set.iter().filter(|&&at| at < MAX_CANDIDATES).fold(0, |groups, at| groups | 1 << at),
        };
        let groups: Vec<Groups> = trials.iter().map(set).collect();
        Ok(Self {
            candidates,
            trials: Trials::new(machine, &groups)?,
            objects: ObjectSpaces::default(),
            groups: FxHashMap::default(),
            anonymous: FxHashMap::default(),
        })
    }

    /// A process accesses memory on a core.
    pub fn access(&mut self, pid: u32, core: CoreId, vaddr: u64, attr: AccessAttr) {
        let last = vaddr.saturating_add(u64::from(attr.size_bytes().max(1)) - 1);
        let objects = &self.objects;
        self.trials.access(core, pid, vaddr, || objects.at(pid, vaddr).0);
        if last >> 12 != vaddr >> 12 {
            self.trials.access(core, pid, last, || objects.at(pid, last).0);
        }
    }

    /// Objects begin, end, get names.
    pub fn tell_objects(&mut self, events: &[ObjectEvent]) {
        for event in events {
            self.objects.apply(event);
            match event {
                ObjectEvent::Block { pid, layer: 1, start, bytes, id } => {
                    let groups = self.groups_of(*pid, *id);
                    if groups != 0 && *bytes >= HUGE_PAGE_BYTES {
                        let range = *start..start.saturating_add(*bytes);
                        self.trials.memory().begin(Layer::Block, *pid, range, groups, true);
                    }
                }
                ObjectEvent::End { pid, layer: 1, start } => self.trials.end_block(*pid, *start),
                ObjectEvent::Region { pid, start, bytes, id } => self.region(*pid, *start, *bytes, *id),
                ObjectEvent::Fork { parent, child } => self.trials.memory().fork(*parent, *child),
                ObjectEvent::Exit { pid } => self.trials.memory().forget(*pid),
                _ => {}
            }
        }
    }

    /// A variable or a mapping: the aligned huge pages in it.
    fn region(&mut self, pid: u32, start: u64, bytes: u64, id: u32) {
        let range = start..start.saturating_add(bytes);
        let first = range.start.next_multiple_of(HUGE_PAGE_BYTES);
        let inside = first..range.end / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        if inside.is_empty() || !self.is_anonymous_or_variable(pid, &range, id) {
            return;
        }
        let groups = self.groups_of(pid, id);
        self.trials.memory().begin(Layer::Region, pid, inside, groups, false);
    }

    fn is_anonymous_or_variable(&self, pid: u32, range: &Range<u64>, id: u32) -> bool {
        let number = self.objects.number(pid, id);
        let kind =
            number.and_then(|number| self.objects.objects().get(number as usize)).map(|object| object.kind);
        match kind {
            Some(ObjectKind::Global) => true,
            Some(ObjectKind::Mmap) => {
                let mapped = self.anonymous.get(&pid).and_then(|maps| maps.range(..=range.start).next_back());
                mapped.is_some_and(|(_, &end)| range.end <= end)
            }
            _ => false,
        }
    }

    /// The groups of an object: of its candidate, or the rest.
    fn groups_of(&mut self, pid: u32, id: u32) -> Groups {
        let Some(number) = self.objects.number(pid, id) else { return THE_REST };
        let Some(object) = self.objects.objects().get(number as usize) else { return THE_REST };
        let candidates = &self.candidates;
        *self.groups.entry(number).or_insert_with(|| {
            let found = candidates.iter().position(|candidate| candidate.is(object));
            found.map_or(0, |at| 1 << at) | THE_REST
        })
    }

    /// The heap's groups: it is meant by all candidates of small blocks.
    fn heap_groups(&self) -> Groups {
        let heaps =
            self.candidates.iter().enumerate().filter(|(_, candidate)| **candidate == Candidate::Heap);
        heaps.fold(THE_REST, |groups, (at, _)| groups | 1 << at)
    }

    /// Memory was mapped.
    pub fn map(&mut self, pid: u32, range: Range<u64>, mapping: Mapping) {
        self.unmap(pid, range.clone());
        if mapping.is_anonymous() {
            self.anonymous.entry(pid).or_default().insert(range.start, range.end);
        }
    }

    /// The heap grew (`brk`).
    pub fn grow_heap(&mut self, pid: u32, old: u64, new: u64) {
        let groups = self.heap_groups();
        self.trials.memory().grow(pid, old, new, groups);
    }

    /// Memory was unmapped.
    pub fn unmap(&mut self, pid: u32, range: Range<u64>) {
        if let Some(maps) = self.anonymous.get_mut(&pid) {
            maps.retain(|&start, end| start >= range.end || *end <= range.start);
        }
        self.trials.memory().clear(Layer::Region, pid, &range);
    }

    /// A process is about to fork: its memory is copied now, for a child named later.
    pub fn prepare_fork(&mut self, parent: u32, token: u64) {
        self.tell_objects(&[ObjectEvent::Fork { parent, child: unborn_pid(token) }]);
    }

    /// The forked process begins; None: it failed, or is not watched.
    pub fn fork(&mut self, token: u64, child: Option<u32>) {
        self.tell_objects(&fork_events(token, child));
    }

    /// The process ended, or executes another program.
    pub fn end_process(&mut self, pid: u32) {
        self.anonymous.remove(&pid);
        self.tell_objects(&[ObjectEvent::Exit { pid }]);
    }

    /// What the trials came to, in their order.
    pub fn finish(self) -> Vec<TrialOutcome> {
        let infos = self.objects.objects();
        let outcome = |(counts, extra_bytes): (FxHashMap<u32, WalkCounts>, u64)| TrialOutcome {
            walks: WalksByObject::new(counts, infos),
            extra_bytes,
        };
        self.trials.finish().map(outcome).collect()
    }
}

impl Candidate {
    /// Whether an object is this one.
    pub fn is(&self, object: &ObjectInfo) -> bool {
        match self {
            Self::Site(frames) => {
                let is_placed = matches!(object.kind, ObjectKind::Heap | ObjectKind::Mmap);
                is_placed && !frames.is_empty() && begins_with(&object.site, frames)
            }
            Self::Heap => false,
            Self::Variable { name, bytes } => {
                object.kind == ObjectKind::Global && object.name == *name && object.bytes == *bytes
            }
        }
    }
}

/// Whether a call stack, as the virtual card writes it (`/bin/a+0x12 /lib/b+0x34`), begins with these frames.
fn begins_with(site: &str, frames: &[(String, u64)]) -> bool {
    let expected: Vec<String> = frames.iter().map(|(path, offset)| format!("{path}+{offset:#x}")).collect();
    let expected = expected.join(" ");
    site.strip_prefix(&expected).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_types::AccessKind;

    const MIB: u64 = 1 << 20;
    const PID: u32 = 7;

    fn heap(resimulation: &mut Resimulation, id: u32, name: &str, site: &str, start: u64, bytes: u64) {
        resimulation.tell_objects(&[
            ObjectEvent::Object { pid: PID, id, kind: ObjectKind::Heap, name: name.into() },
            ObjectEvent::Site { pid: PID, id, text: site.into() },
            ObjectEvent::Block { pid: PID, layer: 1, start, bytes, id },
        ]);
    }

    fn load(resimulation: &mut Resimulation, vaddr: u64) {
        resimulation.access(PID, CoreId(0), vaddr, AccessAttr::new(AccessKind::Load, 8));
    }

    /// Two arrays of 1,024 pages and small blocks on a heap of 1,024 pages, walked in turns on the e5504, whose TLBs hold
    /// 512 small pages and 32 huge ones: each page misses in each round unless it is in a huge page, of which each misses
    /// once.
    #[test]
    fn each_trial_has_its_own_walks_and_main_cause() {
        let machine = MachineDescription::named("e5504").expect("shipped");
        let candidates = vec![
            Candidate::Site(vec![("/bin/p".into(), 0x10), ("/bin/p".into(), 0x20)]),
            Candidate::Heap,
            Candidate::Variable { name: "table".into(), bytes: 5 * MIB },
        ];
        let trials = [Some(vec![]), Some(vec![0]), Some(vec![1]), Some(vec![0, 1]), Some(vec![2]), None];
        let mut run = Resimulation::new(&machine, candidates, &trials).expect("valid");
        let (first, second, brk) = (0x7000_0000_0010, 0x7100_0000_0010, 0x5555_0000_0000);
        heap(&mut run, 1, "first", "/bin/p+0x10 /bin/p+0x20 /lib/c+0x1", first, 4 * MIB);
        heap(&mut run, 2, "second", "/bin/p+0x10 /bin/p+0x200", second, 4 * MIB);
        run.grow_heap(PID, brk, brk + MIB);
        run.grow_heap(PID, brk + MIB, brk + 4 * MIB);
        heap(&mut run, 3, "small", "/bin/p+0x30", brk, 4096);
        heap(&mut run, 3, "small", "/bin/p+0x30", brk + 8192, 4096);
        // 5 MiB from 1 MiB behind a boundary on: two whole huge pages.
        let table = 0x6000_0010_0000;
        run.tell_objects(&[
            ObjectEvent::Object { pid: PID, id: 4, kind: ObjectKind::Global, name: "table".into() },
            ObjectEvent::Region { pid: PID, start: table, bytes: 5 * MIB, id: 4 },
        ]);
        let rounds = 2;
        for _ in 0..rounds {
            for start in [first, second, brk] {
                (0..1024).for_each(|page| load(&mut run, start + page * 4096));
            }
            (0..1280).for_each(|page| load(&mut run, table + page * 4096));
        }
        let found = run.finish();
        // Alone, the variable's 256 small pages fit the TLB.
        let small = rounds * 1024;
        let table = rounds * 1280;
        // One MiB of the variable lies before its first huge page: 256 small pages.
        let walks: Vec<u64> = found.iter().map(|trial| trial.walks.total.walks).collect();
        let all = 3 * small + table;
        assert_eq!(
            walks,
            [
                all,
                all - small + 2,
                all - small + 2,
                all - 2 * small + 4,
                all - table + rounds * 256 + 2,
                256 + 8
            ]
        );
        assert_eq!(found[0].walks.objects[0].0.name, "table");
        assert_eq!(found[4].walks.objects[0].1.walks, small);
        assert_eq!(
            (found[5].walks.objects[0].0.name.as_str(), found[5].walks.objects[0].1.walks),
            ("table", 256 + 2)
        );
        assert!(found.iter().all(|trial| trial.extra_bytes == 0), "all of it is used");
    }

    #[test]
    fn a_forked_process_has_its_own_memory() {
        let machine = MachineDescription::named("e5504").expect("shipped");
        let site = Candidate::Site(vec![("/bin/p".into(), 0x10)]);
        let mut run = Resimulation::new(&machine, vec![site], &[Some(vec![0])]).expect("valid");
        let start = 0x7000_0000_0010;
        heap(&mut run, 1, "block", "/bin/p+0x10", start, 4 * MIB);
        load(&mut run, start);
        run.prepare_fork(PID, 5);
        run.tell_objects(&[ObjectEvent::End { pid: PID, layer: 1, start }]);
        run.fork(5, Some(8));
        let attr = AccessAttr::new(AccessKind::Load, 8);
        run.access(8, CoreId(0), start + MIB, attr);
        run.access(8, CoreId(0), start + 3 * MIB, attr);
        // The parent's block is gone: a small page.
        load(&mut run, start + MIB);
        let found = run.finish().remove(0);
        let of_block = found.walks.objects.iter().find(|(object, _)| object.name == "block").expect("walked");
        assert_eq!((found.walks.total.walks, of_block.1.walks), (4, 3));
        assert_eq!(found.extra_bytes, 2 * (2 * MIB - 4096), "the child's, whose parent has none");
    }
}
