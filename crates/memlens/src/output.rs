//! Where a run's profile goes: chosen and created before the program starts.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;

use memlens_profile::{Existing, ProcessFolder, ProfileWriter};

use crate::failure::{Failure, FailureKind};

/// The profile's place.
#[derive(Debug)]
pub struct Output {
    writer: ProfileWriter,
    path: PathBuf,
    /// We made the folder, so we may remove it again.
    is_new: bool,
    /// The name is ours to choose: this, a dot and a process id.
    stem: Option<OsString>,
    /// Keeps others from recording into the same folder, as long as it is open.
    lock: Option<Arc<File>>,
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
        // Before what is there is touched, and again once the folder is there.
        let mut lock = lock(&path)?;
        let writer = ProfileWriter::create(&path, existing)?;
        if lock.is_none() {
            lock = self::lock(&path)?;
        }
        Ok(Self { writer, path, is_new, stem, lock })
    }

    /// The place of one process's profile in the profile of several at `profile`.
    ///
    /// # Errors
    /// When the place cannot be written.
    pub fn of_process(profile: &Path, number: u32, process_id: u32) -> Result<Self, Failure> {
        let folder = ProcessFolder::create(profile, number, process_id)?;
        let writer = ProfileWriter::create(&folder.path, Existing::Refuse)?;
        Ok(Self { writer, path: folder.path, is_new: true, stem: None, lock: None })
    }

    /// Another writer of the same place.
    ///
    /// # Errors
    /// When the place cannot be written.
    pub fn same_place(&self) -> Result<Self, Failure> {
        let writer = ProfileWriter::create(&self.path, Existing::Replace)?;
        let lock = self.lock.clone();
        Ok(Self { writer, path: self.path.clone(), is_new: self.is_new, stem: None, lock })
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

/// Takes the folder for this process, until the file is closed (flock(2)). `None`: it is not there, or its file system knows no
/// locks, and the profile is none the worse for that.
///
/// # Errors
/// When another process has it.
fn lock(folder: &Path) -> Result<Option<Arc<File>>, Failure> {
    // Of a pipe nobody waits for the other end.
    let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(folder);
    let Ok(file) = file else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => Ok(Some(Arc::new(file))),
        Err(TryLockError::WouldBlock) => {
            let path = folder.display();
            let message = format!(
                "cannot create {path}: another memlens records into it just now; wait for it, or choose another name with --out"
            );
            Err(Failure::new(FailureKind::CannotCreate, message))
        }
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Whether a memlens records into this folder just now.
pub fn is_recorded_into(folder: &Path) -> bool {
    let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(folder);
    // Given back at once: who begins to record in this very moment would be refused.
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
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

    #[test]
    fn two_that_record_at_once_do_not_share_a_folder() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("one");
        let create = |existing| Output::create(Some(&path), OsStr::new("x"), existing);
        let first = create(Existing::Refuse).expect("created");
        for existing in [Existing::Refuse, Existing::Replace] {
            let refused = create(existing).expect_err("the first one has it");
            assert!(refused.to_string().contains("another memlens records into it"), "{refused}");
            assert_eq!(refused.exit_code(), FailureKind::CannotCreate.exit_code());
        }
        let again = first.same_place().expect("the same process");
        drop(first);
        create(Existing::Replace).expect_err("it still has it");
        drop(again);
        create(Existing::Replace).expect("nobody has it");
    }
}
