//! Glances between ticks: they divide the processor time that the ticks measured.
//!
//! ```text
//!  tick ──┬────┬────┬──── tick      processor time between the two ticks: measured
//!         glances: times, code      of which each glance has the time since the one before
//! ```
//!
//! Times of glances are a wall clock's. If more of that went by than the thread ran, it slept or waited for a processor in the longest
//! gaps: these are cut to a common length, so that the rest is what it ran. Time in the kernel has no glances, and is a gap as well.
//! Of the gap before a tick in a system call no more than a period is the code's before the call: it would have had a glance.

use rustc_hash::FxHashMap;

use crate::address_space::Code;

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// At an instruction.
    Code(u64),
    /// In a system call.
    Waiting,
    /// At one in a loop that waits for other threads.
    Spinning(Code),
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    /// When it came.
    pub time_ns: u64,
    /// How long a thread that runs goes on until the next, in ns.
    pub period_ns: u64,
    /// Where the thread was.
    pub position: Position,
}

/// A thread's glances since its last tick.
#[derive(Debug, Default)]
struct OfThread {
    process: u32,
    /// When the last tick was over; 0: there was none.
    since_ns: u64,
    glances: Vec<Glance>,
    /// The period of those before it; 0: there were none.
    period_ns: u64,
}

/// The glances that wait for ticks, by thread.
#[derive(Debug, Default)]
pub struct Glances {
    threads: FxHashMap<u32, OfThread>,
}

/// The time between two ticks of a thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Divided {
    /// Processor time of a thread's begin, in ns, before it got to its code.
    pub begin_ns: f64,
    /// Processor time up to each glance, in ns, and where it was.
    pub glances: Vec<(f64, Position)>,
    /// Behind the last, in ns …
    pub last_ns: f64,
    /// … and how much of that its code may have had.
    pub most_behind_ns: f64,
}

impl Glances {
    /// Those of a thread of a process since its last tick, in the order of time.
    pub fn add(&mut self, (process, thread): (u32, u32), glances: Vec<Glance>) {
        if glances.is_empty() {
            return;
        }
        let of_thread = self.threads.entry(thread).or_default();
        of_thread.process = process;
        let since_ns = of_thread.since_ns;
        of_thread.glances.extend(glances.into_iter().filter(|glance| glance.time_ns > since_ns));
    }

    /// A tick of a thread came at `from_ns` and was over at `to_ns`, `ran_ns` of processor time behind the one before.
    pub fn divide(&mut self, thread: u32, (from_ns, to_ns): (u64, u64), ran_ns: f64) -> Divided {
        let Some(of_thread) = self.threads.get_mut(&thread) else {
            return Divided { last_ns: ran_ns, most_behind_ns: ran_ns, ..Divided::default() };
        };
        let mut glances = std::mem::take(&mut of_thread.glances);
        let since_ns = std::mem::replace(&mut of_thread.since_ns, to_ns);
        // The others were in the burst.
        glances.truncate(glances.partition_point(|glance| glance.time_ns < from_ns));
        let Some(&Glance { period_ns, .. }) = glances.first() else {
            // Code that ran for longer would have had one, as long as there are any.
            let most_behind_ns = match std::mem::take(&mut of_thread.period_ns) {
                0 => ran_ns,
                period_ns => period_ns as f64,
            };
            return Divided { last_ns: ran_ns, most_behind_ns, ..Divided::default() };
        };
        of_thread.period_ns = period_ns;
        // Before its first glance a thread that begins is in the kernel, but for a period.
        let is_first = since_ns == 0;
        let mut before_ns = if is_first { glances[0].time_ns.saturating_sub(period_ns) } else { since_ns };
        let times = glances.iter().map(|glance| glance.time_ns).chain([from_ns]);
        let mut gaps: Vec<f64> = times
            .map(|time_ns| time_ns.saturating_sub(std::mem::replace(&mut before_ns, time_ns)) as f64)
            .collect();
        let begin_ns = if is_first { (ran_ns - gaps.iter().sum::<f64>()).max(0.0) } else { 0.0 };
        cut_to(&mut gaps, ran_ns - begin_ns);
        let last_ns = gaps.pop().unwrap_or_default();
        Divided {
            begin_ns,
            glances: gaps.into_iter().zip(glances.iter().map(|glance| glance.position)).collect(),
            last_ns,
            most_behind_ns: period_ns as f64,
        }
    }

    /// A process has no further ticks.
    pub fn forget(&mut self, process: u32) {
        self.threads.retain(|_, of_thread| of_thread.process != process);
    }
}

