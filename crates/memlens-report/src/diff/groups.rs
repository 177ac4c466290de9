//! Which rows of two sides belong together, and what each run has of them.
//!
//! Objects are matched as [`matching`](crate::matching) does it; in which object of a side each of a run's is, merging the runs told. Rows of
//! code have names that change with the program: a line of another number is the same if its text and its function are. So rows that are equal in all are
//! added up in each run, and put together with those of the side's other runs; then the two sides' are joined in passes, from the strictest to the loosest.
//! What a pass joins, later ones do not see. Rows of one key are joined in the order of their numbers, where both sides have as many.
//!
//! | rows | passes |
//! |---|---|
//! | line | file, function, text of the source; file, line, function; file, line |
//! | function | name and file; name |
//! | instruction | module, offset and place; function, text of the source, kind of access |
//! | site, caller | whole; without numbers of lines |
//! | field | name and offset; name |
//! | thread, process | name without number, in the order of their numbers, however many both have |
//! | kind | name |

use std::borrow::Cow;
use std::collections::HashMap;

use memlens_profile::{ObjectIx, Profile};

use super::runs::Runs;
use crate::column::{Column, Content};
use crate::matching::match_objects;
use crate::namesakes::Namesakes;
use crate::row::{By, Row, Whole, rows};

/// Rows that are one, of A, of B, or of both.
#[derive(Default)]
pub(super) struct Group {
    /// How they are shown, in A and in B.
    pub(super) rows: [Option<Row>; 2],
    /// What the runs of A, and of B, have.
    pub(super) amounts: [Amounts; 2],
}

/// How much of a column each run of a side has.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Amounts {
    /// 0 where it has no such row.
    pub(super) runs: Vec<f64>,
    /// Whether one has a row of which that is not known.
    pub(super) is_unknown: bool,
}

impl Amounts {
    fn none(runs: usize) -> Self {
        Self { runs: vec![0.0; runs], is_unknown: false }
    }

    /// Of one more row, or of several objects together; `run`: which.
    fn add(&mut self, of: Column, run: usize, amount: Option<f64>) {
        let sum = &mut self.runs[run];
        match amount {
            // What several have at one time is known of each alone: the most of one.
            Some(amount) if of == Column::MaxLiveBytes => *sum = sum.max(amount),
            Some(amount) => *sum += amount,
            None => self.is_unknown = true,
        }
    }

    fn add_all(&mut self, of: Column, other: &Self) {
        for (run, &amount) in other.runs.iter().enumerate() {
            self.add(of, run, Some(amount));
        }
        self.is_unknown |= other.is_unknown;
    }
}

/// How much of a column a row has; [`Column::Share`] is its cost.
pub(super) fn amount(of: Column, row: &Row) -> Option<f64> {
    match of.content(row) {
        _ if of == Column::Share => Some(row.cost as f64),
        Content::Count(value) | Content::Bytes(value) => value.map(|value| value as f64),
        Content::Ratio(_) | Content::Text(_) => None,
    }
}

/// All rows of both sides. Linear in rows, runs and cells.
pub(super) fn groups(sides: [&Runs; 2], by: By, of: Column) -> Vec<Group> {
    if by == By::Object { of_objects(sides, of) } else { of_rows(sides, by, of) }
}

fn of_objects(sides: [&Runs; 2], of: Column) -> Vec<Group> {
    let amounts = sides.map(|runs| {
        let mut amounts = vec![Amounts::none(runs.count()); runs.whole().objects.len()];
        for (number, run) in runs.each().iter().enumerate() {
            let whole = Whole::of(run, &run.totals());
            for at in 0..run.objects.len() {
                let of_one = amount(of, &Namesakes::one(run, ObjectIx::from_index(at)).row(whole));
                amounts[runs.object_in_whole(number, at)].add(of, number, of_one);
            }
        }
        amounts
    });
    let wholes = sides.map(|runs| Whole::of(runs.whole(), &runs.whole().totals()));
    let row = |side: usize, members: &[usize]| {
        let members = members.iter().map(|&at| ObjectIx::from_index(at)).collect();
        let objects = Namesakes::of(sides[side].whole(), members);
        (!objects.members().is_empty()).then(|| objects.row(wholes[side]))
    };
    let sum = |side: usize, members: &[usize]| {
        let mut sum = Amounts::none(sides[side].count());
        members.iter().for_each(|&at| sum.add_all(of, &amounts[side][at]));
        sum
    };
    let matched = match_objects(sides[0].whole(), sides[1].whole());
    let group = |(of_a, of_b): (Vec<usize>, Vec<usize>)| Group {
        rows: [row(0, &of_a), row(1, &of_b)],
        amounts: [sum(0, &of_a), sum(1, &of_b)],
    };
    matched.into_iter().map(group).collect()
}

