//! Data that a cache holds, as far as it is known how much there is.
//!
//! What no burst finds again would be new each time, for all that reuse times tell. But a loop that goes round an array of ten
//! megabytes touches no more than these, and a cache of sixteen has all of them from the second round on, whether or not two bursts
//! ever saw the same place.
//!
//! Bursts one after another whose objects ([`Extent`]) together have no more bytes than a cache are a *stretch*:
//!
//! ```text
//!  bursts touch     a,b   b    a,b   a     c     c,d   d    a,b
//!  bytes together   8 MB ─────────────    40 MB ──────────  8 MB      in 16 MB
//!                   └──── a stretch ───┘   (none: too large) └─ the next
//! ```
//!
//! In a stretch a block of its objects misses once, and again each time that the cache was filled with other data in the meantime:
//! with data of unknown objects, or with what no burst met, because it came between two of them. As long as that lasts it brings as
//! many blocks as the rest of the program does, as far as is known, and of the time of a stretch it has as much as one burst stands for,
//! whatever the number of bursts that did not meet it (the mean of what is left, by Laplace's rule of succession).
//!
//! So the misses of an object in a stretch are at most its blocks × (1 + other blocks brought ÷ blocks of the cache), for each thread that
//! uses it, since each may have a cache of its own. Of these an operand has as much as it has of the uses that are the first of their
//! block in a burst. Sets are passed over: one way of the cache is left to
//! what is distributed unevenly.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::burst::{Extent, Reference};
use crate::geometry::Geometry;

/// An instruction and an owner.
type Part = (u32, u32);
/// What a thread uses of an object, if its size is known.
type Use = (u32, Option<u64>);

/// What is known of an instruction or an owner for one level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Most {
    /// Uses in stretches that are the first of their block in a burst, weighted.
    pub(crate) uses: f64,
    /// Of these, those that miss, at most.
    pub(crate) misses: f64,
}

impl Most {
    /// Of `misses` of all of `uses`, those that are left.
    pub(crate) fn bound(self, misses: f64, uses: f64) -> f64 {
        if uses <= 0.0 {
            return misses;
        }
        let in_stretches = misses * (self.uses / uses).min(1.0);
        misses - in_stretches + in_stretches.min(self.misses)
    }
}

/// By number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mosts {
    pub(crate) instructions: FxHashMap<u32, Most>,
    pub(crate) owners: FxHashMap<u32, Most>,
}

/// How large objects are, and the stretches of each level.
#[derive(Debug)]
pub(crate) struct Held {
    levels: Vec<Level>,
    /// What the present burst touches, by addresses, and the one asked for last.
    extents: Vec<Extent>,
    last: usize,
    /// By object, in bytes.
    bytes: FxHashMap<u64, u64>,
    /// Of the present window, by size of block: first uses in its burst.
    present: Vec<FxHashMap<(Part, Use), u32>>,
    /// Whose burst it is.
    thread: u32,
}

#[derive(Debug)]
struct Level {
    geometry: Geometry,
    /// Which size of block it has.
    size: usize,
    stretch: Stretch,
    /// Of stretches that are over.
    known: Mosts,
    /// In these, blocks that were brought at most; and all bursts so far.
    brought: f64,
    bursts: f64,
}

/// Bursts whose objects the cache can hold.
#[derive(Debug, Default)]
struct Stretch {
    /// In bytes.
    objects: FxHashMap<u64, u64>,
    /// First uses, as above.
    uses: FxHashMap<Use, f64>,
    parts: FxHashMap<(Part, Use), f64>,
    /// The same of data of unknown objects.
    others: f64,
}

impl Held {
    /// For these levels, and the place of each one's size of block.
    pub(crate) fn new(levels: impl IntoIterator<Item = (Geometry, usize)>, sizes: usize) -> Self {
        let level = |(geometry, size)| Level {
            geometry,
            size,
            stretch: Stretch::default(),
            known: Mosts::default(),
            brought: 0.0,
            bursts: 0.0,
        };
        Self {
            bytes: FxHashMap::default(),
            levels: levels.into_iter().map(level).collect(),
            extents: Vec::new(),
            last: 0,
            thread: 0,
            present: vec![FxHashMap::default(); sizes],
        }
    }

    /// The next burst, of this thread, touches these and perhaps others.
    pub(crate) fn begin_burst(&mut self, thread: u32, extents: &[Extent]) {
        self.thread = thread;
        self.extents.clear();
        self.extents.extend_from_slice(extents);
        self.extents.sort_unstable();
        self.bytes.clear();
        for extent in extents {
            let most = self.bytes.entry(extent.object).or_default();
            *most = (*most).max(extent.bytes);
        }
        self.last = 0;
    }

