//! What is counted of bursts, and what a reader of the profile has to know of it.

use memlens_events::agent::BurstHead;
use memlens_events::burst::End;
use memlens_profile::{BurstInfo, RunInfo};

use super::weights::{Content, Speed, Weight};

/// Fewer accesses than this are one or two whole bursts: nothing to rank objects by.
const FEW_REFERENCES: u64 = 100_000;
/// A program that computes for less is short, in seconds.
const SHORT_SECONDS: f64 = 1.0;

/// What is told of bursts. Units: bursts, unless the name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BurstCounts {
    /// Taken in.
    pub bursts: u64,
    /// Accesses in them.
    pub references: u64,
    /// Accesses whose address is not known: gathers and scatters relative to a segment, each execution as one.
    pub unknown_references: u64,
    /// Whether the process ran before memlens came.
    pub is_attached: bool,
    /// Whether accesses by a register of the stack alone and at fixed addresses were left out …
    pub is_filtered: bool,
    /// … how many certainly …
    pub left_out: u64,
    /// … and how many perhaps: which way a block was left is not always known.
    pub perhaps_left_out: u64,
    /// That used blocks which were not reported.
    pub undecoded: u64,
    /// By how they ended; see [`End`].
    pub ends: [u64; End::ALL.len()],
    /// What they cost the program, in ns of its processor time: all but what it would have taken natively for what it did meanwhile.
    pub cost_ns: u64,
    /// What the agent takes that to be, which knows no native times, and keeps to the budget.
    pub paid_ns: u64,
    /// What memlens took to read them, in ns of its own processor time.
    pub read_ns: u64,
    /// Processor time that they took, in ns …
    pub own_ns: u64,
    /// … and that passed between ticks, of which …
    pub period_ns: u64,
    /// … so much in system calls, and in loops that wait for other threads.
    pub calls_ns: u64,
    /// Of the former, so much in code that no burst met, as far as looks tell.
    pub unmet_ns: u64,
    /// Behind which the native speed was measured, …
    pub measured: u64,
    /// … and which have that of another burst of their code instead.
    pub learned: u64,
    /// Cells whose accesses and misses are estimated together, for want of room.
    pub pooled: u64,
}

impl BurstCounts {
    /// A burst, of so many words, has been decoded.
    pub fn took(&mut self, head: &BurstHead, words: u64) {
        self.bursts += 1;
        self.paid_ns += head.cost_ns(words);
        self.own_ns += head.own_ns;
        self.period_ns += head.period_ns;
        if let Some(end) = End::of(head.end) {
            self.ends[end as usize] += 1;
        }
    }

    /// What a profile says of that. `allocations_seconds`: what watching these cost.
    pub fn info(&self, allocations_seconds: Option<f64>) -> BurstInfo {
        let seconds = |ns: u64| ns as f64 / 1e9;
        BurstInfo {
            bursts: self.bursts,
            references: self.references,
            program_seconds: seconds(self.own_ns + self.period_ns),
            inside_seconds: seconds(self.own_ns),
            cost_seconds: seconds(self.cost_ns),
            allocations_seconds,
        }
    }

    /// How fast the program was around it is known as far as it will be for now.
    pub fn weighed(&mut self, head: &BurstHead, content: &Content, weight: &Weight) {
        self.measured += u64::from(weight.is_measured());
        let words = content.words as u64;
        self.cost_ns += match weight.speed {
            Speed::Guessed { .. } | Speed::Learned | Speed::Repeated { .. } => head.cost_ns(words),
            Speed::New | Speed::Settled => {
                let native_ns = (weight.access_ns * (content.accesses + weight.counted)) as u64;
                head.own_ns.saturating_sub(native_ns).min(head.most_cost_ns(words))
            }
        };
    }

    /// What to know where a few bursts stand for most of the run. `effective`: how many alike would tell as much, which is few.
    fn unequal_note(&self, effective: f64) -> Option<String> {
        (effective < 0.5 * self.bursts as f64).then(|| {
            format!(
                "{}{} stand for very different parts of the run: they tell as much as {:.0} of equal parts, and phases may be missing. Another \
                 run, on a quieter machine or with more --overhead, says more.",
                if effective < RunInfo::RELIABLE_BURSTS { "Not to be relied on: " } else { "" },
                counted(self.bursts, "burst"),
                effective.max(1.0)
            )
        })
    }

