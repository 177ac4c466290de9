//! Reads a profile; whatever the files hold, the answer is a profile or a clear error.

use std::io;
use std::path::Path;

use super::columns::Row;
use super::folder::{DiskFolder, Folder};
use super::manifest::{FORMAT, MANIFEST, Manifest, generation_of};
use super::parquet_table::decode;
use super::schema::KNOWN_TABLES;
use super::{FORMAT_VERSION, OpenError};
use crate::Profile;

/// How often a reader starts again because a writer has replaced the generation it was reading.
const ATTEMPTS: u32 = 8;

impl Profile {
    /// Reads a stored profile. Its index types are in range afterwards. A profile whose writer never
    /// finished has [`truncated`](crate::Attribution::truncated) set. Cost: linear in the files.
    ///
    /// # Errors
    /// When there is no profile, or a damaged one, or one of a newer version.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let folder = DiskFolder::new(path);
        let mut tried = None;
        for _ in 1..ATTEMPTS {
            let manifest = read_manifest(&folder)?;
            match read_tables(&folder, &manifest) {
                // Files that vanish while they are read belong to a generation that was just replaced.
                Err(OpenError::Damaged { .. }) if tried != Some(manifest.generation) => {
                    tried = Some(manifest.generation);
                }
                result => return result,
            }
        }
        open(&folder)
    }
}

/// Reads whatever a folder holds.
pub(super) fn open(folder: &impl Folder) -> Result<Profile, OpenError> {
    read_tables(folder, &read_manifest(folder)?)
}

fn read_manifest(folder: &impl Folder) -> Result<Manifest, OpenError> {
    let path = folder.path_of(MANIFEST);
    let content = match folder.read(MANIFEST) {
        Ok(content) => content,
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => {
            let root = folder.path_of("");
            let names = folder.list().map_err(|problem| OpenError::from_io(&root, problem))?;
            let is_begun = names.iter().any(|name| generation_of(name, &KNOWN_TABLES).is_some());
            let why = match names.is_empty() {
                true => {
                    "it is empty: memlens was stopped before it had written anything, or it is none of its folders"
                }
                false if is_begun => "memlens was stopped before it had written anything whole; record again",
                false => "it has no profile.json",
            };
            return Err(OpenError::NotAProfile { path: root, why: why.to_owned() });
        }
        Err(problem) if problem.kind() == io::ErrorKind::NotADirectory => {
            return Err(OpenError::from_io(&folder.path_of(""), problem));
        }
        Err(problem) => return Err(OpenError::from_io(&path, problem)),
    };
    let damaged = |what: String| OpenError::Damaged { file: path.clone(), what };
    let document: serde_json::Value =
        serde_json::from_slice(&content).map_err(|problem| damaged(format!("no JSON: {problem}")))?;
    if document.get("format").and_then(|format| format.as_str()) != Some(FORMAT) {
        let why = "its profile.json is not memlens's".to_owned();
        return Err(OpenError::NotAProfile { path: folder.path_of(""), why });
    }
    // The version comes first: nothing else of a newer document can be relied on.
    let found = document.get("format_version").and_then(|version| version.as_u64());
    let found = found.ok_or_else(|| damaged("format_version is missing".to_owned()))?;
    if found > u64::from(FORMAT_VERSION) {
        let version = document.get("memlens_version").and_then(|version| version.as_str());
        return Err(OpenError::NewerVersion {
            path: folder.path_of(""),
            found,
            memlens_version: version.unwrap_or("of unknown version").to_owned(),
        });
    }
    if found == 0 {
        return Err(OpenError::UnknownVersion { path: folder.path_of(""), found });
    }
    serde_json::from_value(document).map_err(|problem| damaged(problem.to_string()))
}

fn read_tables(folder: &impl Folder, manifest: &Manifest) -> Result<Profile, OpenError> {
    let tables = Tables { folder, manifest };
    let mut profile = Profile {
        run: manifest.run.clone(),
        machine: manifest.machine.clone(),
        modules: tables.read()?,
        frames: tables.read()?,
        stacks: tables.read()?,
        objects: tables.read()?,
        code: tables.read()?,
        cells: tables.read()?,
        patterns: tables.read()?,
        object_patterns: tables.read()?,
        fields: tables.read()?,
        field_uses: tables.read()?,
        paths: tables.read()?,
        path_cells: tables.read()?,
        slices: tables.read()?,
        slice_uses: tables.read()?,
        threads: tables.read()?,
        marks: tables.read()?,
        predictions: manifest.predictions.clone(),
        attribution: manifest.attribution.clone(),
    };
    profile.attribution.truncated |= !manifest.complete;
    profile
        .validate_references()
        .and_then(|()| profile.validate_counts())
        .map_err(|problem| OpenError::Damaged { file: folder.path_of(""), what: problem.to_string() })?;
    Ok(profile)
}

struct Tables<'a, F> {
    folder: &'a F,
    manifest: &'a Manifest,
}

impl<F: Folder> Tables<'_, F> {
    fn read<R: Row>(&self) -> Result<Vec<R>, OpenError> {
        let Some(entry) = self.manifest.tables.get(R::TABLE) else {
            if R::IS_OPTIONAL {
                return Ok(Vec::new());
            }
            let what = format!("it names no file for the table {}", R::TABLE);
            return Err(OpenError::Damaged { file: self.folder.path_of(MANIFEST), what });
        };
        // A damaged or hostile manifest must not lead out of the folder.
        if generation_of(&entry.file, &KNOWN_TABLES).is_none() {
            let what = format!("‘{}’ is no name of a table's file", entry.file);
            return Err(OpenError::Damaged { file: self.folder.path_of(MANIFEST), what });
        }
        let file = self.folder.path_of(&entry.file);
        let damaged = |what: String| OpenError::Damaged { file: file.clone(), what };
        let content = match self.folder.read(&entry.file) {
            Ok(content) => content,
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => {
                return Err(damaged("the file is missing".to_owned()));
            }
            Err(problem) => return Err(OpenError::from_io(&file, problem)),
        };
        let (found, expected) = (content.len() as u64, entry.bytes);
        if found < expected {
            return Err(damaged(format!("it ends at byte {found} of {expected}")));
        }
        if found > expected {
            return Err(damaged(format!("it has {found} bytes instead of {expected}")));
        }
        if crc32fast::hash(&content) != entry.crc32 {
            return Err(damaged("its content does not match its checksum".to_owned()));
        }
        let rows = decode::<R>(content, entry.rows).map_err(damaged)?;
        if rows.len() as u64 != entry.rows {
            return Err(damaged(format!("it has {} rows instead of {}", rows.len(), entry.rows)));
        }
        Ok(rows)
    }
}
