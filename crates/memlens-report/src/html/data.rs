//! What a page holds.

use std::collections::{BTreeMap, HashMap, HashSet};

use memlens_profile::{Cell, MERGED_FROM, ObjectIx, Profile};
use serde::Serialize;

use super::PageView;
use super::rows::PageTable;
use crate::advice::Told;
use crate::detail::{About, Structure, about, allocated_at, code_of, each_of, structure};
use crate::field::FieldIndex;
use crate::header::{Fact, command, facts, notes};
use crate::namesakes::Namesakes;
use crate::over_time::{Charts, OVER_TIME};
use crate::pattern::PatternWords;
use crate::row::{By, CodeGroup, Whole, leading_share, rows};
use crate::table::{columns, leading_word, nothing, untouched};

/// Wide enough for every piece of the header.
const ROOM: usize = 1000;
/// Objects [of weight](crate::table::is_of_weight) have something behind their rows if they are among so many …
const MOST_DETAILS: usize = 100;
/// … of a row of several so many of these, too …
const MOST_PARTS: usize = 8;
/// … with so many lines of code.
const MOST_LINES: usize = 50;

/// Everything.
#[derive(Serialize)]
pub(super) struct Page {
    command: String,
    /// What it was merged from.
    #[serde(skip_serializing_if = "Option::is_none")]
    merged: Option<String>,
    /// When it was started, seconds since 1970-01-01 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<u32>,
    /// What is said in the place of rows, where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    nothing: Option<&'static str>,
    version: &'static str,
    /// Figures and what they are about.
    facts: Vec<Fact>,
    notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    over_time: Option<Charts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<Told>,
    /// What rows are ranked by: `stalls`.
    ranked_by: &'static str,
    line_bytes: u32,
    tables: Vec<PageTable>,
    /// What is behind objects' rows, by number.
    objects: BTreeMap<u32, Detail>,
}

/// What is behind an object's row.
#[derive(Serialize)]
struct Detail {
    title: String,
    summary: Vec<String>,
    facts: Vec<Fact>,
    /// The calls that allocated it, innermost first; of several, nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allocated_at: Vec<[String; 4]>,
    /// Several objects that the row is made of.
    #[serde(skip_serializing_if = "Option::is_none")]
    each: Option<PageTable>,
    /// What is behind the costliest of these, by number.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    parts: BTreeMap<u32, Detail>,
    #[serde(skip_serializing_if = "Option::is_none")]
    structure: Option<PageStructure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<PageTable>,
}

/// The structure that an object consists of, and what its fields cost.
#[derive(Serialize)]
struct PageStructure {
    title: String,
    bytes: Option<u64>,
    wide: String,
    /// Fields whose place is known, in the order of their places.
    places: Vec<PageField>,
    fields: PageTable,
}

#[derive(Serialize)]
struct PageField {
    name: String,
    offset: u64,
    bytes: u64,
    share: f64,
}

impl Page {
    pub(super) fn new(profile: &Profile, view: &PageView<'_>) -> Self {
        let advice = view.advice.map(|advice| Told::new(profile, advice, view.how));
        let mut objects = table(profile, By::Object, view.top);
        // What findings are about is told, however little it costs.
        let told = advice.iter().flat_map(|told| &told.findings);
        let told = told.flat_map(|finding| finding.object.iter().chain(&finding.others).copied());
        let wanted: HashSet<u32> = objects.objects_of_weight().take(MOST_DETAILS).chain(told).collect();
        let details = details(profile, &wanted);
        objects.keep_objects(|id| details.contains_key(&id));
        let others = By::ALL.into_iter().filter(|by| *by != By::Object && is_worth_it(profile, *by));
        let others = others.map(|by| table(profile, by, view.top)).filter(|table| !table.is_empty());
        Self {
            command: command(profile),
            merged: profile.run.notes.iter().find(|note| note.starts_with(MERGED_FROM)).cloned(),
            started: profile.run.started_unix_seconds,
            host: profile.run.hostname.clone(),
            process: profile.run.pid,
            nothing: nothing(profile),
            version: env!("CARGO_PKG_VERSION"),
            // Charts say what sparklines say.
            facts: (facts(profile, ROOM).into_iter())
                .filter(|(label, pieces)| !pieces.is_empty() && *label != OVER_TIME)
                .collect(),
            notes: notes(profile),
            over_time: Charts::of(profile),
            advice,
            ranked_by: leading_word(profile),
            line_bytes: profile.machine.line_bytes,
            tables: std::iter::once(objects).chain(others).collect(),
            objects: details,
        }
    }

