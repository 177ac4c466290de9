//! Lines that go from core to core: how finely threads take turns in the model, and which bytes of such lines are whose.
//!
//! **Turns.** Rings tell no order between threads but that of epochs, and the reader merges them in turns of some hundred
//! accesses. A core loses a line that another one wants after some dozen cycles. So where lines were found to go from core to core,
//! accesses of a batch go through the model in turns as long as a line takes to arrive: whoever has it keeps it for about as
//! long as the others wait for it. Epochs, which allocations begin, are for who owns an address: what was recorded in one after the other runs
//! side by side all the same where nobody records. An atomic access ends its turn: stores that follow are not done before it is, nor together with
//! it. Elsewhere long turns give the same misses for less.
//!
//! **Whose bytes.** A coherence miss is false sharing if what the others are known to have written in the line are other bytes than those
//! used while the thread has it: by the access that missed and those behind it, up to the next that misses it. (What misses may be a mutex's
//! kind, and what the others write its lock word.) Known are the bytes written by those who took the line from somebody. Of misses
//! of which nothing is known as many are false sharing as of the others of the same code and object (`cells.rs`).

use memlens_sim::{CoreId, MachineDescription, Outcome};
use memlens_types::{AccessAttr, parts_of_line};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::ops::Range;

/// Cycles for an access and what is computed with it: three accesses in ten instructions, two instructions a cycle.
const CYCLES_AN_ACCESS: u32 = 2;
/// Latency of the last level in cycles, where the machine does not tell.
const USUAL_LATENCY: u32 = 50;
/// Turns become short if this many changes of thread bring a coherence miss …
const CHANGES_A_MISS: f64 = 4.0;
/// … and long again if more accesses than this do.
const ACCESSES_A_MISS: f64 = 2000.0;
/// Fewer coherence misses than this are nothing, …
const FEWEST: f64 = 2.0;
/// … of the last batches: what part of what was known is kept with each.
const KEPT: f64 = 0.75;
/// Accesses among which another use of a line is looked for.
const MOST_LOOKED_AT: usize = 512;
/// Lines of which it is known who writes what: some MB.
const MOST_LINES: usize = 1 << 16;

/// Accesses of one thread in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number.
    pub thread: usize,
    /// The core it runs on.
    pub core: CoreId,
    /// Position of the first of its accesses.
    pub start: usize,
}

/// What is known of lines that go from core to core.
#[derive(Debug)]
pub struct Sharing {
    turn: usize,
    takes_short_turns: bool,
    /// Of the last batches: changes of thread, accesses, coherence misses.
    changes: f64,
    accesses: f64,
    misses: f64,
    line_bytes: u64,
    /// By line: bytes that a thread is known to write, a bit for each sixty-fourth of the line. Cores change.
    written: FxHashMap<u64, Vec<(usize, u64)>>,
}

impl Sharing {
    /// Nothing, of this machine.
    pub fn new(machine: &MachineDescription) -> Self {
        let latency = match machine.transfer_cycles() {
            0 => USUAL_LATENCY,
            known => known,
        };
        Self {
            turn: (latency / CYCLES_AN_ACCESS).max(1) as usize,
            takes_short_turns: false,
            changes: 0.0,
            accesses: 0.0,
            misses: 0.0,
            line_bytes: u64::from(machine.line_bytes.max(1)),
            written: FxHashMap::default(),
        }
    }

    /// The length of turns in accesses; None: each segment is one.
    pub fn turn(&self) -> Option<usize> {
        self.takes_short_turns.then_some(self.turn)
    }

    /// Learns from what so many accesses in so many segments did.
    pub fn learn(&mut self, accesses: usize, segments: usize, outcome: &Outcome) {
        // A thread by itself tells nothing: on few cores they follow one another for milliseconds.
        if segments < 2 {
            return;
        }
        let add = |sum: &mut f64, count: usize| *sum = *sum * KEPT + count as f64;
        add(&mut self.changes, segments - 1);
        add(&mut self.accesses, accesses);
        add(&mut self.misses, outcome.coherence_misses.len());
        let enough = match self.takes_short_turns {
            true => self.accesses / ACCESSES_A_MISS,
            false => self.changes / CHANGES_A_MISS,
        };
        self.takes_short_turns = self.misses >= enough.max(FEWEST);
    }

