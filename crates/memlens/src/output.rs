//! Where a run's profile goes: chosen and created before the program starts.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use memlens_profile::{Existing, ProcessFolder, ProfileWriter};

use crate::failure::Failure;

/// The profile's place.
#[derive(Debug)]
pub struct Output {
    writer: ProfileWriter,
    path: PathBuf,
    /// We made the folder, so we may remove it again.
    is_new: bool,
    /// The name is ours to choose: this, a dot and a process id.
    stem: Option<OsString>,
}

impl Output {
    /// Creates the folder at `wanted`, or `memlens.PROGRAM.PID` in the current folder. The program has
    /// no process id yet, so memlens's own stands in until [`Self::name_after`].
    ///
    /// # Errors
    /// When something is there that must stay, or the place cannot be written.
    pub fn create(wanted: Option<&Path>, program: &OsStr, existing: Existing) -> Result<Self, Failure> {
        let stem = match wanted {
            Some(_) => None,
            None => Some(stem(program)),
        };
        let path = match (wanted, &stem) {
            (Some(path), _) => path.to_owned(),
            (None, stem) => with_process_id(stem.as_deref().unwrap_or_default(), process::id()),
        };
        let is_new = !path.exists();
        let writer = ProfileWriter::create(&path, existing)?;
        Ok(Self { writer, path, is_new, stem })
    }

    /// The place of one process's profile in the profile of several at `profile`.
    ///
    /// # Errors
    /// When the place cannot be written.
    pub fn of_process(profile: &Path, number: u32, process_id: u32) -> Result<Self, Failure> {
        let folder = ProcessFolder::create(profile, number, process_id)?;
        let writer = ProfileWriter::create(&folder.path, Existing::Refuse)?;
        Ok(Self { writer, path: folder.path, is_new: true, stem: None })
    }

    /// Another writer of the same place.
    ///
    /// # Errors
    /// When the place cannot be written.
    pub fn same_place(&self) -> Result<Self, Failure> {
        let writer = ProfileWriter::create(&self.path, Existing::Replace)?;
        Ok(Self { writer, path: self.path.clone(), is_new: self.is_new, stem: None })
    }

    /// Puts the program's process id into a name that is ours to choose. Where that fails, the old name
    /// is as good.
    pub fn name_after(&mut self, process_id: u32) {
        let Some(stem) = self.stem.as_deref().filter(|_| self.is_new) else { return };
        let path = with_process_id(stem, process_id);
        if path.exists() || fs::rename(&self.path, &path).is_err() {
            return;
        }
        self.path = path;
        // The folder is empty, which is no obstacle.
        if let Ok(writer) = ProfileWriter::create(&self.path, Existing::Refuse) {
            self.writer = writer;
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What writes it.
    pub fn writer(&mut self) -> &mut ProfileWriter {
        &mut self.writer
    }

    /// Nothing will be written: an empty folder that we made goes away.
    pub fn discard(self) {
        if self.is_new {
            // `remove_dir` leaves a folder alone that has something in it.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// `memlens.PROGRAM.PID` and a suffix.
pub fn default_name(program: &OsStr, process_id: u32, suffix: &str) -> PathBuf {
    let mut name = with_process_id(&stem(program), process_id).into_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

fn stem(program: &OsStr) -> OsString {
    let mut stem = OsString::from("memlens.");
    stem.push(Path::new(program).file_name().unwrap_or(OsStr::new("program")));
    stem
}

fn with_process_id(stem: &OsStr, process_id: u32) -> PathBuf {
    let mut name = stem.to_owned();
    name.push(format!(".{process_id}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_program() {
        assert_eq!(with_process_id(&stem(OsStr::new("./bin/bfs")), 7), Path::new("memlens.bfs.7"));
        assert_eq!(with_process_id(&stem(OsStr::new("/")), 7), Path::new("memlens.program.7"));
    }

    #[test]
    fn only_an_empty_folder_of_ours_is_discarded() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("new");
        let create = || Output::create(Some(&path), OsStr::new("x"), Existing::Refuse).expect("created");
        create().discard();
        assert!(!path.exists());
        fs::create_dir(&path).expect("created");
        create().discard();
        assert!(path.exists(), "it was there before");
    }
}