    /// What was run.
    pub(super) fn command(&self) -> &str {
        &self.command
    }
}

/// Whether a table has something to say that others do not.
fn is_worth_it(profile: &Profile, by: By) -> bool {
    let has_processes = || {
        let mut of = profile.threads.iter().map(|thread| thread.pid.or(profile.run.pid));
        let first = of.next();
        of.any(|other| Some(other) != first)
    };
    match by {
        By::Thread => profile.threads.len() > 1,
        By::Process => has_processes(),
        By::Field => !profile.fields.is_empty(),
        By::Instruction | By::Function | By::Line => !profile.is_of_bus(),
        By::Caller => !profile.path_cells.is_empty(),
        By::Object | By::Site | By::Kind => true,
    }
}

fn table(profile: &Profile, by: By, top: Option<usize>) -> PageTable {
    let sort = leading_share(profile);
    let mut rows = rows(profile, by, sort);
    let all = rows.len();
    rows.retain(|row| row.known.is_touched());
    let untouched = untouched(profile, by, all - rows.len());
    let columns = PageTable::names_first(columns(profile, by, sort));
    PageTable::new(profile, rows, by.as_str(), columns, top).with_untouched(untouched)
}

/// What is behind the rows of objects that begin with these.
fn details(profile: &Profile, wanted: &HashSet<u32>) -> BTreeMap<u32, Detail> {
    let words = PatternWords::new(profile);
    let (fields, program) = (FieldIndex::of(profile), Whole::of(profile, &profile.totals()));
    let mut cells: HashMap<ObjectIx, Vec<&Cell>> = HashMap::new();
    for cell in &profile.cells {
        cells.entry(cell.object).or_default().push(cell);
    }
    let first = |objects: &Namesakes<'_>| objects.objects().next().map(|object| object.id);
    let of_each = Namesakes::of_each_line(profile).into_iter().filter_map(|objects| {
        let id = first(&objects).filter(|id| wanted.contains(id))?;
        let of = |objects: &Namesakes<'_>| {
            let its = objects.members().iter().filter_map(|member| cells.get(member)).flatten().copied();
            detail(&words, &fields, objects, its, program)
        };
        let mut detail = of(&objects);
        if let Some(each) = detail.each.as_mut() {
            let costliest = objects.members().iter().take(MOST_PARTS);
            let parts = costliest.map(|&member| Namesakes::one(profile, member));
            detail.parts = parts.filter_map(|part| Some((first(&part)?, of(&part)))).collect();
            each.keep_objects(|id| detail.parts.contains_key(&id));
        }
        Some((id, detail))
    });
    of_each.collect()
}

fn detail<'a>(
    words: &PatternWords<'a>,
    fields: &FieldIndex<'a>,
    objects: &Namesakes<'a>,
    cells: impl Iterator<Item = &'a Cell> + Clone,
    program: Whole,
) -> Detail {
    let profile = words.profile();
    let About { title, summary, facts } = about(profile, objects, program);
    let whole = Whole::of(profile, &objects.counts());
    let first = objects.objects().next().filter(|_| objects.is_single());
    let each = (!objects.is_single()).then(|| each_of(profile, objects, whole));
    let code = code_of(words, cells.clone(), whole, CodeGroup::Line).filter(|_| !profile.is_of_bus());
    let shown = |part: crate::detail::Part| {
        PageTable::new(profile, part.rows, part.noun, part.columns, Some(MOST_LINES))
    };
    Detail {
        title,
        summary,
        facts: facts.into_iter().filter(|(_, pieces)| !pieces.is_empty()).collect(),
        allocated_at: first.map(|object| allocated_at(profile, object).collect()).unwrap_or_default(),
        each: each.map(shown),
        parts: BTreeMap::new(),
        structure: structure(fields, objects, cells, whole)
            .map(|structure| page_structure(profile, structure)),
        code: code.map(shown),
    }
}

fn page_structure(profile: &Profile, structure: Structure) -> PageStructure {
    let Structure { title, bytes, fields, wide } = structure;
    let mut places: Vec<PageField> = (fields.rows.iter())
        .filter_map(|row| {
            Some(PageField {
                name: row.name.clone(),
                offset: row.offset?,
                bytes: row.bytes?,
                share: row.leading_share().unwrap_or(0.0),
            })
        })
        .collect();
    places.sort_by_key(|field| field.offset);
    let fields = PageTable::new(profile, fields.rows, fields.noun, fields.columns, None);
    PageStructure { title, bytes, wide, places, fields }
}
