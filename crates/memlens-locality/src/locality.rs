//! Bursts in, miss ratios out.

use std::collections::HashMap;

use memlens_types::AccessKind;
use rustc_hash::FxHashMap;

use crate::bins::{BINS, TRIVIAL, bin};
use crate::burst::{Burst, Extent, Reference};
use crate::clock::{Age, Clock, Mark};
use crate::cost::{Cost, Pairs};
use crate::geometry::Geometry;
use crate::groups::{Counts, Groups};
use crate::held::{Held, Most, Mosts};
use crate::last_use::{LastUse, TAG_SHIFT};
use crate::lean::lean;
use crate::model::{Bound, LevelModel, Misses, Model, estimate};
use crate::phases::{Phases, Position, Short, Signature};
use crate::regions::Regions;
use crate::reuse::{Distribution, Footprint, Reuse, Typical};
use crate::runs::Moment;
use crate::scopes::{Scope, ScopeSums, Scopes, Sums};
use crate::sets::Sets;
use crate::spread::Spread;
use crate::summary::{CurvePoint, Estimate, Row, Summary};
use crate::tilt::{Room, Tilt};

/// Addresses have 57 bits at most (five-level paging, half of it the user's).
const ADDRESS_BITS: u64 = (1 << 57) - 1;
/// More blocks of one reference than this are passed over.
const MOST_BLOCKS: u64 = 64;
/// References whose blocks are looked for together.
const AHEAD: usize = 64;
/// The first windows' sets are watched …
const WATCHED_FIRST: u64 = 16;
/// … and one of so many later: that takes as long as all else.
const WATCHED: u64 = 4;
/// Threads beyond this share the last one's memory of what they used.
const MOST_THREADS: usize = (1 << (64 - TAG_SHIFT)) - 2;

/// What to estimate, and how much memory that may take.
#[derive(Clone, Debug)]
pub struct LocalityConfig {
    /// Caches and TLBs, in any order; results come in the same. At most four sizes of block among them.
    pub levels: Vec<Geometry>,
    /// Blocks remembered of each size of block, 16 bytes each; rounded up to a power of two. Bursts should not be
    /// longer than a quarter of it: longer ones are taken as several.
    pub remembered_blocks: usize,
    /// Instructions, and owners, that are told apart; those with higher numbers go into [`crate::OTHER`]. Each takes 80
    /// bytes and 32 a level (owners 136 more), and 3 to 6 KB for each size of block if it makes references that are not trivial, 3
    /// more if its code began later than its thread.
    pub scopes: usize,
    /// What shares and their errors are of: [`crate::CostSpread`], [`crate::Summary::effective_bursts`].
    pub cost: Cost,
}

impl LocalityConfig {
    /// The levels given, 32 MB for each size of block, 16,384 instructions and owners: up to 400 MB in the worst case
    /// with lines and pages, usually a tenth of that.
    pub fn new(levels: Vec<Geometry>) -> Self {
        Self { levels, remembered_blocks: 1 << 21, scopes: 1 << 14, cost: Cost::default() }
    }
}

/// A geometry that cannot be estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The level with this index has a fault, in words that read after "it has".
    Level(usize, &'static str),
    /// More than four sizes of block.
    BlockSizes,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Level(level, fault) => write!(f, "use level {level}: it has {fault}"),
            Self::BlockSizes => f.write_str("use more than four sizes of block"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Whose references are asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// All.
    Program,
    /// One memory operand's.
    Instruction(u32),
    /// One owner's.
    Owner(u32),
}

/// The estimator. Feed it bursts with [`Locality::feed`], ask it with [`Locality::summary`] at any time.
#[derive(Debug)]
pub struct Locality {
    levels: Vec<Geometry>,
    sizes: Vec<BlockSize>,
    phases: Phases,
    held: Held,
    threads: HashMap<u32, Thread>,
    /// All references, as number 0.
    program: Scopes,
    instructions: Scopes,
    owners: Scopes,
    /// Longest stretch taken as one burst.
    longest: usize,
    bursts: u64,
    /// Whether sets are watched in the present window.
    watches: bool,
    /// Of bursts that tell it, references since the one before.
    gaps: Mean,
    cost: Cost,
    spread: Spread,
    /// Stands in for reuse times where there are none yet.
    nothing: Reuse,
    /// The program's data, in bytes, where that is known.
    data_bytes: Option<u64>,
    /// What was known of it at a reference.
    data_then: Mean,
}

/// A weighted mean.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    weight: f64,
    sum: f64,
}

