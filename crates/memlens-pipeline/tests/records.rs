//! Records written by hand, as a collector would: whose are the accesses?

use memlens_events::{
    BlockDefinition, BlockFlags, Definition, EventKind, ModuleDefinition, RecordHeader, RecordSink,
    ThreadDefinition, Word, WordRole,
};
use memlens_pipeline::{Process, ProcessOptions};
use memlens_profile::{MOST_SLICES, Object, ObjectBacking, Profile, SliceUse, Timeline};
use memlens_sim::MachineDescription;
use memlens_types::{AccessAttr, AccessKind, Fetched, ObjectKind};

const STACK: u64 = 0x7ffd_0000_8000;
/// Positions of these functions in the table of allocation functions: the C names come first.
const MALLOC: u16 = 0;
const FREE: u16 = 4;

/// Definitions of the blocks that the tests run, by id.
const STORE: u32 = 1;
const CALL: u32 = 2;
const MALLOC_ENTRY: u32 = 3;
const RETURN_VALUE: u32 = 4;
const FREE_ENTRY: u32 = 5;
const RETURN: u32 = 6;
const STRING: u32 = 7;
const MASKED: u32 = 8;
const CALL_ELSEWHERE: u32 = 9;

struct Target {
    process: Process,
}

fn word(role: WordRole, kind: AccessKind, size: u32) -> Word {
    Word { role, pc_offset: 0, instruction: 0, attr: AccessAttr::new(kind, size) }
}

impl Target {
    fn new() -> Self {
        let machine = MachineDescription::named("e5504").expect("shipped");
        Self::with(ProcessOptions::new(machine))
    }

    fn with(options: ProcessOptions) -> Self {
        let mut target = Self { process: Process::new(options).expect("valid machine") };
        let irregular = |more: BlockFlags| BlockFlags(BlockFlags::IRREGULAR.0 | more.0);
        let store = word(WordRole::Address, AccessKind::Store, 8);
        let load = word(WordRole::Address, AccessKind::Load, 8);
        let arguments = |last: Word| {
            let argument = |index| Word {
                role: WordRole::Argument,
                pc_offset: 0,
                instruction: 0,
                attr: AccessAttr::new(AccessKind::Load, index),
            };
            (0..4).map(argument).chain([last]).collect::<Vec<_>>()
        };
        let value = word(WordRole::ReturnValue, AccessKind::Load, 0);
        let string = vec![
            word(WordRole::RepStart, AccessKind::Load, 4),
            word(WordRole::RepStart, AccessKind::Store, 4),
            word(WordRole::RepEnd, AccessKind::Store, 4),
        ];
        let masked =
            vec![word(WordRole::Address, AccessKind::Store, 64), word(WordRole::Mask, AccessKind::Store, 4)];
        for (id, flags, function, slot_word, words) in [
            (STORE, BlockFlags::default(), 0, 0, vec![store]),
            (CALL, BlockFlags::CALL, 0, 0, vec![store]),
            (MALLOC_ENTRY, irregular(BlockFlags::ALLOC_ENTRY), MALLOC, 0, arguments(load)),
            (
                RETURN_VALUE,
                BlockFlags(BlockFlags::RETURN.0 | BlockFlags::RETURNS_VALUE.0),
                0,
                0,
                vec![load, value],
            ),
            (FREE_ENTRY, irregular(BlockFlags::ALLOC_ENTRY), FREE, 0, arguments(load)),
            (RETURN, BlockFlags::RETURN, 0, 0, vec![load]),
            (STRING, irregular(BlockFlags::default()), 0, 0, string),
            (MASKED, irregular(BlockFlags::default()), 0, 0, masked),
            (CALL_ELSEWHERE, BlockFlags::CALL, 0, 0, vec![store]),
        ] {
            target.process.define(Definition::Block(BlockDefinition {
                id,
                pc: 0x40_0000 + u64::from(id) * 0x100,
                code_bytes: 16,
                instructions: 2,
                flags,
                slot_word,
                alloc_function: function,
                module: 0,
                words,
                lengths: vec![8, 8],
            }));
        }
        target.start_thread(0, 100, STACK);
        target
    }

