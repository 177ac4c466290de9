//! How rows get into a table.

use memlens_profile::Profile;
use memlens_report::counts_by_word;
use memlens_types::Counts;
use rusqlite::types::Value;
use rusqlite::{Connection, Statement};

use crate::schema::{CountColumns, Table, count_words};

/// Takes a table's rows.
pub struct Rows<'c> {
    insert: Statement<'c>,
    counts: CountColumns,
}

impl<'c> Rows<'c> {
    /// Of this table, in the database of that name.
    ///
    /// # Errors
    /// When there is no such table.
    pub fn of(connection: &'c Connection, database: &str, table: &Table) -> rusqlite::Result<Self> {
        let own = table.columns.len();
        let all = own + if table.has_counts() { count_words().len() } else { 0 };
        let places = vec!["?"; all].join(", ");
        let insert =
            connection.prepare(&format!("INSERT INTO \"{database}\".{} VALUES ({places})", table.name))?;
        Ok(Self { insert, counts: table.counts })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// SQLite's: no memory.
    pub fn put(&mut self, row: Vec<Value>) -> rusqlite::Result<()> {
        self.insert.execute(rusqlite::params_from_iter(row)).map(drop)
    }

    /// Adds a row of a table with counts.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_counts(
        &mut self,
        mut row: Vec<Value>,
        profile: &Profile,
        counts: &Counts,
    ) -> rusqlite::Result<()> {
        let has_write_backs = self.counts == CountColumns::WithWriteBacks;
        let counts = counts_by_word(profile, counts, has_write_backs);
        row.extend(counts.map(|(_, count)| crate::value::IntoValue::value(count)));
        self.put(row)
    }
}