    /// What a reader of the profile has to know, one sentence each; first what says how far all numbers are to be trusted: that
    /// much is missing, before how well the rest is known. `few`: they tell as much as so many bursts, which are too few.
    pub fn notes(&self, few: Option<f64>) -> Vec<String> {
        /// Part of the time in code that no burst met that says more than all else.
        const MOST: f64 = 0.2;
        /// Part of the time in system calls that says next to nothing.
        const LITTLE: f64 = 0.1;
        let time_ns = (self.own_ns + self.period_ns).max(1) as f64;
        let mut notes = Vec::new();
        notes.extend(self.unmeasured_note());
        notes.extend(few.and_then(|few| self.unequal_note(few)));
        if self.bursts > 0 {
            let seconds = (time_ns - self.calls_ns as f64).max(0.0) / 1e9;
            notes.extend(self.cut_short_note().or_else(|| self.few_references_note(seconds)));
            let is_most = self.unmet_ns as f64 > MOST * time_ns;
            let place = if is_most { 0 } else { notes.len() };
            notes.splice(place..place, self.unmet_note(time_ns));
        }
        let of_calls = self.calls_note(time_ns);
        // Little of the time is a matter of how it was recorded.
        let (of_calls, little_of_calls) = match self.calls_ns as f64 > LITTLE * time_ns || self.bursts == 0 {
            true => (of_calls, None),
            false => (None, of_calls),
        };
        notes.extend(of_calls);
        if self.bursts == 0 {
            let why = match self.is_attached {
                true => {
                    "as long as memlens looked, the process hardly ran, or only in system calls or code that is not \
                     translated; record it while it works, or for longer."
                }
                false => {
                    "the program ran too short, or only in system calls or code that is not translated; --mode exact sees \
                     every access."
                }
            };
            notes.push(format!("No burst was recorded: {why}"));
            return notes;
        }
        notes.push(format!(
            "{}for the whole run: shares and ratios are surer than totals, which came out at 0.4 to 2.8 \
             times the true ones where that was checked, those of what is done in moments at ten times. The program's own speed was \
             measured behind {} of {}.",
            RunInfo::RECORDED,
            self.measured,
            counted(self.bursts, "burst"),
        ));
        notes.extend(little_of_calls);
        let early = [
            (End::SystemCall, "at system calls"),
            (End::Instruction, "at instructions that are left to the native code"),
            (End::Code, "at code that cannot be read or is too far from everything"),
            (End::Cost, "because too much code was new"),
            (End::Busy, "because another thread was translating"),
            (End::Full, "for want of room"),
            (End::Fault, "at faults"),
        ];
        let ended: Vec<String> = early
            .iter()
            .map(|&(end, how)| (self.ends[end as usize], how))
            .filter(|&(count, _)| count > 0)
            .map(|(count, how)| format!("{count} {how}"))
            .collect();
        if !ended.is_empty() {
            notes.push(format!("Bursts that ended early: {}.", ended.join(", ")));
        }
        if self.unknown_references > 0 {
            notes.push(format!(
                "Gathers and scatters relative to a segment, which have no addresses: {}.",
                self.unknown_references
            ));
        }
        if self.pooled > 0 {
            notes.push(format!(
                "{} where an instruction meets an object, of those that came last, share one miss ratio at each level: there were \
                 too many to tell them apart.",
                counted(self.pooled, "place")
            ));
        }
        if self.undecoded > 0 {
            let incomplete = counted(self.undecoded, "burst");
            notes.push(format!("Incomplete: {incomplete}, whose blocks of code were not all reported."));
        }
        notes
    }

    /// How much time went by where there are no accesses to see. `time_ns`: all of it.
    fn calls_note(&self, time_ns: f64) -> Option<String> {
        let percent = 100.0 * self.calls_ns as f64 / time_ns;
        // Not as 0.0.
        (percent >= 0.05).then(|| {
            format!(
                "{percent:.1} % of the {:.2} s of processor time that were seen went by in system calls and in loops that \
                 wait for other threads: no accesses stand for them.",
                time_ns / 1e9
            )
        })
    }

    /// Where much time went by in code that no burst met. `time_ns`: all of it.
    fn unmet_note(&self, time_ns: f64) -> Option<String> {
        /// In code that hits its caches accesses are several times as frequent as elsewhere.
        const MUCH: f64 = 0.02;
        let part = self.unmet_ns as f64 / time_ns;
        (part > MUCH).then(|| {
            let exact = if self.is_attached { "" } else { "; --mode exact sees every access" };
            format!(
                "{:.0} % of the processor time went by in code that no burst met: its accesses are missing, and that time counts for \
                 the bursts around it. More --overhead meets more{exact}.",
                100.0 * part
            )
        })
    }

    /// Where each burst ends at the next system call, the code that follows one is not where a tick may come.
    fn cut_short_note(&self) -> Option<String> {
        /// Accesses of a burst that is cut so short, in the mean.
        const SHORT: u64 = 200;
        let are_cut = 2 * self.ends[End::SystemCall as usize] > self.bursts;
        (are_cut && self.references < SHORT * self.bursts).then(|| {
            format!(
                "Bursts ended at system calls, after {} accesses in the mean: what comes right behind such calls is hardly seen, and totals \
                 and shares may be wrong by orders of magnitude; {}--mode sample sees all code.",
                self.references.div_ceil(self.bursts.max(1)),
                if self.is_attached { "" } else { "--mode exact sees every access, " }
            )
        })
    }

