//! Glances: where threads are, by the kernel's clock, more often than the agent's timers can come.
//!
//! The agent's timers come with the kernel's tick, every 4 ms where that comes 250 times a second. What bursts stand for is then
//! known to some ms: too coarse for a program of half a second whose phases take 10 ms. The kernel's clock event has a timer of its own.
//! So at the begin of a recording, where the kernel allows it, glances tell which code the time between the agent's
//! ticks belongs to (`bursts/glances.rs`). The rest does without: what a tick more or less is worth falls with the length of the
//! run. That is beside the budget.
//!
//! What the interrupt of such a timer costs is measured before the program starts: 3 µs, and 16 µs on a virtual machine, where perl lost 40 µs by
//! each and a program of 6 MB at random 80, with what it drives out of caches and TLBs. There are as many as that leaves room for
//! ([`period_ns`]).
//!
//! An event costs at each switch of threads and with each new one, too. Programs that do that often have no glances.
//!
//! Where prompts come as well ([`crate::prompts`]) they tell the same of the first thread. While that is alone the events rest: one interrupt
//! instead of two.

use std::time::{Duration, Instant};

use crate::collector::Collector;
use crate::event::SampleEvent;
use crate::record::{Record, Sample, TimedRecord};
use crate::run_meter::RunMeter;
use crate::sample_cost::measure_interrupt_cost;

/// How much of all threads' time has glances, in ns.
pub const ALL_NS: u64 = 750_000_000;
/// From one to the next, of a thread's time, in ns: at least …
const SHORTEST_NS: f64 = 1e6;
/// … and at most: the agent's timers come each 4 ms or more often.
const LONGEST_NS: f64 = 3.3e6;
/// Part of a thread's time that their interrupts may take: with caches and TLBs it is two to five times as much.
const PART: f64 = 0.005;
/// What one is taken to cost where that cannot be measured: as on virtual machines.
const USUAL_COST: Duration = Duration::from_micros(16);
/// Of that they may take so many times as much where they would else be further apart than is of use.
const MOST_PARTS: f64 = 4.0;
/// Nor is there any when this has passed: a process that does nothing has its events no longer.
pub const LONGEST: Duration = Duration::from_secs(10);
/// With this part of the program's time for bursts, the default of `--overhead`; with more or less it is more or less.
const USUAL_SHARE: f64 = 0.01;
/// Between two looks at how often threads are switched.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// More switches than this in a second of the program's time are too many: at 2 µs each, 0.2 % of it.
const MANY_SWITCHES: f64 = 1000.0;
/// More threads and processes that began than this are too many.
const MANY_BEGUN: u64 = 200;

/// How far glances, and prompts ([`crate::prompts`]), lie apart, in ns of a thread's time; None: there are none. `share`: what part of
/// the program's time bursts may take. Cost: 4 ms, 12 at most.
pub fn period_ns(share: f64) -> Option<u64> {
    if share <= 0.0 {
        return None;
    }
    // A busy machine may not tell; one that allows no such events has no glances whatever is said here.
    period_at(share, measure_interrupt_cost().unwrap_or(USUAL_COST))
}

fn period_at(share: f64, cost: Duration) -> Option<u64> {
    let part = PART * share / USUAL_SHARE;
    let period_ns = cost.as_nanos() as f64 / part;
    (period_ns <= MOST_PARTS * LONGEST_NS).then_some(period_ns.clamp(SHORTEST_NS, LONGEST_NS) as u64)
}

/// A process that starts others does so at its begin, mostly; those that begin while the events rest have none until the next look.
const ALONE_FOR: Duration = Duration::from_millis(50);

/// Where glances come from.
#[derive(Debug)]
pub struct Glances {
    /// None: there are no more.
    collector: Option<Collector>,
    /// Whether its events rest.
    is_resting: bool,
    runs: RunMeter,
    began: Instant,
    next_look: Instant,
    taken: u64,
    /// So many are enough, in all threads.
    most: u64,
    /// Threads and processes.
    begun: u64,
}

