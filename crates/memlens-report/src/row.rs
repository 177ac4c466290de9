//! A profile's counts, grouped by what the reader wants to see.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::Hash;
use std::str::FromStr;
use std::sync::Arc;

use memlens_profile::{
    Cell, CodeIx, CodeLocation, Frame, ModuleIx, Object, PathCell, Profile, Thread, sum_of_known,
};
use memlens_types::Counts;

use crate::UnknownWord;
use crate::column::{Column, Content};
use crate::field::by_field;
use crate::interval::Certainties;
use crate::known::Known;
use crate::namesakes::Namesakes;
use crate::over_time::{self, OverTime};
use crate::pattern::PatternWords;
use crate::place::{base_name, code_place, function_name, module_place, object_place, source_place};
use crate::target::Target;

/// What a row stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum By {
    /// A data object.
    #[default]
    Object,
    /// A place where objects are allocated or declared.
    Site,
    /// An instruction.
    Instruction,
    /// A function; inlined ones count for themselves.
    Function,
    /// A source line.
    Line,
    /// A field of a structure, in all objects of that type.
    Field,
    /// A call path: a function with its callers.
    Caller,
    /// A kind of object.
    Kind,
    /// A thread.
    Thread,
    /// A process.
    Process,
}

impl By {
    /// All groupings.
    pub const ALL: [Self; 10] = [
        Self::Object,
        Self::Site,
        Self::Instruction,
        Self::Function,
        Self::Line,
        Self::Field,
        Self::Caller,
        Self::Kind,
        Self::Thread,
        Self::Process,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Site => "site",
            Self::Instruction => "instruction",
            Self::Function => "function",
            Self::Line => "line",
            Self::Field => "field",
            Self::Caller => "caller",
            Self::Kind => "kind",
            Self::Thread => "thread",
            Self::Process => "process",
        }
    }

    /// Why a profile that holds something has nothing for this grouping; None: it has.
    pub fn missing_in(self, profile: &Profile) -> Option<&'static str> {
        let has_none = self == Self::Caller && profile.path_cells.is_empty() && !profile.cells.is_empty();
        has_none.then_some("the profile has no call paths")
    }

    /// Whether rows are sums of objects, which have write-backs, and not of code or threads.
    pub(crate) fn is_data(self) -> bool {
        matches!(self, Self::Object | Self::Site | Self::Kind)
    }
}

impl FromStr for By {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        let wanted = word.to_lowercase();
        Self::ALL
            .into_iter()
            .find(|by| by.as_str() == wanted)
            .ok_or_else(|| UnknownWord::new("grouping", word, Self::ALL.iter().map(|by| by.as_str()), true))
    }
}

/// What rows' shares are parts of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    /// Of the costs.
    pub(crate) cost: u64,
    /// Of the stalls, in cycles.
    pub(crate) stall: u64,
    /// Which of both shares rows are ranked by: see [`leading_share`].
    pub(crate) leading: Column,
}

impl Whole {
    /// Of some counts.
    pub(crate) fn of(profile: &Profile, counts: &Counts) -> Self {
        Self {
            cost: profile.cost(counts),
            stall: profile.stall_cycles(counts),
            leading: leading_share(profile),
        }
    }
}

