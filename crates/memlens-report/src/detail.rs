//! From an object to the code that touches it, and back.

use std::collections::BTreeMap;

use memlens_profile::{Cell, CodeLocation, Object, ObjectBacking, Profile};
use memlens_types::{Counts, ObjectKind};

use crate::UnknownWord;
use crate::View;
use crate::column::Column;
use crate::field;
use crate::grid::{Elide, Flexible, Grid, GridCell, GridColumn, Style, heading, wrap};
use crate::header::{Fact, of_them_prefetched};
use crate::known::Known;
use crate::namesakes::Namesakes;
use crate::number::{count, percent_of_share, plural, shown, size};
use crate::pattern::PatternWords;
use crate::place::{frame_place, function_name, module_place, object_place, source_place};
use crate::row::{By, CodeGroup, Row, Whole, by_code, by_path, leading_share, path_function, sort_rows};
use crate::table::{
    ALLOCATED_AT, ALLOCATED_FROM, CALLED_FROM, TableColumn, cost_word, counts, field_columns, grid,
    modelled_word, widen_callers,
};
use crate::word::the_one;

const INDENT: usize = 11;

/// One object by its number, or all that have a name: what it is, where it was allocated (the whole stack, with source),
/// and which lines of code touch it, with `view.by` [`By::Function`] or [`By::Instruction`] which of those, or, with [`By::Caller`],
/// through which calls it was reached. Shares are of the object's own wait.
///
/// # Errors
/// When no object has this number or name, or several names have it as a part.
pub fn object_detail(profile: &Profile, wanted: &str, view: &View) -> Result<String, UnknownWord> {
    let objects = Namesakes::wanted(profile, wanted)?;
    let colour = view.colour;
    let mut out = object_head(profile, &objects, view);

    let whole = Whole::of(profile, &objects.counts());
    if objects.is_single() {
        for object in objects.objects().filter(|object| object.site.is_some()) {
            out += &Style::Dim.paint("\nallocated at\n", colour);
            out += &stack(profile, object).render(view.width, colour);
        }
    } else {
        out += &Style::Dim.paint("\nobjects of this name\n", colour);
        out += &each_of(profile, &objects, whole).text(profile, view);
    }
    if view.by == By::Caller {
        out.push('\n');
        return Ok(out + &callers(profile, &objects, whole, view));
    }
    if profile.is_of_bus() {
        out += "\nWhich code touches it, a bus does not tell.\n";
        return Ok(out);
    }
    out += &fields(profile, &objects, whole, view);
    let members = objects.set();
    let cells = profile.cells.iter().filter(|cell| members.contains(&cell.object));
    let group = match view.by {
        By::Instruction => CodeGroup::Instruction,
        By::Function => CodeGroup::Function,
        _ => CodeGroup::Line,
    };
    match code_of(&PatternWords::new(profile), cells, whole, group) {
        Some(code) => out += &format!("\n{}", code.text(profile, view)),
        None => out += "\nNo instruction touched it while collection was on.\n",
    }
    Ok(out)
}

/// The code of these cells, which touches one object; None: there are none.
pub(crate) fn code_of<'a>(
    words: &PatternWords<'_>,
    cells: impl Iterator<Item = &'a Cell>,
    whole: Whole,
    group: CodeGroup,
) -> Option<Part> {
    let rows = by_code(words, cells, whole, group);
    if rows.is_empty() {
        return None;
    }
    let (noun, place) = match group {
        CodeGroup::Instruction => ("instruction", "where"),
        CodeGroup::Function => ("function", "file"),
        CodeGroup::Line => ("line", "function"),
    };
    let mut what = vec![TableColumn::Of(Column::Name, ["", "touched by"], 0)];
    if group == CodeGroup::Instruction {
        what.push(TableColumn::Of(Column::Kind, ["", "access"], 1));
    }
    what.push(TableColumn::Of(Column::Where, ["", place], 1));
    let mut last = Vec::new();
    if group != CodeGroup::Function {
        last = vec![TableColumn::Of(Column::Pattern, ["", "pattern"], 2), TableColumn::Source];
    }
    Some(Part::new(words.profile(), rows, noun, (&what, &last)))
}