    fn start_thread(&mut self, slot: usize, tid: u32, stack_pointer: u64) {
        self.process.define(Definition::Thread(ThreadDefinition { slot: slot as u32, tid }));
        let words = [EventKind::ThreadStart as u64, u64::from(tid), stack_pointer, 0];
        self.run(slot, 0, &words);
    }

    /// A module of 64 KiB, which says that it was linked for address 0.
    fn define_module(&mut self, id: u32, start: u64, path: &str) {
        let (end, path) = (start + (64 << 10), path.to_owned());
        self.process.define(Definition::Module(ModuleDefinition { id, start, end, load_bias: start, path }));
    }

    fn load_module(&mut self, id: u32, start: u64, path: &str) {
        self.define_module(id, start, path);
        self.run(0, 0, &[EventKind::ModuleLoad as u64, u64::from(id)]);
    }

    fn unload_module(&mut self, id: u32) {
        self.run(0, 0, &[EventKind::ModuleUnload as u64, u64::from(id)]);
    }

    /// A block of a module that stores once.
    fn define_store(&mut self, id: u32, module: u32, pc: u64) {
        self.process.define(Definition::Block(BlockDefinition {
            id,
            pc,
            code_bytes: 16,
            instructions: 1,
            flags: BlockFlags::default(),
            slot_word: 0,
            alloc_function: 0,
            module,
            words: vec![word(WordRole::Address, AccessKind::Store, 8)],
            lengths: vec![16],
        }));
    }

    fn run(&mut self, slot: usize, block: u32, words: &[u64]) {
        let mut record = vec![RecordHeader::new(block, words.len(), 0).0];
        record.extend_from_slice(words);
        self.process.records(slot, &record);
    }

    fn store(&mut self, addr: u64) {
        self.run(0, STORE, &[addr]);
    }

    /// `malloc(size)` that returns `address`, called by block `caller`.
    fn malloc(&mut self, slot: usize, caller: u32, size: u64, address: u64) {
        let return_slot = STACK - 0x20 - slot as u64 * 0x1000;
        self.run(slot, caller, &[return_slot]);
        self.run(slot, MALLOC_ENTRY, &[size, 0, 0, 0, return_slot - 8]);
        self.run(slot, RETURN_VALUE, &[return_slot, address]);
    }

    fn free(&mut self, slot: usize, address: u64) {
        let return_slot = STACK - 0x20 - slot as u64 * 0x1000;
        self.run(slot, CALL, &[return_slot]);
        self.run(slot, FREE_ENTRY, &[address, 0, 0, 0, return_slot - 8]);
        self.run(slot, RETURN, &[return_slot]);
    }

    fn profile(mut self) -> Profile {
        let profile = self.process.profile();
        assert_eq!(profile.validate(), Ok(()));
        profile
    }
}

fn heap(profile: &Profile) -> Vec<&Object> {
    profile.objects.iter().filter(|object| object.kind == ObjectKind::Heap).collect()
}

#[test]
fn accesses_go_to_the_block_that_is_live() {
    let mut target = Target::new();
    // Before it is allocated, after, after it is freed, and after another site got the address.
    target.store(0x10_0010);
    target.malloc(0, CALL, 64, 0x10_0000);
    target.store(0x10_0010);
    target.store(0x10_003f);
    target.store(0x10_0040); // one past the end
    target.free(0, 0x10_0000);
    target.store(0x10_0010);
    target.malloc(0, CALL_ELSEWHERE, 64, 0x10_0000);
    for _ in 0..3 {
        target.store(0x10_0010);
    }
    let profile = target.profile();
    let objects = heap(&profile);
    assert_eq!(objects.len(), 2, "two sites: {objects:?}");
    assert_eq!((objects[0].blocks, objects[0].bytes, objects[0].counts.stores), (1, Some(64), 2));
    assert_eq!((objects[1].blocks, objects[1].bytes, objects[1].counts.stores), (1, Some(64), 3));
    let unknown: u64 = profile.attribution.unknown_reasons.values().sum();
    assert_eq!(unknown, 3, "before, beyond and after: {:?}", profile.attribution);
}