/// One row, with everything a column may ask for.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Numbers of the objects that it is of, the costliest first; rows of anything else have none.
    pub(crate) ids: Vec<u32>,
    pub(crate) name: String,
    pub(crate) kind: Option<String>,
    pub(crate) type_name: Option<String>,
    pub(crate) blocks: Option<u64>,
    /// Of a field: bytes from the structure's beginning.
    pub(crate) offset: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) max_live_bytes: Option<u64>,
    pub(crate) live_at_peak_bytes: Option<u64>,
    pub(crate) live_at_end_bytes: Option<u64>,
    /// Part of its memory that lay in huge pages when most of it was there.
    pub(crate) huge_share: Option<f64>,
    pub(crate) pattern: Option<String>,
    pub(crate) objects: Option<String>,
    /// Its cost over time, as a sparkline.
    pub(crate) when: Option<String>,
    pub(crate) place: Option<String>,
    pub(crate) source_text: Option<String>,
    pub(crate) known: Known,
    /// See [`Profile::cost`].
    pub(crate) cost: u64,
    /// Whether the cost is wait cycles.
    pub(crate) waits: bool,
    /// The part of the cost that out-of-order execution does not hide; see [`Profile::stall_cycles`].
    pub(crate) stall: Option<u64>,
    /// Part of the whole's stall; `None` if that is 0, or no stalls are known.
    pub(crate) stall_share: Option<f64>,
    /// How sure the shares are, where they are estimated from samples or bursts.
    pub(crate) certainties: Certainties,
    /// Part of the whole that the caller names; `None` if that is 0.
    pub(crate) share: Option<f64>,
    /// Which of both shares rows are ranked by: see [`leading_share`].
    pub(crate) leading: Column,
    /// What it is of, where there is more to see of that.
    pub(crate) target: Option<Target>,
}

impl Row {
    pub(crate) fn new(
        profile: &Profile,
        name: String,
        counts: &Counts,
        write_backs: bool,
        whole: Whole,
    ) -> Self {
        let cost = profile.cost(counts);
        let stall = profile.stall_cycles(counts);
        let part = |of: u64, whole: u64| (whole > 0).then(|| of as f64 / whole as f64);
        let share = part(cost, whole.cost);
        let waits = profile.run.sampling.is_none() && !profile.is_of_bus();
        // Without a core a bound takes the place of stalls where rows are put in order; it is no figure to show.
        let has_stalls = waits && profile.has_stalls();
        let stall_share = part(stall, whole.stall).filter(|_| has_stalls);
        Self {
            target: None,
            ids: Vec::new(),
            name,
            kind: None,
            type_name: None,
            blocks: None,
            offset: None,
            bytes: None,
            max_live_bytes: None,
            live_at_peak_bytes: None,
            live_at_end_bytes: None,
            huge_share: None,
            pattern: None,
            objects: None,
            when: None,
            place: None,
            source_text: None,
            known: Known::new(profile, counts, write_backs),
            cost,
            waits,
            stall: has_stalls.then_some(stall),
            stall_share,
            certainties: Certainties::of_part(profile, whole),
            share,
            leading: whole.leading,
        }
    }

    /// The whole program; `totals` are its counts.
    pub(crate) fn of_program(profile: &Profile, totals: &Counts) -> Self {
        let objects = || profile.objects.iter();
        Self {
            blocks: Some(objects().fold(0, |sum, object| sum.saturating_add(object.blocks))),
            bytes: Some(objects().filter_map(|object| object.bytes).fold(0, u64::saturating_add)),
            live_at_peak_bytes: profile.run.heap_peak_bytes,
            live_at_end_bytes: objects().map(|object| object.live_at_end_bytes).fold(None, sum_of_known),
            ..Self::new(profile, String::new(), totals, true, Whole::of(profile, totals))
        }
    }

    /// The share that rows are ranked by.
    pub(crate) fn leading_share(&self) -> Option<f64> {
        if self.leading == Column::StallShare { self.stall_share } else { self.share }
    }

    /// 95 % interval of the share, where it is estimated from samples or bursts.
    pub(crate) fn share_interval(&self) -> Option<(f64, f64)> {
        self.certainties.share?.interval(self.share?)
    }

    /// 95 % interval of the share of the stalls, where it is estimated from bursts.
    pub(crate) fn stall_interval(&self) -> Option<(f64, f64)> {
        self.certainties.stall?.interval(self.stall_share?)
    }
}

/// The share that says what matters most: of what the core waits for, if one was modelled and that is any time to speak of, else of the
/// cost. Linear in the objects.
pub(crate) fn leading_share(profile: &Profile) -> Column {
    /// Of the core's time. Of less the order is chance, and what is hidden today waits tomorrow, on another core.
    const LEAST_PART: f64 = 0.01;
    let core_cycles = profile.run.core_cycles.filter(|_| profile.has_stalls()).unwrap_or(0);
    let stalls = profile.stall_cycles(&profile.totals());
    let is_much = core_cycles > 0 && stalls as f64 >= LEAST_PART * core_cycles as f64;
    if is_much { Column::StallShare } else { Column::Share }
}

