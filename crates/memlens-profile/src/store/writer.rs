//! Writes a profile again and again; whenever it stops, the last flushed state is readable.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::columns::Row;
use super::folder::{DiskFolder, Folder};
use super::manifest::{
    FORMAT, MANIFEST, MANIFEST_NEW, Manifest, PREDICTIONS, TableFile, generation_of, table_file_name,
};
use super::parquet_table::encode;
use super::processes::{self, PROCESSES};
use super::schema::KNOWN_TABLES;
use super::{FORMAT_VERSION, WriteError};
use crate::beside::in_turn;
use crate::{Cell, Prediction, Profile, beside};

/// What to do when something is at the path already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Refuse. An empty folder is no obstacle.
    Refuse,
    /// Replace it if it is a profile; anything else is refused. The old profile stays readable until
    /// the first flush of the new one.
    Replace,
}

impl Existing {
    /// [`Self::Replace`] if that was asked for.
    pub fn replace_if(asked: bool) -> Self {
        if asked { Self::Replace } else { Self::Refuse }
    }
}

/// Writes one profile.
///
/// ```no_run
/// # use memlens_profile::{Existing, Profile, ProfileWriter, WriteError};
/// # fn main() -> Result<(), WriteError> {
/// let profile = Profile::default();
/// let mut writer = ProfileWriter::create("memlens.bfs.4711".as_ref(), Existing::Refuse)?;
/// writer.flush(&profile, false)?; // every now and then
/// writer.flush(&profile, true)?; // at the end
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ProfileWriter {
    folder: DiskFolder,
    next_generation: u64,
    /// Descriptors that are given up when the profile is written: whatever takes all others while a program runs
    /// leaves these.
    reserved: Vec<File>,
}

/// A file at a time is written or made durable, at the end the folder.
const RESERVED: usize = 2;

/// Descriptors for the next flush, or none where that would take the last ones: what fails then says why.
fn reserve(folder: &DiskFolder) -> Vec<File> {
    let mut found = folder.descriptors(RESERVED + 1);
    if found.len() <= RESERVED {
        return Vec::new();
    }
    found.truncate(RESERVED);
    found
}

impl ProfileWriter {
    fn new(folder: DiskFolder, next_generation: u64) -> Self {
        let reserved = reserve(&folder);
        Self { folder, next_generation, reserved }
    }

    /// Creates the profile's folder, or takes over an existing one as `existing` says.
    ///
    /// # Errors
    /// When something else is there, or the system refuses.
    pub fn create(path: &Path, existing: Existing) -> Result<Self, WriteError> {
        let folder = DiskFolder::new(path);
        match folder.create() {
            Ok(()) => return Ok(Self::new(folder, 1)),
            Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists => {}
            Err(problem) => return Err(WriteError::from_io(path, problem)),
        }
        let names = match folder.list() {
            Ok(names) => names,
            Err(problem) if problem.kind() == io::ErrorKind::NotADirectory => {
                let path = path.to_owned();
                return Err(match existing {
                    Existing::Refuse => WriteError::Exists { path },
                    Existing::Replace => WriteError::NotAProfile { path },
                });
            }
            Err(problem) => return Err(WriteError::from_io(path, problem)),
        };
        if !names.is_empty() && existing == Existing::Refuse {
            return Err(WriteError::Exists { path: path.to_owned() });
        }
        if !names.iter().all(|name| is_ours(name)) {
            return Err(WriteError::NotAProfile { path: path.to_owned() });
        }
        // Those of single processes would be taken for the new profile's.
        processes::remove(path)?;
        let newest = names.iter().filter_map(|name| generation_of(name, &KNOWN_TABLES)).max();
        Ok(Self::new(folder, newest.unwrap_or(0).saturating_add(1)))
    }

    /// Where the profile is.
    pub fn path(&self) -> std::path::PathBuf {
        self.folder.path_of("")
    }

