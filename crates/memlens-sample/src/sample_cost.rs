//! What one sample costs the program that is sampled, measured on the machine at hand.
//!
//! A thread of memlens's own reads the clock in a loop while it is sampled as a program would be. Two
//! readings between which a sample was taken lie further apart, by the time that the interrupt and the
//! copying of registers and stack took:
//!
//! ```text
//! readings   | | | | |                 | | | |
//!                    ◄──── cost ──────►
//! sample                  × its own time says that the gap is its
//! ```
//!
//! The median over some dozen samples is taken, so a machine that does other things at the same time does not
//! matter. What the interrupt drives out of the program's caches is not in it.

use std::hint::black_box;
use std::io;
use std::time::Duration;

use crate::collector::now_ns;
use crate::event::SampleEvent;
use crate::record::{Layout, Record};
use crate::ring::Ring;

/// Samples a second while measuring.
const FREQUENCY: u64 = 4000;
/// How long it is measured: some 40 samples.
const DURATION: Duration = Duration::from_millis(10);
/// The same where the program waits for it: some 16.
const SHORT: Duration = Duration::from_millis(4);
/// As much of the stack can be copied at most.
const ROOM_BYTES: usize = 1 << 16;
/// Fewer samples than these say nothing.
const MIN_SAMPLES: usize = 8;
/// After so many equal readings the clock stands still, as a preloaded library (faketime) may have it: each takes tens of
/// nanoseconds.
const MOST_EQUAL: u32 = 10_000;
/// Readings that lie closer together than this had no interrupt between them, in nanoseconds.
const SHORTEST_GAP: u64 = 300;

/// Two readings that lie apart, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    before: u64,
    after: u64,
}

/// Measures what a sample of the clock costs that copies as much of the stack. Takes 10 ms. `None`: too
/// few samples came, as where the kernel slows sampling down, or the clock stands still.
///
/// # Errors
/// Those of perf_event_open(2).
pub fn measure_sample_cost(stack_bytes: u32) -> io::Result<Option<Duration>> {
    measured(SampleEvent::time(FREQUENCY, stack_bytes.min(ROOM_BYTES as u32)), DURATION)
}

/// The same of an interrupt that copies nothing, in 4 ms, or 12 where this thread hardly ran. `None`: it is not known.
pub fn measure_interrupt_cost() -> Option<Duration> {
    const TRIES: usize = 3;
    (0..TRIES).find_map(|_| measured(SampleEvent::bare_time(FREQUENCY), SHORT).ok().flatten())
}

fn measured(event: SampleEvent, duration: Duration) -> io::Result<Option<Duration>> {
    // A thread of its own: its stack is the one copied, and no processor is left with our settings.
    let measured = std::thread::Builder::new().spawn(move || measure(&event, duration))?;
    measured.join().unwrap_or(Ok(None))
}

fn measure(event: &SampleEvent, duration: Duration) -> io::Result<Option<Duration>> {
    // Above the loop's own frame there is as much stack as is copied.
    let room = black_box([1u8; ROOM_BYTES]);
    let layout = event.layout();
    let mut ring = Ring::largest(event.open_for_caller()?, usize::MAX)?;
    ring.enable()?;
    let gaps = gaps_of(duration);
    ring.disable();
    let times = sample_times(&layout, &mut ring);
    black_box(room);
    Ok(median_cost(&gaps, &times))
}

#[inline(never)]
fn gaps_of(duration: Duration) -> Vec<Gap> {
    let mut gaps = Vec::with_capacity(4096);
    let start = now_ns();
    let (mut before, mut equal) = (start, 0);
    while before.saturating_sub(start) < duration.as_nanos() as u64
        && gaps.len() < gaps.capacity()
        && equal < MOST_EQUAL
    {
        let after = now_ns();
        equal = if after == before { equal + 1 } else { 0 };
        if after.saturating_sub(before) >= SHORTEST_GAP {
            gaps.push(Gap { before, after });
        }
        before = after;
    }
    gaps
}

fn sample_times(layout: &Layout, ring: &mut Ring) -> Vec<u64> {
    let mut times = Vec::new();
    ring.drain(|record_type, misc, body| {
        if let Ok(record) = layout.parse(record_type, misc, body)
            && matches!(record.record, Record::Sample(_))
        {
            times.push(record.time_ns);
        }
    });
    times
}

/// The median length of the gaps in which a sample was taken.
fn median_cost(gaps: &[Gap], sample_times: &[u64]) -> Option<Duration> {
    let mut costs: Vec<u64> = sample_times
        .iter()
        .filter_map(|time| {
            let next = gaps.partition_point(|gap| gap.after < *time);
            gaps.get(next).filter(|gap| gap.before <= *time).map(|gap| gap.after - gap.before)
        })
        .collect();
    if costs.len() < MIN_SAMPLES {
        return None;
    }
    let middle = costs.len() / 2;
    let (_, median, _) = costs.select_nth_unstable(middle);
    Some(Duration::from_nanos(*median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gaps_with_a_sample_count() {
        // Gaps of 5, 7, 9 … µs with a sample each, and between them longer ones without.
        let mut gaps = Vec::new();
        let mut times = Vec::new();
        for number in 0..9u64 {
            let before = number * 1_000_000;
            gaps.push(Gap { before, after: before + 5000 + 2000 * number });
            times.push(before + 100);
            gaps.push(Gap { before: before + 500_000, after: before + 900_000 });
        }
        // The fifth of nine: 5 + 2 × 4.
        assert_eq!(median_cost(&gaps, &times), Some(Duration::from_micros(13)));
        // A sample outside of every gap tells nothing.
        times.push(450_000);
        assert_eq!(median_cost(&gaps, &times), Some(Duration::from_micros(13)));
        assert_eq!(median_cost(&gaps, &times[..MIN_SAMPLES - 1]), None);
    }

    #[test]
    fn a_sample_costs_something_here() {
        match measure_sample_cost(8192) {
            // An interrupt cannot be free; a tenth of a second it cannot be either.
            Ok(Some(cost)) => {
                assert!(cost > Duration::from_nanos(SHORTEST_GAP) && cost < Duration::from_millis(100));
            }
            Ok(None) | Err(_) => eprintln!("passed over: no samples here"),
        }
    }
}
