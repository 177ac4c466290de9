//! The library that runs in the target, and the plan that it shares with memlens.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use memlens_payload::{Carried, Payload, PayloadError};
use memlens_placement::{MAGIC, MAX_MODULES, MAX_PATH_BYTES, Plan, VARIABLE, VERSION};
use memmap2::{MmapOptions, MmapRaw};
use thiserror::Error;

use crate::elf::ElfFacts;
use crate::trial::Variant;

include!(concat!(env!("OUT_DIR"), "/payload.rs"));

/// Why a placement cannot be made. Reads after "failed to".
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// The library could not be put on disk.
    #[error(transparent)]
    Unpack(#[from] PayloadError),
    /// `LD_PRELOAD` cannot name its place.
    #[error(
        "preload the placement library from {0}: the dynamic linker splits such a path; set XDG_CACHE_HOME to a \
         folder without spaces and colons in its name"
    )]
    Path(PathBuf),
    /// There is no shared memory for the plan.
    #[error("make the placement's plan: {0}")]
    Plan(io::Error),
    /// A file of the profile cannot be read.
    #[error("read {0}: {1}")]
    File(PathBuf, io::Error),
    /// The detours do not fit into the plan.
    #[error("plan so many detours at a time; choose fewer loads")]
    TooLarge,
    /// A detour cannot be encoded.
    #[error(transparent)]
    Encode(#[from] memlens_prefetch::EncodeError),
    /// The objects lie in too many files.
    #[error("place objects of more than {MAX_MODULES} files at a time; name some with --object")]
    Modules,
}

/// A plan, and the library that carries it out.
#[derive(Debug)]
pub(crate) struct SharedPlan {
    map: MmapRaw,
    file: Arc<File>,
    library: PathBuf,
}

impl SharedPlan {
    /// Unpacks the library, and has a plan written for it.
    pub fn new(write: impl FnOnce(&mut Plan) -> Result<(), PlacementError>) -> Result<Self, PlacementError> {
        let carried = Carried {
            what: "the placement library",
            prefix: "placement",
            content_hash: CONTENT_HASH,
            files: FILES,
        };
        let library = Payload::unpack(&carried)?.file("libmemlens_placement_client.so");
        if library.as_os_str().as_bytes().iter().any(|byte| b": \t\n".contains(byte)) {
            return Err(PlacementError::Path(library));
        }
        let file = shared_file().map_err(PlacementError::Plan)?;
        let map = MmapOptions::new().len(size_of::<Plan>()).map_raw(&file).map_err(PlacementError::Plan)?;
        // SAFETY: a fresh mapping of that size, page-aligned and all zero, which is a valid plan; nobody else has it
        // yet.
        let plan = unsafe { &mut *map.as_mut_ptr().cast::<Plan>() };
        (plan.magic, plan.version) = (MAGIC, VERSION);
        write(plan)?;
        Ok(Self { map, file: Arc::new(file), library })
    }

    pub fn plan(&self) -> &Plan {
        // SAFETY: a mapping of that size; its plain fields are written by nobody any more.
        unsafe { &*self.map.as_ptr().cast::<Plan>() }
    }

    /// What a run needs so that the library gets in; the library takes it out of the environment again.
    pub fn variant(&self) -> Variant {
        let environment = vec![
            prefixed("LD_PRELOAD", self.library.as_os_str()),
            (VARIABLE.into(), self.file.as_raw_fd().to_string().into()),
        ];
        Variant { environment, inherited: Some(self.file.clone()) }
    }
}

/// A variable that is a list, with something put in front of what it holds.
pub(crate) fn prefixed(name: &str, ours: &OsStr) -> (OsString, OsString) {
    let mut list = ours.to_owned();
    if let Some(own) = std::env::var_os(name) {
        list.push(":");
        list.push(own);
    }
    (OsString::from(name), list)
}

fn shared_file() -> io::Result<File> {
    // SAFETY: a constant name; the descriptor is ours alone.
    let file = unsafe {
        let fd = libc::memfd_create(c"memlens-placement".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from_raw_fd(fd)
    };
    file.set_len(size_of::<Plan>() as u64)?;
    Ok(file)
}

/// Writes the plan's modules.
pub(crate) fn write_modules(plan: &mut Plan, paths: &[PathBuf]) -> Result<(), PlacementError> {
    if paths.len() > MAX_MODULES {
        return Err(PlacementError::Modules);
    }
    plan.modules_used = paths.len() as u32;
    for (module, path) in plan.modules.iter_mut().zip(paths) {
        let facts = ElfFacts::of(path).map_err(|error| PlacementError::File(path.clone(), error))?;
        module.first_svma = facts.first_svma;
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() <= MAX_PATH_BYTES {
            module.path[..bytes.len()].copy_from_slice(bytes);
            module.path_bytes = bytes.len() as u32;
        }
    }
    Ok(())
}
