//! Faults put into a sound trace, to see what the analysis makes of them.

use crate::format::{
    BusBlock, BusWriter, FormatError, Header, MergedBus, TruthReader, TruthRecord, TruthWriter,
};
use std::collections::VecDeque;
use std::io::{BufRead, Write};

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// Probability that a packet is lost.
    pub lost_packets: f64,
    /// Records of a packet.
    pub records_per_packet: u32,
    /// Probability that a tag never reaches the bus.
    pub dropped_tags: f64,
    /// Probability that a tag comes late …
    pub late_tags: f64,
    /// … by up to so many records.
    pub late_by: u32,
    /// The same number gives the same faults.
    pub seed: u64,
}

/// What went wrong. Units: records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Records in lost packets.
    pub lost: u64,
    /// Tags that never came.
    pub dropped_tags: u64,
    /// Tags that came late.
    pub late_tags: u64,
}

/// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn happens(&mut self, probability: f64) -> bool {
        ((self.next() >> 11) as f64) < probability * (1_u64 << 53) as f64
    }
}

/// A record on its way.
#[derive(Clone, Copy)]
struct Record {
    line: u64,
    duration: u64,
    write: bool,
    is_lost: bool,
    truth: Option<TruthRecord>,
}

/// Writes records and what is known of them, in step.
struct Output<'a, W: Write, T: Write> {
    bus: &'a mut BusWriter<W>,
    truth: Option<&'a mut TruthWriter<T>>,
    /// Cycles and records left out since the last one written.
    owed: u64,
    lost: u64,
}

impl<W: Write, T: Write> Output<'_, W, T> {
    fn put(&mut self, record: &Record) -> Result<(), FormatError> {
        self.owed += record.duration;
        if record.is_lost {
            self.lost += 1;
        } else {
            let (duration, lost) = (std::mem::take(&mut self.owed), std::mem::take(&mut self.lost));
            self.bus.record(record.line, duration, record.write, lost)?;
        }
        match (&mut self.truth, record.truth) {
            (Some(truth), Some(known)) => truth.record(known),
            _ => Ok(()),
        }
    }
}

/// Copies bus records, and the truth where there is some, with faults. A record that is left out keeps its
/// number, as if it had been lost on the way.
///
/// # Errors
/// When reading or writing fails, or the trace itself has lost records, of which nothing is known.
pub fn inject_faults<R: BufRead, W: Write, T: Write>(
    bus: &mut MergedBus<R>,
    mut truth: Option<TruthReader<R>>,
    header: &Header,
    plan: &FaultPlan,
    (out, truth_out): (&mut BusWriter<W>, Option<&mut TruthWriter<T>>),
) -> Result<FaultCounts, FormatError> {
    let mut random = Random(plan.seed);
    let mut counts = FaultCounts::default();
    let mut block = BusBlock::default();
    let shift = header.line_shift();
    let tags = header.tags.map_or(0..0, |tags| tags.start >> shift..(tags.start + tags.bytes) >> shift);
    // Late tags and how many records they still wait for.
    let mut late: VecDeque<(u32, Record)> = VecDeque::new();
    let mut packet = (u64::MAX, false);
    let mut output = Output { bus: out, truth: truth_out, owed: 0, lost: 0 };
    while bus.next_block(&mut block)? {
        if !block.gaps.is_empty() {
            return Err(FormatError::Unsupported("putting faults into a trace that has lost records".into()));
        }
        for (at, (number, _, line, write)) in block.iter().enumerate() {
            let known = truth.as_mut().map(|truth| truth.record(number)).transpose()?.flatten();
            let mut record =
                Record { line, duration: block.durations[at], write, is_lost: false, truth: known };
            let this_packet = number / u64::from(plan.records_per_packet.max(1));
            if packet.0 != this_packet {
                packet = (this_packet, random.happens(plan.lost_packets));
            }
            let is_tag = tags.contains(&line);
            if packet.1 {
                counts.lost += 1;
                record.is_lost = true;
            } else if is_tag && random.happens(plan.dropped_tags) {
                counts.dropped_tags += 1;
                record.is_lost = true;
            } else if is_tag && plan.late_by > 0 && random.happens(plan.late_tags) {
                counts.late_tags += 1;
                let by = 1 + (random.next() % u64::from(plan.late_by)) as u32;
                late.push_back((by, record));
                continue;
            }
            output.put(&record)?;
            late.iter_mut().for_each(|(by, _)| *by -= 1);
            late.iter().filter(|(by, _)| *by == 0).try_for_each(|(_, tag)| output.put(tag))?;
            late.retain(|(by, _)| *by > 0);
        }
    }
    late.iter().try_for_each(|(_, tag)| output.put(tag))?;
    Ok(counts)
}
