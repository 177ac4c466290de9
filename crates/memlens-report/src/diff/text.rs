//! A difference as a table.

use unicode_width::UnicodeWidthStr;

use super::{Diff, DiffRow, Runs, Unit, unlike_sides};
use crate::View;
use crate::grid::{Elide, Grid, GridCell, GridColumn, Style, printable, wrap};
use crate::number::{UNKNOWN, bytes, count, percent_of_share, plural, seconds, shown};
use crate::pair_header::{Compared, pair_header, times};
use crate::row::By;
use crate::table::ALLOCATED_AT;

/// Width of the labels at the left.
const INDENT: usize = 11;

/// Changes of less than this part of the larger total are not shown unless rows were asked for.
const TRIFLE: f64 = 0.0005;

/// What has become more and less in all, then row by row. `view` tells width, colour, how many rows, and whether trifles are shown.
pub fn diff_table(a: &Runs, b: &Runs, diff: &Diff, view: &View) -> String {
    let (width, colour) = (view.width, view.colour);
    let compared = Compared { amount: None, unlike: unlike_sides(a, b), runs: [a.count(), b.count()] };
    let mut out = pair_header(["A, before", "B, after"], a.whole(), b.whole(), &compared, INDENT, view);
    out += &wrap("change", INDENT, &change_pieces(diff), width, colour);
    let chance = chance_pieces(a, b, diff);
    if !chance.is_empty() {
        out += &wrap("chance", INDENT, &chance, width, colour);
    }
    out.push('\n');
    let changed: Vec<&DiffRow> = diff.rows.iter().filter(|row| row.change() != 0.0).collect();
    let whole = whole(diff);
    let least = if view.trifles { 0.0 } else { TRIFLE * whole };
    let told: Vec<&DiffRow> = changed.iter().copied().filter(|row| row.change().abs() >= least).collect();
    let rows = &told[..view.top.unwrap_or(usize::MAX).min(told.len())];
    if !rows.is_empty() {
        out += &grid(rows, diff, whole).render(width, colour);
    }
    let mut footer = match changed.len() {
        0 => format!("no {} changed", diff.by.as_str()),
        changed if rows.is_empty() => {
            let what = plural(changed as u64, diff.by.as_str());
            format!(
                "nothing changed by {} % of the whole or more; --top all shows {what} with less",
                TRIFLE * 100.0
            )
        }
        1 => format!("1 {} changed", diff.by.as_str()),
        changed => shown(rows.len(), changed, diff.by.as_str(), "") + " that changed",
    };
    let same =
        diff.rows.iter().filter(|row| row.change() == 0.0 && row.a.unwrap_or(0.0) > 0.0).count() as u64;
    let mut pieces = Vec::new();
    if same > 0 {
        pieces.push(format!("{} did not", count(same)));
    }
    if diff.unknown > 0 {
        let of = diff.of.in_words();
        pieces.push(format!("of {} more the {of} are not known", count(diff.unknown as u64)));
    }
    if diff.by == By::Object && rows.iter().any(|row| row.fate().is_some()) {
        pieces.push("--by line or function shows code where data has other names".to_owned());
    }
    for piece in pieces {
        let is_one_line = footer.lines().last().unwrap_or("").width() + 2 + piece.width() <= width;
        footer += if is_one_line { "; " } else { "\n" };
        footer += &piece;
    }
    out += &Style::Dim.paint(&footer, colour);
    out.push('\n');
    out
}

/// What changes are shown as parts of: the larger total, or without one what all rows have.
fn whole(diff: &Diff) -> f64 {
    let most = |row: &DiffRow| row.a.unwrap_or(0.0).max(row.b.unwrap_or(0.0));
    match (diff.total_a, diff.total_b) {
        (Some(of_a), Some(of_b)) => of_a.max(of_b),
        _ => diff.rows.iter().map(most).sum(),
    }
}

