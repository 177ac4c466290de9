//! `--by`, `--sort`, `--top`: what a table shows, the same for `run` and `report`.

use clap::Args;
use memlens_report::{By, Column, View};

use crate::streams::Stream;
use crate::words::Words;

/// Rows shown unless `--top` says otherwise.
const DEFAULT_TOP: usize = 20;

/// What a table shows.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Table")]
pub struct ViewArgs {
    /// What a row stands for; object if not given
    #[arg(long, value_name = "WHAT", value_parser = by_words())]
    pub by: Option<By>,

    /// Column to sort by; if not given, the share of the stalls where they are 1 % of the time or more, else of the wait
    /// (`memlens report --help` lists columns)
    #[arg(long, value_name = "COLUMN", value_parser = column_words(), hide_possible_values = true)]
    pub sort: Option<Column>,

    /// How many rows at most: a number, or `all`; if neither this nor --sort is given, 20 of at least 0.05 %
    #[arg(long, value_name = "N", value_parser = parse_top)]
    pub top: Option<Top>,

    /// All notes above the table as a whole, not the beginning of the first ones
    #[arg(long)]
    pub notes: bool,
}

/// How many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Top {
    /// At most so many.
    Rows(usize),
    /// As many as there are.
    All,
}

impl ViewArgs {
    /// How the table is to look on `stream`.
    pub fn view(&self, stream: Stream) -> View {
        let default = View::default();
        View {
            width: stream.columns(),
            colour: stream.wants_colour(),
            by: self.by.unwrap_or(default.by),
            sort: self.sort,
            top: match self.top {
                Some(Top::Rows(rows)) => Some(rows),
                Some(Top::All) => None,
                None => Some(DEFAULT_TOP),
            },
            trifles: self.top.is_some() || self.sort.is_some(),
            all_notes: self.notes,
        }
    }

    /// The first of these options that was given.
    pub fn first_given(&self) -> Option<&'static str> {
        let by = self.by.map(|_| "--by");
        let notes = self.notes.then_some("--notes");
        by.or(self.sort.map(|_| "--sort")).or(self.top.map(|_| "--top")).or(notes)
    }
}

/// The parser of groupings.
pub fn by_words() -> Words<By> {
    Words::new(By::ALL.iter().map(|by| (by.as_str(), None)))
}

/// The parser of columns.
pub fn column_words() -> Words<Column> {
    Words::new(Column::ALL.iter().map(|column| (column.as_str(), Some(column.meaning()))))
}

/// The columns with their meanings, for the long help of the option that takes them.
pub fn column_list(option: &str) -> String {
    list(option, Column::ALL.into_iter())
}

/// Those of which there can be more and less.
pub fn amount_list(option: &str) -> String {
    list(option, Column::ALL.into_iter().filter(|column| column.adds_up()))
}

/// Some columns with their meanings.
pub fn list(option: &str, columns: impl Iterator<Item = Column>) -> String {
    let mut text = format!("Columns for {option}:\n");
    for column in columns {
        text += &format!("  {:<19} {}\n", column.as_str(), column.meaning());
    }
    text
}

/// A number of rows from 1, or `all`.
pub fn parse_top(text: &str) -> Result<Top, String> {
    match text {
        "all" => Ok(Top::All),
        _ => text
            .parse()
            .ok()
            .filter(|&rows| rows > 0)
            .map(Top::Rows)
            .ok_or_else(|| "give a number from 1, or ‘all’".to_owned()),
    }
}
