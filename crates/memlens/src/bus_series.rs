//! `memlens series`: traces of several runs of a program, each held against the first.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use memlens_bus::analysis::{Analysis, ObjectRow};
use memlens_report::short_count;

use crate::bus::{self, CaptureOptions};
use crate::bus_analyze::{all_processors, field, run};
use crate::bus_series_runs::{Runs, values};
use crate::bus_series_svg::{Panel, svg};
use crate::bus_table::{columns, printable};
use crate::failure::{Failure, FailureKind};
use crate::streams;

const SECONDS: &str = "seconds";
const SPEED_UP: &str = "speed-up";
const REDUCED_SPEED_UP: &str = "reduced speed-up";
/// Most walks find their entries in a cache.
const TLB_MISSES: &str = "TLB misses seen";

/// Arguments of `memlens series`.
#[derive(Args, Debug)]
#[command(
    override_usage = "memlens series [OPTIONS] TRACE...\n       memlens series [OPTIONS] -- PROGRAM [ARGUMENTS with {}]...",
    before_help = "\
Examples:
  memlens series 1.bus 2.bus 4.bus                                  traces of `memlens bus capture`, by object
  memlens series --threads 1,2,4 --machine e5504 -- ./bfs 16 {}     captures runs with 1, 2 and 4 in place of {}
  memlens series --values 14,16 --format svg -- ./bfs {}            of several sizes, as a picture"
)]
pub struct SeriesArgs {
    /// The folders of the traces; the first is the one that the others are held against
    #[arg(value_name = "TRACE", required_unless_present = "command", conflicts_with = "command")]
    pub traces: Vec<PathBuf>,

    /// How many objects are shown; 0: all
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub top: usize,

    /// Threads of each run: shows the reduced speed-up, too (threads over speed-up), which is 1 where N times the threads are N times as
    /// fast, and more where they are slower than that
    #[arg(long, value_name = "N,N…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Vec<u32>,

    /// A table, CSV for plots, or a plot as SVG
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: SeriesFormat,

    /// Run the PROGRAM once for each of these words, in place of {} in its arguments; those of --threads if not given
    #[arg(long, value_name = "V,V…", value_delimiter = ',', requires = "command")]
    pub values: Vec<String>,

    /// Keep the traces of the PROGRAM's runs in this folder, as VALUE.bus
    #[arg(long, value_name = "FOLDER", requires = "command")]
    pub out: Option<PathBuf>,

    /// Replace traces that are there
    #[arg(long, requires = "out")]
    pub force: bool,

    #[command(flatten)]
    pub options: CaptureOptions,

    /// The program and its arguments; its output goes nowhere
    #[arg(value_name = "PROGRAM", last = true)]
    pub command: Vec<OsString>,
}

/// Forms of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SeriesFormat {
    /// A table for people.
    Table,
    /// One value a line.
    Csv,
    /// A picture: values relative to the first run, a panel for each quantity.
    Svg,
}

/// One number of one run.
type Measure = (&'static str, fn(&ObjectRow) -> f64);

/// What is shown of each object.
const MEASURES: [Measure; 3] = [
    ("lines", |row| (row.counts.reads + row.counts.writes) as f64),
    ("walk reads", |row| row.counts.walk_reads()),
    (TLB_MISSES, |row| row.counts.tlb_misses),
];

/// A row of the series: what, of which object, and its values run by run.
struct Row {
    what: &'static str,
    name: String,
    values: Vec<f64>,
}

/// 0 where there is nothing to divide by.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Values relative to the first run's; None where that is 0.
fn relative(values: &[f64]) -> impl Iterator<Item = Option<f64>> + '_ {
    let first = values.first().copied().filter(|&first| first > 0.0);
    values.iter().map(move |&value| first.map(|first| value / first))
}

/// How many times as fast as the first each run is, and, where the threads are known, how much slower than it would
/// be if it were as many times as fast as it has threads (Chen et al., figure 19).
fn speed_ups(seconds: &[f64], threads: &[u32]) -> Vec<Row> {
    let faster: Vec<f64> = seconds.iter().map(|&time| ratio(seconds[0], time)).collect();
    let wanted = threads.iter().map(|&count| f64::from(count) / f64::from(threads[0]));
    let reduced: Vec<f64> = wanted.zip(&faster).map(|(wanted, &faster)| ratio(wanted, faster)).collect();
    let row = |what, values| Row { what, name: String::new(), values };
    let rows = [row(SPEED_UP, faster), row(REDUCED_SPEED_UP, reduced)];
    rows.into_iter().filter(|row| !row.values.is_empty()).collect()
}

/// The objects with the most lines in any run, and the program as a whole.
fn rows(runs: &[Analysis], threads: &[u32], top: usize) -> Vec<Row> {
    let whole = |what, value: fn(&Analysis) -> f64| Row {
        what,
        name: String::new(),
        values: runs.iter().map(value).collect(),
    };
    let mut all = vec![
        whole(SECONDS, |run| run.seconds),
        whole("lines", |run| run.totals.records as f64),
        whole("bytes/s", |run| run.bandwidth().unwrap_or(0.0)),
        whole("walk reads", |run| run.totals.walk_reads.iter().sum::<u64>() as f64),
        whole(TLB_MISSES, |run| run.totals.leaf_reads.iter().sum::<u64>() as f64),
    ];
    let after_seconds = speed_ups(&all[0].values, threads);
    all.splice(1..1, after_seconds);
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
            // An empty sum of floating-point numbers is -0.
            let value = |run: &Analysis| {
                run.objects.iter().filter(|row| row.name == name).map(measure).sum::<f64>() + 0.0
            };
            all.push(Row { what, name: name.to_owned(), values: runs.iter().map(value).collect() });
        }
    }
    all
}