/// Blocks are 0x100 bytes apart and have two instructions of 8 bytes, each block in one line of 64.
#[test]
fn instructions_are_fetched_where_that_is_asked_for() {
    for name in ["e5504", "cachegrind"] {
        let machine = MachineDescription::named(name).expect("shipped");
        let mut target =
            Target::with(ProcessOptions { fetches: true, ..ProcessOptions::new(machine.clone()) });
        // Over the loop of plain records and the way of single ones, which the last words of a piece take.
        for _ in 0..100 {
            target.store(0x10_0010);
            target.run(0, STRING, &[0x10_0000, 0x20_0000, 0x20_0000 + 4 * 50]);
        }
        let fetched = target.profile().totals().fetched;
        // 2 × 100 blocks of two instructions; by valgrind's rules 50 more for each string instruction.
        let elements = if name == "cachegrind" { 100 * 50 } else { 0 };
        assert_eq!(
            (fetched.fetches, fetched.l1i_misses, fetched.llci_misses),
            (400 + elements, 2, 2),
            "{name}"
        );

        let mut target = Target::with(ProcessOptions::new(machine));
        target.store(0x10_0010);
        assert_eq!(target.profile().totals().fetched, Fetched::default());
    }
}

/// Nine lines that share a set of the four ways of the instruction cache (e5504: 128 sets) miss each time they are run
/// through; the next levels have eight and sixteen ways, and the sets there differ.
#[test]
fn code_that_does_not_fit_misses_and_code_run_again_at_once_does_not() {
    let machine = MachineDescription::named("e5504").expect("shipped");
    let mut target = Target::with(ProcessOptions { fetches: true, ..ProcessOptions::new(machine) });
    const FIRST: u32 = 100;
    for id in FIRST..FIRST + 9 {
        target.process.define(Definition::Block(BlockDefinition {
            id,
            pc: 0x50_0000 + u64::from(id - FIRST) * 128 * 64,
            code_bytes: 10,
            instructions: 3,
            flags: BlockFlags::default(),
            slot_word: 0,
            alloc_function: 0,
            module: 0,
            words: Vec::new(),
            lengths: vec![3, 3, 4],
        }));
    }
    for _ in 0..5 {
        for id in FIRST..FIRST + 9 {
            target.run(0, id, &[]);
            target.run(0, id, &[]);
        }
    }
    let profile = target.profile();
    let fetched = profile.totals().fetched;
    assert_eq!((fetched.fetches, fetched.l1i_misses, fetched.llci_misses), (5 * 9 * 2 * 3, 5 * 9, 9));
    // All of it is code's.
    let code = profile.code.iter().filter(|code| code.kind == AccessKind::Fetch);
    assert_eq!(
        code.map(|code| (code.counts.get().fetched.fetches, code.size_bytes)).collect::<Vec<_>>(),
        [(30, 3); 9]
    );
}

#[test]
fn large_blocks_can_be_looked_at_as_long_as_they_live() {
    let mut target = Target::new();
    target.malloc(0, CALL, 1 << 20, 0x10_0000);
    target.malloc(0, CALL_ELSEWHERE, 100, 0x30_0000);
    target.store(0x10_0000);
    let pieces = target.process.live_memory(4096);
    let [(range, object)] = &pieces[..] else { panic!("{pieces:?}") };
    assert_eq!(*range, 0x10_0000..0x20_0000);
    let seen = |small_bytes| ObjectBacking { small_bytes, swapped_bytes: 7, ..ObjectBacking::default() };
    // The state with most memory stays.
    [8192, 65536, 4096]
        .map(seen)
        .into_iter()
        .for_each(|backing| target.process.note_backing(*object, backing));
    target.free(0, 0x10_0000);
    assert_eq!(target.process.live_memory(4096), []);
    let profile = target.profile();
    let backing: Vec<_> = heap(&profile).iter().map(|object| object.backing.clone()).collect();
    assert_eq!(backing, [Some(seen(65536)), None]);
}

#[test]
fn blocks_of_one_site_are_one_object() {
    let mut target = Target::new();
    for block in 0..10_u64 {
        target.malloc(0, CALL, 40, 0x20_0000 + block * 48);
    }
    for block in 0..10_u64 {
        target.store(0x20_0000 + block * 48 + 32);
    }
    let profile = target.profile();
    let [object] = heap(&profile)[..] else { panic!("{:?}", profile.objects) };
    assert_eq!((object.blocks, object.bytes, object.counts.stores), (10, Some(400), 10));
    assert_eq!(object.counts.store_bytes, 80);
}

