//! Profiles in SQLite.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use memlens_profile::Profile;
use memlens_report::nearest_word;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::types::Value;
use rusqlite::{Batch, Connection};

use crate::fill::Rows;
use crate::schema::{SCHEMA_VERSION, count_words, definitions};
use crate::tables::TABLES;
use crate::views::VIEWS;

/// In the headers of files (`PRAGMA application_id`): ‘MLNS’.
const APPLICATION_ID: i32 = 0x4d4c_4e53;
/// The database that tables without another one's name are of.
const MAIN: &str = "main";

/// So much is shown of what SQLite does not understand.
const SHOWN_LETTERS: usize = 40;

/// A database and a table in it. Where no column is read the database is what the statement says, which may be nothing.
type TableRead = (Option<String>, String);

/// Profiles as tables, in memory. Tables are filled when a query reads them.
pub struct Database {
    connection: Connection,
    /// With the names of their databases.
    profiles: Vec<(String, Profile)>,
    /// Which profiles' tables have their rows.
    filled: BTreeSet<(usize, &'static str)>,
    /// What the statement that was prepared last reads.
    read: Arc<Mutex<BTreeSet<TableRead>>>,
}

/// What a statement gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Titles, in the order asked for.
    pub columns: Vec<String>,
    /// Rows, each as long as `columns`.
    pub rows: Vec<Vec<Value>>,
}

/// Why there is no answer. Reads after "cannot …: ".
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// SQLite's own words, with the place, and the nearest word that would have been right.
    #[error("{0}")]
    Sql(String),
    /// The name of a further profile is none that SQL takes as it is, or is in use.
    #[error(
        "‘{0}’ cannot be a profile's name in SQL: take letters, digits and _, a letter first, and not main or temp"
    )]
    Name(String),
    /// SQLite failed.
    #[error("SQLite: {0}")]
    Engine(#[from] rusqlite::Error),
}

impl Database {
    /// With the tables of this profile.
    ///
    /// # Errors
    /// SQLite's: no memory.
    pub fn of(profile: Profile) -> Result<Self, QueryError> {
        let mut database = Self {
            connection: Connection::open_in_memory()?,
            profiles: Vec::new(),
            filled: BTreeSet::new(),
            read: Arc::default(),
        };
        database.connection.execute_batch(&format!(
            "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
        ))?;
        database.define(MAIN, profile)?;
        Ok(database)
    }

    /// Adds the tables of another one, as `NAME.objects`.
    ///
    /// # Errors
    /// When it cannot have that name.
    pub fn add(&mut self, name: &str, profile: Profile) -> Result<(), QueryError> {
        let is_word = name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        let is_taken = |taken: &str| taken.eq_ignore_ascii_case(name);
        if !is_word || is_taken("temp") || self.profiles.iter().any(|(taken, _)| is_taken(taken)) {
            return Err(QueryError::Name(name.to_owned()));
        }
        self.connection.execute_batch(&format!("ATTACH ':memory:' AS \"{name}\""))?;
        self.define(name, profile)
    }

    fn define(&mut self, name: &str, profile: Profile) -> Result<(), QueryError> {
        self.connection.execute_batch(&definitions(name))?;
        self.profiles.push((name.to_owned(), profile));
        Ok(())
    }

    /// The answers of all statements that have one.
    ///
    /// # Errors
    /// When SQLite does not understand a statement, or cannot carry it out.
    pub fn ask(&mut self, sql: &str) -> Result<Vec<Answer>, QueryError> {
        let read = Arc::clone(&self.read);
        self.connection.authorizer(Some(move |context: AuthContext<'_>| {
            if let AuthAction::Read { table_name, .. } = context.action {
                let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
                read.insert((context.database_name.map(str::to_owned), table_name.to_owned()));
            }
            Authorization::Allow
        }))?;
        let Self { connection, profiles, filled, read } = self;
        let mut batch = Batch::new(connection, sql);
        let mut answers = Vec::new();
        while let Some(mut statement) = batch.next().map_err(|error| told(&error))? {
            let wanted = std::mem::take(&mut *read.lock().unwrap_or_else(PoisonError::into_inner));
            for (database, table) in wanted {
                fill(connection, profiles, filled, (database.as_deref(), &table))?;
            }
            // What filling read was tables that it fills.
            read.lock().unwrap_or_else(PoisonError::into_inner).clear();
            let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
            let mut rows = statement.raw_query();
            let mut answer = Answer { columns, rows: Vec::new() };
            while let Some(row) = rows.next().map_err(|error| told(&error))? {
                let values = (0..answer.columns.len()).map(|at| row.get::<_, Value>(at));
                answer.rows.push(values.collect::<Result<_, _>>()?);
            }
            if !answer.columns.is_empty() {
                answers.push(answer);
            }
        }
        Ok(answers)
    }

    /// The first profile's tables, all of them, as the bytes of a file of SQLite's.
    ///
    /// # Errors
    /// SQLite's: no memory.
    pub fn file(mut self) -> Result<Vec<u8>, QueryError> {
        for table in TABLES {
            fill(&self.connection, &self.profiles, &mut self.filled, (Some(MAIN), table.name))?;
        }
        Ok(self.connection.serialize(MAIN)?.to_vec())
    }
}

