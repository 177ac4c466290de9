//! Keeps bursts within their budget where memlens's own work takes processor time from the program, and where it cannot keep up.
//!
//! The agent sees to it that bursts cost no more of a thread's time than it is told ([`memlens_events::agent::Control`]), by a price that it has
//! to guess: it does not know what the program would have taken natively for what it did meanwhile. Code that hits the first level
//! takes twice as long in counted stretches as by itself, which is more than it takes off. Here it is known, so the agent is told
//! as much less. What memlens makes of bursts takes several times as much. Where a processor is idle, that costs the program nothing; where none is, as in a
//! container with one processor or beside a program with a thread on each, it is paid for from the same budget:
//!
//! ```text
//! budget = share that the agent is told × (the bursts' cost + memlens's own time × contention) ÷ what the agent takes for the cost
//! ```
//!
//! memlens's own time is that of reading bursts: all else that it does, as naming objects and writing the profile, is no less with fewer of them. And
//! so much of it is free as [`free_seconds`] says: a program of a second would have next to no bursts else, and a profile of nothing, for a
//! price that is a part of a second in any case.
//!
//! And who makes more bursts than one thread of memlens can read pays for bursts that are lost.

use std::time::{Duration, Instant};

use crate::bursts::BurstCounts;
use crate::contention::ContentionMeter;
use crate::process::own_cpu_seconds;

/// The first look comes early, because programs have most of their bursts at the begin, and each next one after twice as long …
const FIRST_LOOK: Duration = Duration::from_millis(40);
/// … up to this.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Fewer bursts say too little about what one costs: the look waits for more …
const FEWEST_BURSTS: u64 = 8;
/// … up to so many times as long.
const MOST_LOOKS: u32 = 4;
/// The part of the budget that bursts have left at least: a profile of nothing would be no use.
const LEAST_PART: f64 = 1.0 / 64.0;
/// Below this part of the budget bursts are few.
const FEW: f64 = 0.25;
/// How fast the share grows again, from look to look.
const GROWTH: f64 = 2.0;
/// Changes smaller than this are not made.
const WORTHWHILE: f64 = 1.1;

/// What happened between two looks.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    /// What bursts cost the program, in seconds.
    cost_seconds: f64,
    /// What the agent takes for that.
    paid_seconds: f64,
    /// What memlens took to read them, of its own processor time.
    own_seconds: f64,
    /// So much of that is free.
    free_seconds: f64,
    /// From 0, a processor was idle, or memlens's, all the time, to 1, none was.
    contention: f64,
    /// Bursts that were read, and that were lost for want of room.
    taken: u64,
    lost: u64,
}

impl Interval {
    /// What the agent has to be told for bursts to cost a budget, if memlens's own work cost nothing.
    fn without_own(&self, budget: f64) -> f64 {
        (budget * self.paid_seconds / self.cost_seconds).min(budget)
    }
}

/// The share of the program's time that bursts may take.
#[derive(Debug)]
pub struct BurstPacing {
    budget: f64,
    share: f64,
    /// The least part of the budget that was left by memlens's own work, or of which bursts could be read.
    least_part: f64,
    contention: ContentionMeter,
    next: Instant,
    /// From one look to the next.
    look_every: Duration,
    started: Instant,
    last: Instant,
    own_cpu_seconds: f64,
    read_ns: u64,
    cost_ns: u64,
    paid_ns: u64,
    taken: u64,
    lost: u64,
}

impl BurstPacing {
    /// Begins now, with all of the budget: a part of the program's time, 0 to 1.
    pub fn start(budget: f64) -> Self {
        let now = Instant::now();
        Self {
            budget,
            share: budget,
            least_part: 1.0,
            contention: ContentionMeter::start(),
            next: now + FIRST_LOOK,
            look_every: FIRST_LOOK,
            started: now,
            last: now,
            own_cpu_seconds: own_cpu_seconds(),
            read_ns: 0,
            cost_ns: 0,
            paid_ns: 0,
            taken: 0,
            lost: 0,
        }
    }

