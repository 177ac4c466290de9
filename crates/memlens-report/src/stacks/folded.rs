//! Collapsed stacks: a line a stack, its levels behind each other, and how much.
//!
//! The format of `flamegraph.pl` and inferno, which speedscope and others read: `main;far;walk;nodes 4711`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use memlens_profile::Profile;

use super::{Amounts, Stacks, Tree};
use crate::column::Column;

/// Lines of levels' names, with a blank and an amount behind them, by the names.
pub(super) fn lines(stacks: &Stacks<'_>, amounts: &Amounts<'_>, column: Column) -> BTreeMap<String, u64> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for stack in &stacks.all {
        let amount = amounts.amount(column, &stack.counts).unwrap_or(0);
        if amount > 0 {
            let names: Vec<String> = stack.levels.iter().map(|level| plain(&stacks.name(*level))).collect();
            *lines.entry(names.join(";")).or_default() += amount;
        }
    }
    lines
}

/// A name that is one level: no separator, nothing that ends the line.
fn plain(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c == ';' {
                ':'
            } else if c.is_control() {
                ' '
            } else {
                c
            }
        })
        .collect()
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
