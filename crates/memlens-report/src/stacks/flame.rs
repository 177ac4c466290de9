//! A flame graph as one SVG file, drawn by inferno.

use std::io::{self, Write};

use inferno::flamegraph::{self, Options};
use memlens_profile::Profile;

use super::folded::{Lines, one_line};
use super::{Amounts, Stacks, Tree};
use crate::column::Column;

/// Writes a flame graph of an amount of `column`, else of what tables are ranked by. A profile without any of it has none.
///
/// # Errors
/// Those of `out`.
pub fn flame_graph(
    profile: &Profile,
    tree: Tree,
    column: Option<Column>,
    out: &mut impl Write,
) -> io::Result<()> {
    let (stacks, amounts) = (Stacks::of(profile, tree), Amounts::of(profile));
    let column = column.unwrap_or_else(|| amounts.leading());
    let mut lines = Lines::of(&stacks, &amounts, column);
    // Of what is too narrow nobody sees what is above it.
    lines.cut(LEAST_PERCENT / 100.0);
    let lines: Vec<String> = lines.texts().collect();
    let (name, unit) = amounts.name_of(column);
    let mut options = Options::default();
    let command = one_line(&profile.run.command.join(" "));
    options.title = format!("{} of {command}", name.replace('_', " "));
    options.subtitle = Some(match tree {
        Tree::Data => {
            format!("memlens, {} mode: where data was made, what it is, who touches it", profile.run.mode)
        }
        Tree::Code => {
            format!("memlens, {} mode: who touches which data, through which calls", profile.run.mode)
        }
    });
    options.count_name = unit.to_owned();
    options.min_width = LEAST_PERCENT;
    // The same colours each time.
    options.hash = true;
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out).map_err(io::Error::other)
}

/// What is narrower is left out, in percent.
const LEAST_PERCENT: f64 = 0.05;