#[test]
fn a_block_allocated_by_one_thread_and_used_by_another_is_the_same_object() {
    let mut target = Target::new();
    target.start_thread(1, 101, STACK - 0x1000);
    target.malloc(1, CALL, 64, 0x30_0000);
    target.store(0x30_0000);
    target.free(0, 0x30_0000);
    target.store(0x30_0000);
    let profile = target.profile();
    let [object] = heap(&profile)[..] else { panic!("{:?}", profile.objects) };
    assert_eq!(object.counts.stores, 1);
    assert_eq!(profile.threads.len(), 2);
}

#[test]
fn code_stays_that_of_the_module_that_was_mapped_when_it_ran() {
    const PLACE: u64 = 0x50_0000;
    let mut target = Target::new();
    // Two libraries one after the other at the same place, then code without a module. What comes is defined before
    // the events of what goes are read.
    target.load_module(1, PLACE, "/nowhere/first.so");
    target.define_store(20, 1, PLACE + 0x100);
    target.define_module(2, PLACE, "/nowhere/second.so");
    target.define_store(21, 2, PLACE + 0x100);
    target.define_store(22, 0, PLACE + 0x100);
    (0..3).for_each(|_| target.run(0, 20, &[0x60_0000]));
    target.unload_module(1);
    target.run(0, 0, &[EventKind::ModuleLoad as u64, 2]);
    (0..5).for_each(|_| target.run(0, 21, &[0x60_0000]));
    target.unload_module(2);
    (0..7).for_each(|_| target.run(0, 22, &[0x60_0000]));
    let profile = target.profile();
    let path = |module: Option<memlens_profile::ModuleIx>| {
        module.map_or("generated", |module| profile.modules[module.index()].path.as_str())
    };
    let mut rows: Vec<_> =
        profile.code.iter().map(|row| (row.counts.get().stores, path(row.module), row.offset)).collect();
    rows.sort_unstable();
    assert_eq!(
        rows,
        [(3, "/nowhere/first.so", 0x100), (5, "/nowhere/second.so", 0x100), (7, "generated", PLACE + 0x100)]
    );
}

#[test]
fn memory_of_a_module_that_is_mapped_again_is_its_from_the_mapping_on() {
    const PLACE: u64 = 0x50_0000;
    const BYTES: u64 = 64 << 10;
    let mut target = Target::new();
    let store = |target: &mut Target, times| (0..times).for_each(|_| target.store(PLACE + 0x8000));
    target.load_module(1, PLACE, "/nowhere/first.so");
    store(&mut target, 3);
    // What comes is defined before the end of what was there is read.
    target.define_module(2, PLACE, "/nowhere/second.so");
    target.run(0, 0, &[EventKind::MapRemove as u64, PLACE, BYTES]);
    target.unload_module(1);
    const PRIVATE: u64 = 2;
    target.run(0, 0, &[EventKind::MapAdd as u64, PLACE, BYTES, 5, PRIVATE, 3, 0]);
    // The dynamic linker relocates it before any of its code runs.
    store(&mut target, 5);
    target.run(0, 0, &[EventKind::ModuleLoad as u64, 2]);
    store(&mut target, 7);
    let profile = target.profile();
    let unknown = profile.objects.iter().filter(|object| object.kind == ObjectKind::Unknown);
    assert_eq!(unknown.map(|object| object.counts.stores).sum::<u64>(), 0);
    let of_second = profile.objects.iter().filter(|object| {
        object.module.is_some_and(|module| profile.modules[module.index()].path == "/nowhere/second.so")
    });
    assert!(of_second.map(|object| object.counts.stores).sum::<u64>() >= 12);
}

