//! `memlens query`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use memlens_query::{Asked, Database, Piece, QueryError, Value, schema_text};
use memlens_report::{PlainColumn, csv_field, plain_table};
use serde::ser::{SerializeMap, Serializer};

use crate::check;
use crate::failure::{Failure, FailureKind};
use crate::family::open_profile;
use crate::report::open_wanted;
use crate::streams::{self, Stream};

/// What tables say where there is no value.
const UNKNOWN: &str = "–";

/// Arguments of `memlens query`.
#[derive(Args, Debug)]
#[command(
    after_help = "Without SQL: which tables there are, and what their columns mean. The dialect is SQLite's; what is unknown is NULL.",
    before_help = "\
Examples:
  memlens query ls.memlens
  memlens query ls.memlens 'SELECT name, kind, function, sum(llc_misses) AS misses FROM accesses GROUP BY 1, 2, 3 ORDER BY 4 DESC LIMIT 10'
  memlens query ls.memlens 'SELECT access, count(*), sum(stall_cycles) AS stalls FROM accesses GROUP BY 1' --format csv
  memlens query new.memlens --with old=old.memlens 'WITH n AS (SELECT name, kind, sum(llc_misses) AS now FROM objects GROUP BY 1, 2), \
     o AS (SELECT name, kind, sum(llc_misses) AS before FROM old.objects GROUP BY 1, 2) \
     SELECT name, kind, before, now FROM n FULL JOIN o USING (name, kind) ORDER BY coalesce(now, 0) - coalesce(before, 0) DESC LIMIT 10'
  memlens query new.memlens --fail-if-rows 'SELECT name, field_name, sum(llc_misses) AS misses FROM field_accesses \
     GROUP BY object, field HAVING misses > 1000000'"
)]
pub struct QueryArgs {
    /// The profile
    #[arg(value_name = "PROFILE")]
    pub profile: PathBuf,

    /// One statement or several, with `;` between them; `-` reads them from standard input
    #[arg(value_name = "SQL", allow_hyphen_values = true)]
    pub sql: Option<String>,

    /// A further profile, whose tables are NAME.objects and so on; may be given several times
    #[arg(long, value_name = "NAME=PROFILE", value_parser = named_profile)]
    pub with: Vec<(String, PathBuf)>,

    /// A table for people, or rows for programs, with raw numbers
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: QueryFormat,

    /// Return 1 if the last SELECT gives a row: a gate for changes, of whatever SQL can ask for
    #[arg(long, requires = "sql")]
    pub fail_if_rows: bool,

    /// One process of a profile recorded with --follow children or merged: its number or process id
    #[arg(long, value_name = "N|PID")]
    pub process: Option<u32>,
}

/// How answers are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QueryFormat {
    /// A table for people.
    Table,
    /// Rows for spreadsheets.
    Csv,
    /// A list of objects for programs.
    Json,
}

fn named_profile(word: &str) -> Result<(String, PathBuf), String> {
    match word.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.to_owned(), path.into())),
        _ => Err("give a name and a profile, as old=ls.memlens".to_owned()),
    }
}

/// Answers a query, or says what can be asked.
pub fn query(args: &QueryArgs) -> Result<u8, Failure> {
    let profile = open_wanted(&args.profile, args.process)?;
    let sql = match args.sql.as_deref() {
        None => {
            streams::write_result(|out| out.write_all(schema_text().as_bytes()))?;
            return Ok(0);
        }
        Some("-") => io::read_to_string(io::stdin().lock())
            .map_err(|error| Failure::of_io("read", "standard input", &error))?,
        Some(sql) => sql.to_owned(),
    };
    let arguments = profile.run.command.get(1..).map(<[String]>::to_vec);
    let mut database = Database::of(profile).map_err(failure)?;
    for (name, path) in &args.with {
        let other = open_profile(path)?;
        if other.run.command.get(1..).map(<[String]>::to_vec) != arguments {
            streams::say(&format!("{name}: the program had other arguments"));
        }
        database.add(name, other).map_err(failure)?;
    }
    let mut asked = Ok(Asked::default());
    streams::write_result(|out| {
        let mut answers = Answers::new(args.format, out);
        asked = database.ask(&sql, &mut |piece| answers.take(piece));
        match &asked {
            // What did not go out is told by who writes.
            Err(QueryError::Output(error)) if !is_of_answers(error) => Err(error.kind().into()),
            // What the statements before gave is whole.
            _ => answers.end(),
        }
    })?;
    match asked {
        Ok(asked) => verdict(args, &sql, &asked),
        // The reader has enough, and there were rows.
        Err(QueryError::Output(error)) if !is_of_answers(&error) => Ok(exit_code(args, true)),
        Err(error) => Err(failure(error)),
    }
}

/// Whether it is not writing that failed, but [`Answers`] who found no way to say it.
fn is_of_answers(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Other
}

/// What comes of an answer, besides its rows.
fn verdict(args: &QueryArgs, sql: &str, asked: &Asked) -> Result<u8, Failure> {
    if asked.statements == 0 {
        return Err(Failure::new(FailureKind::Usage, format!("there is no statement in ‘{}’", sql.trim())));
    }
    let Some(rows) = asked.rows else {
        if args.fail_if_rows {
            return Err(Failure::new(
                FailureKind::Usage,
                "--fail-if-rows: there is no SELECT whose rows could be counted",
            ));
        }
        return Ok(0);
    };
    if args.fail_if_rows && !asked.unknown.is_empty() {
        let unknown: Vec<&str> = asked.unknown.iter().map(String::as_str).collect();
        let message = format!(
            "--fail-if-rows: a profile does not know its {}, which is NULL in each row: such a gate lets everything pass",
            unknown.join(", ")
        );
        return Err(Failure::new(FailureKind::Usage, message));
    }
    if rows == 0 && args.format == QueryFormat::Table {
        streams::say("no rows");
    }
    Ok(exit_code(args, rows > 0))
}

