//! Bursts that wait for the next one of their thread: only then it is known what they stand for.
//!
//! ```text
//!  … ───── burst ─────────────┊───────────── burst ───── …
//!               └─ its half ──┘└─ its half ──┘
//! ```
//!
//! Where in the time between two bursts the program went from what the one saw to what the other saw, nobody knows: at its
//! middle, on average, whatever that time's length depends on. It does: a burst where memory is slow or code new costs more, so that the
//! next comes later. If all of that time were the later one's, a short phase behind a slow one would count for many times what it is.

use memlens_locality::Reference;

/// Most threads whose last bursts wait, some MB each.
const MOST: usize = 64;

/// A burst of which is known how much it stands for up to its end.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Its process …
    pub pid: u32,
    /// … and its thread.
    pub thread: u32,
    /// When it began, in cycles.
    pub start: u64,
    /// Accesses for which it stands so far.
    pub weight: f64,
    /// Accesses since the burst before.
    pub unseen_before: f64,
    /// Accesses that were only counted behind it.
    pub counted: f64,
    /// Native time of an access in ns.
    pub access_ns: f64,
    /// What it saw.
    pub references: Vec<Reference>,
}

impl Waiting {
    /// Shares the processor time between the burst before and this one out to both: half of it stands for accesses as fast as
    /// the one's, half for such as the other's. All of it is a thread's first burst's.
    pub fn share(&mut self, period_ns: f64, before: Option<&mut Self>) {
        let accesses = |burst: &Self, part: f64| part * period_ns / burst.access_ns;
        let Some(before) = before else {
            self.unseen_before = accesses(self, 1.0);
            self.weight += self.unseen_before;
            return;
        };
        let (behind, ahead) = (accesses(before, 0.5), accesses(self, 0.5));
        before.weight += behind;
        self.weight += ahead;
        self.unseen_before = before.counted + behind + ahead;
    }
}

/// Each thread's last burst, the one that came first at the front.
#[derive(Debug, Default)]
pub struct WaitingBursts(Vec<Waiting>);

impl WaitingBursts {
    /// The last burst of a thread.
    pub fn take(&mut self, thread: u32) -> Option<Waiting> {
        let at = self.0.iter().position(|waiting| waiting.thread == thread)?;
        Some(self.0.remove(at))
    }

    /// The last bursts of a process, or of all.
    pub fn take_all(&mut self, pid: Option<u32>) -> impl Iterator<Item = Waiting> {
        self.0.extract_if(.., move |waiting| pid.is_none_or(|pid| waiting.pid == pid))
    }

    /// Lets one wait. Another one that has to go for it has waited longest.
    pub fn add(&mut self, waiting: Waiting) -> Option<Waiting> {
        let first = (self.0.len() == MOST).then(|| self.0.remove(0));
        self.0.push(waiting);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_two_bursts_is_half_the_ones_and_half_the_others() {
        let mut slow = Waiting { weight: 100.0, counted: 30.0, access_ns: 50.0, ..Waiting::default() };
        slow.share(1000.0, None);
        assert_eq!((slow.weight, slow.unseen_before), (120.0, 20.0));
        let mut fast = Waiting { weight: 200.0, counted: 40.0, access_ns: 0.5, ..Waiting::default() };
        fast.share(10_000.0, Some(&mut slow));
        assert_eq!((slow.weight, fast.weight), (220.0, 10_200.0));
        assert_eq!(fast.unseen_before, 30.0 + 100.0 + 10_000.0);
    }

    #[test]
    fn the_one_that_waited_longest_makes_room() {
        let mut bursts = WaitingBursts::default();
        let one = |thread: u32| Waiting { pid: thread % 2, thread, ..Waiting::default() };
        assert!((0..MOST as u32).all(|thread| bursts.add(one(thread)).is_none()));
        // Thread 0 has another burst.
        assert!(bursts.take(0).is_some() && bursts.take(0).is_none());
        assert!(bursts.add(one(0)).is_none());
        assert_eq!(bursts.add(one(1000)).map(|first| first.thread), Some(1));
        assert_eq!(bursts.take_all(Some(1)).count(), MOST / 2 - 1);
        assert_eq!(bursts.take_all(None).count(), MOST / 2 + 1);
    }
}
