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
//!
//! A tick in a system call is met in the same way, and has its halves of the time on both sides; in them are no accesses.
//!
//! A burst that a system call ended lacks what comes behind the call. If it stood for as much as others, what a program does just before
//! its calls would count for too much: every burst that begins anywhere before a call has that, however little else it saw. It keeps
//! the part that its length has of the usual length around it, so that an access counts as much as in bursts that went on; the rest
//! goes to the thread's next burst, in the place of what would have followed.

use memlens_locality::Reference;
use rustc_hash::FxHashSet;

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
    /// Accesses behind those, up to a tick in a system call.
    pub until_call: f64,
    /// Native time of an access in ns.
    pub access_ns: f64,
    /// Whether code ended it that bursts leave alone.
    pub is_cut: bool,
    /// Usual length of the thread's bursts up to this one, in accesses.
    pub usual_length: f64,
    /// What it saw.
    pub references: Vec<Reference>,
}

/// What a burst's length counts in the usual length: one in so many.
const LENGTHS: f64 = 4.0;

impl Waiting {
    /// Accesses that it stands for by itself: what it saw and what was counted behind it.
    fn own(&self) -> f64 {
        self.references.len() as f64 + self.counted
    }

    /// Takes away what the next burst shall stand for instead.
    fn pass_on(&mut self) -> f64 {
        let kept =
            if self.is_cut { (self.references.len() as f64 / self.usual_length).min(1.0) } else { 1.0 };
        let passed_on = (1.0 - kept) * (self.weight - self.own()).max(0.0);
        self.weight -= passed_on;
        passed_on
    }

    /// Accesses as fast as this one's in half of a time.
    fn in_half(&self, period_ns: f64) -> f64 {
        0.5 * period_ns / self.access_ns
    }
}

/// Each thread's last burst, the one that came first at the front.
#[derive(Debug, Default)]
pub struct WaitingBursts {
    bursts: Vec<Waiting>,
    /// Threads whose last tick came in a system call.
    in_call: FxHashSet<u32>,
    /// Processor time in system calls, in ns.
    calls_ns: f64,
}

impl WaitingBursts {
    /// A thread's next burst, `period_ns` of processor time behind its tick before: half of that time stands for accesses as
    /// fast as this burst's, half for such as the burst's before, or for none if that tick came in a system call. All of it is
    /// this burst's where there was no tick before. Given back is the burst before, of which everything is known now.
    pub fn next(&mut self, burst: &mut Waiting, period_ns: f64) -> Option<Waiting> {
        let at = self.bursts.iter().position(|waiting| waiting.thread == burst.thread);
        let mut before = at.map(|at| self.bursts.remove(at));
        let mut ahead = burst.in_half(period_ns);
        burst.unseen_before = 0.0;
        if self.in_call.remove(&burst.thread) {
            self.calls_ns += 0.5 * period_ns;
        } else if let Some(before) = &mut before {
            let behind = before.in_half(period_ns);
            before.weight += behind;
            burst.unseen_before = behind;
        } else {
            ahead *= 2.0;
        }
        burst.usual_length = burst.references.len() as f64;
        if let Some(before) = &mut before {
            burst.unseen_before += before.counted + before.until_call;
            burst.weight += before.pass_on();
            burst.usual_length = before.usual_length + (burst.usual_length - before.usual_length) / LENGTHS;
        }
        burst.weight += ahead;
        burst.unseen_before += ahead;
        before
    }

    /// A tick of a thread in a system call, `period_ns` of processor time behind the one before: half of that time is the
    /// call's, or all if there was no burst before.
    pub fn in_call(&mut self, thread: u32, period_ns: f64) {
        let is_first = self.in_call.insert(thread);
        let before = self.bursts.iter_mut().find(|waiting| waiting.thread == thread && is_first);
        self.calls_ns += match before {
            Some(before) => {
                before.until_call = before.in_half(period_ns);
                before.weight += before.until_call;
                0.5 * period_ns
            }
            None => period_ns,
        };
    }

    /// Processor time in system calls, in ns.
    pub fn calls_ns(&self) -> f64 {
        self.calls_ns
    }

    /// The last bursts of a process, or of all.
    pub fn take_all(&mut self, pid: Option<u32>) -> impl Iterator<Item = Waiting> {
        self.bursts.extract_if(.., move |waiting| pid.is_none_or(|pid| waiting.pid == pid))
    }

