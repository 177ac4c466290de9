//! Data that a cache holds, as far as it is known how much there is.
//!
//! What no burst finds again would be new each time, for all that reuse times tell. But a loop that goes round an array of ten
//! megabytes touches no more than these, and a cache of sixteen has all of them from the second round on, whether or not two bursts
//! ever saw the same place.
//!
//! Bursts one after another whose objects ([`Extent`]) together have no more blocks than a cache are a *stretch*:
//!
//! ```text
//!  bursts touch     a,b   b    a,b   a     c     c,d   d    a,b
//!  bytes together   8 MB ─────────────    40 MB ──────────  8 MB      in 16 MB
//!                   └──── a stretch ───┘   (none: too large) └─ the next
//! ```
//!
//! A program that goes through many objects in turn has such stretches, too, as long as bursts meet a few of them. So a stretch
//! tells something only if it has [`FEWEST`] bursts, of which half came behind the last that met an object which none before it had.
//!
//! In a stretch a block of its objects misses once, and again each time that the cache was filled with other data in the meantime: with
//! data of unknown objects, or with what no burst met, because it came between two of them. Of the time of a stretch that has as much as
//! one burst stands for, whatever the number of bursts that did not meet it (the mean of what is left, by Laplace's rule of succession),
//! and it is taken to bring as many blocks as bursts use for the first time in them.
//!
//! So the misses of an object in a stretch are at most its blocks × (1 + other blocks brought ÷ blocks of the cache), for each thread that
//! uses it, since each may have a cache of its own. Of these an operand has as much as it has of the uses that are the first of their
//! block in a burst. Of uses outside of stretches all may miss. Sets are passed over: one way of the cache is left to what is
//! distributed unevenly.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::burst::{Extent, Reference};
use crate::geometry::Geometry;

/// Bursts of a stretch that tells something, at least.
const FEWEST: f64 = 8.0;
/// A stretch that has met so many operands with their objects is over: 5 MB.
const MOST_PARTS: usize = 1 << 16;

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
    /// Of so many first uses in all, those that miss, at most.
    pub(crate) fn of(self, uses: f64) -> f64 {
        (uses - self.uses).max(0.0) + self.misses
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
    /// Instructions and owners with higher numbers are passed over.
    scopes: usize,
}

#[derive(Debug)]
struct Level {
    geometry: Geometry,
    /// Which size of block it has.
    size: usize,
    stretch: Stretch,
    /// Of stretches that are over.
    known: Mosts,
    /// Uses that are the first of their block in their burst, weighted, and bursts.
    uses: f64,
    bursts: f64,
}

/// Bursts whose objects the cache can hold.
#[derive(Debug, Default)]
struct Stretch {
    /// How many blocks each has; and all.
    objects: FxHashMap<u64, u64>,
    blocks: u64,
    /// First uses, as above.
    uses: FxHashMap<Use, f64>,
    parts: FxHashMap<(Part, Use), f64>,
    /// The same of data of unknown objects.
    others: f64,
    /// Bursts, and those up to the last with a new object.
    bursts: f64,
    settled: f64,
}

