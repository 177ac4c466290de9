//! The table for people.

use memlens_profile::{Object, Profile, SampleUnit};
use unicode_width::UnicodeWidthStr;

use crate::By;
use crate::column::{Column, Content};
use crate::grid::{Elide, Flexible, Grid, GridCell, GridColumn, Style, fixed};
use crate::header::header;
use crate::known::Known;
use crate::number::{UNKNOWN, bar, bytes, count, percent_of_share, shown};
use crate::page::{Page, PlacedColumn};
use crate::row::{Row, Whole, leading_share, row_number, rows};
use crate::styled::Layout;

/// How a table is to look. Build it from [`View::default`] and change what is needed.
#[derive(Clone, Debug)]
pub struct View {
    /// Columns of the terminal; sensible from 80 to 200.
    pub width: usize,
    /// Whether to use the terminal's colours.
    pub colour: bool,
    /// What a row stands for.
    pub by: By,
    /// What rows are sorted by; `None`: by what matters most, the share of the stalls where they are 1 % of the core's time or more,
    /// else of the cost.
    pub sort: Option<Column>,
    /// How many rows at most; `None`: all.
    pub top: Option<usize>,
    /// Whether there are rows of less than a twentieth of a percent of everything, as there are of each program's start.
    pub trifles: bool,
    /// Whether the header has all notes as a whole, not the beginning of the first ones.
    pub all_notes: bool,
}

impl Default for View {
    /// 100 columns, no colour, the 20 objects that matter most, if they do.
    fn default() -> Self {
        Self {
            width: 100,
            colour: false,
            by: By::Object,
            sort: None,
            top: Some(20),
            trifles: false,
            all_notes: false,
        }
    }
}

impl View {
    /// What rows of this profile are sorted by.
    pub(crate) fn sort_of(&self, profile: &Profile) -> Column {
        self.sort.unwrap_or_else(|| leading_share(profile))
    }
}

/// Header, table and footer. Linear in the cells.
pub fn table(profile: &Profile, view: &View) -> String {
    let mut out = header(profile, view);
    out.push(Style::Plain, "\n");
    out.append(rows_page(profile, view).0);
    out.paint(view.colour)
}

/// The table, or why there is none, with what a page says of it.
pub(crate) fn rows_page(profile: &Profile, view: &View) -> (Layout, Page) {
    let mut out = Layout::default();
    let sort = view.sort_of(profile);
    let mut page = Page { sort: Some(sort), ..Page::default() };
    if let Some(why) = view.by.missing_in(profile) {
        out.push(Style::Plain, format!("No table by {}: {why}.\n", view.by.as_str()));
        return (out, page);
    }
    let mut rows = rows(profile, view.by, sort);
    // Objects that nobody touched say nothing about waiting; the JSON report has them.
    let all = rows.len();
    // Who asks for memory means all that holds some.
    let of_memory = view.sort.filter(|sort| sort.is_of_program());
    let holds_some = |row: &Row| {
        let content = of_memory.map(|sort| sort.content(row));
        matches!(content, Some(Content::Bytes(Some(1..)) | Content::Count(Some(1..))))
    };
    rows.retain(|row| row.known.is_touched() || holds_some(row));
    let touched = rows.len();
    if rows.is_empty() {
        let why = nothing(profile).unwrap_or("Nothing of it was accessed while collection was on.");
        out.push(Style::Plain, format!("{why}\n"));
        return (out, page);
    }
    if !view.trifles && rows.iter().any(is_of_weight) {
        rows.retain(is_of_weight);
    }
    rows.truncate(view.top.unwrap_or(usize::MAX));
    let totals = profile.totals();
    let whole = Whole::of(profile, &totals);
    let total = Row::new(profile, "total".to_owned(), &totals, view.by.is_data(), whole);
    let mut grid = grid(&rows, Some(&total), columns(profile, view.by, sort), profile);
    // A site's name is a place: its file and line are what must stay.
    for column in grid.columns.iter_mut().filter(|column| column.titles[1] == By::Site.as_str()) {
        column.elide = Elide::BeforeLastWord;
    }
    widen_callers(&mut grid);
    out.append(grid.layout(view.width));
    let mut footer = footer(profile, view, &rows, touched, all);
    if let Some((titles, wider)) = grid.missed(view.width) {
        let text = format!("no room for {titles}; COLUMNS={wider} shows them");
        if text.width() <= view.width {
            footer += &format!("\n{text}");
        }
    }
    out.push(Style::Dim, footer);
    out.push(Style::Plain, "\n");
    let placed = |(column, from, width)| PlacedColumn { column, from, width };
    page.columns = grid.places(view.width).into_iter().map(placed).collect();
    let has_some = |column: &Column| {
        let is_something = |content: Content<'_>| !content.is_unknown() && content != Content::Text(Some(""));
        rows.iter().any(|row| is_something(column.content(row)))
    };
    page.sortable = Column::ALL.into_iter().filter(has_some).collect();
    (out, page)
}

