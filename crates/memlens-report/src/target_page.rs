//! What there is to see of a row, by what it is of.

use std::collections::BTreeMap;

use memlens_profile::{Object, ObjectIx, PathCell, Profile, Thread};
use memlens_types::Counts;

use crate::View;
use crate::code_detail::{of_instruction, of_known_function, of_line, of_threads};
use crate::detail::{called_at, calls_grid, function_in, objects_part, of_objects, shares_of_all};
use crate::field;
use crate::grid::{Style, heading};
use crate::known::Known;
use crate::page::Page;
use crate::row::{Whole, path_function, process_title, site_key, thread_title};
use crate::styled::Layout;
use crate::target::Target;

/// What there is to see of a row's target; None: the profile does not have it, or no longer.
///
/// Of objects the code that touches them, with `view.by` as [`object_detail`](crate::object_detail) has it. Of code the objects that it
/// touches, and its parts: of a function its lines, or with `view.by` [`By::Instruction`](crate::By::Instruction) these. Of what sums
/// objects the objects. Linear in the cells.
pub fn target_page(profile: &Profile, target: &Target, view: &View) -> Option<Page> {
    let layout = match target {
        Target::Objects { .. } => of_objects(profile, &target.objects(profile)?, view),
        Target::Function(name) => of_known_function(profile, name, view)?,
        Target::Line { file, line } => of_line(profile, (file, *line), view)?,
        Target::Instruction { .. } => of_instruction(profile, target, view)?,
        Target::Site(name) => {
            let is_there = |object: &Object| site_key(profile, object) == *name;
            of_members(profile, name, &is_there, view)?
        }
        Target::Kind(kind) => of_members(profile, kind.as_str(), &|object| object.kind == *kind, view)?,
        Target::Field(name) => of_sums(profile, name, field::objects_with(profile, name), view)?,
        Target::Thread { pid, tid } => {
            let is_it = |thread: &Thread| (thread.pid, thread.tid) == (*pid, *tid);
            let thread = profile.threads.iter().find(|thread| is_it(thread))?;
            of_threads(profile, &thread_title(profile, thread), is_it, view)?
        }
        Target::Process(pid) => {
            let is_of = |thread: &Thread| thread.pid.or(profile.run.pid) == *pid;
            let threads: Vec<&Thread> = profile.threads.iter().filter(|thread| is_of(thread)).collect();
            of_threads(profile, &process_title(profile, *pid, &threads), is_of, view)?
        }
        Target::Path { frames, only } => of_path(profile, frames, only.as_deref(), view)?,
    };
    Some(layout.into())
}

/// The objects of which something holds, as far as anything touched them.
fn of_members(
    profile: &Profile,
    title: &str,
    holds: &dyn Fn(&Object) -> bool,
    view: &View,
) -> Option<Layout> {
    let all = (0..profile.objects.len()).map(ObjectIx::from_index).zip(&profile.objects);
    let is_touched = |object: &Object| Known::new(profile, &object.counts, true).is_touched();
    let wanted = all.filter(|(_, object)| holds(object) && is_touched(object));
    let members = wanted.map(|(index, object)| (index, object.counts));
    of_sums(profile, title, members.collect(), view)
}

/// What sums objects, with the counts that each has in it.
fn of_sums(profile: &Profile, title: &str, objects: Vec<(ObjectIx, Counts)>, view: &View) -> Option<Layout> {
    if objects.is_empty() {
        return None;
    }
    let mut sum = Counts::default();
    objects.iter().for_each(|(_, counts)| sum += counts);
    let whole = Whole::of(profile, &sum);
    let mut out = heading(title, &shares_of_all(profile, whole), view.width);
    out.push(Style::Plain, "\n");
    out.append(objects_part(profile, objects.into_iter(), whole, "object").layout(profile, view));
    Some(out)
}

/// A call path: its functions, and the objects, or only these, that were touched at its end.
fn of_path(
    profile: &Profile,
    frames: &[(Option<String>, u64)],
    only: Option<&Target>,
    view: &View,
) -> Option<Layout> {
    let members = match only {
        Some(objects) => Some(objects.objects(profile)?.set()),
        None => None,
    };
    let is_wanted = |part: &&PathCell| members.as_ref().is_none_or(|it| it.contains(&part.object));
    let wanted = Target::Path { frames: frames.to_vec(), only: None };
    let is_it = |part: &&PathCell| Target::path(profile, profile.path_frames(part.path)) == wanted;
    let parts: Vec<&PathCell> = profile.path_cells.iter().filter(is_wanted).filter(is_it).collect();
    let path = parts.first()?.path;
    let mut by_object: BTreeMap<usize, Counts> = BTreeMap::new();
    for part in &parts {
        *by_object.entry(part.object.index()).or_default() += &part.counts.get();
    }
    let objects = by_object.into_iter().map(|(index, counts)| (ObjectIx::from_index(index), counts));
    let first = profile.path_frames(path).next();
    let mut title =
        first.map_or_else(|| "no call path known".to_owned(), |frame| path_function(profile, frame));
    if let Some(Target::Objects { name, .. }) = only {
        title += &format!(", as far as it touches {name}");
    }
    let mut out = of_sums(profile, &title, objects.collect(), view)?;
    if first.is_some() {
        out.push(Style::Dim, "\ncalled from\n");
        let frames = || profile.path_frames(path);
        let calls = frames().map(|frame| called_at(profile, frame));
        let targets = frames().map(function_in);
        out.append(calls_grid(calls, targets).layout(view.width));
    }
    Some(out)
}
