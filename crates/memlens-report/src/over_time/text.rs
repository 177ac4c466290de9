//! For people.

use memlens_profile::{Clock, Object, Profile, SliceUse, sum_of_known};

use super::{OverTime, SPARK, cost_of, knows_live};
use crate::View;
use crate::grid::{Elide, Grid, GridCell, GridColumn, Style, heading, wrapped};
use crate::header::Fact;
use crate::namesakes::Namesakes;
use crate::number::{UNKNOWN, bar, bytes, count, percent_of_share, plural, seconds, size};
use crate::page::Page;
use crate::row::row_number;
use crate::styled::Layout;

/// Objects in each list of the page.
const OBJECTS: usize = 12;
/// Objects named beside a part of time, from which part of its cost on.
const NAMED: usize = 3;
const WORTH_NAMING: f64 = 0.05;
/// Parts of a sparkline: on a narrow, a usual and a wide page.
const SPARKS: [usize; 3] = [12, 24, 48];
/// From these widths on it is wider.
const WIDER: [usize; 2] = [70, 110];
/// Values that differ by less than this part are drawn as one.
const NEARLY: f64 = 1e-3;
/// Columns of a bar.
const BAR: usize = 20;

/// The label of [`facts`].
pub(crate) const OVER_TIME: &str = "over time";

/// Eighths of a height; nothing is a dot at the bottom.
pub(crate) fn sparkline(values: &[f64]) -> String {
    const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().copied().fold(0.0, f64::max);
    // What is nearly equal is drawn as equal: parts of the time are whole instructions.
    let eighth = |value: f64| match (value / most * 8.0 - NEARLY).ceil() {
        _ if value <= 0.0 => '·',
        height => EIGHTHS[(height as usize).clamp(1, 8) - 1],
    };
    values.iter().map(|&value| eighth(value)).collect()
}

/// What some objects cost over time, for a table; empty: nothing is known.
pub(crate) fn spark_of(time: &OverTime<'_>, objects: &Namesakes<'_>) -> Option<String> {
    let uses = time.of_objects(objects);
    time.is_told(objects, &uses).then(|| sparkline(&time.costs(&uses, SPARK)))
}

/// What is said of some objects, or of the whole program, among other facts; nothing if nothing is known.
pub(crate) fn facts(profile: &Profile, objects: Option<&Namesakes<'_>>) -> Fact {
    let Some(time) = OverTime::of(profile) else { return (OVER_TIME, Vec::new()) };
    let uses = objects.map_or_else(|| time.timeline.whole.clone(), |objects| time.of_objects(objects));
    let mut pieces = Vec::new();
    if !time.has_course() {
        return (OVER_TIME, pieces);
    }
    if objects.map_or(cost_of(&uses) > 0, |objects| time.is_told(objects, &uses)) {
        pieces.push(format!("{} {}", sparkline(&time.costs(&uses, SPARKS[1])), time.cost_name()));
    }
    if let Some((at, most)) = time.peak_of(objects.is_none(), &uses) {
        let line =
            sparkline(&time.live(&uses, SPARKS[1]).iter().map(|&live| live as f64).collect::<Vec<_>>());
        let what = if objects.is_some() { "live" } else { "heap" };
        pieces.push(format!("{line} {what}, {} at {}", size(most), time.moment(at)));
    }
    (OVER_TIME, pieces)
}

/// When the program waited for what, and how much of its heap was live: parts of the run's time, and the course of what costs most. With
/// `wanted`, one object by its number or all that have a name, when they did that. [`View::top`] says how many parts there are.
///
/// # Errors
/// Why there is nothing to show, or no object of that name, in a sentence.
pub fn over_time(profile: &Profile, wanted: Option<&str>, view: &View) -> Result<String, String> {
    let objects = wanted.map(|wanted| Namesakes::wanted(profile, wanted)).transpose();
    let objects = objects.map_err(|unknown| unknown.to_string())?;
    let time = OverTime::of(profile).ok_or_else(|| format!("nothing over time: {}", why_not(profile)))?;
    Ok(layout(&time, objects.as_ref(), view).paint(view.colour))
}

/// The same of the whole program as lines; None: there is nothing to show.
pub fn over_time_page(profile: &Profile, view: &View) -> Option<Page> {
    Some(layout(&OverTime::of(profile)?, None, view).into())
}

fn layout(time: &OverTime<'_>, objects: Option<&Namesakes<'_>>, view: &View) -> Layout {
    let uses = objects.map_or_else(|| time.timeline.whole.clone(), |objects| time.of_objects(objects));
    let mut out = head(time, objects, &uses, view);
    out.push(Style::Plain, "\n");
    let rows = if objects.is_none() { Some(time.rows()) } else { None };
    out.append(parts(time, rows.as_ref(), &uses, view).layout(view.width));
    if let Some(rows) = rows {
        out.push(Style::Plain, "\n");
        out.append(costs(time, &rows, view).layout(view.width));
        if knows_live(&uses) {
            out.push(Style::Plain, "\n");
            out.append(memory(time, &rows, view).layout(view.width));
        }
    }
    out
}

