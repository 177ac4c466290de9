//! For a browser: what charts are made of.

use memlens_profile::{Clock, Profile, SliceUse};
use serde::Serialize;

use super::{OverTime, cost_of};
use crate::namesakes::Namesakes;

/// Objects that a chart tells apart; the others are one.
const SERIES: usize = 8;

/// When what was done.
#[derive(Serialize)]
pub(crate) struct Charts {
    /// Where slices begin and where the last one ends, as parts of the time.
    edges: Vec<f64>,
    /// The same for people.
    moments: Vec<String>,
    /// Moments that the program named.
    marks: Vec<(f64, String)>,
    charts: Vec<Chart>,
}

#[derive(Serialize)]
struct Chart {
    title: String,
    /// Whether the values are bytes at the slices' ends; else they are costs in the slices.
    is_bytes: bool,
    /// The largest last.
    series: Vec<Series>,
}

#[derive(Serialize)]
struct Series {
    /// Number of the object, of several the costliest's; None: all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<u32>,
    name: String,
    /// Of each slice.
    values: Vec<u64>,
}

impl Charts {
    /// Of a profile; None: it has no slices, or nothing is in them.
    pub(crate) fn of(profile: &Profile) -> Option<Self> {
        let time = OverTime::of(profile)?;
        let slices = &time.timeline.slices;
        let part = |at: u64| (at.saturating_sub(time.begin())) as f64 / time.timeline.length().max(1) as f64;
        let edges: Vec<u64> =
            slices.iter().map(|slice| slice.begin).chain(slices.last().map(|last| last.end)).collect();
        let has_marks = profile.run.clock == Some(Clock::Instructions);
        let marks = profile.marks.iter().filter(|_| has_marks);
        let rows = time.rows();
        let title = time.cost_name().to_owned();
        let most_live = |uses: &[SliceUse]| time.peak(uses).map_or(0, |(_, most)| most);
        let charts = [
            chart(&time, &rows, (title, false), |it| it.cost, cost_of),
            chart(&time, &rows, ("live heap".to_owned(), true), |it| it.live_bytes.unwrap_or(0), most_live),
        ];
        Some(Self {
            moments: edges.iter().map(|&at| time.moment(at)).collect(),
            edges: edges.into_iter().map(part).collect(),
            marks: marks.map(|mark| (part(mark.instructions), mark.name.clone())).collect(),
            charts: charts.into_iter().flatten().collect(),
        })
        .filter(|it| !it.charts.is_empty() && it.edges.len() > 2)
    }
}

fn chart(
    time: &OverTime<'_>,
    rows: &[(Namesakes<'_>, Vec<SliceUse>)],
    (title, is_bytes): (String, bool),
    amount: impl Fn(&SliceUse) -> u64,
    size: impl Fn(&[SliceUse]) -> u64,
) -> Option<Chart> {
    let mut others: Vec<u64> = time.timeline.whole.iter().map(&amount).collect();
    if others.iter().all(|&it| it == 0) {
        return None;
    }
    let mut largest: Vec<_> = rows.iter().filter(|(_, uses)| size(uses) > 0).collect();
    largest.sort_by_key(|(_, uses)| std::cmp::Reverse(size(uses)));
    let mut series: Vec<Series> = (largest.into_iter().take(SERIES))
        .filter_map(|(objects, uses)| {
            let first = objects.objects().next()?;
            let values: Vec<u64> = uses.iter().map(&amount).collect();
            others.iter_mut().zip(&values).for_each(|(rest, own)| *rest = rest.saturating_sub(*own));
            Some(Series { object: Some(first.id), name: first.name.clone(), values })
        })
        .collect();
    if others.iter().any(|&it| it > 0) {
        series.push(Series { object: None, name: "others".to_owned(), values: others });
    }
    series.reverse();
    Some(Chart { title, is_bytes, series })
}
