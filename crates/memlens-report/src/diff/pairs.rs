//! Which rows of two profiles belong together.
//!
//! Objects are matched as [`matching`](crate::matching) does it. Rows of code have names that change with the program: a line of another
//! number is the same if its text and its function are. So they are matched in passes, from the strictest to the loosest; what a
//! pass matches, later ones do not see. Rows of one key are paired in their order, where both profiles have as many.
//!
//! | rows | passes |
//! |---|---|
//! | line | file, function, text of the source; file, line, function |
//! | function | name and file; name |
//! | instruction | module, offset and place; function, text of the source, kind of access |
//! | site, caller | whole; without numbers of lines |
//! | field | name and offset; name |
//! | thread, process | name without number, whatever their numbers |
//! | kind | name |

use std::borrow::Cow;
use std::collections::HashMap;

use memlens_profile::{ObjectIx, Profile};

use crate::column::Column;
use crate::matching::match_objects;
use crate::namesakes::Namesakes;
use crate::row::{By, Row, Whole, rows};

/// A row of A, of B, or of both.
pub(super) type Pair = (Option<Row>, Option<Row>);

/// All rows of both; `wholes`: what their shares are of.
pub(super) fn pairs(a: &Profile, b: &Profile, by: By, wholes: [Whole; 2]) -> Vec<Pair> {
    if by == By::Object {
        return of_objects(a, b, wholes);
    }
    let mut rest_a = rows(a, by, Column::Share);
    let mut rest_b = rows(b, by, Column::Share);
    let mut paired = Vec::new();
    for pass in passes(by) {
        let mut groups: HashMap<Key, [usize; 2]> = HashMap::new();
        for (side, rest) in [&rest_a, &rest_b].into_iter().enumerate() {
            rest.iter()
                .filter_map(|row| (pass.key)(row))
                .for_each(|key| groups.entry(key).or_default()[side] += 1);
        }
        // How many of each key are still to be taken.
        let take = |[of_a, of_b]: [usize; 2]| if of_a == of_b || pass.in_turn { of_a.min(of_b) } else { 0 };
        let mut wanted = [(); 2].map(|()| HashMap::<Key, usize>::new());
        for (key, counts) in groups {
            wanted.iter_mut().for_each(|wanted| {
                wanted.insert(key.clone(), take(counts));
            });
        }
        let mut taken: HashMap<Key, Vec<Row>> = HashMap::new();
        let [wanted_a, wanted_b] = &mut wanted;
        for (key, row) in taking(&mut rest_a, wanted_a, pass) {
            taken.entry(key).or_default().push(row);
        }
        taken.values_mut().for_each(|rows| rows.reverse());
        for (key, row) in taking(&mut rest_b, wanted_b, pass) {
            let of_a = taken.get_mut(&key).and_then(Vec::pop);
            paired.push((of_a, Some(row)));
        }
    }
    paired.extend(rest_a.into_iter().map(|row| (Some(row), None)));
    paired.extend(rest_b.into_iter().map(|row| (None, Some(row))));
    paired
}

/// Takes as many rows of each key as are wanted, in their order.
fn taking(rest: &mut Vec<Row>, wanted: &mut HashMap<Key, usize>, pass: &Pass) -> Vec<(Key, Row)> {
    let mut taken = Vec::new();
    let all = std::mem::take(rest);
    for row in all {
        let key = (pass.key)(&row).filter(|key| wanted.get(key).is_some_and(|&left| left > 0));
        match key {
            Some(key) => {
                wanted.entry(key.clone()).and_modify(|left| *left -= 1);
                taken.push((key, row));
            }
            None => rest.push(row),
        }
    }
    taken
}

fn of_objects(a: &Profile, b: &Profile, wholes: [Whole; 2]) -> Vec<Pair> {
    let row = |profile: &Profile, members: Vec<usize>, whole| {
        let objects = Namesakes::of(profile, members.into_iter().map(ObjectIx::from_index).collect());
        (!objects.members().is_empty()).then(|| objects.row(whole))
    };
    let pair = |(of_a, of_b)| (row(a, of_a, wholes[0]), row(b, of_b, wholes[1]));
    match_objects(a, b).into_iter().map(pair).collect()
}

/// What rows must share.
type Key = [String; 3];

/// One pass.
struct Pass {
    /// A row's key; `None`: it is for a later pass.
    key: fn(&Row) -> Option<Key>,
    /// Whether rows of one key are paired in turn, however many each profile has.
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
    const LINE_TEXT: Pass = pass(|row| {
        let text = row.source_text.as_deref().map(str::trim).filter(|text| !text.is_empty())?;
        Some([without_lines(&row.name).into_owned(), self::text(&row.place), text.to_owned()])
    });
    const CODE_TEXT: Pass = pass(|row| {
        let text = row.source_text.as_deref().map(str::trim).filter(|text| !text.is_empty())?;
        let place = row.place.as_deref().map(without_lines)?;
        Some([text.to_owned(), place.into_owned(), self::text(&row.kind)])
    });
    const OFFSET: Pass = pass(|row| Some([row.name.clone(), row.offset?.to_string(), String::new()]));
    const WITHOUT_NUMBER: Pass = Pass {
        key: |row| Some([without_number(&row.name).to_owned(), String::new(), String::new()]),
        in_turn: true,
    };
    match by {
        By::Line => &[LINE_TEXT, WHOLE],
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

/// `worker` of `worker (1234)` and of `worker (1234), 4 threads`.
fn without_number(name: &str) -> &str {
    name.rfind(" (").map_or(name, |at| &name[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_places_are_left_out() {
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
        assert_eq!(without_number("worker (12)"), "worker");
        assert_eq!(without_number("app (12), 4 threads"), "app");
        assert_eq!(without_number("app"), "app");
    }
}