/// Several objects, each by itself, with the calls that tell them apart.
pub(crate) fn each_of(profile: &Profile, objects: &Namesakes<'_>, whole: Whole) -> Part {
    let paths: Vec<Vec<String>> = objects.objects().map(|object| allocation_path(profile, object)).collect();
    let rows = objects.members().iter().zip(&paths).map(|(&index, path)| Row {
        place: Some(path_from_fork(path, &paths)),
        ..Namesakes::one(profile, index).row(whole)
    });
    let what = [
        TableColumn::Of(Column::Id, ["", "#"], 0),
        TableColumn::Of(Column::Kind, ["", "kind"], 1),
        TableColumn::Of(Column::Type, ["", "type"], 8),
        TableColumn::Of(Column::Blocks, ["", "blocks"], 6),
        TableColumn::Of(Column::Bytes, ["", "bytes"], 3),
    ];
    let last = [TableColumn::Of(Column::Where, ALLOCATED_FROM, 0)];
    Part::new(profile, rows.collect(), "object", (&what, &last))
}

/// Where an object was allocated, and from where that was called; or where it was declared.
fn allocation_path(profile: &Profile, object: &Object) -> Vec<String> {
    let place = object_place(profile, object).unwrap_or_default();
    let frames = profile.stack_frames(object.site).map(|frame| frame_place(profile, frame));
    let callers: Vec<String> = frames.skip_while(|frame| *frame != place).skip(1).collect();
    [vec![place], callers].concat()
}

/// A path without the callers that all of `paths` begin with.
fn path_from_fork(path: &[String], paths: &[Vec<String>]) -> String {
    let is_common = |at: &usize| paths.iter().all(|other| other.get(*at) == path.get(*at));
    let common = (0..path.len()).take_while(is_common).count();
    match path {
        [place, ..] if 1 < common && common < path.len() => {
            [&[place.clone(), "…".to_owned()], &path[common..]].concat().join(" ← ")
        }
        _ => path.join(" ← "),
    }
}

/// The structure that objects consist of.
pub(crate) struct Structure {
    /// What it is called, and how large it is.
    pub(crate) title: String,
    /// Bytes of one; None: its type is not known.
    pub(crate) bytes: Option<u64>,
    /// Its fields.
    pub(crate) fields: Part,
    /// Which of them have accesses that reach beyond them; empty: none.
    pub(crate) wide: String,
}

/// The structure that those objects consist of which have one, if it is one and the same.
pub(crate) fn structure(profile: &Profile, objects: &Namesakes<'_>, whole: Whole) -> Option<Structure> {
    let with_fields = objects.only(|index| field::fields_of(profile, index).next().is_some());
    let element = with_fields.common(|object| Some(object.element.as_ref()))?;
    let rows = field::of_objects(profile, &with_fields, whole);
    if rows.is_empty() {
        return None;
    }
    let title = match element {
        Some(element) => format!("fields of {}, {} bytes", element.type_name, element.bytes),
        None => "bytes of its blocks; their type is not known".to_owned(),
    };
    let mut what = vec![TableColumn::Of(Column::Name, ["", "field"], 0)];
    what.extend(field_columns());
    let wide = wide_fields(&rows);
    let fields = Part::new(profile, rows, "field", (&what, &[]));
    Some(Structure { title, bytes: element.map(|element| element.bytes), fields, wide })
}

/// The same as text.
fn fields(profile: &Profile, objects: &Namesakes<'_>, whole: Whole, view: &View) -> String {
    let Some(Structure { title, fields, wide, .. }) = structure(profile, objects, whole) else {
        return String::new();
    };
    // In the order of places, which shows what lies beside what.
    let view = View { sort: Some(Column::Offset), top: None, trifles: true, ..view.clone() };
    let table = fields.text(profile, &view);
    Style::Dim.paint(&format!("\n{title}\n"), view.colour) + &table + &Style::Dim.paint(&wide, view.colour)
}

