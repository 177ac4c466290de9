//! The back: queues of requests from level to level.

use super::level::{Geometry, Level, Loop, SetArray, View};
use super::regions::Regions;
use super::translation::{CHUNK, HOT_LINE_SHIFT, WalkEvent};
use crate::batch::Outcome;
use crate::machine::MachineDescription;
use crate::plain::Origin;
use crate::simd::{Kernel, SimdLevel, Task, Touch, dispatch};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;
use memlens_types::AccessAttr;

/// How far ahead of its use a set of the next level is fetched, in queue entries.
const AHEAD: usize = 12;

/// Who asks for a line, in the low bits of a word.
///
/// ```text
///  23 22   21          0
/// ┌──────┬───────────────┐
/// │ who  │ position in   │
/// │      │ chunk / walks │
/// └──────┴───────────────┘
/// ```
pub(super) type Asker = u32;
pub(super) const DATA: Asker = 0;
pub(super) const FETCH: Asker = 1 << 22;
pub(super) const WALK: Asker = 2 << 22;
const POSITION_MASK: u32 = FETCH - 1;

/// A request to a first level.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineRequest {
    pub(super) line: u64,
    pub(super) asker: Asker,
    pub(super) is_write: bool,
}

/// Data references that were translated together. Lines have 2^[`HOT_LINE_SHIFT`] bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    /// The chunk's references.
    pub(super) addrs: &'a [u64],
    pub(super) attrs: &'a [AccessAttr],
    /// Which of them.
    pub(super) start: usize,
    pub(super) end: usize,
    /// Positions of those to more than one line.
    pub(super) straddling: &'a [u32],
    /// Walks, by the position of the reference that each comes before.
    pub(super) events: &'a [WalkEvent],
    /// What askers count walks from.
    pub(super) first_walk: usize,
}

impl<'a> Run<'a> {
    /// The loads of a walk.
    #[inline(always)]
    fn reads(&self, event: &'a WalkEvent) -> impl Iterator<Item = LineRequest> + use<'a> {
        let asker = WALK | (event.walk - self.first_walk) as u32;
        let reads = event.reads.as_slice().iter();
        reads.map(move |read| LineRequest { line: read >> HOT_LINE_SHIFT, asker, is_write: false })
    }

    /// The lines of a reference.
    #[inline(always)]
    fn lines(&self, at: usize) -> impl Iterator<Item = LineRequest> + use<> {
        let (attr, asker) = (self.attrs[at], DATA | at as u32);
        let is_write = attr.write_bit() == 1;
        lines_of(self.addrs[at], attr, HOT_LINE_SHIFT).map(move |line| LineRequest { line, asker, is_write })
    }

    /// Everything that is asked for, in order: what [`FirstLevel`] goes through.
    pub(super) fn requests(&self) -> impl Iterator<Item = LineRequest> {
        (self.start..self.end).flat_map(move |at| {
            let events = self.events.iter().filter(move |event| event.position as usize == at);
            events.flat_map(|event| self.reads(event)).chain(self.lines(at))
        })
    }
}

/// The lines that an access touches.
#[inline(always)]
pub(super) fn lines_of(addr: u64, attr: AccessAttr, line_shift: u32) -> core::ops::RangeInclusive<u64> {
    let last_byte = addr.saturating_add(u64::from(attr.size_bytes().max(1) - 1));
    addr >> line_shift..=last_byte >> line_shift
}

/// A request to L2 or the last level, in one word.
///
/// ```text
///  63                25  24            23 22   21      0
/// ┌────────────────────┬───────────────┬──────┬──────────┐
/// │ compact line       │ is a          │ who  │ position │
/// │ address            │ write-back    │      │          │
/// └────────────────────┴───────────────┴──────┴──────────┘
/// ```
type Request = u64;
const LINE_SHIFT: u32 = 25;
const WRITE_BACK_SHIFT: u32 = 24;
const WRITE_BACK: Request = 1 << WRITE_BACK_SHIFT;
const ASKER_MASK: u64 = WRITE_BACK - 1;

/// A list with room that is appended to by position, without branches.
#[derive(Clone, Debug, Default)]
struct List {
    room: Vec<u64>,
    len: usize,
}

impl List {
    fn clear(&mut self) {
        self.len = 0;
    }

    /// Room for so many more; [`List::take`] says how many were filled.
    #[inline(always)]
    fn free(&mut self, count: usize) -> Appender<'_> {
        if self.room.len() - self.len < count {
            self.grow(count);
        }
        Appender { room: &mut self.room[self.len..], len: 0 }
    }

