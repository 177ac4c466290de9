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

impl Chunk {
    /// Whether the kernel's record is of this area.
    fn has(&self, written: &AuxRecord) -> bool {
        match self.cpu {
            NONE => written.tid == self.tid,
            cpu => written.cpu == Some(cpu),
        }
    }

    /// Its bytes in parts, each with the record of what was written there; `written` is those of the area, in order.
    fn parts<'a>(&'a self, written: &'a [(u64, AuxRecord)]) -> Vec<Part<'a>> {
        let end = self.position.saturating_add(self.bytes.len() as u64);
        let mut at = self.position;
        let mut list = Vec::new();
        let part = |from: u64, to: u64, of: Option<&'a (u64, AuxRecord)>| Part {
            bytes: &self.bytes[(from - self.position) as usize..(to - self.position) as usize],
            position: from,
            chunk: self,
            written: of,
        };
        let first = written.partition_point(|(_, record)| record.end() <= at);
        for of in &written[first..] {
            let from = of.1.offset.max(at);
            let to = of.1.end().min(end);
            if of.1.offset >= end {
                break;
            }
            if from >= to {
                continue;
            }
            if at < from {
                list.push(part(at, from, None));
            }
            list.push(part(from, to, Some(of)));
            at = to;
        }
        if at < end {
            list.push(part(at, end, None));
        }
        list
    }
}

#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    bytes: &'a [u8],
    position: u64,
    chunk: &'a Chunk,
    /// With its time.
    written: Option<&'a (u64, AuxRecord)>,
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
    /// The next one last.
    parts: Vec<Part<'a>>,
    now: Option<(Part<'a>, SpeRecords<'a>)>,
    conversion: Option<TimeConversion>,
    time_ns: u64,
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
                let own = own.map(|(conversion, counter)| conversion.nanoseconds(counter));
                let handed_over = part.written.map(|(time_ns, _)| *time_ns);
                // Operations end out of order, by some nanoseconds.
                self.time_ns = self.time_ns.max(own.or(handed_over).unwrap_or(0));
                return Some((self.time_ns, record.context.or(part.thread()), record));
            }
            let part = self.parts.pop()?;
            self.now = Some((part, SpeRecords::new(part.bytes, part.position)));
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
    written: Vec<(u64, AuxRecord)>,
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
        event_type >= abi::PERF_TYPE_MAX && self.described.contains(&event_type.into())
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
            if written.is_truncated() {
                // How many samples that were nobody knows.
                self.held.push(TimedRecord { time_ns: *time_ns, record: Record::Lost(1) });
            }
        }
        self.held.sort_by_key(|record| record.time_ns);
        self.written.sort_by_key(|(_, written)| written.offset);
        self.chunks.values_mut().for_each(|chunks| chunks.sort_by_key(|chunk| chunk.position));
        // Each area's own: those of all lie over each other.
        let of_area = |chunks: &Vec<Chunk>| -> Vec<(u64, AuxRecord)> {
            let is_its = |written: &AuxRecord| chunks.first().is_some_and(|chunk| chunk.has(written));
            self.written.iter().filter(|(_, written)| is_its(written)).copied().collect()
        };
        let written: Vec<Vec<(u64, AuxRecord)>> = self.chunks.values().map(of_area).collect();
        let mut areas: Vec<Area<'_>> = Vec::new();
        for (chunks, written) in self.chunks.values().zip(&written) {
            let mut parts: Vec<Part<'_>> = chunks.iter().flat_map(|chunk| chunk.parts(written)).collect();
            parts.reverse();
            areas.push(Area { parts, now: None, conversion: self.conversion, time_ns: 0, damaged: 0 });
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
