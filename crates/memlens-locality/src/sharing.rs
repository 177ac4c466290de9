//! Lines that threads take from each other.
//!
//! A burst sees one thread. That others wrote its lines meanwhile, their own bursts say: what each thread did last with each line is
//! kept, and held against the bursts of the others around that time. No order of accesses is known, only how often they come:
//!
//! 1. **Chances.** An access can find its line gone if as much time went by since its thread had it last as a line takes to arrive:
//!    before, nobody can have taken it. So of accesses in quick succession one is a chance in that time, and
//!    the first of them.
//! 2. **Losses.** A chance becomes a miss if another thread wrote the line in between: at most as often as the others had
//!    chances of writing it, in the time that the burst took, as far as they were running then.
//! 3. **Time.** All misses together take no longer than the burst did natively, less what its accesses take at least. A program that does
//!    not wait for lines is too fast to have had these misses, whatever its threads write. That least is what cores can do, a third of a
//!    cycle an access: with more, a loop of loads and one counter that others write beside had no time left to wait.
//!
//! Threads that end hand their stacks on to others, at the same addresses: these two never run at the same time. Whose thread pointer is the
//! same as another's has its stack.
//!
//! In the same way a write is an invalidation if others had the line. A miss is false sharing if none of the bytes that are used up to
//! the next chance is among those that the others wrote.

use memlens_types::{AccessKind, parts_of_line};

use rustc_hash::FxHashMap;

use crate::burst::Reference;

/// Bursts of other threads farther away in time tell nothing, in ns, unless it is longer than this from burst to burst of theirs …
const NEAR_NS: u64 = 250_000_000;
/// … and at most this, in ns: where all processors are busy, bursts may be a second apart.
const FAR_NS: u64 = 4_000_000_000;
/// Threads whose last bursts are kept: those that had one last.
const MOST_THREADS: usize = 64;
/// Of so many lines it is known at once where what is known of them stands.
const RECENT_LINES: usize = 64;
/// Cycles that an access takes at least: cores do three a cycle (AMD, *Software Optimization Guide for the AMD Zen4
/// Microarchitecture*, 57647, on the load-store unit; Intel, *Optimization Reference Manual*, 248966, on Golden Cove).
const LEAST_CYCLES: f64 = 1.0 / 3.0;

/// When a burst was, and how fast.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// Its process: lines of others have other addresses.
    pub process: u32,
    /// Its thread.
    pub thread: u32,
    /// Where the thread's own data is: of two threads that have it at the same place one began when the other had ended. 0: not known.
    pub thread_pointer: u64,
    /// When it was reported, in ns.
    pub at_ns: u64,
    /// Native time of one of its accesses in ns.
    pub access_ns: f64,
    /// The part of the time around it in which its thread ran, 0 to 1.
    pub running: f64,
}

impl Timing {
    /// Whether the other one is of a thread that cannot run when this one does, though another of the process: its stack is
    /// this one's.
    fn replaces(&self, other: &Self) -> bool {
        self.process == other.process
            && self.thread != other.thread
            && self.thread_pointer != 0
            && self.thread_pointer == other.thread_pointer
    }
}

/// What an owner's accesses met, in accesses of the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shared {
    /// Misses of lines that another thread wrote since.
    pub coherence_misses: f64,
    /// Those of them whose bytes the others did not write.
    pub false_sharing: f64,
    /// Lines that others lost to a write.
    pub invalidations: f64,
}

/// What a thread did with a line in a burst.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    line: u64,
    /// The last chance, as an index of a reference.
    last: usize,
    /// Chances to find it gone, and those behind which it is written before the next.
    chances: u32,
    writes: u32,
    /// Whether the last one is among these.
    wrote: bool,
    /// Bytes written, a bit for each sixty-fourth of the line.
    written: u64,
}

