//! The placement library and its plan, as memlens sees them.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use memlens_payload::{Carried, Payload, PayloadError};
use memlens_placement::{
    Frame, HUGE_PAGE_BYTES, MAGIC, MAX_BLOCKS, MAX_MODULES, MAX_PATH_BYTES, NO_VARIABLE, Plan, VARIABLE,
    VERSION,
};
use memmap2::{MmapOptions, MmapRaw};
use thiserror::Error;

use crate::backing::{Backing, BackingReader, process_anonymous};
use crate::choice::{Chosen, Method};
use crate::elf::ElfFacts;
use crate::trial::Variant;

include!(concat!(env!("OUT_DIR"), "/payload.rs"));

/// The malloc of glibc 2.35 and newer: its heaps ask for huge pages; and blocks of up to 32 MiB (the largest
/// threshold that it takes) come from them instead of mappings of their own, which would not fill huge pages. With
/// a fixed threshold glibc does not adjust the trimming, so that is set to what it would become
/// (mallopt(3), `M_MMAP_THRESHOLD`; glibc manual, "Memory Allocation Tunables").
const HEAP_TUNABLES: &str = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432:\
                             glibc.malloc.trim_threshold=67108864";

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
    /// The objects lie in too many files.
    #[error("place objects of more than {MAX_MODULES} files at a time; name some with --object")]
    Modules,
}

/// What became of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Its number in the profile.
    pub id: u32,
    /// Blocks of at least a huge page that were placed, or would have been.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that the kernel refused to place.
    pub refused: u64,
    /// How its blocks were backed when most of their memory was resident; None: never seen.
    pub backing: Option<Backing>,
}

/// A plan for some objects, and the library that carries it out.
#[derive(Debug)]
pub struct Placement {
    map: MmapRaw,
    file: Arc<File>,
    library: PathBuf,
    tunables: &'static str,
    placed: Vec<Placed>,
    whole: Option<Backing>,
}

impl Placement {
    /// Plans some objects. With `places` false they are only noted, so that one sees how they lie without.
    ///
    /// # Errors
    /// See [`PlacementError`].
    pub fn new(chosen: &[Chosen], places: bool) -> Result<Self, PlacementError> {
        let carried = Carried {
            what: "the placement library",
            prefix: "placement",
            content_hash: CONTENT_HASH,
            files: FILES,
        };
        let library = Payload::unpack(&carried)?.file(FILES[0].0);
        if library.as_os_str().as_bytes().iter().any(|byte| b": \t\n".contains(byte)) {
            return Err(PlacementError::Path(library));
        }
        let file = shared_file().map_err(PlacementError::Plan)?;
        let map = MmapOptions::new().len(size_of::<Plan>()).map_raw(&file).map_err(PlacementError::Plan)?;
        let needs_heap = places && chosen.iter().any(|object| object.method == Method::Heap);
        let tunables = if needs_heap { HEAP_TUNABLES } else { "" };
        // SAFETY: a fresh mapping of that size, page-aligned and all zero, which is a valid plan; nobody else has it
        // yet.
        let plan = unsafe { &mut *map.as_mut_ptr().cast::<Plan>() };
        fill(plan, chosen, places)?;
        plan.tunables_bytes = tunables.len() as u32;
        plan.own_tunables_bytes =
            std::env::var_os("GLIBC_TUNABLES").map_or(NO_VARIABLE, |own| own.len() as u32);
        let placed = chosen.iter().map(|object| Placed { id: object.id, ..Placed::default() }).collect();
        Ok(Self { map, file: Arc::new(file), library, tunables, placed, whole: None })
    }

    fn plan(&self) -> &Plan {
        // SAFETY: a mapping of that size; its plain fields are written by nobody any more.
        unsafe { &*self.map.as_ptr().cast::<Plan>() }
    }

    /// What a run needs so that the library gets in; the library takes it out of the environment again.
    pub fn variant(&self) -> Variant {
        let prefixed = |name: &str, ours: &std::ffi::OsStr| {
            let mut list = ours.to_owned();
            if let Some(own) = std::env::var_os(name) {
                list.push(":");
                list.push(own);
            }
            (OsString::from(name), list)
        };
        let mut environment = vec![
            prefixed("LD_PRELOAD", self.library.as_os_str()),
            (VARIABLE.into(), self.file.as_raw_fd().to_string().into()),
        ];
        if !self.tunables.is_empty() {
            environment.push(prefixed("GLIBC_TUNABLES", self.tunables.as_ref()));
        }
        Variant { environment, inherited: Some(self.file.clone()) }
    }

