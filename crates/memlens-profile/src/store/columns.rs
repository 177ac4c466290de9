//! One description of a table's columns drives writing, reading and the documentation.
//!
//! A [`Row`] shows each of its fields to a visitor by [`Columns::column`]. One visitor notes names and
//! types ([`SchemaOf`]), one copies values into columns ([`Append`]), one takes them out ([`Take`]).

use std::mem;
use std::sync::Arc;

/// A record of one table.
pub(crate) trait Row: Clone + Default {
    /// Name of the table and stem of its files.
    const TABLE: &'static str;
    /// What a row is, for the documentation.
    const DOC: &'static str;
    /// Whether profiles without the table are whole: it came after the first ones.
    const IS_OPTIONAL: bool = false;

    /// Shows every field, always in the same order.
    fn columns(&mut self, columns: &mut impl Columns);
}

/// Sees the fields of a row.
pub(crate) trait Columns {
    /// One field: its column name, what it means (with unit), its value to read or replace.
    fn column<V: Value>(&mut self, name: &'static str, doc: &'static str, value: &mut V);
}

/// How a column is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnType {
    U32,
    U64,
    I64,
    Boolean,
    Text,
    ListU32,
}

impl ColumnType {
    /// Its name in the documentation and in messages.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::U32 => "UInt32",
            Self::U64 => "UInt64",
            Self::I64 => "Int64",
            Self::Boolean => "Boolean",
            Self::Text => "Utf8",
            Self::ListU32 => "List<UInt32>",
        }
    }

    fn empty(self, capacity: usize) -> Values {
        match self {
            Self::U32 => Values::U32(Vec::with_capacity(capacity)),
            Self::U64 => Values::U64(Vec::with_capacity(capacity)),
            Self::I64 => Values::I64(Vec::with_capacity(capacity)),
            Self::Boolean => Values::Boolean(Vec::with_capacity(capacity)),
            Self::Text => Values::Text(Vec::with_capacity(capacity)),
            Self::ListU32 => Values::ListU32(Vec::with_capacity(capacity)),
        }
    }

    /// So many unknown values.
    pub(crate) fn nulls(self, rows: usize) -> Values {
        match self {
            Self::U32 => Values::U32(vec![None; rows]),
            Self::U64 => Values::U64(vec![None; rows]),
            Self::I64 => Values::I64(vec![None; rows]),
            Self::Boolean => Values::Boolean(vec![None; rows]),
            Self::Text => Values::Text(vec![None; rows]),
            Self::ListU32 => Values::ListU32(vec![None; rows]),
        }
    }
}

/// A column's values while they are between rows and file; `None` is null.
#[derive(Debug)]
pub(crate) enum Values {
    U32(Vec<Option<u32>>),
    U64(Vec<Option<u64>>),
    I64(Vec<Option<i64>>),
    Boolean(Vec<Option<bool>>),
    Text(Vec<Option<String>>),
    ListU32(Vec<Option<Vec<u32>>>),
}

/// A type that fits a column.
pub(crate) trait Value: Sized {
    const TYPE: ColumnType;
    const NULLABLE: bool = false;

    /// Appends it to a column; text and lists are moved there.
    fn append(&mut self, values: &mut Values);

    /// The value of one row. Errors say what is wrong with it.
    fn take(values: &mut Values, row: usize) -> Result<Self, String>;
}

const MISSING: &str = "a value is missing";

macro_rules! plain_value {
    ($type:ty, $variant:ident, $to:expr, $from:expr) => {
        impl Value for $type {
            const TYPE: ColumnType = ColumnType::$variant;

            fn append(&mut self, values: &mut Values) {
                if let Values::$variant(values) = values {
                    #[allow(clippy::redundant_closure_call)]
                    values.push(Some($to(self)));
                }
            }

            fn take(values: &mut Values, row: usize) -> Result<Self, String> {
                match values {
                    Values::$variant(values) => {
                        let value = values.get_mut(row).and_then(mem::take).ok_or(MISSING)?;
                        #[allow(clippy::redundant_closure_call)]
                        $from(value)
                    }
                    _ => Err(MISSING.to_owned()),
                }
            }
        }
    };
}