/// A thread's last burst.
#[derive(Debug)]
struct Seen {
    timing: Timing,
    /// How far from it another thread's burst may be, in ns.
    near_ns: u64,
    /// How long it took natively.
    ns: f64,
    /// By line, rising.
    uses: Vec<Use>,
}

/// What others did with a line in the time of a burst.
#[derive(Clone, Copy, Debug, Default)]
struct Others {
    chances: f64,
    writes: f64,
    written: u64,
}

/// Estimates misses of lines that other threads took. Tell it of each burst twice: with [`Sharing::saw`] at once, and with
/// [`Sharing::feed`] as soon as its weight is known, which may be when others have been seen.
#[derive(Debug)]
pub struct Sharing {
    line_bytes: u64,
    /// Cycles until a line comes from another core.
    transfer_cycles: f64,
    /// By process the thread that has been its only one so far: nobody takes its lines. None: there are several.
    alone: FxHashMap<u32, Option<u32>>,
    seen: Vec<Seen>,
    owners: FxHashMap<u32, Shared>,
}

impl Sharing {
    /// For lines of so many bytes, which take so many cycles from core to core.
    pub fn new(line_bytes: u32, transfer_cycles: u32) -> Self {
        Self {
            line_bytes: u64::from(line_bytes.max(1)),
            transfer_cycles: f64::from(transfer_cycles.max(1)),
            alone: FxHashMap::default(),
            seen: Vec::new(),
            owners: FxHashMap::default(),
        }
    }

    /// A burst, in the order of time. Cost: some ns a reference, none as long as the process has one thread.
    pub fn saw(&mut self, timing: Timing, references: &[Reference], cycles_a_ns: f64) {
        let alone = self.alone.entry(timing.process).or_insert(Some(timing.thread));
        if *alone == Some(timing.thread) {
            return;
        }
        *alone = None;
        let mut by_line: ByLine<Use> = ByLine::default();
        let apart = self.references_apart(timing, cycles_a_ns);
        for (at, reference) in
            references.iter().enumerate().filter(|(_, reference)| is_access(reference.kind))
        {
            let (line, bytes) = self.parts(reference);
            let of_line = by_line.get(line, || Use { line, ..Use::default() });
            of_line.access(at, apart, reference.kind);
            if reference.kind.writes() {
                of_line.written |= bytes;
            }
        }
        let mut uses = by_line.values;
        uses.sort_unstable_by_key(|of_line| of_line.line);
        let is_its = |seen: &Seen| seen.timing.thread == timing.thread;
        let gap_ns = self
            .seen
            .iter()
            .position(is_its)
            .map_or(0, |at| self.seen.remove(at).timing.at_ns.abs_diff(timing.at_ns));
        // Who had its stack before has ended, and takes no lines any more.
        self.seen.retain(|seen| !timing.replaces(&seen.timing));
        // Of that time it slept in a part.
        let near_ns = ((gap_ns as f64 * timing.running) as u64).clamp(NEAR_NS, FAR_NS);
        if self.seen.len() >= MOST_THREADS {
            self.seen.remove(0);
        }
        self.seen.push(Seen { timing, near_ns, ns: references.len() as f64 * timing.access_ns, uses });
    }