impl Held {
    /// For these levels, and the place of each one's size of block, of which there are so many; `scopes`: instructions and owners that are told apart.
    pub(crate) fn new(
        levels: impl IntoIterator<Item = (Geometry, usize)>,
        sizes: usize,
        scopes: usize,
    ) -> Self {
        let level = |(geometry, size)| Level {
            geometry,
            size,
            stretch: Stretch::default(),
            known: Mosts::default(),
            uses: 0.0,
            bursts: 0.0,
        };
        Self {
            levels: levels.into_iter().map(level).collect(),
            extents: Vec::new(),
            last: 0,
            bytes: FxHashMap::default(),
            present: vec![FxHashMap::default(); sizes],
            thread: 0,
            scopes,
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
        let is_told_apart = (by.instruction.max(by.owner) as usize) < self.scopes;
        let object = if is_told_apart { self.object_at(by.address) } else { None };
        *self.present[size].entry(((by.instruction, by.owner), (self.thread, object))).or_default() += 1;
    }

    /// The window is over, each of whose references counts so much; `goes_on`: it is of the same burst as the one before.
    pub(crate) fn end_window(&mut self, weight: f64, goes_on: bool) {
        let Self { bytes, levels, present, .. } = self;
        for level in levels {
            level.add(&present[level.size], bytes, weight, goes_on);
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
    fn add(
        &mut self,
        present: &FxHashMap<(Part, Use), u32>,
        bytes: &FxHashMap<u64, u64>,
        weight: f64,
        goes_on: bool,
    ) {
        let Geometry { block_bytes, blocks, ways } = self.geometry;
        let room = blocks - blocks / u64::from(ways);
        // Blocks may lie across its ends. What does not fit by itself fills the cache with what is used of it.
        let blocks_of = |object: &u64| bytes.get(object).map(|bytes| bytes.div_ceil(block_bytes.into()) + 1);
        let fitting = |object: &u64| blocks_of(object).filter(|blocks| *blocks <= room);
        let mut more = 0;
        for object in present.keys().filter_map(|(_, (_, object))| *object).collect::<FxHashSet<u64>>() {
            let before = self.stretch.objects.get(&object).copied().unwrap_or(0);
            more += fitting(&object).unwrap_or(0).saturating_sub(before);
        }
        if self.stretch.blocks + more > room || self.stretch.parts.len() > MOST_PARTS {
            let mut known = std::mem::take(&mut self.known);
            self.end(&mut known);
            self.known = known;
            self.stretch = Stretch::default();
        }
        let one = f64::from(u8::from(!goes_on));
        self.bursts += one;
        self.stretch.bursts += one;
        for (&(part, used), &uses) in present {
            let uses = f64::from(uses) * weight;
            self.uses += uses;
            let Some((object, blocks)) = used.1.and_then(|object| Some((object, fitting(&object)?))) else {
                self.stretch.others += uses;
                continue;
            };
            let most = self.stretch.objects.entry(object).or_default();
            if blocks > *most {
                self.stretch.blocks += blocks - *most;
                *most = blocks;
                self.stretch.settled = self.stretch.bursts;
            }
            *self.stretch.uses.entry(used).or_default() += uses;
            *self.stretch.parts.entry((part, used)).or_default() += uses;
        }
    }

    /// Adds what follows from the present stretch.
    fn end(&self, known: &mut Mosts) {
        let Stretch { objects, blocks, uses: all, parts, others, bursts, settled } = &self.stretch;
        let Geometry { blocks: room, .. } = self.geometry;
        // One burst alone may have more than there is room for.
        if *bursts < FEWEST || 2.0 * settled > *bursts || *blocks > room {
            return;
        }
        let unseen = self.uses / self.bursts;
        let times = 1.0 + (others + unseen) / room as f64;
        for (&((instruction, owner), used), &uses) in parts {
            let blocks = used.1.map_or(0, |object| objects[&object]);
            let misses = uses * (blocks as f64 * times / all[&used]).min(1.0);
            for most in
                [known.instructions.entry(instruction).or_default(), known.owners.entry(owner).or_default()]
            {
                most.uses += uses;
                most.misses += misses;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;
    /// Of a cache of 16 MB.
    const BLOCKS: f64 = 262_144.0;

    /// One level of 16 MB in 16 ways, lines of 64 bytes.
    fn held() -> Held {
        Held::new([(Geometry::cache(16 * MB, 16, 64), 0)], 1, 100)
    }

    /// A burst of a thread in which each of these owners uses so many blocks for the first time, each use standing for `weight`. Owner n is of
    /// object n, of so many bytes, of which a part is touched; or of one that is not known.
    fn burst_of(held: &mut Held, thread: u32, bytes: &[u64], uses: &[(u32, u32)], weight: f64) {
        let start = |object: u64| object << 40;
        let extent =
            |(object, &bytes)| Extent { start: start(object), end: start(object) + 4096, object, bytes };
        let extents: Vec<Extent> = (0..).zip(bytes).map(extent).collect();
        held.begin_burst(thread, &extents);
        for &(owner, uses) in uses {
            let address = start(owner.into()) + 64;
            let kind = memlens_types::AccessKind::Load;
            let by = Reference { address, instruction: 10 + owner, owner, size: 8, kind };
            (0..uses).for_each(|_| held.first_use(0, &by));
        }
        held.end_window(weight, false);
    }

    fn burst(held: &mut Held, bytes: &[u64], uses: &[(u32, u32)]) {
        burst_of(held, 1, bytes, uses, 1000.0);
    }

    fn is_near(value: f64, expected: f64) -> bool {
        (value / expected - 1.0).abs() < 1e-9
    }

    #[test]
    fn what_is_held_misses_once() {
        let mut held = held();
        for _ in 0..100 {
            burst(&mut held, &[4 * MB, 8 * MB], &[(0, 300), (1, 100)]);
        }
        let most = held.most(0);
        // A burst that was not seen may have brought 400,000 more.
        let times = 1.0 + 400_000.0 / BLOCKS;
        let [small, large] = [0, 1].map(|owner| most.owners[&owner]);
        assert_eq!((small.uses, large.uses), (30e6, 10e6));
        assert!(
            is_near(small.misses, 65_537.0 * times) && is_near(large.misses, 131_073.0 * times),
            "{most:?}"
        );
        assert_eq!(most.instructions[&10], small, "the only one that uses it");
        // All of those outside of stretches may miss.
        assert!(is_near(small.of(40e6), 10e6 + small.misses));
    }

    #[test]
    fn what_is_gone_through_in_turn_is_not_held() {
        // Ten objects of 3 MB: a burst meets one, and five fit.
        let (mut held, mut random) = (held(), 1_u64);
        for _ in 0..1000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            burst(&mut held, &[3 * MB; 10], &[((random >> 60) as u32 % 10, 1000)]);
        }
        let in_stretches: f64 = held.most(0).owners.values().map(|most| most.uses).sum();
        assert!(in_stretches < 0.05 * 1e9, "{in_stretches}");
        // Nor what is as large by itself, or together in one burst.
        let mut held = self::held();
        (0..100)
            .for_each(|_| burst(&mut held, &[16 * MB, 10 * MB, 10 * MB], &[(0, 100), (1, 100), (2, 100)]));
        assert!(held.most(0).owners.is_empty());
    }

    #[test]
    fn other_data_fills_the_cache() {
        let mut held = held();
        // Of one that does not fit, and one that is not known.
        (0..100).for_each(|_| burst(&mut held, &[4 * MB, 16 * MB], &[(0, 1000), (1, 2000), (7, 1000)]));
        let most = held.most(0);
        assert_eq!(most.owners.len(), 1);
        let times = 1.0 + (300e6 + 4e6) / BLOCKS;
        assert!(is_near(most.owners[&0].misses, (65_537.0 * times).min(100e6)), "{most:?}");
    }

    #[test]
    fn objects_that_grow_are_held_no_longer() {
        let mut held = held();
        (0..10).for_each(|_| burst(&mut held, &[4 * MB], &[(0, 1000)]));
        (0..10).for_each(|_| burst(&mut held, &[16 * MB], &[(0, 1000)]));
        assert_eq!(
            held.most(0).owners[&0].uses,
            10e6,
            "those of the first bursts: one way is left to what is uneven"
        );
    }

    #[test]
    fn blocks_are_counted_whole() {
        // Three hundred variables of 500 bytes may lie in as many pages, of which a TLB has 64.
        let mut held = Held::new([(Geometry::tlb(64, 4, 4096), 0)], 1, 1000);
        let all: Vec<(u32, u32)> = (0..30).map(|owner| (owner, 10)).collect();
        (0..100).for_each(|_| burst(&mut held, &[500; 30], &all));
        assert!(held.most(0).owners.is_empty());
        let mut held = Held::new([(Geometry::tlb(64, 4, 4096), 0)], 1, 1000);
        (0..100).for_each(|_| burst(&mut held, &[500; 30], &all[..20]));
        assert_eq!(held.most(0).owners.len(), 20);
    }

    #[test]
    fn each_thread_may_have_a_cache_of_its_own() {
        let mut held = held();
        for at in 0..40 {
            burst_of(&mut held, at % 2, &[4 * MB], &[(0, 10)], 1000.0);
        }
        let most = held.most(0);
        assert!(is_near(most.owners[&0].misses, 2.0 * 65_537.0 * (1.0 + 10_000.0 / BLOCKS)), "{most:?}");
    }

    #[test]
    fn who_is_not_told_apart_is_not_bounded() {
        let mut held = Held::new([(Geometry::cache(16 * MB, 16, 64), 0)], 1, 11);
        (0..100).for_each(|_| burst(&mut held, &[4 * MB; 2], &[(0, 1000), (1, 1000)]));
        let most = held.most(0);
        assert_eq!((most.owners.len(), most.instructions.len()), (1, 1));
        assert!(most.owners[&0].misses > 65_537.0 * (100e6 / BLOCKS), "the other's fill the cache");
    }
}