fn exit_code(args: &QueryArgs, has_rows: bool) -> u8 {
    if args.fail_if_rows && has_rows { check::FAILS } else { 0 }
}

fn failure(error: QueryError) -> Failure {
    let kind = match error {
        QueryError::Engine(_) => FailureKind::Internal,
        QueryError::Sql(_) | QueryError::Name(_) | QueryError::NameTaken(_) | QueryError::Output(_) => {
            FailureKind::Usage
        }
    };
    Failure::new(kind, format!("cannot answer: {error}"))
}

/// Answers on their way out, one after the other.
struct Answers<'a> {
    format: QueryFormat,
    out: &'a mut dyn Write,
    /// How many have begun.
    begun: usize,
    columns: Vec<String>,
    /// How many of its rows have come.
    rows: u64,
    /// For a table, whose columns are as wide as what is in them.
    kept: Vec<Vec<Value>>,
}

impl<'a> Answers<'a> {
    fn new(format: QueryFormat, out: &'a mut dyn Write) -> Self {
        Self { format, out, begun: 0, columns: Vec::new(), rows: 0, kept: Vec::new() }
    }

    fn take(&mut self, piece: Piece<'_>) -> io::Result<()> {
        match piece {
            Piece::Columns(columns) => {
                self.end()?;
                columns.clone_into(&mut self.columns);
                self.rows = 0;
                self.begun += 1;
                self.begin()
            }
            Piece::Row(row) => {
                self.row(row)?;
                self.rows += 1;
                Ok(())
            }
        }
    }

    fn begin(&mut self) -> io::Result<()> {
        let gap = if self.begun > 1 { "\r\n" } else { "" };
        match self.format {
            QueryFormat::Table => Ok(()),
            QueryFormat::Csv => {
                let titles: Vec<String> = self.columns.iter().map(|title| csv_field(title)).collect();
                write!(self.out, "{gap}{}\r\n", titles.join(","))
            }
            QueryFormat::Json => {
                let twice =
                    (1..self.columns.len()).find(|&at| self.columns[..at].contains(&self.columns[at]));
                if let Some(twice) = twice {
                    // Nothing is there to be ended.
                    self.begun = 0;
                    let title = &self.columns[twice];
                    let message = format!("two columns are called {title}: give them names (… AS name)");
                    return Err(io::Error::other(message));
                }
                write!(self.out, "[")
            }
        }
    }

    fn row(&mut self, row: &[Value]) -> io::Result<()> {
        match self.format {
            QueryFormat::Table => self.kept.push(row.to_vec()),
            QueryFormat::Csv => {
                let fields: Vec<String> = row.iter().map(|value| csv_field(&plain(value))).collect();
                write!(self.out, "{}\r\n", fields.join(","))?;
            }
            QueryFormat::Json => {
                write!(self.out, "{}", if self.rows > 0 { ",\n" } else { "\n" })?;
                serde_json::to_writer(&mut *self.out, &JsonRow { columns: &self.columns, row })?;
            }
        }
        Ok(())
    }

    /// Nothing more comes of the last one.
    fn end(&mut self) -> io::Result<()> {
        match self.format {
            _ if self.begun == 0 => Ok(()),
            QueryFormat::Table => self.table(),
            QueryFormat::Csv => Ok(()),
            QueryFormat::Json => writeln!(self.out, "{}", if self.rows > 0 { "\n]" } else { "]" }),
        }
    }

    fn table(&mut self) -> io::Result<()> {
        let rows = std::mem::take(&mut self.kept);
        let is_number = |column: usize| {
            rows.iter().all(|row| matches!(row[column], Value::Integer(_) | Value::Real(_) | Value::Null))
        };
        let columns = self.columns.iter().enumerate();
        let columns: Vec<PlainColumn> = columns
            .map(|(at, title)| PlainColumn { title: title.clone(), is_number: is_number(at) })
            .collect();
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(for_people).collect()).collect();
        let width = Stream::Stdout.is_terminal().then(|| Stream::Stdout.columns());
        let text = plain_table(&columns, &rows, width, Stream::Stdout.wants_colour());
        let gap = if self.begun > 1 { "\n" } else { "" };
        write!(self.out, "{gap}{text}")
    }
}

fn for_people(value: &Value) -> String {
    match value {
        Value::Null => UNKNOWN.to_owned(),
        // Four digits that say something, and hundredths.
        Value::Real(real) if (1e-6..1e15).contains(&real.abs()) => {
            let places = (3.0 - real.abs().log10().floor()).max(2.0) as usize;
            let text = format!("{real:.places$}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        Value::Real(real) if *real != 0.0 => format!("{real:.3e}"),
        value => plain(value),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Integer(integer) => integer.to_string(),
        Value::Real(real) => real.to_string(),
        Value::Text(text) => text.clone(),
        Value::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// A row with its columns' names, in their order.
struct JsonRow<'a> {
    columns: &'a [String],
    row: &'a [Value],
}

impl serde::Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entries = serializer.serialize_map(Some(self.columns.len()))?;
        for (column, value) in self.columns.iter().zip(self.row) {
            match value {
                Value::Null => entries.serialize_entry(column, &())?,
                Value::Integer(integer) => entries.serialize_entry(column, integer)?,
                Value::Real(real) => entries.serialize_entry(column, real)?,
                value => entries.serialize_entry(column, &plain(value))?,
            }
        }
        entries.end()
    }
}
