//! A finding in words: what it is called, and what shows it.

use memlens_analysis::{Allocating, Finding, FirstTouch, Level, Nodes, Remedy, Searched, SetConflict};
use memlens_profile::place::{code_place, is_library, object_place, source_place};
use memlens_profile::{CodeIx, FieldIx, Object, ObjectIx, PatternIndex, Profile};
use memlens_types::PatternKind;

use crate::number::{count as short_count, plural, size};
use crate::row::{row_number, thread_title};

/// How a gain in wait is to be read: how often lines go from core to core is known roughly, and how long that takes is no bound.
pub(super) fn at_most(finding: &Finding) -> &'static str {
    match finding.remedy {
        Remedy::Separate { .. } | Remedy::PerThread { .. } => "roughly",
        _ => "at most",
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// The row's costliest object.
pub(super) fn object<'a>(profile: &'a Profile, finding: &Finding) -> Option<&'a Object> {
    profile.objects.get(finding.row.first()?.index())
}

pub(super) fn ids(profile: &Profile, objects: &[ObjectIx]) -> Vec<u32> {
    objects.iter().filter_map(|object| Some(profile.objects.get(object.index())?.id)).collect()
}

/// What an object is called, with its row's number where others are called the same.
pub(super) fn name(profile: &Profile, index: ObjectIx) -> String {
    let Some(object) = profile.objects.get(index.index()) else { return "an object".to_owned() };
    let row = profile.row_among_namesakes(index);
    let first = row.as_ref().and_then(|row| Some((profile.objects.get(row.first()?.index())?.id, row.len())));
    match first {
        Some((id, objects)) => format!("{} (#{})", object.name, row_number(id, objects - 1)),
        None => object.name.clone(),
    }
}

/// What a finding is about.
pub(super) fn name_of(profile: &Profile, finding: &Finding) -> String {
    finding.row.first().map_or_else(|| "an object".to_owned(), |&index| name(profile, index))
}

pub(super) fn title(profile: &Profile, finding: &Finding) -> String {
    let name_of_index = |index: &ObjectIx| name(profile, *index);
    let name = name_of(profile, finding);
    match &finding.remedy {
        Remedy::HugePages { .. } => format!("{name} in huge pages"),
        Remedy::Prefetch { index: Some(index), .. } if finding.row.contains(index) => {
            format!("prefetch {name}, whose own pointers lead there")
        }
        Remedy::Prefetch { index: Some(index), .. } => {
            format!("prefetch {name}[{}[…]]", name_of_index(index))
        }
        Remedy::Prefetch { index: None, .. } => format!("prefetch {name}"),
        Remedy::Sort { index, .. } => match name_of_index(index) {
            index if index != name => format!("{index} in the order of {name}"),
            _ => format!("what leads to {name} in its order"),
        },
        Remedy::Layout { .. } => format!("another order of {name}"),
        Remedy::Pad { .. } => format!("padding for {name}"),
        Remedy::Split { hot, .. } => {
            format!("{} of {name} apart from the rest", field_names(profile, hot).join(", "))
        }
        Remedy::Pack { nodes: Nodes::Blocks } => format!("the blocks of {name} side by side"),
        Remedy::Pack { nodes: Nodes::Parts } => format!("the nodes in {name} in the order of their walk"),
        Remedy::Shorten { searched: Searched::Lists, .. } => format!("fewer nodes for a search in {name}"),
        Remedy::Shorten { searched: Searched::Tree, .. } => format!("fewer levels for a search in {name}"),
        Remedy::Separate { .. } => format!("false sharing in {name}"),
        Remedy::PerThread { one_writer_each: true, .. } => format!("threads hand {name} to each other"),
        Remedy::PerThread { .. } => format!("threads compete for {name}"),
        Remedy::Allocate { .. } => "fewer calls of malloc and free".to_owned(),
        Remedy::Place { .. } => format!("{name} in the memory of the nodes that use it"),
    }
}

pub(super) fn object_names(profile: &Profile, objects: &[ObjectIx]) -> Vec<String> {
    objects.iter().map(|&object| name(profile, object)).collect()
}

pub(super) fn field_names<'a>(profile: &'a Profile, fields: &[FieldIx]) -> Vec<&'a str> {
    fields.iter().filter_map(|field| profile.fields.get(field.index())?.name.as_deref()).collect()
}

fn element_name(profile: &Profile, finding: &Finding, element_bytes: u64) -> String {
    let objects = finding.objects.iter().filter_map(|object| profile.objects.get(object.index()));
    let mut elements = objects.filter_map(|object| object.element.as_ref());
    let element = elements.find(|element| element.bytes == element_bytes);
    element.map_or_else(|| "the structure".to_owned(), |element| element.type_name.clone())
}