    /// Writes the whole profile; `complete` says that the program has ended and nothing follows. What
    /// was flushed before stays readable until this has succeeded. Cost: linear in the tables; their
    /// files are built in memory, that of the cells beside the others (of a profile that is given behind them).
    ///
    /// # Errors
    /// When the system refuses or the disk is full; the writer may be used again afterwards.
    pub fn flush(&mut self, profile: &Profile, complete: bool) -> Result<(), WriteError> {
        self.flush_next(Cow::Borrowed(profile), complete)
    }

    /// As [`Self::flush`], of a profile that is not needed any more: each table is dropped when it is written, which makes
    /// room for the next.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub fn flush_and_drop(&mut self, profile: Profile, complete: bool) -> Result<(), WriteError> {
        self.flush_next(Cow::Owned(profile), complete)
    }

    fn flush_next(&mut self, profile: Cow<'_, Profile>, complete: bool) -> Result<(), WriteError> {
        let generation = self.next_generation;
        self.next_generation = generation.saturating_add(1);
        self.reserved.clear();
        let result = flush(&self.folder, generation, profile, complete);
        self.reserved = reserve(&self.folder);
        result
    }

    /// Takes back what stands there for the whole: of several processes' profiles it was one's. Theirs are there until
    /// the next flush. Where that fails, what was flushed stays.
    pub fn withdraw(&mut self) {
        // Its tables go with the next flush.
        let _ = self.folder.remove(MANIFEST);
    }
}

/// Whether a name is one that a profile's folder may hold.
fn is_ours(name: &str) -> bool {
    name == MANIFEST
        || name == MANIFEST_NEW
        || name == PROCESSES
        || generation_of(name, &KNOWN_TABLES).is_some()
}

/// Writes a generation. On failure its files are removed as far as possible.
pub(super) fn flush(
    folder: &impl Folder,
    generation: u64,
    profile: Cow<'_, Profile>,
    complete: bool,
) -> Result<(), WriteError> {
    let written = write_generation(folder, generation, profile, complete);
    let stale = |name: &str| match (&written, generation_of(name, &KNOWN_TABLES)) {
        (Ok(()), Some(found)) => found != generation,
        (Err(_), Some(found)) => found == generation,
        (_, None) => name == MANIFEST_NEW,
    };
    // Left-overs do no harm, and a full or failing disk has been reported already.
    for name in folder.list().unwrap_or_default() {
        if stale(&name) {
            let _ = folder.remove(&name);
        }
    }
    written
}

fn write_generation(
    folder: &impl Folder,
    generation: u64,
    profile: Cow<'_, Profile>,
    complete: bool,
) -> Result<(), WriteError> {
    let mut manifest = Manifest {
        format: FORMAT.to_owned(),
        format_version: FORMAT_VERSION,
        memlens_version: env!("CARGO_PKG_VERSION").to_owned(),
        generation,
        complete,
        run: profile.run.clone(),
        machine: profile.machine.clone(),
        attribution: profile.attribution.clone(),
        predictions: profile.predictions.clone(),
        tables: BTreeMap::new(),
    };
    let mut tables = Tables { folder, generation, files: BTreeMap::new() };
    tables.write_all(profile)?;
    manifest.tables = tables.files;
    replace_manifest(folder, &manifest)
}

/// Adds a prediction to a stored profile, in place of one of the same command and machine. The tables, and what a newer
/// memlens may have written beside them, stay as they are; whenever the system dies, the profile is whole.
///
/// # Errors
/// When there is no profile, or the system refuses.
pub fn keep_prediction(path: &Path, prediction: &Prediction) -> Result<(), WriteError> {
    add_prediction(&DiskFolder::new(path), prediction)
}

