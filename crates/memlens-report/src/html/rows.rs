//! Rows of tables as data of a page.

use memlens_profile::Profile;
use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};

use crate::column::{Column, Content};
use crate::grid::printable;
use crate::row::Row;
use crate::table::{TableColumn, cell, grid_column, is_of_weight, section_words};

/// One table.
#[derive(Serialize)]
pub(super) struct PageTable {
    /// What a row is: `object`.
    noun: &'static str,
    columns: Vec<PageColumn>,
    rows: Vec<PageRow>,
    /// Rows that there are.
    all: usize,
    /// What is said of those that there are more, which nothing touched.
    #[serde(skip_serializing_if = "Option::is_none")]
    untouched: Option<String>,
}

/// One column.
#[derive(Serialize)]
struct PageColumn {
    /// As `--sort` calls it.
    word: &'static str,
    title: String,
    /// What it means.
    meaning: String,
    /// Whether its figures are counted, estimated or modelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    section: Option<&'static str>,
    /// Whether it has numbers.
    is_number: bool,
    /// Whether what is least comes first: texts and places rise, other numbers fall.
    rises: bool,
    /// Whether it is only shown on demand.
    is_more: bool,
}

/// One row.
#[derive(Serialize)]
struct PageRow {
    /// The number of the object, if it is one with more behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<u32>,
    /// The share that rows are ranked by.
    share: f64,
    /// Whether it is shown as a tenth of a percent of anything: others are shown on demand.
    is_of_weight: bool,
    cells: Vec<PageCell>,
}

/// One cell: its text, and of a number what it is put in order by.
enum PageCell {
    Text(String),
    Number(String, f64),
    Unknown,
}

impl Serialize for PageCell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Number(text, value) => {
                let mut pair = serializer.serialize_seq(Some(2))?;
                pair.serialize_element(text)?;
                pair.serialize_element(value)?;
                pair.end()
            }
            Self::Unknown => serializer.serialize_none(),
        }
    }
}

impl PageTable {
    /// The first `top` of these rows: first these columns, then, on demand, all others that have anything.
    pub(super) fn new(
        profile: &Profile,
        mut rows: Vec<Row>,
        noun: &'static str,
        columns: Vec<TableColumn>,
        top: Option<usize>,
    ) -> Self {
        let all = rows.len();
        rows.truncate(top.unwrap_or(usize::MAX));
        let is_new = |column: &Column| {
            !columns.iter().any(|shown| matches!(shown, TableColumn::Of(of, ..) if of == column))
        };
        let more = Column::ALL.into_iter().filter(is_new).map(|column| TableColumn::Of(column, ["", ""], 0));
        let more: Vec<TableColumn> = more.collect();
        let has_any = |column: &TableColumn| rows.iter().any(|row| is_something(*column, row));
        let shown = columns.into_iter().map(|column| (column, false));
        let columns: Vec<(TableColumn, bool)> = shown
            .chain(more.into_iter().map(|column| (column, true)))
            .filter(|(column, _)| !matches!(column, TableColumn::Bar) && has_any(column))
            .collect();
        let sections = section_words(profile);
        let page_rows = rows.iter().map(|row| PageRow {
            object: row.ids.first().copied(),
            share: row.leading_share().unwrap_or(0.0),
            is_of_weight: is_of_weight(row),
            cells: columns.iter().map(|(column, _)| page_cell(*column, row)).collect(),
        });
        Self {
            noun,
            all,
            untouched: None,
            rows: page_rows.collect(),
            columns: columns
                .iter()
                .map(|&(column, is_more)| page_column(column, is_more, sections))
                .collect(),
        }
    }

    /// The same, with what is said of rows that there are more.
    pub(super) fn with_untouched(self, untouched: Option<String>) -> Self {
        Self { untouched, ..self }
    }

    /// What rows are comes first, whose place is known: a screen is not as wide as all columns. Then figures in their order.
    pub(super) fn names_first(mut columns: Vec<TableColumn>) -> Vec<TableColumn> {
        let is_name = |column: &TableColumn| match column {
            TableColumn::Of(Column::Name, ..) => 1,
            TableColumn::Of(Column::Where, ..) => 2,
            _ => 3,
        };
        let first = columns.iter().position(|column| is_name(column) < 3).unwrap_or(0);
        columns[first..].sort_by_key(is_name);
        columns
    }

    /// Numbers of the objects that its rows of weight are.
    pub(super) fn objects_of_weight(&self) -> impl Iterator<Item = u32> {
        self.rows.iter().filter(|row| row.is_of_weight).filter_map(|row| row.object)
    }

    /// Rows of which `has_more` does not hold have nothing behind them.
    pub(super) fn keep_objects(&mut self, has_more: impl Fn(u32) -> bool) {
        self.rows.iter_mut().for_each(|row| row.object = row.object.filter(|&id| has_more(id)));
    }

    /// Whether there is no row.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Whether a cell says anything: of what is known to be 0 for all rows nobody needs a column.
fn is_something(column: TableColumn, row: &Row) -> bool {
    let column = match column {
        TableColumn::Bar => return false,
        TableColumn::Source => return row.source_text.is_some(),
        TableColumn::Of(column, ..) => column,
    };
    match column.content(row) {
        Content::Text(text) => text.is_some_and(|text| !text.is_empty()),
        Content::Count(Some(value)) | Content::Bytes(Some(value)) => value > 0 || column == Column::Offset,
        Content::Ratio(Some(value)) => value > 0.0,
        _ => false,
    }
}

fn page_column(column: TableColumn, is_more: bool, sections: [&'static str; 2]) -> PageColumn {
    let looks = grid_column(column, sections);
    let [first, second] = &looks.titles;
    let (word, meaning, is_text, rises) = match column {
        TableColumn::Of(of, ..) => (of.as_str(), of.meaning(), of.is_text(), of.is_text() || of.is_place()),
        TableColumn::Source => {
            ("source", "the source line, as it was when the program was recorded", true, true)
        }
        TableColumn::Bar => ("", "", true, true),
    };
    // In percent here; and behind a row shares are of what is there alone.
    let meaning = match first.as_ref() {
        "of its" => "part of what this row's objects have, not of the whole program's".to_owned(),
        _ => meaning.replace(", 0 to 1", ""),
    };
    let title = format!("{first} {second}");
    let title = match title.trim() {
        "" => word.replace('_', " "),
        title => title.to_owned(),
    };
    PageColumn { word, title, meaning, section: looks.section, is_number: !is_text, rises, is_more }
}

fn page_cell(column: TableColumn, row: &Row) -> PageCell {
    let text = cell(column, row, false).text().to_owned();
    let TableColumn::Of(column, ..) = column else { return PageCell::Text(text) };
    match column.content(row) {
        // Widths are the browser's business: the text as it is.
        Content::Text(text) => PageCell::Text(printable(text.unwrap_or(""))),
        Content::Count(Some(value)) | Content::Bytes(Some(value)) => PageCell::Number(text, value as f64),
        Content::Ratio(Some(value)) => PageCell::Number(text, value),
        Content::Count(None) | Content::Bytes(None) | Content::Ratio(None) => PageCell::Unknown,
    }
}