    /// What a thread does with a line that it has just got, until it has lost it: from its next accesses, with their positions. The first is
    /// to the line. `is_miss`: whether one is a coherence miss.
    pub fn tenancy(
        &self,
        next: impl Iterator<Item = (usize, u64, AccessAttr)>,
        is_miss: impl Fn(usize) -> bool,
    ) -> Tenancy {
        let mut tenancy: Option<Tenancy> = None;
        for (at, addr, attr) in next.take(MOST_LOOKED_AT) {
            let (line, bytes) = parts_of_line(addr, attr.size_bytes(), self.line_bytes);
            let tenancy = match &mut tenancy {
                Some(tenancy) if tenancy.line != line => continue,
                Some(_) if is_miss(at) => break,
                Some(tenancy) => tenancy,
                None => tenancy.insert(Tenancy { line, ..Tenancy::default() }),
            };
            tenancy.used |= bytes;
            tenancy.written |= bytes * u64::from(attr.write_bit());
        }
        tenancy.unwrap_or_default()
    }

    /// Remembers what a thread writes of a line that it took from another core.
    pub fn takes(&mut self, thread: usize, Tenancy { line, written, .. }: Tenancy) {
        if written == 0 {
            return;
        }
        if self.written.len() >= MOST_LINES && !self.written.contains_key(&line) {
            self.written.clear();
        }
        let writers = self.written.entry(line).or_default();
        match writers.iter_mut().find(|(writer, _)| *writer == thread) {
            Some((_, known)) => *known |= written,
            None => writers.push((thread, written)),
        }
    }

    /// Whether a thread that waits for a line uses nothing of it that others write; None where nothing is known of what they
    /// write, as the first time that a line changes hands.
    pub fn is_false(&self, thread: usize, Tenancy { line, used, .. }: Tenancy) -> Option<bool> {
        let others = self.written.get(&line).into_iter().flatten().filter(|(writer, _)| *writer != thread);
        let theirs = others.fold(0, |all, (_, bytes)| all | bytes);
        (theirs != 0).then_some(theirs & used == 0)
    }
}

/// What a thread does with a line while it has it: bits as of [`parts_of_line`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tenancy {
    line: u64,
    used: u64,
    written: u64,
}

/// The accesses of each segment, the last of which ends at `end`.
pub fn all_accesses(segments: &[Segment], end: usize) -> impl Iterator<Item = Range<usize>> {
    let ends = segments.iter().skip(1).map(|next| next.start).chain([end]);
    segments.iter().map(|segment| segment.start).zip(ends).map(|(start, end)| start..end)
}

/// Visits the accesses of `segments` in turns of `turn` accesses, or to the next atomic one; `attrs` are those of all. Each visit has
/// the number of the segment, and which accesses. Segments of a thread stay in order.
pub fn in_turns(
    segments: &[Segment],
    attrs: &[AccessAttr],
    turn: usize,
    mut visit: impl FnMut(usize, Range<usize>),
) {
    let mut threads: Vec<Unvisited> = Vec::new();
    for (segment, (number, accesses)) in segments.iter().zip(all_accesses(segments, attrs.len()).enumerate())
    {
        let part = Part { number, accesses };
        match threads.iter_mut().find(|it| it.thread == segment.thread) {
            Some(of_thread) => of_thread.parts.push_back(part),
            None => threads.push(Unvisited { thread: segment.thread, parts: [part].into() }),
        }
    }
    if let [alone] = &mut threads[..] {
        alone.parts.drain(..).for_each(|part| visit(part.number, part.accesses));
        return;
    }
    while !threads.is_empty() {
        for of_thread in &mut threads {
            of_thread.take_turn(attrs, turn, &mut visit);
        }
        threads.retain(|of_thread| !of_thread.parts.is_empty());
    }
}

/// What a thread still has to do in a batch.
struct Unvisited {
    thread: usize,
    parts: VecDeque<Part>,
}

/// Accesses of the segment with this number.
struct Part {
    number: usize,
    accesses: Range<usize>,
}

