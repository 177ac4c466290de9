//! What a program's page walks would be with objects in huge pages: found by running it once more, kept with the profile.

use serde::{Deserialize, Serialize};

/// What came of one such run. The format of the profile names it `predictions` (`profile.json`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    /// Program and arguments of the run, which may be a smaller one than the profile's; bytes that are no UTF-8 are replaced.
    pub command: Vec<String>,
    /// The machine whose TLBs and paging-structure caches were modelled.
    pub machine: String,
    /// Version of the memlens that modelled it.
    pub memlens_version: String,
    /// When, seconds since 1970-01-01 UTC.
    pub made_unix_seconds: Option<u64>,
    /// What the program returned.
    pub exit_code: u8,
    /// All memory in small pages (4 KiB).
    pub small_pages: PredictedWalks,
    /// Some objects in huge pages (2 MiB), all else in small ones; the last entry has all objects that were chosen.
    pub huge_pages: Vec<PredictedPlacement>,
    /// Everything in huge pages that can be.
    pub all_huge_pages: PredictedWalks,
}

/// Objects in huge pages, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PredictedPlacement {
    /// Numbers of the objects in this profile.
    pub objects: Vec<u32>,
    /// Their names.
    pub names: Vec<String>,
    /// What came of it.
    #[serde(flatten)]
    pub walks: PredictedWalks,
}

/// Page walks of a whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PredictedWalks {
    /// Last-level TLB misses.
    pub page_walks: u64,
    /// Page-table entries that they read.
    pub page_walk_accesses: u64,
    /// Memory that it costs at its most, in bytes.
    pub extra_memory_bytes: u64,
    /// Objects that cause most of them, the first first.
    pub causes: Vec<PredictedCause>,
}

/// An object that causes page walks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PredictedCause {
    /// Its name.
    pub name: String,
    /// Its kind, a word of reports.
    pub kind: String,
    /// Its page walks.
    pub page_walks: u64,
    /// Page-table entries that they read.
    pub page_walk_accesses: u64,
}
