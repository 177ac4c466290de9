//! What a line costs that another core has written.
//!
//! A thread on another core writes all lines of a [`Chain`], so that its cache alone has them, modified; then the lines are
//! followed on this core, each once (D. Molka, D. Hackenberg, R. Schöne, M. S. Müller, Memory Performance and Cache Coherency
//! Effects on an Intel Nehalem Multiprocessor System, PACT 2009, section IV).

use std::fs;
use std::hint;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::chain::Chain;
use crate::clock::{Latency, cycle_ns, least_and_spread};
use crate::mapping::{LINE, Pages};

/// Lines that are taken over at a time: few enough for the first level of caches.
const LINES: usize = 128;
/// How often.
const ROUNDS: usize = 256;
/// Other cores that are asked, of all there are.
pub(crate) const MOST_PARTNERS: usize = 8;
/// No answer for so long: the other thread does not get to run.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Cycles until a line comes that another core has written, of at most so many cores that share the last level with this one the middle
/// one; `None`: there is no other core to be had.
pub(crate) fn measure(partners: usize, patience: Duration) -> io::Result<Option<Latency>> {
    let cpus = Cpus::allowed()?;
    let Some((here, others)) = cpus.partners(partners, &topology) else { return Ok(None) };
    // The first one that does not get to run ends it: the machine is busy, and each would be waited for.
    let mut all: Vec<Latency> = others
        .into_iter()
        .map_while(|other| between(here, other, patience).transpose())
        .collect::<io::Result<_>>()?;
    all.sort_by(|one, other| one.cycles.total_cmp(&other.cycles));
    Ok(all.get(all.len() / 2).copied())
}

/// Processors that this thread may run on.
pub(crate) struct Cpus(pub(crate) Vec<usize>);

/// What a processor shares with others: lists of them, as the kernel writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Topology {
    core: String,
    last_level: String,
}

/// That of a processor (the kernel's Documentation/ABI/stable/sysfs-devices-system-cpu).
fn topology(cpu: usize) -> Topology {
    let read = |file: &str| fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/{file}")).ok();
    let core = read("topology/thread_siblings_list").unwrap_or_else(|| cpu.to_string());
    let levels = (0..8).map_while(|index| read(&format!("cache/index{index}/shared_cpu_list")));
    Topology { core, last_level: levels.last().unwrap_or_default() }
}

impl Cpus {
    pub(crate) fn allowed() -> io::Result<Self> {
        let set = sched_getaffinity(None)?;
        Ok(Self((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()))
    }

    /// The first one and such as are of other cores below the same last level.
    fn partners(&self, most: usize, topology: &dyn Fn(usize) -> Topology) -> Option<(usize, Vec<usize>)> {
        let (&here, others) = self.0.split_first()?;
        let own = topology(here);
        let is_partner = |&cpu: &usize| {
            let other = topology(cpu);
            other.core != own.core && other.last_level == own.last_level
        };
        let others: Vec<usize> = others.iter().copied().filter(is_partner).collect();
        let apart = others.len().div_ceil(most).max(1);
        let some: Vec<usize> = others.into_iter().step_by(apart).collect();
        (!some.is_empty()).then_some((here, some))
    }
}

/// Whose turn it is, and when it is over. Even: the one that reads.
struct Turns {
    turn: AtomicU32,
    /// After which nobody is waited for any more.
    patience: Duration,
}

impl Turns {
    const OVER: u32 = u32::MAX;

    /// The writer's.
    fn new(patience: Duration) -> Self {
        Self { turn: AtomicU32::new(1), patience }
    }

    /// Waits for a turn; false: it is over, or nobody came.
    fn wait(&self, is_reader: bool) -> bool {
        let start = Instant::now();
        loop {
            for _ in 0..1024 {
                match self.turn.load(Ordering::Acquire) {
                    Self::OVER => return false,
                    turn if turn.is_multiple_of(2) == is_reader => return true,
                    _ => hint::spin_loop(),
                }
            }
            if start.elapsed() > self.patience {
                self.end();
                return false;
            }
            thread::yield_now();
        }
    }

