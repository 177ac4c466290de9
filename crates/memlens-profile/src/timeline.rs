//! When objects cost what: the run's time in slices.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::{ObjectIx, Profile, SliceIx, sum_of_known};

/// What time is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// Instructions that the process has executed, in all threads: the same in each run of a program that is.
    Instructions,
    /// Nanoseconds since the recording began.
    Nanoseconds,
}

impl Clock {
    /// The word in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Nanoseconds => "nanoseconds",
        }
    }
}

/// A part of the run. Slices follow one another without gaps. Unit: that of [`RunInfo::clock`](crate::RunInfo::clock).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Where it begins.
    pub begin: u64,
    /// Where it ends.
    pub end: u64,
}

/// What an object did in a slice. At most one row for each pair; what is not there is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SliceUse {
    /// The slice.
    pub slice: SliceIx,
    /// The object; `None`: all those together that have less than [`SliceUse::LEAST`] of the slice.
    pub object: Option<ObjectIx>,
    /// What it cost, beyond hits of the first level: [`Profile::cost_beyond_first_level`].
    pub cost: u64,
    /// Lines read from memory; `None`: nobody counts them.
    pub dram_reads: Option<u64>,
    /// Bytes of its heap blocks that were live when the slice ended; `None`: nobody knows, or it is not of the heap.
    pub live_bytes: Option<u64>,
}

impl SliceUse {
    /// Part of a slice's cost or live bytes from which on an object has a row of its own.
    pub const LEAST: f64 = 0.001;

    fn is_nothing(&self) -> bool {
        [self.cost, self.dram_reads.unwrap_or(0), self.live_bytes.unwrap_or(0)] == [0; 3]
    }

    /// Adds what another object did in the slice, or this one besides.
    pub fn add(&mut self, other: &Self) {
        self.cost = self.cost.saturating_add(other.cost);
        self.dram_reads = sum_of_known(self.dram_reads, other.dram_reads);
        self.live_bytes = sum_of_known(self.live_bytes, other.live_bytes);
    }
}

/// Which slices a time lies in, with the part of it that is in each: 1 in all. What is before the first slice or behind the last one is in
/// that, a moment in the slice that it begins. Nothing if there are none.
pub fn shares(begin: u64, end: u64, slices: &[Slice]) -> Vec<(usize, f64)> {
    let (Some(first), Some(last)) = (slices.first(), slices.last()) else { return Vec::new() };
    let within = |at: u64| at.max(first.begin).min(last.end);
    let (begin, end) = (within(begin), within(end));
    let at = slices.partition_point(|slice| slice.end <= begin).min(slices.len() - 1);
    if end <= begin {
        return vec![(at, 1.0)];
    }
    let overlap = |slice: &Slice| slice.end.min(end).saturating_sub(slice.begin.max(begin));
    let met = slices.iter().enumerate().skip(at).take_while(|(_, slice)| slice.begin < end);
    met.map(|(at, slice)| (at, overlap(slice) as f64 / (end - begin) as f64)).collect()
}

/// Slices of a run at most. More would be finer than a screen.
pub const MOST_SLICES: usize = 128;

/// Joins the small ones of a slice's uses; one that there is of others stays theirs. `uses`: one for each object.
pub fn join_small(uses: Vec<SliceUse>) -> Vec<SliceUse> {
    let sum = |of: fn(&SliceUse) -> u64| uses.iter().map(|it| of(it) as f64).sum::<f64>() * SliceUse::LEAST;
    let (cost, live) = (sum(|it| it.cost), sum(|it| it.live_bytes.unwrap_or(0)));
    let is_small = |it: &SliceUse| {
        it.object.is_none()
            || (it.cost as f64) < cost.max(1.0) && (it.live_bytes.unwrap_or(0) as f64) < live.max(1.0)
    };
    let (small, mut kept): (Vec<_>, Vec<_>) = uses.into_iter().partition(is_small);
    if let Some((first, more)) = small.split_first() {
        let mut others = SliceUse { object: None, ..*first };
        more.iter().for_each(|it| others.add(it));
        kept.extend((!others.is_nothing()).then_some(others));
    }
    // They are kept for long.
    kept.shrink_to_fit();
    kept
}

