//! The merge of the threads' rings, with simulated writers: random schedules of what threads may do with
//! a segment, and the order in which the reader delivers it.
//!
//! A writer here does what the client does (`channel.rs` and the crate docs of `memlens-events`): it
//! stamps a record with the epoch as it reads it then, and publishes later; at a system call, the end of
//! a chunk or of its life everything it has. What the real client leaves to timing is drawn: who goes
//! on, how long between stamping and publishing, when the reader looks. One thread plays them all, so
//! that a failing schedule repeats.

use super::*;
use memlens_events::segment::{CHUNK_CLOSED, DEFINITION_BYTES, DEFINITION_OFFSET, chunk_offset, chunks};
use memlens_events::{DefinitionKind, ModuleAnswer, ThreadDefinition};
use memmap2::{MmapOptions, MmapRaw};
use proptest::prelude::*;
use std::collections::HashMap;

/// Words of a chunk that the writers here fill: few, so that short runs go round the ring.
const FILLED_WORDS: usize = 96;

/// What the next writer does.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Writes this many records of at most this many words.
    Write { records: usize, words: usize },
    /// Counts the epoch up, as the end of an allocation does, and writes a record with it.
    Allocate,
    /// Publishes without a reason, as a client may at any time.
    Publish,
    /// Enters a system call, or leaves the one it is in.
    SystemCall,
    /// Ends; a new thread may take the slot.
    Exit,
    /// The reader looks, not the writer.
    Read,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        8 => (1usize..20, 0usize..12).prop_map(|(records, words)| Step::Write { records, words }),
        4 => Just(Step::Allocate),
        2 => Just(Step::Publish),
        3 => Just(Step::SystemCall),
        1 => Just(Step::Exit),
        6 => Just(Step::Read),
    ];
    prop::collection::vec((0usize..6, step), 1..600)
}

/// A thread and its slot.
struct Writer {
    slot: usize,
    state: SlotState,
    chunk: u64,
    words: usize,
}

/// The target's side of a segment.
struct Target {
    map: MmapRaw,
    writers: Vec<Writer>,
    epoch: u32,
    /// Serial number of the next record: its payload's first word, if it has one.
    serial: u64,
    /// All records, by slot, in the order of execution: header and payload.
    written: HashMap<usize, Vec<Vec<u64>>>,
}

impl Target {
    fn new(segment: &Segment, threads: usize) -> Self {
        let map = MmapOptions::new().map_raw(&segment.file).expect("the file maps twice");
        let writers =
            (0..threads).map(|slot| Writer { slot, state: SlotState::Free, chunk: 0, words: 0 }).collect();
        Self { map, writers, epoch: 1, serial: 0, written: HashMap::new() }
    }

    /// The thread takes its slot, if the reader has let go of it. Returns whether it runs.
    fn run(&mut self, segment: &Segment, index: usize) -> bool {
        let writer = &mut self.writers[index];
        let header = segment.slot(writer.slot);
        match writer.state {
            SlotState::Running => true,
            SlotState::InSystemCall => false,
            SlotState::Exited | SlotState::Free => {
                if header.tid.load(Ordering::Acquire) != 0 {
                    return false;
                }
                header.tid.store(1, Ordering::Release);
                segment.control().slots_used.fetch_max(writer.slot as u32 + 1, Ordering::SeqCst);
                writer.chunk = header.chunks_read.load(Ordering::Acquire);
                writer.words = 0;
                writer.state = SlotState::Running;
                header.state.store(SlotState::Running as u32, Ordering::Release);
                let thread = Definition::Thread(ThreadDefinition { slot: writer.slot as u32, tid: 1 });
                self.define(segment, &thread);
                true
            }
        }
    }

