//! One description of a table's columns drives writing, reading and the documentation.
//!
//! A [`Row`] shows each of its fields to a visitor by [`Columns::column`]. One visitor notes names and
//! types ([`SchemaOf`]), one copies values into columns ([`Append`]), one takes them out ([`Take`]).

use std::mem;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, UInt32Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field};

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
    /// Arrow's name for it.
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

    fn data_type(self) -> DataType {
        match self {
            Self::U32 => DataType::UInt32,
            Self::U64 => DataType::UInt64,
            Self::I64 => DataType::Int64,
            Self::Boolean => DataType::Boolean,
            Self::Text => DataType::Utf8,
            Self::ListU32 => DataType::List(Arc::new(list_item())),
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
}

fn list_item() -> Field {
    Field::new("item", DataType::UInt32, false)
}

/// A column's values while they are between rows and Arrow; `None` is null.
#[derive(Debug)]
pub(crate) enum Values {
    U32(Vec<Option<u32>>),
    U64(Vec<Option<u64>>),
    I64(Vec<Option<i64>>),
    Boolean(Vec<Option<bool>>),
    Text(Vec<Option<String>>),
    ListU32(Vec<Option<Vec<u32>>>),
}

impl Values {
    fn into_array(self) -> ArrayRef {
        match self {
            Self::U32(values) => Arc::new(UInt32Array::from(values)),
            Self::U64(values) => Arc::new(UInt64Array::from(values)),
            Self::I64(values) => Arc::new(Int64Array::from(values)),
            Self::Boolean(values) => Arc::new(BooleanArray::from(values)),
            Self::Text(values) => Arc::new(StringArray::from(values)),
            Self::ListU32(values) => {
                let mut lists = ListBuilder::new(UInt32Builder::new()).with_field(list_item());
                for list in values {
                    match list {
                        Some(items) => {
                            lists.values().append_slice(&items);
                            lists.append(true);
                        }
                        None => lists.append(false),
                    }
                }
                Arc::new(lists.finish())
            }
        }
    }

    /// Appends unknown values.
    fn extend_nulls(&mut self, rows: usize) {
        match self {
            Self::U32(values) => values.resize(values.len() + rows, None),
            Self::U64(values) => values.resize(values.len() + rows, None),
            Self::I64(values) => values.resize(values.len() + rows, None),
            Self::Boolean(values) => values.resize(values.len() + rows, None),
            Self::Text(values) => values.resize(values.len() + rows, None),
            Self::ListU32(values) => values.resize(values.len() + rows, None),
        }
    }

    /// Appends an array's values; `None` if it has another type.
    fn extend(&mut self, array: &dyn Array) -> Option<()> {
        match self {
            Self::U32(values) => values.extend(array.as_primitive_opt::<UInt32Type>()?),
            Self::U64(values) => values.extend(array.as_primitive_opt::<UInt64Type>()?),
            Self::I64(values) => values.extend(array.as_primitive_opt::<Int64Type>()?),
            Self::Boolean(values) => values.extend(array.as_boolean_opt()?),
            Self::Text(values) => {
                values.extend(array.as_string_opt::<i32>()?.iter().map(|text| text.map(str::to_owned)));
            }
            Self::ListU32(values) => {
                for list in array.as_list_opt::<i32>()?.iter() {
                    let items = match list {
                        Some(items) => {
                            let items = items.as_primitive_opt::<UInt32Type>()?;
                            Some(items.iter().collect::<Option<Vec<u32>>>()?)
                        }
                        None => None,
                    };
                    values.push(items);
                }
            }
        }
        Some(())
    }
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

/// One column as the documentation and the Parquet schema show it.
#[derive(Clone, Debug)]
pub(crate) struct ColumnSchema {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) r#type: ColumnType,
    pub(crate) nullable: bool,
}

/// The first column of every table: what other tables refer to. Checked when read.
pub(crate) const INDEX: ColumnSchema = ColumnSchema {
    name: "index",
    doc: "position in the table, from 0: what other tables refer to",
    r#type: ColumnType::U32,
    nullable: false,
};

impl ColumnSchema {
    pub(crate) fn field(&self) -> Field {
        Field::new(self.name, self.r#type.data_type(), self.nullable)
    }
}

#[derive(Default)]
struct SchemaOf(Vec<ColumnSchema>);

impl Columns for SchemaOf {
    fn column<V: Value>(&mut self, name: &'static str, doc: &'static str, _value: &mut V) {
        self.0.push(ColumnSchema { name, doc, r#type: V::TYPE, nullable: V::NULLABLE });
    }
}

/// The columns of a table, without [`INDEX`].
pub(crate) fn schema_of<R: Row>() -> Vec<ColumnSchema> {
    let mut schema = SchemaOf::default();
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

/// Rows as Arrow arrays, [`INDEX`] first; `first` is the first row's position in the table.
pub(crate) fn to_arrays<R: Row>(first: u32, rows: &[R]) -> Vec<ArrayRef> {
    let schema = schema_of::<R>();
    let columns = schema.iter().map(|column| column.r#type.empty(rows.len())).collect();
    let mut append = Append { columns, next: 0 };
    for row in rows {
        append.next = 0;
        row.clone().columns(&mut append);
    }
    let index = rows.iter().enumerate().map(|(position, _)| first.saturating_add(position as u32));
    let index: ArrayRef = Arc::new(UInt32Array::from_iter_values(index));
    std::iter::once(index).chain(append.columns.into_iter().map(Values::into_array)).collect()
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

/// Turns the batches of a table into rows, one batch after the other: all columns of a large table take several times
/// the memory of its rows.
pub(crate) struct RowReader<R> {
    schema: Vec<ColumnSchema>,
    rows: Vec<R>,
}

impl<R: Row> RowReader<R> {
    pub(crate) fn new(rows: usize) -> Self {
        Self { schema: schema_of::<R>(), rows: Vec::with_capacity(rows) }
    }

    /// Appends the rows of a batch. Columns are found by name; those unknown to this version are passed
    /// over, and those that may be null may be missing.
    pub(crate) fn extend(&mut self, batch: &arrow_array::RecordBatch) -> Result<(), String> {
        let Values::U32(index) = values_of(batch, &INDEX)? else { return Err(MISSING.to_owned()) };
        let columns = self.schema.iter().map(|schema| values_of(batch, schema)).collect::<Result<_, _>>()?;
        let mut take = Take { columns, row: 0, next: 0, problem: None };
        for (row, index) in index.into_iter().enumerate() {
            let position = self.rows.len();
            if index.map(|index| index as usize) != Some(position) {
                return Err(format!("row {position} has index {index:?}"));
            }
            (take.row, take.next) = (row, 0);
            let mut row = R::default();
            row.columns(&mut take);
            if let Some((column, problem)) = take.problem {
                return Err(format!("row {position}, column {column}: {problem}"));
            }
            self.rows.push(row);
        }
        Ok(())
    }

    /// All rows, in order.
    pub(crate) fn finish(self) -> Vec<R> {
        self.rows
    }
}

/// A column of a batch.
fn values_of(batch: &arrow_array::RecordBatch, schema: &ColumnSchema) -> Result<Values, String> {
    let mut values = schema.r#type.empty(batch.num_rows());
    match batch.column_by_name(schema.name) {
        Some(array) => values
            .extend(array.as_ref())
            .ok_or_else(|| format!("column {} is not {}", schema.name, schema.r#type.as_str()))?,
        // A column that an older version did not write yet.
        None if schema.nullable => values.extend_nulls(batch.num_rows()),
        None => return Err(format!("column {} is missing", schema.name)),
    }
    Ok(values)
}