impl Unvisited {
    fn take_turn(&mut self, attrs: &[AccessAttr], turn: usize, visit: &mut impl FnMut(usize, Range<usize>)) {
        let mut room = turn;
        while room > 0
            && let Some(Part { number, accesses }) = self.parts.front_mut()
        {
            let start = accesses.start;
            let end = accesses.end.min(start + room);
            room -= end - start;
            let locked = attrs[start..end].iter().position(|attr| attr.is_locked());
            accesses.start = match locked {
                Some(before) => start + before + 1,
                None => end,
            };
            visit(*number, start..accesses.start);
            if accesses.start >= accesses.end {
                self.parts.pop_front();
            }
            if locked.is_some() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_types::AccessKind;

    fn segment(thread: usize, start: usize) -> Segment {
        Segment { thread, core: CoreId(thread as u16), start }
    }

    #[test]
    fn threads_take_turns_and_keep_their_order() {
        // 0: 0..5 and 7..10, 1: 5..7 and 10..14.
        let segments = [segment(0, 0), segment(1, 5), segment(0, 7), segment(1, 10)];
        let mut attrs = [AccessAttr::new(AccessKind::Modify, 8); 14];
        let visits = |attrs: &[AccessAttr]| {
            let mut visits = Vec::new();
            in_turns(&segments, attrs, 3, |at, accesses| visits.push((at, accesses)));
            visits
        };
        let all = [(0, 0..3), (1, 5..7), (3, 10..11), (0, 3..5), (2, 7..8), (3, 11..14), (2, 8..10)];
        assert_eq!(visits(&attrs), all);
        for locked in [1, 4, 12] {
            attrs[locked] = attrs[locked].locked();
        }
        let all = [(0, 0..2), (1, 5..7), (3, 10..11), (0, 2..5), (3, 11..13), (2, 7..10), (3, 13..14)];
        assert_eq!(visits(&attrs), all);
        // Where there is nobody to take the next turn nothing ends it.
        let mut alone = Vec::new();
        in_turns(&segments[..1], &attrs, 3, |at, accesses| alone.push((at, accesses)));
        assert_eq!(alone, [(0, 0..14)]);
    }

    #[test]
    fn bytes_that_nobody_else_writes_are_shared_falsely() {
        let machine = MachineDescription::named("e5504").expect("shipped");
        let mut sharing = Sharing::new(&machine);
        let (store, load) = (AccessAttr::new(AccessKind::Store, 8), AccessAttr::new(AccessKind::Load, 8));
        let (one, other) = (0, 1);
        // At positions from 0 on, of which one misses.
        let kept = |sharing: &Sharing, accesses: &[(u64, AccessAttr)], missed: usize| {
            let next = accesses.iter().enumerate().map(|(at, &(addr, attr))| (at, addr, attr));
            sharing.tenancy(next, |at| at == 0 || at == missed)
        };
        let tenancy = |sharing: &Sharing, accesses: &[(u64, AccessAttr)]| kept(sharing, accesses, 0);
        let is_false = |sharing: &Sharing, thread, addr, attr| {
            sharing.is_false(thread, tenancy(sharing, &[(addr, attr)]))
        };
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(is_false(&sharing, other, 0x1008, load), None, "nothing is known of who wrote");
        sharing.takes(one, tenancy(&sharing, &[(0x1010, load), (0x2008, store), (0x1000, store)]));
        assert_eq!(
            [(0x1008, load), (0x1010, store)].map(|(at, kind)| is_false(&sharing, other, at, kind)),
            [yes; 2]
        );
        assert_eq!(
            [(0x1000, load), (0x1004, store)].map(|(at, kind)| is_false(&sharing, other, at, kind)),
            [no; 2]
        );
        // What is used of the line later on counts, too, unless it was lost before.
        let others = (0..300).map(|at| (0x8000 + 64 * at, load));
        let mut later: Vec<(u64, AccessAttr)> = [(0x1008, load)].into_iter().chain(others).collect();
        assert_eq!(sharing.is_false(other, tenancy(&sharing, &later)), yes);
        later.push((0x1000, load));
        assert_eq!(sharing.is_false(other, tenancy(&sharing, &later)), no);
        assert_eq!(sharing.is_false(other, kept(&sharing, &later, 301)), yes);
        // Its own writes do not count, nor those to other lines.
        assert_eq!(
            [(one, 0x1008), (other, 0x2008)].map(|(who, at)| is_false(&sharing, who, at, load)),
            [None; 2]
        );
    }

    #[test]
    fn turns_are_short_where_lines_change_hands() {
        let machine = MachineDescription::named("e5504").expect("shipped");
        let mut sharing = Sharing::new(&machine);
        let with = |misses: usize| Outcome { coherence_misses: vec![0; misses], ..Outcome::default() };
        for _ in 0..9 {
            sharing.learn(16_000, 41, &with(9));
            assert_eq!(sharing.turn(), None);
        }
        sharing.learn(16_000, 41, &with(14));
        assert_eq!(sharing.turn(), Some(sharing.turn));
        for _ in 0..9 {
            sharing.learn(16_000, 41, &with(8));
            assert!(sharing.turn().is_some());
        }
        sharing.learn(16_000, 41, &with(0));
        assert_eq!(sharing.turn(), None);
        // Threads that are seen one after the other, some changes in all.
        for _ in 0..9 {
            sharing.learn(16_000, 2, &with(1));
            (0..50).for_each(|_| sharing.learn(16_000, 1, &with(0)));
        }
        assert!(sharing.turn().is_some());
    }
}
