//! Findings from a profile: which data to do what about, with evidence and what it could gain at most.
//!
//! ```text
//!  objects, cells, patterns ──► what each object's accesses would wait if … ──► findings, the largest gain first
//! ```
//!
//! A gain is the part of the modelled wait (see [`MachineInfo::wait_cycles`](memlens_profile::MachineInfo::wait_cycles))
//! that would go away if the remedy worked for every access: an upper bound, because the model has a core that waits
//! for each access by itself. Several findings can be about the same accesses; their gains do not add up.
//!
//! | finding | if | gain |
//! |---|---|---|
//! | [`Remedy::HugePages`] | the object has a huge page's worth of memory | its TLB misses and page walks, as far as its huge pages fit the second-level TLB |
//! | [`Remedy::Prefetch`] | addresses were loaded by another load (`A[B[i]]`) | their misses beyond the second level |
//! | [`Remedy::Layout`] | one stride of more than a line, and little of each line or page is used at a time | the misses that full lines, prefetched in time, and full pages would save |
//! | [`Remedy::Split`] | at most half of a structure's bytes have nearly all of its waiting, and the rest few accesses | the misses that full lines would save, all where the hot bytes fit a cache |
//! | [`Remedy::Pack`] | addresses are loaded from the blocks themselves (lists, trees) | their misses |
//! | [`Remedy::Separate`] | lines go from core to core for bytes that the other did not write (false sharing) | these misses |
//! | [`Remedy::PerThread`] | they do for bytes that several threads write | these misses |
//!
//! What glibc's malloc and the dynamic linker access has findings of huge pages only: their code is nobody's to change.
//!
//! Knows neither collectors nor terminals; profiles that count no misses have no findings.
#![forbid(unsafe_code)]

mod runtime_code;
mod split;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use memlens_profile::{
    AccessPattern, Cell, CodeIx, FieldIx, FieldShares, ModuleIx, Object, ObjectIx, Profile,
};
use memlens_types::{Counts, ObjectKind, PatternKind};

/// Smaller gains are not worth anybody's time, as a part of the whole wait.
pub const LEAST_GAIN: f64 = 0.02;
/// x86-64's huge pages.
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Lines of which a larger part is used are used well: another order would save none of them.
const MOST_USED: f64 = 0.75;
/// Threads that take fewer lines than this part of what the most active writer takes are not told as writers.
const LEAST_PART_OF_A_WRITER: f64 = 0.01;
/// Places in the code, and fields, that a finding names.
const MOST_PLACES: usize = 3;

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Remedy {
    /// Memory in pages of 2 MiB.
    HugePages {
        /// How many pages of 2 MiB the object has at most at a time.
        pages: u64,
        /// The part of its page walks that would go away, 0 to 1: its pages may be more than the TLB holds.
        walks_saved: f64,
    },
    /// Software prefetches some iterations ahead.
    Prefetch {
        /// The object that the indices or pointers are loaded from, if it is known.
        index: Option<ObjectIx>,
    },
    /// Another order of loops, or of fields.
    Layout {
        /// Bytes from one access to the next.
        stride_bytes: i64,
        /// Bytes of a line that are used.
        used_bytes: u32,
    },
    /// The fields that wait apart from the rest of their structure.
    Split {
        /// These fields.
        hot: Vec<FieldIx>,
        /// Their size in bytes.
        hot_bytes: u64,
        /// That of the structure.
        element_bytes: u64,
    },
    /// Blocks that follow one another side by side.
    Pack,
    /// What different threads use in lines of its own.
    Separate {
        /// Misses of lines that another core wrote beside what is accessed.
        false_sharing: u64,
        /// Threads that write while others use it.
        writers: usize,
        /// The fields that threads take from each other, if it is a structure; at most three.
        fields: Vec<FieldIx>,
    },
    /// A copy for each thread, or fewer updates.
    PerThread {
        /// Misses of lines in which another core wrote what is accessed.
        true_sharing: u64,
        /// As of [`Remedy::Separate`].
        writers: usize,
        /// As of [`Remedy::Separate`].
        fields: Vec<FieldIx>,
    },
}

