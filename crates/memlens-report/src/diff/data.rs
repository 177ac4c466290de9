//! A difference for programs: JSON, and CSV as RFC 4180 has it.

use std::io::{self, Write};

use memlens_profile::MERGED_FROM;
use serde_json::{Value, json};

use super::{Diff, DiffRow, Runs, Unit, unlike_sides};
use crate::csv::quoted;
use crate::pair_header::totals_json;
use crate::unlike::machine_differences;

/// What the first key of the JSON says.
pub const DIFF_SCHEMA: &str = "memlens-diff/1";

/// The whole difference; schema [`DIFF_SCHEMA`]. Unknown is `null`.
pub fn diff_json(a: &Runs, b: &Runs, diff: &Diff) -> Value {
    let runs = [a.count(), b.count()];
    let run = |runs: &Runs, total: Option<f64>| {
        let profile = runs.whole();
        json!({
            "runs": runs.count(),
            "command": profile.run.command,
            "mode": profile.run.mode,
            "estimated": profile.run.estimated,
            "merged": profile.run.notes.iter().find(|note| note.starts_with(MERGED_FROM)),
            "wall_seconds": profile.run.wall_seconds,
            "total": total,
        })
    };
    let interval = |interval: Option<(f64, f64)>| interval.map(|(low, high)| [low, high]);
    json!({
        "schema": DIFF_SCHEMA,
        "by": diff.by.as_str(),
        "of": diff.of.as_str(),
        "unit": unit(diff.unit),
        "a": run(a, diff.total_a),
        "b": run(b, diff.total_b),
        "unlike": unlike_sides(a, b),
        "machine_differences": machine_differences(a.whole(), b.whole()),
        "totals": totals_json(a.whole(), b.whole(), runs),
        "change": diff.change(),
        "change_ci95": interval(diff.total_interval),
        "unknown_rows": diff.unknown,
        "rows": diff.rows.iter().map(|row| json!({
            "name": row.name,
            "name_a": row.was,
            "edited": row.is_edited,
            "kind": row.kind,
            "where": row.place,
            "objects": row.objects,
            "ids_a": row.ids_a,
            "ids_b": row.ids_b,
            "a": row.a,
            "b": row.b,
            "change": row.change(),
            "change_ci95": interval(row.change_interval),
            "beyond_chance": row.is_beyond_chance(),
        })).collect::<Vec<_>>(),
    })
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds => "nanoseconds",
        Unit::Bytes => "bytes",
        Unit::Count(word) => word,
    }
}

/// One line for each row, empty where a profile does not have it.
///
/// # Errors
/// Those of `out`.
pub fn diff_csv(diff: &Diff, top: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    write!(
        out,
        "name,name_a,kind,where,objects,a,b,change,change_low,change_high,ids_a,ids_b,edited,beyond_chance\r\n"
    )?;
    let text = |text: &Option<String>| quoted(text.as_deref().unwrap_or(""));
    let number = |number: Option<f64>| number.map_or(String::new(), |number| format!("{number:.0}"));
    let ids = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    let fields = |row: &DiffRow| {
        [
            quoted(&row.name),
            text(&row.was),
            text(&row.kind),
            text(&row.place),
            text(&row.objects),
            number(row.a),
            number(row.b),
            number(Some(row.change() + 0.0)),
            number(row.change_interval.map(|it| it.0)),
            number(row.change_interval.map(|it| it.1)),
            ids(&row.ids_a),
            ids(&row.ids_b),
            row.is_edited.to_string(),
            row.is_beyond_chance().map_or(String::new(), |it| it.to_string()),
        ]
    };
    for row in diff.rows.iter().take(top.unwrap_or(usize::MAX)) {
        write!(out, "{}\r\n", fields(row).join(","))?;
    }
    Ok(())
}
