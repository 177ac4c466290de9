//! When objects cost what.
//!
//! ```text
//!  Profile ──► OverTime: slices, added up by rows of tables, in as many equal parts as there is room for
//!                 ├─► text.rs   the page, sparklines in other pages
//!                 ├─► charts.rs what a browser draws
//!                 ├─► json.rs   slices as they are
//!                 └─► csv.rs
//! ```

mod charts;
mod csv;
mod json;
mod text;

use memlens_profile::{Clock, Profile, Slice, SliceUse, Timeline, shares};

use crate::namesakes::Namesakes;
use crate::number::{percent_of_share, seconds};
use crate::table::cost_word;

pub(crate) use charts::Charts;
pub use csv::over_time_csv;
pub(crate) use json::Slices;
pub(crate) use text::{OVER_TIME, facts, spark_of};
pub use text::{over_time, over_time_page};

/// Parts of a sparkline in a table.
pub(crate) const SPARK: usize = 12;

/// A profile's time, for who shows it.
pub(crate) struct OverTime<'a> {
    profile: &'a Profile,
    timeline: Timeline,
}

impl<'a> OverTime<'a> {
    /// Of a profile; `None`: it has no slices. Linear in its uses of slices.
    pub(crate) fn of(profile: &'a Profile) -> Option<Self> {
        Timeline::of(profile).map(|timeline| Self { profile, timeline })
    }

    /// What some objects did, by slice.
    fn of_objects(&self, objects: &Namesakes<'_>) -> Vec<SliceUse> {
        self.timeline.of_objects(objects.members())
    }

    /// Whether what some objects did is told by slice, and not only what they did in some: little of a slice has no row.
    fn is_told(&self, objects: &Namesakes<'_>, uses: &[SliceUse]) -> bool {
        const MOST: f64 = 0.9;
        let costs = objects.objects().map(|object| self.profile.cost_beyond_first_level(&object.counts));
        let (told, all) = (cost_of(uses), costs.fold(0, u64::saturating_add));
        self.has_course() && told > 0 && told as f64 >= MOST * all as f64
    }

    /// What is 0 in the clock's unit.
    fn begin(&self) -> u64 {
        self.timeline.slices.first().map_or(0, |first| first.begin)
    }

    /// Costs in so many equal parts of the time: what there is in a slice is thought to be spread evenly over it.
    fn costs(&self, uses: &[SliceUse], parts: usize) -> Vec<f64> {
        let parts: Vec<Slice> = (0..parts)
            .map(|at| Slice { begin: self.edge(at, parts), end: self.edge(at + 1, parts) })
            .collect();
        let mut sums = vec![0.0; parts.len()];
        for (slice, part) in self.timeline.slices.iter().zip(uses).filter(|(_, part)| part.cost > 0) {
            for (at, share) in shares(slice.begin, slice.end, &parts) {
                sums[at] += part.cost as f64 * share;
            }
        }
        sums
    }

    /// Where a part of so many equal ones of the time begins.
    fn edge(&self, part: usize, parts: usize) -> u64 {
        let length = u128::from(self.timeline.length());
        self.begin() + (length * part as u128 / parts.max(1) as u128) as u64
    }

    /// The most bytes that were live at the ends of slices, in so many equal parts of the time. A slice is in the part in which its middle
    /// is; what has none is in the middle of one.
    fn live(&self, uses: &[SliceUse], parts: usize) -> Vec<u64> {
        let length = self.timeline.length().max(1) as f64;
        let place = |at: f64| (parts as f64 * (at - self.begin() as f64) / length) as usize;
        let mut most: Vec<Option<u64>> = vec![None; parts];
        for (slice, part) in self.timeline.slices.iter().zip(uses) {
            let middle = (slice.begin as f64 + slice.end as f64) / 2.0;
            let most = &mut most[place(middle).min(parts - 1)];
            *most = Some(most.unwrap_or(0).max(part.live_bytes.unwrap_or(0)));
        }
        let in_slice = |part: usize| {
            let middle = self.begin() as f64 + length * (part as f64 + 0.5) / parts as f64;
            let at = self.timeline.slices.partition_point(|slice| (slice.end as f64) <= middle);
            uses.get(at).and_then(|it| it.live_bytes).unwrap_or(0)
        };
        most.into_iter().enumerate().map(|(part, most)| most.unwrap_or_else(|| in_slice(part))).collect()
    }

