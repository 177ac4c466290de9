//! The few file operations the store needs, behind a trait so that tests can stop between any two.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A flat folder of files. Promises:
///
/// 1. `write` returns only when the whole content would survive a crash of the system; when it fails
///    or is interrupted, the file may have any part of the content.
/// 2. `rename` replaces the target at once: a reader sees the old or the new file.
/// 3. After `sync`, names created, renamed and removed before it survive a crash.
pub(crate) trait Folder {
    /// Writes a new file or replaces one.
    fn write(&self, name: &str, content: &[u8]) -> io::Result<()>;
    /// Gives a file a new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes names durable.
    fn sync(&self) -> io::Result<()>;
    /// A file's content.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// The names in the folder, unordered.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Where a file is, for messages.
    fn path_of(&self, name: &str) -> PathBuf;
}

/// A folder of the file system.
#[derive(Clone, Debug)]
pub(crate) struct DiskFolder {
    path: PathBuf,
}

impl DiskFolder {
    /// Names a folder; touches nothing.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Creates the folder itself.
    pub(crate) fn create(&self) -> io::Result<()> {
        fs::create_dir(&self.path)?;
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        // Not every file system can sync a folder; the profile is none the worse for that.
        if let Ok(parent) = File::open(parent.unwrap_or(Path::new("."))) {
            let _ = parent.sync_all();
        }
        Ok(())
    }
}

impl Folder for DiskFolder {
    fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut file = File::create(self.path.join(name))?;
        file.write_all(content)?;
        file.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        match File::open(&self.path)?.sync_all() {
            // Some network file systems cannot sync folders.
            Err(problem) if problem.kind() == io::ErrorKind::InvalidInput => Ok(()),
            result => result,
        }
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path.join(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn path_of(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.path.clone() } else { self.path.join(name) }
    }
}
