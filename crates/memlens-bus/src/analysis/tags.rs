//! Which event a tag announces, when some tags are missing, doubled or late.

use std::collections::VecDeque;

/// So many missing tags are remembered, to know them if they come after all.
const REMEMBERED: u64 = 4096;
/// A jump ahead by more than this is believed when the next tag follows it: one wrong address must not make
/// all events happen at once.
const BELIEVED: i64 = 64;

/// What happened to tags of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TagCounts {
    /// Tags on the bus.
    pub seen: u64,
    /// Tags that never came; their events happened at the next tag or when they were first needed.
    pub missing: u64,
    /// Tags that came after a later one, or after their event was needed.
    pub reordered: u64,
    /// Tags without an event: doubled, or made by something else.
    pub extra: u64,
    /// Tags after the last event.
    pub without_event: u64,
    /// Events that happened before their tag because a record needed them.
    pub early: u64,
    /// Events after the last tag; they never happen.
    pub events_left: u64,
}

/// Follows the tags of one kind.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct TagCounter {
    /// Width of the numbers on the bus; 0: tags are not numbered.
    bits: u32,
    /// Number of the next event.
    next: u64,
    missed: VecDeque<u64>,
    /// A tag far ahead, not yet believed.
    suspect: Option<u64>,
    pub counts: TagCounts,
}

impl TagCounter {
    /// For tags numbered with so many bits.
    pub fn new(bits: u8) -> Self {
        Self {
            bits: bits.into(),
            next: 0,
            missed: VecDeque::new(),
            suspect: None,
            counts: TagCounts::default(),
        }
    }

    /// A tag with this number came: so many events happen now.
    pub fn tag(&mut self, number: u64) -> u64 {
        self.counts.seen += 1;
        if self.bits == 0 {
            self.next += 1;
            return 1;
        }
        // The distance from the expected number, as a signed number of so many bits.
        let unused = 64 - self.bits;
        let distance = (number.wrapping_sub(self.next) << unused) as i64 >> unused;
        let mask = u64::MAX >> unused;
        let before = self.suspect.take();
        let follows = before.is_some_and(|before| before.wrapping_add(1) & mask == number & mask);
        if distance > BELIEVED && !follows {
            self.counts.extra += u64::from(before.is_some());
            self.suspect = Some(number);
            return 0;
        }
        if distance >= 0 {
            let distance = distance as u64;
            // The suspect was no missing tag, but the last but one.
            let missing = distance - u64::from(follows && distance > 0);
            self.miss(self.next, missing);
            self.next += distance + 1;
            self.counts.extra += u64::from(before.is_some() && !follows);
            return distance + 1;
        }
        self.counts.extra += u64::from(before.is_some());
        let number = self.next.wrapping_add_signed(distance);
        match self.missed.iter().position(|&missed| missed == number) {
            Some(at) => {
                self.missed.remove(at);
                self.counts.missing -= 1;
                self.counts.reordered += 1;
            }
            None => self.counts.extra += 1,
        }
        0
    }

    /// So many events happen without waiting for their tags.
    pub fn happened_early(&mut self, events: u64) {
        self.miss(self.next, events);
        self.counts.early += events;
        if self.bits > 0 {
            self.next += events;
        }
    }

    /// Tags from `first` on are missing.
    fn miss(&mut self, first: u64, count: u64) {
        self.counts.missing += count;
        self.missed.extend(first + count.saturating_sub(REMEMBERED)..first + count);
        let excess = self.missed.len().saturating_sub(REMEMBERED as usize);
        self.missed.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(tags: &[u64]) -> (Vec<u64>, TagCounts) {
        let mut counter = TagCounter::new(4);
        let events = tags.iter().map(|&tag| counter.tag(tag)).collect();
        (events, counter.counts)
    }

    #[test]
    fn tags_in_order_are_one_event_each() {
        let tags: Vec<u64> = (0..40).map(|tag| tag % 16).collect();
        let (events, counts) = run(&tags);
        assert_eq!(events, [1; 40]);
        assert_eq!(counts, TagCounts { seen: 40, ..TagCounts::default() });
    }

    #[test]
    fn missing_late_and_doubled_tags_are_told_apart() {
        //                            2 is missing   3 came late  4 twice
        let (events, counts) = run(&[0, 1, 4, 3, 4, 5]);
        assert_eq!(events, [1, 1, 3, 0, 0, 1]);
        assert_eq!((counts.missing, counts.reordered, counts.extra), (1, 1, 1));
        // Six events happened, whatever came.
        assert_eq!(events.iter().sum::<u64>(), 6);
    }

    #[test]
    fn a_tag_that_comes_after_its_event_was_needed_is_late() {
        let mut counter = TagCounter::new(4);
        counter.happened_early(2);
        assert_eq!((counter.tag(0), counter.tag(1), counter.tag(2)), (0, 0, 1));
        assert_eq!((counter.counts.missing, counter.counts.reordered, counter.counts.early), (0, 2, 2));
    }

    #[test]
    fn a_jump_far_ahead_is_believed_when_it_goes_on() {
        let mut counter = TagCounter::new(12);
        // One wrong number …
        assert_eq!([0, 1, 900, 2, 3].map(|tag| counter.tag(tag)), [1, 1, 0, 1, 1]);
        assert_eq!((counter.counts.extra, counter.counts.missing), (1, 0));
        // … and a long stretch that was lost: 4 to 499.
        assert_eq!([500, 501, 502].map(|tag| counter.tag(tag)), [0, 498, 1]);
        assert_eq!((counter.counts.extra, counter.counts.missing), (1, 496));
    }

    #[test]
    fn tags_without_numbers_are_each_the_next() {
        let mut counter = TagCounter::new(0);
        assert_eq!([7, 7, 0].map(|tag| counter.tag(tag)), [1, 1, 1]);
    }
}
