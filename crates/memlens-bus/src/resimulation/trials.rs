//! The same accesses through several translations at once, which differ in what lies in huge pages.

use super::placed::{Layer, PlacedMemory};
use memlens_sim::{CoreId, MachineDescription, ModelError, PageSize, Translator};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// A set of groups of memory, as bits: what a trial puts into huge pages, or which trials a piece of memory concerns.
pub type Groups = u64;

/// What one object's translations took in a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkCounts {
    /// Last-level TLB misses: page walks.
    pub walks: u64,
    /// Page-table entries that they read.
    pub entries: u64,
}

/// A translation in which some groups of memory lie in huge pages.
struct Trial {
    groups: Groups,
    translator: Translator,
    /// By object.
    counts: FxHashMap<u32, WalkCounts>,
}

/// Where a core was last: nothing changes in any trial as long as it stays there.
#[derive(Clone, Debug, Default)]
struct LastPage {
    space: u32,
    bounds: Range<u64>,
}

/// Several translations of the same accesses.
pub(super) struct Trials {
    trials: Vec<Trial>,
    memory: PlacedMemory,
    cores: Vec<LastPage>,
}

impl Trials {
    /// A trial for each set of groups.
    pub fn new(machine: &MachineDescription, groups: &[Groups]) -> Result<Self, ModelError> {
        let trial = |&groups: &Groups| {
            Ok(Trial { groups, translator: Translator::new(machine)?, counts: FxHashMap::default() })
        };
        Ok(Self {
            trials: groups.iter().map(trial).collect::<Result<_, _>>()?,
            memory: PlacedMemory::new(groups),
            cores: Vec::new(),
        })
    }

    /// The memory that can lie in huge pages. What it says of an address may differ afterwards.
    pub fn memory(&mut self) -> &mut PlacedMemory {
        self.cores.iter_mut().for_each(|last| *last = LastPage::default());
        &mut self.memory
    }

    /// A block ends, if it can lie in huge pages.
    pub fn end_block(&mut self, space: u32, start: u64) {
        if self.memory.has_block(space, start) {
            self.memory().end(Layer::Block, space, start);
        }
    }

    /// An access to a byte. `object` says whose it is: asked at most once, and only if a walk follows.
    #[inline]
    pub fn access(&mut self, core: CoreId, space: u32, vaddr: u64, object: impl FnOnce() -> u32) {
        let at = usize::from(core.0);
        match self.cores.get(at) {
            Some(last) if last.space == space && last.bounds.contains(&vaddr) => {}
            _ => self.enter_page(core, space, vaddr, object),
        }
    }

    fn enter_page(&mut self, core: CoreId, space: u32, vaddr: u64, object: impl FnOnce() -> u32) {
        let at = usize::from(core.0);
        if self.cores.len() <= at {
            self.cores.resize(at + 1, LastPage::default());
        }
        let page = vaddr & !0xfff;
        let (placed, bounds) = self.memory.touch(space, vaddr);
        let bounds = bounds.start.max(page)..bounds.end.min(page.saturating_add(4096));
        self.cores[at] = LastPage { space, bounds };
        let (mut object, mut known) = (Some(object), None);
        for trial in &mut self.trials {
            let (addr, size) = match placed {
                Some(placed) if placed.groups & trial.groups != 0 => (placed.addr, PageSize::Size2M),
                _ => (vaddr, PageSize::Size4K),
            };
            let took = trial.translator.translate(core, space, addr, size);
            if took.stlb_miss {
                if let Some(object) = object.take() {
                    known = Some(object());
                }
                let counts = trial.counts.entry(known.unwrap_or(0)).or_default();
                counts.walks += 1;
                counts.entries += u64::from(took.entries_read);
            }
        }
    }

    /// What each trial took, by object, and the memory that its huge pages cost, in bytes.
    pub fn finish(self) -> impl Iterator<Item = (FxHashMap<u32, WalkCounts>, u64)> {
        let costs = self.memory.costs();
        self.trials.into_iter().map(|trial| trial.counts).zip(costs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const CORE: CoreId = CoreId(0);

    /// The e5504: 64 entries of 4 KiB in the first level, 512 in the second; 32 of 2 MiB in the first, none in the
    /// second. 1,024 pages in turns miss always in 4 KiB; in 2 MiB they are two pages, which miss once each.
    #[test]
    fn walks_are_those_derived_by_hand() {
        let machine = MachineDescription::named("e5504").expect("shipped");
        let mut trials = Trials::new(&machine, &[0, 1, 2, 3]).expect("valid");
        // Two blocks of 4 MiB that begin in the midst of pages, and one that stays.
        let start = [0x7000_0000_0010, 0x7100_0000_0010, 0x7200_0000_0010];
        trials.memory().begin(Layer::Block, 1, start[0]..start[0] + 4 * MIB, 1, true);
        trials.memory().begin(Layer::Block, 1, start[1]..start[1] + 4 * MIB, 2, true);
        let rounds = 3;
        for _ in 0..rounds {
            for (object, start) in (1..).zip(start) {
                (0..1024).for_each(|page| trials.access(CORE, 1, start + page * 4096, || object));
            }
        }
        let found: Vec<_> = trials.finish().collect();
        let walks =
            |trial: usize| [1, 2, 3].map(|object| found[trial].0.get(&object).map_or(0, |it| it.walks));
        assert_eq!(walks(0), [rounds * 1024; 3], "small pages");
        assert_eq!(walks(1), [2, rounds * 1024, rounds * 1024], "the first in huge pages");
        assert_eq!(walks(2), [rounds * 1024, 2, rounds * 1024]);
        assert_eq!(walks(3), [2, 2, rounds * 1024]);
        // Each of the two walks of a huge page reads three levels at most; of a small page one level, once the
        // structures above are known.
        assert!(found[3].0[&1].entries <= 6, "{:?}", found[3].0[&1]);
        // All of each block was touched: nothing more than the small pages of 4 MiB.
        assert_eq!(found.iter().map(|(_, cost)| *cost).collect::<Vec<_>>(), [0; 4]);
    }

    #[test]
    fn what_is_not_touched_costs_memory() {
        let machine = MachineDescription::named("e5504").expect("shipped");
        let mut trials = Trials::new(&machine, &[0, 1]).expect("valid");
        let start = 0x7000_0000_0000;
        for _ in 0..3 {
            trials.memory().begin(Layer::Block, 1, start..start + 5 * MIB, 1, true);
            // One small page of the first huge page, two of the last, which is one MiB of the block.
            for addr in [start, start + 8, start + 4 * MIB, start + 5 * MIB - 8] {
                trials.access(CORE, 1, addr, || 1);
            }
            trials.memory().end(Layer::Block, 1, start);
        }
        let costs: Vec<u64> = trials.finish().map(|(_, cost)| cost).collect();
        assert_eq!(costs, [0, 2 * 2 * MIB - 3 * 4096], "one block at a time");
    }
}
