//! One table as the bytes of a Parquet file.
//!
//! How columns are stored, and found again:
//!
//! ```text
//! U32      INT32 (INTEGER(32,false))
//! U64      INT64 (INTEGER(64,false))
//! I64      INT64
//! Boolean  BOOLEAN
//! Text     BYTE_ARRAY (STRING)
//! ListU32  group (LIST) { repeated group list { required INT32 item (INTEGER(32,false)) } }
//! ```
//!
//! A column that may be null is `optional`, any other `required`. Beside its values a column has levels. The definition
//! level says how much of a value is there, up to the highest, which stands for the value itself; of an optional list: 0
//! null, 1 empty, 2 an item. The repetition level tells a list's first item, or its lack, 0, from those that follow, 1.
//!
//! Rows pass through all columns in turn, a batch at a time: all values of a large table take several times the memory
//! of its rows.
//!
//! The columns of a file follow one another, so those of a row group are made in memory, encoded and compressed, before
//! the first is appended. Parquet's writer for Arrow does the same, but takes the crates of Arrow, which compile longer
//! than all else here.

use std::panic;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::column::writer::{ColumnCloseResult, ColumnWriter, ColumnWriterImpl, get_column_writer};
use parquet::data_type::{ByteArray, DataType, Int32Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::types::{ColumnDescPtr, ColumnPath, SchemaDescriptor, Type};

use super::columns::{ColumnSchema, ColumnType, Row, Values, append_rows, schema_of, to_values};

/// Rows of a row group, whose encoded columns are in memory at one time.
const GROUP_ROWS: usize = 1 << 20;
/// Rows encoded at a time: bounds memory.
const BATCH_ROWS: usize = 1 << 11;
/// Rows decoded at a time.
const READ_ROWS: usize = 1 << 13;
/// Rows of a page: smaller ones take more of the file. A page under way takes 8 bytes a row and column; of 20,000 rows,
/// as usual, those of the cells take 5 MB.
const PAGE_ROWS: usize = 1 << 13;

/// Whether a column's values mostly grow from row to row.
fn is_ascending(column: &str) -> bool {
    matches!(column, "index" | "id" | "offset" | "stack" | "code")
}

/// A column in the schema of a file.
fn field(name: &str, r#type: ColumnType, repetition: Repetition) -> Result<Type, ParquetError> {
    let (physical, logical) = match r#type {
        ColumnType::U32 => (Physical::INT32, Some(LogicalType::integer(32, false))),
        ColumnType::U64 => (Physical::INT64, Some(LogicalType::integer(64, false))),
        ColumnType::I64 => (Physical::INT64, None),
        ColumnType::Boolean => (Physical::BOOLEAN, None),
        ColumnType::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnType::ListU32 => {
            let item = field("item", ColumnType::U32, Repetition::REQUIRED)?;
            let list = Type::group_type_builder("list")
                .with_repetition(Repetition::REPEATED)
                .with_fields(vec![Arc::new(item)])
                .build()?;
            return Type::group_type_builder(name)
                .with_repetition(repetition)
                .with_logical_type(Some(LogicalType::List))
                .with_fields(vec![Arc::new(list)])
                .build();
        }
    };
    Type::primitive_type_builder(name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()
}

/// The file of a table.
pub(crate) fn encode<R: Row>(rows: &[R]) -> Result<Vec<u8>, ParquetError> {
    if u32::try_from(rows.len()).is_err() {
        return Err(ParquetError::General("more than 2^32 − 1 rows".to_owned()));
    }
    let columns = schema_of::<R>();
    let repetition = |nullable| if nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let fields = columns
        .iter()
        .map(|column| field(column.name, column.r#type, repetition(column.nullable)).map(Arc::new))
        .collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("schema").with_fields(fields).build()?;
    let properties = Arc::new(properties(&columns));
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), properties.clone())?;
    let leaves = writer.schema_descr().columns().to_vec();
    for (group, rows) in rows.chunks(GROUP_ROWS).enumerate() {
        let chunks = encode_group((group * GROUP_ROWS) as u32, rows, &leaves, &properties)?;
        let mut group = writer.next_row_group()?;
        for (content, closed) in chunks {
            group.append_column(&content, closed)?;
        }
        group.close()?;
    }
    writer.into_inner()
}

fn properties(columns: &[ColumnSchema]) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_data_page_row_count_limit(PAGE_ROWS);
    // Positions and addresses hardly repeat, but grow by little from row to row: no dictionary.
    for column in columns.iter().filter(|column| is_ascending(column.name)) {
        let path = ColumnPath::from(column.name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

/// The columns of a row group; `first` is its first row's position in the table.
fn encode_group<R: Row>(
    first: u32,
    rows: &[R],
    leaves: &[ColumnDescPtr],
    properties: &WriterPropertiesPtr,
) -> Result<Vec<(Bytes, ColumnCloseResult)>, ParquetError> {
    let mut sinks: Vec<_> = leaves.iter().map(|_| TrackedWrite::new(Vec::new())).collect();
    let writer = |(leaf, sink)| {
        let pages = Box::new(SerializedPageWriter::new(sink));
        get_column_writer(ColumnDescPtr::clone(leaf), properties.clone(), pages)
    };
    let mut writers: Vec<_> = leaves.iter().zip(&mut sinks).map(writer).collect();
    for (batch, rows) in rows.chunks(BATCH_ROWS).enumerate() {
        let columns = to_values(first + (batch * BATCH_ROWS) as u32, rows);
        for ((writer, leaf), values) in writers.iter_mut().zip(leaves).zip(columns) {
            write(writer, leaf.max_def_level(), values)?;
        }
    }
    let closed = writers.into_iter().map(ColumnWriter::close).collect::<Result<Vec<_>, _>>()?;
    let contents = sinks.into_iter().map(|sink| sink.into_inner().map(Bytes::from));
    contents.zip(closed).map(|(content, closed)| Ok((content?, closed))).collect()
}

/// Writes values to their column; `whole` is its highest definition level.
fn write(writer: &mut ColumnWriter<'_>, whole: i16, values: Values) -> Result<(), ParquetError> {
    match (writer, values) {
        (ColumnWriter::Int32ColumnWriter(writer), Values::U32(values)) => {
            write_flat(writer, whole, values, u32::cast_signed)
        }
        (ColumnWriter::Int64ColumnWriter(writer), Values::U64(values)) => {
            write_flat(writer, whole, values, u64::cast_signed)
        }
        (ColumnWriter::Int64ColumnWriter(writer), Values::I64(values)) => {
            write_flat(writer, whole, values, |value| value)
        }
        (ColumnWriter::BoolColumnWriter(writer), Values::Boolean(values)) => {
            write_flat(writer, whole, values, |value| value)
        }
        (ColumnWriter::ByteArrayColumnWriter(writer), Values::Text(values)) => {
            write_flat(writer, whole, values, |text| ByteArray::from(text.into_bytes()))
        }
        (ColumnWriter::Int32ColumnWriter(writer), Values::ListU32(lists)) => {
            write_lists(writer, whole, lists)
        }
        _ => Err(ParquetError::General("values of another type than their column's".to_owned())),
    }
}

/// A null where none may be leaves its row out; the row group is refused because this column is shorter.
fn write_flat<T: DataType, V>(
    writer: &mut ColumnWriterImpl<'_, T>,
    whole: i16,
    values: Vec<Option<V>>,
    stored: impl Fn(V) -> T::T,
) -> Result<(), ParquetError> {
    let definitions: Option<Vec<i16>> =
        (whole > 0).then(|| values.iter().map(|value| i16::from(value.is_some())).collect());
    let values: Vec<T::T> = values.into_iter().flatten().map(stored).collect();
    writer.write_batch(&values, definitions.as_deref(), None).map(|_| ())
}

/// Likewise.
fn write_lists(
    writer: &mut ColumnWriterImpl<'_, Int32Type>,
    whole: i16,
    lists: Vec<Option<Vec<u32>>>,
) -> Result<(), ParquetError> {
    let empty = whole - 1;
    let (mut items, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
    for list in lists {
        match list {
            Some(list) if !list.is_empty() => {
                definitions.resize(definitions.len() + list.len(), whole);
                repetitions.push(0);
                repetitions.resize(definitions.len(), 1);
                items.extend(list.into_iter().map(u32::cast_signed));
            }
            Some(_) => {
                definitions.push(empty);
                repetitions.push(0);
            }
            None if empty > 0 => {
                definitions.push(0);
                repetitions.push(0);
            }
            None => {}
        }
    }
    writer.write_batch(&items, Some(&definitions), Some(&repetitions)).map(|_| ())
}

/// The rows of a table from its file, of which nothing is believed; `rows` is how many there should be. Columns are
/// found by name; those unknown to this version are passed over, and those that may be null may be missing.
pub(crate) fn decode<R: Row>(content: Vec<u8>, rows: u64) -> Result<Vec<R>, String> {
    // The parquet crate (60.1) panics on some metadata that size and checksum cannot tell from good
    // (a forged file). Such a file is damaged, too, and no reason to end the process.
    panic::catch_unwind(|| read_rows(content, rows))
        .unwrap_or_else(|_| Err("its Parquet metadata make no sense".to_owned()))
}

fn read_rows<R: Row>(content: Vec<u8>, rows: u64) -> Result<Vec<R>, String> {
    let text = |problem: ParquetError| problem.to_string();
    let file = SerializedFileReader::new(Bytes::from(content)).map_err(text)?;
    let schema = file.metadata().file_metadata().schema_descr();
    let columns = schema_of::<R>()
        .into_iter()
        .map(|column| Ok((leaf_of(schema, &column)?, column)))
        .collect::<Result<Vec<_>, String>>()?;
    // The row count is a hint from a file: believe it only within reason.
    let mut table = Vec::with_capacity(rows.min(1 << 20) as usize);
    for group in 0..file.num_row_groups() {
        let group = file.get_row_group(group).map_err(text)?;
        let mut columns = columns
            .iter()
            .map(|(leaf, column)| StoredColumn::new(&*group, schema, *leaf, column))
            .collect::<Result<Vec<_>, _>>()
            .map_err(text)?;
        let mut left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        while left > 0 {
            let batch = left.min(READ_ROWS);
            let values = columns.iter_mut().map(|column| column.read(batch)).collect::<Result<_, _>>()?;
            append_rows(&mut table, batch, values)?;
            left -= batch;
        }
    }
    Ok(table)
}

/// Which of a file's columns holds the values; `None`: an older version did not write them yet.
fn leaf_of(file: &SchemaDescriptor, column: &ColumnSchema) -> Result<Option<usize>, String> {
    let ColumnSchema { name, r#type, nullable, .. } = *column;
    let Some(leaf) = (0..file.num_columns()).find(|leaf| file.get_column_root(*leaf).name() == name) else {
        return if nullable { Ok(None) } else { Err(format!("column {name} is missing")) };
    };
    // One that may be null now may not always have been, and the other way round.
    let fits = [Repetition::REQUIRED, Repetition::OPTIONAL].into_iter().any(|repetition| {
        field(name, r#type, repetition).is_ok_and(|field| field == *file.get_column_root(leaf))
    });
    if fits { Ok(Some(leaf)) } else { Err(format!("column {name} is not {}", r#type.as_str())) }
}

/// A column of a row group while it is read.
struct StoredColumn<'a> {
    schema: &'a ColumnSchema,
    /// With its highest definition level; `None`: the file does not have the column.
    reader: Option<(ColumnReader, i16)>,
}

impl<'a> StoredColumn<'a> {
    fn new(
        group: &dyn RowGroupReader,
        file: &SchemaDescriptor,
        leaf: Option<usize>,
        schema: &'a ColumnSchema,
    ) -> Result<Self, ParquetError> {
        let reader = match leaf {
            Some(leaf) => Some((group.get_column_reader(leaf)?, file.column(leaf).max_def_level())),
            None => None,
        };
        Ok(Self { schema, reader })
    }

    /// The values of the next rows.
    fn read(&mut self, rows: usize) -> Result<Values, String> {
        let ColumnSchema { name, r#type, .. } = *self.schema;
        let Some((reader, whole)) = &mut self.reader else { return Ok(r#type.nulls(rows)) };
        read(reader, *whole, r#type, rows).map_err(|problem| format!("column {name}: {problem}"))
    }
}

fn read(
    reader: &mut ColumnReader,
    whole: i16,
    r#type: ColumnType,
    rows: usize,
) -> Result<Values, ParquetError> {
    Ok(match (reader, r#type) {
        (ColumnReader::Int32ColumnReader(reader), ColumnType::U32) => {
            Values::U32(read_flat(reader, whole, rows, |value| Ok(value.cast_unsigned()))?)
        }
        (ColumnReader::Int64ColumnReader(reader), ColumnType::U64) => {
            Values::U64(read_flat(reader, whole, rows, |value| Ok(value.cast_unsigned()))?)
        }
        (ColumnReader::Int64ColumnReader(reader), ColumnType::I64) => {
            Values::I64(read_flat(reader, whole, rows, Ok)?)
        }
        (ColumnReader::BoolColumnReader(reader), ColumnType::Boolean) => {
            Values::Boolean(read_flat(reader, whole, rows, Ok)?)
        }
        (ColumnReader::ByteArrayColumnReader(reader), ColumnType::Text) => {
            Values::Text(read_flat(reader, whole, rows, |text| text.as_utf8().map(str::to_owned))?)
        }
        (ColumnReader::Int32ColumnReader(reader), ColumnType::ListU32) => {
            Values::ListU32(read_lists(reader, whole, rows)?)
        }
        _ => return Err(ParquetError::General("stored as another type than the schema's".to_owned())),
    })
}

fn read_flat<T: DataType, V>(
    reader: &mut ColumnReaderImpl<T>,
    whole: i16,
    rows: usize,
    value: impl Fn(T::T) -> Result<V, ParquetError>,
) -> Result<Vec<Option<V>>, ParquetError> {
    let (mut stored, mut definitions) = (Vec::with_capacity(rows), Vec::new());
    let (found, ..) = reader.read_records(rows, Some(&mut definitions), None, &mut stored)?;
    check_rows(found, rows)?;
    let mut stored = stored.into_iter();
    if whole == 0 {
        return stored.map(|stored| value(stored).map(Some)).collect();
    }
    let mut next = |level| if level == whole { stored.next().map(&value).transpose() } else { Ok(None) };
    definitions.into_iter().map(&mut next).collect()
}

/// Lists are told apart by the repetition levels: each begins with a 0.
fn read_lists(
    reader: &mut ColumnReaderImpl<Int32Type>,
    whole: i16,
    rows: usize,
) -> Result<Vec<Option<Vec<u32>>>, ParquetError> {
    let empty = whole - 1;
    let (mut items, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
    let (found, ..) =
        reader.read_records(rows, Some(&mut definitions), Some(&mut repetitions), &mut items)?;
    check_rows(found, rows)?;
    let mut items = items.into_iter().map(i32::cast_unsigned);
    let levels: Vec<_> = repetitions.into_iter().zip(definitions).collect();
    let lists: Vec<_> = levels
        .chunk_by(|_, (repetition, _)| *repetition > 0)
        .map(|list| {
            let present = list.iter().filter(|(_, definition)| *definition == whole).count();
            let is_null = list.iter().all(|(_, definition)| *definition < empty);
            (!is_null).then(|| items.by_ref().take(present).collect())
        })
        .collect();
    check_rows(lists.len(), rows)?;
    Ok(lists)
}

/// Refuses a column with fewer values than rows.
fn check_rows(found: usize, rows: usize) -> Result<(), ParquetError> {
    if found == rows { Ok(()) } else { Err(ParquetError::General("it ends too early".to_owned())) }
}

#[cfg(test)]
mod tests {
    use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataWriter};
    use parquet::schema::printer::print_schema;

    use super::super::columns::Columns;
    use memlens_types::{Counts, Sampled};

    use super::*;
    use crate::FrameIx;
    use crate::{ObjectIx, PathCell, PathIx};

    macro_rules! row {
        ($row:ident { $($column:ident: $type:ty),* }) => {
            #[derive(Clone, Debug, Default, PartialEq)]
            struct $row { $($column: $type),* }

            impl Row for $row {
                const TABLE: &'static str = "rows";
                const DOC: &'static str = "A test's row.";

                fn columns(&mut self, columns: &mut impl Columns) {
                    $(columns.column(stringify!($column), "", &mut self.$column);)*
                }
            }
        };
    }

    row!(Required { id: u32, bytes: u64, stride: i64, inlined: bool, name: String, frames: Vec<FrameIx> });
    row!(Nullable {
        id: Option<u32>, bytes: Option<u64>, stride: Option<i64>, inlined: Option<bool>, name: Option<String>,
        frames: Option<Vec<FrameIx>>
    });
    row!(Short { id: u32 });
    row!(Named { name: Option<String>, id: u32 });
    row!(Counted { id: u64 });
    row!(Listed { id: Vec<FrameIx> });
    row!(MaybeShort { id: Option<u32> });

    fn metadata_of(content: &[u8]) -> ParquetMetaData {
        let file = SerializedFileReader::new(Bytes::copy_from_slice(content)).expect("a file");
        file.metadata().clone()
    }

    fn schema<R: Row>() -> String {
        let mut text = Vec::new();
        let metadata = metadata_of(&encode::<R>(&[]).expect("a file"));
        print_schema(&mut text, metadata.file_metadata().schema());
        String::from_utf8(text).expect("text")
    }

    /// Other programs, and other versions of memlens, rely on it.
    #[test]
    fn a_files_schema_stays() {
        let required = "message schema {
  REQUIRED INT32 index (INTEGER(32,false));
  REQUIRED INT32 id (INTEGER(32,false));
  REQUIRED INT64 bytes (INTEGER(64,false));
  REQUIRED INT64 stride;
  REQUIRED BOOLEAN inlined;
  REQUIRED BYTE_ARRAY name (STRING);
  REQUIRED group frames (LIST) {
    REPEATED group list {
      REQUIRED INT32 item (INTEGER(32,false));
    }
  }
}
";
        assert_eq!(schema::<Required>(), required);
        // All may be null but the index, the list's items and thus the list within the list.
        let nullable = required.replace("\n  REQUIRED", "\n  OPTIONAL").replacen("OPTIONAL", "REQUIRED", 1);
        assert_eq!(schema::<Nullable>(), nullable);
    }

    #[test]
    fn ascending_columns_are_differences_and_all_are_compressed() {
        let metadata = metadata_of(&encode(&[Required::default()]).expect("a file"));
        for (position, column) in metadata.row_group(0).columns().iter().enumerate() {
            assert_eq!(column.compression(), Compression::SNAPPY);
            // The index and the id.
            let differences = column.encodings().any(|encoding| encoding == Encoding::DELTA_BINARY_PACKED);
            assert_eq!(
                (differences, column.dictionary_page_offset().is_none()),
                (position < 2, position < 2 || position == 4)
            );
        }
    }

    /// Of every 7 rows one is null, one has an empty list; lists of different lengths lie over the borders of batches
    /// and pages, one is longer than a page has rows.
    #[test]
    fn nulls_and_lists_of_several_batches_are_read() {
        let list = |row: usize| match row {
            BATCH_ROWS | 9_999 => 3 * PAGE_ROWS,
            _ => row % 7 % 5,
        };
        let row = |row: usize| Required {
            id: row as u32,
            bytes: u64::MAX - row as u64,
            stride: -(row as i64),
            inlined: row.is_multiple_of(3),
            name: format!("größe {}", row % 100),
            frames: (0..list(row) as u32).map(FrameIx).collect(),
        };
        let required: Vec<_> = (0..3 * READ_ROWS + 5).map(row).collect();
        assert_eq!(decode(encode(&required).expect("a file"), 0), Ok(required.clone()));
        let nullable = |row: Required| match row {
            Required { id, .. } if id % 7 == 3 => Nullable::default(),
            Required { id, bytes, stride, inlined, name, frames } => Nullable {
                id: Some(id),
                bytes: Some(bytes),
                stride: Some(stride),
                inlined: Some(inlined),
                name: Some(name),
                frames: Some(frames),
            },
        };
        let nullable: Vec<_> = required.into_iter().map(nullable).collect();
        assert_eq!(decode(encode(&nullable).expect("a file"), 0), Ok(nullable));
    }

    #[test]
    fn row_groups_follow_one_another() {
        let rows: Vec<_> = (0..GROUP_ROWS as u32 + 3).map(|id| Short { id }).collect();
        let content = encode(&rows).expect("a file");
        assert_eq!(metadata_of(&content).num_row_groups(), 2);
        assert!(decode(content, rows.len() as u64) == Ok(rows));
    }

    #[test]
    fn columns_are_found_by_name() {
        let short = encode(&[Short { id: 7 }]).expect("a file");
        let named = encode(&[Named { name: Some("column".to_owned()), id: 7 }]).expect("a file");
        let nothing = encode(&[MaybeShort { id: None }]).expect("a file");
        // Profiles of before a column that may be null lack it; later ones may have more.
        assert_eq!(decode(short.clone(), 1), Ok(vec![Named { name: None, id: 7 }]));
        assert_eq!(decode(named, 1), Ok(vec![Short { id: 7 }]));
        assert_eq!(decode(short.clone(), 1), Ok(vec![MaybeShort { id: Some(7) }]));

        let error = |text: &str| Err(text.to_owned());
        assert_eq!(decode::<Required>(short.clone(), 1), Err("column bytes is missing".to_owned()));
        assert_eq!(decode::<Counted>(short.clone(), 1), Err("column id is not UInt64".to_owned()));
        assert_eq!(decode::<Listed>(short, 1), Err("column id is not List<UInt32>".to_owned()));
        assert_eq!(decode::<Short>(nothing, 1), error("row 0, column id: a value is missing"));
    }

    /// `path_samples` as it was when samples alone had call paths.
    #[derive(Clone, Debug, Default, PartialEq)]
    struct OldPathSamples {
        path: Option<PathIx>,
        object: ObjectIx,
        samples: u64,
        cost: u64,
    }

    impl Row for OldPathSamples {
        const TABLE: &'static str = "path_samples";
        const DOC: &'static str = "";

        fn columns(&mut self, c: &mut impl Columns) {
            c.column("path", "", &mut self.path);
            c.column("object", "", &mut self.object);
            c.column("samples", "", &mut self.samples);
            c.column("sample_cost", "", &mut self.cost);
        }
    }

    #[test]
    fn call_paths_of_samples_are_read_by_old_and_new() {
        let (path, object) = (Some(PathIx(3)), ObjectIx(2));
        let old = OldPathSamples { path, object, samples: 7, cost: 70 };
        let sampled = Sampled { samples: 7, cost: 70, ..Sampled::default() };
        let new = PathCell { path, object, counts: Counts { sampled, ..Counts::default() }.into() };
        assert_eq!(decode(encode(std::slice::from_ref(&old)).expect("a file"), 1), Ok(vec![new.clone()]));
        assert_eq!(decode(encode(&[new]).expect("a file"), 1), Ok(vec![old]));
        // Those of accesses have no samples.
        let counts = Counts { loads: 5, ..Counts::default() }.into();
        let found = decode(encode(&[PathCell { path, object, counts }]).expect("a file"), 1);
        assert_eq!(found, Ok(vec![OldPathSamples { path, object, samples: 0, cost: 0 }]));
    }

    /// A file whose metadata count more rows than its columns have.
    #[test]
    fn columns_that_end_too_early_are_an_error() {
        let mut content = encode(&[Required::default()]).expect("a file");
        let metadata = metadata_of(&content);
        let group =
            metadata.row_group(0).clone().into_builder().set_num_rows(i64::MAX).build().expect("a group");
        let forged =
            ParquetMetaDataBuilder::new(metadata.file_metadata().clone()).add_row_group(group).build();
        ParquetMetaDataWriter::new(&mut content, &forged).finish().expect("a file");
        assert_eq!(
            decode::<Required>(content, 1),
            Err("column index: Parquet error: it ends too early".to_owned())
        );
    }
}