/// What is shown as a tenth of a percent.
const LEAST_SHARE: f64 = 0.0005;

/// Whether a row is shown as a tenth of a percent of anything.
pub(crate) fn is_of_weight(row: &Row) -> bool {
    [row.share, row.stall_share].into_iter().flatten().any(|share| share >= LEAST_SHARE)
}

/// Why there is no table; None: there is one of objects at least.
pub(crate) fn nothing(profile: &Profile) -> Option<&'static str> {
    let is_touched = |object: &Object| Known::new(profile, &object.counts, true).is_touched();
    match profile.objects.iter().any(is_touched) {
        true => None,
        false if profile.objects.is_empty() => {
            Some("The profile holds no accesses and no samples: nothing was collected.")
        }
        false if profile.is_of_bus() => Some("The bus saw no line of any object."),
        false => Some("No object was accessed while collection was on."),
    }
}

/// What is said of so many rows more that a table has not, since nothing touched them; None: there is none.
pub(crate) fn untouched(profile: &Profile, by: By, count: usize) -> Option<String> {
    let what = match by {
        _ if profile.is_of_bus() => "seen on the bus",
        // What is wider than a field counts where it begins.
        By::Field => "accessed by themselves",
        _ => "accessed",
    };
    (count > 0).then(|| format!("{count} more never {what}"))
}

fn footer(profile: &Profile, view: &View, rows: &[Row], touched: usize, all: usize) -> String {
    let share: f64 = rows.iter().filter_map(|row| row.leading_share()).sum();
    let word = if view.sort == Some(Column::Share) { cost_word(profile) } else { leading_word(profile) };
    let part = format!(", {} % of the {word}", percent_of_share(share.min(1.0)));
    let mut text = shown(rows.len(), touched, view.by.as_str(), &part);
    text += &untouched(profile, view.by, all - touched).map_or(String::new(), |it| format!("; {it}"));
    // The way on, where there is room for it.
    let hint = match view.by {
        By::Object if profile.is_of_bus() => "; --object # shows where one was allocated",
        By::Object if rows.iter().any(|row| row.ids.len() > 1) => {
            "; --object NAME shows all of a name, --object # one"
        }
        By::Object => "; --object # shows the code that touches one",
        By::Field => "; --object # shows the structure of one",
        By::Caller => "; --object # --by caller shows those that lead to one",
        By::Function => "; --code FUNCTION shows the objects that one touches",
        _ => "",
    };
    if text.width() + hint.width() <= view.width {
        text += hint;
    }
    if let Some(sort) = view.sort
        && sort != Column::Share
        && rows.iter().all(|row| sort.content(row).is_unknown())
    {
        text += &format!("\nnone has {}: sorted by the {}", sort.as_str(), cost_word(profile));
    }
    text
}