impl Remedy {
    /// The word for programs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::HugePages { .. } => "huge-pages",
            Self::Prefetch { .. } => "prefetch",
            Self::Layout { .. } => "layout",
            Self::Split { .. } => "split",
            Self::Pack => "pack",
            Self::Separate { .. } => "separate",
            Self::PerThread { .. } => "per-thread",
        }
    }
}

/// Something to do about an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What.
    pub remedy: Remedy,
    /// The object.
    pub object: ObjectIx,
    /// The part of the whole wait that would go away at most, 0 to 1.
    pub gain: f64,
    /// The accesses that it is about.
    pub counts: Counts,
    /// Where they are made, the costliest first; at most three.
    pub code: Vec<CodeIx>,
}

/// All findings of at least [`LEAST_GAIN`], the largest first. Linear in the cells.
pub fn findings(profile: &Profile) -> Vec<Finding> {
    let whole = profile.wait_cycles(&profile.totals());
    if profile.run.sampling.is_some() || whole == 0 {
        return Vec::new();
    }
    let patterns: HashMap<CodeIx, &AccessPattern> = profile.patterns.iter().map(|it| (it.code, it)).collect();
    let loaded_from = profile.loaded_from();
    let shares = FieldShares::of(profile);
    let mut cells: Vec<Vec<&Cell>> = vec![Vec::new(); profile.objects.len()];
    for cell in &profile.cells {
        if let Some(of_object) = cells.get_mut(cell.object.index()) {
            of_object.push(cell);
        }
    }
    let mut found = Vec::new();
    for ((at, object), cells) in profile.objects.iter().enumerate().zip(&cells) {
        let at = ObjectIx::from_index(at);
        let (patterns, loaded_from, shares) = (&patterns, &loaded_from, &shares);
        let is_own = |cell: &&Cell| !runtime_code::is_runtimes(profile, cell.code);
        let own = &cells.iter().copied().filter(is_own).collect::<Vec<_>>();
        let about = About { profile, patterns, loaded_from, shares, at, object, cells, own, whole };
        found.extend(about.huge_pages());
        found.extend(about.by_pattern());
        found.extend(about.split());
        found.extend(about.shared());
    }
    found.retain(|finding: &Finding| finding.gain >= LEAST_GAIN);
    found.sort_by(|one, other| other.gain.total_cmp(&one.gain).then(one.object.cmp(&other.object)));
    found
}

/// An object and its accesses.
struct About<'a> {
    profile: &'a Profile,
    patterns: &'a HashMap<CodeIx, &'a AccessPattern>,
    loaded_from: &'a HashMap<CodeIx, ObjectIx>,
    shares: &'a FieldShares,
    at: ObjectIx,
    object: &'a Object,
    cells: &'a [&'a Cell],
    /// Those of code that can be changed.
    own: &'a [&'a Cell],
    whole: u64,
}