/// All rows of a grouping, sorted: numbers fall, texts rise, unknown comes last.
pub(crate) fn rows(profile: &Profile, by: By, sort: Column) -> Vec<Row> {
    let mut whole = Whole::of(profile, &profile.totals());
    if sort == Column::Share {
        whole.leading = Column::Share;
    }
    let words = || PatternWords::new(profile);
    let mut rows = match by {
        By::Object => object_rows(&words(), whole),
        By::Site => {
            by_objects(profile, whole, |object| (Some(site_key(profile, object)), object.kind, object.module))
        }
        By::Kind => by_objects(profile, whole, |object| (None, object.kind, None)),
        By::Instruction => by_code(&words(), profile.cells.iter(), whole, CodeGroup::Instruction),
        By::Function => by_code(&words(), profile.cells.iter(), whole, CodeGroup::Function),
        By::Line => by_code(&words(), profile.cells.iter(), whole, CodeGroup::Line),
        By::Field => by_field(profile, whole),
        By::Caller => by_path(profile, profile.path_cells.iter(), whole),
        By::Thread => profile.threads.iter().map(|thread| thread_row(profile, thread, whole)).collect(),
        By::Process => by_process(profile, whole),
    };
    sort_rows(&mut rows, sort);
    rows
}

/// Sorts by a column, then by cost; stable for what is equal in both.
pub(crate) fn sort_rows(rows: &mut [Row], sort: Column) {
    rows.sort_by_key(|row| std::cmp::Reverse(row.cost));
    rows.sort_by(|a, b| compare(&sort.content(a), &sort.content(b), sort));
}

fn compare(a: &Content<'_>, b: &Content<'_>, sort: Column) -> Ordering {
    let falling = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    };
    match (a, b) {
        (Content::Text(Some(a)), Content::Text(Some(b))) => a.cmp(b),
        (Content::Text(a), Content::Text(b)) => b.is_some().cmp(&a.is_some()),
        (Content::Count(a), Content::Count(b)) if sort.is_place() => match (a, b) {
            (Some(a), Some(b)) => a.cmp(b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        },
        (Content::Count(a), Content::Count(b)) | (Content::Bytes(a), Content::Bytes(b)) => b.cmp(a),
        (Content::Ratio(a), Content::Ratio(b)) => falling(*a, *b),
        _ => Ordering::Equal,
    }
}

/// The objects' rows, with their patterns; objects of one name and line are one.
fn object_rows(words: &PatternWords<'_>, whole: Whole) -> Vec<Row> {
    let profile = words.profile();
    let mut cells: Vec<Vec<&Cell>> = vec![Vec::new(); profile.objects.len()];
    if !words.is_empty() {
        for cell in &profile.cells {
            if let Some(of_object) = cells.get_mut(cell.object.index()) {
                of_object.push(cell);
            }
        }
    }
    let time = OverTime::of(profile);
    let row = |objects: Namesakes<'_>| {
        let cells = objects.members().iter().filter_map(|index| cells.get(index.index()));
        let when = time.as_ref().and_then(|time| over_time::spark_of(time, &objects));
        Row { pattern: words.word(cells.flatten().copied()), when, ..objects.row(whole) }
    };
    Namesakes::of_each_line(profile).into_iter().map(row).collect()
}

/// The number of a row of objects: the costliest one's, and how many more there are.
pub(crate) fn row_number(id: u32, more: usize) -> String {
    match more {
        0 => id.to_string(),
        _ => format!("{id}+{more}"),
    }
}

/// What makes two objects the same site: what a reader sees of it.
pub(crate) fn site_key(profile: &Profile, object: &Object) -> String {
    object_place(profile, object).unwrap_or_else(|| object.name.clone())
}

