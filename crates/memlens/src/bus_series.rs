//! `memlens bus series`: traces of several runs of a program, each held against the first.

use std::collections::BTreeMap;

use memlens_bus::analysis::{Analysis, ObjectRow};

use crate::bus::{self, SeriesArgs, SeriesFormat};
use crate::bus_analyze::{field, run};
use crate::bus_series_svg::{Panel, svg};
use crate::bus_table::{columns, printable};
use crate::failure::Failure;
use crate::streams;

/// One number of one run.
type Measure = (&'static str, fn(&ObjectRow) -> f64);

/// What is shown of each object.
const MEASURES: [Measure; 3] = [
    ("lines", |row| (row.counts.reads + row.counts.writes) as f64),
    ("walk reads", |row| row.counts.walk_reads()),
    ("TLB misses", |row| row.counts.tlb_misses),
];

/// A row of the series: what, of which object, and its values run by run.
struct Row {
    what: &'static str,
    name: String,
    values: Vec<f64>,
}

/// Values relative to the first run's; 0 where that is 0.
fn relative(values: &[f64]) -> impl Iterator<Item = f64> + '_ {
    let first = values.first().copied().unwrap_or(0.0);
    values.iter().map(move |value| if first > 0.0 { value / first } else { 0.0 })
}

/// The objects with the most lines in any run, and the program as a whole.
fn rows(runs: &[Analysis], top: usize) -> Vec<Row> {
    let whole = |what, value: fn(&Analysis) -> f64| Row {
        what,
        name: String::new(),
        values: runs.iter().map(value).collect(),
    };
    let mut all = vec![
        whole("seconds", |run| run.seconds),
        whole("lines", |run| run.totals.records as f64),
        whole("bytes/s", |run| run.bandwidth().unwrap_or(0.0)),
        whole("walk reads", |run| run.totals.walk_reads.iter().sum::<u64>() as f64),
        whole("TLB misses", |run| run.totals.leaf_reads.iter().sum::<u64>() as f64),
    ];
    // Objects of one name are one: numbers differ from run to run.
    let mut names: BTreeMap<&str, f64> = BTreeMap::new();
    for row in runs.iter().flat_map(|run| &run.objects) {
        let share = names.entry(&row.name).or_default();
        *share = share.max((row.counts.reads + row.counts.writes) as f64 + row.counts.walk_reads());
    }
    let mut names: Vec<(&str, f64)> = names.into_iter().collect();
    names.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (name, _) in names.into_iter().take(if top == 0 { usize::MAX } else { top }) {
        for (what, measure) in MEASURES {
            let value = |run: &Analysis| run.objects.iter().filter(|row| row.name == name).map(measure).sum();
            all.push(Row { what, name: name.to_owned(), values: runs.iter().map(value).collect() });
        }
    }
    all
}

/// Shows how a program's memory behaviour changes from run to run.
pub fn series(args: &SeriesArgs) -> Result<u8, Failure> {
    let mut runs = Vec::new();
    for place in &args.traces {
        let folder = bus::open(place)?;
        runs.push(run(&folder, &mut ()).map_err(|error| bus::failure(place, &error))?);
    }
    let rows = rows(&runs, args.top);
    let titles: Vec<String> = args.traces.iter().map(|place| place.display().to_string()).collect();
    streams::write_result(|out| match args.format {
        SeriesFormat::Table => {
            let mut table = vec![[vec!["object".to_owned(), "what".to_owned()], titles].concat()];
            for row in &rows {
                let name = if row.name.is_empty() { "whole program" } else { row.name.as_str() };
                let values = relative(&row.values).zip(&row.values);
                let cells = values.map(|(ratio, value)| format!("{value:.4e} ({ratio:.3})"));
                table.push([vec![printable(name), row.what.to_owned()], cells.collect()].concat());
            }
            write!(out, "{}", columns(&table))
        }
        SeriesFormat::Csv => {
            writeln!(out, "object,what,run,value,relative_to_first")?;
            for row in &rows {
                for ((value, ratio), title) in row.values.iter().zip(relative(&row.values)).zip(&titles) {
                    writeln!(out, "{},{},{},{value},{ratio:.6}", field(&row.name), row.what, field(title))?;
                }
            }
            Ok(())
        }
        SeriesFormat::Svg => out.write_all(picture(&rows, &titles).as_bytes()),
    })?;
    Ok(0)
}

/// A panel for each quantity, with a line for the program and each object; times as speed-up.
fn picture(rows: &[Row], runs: &[String]) -> String {
    let (mut names, mut panels): (Vec<String>, Vec<Panel>) = (Vec::new(), Vec::new());
    for row in rows {
        let name = if row.name.is_empty() { "whole program" } else { row.name.as_str() };
        let name = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        let is_time = row.what == "seconds";
        let title = if is_time { "speed-up" } else { row.what };
        let inverse = |ratio: f64| if is_time && ratio > 0.0 { 1.0 / ratio } else { ratio };
        let values = relative(&row.values).map(inverse).collect();
        match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel.lines.push((name, values)),
            None => panels.push(Panel { title: title.to_owned(), lines: vec![(name, values)] }),
        }
    }
    svg(&panels, &names, runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_the_speed_up_and_every_object() {
        let row =
            |what, name: &str, values: [f64; 2]| Row { what, name: name.into(), values: values.to_vec() };
        let rows = [
            row("seconds", "", [4.0, 2.0]),
            row("walk reads", "", [10.0, 5.0]),
            row("walk reads", "column", [8.0, 8.0]),
        ];
        let text = picture(&rows, &["1.bus".into(), "2.bus".into()]);
        for word in ["speed-up", "walk reads", "whole program", "column", "2.bus"] {
            assert!(text.contains(word), "{word}");
        }
        assert_eq!(text.matches("<polyline").count(), 3);
        // Twice the speed: the top of a scale of 2.
        assert!(text.contains("<polyline points=\"60.0,140.0 400.0,40.0\""), "{text}");
    }

    #[test]
    fn values_are_relative_to_the_first_run() {
        assert_eq!(relative(&[4.0, 8.0, 1.0]).collect::<Vec<_>>(), [1.0, 2.0, 0.25]);
        assert_eq!(relative(&[0.0, 8.0]).collect::<Vec<_>>(), [0.0, 0.0]);
    }
}