    #[cold]
    fn grow(&mut self, count: usize) {
        self.room.resize((self.len + count).next_power_of_two(), 0);
    }

    #[inline(always)]
    fn take(&mut self, count: usize) {
        self.len += count;
    }

    fn as_slice(&self) -> &[u64] {
        &self.room[..self.len]
    }
}

/// The end of a list, in registers.
struct Appender<'a> {
    room: &'a mut [u64],
    len: usize,
}

impl Appender<'_> {
    #[inline(always)]
    fn push_if(&mut self, word: u64, is_wanted: bool) {
        if let Some(place) = self.room.get_mut(self.len) {
            *place = word;
        }
        self.len += usize::from(is_wanted);
    }
}

/// All caches, and the queues between them.
#[derive(Clone, Debug)]
pub(super) struct Back {
    regions: Regions,
    l1d: Level,
    l1i: Level,
    /// Positions that missed the first level, and the words whose places they took.
    missed: Box<[(u32, u32); CHUNK]>,
    l2: Option<Level>,
    llc: Level,
    to_l2: List,
    to_llc: List,
    to_memory: List,
    line_shift: u32,
}

/// Where the askers' positions are counted from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origins {
    /// Accesses of the batch.
    pub(super) first_index: u32,
    /// Walks of the outcome.
    pub(super) first_walk: usize,
}

impl Origins {
    #[inline(always)]
    pub(super) fn of(self, asker: Asker) -> Origin {
        let position = asker & POSITION_MASK;
        if asker & WALK != 0 {
            Origin::Walk(self.first_walk + position as usize)
        } else if asker & FETCH != 0 {
            Origin::Fetch(self.first_index + position)
        } else {
            Origin::Data(self.first_index + position)
        }
    }

    /// Appends the positions of data whose requests go on to a level, less write-backs, to their list, all
    /// others by `record`.
    fn record(
        self,
        requests: &[Request],
        only_data: bool,
        out: &mut Outcome,
        list: impl Fn(&mut Outcome) -> &mut Vec<u32>,
        record: impl Fn(Origin, &mut Outcome),
    ) {
        if only_data {
            let list = list(out);
            let mut len = list.len();
            // One more, so that there is a place for what is not kept.
            list.resize(len + requests.len() + 1, 0);
            for &request in requests {
                if let Some(place) = list.get_mut(len) {
                    *place = self.first_index + (request as u32 & POSITION_MASK);
                }
                len += usize::from(request & WRITE_BACK == 0);
            }
            list.truncate(len);
        } else {
            let reads = requests.iter().filter(|&request| request & WRITE_BACK == 0);
            reads.for_each(|&request| record(self.of(request as u32), out));
        }
    }
}

impl Back {
    pub(super) fn new(machine: &MachineDescription, modulus: u64) -> Self {
        let line_shift = machine.line_bytes.trailing_zeros();
        let caches = [Some(&machine.l1i), Some(&machine.l1d), machine.l2.as_ref(), Some(&machine.llc)];
        let limits = caches.iter().flatten().map(|cache| Regions::limit_for(cache.sets(), line_shift));
        let limit = limits.min().unwrap_or(0).min(Regions::limit_of_bits(64 - LINE_SHIFT, line_shift));
        let level = |cache: &crate::machine::CacheDescription| Level::new(cache.sets(), cache.ways);
        Self {
            regions: Regions::new(line_shift, modulus, limit),
            l1d: level(&machine.l1d),
            l1i: level(&machine.l1i),
            missed: Box::new([(0, 0); CHUNK]),
            l2: machine.l2.as_ref().map(level),
            llc: level(&machine.llc),
            to_l2: List::default(),
            to_llc: List::default(),
            to_memory: List::default(),
            line_shift,
        }
    }

    /// Begins a chunk.
    pub(super) fn begin(&mut self) {
        self.to_l2.clear();
    }

    /// How long the queue to the second level is.
    pub(super) fn queued(&self) -> usize {
        self.to_l2.len
    }

    /// Takes references to the first level. If the regions overflow, the answer is how many requests of
    /// [`Run::requests`] were served.
    pub(super) fn run(&mut self, simd: SimdLevel, run: Run<'_>) -> Result<(), usize> {
        dispatch(simd, Ask { back: self, work: FirstLevelWork::Run(run) })
    }

    /// As [`Self::run`], for requests one by one.
    pub(super) fn requests(&mut self, simd: SimdLevel, requests: &[LineRequest]) -> Result<(), usize> {
        dispatch(simd, Ask { back: self, work: FirstLevelWork::Requests(requests) })
    }

