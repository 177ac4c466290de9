//! Address translation alone: TLBs and paging-structure caches, for callers that have page tables of their
//! own.

use crate::batch::CoreId;
use crate::machine::{MachineDescription, ModelError};
use crate::page_sizes::PageSize;
use crate::plain::{Cache, Line, tlb};
use crate::walker::PageWalker;
use alloc::vec::Vec;

/// Address spaces that can be told apart: their number is put above the 48-bit virtual address, below
/// bit 57, where the walker cuts addresses.
const ADDRESS_SPACES: u64 = 1 << 9;
const VIRTUAL_BITS: u32 = 48;

/// What translating one address took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Translation {
    /// The first-level TLB missed.
    pub dtlb_miss: bool,
    /// The second-level TLB missed, too, or there is none.
    pub stlb_miss: bool,
    /// Page-table entries that the walk reads: this many levels, the leaf last. 0 without a walk.
    pub entries_read: u8,
}

#[derive(Clone, Debug)]
struct CoreState {
    id: CoreId,
    /// Address space, page number and size of the last translation: asking again changes nothing.
    last: Option<(u64, PageSize)>,
    dtlb: [Option<Cache>; 3],
    stlb: [Option<Cache>; 3],
    walker: Option<PageWalker>,
}

/// The TLBs and page walkers of a machine's cores, without its caches.
///
/// [`Model`](crate::Model) keeps page tables in address ranges of its own. Whoever models where tables
/// lie (in frames of physical memory, some of them uncached) asks this instead which entries a walk reads,
/// and sends those reads through a model of the caches itself. The rules are those of the crate
/// (translation, rule 3); a property test holds the two equal.
///
/// Cost: some ns for the page asked for last on a core, 20 to 60 ns otherwise.
#[derive(Clone, Debug)]
pub struct Translator {
    machine: MachineDescription,
    cores: Vec<CoreState>,
}

impl Translator {
    /// Empty TLBs.
    ///
    /// # Errors
    /// If the description is not valid.
    pub fn new(machine: &MachineDescription) -> Result<Self, ModelError> {
        machine.validate()?;
        Ok(Self { machine: machine.clone(), cores: Vec::new() })
    }

    /// Translates an address of an address space on a core, on a page of this size.
    pub fn translate(&mut self, core: CoreId, space: u32, vaddr: u64, size: PageSize) -> Translation {
        let tagged = tagged(space, vaddr);
        let page = tagged >> size.shift();
        let at = self.position_of(core);
        let state = &mut self.cores[at];
        if self.machine.dtlb.is_none() || state.last == Some((page, size)) {
            return Translation::default();
        }
        state.last = Some((page, size));
        let entry = Line { line: page, dirty: false, sole: true };
        let hit = |tlb: &mut Option<Cache>| {
            let Some(tlb) = tlb else { return false };
            let found = tlb.lookup(page).is_some();
            if !found {
                tlb.fill(entry);
            }
            found
        };
        if hit(&mut state.dtlb[size as usize]) {
            return Translation::default();
        }
        if hit(&mut state.stlb[size as usize]) {
            return Translation { dtlb_miss: true, ..Translation::default() };
        }
        let walker = state.walker.as_mut();
        let entries_read = walker.map_or(0, |walker| walker.walk(tagged, size).as_slice().len() as u8);
        Translation { dtlb_miss: true, stlb_miss: true, entries_read }
    }

    /// The page is no longer mapped, or differently: no TLB may hold it (`invlpg`, on all cores).
    pub fn invalidate(&mut self, space: u32, vaddr: u64, size: PageSize) {
        let page = tagged(space, vaddr) >> size.shift();
        for state in &mut self.cores {
            state.last = None;
            for tlb in [&mut state.dtlb[size as usize], &mut state.stlb[size as usize]].into_iter().flatten()
            {
                tlb.remove(page);
            }
        }
    }

    fn position_of(&mut self, core: CoreId) -> usize {
        self.cores.iter().position(|state| state.id == core).unwrap_or_else(|| {
            self.cores.push(CoreState {
                id: core,
                last: None,
                dtlb: tlb(self.machine.dtlb.as_ref()),
                stlb: tlb(self.machine.stlb.as_ref()),
                walker: PageWalker::new(&self.machine.walker),
            });
            self.cores.len() - 1
        })
    }
}

fn tagged(space: u32, vaddr: u64) -> u64 {
    (vaddr & ((1 << VIRTUAL_BITS) - 1)) | (u64::from(space) % ADDRESS_SPACES) << VIRTUAL_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Batch, Outcome};
    use crate::plain::PlainModel;
    use memlens_types::{AccessAttr, AccessKind};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        /// The obvious model, whose tables lie elsewhere, walks for the same addresses, as deep.
        #[test]
        fn it_walks_when_the_obvious_model_does(
            name in prop::sample::select(alloc::vec!["e5504", "e5-2620v2", "amd-zen4"]),
            pages in prop::collection::vec((0_u64..3000, 0_u64..3), 1..1500),
        ) {
            let machine = MachineDescription::named(name).expect("shipped");
            let mut model = PlainModel::new(&machine).expect("valid");
            let mut translator = Translator::new(&machine).expect("valid");
            // Half of a gigabyte in large pages, the rest in small ones.
            let large = 0x4000_0000_u64..0x6000_0000;
            model.set_page_size(large.clone(), PageSize::Size2M);
            for (page, region) in pages {
                let addr = 0x3ff0_0000 + (region << 28) + page * 4096;
                let size = if large.contains(&addr) { PageSize::Size2M } else { PageSize::Size4K };
                let mut out = Outcome::default();
                let attrs = [AccessAttr::new(AccessKind::Load, 8)];
                model.access(CoreId(0), Batch { addrs: &[addr], attrs: &attrs }, &mut out);
                let found = translator.translate(CoreId(0), 0, addr, size);
                let entries_read = out.walks.first().map_or(0, |walk| walk.entries_read);
                let expected = Translation {
                    dtlb_miss: !out.dtlb_misses.is_empty(),
                    stlb_miss: !out.stlb_misses.is_empty(),
                    entries_read,
                };
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn spaces_are_apart_and_invalidated_pages_are_walked_again() {
        let machine = MachineDescription::named("e5504").expect("shipped");
        let mut translator = Translator::new(&machine).expect("valid");
        let mut reads = |space| translator.translate(CoreId(0), space, 0x5000, PageSize::Size4K).entries_read;
        // Space 1 has no structure in the walker's caches that space 0 has.
        assert_eq!((reads(0), reads(1), reads(0), reads(1)), (4, 4, 0, 0));
        translator.invalidate(1, 0x5000, PageSize::Size4K);
        let mut reads = |space| translator.translate(CoreId(0), space, 0x5000, PageSize::Size4K).entries_read;
        // The structures above the leaf are still cached.
        assert_eq!((reads(0), reads(1)), (0, 1));
    }
}
