//! From objects to the code that touches them, and the tables of a part of a profile.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use memlens_profile::{Cell, Frame, Object, ObjectBacking, ObjectIx, Profile, ThreadIx};
use memlens_types::{Counts, ObjectKind};

use crate::UnknownWord;
use crate::View;
use crate::column::Column;
use crate::field::{self, FieldIndex};
use crate::grid::{Elide, Flexible, Grid, GridCell, GridColumn, Style, fixed, heading, wrapped};
use crate::header::{Fact, of_them_prefetched, of_them_remote};
use crate::known::Known;
use crate::namesakes::Namesakes;
use crate::number::{count, percent_of_share, plural, shown, size};
use crate::over_time;
use crate::pattern::PatternWords;
use crate::place::{frame_place, module_place, object_place, source_place};
use crate::row::{
    By, CodeGroup, Row, Whole, by_code, by_path, leading_share, path_function, sort_rows, thread_title,
};
use crate::styled::Layout;
use crate::table::{
    ALLOCATED_AT, ALLOCATED_FROM, CALLED_FROM, TableColumn, cost_word, counts, field_columns, grid,
    modelled_word, widen_callers,
};
use crate::target::Target;

/// Width of the labels at the left.
pub(crate) const INDENT: usize = 11;

/// One object by its number, or all that have a name: what it is, where it was allocated (the whole stack, with source),
/// and which lines of code touch it, with `view.by` [`By::Function`] or [`By::Instruction`] which of those, or, with [`By::Caller`],
/// through which calls it was reached. Shares are of the object's own wait.
///
/// # Errors
/// When no object has this number or name, or several names have it as a part.
pub fn object_detail(profile: &Profile, wanted: &str, view: &View) -> Result<String, UnknownWord> {
    Ok(of_objects(profile, &Namesakes::wanted(profile, wanted)?, view).paint(view.colour))
}