/// Which fields have accesses that reach beyond them, as those of vectors do: they count where they begin.
fn wide_fields(rows: &[Row]) -> String {
    let is_wide = |row: &&Row| {
        let Known { loads, stores, load_bytes, store_bytes, .. } = row.known;
        let sum = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        let touched = sum(load_bytes, store_bytes).zip(sum(loads, stores)).zip(row.bytes);
        // Estimates are rounded.
        touched.is_some_and(|((touched, accesses), bytes)| {
            touched as f64 > 1.01 * accesses as f64 * bytes as f64
        })
    };
    let names: Vec<&str> = rows.iter().filter(is_wide).map(|row| row.name.as_str()).collect();
    match names[..] {
        [] => String::new(),
        _ => format!(
            "accesses wider than a field count where they begin; those of {} reach what is behind\n",
            names.join(", ")
        ),
    }
}

/// The call paths that lead to an object.
fn callers(profile: &Profile, objects: &Namesakes<'_>, whole: Whole, view: &View) -> String {
    let members = objects.set();
    let parts = profile.path_cells.iter().filter(|part| members.contains(&part.object));
    let rows = by_path(profile, parts, whole);
    if rows.is_empty() {
        let why = view.by.missing_in(profile).unwrap_or("nothing that was seen of it");
        return format!("No call path of it: {why}.\n");
    }
    let what = [TableColumn::Of(Column::Name, ["", "reached by"], 0)];
    let last = [TableColumn::Of(Column::Where, CALLED_FROM, 0)];
    Part::new(profile, rows, "call path", (&what, &last)).text(profile, view)
}

/// A table of a part of the profile: each row's share of it, what the row is, the counts, what comes last.
pub(crate) struct Part {
    /// The rows, the costliest first.
    pub(crate) rows: Vec<Row>,
    /// What is shown of them.
    pub(crate) columns: Vec<TableColumn>,
    /// What one is.
    pub(crate) noun: &'static str,
}

impl Part {
    fn new(
        profile: &Profile,
        mut rows: Vec<Row>,
        noun: &'static str,
        (what, last): (&[TableColumn], &[TableColumn]),
    ) -> Self {
        sort_rows(&mut rows, leading_share(profile));
        let of_its_stalls = TableColumn::Of(Column::StallShare, ["of its", "stall%"], 0);
        let mut columns = match leading_share(profile) {
            Column::StallShare => {
                vec![of_its_stalls, TableColumn::Bar, TableColumn::Of(Column::Share, of_its(profile), 1)]
            }
            _ => vec![TableColumn::Of(Column::Share, of_its(profile), 0), TableColumn::Bar],
        };
        columns.extend(what);
        columns.extend(counts(profile).into_iter().filter(|column| !is_write_back(column)));
        columns.extend(last);
        Self { rows, columns, noun }
    }

    fn text(mut self, profile: &Profile, view: &View) -> String {
        sort_rows(&mut self.rows, view.sort_of(profile));
        let all = self.rows.len();
        self.rows.truncate(view.top.unwrap_or(usize::MAX));
        let mut grid = grid(&self.rows, None, self.columns, profile);
        widen_callers(&mut grid);
        let table = grid.render(view.width, view.colour);
        table + &Style::Dim.paint(&(shown(self.rows.len(), all, self.noun, "") + "\n"), view.colour)
    }
}

/// Titles of the share of a part.
fn of_its(profile: &Profile) -> [&'static str; 2] {
    match cost_word(profile) {
        "time" => ["of its", "time%"],
        "events" => ["of its", "event%"],
        _ => ["of its", "wait%"],
    }
}

fn is_write_back(column: &TableColumn) -> bool {
    matches!(column, TableColumn::Of(Column::DramWrites, ..))
}

/// What objects are: their title, what is said behind it, and lines of facts.
pub(crate) struct About {
    /// Number, name and type.
    pub(crate) title: String,
    /// Kind and shares.
    pub(crate) summary: Vec<String>,
    /// What is known of them.
    pub(crate) facts: Vec<Fact>,
}

fn object_head(profile: &Profile, objects: &Namesakes<'_>, view: &View) -> String {
    let (width, colour) = (view.width, view.colour);
    let About { title, summary, facts } = about(profile, objects);
    let summary: String = summary.into_iter().map(|fact| format!(" · {fact}")).collect();
    let mut out = heading(&title, &summary, width, colour);
    for (label, pieces) in facts {
        out += &wrap(label, INDENT, &pieces, width, colour);
    }
    out
}