    /// Where the most bytes were live at the end of a slice: when, and how many.
    fn peak(&self, uses: &[SliceUse]) -> Option<(u64, u64)> {
        let ends = self
            .timeline
            .slices
            .iter()
            .zip(uses)
            .map(|(slice, part)| (slice.end, part.live_bytes.unwrap_or(0)));
        // The first of several.
        ends.rev().max_by_key(|&(_, live)| live).filter(|&(_, live)| live > 0)
    }

    /// The same; of the whole program it may be known that more was live within a slice.
    fn peak_of(&self, is_whole: bool, uses: &[SliceUse]) -> Option<(u64, u64)> {
        let known = self.profile.run.heap_peak_bytes.filter(|_| is_whole).unwrap_or(0);
        self.peak(uses).map(|(at, most)| (at, most.max(known)))
    }

    /// A moment for people: how far into the run, or when.
    fn moment(&self, at: u64) -> String {
        let since = at.saturating_sub(self.begin());
        match self.profile.run.clock {
            Some(Clock::Nanoseconds) => seconds(since as f64 / 1e9),
            _ => format!("{} %", percent_of_share(since as f64 / self.timeline.length().max(1) as f64)),
        }
    }

    /// What the costs are called. Tables call the whole of it wait.
    fn cost_name(&self) -> &'static str {
        if cost_word(self.profile) == "wait" { "wait for misses" } else { cost_word(self.profile) }
    }

    /// The titles of a column with their shares.
    fn cost_titles(&self) -> [&'static str; 2] {
        if cost_word(self.profile) == "wait" {
            ["wait for", "misses %"]
        } else {
            [cost_word(self.profile), "%"]
        }
    }

    /// Whether there is a course to be drawn.
    fn has_course(&self) -> bool {
        self.timeline.slices.len() > 1
    }

    /// The rows of a table of objects with what they did, those that cost most first.
    fn rows(&self) -> Vec<(Namesakes<'a>, Vec<SliceUse>)> {
        let is_there = |objects: &Namesakes<'_>| objects.members().iter().any(|&it| self.timeline.has(it));
        let mut rows: Vec<_> = Namesakes::of_each_line(self.profile)
            .into_iter()
            .filter(is_there)
            .map(|objects| {
                let uses = self.of_objects(&objects);
                (objects, uses)
            })
            .collect();
        rows.sort_by_key(|(_, uses)| std::cmp::Reverse(cost_of(uses)));
        rows
    }
}

/// Whether it is known how much memory was live.
fn knows_live(uses: &[SliceUse]) -> bool {
    uses.iter().any(|it| it.live_bytes.is_some())
}

/// The cost of all slices.
fn cost_of(uses: &[SliceUse]) -> u64 {
    uses.iter().map(|it| it.cost).sum()
}

#[cfg(test)]
mod tests {
    use memlens_profile::SliceIx;

    use super::*;

    fn profile(ends: &[u64], uses: &[(u64, Option<u64>)]) -> Profile {
        let begins = [0].into_iter().chain(ends.iter().copied());
        let mut profile = Profile {
            slices: begins.zip(ends).map(|(begin, &end)| Slice { begin, end }).collect(),
            slice_uses: (0..)
                .zip(uses)
                .map(|(slice, &(cost, live_bytes))| SliceUse {
                    slice: SliceIx(slice),
                    cost,
                    live_bytes,
                    ..SliceUse::default()
                })
                .collect(),
            ..Profile::default()
        };
        profile.run.clock = Some(Clock::Instructions);
        profile
    }

    #[test]
    fn slices_are_spread_over_equal_parts() {
        let profile = profile(&[10, 20, 40], &[(100, Some(1)), (0, Some(9)), (40, None)]);
        let time = OverTime::of(&profile).expect("slices");
        assert_eq!(time.costs(&time.timeline.whole, 4), [100.0, 0.0, 20.0, 20.0]);
        assert_eq!(time.costs(&time.timeline.whole, 8)[..3], [50.0, 50.0, 0.0]);
        assert_eq!(time.costs(&time.timeline.whole, 1), [140.0]);
        let thirds = time.costs(&time.timeline.whole, 3);
        assert!((thirds.iter().sum::<f64>() - 140.0).abs() < 1e-9 && thirds[0] == 100.0, "{thirds:?}");
        assert_eq!(time.live(&time.timeline.whole, 4), [1, 9, 0, 0]);
        assert_eq!(time.live(&time.timeline.whole, 8), [1, 1, 9, 9, 0, 0, 0, 0]);
        assert_eq!(time.live(&time.timeline.whole, 2), [9, 0]);
        assert_eq!(time.peak(&time.timeline.whole), Some((20, 9)));
        assert_eq!(time.moment(10), "25.0 %");
    }
}
