//! Objects of two profiles that belong together.
//!
//! An object has no number that two runs share, so objects are matched by what they are, in passes
//! from the strictest to the loosest. What a pass matches, later passes do not see.
//!
//! | pass | equal are | for |
//! |---|---|---|
//! | 1 | kind, name, whole site (module and offset of each frame) or declaration | the same binaries |
//! | 2 | kind, name, whole site by function and line | rebuilt binaries |
//! | 3 | kind, name, innermost place | stacks cut at different depths |
//! | 4 | kind, name, if one side has only one such object | profiles without sites |
//! | 5 | kind, variable: `heap through x` is `x`, if one side has only one such object, or only such as it knows no site of | sampled profiles |
//!
//! Objects of one profile that are equal in a pass count as one, as do those that are one row of a report
//! ([`Profile::object_rows`]): their values are added.

use std::collections::HashMap;

use memlens_profile::{HEAP_THROUGH, Object, Profile};
use memlens_types::ObjectKind;

use crate::place::{base_name, object_place};

/// What two objects must share in one of the passes.
#[derive(PartialEq, Eq, Hash)]
struct Key<'a> {
    kind: ObjectKind,
    name: &'a str,
    site: Vec<SitePart<'a>>,
}

#[derive(PartialEq, Eq, Hash)]
enum SitePart<'a> {
    Code(&'a str, u64),
    Line(Option<&'a str>, Option<&'a str>, Option<u32>),
    Declared(&'a str, u32),
    Module(&'a str),
    Place(String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Offsets,
    Lines,
    Place,
    Name,
    /// The variable alone that a heap object is named after, or was reached through where allocations were
    /// not watched.
    Variable,
}

fn key<'a>(profile: &'a Profile, object: &'a Object, pass: Pass) -> Key<'a> {
    let mut site = Vec::new();
    let module = |module| profile.module(module).map_or("", |module| module.name());
    match pass {
        Pass::Offsets | Pass::Lines => {
            site.extend(profile.stack_frames(object.site).map(|frame| match pass {
                Pass::Offsets => SitePart::Code(module(frame.module), frame.offset),
                _ => SitePart::Line(
                    frame.function.as_deref(),
                    frame.file.as_deref().map(base_name),
                    frame.line,
                ),
            }));
            if let Some(declared) = &object.declared {
                site.push(SitePart::Declared(base_name(&declared.file), declared.line));
            }
            site.push(SitePart::Module(module(object.module)));
        }
        Pass::Place => site.extend(object_place(profile, object).map(SitePart::Place)),
        Pass::Name | Pass::Variable => {}
    }
    let name = match pass {
        Pass::Variable => object.name.strip_prefix(HEAP_THROUGH).unwrap_or(&object.name),
        _ => &object.name,
    };
    Key { kind: object.kind, name, site }
}

/// Positions in A's and B's tables of objects that belong together; one of them may be empty.
pub(crate) type Group = (Vec<usize>, Vec<usize>);

/// All objects of both, in groups. Linear in the objects.
pub(crate) fn match_objects(a: &Profile, b: &Profile) -> Vec<Group> {
    let mut rest_a: Vec<usize> = (0..a.objects.len()).collect();
    let mut rest_b: Vec<usize> = (0..b.objects.len()).collect();
    let mut matched = Vec::new();
    for pass in [Pass::Offsets, Pass::Lines, Pass::Place, Pass::Name, Pass::Variable] {
        let mut groups: HashMap<Key<'_>, Group> = HashMap::new();
        for &at in &rest_a {
            groups.entry(key(a, &a.objects[at], pass)).or_default().0.push(at);
        }
        for &at in &rest_b {
            groups.entry(key(b, &b.objects[at], pass)).or_default().1.push(at);
        }
        let belongs = |(of_a, of_b): &Group| {
            let both = !of_a.is_empty() && !of_b.is_empty();
            let is_certain = !matches!(pass, Pass::Name | Pass::Variable);
            // Nothing tells those apart that were reached through variables of one name.
            let only_through = |profile: &Profile, of: &[usize]| {
                of.iter().all(|&at| profile.objects[at].name.starts_with(HEAP_THROUGH))
            };
            let is_all = pass == Pass::Variable && (only_through(a, of_a) || only_through(b, of_b));
            both && (is_certain || is_all || of_a.len() == 1 || of_b.len() == 1)
        };
        let found: Vec<Group> = groups.into_values().filter(belongs).collect();
        let mut gone_a = vec![false; a.objects.len()];
        let mut gone_b = vec![false; b.objects.len()];
        for (of_a, of_b) in &found {
            of_a.iter().for_each(|&at| gone_a[at] = true);
            of_b.iter().for_each(|&at| gone_b[at] = true);
        }
        rest_a.retain(|&at| !gone_a[at]);
        rest_b.retain(|&at| !gone_b[at]);
        matched.extend(found);
    }
    matched.extend(rest_a.into_iter().map(|at| (vec![at], Vec::new())));
    matched.extend(rest_b.into_iter().map(|at| (Vec::new(), vec![at])));
    joined_by_rows(a, b, matched)
}

/// The groups, those with objects of one row of A's report or of B's together.
fn joined_by_rows(a: &Profile, b: &Profile, groups: Vec<Group>) -> Vec<Group> {
    let (row_a, row_b) = (rows_of_objects(a), rows_of_objects(b));
    let (mut first_a, mut first_b) = (vec![None; row_a.len()], vec![None; row_b.len()]);
    // A group's number, or that of an earlier one that it belongs to.
    let mut leads: Vec<usize> = (0..groups.len()).collect();
    let lead = |leads: &[usize], mut at: usize| {
        while leads[at] != at {
            at = leads[at];
        }
        at
    };
    for (number, (of_a, of_b)) in groups.iter().enumerate() {
        let mut join = |first: &mut Option<usize>| {
            let (one, other) = (lead(&leads, *first.get_or_insert(number)), lead(&leads, number));
            leads[one.max(other)] = one.min(other);
        };
        of_a.iter().for_each(|&at| join(&mut first_a[row_a[at]]));
        of_b.iter().for_each(|&at| join(&mut first_b[row_b[at]]));
    }
    let mut joined: Vec<Group> = vec![Group::default(); groups.len()];
    for (number, (of_a, of_b)) in groups.into_iter().enumerate() {
        let into = &mut joined[lead(&leads, number)];
        into.0.extend(of_a);
        into.1.extend(of_b);
    }
    joined.retain(|(of_a, of_b)| !of_a.is_empty() || !of_b.is_empty());
    for (of_a, of_b) in &mut joined {
        of_a.sort_unstable();
        of_b.sort_unstable();
    }
    joined
}

/// The number of each object's row.
fn rows_of_objects(profile: &Profile) -> Vec<usize> {
    let mut rows = vec![0; profile.objects.len()];
    for (number, members) in profile.object_rows().iter().enumerate() {
        members.iter().for_each(|index| rows[index.index()] = number);
    }
    rows
}