/// What is said of objects above the code that touches them.
pub(crate) fn about(profile: &Profile, objects: &Namesakes<'_>) -> About {
    let whole = Whole::of(profile, &profile.totals());
    let row = objects.row(whole);
    let mut title = row.name.clone();
    if objects.is_single() {
        title = format!("#{} {title}", row.ids.first().copied().unwrap_or_default());
    }
    if let Some(type_name) = &row.type_name {
        title += &format!(": {type_name}");
    }
    let several =
        if objects.is_single() { None } else { Some(plural(objects.members().len() as u64, "object")) };
    let of_whole = |share, interval: Option<(f64, f64)>, whole| {
        let ends = interval
            .map(|(low, high)| format!(" (95 %: {} to {})", percent_of_share(low), percent_of_share(high)));
        format!("{} % of the {whole}{}", percent_of_share(share), ends.unwrap_or_default())
    };
    let share = row.share.map(|share| of_whole(share, row.share_interval(), cost_word(profile)));
    let stall_share = row.stall_share.filter(|_| profile.has_stalls());
    let stalls = stall_share.map(|share| of_whole(share, row.stall_interval(), "stalls"));
    let facts = several.into_iter().chain(row.kind.clone()).chain(stalls).chain(share);
    let summary: Vec<String> = facts.collect();
    let mut facts: Vec<Fact> = Vec::new();

    let mut size_pieces = vec![plural(row.blocks.unwrap_or(0), "block")];
    size_pieces.extend(row.bytes.map(|bytes| format!("{} requested", size(bytes))));
    size_pieces.extend(row.max_live_bytes.map(|bytes| format!("at most {} live at a time", size(bytes))));
    let is_drawn = profile.run.estimated || profile.run.sampling.is_some();
    if is_drawn && objects.objects().any(|object| object.kind == ObjectKind::Heap) {
        size_pieces.push("as estimated from the blocks that were watched".to_owned());
    }
    facts.push(("size", size_pieces));
    let is_memory = objects
        .objects()
        .any(|object| matches!(object.kind, ObjectKind::Heap | ObjectKind::Mmap | ObjectKind::Global));
    let in_pages = objects.backing();
    if is_memory || in_pages.is_some() {
        let mut pieces = backing(in_pages);
        let known = objects.objects().filter(|object| object.backing.is_some()).count();
        if known > 0 && known < objects.members().len() {
            pieces.push(format!("of the {} of which it is known", plural(known as u64, "object")));
        }
        let is_huge = in_pages.and_then(|it| it.huge_share()).is_some_and(|share| share > 0.0);
        let has_misses = objects.objects().any(|object| object.counts.dtlb_misses > 0);
        if is_huge && has_misses && !profile.is_of_bus() {
            let page = size(profile.machine.page_bytes.into());
            pieces.push(format!("TLB misses and walks below are modelled as of pages of {page}"));
        }
        facts.push(("in pages", pieces));
    }
    if let Some(declared) = objects.common(|object| object.declared.as_ref()) {
        facts.push(("declared", vec![format!("{}:{}", declared.file, declared.line)]));
    }
    if let Some(module) = objects.common(|object| profile.module(object.module)) {
        facts.push(("module", vec![module.path.clone()]));
    }
    if let Some(reason) = objects.common(|object| object.unknown_reason.as_ref()) {
        facts.push(("unknown", vec![reason.clone()]));
    }
    if let Some(name) = objects.common(|object| Some(object.name.as_str())) {
        let here = objects.members().len();
        let more = profile.objects.iter().filter(|object| object.name == name).count() - here;
        let are_together = || Namesakes::wanted(profile, name).is_ok_and(|all| all.members().len() > here);
        if more > 0 {
            let how = if are_together() { "--object NAME shows them together" } else { "rows of their own" };
            let pieces = vec![format!("{more} more of this name"), how.to_owned()];
            facts.push(("besides", pieces));
        }
    }
    let known = &row.known;
    let counted = if profile.run.estimated { "estimated" } else { "counted" };
    let mut counted_pieces = Vec::new();
    if let Some(samples) = known.samples {
        counted_pieces.push(plural(samples, "sample"));
    }
    if let (Some(loads), Some(bytes)) = (known.loads, known.load_bytes) {
        counted_pieces.push(format!("{} ({})", plural(loads, "load"), size(bytes)));
    }
    if let (Some(stores), Some(bytes)) = (known.stores, known.store_bytes) {
        counted_pieces.push(format!("{} ({})", plural(stores, "store"), size(bytes)));
    }
    counted_pieces.extend(known.modifies.map(|modifies| format!("{} of them both", count(modifies))));
    facts.push((counted, counted_pieces));
    let split = |name: &str, loads: Option<u64>, stores: Option<u64>| {
        let (loads, stores) = (loads?, stores?);
        Some(format!("{name} {} ({} load, {} store)", count(loads + stores), count(loads), count(stores)))
    };
    let mut modelled: Vec<String> = Vec::new();
    modelled.extend(split("misses L1", known.l1_load_misses, known.l1_store_misses));
    modelled.extend(split("L2", known.l2_load_misses, known.l2_store_misses));
    modelled.extend(split("LLC", known.llc_load_misses, known.llc_store_misses));
    modelled.extend(known.llc_prefetched_ratio().map(of_them_prefetched));
    modelled.extend(known.dtlb_misses.map(|misses| format!("TLB {}", count(misses))));
    modelled.extend(known.stlb_misses.map(|walks| plural(walks, "page walk")));
    modelled.extend(known.dram_reads.map(|reads| {
        let written = known.dram_writes.map(|writes| format!(", {} written", count(writes)));
        format!("DRAM {} lines read{}", count(reads), written.unwrap_or_default())
    }));
    facts.push((modelled_word(profile), modelled));
    About { title, summary, facts }
}