/// Whether the code that a finding is about goes by one stride, or by several of which one is most.
fn goes_by_one_stride(profile: &Profile, finding: &Finding) -> bool {
    let patterns = &PatternIndex::new(profile);
    let of_code =
        |&code: &CodeIx| finding.objects.iter().filter_map(move |&object| patterns.of(code, object));
    !finding.code.iter().flat_map(of_code).any(|pattern| pattern.kind == PatternKind::MultiStride)
}

/// Which object, which code, which counts.
pub(super) fn evidence(profile: &Profile, finding: &Finding) -> Vec<String> {
    let counts = &finding.counts;
    let accesses = short_count(counts.accesses());
    let part = |misses: u64| percent(misses as f64 / counts.accesses().max(1) as f64);
    let mostly = || if goes_by_one_stride(profile, finding) { "" } else { "mostly " };
    let mut lines = Vec::new();
    if let Some(object) = object(profile, finding) {
        let (all, about) = (finding.row.len(), finding.objects.len());
        let mut what =
            format!("#{} {} · {}", row_number(object.id, all.saturating_sub(1)), object.name, object.kind);
        if let Some(place) = object_place(profile, object) {
            what += &format!(" · {place}");
        }
        if about < all {
            what += &format!(" · {about} of {all} objects: {}", some_of(&ids(profile, &finding.objects)));
        }
        lines.push(what);
    }
    let mut code: Vec<String> = Vec::new();
    for place in finding.code.iter().map(|&code| place(profile, code)) {
        if !code.contains(&place) {
            code.push(place);
        }
    }
    if !code.is_empty() {
        lines.push(format!("accessed at {}", code.join(", ")));
    }
    lines.push(match &finding.remedy {
        Remedy::HugePages { pages, walks_saved } => format!(
            "{} page walks and {} TLB misses in {accesses} accesses; in 2-MiB pages, {pages} at most, {} fewer; page faults, which \
             they spare, too, are not in it",
            short_count(counts.stlb_misses),
            short_count(counts.dtlb_misses),
            percent(*walks_saved)
        ),
        Remedy::Layout { stride_bytes, used_bytes, .. } => format!(
            "{} of {accesses} accesses miss the first level, {} the TLB; each is {}{stride_bytes} bytes from the last; for \
             each line of {} bytes that is brought in, {used_bytes} are accessed around there",
            part(counts.l1_misses()),
            part(counts.dtlb_misses),
            mostly(),
            profile.machine.line_bytes
        ),
        Remedy::Pad { stride_bytes, lines, .. } => {
            let mostly = mostly();
            format!("each of {accesses} accesses is {mostly}{stride_bytes} bytes from its instruction's last; a walk has at least {lines} lines")
        }
        Remedy::Split { hot_bytes, element_bytes, .. } => format!(
            "{hot_bytes} of the {element_bytes} bytes of {} have nearly all of its waiting, the others fewer accesses; {} of \
             {accesses} miss the first level",
            element_name(profile, finding, *element_bytes),
            part(counts.l1_misses()),
        ),
        Remedy::Separate { false_sharing, users, writers, fields } => format!(
            "{} {} of {accesses} accesses wait for a line that another core has, which wrote other bytes of it; {}",
            if profile.run.estimated { "about" } else { "up to" },
            short_count(*false_sharing),
            who_shares(profile, *users, *writers, fields)
        ),
        Remedy::PerThread { true_sharing, writers, fields, one_writer_each } => format!(
            "{} {} of {accesses} accesses wait for a line that another core has, which wrote bytes of it that they use; {}",
            if profile.run.estimated { "about" } else { "up to" },
            short_count(*true_sharing),
            match one_writer_each {
                true => format!("each field is written by one of {writers} threads{}", named(profile, fields)),
                false => who_writes(profile, *writers, fields),
            }
        ),
        Remedy::Allocate { blocks, allocating } => format!(
            "of {accesses} accesses to what the allocator keeps beside blocks and in free ones {} miss the first level, {} the last; most of {}{} blocks are {}",
            part(counts.l1_misses()),
            part(counts.llc_misses()),
            if profile.run.estimated { "about " } else { "" },
            short_count(*blocks),
            allocating.iter().map(|it| who_allocates(profile, it)).collect::<Vec<_>>().join("; ")
        ),
        Remedy::Place { remote_misses, misplaced, users, first } => format!(
            "{} lines of it come from another node's memory, {} of them to pages that their node misses most, by {}{}",
            short_count(*remote_misses),
            percent(*misplaced as f64 / (*remote_misses).max(1) as f64),
            plural(*users as u64, "thread"),
            first.as_ref().map_or_else(String::new, |first| first_touched(profile, first))
        ),
        Remedy::Prefetch { .. } | Remedy::Sort { .. } | Remedy::Pack { .. } | Remedy::Shorten { .. } => format!(
            "of {accesses} accesses {} miss the first level, {} the second, {} the last{}",
            part(counts.l1_misses()),
            part(counts.l2_misses()),
            part(counts.llc_misses()),
            match &finding.remedy {
                Remedy::Shorten { nodes, searched } => {
                    let what = if *searched == Searched::Tree { "levels" } else { "nodes" };
                    format!("; a search goes through {nodes:.1} {what} on average")
                }
                Remedy::Sort { index, walks, .. } =>
                    format!("; {} is gone through {walks:.0} times", name(profile, *index)),
                _ => String::new(),
            }
        ),
    });
    if let Remedy::Pad { conflicts, .. } = &finding.remedy {
        lines.extend(conflicts.iter().map(in_few_sets));
    }
    if finding.is_seen_too_seldom(profile) {
        lines.push(
            "how often a line is taken away cannot be told well from bursts, and the gain may be several times as much: padding and a \
             stopwatch tell, or --mode exact"
                .to_owned(),
        );
    }
    lines
}

