//! The few file operations the store needs, behind a trait so that tests can stop between any two.

use std::fs::{self, File};
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// A flat folder of files. Promises:
///
/// 1. When `write` returns, readers see the whole content; when it fails or is interrupted, the file may
///    have any part of it.
/// 2. `rename` replaces the target at once: a reader sees the old or the new file.
/// 3. After `sync`, contents written and names created, renamed and removed before it survive a crash of
///    the system. Before, any part of a content may be lost.
pub(crate) trait Folder {
    /// Writes a new file or replaces one.
    fn write(&self, name: &str, content: &[u8]) -> io::Result<()>;
    /// Gives a file a new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes contents and names durable.
    fn sync(&self) -> io::Result<()>;
    /// A file's content.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// The names in the folder, unordered.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Where a file is, for messages.
    fn path_of(&self, name: &str) -> PathBuf;
}

/// A folder of the file system.
#[derive(Debug)]
pub(crate) struct DiskFolder {
    path: PathBuf,
    /// Names of files whose content may not have reached the disk.
    unsynced: Mutex<Vec<String>>,
}

impl DiskFolder {
    /// Names a folder; touches nothing.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), unsynced: Mutex::default() }
    }

    fn unsynced(&self) -> MutexGuard<'_, Vec<String>> {
        // A list of names is as good after a panic as before.
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many open descriptors of the folder, or fewer if there are no more to be had.
    pub(crate) fn descriptors(&self, count: usize) -> Vec<File> {
        (0..count).map_while(|_| File::open(&self.path).ok()).collect()
    }

    /// Makes the contents of files durable, all at once: the system then commits them together, where one
    /// after the other each waits for a commit of its own. Those
    /// that fail, as for want of a descriptor, are tried again one by one.
    fn sync_contents(&self, names: &[String]) -> io::Result<()> {
        let sync = |name: &String| File::open(self.path.join(name))?.sync_all();
        thread::scope(|scope| {
            let started: Vec<_> = names
                .iter()
                .map(|name| (name, thread::Builder::new().spawn_scoped(scope, || sync(name))))
                .collect();
            let mut left = Vec::new();
            for (name, thread) in started {
                let synced = match thread {
                    Ok(thread) => thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread failed"))),
                    // No thread to be had.
                    Err(_) => sync(name),
                };
                match synced {
                    Ok(()) => {}
                    Err(_) => left.push(name),
                }
            }
            left.into_iter().try_for_each(sync)
        })
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
        self.unsynced().push(name.to_owned());
        file.write_all(content)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        for name in self.unsynced().iter_mut().filter(|name| *name == from) {
            to.clone_into(name);
        }
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.unsynced().retain(|unsynced| unsynced != name);
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        let names = mem::take(&mut *self.unsynced());
        self.sync_contents(&names)?;
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