pub(super) fn add_prediction(folder: &impl Folder, prediction: &Prediction) -> Result<(), WriteError> {
    let content =
        folder.read(MANIFEST).map_err(|problem| WriteError::from_io(&folder.path_of(MANIFEST), problem))?;
    let unfit = |what: String| WriteError::Encode { table: MANIFEST, what };
    let mut document: Value =
        serde_json::from_slice(&content).map_err(|problem| unfit(problem.to_string()))?;
    let new = serde_json::to_value(prediction).map_err(|problem| unfit(problem.to_string()))?;
    let Value::Object(keys) = &mut document else { return Err(unfit("it is no object".to_owned())) };
    let known = keys.entry(PREDICTIONS).or_insert_with(|| Value::Array(Vec::new()));
    let Value::Array(known) = known else { return Err(unfit("its predictions are no list".to_owned())) };
    known.retain(|old| ["command", "machine"].iter().any(|key| old.get(key) != new.get(key)));
    known.push(new);
    replace_manifest(folder, &document)
}

/// Writes `profile.json` beside the one that is there, and puts it in its place.
fn replace_manifest(folder: &impl Folder, document: &impl Serialize) -> Result<(), WriteError> {
    let path = folder.path_of(MANIFEST);
    let text = serde_json::to_vec_pretty(document)
        .map_err(|problem| WriteError::Encode { table: MANIFEST, what: problem.to_string() })?;
    let failed = |problem| WriteError::from_io(&path, problem);
    folder.write(MANIFEST_NEW, &text).map_err(failed)?;
    // The tables must be durable before the manifest that relies on them.
    folder.sync().map_err(failed)?;
    folder.rename(MANIFEST_NEW, MANIFEST).map_err(failed)?;
    folder.sync().map_err(failed)
}

/// A generation in the making.
struct Tables<'a, F> {
    folder: &'a F,
    generation: u64,
    files: BTreeMap<String, TableFile>,
}

impl<F: Folder> Tables<'_, F> {
    /// The largest, which takes as long as the others, beside them; its file comes last. Of a profile that is given, whose tables go as they are
    /// written, behind them, in their room: then more is recorded, and memory counts for more than time.
    fn write_all(&mut self, profile: Cow<'_, Profile>) -> Result<(), WriteError> {
        let is_given = matches!(profile, Cow::Owned(_));
        // The same of a profile that is lent and of one that is given.
        macro_rules! write_each {
            ($profile:expr; $($table:ident)*) => {{
                // What is no table stands in the manifest.
                let Profile { $($table,)* cells, run: _, machine: _, predictions: _, attribution: _ } = $profile;
                let write_others = || {
                    $(self.write($table)?;)*
                    Ok(())
                };
                let encode_cells = || encoded::<Cell>(&cells);
                let (written, content) = match is_given {
                    true => in_turn(write_others, encode_cells),
                    false => beside(write_others, encode_cells),
                };
                written?;
                self.write_file::<Cell>(cells.len(), &content?)
            }};
            ($profile:expr) => {
                write_each!($profile; modules frames stacks objects code patterns object_patterns fields field_uses paths
                    path_cells slices slice_uses threads marks)
            };
        }
        match profile {
            Cow::Borrowed(profile) => write_each!(profile),
            Cow::Owned(profile) => write_each!(profile),
        }
    }

    /// Writes a table's file.
    fn write<R: Row>(&mut self, rows: impl AsRef<[R]>) -> Result<(), WriteError> {
        let rows = rows.as_ref();
        let content = encoded(rows)?;
        self.write_file::<R>(rows.len(), &content)
    }

    /// Writes what a table of so many rows was encoded as.
    fn write_file<R: Row>(&mut self, rows: usize, content: &[u8]) -> Result<(), WriteError> {
        let file = table_file_name(R::TABLE, self.generation);
        self.folder
            .write(&file, content)
            .map_err(|problem| WriteError::from_io(&self.folder.path_of(&file), problem))?;
        let entry = TableFile {
            file,
            rows: rows as u64,
            bytes: content.len() as u64,
            crc32: crc32fast::hash(content),
        };
        self.files.insert(R::TABLE.to_owned(), entry);
        Ok(())
    }
}

fn encoded<R: Row>(rows: &[R]) -> Result<Vec<u8>, WriteError> {
    encode(rows).map_err(|problem| WriteError::Encode { table: R::TABLE, what: problem.to_string() })
}
