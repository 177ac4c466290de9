//! The traces in a perf.data file, and the samples that they hold.
//!
//! perf writes the bytes of each AUX area as they come, in `PERF_RECORD_AUXTRACE` records, and between them the kernel's
//! records of mappings and threads, and of what was written to the areas. So whose a sample is, and what was mapped
//! then, is known only when other records have been read: all records are held until the file's end, the
//! traces as bytes, and handed on in the order of time then.
//!
//! # Whose a sample is
//!
//! 1. The thread in the record's context packet, where the kernel is configured to write it there
//!    (`CONFIG_PID_IN_CONTEXTIDR`), and perf was allowed to ask for it.
//! 2. The thread of the AUX record that the bytes belong to: an event of one thread ends what it writes whenever
//!    the thread leaves the processor. Of a recording of whole processors it is not: there the record may be of several.
//! 3. The thread that the area is of, if it is of one.
//!
//! # When it was
//!
//! At the time of its timestamp, if the file says what that means; else when the bytes were handed over, which can be
//! long after.
//!
//! Sources: tools/perf/Documentation/perf.data-file-format.txt, tools/lib/perf/include/perf/event.h and linux/perf_event.h
//! (Linux 6.12).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use perf_event_open_sys::bindings as abi;
use rustc_hash::FxHashMap;

use super::conversion::TimeConversion;
use super::record::{SpeRecord, SpeRecords};
use super::time_of;
use super::words::Words;
use crate::record::{AuxRecord, Record, Sample, TimedRecord};

/// `perf_record_auxtrace_info.type` of SPE.
const ARM_SPE: u32 = 4;
/// What stands where there is no processor, or no thread.
const NONE: u32 = u32::MAX;

/// What traces could not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpeLosses {
    /// Places that could not be read.
    pub damaged: u64,
    /// Samples of which nothing says whose they are.
    pub without_thread: u64,
}

/// A part of an area's bytes.
#[derive(Debug)]
struct Chunk {
    /// Of its first byte, of all that was ever written to the area.
    position: u64,
    /// Whose area it is: a processor's, or a thread's.
    cpu: u32,
    tid: u32,
    bytes: Vec<u8>,
}

/// Whose an area is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Cpu(u32),
    Thread(u32),
}

impl Chunk {
    fn owner(&self) -> Owner {
        match self.cpu {
            NONE => Owner::Thread(self.tid),
            cpu => Owner::Cpu(cpu),
        }
    }

    /// Behind its last byte.
    fn end(&self) -> u64 {
        self.position.saturating_add(self.bytes.len() as u64)
    }
}

/// A record of what was written to an area, with its time.
type Written = (u64, AuxRecord);

/// In order, and such that each byte is of one of them at most: the first. So a trace has no more parts than bytes, whatever
/// a damaged file says.
fn disjoint(mut written: Vec<Written>) -> Vec<Written> {
    written.sort_by_key(|(_, record)| record.offset);
    let mut at = 0;
    written.retain_mut(|(_, record)| {
        let from = record.offset.max(at);
        let end = record.end();
        if end <= from {
            return false;
        }
        (record.offset, record.size, at) = (from, end - from, end);
        true
    });
    written
}

/// A chunk's bytes in parts, each with the record of what was written there.
#[derive(Clone, Copy, Debug)]
struct Parts<'a> {
    chunk: &'a Chunk,
    /// Behind what has been handed out.
    at: u64,
    /// Of the area, [`disjoint`]; those that end before `at` are gone.
    written: &'a [Written],
}

impl<'a> Parts<'a> {
    fn new(chunk: &'a Chunk, written: &'a [Written]) -> Self {
        let first = written.partition_point(|(_, record)| record.end() <= chunk.position);
        Self { chunk, at: chunk.position, written: &written[first..] }
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        let Self { chunk, at: from, .. } = *self;
        let end = chunk.end();
        if from >= end {
            return None;
        }
        let (to, written) = match self.written.split_first() {
            Some((of, rest)) if of.1.offset <= from => {
                self.written = rest;
                (of.1.end().min(end), Some(of))
            }
            Some((of, _)) => (of.1.offset.min(end), None),
            None => (end, None),
        };
        self.at = to;
        let bytes = &chunk.bytes[(from - chunk.position) as usize..(to - chunk.position) as usize];
        Some(Part { bytes, position: from, chunk, written })
    }
}

#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    bytes: &'a [u8],
    position: u64,
    chunk: &'a Chunk,
    written: Option<&'a Written>,
}