impl Mean {
    fn add(&mut self, weight: f64, value: f64) {
        self.weight += weight;
        self.sum += weight * value;
    }

    /// None: nothing has weight.
    fn get(self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

/// Everything about one size of block.
#[derive(Debug)]
struct BlockSize {
    shift: u32,
    /// Indices of the levels with such blocks.
    levels: Vec<usize>,
    /// What their sets hold, where that is watched.
    sets: Vec<Option<Sets>>,
    /// For each level the places of those that hold what it holds: a bit each.
    holding: Vec<u32>,
    /// Whether that is done in the present window.
    watches: bool,
    last_use: LastUse,
    regions: Regions,
    short: Short,
    groups: Groups,
    /// How a reference counts as a miss in the present burst, a level each; from what is known so far.
    scores: Vec<LevelModel>,
}

#[derive(Debug)]
struct Thread {
    tag: u64,
    clock: Clock,
    /// When the present window began.
    window: Mark,
    /// Windows so far, and all references, as far as they are known.
    windows: u64,
    made: u64,
    /// References that its windows stand for.
    stands_for: f64,
    pairs: Pairs,
    /// Which phase the last window was in.
    phase: Option<usize>,
}

impl Locality {
    /// An estimator that has seen nothing.
    pub fn new(config: &LocalityConfig) -> Result<Self, ConfigError> {
        let mut sizes: Vec<BlockSize> = Vec::new();
        for (index, level) in config.levels.iter().enumerate() {
            if let Some(fault) = level.fault() {
                return Err(ConfigError::Level(index, fault));
            }
            let shift = level.block_bytes.trailing_zeros();
            match sizes.iter_mut().find(|size| size.shift == shift) {
                Some(size) => {
                    // A bit for each: `Seen::Within`.
                    let is_watched = size.levels.len() < u32::BITS as usize;
                    size.levels.push(index);
                    size.sets.push(Sets::of(level).filter(|_| is_watched));
                }
                None => {
                    let front = if shift < 12 { 512 } else { 64 };
                    sizes.push(BlockSize {
                        shift,
                        levels: vec![index],
                        sets: vec![Sets::of(level)],
                        holding: Vec::new(),
                        watches: true,
                        last_use: LastUse::new(front, config.remembered_blocks),
                        regions: Regions::default(),
                        short: Short::default(),
                        groups: Groups::default(),
                        scores: Vec::new(),
                    });
                }
            }
        }
        if sizes.len() > 4 {
            return Err(ConfigError::BlockSizes);
        }
        for size in &mut sizes {
            let holds =
                |one: &Sets, other: &Option<Sets>| other.as_ref().is_some_and(|it| one.are_within(it));
            let bits = |one: &Sets| {
                let places = size.sets.iter().enumerate().filter(|(_, other)| holds(one, other));
                places.fold(0, |bits, (place, _)| bits | 1 << place)
            };
            size.holding = size.sets.iter().map(|sets| sets.as_ref().map_or(0, bits)).collect();
        }
        let size_of = |index| sizes.iter().position(|size| size.levels.contains(&index)).unwrap_or(0);
        let levels = config.levels.iter().enumerate().map(|(index, &geometry)| (geometry, size_of(index)));
        let held = Held::new(levels, sizes.len(), config.scopes);
        let scopes = |most, has_spreads| Scopes::new(most, sizes.len(), config.levels.len(), has_spreads);
        Ok(Self {
            program: scopes(1, true),
            instructions: scopes(config.scopes, false),
            owners: scopes(config.scopes, true),
            levels: config.levels.clone(),
            longest: (config.remembered_blocks.next_power_of_two() / 4).max(1024),
            sizes,
            phases: Phases::default(),
            held,
            threads: HashMap::new(),
            bursts: 0,
            watches: true,
            gaps: Mean::default(),
            cost: config.cost.clone(),
            spread: Spread::default(),
            nothing: Reuse::default(),
            data_bytes: None,
            data_then: Mean::default(),
        })
    }

    /// No process has had more data at a time than so many bytes until now: what it has resident, say. To be told before each burst: reuse times
    /// that no burst has seen are made to agree with what there was at them, see the [crate's docs](crate#the-estimate). Weights have to be references.
    /// Address space that is given back and taken anew, at other addresses, is not in it. None: it is not known.
    pub fn has_data(&mut self, bytes: Option<u64>) {
        self.data_bytes = bytes;
    }

    /// Takes a burst in. Empty ones, and weights that are not above 0, are passed over.
    pub fn feed(&mut self, burst: &Burst<'_>) {
        self.feed_with(burst, &[]);
    }

    /// The same, if it is known how large some objects are that it touches: `extents`, in any order. Where two overlap, either is
    /// taken. Weights have to be references.
    pub fn feed_with(&mut self, burst: &Burst<'_>, extents: &[Extent]) {
        if burst.weight.is_nan() || burst.weight <= 0.0 {
            return;
        }
        self.held.begin_burst(burst.thread, extents);
        let a_reference = burst.weight / burst.references.len() as f64;
        if let Some(unseen) = burst.unseen_before {
            self.gaps.add(1.0, unseen.references as f64);
        }
        for (part, references) in burst.references.chunks(self.longest).enumerate() {
            self.window(burst, part, references, a_reference);
        }
    }

    fn window(&mut self, burst: &Burst<'_>, part: usize, references: &[Reference], weight: f64) {
        // What is known changes less and less.
        if self.bursts.is_power_of_two() || self.bursts.is_multiple_of(64) {
            self.learn();
        }
        let gap = self.gap();
        let tag = self.threads.len().min(MOST_THREADS) as u64;
        let longest = self.longest as u64;
        let new = || Thread {
            tag,
            clock: Clock::default(),
            window: Mark::default(),
            windows: 0,
            made: 0,
            stands_for: 0.0,
            pairs: Pairs::of(burst.thread.into()),
            phase: None,
        };
        let thread = self.threads.entry(burst.thread).or_insert_with(new);
        let now = thread.clock.now();
        let goes_on = part == 0 && burst.goes_on() && now.seen - thread.window.seen < longest;
        if !goes_on {
            thread.window = now;
        }
        thread.clock.begin_window();
        if !goes_on {
            // Any of them, not each fourth: programs may go in such a step.
            let draw = self.bursts.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            self.watches = self.bursts < WATCHED_FIRST || draw.is_multiple_of(WATCHED);
        }
        let signs = thread.pairs.next_signs();
        let unseen = match (part, burst.unseen_before) {
            (0, Some(unseen)) => unseen.references,
            (0, None) => gap as u64,
            _ => 0,
        };
        thread.made += unseen;
        let moment = Moment { thread: thread.tag, burst: thread.windows, at: now, made: thread.made, unseen };
        for scopes in [&mut self.program, &mut self.instructions, &mut self.owners] {
            scopes.begin_burst(moment);
        }
        // A window that goes on tells nothing of how long phases last.
        let unseen = burst.unseen_before.filter(|_| part == 0 && !burst.goes_on());
        let at = Position { before: thread.phase, unseen };
        let mut phase = None;
        for (index, size) in self.sizes.iter_mut().enumerate() {
            size.last_use.begin_window(thread.tag, thread.window.seen);
            if !goes_on && self.watches {
                size.sets.iter_mut().flatten().for_each(Sets::begin_window);
            }
            size.watches = self.watches;
            let scopes = [&mut self.program, &mut self.instructions, &mut self.owners];
            let ([early, all], short, groups) =
                size.window(index, references, thread, weight, (scopes, &mut self.held));
            let phases = &mut self.phases;
            let phase = *phase.get_or_insert_with(|| {
                let class = Phases::class(early, all, references.len());
                phases.of(class, &Signature::of(references), at, references.len(), weight)
            });
            size.short.add(phase, &short, weight);
            size.groups.add(phase, &groups);
        }
        self.held.end_window(weight, goes_on || part > 0);
        thread.phase = phase;
        thread.clock.end_window(references.len() as u64, phase.unwrap_or_default(), &self.phases);
        thread.made += references.len() as u64;
        let all = references.len() as f64 * weight;
        thread.stands_for += all;
        if let Some(bytes) = self.data_bytes {
            self.data_then.add(all, bytes as f64);
        }
        thread.windows += 1;
        let (mut counted, mut reads) = (0u32, 0u32);
        for reference in references.iter().filter(|reference| counts(reference.kind)) {
            counted += 1;
            reads += u32::from(reference.kind.reads());
            self.instructions.count(reference.instruction, reference.kind);
            self.owners.count(reference.owner, reference.kind);
        }
        self.program.count_all(0, counted, reads);
        let stands_for = f64::from(counted) * weight;
        self.bursts += 1;
        let misses = self.program.present(0).map(|misses| misses * weight);
        self.spread.add(stands_for, self.cost.of(stands_for, misses));
        for scopes in [&mut self.program, &mut self.instructions, &mut self.owners] {
            scopes.end_burst(
                (weight, stands_for),
                references.len(),
                phase.unwrap_or_default(),
                &self.cost,
                signs,
            );
        }
    }

    /// What a reference of the next bursts counts, by level.
    fn learn(&mut self) {
        for index in 0..self.sizes.len() {
            let mut all = self.pooled(index);
            let mut bound = None;
            if let Some(room) = self.room(index) {
                let references = self.program.get(0).map_or(0.0, |program| program.references);
                bound = Some(Bound::new(room, references * all.beyond));
                all = Tilt::of(&[(references, &all)], room).apply(&all);
            }
            let footprint = Footprint::new(&all, &self.sizes[index].short.all());
            let size = &mut self.sizes[index];
            let model = Model::new(all, footprint, size.groups.all(), bound);
            size.scores = size.levels.iter().map(|&level| model.level(&self.levels[level])).collect();
        }
    }

    /// References between two bursts of a thread; 0: not known.
    fn gap(&self) -> f64 {
        self.gaps.get().unwrap_or(0.0)
    }

    fn typical(&self, scope: &Scope) -> Typical {
        Typical { unit: scope.unit(), gap: self.gap(), length: scope.mean_length() }
    }

    /// What is known by now. Cost: some microseconds for each instruction and owner seen.
    pub fn summary(&self) -> Summary {
        let known: Vec<Known> = (0..self.sizes.len()).map(|size| self.known(size)).collect();
        let mut levels: Vec<Level> = Vec::with_capacity(self.levels.len());
        for (index, geometry) in self.levels.iter().enumerate() {
            let of_size = |size: &BlockSize| size.levels.iter().position(|&level| level == index);
            let mut of_sizes = self.sizes.iter().enumerate();
            let (size, place) = of_sizes
                .find_map(|(at, size)| Some((at, of_size(size)?)))
                .expect("each level's size of block has an entry");
            let watched = self.sizes[size].sets[place].is_some().then_some(place);
            let most = self.held.most(index);
            levels.push(Level { size, watched, by_phase: known[size].level(geometry), most });
        }
        let rows = |scopes: &Scopes, most: fn(&Mosts) -> Option<&FxHashMap<u32, Most>>| -> Vec<(u32, Row)> {
            let row = |(id, scope, sums)| {
                let most = |level: &Level| most(&level.most).and_then(|most| most.get(&id).copied());
                (id, self.row(scope, sums, &known, &levels, most))
            };
            scopes.seen().map(row).collect()
        };
        let mut instructions = rows(&self.instructions, |most| Some(&most.instructions));
        let mut owners = rows(&self.owners, |most| Some(&most.owners));
        let mut total = rows(&self.program, |_| None).pop().map(|(_, row)| row).unwrap_or_default();
        lean(&total.levels, &mut instructions, &mut owners);
        let accesses: Vec<&Row> =
            instructions.iter().map(|(_, row)| row).filter(|row| !row.is_prefetch).collect();
        total.references = accesses.iter().map(|row| row.references).sum();
        total.observed = accesses.iter().map(|row| row.observed).sum();
        for (level, estimate) in total.levels.iter_mut().enumerate() {
            let sum =
                |value: fn(&Estimate) -> f64| accesses.iter().map(|row| value(&row.levels[level])).sum();
            estimate.misses = sum(|estimate| estimate.misses);
            estimate.low = sum(|estimate| estimate.low);
            estimate.high = sum(|estimate| estimate.high);
        }
        Summary { bursts: self.bursts, total, instructions, owners, spread: self.spread }
    }

    /// The miss-ratio curve of fully associative LRU caches with blocks of one of the sizes asked for at the
    /// beginning. Empty for other sizes, and for those who made no references.
    pub fn curve(&self, who: Who, block_bytes: u32, capacities: &[u64]) -> Vec<CurvePoint> {
        let scope = match who {
            Who::Program => self.program.get(0),
            Who::Instruction(id) => self.instructions.get(id),
            Who::Owner(id) => self.owners.get(id),
        };
        let size = self.sizes.iter().position(|size| block_bytes == 1 << size.shift);
        let (Some(scope), Some(size)) = (scope, size) else { return Vec::new() };
        let known = self.known(size);
        let reuse = scope.reuse.get(size).and_then(Option::as_ref).unwrap_or(&self.nothing);
        let times = match who {
            Who::Program => known.mixed.clone(),
            _ => self.times(reuse, scope, &known),
        };
        let point = |&bytes: &u64| {
            let blocks = (bytes / u64::from(block_bytes)).max(1);
            let level = known.level(&Geometry { block_bytes, blocks, ways: u32::MAX });
            let estimate = estimate(&mixed(reuse, &level), reuse, &times, scope.references, None);
            let ratio = |misses: f64| misses / scope.references;
            CurvePoint {
                bytes,
                ratio: ratio(estimate.misses),
                low: ratio(estimate.low),
                high: ratio(estimate.high),
            }
        };
        capacities.iter().map(point).collect()
    }

    /// The program's distribution of reuse times, all instructions in one.
    fn pooled(&self, size: usize) -> Distribution {
        let program = self.program.get(0);
        let reuse = program.and_then(|program| program.reuse.get(size)?.as_ref()).unwrap_or(&self.nothing);
        match program {
            Some(program) => reuse.distribution(program.references, None, self.typical(program)),
            None => reuse.distribution(0.0, None, Typical { unit: 1.0, gap: 0.0, length: 1.0 }),
        }
    }

    fn known(&self, size: usize) -> Known {
        let prior = self.pooled(size);
        let times = |(_, scope, _): (u32, &'_ Scope, ScopeSums<'_>)| {
            let reuse = scope.reuse.get(size).and_then(Option::as_ref).unwrap_or(&self.nothing);
            reuse.distribution(scope.references, Some(&prior), self.typical(scope))
        };
        let mut parts: Vec<(&Scope, Distribution)> =
            self.instructions.seen().map(|row| (row.1, times(row))).collect();
        let room = self.room(size);
        let uses: Vec<f64> = parts.iter().map(|(scope, _)| scope.uses(size)).collect();
        let all: Vec<_> = uses.iter().zip(&parts).map(|(&uses, (_, times))| (uses, times)).collect();
        let not_found = all.iter().map(|(uses, times)| uses * times.beyond).sum();
        let tilt = room.map(|room| Tilt::of(&all, room));
        if let Some(tilt) = &tilt {
            parts.iter_mut().for_each(|(_, times)| *times = tilt.apply(times));
        }
        let mixed = Distribution::mixed(parts.iter().map(|(scope, times)| (scope.references, times)));
        let mixed = mixed.unwrap_or_else(|| prior.clone());
        let BlockSize { short, groups, .. } = &self.sizes[size];
        let bound = room.map(|room| Bound::new(room, not_found));
        let phases = self.phases.models(&parts, &mixed, short, groups, bound);
        Known { prior, tilt, mixed, phases }
    }

    /// How much there is room for in blocks of a size, where that is known.
    fn room(&self, size: usize) -> Option<Room> {
        let of_size = |bytes: f64| (bytes / f64::from(1 << self.sizes[size].shift)).ceil().max(1.0);
        let blocks = of_size(self.data_bytes? as f64);
        let open = self.data_then.get().map_or(blocks, |bytes| of_size(bytes).min(blocks));
        let made = self.threads.values().map(|thread| thread.stands_for);
        let [all, squares, first] = made.fold([0.0; 3], |[all, squares, first], made| {
            [all + made, squares + made * made, first + made.min(blocks)]
        });
        (all > 0.0).then(|| Room { blocks, open, first, run: squares / all, gap: self.gap() })
    }

    /// A scope's distribution of reuse times.
    fn times(&self, reuse: &Reuse, scope: &Scope, known: &Known) -> Distribution {
        let times = reuse.distribution(scope.references, Some(&known.prior), self.typical(scope));
        match &known.tilt {
            Some(tilt) => tilt.apply(&times),
            None => times,
        }
    }

    fn row(
        &self,
        scope: &Scope,
        ScopeSums { by_level, spread }: ScopeSums<'_>,
        known: &[Known],
        levels: &[Level],
        most: impl Fn(&Level) -> Option<Most>,
    ) -> Row {
        let times: Vec<Option<(&Reuse, Distribution)>> = (known.iter().enumerate())
            .map(|(size, known)| {
                let reuse = scope.reuse.get(size)?.as_ref()?;
                Some((reuse, self.times(reuse, scope, known)))
            })
            .collect();
        let estimates = levels.iter().zip(by_level).map(|(level, sums)| {
            let found = times[level.size].as_ref().map(|(reuse, times)| {
                let misses = mixed(reuse, &level.by_phase);
                let miss = match level.watched {
                    Some(place) => {
                        let unit = scope.unit();
                        let by_sets = |time: usize| reuse.by_sets(place, time, misses.by_time[time], unit);
                        Misses { by_time: std::array::from_fn(by_sets), ..misses }
                    }
                    None => misses,
                };
                estimate(&miss, reuse, times, scope.references, most(level))
            });
            Estimate {
                standard_error: self.spread.error_of_share(sums),
                ratio_error: self.spread.error_of_ratio(sums, scope),
                ..found.unwrap_or_default()
            }
        });
        Row {
            references: scope.references,
            reads: scope.reads,
            observed: scope.observed,
            bursts: scope.bursts,
            is_prefetch: scope.is_prefetch,
            levels: estimates.collect(),
            spread,
        }
    }
}

/// What is known of one size of block.
struct Known {
    /// The program's reuse times, all instructions in one: what single ones lean on.
    prior: Distribution,
    /// What makes times agree with how much data there is, where that is known.
    tilt: Option<Tilt>,
    /// The sum of what the instructions say.
    mixed: Distribution,
    /// The same by phase.
    phases: Vec<Option<Model>>,
}

/// What is known of one level.
struct Level {
    /// Which size its blocks have.
    size: usize,
    /// Its place among the levels of that size, if its sets are watched.
    watched: Option<usize>,
    by_phase: PhaseLevels,
    /// How often what it holds can miss.
    most: Mosts,
}

/// What reuse times say for one level, by phase.
type PhaseLevels = Vec<Option<LevelModel>>;

impl Known {
    fn level(&self, geometry: &Geometry) -> PhaseLevels {
        self.phases.iter().map(|model| Some(model.as_ref()?.level(geometry))).collect()
    }
}

/// What a reuse time says of a scope, given the phases that it has its touches in.
fn mixed(reuse: &Reuse, level: &PhaseLevels) -> Misses {
    LevelModel::mixed(
        reuse.phases.iter().zip(level).filter_map(|(&part, level)| Some((part, level.as_ref()?))),
    )
}

/// Whether an access uses a block of data.
#[inline]
fn counts(kind: AccessKind) -> bool {
    kind != AccessKind::Fetch
}

impl BlockSize {
    /// Takes in the references of a window; `index`: the place of this size. Gives back how many were the first to
    /// their block, at the beginning and in all, how many had each trivial time, and how the blocks are spread.
    fn window(
        &mut self,
        index: usize,
        references: &[Reference],
        thread: &Thread,
        weight: f64,
        ([program, instructions, owners], held): ([&mut Scopes; 3], &mut Held),
    ) -> ([u64; 2], [u32; TRIVIAL as usize], Counts) {
        let tag = thread.tag << TAG_SHIFT;
        let (mut first_uses, mut short) = (0, [0u32; TRIVIAL as usize]);
        let mut groups = Counts::default();
        let mut early = None;
        let mut times = thread.clock.now().seen..;
        // Of the program: added up behind the loop.
        let mut within = [0u32; BINS];
        let mut lost = vec![[0u32; BINS]; self.levels.len()];
        for (at, some) in references.chunks(AHEAD).enumerate() {
            if at * AHEAD == Phases::SHORT_WINDOW {
                early = Some(first_uses);
            }
            let blocks = some.iter().map(|reference| (reference.address & ADDRESS_BITS) >> self.shift);
            self.last_use.approach(blocks.map(|block| block | tag));
            for (reference, now) in some.iter().zip(&mut times) {
                if !counts(reference.kind) {
                    continue;
                }
                let address = reference.address & ADDRESS_BITS;
                let first = address >> self.shift;
                let last = (address + u64::from(reference.size.saturating_sub(1))) >> self.shift;
                for block in first..=last.min(first + MOST_BLOCKS) {
                    let key = block | tag;
                    let before = self.last_use.touch(key, now);
                    if let Some(before) = before
                        && before >= thread.window.seen
                        && now - before < TRIVIAL
                    {
                        short[(now - before) as usize] += 1;
                        continue;
                    }
                    let phase = |then| instructions.phase(reference.instruction, then);
                    let seen = self.seen(key, now, before, thread, weight, phase);
                    if !matches!(seen, Seen::Within { .. }) {
                        first_uses += 1;
                        held.first_use(index, reference);
                    }
                    match seen {
                        Seen::Never { .. } => groups.add(block, None),
                        Seen::Across { age, .. } => groups.add(block, Some(age.time)),
                        Seen::Within { .. } | Seen::First { .. } => {}
                    }
                    match seen {
                        Seen::Within { time, lost: levels } => {
                            within[time] += 1;
                            places(levels.unwrap_or(0)).for_each(|place| lost[place][time] += 1);
                        }
                        _ => self.count(seen, program.reuse(0, index), weight),
                    }
                    self.count(seen, instructions.reuse(reference.instruction, index), weight);
                    self.count(seen, owners.reuse(reference.owner, index), weight);
                }
            }
        }
        if within.iter().any(|&count| count > 0) {
            let (reuse, sums) = program.reuse(0, index);
            for (time, &count) in within.iter().enumerate().filter(|(_, count)| **count > 0) {
                reuse.touch_all(count);
                reuse.within[time] += f64::from(count) * weight;
                if self.watches {
                    reuse.watched(time, f64::from(count) * weight);
                }
                for (place, lost) in lost.iter().enumerate().filter(|(_, lost)| lost[time] > 0) {
                    reuse.lost(place, time, f64::from(lost[time]) * weight);
                }
                for (place, (score, &level)) in self.scores.iter().zip(&self.levels).enumerate() {
                    let part = match &self.sets[place] {
                        Some(_) => reuse.by_sets(place, time, score.miss[time], weight),
                        None => score.miss[time],
                    };
                    sums[level].add(f64::from(count) * part);
                }
            }
        }
        ([early.unwrap_or(first_uses), first_uses], short, groups)
    }

    /// Counts a touch for a scope.
    #[inline]
    fn count(&self, seen: Seen, (reuse, sums): (&mut Reuse, &mut [Sums]), weight: f64) {
        seen.count(reuse, weight);
        for (place, (score, &level)) in self.scores.iter().zip(&self.levels).enumerate() {
            let probability = seen.probability(score);
            sums[level].add(match (seen, &self.sets[place]) {
                (Seen::Within { time, .. }, Some(_)) => reuse.by_sets(place, time, probability, weight),
                _ => probability,
            });
        }
    }

    /// What is known of a touch whose reuse time is not trivial. `phase`: whose time to tell its age in, see [`Scopes::phase`].
    #[inline]
    fn seen(
        &mut self,
        key: u64,
        now: u64,
        before: Option<u64>,
        thread: &Thread,
        weight: f64,
        phase: impl FnOnce(Option<usize>) -> Option<usize>,
    ) -> Seen {
        let position = now - thread.window.seen;
        let (mut lost, mut held) = (0u32, 0u32);
        let watched = if self.watches { &mut self.sets[..] } else { &mut [] };
        for (place, sets) in watched.iter_mut().enumerate() {
            if let Some(sets) = sets.as_mut().filter(|_| held >> place & 1 == 0) {
                match sets.misses(key, now, |block| self.last_use.lately(block)) {
                    true => lost |= 1 << place,
                    false => held |= self.holding[place],
                }
            }
        }
        match before {
            Some(before) if before >= thread.window.seen => {
                Seen::Within { time: bin(now - before), lost: self.watches.then_some(lost) }
            }
            _ if !self.last_use.is_kept(key) => Seen::First { position },
            Some(before) => {
                let (window, weight) = (thread.window.seen, weight / self.last_use.rate());
                let age = thread.clock.age(position, &thread.window, before, |then| phase(Some(then)));
                Seen::Across { position, now, age, window, weight }
            }
            None => {
                let since = self.regions.unused_since(key, now, thread.window.seen);
                let age = thread.clock.age(position, &thread.window, since, |_| phase(None));
                Seen::Never { position, age, weight: weight / self.last_use.rate() }
            }
        }
    }
}

/// A touch of a block. Bins for what is within a window; times on the thread's clock for what is not.
#[derive(Clone, Copy, Debug)]
enum Seen {
    Within {
        time: usize,
        /// A bit for each level of that size whose sets had lost it; None: these are not watched.
        lost: Option<u32>,
    },
    /// New in its window, and nothing is known of earlier ones.
    First { position: u64 },
    /// New in its window; an earlier one had it.
    Across {
        position: u64,
        now: u64,
        age: Age,
        /// When the present window began.
        window: u64,
        weight: f64,
    },
    /// No window had it.
    Never { position: u64, age: Age, weight: f64 },
}

/// Places of the bits that are set.
#[inline]
fn places(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(place)
    })
}

impl Seen {
    #[inline]
    fn count(self, reuse: &mut Reuse, one: f64) {
        reuse.touch();
        match self {
            Self::Within { time, lost } => {
                reuse.within[time] += one;
                if let Some(lost) = lost {
                    reuse.watched(time, one);
                    places(lost).for_each(|place| reuse.lost(place, time, one));
                }
            }
            Self::First { position } => reuse.first(position, one),
            Self::Across { position, now, age, window, weight } => {
                reuse.first(position, one);
                reuse.found(age, weight);
                reuse.order.find(now, age, window, weight);
            }
            Self::Never { position, age, weight } => {
                reuse.first(position, one);
                reuse.unfound(age, weight);
                reuse.order.miss(age, weight);
            }
        }
    }

    #[inline]
    fn probability(self, level: &LevelModel) -> f64 {
        match self {
            Self::Within { time, .. } => level.miss[time],
            Self::First { position } | Self::Across { position, .. } | Self::Never { position, .. } => {
                level.first[bin(position)]
            }
        }
    }
}
