//! Prefetches put into a program: the plan for the library that runs in it.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use memlens_placement::{MAX_CODE_BYTES, MAX_DISPLACED_BYTES, MAX_PATCHES, MAX_RELOCATIONS, Plan, state};
use memlens_prefetch::TRAMPOLINE_GAP;

use crate::library::{PlacementError, SharedPlan, write_modules};
use crate::prefetch_choice::Group;
use crate::trial::Variant;

/// Detours begin at multiples of it.
const ALIGNMENT: u64 = 16;

/// What became of a detour in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It is in place.
    Yes,
    /// Its module was not loaded.
    NotLoaded,
    /// Its module was not loaded at the start, and later loads could not be noticed.
    NotNoticed,
    /// Other code was there.
    OtherCode,
    /// There was no free memory within 2 GiB.
    NoMemory,
    /// The kernel does not let code be changed.
    Forbidden,
    /// The program had threads before its `main`.
    Threads,
    /// In a running process: the jump would be in two pages, and could not be written at once.
    PageEnd,
    /// In a running process: it handles signals, and has too much memory to look through for places where a handler left it.
    TooMuchMemory,
    /// In a running process: its language moves the places of interrupted threads to where they are not found.
    MovingThreads,
}

impl Applied {
    /// Why it is not in place; `None`: it is.
    pub fn reason(self) -> Option<&'static str> {
        Some(match self {
            Self::Yes => return None,
            Self::NotLoaded => "its file was not loaded",
            Self::NotNoticed => {
                "its file is loaded while the program runs, which this dynamic linker gives no notice of"
            }
            Self::OtherCode => "other code is there than in the file",
            Self::NoMemory => "no memory is free within 2 GiB of it",
            Self::Forbidden => "the kernel does not let its code be changed",
            Self::Threads => "the program has threads before its main function begins",
            Self::PageEnd => "its jump would lie in two pages of code, and cannot be written at once",
            Self::TooMuchMemory => {
                "the process handles signals, and has too much memory to be sure that no handler comes back into the jump"
            }
            Self::MovingThreads => {
                "Go moves the stacks of interrupted threads, so it is not known whether one comes back to that place"
            }
        })
    }
}

/// A plan of prefetches.
#[derive(Debug)]
pub struct Prefetching {
    shared: SharedPlan,
}

impl Prefetching {
    /// Plans prefetches of some groups, `distance` iterations ahead.
    ///
    /// # Errors
    /// See [`PlacementError`].
    pub fn new(groups: &[&Group], distance: u32) -> Result<Self, PlacementError> {
        Ok(Self { shared: SharedPlan::new(|plan| fill(plan, groups, distance))? })
    }

    /// What a run needs so that the prefetches get in.
    pub fn variant(&self) -> Variant {
        self.shared.variant()
    }

    /// What became of each group.
    pub fn applied(&self) -> Vec<Applied> {
        let plan = self.shared.plan();
        let notices = plan.notices_libraries.load(Ordering::Relaxed) == 1;
        let patches = plan.patches().iter();
        patches
            .map(|patch| match patch.state.load(Ordering::Relaxed) {
                state::APPLIED => Applied::Yes,
                state::OTHER_CODE => Applied::OtherCode,
                state::NO_MEMORY => Applied::NoMemory,
                state::FORBIDDEN => Applied::Forbidden,
                state::THREADS => Applied::Threads,
                _ if notices => Applied::NotLoaded,
                _ => Applied::NotNoticed,
            })
            .collect()
    }

    /// Jumps to detours that were written, in all processes together.
    pub fn jumps_written(&self) -> u32 {
        self.shared.plan().jumps_written.load(Ordering::Relaxed)
    }

    /// In how many processes the library has been at work.
    pub fn processes(&self) -> u32 {
        self.shared.plan().processes.load(Ordering::Relaxed)
    }
}

fn fill(plan: &mut Plan, groups: &[&Group], distance: u32) -> Result<(), PlacementError> {
    if groups.len() > MAX_PATCHES {
        return Err(PlacementError::TooLarge);
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    for group in groups {
        if !paths.contains(&group.module) {
            paths.push(group.module.clone());
        }
    }
    write_modules(plan, &paths)?;
    plan.patches_used = groups.len() as u32;
    let (mut used, mut relocations) = (0_usize, 0_usize);
    for (module, path) in paths.iter().enumerate() {
        let (start, first) = (used, relocations);
        let mut svma = 0;
        for (group, patch) in groups.iter().zip(&mut plan.patches) {
            if group.module != *path {
                continue;
            }
            svma = group.module_end.next_multiple_of(ALIGNMENT) + TRAMPOLINE_GAP;
            let at = used - start;
            let moved = group.detour.encode(distance, svma + at as u64)?;
            let code = plan.code.get_mut(used..used + moved.bytes.len()).ok_or(PlacementError::TooLarge)?;
            code.copy_from_slice(&moved.bytes);
            for relocation in moved.relocations {
                *plan.relocations.get_mut(relocations).ok_or(PlacementError::TooLarge)? =
                    at as u32 + relocation;
                relocations += 1;
            }
            let displaced = &group.detour.displaced;
            patch
                .displaced
                .get_mut(..displaced.len())
                .ok_or(PlacementError::TooLarge)?
                .copy_from_slice(displaced);
            patch.displaced_bytes = displaced.len() as u32;
            (patch.module, patch.svma, patch.target) = (module as u32, group.detour.address, at as u32);
            used = (used + moved.bytes.len()).next_multiple_of(ALIGNMENT as usize);
        }
        let entry = &mut plan.codes[module];
        (entry.module, entry.svma, entry.start) = (module as u32, svma, start as u32);
        entry.bytes = (used.min(MAX_CODE_BYTES) - start) as u32;
        (entry.relocations_start, entry.relocations) = (first as u32, (relocations - first) as u32);
        plan.codes_used += 1;
    }
    debug_assert!(relocations <= MAX_RELOCATIONS && MAX_DISPLACED_BYTES >= 6 * 15);
    Ok(())
}
