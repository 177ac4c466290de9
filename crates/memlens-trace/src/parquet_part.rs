//! One Parquet file, made in memory.

use std::sync::Arc;

use parquet::basic::{
    Compression, ConvertedType, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel,
};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{ColumnPath, Type};

/// Rows of a page, which is compressed by itself: large enough for zstd to find repetitions, small
/// enough for readers to pass over what their condition on addresses or instructions rules out.
const PAGE_ROWS: usize = 128 << 10;

/// Values that are handed to the encoder at a time.
const BATCH_ROWS: usize = 4096;

/// The value of a column in each row, none missing.
pub(crate) enum Values<'a> {
    /// Unsigned, 32 bits.
    U32(Box<dyn Fn(usize) -> u32 + 'a>),
    /// Unsigned, 64 bits.
    U64(Box<dyn Fn(usize) -> u64 + 'a>),
    /// UTF-8.
    Text(Box<dyn Fn(usize) -> ByteArray + 'a>),
}

/// How a column's values are coded before compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Distinct values and indices.
    Dictionary,
    /// Differences to the value before, in as few bits as a block of them needs.
    Delta,
    /// As they are.
    Plain,
}

/// A column.
pub(crate) struct Column<'a> {
    pub(crate) name: &'static str,
    pub(crate) coding: Coding,
    pub(crate) values: Values<'a>,
}

impl Column<'_> {
    fn field(&self) -> Result<Type, ParquetError> {
        let (physical, logical) = match &self.values {
            Values::U32(_) => (Physical::INT32, LogicalType::integer(32, false)),
            Values::U64(_) => (Physical::INT64, LogicalType::integer(64, false)),
            Values::Text(_) => (Physical::BYTE_ARRAY, LogicalType::String),
        };
        Type::primitive_type_builder(self.name, physical)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(Some(logical))
            .with_converted_type(ConvertedType::NONE)
            .build()
    }
}

/// The bytes of a file with one row group of so many rows.
pub(crate) fn encode(
    columns: &[Column<'_>],
    rows: usize,
    notes: Vec<KeyValue>,
) -> Result<Vec<u8>, ParquetError> {
    let fields = columns.iter().map(|column| column.field().map(Arc::new)).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("schema").with_fields(fields).build()?;
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_created_by(concat!("memlens ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(notes))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_data_page_size_limit(8 * PAGE_ROWS)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?));
    for column in columns {
        let path = ColumnPath::from(column.name);
        properties = match column.coding {
            Coding::Dictionary => properties.set_column_dictionary_enabled(path, true),
            Coding::Delta => properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
            Coding::Plain => properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::PLAIN),
        };
    }
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties.build()))?;
    let mut group = writer.next_row_group()?;
    for column in columns {
        let Some(mut chunk) = group.next_column()? else { break };
        match &column.values {
            Values::U32(value) => {
                write::<Int32Type>(&mut chunk, rows, |row| value(row).cast_signed())?;
            }
            Values::U64(value) => {
                write::<Int64Type>(&mut chunk, rows, |row| value(row).cast_signed())?;
            }
            Values::Text(value) => write::<ByteArrayType>(&mut chunk, rows, value)?,
        }
        chunk.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(bytes)
}

/// Writes a column by batches that stay in the processor's caches.
fn write<T: DataType>(
    chunk: &mut SerializedColumnWriter<'_>,
    rows: usize,
    value: impl Fn(usize) -> T::T,
) -> Result<(), ParquetError> {
    let mut batch = Vec::with_capacity(BATCH_ROWS);
    for first in (0..rows).step_by(BATCH_ROWS) {
        batch.clear();
        batch.extend((first..rows.min(first + BATCH_ROWS)).map(&value));
        chunk.typed::<T>().write_batch(&batch, None, None)?;
    }
    Ok(())
}
