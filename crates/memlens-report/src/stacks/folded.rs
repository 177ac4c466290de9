//! Collapsed stacks: a line a stack, its levels behind each other, and how much.
//!
//! The format of `flamegraph.pl` and inferno, which speedscope and others read: `main;far;walk;nodes 4711`.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use memlens_profile::Profile;

use super::{Amounts, Level, Stacks, Tree};
use crate::column::Column;

/// Lines of levels' names, with a blank and an amount behind them, by the names.
pub(super) fn lines(stacks: &Stacks<'_>, amounts: &Amounts<'_>, column: Column) -> BTreeMap<String, u64> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    let mut names: HashMap<Level, String> = HashMap::new();
    for stack in &stacks.all {
        let amount = amounts.in_counts(&stack.counts).column(column).unwrap_or(0);
        if amount == 0 {
            continue;
        }
        let mut line = String::new();
        for &level in &stack.levels {
            let name = names.entry(level).or_insert_with(|| plain(&stacks.name(level)));
            line += if line.is_empty() { "" } else { ";" };
            line += name;
        }
        *lines.entry(without_number(line)).or_default() += amount;
    }
    lines
}

/// A name that is one level.
fn plain(name: &str) -> String {
    one_line(name).replace(';', ":")
}

/// A text without what ends a line or what XML forbids.
pub(super) fn one_line(text: &str) -> String {
    let is_forbidden = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if is_forbidden(c) { ' ' } else { c }).collect()
}

/// A line that does not end with a number of its own, which would be taken for the amount of another profile: `stack of thread 3`.
fn without_number(line: String) -> String {
    match line.rsplit_once(' ') {
        Some((before, last)) if last.parse::<f64>().is_ok() => format!("{before}_{last}"),
        _ => line,
    }
}

/// Writes the stacks with an amount of `column`, else of what tables are ranked by.
///
/// # Errors
/// Those of `out`.
pub fn folded(profile: &Profile, tree: Tree, column: Option<Column>, out: &mut impl Write) -> io::Result<()> {
    let (stacks, amounts) = (Stacks::of(profile, tree), Amounts::of(profile));
    let column = column.unwrap_or_else(|| amounts.leading());
    lines(&stacks, &amounts, column).iter().try_for_each(|(names, amount)| writeln!(out, "{names} {amount}"))
}