/// Sums objects. With a site, rows are named after it; without, after the kind.
fn by_objects(
    profile: &Profile,
    whole: Whole,
    key: impl Fn(&Object) -> (Option<String>, memlens_types::ObjectKind, Option<ModuleIx>),
) -> Vec<Row> {
    let mut groups = Groups::default();
    for (index, object) in profile.objects.iter().enumerate() {
        groups.of(key(object)).push(index);
    }
    let sums = groups.in_order.into_iter().map(|(key, members)| {
        let mut counts = Counts::default();
        let mut costs = Vec::new();
        let (mut blocks, mut bytes) = (0u64, Some(0u64));
        for &member in &members {
            let object = &profile.objects[member];
            counts += &object.counts;
            costs.push((object.name.as_str(), profile.cost(&object.counts)));
            blocks = blocks.saturating_add(object.blocks);
            bytes = bytes.zip(object.bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
        }
        let first = &profile.objects[members[0]];
        let by_site = key.0.is_some();
        let target = Some(key.0.clone().map_or(Target::Kind(key.1), Target::Site));
        let name = key.0.unwrap_or_else(|| first.kind.as_str().to_owned());
        let row = Row::new(profile, name, &counts, true, whole);
        Row {
            kind: by_site.then(|| first.kind.as_str().to_owned()),
            blocks: Some(blocks),
            bytes,
            objects: Some(names_by_cost(costs)),
            certainties: Certainties::of_objects(
                profile,
                members.iter().map(|&member| &profile.objects[member]),
                whole,
            ),
            target,
            ..row
        }
    });
    sums.collect()
}

/// A thread without a name of its own bears the program's.
pub fn thread_name<'a>(profile: &'a Profile, thread: &'a Thread) -> Option<&'a str> {
    let program = || profile.run.command.first()?.rsplit('/').next();
    thread.name.as_deref().or_else(program)
}

fn thread_row(profile: &Profile, thread: &Thread, whole: Whole) -> Row {
    let target = Some(Target::Thread { pid: thread.pid, tid: thread.tid });
    Row { target, ..Row::new(profile, thread_title(profile, thread), &thread.counts, false, whole) }
}

/// What the row of a thread is called.
pub(crate) fn thread_title(profile: &Profile, thread: &Thread) -> String {
    match thread_name(profile, thread) {
        Some(name) => format!("{name} ({})", thread.tid),
        None => thread.tid.to_string(),
    }
}

/// Sums the threads of each process. Their name is that of the first thread, which has the process's number.
fn by_process(profile: &Profile, whole: Whole) -> Vec<Row> {
    let mut groups = Groups::default();
    for thread in &profile.threads {
        groups.of(thread.pid.or(profile.run.pid)).push(thread);
    }
    let sums = groups.in_order.into_iter().map(|(pid, threads): (Option<u32>, Vec<&Thread>)| {
        let mut counts = Counts::default();
        threads.iter().for_each(|thread| counts += &thread.counts);
        let target = Some(Target::Process(pid));
        Row { target, ..Row::new(profile, process_title(profile, pid, &threads), &counts, false, whole) }
    });
    sums.collect()
}

/// What the row of a process with these threads is called.
pub(crate) fn process_title(profile: &Profile, pid: Option<u32>, threads: &[&Thread]) -> String {
    let first = threads.iter().find(|thread| Some(thread.tid) == pid).or_else(|| threads.first());
    let number = pid.map_or("?".to_owned(), |pid| pid.to_string());
    let mut name = match first.and_then(|first| thread_name(profile, first)) {
        Some(name) => format!("{name} ({number})"),
        None => number,
    };
    if threads.len() > 1 {
        name += &format!(", {} threads", threads.len());
    }
    name
}

/// How code is put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeGroup {
    Instruction,
    Function,
    Line,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum CodeKey {
    Instruction(Option<ModuleIx>, u64),
    Function(Option<ModuleIx>, String),
    Line(Arc<str>, u32),
}

pub(crate) fn code_key(profile: &Profile, code: &CodeLocation, group: CodeGroup) -> CodeKey {
    let frame = profile.stack_frames(code.stack).next();
    let function = || CodeKey::Function(code.module, function_name(profile, code));
    match (group, frame) {
        (CodeGroup::Instruction, _) => CodeKey::Instruction(code.module, code.offset),
        (CodeGroup::Function, _) => function(),
        (CodeGroup::Line, Some(frame)) => match (&frame.file, frame.line) {
            (Some(file), Some(line)) => CodeKey::Line(file.clone(), line),
            _ => function(),
        },
        (CodeGroup::Line, None) => function(),
    }
}

/// Sums cells by the code they belong to. Linear in the cells.
pub(crate) fn by_code<'a>(
    words: &PatternWords<'_>,
    cells: impl Iterator<Item = &'a Cell>,
    whole: Whole,
    group: CodeGroup,
) -> Vec<Row> {
    let profile = words.profile();
    let mut groups = Groups::default();
    let mut keys: HashMap<CodeIx, CodeKey> = HashMap::new();
    for cell in cells {
        if let Some(code) = profile.code.get(cell.code.index()) {
            let key = keys.entry(cell.code).or_insert_with(|| code_key(profile, code, group));
            groups.of(key.clone()).push(cell);
        }
    }
    let sums = groups.in_order.into_iter().map(|(key, cells)| {
        let mut counts = Counts::default();
        let mut by_object: HashMap<usize, u64> = HashMap::new();
        for cell in &cells {
            let of_cell = cell.counts.get();
            counts += &of_cell;
            *by_object.entry(cell.object.index()).or_default() += profile.cost(&of_cell);
        }
        let costs = by_object
            .into_iter()
            .filter_map(|(object, cost)| Some((profile.objects.get(object)?.name.as_str(), cost)))
            .collect();
        let code = match &key {
            // Of the functions that a line belongs to, a constructor and a method, say, the costliest is named.
            CodeKey::Line(..) => costliest_function(profile, &cells),
            CodeKey::Instruction(..) | CodeKey::Function(..) => &profile.code[cells[0].code.index()],
        };
        let target = match &key {
            CodeKey::Instruction(..) => Target::instruction(profile, code),
            CodeKey::Function(_, function) => Target::Function(function.clone()),
            CodeKey::Line(file, line) => Target::Line { file: file.to_string(), line: *line },
        };
        let (name, place) = code_name(profile, code, key);
        let kind = match (group, code.size_bytes) {
            (CodeGroup::Instruction, 0) => Some(code.kind.as_str().to_owned()),
            (CodeGroup::Instruction, size) => Some(format!("{} {size}", code.kind.as_str())),
            _ => None,
        };
        let frame = profile.stack_frames(code.stack).next();
        let source_text = frame
            .and_then(|frame| frame.source_text.as_deref().map(str::to_owned))
            .filter(|_| group != CodeGroup::Function);
        Row {
            kind,
            pattern: words.word(cells.iter().copied()),
            objects: Some(names_by_cost(costs)),
            place,
            source_text,
            target: Some(target),
            ..Row::new(profile, name, &counts, false, whole)
        }
    });
    sums.collect()
}

