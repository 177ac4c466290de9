//! From code to the objects that it touches, and to its parts.

use std::collections::BTreeMap;

use memlens_profile::{Cell, CodeLocation, Frame, ObjectIx, Profile, Thread};
use memlens_types::Counts;

use crate::UnknownWord;
use crate::View;
use crate::column::Column;
use crate::detail::{INDENT, Part, objects_part, shares_of_all};
use crate::grid::{Style, heading, wrapped};
use crate::header::Fact;
use crate::number::percent_of_share;
use crate::pattern::PatternWords;
use crate::place::{base_name, code_place, function_name};
use crate::row::{By, CodeGroup, Whole, by_code};
use crate::styled::Layout;
use crate::table::TableColumn;
use crate::target::Target;
use crate::word::the_one;

/// One function: the objects it touches, and its lines, with what was inlined into it. A function's name may be given in part when
/// only one function has that part. Shares are of the function's own wait.
///
/// # Errors
/// When no function has the name, or several have it.
pub fn code_detail(profile: &Profile, function: &str, view: &View) -> Result<String, UnknownWord> {
    let names = all_functions(profile);
    let what = [
        "function of this profile (memlens report PROFILE --by function lists them)",
        "single function of this profile",
    ];
    let name = the_one(names.iter().flatten().map(String::as_str), function, what)?;
    Ok(of_function(profile, &names, name, CodeGroup::Line, view).paint(view.colour))
}

/// The functions around each row of code, innermost first.
fn all_functions(profile: &Profile) -> Vec<Vec<String>> {
    profile.code.iter().map(|code| functions_around(profile, code)).collect()
}

/// What [`code_detail`] says of a function, with its code in these groups.
fn of_function(
    profile: &Profile,
    names: &[Vec<String>],
    name: &str,
    group: CodeGroup,
    view: &View,
) -> Layout {
    let depth = |cell: &Cell| names.get(cell.code.index())?.iter().position(|found| found == name);
    let is_here = |cell: &&Cell| depth(cell).is_some();
    let mut inlined = Counts::default();
    for cell in profile.cells.iter().filter(is_here).filter(|cell| depth(cell) != Some(0)) {
        inlined += &cell.counts.get();
    }
    let of_inlined = Whole::of(profile, &inlined);
    let said = |whole: Whole| match of_inlined.cost {
        0 => String::new(),
        cost => {
            let part = percent_of_share(cost as f64 / whole.cost.max(1) as f64);
            format!(", {part} % of it in what was inlined there")
        }
    };
    let code = Code { title: name, facts: &[], said: &said, groups: &[group] };
    of_code(profile, profile.cells.iter().filter(is_here), code, view)
}

/// How code is shown: what it is called, lines below that, what is said behind its shares of the whole, in which groups it comes.
struct Code<'a> {
    title: &'a str,
    facts: &'a [Fact],
    said: &'a dyn Fn(Whole) -> String,
    groups: &'a [CodeGroup],
}

/// Some code: the objects that it touches, and its parts. Shares are of its own wait.
fn of_code<'a>(
    profile: &'a Profile,
    cells: impl Iterator<Item = &'a Cell> + Clone,
    code: Code<'_>,
    view: &View,
) -> Layout {
    let mut sum = Counts::default();
    let mut by_object: BTreeMap<usize, Counts> = BTreeMap::new();
    for cell in cells.clone() {
        let counts = cell.counts.get();
        sum += &counts;
        *by_object.entry(cell.object.index()).or_default() += &counts;
    }
    let whole = Whole::of(profile, &sum);
    let shares = shares_of_all(profile, whole) + &(code.said)(whole);
    let mut out = heading(code.title, &shares, view.width);
    for (label, pieces) in code.facts {
        out.append(wrapped(label, INDENT, pieces, view.width));
    }
    out.push(Style::Plain, "\n");
    let objects = by_object.into_iter().map(|(index, counts)| (ObjectIx::from_index(index), counts));
    out.append(objects_part(profile, objects, whole, "touches").layout(profile, view));

    let words = PatternWords::new(profile);
    for &group in code.groups {
        let rows = by_code(&words, cells.clone(), whole, group);
        let (noun, title) = match group {
            CodeGroup::Instruction => ("instruction", "instruction"),
            CodeGroup::Function => ("function", "in function"),
            CodeGroup::Line => ("line", "line"),
        };
        let mut what = vec![TableColumn::Of(Column::Name, ["", title], 0)];
        let mut last = Vec::new();
        if group == CodeGroup::Instruction {
            what.push(TableColumn::Of(Column::Kind, ["", "access"], 1));
            last.push(TableColumn::Of(Column::Pattern, ["", "pattern"], 2));
        }
        last.extend([TableColumn::Of(Column::Objects, ["", "objects"], 0), TableColumn::Source]);
        out.push(Style::Plain, "\n");
        out.append(Part::new(profile, rows, noun, (&what, &last)).layout(profile, view));
    }
    out
}

