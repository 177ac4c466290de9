//! How many blocks may be drawn: so many that it costs the program little.
//!
//! A drawn block is reported with its call stack: some microseconds, as it is measured in the program, and about as much again for its end and
//! for what all of that drives out of caches (Sapphire Rapids: 7 to 9 µs each, of which 3 to 4 pass in the report).

use std::time::Duration;

/// Blocks a second that are enough, whatever they cost.
const ENOUGH_A_SECOND: f64 = 2000.0;
/// Those of the start, of which practically all are watched. A program that allocates much before it is looked at has a quarter of that more for each
/// doubling of the gap, some 500 in all up to gaps of 16 KiB.
pub(crate) const AT_FIRST: u32 = 128;
/// The part of the time that drawn blocks may take …
const SHARE: f64 = 0.004;
/// … and what they may take besides.
const ADVANCE: Duration = Duration::from_millis(4);
/// How many times as much a block costs as its report takes.
const TIMES: f64 = 2.0;
/// What a report is taken to take as long as there are few.
const USUAL_NS: f64 = 4000.0;
/// So many reports count as if they had taken that.
const USUAL_REPORTS: f64 = 32.0;

/// Reports so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reports {
    /// How many.
    pub(crate) count: u64,
    /// What they took, in ns.
    pub(crate) took_ns: u64,
}

impl Reports {
    /// What they cost the program, in ns.
    pub(crate) fn cost_ns(self) -> f64 {
        TIMES * self.took_ns as f64
    }
}

/// How many blocks may be drawn in a window as long as `window`, so long after the start.
pub(crate) fn limit(reports: Reports, since_start: Duration, window: Duration) -> u32 {
    let Reports { count, took_ns } = reports;
    let each_ns = TIMES * (took_ns as f64 + USUAL_NS * USUAL_REPORTS) / (count as f64 + USUAL_REPORTS);
    let allowed_ns = ADVANCE.as_nanos() as f64 + SHARE * (since_start + window).as_nanos() as f64;
    let left = (allowed_ns - reports.cost_ns()) / each_ns;
    // What is missing is paid back at half of the rate: a program that goes on to something else is not without blocks for long.
    let least = SHARE / 2.0 * window.as_nanos() as f64 / each_ns;
    left.max(least).min(ENOUGH_A_SECOND * window.as_secs_f64()).max(1.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks drawn by a program that allocates all the time, whose reports take so long, in so many seconds.
    fn drawn(report_ns: u64, seconds: u64) -> Reports {
        let window = Duration::from_millis(40);
        let mut reports = Reports { count: AT_FIRST.into(), took_ns: u64::from(AT_FIRST) * report_ns };
        for number in 1..=seconds * 25 {
            let more = u64::from(limit(reports, window * number as u32, window));
            reports.count += more;
            reports.took_ns += more * report_ns;
        }
        reports
    }

    #[test]
    fn reports_take_their_part_of_the_time_and_an_advance() {
        // 4 ms and 40 ms for ten seconds, half of it in reports.
        for report_ns in [2_000, 4_000, 10_000] {
            let took_ms = drawn(report_ns, 10).took_ns / 1_000_000;
            assert!((20..=23).contains(&took_ms), "{report_ns}: {took_ms} ms");
        }
        // A second on a machine where they take 4 µs.
        assert!((950..1100).contains(&drawn(4_000, 1).count), "{:?}", drawn(4_000, 1));
    }

    #[test]
    fn cheap_ones_are_bounded_by_what_is_enough() {
        let count = drawn(100, 10).count;
        assert!((19_000..=20_300).contains(&count), "{count}");
    }

    #[test]
    fn after_too_much_some_are_drawn_still() {
        let reports = Reports { count: 10_000, took_ns: 10_000_000_000 };
        let window = Duration::from_secs(1);
        // 1 ms each, twice that in all: 2 ms of the second's 1,000.
        assert_eq!(limit(reports, window, window), 1);
        let reports = Reports { count: 10_000, took_ns: 200_000_000 };
        assert_eq!(limit(reports, window, window), 50);
    }
}
