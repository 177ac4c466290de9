//! Exact models of caches, TLBs and page walkers for streams of memory accesses.
//!
//! The crate turns accesses (address, size, kind, core) into misses, page walks, write-backs and
//! invalidations, by position in the caller's batch. It deliberately knows nothing of objects,
//! instructions, files or where the accesses come from. It is `no_std` with `alloc`; the default
//! feature `std` adds TOML descriptions, the host's description and CPU detection.
//!
//! ```text
//!          core 0                core 1 …
//!   ┌──────┬──────┬──────┐
//!   │ L1I  │ L1D  │ dTLB │       private: L1I, L1D, L2, dTLB, STLB, walker
//!   ├──────┴──────┤ STLB │
//!   │     L2      │walker│       the walker's loads go through L1D
//!   └──────┬──────┴──────┘
//!   ┌──────┴──────────────────────────┐
//!   │              LLC                │  shared
//!   └──────┬──────────────────────────┘
//!        memory: lines read (LLC misses), lines written back
//! ```
//!
//! # Accounting rules
//!
//! Those of memlens; those of cachegrind differ and follow below.
//!
//! 1. **An access** is one batch entry: a load, a store, a modify (one access that writes), a
//!    prefetch or an instruction fetch. Sizes are in bytes; 0 counts as 1. String instructions and
//!    gathers are one entry an element; the caller splits them.
//! 2. **Lines.** Each line that an access touches is looked up, in ascending order, and can miss by
//!    itself: an access across a line boundary can stand twice in a list of misses.
//! 3. **Translation.** Before a line of a data access or prefetch is looked up, its page is looked
//!    up in the dTLB and on a miss in the STLB; both then hold it. Fetches are not translated:
//!    there is no instruction TLB. A second-level miss starts a walk of the four-level table
//!    (4 entries for a 4 KiB page, 3 for 2 MiB, 2 for 1 GiB), less the levels that the
//!    paging-structure caches answer: the deepest hit is used. Each entry read is an 8-byte load
//!    through L1D, L2 and LLC that happens before the access. Accessed and dirty bits are not
//!    written. Without an STLB, every dTLB miss counts as a second-level miss too. A TLB replaces
//!    by LRU, or by second chance (`clock`) if it is fully associative with more than 16 entries,
//!    unless its description says otherwise: [`TlbEntries::policy`].
//!    The smallest page has 4 KiB; a machine whose `page_bytes` is another is refused.
//! 4. **Page tables** lie in address ranges of their own, entry n of a level at base + 8n, so that
//!    eight neighbouring pages share a line of entries. Caches are indexed by virtual addresses for
//!    everything else: there is no physical memory map.
//! 5. **Misses.** A data access that misses L1D asks L2, then LLC, then memory. Loads, stores and
//!    prefetches stand in the same lists; the caller tells them apart by the index, and counts a
//!    prefetch's LLC miss as a line read from memory, not as a load or store miss.
//! 6. **Writes** allocate (fetch the line first) and are written back: the line becomes dirty in
//!    L1D. A dirty line that L1D replaces is written to L2 after the request that replaced it:
//!    there it becomes dirty and most recent, or is put in without being fetched. L2 and LLC do the
//!    same; a dirty line that LLC replaces is a **write-back to memory**, reported with its address.
//!    Lines that are dirty at the end count only if [`Model::flush_writebacks`] is called.
//! 7. **Lines read from memory** are the LLC misses of data, prefetches, fetches and walks.
//! 8. **Inclusion.** Non-inclusive: levels replace independently. Inclusive: a line that LLC
//!    replaces leaves all L1s and L2s, and is written back if any copy was dirty. Exclusive: LLC
//!    gets every line that L2 replaces, clean or dirty, and gives a line up when L2 reads it.
//! 9. **Cores** (MESI). A write takes the line from all other cores; each that had it is an
//!    invalidation. A read of a line that is dirty elsewhere makes it clean there and writes it to
//!    LLC; so is a write of one. Both are coherence misses, besides being misses of the first levels. A line that LLC lacks
//!    but another core has comes from that core: no LLC miss. The order
//!    between cores is the order of the calls. A core's own writes do not reach its L1I.
//! 10. **Hardware prefetching** changes no cache and no miss: misses whose lines a stream prefetcher would have asked
//!     for before stand in lists of their own besides. Its rule is that of Intel's streamer, simplified: first-level
//!     misses train it page by page; the second step in the same direction (of the same length, or of at most
//!     two lines) and all further ones are covered, up to the page's end. Machines say how many streams it follows;
//!     none is none.
//! 11. **Not modelled**: whether a prefetched line comes in time and what it drives out, store buffers and write combining, non-temporal
//!     stores, hashed set indices, instruction TLBs, nested page tables, time.
//!
//! ## Rules of cachegrind (`rules = "cachegrind"`)
//!
//! As valgrind 3.19 simulates (`cachegrind/cg_sim.c`): two levels, I1 and D1 over a unified LL, LRU (another policy is refused).
//! An access misses a level once at most, however many lines it touches. LL is asked once, for all
//! bytes of an access that missed the first level. A modify is a read. Data accesses are cut to the
//! smallest line size. No L2, TLBs, write-backs or coherence: those lists stay empty. A test holds
//! the counts against cachegrind's own, to the unit.
//!
//! # Engines and cost
//!
//! [`Model`] picks the fastest engine that gives the exact result:
//!
//! | machine | one core | from the moment a second core appears |
//! |---|---|---|
//! | LRU in all caches, non-inclusive | staged, vector instructions | coherent: takes over the state |
//! | LRU in all caches, inclusive or exclusive | coherent | coherent |
//! | tree-PLRU, RRIP or random in any cache; TLBs but LRU ones of up to 256 (second level 16,384) entries and fully associative clocks of up to 128 | [`PlainModel`] | [`PlainModel`] |
//! | cachegrind's rules | [`CachegrindModel`] | [`CachegrindModel`] |
//!
//! The coherent engine takes the steps of the obvious [`PlainModel`] on faster structures and asks only
//! those cores that may have a line. Memory: about 9 bytes a line of every cache and of what a table
//! of shared lines needs, up to 128 bytes a line of the private caches. Property tests hold the lists of
//! both engines equal to the obvious model's. The staged engine can run on two threads: [`Model::split`]. `cargo bench -p memlens-sim --bench ns_per_reference`
//! tells nanoseconds a reference.
//!
//! # Example
//!
//! ```
//! use memlens_sim::{Batch, CoreId, MachineDescription, Model, Outcome, SimdLevel};
//! use memlens_types::{AccessAttr, AccessKind};
//!
//! # #[cfg(feature = "std")] {
//! let mut machine = MachineDescription::named("e5504")?;
//! machine.apply_override("l1d=32K,8,64")?;
//! let mut model = Model::new(&machine, SimdLevel::detect())?;
//!
//! // 1,024 loads of 8 bytes, one after another: 8 KiB are 128 lines and 2 pages.
//! let addrs: Vec<u64> = (0..1024).map(|at| 0x10000 + 8 * at).collect();
//! let attrs = vec![AccessAttr::new(AccessKind::Load, 8); addrs.len()];
//! let mut out = Outcome::default();
//! model.access(CoreId(0), Batch { addrs: &addrs, attrs: &attrs }, &mut out);
//! assert_eq!(out.l1_misses.len(), 128);
//! assert_eq!(out.dtlb_misses, [0, 512]);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod batch;
mod cachegrind;
mod coherent;
mod fast;
mod halves;
mod machine;
mod model;
mod page_sizes;
mod plain;
mod prefetcher;
mod simd;
mod translator;
mod walker;

pub use batch::{Batch, CoreId, Invalidation, Outcome, Walk};
pub use cachegrind::CachegrindModel;
pub use halves::{LowerHalf, Passage, UpperHalf};
#[cfg(feature = "std")]
pub use machine::MachineError;
pub use machine::{
    CacheDescription, CoreDescription, Inclusion, MachineDescription, ModelError, OverrideError, Policy,
    PrefetcherDescription, Rules, TlbDescription, TlbEntries, WalkerDescription,
};
pub use model::Model;
pub use page_sizes::{PageSize, PageSizes};
pub use plain::PlainModel;
pub use prefetcher::Prefetcher;
pub use simd::{SimdLevel, Width};
pub use translator::{Translation, Translator};
