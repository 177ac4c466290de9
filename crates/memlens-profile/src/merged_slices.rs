//! Several processes' slices of time as one's.

use crate::{Clock, MOST_SLICES, Slice, SliceIx, SliceSums, SliceUse, shares};

/// The slices of all profiles so far.
#[derive(Debug, Default)]
pub struct MergedSlices {
    clock: Option<Clock>,
    slices: Vec<Slice>,
    uses: Vec<SliceUse>,
    added: usize,
    /// One of the profiles had none, or others' clock.
    is_incomplete: bool,
}

impl MergedSlices {
    /// Adds a profile's; `uses` name the merged profile's objects.
    pub fn add(&mut self, clock: Option<Clock>, slices: &[Slice], uses: Vec<SliceUse>) {
        self.added += 1;
        if self.added == 1 {
            (self.clock, self.slices, self.uses) = (clock, slices.to_vec(), uses);
            self.is_incomplete = clock.is_none();
            return;
        }
        self.is_incomplete |= clock != self.clock;
        if self.is_incomplete {
            return;
        }
        let mut sums = SliceSums::default();
        if slices == self.slices {
            self.uses.drain(..).chain(uses).for_each(|part| sums.add(part));
        } else {
            let both = even(slices.iter().chain(&self.slices).map(|slice| slice.end).max().unwrap_or(0));
            for (from, uses) in [(&self.slices[..], &self.uses), (slices, &uses)] {
                resliced((from, uses), &both).for_each(|part| sums.add(part));
            }
            self.slices = both;
        }
        self.uses = sums.finish();
    }

    /// All together. `is_common`: whether the processes' clocks began together, as far as that matters. Nothing, if some are not known, or tell
    /// different times.
    pub fn finish(self, is_common: bool) -> Option<(Clock, Vec<Slice>, Vec<SliceUse>)> {
        let is_one_time = self.added <= 1 || is_common || self.clock == Some(Clock::Nanoseconds);
        let clock = self.clock.filter(|_| is_one_time && !self.is_incomplete)?;
        Some((clock, self.slices, self.uses))
    }
}

/// Slices of equal length until `end`, each twice as long as where the time is half of it: what is in such once stays as it is.
fn even(end: u64) -> Vec<Slice> {
    let length = end.div_ceil(MOST_SLICES as u64).max(1).next_power_of_two();
    let count = end.div_ceil(length);
    let edge = |at: u64| at.saturating_mul(length);
    (0..count).map(|at| Slice { begin: edge(at), end: edge(at + 1) }).collect()
}