/// How much more and less there is in all, and how much of that adds up from rows that have more and that have less.
fn change_pieces(diff: &Diff) -> Vec<String> {
    let mut pieces = Vec::new();
    let word = match diff.unit {
        Unit::Nanoseconds => "processor time".to_owned(),
        Unit::Bytes => diff.of.in_words(),
        Unit::Count(word) if word == diff.of.as_str() => diff.of.in_words(),
        Unit::Count(word) => word.replace('_', " "),
    };
    if let (Some(of_a), Some(of_b), Some(change)) = (diff.total_a, diff.total_b, diff.change()) {
        let part = if of_a > 0.0 && change != 0.0 {
            format!(" ({}{} %)", if change < 0.0 { "−" } else { "+" }, percent_of_share(change.abs() / of_a))
        } else {
            String::new()
        };
        pieces.push(format!("{word} {} → {}{part}", amount(diff.unit, of_a), amount(diff.unit, of_b),));
        if let Some((low, high)) = diff.total_interval {
            let chance = if low <= 0.0 && high >= 0.0 { ", perhaps chance" } else { "" };
            let (low, high) = (signed(diff.unit, low), signed(diff.unit, high));
            pieces.push(format!("95 %: {low} to {high}{chance}"));
        }
    }
    let of_sign = |more: bool| {
        let rows =
            diff.rows.iter().map(DiffRow::change).filter(|change| *change != 0.0 && (*change > 0.0) == more);
        rows.fold((0u64, 0.0), |(rows, sum), change| (rows + 1, sum + change))
    };
    for more in [false, true] {
        let (rows, sum) = of_sign(more);
        if rows > 0 {
            pieces.push(format!("{} in {}", signed(diff.unit, sum), plural(rows, diff.by.as_str())));
        }
    }
    if pieces.is_empty() {
        pieces.push(format!("{word}: none"));
    }
    pieces
}

/// How many changes are more than chance, how small one could have been seen, and what would tell more.
fn chance_pieces(a: &Runs, b: &Runs, diff: &Diff) -> Vec<String> {
    let changed = diff.rows.iter().filter(|row| row.change() != 0.0);
    let verdicts: Vec<bool> = changed.filter_map(DiffRow::is_beyond_chance).collect();
    let beyond = verdicts.iter().filter(|is_beyond| **is_beyond).count();
    if verdicts.is_empty() {
        let is_single_exact = |runs: &Runs| runs.count() == 1 && runs.whole().run.mode == "exact";
        let is_of_memory = !diff.of.is_of_accesses() && !diff.of.is_of_program();
        let has_changed = diff.rows.iter().any(|row| row.change() != 0.0);
        if is_single_exact(a) && is_single_exact(b) && is_of_memory && has_changed {
            return [
                "where memory lies differs from run to run, and with it some misses",
                "several runs of each tell how much",
                "setarch -R keeps it",
            ]
            .map(str::to_owned)
            .to_vec();
        }
        return Vec::new();
    }
    let mut pieces = vec![match beyond {
        0 => "no change is more than chance: 0 is in each one's 95 % interval".to_owned(),
        1 => format!("1 change of {} is more than chance; those that may be have a ?", verdicts.len()),
        beyond => {
            format!("{beyond} changes of {} are more than chance; those that may be have a ?", verdicts.len())
        }
    }];
    if let (Some((low, high)), Some(of_a)) = (diff.total_interval, diff.total_a.filter(|total| *total > 0.0))
        && low <= 0.0
        && high >= 0.0
    {
        let least = (high - low) / 2.0 / of_a;
        pieces.push(format!("of the whole less than ±{} % could not be seen", percent_of_share(least)));
        /// What people change programs for is less.
        const MUCH: f64 = 0.1;
        if least > MUCH {
            pieces.push("more runs, longer ones or --mode exact tell more".to_owned());
        }
    }
    pieces
}

/// An amount in words of its unit.
fn amount(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Nanoseconds => seconds(value / 1e9),
        Unit::Bytes => bytes(value.round() as u64),
        Unit::Count(_) => count(value.round() as u64),
    }
}

/// A change, with its sign; one that is nothing has none.
fn signed(unit: Unit, change: f64) -> String {
    let text = amount(unit, change.abs());
    match change {
        _ if change.abs() < 0.5 => text,
        change if change < 0.0 => format!("−{text}"),
        _ => format!("+{text}"),
    }
}

/// What a row's amount in B is of that in A.
fn ratio(row: &DiffRow) -> String {
    match (row.fate(), row.a, row.b) {
        (Some(fate), ..) => fate.to_owned(),
        (None, Some(of_a), Some(of_b)) if of_a > 0.0 && of_b > 0.0 => format!("× {}", times(of_a, of_b)),
        _ => UNKNOWN.to_owned(),
    }
}

/// Its name, with that in A where it is another one: of lines what differs.
fn name(row: &DiffRow) -> String {
    let edited = if row.is_edited { ", other text" } else { "" };
    let was = match &row.was {
        None => String::new(),
        Some(was) => match (row.name.rsplit_once(':'), was.rsplit_once(':')) {
            (Some((file, _)), Some((file_before, line))) if file == file_before => format!("was {line}"),
            _ => format!("was {was}"),
        },
    };
    match (was.is_empty(), edited.is_empty()) {
        (true, true) => row.name.clone(),
        (true, false) => format!("{} (other text)", row.name),
        (false, _) => format!("{} ({was}{edited})", row.name),
    }
}

