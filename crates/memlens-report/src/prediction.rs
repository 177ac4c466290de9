//! Predicted page walks, for people.

use std::fmt::Write as _;

use memlens_profile::{PredictedWalks, Prediction};

use crate::grid::printable;
use crate::number::count as short_count;

/// What huge pages would do to a program's page walks, as a table.
pub fn prediction_table(prediction: &Prediction) -> String {
    let before = &prediction.small_pages;
    let mut text = format!(
        "The program once more, modelled on {}: in 4-KiB pages {} page walks read {} entries.\n",
        printable(&prediction.machine),
        short_count(before.page_walks),
        short_count(before.page_walk_accesses)
    );
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{:<32} {:>12} {:>9} {:>13} {:>12}",
        "in 2-MiB pages", "page walks", "change", "entries read", "memory"
    );
    for placed in &prediction.huge_pages {
        text += &line(&printable(&placed.names.join(", ")), &placed.walks, before);
    }
    text += &line("all that can be", &prediction.all_huge_pages, before);
    if let Some(placed) = prediction.huge_pages.last() {
        text += &sentence(&placed.names, &placed.walks);
    }
    if prediction.exit_code != 0 {
        let _ = writeln!(text, "The program ended with exit code {} in this run.", prediction.exit_code);
    }
    text
}

/// A prediction that a profile keeps, for the header of a report: what would be left of which run, and whose it would be.
pub(crate) fn pieces(prediction: &Prediction) -> Vec<String> {
    let of = format!("{} on {}", printable(&prediction.command.join(" ")), printable(&prediction.machine));
    let before = short_count(prediction.small_pages.page_walks);
    let Some(placed) = prediction.huge_pages.last() else {
        return vec![of, format!("{before} page walks")];
    };
    let names = printable(&placed.names.join(", "));
    let left = short_count(placed.walks.page_walks);
    let cause = placed.walks.causes.first();
    let left = format!("with {names} in huge pages {left} of {before} page walks");
    let cause = cause.map(|cause| format!("then most of {}", printable(&cause.name)));
    [of, left].into_iter().chain(cause).collect()
}

fn sentence(names: &[String], walks: &PredictedWalks) -> String {
    let names = printable(&names.join(", "));
    match walks.causes.first() {
        Some(cause) => format!(
            "With {names} in huge pages, {} ({}) causes most page walks: {:.1} % of {}.\n",
            printable(&cause.name),
            printable(&cause.kind),
            100.0 * cause.page_walks as f64 / walks.page_walks.max(1) as f64,
            short_count(walks.page_walks)
        ),
        None => format!("With {names} in huge pages there are no page walks left.\n"),
    }
}

fn line(names: &str, walks: &PredictedWalks, before: &PredictedWalks) -> String {
    let change = match before.page_walks {
        0 => String::new(),
        before => format!("{:+.1} %", (walks.page_walks as f64 / before as f64 - 1.0) * 100.0),
    };
    let mib = walks.extra_memory_bytes as f64 / f64::from(1 << 20);
    format!(
        "{names:<32} {:>12} {change:>9} {:>13} {:>12}\n",
        short_count(walks.page_walks),
        short_count(walks.page_walk_accesses),
        format!("{mib:+.1} MiB")
    )
}
