//! The first-level caches: what they are asked for, and what they ask the others for.

use super::level::{Geometry, Level, Loop, SetArray, View};
use super::queue::{Asker, DATA, FETCH, LINE_SHIFT, List, Queue, WALK, WRITE_BACK};
use super::regions::{Regions, Uppers};
use super::translation::{CHUNK, HOT_LINE_SHIFT, WalkEvent};
use crate::machine::MachineDescription;
use crate::simd::{Kernel, SimdLevel, Task, Touch, dispatch};
use alloc::boxed::Box;
use core::ops::Range;
use memlens_types::AccessAttr;

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

    /// Everything that is asked for, in order: what [`Serve`] goes through.
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

/// L1D and L1I.
#[derive(Clone, Debug)]
pub(super) struct FirstLevels {
    regions: Regions,
    pub(super) l1d: Level,
    pub(super) l1i: Level,
    /// Positions that missed, and the words whose places they took.
    missed: Box<[(u32, u32); CHUNK]>,
}

impl FirstLevels {
    /// `modulus`: see [`Regions`].
    pub(super) fn new(machine: &MachineDescription, modulus: u64) -> Self {
        let line_shift = machine.line_bytes.trailing_zeros();
        let caches = [Some(&machine.l1i), Some(&machine.l1d), machine.l2.as_ref(), Some(&machine.llc)];
        let limits = caches.iter().flatten().map(|cache| Regions::limit_for(cache.sets(), line_shift));
        let limit = limits.min().unwrap_or(0).min(Regions::limit_of_bits(64 - LINE_SHIFT, line_shift));
        Self {
            regions: Regions::new(line_shift, modulus, limit),
            l1d: Level::of(&machine.l1d),
            l1i: Level::of(&machine.l1i),
            missed: Box::new([(0, 0); CHUNK]),
        }
    }

    /// Takes references. If the regions overflow, the answer is how many requests of [`Run::requests`] were served.
    pub(super) fn run(&mut self, simd: SimdLevel, run: Run<'_>, queue: &mut Queue) -> Result<(), usize> {
        dispatch(simd, Ask { caches: self, work: Work::Run(run), queue: &mut queue.requests })
    }

    /// As [`Self::run`], for requests one by one.
    pub(super) fn requests(
        &mut self,
        simd: SimdLevel,
        requests: &[LineRequest],
        queue: &mut Queue,
    ) -> Result<(), usize> {
        dispatch(simd, Ask { caches: self, work: Work::Requests(requests), queue: &mut queue.requests })
    }

    pub(super) fn regions(&mut self) -> &mut Regions {
        &mut self.regions
    }

    /// What the lines are called.
    pub(super) fn uppers(&self) -> &Uppers {
        self.regions.uppers()
    }

    /// Makes all lines clean.
    pub(super) fn clean(&mut self) {
        self.l1d.clean();
        self.l1i.clean();
    }
}

enum Work<'a> {
    Run(Run<'a>),
    Requests(&'a [LineRequest]),
}

struct Ask<'a> {
    caches: &'a mut FirstLevels,
    work: Work<'a>,
    queue: &'a mut List,
}

impl Task for Ask<'_> {
    type Output = Result<(), usize>;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> Self::Output {
        let Self { caches: FirstLevels { regions, l1d, l1i, missed }, work, queue } = self;
        l1d.run(Serve { kernel, work, regions, l1i, queue, missed })
    }
}

/// The requests of accesses and walks to the first levels.
struct Serve<'a, K> {
    kernel: K,
    work: Work<'a>,
    regions: &'a mut Regions,
    l1i: &'a mut Level,
    queue: &'a mut List,
    missed: &'a mut [(u32, u32); CHUNK],
}

impl<K: Kernel> Loop for Serve<'_, K> {
    type Output = Result<(), usize>;

    #[inline(always)]
    fn run<S: SetArray, G: Geometry>(mut self, mut l1d: View<S, G>) -> Result<(), usize> {
        match self.work {
            Work::Run(run) => self.references(&mut l1d, run),
            Work::Requests(requests) => {
                let served = self.requests(&mut l1d, requests.iter().copied());
                if served < requests.len() { Err(served) } else { Ok(()) }
            }
        }
    }
}

impl<K: Kernel> Serve<'_, K> {
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
        let Self { kernel, ref mut regions, ref mut queue, ref mut missed, .. } = *self;
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
        let mut next = queue.free(2 * len);
        for &(at, word) in &missed[..len] {
            // It was found before.
            let Some(line) = regions.compact_byte(addrs[at as usize], HOT_LINE_SHIFT) else { break };
            let (victim, written) = l1d.victim(line, word);
            next.push_if(line << LINE_SHIFT | u64::from(DATA | at), true);
            next.push_if(victim << LINE_SHIFT | WRITE_BACK | u64::from(DATA | at), written);
        }
        let filled = next.len;
        queue.take(filled);
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
            let mut next = self.queue.free(2);
            next.push_if(line << LINE_SHIFT | u64::from(asker), !hit);
            next.push_if(victim << LINE_SHIFT | WRITE_BACK | u64::from(asker), written);
            let next = next.len;
            self.queue.take(next);
        }
        served
    }
}
