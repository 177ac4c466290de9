//! What being sampled costs a thread each time it is taken off its processor and put back.
//!
//! The timer of its clock event is then stopped and set again. In a virtual machine setting a timer
//! that is due before all others leaves the guest, and the higher the rate, the more often it is. A program that
//! waits for others thousands of times a second pays more for this than for its samples.
//!
//! Measured as it is paid: a thread of memlens's own is woken through a pipe and answers through another,
//! by turns sampled and not. Both threads are bound to one processor, so that each turn is a switch.
#![allow(unsafe_code)]

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use crate::event::SampleEvent;
use crate::ring::Ring;

/// Turns that are timed together, and how often. The fastest counts: all else that the machine does only
/// adds time.
const TURNS: u32 = 10;
const BATCHES: usize = 25;
/// The lowest frequency that a budget leads to, in Hz: its timer is hardly ever the next one due.
pub const LOWEST_FREQUENCY: u64 = 20;

/// What a switch costs at two frequencies; between them in proportion.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SwitchCost {
    /// At [`LOWEST_FREQUENCY`], in seconds.
    pub lowest_seconds: f64,
    /// More for each Hz above it, in seconds.
    pub seconds_per_hz: f64,
}

impl SwitchCost {
    /// At a frequency, in seconds.
    pub fn at(&self, frequency_hz: u64) -> f64 {
        self.lowest_seconds + self.seconds_per_hz * frequency_hz.saturating_sub(LOWEST_FREQUENCY) as f64
    }
}

/// Measures it for frequencies up to `frequency_hz`. Takes some 10 ms.
///
/// # Errors
/// Those of perf_event_open(2), pipe(2) and threads.
pub fn measure_switch_cost(frequency_hz: u64, stack_bytes: u32) -> io::Result<SwitchCost> {
    let lowest_seconds = extra_seconds(LOWEST_FREQUENCY, stack_bytes)?;
    let above = frequency_hz.saturating_sub(LOWEST_FREQUENCY);
    if above == 0 {
        return Ok(SwitchCost { lowest_seconds, seconds_per_hz: 0.0 });
    }
    let more = extra_seconds(frequency_hz, stack_bytes)? - lowest_seconds;
    Ok(SwitchCost { lowest_seconds, seconds_per_hz: more.max(0.0) / above as f64 })
}

/// How much longer a turn takes when the other thread is sampled.
fn extra_seconds(frequency_hz: u64, stack_bytes: u32) -> io::Result<f64> {
    let (mut ask_out, mut ask_in) = io::pipe()?;
    let (mut answer_out, mut answer_in) = io::pipe()?;
    // SAFETY: the call only asks.
    let cpu = unsafe { libc::sched_getcpu() };
    let answerer = std::thread::Builder::new().spawn(move || -> io::Result<()> {
        bind_to(cpu)?;
        let event = SampleEvent::time(frequency_hz, stack_bytes).open_for_caller()?;
        let ring = Ring::largest(event, usize::MAX)?;
        let mut asked = [0];
        while ask_out.read(&mut asked)? == 1 {
            match asked {
                [b'+'] => ring.enable()?,
                [b'-'] => ring.disable(),
                _ => {}
            }
            answer_in.write_all(&asked)?;
        }
        Ok(())
    })?;
    // A thread of its own, too: the recording's is not bound to anything.
    let asker = std::thread::Builder::new().spawn(move || -> io::Result<[Duration; 2]> {
        bind_to(cpu)?;
        let mut turn = |word: u8| {
            ask_in.write_all(&[word])?;
            answer_out.read_exact(&mut [0])
        };
        let mut fastest = [Duration::MAX; 2];
        for _ in 0..BATCHES {
            for (fastest, word) in fastest.iter_mut().zip([b'-', b'+']) {
                turn(word)?;
                let start = Instant::now();
                for _ in 0..TURNS {
                    turn(b'.')?;
                }
                *fastest = start.elapsed().min(*fastest);
            }
        }
        Ok(fastest)
    })?;
    let panicked = || io::Error::other("a measuring thread panicked");
    let times = asker.join().map_err(|_| panicked())?;
    // Its pipes are closed now, which ends the other one; why it ended before tells more.
    answerer.join().map_err(|_| panicked())??;
    let [without, with] = times?;
    Ok(with.saturating_sub(without).as_secs_f64() / f64::from(TURNS))
}

/// Binds the calling thread to a processor.
fn bind_to(cpu: libc::c_int) -> io::Result<()> {
    let cpu = usize::try_from(cpu).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: zeroed is a valid set; the calls read and write it alone.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        match libc::sched_setaffinity(0, size_of_val(&set), &raw const set) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_the_two_it_is_in_proportion() {
        let cost = SwitchCost { lowest_seconds: 1e-6, seconds_per_hz: 1e-8 };
        assert_eq!(cost.at(20), 1e-6);
        assert_eq!(cost.at(10), 1e-6);
        assert!((cost.at(320) - 4e-6).abs() < 1e-12);
    }

    #[test]
    fn it_can_be_measured() {
        match measure_switch_cost(1000, 8192) {
            Ok(cost) => assert!(cost.at(1000) < 0.01 && cost.lowest_seconds >= 0.0, "{cost:?}"),
            Err(error) => eprintln!("passed over: {error}"),
        }
    }
}