impl About<'_> {
    /// What `counts` wait now less what they would wait as `then`, as a part of the whole.
    fn saved(&self, counts: &Counts, then: &Counts) -> f64 {
        let saved = self.profile.wait_cycles(counts).saturating_sub(self.profile.wait_cycles(then));
        saved as f64 / self.whole as f64
    }

    fn finding(&self, remedy: Remedy, gain: f64, cells: &[&Cell]) -> Finding {
        let mut counts = Counts::default();
        cells.iter().for_each(|cell| counts += &cell.counts.get());
        let code = costliest(cells.iter().map(|cell| (cell.code, self.stall(&cell.counts.get()))));
        Finding { remedy, object: self.at, gain, counts, code }
    }

    /// Waiting beyond the first-level latency of every access.
    fn stall(&self, counts: &Counts) -> u64 {
        let hidden = u64::from(self.profile.machine.latencies.l1_cycles);
        self.profile.wait_cycles(counts).saturating_sub(counts.accesses().saturating_mul(hidden))
    }

    fn huge_pages(&self) -> Option<Finding> {
        let is_placeable =
            matches!(self.object.kind, ObjectKind::Heap | ObjectKind::Mmap | ObjectKind::Global);
        let bytes = self.object.max_live_bytes.or(self.object.bytes)?;
        if !is_placeable || bytes < HUGE_PAGE_BYTES {
            return None;
        }
        let pages = bytes.div_ceil(HUGE_PAGE_BYTES);
        // What a page's first access costs is left out; of more pages than entries a part misses on.
        let entries = self.profile.machine.stlb.or(self.profile.machine.dtlb)?.entries;
        let kept = 1.0 - (f64::from(entries) / pages as f64).min(1.0);
        let part = |count: u64| (count as f64 * kept) as u64;
        let now = self.object.counts;
        let then = Counts {
            dtlb_misses: part(now.dtlb_misses),
            stlb_misses: part(now.stlb_misses),
            page_walk_accesses: part(now.page_walk_accesses),
            ..now
        };
        let remedy = Remedy::HugePages { pages, walks_saved: 1.0 - kept };
        Some(self.finding(remedy, self.saved(&now, &then), self.cells))
    }

    /// One finding for each pattern that has a remedy; strides and indices of their own apart.
    fn by_pattern(&self) -> Vec<Finding> {
        let mut groups: BTreeMap<(u8, i64), Vec<&Cell>> = BTreeMap::new();
        for &cell in self.own {
            let Some(pattern) = self.patterns.get(&cell.code) else { continue };
            let key = match pattern.kind {
                PatternKind::Indirect => {
                    let index = pattern.loaded_by.and_then(|loader| self.loaded_from.get(&loader));
                    (0, index.map_or(-1, |object| object.index() as i64))
                }
                PatternKind::Stride => (1, pattern.stride_bytes.unwrap_or(0)),
                PatternKind::PointerChase => (2, 0),
                _ => continue,
            };
            groups.entry(key).or_default().push(cell);
        }
        groups.into_iter().filter_map(|(key, cells)| self.of_pattern(key, &cells)).collect()
    }

    fn of_pattern(&self, (kind, value): (u8, i64), cells: &[&Cell]) -> Option<Finding> {
        let mut counts = Counts::default();
        cells.iter().for_each(|cell| counts += &cell.counts.get().without_coherence());
        let with_misses = |kept_l1: f64, kept: f64| {
            let of_l1 = |count: u64| (count as f64 * kept_l1) as u64;
            let part = |count: u64| (count as f64 * kept) as u64;
            counts.with_misses(of_l1, part, part)
        };
        let (remedy, then) = match kind {
            // What the second level has is near enough: out-of-order execution hides that much.
            0 => {
                let index = u32::try_from(value).ok().map(ObjectIx);
                (Remedy::Prefetch { index }, with_misses(1.0, 0.0))
            }
            1 => {
                let used_bytes = self.used_bytes(cells)?;
                let machine = &self.profile.machine;
                let line = machine.line_bytes.max(1);
                if used_bytes == 0 {
                    return None;
                }
                let used = f64::from(used_bytes) / f64::from(line);
                let mut then = match used > MOST_USED {
                    true => counts,
                    // One line behind the other is what a prefetcher asks for in time.
                    false if machine.prefetcher_streams > 0 => with_misses(used, 0.0),
                    false => with_misses(used, used),
                };
                // In the order of addresses a page is looked up once.
                let pages = (counts.load_bytes + counts.store_bytes) / u64::from(machine.page_bytes.max(1));
                let kept = (pages as f64 / counts.dtlb_misses.max(1) as f64).min(1.0);
                let part = |count: u64| (count as f64 * kept) as u64;
                then.dtlb_misses = part(then.dtlb_misses);
                then.stlb_misses = part(then.stlb_misses);
                then.page_walk_accesses = part(then.page_walk_accesses);
                (Remedy::Layout { stride_bytes: value, used_bytes: used_bytes.min(line) }, then)
            }
            _ => (Remedy::Pack, with_misses(0.0, 0.0)),
        };
        Some(self.finding(remedy, self.saved(&counts, &then), cells))
    }

    /// How many bytes of a line are used before it is gone: what the functions of these cells access of the object, for each miss of the
    /// first level. A load and a store of the same bytes are one use. Several operands may share a line (the fields of an
    /// element, an unrolled loop): what one of them uses says little.
    fn used_bytes(&self, cells: &[&Cell]) -> Option<u32> {
        let codes = cells.iter().filter_map(|cell| self.profile.code.get(cell.code.index()));
        let largest = codes.map(|code| code.size_bytes).max()?;
        let functions: BTreeSet<_> = cells.iter().map(|cell| self.function(cell)).collect();
        let mut counts = Counts::default();
        let theirs = self.cells.iter().filter(|cell| functions.contains(&self.function(cell)));
        theirs.for_each(|cell| counts += &cell.counts.get().without_coherence());
        let bytes = counts.load_bytes.max(counts.store_bytes);
        let of_a_miss = bytes.checked_div(counts.l1_misses()).unwrap_or(u64::MAX);
        Some(u32::try_from(of_a_miss).unwrap_or(u32::MAX).max(largest))
    }

    /// Module and name of the function that a cell's code stands in, inlined calls dissolved.
    fn function(&self, cell: &Cell) -> Option<(Option<ModuleIx>, &str)> {
        let stack = self.profile.code.get(cell.code.index())?.stack;
        let frame = self.profile.stack_frames(stack).last()?;
        Some((frame.module, frame.function.as_deref()?))
    }

    /// Of what threads take from each other.
    fn shared(&self) -> Vec<Finding> {
        let shared = self.object.counts.shared;
        let (false_sharing, whole) =
            (shared.false_sharing.min(shared.coherence_misses), shared.coherence_misses);
        // Who only set it up, or reads it when all is done, takes no line from anybody.
        let takes = |counts: Counts| counts.shared.coherence_misses + counts.invalidations;
        let takers: Vec<&Cell> =
            self.own.iter().copied().filter(|cell| takes(cell.counts.get()) > 0).collect();
        let users: BTreeSet<_> = takers.iter().map(|cell| cell.thread).collect();
        let mut taken: BTreeMap<_, u64> = BTreeMap::new();
        for cell in takers.iter().filter(|cell| cell.counts.get().stores > 0) {
            *taken.entry(cell.thread).or_default() += takes(cell.counts.get());
        }
        let most = taken.values().copied().max().unwrap_or(0);
        let writers =
            taken.values().filter(|&&taken| taken as f64 >= LEAST_PART_OF_A_WRITER * most as f64).count();
        let pieces = takers.iter().flat_map(|cell| self.shares.pieces(cell));
        let fields = costliest(pieces.map(|(field, counts)| (field, takes(counts))));
        let code = costliest(takers.iter().map(|cell| (cell.code, takes(cell.counts.get()))));
        let now = self.object.counts;
        let finding = |remedy, misses| {
            let gain = self.saved(&now, &now.with_fewer_misses(misses));
            Finding { code: code.clone(), ..self.finding(remedy, gain, self.cells) }
        };
        let mut found = Vec::new();
        if false_sharing > 0 && users.len() > 1 && writers > 0 {
            let remedy = Remedy::Separate { false_sharing, writers, fields: fields.clone() };
            found.push(finding(remedy, false_sharing));
        }
        // What one thread writes for others has to reach them.
        if whole > false_sharing && writers > 1 {
            let true_sharing = whole - false_sharing;
            found.push(finding(Remedy::PerThread { true_sharing, writers, fields }, true_sharing));
        }
        found
    }
}

/// Those with the largest sums, the largest first; at most three.
fn costliest<K: Copy + Ord>(costs: impl Iterator<Item = (K, u64)>) -> Vec<K> {
    let mut sums: BTreeMap<K, u64> = BTreeMap::new();
    for (key, cost) in costs {
        *sums.entry(key).or_default() += cost;
    }
    let mut keys: Vec<K> = sums.keys().copied().collect();
    keys.sort_by_key(|key| Reverse(sums[key]));
    keys.truncate(MOST_PLACES);
    keys
}

#[cfg(test)]
mod tests;