impl Part<'_> {
    /// The thread of all of its records, as far as it is known without their context.
    fn thread(&self) -> Option<u32> {
        let is_of_cpu = self.chunk.cpu != NONE && self.chunk.tid == NONE;
        match self.written {
            Some((_, written)) if !is_of_cpu => Some(written.tid),
            _ if self.chunk.cpu == NONE => Some(self.chunk.tid),
            _ => None,
        }
    }
}

/// Records of one area as they are asked for.
struct Area<'a> {
    /// Those that have not been begun.
    chunks: std::slice::Iter<'a, Chunk>,
    /// Of the chunk that is being read.
    parts: Option<Parts<'a>>,
    written: &'a FxHashMap<Owner, Vec<Written>>,
    now: Option<(Part<'a>, SpeRecords<'a>)>,
    conversion: Option<TimeConversion>,
    time_ns: u64,
    /// That of the file's last record.
    latest_ns: u64,
    damaged: u64,
}

impl Area<'_> {
    /// The next record: when it was, whose it is.
    fn next(&mut self) -> Option<(u64, Option<u32>, SpeRecord)> {
        loop {
            if let Some((part, records)) = &mut self.now {
                let record = records.next();
                let Some(record) = record else {
                    self.damaged += records.damaged();
                    self.now = None;
                    continue;
                };
                let own = self.conversion.zip(record.timestamp);
                let own =
                    own.map(|(conversion, counter)| conversion.nanoseconds(counter).min(self.latest_ns));
                let handed_over = part.written.map(|(time_ns, _)| *time_ns);
                // Operations end out of order, by some nanoseconds.
                self.time_ns = self.time_ns.max(time_of(own, handed_over).unwrap_or(0));
                return Some((self.time_ns, record.context.or(part.thread()), record));
            }
            if let Some(part) = self.parts.as_mut().and_then(Parts::next) {
                self.now = Some((part, SpeRecords::new(part.bytes, part.position)));
                continue;
            }
            let chunk = self.chunks.next()?;
            let written = self.written.get(&chunk.owner()).map_or(&[][..], Vec::as_slice);
            self.parts = Some(Parts::new(chunk, written));
        }
    }
}

/// All that a file with traces of SPE has told so far.
#[derive(Debug)]
pub struct SpeTraces {
    /// What stands in the file's description of them; the types of the events are among it.
    described: Vec<u64>,
    conversion: Option<TimeConversion>,
    chunks: BTreeMap<u32, Vec<Chunk>>,
    written: Vec<Written>,
    held: Vec<TimedRecord>,
}

impl SpeTraces {
    /// Those that a `PERF_RECORD_AUXTRACE_INFO` announces, from what follows its header; None: they are of something else.
    pub fn announced(body: &[u8]) -> Option<Self> {
        let mut words = Words(body);
        if words.u32()? != ARM_SPE {
            return None;
        }
        let _reserved = words.u32()?;
        let described = std::iter::from_fn(|| words.u64()).collect();
        Some(Self {
            described,
            conversion: None,
            chunks: BTreeMap::new(),
            written: Vec::new(),
            held: Vec::new(),
        })
    }

    /// Whether events of this type (`perf_event_attr.type`) are of the source that wrote them.
    pub fn are_of(&self, event_type: u32) -> bool {
        let theirs = match self.described.as_slice() {
            // Its version, its size, the type; then each processor's. No type of such a source is so small a number.
            [version, _, event_type, ..] if *version < abi::PERF_TYPE_MAX.into() => Some(*event_type),
            // Before Linux 6.13.
            described => described.first().copied(),
        };
        event_type >= abi::PERF_TYPE_MAX && theirs == Some(event_type.into())
    }

    /// A `PERF_RECORD_TIME_CONV`, from what follows its header.
    pub fn note_conversion(&mut self, body: &[u8]) {
        self.conversion = TimeConversion::read(body);
    }

    /// The clock of the records is none that the counter can be converted to.
    pub fn forget_conversion(&mut self) {
        self.conversion = None;
    }

    /// A `PERF_RECORD_AUXTRACE`: what follows its header, and the trace behind it. None: it is cut off.
    pub fn add_trace(&mut self, body: &[u8]) -> Option<()> {
        let mut words = Words(body);
        let (_size, position, _reference) = (words.u64()?, words.u64()?, words.u64()?);
        let (area, tid, cpu, _reserved) = (words.u32()?, words.u32()?, words.u32()?, words.u32()?);
        self.chunks.entry(area).or_default().push(Chunk { position, cpu, tid, bytes: words.0.to_vec() });
        Some(())
    }

