//! Libraries that run inside a target: built by the build script of the crate that needs them ([`build`]), carried
//! in the memlens binary, and unpacked into a cache folder when first needed ([`Payload`]).
//!
//! It knows nothing of what the libraries do.

pub mod build;

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use thiserror::Error;

/// Why carried libraries could not be put on disk.
#[derive(Debug, Error)]
#[error(
    "cannot unpack {what} into {folder}: {source}; \
     set XDG_CACHE_HOME or TMPDIR to a folder with 4 MB of room that allows execution"
)]
pub struct PayloadError {
    what: &'static str,
    folder: PathBuf,
    source: io::Error,
}

/// Libraries that a binary carries.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// What they are, for messages: `the recording engine`.
    pub what: &'static str,
    /// First part of their folder's name.
    pub prefix: &'static str,
    /// The rest of it: a hash of all names and contents.
    pub content_hash: u64,
    /// Names and contents.
    pub files: &'static [(&'static str, &'static [u8])],
}

/// Where unpacked libraries lie.
#[derive(Clone, Debug)]
pub struct Payload {
    folder: PathBuf,
}

impl Payload {
    /// Finds the libraries unpacked earlier, or unpacks them: into the user's cache folder, or, where that cannot
    /// be written, into the temporary one.
    ///
    /// # Errors
    /// If neither can be written.
    pub fn unpack(carried: &Carried) -> Result<Self, PayloadError> {
        let name = format!("{}-{:016x}", carried.prefix, carried.content_hash);
        let mut result = Err(io::Error::from(io::ErrorKind::NotFound));
        let mut folder = PathBuf::new();
        for parent in candidate_folders() {
            folder = parent.join(&name);
            result = unpack_into(carried.files, &parent, &folder);
            if result.is_ok() {
                break;
            }
        }
        match result {
            Ok(()) => Ok(Self { folder }),
            Err(source) => Err(PayloadError { what: carried.what, folder, source }),
        }
    }

    /// One of the libraries.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn candidate_folders() -> Vec<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    // SAFETY: the call has no preconditions.
    let user = unsafe { libc::geteuid() };
    let temporary = env::temp_dir().join(format!("memlens-{user}"));
    cache.map(|path| path.join("memlens")).into_iter().chain([temporary]).collect()
}

/// A new folder that nobody else writes to: neither other threads nor processes with the same id in
/// another container. Libraries that a target has mapped must never be written to.
fn own_folder(parent: &Path) -> io::Result<PathBuf> {
    let template = parent.join("unpacking-XXXXXX").into_os_string().into_vec();
    let template = CString::new(template)?.into_raw();
    // SAFETY: a zero-terminated string of our own, which `mkdtemp` changes in place; it is taken back
    // once, with its length unchanged.
    let (made, path) = unsafe {
        let made = !libc::mkdtemp(template).is_null();
        (made, CString::from_raw(template))
    };
    if !made {
        return Err(io::Error::last_os_error());
    }
    let path = PathBuf::from(OsString::from_vec(path.into_bytes()));
    // Others may have to use what is unpacked here, if the parent lets them.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Complete or absent: the folder is filled under another name and then renamed.
fn unpack_into(files: &[(&str, &[u8])], parent: &Path, folder: &Path) -> io::Result<()> {
    let is_complete = |(name, bytes): &(&str, &[u8])| {
        fs::metadata(folder.join(name)).is_ok_and(|file| file.len() == bytes.len() as u64)
    };
    if files.iter().all(is_complete) {
        return Ok(());
    }
    fs::create_dir_all(parent)?;
    let scratch = own_folder(parent)?;
    let filled = files.iter().try_for_each(|(name, bytes)| {
        let path = scratch.join(name);
        fs::write(&path, bytes)?;
        // An engine may be executed as a program.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
    });
    let renamed = filled.and_then(|()| match fs::rename(&scratch, folder) {
        // Somebody else was faster, or an incomplete folder is in the way. What is complete stays: programs may run
        // with it, and execute it again by its name.
        Err(_) if folder.exists() => files
            .iter()
            .filter(|file| !is_complete(file))
            .try_for_each(|(name, _)| fs::rename(scratch.join(name), folder.join(name))),
        other => other,
    });
    if scratch.exists() {
        // Best effort: what is left over is only clutter.
        let _ = fs::remove_dir_all(&scratch);
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn files_are_complete_or_made_complete() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let folder = parent.path().join("engine-1");
        let files: &[(&str, &[u8])] = &[("a.so", b"first"), ("b.so", b"second")];
        unpack_into(files, parent.path(), &folder).expect("unpacked");
        // Cut short by a full disk, say.
        fs::write(folder.join("b.so"), b"sec").expect("written");
        unpack_into(files, parent.path(), &folder).expect("unpacked again");
        for (name, bytes) in files {
            assert_eq!(fs::read(folder.join(name)).expect("there"), *bytes);
        }
        assert_eq!(fs::read_dir(parent.path()).expect("readable").count(), 1, "nothing is left over");
    }

    #[test]
    fn of_many_that_unpack_at_once_none_replaces_files_of_another() {
        const THREADS: usize = 8;
        let parent = tempfile::tempdir().expect("a temporary folder");
        let folder = parent.path().join("engine-1");
        let large = vec![7_u8; 1 << 16];
        let files: &[(&str, &[u8])] = &[("a.so", &large), ("b.so", &large)];
        let together = Barrier::new(THREADS);
        let unpacked = || {
            together.wait();
            unpack_into(files, parent.path(), &folder).expect("unpacked");
            fs::metadata(folder.join("a.so")).expect("there").ino()
        };
        let numbers: Vec<u64> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(unpacked)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(numbers.iter().all(|&number| number == numbers[0]), "{numbers:?}");
        assert_eq!(fs::read_dir(parent.path()).expect("readable").count(), 1, "nothing is left over");
    }
}