fn grid(rows: &[&DiffRow], diff: &Diff, whole: f64) -> Grid {
    let (number, text) = (GridColumn::number, GridColumn::text);
    let word: &'static str = match diff.unit {
        Unit::Nanoseconds => "time",
        Unit::Bytes => "bytes",
        Unit::Count("stall_cycles") => "stalls",
        Unit::Count("wait_cycles") => "wait",
        Unit::Count(_) => "",
    };
    let is_of_code = !diff.by.is_data();
    let have_intervals = rows.iter().any(|row| row.change_interval.is_some());
    let have_objects = is_of_code && rows.iter().any(|row| row.objects.is_some());
    let mut columns = vec![number(["", "change"], 0)];
    if have_intervals {
        columns.extend([number(["95 %", "from"], 2), number(["95 %", "to"], 2)]);
    }
    columns.extend([number(["A", word], 1), number(["B", word], 1), number(["B ÷ A", ""], 0)]);
    let title = ["", diff.by.as_str()];
    columns.push(text(title, 0, (12, 48), if is_of_code { Elide::End } else { Elide::BeforeLastComponent }));
    let have_kinds = !is_of_code && rows.iter().any(|row| row.kind.is_some());
    let have_places = rows.iter().any(|row| row.place.is_some());
    if have_kinds {
        columns.push(text(["", "kind"], 1, (6, 8), Elide::End));
    }
    if have_places {
        let title = if is_of_code { ["", "where"] } else { ALLOCATED_AT };
        columns.push(text(title, 2, (18, 60), Elide::BeforeLastWord));
    }
    if have_objects {
        columns.push(text(["", "objects"], 3, (12, 36), Elide::End));
    }
    let cells = |row: &&DiffRow| {
        let part = row.change().abs() / whole;
        let style = match part {
            _ if row.is_beyond_chance() == Some(false) => Style::Dim,
            part if part >= 0.05 => Style::Hot,
            part if part >= 0.01 => Style::Warm,
            _ => Style::Plain,
        };
        let doubt = if row.is_beyond_chance() == Some(false) { " ?" } else { "" };
        let mut cells = vec![GridCell::new(signed(diff.unit, row.change()) + doubt, style)];
        if have_intervals {
            let end = |end: Option<f64>| {
                GridCell::new(end.map_or(UNKNOWN.to_owned(), |end| signed(diff.unit, end)), Style::Dim)
            };
            cells.extend([end(row.change_interval.map(|it| it.0)), end(row.change_interval.map(|it| it.1))]);
        }
        let of = |value: Option<f64>| match value {
            Some(value) => GridCell::new(amount(diff.unit, value), Style::Plain),
            None => GridCell::new(UNKNOWN, Style::Dim),
        };
        cells.extend([of(row.a), of(row.b), GridCell::new(ratio(row), Style::Plain)]);
        cells.push(GridCell::new(printable(&name(row)), Style::Bold));
        if have_kinds {
            cells.push(GridCell::new(row.kind.as_deref().unwrap_or(""), Style::Dim));
        }
        if have_places {
            cells.push(GridCell::new(row.place.as_deref().unwrap_or(""), Style::Dim));
        }
        if have_objects {
            cells.push(GridCell::new(row.objects.as_deref().unwrap_or(""), Style::Dim));
        }
        cells
    };
    Grid { columns, rows: rows.iter().map(cells).collect(), footer: None, targets: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_signs_and_lines_their_old_numbers() {
        assert_eq!(signed(Unit::Count(""), -1234.0), "−1.23k");
        assert_eq!(signed(Unit::Nanoseconds, 5e8), "+500.0 ms");
        assert_eq!(signed(Unit::Bytes, 0.0), "0");
        let row = |name: &str, was: Option<&str>, a, b| DiffRow {
            name: name.to_owned(),
            was: was.map(str::to_owned),
            is_edited: name == "g",
            kind: None,
            place: None,
            objects: None,
            ids_a: Vec::new(),
            ids_b: Vec::new(),
            a,
            b,
            change_interval: None,
        };
        assert_eq!(name(&row("bfs.c:47", Some("bfs.c:45"), None, None)), "bfs.c:47 (was 45)");
        assert_eq!(name(&row("f", Some("g"), None, None)), "f (was g)");
        assert_eq!(name(&row("g", Some("f"), None, None)), "g (was f, other text)");
        assert_eq!(name(&row("g", None, None, None)), "g (other text)");
        assert_eq!(ratio(&row("f", None, Some(4.0), Some(1.0))), "× 0.25");
        assert_eq!(ratio(&row("f", None, Some(4.0), None)), "gone");
        assert_eq!(ratio(&row("f", None, None, Some(4.0))), "new");
        assert_eq!(ratio(&row("f", None, Some(0.0), Some(4.0))), UNKNOWN);
    }
}
