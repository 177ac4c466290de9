//! The back: queues of requests from level to level.

use super::level::{Level, Loop, SetArray, View};
use super::regions::Regions;
use super::translation::HOT_LINE_SHIFT;
use crate::batch::Outcome;
use crate::machine::MachineDescription;
use crate::plain::Origin;
use crate::simd::Kernel;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// How far ahead of its use a set of the next level is fetched, in queue entries.
const AHEAD: usize = 12;
/// One miss of the first level in so many requests is few.
const MOSTLY: usize = 12;

/// Who asks for a line, in the low bits of a word.
///
/// ```text
///  24                            23 22   21          0
/// ┌─────────────────────────────┬──────┬───────────────┐
/// │ the line that was most      │ who  │ position in   │
/// │ recent in the set is dirty  │      │ chunk / walks │
/// └─────────────────────────────┴──────┴───────────────┘
/// ```
pub(super) type Asker = u32;
pub(super) const DATA: Asker = 0;
pub(super) const FETCH: Asker = 1 << 22;
pub(super) const WALK: Asker = 2 << 22;
/// In the first level's queue: the request is the next one of the list of others.
const OTHER: Asker = 3 << 22;
pub(super) const FIRST_DIRTY_BIT: u32 = 24;
const POSITION_MASK: u32 = FETCH - 1;

/// A request to the first level.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineRequest {
    pub(super) line: u64,
    pub(super) asker: Asker,
}

/// The queue to the first level. Nearly all requests are for the line at the address of the access
/// that asks: its position is enough.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    askers: Vec<Asker>,
    len: usize,
    /// Those for another line than the one at the access's address: of walks, of fetches, second
    /// lines.
    others: Vec<LineRequest>,
}

impl Requests {
    pub(super) fn with_room(room: usize) -> Self {
        Self { askers: vec![0; room], len: 0, others: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, line: u64, asker: Asker) {
        self.free(1)[0] = OTHER;
        self.len += 1;
        self.others.push(LineRequest { line, asker });
    }

    /// Places for `count` more requests of data at their own addresses; [`Self::take`] says how
    /// many were filled.
    #[inline(always)]
    pub(super) fn free(&mut self, count: usize) -> &mut [Asker] {
        if self.askers.len() - self.len < count {
            self.grow(count);
        }
        &mut self.askers[self.len..][..count]
    }

    #[cold]
    fn grow(&mut self, count: usize) {
        self.askers.resize(2 * (self.len + count), 0);
    }

    #[inline(always)]
    pub(super) fn take(&mut self, count: usize) {
        self.len += count;
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.others.clear();
    }

    /// All requests with their lines, `addrs` being the chunk's addresses.
    #[inline(always)]
    pub(super) fn lines(&self, addrs: &[u64]) -> impl Iterator<Item = LineRequest> {
        let mut others = self.others.iter();
        self.askers[..self.len].iter().map_while(move |&asker| {
            if asker & OTHER == 0 {
                let addr = addrs.get((asker & POSITION_MASK) as usize)?;
                Some(LineRequest { line: addr >> HOT_LINE_SHIFT, asker })
            } else {
                others.next().copied()
            }
        })
    }
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
    /// Empties it and makes room for so many; [`List::end`] says how many there are.
    #[inline(always)]
    fn start(&mut self, count: usize) -> Appender<'_> {
        if self.room.len() < count {
            self.grow(count);
        }
        Appender { room: &mut self.room, len: 0 }
    }

    #[cold]
    fn grow(&mut self, count: usize) {
        self.room.resize(count.next_power_of_two(), 0);
    }