#[test]
fn memory_of_a_module_is_its_until_the_stream_says_that_it_is_gone() {
    const PLACE: u64 = 0x50_0000;
    const BYTES: u64 = 64 << 10;
    let names = ["/nowhere/first.so", "/nowhere/second.so"];
    let mut target = Target::new();
    // Three times the one and then the other at the same place; all of it is defined before any of it is read.
    (0..6).for_each(|round| target.define_module(1 + round, PLACE, names[round as usize % 2]));
    for round in 0..6 {
        target.run(0, 0, &[EventKind::MapAdd as u64, PLACE, BYTES, 5, 2, 3, 0]);
        target.run(0, 0, &[EventKind::ModuleLoad as u64, u64::from(1 + round)]);
        (0..[3, 5][round as usize % 2]).for_each(|_| target.store(PLACE + 0x8000));
        target.unload_module(1 + round);
        target.run(0, 0, &[EventKind::MapRemove as u64, PLACE, BYTES]);
    }
    let profile = target.profile();
    let stores = names.map(|name| {
        let of_it = profile.objects.iter().filter(|object| {
            object.module.is_some_and(|module| profile.modules[module.index()].path == name)
        });
        of_it.map(|object| object.counts.stores).sum::<u64>()
    });
    assert_eq!(stores, [9, 15]);
}

#[test]
fn an_access_to_another_threads_stack_is_its_frames_as_long_as_they_last() {
    let mut target = Target::new();
    let (outer, inner) = (STACK - 0x100, STACK - 0x200);
    target.run(0, CALL, &[outer]);
    target.run(0, CALL, &[inner]);
    target.start_thread(1, 101, 0x7f00_0000_8000);
    let names = |target: &mut Target| {
        let profile = target.process.profile();
        let of_other = profile.cells.iter().filter(|cell| cell.thread.index() == 1);
        let mut names: Vec<_> = of_other
            .map(|cell| (cell.counts.get().stores, profile.objects[cell.object.index()].name.clone()))
            .collect();
        names.sort_unstable();
        names
    };
    // The frame that the inner call was made from.
    (0..3).for_each(|_| target.run(1, STORE, &[inner + 0x80]));
    let frame = "frame of generated code".to_owned();
    assert_eq!(names(&mut target), [(3, frame.clone())]);
    // The inner function has made no call, and after its return the same place is below a frame without variables.
    target.run(1, STORE, &[inner - 0x80]);
    target.run(0, RETURN, &[inner]);
    target.run(1, STORE, &[inner + 0x80]);
    let outside = "stack of thread 100 outside known frames".to_owned();
    assert_eq!(names(&mut target), [(2, outside), (3, frame)]);
}

#[test]
fn every_element_of_a_string_instruction_is_an_access() {
    let mut target = Target::new();
    target.malloc(0, CALL, 4096, 0x40_0000);
    target.malloc(0, CALL_ELSEWHERE, 4096, 0x50_0000);
    // movsd, 100 elements forwards: the destination register ends 400 bytes further.
    target.run(0, STRING, &[0x40_0010, 0x50_0020, 0x50_0020 + 400]);
    // Backwards, 5 elements, from the end down.
    target.run(0, STRING, &[0x40_0100, 0x50_0100, 0x50_0100 - 20]);
    // None at all (count register zero).
    target.run(0, STRING, &[0x40_0000, 0x50_0000, 0x50_0000]);
    let profile = target.profile();
    let objects = heap(&profile);
    assert_eq!((objects[0].counts.loads, objects[0].counts.load_bytes), (105, 420));
    assert_eq!((objects[1].counts.stores, objects[1].counts.store_bytes), (105, 420));
    // Bytes 0x10 to 0x1a0: lines 0 to 6 of 64 bytes, and the five backward elements lie in lines
    // 3 and 4, which are cached by then.
    assert_eq!(objects[0].counts.l1_load_misses, 7);
}

#[test]
fn masked_lanes_do_not_count() {
    let mut target = Target::new();
    target.malloc(0, CALL, 4096, 0x40_0000);
    target.run(0, MASKED, &[0x40_0000, 0b1011]); // three lanes of 4 bytes
    target.run(0, MASKED, &[0x40_0000, 0]); // none: no access
    // 64 bytes are 16 lanes; bits above them are none: no access, then one lane.
    target.run(0, MASKED, &[0x40_0000, 0xffff_ffff_ffff_0000]);
    target.run(0, MASKED, &[0x40_0000, 0x8000_0000_0000_0004]);
    let profile = target.profile();
    let [object] = heap(&profile)[..] else { panic!("{:?}", profile.objects) };
    assert_eq!((object.counts.stores, object.counts.store_bytes), (2, 16));
}