/// Lets those objects have no live bytes of their own that never have [`SliceUse::LEAST`] of the most that all have: while the heap is small
/// they have a row, and none later, as if they had ended. `uses`: slice by slice, each with small ones joined.
pub fn join_small_live(uses: Vec<SliceUse>) -> Vec<SliceUse> {
    let mut of_slices: HashMap<SliceIx, u64> = HashMap::new();
    let mut of_objects: HashMap<ObjectIx, u64> = HashMap::new();
    for part in &uses {
        let live = part.live_bytes.unwrap_or(0);
        *of_slices.entry(part.slice).or_default() += live;
        if let Some(object) = part.object {
            let most = of_objects.entry(object).or_default();
            *most = live.max(*most);
        }
    }
    let least = of_slices.into_values().max().unwrap_or(0) as f64 * SliceUse::LEAST;
    let mut sums = BTreeMap::new();
    for part in uses {
        let own = SliceUse { live_bytes: None, ..part };
        let is_small = part.object.is_some_and(|object| (of_objects[&object] as f64) < least);
        let parts = match part.live_bytes {
            Some(_) if is_small => {
                let others = SliceUse { cost: 0, dram_reads: None, object: None, ..part };
                [Some(own).filter(|own| !own.is_nothing()), Some(others)]
            }
            _ => [Some(part), None],
        };
        for part in parts.into_iter().flatten() {
            let key = (part.slice, part.object);
            sums.entry(key).and_modify(|sum: &mut SliceUse| sum.add(&part)).or_insert(part);
        }
    }
    sums.into_values().collect()
}

/// Uses of slices that are added up.
#[derive(Debug, Default)]
pub struct SliceSums(BTreeMap<(SliceIx, Option<ObjectIx>), SliceUse>);

impl SliceSums {
    /// Adds what an object did in a slice.
    pub fn add(&mut self, part: SliceUse) {
        let key = (part.slice, part.object);
        self.0.entry(key).and_modify(|sum| sum.add(&part)).or_insert(part);
    }

    /// Slice by slice, small ones joined.
    pub fn finish(self) -> Vec<SliceUse> {
        let mut by_slice: BTreeMap<SliceIx, Vec<SliceUse>> = BTreeMap::new();
        for ((slice, _), sum) in self.0 {
            by_slice.entry(slice).or_default().push(sum);
        }
        join_small_live(by_slice.into_values().flat_map(join_small).collect())
    }
}

/// A profile's slices for who shows them: sums, and each object's own.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// The slices, in order.
    pub slices: Vec<Slice>,
    /// All objects together, by slice.
    pub whole: Vec<SliceUse>,
    of_objects: HashMap<ObjectIx, Vec<SliceUse>>,
}

impl Timeline {
    /// Of a profile; `None`: it has no slices. Linear in its uses of slices.
    pub fn of(profile: &Profile) -> Option<Self> {
        if profile.slices.is_empty() || profile.run.clock.is_none() {
            return None;
        }
        let mut timeline = Self { slices: profile.slices.clone(), ..Self::default() };
        timeline.whole = timeline.nothing();
        for part in &profile.slice_uses {
            let Some(whole) = timeline.whole.get_mut(part.slice.index()) else { continue };
            whole.add(part);
            if let Some(object) = part.object {
                let nothing = || timeline.slices.iter().map(|_| SliceUse::default()).collect();
                let own: &mut Vec<SliceUse> = timeline.of_objects.entry(object).or_insert_with(nothing);
                own[part.slice.index()].add(part);
            }
        }
        Some(timeline)
    }

    fn nothing(&self) -> Vec<SliceUse> {
        vec![SliceUse::default(); self.slices.len()]
    }

    /// What some objects did together, by slice. Of what is too small for a row of its own nothing is known: that is 0 here.
    pub fn of_objects(&self, objects: &[ObjectIx]) -> Vec<SliceUse> {
        let mut sum = self.nothing();
        for own in objects.iter().filter_map(|object| self.of_objects.get(object)) {
            sum.iter_mut().zip(own).for_each(|(sum, own)| sum.add(own));
        }
        sum
    }

    /// Whether an object has rows.
    pub fn has(&self, object: ObjectIx) -> bool {
        self.of_objects.contains_key(&object)
    }

