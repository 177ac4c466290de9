//! How fast a running process gets on: executions of its detours in a stretch of its processor time.
//!
//! A process's time says nothing by itself: it goes on whatever is done. So detours count, with prefetches and without,
//! and a stretch's *price* is its processor time over the executions in it; where there are several detours, those of each
//! weigh as much as its share of what the program waits.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use memlens_agent_host::check_attachable;

/// Processor time of a stretch …
const STRETCH: Duration = Duration::from_millis(20);
/// … unless the process does so little that it would take longer.
const LONGEST: Duration = Duration::from_millis(250);
/// A process that did less in that time tells nothing.
const LEAST: Duration = Duration::from_millis(1);
/// Between two looks at its clock: at least a tick of most kernels apart.
const LOOK: Duration = Duration::from_millis(4);

/// A stretch of a process's time.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// Processor time, in seconds.
    pub cpu: f64,
    /// Executions of each detour.
    pub counts: Vec<u64>,
}

impl Stretch {
    /// Processor time for a unit of progress, each detour's executions weighted; None: it made none.
    pub fn price(&self, weights: &[f64]) -> Option<f64> {
        let progress: f64 =
            self.counts.iter().zip(weights).map(|(&count, weight)| count as f64 * weight).sum();
        (progress > 0.0).then(|| self.cpu / progress)
    }
}

/// What one execution of each detour counts for: its share, over how often it runs in a second. `shares` of what the program
/// waits.
pub fn weights<'a>(stretches: impl IntoIterator<Item = &'a Stretch>, shares: &[f64]) -> Vec<f64> {
    let (mut counts, mut cpu) = (vec![0_u64; shares.len()], 0.0);
    for stretch in stretches {
        cpu += stretch.cpu;
        counts.iter_mut().zip(&stretch.counts).for_each(|(sum, count)| *sum += count);
    }
    let weigh = |(share, count): (&f64, u64)| if count > 0 { share * cpu / count as f64 } else { 0.0 };
    shares.iter().zip(counts).map(weigh).collect()
}

/// The clock of a process: processor time of all of its threads (clock_getcpuclockid(3)).
#[derive(Clone, Copy, Debug)]
pub struct ProcessClock {
    pid: u32,
    clock: libc::clockid_t,
}

impl ProcessClock {
    pub fn of(pid: u32) -> io::Result<Self> {
        let mut clock = 0;
        // SAFETY: writes the clock's number.
        match unsafe { libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock) } {
            0 => Ok(Self { pid, clock }),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// None: the process has ended.
    fn now(self) -> Option<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes the time.
        let result = unsafe { libc::clock_gettime(self.clock, &raw mut time) };
        (result == 0).then(|| Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32))
    }

    /// Lets the process run for a stretch. None: it has ended.
    pub fn stretch(self, count: impl Fn() -> Vec<u64>) -> Option<Stretch> {
        let (begun, before) = (Instant::now(), count());
        let start = self.now()?;
        let cpu = loop {
            thread::sleep(LOOK);
            let cpu = self.now()?.saturating_sub(start);
            if cpu >= STRETCH || begun.elapsed() >= LONGEST {
                break cpu;
            }
        };
        // One that its parent has not asked for yet has a clock, too.
        if cpu < LEAST && check_attachable(self.pid).is_err_and(|error| error.is_gone()) {
            return None;
        }
        let counts = count().iter().zip(before).map(|(after, before)| after.wrapping_sub(before)).collect();
        Some(Stretch { cpu: cpu.as_secs_f64(), counts })
    }
}

impl Stretch {
    /// Whether the process did enough to tell anything.
    pub fn tells(&self) -> bool {
        self.cpu >= LEAST.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_counts_each_detour_by_its_share() {
        let stretch = |cpu: f64, counts: [u64; 2]| Stretch { cpu, counts: counts.to_vec() };
        let stretches = [stretch(1.0, [100, 1000]), stretch(1.0, [300, 1000])];
        // 200 and 1000 a second.
        let weights = weights(&stretches, &[0.6, 0.4]);
        assert!((weights[0] - 0.003).abs() < 1e-12 && (weights[1] - 0.0004).abs() < 1e-12, "{weights:?}");
        assert!((stretches[0].price(&weights).expect("progress") - 1.0 / 0.7).abs() < 1e-9);
        assert_eq!(stretch(1.0, [0, 0]).price(&weights), None);
        assert_eq!(super::weights(&[stretch(1.0, [0, 5])], &[0.5, 0.5])[0], 0.0, "one that never ran");
    }

    #[test]
    fn a_process_has_a_clock_as_long_as_it_lives() {
        let own = ProcessClock::of(std::process::id()).expect("a clock");
        let before = own.now().expect("alive");
        let begun = Instant::now();
        let mut sum = 0_u64;
        while begun.elapsed() < Duration::from_millis(30) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(own.now().expect("alive") > before);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("started");
        let clock = ProcessClock::of(child.id()).expect("a clock");
        // Its start.
        clock.stretch(Vec::new).expect("alive");
        let idle = clock.stretch(|| vec![7]).expect("alive");
        assert!(!idle.tells() && idle.counts == [0], "{idle:?}");
        child.kill().expect("killed");
        assert!(clock.stretch(Vec::new).is_none(), "a zombie");
        child.wait().expect("ended");
        assert!(clock.stretch(Vec::new).is_none());
    }
}