    #[inline(always)]
    fn first_level<K: Kernel>(&mut self, kernel: K, work: FirstLevelWork<'_>) -> Result<(), usize> {
        let Self { regions, l1d, l1i, to_l2, missed, .. } = self;
        l1d.run(FirstLevel { kernel, work, regions, l1i, to_l2, missed })
    }

    /// Takes what the first level missed through the others. `only_data`: none is a fetch's or a walk's.
    pub(super) fn drain(&mut self, simd: SimdLevel, only_data: bool, origins: Origins, out: &mut Outcome) {
        let Self { regions, l2, llc, to_l2, to_llc, to_memory, line_shift, .. } = self;
        let missed = to_l2.as_slice();
        if missed.is_empty() {
            return;
        }
        origins.record(missed, only_data, out, |out| &mut out.l1_misses, Origin::record_l1_miss);
        let to_llc = match l2 {
            Some(level) => {
                dispatch(simd, LowerLevel { level, requests: missed, next: to_llc });
                let missed = to_llc.as_slice();
                origins.record(missed, only_data, out, |out| &mut out.l2_misses, Origin::record_l2_miss);
                missed
            }
            None => missed,
        };
        if to_llc.is_empty() {
            return;
        }
        dispatch(simd, LowerLevel { level: llc, requests: to_llc, next: to_memory });
        let missed = to_memory.as_slice();
        origins.record(missed, only_data, out, |out| &mut out.llc_misses, Origin::record_llc_miss);
        let victims = missed.iter().filter(|&request| request & WRITE_BACK != 0);
        let lines = victims.map(|&victim| regions.expand(victim >> LINE_SHIFT) << *line_shift);
        out.dram_writes.extend(lines);
    }

    /// Hands out all lines with their dirty bits, the least recent of a set first: of L1D, L1I, L2,
    /// and the last level.
    pub(super) fn lines(&self) -> [impl Iterator<Item = (u64, bool)>; 4] {
        let levels = [Some(&self.l1d), Some(&self.l1i), self.l2.as_ref(), Some(&self.llc)];
        levels.map(|level| {
            let lines = level.into_iter().flat_map(Level::lines);
            lines.map(|(line, dirty)| (self.regions.expand(line), dirty))
        })
    }

    /// Makes all lines clean; adds the byte addresses of those that were dirty.
    pub(super) fn clean(&mut self, dirty: &mut BTreeSet<u64>) {
        for lines in self.lines() {
            let lines = lines.filter(|&(_, is_dirty)| is_dirty);
            dirty.extend(lines.map(|(line, _)| line << self.line_shift));
        }
        let levels = [&mut self.l1d, &mut self.l1i, &mut self.llc].into_iter().chain(&mut self.l2);
        levels.for_each(Level::clean);
    }
}

enum FirstLevelWork<'a> {
    Run(Run<'a>),
    Requests(&'a [LineRequest]),
}

struct Ask<'a> {
    back: &'a mut Back,
    work: FirstLevelWork<'a>,
}

impl Task for Ask<'_> {
    type Output = Result<(), usize>;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> Self::Output {
        self.back.first_level(kernel, self.work)
    }
}

/// The requests of accesses and walks to the first levels.
struct FirstLevel<'a, K> {
    kernel: K,
    work: FirstLevelWork<'a>,
    regions: &'a mut Regions,
    l1i: &'a mut Level,
    to_l2: &'a mut List,
    missed: &'a mut [(u32, u32); CHUNK],
}

impl<K: Kernel> Loop for FirstLevel<'_, K> {
    type Output = Result<(), usize>;

    #[inline(always)]
    fn run<S: SetArray, G: Geometry>(mut self, mut l1d: View<S, G>) -> Result<(), usize> {
        match self.work {
            FirstLevelWork::Run(run) => self.references(&mut l1d, run),
            FirstLevelWork::Requests(requests) => {
                let served = self.requests(&mut l1d, requests.iter().copied());
                if served < requests.len() { Err(served) } else { Ok(()) }
            }
        }
    }
}

