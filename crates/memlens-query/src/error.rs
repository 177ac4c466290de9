//! What goes wrong, in words.

use std::io;

use memlens_report::nearest_word;

use crate::schema::count_words;
use crate::tables::TABLES;
use crate::views::VIEWS;

/// So much is shown of what SQLite does not understand.
const SHOWN_LETTERS: usize = 40;

/// Why there is no answer. Reads after "cannot …: ".
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// SQLite's own words, with the place, and the nearest word that would have been right.
    #[error("{0}")]
    Sql(String),
    /// The name of a further profile is none that SQL takes as it is.
    #[error(
        "‘{0}’ cannot be a profile's name in SQL: take letters, digits and _, a letter first, and not main or temp"
    )]
    Name(String),
    /// It is another profile's.
    #[error("two profiles are called ‘{0}’")]
    NameTaken(String),
    /// SQLite failed.
    #[error("SQLite: {0}")]
    Engine(#[from] rusqlite::Error),
    /// An answer could not be handed over.
    #[error("{0}")]
    Output(#[from] io::Error),
}

impl QueryError {
    /// Of a statement; `profiles` are the names that tables may have before theirs.
    pub(crate) fn of_statement(error: &rusqlite::Error, profiles: &[&str]) -> Self {
        let (message, rest) = match error {
            rusqlite::Error::SqlInputError { msg, sql, offset, .. } => {
                (msg.clone(), usize::try_from(*offset).ok().and_then(|offset| sql.get(offset..)))
            }
            rusqlite::Error::SqliteFailure(_, Some(message)) => (message.clone(), None),
            other => (other.to_string(), None),
        };
        if let Some(hint) = hint(&message, profiles) {
            return Self::Sql(format!("{message}; {hint}"));
        }
        match rest.map(str::trim_end).filter(|rest| !rest.is_empty()) {
            Some(rest) => {
                let beginning: String = rest.chars().take(SHOWN_LETTERS).collect();
                Self::Sql(format!("{message}, at ‘{beginning}’"))
            }
            None => Self::Sql(message),
        }
    }
}

/// What would have been right instead of a table or column that there is not.
fn hint(message: &str, profiles: &[&str]) -> Option<String> {
    let did_you_mean = |near: &str| format!("did you mean ‘{near}’?");
    if let Some(name) = message.strip_prefix("no such table: ") {
        let (profile, table) = name.split_once('.').unwrap_or(("", name));
        if !profile.is_empty() && !profiles.iter().any(|known| known.eq_ignore_ascii_case(profile)) {
            return Some(format!("profiles are {}", profiles.join(", ")));
        }
        let all = TABLES.iter().map(|table| table.name).chain(VIEWS.iter().map(|view| view.name));
        let near = nearest_word(&table.to_lowercase(), all)?;
        return (near != table).then(|| did_you_mean(near));
    }
    let name = message.strip_prefix("no such column: ")?;
    // SQLite asks whether a name in quotes is meant to be a text.
    let name = name.split(" - ").next().unwrap_or(name).trim_matches('"');
    let name = name.rsplit('.').next().unwrap_or(name).to_lowercase();
    let counts = count_words();
    let is_count = counts.contains(&name.as_str());
    let having = TABLES.iter().filter(|table| {
        table.columns.iter().any(|column| column.name == name) || (is_count && table.has_counts())
    });
    let having: Vec<&str> = having.map(|table| table.name).collect();
    if !having.is_empty() {
        return Some(format!("it is in {}", having.join(", ")));
    }
    let own = TABLES.iter().flat_map(|table| table.columns).map(|column| column.name);
    nearest_word(&name, counts.iter().copied().chain(own)).map(did_you_mean)
}