/// Why there is nothing to show.
fn why_not(profile: &Profile) -> &'static str {
    let is_merged = profile.run.notes.iter().any(|note| note.starts_with(memlens_profile::MERGED_FROM));
    let is_timed = profile.run.sampling.is_some() || profile.run.mode == "burst";
    match () {
        _ if profile.is_of_bus() => "memlens bus analyze --format bandwidth has what a bus saw over time",
        _ if is_merged && is_timed => "one of its processes does not tell; --process N shows one by itself",
        _ if is_merged => {
            "its processes began at different times, and each counts its own instructions; --process N shows one"
        }
        _ if is_timed => {
            "the profile does not tell when anything was done: nothing was recorded, at no time, or by an older memlens"
        }
        _ => "the profile does not tell when anything was done: it is imported, or of an older memlens",
    }
}

fn head(time: &OverTime<'_>, objects: Option<&Namesakes<'_>>, uses: &[SliceUse], view: &View) -> Layout {
    let (profile, slices) = (time.profile, time.timeline.slices.len() as u64);
    let length = time.timeline.length();
    let title = match objects.and_then(|objects| objects.objects().next()) {
        Some(first) => format!("{} over time", first.name),
        None => "over time".to_owned(),
    };
    let each = match profile.run.clock {
        Some(Clock::Nanoseconds) => seconds(length as f64 / 1e9 / slices.max(1) as f64),
        _ => format!("{} instructions", count(length / slices.max(1))),
    };
    let mut out = heading(&title, &format!(" · {} of about {each}", plural(slices, "slice")), view.width);
    let mut pieces = Vec::new();
    if profile.run.sampling.is_none() {
        pieces.push(format!("{}: what accesses wait beyond hits of the first level", time.cost_name()));
    }
    if let Some((at, most)) = time.peak_of(objects.is_none(), uses) {
        pieces.push(format!("at most {} of the heap live, at {}", size(most), time.moment(at)));
    }
    out.append(wrapped("", 0, &pieces, view.width));
    out
}

/// A row a part of the time; with `rows` what of these costs most in it.
fn parts(time: &OverTime<'_>, rows: Option<&Rows<'_>>, uses: &[SliceUse], view: &View) -> Grid {
    let profile = time.profile;
    let parts = view.top.unwrap_or(usize::MAX).min(time.timeline.slices.len()).max(1);
    let costs = time.costs(uses, parts);
    let live = time.live(uses, parts);
    let whole: f64 = cost_of(uses).max(1) as f64;
    let most = costs.iter().copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let named = rows.map(|rows| named(time, rows, &costs));
    let at = |part: usize| time.edge(part, parts);
    let marks = |part: usize| {
        let is_last = part + 1 == parts;
        let here = |it: u64| it >= at(part) && (it < at(part + 1) || is_last);
        let names =
            profile.marks.iter().filter(|mark| here(mark.instructions)).map(|mark| mark.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let has_marks = profile.run.clock == Some(Clock::Instructions) && !profile.marks.is_empty();
    let heat = |cost: f64| match cost / most {
        part if part >= 0.75 => Style::Hot,
        part if part >= 0.35 => Style::Warm,
        _ => Style::Plain,
    };
    let plain = |text: String| GridCell::new(text, Style::Plain);
    let has_live = knows_live(uses);
    let rows = (0..parts).map(|part| {
        let mut row = vec![
            plain(time.moment(at(part))),
            GridCell::new(percent_of_share(costs[part] / whole), heat(costs[part])),
            GridCell::new(bar(costs[part] / most, BAR), heat(costs[part])),
        ];
        if has_live {
            row.push(plain(bytes(live[part])));
        }
        if has_marks {
            row.push(GridCell::new(marks(part), Style::Bold));
        }
        if let Some(named) = &named {
            row.push(plain(named[part].clone()));
        }
        row
    });
    let mut columns = vec![
        GridColumn::number(["", "from"], 0),
        GridColumn::number(time.cost_titles(), 0),
        GridColumn::text(["", ""], 3, (BAR, BAR), Elide::End),
    ];
    if has_live {
        columns.push(GridColumn::number(["heap", "live"], 0));
    }
    if has_marks {
        columns.push(GridColumn::text(["", "marks"], 0, (8, 30), Elide::End));
    }
    if named.is_some() {
        columns.push(GridColumn::text(["", "most of it for"], 0, (16, 100), Elide::End));
    }
    Grid { rows: rows.collect(), columns, ..Grid::default() }
}

/// Of each part of the time what costs most in it.
fn named(time: &OverTime<'_>, rows: &Rows<'_>, whole: &[f64]) -> Vec<String> {
    let of_rows: Vec<(String, Vec<f64>)> = (rows.iter())
        .filter_map(|(objects, uses)| {
            let first = objects.objects().next()?;
            Some((first.name.clone(), time.costs(uses, whole.len())))
        })
        .collect();
    let of_part = |(part, &whole): (usize, &f64)| {
        let shares = of_rows.iter().map(|(name, costs)| (costs[part] / whole.max(f64::MIN_POSITIVE), name));
        let mut shares: Vec<_> = shares.filter(|&(share, _)| share >= WORTH_NAMING).collect();
        shares.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let words = shares.iter().take(NAMED).map(|(share, name)| format!("{name} {:.0} %", 100.0 * share));
        words.collect::<Vec<_>>().join(" · ")
    };
    whole.iter().enumerate().map(of_part).collect()
}

type Rows<'a> = Vec<(Namesakes<'a>, Vec<SliceUse>)>;

/// What costs most, over time.
fn costs(time: &OverTime<'_>, rows: &Rows<'_>, view: &View) -> Grid {
    let whole = cost_of(&time.timeline.whole).max(1) as f64;
    let costly = rows.iter().filter(|(objects, uses)| time.is_told(objects, uses));
    let course = ["over time, each", "against its own most"];
    of_objects(time, costly.take(OBJECTS), view, (&[time.cost_titles()], course), |_, uses| {
        let values = time.costs(uses, sparks(view));
        (vec![percent_of_share(cost_of(uses) as f64 / whole)], values)
    })
}

/// What had most memory when most of the heap was live, and what is left of it.
fn memory(time: &OverTime<'_>, rows: &Rows<'_>, view: &View) -> Grid {
    let most = |uses: &[SliceUse]| time.peak(uses).map_or(0, |(_, most)| most);
    let live = |objects: &Namesakes<'_>, of: fn(&Object) -> Option<u64>| {
        objects.objects().map(of).fold(None, sum_of_known)
    };
    let at_peak = |objects: &Namesakes<'_>| live(objects, |object| object.live_at_peak_bytes);
    let mut large: Vec<_> = rows.iter().filter(|(_, uses)| most(uses) > 0).collect();
    large.sort_by_key(|(objects, uses)| std::cmp::Reverse((at_peak(objects).unwrap_or(0), most(uses))));
    let course = ["heap over time, each", "against its own most"];
    let amounts = [["at the", "peak"], ["at the", "end"], ["", "most"]];
    let shown = |amount: Option<u64>| amount.map_or(UNKNOWN.to_owned(), bytes);
    of_objects(time, large.into_iter().take(OBJECTS), view, (&amounts, course), |objects, uses| {
        let values = time.live(uses, sparks(view)).iter().map(|&live| live as f64).collect();
        let at_end = live(objects, |object| object.live_at_end_bytes);
        (vec![shown(at_peak(objects)), shown(at_end), bytes(most(uses))], values)
    })
}