impl<K: Kernel> FirstLevel<'_, K> {
    #[inline(always)]
    fn references<S: SetArray, G: Geometry>(
        &mut self,
        l1d: &mut View<S, G>,
        run: Run<'_>,
    ) -> Result<(), usize> {
        let mut straddling = run.straddling.iter().map(|&at| at as usize).peekable();
        let mut events = run.events.iter().peekable();
        let (mut next, mut served) = (run.start, 0);
        loop {
            let straddle = straddling.peek().map_or(run.end, |&at| at);
            let event = events.peek().map_or(run.end, |event| event.position as usize);
            let stop = straddle.min(event);
            let done = self.lines(l1d, run, next..stop);
            served += done;
            if done < stop - next {
                return Err(served);
            }
            // A walk comes before the reference that caused it.
            let (done, wanted) = if let Some(event) = events.next_if(|_| event == stop) {
                next = stop;
                (self.requests(l1d, run.reads(event)), event.reads.as_slice().len())
            } else if straddling.next_if(|_| straddle == stop).is_some() {
                next = stop + 1;
                (self.requests(l1d, run.lines(stop)), run.lines(stop).count())
            } else {
                return Ok(());
            };
            served += done;
            if done < wanted {
                return Err(served);
            }
        }
    }

    /// References to one line each. Returns how many were served.
    #[inline(always)]
    fn lines<S: SetArray, G: Geometry>(
        &mut self,
        l1d: &mut View<S, G>,
        run: Run<'_>,
        range: Range<usize>,
    ) -> usize {
        let Self { kernel, ref mut regions, ref mut to_l2, ref mut missed, .. } = *self;
        let (addrs, attrs) = (&run.addrs[..range.end], &run.attrs[..range.end]);
        // Little is kept for the queue here, so that the loop finds room in registers.
        let (mut at, mut len) = (range.start, 0);
        while let (Some(&addr), Some(&attr)) = (addrs.get(at), attrs.get(at)) {
            let Some(line) = regions.compact_byte(addr, HOT_LINE_SHIFT) else { break };
            // No fetch is among them: bit 2 of the kind need not be looked at.
            let write = (attr.0 ^ attr.0 >> 1) & 1;
            // A branch, and nothing written: otherwise each reference would wait for the one before it.
            if !l1d.is_idle(line, write) {
                let Touch { hit, word } = l1d.touch_word(kernel, line, write);
                missed[len % CHUNK] = (at as u32, word);
                len += usize::from(!hit);
            }
            at += 1;
        }
        // A reference can leave a request and a write-back behind it.
        let mut next = to_l2.free(2 * len);
        for &(at, word) in &missed[..len] {
            // It was found before.
            let Some(line) = regions.compact_byte(addrs[at as usize], HOT_LINE_SHIFT) else { break };
            let (victim, written) = l1d.victim(line, word);
            next.push_if(line << LINE_SHIFT | u64::from(DATA | at), true);
            next.push_if(victim << LINE_SHIFT | WRITE_BACK | u64::from(DATA | at), written);
        }
        let filled = next.len;
        to_l2.take(filled);
        at - range.start
    }

    /// Returns how many were served.
    #[inline(always)]
    fn requests<S: SetArray, G: Geometry>(
        &mut self,
        l1d: &mut View<S, G>,
        requests: impl Iterator<Item = LineRequest>,
    ) -> usize {
        let mut served = 0;
        for LineRequest { line, asker, is_write } in requests {
            let Some(line) = self.regions.compact(line) else { break };
            served += 1;
            let (hit, victim, written) = if asker & FETCH == 0 {
                l1d.touch(self.kernel, line, u32::from(is_write))
            } else {
                (self.l1i.touch(line), 0, false)
            };
            let mut next = self.to_l2.free(2);
            next.push_if(line << LINE_SHIFT | u64::from(asker), !hit);
            next.push_if(victim << LINE_SHIFT | WRITE_BACK | u64::from(asker), written);
            let next = next.len;
            self.to_l2.take(next);
        }
        served
    }
}

/// Requests to the second or the last level.
struct LowerLevel<'a> {
    level: &'a mut Level,
    requests: &'a [Request],
    /// Takes the reads that missed, and write-backs.
    next: &'a mut List,
}

impl Task for LowerLevel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let Self { level, requests, next } = self;
        next.clear();
        level.run(LowerLoop { kernel, requests, next });
    }
}

struct LowerLoop<'a, K> {
    kernel: K,
    requests: &'a [Request],
    next: &'a mut List,
}

impl<K: Kernel> Loop for LowerLoop<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: SetArray, G: Geometry>(self, mut level: View<S, G>) {
        let Self { kernel, requests, next } = self;
        let mut lower = next.free(2 * requests.len());
        for (at, &request) in requests.iter().enumerate() {
            if let Some(ahead) = requests.get(at + AHEAD) {
                level.prefetch(ahead >> LINE_SHIFT);
            }
            let write_back = (request >> WRITE_BACK_SHIFT & 1) as u32;
            let (hit, victim, written) = level.touch(kernel, request >> LINE_SHIFT, write_back);
            lower.push_if(request, !hit & (write_back == 0));
            lower.push_if(victim << LINE_SHIFT | WRITE_BACK | request & ASKER_MASK, written);
        }
        let filled = lower.len;
        next.take(filled);
    }
}