/// Shows how a program's memory behaviour changes from run to run.
pub fn series(args: &SeriesArgs) -> Result<u8, Failure> {
    let values = values(args)?;
    let count = if args.command.is_empty() { args.traces.len() } else { values.len() };
    if !args.threads.is_empty() && args.threads.len() != count {
        let message = format!("--threads names {} runs, but there are {count}", args.threads.len());
        return Err(Failure::new(FailureKind::Usage, message));
    }
    let (traces, titles) = match args.command.is_empty() {
        true => (args.traces.clone(), args.traces.iter().map(|place| place.display().to_string()).collect()),
        false => (Vec::new(), values.clone()),
    };
    let captured = Runs::capture(args, &values)?;
    let mut runs = Vec::new();
    for place in traces.iter().chain(&captured.traces) {
        let folder = bus::open(place)?;
        runs.push(run(&folder, all_processors()).map_err(|error| bus::failure(place, &error))?);
    }
    drop(captured);
    let rows = rows(&runs, &args.threads, args.top);
    streams::write_result(|out| match args.format {
        SeriesFormat::Table => {
            let mut table = vec![[vec!["object".to_owned(), "what".to_owned()], titles].concat()];
            for row in &rows {
                let name = if row.name.is_empty() { "whole program" } else { row.name.as_str() };
                let values = relative(&row.values).zip(&row.values);
                let cells = values.map(|(ratio, &value)| match ratio {
                    Some(ratio) => format!("{} ({ratio:.3})", shown(row.what, value)),
                    None => shown(row.what, value),
                });
                table.push([vec![printable(name), row.what.to_owned()], cells.collect()].concat());
            }
            write!(out, "{}", columns(&table))
        }
        SeriesFormat::Csv => {
            writeln!(out, "object,what,run,value,relative_to_first")?;
            for row in &rows {
                for ((value, ratio), title) in row.values.iter().zip(relative(&row.values)).zip(&titles) {
                    let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.6}"));
                    writeln!(out, "{},{},{},{value},{ratio}", field(&row.name), row.what, field(title))?;
                }
            }
            Ok(())
        }
        SeriesFormat::Svg => out.write_all(picture(&rows, &titles).as_bytes()),
    })?;
    Ok(0)
}

/// A value as people read it.
fn shown(what: &str, value: f64) -> String {
    match what {
        SECONDS if value < 1.0 => format!("{:.3} ms", 1e3 * value),
        SECONDS => format!("{value:.3} s"),
        SPEED_UP | REDUCED_SPEED_UP => format!("{value:.3}"),
        // Walks of pages that several objects are in are divided.
        _ => short_count(value.round() as u64),
    }
}

/// A panel for each quantity but the time, which shows as speed-up; a line for the program and each object.
fn picture(rows: &[Row], runs: &[String]) -> String {
    let (mut names, mut panels): (Vec<String>, Vec<Panel>) = (Vec::new(), Vec::new());
    for row in rows.iter().filter(|row| row.what != SECONDS) {
        let name = if row.name.is_empty() { "whole program" } else { row.name.as_str() };
        let name = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        let values = relative(&row.values).map(|ratio| ratio.unwrap_or(0.0)).collect();
        match panels.iter_mut().find(|panel| panel.title == row.what) {
            Some(panel) => panel.lines.push((name, values)),
            None => panels.push(Panel { title: row.what.to_owned(), lines: vec![(name, values)] }),
        }
    }
    svg(&panels, &names, runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_for_people() {
        let all = [
            (SECONDS, 0.036_073),
            (SECONDS, 4.0),
            (SPEED_UP, 0.9855),
            ("lines", 15_936.0),
            ("walk reads", 0.898),
        ];
        assert_eq!(
            all.map(|(what, value)| shown(what, value)),
            ["36.073 ms", "4.000 s", "0.986", "15.9k", "1"]
        );
    }

    #[test]
    fn what_the_first_run_does_not_have_is_no_part_of_it() {
        let of = |values: &[f64]| relative(values).collect::<Vec<_>>();
        assert_eq!(of(&[4.0, 8.0, 1.0, 0.0]), [Some(1.0), Some(2.0), Some(0.25), Some(0.0)]);
        assert_eq!(of(&[0.0, 2.0]), [None, None]);
    }

    #[test]
    fn a_picture_has_the_speed_up_and_every_object() {
        let row =
            |what, name: &str, values: [f64; 2]| Row { what, name: name.into(), values: values.to_vec() };
        let rows = [
            row(SECONDS, "", [4.0, 2.0]),
            row("speed-up", "", [1.0, 2.0]),
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
    fn a_reduced_speed_up_is_what_is_missing() {
        // Twice the threads, 1.6 times as fast: as the paper's 2 ÷ 1.95.
        let rows = speed_ups(&[8.0, 5.0], &[2, 4]);
        assert_eq!(rows.iter().map(|row| row.what).collect::<Vec<_>>(), ["speed-up", "reduced speed-up"]);
        assert_eq!((&rows[0].values[..], &rows[1].values[..]), (&[1.0, 1.6][..], &[1.0, 1.25][..]));
        assert_eq!(speed_ups(&[8.0, 5.0], &[]).len(), 1);
    }
}
