//! How fast lines follow each other.
//!
//! Accesses that depend on nothing have as many lines under way as the core can; what a line then takes is no latency, but the rate of
//! the level that serves it, or of the set of the first level that takes it.
#![allow(unsafe_code)]

use std::io;

use crate::clock::{Latency, PASSES, TURNS};
use crate::latency::{Geometry, Sizes};
use crate::mapping::{LINE, Mapping, Pages};

/// Lines that fall into one set: more than any first level has ways, and few enough for the second.
const LINES_OF_A_SET: usize = 64;
/// Memory that is gone through after its lines were taken out of the caches: more pages than a second-level TLB has entries for, as of the data
/// that comes from memory again and again. (Of 2 MB lines came 5.6 cycles apart on a virtual Zen 4, of 32 MB 8 to 9, of 128 MB 12 to 15.)
const FLUSHED_BYTES: u64 = 32 << 20;
/// Turns of that, each of which takes some ms.
const FLUSHED_TURNS: usize = 3;

/// Cycles from one line to the next, at best, however many are under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LineRates {
    /// From the second level; `None`: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_l2: Option<Latency>,
    /// From the last level, where no prefetcher follows.
    pub from_llc: Latency,
    /// From memory, in order, in the pages that programs get: prefetchers do not go on from one to the next.
    pub from_memory: Latency,
    /// The same of every other line: prefetchers bring the one beside it, too. `None`: an older version did not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_memory_alone: Option<Latency>,
    /// Into one set of the first level, by loads; `None`: the kernel gives no huge pages, without which lines of one set cannot be had
    /// that neither the TLB nor the second level misses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_loads: Option<Latency>,
    /// The same by stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_stores: Option<Latency>,
    /// The same by loads that are followed by a store to the line, at the end of which loads behind have driven it out; `None`: also where
    /// an older version did not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_modifies: Option<Latency>,
}

impl LineRates {
    /// Measures all of it; half a second.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn measure(geometry: &Geometry) -> io::Result<Self> {
        let mut passes = Vec::with_capacity(PASSES);
        for _ in 0..PASSES {
            passes.push(Self::pass(geometry)?);
        }
        Ok(Self::joined(&passes))
    }

    fn pass(geometry: &Geometry) -> io::Result<Self> {
        let mut sweep = Sweep::new(Sizes::of(geometry).dram, LINE, Pages::Usual)?;
        let from_memory = sweep.rate(TURNS, Access::Load);
        sweep.step = 2 * LINE;
        let alone = sweep.rate(TURNS, Access::Load);
        drop(sweep);
        Self::with_memory(TURNS, geometry, [from_memory, alone])
    }

    /// Measures what caches give, in so many turns.
    fn with_memory(
        turns: usize,
        geometry: &Geometry,
        [from_memory, alone]: [Latency; 2],
    ) -> io::Result<Self> {
        let sizes = Sizes::of(geometry);
        let rate = |bytes: u64, step| Ok::<_, io::Error>(Sweep::best(bytes, step)?.rate(turns, Access::Load));
        let set_bytes = geometry.l1_set_bytes as usize;
        let set = Sweep::new((set_bytes * LINES_OF_A_SET) as u64, set_bytes, Pages::Huge).ok();
        let into_set = |access| set.as_ref().map(|set| set.rate(turns, access));
        Ok(Self {
            from_l2: sizes.l2_half.map(|bytes| rate(bytes, LINE)).transpose()?,
            // A step of two pages and a line: other lines of a page come later than a prefetcher waits for.
            from_llc: rate(sizes.llc, 129 * LINE)?,
            from_memory,
            from_memory_alone: Some(alone),
            set_loads: into_set(Access::Load),
            set_stores: into_set(Access::Store),
            set_modifies: into_set(Access::Modify),
        })
    }

    /// The same without much memory; `None`: not on this processor.
    pub(crate) fn brief_pass(turns: usize, geometry: &Geometry) -> io::Result<Option<Self>> {
        let mut sweep = Sweep::new(FLUSHED_BYTES, LINE, Pages::Usual)?;
        let Some(from_memory) = sweep.rate_from_memory(FLUSHED_TURNS) else { return Ok(None) };
        sweep.step = 2 * LINE;
        let alone = sweep.rate_from_memory(FLUSHED_TURNS).unwrap_or(from_memory);
        drop(sweep);
        Self::with_memory(turns, geometry, [from_memory, alone]).map(Some)
    }

    /// The least of each.
    pub(crate) fn joined(passes: &[Self]) -> Self {
        let least = |of: &dyn Fn(&Self) -> Option<Latency>| Latency::least(passes.iter().filter_map(of));
        Self {
            from_l2: least(&|pass| pass.from_l2),
            from_llc: least(&|pass| Some(pass.from_llc)).unwrap_or_default(),
            from_memory: least(&|pass| Some(pass.from_memory)).unwrap_or_default(),
            from_memory_alone: least(&|pass| pass.from_memory_alone),
            set_loads: least(&|pass| pass.set_loads),
            set_stores: least(&|pass| pass.set_stores),
            set_modifies: least(&|pass| pass.set_modifies),
        }
    }

    /// Every rate with its name.
    pub fn named(&self) -> Vec<(&'static str, Latency)> {
        let all = [
            ("second level", self.from_l2),
            ("last level", Some(self.from_llc)),
            ("memory, in order", Some(self.from_memory)),
            ("memory, every other", self.from_memory_alone),
            ("one set, by loads", self.set_loads),
            ("one set, by stores", self.set_stores),
            ("one set, by both", self.set_modifies),
        ];
        all.into_iter().filter_map(|(name, rate)| Some((name, rate?))).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Load,
    Store,
    /// A load, then a store.
    Modify,
}