/// Fills a table, if it is one of ours and empty so far; where no database is named, those of that name in all.
fn fill(
    connection: &Connection,
    profiles: &[(String, Profile)],
    filled: &mut BTreeSet<(usize, &'static str)>,
    (database, name): (Option<&str>, &str),
) -> rusqlite::Result<()> {
    let Some(table) = TABLES.iter().find(|table| table.name.eq_ignore_ascii_case(name)) else {
        return Ok(());
    };
    for (at, (of, profile)) in profiles.iter().enumerate() {
        let is_meant = database.is_none_or(|database| database.eq_ignore_ascii_case(of));
        if is_meant && filled.insert((at, table.name)) {
            let transaction = connection.unchecked_transaction()?;
            (table.fill)(profile, &mut Rows::of(connection, of, table)?)?;
            transaction.commit()?;
        }
    }
    Ok(())
}

/// An error in words.
fn told(error: &rusqlite::Error) -> QueryError {
    let (message, rest) = match error {
        rusqlite::Error::SqlInputError { msg, sql, offset, .. } => {
            (msg.clone(), usize::try_from(*offset).ok().and_then(|offset| sql.get(offset..)))
        }
        rusqlite::Error::SqliteFailure(_, Some(message)) => (message.clone(), None),
        other => (other.to_string(), None),
    };
    if let Some(near) = nearest(&message) {
        return QueryError::Sql(format!("{message}; did you mean ‘{near}’?"));
    }
    match rest.map(str::trim_end).filter(|rest| !rest.is_empty()) {
        Some(rest) => {
            let beginning: String = rest.chars().take(SHOWN_LETTERS).collect();
            QueryError::Sql(format!("{message}, at ‘{beginning}’"))
        }
        None => QueryError::Sql(message),
    }
}

/// The nearest table or column to one that there is not.
fn nearest(message: &str) -> Option<String> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or(name).to_lowercase();
    if let Some(name) = message.strip_prefix("no such table: ") {
        let all = TABLES.iter().map(|table| table.name).chain(VIEWS.iter().map(|view| view.name));
        return nearest_word(&last(name), all).map(str::to_owned);
    }
    let name = last(message.strip_prefix("no such column: ")?);
    let counts = count_words();
    let own = TABLES.iter().flat_map(|table| table.columns).map(|column| column.name);
    nearest_word(&name, counts.iter().copied().chain(own)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_profile::{
        CacheInfo, CallPath, Cell, CodeIx, CodeLocation, Field, FieldIx, FieldUse, Frame, FrameIx, Object,
        ObjectIx, PathCell, PathIx, Stack, StackIx, Thread,
    };
    use memlens_types::{Counts, ObjectKind};

    /// Two loads go through `table`, one of them at its field `key`, and the other through `list`, too.
    fn profile() -> Profile {
        let counts = |loads: u64, misses: u64| Counts { loads, l1_load_misses: misses, ..Counts::default() };
        let object = |id, name: &str, counts| Object {
            id,
            name: name.to_owned(),
            kind: ObjectKind::Heap,
            counts,
            ..Object::default()
        };
        let code = |id, stack, counts: Counts| CodeLocation {
            id,
            stack: Some(StackIx(stack)),
            counts: counts.into(),
            ..CodeLocation::default()
        };
        let cell = |code, object, counts: Counts| Cell {
            code: CodeIx(code),
            object: ObjectIx(object),
            counts: counts.into(),
            ..Cell::default()
        };
        let frame = |function: &str| Frame { function: Some(function.into()), ..Frame::default() };
        let mut profile = Profile {
            frames: vec![frame("search"), frame("sum")],
            stacks: vec![Stack(vec![FrameIx(0)]), Stack(vec![FrameIx(1)])],
            objects: vec![object(7, "table", counts(150, 15)), object(9, "list", counts(30, 0))],
            code: vec![code(1, 0, counts(100, 10)), code(2, 1, counts(80, 5))],
            cells: vec![cell(0, 0, counts(100, 10)), cell(1, 0, counts(50, 5)), cell(1, 1, counts(30, 0))],
            fields: vec![Field { name: Some("key".into()), offset_bytes: Some(8), ..Field::default() }],
            field_uses: vec![FieldUse { code: CodeIx(0), field: FieldIx(0), seen: 3 }],
            paths: vec![
                CallPath { parent: None, frame: FrameIx(1) },
                CallPath { parent: Some(PathIx(0)), frame: FrameIx(0) },
            ],
            path_cells: vec![PathCell {
                path: Some(PathIx(1)),
                object: ObjectIx(0),
                counts: counts(100, 10).into(),
            }],
            threads: vec![Thread { tid: 4711, counts: counts(180, 15), ..Thread::default() }],
            ..Profile::default()
        };
        profile.machine.l1d = Some(CacheInfo::default());
        profile.run.command = vec!["prog".to_owned(), "-v".to_owned()];
        profile
    }

    fn ask(sql: &str) -> Vec<String> {
        let mut database = Database::of(profile()).expect("made");
        database.add("old", profile()).expect("added");
        let answers = database.ask(sql).expect("answered");
        let rows = answers.iter().flat_map(|answer| &answer.rows);
        let text = |value: &Value| match value {
            Value::Null => "NULL".to_owned(),
            Value::Integer(integer) => integer.to_string(),
            Value::Real(real) => real.to_string(),
            Value::Text(text) => text.clone(),
            Value::Blob(_) => "blob".to_owned(),
        };
        rows.map(|row| row.iter().map(text).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn accesses_are_joined_with_what_they_are_of() {
        assert_eq!(
            ask("SELECT object, name, function, tid, loads, l1_misses FROM accesses ORDER BY loads DESC"),
            ["7 table search 4711 100 10", "7 table sum 4711 50 5", "9 list sum 4711 30 0"]
        );
        // What was not modelled is unknown.
        assert_eq!(
            ask("SELECT name, sum(loads), sum(llc_misses) FROM accesses GROUP BY 1"),
            ["list 30 NULL", "table 150 NULL"]
        );
        assert_eq!(ask("SELECT loads FROM totals"), ["180"]);
        assert_eq!(ask("SELECT command, machine FROM run"), ["prog -v "]);
    }

    #[test]
    fn fields_and_paths_are_joined_too() {
        assert_eq!(
            ask("SELECT name, field_name, field_offset, function, loads FROM field_accesses"),
            ["table key 8 search 100"]
        );
        assert_eq!(
            ask("SELECT path, function, depth, name, loads FROM path_accesses"),
            ["2 search 1 table 100"]
        );
        assert_eq!(
            ask("SELECT p.function, c.function FROM paths p JOIN paths c ON c.parent = p.path"),
            ["sum search"]
        );
    }

    #[test]
    fn what_is_only_counted_is_there_as_well() {
        assert_eq!(ask("SELECT count(*) FROM cells; SELECT count(*) FROM Main.Objects"), ["3", "2"]);
        assert_eq!(ask("CREATE TEMP VIEW x AS SELECT * FROM stacks; SELECT count(*) FROM x"), ["2"]);
    }

    #[test]
    fn a_second_profile_has_tables_of_its_own() {
        assert_eq!(
            ask(
                "SELECT n.name, o.loads FROM objects n JOIN old.accesses o USING (object) WHERE o.loads = 30"
            ),
            ["list 30"]
        );
        let mut database = Database::of(profile()).expect("made");
        for name in ["main", "Temp", "a b", "1st", ""] {
            assert!(matches!(database.add(name, profile()), Err(QueryError::Name(_))), "{name}");
        }
        database.add("old", profile()).expect("added");
        assert!(matches!(database.add("OLD", profile()), Err(QueryError::Name(_))));
    }

    #[test]
    fn errors_say_what_would_have_been_right() {
        let error =
            |sql: &str| Database::of(profile()).expect("made").ask(sql).expect_err("wrong").to_string();
        assert_eq!(
            error("SELECT llc_mises FROM objects"),
            "no such column: llc_mises; did you mean ‘llc_misses’?"
        );
        assert_eq!(error("SELECT 1 FROM acesses"), "no such table: acesses; did you mean ‘accesses’?");
        assert_eq!(error("SELEC 1"), "near \"SELEC\": syntax error, at ‘SELEC 1’");
    }

    #[test]
    fn every_table_takes_the_rows_that_are_made_for_it() {
        let mut database = Database::of(profile()).expect("made");
        for name in TABLES.iter().map(|table| table.name).chain(VIEWS.iter().map(|view| view.name)) {
            let answers = database.ask(&format!("SELECT * FROM {name}")).expect(name);
            assert_eq!(answers.len(), 1, "{name}");
        }
        let file = database.file().expect("a file");
        assert!(file.starts_with(b"SQLite format 3\0"));
    }

    #[test]
    fn views_have_the_columns_that_are_told() {
        let mut database = Database::of(profile()).expect("made");
        let told = crate::schema_text();
        for view in VIEWS {
            let columns =
                database.ask(&format!("SELECT * FROM {}", view.name)).expect(view.name).remove(0).columns;
            let own =
                &columns[..columns.iter().position(|it| it == count_words()[0]).unwrap_or(columns.len())];
            assert!(told.contains(&format!("    {}", own.join(", "))), "{}: {own:?}", view.name);
        }
    }
}