/// How memory was backed: shares of what was in memory.
fn backing(backing: Option<ObjectBacking>) -> Vec<String> {
    let Some(backing) = backing else {
        return vec!["how the kernel backed it is unknown".to_owned()];
    };
    let resident = backing.resident_bytes();
    let part = |bytes: u64, what: &str| {
        let share = percent_of_share(bytes as f64 / resident.max(1) as f64);
        (bytes > 0).then(|| format!("{} ({share} %) {what}", size(bytes)))
    };
    let mut pieces: Vec<String> = Vec::new();
    pieces.extend(part(backing.small_bytes, "of 4 KiB"));
    pieces.extend(part(backing.transparent_bytes, "transparent huge"));
    pieces.extend(part(backing.hugetlb_bytes, "hugetlb"));
    pieces.extend(part(backing.untold_huge_bytes, "huge, transparent or hugetlb"));
    pieces.extend(part(backing.gigantic_bytes.unwrap_or(0), "of 1 GiB, of these"));
    pieces.extend(part(backing.zero_bytes, "the page of zeros, of these: never written"));
    pieces
        .extend((backing.swapped_bytes > 0).then(|| format!("{} swapped out", size(backing.swapped_bytes))));
    pieces
}

/// The calls that allocated an object, innermost first: the function, the place, whether it is inlined, and the source line.
pub(crate) fn allocated_at(profile: &Profile, object: &Object) -> impl Iterator<Item = [String; 4]> {
    profile.stack_frames(object.site).map(|frame| {
        [
            path_function(profile, frame),
            source_place(frame).unwrap_or_else(|| module_place(profile, frame)),
            if frame.inlined { "inlined" } else { "" }.to_owned(),
            frame.source_text.as_deref().unwrap_or("").trim().to_owned(),
        ]
    })
}

/// The same as a grid.
fn stack(profile: &Profile, object: &Object) -> Grid {
    let column = |titles, priority, flexible| GridColumn {
        titles,
        section: None,
        right: false,
        priority,
        flexible,
        elide: Elide::End,
    };
    let flexible = |least, most| Some(Flexible { least, comfortable: least, most });
    let rows = allocated_at(profile, object).map(|[function, at, inlined, source]| {
        vec![
            GridCell::new(function, Style::Bold),
            GridCell::new(at, Style::Plain),
            GridCell::new(inlined, Style::Dim),
            GridCell::new(source, Style::Dim),
        ]
    });
    Grid {
        rows: rows.collect(),
        columns: vec![
            column(["", "function"], 0, flexible(20, 50)),
            column(["", "at"], 0, flexible(20, 40)),
            column(["", ""], 3, None),
            column(["", "source"], 2, flexible(12, 80)),
        ],
        footer: None,
    }
}

