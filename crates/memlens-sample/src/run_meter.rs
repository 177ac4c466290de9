//! How long the target's threads ran, and how often they were put on a processor.

use std::fs;

use rustc_hash::FxHashMap;

use crate::collector::threads_of;

/// What a thread, or all, did. From `/proc/PID/task/TID/schedstat`
/// (Documentation/scheduler/sched-stats.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Nanoseconds on a processor.
    pub nanoseconds: u64,
    /// Times it was put on one.
    pub times: u64,
}

/// Looks at the threads from time to time.
#[derive(Clone, Debug, Default)]
pub struct RunMeter {
    last: FxHashMap<u32, Ran>,
}

impl RunMeter {
    /// What the threads of these processes did since the last call; those that have ended meanwhile are
    /// not among them. Cost: a file a thread.
    pub fn look(&mut self, processes: impl Iterator<Item = u32>) -> Ran {
        let mut now = FxHashMap::default();
        let mut sum = Ran::default();
        for pid in processes {
            for tid in threads_of(pid).unwrap_or_default() {
                let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat"));
                let Some(ran) = text.ok().as_deref().and_then(ran_of) else { continue };
                let before = self.last.get(&tid).copied().unwrap_or_default();
                sum.nanoseconds += ran.nanoseconds.saturating_sub(before.nanoseconds);
                sum.times += ran.times.saturating_sub(before.times);
                now.insert(tid, ran);
            }
        }
        self.last = now;
        sum
    }
}

/// `1234 56 7`: on a processor, waiting for one, times.
fn ran_of(text: &str) -> Option<Ran> {
    let mut words = text.split_whitespace();
    let nanoseconds = words.next()?.parse().ok()?;
    let times = words.nth(1)?.parse().ok()?;
    Some(Ran { nanoseconds, times })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line() {
        assert_eq!(ran_of("1234 56 7\n"), Some(Ran { nanoseconds: 1234, times: 7 }));
        assert_eq!(ran_of("1234\n"), None);
    }

    #[test]
    fn a_thread_that_sleeps_is_put_on_a_processor_again() {
        let mut meter = RunMeter::default();
        let us = || std::iter::once(std::process::id());
        if meter.look(us()) == Ran::default() {
            eprintln!("passed over: the kernel keeps no statistics (CONFIG_SCHED_INFO)");
            return;
        }
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let ran = meter.look(us());
        assert!(ran.times >= 20, "{ran:?}");
    }
}