/// Makes `sum` of the gaps' sum: the longest become equal, or, if there is too little, all are stretched.
fn cut_to(gaps: &mut [f64], sum: f64) {
    let mut rising = gaps.to_vec();
    rising.sort_unstable_by(f64::total_cmp);
    let mut left = sum;
    for (at, &gap) in rising.iter().enumerate() {
        let each = left / (rising.len() - at) as f64;
        if gap >= each {
            gaps.iter_mut().for_each(|gap| *gap = gap.min(each));
            return;
        }
        left -= gap;
    }
    let scale = sum / (sum - left);
    if scale.is_finite() {
        gaps.iter_mut().for_each(|gap| *gap *= scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Glances of thread 1 of process 9 at these ms, behind a tick that was over at 100 ms.
    fn glanced(at_ms: &[u64]) -> Glances {
        let mut glances = Glances::default();
        glances.add((9, 1), vec![glance(99, 0x500)]);
        assert_eq!(glances.divide(1, (100 * MS, 100 * MS), 1.0).glances.len(), 1);
        glances.add((9, 1), at_ms.iter().map(|&at| glance(at, 0x1000 * at)).collect());
        glances
    }

    fn glance(at_ms: u64, ip: u64) -> Glance {
        Glance { time_ns: at_ms * MS, period_ns: MS, position: Position::Code(ip) }
    }

    fn times(divided: &Divided) -> Vec<f64> {
        divided.glances.iter().map(|&(time_ns, _)| time_ns / MS as f64).collect()
    }

    #[test]
    fn each_glance_has_the_time_since_the_one_before() {
        let divided = glanced(&[101, 102, 104]).divide(1, (105 * MS, 105 * MS), 5e6);
        assert_eq!((times(&divided), divided.last_ns), (vec![1.0, 1.0, 2.0], 1e6));
        assert_eq!(divided.glances[2].1, Position::Code(0x1000 * 104));
        // The thread ran for more than the clock says that went by: the two clocks are not the same.
        let divided = glanced(&[101, 102]).divide(1, (103 * MS, 103 * MS), 6e6);
        assert_eq!((times(&divided), divided.last_ns), (vec![2.0, 2.0], 2e6));
    }

    #[test]
    fn a_thread_begins_in_the_kernel() {
        let mut glances = Glances::default();
        glances.add((9, 1), vec![glance(104, 0x1000), glance(105, 0x1000)]);
        // A program was loaded before it came to its own code.
        let divided = glances.divide(1, (106 * MS, 106 * MS), 7e6);
        assert_eq!((divided.begin_ns, times(&divided), divided.last_ns), (4e6, vec![1.0, 1.0], 1e6));
        glances.add((9, 1), vec![glance(107, 0x1000)]);
        assert_eq!(glances.divide(1, (108 * MS, 108 * MS), 3e6).begin_ns, 0.0);
    }

    #[test]
    fn a_thread_slept_in_its_longest_gaps() {
        // 4 ms of 24.
        let divided = glanced(&[101, 102, 123]).divide(1, (124 * MS, 124 * MS), 4e6);
        assert_eq!((times(&divided), divided.last_ns), (vec![1.0, 1.0, 1.0], 1e6));
        let divided = glanced(&[101, 111, 121]).divide(1, (122 * MS, 122 * MS), 6e6);
        assert_eq!((times(&divided), divided.last_ns), (vec![1.0, 2.0, 2.0], 1e6));
    }

    #[test]
    fn glances_in_a_burst_are_none_of_the_time_before_it() {
        let mut glances = glanced(&[101, 103, 104]);
        let divided = glances.divide(1, (102 * MS, 105 * MS), 2e6);
        assert_eq!((times(&divided), divided.last_ns), (vec![1.0], 1e6));
        // Nor of that behind it.
        glances.add((9, 1), vec![glance(104, 0x500)]);
        let divided = glances.divide(1, (106 * MS, 106 * MS), 1e6);
        assert_eq!((divided.glances.len(), divided.last_ns), (0, 1e6));
    }

    #[test]
    fn before_a_call_code_ran_for_a_period_at_most() {
        let mut glances = glanced(&[101]);
        let divided = glances.divide(1, (109 * MS, 109 * MS), 9e6);
        assert_eq!((divided.last_ns, divided.most_behind_ns), (8e6, 1e6));
        // All of the next tick's time as well; then nobody knows whether there are glances at all.
        assert_eq!(glances.divide(1, (119 * MS, 119 * MS), 1e7).most_behind_ns, 1e6);
        assert_eq!(glances.divide(1, (129 * MS, 129 * MS), 1e7).most_behind_ns, 1e7);
        // Of other threads there were none.
        assert_eq!(glances.divide(2, (129 * MS, 129 * MS), 1e7).most_behind_ns, 1e7);
    }

    #[test]
    fn what_a_process_had_is_forgotten_with_it() {
        let mut glances = glanced(&[101, 102]);
        glances.forget(9);
        assert!(glances.threads.is_empty());
    }
}