    /// Looks at how a running process's objects are backed, and keeps the state with the most memory of each.
    pub fn look(&mut self, pid: u32) {
        let mut sums: Vec<Option<Backing>> = vec![None; self.placed.len()];
        let mut reader = BackingReader::new(pid);
        let mut seen = std::collections::HashSet::new();
        let plan = self.plan();
        let noted = plan.noted.load(Ordering::Acquire) as usize;
        // The newest first: an older block at the same address is gone.
        for at in (noted.saturating_sub(MAX_BLOCKS)..noted).rev() {
            let block = &plan.blocks[at % MAX_BLOCKS];
            let bytes = block.bytes.load(Ordering::Acquire);
            let (start, process) =
                (block.start.load(Ordering::Relaxed), block.process.load(Ordering::Relaxed));
            if bytes == 0 || process != pid || !seen.insert(start) {
                continue;
            }
            let object = block.object.load(Ordering::Relaxed);
            let place = self.placed.iter().position(|placed| placed.id == object);
            if let (Some(place), Some(backing)) = (place, reader.range(start, bytes)) {
                let sum = sums[place].get_or_insert_default();
                sum.resident += backing.resident;
                sum.huge += backing.huge;
            }
        }
        for (placed, sum) in self.placed.iter_mut().zip(sums) {
            keep_larger(&mut placed.backing, sum);
        }
        keep_larger(&mut self.whole, process_anonymous(pid));
    }

    /// What became of each object.
    pub fn placed(&self) -> Vec<Placed> {
        let sites = self.plan().sites();
        let mut placed = self.placed.clone();
        for place in &mut placed {
            if let Some(site) = sites.iter().find(|site| site.object == place.id) {
                place.blocks = site.blocks.load(Ordering::Relaxed);
                place.bytes = site.bytes.load(Ordering::Relaxed);
                place.refused = site.refused.load(Ordering::Relaxed);
            } else if let Some(variable) = self.plan().statics().iter().find(|found| found.object == place.id)
            {
                (place.blocks, place.bytes) = (1, variable.bytes);
            }
        }
        placed
    }

    /// How the process's anonymous memory as a whole was backed when most of it was resident.
    pub fn whole(&self) -> Option<Backing> {
        self.whole
    }

    /// In how many processes the library has been at work.
    pub fn processes(&self) -> u32 {
        self.plan().processes.load(Ordering::Relaxed)
    }
}

fn keep_larger(kept: &mut Option<Backing>, seen: Option<Backing>) {
    // Later ones win among equals: khugepaged works while the program runs.
    if let Some(seen) = seen.filter(|seen| kept.is_none_or(|kept| seen.resident >= kept.resident)) {
        *kept = Some(seen);
    }
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

fn fill(plan: &mut Plan, chosen: &[Chosen], places: bool) -> Result<(), PlacementError> {
    (plan.magic, plan.version, plan.places) = (MAGIC, VERSION, u32::from(places));
    plan.least_bytes = HUGE_PAGE_BYTES;
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut number = |path: &Path| match paths.iter().position(|known| known == path) {
        Some(known) => known as u32,
        None => {
            paths.push(path.to_owned());
            (paths.len() - 1) as u32
        }
    };
    for object in chosen {
        if let Method::Variable { module, svma, bytes } = &object.method {
            let entry = &mut plan.statics[plan.statics_used as usize];
            (entry.module, entry.object) = (number(module), object.id);
            (entry.svma, entry.bytes) = (*svma, *bytes);
            plan.statics_used += 1;
            continue;
        }
        let entry = &mut plan.sites[plan.sites_used as usize];
        entry.object = object.id;
        entry.frames_used = object.frames.len() as u32;
        for (frame, (path, offset)) in entry.frames.iter_mut().zip(&object.frames) {
            *frame = Frame { module: number(path), offset: *offset, ..Frame::default() };
        }
        plan.sites_used += 1;
    }
    if paths.len() > MAX_MODULES {
        return Err(PlacementError::Modules);
    }
    plan.modules_used = paths.len() as u32;
    for (module, path) in plan.modules.iter_mut().zip(&paths) {
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