    /// A record of the kernel.
    pub fn hold(&mut self, record: TimedRecord) {
        match record.record {
            Record::Aux(written) => self.written.push((record.time_ns, written)),
            _ => self.held.push(record),
        }
    }

    /// Hands on all records and samples in the order of time. A sample stands for `period` operations.
    pub fn deliver(mut self, period: u64, mut sink: impl FnMut(TimedRecord)) -> SpeLosses {
        let mut losses = SpeLosses::default();
        let mut threads: FxHashMap<u32, u32> = FxHashMap::default();
        for (time_ns, written) in &self.written {
            threads.insert(written.tid, written.pid);
            if written.has_lost() {
                // How many samples that were nobody knows.
                self.held.push(TimedRecord { time_ns: *time_ns, record: Record::Lost(1) });
            }
        }
        self.held.sort_by_key(|record| record.time_ns);
        let latest_ns = self.written.iter().map(|(time_ns, _)| *time_ns);
        let latest_ns = latest_ns.chain(self.held.last().map(|record| record.time_ns)).max();
        let latest_ns = latest_ns.unwrap_or(u64::MAX);
        self.chunks.values_mut().for_each(|chunks| chunks.sort_by_key(|chunk| chunk.position));
        // Those of all areas lie over each other.
        let owners = self.chunks.values().flatten().map(|chunk| (chunk.owner(), Vec::new()));
        let mut written: FxHashMap<Owner, Vec<Written>> = owners.collect();
        for of in self.written {
            for owner in of.1.cpu.map(Owner::Cpu).into_iter().chain([Owner::Thread(of.1.tid)]) {
                if let Some(list) = written.get_mut(&owner) {
                    list.push(of);
                }
            }
        }
        written.values_mut().for_each(|list| *list = disjoint(std::mem::take(list)));
        let mut areas: Vec<Area<'_>> = Vec::new();
        for chunks in self.chunks.values() {
            areas.push(Area {
                chunks: chunks.iter(),
                parts: None,
                written: &written,
                now: None,
                conversion: self.conversion,
                time_ns: 0,
                latest_ns,
                damaged: 0,
            });
        }
        let mut waiting: Vec<Option<(Option<u32>, Sample)>> = Vec::new();
        waiting.resize_with(areas.len(), || None);
        let mut due = BinaryHeap::new();
        // The next sample of an area.
        let mut advance = |number: usize, waiting: &mut Vec<_>, due: &mut BinaryHeap<_>| {
            while let Some((time_ns, thread, record)) = areas[number].next() {
                if let Some(sample) = record.sample(period) {
                    waiting[number] = Some((thread, sample));
                    due.push(Reverse((time_ns, number)));
                    return;
                }
            }
            losses.damaged += std::mem::take(&mut areas[number].damaged);
        };
        (0..waiting.len()).for_each(|number| advance(number, &mut waiting, &mut due));
        let mut held = self.held.into_iter().peekable();
        loop {
            let next_ns = held.peek().map(|record| record.time_ns);
            let sample_ns = due.peek().map(|Reverse((time_ns, _))| *time_ns);
            match (next_ns, sample_ns) {
                (None, None) => break,
                (Some(next_ns), sample_ns) if sample_ns.is_none_or(|sample_ns| next_ns <= sample_ns) => {
                    let Some(record) = held.next() else { break };
                    match record.record {
                        Record::Fork { pid, tid, .. } | Record::Name { pid, tid, .. } => {
                            threads.insert(tid, pid);
                        }
                        _ => {}
                    }
                    sink(record);
                }
                _ => {
                    let Some(Reverse((time_ns, number))) = due.pop() else { break };
                    match waiting[number].take() {
                        Some((Some(tid), sample)) => {
                            // The first thread of a process of which no record tells has its number.
                            let pid = threads.get(&tid).copied().unwrap_or(tid);
                            let sample = Box::new(Sample { pid, tid, ..sample });
                            sink(TimedRecord { time_ns, record: Record::Sample(sample) });
                        }
                        Some((None, _)) => losses.without_thread += 1,
                        None => {}
                    }
                    advance(number, &mut waiting, &mut due);
                }
            }
        }
        losses
    }
}

#[cfg(test)]
mod tests;