    /// The share to go on with, if it should be another one. `lost`: bursts for which there was no room, so far.
    pub fn look(&mut self, counts: &BurstCounts, lost: u64) -> Option<f64> {
        // All of the program's time was asked for: there is nothing to keep to.
        let now = Instant::now();
        if self.budget >= 1.0 || now < self.next {
            return None;
        }
        let are_few = counts.bursts + lost < self.taken + self.lost + FEWEST_BURSTS;
        if are_few && now < self.next + (MOST_LOOKS - 1) * self.look_every {
            return None;
        }
        self.look_every = (2 * self.look_every).min(LOOK_EVERY);
        self.next = now + self.look_every;
        let own_cpu_seconds = own_cpu_seconds();
        let free_seconds = |at: Instant| free_seconds(at.duration_since(self.started));
        let interval = Interval {
            cost_seconds: counts.cost_ns.saturating_sub(self.cost_ns) as f64 / 1e9,
            paid_seconds: counts.paid_ns.saturating_sub(self.paid_ns) as f64 / 1e9,
            own_seconds: counts.read_ns.saturating_sub(self.read_ns) as f64 / 1e9,
            free_seconds: free_seconds(now) - free_seconds(self.last),
            contention: self.contention.look(own_cpu_seconds - self.own_cpu_seconds),
            taken: counts.bursts.saturating_sub(self.taken),
            lost: lost.saturating_sub(self.lost),
        };
        (self.last, self.own_cpu_seconds) = (now, own_cpu_seconds);
        (self.read_ns, self.cost_ns, self.paid_ns) = (counts.read_ns, counts.cost_ns, counts.paid_ns);
        (self.taken, self.lost) = (counts.bursts, lost);
        let wanted = next_share(self.budget, self.share, &interval);
        tracing::debug!(?interval, self.share, wanted, "bursts paced");
        let ratio = wanted / self.share;
        if (WORTHWHILE.recip()..=WORTHWHILE).contains(&ratio) {
            return None;
        }
        // How fast it grows again is another matter.
        if wanted < self.share {
            self.least_part = self.least_part.min(wanted / interval.without_own(self.budget));
        }
        self.share = wanted;
        Some(wanted)
    }

    /// Whether bursts were made so much rarer that all numbers suffer from it.
    pub fn left_few(&self) -> bool {
        self.least_part < FEW
    }

    /// What a reader of the profile has to know.
    pub fn note(&self) -> Option<String> {
        (self.least_part < 1.0 / WORTHWHILE).then(|| {
            format!(
                "Bursts were made rarer, down to {:.2} % of the program's time instead of {:.2} %: no processor was idle, so that \
                 memlens's own work was paid for from the same budget, or it could not keep up; --overhead sets the budget.",
                100.0 * self.least_part * self.budget,
                100.0 * self.budget
            )
        })
    }
}

/// How much of its own time memlens has had for nothing when it has recorded for so long: about as much in each doubling of the time. 0.09 s
/// of the first second, 0.17 of the first ten, 0.23 of the first minute.
fn free_seconds(since: Duration) -> f64 {
    const A_DOUBLING: f64 = 0.025;
    const FROM: f64 = 0.1;
    A_DOUBLING * (1.0 + since.as_secs_f64() / FROM).log2()
}