/// The columns of a grouping, with the one it is sorted by if that is none of them.
pub(crate) fn columns(profile: &Profile, by: By, sort: Column) -> Vec<TableColumn> {
    let cost = [cost_word(profile), "%"];
    let leading = if sort == Column::Share { sort } else { leading_share(profile) };
    // The interval is that of the share which leads.
    let (first, low, high) = match leading {
        Column::StallShare => {
            (TableColumn::Of(Column::StallShare, ["stall", "%"], 0), Column::StallLow, Column::StallHigh)
        }
        _ => (TableColumn::Of(Column::Share, cost, 0), Column::ShareLow, Column::ShareHigh),
    };
    let mut columns = vec![first, TableColumn::Bar];
    if profile.run.sampling.is_some() || profile.run.effective_bursts.is_some() {
        columns.push(TableColumn::Of(low, ["95 %", "from"], 1));
        columns.push(TableColumn::Of(high, ["95 %", "to"], 1));
    }
    if leading == Column::StallShare {
        columns.push(TableColumn::Of(Column::Share, cost, 1));
    }
    if profile.has_stalls() && leading == Column::Share {
        columns.push(TableColumn::Of(Column::StallShare, ["stall", "%"], 1));
    }
    if by == By::Object {
        columns.push(TableColumn::Of(Column::Id, ["", "#"], 0));
    }
    columns.push(TableColumn::Of(Column::Name, ["", by.as_str()], 0));
    if matches!(by, By::Object | By::Site | By::Instruction) {
        let title = if by == By::Instruction { "access" } else { "kind" };
        columns.push(TableColumn::Of(Column::Kind, ["", title], 1));
    }
    if by == By::Object {
        columns.push(TableColumn::Of(Column::Type, ["", "type"], 8));
    }
    if by == By::Field {
        columns.extend(field_columns());
    }
    if by.is_data() {
        columns.push(TableColumn::Of(Column::Blocks, ["", "blocks"], 6));
        columns.push(TableColumn::Of(Column::Bytes, ["", "bytes"], 3));
    }
    columns.extend(counts(profile));
    if profile.is_of_bus() {
        // There are no accesses that could miss; what a card sees of page walks stays in sight.
        columns.retain(|column| !matches!(column, TableColumn::Of(Column::L1MissRatio, ..)));
        columns.push(TableColumn::Of(Column::PageWalkAccesses, ["walk", "reads"], 1));
    }
    let in_huge =
        |object: &Object| object.backing.as_ref().and_then(|backing| backing.huge_share()) > Some(0.0);
    if by == By::Object && profile.objects.iter().any(in_huge) {
        columns.push(TableColumn::Of(Column::HugeShare, ["in huge", "pages %"], 3));
    }
    if !by.is_data() {
        // Code and threads have no write-backs.
        columns.retain(|column| !matches!(column, TableColumn::Of(Column::DramWrites, ..)));
    }
    if matches!(by, By::Object | By::Instruction | By::Line) {
        columns.push(TableColumn::Of(Column::Pattern, ["", "pattern"], 2));
    }
    if by == By::Object {
        columns.push(TableColumn::Of(Column::When, ["", "over time"], 4));
    }
    if !matches!(by, By::Object | By::Thread | By::Process | By::Kind) {
        columns.push(TableColumn::Of(Column::Objects, ["", "objects"], 0));
    }
    if matches!(by, By::Object | By::Instruction | By::Function | By::Line | By::Caller) {
        let titles = match by {
            By::Caller => CALLED_FROM,
            By::Object => ALLOCATED_AT,
            By::Line => ["", "function"],
            By::Function => ["", "file"],
            _ => ["", "where"],
        };
        columns.push(TableColumn::Of(
            Column::Where,
            titles,
            if matches!(by, By::Object | By::Caller) { 0 } else { 2 },
        ));
    }
    if by == By::Line {
        columns.push(TableColumn::Source);
    }
    add_sort(&mut columns, sort);
    columns
}

/// What is told of a field besides its name.
pub(crate) fn field_columns() -> [TableColumn; 3] {
    [
        TableColumn::Of(Column::Offset, ["", "offset"], 1),
        TableColumn::Of(Column::Bytes, ["", "bytes"], 3),
        TableColumn::Of(Column::Type, ["", "type"], 5),
    ]
}

