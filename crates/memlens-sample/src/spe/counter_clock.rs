//! From the generic timer's counter to the clock of the events of a recording that runs.
//!
//! Both go on at a steady rate, so two looks at both say what the counter was at other times. The
//! last look is the one that is counted from: samples are not much older than it, and the clock's rate is corrected by
//! 500 parts in a million at most (adjtimex(2)).

/// Two looks at both.
#[derive(Clone, Copy, Debug)]
pub struct CounterClock {
    first: Look,
    last: Look,
}

/// What both were at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The counter.
    pub counter: u64,
    /// The clock, in nanoseconds.
    pub time_ns: u64,
}

impl CounterClock {
    /// After one look nothing is known yet.
    pub fn new(first: Look) -> Self {
        Self { first, last: first }
    }

    /// Another look.
    pub fn look(&mut self, last: Look) {
        self.last = last;
    }

    /// When the counter was so; None: it has not gone on between the looks, or not the clock.
    pub fn time_ns(&self, counter: u64) -> Option<u64> {
        let ticks = self.last.counter.checked_sub(self.first.counter).filter(|&ticks| ticks > 0)?;
        let nanoseconds = self.last.time_ns.checked_sub(self.first.time_ns)?;
        let ago = i128::from(self.last.counter) - i128::from(counter);
        let ago_ns = ago * i128::from(nanoseconds) / i128::from(ticks);
        u64::try_from(i128::from(self.last.time_ns) - ago_ns).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_looks_say_what_others_would() {
        let mut clock = CounterClock::new(Look { counter: 1000, time_ns: 50_000 });
        assert_eq!(clock.time_ns(1000), None);
        // 25 MHz.
        clock.look(Look { counter: 2000, time_ns: 90_000 });
        let times: Vec<_> = [1000, 1500, 2000, 2001].map(|counter| clock.time_ns(counter)).into();
        assert_eq!(times, [Some(50_000), Some(70_000), Some(90_000), Some(90_040)]);
        // From before the machine was started, or from no counter of ours.
        assert_eq!((clock.time_ns(0), clock.time_ns(u64::MAX)), (Some(10_000), None));
        let mut short = CounterClock::new(Look { counter: 1000, time_ns: 10 });
        short.look(Look { counter: 1001, time_ns: 20 });
        assert_eq!(short.time_ns(0), None);
    }
}