fn sparks(view: &View) -> usize {
    SPARKS[WIDER.iter().filter(|&&width| view.width >= width).count()]
}

/// A row each of some objects: amounts, and their course.
fn of_objects<'r>(
    time: &OverTime<'_>,
    rows: impl Iterator<Item = &'r (Namesakes<'r>, Vec<SliceUse>)>,
    view: &View,
    (amounts, course): (&[[&'static str; 2]], [&'static str; 2]),
    of: impl Fn(&Namesakes<'_>, &[SliceUse]) -> (Vec<String>, Vec<f64>),
) -> Grid {
    let (mut cells, mut targets) = (Vec::new(), Vec::new());
    for (objects, uses) in rows {
        let Some(first) = objects.objects().next() else { continue };
        let (amounts, values) = of(objects, uses);
        let largest = values.iter().copied().fold(0.0, f64::max);
        let peak = values.iter().position(|value| *value >= largest * (1.0 - NEARLY));
        let at = peak.map_or(time.begin(), |part| time.edge(part, values.len()));
        let mut row: Vec<GridCell> =
            amounts.iter().map(|amount| GridCell::new(amount, Style::Plain)).collect();
        row.extend([
            GridCell::new(row_number(first.id, objects.members().len() - 1), Style::Plain),
            GridCell::new(&first.name, Style::Bold),
            GridCell::new(first.kind.as_str(), Style::Dim),
            GridCell::new(sparkline(&values), Style::Plain),
            GridCell::new(time.moment(at), Style::Dim),
        ]);
        cells.push(row);
        targets.push(objects.target());
    }
    let wide = sparks(view);
    let mut columns: Vec<GridColumn> = amounts.iter().map(|&titles| GridColumn::number(titles, 0)).collect();
    columns.extend([
        GridColumn::number(["", "#"], 1),
        GridColumn::text(["", "object"], 0, (12, 36), Elide::BeforeLastComponent),
        GridColumn::text(["", "kind"], 3, (4, 8), Elide::End),
        GridColumn::text(course, 0, (wide, wide), Elide::End),
        GridColumn::number(["most", "at"], 2),
    ]);
    Grid { rows: cells, columns, footer: None, targets }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparklines_show_what_little_there_is() {
        assert_eq!(sparkline(&[0.0, 1.0, 4.0, 8.0, 0.001]), "·▁▄█▁");
        assert_eq!((sparkline(&[0.0, 0.0]), sparkline(&[])), ("··".to_owned(), String::new()));
        // A half is a half, whatever rounding makes of it.
        assert_eq!(sparkline(&[1.0, 0.500_000_1, 0.499_999_9]), "█▄▄");
    }
}
