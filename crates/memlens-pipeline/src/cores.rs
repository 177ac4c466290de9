//! Which core of the modelled machine a thread runs on.

use memlens_sim::CoreId;

/// A core that nobody used for so many accesses of all threads is idle.
const IDLE_ACCESSES: u64 = 100_000;

/// Where threads run. A thread keeps its core, whose caches have its data, unless another one uses that, too, while some other core is
/// idle: then it goes there, as a scheduler would let it. A new thread begins on the core that follows the one before.
#[derive(Debug)]
pub struct Cores {
    /// By core: who used it last, and how many accesses there were when that was.
    last: Vec<Option<(usize, u64)>>,
    /// By thread.
    of_thread: Vec<usize>,
}

impl Cores {
    /// So many, all idle.
    pub fn new(count: u16) -> Self {
        Self { last: vec![None; usize::from(count.max(1))], of_thread: Vec::new() }
    }

    /// Where a thread runs.
    pub fn of(&self, thread: usize) -> CoreId {
        CoreId(self.of_thread.get(thread).copied().unwrap_or(0) as u16)
    }

    /// Another thread takes its turn, when there were so many accesses; `before`: the one that had it until now. Where it runs.
    pub fn change(&mut self, before: Option<usize>, thread: usize, accesses: u64) -> CoreId {
        if let Some(before) = before {
            let core = usize::from(self.of(before).0);
            self.last[core] = Some((before, accesses));
        }
        let count = self.last.len();
        while self.of_thread.len() <= thread {
            self.of_thread.push(self.of_thread.len() % count);
        }
        let is_busy = |core: usize| {
            self.last[core].is_some_and(|(user, then)| user != thread && accesses - then < IDLE_ACCESSES)
        };
        let own = self.of_thread[thread];
        if is_busy(own)
            && let Some(idle) = (0..count).find(|&core| !is_busy(core))
        {
            self.of_thread[thread] = idle;
        }
        let core = self.of(thread);
        self.last[usize::from(core.0)] = Some((thread, accesses));
        core
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_run_at_the_same_time_have_cores_of_their_own() {
        let mut cores = Cores::new(2);
        assert_eq!(cores.change(None, 0, 0), CoreId(0));
        // The first thread waits for the others: 1, a short one, and 2.
        assert_eq!(cores.change(Some(0), 1, 1000), CoreId(1));
        assert_eq!(cores.change(Some(1), 2, 200_000), CoreId(0));
        assert_eq!(cores.change(Some(2), 3, 200_500), CoreId(1));
        assert_eq!(cores.change(Some(3), 2, 201_000), CoreId(0));
        // Thread 1 comes back: no core is idle, and it stays where it was.
        assert_eq!(cores.change(Some(2), 1, 201_500), CoreId(1));
        assert_eq!(cores.change(Some(1), 3, 202_000), CoreId(1));
        // With 1 for a neighbour, thread 3 goes to the core that 2 has left.
        assert_eq!(cores.change(Some(3), 1, 400_000), CoreId(0));
        assert_eq!((cores.of(1), cores.of(3)), (CoreId(0), CoreId(1)));
    }

    #[test]
    fn one_core_is_enough_for_all() {
        let mut cores = Cores::new(1);
        for thread in 0..5_usize {
            assert_eq!(cores.change(thread.checked_sub(1), thread, thread as u64), CoreId(0));
        }
    }
}