fn next_share(budget: f64, present: f64, interval: &Interval) -> f64 {
    let bursts = interval.taken + interval.lost;
    if interval.cost_seconds <= 0.0 || interval.paid_seconds <= 0.0 {
        return present;
    }
    let own_seconds =
        (interval.own_seconds - interval.free_seconds).max(0.0) * interval.contention.clamp(0.0, 1.0);
    let affordable = budget * interval.paid_seconds / (interval.cost_seconds + own_seconds);
    let readable = match interval.lost {
        0 => present * GROWTH,
        _ => present * interval.taken as f64 / bursts as f64,
    };
    affordable.min(readable).clamp(budget * LEAST_PART, budget)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 30 ms of bursts, for which memlens worked 150 ms.
    const USUAL: Interval = Interval {
        cost_seconds: 0.03,
        paid_seconds: 0.03,
        own_seconds: 0.15,
        free_seconds: 0.0,
        contention: 0.0,
        taken: 20,
        lost: 0,
    };

    fn close(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    #[test]
    fn memlenss_own_time_counts_where_it_takes_some_from_the_program() {
        assert!(close(next_share(0.03, 0.03, &USUAL), 0.03));
        let busy = |contention| Interval { contention, ..USUAL };
        // 1 ÷ (1 + 5).
        assert!(close(next_share(0.03, 0.03, &busy(1.0)), 0.005));
        assert!(close(next_share(0.03, 0.03, &busy(0.2)), 0.015));
        let much = Interval { own_seconds: 3.0, ..busy(1.0) };
        assert!(close(next_share(0.03, 0.03, &much), 0.03 / 64.0), "never less than that");
        // And back, not at once.
        assert!(close(next_share(0.03, 0.005, &USUAL), 0.01));
        // The first of it is free.
        let partly = |free_seconds| Interval { free_seconds, ..busy(1.0) };
        assert!(close(next_share(0.03, 0.03, &partly(0.12)), 0.015));
        assert!(close(next_share(0.03, 0.03, &partly(0.2)), 0.03));
    }

    #[test]
    fn little_of_its_own_time_is_free_in_the_long_run() {
        let part = |seconds| free_seconds(Duration::from_secs_f64(seconds)) / seconds;
        assert!((0.2..0.3).contains(&part(0.1)) && (0.08..0.09).contains(&part(1.0)));
        assert!(part(10.0) < 0.02 && part(60.0) < 0.004 && free_seconds(Duration::ZERO) == 0.0);
    }

    #[test]
    fn who_pays_too_little_may_do_less() {
        let dear = Interval { paid_seconds: 0.02, ..USUAL };
        assert!(close(next_share(0.03, 0.03, &dear), 0.02));
        assert!(close(next_share(0.03, 0.02, &Interval { contention: 1.0, ..dear }), 0.03 * 0.02 / 0.18));
        // That memlens paid too little before is no reason to say that it has no processor.
        assert!(close(dear.without_own(0.03), 0.02) && close(USUAL.without_own(0.03), 0.03));
        // What waits for memory costs less than the agent takes it to.
        let cheap = Interval { paid_seconds: 0.06, ..USUAL };
        assert!(close(next_share(0.03, 0.03, &cheap), 0.03) && close(cheap.without_own(0.03), 0.03));
    }

    #[test]
    fn a_little_less_is_not_few() {
        let least = |least_part| BurstPacing { least_part, ..BurstPacing::start(0.03) };
        assert!(least(0.07).left_few() && !least(0.3).left_few() && !least(1.0).left_few());
        assert!(least(1.0).note().is_none() && least(0.95).note().is_none());
        assert!(
            least(1.0 / 15.0)
                .note()
                .is_some_and(|note| note.contains("0.20 % of the program's time instead of 3.00 %"))
        );
    }

    #[test]
    fn bursts_that_nobody_can_read_are_not_made() {
        let half = Interval { taken: 20, lost: 20, ..USUAL };
        assert!(close(next_share(0.03, 0.03, &half), 0.015));
    }

    #[test]
    fn a_look_waits_for_enough_bursts() {
        let mut pacing = BurstPacing::start(0.03);
        pacing.next = Instant::now();
        let counts =
            |bursts| BurstCounts { bursts, cost_ns: 1_000_000, paid_ns: 1_000_000, ..BurstCounts::default() };
        assert_eq!(pacing.look(&counts(3), 4), None, "too few to tell");
        assert_eq!(pacing.taken, 0);
        // Not for ever.
        let mut long = BurstPacing { next: pacing.next - 3 * FIRST_LOOK, ..BurstPacing::start(0.03) };
        assert!(long.look(&counts(3), 4).is_some_and(|share| share < 0.015), "{long:?}");
        // Half of these were lost.
        let wanted = pacing.look(&counts(8), 8);
        assert!(wanted.is_some_and(|share| share <= 0.015), "{wanted:?}");
        assert_eq!((pacing.taken, pacing.lost, pacing.look_every), (8, 8, 2 * FIRST_LOOK));
    }

    #[test]
    fn dear_bursts_are_no_lack_of_a_processor() {
        let mut pacing = BurstPacing::start(0.03);
        let mut look = |bursts, cost_ns, paid_ns| {
            pacing.next = Instant::now();
            pacing.look(&BurstCounts { bursts, cost_ns, paid_ns, ..BurstCounts::default() }, 0)
        };
        assert!(look(10, 1_000_000_000, 100_000_000).is_some_and(|share| share < 0.004), "they pay a tenth");
        assert!(
            look(20, 2_000_000_000, 1_100_000_000).is_some_and(|share| share < 0.01),
            "all again, not at once"
        );
        assert!(pacing.note().is_none() && !pacing.left_few(), "{pacing:?}");
    }

    #[test]
    fn a_recording_without_a_budget_is_left_alone() {
        let mut pacing = BurstPacing::start(1.0);
        pacing.next = Instant::now();
        assert_eq!(
            pacing.look(&BurstCounts { bursts: 100, cost_ns: 1, paid_ns: 1, ..BurstCounts::default() }, 50),
            None
        );
        assert_eq!(pacing.note(), None);
    }
}
