//! Bus records, many at a time, in columns.

/// Records that the card lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Position in the block of the first record after them.
    pub position: u32,
    /// How many.
    pub lost: u64,
}

/// Some consecutive bus records: ⟨seq_no, duration, r/w, paddr⟩, in columns of one length.
///
/// Damaged files can have any gaps: numbers that would be larger than 2^64 - 1 are that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusBlock {
    /// Number of the first record in the trace, lost ones counted.
    pub first: u64,
    /// Clock cycles from the start of the trace to the record before the first.
    pub start_cycles: u64,
    /// Physical line numbers: address ÷ line size.
    pub lines: Vec<u64>,
    /// Clock cycles since the record before.
    pub durations: Vec<u64>,
    /// Whether the line was written.
    pub writes: Vec<bool>,
    /// Where records are missing, by position.
    pub gaps: Vec<Gap>,
}

impl BusBlock {
    /// Records in it.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Empties it and says where the next record stands.
    pub fn restart(&mut self, first: u64, start_cycles: u64) {
        (self.first, self.start_cycles) = (first, start_cycles);
        self.lines.clear();
        self.durations.clear();
        self.writes.clear();
        self.gaps.clear();
    }

    /// Adds a record after `lost` missing ones.
    pub fn push(&mut self, line: u64, duration: u64, write: bool, lost: u64) {
        if lost > 0 {
            self.gaps.push(Gap { position: self.lines.len() as u32, lost });
        }
        self.lines.push(line);
        self.durations.push(duration);
        self.writes.push(write);
    }

    /// Records missing in it.
    pub fn lost(&self) -> u64 {
        lost_in(&self.gaps)
    }

    /// Number of the record at a position.
    pub fn number(&self, at: usize) -> u64 {
        let before = self.gaps.partition_point(|gap| gap.position as usize <= at);
        self.first.saturating_add(at as u64).saturating_add(lost_in(&self.gaps[..before]))
    }

    /// Number of the record that follows.
    pub fn next(&self) -> u64 {
        self.first.saturating_add(self.len() as u64).saturating_add(self.lost())
    }

    /// Cycles at the last record.
    pub fn end_cycles(&self) -> u64 {
        self.durations.iter().fold(self.start_cycles, |time, &duration| time.wrapping_add(duration))
    }

    /// All records: number, cycles, line, whether it was written.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, u64, bool)> + '_ {
        let (mut number, mut time, mut gaps) = (self.first, self.start_cycles, self.gaps.iter().peekable());
        (0..self.len()).map(move |at| {
            while let Some(gap) = gaps.next_if(|gap| gap.position as usize <= at) {
                number = number.saturating_add(gap.lost);
            }
            time = time.wrapping_add(self.durations[at]);
            let own = number;
            number = number.saturating_add(1);
            (own, time, self.lines[at], self.writes[at])
        })
    }
}

fn lost_in(gaps: &[Gap]) -> u64 {
    gaps.iter().fold(0, |sum: u64, gap| sum.saturating_add(gap.lost))
}