plain_value!(u32, U32, |value: &mut u32| *value, Ok);
plain_value!(u64, U64, |value: &mut u64| *value, Ok);
plain_value!(i64, I64, |value: &mut i64| *value, Ok);
plain_value!(bool, Boolean, |value: &mut bool| *value, Ok);
plain_value!(Vec<u32>, ListU32, |value: &mut Vec<u32>| mem::take(value), Ok);
plain_value!(String, Text, |value: &mut String| mem::take(value), Ok);
plain_value!(Arc<str>, Text, |value: &mut Arc<str>| value.to_string(), |value: String| Ok(value.into()));
plain_value!(u8, U32, |value: &mut u8| u32::from(*value), |value: u32| u8::try_from(value)
    .map_err(|_| format!("{value} is above 255")));
plain_value!(crate::ModuleIx, U32, |value: &mut crate::ModuleIx| value.0, |value| Ok(crate::ModuleIx(value)));
plain_value!(crate::StackIx, U32, |value: &mut crate::StackIx| value.0, |value| Ok(crate::StackIx(value)));
plain_value!(crate::ObjectIx, U32, |value: &mut crate::ObjectIx| value.0, |value| Ok(crate::ObjectIx(value)));
plain_value!(crate::FrameIx, U32, |value: &mut crate::FrameIx| value.0, |value| Ok(crate::FrameIx(value)));
plain_value!(crate::FieldIx, U32, |value: &mut crate::FieldIx| value.0, |value| Ok(crate::FieldIx(value)));
plain_value!(crate::PathIx, U32, |value: &mut crate::PathIx| value.0, |value| Ok(crate::PathIx(value)));
plain_value!(crate::CodeIx, U32, |value: &mut crate::CodeIx| value.0, |value| Ok(crate::CodeIx(value)));
plain_value!(crate::SliceIx, U32, |value: &mut crate::SliceIx| value.0, |value| Ok(crate::SliceIx(value)));
plain_value!(crate::ThreadIx, U32, |value: &mut crate::ThreadIx| value.0, |value| Ok(crate::ThreadIx(value)));
plain_value!(
    Vec<crate::FrameIx>,
    ListU32,
    |value: &mut Vec<crate::FrameIx>| value.iter().map(|frame| frame.0).collect(),
    |value: Vec<u32>| Ok(value.into_iter().map(crate::FrameIx).collect())
);
plain_value!(
    memlens_types::ObjectKind,
    Text,
    |value: &mut memlens_types::ObjectKind| value.as_str().to_owned(),
    |value: String| value.parse().map_err(|problem| format!("‘{value}’ is {problem}"))
);
plain_value!(
    memlens_types::PatternKind,
    Text,
    |value: &mut memlens_types::PatternKind| value.as_str().to_owned(),
    |value: String| memlens_types::PatternKind::from_word(&value)
        .ok_or_else(|| format!("‘{value}’ is no kind of pattern"))
);
plain_value!(
    memlens_types::AccessKind,
    Text,
    |value: &mut memlens_types::AccessKind| value.as_str().to_owned(),
    |value: String| memlens_types::AccessKind::ALL
        .into_iter()
        .find(|kind| kind.as_str() == value)
        .ok_or_else(|| format!("‘{value}’ is no access kind"))
);

impl<V: Value> Value for Option<V> {
    const TYPE: ColumnType = V::TYPE;
    const NULLABLE: bool = true;

    fn append(&mut self, values: &mut Values) {
        match (self, values) {
            (Some(value), values) => value.append(values),
            (None, Values::U32(values)) => values.push(None),
            (None, Values::U64(values)) => values.push(None),
            (None, Values::I64(values)) => values.push(None),
            (None, Values::Boolean(values)) => values.push(None),
            (None, Values::Text(values)) => values.push(None),
            (None, Values::ListU32(values)) => values.push(None),
        }
    }