    /// The object at an address.
    fn object_at(&mut self, address: u64) -> Option<u64> {
        let has = |extent: &&Extent| (extent.start..extent.end).contains(&address);
        if let Some(last) = self.extents.get(self.last).filter(has) {
            return Some(last.object);
        }
        self.last = self.extents.partition_point(|extent| extent.start <= address).checked_sub(1)?;
        self.extents.get(self.last).filter(has).map(|extent| extent.object)
    }

    /// A block of this size is used for the first time in the present burst.
    pub(crate) fn first_use(&mut self, size: usize, by: &Reference) {
        let used = (self.thread, self.object_at(by.address));
        *self.present[size].entry(((by.instruction, by.owner), used)).or_default() += 1;
    }

    /// The window is over, each of whose references counts so much; `goes_on`: it is of the same burst as the one before.
    pub(crate) fn end_window(&mut self, weight: f64, goes_on: bool) {
        let Self { bytes, levels, present, .. } = self;
        for level in levels {
            level.add(&present[level.size], bytes, weight);
            level.bursts += f64::from(u8::from(!goes_on));
        }
        present.iter_mut().for_each(FxHashMap::clear);
    }

    /// What is known by now of a level.
    pub(crate) fn most(&self, level: usize) -> Mosts {
        let level = &self.levels[level];
        let mut known = level.known.clone();
        level.end(&mut known);
        known
    }
}

impl Level {
    /// Takes in the first uses of a window.
    fn add(&mut self, present: &FxHashMap<(Part, Use), u32>, bytes: &FxHashMap<u64, u64>, weight: f64) {
        let room = self.room();
        // What does not fit by itself fills the cache with what is used of it.
        let fitting = |object: &u64| bytes.get(object).copied().filter(|bytes| *bytes <= room);
        let mut more = 0;
        for object in present.keys().filter_map(|(_, (_, object))| *object).collect::<FxHashSet<u64>>() {
            let before = self.stretch.objects.get(&object).copied().unwrap_or(0);
            more += fitting(&object).unwrap_or(0).saturating_sub(before);
        }
        if self.stretch.objects.values().sum::<u64>() + more > room {
            let mut known = std::mem::take(&mut self.known);
            self.brought += self.end(&mut known);
            self.known = known;
            self.stretch = Stretch::default();
        }
        for (&(part, used), &uses) in present {
            let uses = f64::from(uses) * weight;
            match used.1.and_then(|object| Some((object, fitting(&object)?))) {
                Some((object, bytes)) => {
                    let most = self.stretch.objects.entry(object).or_default();
                    *most = (*most).max(bytes);
                    *self.stretch.uses.entry(used).or_default() += uses;
                    *self.stretch.parts.entry((part, used)).or_default() += uses;
                }
                None => self.stretch.others += uses,
            }
        }
    }

    /// Bytes of which it holds all.
    fn room(&self) -> u64 {
        let Geometry { block_bytes, blocks, ways } = self.geometry;
        (blocks - blocks / u64::from(ways)) * u64::from(block_bytes)
    }