    /// A burst of which each reference stands for `weight`.
    pub fn feed(&mut self, timing: Timing, references: &[Reference], cycles_a_ns: f64, weight: f64) {
        let near = |seen: &&Seen| {
            let Timing { process, thread, at_ns, .. } = seen.timing;
            process == timing.process
                && thread != timing.thread
                && !timing.replaces(&seen.timing)
                && at_ns.abs_diff(timing.at_ns) <= seen.near_ns
        };
        let others: Vec<&Seen> = self.seen.iter().filter(near).collect();
        if others.is_empty() || references.is_empty() {
            return;
        }
        let ns = references.len() as f64 * timing.access_ns;
        let apart = self.references_apart(timing, cycles_a_ns);
        // The chances, and what others did with their lines.
        let mut lines: ByLine<Present> = ByLine::default();
        let mut met: Vec<(&Reference, Met)> = Vec::new();
        for (at, reference) in
            references.iter().enumerate().filter(|(_, reference)| is_access(reference.kind))
        {
            let (line, bytes) = self.parts(reference);
            let present =
                lines.get(line, || Present { others: of_others(&others, line, ns), ..Present::default() });
            let what = present.of_line.access(at, apart, reference.kind);
            if what.is_chance {
                present.chance = met.len();
            }
            if what != Met::default() {
                met.push((reference, what));
            }
            met[present.chance].1.used |= bytes;
        }
        if lines.values.iter().all(|present| present.others.chances <= 0.0) {
            return;
        }
        let misses: f64 = lines.values.iter().map(Present::misses).sum();
        let spare = ns * cycles_a_ns - LEAST_CYCLES * references.len() as f64;
        let part = (spare / (misses * self.transfer_cycles).max(1.0)).clamp(0.0, 1.0);
        for (reference, what) in met {
            let (line, _) = self.parts(reference);
            let Present { of_line, others, .. } = lines.get(line, Present::default);
            if others.chances <= 0.0 {
                continue;
            }
            let owner = self.owners.entry(reference.owner).or_default();
            let of =
                |number: f64, chances: u32| weight * part * (number / f64::from(chances.max(1))).min(1.0);
            if what.is_chance {
                let misses = of(others.writes, of_line.chances);
                owner.coherence_misses += misses;
                if others.written & what.used == 0 {
                    owner.false_sharing += misses;
                }
            }
            if what.is_first_write {
                owner.invalidations += of(others.chances, of_line.writes);
            }
        }
    }

    /// What is known of an owner.
    pub fn of_owner(&self, owner: u32) -> Shared {
        self.owners.get(&owner).copied().unwrap_or_default()
    }

    fn parts(&self, reference: &Reference) -> (u64, u64) {
        parts_of_line(reference.address, reference.size, self.line_bytes)
    }

    /// References in the time that a line takes to arrive.
    fn references_apart(&self, timing: Timing, cycles_a_ns: f64) -> usize {
        (self.transfer_cycles / (timing.access_ns * cycles_a_ns)).round().max(1.0) as usize
    }
}

/// Something for each line that a burst uses. Bursts stay on a few lines for a while.
#[derive(Debug)]
struct ByLine<T> {
    values: Vec<T>,
    places: FxHashMap<u64, u32>,
    /// Lines that were asked for last, and their places: by the lines' lowest bits.
    recent: [(u64, u32); RECENT_LINES],
}

impl<T> Default for ByLine<T> {
    fn default() -> Self {
        // The last line of all is behind all memory of programs.
        Self { values: Vec::new(), places: FxHashMap::default(), recent: [(u64::MAX, 0); RECENT_LINES] }
    }
}

impl<T> ByLine<T> {
    #[inline]
    fn get(&mut self, line: u64, new: impl FnOnce() -> T) -> &mut T {
        let recent = &mut self.recent[line as usize % RECENT_LINES];
        if recent.0 != line {
            let place = *self.places.entry(line).or_insert_with(|| {
                self.values.push(new());
                self.values.len() as u32 - 1
            });
            *recent = (line, place);
        }
        &mut self.values[recent.1 as usize]
    }
}

impl Use {
    /// An access by the reference with this index, where a line arrives within the time of `apart` references.
    fn access(&mut self, at: usize, apart: usize, kind: AccessKind) -> Met {
        let is_chance = self.chances == 0 || at - self.last >= apart;
        if is_chance {
            (self.last, self.wrote) = (at, false);
            self.chances += 1;
        }
        let is_first_write = kind.writes() && !self.wrote;
        self.wrote |= is_first_write;
        self.writes += u32::from(is_first_write);
        Met { is_chance, is_first_write, used: 0 }
    }
}