/// What a share is a share of.
pub(crate) fn cost_word(profile: &Profile) -> &'static str {
    match &profile.run.sampling {
        None if profile.is_of_bus() => "reads",
        None => "wait",
        Some(sampling) if sampling.unit == SampleUnit::Nanoseconds => "time",
        Some(_) => "events",
    }
}

/// What the share is of that rows are ranked by.
pub(crate) fn leading_word(profile: &Profile) -> &'static str {
    if leading_share(profile) == Column::StallShare { "stalls" } else { cost_word(profile) }
}

/// Where misses, lines and page walks are from: a model, or what a card saw.
pub(crate) fn modelled_word(profile: &Profile) -> &'static str {
    if profile.is_of_bus() { "on the bus" } else { "modelled" }
}

/// Headings of columns whose figures come from the run, and of those that come from a model.
pub(crate) fn section_words(profile: &Profile) -> [&'static str; 2] {
    [if profile.run.estimated { "estimated" } else { "counted" }, modelled_word(profile)]
}

/// Titles of the place of an object.
pub(crate) const ALLOCATED_AT: [&str; 2] = ["allocated or", "declared at"];

/// Titles of the callers of a function.
pub(crate) const CALLED_FROM: [&str; 2] = ["", "called from"];

/// Titles of the place of an object with its callers.
pub(crate) const ALLOCATED_FROM: [&str; 2] = ["", "allocated or declared at"];

/// Callers take what room there is, and of many the nearest stay. What each call path has was not counted.
pub(crate) fn widen_callers(grid: &mut Grid) {
    if grid.columns.iter().any(|column| column.titles == CALLED_FROM) {
        let counted = grid.columns.iter_mut().filter(|column| column.section == Some("counted"));
        counted.for_each(|column| column.section = Some("divided"));
    }
    let has_callers = |column: &&mut GridColumn| {
        [CALLED_FROM, ALLOCATED_FROM].iter().any(|titles| column.titles == *titles)
    };
    for column in grid.columns.iter_mut().filter(has_callers) {
        column.elide = Elide::End;
        column.flexible = Some(Flexible { least: 24, comfortable: 40, most: 240 });
    }
}

/// The counts that a profile's tables show, as far as there are any.
pub(crate) fn counts(profile: &Profile) -> Vec<TableColumn> {
    let mut columns = vec![
        TableColumn::Of(Column::Samples, ["", "samples"], 1),
        TableColumn::Of(Column::Fetches, ["", "fetches"], 3),
        TableColumn::Of(Column::Loads, ["", "loads"], 2),
        TableColumn::Of(Column::Stores, ["", "stores"], 3),
        TableColumn::Of(Column::L1MissRatio, ["L1", "miss%"], 2),
        TableColumn::Of(Column::L1iMisses, ["L1i", "misses"], 3),
        TableColumn::Of(Column::LlcMisses, ["LLC", "misses"], 1),
        TableColumn::Of(Column::LlcPrefetchedRatio, ["of them", "prefet%"], 4),
        TableColumn::Of(Column::RemoteRatio, ["of them", "remote%"], 1),
        TableColumn::Of(Column::CoherenceMisses, ["coher.", "misses"], 1),
        TableColumn::Of(Column::FalseSharingRatio, ["of them", "false%"], 2),
        TableColumn::Of(Column::DtlbMisses, ["TLB", "misses"], 5),
        TableColumn::Of(Column::StlbMisses, ["page", "walks"], 4),
        TableColumn::Of(Column::DramReads, ["DRAM", "reads"], 5),
        TableColumn::Of(Column::DramWrites, ["DRAM", "writes"], 4),
    ];
    if !waits_for_cores(profile) {
        let is_shared =
            |column: &Column| matches!(column, Column::CoherenceMisses | Column::FalseSharingRatio);
        columns.retain(|column| !matches!(column, TableColumn::Of(of, ..) if is_shared(of)));
    }
    columns
}

