//! The placement library and its plan, as memlens sees them.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use memlens_backing::{Backing, BackingReader, process_anonymous};
use memlens_placement::{Frame, HUGE_PAGE_BYTES, MAX_BLOCKS, NO_VARIABLE, Plan};

use crate::choice::{Chosen, Method};
use crate::library::{PlacementError, SharedPlan, prefixed, write_modules};
use crate::trial::Variant;

/// The malloc of glibc 2.35 and newer: its heaps ask for huge pages; and blocks of up to 32 MiB (the largest
/// threshold that it takes) come from them instead of mappings of their own, which would not fill huge pages. With
/// a fixed threshold glibc does not adjust the trimming, so that is set to what it would become
/// (mallopt(3), `M_MMAP_THRESHOLD`; glibc manual, "Memory Allocation Tunables").
const HEAP_TUNABLES: &str = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432:\
                             glibc.malloc.trim_threshold=67108864";

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
    /// Bytes put into reserved pages (hugetlb).
    pub reserved_bytes: u64,
    /// Blocks that were to lie there and found too few pages, or cannot.
    pub unreserved: u64,
    /// How its blocks were backed when most of their memory was resident; None: never seen.
    pub backing: Option<Backing>,
}

/// A plan for some objects, and the library that carries it out.
#[derive(Debug)]
pub struct Placement {
    shared: SharedPlan,
    tunables: &'static str,
    placed: Vec<Placed>,
    whole: Option<Backing>,
}

impl Placement {
    /// Plans some objects. With `places` false they are only noted, so that one sees how they lie without. With
    /// `takes_reserved` blocks go into hugetlb pages as far as there are some.
    ///
    /// # Errors
    /// See [`PlacementError`].
    pub fn new(chosen: &[Chosen], places: bool, takes_reserved: bool) -> Result<Self, PlacementError> {
        let needs_heap = places && chosen.iter().any(|object| object.method == Method::Heap);
        let tunables = if needs_heap { HEAP_TUNABLES } else { "" };
        let shared = SharedPlan::new(|plan| {
            plan.tunables_bytes = tunables.len() as u32;
            plan.own_tunables_bytes =
                std::env::var_os("GLIBC_TUNABLES").map_or(NO_VARIABLE, |own| own.len() as u32);
            plan.takes_reserved = u32::from(takes_reserved);
            fill(plan, chosen, places)
        })?;
        let placed = chosen.iter().map(|object| Placed { id: object.id, ..Placed::default() }).collect();
        Ok(Self { shared, tunables, placed, whole: None })
    }

    /// What a run needs so that the library gets in; the library takes it out of the environment again.
    pub fn variant(&self) -> Variant {
        let mut variant = self.shared.variant();
        if !self.tunables.is_empty() {
            variant.environment.push(prefixed("GLIBC_TUNABLES", self.tunables.as_ref()));
        }
        variant
    }

    /// Looks at how a running process's objects are backed, and keeps the state with the most memory of each.
    pub fn look(&mut self, pid: u32) {
        let mut sums: Vec<Option<Backing>> = vec![None; self.placed.len()];
        let mut reader = BackingReader::new(pid);
        let mut seen = std::collections::HashSet::new();
        let plan = self.shared.plan();
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
                *sums[place].get_or_insert_default() += backing;
            }
        }
        for (placed, sum) in self.placed.iter_mut().zip(sums) {
            keep_larger(&mut placed.backing, sum);
        }
        keep_larger(&mut self.whole, process_anonymous(pid));
    }

    /// What became of each object.
    pub fn placed(&self) -> Vec<Placed> {
        let sites = self.shared.plan().sites();
        let mut placed = self.placed.clone();
        for place in &mut placed {
            if let Some(site) = sites.iter().find(|site| site.object == place.id) {
                place.blocks = site.blocks.load(Ordering::Relaxed);
                place.bytes = site.bytes.load(Ordering::Relaxed);
                place.refused = site.refused.load(Ordering::Relaxed);
                place.reserved_bytes = site.reserved_bytes.load(Ordering::Relaxed);
                place.unreserved = site.unreserved.load(Ordering::Relaxed);
            } else if let Some(variable) =
                self.shared.plan().statics().iter().find(|found| found.object == place.id)
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
        self.shared.plan().processes.load(Ordering::Relaxed)
    }
}

fn keep_larger(kept: &mut Option<Backing>, seen: Option<Backing>) {
    // Later ones win among equals: khugepaged works while the program runs.
    if let Some(seen) = seen.filter(|seen| kept.is_none_or(|kept| seen.resident >= kept.resident)) {
        *kept = Some(seen);
    }
}

fn fill(plan: &mut Plan, chosen: &[Chosen], places: bool) -> Result<(), PlacementError> {
    plan.places = u32::from(places);
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
    write_modules(plan, &paths)
}