/// A place of the function that most of the cells' cost is in: the first of them, of several with the same.
fn costliest_function<'a>(profile: &'a Profile, cells: &[&Cell]) -> &'a CodeLocation {
    let mut functions = Groups::default();
    for &cell in cells {
        let code = &profile.code[cell.code.index()];
        functions.of(function_name(profile, code)).push((code, cell.counts.get()));
    }
    let weight = |members: &[(&CodeLocation, Counts)]| {
        let all = members.iter().fold(Counts::default(), |mut all, (_, counts)| {
            all += counts;
            all
        });
        (profile.cost(&all), all.accesses())
    };
    let of_each = functions.in_order.iter().rev().map(|(_, members)| members);
    of_each
        .max_by_key(|members| weight(members))
        .map_or_else(|| &profile.code[cells[0].code.index()], |m| m[0].0)
}

/// Sums samples or accesses by the call path at whose end they were. A row is named after its last function; its place is
/// the callers, the nearest first.
pub(crate) fn by_path<'a>(
    profile: &Profile,
    parts: impl Iterator<Item = &'a PathCell>,
    whole: Whole,
) -> Vec<Row> {
    let mut groups = Groups::default();
    for part in parts {
        groups.of(part.path).push(part);
    }
    let sums = groups.in_order.into_iter().map(|(path, parts)| {
        let mut counts = Counts::default();
        let mut costs = Vec::new();
        for part in parts {
            let of_part = part.counts.get();
            counts += &of_part;
            if let Some(object) = profile.objects.get(part.object.index()) {
                costs.push((object.name.as_str(), profile.cost(&of_part)));
            }
        }
        let target = Target::path(profile, profile.path_frames(path));
        let mut frames = profile.path_frames(path);
        let name = frames.next().map(|frame| path_function(profile, frame));
        let callers: Vec<String> = frames
            .map(|frame| match source_place(frame) {
                Some(place) => format!("{} {place}", path_function(profile, frame)),
                None => path_function(profile, frame),
            })
            .collect();
        let name = name.unwrap_or_else(|| "no call path known".to_owned());
        Row {
            objects: Some(names_by_cost(costs)),
            place: Some(callers.join(" ← ")),
            target: Some(target),
            ..Row::new(profile, name, &counts, false, whole)
        }
    });
    sums.collect()
}