    /// Lets one wait. Another one that has to go for it has waited longest.
    pub fn add(&mut self, waiting: Waiting) -> Option<Waiting> {
        let first = (self.bursts.len() == MOST).then(|| self.bursts.remove(0));
        self.bursts.push(waiting);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_types::AccessKind;

    #[test]
    fn the_time_between_two_bursts_is_half_the_ones_and_half_the_others() {
        let mut bursts = WaitingBursts::default();
        let mut slow = slow();
        assert!(bursts.next(&mut slow, 1000.0).is_none());
        assert_eq!((slow.weight, slow.unseen_before), (120.0, 20.0));
        bursts.add(slow);
        let mut fast = fast();
        let slow = bursts.next(&mut fast, 10_000.0).expect("the one before");
        assert_eq!((slow.weight, fast.weight), (220.0, 10_200.0));
        assert_eq!(fast.unseen_before, 30.0 + 100.0 + 10_000.0);
        assert_eq!(bursts.calls_ns(), 0.0);
    }

    #[test]
    fn what_is_half_a_system_calls_is_no_bursts() {
        let mut bursts = WaitingBursts::default();
        // Nothing is known of what came before; another thread's calls are its own.
        bursts.in_call(1, 5000.0);
        bursts.in_call(2, 100.0);
        let mut slow = slow();
        assert!(bursts.next(&mut slow, 1000.0).is_none());
        assert_eq!((slow.weight, slow.unseen_before), (110.0, 10.0));
        assert_eq!(bursts.calls_ns(), 5000.0 + 100.0 + 500.0);
        bursts.add(slow);
        bursts.in_call(1, 2000.0);
        bursts.in_call(1, 700.0);
        let mut fast = fast();
        let slow = bursts.next(&mut fast, 10_000.0).expect("the one before");
        assert_eq!((slow.weight, fast.weight), (130.0, 10_200.0));
        assert_eq!(fast.unseen_before, 30.0 + 20.0 + 10_000.0);
        assert_eq!(bursts.calls_ns(), 5600.0 + 1000.0 + 700.0 + 5000.0);
    }

    #[test]
    fn what_comes_before_a_system_call_counts_no_more_than_the_rest() {
        let reference = Reference { address: 0, instruction: 0, owner: 0, size: 8, kind: AccessKind::Load };
        let burst = |length: usize, is_cut| Waiting {
            weight: length as f64,
            access_ns: 1.0,
            is_cut,
            references: vec![reference; length],
            ..Waiting::default()
        };
        let mut bursts = WaitingBursts::default();
        let mut weights = Vec::new();
        let all =
            [burst(1000, false), burst(100, true), burst(1000, false), burst(1000, true), burst(1000, false)];
        for mut burst in all {
            weights.extend(bursts.next(&mut burst, 10_000.0).map(|before| before.weight));
            bursts.add(burst);
        }
        weights.extend(bursts.take_all(None).map(|last| last.weight));
        // Usually 775 and 873 long by then: the second keeps 129 thousandths of the time around it, the fourth all.
        let kept = 10_000.0 * 100.0 / 775.0;
        let expected = [16_000.0, 100.0 + kept, 11_000.0 + 10_000.0 - kept, 11_000.0, 6000.0];
        assert!(
            weights.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6),
            "{weights:?}"
        );
    }

    /// A thread's bursts.
    fn slow() -> Waiting {
        Waiting { thread: 1, weight: 100.0, counted: 30.0, access_ns: 50.0, ..Waiting::default() }
    }

    fn fast() -> Waiting {
        Waiting { thread: 1, weight: 200.0, counted: 40.0, access_ns: 0.5, ..Waiting::default() }
    }

    #[test]
    fn the_one_that_waited_longest_makes_room() {
        let mut bursts = WaitingBursts::default();
        let one = |thread: u32| Waiting { pid: thread % 2, thread, access_ns: 1.0, ..Waiting::default() };
        assert!((0..MOST as u32).all(|thread| bursts.add(one(thread)).is_none()));
        // Thread 0 has another burst.
        let mut next = one(0);
        assert!(bursts.next(&mut next, 1.0).is_some() && bursts.next(&mut next, 1.0).is_none());
        assert!(bursts.add(next).is_none());
        assert_eq!(bursts.add(one(1000)).map(|first| first.thread), Some(1));
        assert_eq!(bursts.take_all(Some(1)).count(), MOST / 2 - 1);
        assert_eq!(bursts.take_all(None).count(), MOST / 2 + 1);
    }
}
