//! The state of an analysis on disk, from which it can go on after it was stopped.
//!
//! ```text
//! memlens-bus-checkpoint 4 ⟨CRC-32 of what follows, as a number⟩\n   then, packed by zstd:   the state as JSON
//! ```
//!
//! The file is written beside its name and renamed: it is the last whole one, whenever the process is killed.

use super::analyzer::Analyzer;
use super::counts::ObjectCounts;
use crate::format::{FormatError, MergedPosition, ObjectPosition, PagePosition, PageRecord};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const MAGIC: &str = "memlens-bus-checkpoint";
const VERSION: u32 = 4;
/// zstd's fastest ordinary level.
const LEVEL: i32 = 1;

/// Where each stream stands.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Place {
    pub bus: MergedPosition,
    pub pages: Option<PagePosition>,
    pub objects: Option<ObjectPosition>,
    /// Groups of page-table records that were read ahead.
    pub waiting: VecDeque<Vec<PageRecord>>,
}

/// A file that keeps the state of an analysis.
///
/// Cost: some 10 bytes a mapped page on disk, and the state is copied in memory as text while it is written.
#[derive(Debug)]
pub struct Checkpoints {
    path: PathBuf,
    every_records: u64,
    next_at: u64,
}

impl Checkpoints {
    /// In this file, which need not be there, after every so many records.
    pub fn new(path: &Path, every_records: u64) -> Self {
        Self { path: path.to_owned(), every_records: every_records.max(1), next_at: every_records.max(1) }
    }

    /// The state that is there.
    pub(super) fn load(&mut self) -> Result<Option<(Place, Analyzer)>, FormatError> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(FormatError::Io { what: "read the checkpoint", source }),
        };
        let (place, analyzer): (Place, Analyzer) = self.unpack(&bytes)?;
        self.next_at = analyzer.records() + self.every_records;
        Ok(Some((place, analyzer)))
    }

    fn unpack(&self, bytes: &[u8]) -> Result<(Place, Analyzer), FormatError> {
        let path = self.path.display();
        let problem = |text: &str| FormatError::Checkpoint(format!("{path} {text}"));
        let end = bytes.iter().position(|&byte| byte == b'\n').ok_or_else(|| problem("is none"))?;
        let line = std::str::from_utf8(&bytes[..end]).map_err(|_| problem("is none"))?;
        let rest = line.strip_prefix(MAGIC).ok_or_else(|| problem("is none"))?;
        let mut numbers = rest.split_ascii_whitespace().map(str::parse::<u32>);
        if numbers.next() != Some(Ok(VERSION)) {
            return Err(FormatError::Unsupported(format!("a checkpoint of version{rest}")));
        }
        let packed = &bytes[end + 1..];
        if numbers.next() != Some(Ok(crc32fast::hash(packed))) {
            return Err(problem("is damaged; without it the analysis begins anew"));
        }
        let decoder = zstd::stream::read::Decoder::new(packed).map_err(FormatError::read)?;
        serde_json::from_reader(io::BufReader::new(decoder))
            .map_err(|error| problem(&format!("makes no sense: {error}")))
    }

    /// Whether so many records were analysed since the last time.
    pub(super) fn is_due(&self, analyzer: &Analyzer) -> bool {
        analyzer.records() >= self.next_at
    }

    /// Writes the state.
    pub(super) fn keep(&mut self, place: &Place, analyzer: &Analyzer) -> Result<(), FormatError> {
        self.next_at = analyzer.records() + self.every_records;
        self.save(place, analyzer).map_err(|source| FormatError::Io { what: "write the checkpoint", source })
    }

    fn save(&self, place: &Place, analyzer: &Analyzer) -> io::Result<()> {
        let mut packer = zstd::stream::write::Encoder::new(Vec::new(), LEVEL)?;
        serde_json::to_writer(&mut packer, &(place, analyzer))?;
        let packed = packer.finish()?;
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let mut file = File::create(&new)?;
        writeln!(file, "{MAGIC} {VERSION} {}", crc32fast::hash(&packed))?;
        file.write_all(&packed)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }

    /// The analysis is complete: nothing is left to go on with.
    pub(super) fn finish(&mut self) -> Result<(), FormatError> {
        match fs::remove_file(&self.path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(FormatError::Io { what: "remove the checkpoint", source })
            }
            _ => Ok(()),
        }
    }
}

/// Counts to the last bit: decimal fractions may lose it.
pub(super) mod exact_counts {
    use super::ObjectCounts;
    use serde::{Deserialize, Deserializer, Serializer};

    type Row = ([u64; 4], [u64; 5]);

    pub fn serialize<S: Serializer>(counts: &[ObjectCounts], to: S) -> Result<S::Ok, S::Error> {
        let row = |counts: &ObjectCounts| -> Row {
            let [a, b, c, d] = counts.walks.map(f64::to_bits);
            let whole = [counts.reads, counts.writes, counts.shared, counts.late];
            (whole, [a, b, c, d, counts.tlb_misses.to_bits()])
        };
        to.collect_seq(counts.iter().map(row))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<ObjectCounts>, D::Error> {
        let counts = |([reads, writes, shared, late], [a, b, c, d, misses]): Row| ObjectCounts {
            reads,
            writes,
            shared,
            late,
            walks: [a, b, c, d].map(f64::from_bits),
            tlb_misses: f64::from_bits(misses),
        };
        Ok(Vec::<Row>::deserialize(from)?.into_iter().map(counts).collect())
    }
}

/// Kinds of objects by their names.
pub(super) mod kind {
    use memlens_types::ObjectKind;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(kind: &ObjectKind, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(kind.as_str())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectKind, D::Error> {
        let name = String::deserialize(from)?;
        name.parse().map_err(|_| D::Error::custom(format!("`{name}` is no kind of object")))
    }
}