/// The same in other slices: what was done in a slice is thought to be spread evenly over it, what is live at its end to have been so all
/// along.
fn resliced<'u>(
    (from, uses): (&[Slice], &'u [SliceUse]),
    to: &[Slice],
) -> impl Iterator<Item = SliceUse> + use<'u> {
    let parts: Vec<Vec<(usize, f64)>> = from.iter().map(|old| shares(old.begin, old.end, to)).collect();
    // What is live when a new slice ends is what the old one has in which that lies.
    let mut ending: Vec<Vec<SliceIx>> = vec![Vec::new(); from.len()];
    for (at, new) in to.iter().enumerate() {
        let old = from.partition_point(|old| old.end < new.end);
        if let Some(ends) = ending.get_mut(old) {
            ends.push(SliceIx::from_index(at));
        }
    }
    uses.iter().flat_map(move |part| {
        let (parts, ending) = (parts.get(part.slice.index()), ending.get(part.slice.index()));
        let mut until = 0.0;
        let spread = parts.into_iter().flatten().map(|&(slice, share)| {
            let from = until;
            until += share;
            // Rounded at the ends of pieces, nothing is lost.
            let piece = |count: u64| {
                let at = |part: f64| (count as f64 * part.min(1.0)).round() as u64;
                at(until).saturating_sub(at(from))
            };
            let slice = SliceIx::from_index(slice);
            let dram_reads = part.dram_reads.map(piece);
            SliceUse { slice, cost: piece(part.cost), dram_reads, live_bytes: None, ..*part }
        });
        let spread: Vec<SliceUse> = spread.collect();
        let live = ending.into_iter().flatten().filter(|_| part.live_bytes.is_some());
        let live = live.map(|&slice| SliceUse { slice, cost: 0, dram_reads: None, ..*part });
        spread.into_iter().chain(live.collect::<Vec<_>>())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectIx;

    fn part(slice: u32, object: Option<u32>, cost: u64, live_bytes: Option<u64>) -> SliceUse {
        let (slice, object) = (SliceIx(slice), object.map(ObjectIx));
        SliceUse { slice, object, cost, dram_reads: Some(cost / 100), live_bytes }
    }

    fn cut(ends: &[u64]) -> Vec<Slice> {
        let begins = [0].into_iter().chain(ends.iter().copied());
        begins.zip(ends).map(|(begin, &end)| Slice { begin, end }).collect()
    }

    #[test]
    fn other_slices_have_the_same_sums() {
        let (from, to) = (cut(&[10, 20, 30]), cut(&[15, 30, 45]));
        let uses = [part(0, Some(1), 101, Some(8)), part(1, Some(1), 301, Some(16)), part(2, None, 7, None)];
        let mut sums = SliceSums::default();
        resliced((&from, &uses), &to).for_each(|part| sums.add(part));
        let uses = sums.finish();
        assert_eq!(uses.iter().map(|it| it.cost).sum::<u64>(), 409);
        let of =
            |slice, object| uses.iter().find(|it| (it.slice, it.object) == (SliceIx(slice), object)).copied();
        let [first, second] = [0, 1].map(|slice| of(slice, Some(ObjectIx(1))).expect("a row"));
        // 101 and half of 301; at 15 the second slice's blocks are live; nobody knows of 30.
        assert_eq!((first.cost, first.live_bytes), (252, Some(16)));
        assert_eq!((second.cost, second.live_bytes), (150, None));
        assert_eq!(of(1, None).map(|it| it.cost), Some(7));
        assert_eq!(of(2, None), None);
    }

    #[test]
    fn processes_of_any_length_add_up() {
        let clock = Some(Clock::Nanoseconds);
        let mut merged = MergedSlices::default();
        for end in [1000, 1000, 77_000, 300] {
            merged.add(
                clock,
                &cut(&[end / 2, end]),
                vec![part(0, Some(1), 60, Some(8)), part(1, None, 40, None)],
            );
        }
        let (_, slices, uses) = merged.finish(false).expect("a common time");
        // 77,000 in 128 parts are 602 each.
        assert_eq!((slices.len(), slices[0]), (76, Slice { begin: 0, end: 1024 }));
        assert_eq!(uses.iter().map(|it| it.cost).sum::<u64>(), 400);
        let first: u64 = uses.iter().filter(|it| it.slice.0 == 0).map(|it| it.cost).sum();
        assert!((301..=303).contains(&first), "{first}");
    }

    #[test]
    fn times_that_have_nothing_to_do_with_each_other_are_not_added() {
        let merged = |clocks: &[Option<Clock>]| {
            let mut merged = MergedSlices::default();
            clocks.iter().for_each(|&clock| merged.add(clock, &cut(&[10]), vec![part(0, None, 5, None)]));
            merged
        };
        let (instructions, time) = (Some(Clock::Instructions), Some(Clock::Nanoseconds));
        assert!(merged(&[instructions]).finish(false).is_some());
        assert!(merged(&[instructions, instructions]).finish(false).is_none());
        assert!(merged(&[instructions, instructions]).finish(true).is_some());
        assert!(merged(&[time, time]).finish(false).is_some());
        assert!(merged(&[time, None]).finish(false).is_none());
        assert!(merged(&[time, instructions]).finish(true).is_none());
    }
}
