//! Profiles in SQLite.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use memlens_profile::Profile;
use memlens_report::counts_by_word;
use rusqlite::config::DbConfig;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::types::Value;
use rusqlite::{Batch, Connection};

use crate::error::QueryError;
use crate::fill::Rows;
use crate::functions;
use crate::schema::{CountColumns, SCHEMA_VERSION, definitions};
use crate::tables::TABLES;
use crate::views::VIEWS;

/// In the headers of files (`PRAGMA application_id`): ‘MLNS’.
const APPLICATION_ID: i32 = 0x4d4c_4e53;
/// The database that tables without another one's name are of.
const MAIN: &str = "main";
/// What a file finds its rows by, beside their own numbers.
const INDICES: &str = "CREATE INDEX cells_by_object ON cells (object); CREATE INDEX cells_by_code ON cells (code); \
     CREATE INDEX field_cells_by_field ON field_cells (field); CREATE INDEX path_cells_by_path ON path_cells (path); \
     CREATE INDEX stacks_by_stack ON stacks (stack); CREATE INDEX paths_by_parent ON paths (parent);";

/// Profiles as tables, in memory. Tables are filled when a statement needs their rows.
pub struct Database {
    connection: Connection,
    /// With the names of their databases.
    profiles: Vec<(String, Profile)>,
    /// Which profiles' tables have their rows.
    filled: BTreeSet<(usize, &'static str)>,
    uses: Arc<Mutex<Uses>>,
}

/// What the statement that was prepared last uses.
#[derive(Debug, Default)]
struct Uses {
    /// Databases and tables in them. Where no column is read the database is what the statement says, which may be nothing.
    tables: BTreeSet<(Option<String>, String)>,
    /// The same with columns, but for what only views name.
    columns: BTreeSet<(Option<String>, String, String)>,
}

/// A piece of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Piece<'a> {
    /// An answer begins, with these titles.
    Columns(&'a [String]),
    /// A row of it, as long as its titles.
    Row(&'a [Value]),
}

/// What came of a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Statements carried out.
    pub statements: u64,
    /// Rows of the last statement that gives any columns; `None`: none does.
    pub rows: Option<u64>,
    /// Counts that it names and of which a profile says nothing, so that they are NULL in all rows.
    pub unknown: BTreeSet<String>,
}

impl Database {
    /// With the tables of this profile.
    ///
    /// # Errors
    /// SQLite's: no memory.
    pub fn of(profile: Profile) -> Result<Self, QueryError> {
        let connection = Connection::open_in_memory()?;
        // A column in quotes that is misspelt is no text.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
        functions::add(&connection)?;
        connection.execute_batch(&format!(
            "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
        ))?;
        let mut database =
            Self { connection, profiles: Vec::new(), filled: BTreeSet::new(), uses: Arc::default() };
        database.define(MAIN, profile)?;
        Ok(database)
    }

    /// Adds the tables of another one, as `NAME.objects`.
    ///
    /// # Errors
    /// When it cannot have that name, or there are too many.
    pub fn add(&mut self, name: &str, profile: Profile) -> Result<(), QueryError> {
        let is_word = name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        if !is_word || [MAIN, "temp"].iter().any(|taken| taken.eq_ignore_ascii_case(name)) {
            return Err(QueryError::Name(name.to_owned()));
        }
        if self.profiles.iter().any(|(taken, _)| taken.eq_ignore_ascii_case(name)) {
            return Err(QueryError::NameTaken(name.to_owned()));
        }
        let attached = self.connection.execute_batch(&format!("ATTACH ':memory:' AS \"{name}\""));
        attached.map_err(|error| QueryError::of_statement(&error, &[]))?;
        self.define(name, profile)
    }

    fn define(&mut self, name: &str, profile: Profile) -> Result<(), QueryError> {
        self.connection.execute_batch(&definitions(name))?;
        self.profiles.push((name.to_owned(), profile));
        Ok(())
    }

