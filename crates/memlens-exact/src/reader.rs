//! Merges the threads' rings into one ordered stream.
//!
//! With one thread there is nothing to order: everything published is delivered. With several, the
//! next records delivered are those with the smallest epoch. A thread whose records are all
//! delivered bounds the others: what it has not published yet carries at least the epoch of its last
//! record or, if it sleeps in a system call, at least the epoch as it stood when it was looked at.
//!
//! ```text
//! slot 0   ... 17 17 18 21 21 │            deliver slot 1 up to 18, then slot 0's 18,
//! slot 1   ... 16 18 20 22 │               then slot 1's 20, …
//! slot 2   (in a system call, epoch 24)    no bound below 24
//! ```

use crate::segment::{Segment, wake};
use memlens_events::segment::{CHUNK_CLOSED, CHUNK_WORDS, SLOTS, SlotHeader, SlotState, chunks};
use memlens_events::{Definition, RecordHeader, RecordSink};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// While several threads have records of the same epoch, they take turns of this many words, about
/// what a core executes in a few microseconds. Where lines go from core to core, whoever models them makes smaller ones of
/// these.
const TURN_WORDS: usize = 512;

/// A writer that waits for room is woken whenever this part of its ring has been read, or all.
const PART_PER_WAKE: usize = 2;

/// So long is waited for a thread that runs and has nothing to read, where turns are wanted: on a machine with few cores it
/// comes to run only when the others' rings are full.
const TURN_PATIENCE: Duration = Duration::from_millis(10);

/// A thread that will not report for this long while another waits for room is overtaken.
const PATIENCE: Duration = Duration::from_millis(200);

/// What reading a run met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderStatistics {
    /// Definitions that did not decode.
    pub damaged_definitions: u64,
    /// How often a silent thread was overtaken, breaking the order between threads.
    pub order_breaks: u64,
    /// Threads that found no ring: nothing of theirs was recorded.
    pub threads_without_slot: u64,
    /// Blocks that found no id: nothing of theirs was recorded.
    pub blocks_without_id: u64,
    /// Memory operands (in the code, not executions) that could not be recorded.
    pub references_unrecorded: u64,
    /// Filters of system calls (seccomp) that the target asked for and did not get.
    pub filters_withheld: u64,
    /// Processes that the target forked and that were not recorded; those of which nobody wants anything included.
    pub children_unrecorded: u64,
}

/// Reads a segment.
pub struct Reader {
    slots: Vec<Cursor>,
    statistics: ReaderStatistics,
    last_progress: Instant,
    /// See [`PATIENCE`].
    patience: Duration,
    /// See [`TURN_PATIENCE`].
    turn_patience: Duration,
}

/// How far a slot has been read.
#[derive(Clone, Copy, Default)]
struct Cursor {
    chunk: u64,
    word: usize,
    /// Epoch of the last record delivered.
    epoch: u32,
    in_use: bool,
}

/// What can be read of a slot now.
#[derive(Clone, Copy)]
struct Available {
    slot: usize,
    words: usize,
    /// Smallest epoch that the slot's next record can have.
    bound: u32,
    /// Whether its thread executes code of its own.
    is_running: bool,
}

impl Reader {
    /// Starts at the beginning.
    pub fn new() -> Self {
        Self {
            slots: Vec::new(),
            statistics: ReaderStatistics::default(),
            last_progress: Instant::now(),
            patience: PATIENCE,
            turn_patience: TURN_PATIENCE,
        }
    }

    /// Delivers what can be delivered now. False when there was nothing.
    pub fn deliver(&mut self, segment: &Segment, sink: &mut impl RecordSink) -> bool {
        let mut progress = self.definitions(segment, sink);
        let available = self.look(segment);
        let with_words = available.iter().filter(|slot| slot.words > 0).count();
        if with_words > 0 && sink.wants_turns() && self.waits_for_others(&available) {
            return progress;
        }
        if let ([only], 1) = (available.as_slice(), with_words) {
            self.deliver_all(segment, sink, only.slot, only.words);
            progress = true;
        } else if with_words > 0 {
            progress |= self.merge(segment, sink, &available);
        }
        if progress {
            self.last_progress = Instant::now();
        }
        progress
    }

    /// What was met so far.
    pub fn statistics(&self, segment: &Segment) -> ReaderStatistics {
        let control = segment.control();
        ReaderStatistics {
            threads_without_slot: control.threads_without_slot.load(Ordering::Relaxed).into(),
            blocks_without_id: control.blocks_without_id.load(Ordering::Relaxed).into(),
            references_unrecorded: control.references_unrecorded.load(Ordering::Relaxed).into(),
            filters_withheld: control.filters_withheld.load(Ordering::Relaxed).into(),
            children_unrecorded: control.children_unrecorded.load(Ordering::Relaxed).into(),
            ..self.statistics
        }
    }

