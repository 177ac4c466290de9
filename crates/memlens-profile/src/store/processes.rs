//! The profiles of single processes, inside that of all of them.
//!
//! ```text
//! memlens.make.4711/           the merged profile, once the recording has ended
//!   processes/0001-4711/       a profile each: number in the order of arrival, process id
//!   processes/0002-4712/
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{OpenError, WriteError};

/// The folder of single processes' profiles in a profile's folder.
pub(crate) const PROCESSES: &str = "processes";

/// A process's own profile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessFolder {
    /// Counts program images in the order in which they arrived, from 1.
    pub number: u32,
    /// The process's id. Two images have the same one where a process executed another program.
    pub process_id: u32,
    /// Where its profile is.
    pub path: PathBuf,
}

impl ProcessFolder {
    /// Where, in the profile at `profile`, the profile of a process goes. Makes the folders above it.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn create(profile: &Path, number: u32, process_id: u32) -> Result<Self, WriteError> {
        let folder = profile.join(PROCESSES);
        match fs::create_dir(&folder) {
            Err(problem) if problem.kind() != io::ErrorKind::AlreadyExists => {
                return Err(WriteError::from_io(&folder, problem));
            }
            _ => {}
        }
        let path = folder.join(format!("{number:04}-{process_id}"));
        Ok(Self { number, process_id, path })
    }

    /// The single processes' profiles in the profile at `profile`, by number; none if it has no such
    /// folder. What has another name is passed over.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn list(profile: &Path) -> Result<Vec<Self>, OpenError> {
        let folder = profile.join(PROCESSES);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(problem)
                if matches!(problem.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                return Ok(Vec::new());
            }
            Err(problem) => return Err(OpenError::from_io(&folder, problem)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|problem| OpenError::from_io(&folder, problem))?;
            let name = entry.file_name();
            let parts = name.to_str().and_then(|name| name.split_once('-'));
            let Some((number, process_id)) = parts else { continue };
            if let (Ok(number), Ok(process_id)) = (number.parse(), process_id.parse()) {
                found.push(Self { number, process_id, path: entry.path() });
            }
        }
        found.sort();
        Ok(found)
    }
}

/// Removes the single processes' profiles of a profile about to be replaced.
pub(super) fn remove(profile: &Path) -> Result<(), WriteError> {
    let folder = profile.join(PROCESSES);
    match fs::remove_dir_all(&folder) {
        Err(problem) if problem.kind() != io::ErrorKind::NotFound => {
            Err(WriteError::from_io(&folder, problem))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_found_by_number() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert_eq!(ProcessFolder::list(folder.path()).expect("readable"), []);
        let second = ProcessFolder::create(folder.path(), 2, 77).expect("created");
        let first = ProcessFolder::create(folder.path(), 1, 99).expect("created");
        for place in [&first, &second] {
            fs::create_dir(&place.path).expect("created");
        }
        fs::create_dir(folder.path().join("processes/else")).expect("created");
        assert!(second.path.ends_with("processes/0002-77"));
        assert_eq!(ProcessFolder::list(folder.path()).expect("readable"), [first, second]);
    }
}