impl Glances {
    /// None yet, if the kernel allows any, this often ([`period_ns`]).
    pub fn new(period_ns: Option<u64>) -> Self {
        let event = period_ns.map(|each| Collector::new(SampleEvent::bare_time(1_000_000_000 / each.max(1))));
        let collector =
            event.and_then(|opened| opened.inspect_err(|error| tracing::debug!(%error, "no glances")).ok());
        let began = Instant::now();
        Self {
            collector,
            is_resting: false,
            runs: RunMeter::default(),
            began,
            next_look: began + LOOK_EVERY,
            taken: 0,
            most: ALL_NS / period_ns.unwrap_or(ALL_NS).max(1),
            begun: 0,
        }
    }

    /// Of a process that has not yet executed its program.
    pub fn watch_program(&mut self, pid: u32) {
        self.watch(|collector| collector.watch_program(pid));
    }

    /// Of a process that runs.
    pub fn watch_process(&mut self, pid: u32) {
        // What it did before is not ours.
        self.runs.look([pid].into_iter());
        self.watch(|collector| collector.watch_process(pid, |_, _| {}));
    }

    fn watch(&mut self, watch: impl FnOnce(&mut Collector) -> std::io::Result<()>) {
        if let Some(collector) = &mut self.collector
            && let Err(error) = watch(collector)
        {
            tracing::debug!(%error, "no glances");
            self.collector = None;
        }
    }

    /// The events rest as long as somebody else tells of all threads, by [`Self::add`]. `are_told`: whether that is so now.
    pub fn rest(&mut self, are_told: bool) {
        let Some(collector) = &mut self.collector else { return };
        let rests = are_told && self.begun == 0 && self.began.elapsed() >= ALONE_FOR;
        if rests != self.is_resting {
            tracing::debug!(rests, "glances rest");
            collector.pause(rests);
            self.is_resting = rests;
        }
    }

    /// One that somebody else took: handed on where the events rest.
    pub fn add(&mut self, record: TimedRecord, mut sink: impl FnMut(TimedRecord)) {
        if self.is_resting
            && let Record::Sample(sample) = record.record
        {
            self.taken += 1;
            sink(glance(record.time_ns, &sample));
        }
    }

    /// Whether there are no more.
    pub fn are_over(&self) -> bool {
        self.collector.is_none()
    }

    /// Hands on what has come; ends it where it is enough, or costs too much. `all`: there will be no more.
    pub fn drain(&mut self, all: bool, mut sink: impl FnMut(TimedRecord)) {
        let Some(collector) = &mut self.collector else { return };
        let now = Instant::now();
        let mut is_over = all
            || self.taken >= self.most
            || self.begun > MANY_BEGUN
            || now.duration_since(self.began) > LONGEST;
        if !is_over && now >= self.next_look {
            self.next_look = now + LOOK_EVERY;
            let ran = self.runs.look(collector.processes());
            let seconds = (ran.nanoseconds as f64 / 1e9).max(LOOK_EVERY.as_secs_f64());
            is_over = ran.times as f64 > MANY_SWITCHES * seconds;
        }
        if is_over {
            collector.disable();
        }
        let Self { taken, begun, .. } = self;
        collector.drain(true, |TimedRecord { time_ns, record }| match record {
            Record::Sample(sample) => {
                *taken += 1;
                sink(glance(time_ns, &sample));
            }
            Record::Fork { .. } => *begun += 1,
            _ => {}
        });
        if is_over {
            tracing::debug!(taken, begun, "glances are over");
            self.collector = None;
        }
    }
}

