//! DynamoRIO's libraries and the client, carried in the binary and unpacked when first needed.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs, io};
use thiserror::Error;

include!(concat!(env!("OUT_DIR"), "/payload.rs"));

/// Why the carried libraries could not be put on disk.
#[derive(Debug, Error)]
#[error(
    "cannot unpack the recording engine into {folder}: {source}; \
     set XDG_CACHE_HOME or TMPDIR to a folder with 4 MB of room that allows execution"
)]
pub struct PayloadError {
    folder: PathBuf,
    source: io::Error,
}

/// Where the libraries lie.
#[derive(Clone, Debug)]
pub struct Payload {
    folder: PathBuf,
}

impl Payload {
    /// Finds the libraries unpacked earlier, or unpacks them: into the user's cache folder, or, where
    /// that cannot be written, into the temporary one.
    pub fn unpack() -> Result<Self, PayloadError> {
        let name = format!("exact-{:016x}", CONTENT_HASH);
        let mut result = Err(io::Error::from(io::ErrorKind::NotFound));
        let mut folder = PathBuf::new();
        for parent in candidate_folders() {
            folder = parent.join(&name);
            result = unpack_into(&parent, &folder);
            if result.is_ok() {
                break;
            }
        }
        match result {
            Ok(()) => Ok(Self { folder }),
            Err(source) => Err(PayloadError { folder, source }),
        }
    }

    /// DynamoRIO itself.
    pub fn engine(&self) -> PathBuf {
        self.folder.join("libdynamorio.so")
    }

    /// The client.
    pub fn client(&self) -> PathBuf {
        self.folder.join("libmemlens_exact_client.so")
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
fn unpack_into(parent: &Path, folder: &Path) -> io::Result<()> {
    let is_complete = FILES.iter().all(|(name, bytes)| {
        fs::metadata(folder.join(name)).is_ok_and(|file| file.len() == bytes.len() as u64)
    });
    if is_complete {
        return Ok(());
    }
    fs::create_dir_all(parent)?;
    let scratch = own_folder(parent)?;
    let filled = FILES.iter().try_for_each(|(name, bytes)| {
        let path = scratch.join(name);
        fs::write(&path, bytes)?;
        // The engine is executed as a program.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
    });
    let renamed = filled.and_then(|()| match fs::rename(&scratch, folder) {
        // Somebody else was faster, or an incomplete folder is in the way.
        Err(_) if folder.exists() => {
            FILES.iter().try_for_each(|(name, _)| fs::rename(scratch.join(name), folder.join(name)))
        }
        other => other,
    });
    if scratch.exists() {
        // Best effort: what is left over is only clutter.
        let _ = fs::remove_dir_all(&scratch);
    }
    renamed
}