    /// Carries out all statements, and hands over what they give row by row.
    ///
    /// # Errors
    /// When SQLite does not understand a statement, or cannot carry it out; what `take` returns.
    pub fn ask(
        &mut self,
        sql: &str,
        take: &mut dyn FnMut(Piece<'_>) -> io::Result<()>,
    ) -> Result<Asked, QueryError> {
        let uses = Arc::clone(&self.uses);
        self.connection.authorizer(Some(move |context: AuthContext<'_>| {
            uses.lock().unwrap_or_else(PoisonError::into_inner).note(&context);
            Authorization::Allow
        }))?;
        let Self { connection, profiles, filled, uses } = self;
        let names: Vec<&str> = profiles.iter().map(|(name, _)| name.as_str()).collect();
        let wrong = |error: rusqlite::Error| QueryError::of_statement(&error, &names);
        let mut batch = Batch::new(connection, sql);
        let mut asked = Asked::default();
        while let Some(mut statement) = batch.next().map_err(wrong)? {
            let used = std::mem::take(&mut *uses.lock().unwrap_or_else(PoisonError::into_inner));
            for (database, table) in &used.tables {
                fill(connection, profiles, filled, (database.as_deref(), table))?;
            }
            // Filling has used what it fills.
            *uses.lock().unwrap_or_else(PoisonError::into_inner) = Uses::default();
            let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
            if !columns.is_empty() {
                take(Piece::Columns(&columns))?;
                (asked.rows, asked.unknown) = (Some(0), used.unknown_counts(profiles));
            }
            asked.statements += 1;
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next().map_err(wrong)? {
                let values = (0..columns.len()).map(|at| row.get::<_, Value>(at));
                take(Piece::Row(&values.collect::<Result<Vec<_>, _>>()?))?;
                asked.rows = asked.rows.map(|rows| rows + 1);
            }
        }
        Ok(asked)
    }

    /// The first profile's tables, all of them, as the bytes of a file of SQLite's.
    ///
    /// # Errors
    /// SQLite's: no memory.
    pub fn file(mut self) -> Result<Vec<u8>, QueryError> {
        for table in TABLES {
            fill(&self.connection, &self.profiles, &mut self.filled, (Some(MAIN), table.name))?;
        }
        self.connection.execute_batch(INDICES)?;
        Ok(self.connection.serialize(MAIN)?.to_vec())
    }
}

impl Uses {
    fn note(&mut self, context: &AuthContext<'_>) {
        let database = context.database_name.map(str::to_owned);
        match context.action {
            AuthAction::Read { table_name, column_name } => {
                let is_view = |accessor: &str| VIEWS.iter().any(|view| view.name == accessor);
                if !context.accessor.is_some_and(is_view) {
                    self.columns.insert((database.clone(), table_name.to_owned(), column_name.to_owned()));
                }
                self.tables.insert((database, table_name.to_owned()));
            }
            AuthAction::Insert { table_name }
            | AuthAction::Delete { table_name }
            | AuthAction::Update { table_name, .. } => {
                self.tables.insert((database, table_name.to_owned()));
            }
            _ => {}
        }
    }

    /// Which of the columns are counts of which their profile says nothing.
    fn unknown_counts(&self, profiles: &[(String, Profile)]) -> BTreeSet<String> {
        let mut unknown = BTreeSet::new();
        for (database, table, column) in &self.columns {
            let table = TABLES.iter().find(|known| known.name.eq_ignore_ascii_case(table));
            let has_write_backs = table.is_some_and(|table| table.counts == CountColumns::WithWriteBacks);
            for (_, profile) in profiles.iter().filter(|(name, _)| is_meant(database.as_deref(), name)) {
                let counts = counts_by_word(profile, &profile.totals(), has_write_backs);
                let mut of_column = counts.filter(|(word, _)| word.eq_ignore_ascii_case(column));
                if of_column.any(|(_, count)| count.is_none()) {
                    unknown.insert(column.clone());
                }
            }
        }
        unknown
    }
}

/// Whether the database of that name is one that a statement may mean.
fn is_meant(database: Option<&str>, name: &str) -> bool {
    database.is_none_or(|database| database.eq_ignore_ascii_case(name))
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
        if is_meant(database, of) && filled.insert((at, table.name)) {
            // The statements before may have begun a transaction.
            connection.execute_batch("SAVEPOINT filling")?;
            (table.fill)(profile, &mut Rows::of(connection, of, table)?)?;
            connection.execute_batch("RELEASE filling")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::count_words;
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
        let text = |value: &Value| match value {
            Value::Null => "NULL".to_owned(),
            Value::Integer(integer) => integer.to_string(),
            Value::Real(real) => real.to_string(),
            Value::Text(text) => text.clone(),
            Value::Blob(_) => "blob".to_owned(),
        };
        let mut rows = Vec::new();
        let mut take = |piece: Piece<'_>| {
            if let Piece::Row(row) = piece {
                rows.push(row.iter().map(text).collect::<Vec<_>>().join(" "));
            }
            Ok(())
        };
        database.ask(sql, &mut take).expect("answered");
        rows
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
        for name in ["Main", "Temp", "a b", "1st", ""] {
            assert!(matches!(database.add(name, profile()), Err(QueryError::Name(_))), "{name}");
        }
        database.add("old", profile()).expect("added");
        assert!(matches!(database.add("OLD", profile()), Err(QueryError::NameTaken(_))));
    }