fn of_rows(sides: [&Runs; 2], by: By, of: Column) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (side, runs) in sides.into_iter().enumerate() {
        let mut known: HashMap<Own, usize> = HashMap::new();
        for (number, run) in runs.each().iter().enumerate() {
            for (own, row) in own_rows(run, by) {
                let next = groups.len();
                let at = *known.entry(own).or_insert(next);
                if at == next {
                    let amounts = sides.map(|runs| Amounts::none(runs.count()));
                    groups.push(Group { amounts, ..Group::default() });
                }
                groups[at].amounts[side].add(of, number, amount(of, &row));
                groups[at].rows[side].get_or_insert(row);
            }
        }
    }
    passes(by).iter().for_each(|pass| join(&mut groups, pass, of));
    groups
}

/// What tells rows of one run apart; those of another run are the same rows.
type Own = (Key, String, Option<u64>);

/// The rows of a run.
fn own_rows(run: &Profile, by: By) -> Vec<(Own, Row)> {
    let mut all = rows(run, by, Column::Share);
    let has_number = matches!(by, By::Thread | By::Process);
    if has_number {
        all.sort_by_key(|row| number(&row.name));
    }
    let mut nth: HashMap<String, u64> = HashMap::new();
    let own = |row: &Row| match has_number {
        true => {
            let name = without_number(&row.name).to_owned();
            let nth = nth.entry(name.clone()).and_modify(|nth| *nth += 1).or_default();
            ([name, String::new(), String::new()], String::new(), Some(*nth))
        }
        false => {
            let key = [row.name.clone(), text(&row.place), text(&row.kind)];
            (key, text(&row.source_text), row.offset)
        }
    };
    let owns: Vec<Own> = all.iter().map(own).collect();
    owns.into_iter().zip(all).collect()
}

/// Joins groups of one side alone.
fn join(groups: &mut Vec<Group>, pass: &Pass, of: Column) {
    let mut by_key: HashMap<Key, [Vec<usize>; 2]> = HashMap::new();
    for (at, group) in groups.iter().enumerate() {
        let (side, row) = match &group.rows {
            [Some(row), None] => (0, row),
            [None, Some(row)] => (1, row),
            _ => continue,
        };
        if let Some(key) = (pass.key)(row) {
            by_key.entry(key).or_default()[side].push(at);
        }
    }
    let mut is_taken = vec![false; groups.len()];
    for [mut of_a, mut of_b] in by_key.into_values() {
        if of_a.len() != of_b.len() && !pass.in_turn {
            continue;
        }
        for (side, members) in [&mut of_a, &mut of_b].into_iter().enumerate() {
            members.sort_by_key(|&at| (groups[at].rows[side].as_ref().map(|row| number(&row.name)), at));
        }
        for (at, other) in of_a.into_iter().zip(of_b) {
            let taken = std::mem::take(&mut groups[other]);
            is_taken[other] = true;
            let [_, row] = taken.rows;
            let group = &mut groups[at];
            group.rows[1] = row;
            group.amounts[1].add_all(of, &taken.amounts[1]);
        }
    }
    let mut at = 0;
    groups.retain(|_| {
        at += 1;
        !is_taken[at - 1]
    });
}

/// What rows must share.
type Key = [String; 3];

/// One pass.
struct Pass {
    /// A row's key; `None`: it is for a later pass.
    key: fn(&Row) -> Option<Key>,
    /// Whether rows of one key are joined however many each side has.
    in_turn: bool,
}