/// A frame's function, else where it is.
pub(crate) fn path_function(profile: &Profile, frame: &Frame) -> String {
    frame.function.as_deref().map_or_else(|| module_place(profile, frame), str::to_owned)
}

/// What a row of code is called, and where that is.
fn code_name(profile: &Profile, code: &CodeLocation, key: CodeKey) -> (String, Option<String>) {
    match key {
        CodeKey::Instruction(..) => {
            let module = profile.module(code.module).map_or("generated", |module| module.name());
            let function = function_name(profile, code);
            let place = match code_place(profile, code) {
                Some(place) => format!("{function} {place}"),
                None => function,
            };
            (format!("{module}+{:#x}", code.offset), Some(place))
        }
        CodeKey::Function(_, function) => {
            let frame = profile.stack_frames(code.stack).next();
            let file = frame.and_then(|frame| frame.file.as_deref()).map(base_name);
            let module = profile.module(code.module).map(|module| module.name());
            (function, file.or(module).map(str::to_owned))
        }
        CodeKey::Line(file, line) => {
            (format!("{}:{line}", base_name(&file)), Some(function_name(profile, code)))
        }
    }
}

/// The two most expensive names, and how many there are besides.
pub(crate) fn names_by_cost(costs: Vec<(&str, u64)>) -> String {
    let mut by_name: HashMap<&str, u64> = HashMap::new();
    for (name, cost) in costs {
        *by_name.entry(name).or_default() += cost;
    }
    let mut costs: Vec<(&str, u64)> = by_name.into_iter().collect();
    costs.sort_by_key(|&(name, cost)| (std::cmp::Reverse(cost), name));
    let mut text = costs.iter().take(2).map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    if costs.len() > 2 {
        text += &format!(" +{}", costs.len() - 2);
    }
    text
}

/// Members by key, keys in the order they came.
pub(crate) struct Groups<K, M> {
    at: HashMap<K, usize>,
    pub(crate) in_order: Vec<(K, Vec<M>)>,
}

impl<K, M> Default for Groups<K, M> {
    fn default() -> Self {
        Self { at: HashMap::new(), in_order: Vec::new() }
    }
}

impl<K: Clone + Eq + Hash, M> Groups<K, M> {
    pub(crate) fn of(&mut self, key: K) -> &mut Vec<M> {
        let next = self.in_order.len();
        let at = *self.at.entry(key.clone()).or_insert(next);
        if at == next {
            self.in_order.push((key, Vec::new()));
        }
        &mut self.in_order[at].1
    }
}