/// One function: the objects it touches, and its lines, with what was inlined into it. A function's name may be given in part when
/// only one function has that part. Shares are of the function's own wait.
///
/// # Errors
/// When no function has the name, or several have it.
pub fn code_detail(profile: &Profile, function: &str, view: &View) -> Result<String, UnknownWord> {
    let names: Vec<Vec<String>> = profile.code.iter().map(|code| functions_around(profile, code)).collect();
    let what = ["function of this profile", "single function of this profile"];
    let name = the_one(names.iter().flatten().map(String::as_str), function, what)?;
    let depth = |cell: &Cell| names.get(cell.code.index())?.iter().position(|found| found == name);
    let is_here = |cell: &&Cell| depth(cell).is_some();
    let (mut sum, mut inlined) = (Counts::default(), Counts::default());
    let mut by_object: BTreeMap<usize, Counts> = BTreeMap::new();
    for cell in profile.cells.iter().filter(is_here) {
        let counts = cell.counts.get();
        sum += &counts;
        if depth(cell) != Some(0) {
            inlined += &counts;
        }
        *by_object.entry(cell.object.index()).or_default() += &counts;
    }
    let whole = Whole::of(profile, &sum);
    let of_inlined = Whole::of(profile, &inlined);
    let all = Whole::of(profile, &profile.totals());
    let fact = |part: u64, whole: u64, word: &str| match whole {
        0 => String::new(),
        _ => format!(" · {} % of the {word}", percent_of_share(part as f64 / whole as f64)),
    };
    let stalls = if profile.has_stalls() { fact(whole.stall, all.stall, "stalls") } else { String::new() };
    let mut facts = stalls + &fact(whole.cost, all.cost, cost_word(profile));
    if of_inlined.cost > 0 {
        let part = percent_of_share(of_inlined.cost as f64 / whole.cost.max(1) as f64);
        facts += &format!(", {part} % of it in what was inlined there");
    }
    let mut out = heading(name, &facts, view.width, view.colour);
    out.push('\n');

    let objects = by_object.iter().filter_map(|(&index, counts)| {
        let object = profile.objects.get(index)?;
        // The object's identity with this function's counts.
        Some(Row {
            ids: vec![object.id],
            kind: Some(object.kind.as_str().to_owned()),
            type_name: object.type_name.clone(),
            place: object_place(profile, object),
            ..Row::new(profile, object.name.clone(), counts, false, whole)
        })
    });
    let what = [
        TableColumn::Of(Column::Id, ["", "#"], 0),
        TableColumn::Of(Column::Name, ["", "touches"], 0),
        TableColumn::Of(Column::Kind, ["", "kind"], 1),
    ];
    let last = [TableColumn::Of(Column::Where, ALLOCATED_AT, 1)];
    out += &Part::new(profile, objects.collect(), "object", (&what, &last)).text(profile, view);
    out.push('\n');

    let lines =
        by_code(&PatternWords::new(profile), profile.cells.iter().filter(is_here), whole, CodeGroup::Line);
    let what = [TableColumn::Of(Column::Name, ["", "line"], 0)];
    let last = [TableColumn::Of(Column::Objects, ["", "objects"], 0), TableColumn::Source];
    out += &Part::new(profile, lines, "line", (&what, &last)).text(profile, view);
    Ok(out)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_reach_beyond_the_field_in_which_they_begin() {
        let profile = Profile::default();
        let whole = Whole::of(&profile, &Counts::default());
        let row = |name: &str, load_bytes: u64| Row {
            bytes: Some(8),
            ..Row::new(
                &profile,
                name.into(),
                &Counts { loads: 10, load_bytes, ..Counts::default() },
                false,
                whole,
            )
        };
        assert_eq!(wide_fields(&[row("x", 80), row("y", 40)]), "");
        // A vector register of two among them; rounding alone says nothing.
        let told = wide_fields(&[row("x", 80), row("y", 88), row("z", 160), row("w", 80)]);
        assert!(told.contains("those of y, z reach"), "{told}");
    }
}