fn glance(time_ns: u64, sample: &Sample) -> TimedRecord {
    let &Sample { pid, tid, period: period_ns, ip, .. } = sample;
    TimedRecord { time_ns, record: Record::Glance { pid, tid, period_ns, ip } }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// A script under way, until the test ends, however that does.
    struct Shell(Child);

    impl Shell {
        fn new(script: &str) -> Self {
            Self(Command::new("sh").args(["-c", script]).spawn().expect("a shell"))
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            // It may have ended.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_that_computes_is_glanced_at_until_it_is_enough() {
        let mut glances = Glances::new(Some(1_000_000));
        if glances.collector.is_none() {
            eprintln!("passed over: the kernel allows no events");
            return;
        }
        let script = "i=0; while :; do i=$((i+1)); done";
        let child = Shell::new(script);
        let pid = child.0.id();
        glances.watch_process(pid);
        let mut found = Vec::new();
        // A busy machine may leave it little time.
        for _ in 0..600 {
            std::thread::sleep(Duration::from_millis(50));
            glances.drain(false, |record| found.push(record));
            if glances.collector.is_none() {
                break;
            }
        }
        drop(child);
        assert!(glances.collector.is_none() && !found.is_empty(), "{}", found.len());
        let is_its = |record: &TimedRecord| matches!(record.record, Record::Glance { pid: of, tid, period_ns: 1_000_000, .. } if (of, tid) == (pid, pid));
        assert!(found.iter().all(is_its) && found.is_sorted_by_key(|record| record.time_ns));
    }

    #[test]
    fn events_rest_while_somebody_else_tells() {
        let mut glances = Glances::new(Some(1_000_000));
        let child = Shell::new("while :; do :; done");
        let pid = child.0.id();
        glances.watch_process(pid);
        let told = |glances: &mut Glances| {
            let mut found = Vec::new();
            let sample = Sample { pid, tid: pid, ip: 7, period: 5, ..Sample::default() };
            let record = TimedRecord { time_ns: 9, record: Record::Sample(Box::new(sample)) };
            glances.add(record.clone(), |record| found.push(record));
            found == [glance(9, &Sample { pid, tid: pid, ip: 7, period: 5, ..Sample::default() })]
        };
        std::thread::sleep(ALONE_FOR);
        assert!(!told(&mut glances));
        if glances.are_over() {
            eprintln!("passed over: the kernel allows no events");
        } else {
            glances.rest(true);
            assert!(told(&mut glances));
            glances.drain(false, |_| {});
            // What came before is handed on 50 ms later.
            std::thread::sleep(3 * ALONE_FOR);
            glances.drain(false, |_| {});
            std::thread::sleep(3 * ALONE_FOR);
            glances.drain(false, |record| panic!("{record:?} of one that rests"));
            glances.rest(false);
            let mut count = 0;
            for _ in 0..600 {
                std::thread::sleep(ALONE_FOR);
                glances.drain(false, |_| count += 1);
                if count > 0 || glances.are_over() {
                    break;
                }
            }
            if count == 0 && glances.are_over() {
                eprintln!("passed over: on so busy a machine they end by themselves");
            } else {
                assert!(count > 0 && !told(&mut glances));
            }
        }
    }

    #[test]
    fn without_time_to_spend_there_are_none() {
        let mut glances = Glances::new(period_ns(0.0));
        glances.watch_process(std::process::id());
        glances.drain(true, |record| panic!("{record:?}"));
        assert_eq!(glances.taken, 0);
    }

    #[test]
    fn there_are_as_many_as_their_interrupts_leave_room_for() {
        let cost = Duration::from_micros;
        assert_eq!(period_at(0.01, cost(3)), Some(1_000_000));
        assert_eq!(period_at(0.01, cost(16)), Some(3_200_000));
        assert_eq!(period_at(0.02, cost(16)), Some(1_600_000));
        assert_eq!(period_at(0.5, cost(16)), Some(1_000_000));
        // Fewer would be of no use.
        assert_eq!(period_at(0.01, cost(66)), Some(3_300_000));
        assert_eq!(period_at(0.01, cost(67)), None);
        assert_eq!(period_at(0.0005, cost(3)), Some(3_300_000));
        assert_eq!(period_at(0.0004, cost(3)), None);
    }
}