    /// Whether a thread that could take its turn has nothing to read yet.
    fn waits_for_others(&self, available: &[Available]) -> bool {
        available.iter().any(|slot| slot.words == 0 && slot.is_running)
            && self.last_progress.elapsed() < self.turn_patience
    }

    fn definitions(&mut self, segment: &Segment, sink: &mut impl RecordSink) -> bool {
        let mut any = false;
        while let Some(definition) = segment.next_definition(&mut self.statistics.damaged_definitions) {
            any = true;
            let module = match &definition {
                Definition::Module(module) => Some(module.id),
                _ => None,
            };
            let answer = sink.define(definition);
            if let Some(id) = module {
                segment.answer_module(id, &answer);
            }
        }
        any
    }

    /// Looks at all slots: first at the epoch, then at what each has published, so that what appears
    /// later is known to be later.
    fn look(&mut self, segment: &Segment) -> Vec<Available> {
        let control = segment.control();
        let epoch = control.epoch.0.load(Ordering::SeqCst);
        let mut seen = 0;
        let mut available = Vec::new();
        loop {
            // Threads that came while we looked: their records may be older than others' read above.
            let used = (control.slots_used.load(Ordering::SeqCst) as usize).min(SLOTS);
            if used == seen {
                return available;
            }
            self.slots.resize(self.slots.len().max(used), Cursor::default());
            for slot in seen..used {
                available.extend(self.look_at(segment, slot, epoch));
            }
            seen = used;
        }
    }

    fn look_at(&mut self, segment: &Segment, slot: usize, epoch: u32) -> Option<Available> {
        let header = segment.slot(slot);
        // Before the published position: what a sleeping thread has published is all there is.
        let state = SlotState::from_code(header.state.load(Ordering::Acquire));
        let cursor = &mut self.slots[slot];
        if state == SlotState::Free {
            return None;
        }
        if !cursor.in_use {
            *cursor =
                Cursor { in_use: true, chunk: header.chunks_read.load(Ordering::Relaxed), word: 0, epoch: 0 };
        }
        let words = loop {
            let written = Written::of(segment, slot, cursor.chunk);
            let words = written.words.saturating_sub(cursor.word);
            if words > 0 || !written.closed {
                break words;
            }
            // Read to its end: the writer may have the chunk back.
            cursor.chunk += 1;
            cursor.word = 0;
            header.chunks_read.store(cursor.chunk, Ordering::SeqCst);
            header.room.fetch_add(1, Ordering::SeqCst);
            // A wake-up costs as much as reading half a chunk: one for several chunks.
            if cursor.chunk.is_multiple_of((chunks(slot) / PART_PER_WAKE) as u64) {
                wake_writer(header);
            }
        };
        if words == 0 {
            wake_writer(header);
        }
        let bound = if words > 0 {
            // SAFETY: published and not given back.
            let chunk = unsafe { segment.chunk(slot, cursor.chunk, cursor.word + words) };
            RecordHeader(chunk[cursor.word]).epoch().max(cursor.epoch)
        } else if state == SlotState::Exited {
            // Nothing will follow: the next owner starts with the next chunk.
            *cursor = Cursor::default();
            header.chunks_read.fetch_add(1, Ordering::SeqCst);
            header.state.store(SlotState::Free as u32, Ordering::Release);
            header.tid.store(0, Ordering::Release);
            return None;
        } else if state == SlotState::InSystemCall {
            epoch.max(cursor.epoch)
        } else {
            cursor.epoch
        };
        Some(Available { slot, words, bound, is_running: state == SlotState::Running })
    }