/// What [`code_detail`] says of a function, with [`By::Instruction`] its instructions in place of its lines; None: nothing was recorded
/// of it.
pub(crate) fn of_known_function(profile: &Profile, name: &str, view: &View) -> Option<Layout> {
    let names = all_functions(profile);
    let group = if view.by == By::Instruction { CodeGroup::Instruction } else { CodeGroup::Line };
    let is_in =
        |cell: &Cell| names.get(cell.code.index()).is_some_and(|names| names.iter().any(|it| it == name));
    let is_known = profile.cells.iter().any(is_in);
    is_known.then(|| of_function(profile, &names, name, group, view))
}

/// A source line: the objects that it touches, the functions that it is in, its instructions; None: nothing was recorded of it.
pub(crate) fn of_line(profile: &Profile, (file, line): (&str, u32), view: &View) -> Option<Layout> {
    let frame_of = |code: &CodeLocation| {
        let frame = profile.stack_frames(code.stack).next()?;
        (frame.file.as_deref() == Some(file) && frame.line == Some(line)).then_some(frame)
    };
    let frames: Vec<Option<&Frame>> = profile.code.iter().map(frame_of).collect();
    let source = frames.iter().flatten().find_map(|frame| frame.source_text.as_deref());
    let is_here = |cell: &&Cell| frames.get(cell.code.index()).is_some_and(Option::is_some);
    profile.cells.iter().find(is_here)?;
    let mut facts: Vec<Fact> = vec![("file", vec![file.to_owned()])];
    facts.extend(source.map(|text| ("source", vec![text.trim().to_owned()])));
    let code = Code {
        title: &format!("{}:{line}", base_name(file)),
        facts: &facts,
        said: &|_| String::new(),
        groups: &[CodeGroup::Function, CodeGroup::Instruction],
    };
    Some(of_code(profile, profile.cells.iter().filter(is_here), code, view))
}

/// An instruction: the objects that it touches, the function and line that it is in; None: nothing was recorded of it.
pub(crate) fn of_instruction(profile: &Profile, target: &Target, view: &View) -> Option<Layout> {
    // A row a memory operand.
    let is_it: Vec<bool> =
        profile.code.iter().map(|code| Target::instruction(profile, code) == *target).collect();
    let code = profile.code.get(is_it.iter().position(|&is| is)?)?;
    let is_here = |cell: &&Cell| is_it.get(cell.code.index()) == Some(&true);
    profile.cells.iter().find(is_here)?;
    let module = profile.module(code.module);
    let frame = profile.stack_frames(code.stack).next();
    let source = frame.and_then(|frame| frame.source_text.as_deref());
    let mut facts: Vec<Fact> = Vec::new();
    facts.extend(module.map(|module| ("module", vec![module.path.clone()])));
    facts.extend(code_place(profile, code).map(|place| ("line", vec![place])));
    facts.extend(source.map(|text| ("source", vec![text.trim().to_owned()])));
    let code = Code {
        title: &format!("{}+{:#x}", module.map_or("generated", |module| module.name()), code.offset),
        facts: &facts,
        said: &|_| String::new(),
        groups: &[CodeGroup::Function, CodeGroup::Line, CodeGroup::Instruction],
    };
    Some(of_code(profile, profile.cells.iter().filter(is_here), code, view))
}

/// What threads did: the objects that they touched, and the functions where; None: nothing was recorded of it.
pub(crate) fn of_threads(
    profile: &Profile,
    title: &str,
    is_one: impl Fn(&Thread) -> bool,
    view: &View,
) -> Option<Layout> {
    let is_one: Vec<bool> = profile.threads.iter().map(is_one).collect();
    let is_here = |cell: &&Cell| is_one.get(cell.thread.index()) == Some(&true);
    profile.cells.iter().find(is_here)?;
    let code = Code { title, facts: &[], said: &|_| String::new(), groups: &[CodeGroup::Function] };
    Some(of_code(profile, profile.cells.iter().filter(is_here), code, view))
}

/// The functions that a row of code is in, innermost first: those inlined into each other, and the one they are in.
fn functions_around(profile: &Profile, code: &CodeLocation) -> Vec<String> {
    let of_frames = profile.stack_frames(code.stack).filter_map(|frame| frame.function.as_deref());
    let mut names: Vec<String> = of_frames.map(str::to_owned).collect();
    if names.is_empty() {
        names.push(function_name(profile, code));
    }
    names
}
