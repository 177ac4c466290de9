//! Calls of allocation functions, which are counted in bursts and between them: a check of how much bursts stand for.
//!
//! The accesses between bursts are processor time over the time of an access, and that is measured while words are counted, less what
//! counting costs by a rule for all programs of a processor (`counting_cost.rs`). But what it costs differs from program to program. The
//! agent's entry points count calls natively, too, without an estimate. If bursts with one call in a thousand accesses
//! stand for a million accesses, and there were 1300 calls between them, it was rather 1.3 million.
//!
//! How far that is believed depends on how unlike the bursts are: few of them may have met a phase that allocates. It is said of bursts in which
//! something was allocated, and of the others as far as these are rare. (On a Zen 4 totals of perl were 1.03 to 1.37 times
//! the true ones in six runs without it, and are 0.90 to 1.08 in sixteen with it.)

/// How far off the time of an access typically is, as a logarithm: the spread of estimated over exact accesses of the programs that
/// `counting_cost.rs` was made by, on processors that others use, too.
const TYPICAL: f64 = 0.25;
/// Fewer bursts that allocated say nothing.
const FEWEST: f64 = 8.0;
/// The most that is corrected by, either way.
const MOST: f64 = 2.0;

/// What bursts stand for beyond what they saw, in sums: accesses, and how many calls there would be in them.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    bursts: f64,
    /// Of the bursts, those that allocated …
    allocating: f64,
    accesses: f64,
    /// … and what of the accesses is theirs.
    allocating_accesses: f64,
    calls: f64,
    /// Of accesses …
    squares: f64,
    /// … of them and calls …
    products: f64,
    /// … and of calls.
    call_squares: f64,
}

impl Sums {
    fn add(&mut self, share: Share) {
        let (accesses, calls) = (share.unseen, share.calls());
        self.bursts += 1.0;
        self.accesses += accesses;
        self.calls += calls;
        if calls > 0.0 {
            self.allocating += 1.0;
            self.allocating_accesses += accesses;
        }
        self.squares += accesses * accesses;
        self.products += accesses * calls;
        self.call_squares += calls * calls;
    }

    /// The variance of the calls, as a part of their square: that of a ratio estimator (Cochran, Sampling Techniques, 6.4).
    fn relative_variance(&self) -> f64 {
        let ratio = self.calls / self.accesses;
        let rest = self.call_squares - 2.0 * ratio * self.products + ratio * ratio * self.squares;
        rest.max(0.0) * self.bursts / (self.bursts - 1.0) / (self.calls * self.calls)
    }
}

/// What a burst says of the accesses around it.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Accesses for which it stands, but for those that it saw or counted.
    pub unseen: f64,
    /// Calls an access, in what it saw and counted.
    pub rate: f64,
}

impl Share {
    fn calls(self) -> f64 {
        self.unseen * self.rate
    }
}

/// By how much more accesses, or fewer, there were than bursts say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correction {
    /// Of bursts that allocated …
    allocating: f64,
    /// … and of the others.
    other: f64,
}

impl Correction {
    /// The factor of a burst's accesses.
    pub fn of(self, share: Share) -> f64 {
        if share.rate > 0.0 { self.allocating } else { self.other }
    }
}

/// The calls so far, and what bursts said of them.
#[derive(Debug, Default)]
pub struct Allocations {
    /// Between bursts.
    native: f64,
    /// Of bursts of which all is known.
    known: Sums,
}

impl Allocations {
    /// A thread has called so often between bursts.
    pub fn between(&mut self, calls: f64) {
        self.native += calls;
    }

    /// A burst of which all is known.
    pub fn add(&mut self, share: Share) {
        self.known.add(share);
    }

    /// What a reader has to know of it, when all is known.
    pub fn note(&self) -> Option<String> {
        /// What is corrected by less is not worth a word.
        const LITTLE: f64 = 0.1;
        let factor = self.correction(std::iter::empty()).allocating;
        (factor.ln().abs() > LITTLE).then(|| {
            format!(
                "Between bursts the program allocated {:.2} times as often as accesses and times say: by the end of the run {factor:.2} \
                 times as many accesses were counted of what allocates.",
                self.native / self.known.calls
            )
        })
    }

    /// What follows, with bursts besides of which not all is known.
    pub fn correction(&self, waiting: impl Iterator<Item = Share>) -> Correction {
        let mut sums = self.known;
        waiting.for_each(|share| sums.add(share));
        if sums.allocating < FEWEST || self.native == 0.0 {
            return Correction { allocating: 1.0, other: 1.0 };
        }
        let typical = TYPICAL * TYPICAL;
        let believed = typical / (typical + sums.relative_variance());
        let logarithm = (believed * (self.native / sums.calls).ln()).clamp(-MOST.ln(), MOST.ln());
        let part = sums.allocating_accesses / sums.accesses;
        Correction { allocating: logarithm.exp(), other: (part * logarithm).exp() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 0.001;

    /// So many bursts alike, each for a million accesses, in which so many times as many calls were made as they say.
    fn counts(bursts: usize, times: f64) -> Allocations {
        let mut counts = Allocations::default();
        for _ in 0..bursts {
            counts.add(Share { unseen: 1e6, rate: RATE });
            counts.between(times * 1e3);
        }
        counts
    }

    fn factor(counts: &Allocations, rate: f64) -> f64 {
        counts.correction(std::iter::empty()).of(Share { unseen: 1e6, rate })
    }

    #[test]
    fn bursts_stand_for_as_much_as_was_allocated() {
        for times in [0.7, 1.0, 1.3] {
            let factor = factor(&counts(20, times), RATE);
            assert!((factor - times).abs() < 1e-9, "{factor} for {times}");
        }
        assert!((factor(&counts(20, 50.0), RATE) - MOST).abs() < 1e-9, "other code than bursts met");
        assert_eq!(counts(20, 1.05).note(), None);
        let note = counts(20, 1.3).note().expect("it is much");
        assert!(note.contains("allocated 1.30 times as often as"), "{note}");
    }

    #[test]
    fn what_few_bursts_or_none_say_is_left() {
        assert_eq!(factor(&counts(7, 1.3), RATE), 1.0);
        assert_eq!(factor(&Allocations::default(), RATE), 1.0);
        let mut without = Allocations::default();
        (0..20).for_each(|_| without.add(Share { unseen: 1e6, rate: 0.0 }));
        without.between(100.0);
        assert_eq!(factor(&without, 0.0), 1.0);
    }

    #[test]
    fn those_that_wait_count_too() {
        let mut counts = counts(7, 1.3);
        counts.between(1300.0);
        let correction = counts.correction(std::iter::once(Share { unseen: 1e6, rate: RATE }));
        assert!((correction.of(Share { unseen: 5.0, rate: RATE }) - 1.3).abs() < 1e-9);
    }

    /// One in ten allocates, all that there is.
    #[test]
    fn unlike_bursts_are_believed_less() {
        let mut counts = counts(8, 13.0);
        (0..72).for_each(|_| counts.add(Share { unseen: 1e6, rate: 0.0 }));
        counts.native = 8.0 * 1300.0;
        let (allocating, other) = (factor(&counts, RATE), factor(&counts, 0.0));
        // 72 of 80 have nothing: a standard error of a third.
        assert!((1.08..1.12).contains(&allocating), "{allocating}");
        assert!(other > 1.0 && (other.ln() / allocating.ln() - 0.1).abs() < 1e-9, "{other}");
    }
}
