//! How much of the time threads run: those that wait for a processor, or for each other, take no lines.

use rustc_hash::FxHashMap;

/// Of each thread: processor time since its last burst, in ns, and when that was, if it had one.
#[derive(Debug, Default)]
pub struct Running(FxHashMap<u32, (u64, Option<u64>)>);

impl Running {
    /// A thread had so much processor time.
    pub fn ran(&mut self, thread: u32, ns: u64) {
        self.0.entry(thread).or_default().0 += ns;
    }

    /// The part of the time since its last burst in which a thread ran, 0 to 1; it has its next burst at `at_ns`. Of the first burst
    /// that is not known: all of it.
    pub fn part(&mut self, thread: u32, at_ns: u64) -> f64 {
        let (ran_ns, before) = self.0.insert(thread, (0, Some(at_ns))).unwrap_or_default();
        match before {
            Some(before) if at_ns > before => (ran_ns as f64 / (at_ns - before) as f64).min(1.0),
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_runs_for_a_part_of_the_time() {
        let mut running = Running::default();
        running.ran(1, 500);
        assert_eq!(running.part(1, 1000), 1.0);
        running.ran(1, 300);
        running.ran(2, 900);
        running.ran(1, 200);
        assert_eq!(running.part(1, 2000), 0.5);
        assert_eq!(running.part(1, 3000), 0.0);
    }
}