#[test]
fn a_snapshot_in_the_middle_changes_nothing() {
    let run = |snapshots: bool| {
        let mut target = Target::new();
        target.malloc(0, CALL, 1 << 20, 0x40_0000);
        for index in 0..200_000_u64 {
            target.store(0x40_0000 + index * 8 % (1 << 20));
            if snapshots && index % 50_000 == 0 {
                target.process.profile();
            }
        }
        target.profile()
    };
    let (plain, with_snapshots) = (run(false), run(true));
    assert_eq!(plain.objects, with_snapshots.objects);
    assert_eq!(plain.cells, with_snapshots.cells);
}

/// Two blocks, one after the other: each store goes to a new line, and has two instructions.
#[test]
fn a_timeline_says_when_which_block_cost_what() {
    const STORES: u64 = 9_000_000;
    let mut target = Target::new();
    let walk = |target: &mut Target, start: u64| {
        for first in (0..STORES).step_by(1000) {
            let header = RecordHeader::new(STORE, 1, 0).0;
            let words: Vec<u64> =
                (first..first + 1000).flat_map(|at| [header, start + 64 * (at % 1_000_000)]).collect();
            target.process.records(0, &words);
        }
    };
    let (one, other) = (0x1000_0000, 0x2000_0000);
    target.malloc(0, CALL, 64_000_000, one);
    walk(&mut target, one);
    target.free(0, one);
    target.malloc(0, CALL_ELSEWHERE, 32_000_000, other);
    target.malloc(0, CALL_ELSEWHERE, 32_000_000, other + 32_000_000);
    walk(&mut target, other);
    let profile = target.profile();
    let timeline = Timeline::of(&profile).expect("slices");
    let ends = timeline.slices.first().zip(timeline.slices.last()).expect("slices");
    assert_eq!((ends.0.begin, Some(ends.1.end)), (0, profile.run.instructions));
    let count = timeline.slices.len();
    assert!((MOST_SLICES / 2..=MOST_SLICES).contains(&count), "{count}");

    // Together they have what the whole run has.
    let sum = |uses: &[SliceUse], of: fn(&SliceUse) -> u64| uses.iter().map(of).sum::<u64>();
    let totals = profile.totals();
    assert_eq!(sum(&timeline.whole, |it| it.cost), profile.machine.wait_beyond_first_level(&totals));
    assert_eq!(sum(&timeline.whole, |it| it.dram_reads.unwrap_or(0)), totals.dram_reads);
    let blocks: Vec<_> = (0..).zip(&profile.objects).filter(|(_, it)| it.kind == ObjectKind::Heap).collect();
    let [one, other] = [0, 1].map(|at| timeline.of_objects(&[memlens_profile::ObjectIx(blocks[at].0)]));
    for (uses, object) in [(&one, blocks[0].1), (&other, blocks[1].1)] {
        assert_eq!(sum(uses, |it| it.cost), profile.machine.wait_beyond_first_level(&object.counts));
    }
    // Each in its half, but for the slice in which the other one begins.
    let half = count / 2;
    assert!(sum(&one[half + 2..], |it| it.cost) == 0 && sum(&other[..half - 2], |it| it.cost) == 0);
    assert!(one[..half - 2].iter().all(|it| it.cost > 0 && it.live_bytes == Some(64_000_000)));
    assert!(other[half + 2..].iter().all(|it| it.cost > 0 && it.live_bytes == Some(64_000_000)));
    assert!(one[half + 2..].iter().all(|it| it.live_bytes.is_none()));
}

#[test]
fn damaged_records_are_counted_and_stop_nothing() {
    let mut target = Target::new();
    // A header that promises more words than there are.
    target.process.records(0, &[RecordHeader::new(STORE, 5, 0).0, 1, 2]);
    // A block nobody defined, an event of unknown kind.
    target.run(0, 4711, &[1, 2, 3]);
    target.run(0, 0, &[999]);
    target.store(0x1000);
    let profile = target.profile();
    assert_eq!(profile.attribution.lost_events, 3);
    assert_eq!(profile.totals().stores, 1);
}
