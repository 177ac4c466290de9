//! `profile.json`: which files make up the profile, and what is no table.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Attribution, MachineInfo, Prediction, RunInfo};

/// Its name.
pub(crate) const MANIFEST: &str = "profile.json";
/// Its name while it is written.
pub(crate) const MANIFEST_NEW: &str = "profile.json.new";
/// The key of predictions, which are added later; see [`Manifest::predictions`].
pub(crate) const PREDICTIONS: &str = "predictions";
/// What `format` says.
pub(crate) const FORMAT: &str = "memlens-profile";

/// The document.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format: String,
    pub(crate) format_version: u32,
    pub(crate) memlens_version: String,
    pub(crate) generation: u64,
    pub(crate) complete: bool,
    pub(crate) run: RunInfo,
    pub(crate) machine: MachineInfo,
    pub(crate) attribution: Attribution,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) predictions: Vec<Prediction>,
    pub(crate) tables: BTreeMap<String, TableFile>,
}

/// One table's file. Size and checksum tell a damaged file before Parquet is asked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TableFile {
    pub(crate) file: String,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// CRC-32 (ISO-HDLC, as gzip's) of the whole file.
    pub(crate) crc32: u32,
}

/// The name of a table's file.
pub(crate) fn table_file_name(table: &str, generation: u64) -> String {
    format!("{table}-{generation:06}.parquet")
}

/// The generation of a table's file, if the name is one.
pub(crate) fn generation_of(file_name: &str, tables: &[&str]) -> Option<u64> {
    let (table, generation) = file_name.strip_suffix(".parquet")?.rsplit_once('-')?;
    if tables.contains(&table) { generation.parse().ok() } else { None }
}
