//! A difference as a table.

use unicode_width::UnicodeWidthStr;

use super::{Diff, DiffRow, Runs, Unit};
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
    let compared = Compared { amount: None, runs: [a.count(), b.count()] };
    let mut out = pair_header(["A, before", "B, after"], a.whole(), b.whole(), &compared, INDENT, view);
    out += &wrap("change", INDENT, &change_pieces(diff), width, colour);
    if let Some(piece) = chance_piece(diff, colour) {
        out += &wrap("chance", INDENT, &[piece], width, colour);
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
    let mut footer = shown(rows.len(), changed.len(), diff.by.as_str(), "");
    footer += if changed.len() == 1 { " changed" } else { " that changed" };
    let same =
        diff.rows.iter().filter(|row| row.change() == 0.0 && row.a.unwrap_or(0.0) > 0.0).count() as u64;
    let mut pieces = Vec::new();
    if same > 0 {
        pieces.push(format!("{} did not", count(same)));
    }
    if diff.unknown > 0 {
        let of = diff.of.as_str().replace('_', " ");
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
        Unit::Bytes => diff.of.as_str().replace('_', " "),
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
            pieces.push(format!("95 %: {} to {}", signed(diff.unit, low), signed(diff.unit, high)));
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

/// How many changes are more than chance; nothing where all was counted.
fn chance_piece(diff: &Diff, colour: bool) -> Option<String> {
    let changed = diff.rows.iter().filter(|row| row.change() != 0.0);
    let verdicts: Vec<bool> = changed.filter_map(DiffRow::is_beyond_chance).collect();
    let beyond = verdicts.iter().filter(|is_beyond| **is_beyond).count();
    let of = match beyond {
        _ if verdicts.is_empty() => return None,
        0 => return Some("no change is more than chance: 0 is in each one's 95 % interval".to_owned()),
        1 => format!("1 change of {} is more than chance", verdicts.len()),
        beyond => format!("{beyond} changes of {} are more than chance", verdicts.len()),
    };
    let others = if colour { "; others are dim" } else { "" };
    Some(format!("{of}: 0 is not in the 95 % interval{others}"))
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
    let Some(was) = &row.was else { return row.name.clone() };
    match (row.name.rsplit_once(':'), was.rsplit_once(':')) {
        (Some((file, _)), Some((file_before, line))) if file == file_before => {
            format!("{} (was {line})", row.name)
        }
        _ => format!("{} (was {was})", row.name),
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
    if !is_of_code {
        columns.push(text(["", "kind"], 1, (6, 8), Elide::End));
    }
    columns.push(text(
        if is_of_code { ["", "where"] } else { ALLOCATED_AT },
        2,
        (18, 60),
        Elide::BeforeLastWord,
    ));
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
        let mut cells = vec![GridCell::new(signed(diff.unit, row.change()), style)];
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
        if !is_of_code {
            cells.push(GridCell::new(row.kind.as_deref().unwrap_or(""), Style::Dim));
        }
        cells.push(GridCell::new(row.place.as_deref().unwrap_or(""), Style::Dim));
        if have_objects {
            cells.push(GridCell::new(row.objects.as_deref().unwrap_or(""), Style::Dim));
        }
        cells
    };
    Grid { columns, rows: rows.iter().map(cells).collect(), footer: None }
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
        assert_eq!(ratio(&row("f", None, Some(4.0), Some(1.0))), "× 0.25");
        assert_eq!(ratio(&row("f", None, Some(4.0), None)), "gone");
        assert_eq!(ratio(&row("f", None, None, Some(4.0))), "new");
        assert_eq!(ratio(&row("f", None, Some(0.0), Some(4.0))), UNKNOWN);
    }
}