    /// Adds what follows from the present stretch. Returned is how many blocks were brought in it at most.
    fn end(&self, known: &mut Mosts) -> f64 {
        let Stretch { objects, uses: all, parts, others } = &self.stretch;
        // One burst alone may have more than there is room for.
        if objects.values().sum::<u64>() > self.room() {
            return others + all.values().sum::<f64>();
        }
        let Geometry { block_bytes, blocks, .. } = self.geometry;
        let unseen = (self.brought + others) / self.bursts.max(1.0);
        let times = 1.0 + (others + unseen) / blocks as f64;
        let mut brought = *others;
        for (&((instruction, owner), used), &uses) in parts {
            let bytes = used.1.map_or(0, |object| objects[&object]);
            // A block may lie across its ends.
            let of_object = bytes / u64::from(block_bytes) + 2;
            let misses = uses * (of_object as f64 * times / all[&used]).min(1.0);
            brought += misses;
            for most in
                [known.instructions.entry(instruction).or_default(), known.owners.entry(owner).or_default()]
            {
                most.uses += uses;
                most.misses += misses;
            }
        }
        brought
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    /// One level of 16 MB in 16 ways, lines of 64 bytes.
    fn held() -> Held {
        Held::new([(Geometry::cache(16 * MB, 16, 64), 0)], 1)
    }

    /// A burst in which each of these owners uses so many blocks for the first time, each use standing for `weight`. Owner n is of
    /// object n, of so many bytes, of which a part is touched; or of one that is not known.
    fn burst(held: &mut Held, bytes: &[u64], uses: &[(u32, u32)], weight: f64) {
        let start = |object: u64| object << 40;
        let extent =
            |(object, &bytes)| Extent { start: start(object), end: start(object) + 4096, object, bytes };
        let extents: Vec<Extent> = (0..).zip(bytes).map(extent).collect();
        held.begin_burst(1, &extents);
        for &(owner, uses) in uses {
            let address = start(owner.into()) + 64;
            let kind = memlens_types::AccessKind::Load;
            let by = Reference { address, instruction: 10 + owner, owner, size: 8, kind };
            (0..uses).for_each(|_| held.first_use(0, &by));
        }
        held.end_window(weight, false);
    }

    #[test]
    fn what_is_held_misses_once() {
        let (mut held, bytes) = (held(), [4 * MB, 8 * MB]);
        for _ in 0..100 {
            burst(&mut held, &bytes, &[(0, 1000), (1, 500)], 300.0);
        }
        let most = held.most(0);
        // 65,536 lines and two, once: nothing else is there.
        let times = 1.0;
        let [small, large] = [0, 1].map(|owner| most.owners[&owner]);
        assert_eq!((small.uses, large.uses), (30e6, 15e6));
        assert!((small.misses / (65_538.0 * times) - 1.0).abs() < 1e-9, "{small:?}");
        assert!((large.misses / (131_074.0 * times) - 1.0).abs() < 1e-9, "{large:?}");
        assert_eq!(most.instructions[&10], small, "the only one that uses it");
        // Of 20 million that seem to miss, of 40: 30 were in stretches, 15 of which are these.
        assert!((small.bound(20e6, 40e6) - (5e6 + small.misses)).abs() < 1.0);
        assert_eq!(small.bound(100.0, 40e6), 100.0, "fewer than there may be");
    }

    #[test]
    fn what_does_not_fit_together_is_held_by_turns() {
        let (mut held, bytes) = (held(), [10 * MB, 10 * MB, 20 * MB]);
        for round in 0..6 {
            burst(&mut held, &bytes, &[(round / 2 % 2, 1000)], 1000.0);
        }
        // Two stretches of the first, two of the second, each of two bursts of a million uses. None of the third, nor of unknown data,
        // which fill the cache with what is used of them.
        burst(&mut held, &bytes, &[(1, 1000), (2, 2000), (7, 3000)], 1000.0);
        let most = held.most(0);
        assert_eq!(most.owners.len(), 2);
        let lines = 163_842.0;
        // What came before is brought by what is not seen of a stretch, too: of so many in so many bursts, into 262,144.
        let unseen = |brought: f64, bursts: f64| 1.0 + brought / bursts / 262_144.0;
        let second = lines * unseen(lines, 4.0);
        let third = lines * unseen(lines + second, 6.0);
        let all_of_last = 1e6;
        assert!((most.owners[&0].misses / (lines + third) - 1.0).abs() < 1e-9, "{most:?}");
        assert!((most.owners[&1].misses / (second + all_of_last) - 1.0).abs() < 1e-9, "{most:?}");
    }

    #[test]
    fn objects_that_grow_are_held_no_longer() {
        let mut held = held();
        burst(&mut held, &[4 * MB], &[(0, 1000)], 1000.0);
        burst(&mut held, &[16 * MB], &[(0, 1000)], 1000.0);
        // One way of sixteen is left to what is distributed unevenly.
        let most = held.most(0);
        assert_eq!(most.owners[&0].uses, 1e6, "those of the first burst");
        let others = 1e6 + 1e6 / 2.0;
        assert!(
            (most.owners[&0].misses / (65_538.0 * (1.0 + others / 262_144.0)) - 1.0).abs() < 1e-9,
            "{most:?}"
        );
    }

    #[test]
    fn each_thread_may_have_a_cache_of_its_own() {
        let mut held = held();
        for thread in [1, 2, 1, 2] {
            let extents = [Extent { start: 0, end: 4 * MB, object: 0, bytes: 4 * MB }];
            held.begin_burst(thread, &extents);
            let kind = memlens_types::AccessKind::Load;
            let by = Reference { address: 64, instruction: 10, owner: thread, size: 8, kind };
            (0..1000).for_each(|_| held.first_use(0, &by));
            held.end_window(1000.0, false);
        }
        let most = held.most(0);
        assert_eq!([1, 2].map(|thread| most.owners[&thread].misses), [65_538.0; 2]);
        assert_eq!(most.instructions[&10], Most { uses: 4e6, misses: 2.0 * 65_538.0 });
    }
}