/// `keys, 5.98M of 115 B, by main small.c:17`
fn who_allocates(profile: &Profile, Allocating { row, blocks, bytes }: &Allocating) -> String {
    let first = row.first().copied();
    let name = first.map_or_else(|| "unnamed".to_owned(), |first| name(profile, first));
    let object = first.and_then(|first| profile.objects.get(first.index()));
    let place = object.and_then(|object| object_place(profile, object));
    let place = place.map_or_else(String::new, |place| format!(", at {place}"));
    format!("{name}, {} of {}{place}", short_count(*blocks), size(bytes / (*blocks).max(1)))
}

/// Who touched the pages first.
fn first_touched(profile: &Profile, first: &FirstTouch) -> String {
    let thread = profile.threads.get(first.thread.index());
    let thread = thread.map_or_else(|| "one thread".to_owned(), |thread| thread_title(profile, thread));
    let pages = plural(first.pages, "page");
    format!("; {thread} touched its {pages} first, at {}", place(profile, first.code))
}

/// `#3, #4, #5 …`
fn some_of(ids: &[u32]) -> String {
    let mut text = ids.iter().take(3).map(|id| format!("#{id}")).collect::<Vec<_>>().join(", ");
    if ids.len() > 3 {
        text += " …";
    }
    text
}

fn in_few_sets(conflict: &SetConflict) -> String {
    let SetConflict { level, sets, of_sets, ways, misses, needed } = *conflict;
    let level = match level {
        Level::First => "first level",
        Level::Second => "second level",
        Level::Stlb => "second-level TLB",
    };
    format!(
        "all fall onto {sets} of the {level}'s {of_sets} sets, which keep {}: {} misses there, {} if it kept the walk",
        sets * ways,
        short_count(misses),
        short_count(needed)
    )
}

fn who_shares(profile: &Profile, users: usize, writers: usize, fields: &[FieldIx]) -> String {
    match (users, writers) {
        (_, 0) => "no thread writes it: what is written lies beside it".to_owned(),
        (1, _) => {
            format!("one thread alone uses it: others write what lies beside it{}", named(profile, fields))
        }
        _ => who_writes(profile, writers, fields),
    }
}

fn who_writes(profile: &Profile, writers: usize, fields: &[FieldIx]) -> String {
    let who = match writers {
        1 => "one thread writes it".to_owned(),
        _ => format!("{writers} threads write it"),
    };
    who + &named(profile, fields)
}

/// ` (fields: lock, count)`, if there are fields.
fn named(profile: &Profile, fields: &[FieldIx]) -> String {
    match field_names(profile, fields) {
        names if names.is_empty() => String::new(),
        names => format!(" ({}: {})", if names.len() == 1 { "field" } else { "fields" }, names.join(", ")),
    }
}

/// Where code is: the innermost line that is not a language's library's, and which of the library's is inlined there.
fn place(profile: &Profile, code: CodeIx) -> String {
    let Some(code) = profile.code.get(code.index()) else { return "unknown code".to_owned() };
    let Some(innermost) = code_place(profile, code) else {
        let module = profile.module(code.module).map_or("generated code", |module| module.name());
        return format!("{module}+{:#x}", code.offset);
    };
    let own = profile.stack_frames(code.stack).find(|frame| !is_library(frame)).and_then(source_place);
    match own {
        Some(own) if own != innermost => format!("{own} ({innermost})"),
        _ => innermost,
    }
}