    /// Where nothing tells how fast the program goes, nothing tells how many accesses its time stands for. Bursts that are too few or too short to
    /// tell anything are told of by [`Self::notes`].
    fn unmeasured_note(&self) -> Option<String> {
        /// Bursts behind which it was measured, of so many one at the least.
        const LEAST: u64 = 5;
        let ended = |end: End| 2 * self.ends[end as usize] > self.bursts;
        let why = match (ended(End::SystemCall), ended(End::Cost)) {
            (true, _) => ", since most end at system calls",
            (_, true) => ", since most are of new code",
            _ => "",
        };
        let is_known_otherwise = self.references < FEW_REFERENCES || self.cut_short_note().is_some();
        (!is_known_otherwise && LEAST * (self.measured + self.learned) < self.bursts).then(|| {
            format!(
                "The program's own speed was measured behind {} of {}{why}: totals are guessed from what is usual, and may be several times \
                 too low or too high. Shares and ratios are surer.",
                self.measured,
                counted(self.bursts, "burst")
            )
        })
    }

    /// What came of so few accesses is not to be relied on. `seconds`: processor time without system calls.
    fn few_references_note(&self, seconds: f64) -> Option<String> {
        if self.references >= FEW_REFERENCES {
            return None;
        }
        let few = format!(
            "Only {} with {} came of {seconds:.2} s of processor time outside of system calls: a first impression",
            counted(self.bursts, "burst"),
            counted(self.references, "access")
        );
        Some(match self.is_attached {
            true => format!("{few}; record for longer, or let bursts take more of the time (--overhead)."),
            false if seconds < SHORT_SECONDS => {
                "Too short a run for bursts: a first impression; --mode exact sees every access.".to_owned()
            }
            false => {
                format!(
                    "{few}; --overhead lets bursts take more of the time, --mode exact sees every access."
                )
            }
        })
    }

    /// What is missing of all numbers, if something was left out.
    pub fn filter_note(&self) -> Option<String> {
        if !self.is_filtered || self.bursts == 0 {
            return None;
        }
        let percent = |left_out: u64| 100.0 * left_out as f64 / (left_out + self.references).max(1) as f64;
        let (low, high) = (percent(self.left_out), percent(self.left_out + self.perhaps_left_out));
        Some(format!(
            "{low:.1} to {high:.1} % of the accesses in bursts are left out of all numbers (--filter-operations): those relative to \
             the stack pointer or the frame pointer alone, and at fixed addresses. Ratios are of the others."
        ))
    }
}

/// `1 burst`, `2 bursts`, `3 accesses`.
fn counted(count: u64, noun: &str) -> String {
    let end = match count {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{count} {noun}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_all_numbers_doubtful_is_told_first() {
        let mut counts =
            BurstCounts { bursts: 60, references: 600_000_000, measured: 30, ..BurstCounts::default() };
        let first = |counts: &BurstCounts| counts.notes(None).first().cloned().unwrap_or_default();
        assert!(first(&counts).starts_with("Counts are estimates for the whole run"));
        (counts.own_ns, counts.calls_ns) = (1_000_000_000, 400_000);
        assert!(first(&counts).starts_with(RunInfo::RECORDED), "calls took 0.0 %");
        (counts.calls_ns, counts.unmet_ns) = (4_000_000, 100_000_000);
        assert!(first(&counts).starts_with("10 % of the processor time went by in code that no burst met"));
        counts.measured = 2;
        assert!(first(&counts).starts_with("The program's own speed was measured behind 2 of 60 bursts"));
        counts.unmet_ns = 300_000_000;
        assert!(first(&counts).starts_with("30 % of the processor time went by in code that no burst met"));
        (counts.calls_ns, counts.unmet_ns, counts.measured) = (0, 0, 30);
        counts.ends[End::SystemCall as usize] = 31;
        assert!(first(&counts).starts_with(RunInfo::RECORDED), "long enough");
        counts.references = 60 * 6 + 1;
        assert!(
            first(&counts).contains("at system calls, after 7 accesses in the mean"),
            "{}",
            first(&counts)
        );
        counts = BurstCounts { references: 600_000_000, measured: 12, ..counts };
        assert!(first(&counts).starts_with(RunInfo::RECORDED));
        counts.measured = 11;
        let unmeasured = counts.unmeasured_note().expect("it is little");
        assert!(
            unmeasured.contains("behind 11 of 60 bursts, since most end at system calls:"),
            "{unmeasured}"
        );
        assert_eq!(BurstCounts { learned: 1, ..counts }.unmeasured_note(), None);
        let unequal = |effective| counts.unequal_note(effective);
        assert!(unequal(4.6).is_some_and(|note| note.contains("as much as 5 of equal parts")));
        assert!(unequal(4.6).is_some_and(|note| note.starts_with("Not to be relied on: 60 bursts")));
        assert!(unequal(5.0).is_some_and(|note| note.starts_with("60 bursts")));
        assert_eq!(unequal(60.0), None);
        assert_eq!(BurstCounts { bursts: 8, ..counts }.unequal_note(5.0), None, "few, but alike");
    }
}