    fn take(values: &mut Values, row: usize) -> Result<Self, String> {
        let present = match values {
            Values::U32(values) => matches!(values.get(row), Some(Some(_))),
            Values::U64(values) => matches!(values.get(row), Some(Some(_))),
            Values::I64(values) => matches!(values.get(row), Some(Some(_))),
            Values::Boolean(values) => matches!(values.get(row), Some(Some(_))),
            Values::Text(values) => matches!(values.get(row), Some(Some(_))),
            Values::ListU32(values) => matches!(values.get(row), Some(Some(_))),
        };
        if present { V::take(values, row).map(Some) } else { Ok(None) }
    }
}

/// One column as the documentation and a file's schema show it.
#[derive(Clone, Debug)]
pub(crate) struct ColumnSchema {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) r#type: ColumnType,
    pub(crate) nullable: bool,
}

/// The first column of every table: what other tables refer to. Checked when read.
const INDEX: ColumnSchema = ColumnSchema {
    name: "index",
    doc: "position in the table, from 0: what other tables refer to",
    r#type: ColumnType::U32,
    nullable: false,
};

struct SchemaOf(Vec<ColumnSchema>);

impl Columns for SchemaOf {
    fn column<V: Value>(&mut self, name: &'static str, doc: &'static str, _value: &mut V) {
        self.0.push(ColumnSchema { name, doc, r#type: V::TYPE, nullable: V::NULLABLE });
    }
}

/// The columns of a table, [`INDEX`] first.
pub(crate) fn schema_of<R: Row>() -> Vec<ColumnSchema> {
    let mut schema = SchemaOf(vec![INDEX]);
    R::default().columns(&mut schema);
    schema.0
}

struct Append {
    columns: Vec<Values>,
    next: usize,
}

impl Columns for Append {
    fn column<V: Value>(&mut self, _name: &'static str, _doc: &'static str, value: &mut V) {
        if let Some(column) = self.columns.get_mut(self.next) {
            value.append(column);
        }
        self.next += 1;
    }
}

/// The values of each column of [`schema_of`] in some rows; `first` is the first row's position in the table.
pub(crate) fn to_values<R: Row>(first: u32, rows: &[R]) -> Vec<Values> {
    let columns = schema_of::<R>().iter().map(|column| column.r#type.empty(rows.len())).collect();
    let mut append = Append { columns, next: 0 };
    for (mut position, row) in (first..).zip(rows) {
        append.next = 0;
        append.column(INDEX.name, INDEX.doc, &mut position);
        row.clone().columns(&mut append);
    }
    append.columns
}

struct Take {
    columns: Vec<Values>,
    row: usize,
    next: usize,
    /// The first: of which column, and what.
    problem: Option<(&'static str, String)>,
}

impl Columns for Take {
    fn column<V: Value>(&mut self, name: &'static str, _doc: &'static str, value: &mut V) {
        let taken = match self.columns.get_mut(self.next) {
            Some(column) => V::take(column, self.row),
            None => Err(MISSING.to_owned()),
        };
        self.next += 1;
        match taken {
            Ok(taken) => *value = taken,
            Err(problem) if self.problem.is_none() => {
                self.problem = Some((name, problem));
            }
            Err(_) => {}
        }
    }
}

/// Appends rows to those of a table that come before; `columns` has their values in each column of [`schema_of`].
/// A table is read by several calls: all columns of a large one take several times the memory of its rows.
pub(crate) fn append_rows<R: Row>(
    table: &mut Vec<R>,
    rows: usize,
    columns: Vec<Values>,
) -> Result<(), String> {
    let mut take = Take { columns, row: 0, next: 0, problem: None };
    for row in 0..rows {
        (take.row, take.next) = (row, 0);
        let (mut index, mut row) = (0u32, R::default());
        take.column(INDEX.name, INDEX.doc, &mut index);
        row.columns(&mut take);
        let position = table.len();
        if let Some((column, problem)) = take.problem {
            return Err(format!("row {position}, column {column}: {problem}"));
        }
        if index as usize != position {
            return Err(format!("row {position} has index {index}"));
        }
        table.push(row);
    }
    Ok(())
}