    fn define(&self, segment: &Segment, definition: &Definition) {
        assert_eq!(definition.kind(), DefinitionKind::Thread);
        let mut bytes = Vec::from((definition.kind() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        definition.encode(&mut bytes);
        let length = (bytes.len() - 8) as u32;
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let at = segment.control().definitions_written.load(Ordering::Relaxed);
        for (offset, byte) in bytes.iter().enumerate() {
            let place = DEFINITION_OFFSET + (at as usize + offset) % DEFINITION_BYTES;
            // SAFETY: inside the mapping; the reader does not look at it yet.
            unsafe { self.map.as_mut_ptr().add(place).write(*byte) };
        }
        segment.control().definitions_written.store(at + bytes.len() as u64, Ordering::Release);
    }

    /// Writes a record with the epoch as it is. False if there is no room before the reader reads.
    fn write(&mut self, segment: &Segment, index: usize, words: usize) -> bool {
        let writer = &mut self.writers[index];
        let header = segment.slot(writer.slot);
        if writer.words + 1 + words > FILLED_WORDS {
            let closed = writer.chunk << 32 | CHUNK_CLOSED | writer.words as u64;
            header.written(writer.slot, writer.chunk).store(closed, Ordering::Release);
            writer.chunk += 1;
            writer.words = 0;
        }
        if writer.chunk >= header.chunks_read.load(Ordering::Acquire) + chunks(writer.slot) as u64 {
            header.writer_waiting.store(1, Ordering::SeqCst);
            return false;
        }
        let mut record = vec![RecordHeader::new(7, words, self.epoch).0];
        record.extend((0..words as u64).map(|word| self.serial << 8 | word));
        self.serial += 1;
        let start = chunk_offset(writer.slot, writer.chunk) + 8 * writer.words;
        for (offset, word) in record.iter().enumerate() {
            // SAFETY: inside the chunk, which is the writer's: it is not published or was given back.
            unsafe { self.map.as_mut_ptr().add(start + 8 * offset).cast::<u64>().write(*word) };
        }
        writer.words += record.len();
        self.written.entry(writer.slot).or_default().push(record);
        true
    }

    fn publish(&mut self, segment: &Segment, index: usize, state: SlotState) {
        let writer = &mut self.writers[index];
        let header = segment.slot(writer.slot);
        // The chunk may still be the reader's: then nothing was written to it.
        if writer.chunk < header.chunks_read.load(Ordering::Acquire) + chunks(writer.slot) as u64 {
            let published = writer.chunk << 32 | writer.words as u64;
            header.written(writer.slot, writer.chunk).store(published, Ordering::Release);
        }
        writer.state = state;
        header.state.store(state as u32, Ordering::Release);
    }

    fn step(&mut self, segment: &Segment, index: usize, step: Step) {
        if matches!(step, Step::SystemCall) && self.writers[index].state == SlotState::InSystemCall {
            self.writers[index].state = SlotState::Running;
            let slot = self.writers[index].slot;
            segment.slot(slot).state.store(SlotState::Running as u32, Ordering::Release);
            return;
        }
        if !self.run(segment, index) {
            return;
        }
        match step {
            Step::Write { records, words } => {
                for _ in 0..records {
                    let words = words.min(self.serial as usize % 13);
                    if !self.write(segment, index, words) {
                        return;
                    }
                }
            }
            Step::Allocate => {
                self.epoch += 1;
                segment.control().epoch.0.store(self.epoch, Ordering::SeqCst);
                self.write(segment, index, 3);
            }
            Step::Publish => self.publish(segment, index, SlotState::Running),
            Step::SystemCall => self.publish(segment, index, SlotState::InSystemCall),
            Step::Exit => self.publish(segment, index, SlotState::Exited),
            Step::Read => {}
        }
    }
}

/// Keeps what it gets and checks the promises of [`RecordSink`] that can be checked at once.
#[derive(Default)]
struct Sink {
    /// Whether the reader may break the order.
    any_order: bool,
    wants_turns: bool,
    defined: Vec<usize>,
    epoch: u32,
    delivered: HashMap<usize, Vec<Vec<u64>>>,
}

impl RecordSink for Sink {
    fn wants_turns(&self) -> bool {
        self.wants_turns
    }

    fn define(&mut self, definition: Definition) -> ModuleAnswer {
        let Definition::Thread(thread) = definition else { panic!("{definition:?} was not written") };
        self.defined.push(thread.slot as usize);
        ModuleAnswer::new()
    }

    fn records(&mut self, slot: usize, words: &[u64]) {
        assert!(self.defined.contains(&slot), "promise 1: slot {slot} was not defined");
        assert!(!words.is_empty());
        let mut at = 0;
        while at < words.len() {
            let header = RecordHeader(words[at]);
            let record = words.get(at..at + 1 + header.words()).expect("promise 2: whole records");
            assert!(
                self.any_order || header.epoch() >= self.epoch,
                "promise 3: {} after {}",
                header.epoch(),
                self.epoch
            );
            self.epoch = header.epoch();
            self.delivered.entry(slot).or_default().push(record.to_vec());
            at += record.len();
        }
    }
}

/// Plays a schedule to its end, when all threads have exited and everything is read. How long the reader
/// waits for a silent thread is not left to the speed of this computer.
fn play(threads: usize, steps: &[(usize, Step)], patience: Duration) -> (Target, Sink, ReaderStatistics) {
    let segment = Segment::create().expect("memory for a segment");
    let mut target = Target::new(&segment, threads);
    segment.control().epoch.0.store(target.epoch, Ordering::SeqCst);
    let mut reader = Reader { patience, ..Reader::new() };
    let mut sink = Sink { any_order: patience.is_zero(), ..Sink::default() };
    for &(index, step) in steps {
        match step {
            Step::Read => {
                reader.deliver(&segment, &mut sink);
            }
            _ => target.step(&segment, index % threads, step),
        }
    }
    for index in 0..threads {
        if matches!(target.writers[index].state, SlotState::Running | SlotState::InSystemCall) {
            target.publish(&segment, index, SlotState::Exited);
        }
    }
    while reader.deliver(&segment, &mut sink) {}
    let statistics = reader.statistics(&segment);
    (target, sink, statistics)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Promises 1 to 3 of [`RecordSink`] hold, and every record of every thread comes once, in order.
    #[test]
    fn whatever_the_schedule_nothing_is_lost_and_order_holds(threads in 1usize..7, steps in steps()) {
        let (target, sink, statistics) = play(threads, &steps, Duration::MAX);
        prop_assert_eq!(statistics, ReaderStatistics::default());
        prop_assert_eq!(&sink.delivered, &target.written);
    }

    /// Without patience the order between threads breaks where a writer waits for room, and nothing else.
    #[test]
    fn an_impatient_reader_loses_nothing(threads in 1usize..7, steps in steps()) {
        let (target, sink, statistics) = play(threads, &steps, Duration::ZERO);
        let order_breaks = statistics.order_breaks;
        prop_assert_eq!(statistics, ReaderStatistics { order_breaks, ..ReaderStatistics::default() });
        prop_assert_eq!(&sink.delivered, &target.written);
    }
}

/// A thread that publishes nothing holds the others up, until one waits for room: an impatient reader
/// then breaks the order, and says so.
#[test]
fn a_silent_thread_is_overtaken_when_another_waits() {
    let mut steps = vec![(1, Step::Write { records: 1, words: 0 }), (0, Step::Allocate)];
    for _ in 0..200 {
        steps.push((0, Step::Write { records: 9, words: 12 }));
        steps.push((0, Step::Read));
    }
    let (target, sink, statistics) = play(2, &steps, Duration::MAX);
    assert_eq!((statistics.order_breaks, &sink.delivered), (0, &target.written));
    let held_up = target.serial;
    let (target, sink, statistics) = play(2, &steps, Duration::ZERO);
    assert!(statistics.order_breaks > 0);
    assert_eq!(sink.delivered, target.written);
    assert!(target.serial > held_up, "{} records, as many as before", held_up);
}

#[test]
fn where_turns_are_wanted_a_thread_that_runs_is_waited_for() {
    let write = Step::Write { records: 1, words: 0 };
    // Of two that have a record each the second one waits until the first has another.
    for (turn_patience, read) in [(Duration::MAX, [1, 2]), (Duration::ZERO, [2, 3])] {
        let segment = Segment::create().expect("memory for a segment");
        let mut target = Target::new(&segment, 2);
        let mut reader = Reader { turn_patience, ..Reader::new() };
        let mut sink = Sink { wants_turns: true, ..Sink::default() };
        for (threads, read) in [&[0, 1][..], &[0]].into_iter().zip(read) {
            for &thread in threads {
                target.step(&segment, thread, write);
                target.step(&segment, thread, Step::Publish);
            }
            while reader.deliver(&segment, &mut sink) {}
            let delivered: usize = sink.delivered.values().map(Vec::len).sum();
            assert_eq!(delivered, read, "{turn_patience:?}");
        }
    }
}

/// Rings go round and slots change hands: what short random schedules reach only now and then.
#[test]
fn a_long_schedule_goes_round_the_rings() {
    let mut steps = Vec::new();
    for round in 0..1600 {
        steps.push((round, Step::Write { records: 9, words: 12 }));
        steps.push((round, if round % 3 == 0 { Step::Allocate } else { Step::Publish }));
        let rest = [Step::SystemCall, Step::SystemCall, Step::Publish, Step::Exit];
        steps.push((round, rest[round / 5 % 4]));
        steps.push((0, Step::Read));
    }
    let (target, sink, statistics) = play(3, &steps, Duration::MAX);
    assert_eq!(statistics, ReaderStatistics::default());
    assert_eq!(sink.delivered, target.written);
    assert!(target.writers.iter().all(|writer| writer.chunk > 2 * chunks(writer.slot) as u64));
    assert!(sink.defined.len() > 20, "slots change hands");
}
