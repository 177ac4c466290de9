//! Which tables there are, what their columns mean, and how that is told.

use std::fmt::Write;

use memlens_profile::Profile;
use memlens_report::{counts_by_word, meaning_of_count};
use memlens_types::Counts;

use crate::fill::Rows;
use crate::tables::TABLES;
use crate::views::VIEWS;

/// Of the tables; `PRAGMA user_version` of files. It grows when a column or table goes or changes its meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// A table, and where its rows come from.
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// What a row is.
    pub meaning: &'static str,
    /// Its columns, without those of counts.
    pub columns: &'static [Column],
    /// Which counts its rows have.
    pub counts: CountColumns,
    /// Puts the rows.
    pub fill: fn(&Profile, &mut Rows<'_>) -> rusqlite::Result<()>,
}

impl Table {
    /// Whether its rows have counts.
    pub fn has_counts(&self) -> bool {
        self.counts != CountColumns::None
    }
}

/// Whether rows of a table have counts behind their other columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountColumns {
    /// They have none.
    None,
    /// All but lines written back, which code has not.
    OfCode,
    /// All.
    WithWriteBacks,
}

/// A column.
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its type, as SQL has it; a row's own number is the primary key.
    pub kind: &'static str,
    /// What it holds.
    pub meaning: &'static str,
}

/// A row's number in its table.
pub const fn key(name: &'static str, meaning: &'static str) -> Column {
    Column { name, kind: "INTEGER PRIMARY KEY", meaning }
}

/// A whole number, among them numbers of other tables' rows.
pub const fn int(name: &'static str, meaning: &'static str) -> Column {
    Column { name, kind: "INTEGER", meaning }
}

/// A number with a fraction.
pub const fn real(name: &'static str, meaning: &'static str) -> Column {
    Column { name, kind: "REAL", meaning }
}

/// A text.
pub const fn text(name: &'static str, meaning: &'static str) -> Column {
    Column { name, kind: "TEXT", meaning }
}

/// A query under a name.
pub struct View {
    /// Its name.
    pub name: &'static str,
    /// What a row is.
    pub meaning: &'static str,
    /// The query; `{counts}` stands for all columns of counts of the table with the alias `c`.
    pub query: &'static str,
}

/// The columns of counts, in their order.
pub fn count_words() -> Vec<&'static str> {
    counts_by_word(&Profile::default(), &Counts::default(), true).map(|(word, _)| word).collect()
}

/// What makes all tables and views in the database of this name.
pub fn definitions(database: &str) -> String {
    let counts = count_words();
    let mut sql = String::new();
    for table in TABLES {
        let own = table.columns.iter().map(|column| format!("{} {}", column.name, column.kind));
        let counts = counts.iter().filter(|_| table.has_counts());
        let all: Vec<String> = own.chain(counts.map(|word| format!("{word} INTEGER"))).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(sql, "CREATE TABLE \"{database}\".{} ({});", table.name, all.join(", "));
    }
    let counts: Vec<String> = counts.iter().map(|word| format!("c.{word}")).collect();
    for view in VIEWS {
        let query = view.query.replace("{counts}", &counts.join(", "));
        let _ = writeln!(sql, "CREATE VIEW \"{database}\".{} AS {query};", view.name);
    }
    sql
}

/// What the tables hold, for people at a terminal.
pub fn schema_text() -> String {
    let mut text = String::new();
    for view in VIEWS {
        let _ = writeln!(text, "{} (view): {}\n    {}\n", view.name, view.meaning, columns_of(view));
    }
    for table in TABLES {
        let counts = if table.has_counts() { ", and counts" } else { "" };
        let _ = writeln!(text, "{}: {}{counts}", table.name, table.meaning);
        for column in table.columns {
            let _ = writeln!(text, "    {:<26} {}", column.name, column.meaning);
        }
        text.push('\n');
    }
    let _ = writeln!(text, "counts:");
    for word in count_words() {
        let _ = writeln!(text, "    {word:<26} {}", meaning_of_count(word));
    }
    text
}

/// The same for the documentation.
pub fn schema_markdown() -> String {
    let mut text = String::new();
    for view in VIEWS {
        let columns = columns_of(view);
        let _ = writeln!(text, "### `{}`, a view\n\n{}: {columns}.\n", view.name, capitalised(view.meaning));
    }
    for table in TABLES {
        let counts = if table.has_counts() { ", and counts" } else { "" };
        let _ = writeln!(text, "### `{}`\n\n{}{counts}.\n", table.name, capitalised(table.meaning));
        if !table.columns.is_empty() {
            let _ = writeln!(text, "| column | type | meaning |\n|---|---|---|");
        }
        for Column { name, kind, meaning } in table.columns {
            let _ = writeln!(text, "| `{name}` | {} | {meaning} |", kind.to_lowercase());
        }
        text.push('\n');
    }
    let _ = writeln!(text, "### Counts\n\n| column | meaning |\n|---|---|");
    for word in count_words() {
        let _ = writeln!(text, "| `{word}` | {} |", meaning_of_count(word));
    }
    text
}

fn capitalised(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map(|first| first.to_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}

/// The names of a view's columns: what stands behind `AS`, or the last part of each.
fn columns_of(view: &View) -> String {
    let (_, columns) = view.query.split_once("SELECT ").unwrap_or_default();
    let (columns, _) = columns.split_once(" FROM ").unwrap_or_default();
    let name = |column: &str| match column.trim() {
        "{counts}" => "and counts".to_owned(),
        column => column.rsplit([' ', '.']).next().unwrap_or_default().to_owned(),
    };
    columns.split(',').map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    /// `docs/query.md` is written by hand except for its tables, which must be these.
    #[test]
    fn the_documentation_holds_the_schema() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/query.md");
        let page = std::fs::read_to_string(page).unwrap();
        let schema = super::schema_markdown();
        assert!(page.contains(schema.trim_end()), "replace the tables of docs/query.md by:\n{schema}");
        assert!(page.contains(&format!("version {}", super::SCHEMA_VERSION)));
    }
}
