//! What imports have in common: samples of one event, and what was lost on the way.

use memlens_code::SampleSkid;
use memlens_profile::{Profile, SampleUnit, SamplingInfo};

use crate::builder::ProfileBuilder;
use crate::modules::Whereabouts;
use crate::record::{Record, TimedRecord};
use crate::recording::{AttributionWay, Recording};

/// What all samples together may stand for: as nanoseconds, 36 years of processor time. Only a damaged
/// file has more, and sums would overflow.
const MOST_COST: u64 = 1 << 60;

/// A recording that another tool made, as it is read.
#[derive(Debug)]
pub struct Imported {
    recording: Recording,
    builder: ProfileBuilder,
    /// Names of the events that samples are of.
    events: Vec<String>,
    cost: u64,
    lost: u64,
    unread: u64,
}

impl Imported {
    /// Nothing yet, of programs whose files are there.
    pub fn new(whereabouts: Whereabouts) -> Self {
        let mut recording = Recording::new(false, SampleSkid::default(), AttributionWay::default());
        recording.look_in(whereabouts);
        Self {
            recording,
            builder: ProfileBuilder::default(),
            events: Vec::new(),
            cost: 0,
            lost: 0,
            unread: 0,
        }
    }

    /// Takes a record. `event`: the event it belongs to, if it is a sample.
    pub fn take(&mut self, record: TimedRecord, event: &str) {
        match &record.record {
            Record::Lost(count) => self.lost = self.lost.saturating_add(*count),
            Record::Sample(sample) => {
                match self.cost.checked_add(sample.period).filter(|cost| *cost <= MOST_COST) {
                    Some(cost) => self.cost = cost,
                    None => {
                        self.unread += 1;
                        return;
                    }
                }
                if !self.events.iter().any(|known| known == event) {
                    self.events.push(event.to_owned());
                }
            }
            _ => {}
        }
        if self.recording.take(record) {
            self.builder.fold(&mut self.recording);
        }
    }

    /// A record, or a line, could not be read.
    pub fn note_unread(&mut self) {
        self.unread += 1;
    }

    /// The profile.
    ///
    /// # Errors
    /// The names of the events, if they are not one.
    pub fn profile(mut self) -> Result<Profile, Vec<String>> {
        let [event] = self.events.as_slice() else { return Err(self.events) };
        // Modifiers follow a colon: cpu-clock:u.
        let unit = match event.split(':').next() {
            Some("cpu-clock" | "task-clock") => SampleUnit::Nanoseconds,
            _ => SampleUnit::Events,
        };
        let info = SamplingInfo { event: event.clone(), unit, lost: self.lost, ..SamplingInfo::default() };
        self.builder.fold(&mut self.recording);
        let mut profile = self.builder.profile(&self.recording, info);
        profile.attribution.lost_events = self.lost.saturating_add(self.unread);
        if self.unread > 0 {
            profile.attribution.notes.push(format!("{} records could not be read.", self.unread));
        }
        Ok(profile)
    }
}