    /// From the first slice's begin to the last one's end, in the clock's unit.
    pub fn length(&self) -> u64 {
        let ends = self.slices.first().zip(self.slices.last());
        ends.map_or(0, |(first, last)| last.end.saturating_sub(first.begin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(slice: u32, object: Option<u32>, cost: u64, live_bytes: Option<u64>) -> SliceUse {
        let (slice, object) = (SliceIx(slice), object.map(ObjectIx));
        SliceUse { slice, object, cost, dram_reads: Some(cost / 100), live_bytes }
    }

    #[test]
    fn a_time_is_in_the_slices_that_it_meets() {
        let slices = [(10, 20), (20, 40), (40, 40), (40, 50)].map(|(begin, end)| Slice { begin, end });
        assert_eq!(shares(15, 30, &slices), [(0, 1.0 / 3.0), (1, 2.0 / 3.0)]);
        assert_eq!(shares(35, 45, &slices), [(1, 0.5), (2, 0.0), (3, 0.5)]);
        // Moments, and what is outside.
        assert_eq!(shares(20, 20, &slices), [(1, 1.0)]);
        assert_eq!((shares(0, 5, &slices), shares(60, 70, &slices)), (vec![(0, 1.0)], vec![(3, 1.0)]));
        assert_eq!(shares(0, 15, &slices), [(0, 1.0)]);
        assert_eq!(shares(0, u64::MAX, &slices).iter().map(|(_, part)| part).sum::<f64>(), 1.0);
        assert_eq!(shares(1, 2, &[]), []);
    }

    #[test]
    fn small_objects_are_joined_and_nothing_is_lost() {
        let mut sums = SliceSums::default();
        for object in 0..50 {
            sums.add(part(1, Some(object), if object < 2 { 50_000 } else { 90 }, None));
            sums.add(part(
                1,
                Some(object),
                if object < 2 { 50_000 } else { 90 },
                (object == 7).then_some(64),
            ));
        }
        sums.add(part(0, Some(3), 0, None));
        let uses = sums.finish();
        // Others: 48 with 180 each, but for the one whose 64 bytes are all that is live.
        assert_eq!(
            uses,
            [
                part(1, None, 47 * 180, None).with_reads(0),
                part(1, Some(0), 100_000, None),
                part(1, Some(1), 100_000, None),
                part(1, Some(7), 180, Some(64)).with_reads(0),
            ]
        );
    }

    impl SliceUse {
        fn with_reads(self, reads: u64) -> Self {
            Self { dram_reads: Some(reads), ..self }
        }
    }

    #[test]
    fn what_is_small_beside_the_largest_heap_has_no_course_of_its_own() {
        let mut sums = SliceSums::default();
        // Of a heap that is small at first everything is a large part.
        sums.add(part(0, Some(1), 500, Some(64)));
        sums.add(part(0, Some(2), 500, Some(100)));
        sums.add(part(1, Some(2), 500, Some(1_000_000)));
        sums.add(part(1, Some(1), 0, Some(64)));
        let uses = sums.finish();
        let live: Vec<_> =
            uses.iter().map(|it| (it.slice.0, it.object.map(|it| it.0), it.live_bytes)).collect();
        let expected = [
            (0, None, Some(64)),
            (0, Some(1), None),
            (0, Some(2), Some(100)),
            (1, None, Some(64)),
            (1, Some(2), Some(1_000_000)),
        ];
        assert_eq!(live, expected);
        assert_eq!(uses.iter().map(|it| it.cost).sum::<u64>(), 1500);
    }

    #[test]
    fn a_timeline_has_what_its_profile_has() {
        let mut profile = Profile {
            slices: vec![Slice { begin: 0, end: 10 }, Slice { begin: 10, end: 20 }],
            slice_uses: vec![
                part(0, None, 5, None),
                part(0, Some(2), 100, Some(4)),
                part(1, Some(3), 70, None),
            ],
            ..Profile::default()
        };
        assert!(Timeline::of(&profile).is_none());
        profile.run.clock = Some(Clock::Instructions);
        let timeline = Timeline::of(&profile).expect("slices");
        assert_eq!(timeline.whole.iter().map(|it| it.cost).collect::<Vec<_>>(), [105, 70]);
        let both = timeline.of_objects(&[ObjectIx(2), ObjectIx(3), ObjectIx(9)]);
        assert_eq!(
            both.iter().map(|it| (it.cost, it.live_bytes)).collect::<Vec<_>>(),
            [(100, Some(4)), (70, None)]
        );
        assert_eq!(timeline.length(), 20);
    }
}