    fn pass(&self) {
        // Over stays over.
        let next = |turn| (turn != Self::OVER).then(|| turn + 1);
        let _ = self.turn.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    fn end(&self) {
        self.turn.store(Self::OVER, Ordering::Release);
    }
}

/// From one processor to another; `None`: one of them cannot be had.
fn between(here: usize, other: usize, patience: Duration) -> io::Result<Option<Latency>> {
    // Two lines apart: prefetchers bring neighbours in pairs.
    let offsets: Vec<usize> = (0..LINES).map(|line| 2 * line * LINE).collect();
    let chain = Chain::new(2 * LINES * LINE, &offsets, Pages::Small)?;
    let turns = Turns::new(patience);
    let mut found = thread::scope(|scope| {
        let writer = thread::Builder::new().spawn_scoped(scope, || {
            if bind_to(other).is_err() {
                turns.end();
            }
            while turns.wait(false) {
                chain.write();
                turns.pass();
            }
        });
        // A thread of its own, too: the caller stays where it was.
        let reader = thread::Builder::new().spawn_scoped(scope, || {
            let mut found = Vec::with_capacity(ROUNDS);
            if bind_to(here).is_err() {
                turns.end();
            }
            let cycle_ns = cycle_ns();
            while found.len() < ROUNDS && turns.wait(true) {
                let start = Instant::now();
                chain.read(LINES);
                found.push(start.elapsed().as_nanos() as f64 / LINES as f64 / cycle_ns);
                turns.pass();
            }
            turns.end();
            found
        });
        // Where there is no room for one more thread, nobody is measured.
        let Ok(reader) = reader else {
            turns.end();
            return Vec::new();
        };
        if writer.is_err() {
            turns.end();
        }
        reader.join().unwrap_or_default()
    });
    let (cycles, spread) = match found.len() {
        ROUNDS => least_and_spread(&mut found),
        _ => return Ok(None),
    };
    Ok(Some(Latency { cycles, spread }))
}

/// The calling thread stays on one processor.
pub(crate) fn bind_to(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partners(cpus: usize, of: impl Fn(usize) -> (usize, usize)) -> Option<(usize, Vec<usize>)> {
        let topology = |cpu| {
            let (core, last_level) = of(cpu);
            Topology { core: core.to_string(), last_level: last_level.to_string() }
        };
        Cpus((0..cpus).collect()).partners(MOST_PARTNERS, &topology)
    }

    #[test]
    fn partners_are_other_cores_below_the_same_last_level() {
        assert_eq!(partners(1, |cpu| (cpu, 0)), None);
        assert_eq!(partners(2, |_| (0, 0)), None, "two threads of one core");
        assert_eq!(partners(4, |cpu| (cpu / 2, 0)), Some((0, vec![2, 3])));
        assert_eq!(partners(4, |cpu| (cpu, cpu / 2)), Some((0, vec![1])));
        // Of 31 every fourth.
        let (_, some) = partners(32, |cpu| (cpu, 0)).expect("others");
        assert_eq!(some, [1, 5, 9, 13, 17, 21, 25, 29]);
    }

    #[test]
    fn a_turn_that_nobody_passes_ends_all() {
        let turns = Turns::new(Duration::from_millis(50));
        assert!(turns.wait(false));
        turns.pass();
        assert!(turns.wait(true));
        assert!(!turns.wait(false), "after the patience");
        assert!(!turns.wait(true));
        turns.pass();
        assert!(!turns.wait(true));
    }

    #[test]
    fn another_cores_line_takes_longer_than_the_first_levels() {
        match measure(MOST_PARTNERS, PATIENCE).expect("memory") {
            // Of any processor: a first-level hit takes 5 at most.
            Some(transfer) => assert!(transfer.cycles > 10.0, "{transfer:?}"),
            None => eprintln!("passed over: no other core"),
        }
    }
}