    fn end(&mut self, len: usize) {
        self.len = len;
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
    l2: Option<Level>,
    llc: Level,
    to_l2: List,
    to_llc: List,
    /// Requests that missed the level at work, less write-backs.
    missed: List,
    dram_writes: List,
    /// Nearly all requests of the last chunk hit the first level.
    mostly_hits: bool,
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

    /// Appends positions of data to their list, all others by `record`.
    fn record(
        self,
        missed: &[u64],
        only_data: bool,
        out: &mut Outcome,
        list: impl Fn(&mut Outcome) -> &mut Vec<u32>,
        record: impl Fn(Origin, &mut Outcome),
    ) {
        if only_data {
            let positions = missed.iter().map(|&asker| self.first_index + (asker as u32 & POSITION_MASK));
            list(out).extend(positions);
        } else {
            missed.iter().for_each(|&asker| record(self.of(asker as u32), out));
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
            l2: machine.l2.as_ref().map(level),
            llc: level(&machine.llc),
            to_l2: List::default(),
            to_llc: List::default(),
            missed: List::default(),
            dram_writes: List::default(),
            mostly_hits: false,
            line_shift,
        }
    }

    /// Takes the requests through the levels, and returns how many of them the first level took:
    /// less than all only if the regions overflowed. `only_data`: none is a fetch's or a walk's.
    #[inline(always)]
    pub(super) fn drain<K: Kernel>(
        &mut self,
        kernel: K,
        requests: &Requests,
        addrs: &[u64],
        only_data: bool,
        origins: Origins,
        out: &mut Outcome,
    ) -> usize {
        let Self { regions, l1d, l1i, l2, llc, to_l2, to_llc, missed, dram_writes, line_shift, .. } = self;
        let mostly_hits = self.mostly_hits;
        let first = FirstLevel { kernel, requests, addrs, mostly_hits, regions, l1i, to_l2, missed };
        let served = l1d.run(first);
        self.mostly_hits = missed.as_slice().len() * MOSTLY <= served;
        origins.record(missed.as_slice(), only_data, out, |out| &mut out.l1_misses, Origin::record_l1_miss);
        let to_llc = match l2 {
            Some(l2) => {
                l2.run(LowerLevel {
                    kernel,
                    requests: to_l2.as_slice(),
                    next: to_llc,
                    missed,
                    gives_reads: true,
                });
                origins.record(
                    missed.as_slice(),
                    only_data,
                    out,
                    |out| &mut out.l2_misses,
                    Origin::record_l2_miss,
                );
                &*to_llc
            }
            None => &*to_l2,
        };
        if to_llc.as_slice().is_empty() {
            return served;
        }
        let requests = to_llc.as_slice();
        llc.run(LowerLevel { kernel, requests, next: dram_writes, missed, gives_reads: false });
        origins.record(missed.as_slice(), only_data, out, |out| &mut out.llc_misses, Origin::record_llc_miss);
        let lines =
            dram_writes.as_slice().iter().map(|&victim| regions.expand(victim >> LINE_SHIFT) << *line_shift);
        out.dram_writes.extend(lines);
        served
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

/// The requests of accesses and walks to the first levels.
struct FirstLevel<'a, K> {
    kernel: K,
    requests: &'a Requests,
    addrs: &'a [u64],
    /// Whether a branch on hits is worth its mispredictions.
    mostly_hits: bool,
    regions: &'a mut Regions,
    l1i: &'a mut Level,
    to_l2: &'a mut List,
    missed: &'a mut List,
}

impl<K: Kernel> Loop for FirstLevel<'_, K> {
    /// How many were served.
    type Output = usize;

    #[inline(always)]
    fn run<S: SetArray>(self, mut l1d: View<S>) -> usize {
        let Self { kernel, requests, addrs, mostly_hits, regions, l1i, to_l2, missed } = self;
        // A request can leave a line and a write-back behind it.
        let mut next = to_l2.start(2 * requests.len());
        let mut missing = missed.start(requests.len());
        let mut served = 0;
        for LineRequest { line, asker } in requests.lines(addrs) {
            let Some(line) = regions.compact(line) else { break };
            served += 1;
            let first_dirty = asker >> FIRST_DIRTY_BIT & 1;
            let who = u64::from(asker) & ASKER_MASK;
            let (hit, victim, written) = if asker & FETCH == 0 {
                l1d.touch(kernel, line, 0, first_dirty)
            } else {
                (l1i.touch(line), 0, false)
            };
            if mostly_hits & hit {
                continue;
            }
            missing.push_if(who, !hit);
            next.push_if(line << LINE_SHIFT | who, !hit);
            next.push_if(victim << LINE_SHIFT | WRITE_BACK | who, written);
        }
        let (next, missing) = (next.len, missing.len);
        to_l2.end(next);
        missed.end(missing);
        served
    }
}

/// Requests to the second or the last level.
struct LowerLevel<'a, K> {
    kernel: K,
    requests: &'a [Request],
    /// Requests that missed, if `gives_reads`, and write-backs.
    next: &'a mut List,
    missed: &'a mut List,
    gives_reads: bool,
}

impl<K: Kernel> Loop for LowerLevel<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: SetArray>(self, mut level: View<S>) {
        let Self { kernel, requests, next, missed, gives_reads } = self;
        let mut lower = next.start(2 * requests.len());
        let mut missing = missed.start(requests.len());
        for (at, &request) in requests.iter().enumerate() {
            if let Some(ahead) = requests.get(at + AHEAD) {
                level.prefetch(ahead >> LINE_SHIFT);
            }
            let write_back = (request >> WRITE_BACK_SHIFT & 1) as u32;
            let (hit, victim, written) = level.touch(kernel, request >> LINE_SHIFT, write_back, 0);
            let is_read = !hit & (write_back == 0);
            missing.push_if(request & ASKER_MASK, is_read);
            if gives_reads {
                lower.push_if(request, is_read);
            }
            lower.push_if(victim << LINE_SHIFT | WRITE_BACK | request & ASKER_MASK, written);
        }
        let (lower, missing) = (lower.len, missing.len);
        next.end(lower);
        missed.end(missing);
    }
}