    #[test]
    fn errors_say_what_would_have_been_right() {
        let error = |sql: &str| {
            let mut database = Database::of(profile()).expect("made");
            database.ask(sql, &mut |_| Ok(())).expect_err("wrong").to_string()
        };
        assert_eq!(
            error("SELECT llc_mises FROM objects"),
            "no such column: llc_mises; did you mean ‘llc_misses’?"
        );
        assert_eq!(error("SELECT 1 FROM acesses"), "no such table: acesses; did you mean ‘accesses’?");
        assert_eq!(error("SELECT tid FROM objects"), "no such column: tid; it is in threads");
        assert_eq!(error("SELECT 1 FROM new.objects"), "no such table: new.objects; profiles are main");
        assert!(error("SELECT \"llc_mises\" FROM objects").ends_with("; did you mean ‘llc_misses’?"));
        assert_eq!(error("SELEC 1"), "near \"SELEC\": syntax error, at ‘SELEC 1’");
    }

    #[test]
    fn statements_may_change_their_copy() {
        assert_eq!(ask("BEGIN; SELECT count(*) FROM objects; COMMIT"), ["2"]);
        assert_eq!(ask("DELETE FROM objects WHERE object = 7; SELECT name FROM objects"), ["list"]);
        assert_eq!(ask("UPDATE objects SET name = 'x'; SELECT DISTINCT name FROM objects"), ["x"]);
        assert_eq!(ask("SELECT sqrt(16), log2(8), pow(2, 10), sqrt(-1), ln(NULL)"), ["4 3 1024 NULL NULL"]);
    }

    #[test]
    fn counts_that_a_profile_does_not_know_are_told() {
        let asked = |sql: &str| {
            let mut database = Database::of(profile()).expect("made");
            database.ask(sql, &mut |_| Ok(())).expect("answered")
        };
        assert_eq!(asked("CREATE TABLE t (a)"), Asked { statements: 1, ..Asked::default() });
        assert_eq!(asked(" -- nothing"), Asked::default());
        let unknown = |sql: &str| asked(sql).unknown.into_iter().collect::<Vec<_>>();
        assert_eq!(unknown("SELECT name FROM objects WHERE llc_misses > 1 AND loads > 1"), ["llc_misses"]);
        assert_eq!(
            unknown("WITH a AS (SELECT sum(stlb_misses) n FROM accesses) SELECT n FROM a"),
            ["stlb_misses"]
        );
        assert_eq!(unknown("SELECT name, l1_misses FROM accesses"), [""; 0]);
        assert_eq!(asked("SELECT name FROM objects; CREATE TABLE t (a)").rows, Some(2));
    }

    #[test]
    fn every_table_takes_the_rows_that_are_made_for_it() {
        let mut database = Database::of(profile()).expect("made");
        for name in TABLES.iter().map(|table| table.name).chain(VIEWS.iter().map(|view| view.name)) {
            let asked = database.ask(&format!("SELECT * FROM {name}"), &mut |_| Ok(())).expect(name);
            assert!(asked.rows.is_some(), "{name}");
        }
        let file = database.file().expect("a file");
        assert!(file.starts_with(b"SQLite format 3\0"));
    }

    #[test]
    fn views_have_the_columns_that_are_told() {
        let mut database = Database::of(profile()).expect("made");
        let told = crate::schema_text();
        for view in VIEWS {
            let mut columns = Vec::new();
            let mut take = |piece: Piece<'_>| {
                if let Piece::Columns(of_view) = piece {
                    columns = of_view.to_vec();
                }
                Ok(())
            };
            database.ask(&format!("SELECT * FROM {}", view.name), &mut take).expect(view.name);
            let end = columns.iter().position(|it| it == count_words()[0]).unwrap_or(columns.len());
            assert!(
                told.contains(&format!("    {}", columns[..end].join(", "))),
                "{}: {columns:?}",
                view.name
            );
        }
    }
}