/// What an access is to its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Met {
    /// The first access in a while.
    is_chance: bool,
    /// The first write since such a one.
    is_first_write: bool,
    /// Of a first access: which parts of the line are used up to the next.
    used: u64,
}

/// What is known of a line in a burst.
#[derive(Debug, Default)]
struct Present {
    of_line: Use,
    others: Others,
    /// Where the last chance stands in the list of them.
    chance: usize,
}

impl Present {
    /// How often it can have been gone, whatever time there was.
    fn misses(&self) -> f64 {
        self.others.writes.min(self.of_line.chances.into())
    }
}

/// What the others did with a line in so many ns.
fn of_others(others: &[&Seen], line: u64, ns: f64) -> Others {
    let mut sum = Others::default();
    for other in others {
        let Ok(at) = other.uses.binary_search_by_key(&line, |of_line| of_line.line) else { continue };
        let of_line = &other.uses[at];
        let times = ns / other.ns.max(1.0) * other.timing.running;
        sum.chances += f64::from(of_line.chances) * times;
        sum.writes += f64::from(of_line.writes) * times;
        sum.written |= of_line.written;
    }
    sum
}

fn is_access(kind: AccessKind) -> bool {
    !matches!(kind, AccessKind::Fetch | AccessKind::Prefetch)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cycles in which a line arrives, and cycles a ns.
    const TRANSFER: u32 = 50;
    const CYCLES_A_NS: f64 = 3.0;

    /// A burst of a thread that accesses one address again and again.
    fn burst(thread: u32, address: u64, kind: AccessKind) -> (Timing, Vec<Reference>) {
        let thread_pointer = 0x7000 + u64::from(thread);
        let timing = Timing {
            process: 1,
            thread,
            thread_pointer,
            at_ns: 1_000_000_000,
            access_ns: 10.0,
            running: 1.0,
        };
        (timing, vec![Reference { address, instruction: 0, owner: thread, size: 8, kind }; 1000])
    }

    /// What each of two threads, which are the owners 0 and 1, shares with the other.
    fn shared(bursts: [(Timing, Vec<Reference>); 2]) -> [Shared; 2] {
        let mut sharing = Sharing::new(64, TRANSFER);
        // Twice: nothing is kept of a thread before there is another one.
        for (timing, references) in bursts.iter().chain(&bursts) {
            sharing.saw(*timing, references, CYCLES_A_NS);
        }
        bursts.iter().for_each(|(timing, references)| sharing.feed(*timing, references, CYCLES_A_NS, 2.0));
        [sharing.of_owner(0), sharing.of_owner(1)]
    }

    #[test]
    fn threads_that_write_side_by_side_share_falsely() {
        // An access takes 30 cycles: each second one can find the line gone.
        let found = shared([burst(0, 0x1000, AccessKind::Modify), burst(1, 0x1008, AccessKind::Store)]);
        let all = Shared { coherence_misses: 1000.0, false_sharing: 1000.0, invalidations: 1000.0 };
        assert_eq!(found, [all; 2]);
        let found = shared([burst(0, 0x1000, AccessKind::Modify), burst(1, 0x1004, AccessKind::Store)]);
        assert_eq!(found, [Shared { false_sharing: 0.0, ..all }; 2]);
        let found = shared([burst(0, 0x1000, AccessKind::Modify), burst(1, 0x1040, AccessKind::Store)]);
        assert_eq!(found, [Shared::default(); 2]);
        // What misses is another word than the one that both write.
        let mut locks = burst(0, 0x1010, AccessKind::Load);
        let next = Reference { address: 0x1008, kind: AccessKind::Modify, ..locks.1[0] };
        locks.1 = locks.1.iter().flat_map(|&kind| [kind, next]).collect();
        locks.0.access_ns = 5.0;
        let [found, _] = shared([locks, burst(1, 0x1008, AccessKind::Store)]);
        assert!(found.coherence_misses > 0.0 && found.false_sharing == 0.0, "{found:?}");
    }

    #[test]
    fn who_reads_waits_for_who_writes() {
        let found = shared([burst(0, 0x1000, AccessKind::Load), burst(1, 0x1000, AccessKind::Store)]);
        let reader = Shared { coherence_misses: 1000.0, ..Shared::default() };
        assert_eq!(found, [reader, Shared { invalidations: 1000.0, ..Shared::default() }]);
        let found = shared([burst(0, 0x1000, AccessKind::Load), burst(1, 0x1000, AccessKind::Load)]);
        assert_eq!(found, [Shared::default(); 2]);
        // A tenth as many writes: not more misses than that.
        let mut writer = burst(1, 0x1000, AccessKind::Load);
        writer.1.iter_mut().step_by(10).for_each(|reference| reference.kind = AccessKind::Store);
        let [reader, _] = shared([burst(0, 0x1000, AccessKind::Load), writer]);
        assert!((reader.coherence_misses - 200.0).abs() < 1e-6, "{reader:?}");
    }

    #[test]
    fn a_burst_has_no_more_misses_than_time_for_them() {
        let mut bursts = [burst(0, 0x1000, AccessKind::Modify), burst(1, 0x1008, AccessKind::Modify)];
        bursts.iter_mut().for_each(|(timing, _)| timing.access_ns = 0.4);
        // 1200 cycles, of which the accesses take 333 at least: 17 misses.
        let [one, _] = shared(bursts);
        assert!((one.coherence_misses - 104.0 / 3.0).abs() < 1e-6, "{one:?}");
    }

    #[test]
    fn bursts_may_lie_as_far_apart_as_those_of_the_other_thread_do() {
        let modify = |thread, address, at_ms: u64| {
            let (timing, references) = burst(thread, address, AccessKind::Modify);
            (Timing { at_ns: at_ms * 1_000_000, ..timing }, references)
        };
        let found_behind = |others_ms: &[u64], at_ms: u64| {
            let mut sharing = Sharing::new(64, TRANSFER);
            for &other_ms in others_ms {
                for (timing, references) in [modify(0, 0x2000, other_ms), modify(1, 0x1008, other_ms)] {
                    sharing.saw(timing, &references, CYCLES_A_NS);
                }
            }
            let (timing, references) = modify(0, 0x1000, at_ms);
            sharing.feed(timing, &references, CYCLES_A_NS, 1.0);
            sharing.of_owner(0).coherence_misses > 0.0
        };
        assert!(found_behind(&[0, 10, 20], 270) && !found_behind(&[0, 10, 20], 271));
        assert!(found_behind(&[0, 1000, 2000], 3000) && !found_behind(&[0, 1000, 2000], 3001));
        assert!(!found_behind(&[0, 9000], 9000 + 4001));
    }

    #[test]
    fn threads_that_do_not_run_together_share_nothing() {
        let modify = |thread, address| burst(thread, address, AccessKind::Modify);
        let (mut one, mut other) = (modify(0, 0x1000), modify(1, 0x1008));
        other.0.at_ns += NEAR_NS + 1;
        assert_eq!(shared([one.clone(), other.clone()]), [Shared::default(); 2]);
        other.0.at_ns = one.0.at_ns;
        (one.0.process, other.0.running) = (2, 0.5);
        assert_eq!(shared([one.clone(), other.clone()]), [Shared::default(); 2]);
        one.0.process = 1;
        // The second one has the first one's stack, so that it began when that had ended.
        let successor = Timing { thread_pointer: one.0.thread_pointer, ..other.0 };
        assert_eq!(shared([one.clone(), (successor, other.1.clone())]), [Shared::default(); 2]);
        let found = shared([one, other]).map(|shared| shared.coherence_misses);
        assert_eq!(found, [500.0, 1000.0]);
    }
}
