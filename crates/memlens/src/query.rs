//! `memlens query`.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use memlens_profile::Profile;
use memlens_query::{Answer, Database, QueryError, Value, schema_text};
use memlens_report::{PlainColumn, csv_field, plain_table};
use serde::ser::{SerializeMap, SerializeSeq, Serializer};

use crate::check;
use crate::failure::{Failure, FailureKind};
use crate::family::open_profile;
use crate::report::process_folder;
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
  memlens query ls.memlens 'SELECT name, function, sum(llc_misses) FROM accesses GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 10'
  memlens query ls.memlens 'SELECT name, access, count(*), sum(stall_cycles) FROM accesses GROUP BY 1, 2' --format csv
  memlens query new.memlens --with old=old.memlens 'SELECT name, o.llc_misses, n.llc_misses FROM objects n JOIN old.objects o \
     USING (kind, name, place) ORDER BY n.llc_misses - o.llc_misses DESC LIMIT 10'
  memlens query new.memlens --fail-if-rows 'SELECT name, field_name, source FROM field_accesses WHERE llc_misses > 1000000'"
)]
pub struct QueryArgs {
    /// The profile
    #[arg(value_name = "PROFILE")]
    pub profile: PathBuf,

    /// One statement or several, with `;` between them; `-` reads them from standard input
    #[arg(value_name = "SQL")]
    pub sql: Option<String>,

    /// A further profile, whose tables are NAME.objects and so on; may be given several times
    #[arg(long, value_name = "NAME=PROFILE", value_parser = named_profile)]
    pub with: Vec<(String, PathBuf)>,

    /// A table for people, or rows for programs, with raw numbers
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: QueryFormat,

    /// Return 1 if the last statement gives a row: a gate for changes, of whatever SQL can ask for
    #[arg(long)]
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
    let profile = match args.process {
        Some(wanted) => Profile::open(&process_folder(&args.profile, wanted)?.path)?,
        None => open_profile(&args.profile)?,
    };
    let sql = match args.sql.as_deref() {
        None => {
            streams::write_result(|out| out.write_all(schema_text().as_bytes()))?;
            return Ok(0);
        }
        Some("-") => io::read_to_string(io::stdin().lock().by_ref())
            .map_err(|error| Failure::of_io("read", "standard input", &error))?,
        Some(sql) => sql.to_owned(),
    };
    let mut database = Database::of(profile).map_err(failure)?;
    for (name, path) in &args.with {
        database.add(name, open_profile(path)?).map_err(failure)?;
    }
    let answers = database.ask(&sql).map_err(failure)?;
    streams::write_result(|out| match args.format {
        QueryFormat::Table => tables(&answers, out),
        QueryFormat::Csv => csv(&answers, out),
        QueryFormat::Json => json(&answers, out),
    })?;
    let has_rows = answers.last().is_some_and(|answer| !answer.rows.is_empty());
    Ok(if args.fail_if_rows && has_rows { check::FAILS } else { 0 })
}

fn failure(error: QueryError) -> Failure {
    let kind = match error {
        QueryError::Engine(_) => FailureKind::Internal,
        QueryError::Sql(_) | QueryError::Name(_) => FailureKind::Usage,
    };
    Failure::new(kind, format!("cannot answer: {error}"))
}

fn tables(answers: &[Answer], out: &mut dyn Write) -> io::Result<()> {
    let width = Stream::Stdout.is_terminal().then(|| Stream::Stdout.columns());
    for (at, answer) in answers.iter().enumerate() {
        let is_number = |column: usize| {
            answer
                .rows
                .iter()
                .all(|row| matches!(row[column], Value::Integer(_) | Value::Real(_) | Value::Null))
        };
        let columns = answer.columns.iter().enumerate();
        let columns: Vec<PlainColumn> = columns
            .map(|(at, title)| PlainColumn { title: title.clone(), is_number: is_number(at) })
            .collect();
        let rows = answer.rows.iter().map(|row| row.iter().map(for_people).collect());
        let rows: Vec<Vec<String>> = rows.collect();
        let text = plain_table(&columns, &rows, width, Stream::Stdout.wants_colour());
        let gap = if at > 0 { "\n" } else { "" };
        write!(out, "{gap}{text}")?;
    }
    Ok(())
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

fn csv(answers: &[Answer], out: &mut dyn Write) -> io::Result<()> {
    for (at, answer) in answers.iter().enumerate() {
        let gap = if at > 0 { "\r\n" } else { "" };
        let titles: Vec<String> = answer.columns.iter().map(|title| csv_field(title)).collect();
        write!(out, "{gap}{}\r\n", titles.join(","))?;
        for row in &answer.rows {
            let fields: Vec<String> = row.iter().map(|value| csv_field(&plain(value))).collect();
            write!(out, "{}\r\n", fields.join(","))?;
        }
    }
    Ok(())
}

fn json(answers: &[Answer], out: &mut dyn Write) -> io::Result<()> {
    for answer in answers {
        let mut serializer = serde_json::Serializer::pretty(&mut *out);
        let mut list = serializer.serialize_seq(Some(answer.rows.len()))?;
        for row in &answer.rows {
            list.serialize_element(&JsonRow { columns: &answer.columns, row })?;
        }
        SerializeSeq::end(list)?;
        out.write_all(b"\n")?;
    }
    Ok(())
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