/// What [`object_detail`] says of objects.
pub(crate) fn of_objects(profile: &Profile, objects: &Namesakes<'_>, view: &View) -> Layout {
    let mut out = object_head(profile, objects, view);
    let whole = Whole::of(profile, &objects.counts());
    if objects.is_single() {
        for object in objects.objects().filter(|object| object.site.is_some()) {
            out.push(Style::Dim, "\nallocated at\n");
            out.append(stack(profile, object).layout(view.width));
        }
    } else {
        out.push(Style::Dim, "\nobjects of this name\n");
        out.append(each_of(profile, objects, whole).layout(profile, view));
    }
    if view.by == By::Caller {
        out.push(Style::Plain, "\n");
        out.append(callers(profile, objects, whole, view));
        return out;
    }
    if profile.is_of_bus() {
        out.push(Style::Plain, "\nWhich code touches it, a bus does not tell.\n");
        return out;
    }
    out.append(fields(profile, objects, whole, view));
    let members = objects.set();
    let cells = profile.cells.iter().filter(|cell| members.contains(&cell.object));
    let group = match view.by {
        By::Instruction => CodeGroup::Instruction,
        By::Function => CodeGroup::Function,
        _ => CodeGroup::Line,
    };
    match code_of(&PatternWords::new(profile), cells, whole, group) {
        Some(code) => {
            out.push(Style::Plain, "\n");
            out.append(code.layout(profile, view));
        }
        None => out.push(Style::Plain, "\nNo instruction touched it while collection was on.\n"),
    }
    out
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
/// `cells` are those of the objects, and may be others', too.
pub(crate) fn structure<'a>(
    index: &FieldIndex<'_>,
    objects: &Namesakes<'_>,
    cells: impl Iterator<Item = &'a Cell>,
    whole: Whole,
) -> Option<Structure> {
    let profile = index.profile();
    let with_fields = objects.only(|object| !index.of_object(object).is_empty());
    let element = with_fields.common(|object| Some(object.element.as_ref()))?;
    let rows = field::of_objects(index, &with_fields, cells, whole);
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

/// The same laid out.
fn fields(profile: &Profile, objects: &Namesakes<'_>, whole: Whole, view: &View) -> Layout {
    let mut out = Layout::default();
    if let Some(Structure { title, fields, wide, .. }) =
        structure(&FieldIndex::of(profile), objects, profile.cells.iter(), whole)
    {
        // In the order of places, which shows what lies beside what.
        let view = View { sort: Some(Column::Offset), top: None, trifles: true, ..view.clone() };
        out.push(Style::Dim, format!("\n{title}\n"));
        out.append(fields.layout(profile, &view));
        out.push(Style::Dim, wide);
    }
    out
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
fn callers(profile: &Profile, objects: &Namesakes<'_>, whole: Whole, view: &View) -> Layout {
    let members = objects.set();
    let parts = profile.path_cells.iter().filter(|part| members.contains(&part.object));
    let mut rows = by_path(profile, parts, whole);
    for row in &mut rows {
        row.target = row.target.take().map(|path| path.only_of(objects.target()));
    }
    if rows.is_empty() {
        let why = view.by.missing_in(profile).unwrap_or("nothing was seen to touch it");
        let mut out = Layout::default();
        out.push(Style::Plain, format!("No call path of it: {why}.\n"));
        return out;
    }
    let what = [TableColumn::Of(Column::Name, ["", "reached by"], 0)];
    let last = [TableColumn::Of(Column::Where, CALLED_FROM, 0)];
    Part::new(profile, rows, "call path", (&what, &last)).layout(profile, view)
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
    pub(crate) fn new(
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

    pub(crate) fn layout(mut self, profile: &Profile, view: &View) -> Layout {
        sort_rows(&mut self.rows, view.sort_of(profile));
        let all = self.rows.len();
        self.rows.truncate(view.top.unwrap_or(usize::MAX));
        let mut grid = grid(&self.rows, None, self.columns, profile);
        widen_callers(&mut grid);
        let mut out = grid.layout(view.width);
        out.push(Style::Dim, shown(self.rows.len(), all, self.noun, "") + "\n");
        out
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

fn object_head(profile: &Profile, objects: &Namesakes<'_>, view: &View) -> Layout {
    let About { title, summary, facts } = about(profile, objects, Whole::of(profile, &profile.totals()));
    let summary: String = summary.into_iter().map(|fact| format!(" · {fact}")).collect();
    let mut out = heading(&title, &summary, view.width);
    for (label, pieces) in facts {
        out.append(wrapped(label, INDENT, &pieces, view.width));
    }
    out
}

/// What is said of objects above the code that touches them. `whole`: the program's.
pub(crate) fn about(profile: &Profile, objects: &Namesakes<'_>, whole: Whole) -> About {
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

    let blocks = row.blocks.filter(|&blocks| blocks > 0);
    let mut size_pieces: Vec<String> = blocks.map(|blocks| plural(blocks, "block")).into_iter().collect();
    size_pieces.extend(row.bytes.map(|bytes| format!("{} requested", size(bytes))));
    size_pieces.extend(row.max_live_bytes.map(|bytes| format!("at most {} live at a time", size(bytes))));
    size_pieces.extend(row.live_at_peak_bytes.map(|bytes| format!("{} at the heap's peak", size(bytes))));
    size_pieces.extend(row.live_at_end_bytes.map(|bytes| format!("{} at the end", size(bytes))));
    let is_drawn = profile.run.estimated || profile.run.sampling.is_some();
    if is_drawn && objects.objects().any(|object| object.kind == ObjectKind::Heap) {
        size_pieces.push("as estimated from the blocks that were watched".to_owned());
    }
    if size_pieces.is_empty() {
        size_pieces.push("not known".to_owned());
    }
    facts.push(("size", size_pieces));
    facts.push(over_time::facts(profile, Some(objects)));
    let is_memory = objects
        .objects()
        .any(|object| matches!(object.kind, ObjectKind::Heap | ObjectKind::Mmap | ObjectKind::Global));
    let in_pages = objects.backing();
    if is_memory || in_pages.is_some() {
        let mut pieces = backing(in_pages.as_ref());
        let known = objects.objects().filter(|object| object.backing.is_some()).count();
        if known > 0 && known < objects.members().len() {
            pieces.push(format!("of the {} of which it is known", plural(known as u64, "object")));
        }
        let is_huge = in_pages.as_ref().and_then(ObjectBacking::huge_share).is_some_and(|share| share > 0.0);
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
    modelled.extend(known.remote_ratio().map(of_them_remote));
    modelled.extend(known.dtlb_misses.map(|misses| format!("TLB {}", count(misses))));
    modelled.extend(known.stlb_misses.map(|walks| plural(walks, "page walk")));
    modelled.extend(known.dram_reads.map(|reads| {
        let written = known.dram_writes.map(|writes| format!(", {} written", count(writes)));
        format!("DRAM {} lines read{}", count(reads), written.unwrap_or_default())
    }));
    facts.push((modelled_word(profile), modelled));
    if known.first_touches.is_some_and(|pages| pages > 0) {
        facts.push(("by node", first_touches(profile, objects)));
    }
    About { title, summary, facts }
}

/// Which threads touched pages first: they are of these threads' nodes.
fn first_touches(profile: &Profile, objects: &Namesakes<'_>) -> Vec<String> {
    const MOST: usize = 3;
    let mut by_thread: BTreeMap<ThreadIx, u64> = BTreeMap::new();
    let are_asked = objects.set();
    for cell in profile.cells.iter().filter(|cell| are_asked.contains(&cell.object)) {
        *by_thread.entry(cell.thread).or_default() += cell.counts.get().numa.first_touches;
    }
    let mut threads: Vec<_> = by_thread.into_iter().filter(|&(_, pages)| pages > 0).collect();
    threads.sort_by_key(|&(thread, pages)| (Reverse(pages), thread));
    let title = |thread: ThreadIx| profile.threads.get(thread.index()).map(|it| thread_title(profile, it));
    let piece = |&(thread, pages): &(ThreadIx, u64)| Some(format!("{} by {}", count(pages), title(thread)?));
    let mut pieces: Vec<String> = threads.iter().take(MOST).filter_map(piece).collect();
    if let Some(first) = pieces.first_mut() {
        *first = format!("pages first touched: {first}");
    }
    if threads.len() > MOST {
        let pages = threads[MOST..].iter().map(|(_, pages)| pages).sum();
        let others = plural((threads.len() - MOST) as u64, "other");
        pieces.push(format!("{} by {others}", count(pages)));
    }
    pieces
}

/// How memory was backed: shares of what was in memory.
fn backing(backing: Option<&ObjectBacking>) -> Vec<String> {
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
    let of_nodes = backing.node_bytes.iter().zip(0_u32..).filter(|&(&bytes, _)| bytes > 0);
    let on_nodes: Vec<String> =
        of_nodes.map(|(&bytes, node)| format!("{} on node {node}", size(bytes))).collect();
    pieces.extend((!on_nodes.is_empty()).then(|| on_nodes.join(", ")));
    pieces
}

/// The calls that allocated an object, innermost first: the function, the place, whether it is inlined, and the source line.
pub(crate) fn allocated_at(profile: &Profile, object: &Object) -> impl Iterator<Item = [String; 4]> {
    profile.stack_frames(object.site).map(|frame| called_at(profile, frame))
}

/// A frame's function, place, whether it is inlined, and source line.
pub(crate) fn called_at(profile: &Profile, frame: &Frame) -> [String; 4] {
    [
        path_function(profile, frame),
        source_place(frame).unwrap_or_else(|| module_place(profile, frame)),
        if frame.inlined { "inlined" } else { "" }.to_owned(),
        frame.source_text.as_deref().unwrap_or("").trim().to_owned(),
    ]
}

/// The same as a grid.
fn stack(profile: &Profile, object: &Object) -> Grid {
    let frames = profile.stack_frames(object.site);
    calls_grid(allocated_at(profile, object), frames.map(function_in))
}

/// What leads to a frame's function, if that is known.
pub(crate) fn function_in(frame: &Frame) -> Option<Target> {
    frame.function.as_deref().map(|function| Target::Function(function.to_owned()))
}

/// Calls, each with what leads to its function.
pub(crate) fn calls_grid(
    calls: impl Iterator<Item = [String; 4]>,
    targets: impl Iterator<Item = Option<Target>>,
) -> Grid {
    let column = |titles: [&'static str; 2], priority, flexible| GridColumn {
        titles: fixed(titles),
        section: None,
        right: false,
        priority,
        flexible,
        elide: if titles[1] == "function" { Elide::BeforeLastComponent } else { Elide::End },
        of: None,
    };
    let flexible = |least, most| Some(Flexible { least, comfortable: least, most });
    let rows = calls.map(|[function, at, inlined, source]| {
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
        targets: targets.collect(),
    }
}

/// Which parts of everything a part is, as said behind its name.
pub(crate) fn shares_of_all(profile: &Profile, whole: Whole) -> String {
    let all = Whole::of(profile, &profile.totals());
    let fact = |part: u64, whole: u64, word: &str| match whole {
        0 => String::new(),
        _ => format!(" · {} % of the {word}", percent_of_share(part as f64 / whole as f64)),
    };
    let stalls = if profile.has_stalls() { fact(whole.stall, all.stall, "stalls") } else { String::new() };
    stalls + &fact(whole.cost, all.cost, cost_word(profile))
}

/// Objects with a part of their counts.
pub(crate) fn objects_part(
    profile: &Profile,
    objects: impl Iterator<Item = (ObjectIx, Counts)>,
    whole: Whole,
    title: &'static str,
) -> Part {
    let rows = objects.filter_map(|(index, counts)| {
        let object = profile.objects.get(index.index())?;
        // The object's identity with these counts.
        Some(Row {
            ids: vec![object.id],
            kind: Some(object.kind.as_str().to_owned()),
            type_name: object.type_name.clone(),
            place: object_place(profile, object),
            target: Namesakes::one(profile, index).target(),
            ..Row::new(profile, object.name.clone(), &counts, false, whole)
        })
    });
    let what = [
        TableColumn::Of(Column::Id, ["", "#"], 0),
        TableColumn::Of(Column::Name, ["", title], 0),
        TableColumn::Of(Column::Kind, ["", "kind"], 1),
    ];
    let last = [TableColumn::Of(Column::Where, ALLOCATED_AT, 1)];
    Part::new(profile, rows.collect(), "object", (&what, &last))
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