fn passes(by: By) -> &'static [Pass] {
    const fn pass(key: fn(&Row) -> Option<Key>) -> Pass {
        Pass { key, in_turn: false }
    }
    const WHOLE: Pass = pass(|row| Some([row.name.clone(), text(&row.place), text(&row.kind)]));
    const NAME: Pass = pass(|row| Some([row.name.clone(), String::new(), text(&row.kind)]));
    const WITHOUT_LINES: Pass = pass(|row| {
        let place = row.place.as_deref().map(without_lines).unwrap_or_default();
        Some([without_lines(&row.name).into_owned(), place.into_owned(), text(&row.kind)])
    });
    const LINE_TEXT: Pass =
        pass(|row| Some([without_lines(&row.name).into_owned(), text(&row.place), source(row)?.to_owned()]));
    const CODE_TEXT: Pass = pass(|row| {
        let place = row.place.as_deref().map(without_lines)?;
        Some([source(row)?.to_owned(), place.into_owned(), text(&row.kind)])
    });
    const OFFSET: Pass = pass(|row| Some([row.name.clone(), row.offset?.to_string(), String::new()]));
    const WITHOUT_NUMBER: Pass = Pass {
        key: |row| Some([without_number(&row.name).to_owned(), String::new(), String::new()]),
        in_turn: true,
    };
    match by {
        By::Line => &[LINE_TEXT, WHOLE, NAME],
        By::Function => &[WHOLE, NAME],
        By::Instruction => &[WHOLE, CODE_TEXT],
        By::Site | By::Caller => &[WHOLE, WITHOUT_LINES],
        By::Field => &[OFFSET, NAME],
        By::Thread | By::Process => &[WITHOUT_NUMBER],
        By::Kind | By::Object => &[NAME],
    }
}

fn text(text: &Option<String>) -> String {
    text.clone().unwrap_or_default()
}

/// The text of the source, if there is any.
fn source(row: &Row) -> Option<&str> {
    row.source_text.as_deref().map(str::trim).filter(|text| !text.is_empty())
}

/// The last number in a name: a line's, an offset, a thread's.
fn number(name: &str) -> u64 {
    if let Some((_, offset)) = name.rsplit_once("+0x") {
        return u64::from_str_radix(offset, 16).unwrap_or(0);
    }
    let name = without_threads(name).trim_end_matches(')');
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name[name.len() - digits..].parse().unwrap_or(0)
}

/// The text with `a.c` for each `a.c:12`.
fn without_lines(text: &str) -> Cow<'_, str> {
    let digits = |rest: &str| rest.bytes().take_while(u8::is_ascii_digit).count();
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(':') {
        let number = digits(&rest[at + 1..]);
        let end = at + 1 + number;
        let is_line = number > 0 && !rest[end..].starts_with(|c: char| c.is_alphanumeric() || c == ':');
        out += &rest[..if is_line { at } else { end }];
        rest = &rest[end..];
    }
    if out.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(out + rest) }
}

/// `worker (1234)` of `worker (1234), 4 threads`.
fn without_threads(name: &str) -> &str {
    name.strip_suffix(" threads").and_then(|name| name.rsplit_once(", ")).map_or(name, |(name, _)| name)
}

/// `worker` of `worker (1234)`; nothing of `1234`.
fn without_number(name: &str) -> &str {
    let name = without_threads(name);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match name.strip_suffix(')').and_then(|name| name.rsplit_once(" (")) {
        Some((name, inner)) if is_number(inner) => name,
        _ if is_number(name) => "",
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_lines_and_threads_are_left_out() {
        for (place, without) in [
            ("main bfs.c:12", "main bfs.c"),
            ("bfs.c:12", "bfs.c"),
            ("f a.c:1 ← g b.c:22 ← main", "f a.c ← g b.c ← main"),
            ("std::map<int>::at map.h:7", "std::map<int>::at map.h"),
            ("ns::f", "ns::f"),
            ("a:1x", "a:1x"),
            ("", ""),
        ] {
            assert_eq!(without_lines(place), without, "{place}");
        }
        for (name, without, number_of) in [
            ("worker (12)", "worker", 12),
            ("app (13), 4 threads", "app", 13),
            ("app", "app", 0),
            ("1234", "", 1234),
            ("f (x)", "f (x)", 0),
            ("bfs.c:45", "bfs.c:45", 45),
            ("app+0x10", "app+0x10", 16),
        ] {
            assert_eq!((without_number(name), number(name)), (without, number_of), "{name}");
        }
    }
}