    /// Delivers in epoch order from the slots that have something, as long as nothing unseen can
    /// come before.
    fn merge(&mut self, segment: &Segment, sink: &mut impl RecordSink, available: &[Available]) -> bool {
        let mut left = available.to_vec();
        let mut progress = false;
        // A slot with nothing to read bounds everybody.
        let horizon = left.iter().filter(|slot| slot.words == 0).map(|slot| slot.bound).min();
        let horizon = horizon.unwrap_or(u32::MAX);
        left.retain(|slot| slot.words > 0);
        while let Some(first) = (0..left.len()).min_by_key(|&index| left[index].bound) {
            let this = left[first];
            let Available { slot, words, bound, .. } = this;
            if bound > horizon {
                return progress || self.overtake(segment, sink, &left);
            }
            let others =
                left.iter().enumerate().filter(|&(index, _)| index != first).map(|(_, other)| other.bound);
            let next = others.min().unwrap_or(u32::MAX);
            // Alone in its epoch: until the next one's. Together: a turn.
            let (limit, turn) =
                if next > bound { (next.min(horizon), words) } else { (bound, words.min(TURN_WORDS)) };
            let read = self.deliver_run(segment, sink, slot, words, turn, limit);
            progress = true;
            let rest = words - read;
            if rest == 0 {
                // What comes next of it is unknown until the next look.
                return true;
            }
            let cursor = self.slots[slot];
            // SAFETY: published and not given back.
            let chunk = unsafe { segment.chunk(slot, cursor.chunk, cursor.word + rest) };
            let bound = RecordHeader(chunk[cursor.word]).epoch().max(cursor.epoch);
            left.remove(first);
            // Behind the others of its epoch: they take turns.
            left.push(Available { words: rest, bound, ..this });
        }
        progress
    }

    /// Nothing may be delivered in order. If that lasts while a writer waits for room, the order is
    /// broken, once and counted, rather than the run stopped.
    fn overtake(&mut self, segment: &Segment, sink: &mut impl RecordSink, left: &[Available]) -> bool {
        if self.last_progress.elapsed() < self.patience {
            return false;
        }
        let waiting = left
            .iter()
            .filter(|slot| segment.slot(slot.slot).writer_waiting.load(Ordering::Relaxed) != 0)
            .min_by_key(|slot| slot.bound);
        let Some(slot) = waiting else { return false };
        self.statistics.order_breaks += 1;
        self.deliver_all(segment, sink, slot.slot, slot.words);
        true
    }

    /// Delivers `words` words of one slot, whatever their epochs.
    fn deliver_all(&mut self, segment: &Segment, sink: &mut impl RecordSink, slot: usize, words: usize) {
        // Blocks are defined before they run: read on before their records are delivered.
        self.definitions(segment, sink);
        let cursor = &mut self.slots[slot];
        // SAFETY: published and not given back.
        let chunk = unsafe { segment.chunk(slot, cursor.chunk, cursor.word + words) };
        let records = &chunk[cursor.word..];
        // The first record's epoch serves as well as the last's, which only a walk would find.
        cursor.epoch = records.first().map_or(0, |&word| RecordHeader(word).epoch()).max(cursor.epoch);
        cursor.word += words;
        sink.records(slot, records);
        answer_fork(segment, sink);
    }

    /// Delivers records of one slot that has `words` words: at least one record, at most those that
    /// begin in the next `turn` words and have epochs up to `limit`. Returns the words read.
    fn deliver_run(
        &mut self,
        segment: &Segment,
        sink: &mut impl RecordSink,
        slot: usize,
        words: usize,
        turn: usize,
        limit: u32,
    ) -> usize {
        self.definitions(segment, sink);
        let cursor = &mut self.slots[slot];
        // SAFETY: published and not given back.
        let chunk = unsafe { segment.chunk(slot, cursor.chunk, cursor.word + words) };
        let records = &chunk[cursor.word..];
        let mut end = 0;
        while end < turn {
            let record = RecordHeader(records[end]);
            if record.epoch() > limit && end > 0 {
                break;
            }
            cursor.epoch = cursor.epoch.max(record.epoch());
            end += 1 + record.words();
        }
        // A damaged length must not run over the end.
        let end = end.min(words);
        cursor.word += end;
        sink.records(slot, &records[..end]);
        answer_fork(segment, sink);
        end
    }
}

fn wake_writer(header: &SlotHeader) {
    if header.writer_waiting.swap(0, Ordering::SeqCst) != 0 {
        wake(&header.room);
    }
}

/// Lets whoever announced a fork in the records just delivered go on. Before the next definition is read,
/// so that it is known which ones the sink knew.
fn answer_fork(segment: &Segment, sink: &mut impl RecordSink) {
    if let Some(token) = sink.fork_answer() {
        segment.answer_fork(token);
    }
}

/// What a slot's writer has published of a chunk.
#[derive(Clone, Copy)]
struct Written {
    words: usize,
    closed: bool,
}

impl Written {
    fn of(segment: &Segment, slot: usize, chunk: u64) -> Self {
        let written = segment.slot(slot).written(slot, chunk).load(Ordering::Acquire);
        if (written >> 32) as u32 != chunk as u32 {
            return Self { words: 0, closed: false };
        }
        let words = (written & (CHUNK_CLOSED - 1)) as usize;
        Self { words: words.min(CHUNK_WORDS), closed: written & CHUNK_CLOSED != 0 }
    }
}
