//! Collapsed stacks: a line a stack, its levels behind each other, and how much.
//!
//! The format of `flamegraph.pl` and inferno, which speedscope and others read: `main;far;walk;nodes 4711`.

use std::collections::BTreeSet;
use std::io::{self, Write};

use memlens_profile::Profile;
use rustc_hash::{FxHashMap, FxHashSet};

use super::tree_of::{Column as ColumnOf, Node, TreeOf};
use super::{Amounts, Level, Stacks, Tree};
use crate::column::Column;

/// Stacks by the names of their levels, and how much there is of each.
pub(super) struct Lines {
    /// In alphabetical order.
    names: Vec<String>,
    tree: TreeOf<Name>,
    amounts: ColumnOf<u64>,
}

/// The place of a name among others.
type Name = u32;

impl Lines {
    pub(super) fn of(stacks: &Stacks<'_>, amounts: &Amounts<'_>, column: Column) -> Self {
        let levels: FxHashSet<Level> =
            stacks.levels.nodes().filter_map(|node| stacks.levels.levels(node).next()).collect();
        let named: Vec<(Level, String)> =
            levels.into_iter().map(|level| (level, plain(&stacks.name(level)))).collect();
        let names: BTreeSet<&str> = named.iter().map(|(_, name)| name.as_str()).collect();
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let place = |name: &String| names.binary_search(name).unwrap_or_default() as Name;
        let places: FxHashMap<Level, Name> =
            named.iter().map(|(level, name)| (*level, place(name))).collect();
        let mut tree = TreeOf::new();
        let mut found: Vec<(Node, u64)> = Vec::new();
        for stack in &stacks.all {
            let amount = amounts.in_counts(&stack.counts.get()).column(column).unwrap_or(0);
            if amount > 0 {
                let mut line: Vec<Name> =
                    stacks.levels.levels(stack.stack).map(|level| places[&level]).collect();
                line.reverse();
                found.push((tree.below(Node::ROOT, line), amount));
            }
        }
        let mut amounts = tree.column();
        found.into_iter().for_each(|(node, amount)| *amounts.get_mut(node) += amount);
        Self { names, tree, amounts }
    }

    /// Nothing below levels that have less than this part of the whole, 0 to 1: what is below them counts there.
    pub(super) fn cut(&mut self, least: f64) {
        let mut sums = self.amounts.clone();
        for node in self.tree.nodes().rev() {
            let below = *sums.get(node);
            *sums.get_mut(self.tree.above(node)) += below;
        }
        let least = *sums.get(Node::ROOT) as f64 * least;
        for node in self.tree.nodes().rev() {
            if (*sums.get(self.tree.above(node)) as f64) < least {
                let amount = std::mem::take(self.amounts.get_mut(node));
                *self.amounts.get_mut(self.tree.above(node)) += amount;
            }
        }
    }

    /// Each with names and an amount, in the order of names.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        let ranks = self.tree.ranks();
        let mut nodes: Vec<Node> = self.tree.nodes().filter(|node| *self.amounts.get(*node) > 0).collect();
        nodes.sort_by_key(|node| *ranks.get(*node));
        nodes.into_iter().map(|node| self.text(node))
    }

    fn text(&self, node: Node) -> String {
        let mut levels: Vec<&str> =
            self.tree.levels(node).map(|name| self.names[name as usize].as_str()).collect();
        levels.reverse();
        format!("{} {}", without_number(levels.join(";")), self.amounts.get(node))
    }
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
    Lines::of(&stacks, &amounts, column).texts().try_for_each(|line| writeln!(out, "{line}"))
}
