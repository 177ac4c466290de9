//! Samples of the calling thread: where they land in code that is known.
#![allow(unsafe_code)]

use crate::collector::Collector;
use crate::error::SampleError;
use crate::event::{EventChoice, SampleEvent, first_that_opens};
use crate::record::Record;

/// Samples this thread while it does `work`. Returns the event and the sampled addresses.
///
/// # Errors
/// If the kernel allows no event.
pub fn sample_own_thread(
    choice: EventChoice,
    frequency_hz: u64,
    work: impl FnOnce(),
) -> Result<(SampleEvent, Vec<u64>), SampleError> {
    let candidates = SampleEvent::candidates(choice, frequency_hz, 0);
    let (event, _) = first_that_opens(candidates).map_err(SampleError::of_event)?;
    let mut collector = Collector::new(event.clone()).map_err(SampleError::of_event)?;
    // SAFETY: the call only asks.
    let tid = unsafe { libc::gettid() }.unsigned_abs();
    collector.watch_thread(tid).map_err(SampleError::of_event)?;
    work();
    collector.disable();
    let mut addresses = Vec::new();
    collector.drain(true, |record| {
        if let Record::Sample(sample) = record.record {
            addresses.push(sample.ip);
        }
    });
    Ok((event, addresses))
}
