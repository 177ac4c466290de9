//! The levels behind the first, which serve what it left in a queue.

use super::level::{Geometry, Level, Loop, SetArray, View};
use super::queue::{ASKER_MASK, Chunk, LINE_SHIFT, List, Queue, Request, WRITE_BACK, WRITE_BACK_SHIFT};
use super::regions::Uppers;
use crate::batch::Outcome;
use crate::machine::MachineDescription;
use crate::plain::Origin;
use crate::simd::{Kernel, SimdLevel, Task, dispatch};

/// How far ahead of its use a set is fetched, in queue entries.
const AHEAD: usize = 12;

/// The second and the last level.
#[derive(Clone, Debug)]
pub(crate) struct LowerLevels {
    pub(super) uppers: Uppers,
    pub(super) l2: Option<Level>,
    pub(super) llc: Level,
    to_llc: List,
    to_memory: List,
    line_shift: u32,
}

impl LowerLevels {
    pub(super) fn new(machine: &MachineDescription) -> Self {
        let line_shift = machine.line_bytes.trailing_zeros();
        Self {
            uppers: Uppers::new(line_shift),
            l2: machine.l2.as_ref().map(Level::of),
            llc: Level::of(&machine.llc),
            to_llc: List::default(),
            to_memory: List::default(),
            line_shift,
        }
    }

    /// Serves a queue.
    pub(crate) fn serve(&mut self, simd: SimdLevel, queue: &mut Queue, out: &mut Outcome) {
        if let Some(uppers) = queue.uppers.take() {
            self.uppers = uppers;
        }
        let mut begin = 0;
        for &Chunk { end, origins, only_data } in &queue.chunks {
            let missed = &queue.requests.as_slice()[begin..end];
            begin = end;
            if missed.is_empty() {
                continue;
            }
            origins.record(missed, only_data, out, |out| &mut out.l1_misses, Origin::record_l1_miss);
            let Self { uppers, l2, llc, to_llc, to_memory, line_shift } = self;
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
                continue;
            }
            dispatch(simd, LowerLevel { level: llc, requests: to_llc, next: to_memory });
            let missed = to_memory.as_slice();
            origins.record(missed, only_data, out, |out| &mut out.llc_misses, Origin::record_llc_miss);
            let victims = missed.iter().filter(|&request| request & WRITE_BACK != 0);
            let lines = victims.map(|&victim| uppers.expand(victim >> LINE_SHIFT) << *line_shift);
            out.dram_writes.extend(lines);
        }
    }

    /// Makes all lines clean.
    pub(super) fn clean(&mut self) {
        self.llc.clean();
        self.l2.iter_mut().for_each(Level::clean);
    }
}

/// Requests to one of them.
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