/// Memory that is gone through in equal steps, again and again.
struct Sweep {
    memory: Mapping,
    step: usize,
}

impl Sweep {
    /// Accesses at once, whose addresses depend on nothing but a count.
    const AT_ONCE: usize = 8;

    /// The largest power of two that is no more than so many bytes. Every part of it has been written.
    fn new(bytes: u64, step: usize, pages: Pages) -> io::Result<Self> {
        let bytes = 1usize << bytes.max(LINE as u64).ilog2();
        let memory = Mapping::new(bytes, pages)?;
        // SAFETY: the mapping has so many bytes from its base.
        unsafe { memory.base().write_bytes(1, bytes) };
        if pages == Pages::Huge {
            memory.check_huge()?;
        }
        Ok(Self { memory, step })
    }

    /// In huge pages, if there are any.
    fn best(bytes: u64, step: usize) -> io::Result<Self> {
        Self::new(bytes, step, Pages::Huge).or_else(|_| Self::new(bytes, step, Pages::Small))
    }

    fn rate(&self, turns: usize, access: Access) -> Latency {
        let mut at = 0;
        Latency::of_a_step(turns, Self::AT_ONCE, |times| {
            for _ in 0..times {
                for n in 0..Self::AT_ONCE {
                    self.access(at + n * self.step, access);
                }
                at = at.wrapping_add(Self::AT_ONCE * self.step);
            }
        })
    }

    /// Of loads of lines that no cache has, each once; `None`: this processor does not let go of lines when told to.
    fn rate_from_memory(&self, turns: usize) -> Option<Latency> {
        let flush = || self.memory.flush((0..self.memory.len()).step_by(LINE));
        let lines = self.memory.len() / self.step;
        flush().then(|| {
            let walk = || (0..lines).for_each(|line| self.access(line * self.step, Access::Load));
            Latency::of_turns(turns, lines, || _ = flush(), walk)
        })
    }

    #[inline(always)]
    fn access(&self, offset: usize, access: Access) {
        // The length is a power of two, of 64 at least: what is below it and a multiple of 8 has 8 bytes inside.
        let place = self.memory.base().wrapping_add(offset & (self.memory.len() - 8)).cast::<u64>();
        match access {
            // SAFETY: as above; nothing else uses the memory.
            Access::Load => drop(unsafe { place.read_volatile() }),
            // SAFETY: as above.
            Access::Store => unsafe { place.write_volatile(offset as u64) },
            // SAFETY: as above.
            Access::Modify => unsafe { place.write_volatile(place.read_volatile() ^ 1) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_stays_in_its_memory_whatever_its_step() {
        for step in [LINE, 129 * LINE, 4096, 24] {
            let sweep = Sweep::new(5 << 12, step, Pages::Small).expect("memory");
            assert_eq!(sweep.memory.len(), 4 << 12);
            for n in [0, 1, 7, 1000, usize::MAX / step] {
                sweep.access(n.wrapping_mul(step), Access::Store);
                sweep.access(n.wrapping_mul(step), Access::Load);
            }
        }
    }

    #[test]
    fn lines_follow_each_other_faster_than_one_takes() {
        let geometry = Geometry {
            l1_bytes: 32 << 10,
            l1_set_bytes: 4 << 10,
            l2_bytes: 512 << 10,
            llc_bytes: 8 << 20,
            dtlb_entries: 64,
            stlb_entries: 2048,
            available_bytes: 512 << 20,
        };
        let rates = LineRates::measure(&geometry).expect("memory");
        let rate = rates.from_l2.expect("a second level").cycles;
        // A line of the second level: 64 bytes a cycle at most, and 12 cycles if each were waited for.
        assert!((0.4..10.0).contains(&rate), "{rates:?}");
        assert!(rates.from_memory.cycles > rate, "{rates:?}");
        assert_eq!(rates.set_loads.is_some(), rates.set_stores.is_some() && rates.set_modifies.is_some());
        assert!(rates.named().len() >= 3);
    }
}