/// Whether waiting for lines that other cores modified makes a part of what rows are ranked by: threads that start have some, too.
fn waits_for_cores(profile: &Profile) -> bool {
    const LEAST_PART: f64 = 0.01;
    let totals = profile.totals();
    let waited = totals.shared.coherence_misses * u64::from(profile.machine.transfer_cycles());
    let whole = match leading_share(profile) {
        Column::StallShare => profile.stall_cycles(&totals),
        _ => profile.cost(&totals),
    };
    waited > 0 && waited as f64 >= LEAST_PART * whole as f64
}

fn add_sort(columns: &mut Vec<TableColumn>, sort: Column) {
    let shown = |column: &TableColumn| matches!(column, TableColumn::Of(of, ..) if *of == sort);
    if let Some(found) = columns.iter_mut().find(|column| shown(column)) {
        // What decides the order stays in sight.
        if let TableColumn::Of(_, _, priority) = found {
            *priority = 0;
        }
        return;
    }
    let after_name = columns
        .iter()
        .position(|column| matches!(column, TableColumn::Of(Column::Loads, ..)))
        .unwrap_or(columns.len());
    columns.insert(after_name, TableColumn::Of(sort, ["", sort.as_str()], 0));
}

/// A column of a table: its titles and how early it gives way on a narrow terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TableColumn {
    Of(Column, [&'static str; 2], u8),
    /// The share as a bar.
    Bar,
    /// The source line itself.
    Source,
}

/// A grid of rows; `total` goes below the line.
pub(crate) fn grid(rows: &[Row], total: Option<&Row>, columns: Vec<TableColumn>, profile: &Profile) -> Grid {
    let estimated = profile.run.estimated;
    let sections = section_words(profile);
    // What is unknown for every row needs no column, nor does an empty text.
    let columns: Vec<TableColumn> = columns
        .into_iter()
        .filter(|column| match column {
            TableColumn::Of(Column::Name | Column::Share | Column::StallShare, ..) | TableColumn::Bar => true,
            TableColumn::Of(column, ..) => rows.iter().any(|row| match column.content(row) {
                Content::Text(None | Some("")) | Content::Count(None) => false,
                // No misses, or no prefetcher.
                Content::Ratio(None)
                    if matches!(
                        column,
                        Column::LlcPrefetchedRatio | Column::FalseSharingRatio | Column::RemoteRatio
                    ) =>
                {
                    false
                }
                // Samples count neither bytes nor misses.
                Content::Bytes(None) | Content::Ratio(None) => !estimated,
                _ => true,
            }),
            TableColumn::Source => rows.iter().any(|row| row.source_text.is_some()),
        })
        .collect();
    let line = |row: &Row, is_total: bool| -> Vec<GridCell> {
        columns.iter().map(|column| cell(*column, row, is_total)).collect()
    };
    Grid {
        rows: rows.iter().map(|row| line(row, false)).collect(),
        footer: total.map(|total| line(total, true)),
        targets: rows.iter().map(|row| row.target.clone()).collect(),
        columns: columns.iter().map(|column| grid_column(*column, sections)).collect(),
    }
}

pub(crate) fn grid_column(column: TableColumn, [counted, modelled]: [&'static str; 2]) -> GridColumn {
    let (column, titles, priority) = match column {
        TableColumn::Bar => {
            return GridColumn {
                titles: fixed(["", ""]),
                section: None,
                right: false,
                priority: 9,
                flexible: None,
                elide: Elide::End,
                of: None,
            };
        }
        TableColumn::Source => {
            return GridColumn {
                titles: fixed(["", "source"]),
                section: None,
                right: false,
                priority: 7,
                flexible: Some(Flexible { least: 12, comfortable: 24, most: 60 }),
                elide: Elide::End,
                of: None,
            };
        }
        TableColumn::Of(column, titles, priority) => (column, titles, priority),
    };
    let text = column.is_text() && column != Column::Pattern;
    let section = match column {
        _ if text => None,
        Column::Share
        | Column::ShareLow
        | Column::ShareHigh
        | Column::StallLow
        | Column::StallHigh
        | Column::Samples
        | Column::WaitCycles
        | Column::StallCycles
        | Column::StallShare
        | Column::Id
        | Column::Offset
        | Column::Blocks
        | Column::Bytes
        | Column::MaxLiveBytes
        | Column::LiveAtPeakBytes
        | Column::LiveAtEndBytes
        | Column::HugeShare => None,
        Column::Fetches => Some(counted),
        _ if column.is_of_accesses() => Some(counted),
        _ => Some(modelled),
    };
    let flexible = |least, comfortable, most| Some(Flexible { least, comfortable, most });
    let flexible = match column {
        Column::Name => flexible(16, 24, 48),
        Column::Type => flexible(6, 8, 20),
        Column::Objects => flexible(12, 18, 36),
        // `pointer-chase` and most strides fit; of `indirect by …` a name may be long.
        Column::Pattern => flexible(13, 18, 28),
        Column::Where => flexible(18, 26, 60),
        _ => None,
    };
    let elide = match column {
        Column::Where => Elide::BeforeLastWord,
        Column::Name => Elide::BeforeLastComponent,
        _ => Elide::End,
    };
    let titles = fixed(titles);
    GridColumn { titles, section, right: !text, priority, flexible, elide, of: Some(column) }
}

pub(crate) fn cell(column: TableColumn, row: &Row, is_total: bool) -> GridCell {
    let column = match column {
        TableColumn::Bar if is_total => return GridCell::default(),
        TableColumn::Bar => return GridCell::new(share_bar(row.leading_share().unwrap_or(0.0)), heat(row)),
        TableColumn::Source => {
            return GridCell::new(row.source_text.as_deref().unwrap_or("").trim(), Style::Dim);
        }
        TableColumn::Of(column, ..) => column,
    };
    let (text, unknown) = match column.content(row) {
        Content::Text(text) => (text.unwrap_or("").to_owned(), false),
        Content::Count(Some(_)) if let (Column::Id, [id, more @ ..]) = (column, &row.ids[..]) => {
            (row_number(*id, more.len()), false)
        }
        Content::Count(Some(value)) if column.is_place() => (value.to_string(), false),
        Content::Count(Some(value)) => (count(value), false),
        Content::Bytes(Some(value)) => (bytes(value), false),
        Content::Ratio(Some(value)) => (percent_of_share(value), false),
        _ => (UNKNOWN.to_owned(), true),
    };
    // The total's row has no blocks, ids and the like, and is all there is: nothing there is unknown.
    let has_no_total = matches!(
        column,
        Column::Id
            | Column::ShareLow
            | Column::ShareHigh
            | Column::StallLow
            | Column::StallHigh
            | Column::Kind
            | Column::Type
            | Column::Offset
            | Column::Blocks
            | Column::Bytes
            | Column::MaxLiveBytes
            | Column::LiveAtPeakBytes
            | Column::LiveAtEndBytes
            | Column::HugeShare
            | Column::Where
            | Column::Objects
    );
    if is_total && has_no_total {
        return GridCell::default();
    }
    let style = match column {
        _ if unknown || text == "0" => Style::Dim,
        Column::StallShare | Column::Share if !is_total && column == row.leading => heat(row),
        Column::Name => Style::Bold,
        Column::Kind | Column::Type | Column::Where => Style::Dim,
        _ => Style::Plain,
    };
    GridCell::new(text, style)
}

/// A fifth is worth anyone's time; a twentieth may be.
fn heat(row: &Row) -> Style {
    match row.leading_share() {
        Some(share) if share >= 0.20 => Style::Hot,
        Some(share) if share >= 0.05 => Style::Warm,
        _ => Style::Plain,
    }
}

/// Eight columns, so that the bar's is as wide for every profile.
fn share_bar(share: f64) -> String {
    format!("{:8}", bar(share, 8))
}
