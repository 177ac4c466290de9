//! Findings from a profile: which data to do what about, with evidence and what it could gain at most.
//!
//! ```text
//!  rows of objects, cells, patterns ──► what each row's accesses would wait if … ──► findings, the largest gain first
//! ```
//!
//! A finding is about a row of the report's objects, those of one name and line
//! ([`Profile::object_rows`](memlens_profile::Profile::object_rows)): what one line allocates at ten call paths is one
//! thing to change. What holds of single objects is asked of each: whether it has a huge page's worth of memory, how much
//! of its lines is used, how far its walks go, whether several threads write the same bytes. Where it holds of some only,
//! the finding is about these. Fields that stand for one member of a structure are one field.
//!
//! A gain is the part of the modelled wait (see [`MachineInfo::wait_cycles`](memlens_profile::MachineInfo::wait_cycles))
//! that would go away if the remedy worked for every access: an upper bound, because there each access waits by itself. Where the profile
//! says how much of its accesses' latency a core waits for, the part of the time that this is stands beside it. Several findings can be about the same accesses; their gains do not add up.
//!
//! | finding | if | gain |
//! |---|---|---|
//! | [`Remedy::HugePages`] | the object has a huge page's worth of memory | its TLB misses and page walks, as far as its huge pages fit the second-level TLB |
//! | [`Remedy::Prefetch`] | addresses were loaded by another load (`A[B[i]]`) | their misses beyond the second level |
//! | [`Remedy::Sort`] | they were, in a long loop that goes through these in order, more than once | the misses that one a line and page for each of its walks, prefetched in time, would save |
//! | [`Remedy::Layout`] | one stride of more than a line, and little of each line or page is used at a time | the misses that full lines, prefetched in time, and full pages would save |
//! | [`Remedy::Pad`] | one stride by which a walk falls onto few sets of a cache, or of the second-level TLB, that would hold it | the misses there beyond those that reading each line, or page, once needs |
//! | [`Remedy::Split`] | at most half of a structure's bytes have nearly all of its waiting, and the rest few uses | the misses that full lines and pages would save, all where the hot bytes fit a cache or TLB |
//! | [`Remedy::Pack`] | addresses are loaded from the nodes themselves (lists, trees), which do not lie in the order of the walk | their misses, those of the TLB, too |
//! | [`Remedy::Shorten`] | they are, on short ways that each begin anew and may end early: buckets of a hash table, binary trees | of these misses those of all nodes but one, or of two levels of three |
//! | [`Remedy::Separate`] | lines go from core to core for bytes that the other did not write (false sharing), in the same object or beside it | these misses |
//! | [`Remedy::PerThread`] | they do for bytes that several threads write | these misses |
//! | [`Remedy::Allocate`] | `malloc` and `free` wait for what they keep in the heap | these accesses |
//! | [`Remedy::Place`] | pages lie in another memory node (NUMA) than the one that misses them most | what they wait longer for it |
//!
//! What glibc's malloc and the dynamic linker access has findings of huge pages, and of fewer calls, only: their code is nobody's to change. Nor are the loops
//! of its functions for memory and strings.
//!
//! Of sets bursts know what falls into one between two uses inside of a burst, so that [`Remedy::Pad`] is of short walks there. Last levels are left
//! out: where a line lies in them is a hash that processors' makers do not tell.
//!
//! Knows neither collectors nor terminals; profiles that count no misses have no findings.
#![forbid(unsafe_code)]

mod allocate;
mod chase;
mod nodes;
mod pad;
mod parallel;
mod runtime_code;
mod sort;
mod split;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use memlens_profile::place::is_library;
use memlens_profile::{
    AccessPattern, Cell, CodeIx, FieldIx, FieldShares, ModuleIx, Object, ObjectIx, PatternIndex, Profile,
    TlbInfo,
};
use memlens_types::{AccessKind, Counts, ObjectKind, PatternKind};

pub use allocate::Allocating;
pub use chase::{Nodes, Searched};
pub use nodes::FirstTouch;
pub use pad::{Level, SetConflict};

/// Smaller gains are not worth anybody's time, as a part of the whole wait.
pub const LEAST_GAIN: f64 = 0.02;
/// Nor are those of which other work hides nearly all, as a part of the core's time.
pub const LEAST_TIME_GAIN: f64 = 0.005;
/// What has less of all stalls needs no word where there is no remedy for it.
pub const LEAST_WITHOUT_REMEDY: f64 = 0.1;
/// A prefetch is told of although the model hides it if its accesses have so much of all stalls.
const MUCH: f64 = 0.2;
/// Lines that threads take from each other are told of whatever bursts see of that, from this part of all accesses on.
const MUCH_USED: f64 = 0.1;
/// x86-64's huge pages.
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Lines and pages of which a larger part is used are used well: another order would save none of them.
const MOST_USED: f64 = 0.75;
/// Threads that take fewer lines than this part of what the most active writer takes are not told as writers.
const LEAST_PART_OF_A_WRITER: f64 = 0.01;
/// Of the misses of a walk this part has to be of short ones for the loops to be in blocks already.
const NEARLY_ALL: f64 = 0.9;
/// Places in the code, fields, and allocation sites, that a finding names.
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
        /// The object that the indices or pointers are loaded from, if it is known; of a row the costliest.
        index: Option<ObjectIx>,
        /// What the same index leads to besides, with prefetches of its own: their misses are under way together.
        beside: Vec<ObjectIx>,
    },
    /// Another order of what leads to it, or of what it leads to.
    Sort {
        /// The object that the indices or pointers are loaded from.
        index: ObjectIx,
        /// How often they are gone through.
        walks: f64,
        /// What the same index leads to besides: one order is for all.
        beside: Vec<ObjectIx>,
    },
    /// Another order of loops, or of fields.
    Layout {
        /// Bytes from one access to the next.
        stride_bytes: i64,
        /// Bytes of a line that are used.
        used_bytes: u32,
        /// What the same line of code goes through in order as often: exchanging its loops would exchange the two.
        against: Option<ObjectIx>,
    },
    /// Some bytes more between rows, so that a column spreads over all sets.
    Pad {
        /// Bytes from one access to the next.
        stride_bytes: i64,
        /// Lines of one walk: of each operand the longest that was seen to its end, else the span of its windows; of several
        /// operands the least.
        lines: u64,
        /// Bytes that would do.
        padding_bytes: u64,
        /// The levels where the lines do not fit their sets; the first before the second.
        conflicts: Vec<SetConflict>,
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
    /// Nodes that follow one another side by side.
    Pack {
        /// What they are.
        nodes: Nodes,
    },
    /// Fewer nodes from the begin of a search to its end.
    Shorten {
        /// What is searched.
        searched: Searched,
        /// How many nodes a search goes through on average.
        nodes: f64,
    },
    /// What different threads use in lines of its own.
    Separate {
        /// Misses of lines that another core wrote beside what is accessed.
        false_sharing: u64,
        /// Threads that take its lines from others; of one alone the others use what lies beside it.
        users: usize,
        /// Those of them that write.
        writers: usize,
        /// The fields that threads take from each other, if it is a structure; at most three.
        fields: Vec<FieldIx>,
    },
    /// A copy for each thread, or fewer updates.
    PerThread {
        /// Misses of lines in which another core wrote what is accessed.
        true_sharing: u64,
        /// Threads that write while others use it.
        writers: usize,
        /// As of [`Remedy::Separate`].
        fields: Vec<FieldIx>,
        /// Whether each of its fields is written by one thread, for the others to read, as in a queue of one producer and one consumer: there is
        /// nothing to copy, but less to look at.
        one_writer_each: bool,
    },
    /// Fewer calls of `malloc` and `free`.
    Allocate {
        /// Blocks that the program had in all.
        blocks: u64,
        /// Who had most of them, at most three.
        allocating: Vec<Allocating>,
    },
    /// Pages in the memory node whose cores miss them.
    Place {
        /// Last-level misses to another node's memory, of the accesses meant.
        remote_misses: u64,
        /// Those of them that would not be, if each page lay in the node that misses it most.
        misplaced: u64,
        /// Threads that have these.
        users: usize,
        /// The one thread that touched nearly all pages first. None: there are several, or it is not known.
        first: Option<FirstTouch>,
    },
}

impl Remedy {
    /// The word for programs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::HugePages { .. } => "huge-pages",
            Self::Prefetch { .. } => "prefetch",
            Self::Sort { .. } => "sort",
            Self::Layout { .. } => "layout",
            Self::Pad { .. } => "pad",
            Self::Split { .. } => "split",
            Self::Pack { .. } => "pack",
            Self::Shorten { .. } => "shorten",
            Self::Separate { .. } => "separate",
            Self::PerThread { .. } => "per-thread",
            Self::Allocate { .. } => "allocate-less",
            Self::Place { .. } => "place",
        }
    }
}

/// Something to do about a row of objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What.
    pub remedy: Remedy,
    /// The row of the report, its costliest object first.
    pub row: Vec<ObjectIx>,
    /// Those of the row that it is about, in the same order.
    pub objects: Vec<ObjectIx>,
    /// The part of the whole wait that would go away at most, 0 to 1.
    pub gain: f64,
    /// The part of the modelled core's cycles that would go away at most, 0 to 1: of that wait as much as the core does not hide of
    /// these accesses'. None: no core was modelled.
    pub time_gain: Option<f64>,
    /// The accesses that it is about.
    pub counts: Counts,
    /// Where they are made, the costliest first; at most three.
    pub code: Vec<CodeIx>,
}

impl Finding {
    /// Whether there may be far more of what it is about: how often another thread takes a line depends on how fast accesses follow each other, and
    /// those of a burst follow more slowly than the program's. One run finds ten times as many as another.
    pub fn is_seen_too_seldom(&self, profile: &Profile) -> bool {
        let several_write = match self.remedy {
            Remedy::Separate { writers, .. } => writers > 1,
            Remedy::PerThread { writers, one_writer_each, .. } => writers > 1 && !one_writer_each,
            _ => false,
        };
        several_write && profile.run.estimated
    }
}

/// What there is to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advice {
    /// The largest gain first, by time if that is known.
    pub findings: Vec<Finding>,
    /// Those of which the modelled core hides nearly all, so that less than [`LEAST_TIME_GAIN`] is left; the largest part of the wait
    /// first. The core bounds how many lines are under way and how fast they come from memory, but not how fast they pass between
    /// caches, so that this may be too little. Without prefetches, which gain nothing where the core has as many under way. None of a profile
    /// whose model explains little of the measured time ([`Profile::unexplained_part`]).
    pub hidden: Vec<Finding>,
    /// Rows that none of these is about, with their part of all stalls (of the wait, without a modelled core), at least
    /// [`LEAST_WITHOUT_REMEDY`] of them; the largest first.
    pub without_remedy: Vec<(Vec<ObjectIx>, f64)>,
}

/// All findings of at least [`LEAST_GAIN`] of the wait, or of the modelled time, and lines that several threads write all the time. Linear in the
/// cells.
pub fn advice(profile: &Profile) -> Advice {
    let whole = profile.wait_cycles(&profile.totals());
    if profile.run.sampling.is_some() || whole == 0 {
        return Advice::default();
    }
    let patterns = PatternIndex::new(profile);
    let rows = profile.object_rows();
    let first_of = rows.iter().flat_map(|row| row.iter().map(|&object| (object, row[0]))).collect();
    let known = Known {
        profile,
        patterns,
        loaded_from: profile.loaded_from(),
        shares: FieldShares::of(profile),
        alike: alike_fields(profile, &first_of),
        first_of,
        whole,
    };
    let mut cells: Vec<Vec<&Cell>> = vec![Vec::new(); profile.objects.len()];
    for cell in &profile.cells {
        if let Some(of_object) = cells.get_mut(cell.object.index()) {
            of_object.push(cell);
        }
    }
    let is_own = |cell: &&Cell| !runtime_code::is_runtimes(profile, cell.code);
    let mut found = Vec::new();
    for row in &rows {
        let member = |&at: &ObjectIx| {
            let (object, cells) = (profile.objects.get(at.index())?, cells.get(at.index())?);
            Some(Member { at, object, cells, own: cells.iter().copied().filter(is_own).collect() })
        };
        let about = About { known: &known, row, members: row.iter().filter_map(member).collect() };
        found.extend(about.huge_pages());
        let apart = about.split();
        // Of structures one after the other no loop is to be exchanged: their fields are to be.
        let goes_through = |stride_bytes: i64| {
            apart.iter().any(|finding| match finding.remedy {
                Remedy::Split { element_bytes, .. } => {
                    finding.gain >= LEAST_GAIN && stride_bytes.unsigned_abs() == element_bytes
                }
                _ => false,
            })
        };
        let is_other_order = |finding: &Finding| !matches!(finding.remedy, Remedy::Layout { stride_bytes, .. } if goes_through(stride_bytes));
        found.extend(about.by_pattern().into_iter().filter(is_other_order));
        found.extend(about.sort());
        found.extend(about.chains());
        found.extend(about.pad());
        found.extend(apart);
        found.extend(about.separate());
        found.extend(about.per_thread());
        found.extend(about.place());
    }
    found.extend(allocate::fewer_calls(&known, &rows, &cells));
    let may_be_more = |finding: &Finding| {
        finding.is_seen_too_seldom(profile)
            && finding.counts.accesses() as f64 >= MUCH_USED * profile.totals().accesses() as f64
    };
    found.retain(|finding: &Finding| {
        finding.gain.max(finding.time_gain.unwrap_or(0.0)) >= LEAST_GAIN || may_be_more(finding)
    });
    parallel::share_stalls(&known, &mut found);
    let is_little = |finding: &Finding| finding.time_gain.is_some_and(|gain| gain < LEAST_TIME_GAIN);
    // What the core overlaps by itself a prefetch hardly helps, unless nothing else waits.
    let stalls = profile.totals().stall_cycles as f64;
    let is_much = |finding: &Finding| finding.counts.stall_cycles as f64 >= MUCH * stalls && stalls > 0.0;
    found.retain(|finding| {
        let may_help = !matches!(finding.remedy, Remedy::Prefetch { .. }) || is_much(finding);
        may_help || !is_little(finding)
    });
    // Where the model knows little of the time, nothing is left out for that.
    let is_hidden = |finding: &Finding| {
        is_little(finding) && profile.unexplained_part().is_none() && !may_be_more(finding)
    };
    let (mut hidden, mut findings): (Vec<_>, Vec<_>) = found.into_iter().partition(is_hidden);
    let sort = |found: &mut Vec<Finding>, gain: fn(&Finding) -> f64| {
        found.sort_by(|one, other| gain(other).total_cmp(&gain(one)).then(one.row.cmp(&other.row)));
    };
    sort(&mut findings, |finding| finding.time_gain.unwrap_or(finding.gain));
    sort(&mut hidden, |finding| finding.gain);
    let has_finding =
        |row: &&Vec<ObjectIx>| findings.iter().chain(&hidden).any(|finding| finding.row == **row);
    let without = rows.iter().filter(|row| !has_finding(row));
    let without_remedy = rows_that_wait(profile, without.cloned());
    Advice { findings, hidden, without_remedy }
}

/// Rows with much of what a program waits for; none where that is no part of its time to speak of.
fn rows_that_wait(profile: &Profile, rows: impl Iterator<Item = Vec<ObjectIx>>) -> Vec<(Vec<ObjectIx>, f64)> {
    let stalls = |counts: &Counts| profile.stall_cycles(counts) as f64;
    let whole = stalls(&profile.totals());
    let is_little = |cycles: u64| profile.has_stalls() && whole < LEAST_WITHOUT_REMEDY * cycles as f64;
    if whole == 0.0 || profile.run.core_cycles.is_some_and(is_little) {
        return Vec::new();
    }
    let with_share = rows.map(|row| {
        let objects = row.iter().filter_map(|at| profile.objects.get(at.index()));
        let share = objects.map(|object| stalls(&object.counts)).sum::<f64>() / whole;
        (row, share)
    });
    let mut found: Vec<_> = with_share.filter(|&(_, share)| share >= LEAST_WITHOUT_REMEDY).collect();
    found.sort_by(|one, other| other.1.total_cmp(&one.1));
    found
}

/// Module and name; and that of a library's algorithm which is inlined there, with a loop of its own (`std::fill`).
type Function<'a> = (Option<ModuleIx>, &'a str, Option<&'a str>);

/// See [`About::unrolled_copies`]: object, field, file and line, stride in bytes.
type Copies<'a> = (ObjectIx, FieldIx, &'a str, u32, i64);

/// What is asked of all rows.
struct Known<'a> {
    profile: &'a Profile,
    patterns: PatternIndex<'a>,
    loaded_from: HashMap<CodeIx, ObjectIx>,
    shares: FieldShares,
    /// Of each field the one that stands for those of its name and place in objects of its row.
    alike: Vec<FieldIx>,
    /// Of each object the first of its row.
    first_of: HashMap<ObjectIx, ObjectIx>,
    whole: u64,
}

impl Known<'_> {
    /// What a part of the whole wait is of the core's cycles, if these accesses wait for it.
    fn time_gain(&self, remedy: &Remedy, gain: f64, counts: &Counts) -> Option<f64> {
        let Known { profile, whole, .. } = self;
        let core_cycles = profile.run.core_cycles.filter(|&cycles| cycles > 0)?;
        if let (Remedy::HugePages { walks_saved, .. }, Some(stalls)) =
            (remedy, profile.translation_stall_cycles(counts))
        {
            return Some((stalls as f64 * walks_saved / core_cycles as f64).min(1.0));
        }
        // All of it goes away with the calls.
        if let Remedy::Allocate { .. } = remedy {
            return Some((counts.stall_cycles as f64 / core_cycles as f64).min(1.0));
        }
        let of = |wait: u64| counts.stall_cycles as f64 / wait.max(1) as f64;
        let stalled = of(profile.wait_cycles(counts));
        let not_hidden = match remedy {
            // Prefetched lines have to come all the same, so many at a time.
            Remedy::Prefetch { .. } => stalled - 1.0 / f64::from(profile.machine.core?.outstanding.max(1)),
            // What cores take from each other is a stall as a whole.
            Remedy::Separate { .. } | Remedy::PerThread { .. } => 1.0,
            // What is spared is beyond hits of the first level, and these are hidden.
            _ => of(self.stall(counts)).min(1.0),
        };
        Some((gain * *whole as f64 * not_hidden.max(0.0) / core_cycles as f64).min(1.0))
    }

    /// Waiting beyond the first level, in cycles.
    fn stall(&self, counts: &Counts) -> u64 {
        self.profile.machine.wait_beyond_first_level(counts)
    }
}

/// A row of objects.
struct About<'a> {
    known: &'a Known<'a>,
    row: &'a [ObjectIx],
    members: Vec<Member<'a>>,
}

/// An object and its accesses.
struct Member<'a> {
    at: ObjectIx,
    object: &'a Object,
    cells: &'a [&'a Cell],
    /// Those of code that can be changed.
    own: Vec<&'a Cell>,
}

impl Member<'_> {
    /// The most bytes that it has at a time, as far as known.
    fn bytes(&self) -> Option<u64> {
        bytes_at_a_time(self.object)
    }

    /// Whether the kernel was seen to have most of it in huge pages.
    fn is_in_huge_pages(&self) -> bool {
        self.object.backing.as_ref().and_then(|backing| backing.huge_share()).is_some_and(|share| share > 0.5)
    }
}

/// The most bytes that an object has at a time, as far as known.
fn bytes_at_a_time(object: &Object) -> Option<u64> {
    object.max_live_bytes.or(object.bytes)
}

/// Of each field the first with the same offset, size and name in an object of the same row.
fn alike_fields(profile: &Profile, first_of: &HashMap<ObjectIx, ObjectIx>) -> Vec<FieldIx> {
    let mut firsts = HashMap::new();
    let fields = profile.fields.iter().enumerate().map(|(at, field)| {
        let key = (first_of.get(&field.object), field.offset_bytes, field.size_bytes, &field.name);
        *firsts.entry(key).or_insert(FieldIx::from_index(at))
    });
    fields.collect()
}

impl<'a> About<'a> {
    /// What `counts` wait now less what they would wait as `then`, as a part of the whole.
    fn saved(&self, counts: &Counts, then: &Counts) -> f64 {
        let profile = self.known.profile;
        let saved = profile.wait_cycles(counts).saturating_sub(profile.wait_cycles(then));
        saved as f64 / self.known.whole as f64
    }

    /// About the objects of these cells.
    fn finding(&self, remedy: Remedy, gain: f64, cells: &[&Cell]) -> Finding {
        let objects: BTreeSet<ObjectIx> = cells.iter().map(|cell| cell.object).collect();
        let objects = self.row.iter().copied().filter(|object| objects.contains(object)).collect();
        let code = costliest(cells.iter().map(|cell| (cell.code, self.known.stall(&cell.counts.get()))));
        let counts = sum(cells);
        let time_gain = self.known.time_gain(&remedy, gain, &counts);
        Finding { remedy, row: self.row.to_vec(), objects, gain, time_gain, counts, code }
    }

    fn own(&self) -> impl Iterator<Item = &'a Cell> {
        self.members.iter().flat_map(|member| member.own.iter().copied())
    }

    /// A cell's counts by field; members of one structure in several objects of the row are one.
    fn pieces(&self, cell: &Cell) -> impl Iterator<Item = (FieldIx, Counts)> {
        let one = |field: FieldIx| self.known.alike.get(field.index()).copied().unwrap_or(field);
        self.known.shares.pieces(cell).map(move |(field, counts)| (one(field), counts))
    }

    /// Of the objects that have a huge page's worth of memory each; `memlens apply` places no others.
    fn huge_pages(&self) -> Option<Finding> {
        let pages = |member: &Member<'_>| {
            let is_placeable =
                matches!(member.object.kind, ObjectKind::Heap | ObjectKind::Mmap | ObjectKind::Global)
                    && !member.is_in_huge_pages();
            let bytes = member.bytes().filter(|&bytes| is_placeable && bytes >= HUGE_PAGE_BYTES)?;
            Some(bytes.div_ceil(HUGE_PAGE_BYTES))
        };
        let placed: Vec<(&Member<'_>, u64)> =
            self.members.iter().filter_map(|member| Some((member, pages(member)?))).collect();
        let pages = placed.iter().map(|(_, pages)| pages).sum::<u64>();
        // What a page's first access costs is left out; of more pages than entries a part misses on.
        let machine = &self.known.profile.machine;
        let entries = machine.stlb.or(machine.dtlb)?.entries;
        let kept = 1.0 - (f64::from(entries) / pages.max(1) as f64).min(1.0);
        let part = |count: u64| (count as f64 * kept) as u64;
        let mut now = Counts::default();
        placed.iter().for_each(|(member, _)| now += &member.object.counts);
        let then = now.with_tlb_misses(part, part);
        let remedy = Remedy::HugePages { pages, walks_saved: 1.0 - kept };
        let cells: Vec<&Cell> = placed.iter().flat_map(|(member, _)| member.cells.iter().copied()).collect();
        Some(self.finding(remedy, self.saved(&now, &then), &cells))
    }

    /// One finding for each pattern that has a remedy; strides and indices of their own apart.
    fn by_pattern(&self) -> Vec<Finding> {
        let mut groups: BTreeMap<Group, Vec<&Cell>> = BTreeMap::new();
        let copies = self.unrolled_copies();
        let prefetches = self.prefetches();
        for cell in self.own() {
            let Some(pattern) = self.known.patterns.of(cell.code, cell.object) else { continue };
            let group = match pattern.kind {
                // The program does already what it would be told to do.
                PatternKind::Indirect if self.is_with_one_of(&prefetches, cell) => continue,
                PatternKind::Indirect => {
                    let index = pattern.loaded_by.and_then(|loader| self.known.loaded_from.get(&loader));
                    Group::By(index.and_then(|index| self.known.first_of.get(index)).copied())
                }
                _ => match main_stride(pattern) {
                    Some(stride_bytes)
                        if !runtime_code::is_memory_or_string_function(self.known.profile, cell.code) =>
                    {
                        Group::Stride(self.step_bytes(cell, stride_bytes, &copies))
                    }
                    _ => continue,
                },
            };
            groups.entry(group).or_default().push(cell);
        }
        let finding = |(group, cells): (Group, Vec<&Cell>)| {
            let counts = sum_alone(&cells);
            match group {
                Group::Stride(stride_bytes) => self.layout(stride_bytes, &cells),
                // What the second level has is near enough: out-of-order execution hides that much.
                Group::By(index) => {
                    let then = counts.with_misses(|misses| misses, |_| 0, |_| 0);
                    let remedy = Remedy::Prefetch { index, beside: Vec::new() };
                    Some(self.finding(remedy, self.saved(&counts, &then), &cells))
                }
            }
        };
        groups.into_iter().filter_map(finding).collect()
    }

    /// Prefetch instructions of the program for the row's objects.
    fn prefetches(&self) -> Vec<&'a Cell> {
        let code = &self.known.profile.code;
        let is_prefetch = |cell: &&Cell| {
            code.get(cell.code.index()).is_some_and(|location| location.kind == AccessKind::Prefetch)
        };
        self.own().filter(is_prefetch).collect()
    }

    /// Whether one of others on its object is in its function; where no function is known, in the code around it.
    fn is_with_one_of(&self, others: &[&Cell], cell: &Cell) -> bool {
        /// Bytes of code that are likely of one function.
        const NEAR: u64 = 4096;
        let place = |cell: &Cell| {
            let location = self.known.profile.code.get(cell.code.index())?;
            Some((location.module, location.offset))
        };
        let is_near = |other: &Cell| {
            let (Some((module, offset)), Some((of_other, at))) = (place(cell), place(other)) else {
                return false;
            };
            module == of_other && offset.abs_diff(at) <= NEAR
        };
        others.iter().filter(|other| other.object == cell.object).any(|other| {
            match (self.function(cell), self.function(other)) {
                (Some(own), Some(of_other)) => own == of_other,
                _ => is_near(other),
            }
        })
    }

    /// How many instructions go by the same steps through the same field of an object's structures in a line of code: copies of one, of a
    /// loop that the compiler, or who wrote it, has unrolled.
    fn unrolled_copies(&self) -> HashMap<Copies<'a>, i64> {
        let mut codes: HashMap<Copies<'a>, HashSet<CodeIx>> = HashMap::new();
        for cell in self.own() {
            let pattern = self.known.patterns.of(cell.code, cell.object);
            let stride = pattern.and_then(main_stride);
            if let Some(copies) = stride.and_then(|stride_bytes| self.copies_of(cell, stride_bytes)) {
                codes.entry(copies).or_default().insert(cell.code);
            }
        }
        codes.into_iter().map(|(copies, codes)| (copies, codes.len() as i64)).collect()
    }

    /// What the copies of an instruction have in common; None: it touches no field, or several.
    fn copies_of(&self, cell: &Cell, stride_bytes: i64) -> Option<Copies<'a>> {
        let profile = self.known.profile;
        let frame = profile.stack_frames(profile.code.get(cell.code.index())?.stack).next()?;
        let mut fields = self.pieces(cell).map(|(field, _)| field);
        let field = fields.next().filter(|_| fields.next().is_none())?;
        Some((cell.object, field, frame.file.as_deref()?, frame.line?, stride_bytes))
    }

    /// How far an instruction's data is from the last of it or of one of its copies: a structure, if there are as many copies as structures in
    /// its own steps. Some may lie elsewhere, or have no pattern.
    fn step_bytes(&self, cell: &Cell, stride_bytes: i64, copies: &HashMap<Copies<'a>, i64>) -> i64 {
        let element =
            self.known.profile.objects.get(cell.object.index()).and_then(|object| object.element.as_ref());
        let step = || {
            let copies = *copies.get(&self.copies_of(cell, stride_bytes)?)?;
            let whole = i64::try_from(element?.bytes).ok()?;
            let structures = stride_bytes / whole;
            let is_unrolled = stride_bytes % whole == 0 && copies > 1 && 2 * copies > structures.abs();
            is_unrolled.then_some(whole * structures.signum())
        };
        step().unwrap_or(stride_bytes)
    }

    /// The functions and objects of which another order would save lines or pages: one may be used up where another is not.
    fn layout(&self, stride_bytes: i64, cells: &[&Cell]) -> Option<Finding> {
        let line = self.known.profile.machine.line_bytes.max(1);
        let (mut gain, mut about) = (0.0, Vec::new());
        let (mut used_of_all, mut weights) = (0, 0);
        for member in &self.members {
            let mut functions: BTreeMap<Option<Function<'_>>, Vec<&Cell>> = BTreeMap::new();
            for &cell in cells.iter().filter(|cell| cell.object == member.at) {
                functions.entry(self.function(cell)).or_default().push(cell);
            }
            for (function, cells) in functions {
                let is_theirs = |cell: &&Cell| self.function(cell) == function;
                let theirs: Vec<&Cell> = member.cells.iter().copied().filter(is_theirs).collect();
                let theirs = sum_alone(&theirs);
                let used = self.used_bytes(&theirs, &cells);
                let Some(used_bytes) = used.filter(|&used| used > 0) else { continue };
                let counts = sum_alone(&cells);
                let data_bytes = walked_bytes(member, stride_bytes, used_bytes);
                let accessed_bytes = theirs.load_bytes + theirs.store_bytes;
                let then = self.in_order(&counts, (used_bytes, accessed_bytes), data_bytes);
                let saved = self.saved(&counts, &then);
                if saved > 0.0 {
                    let weight = counts.l1_misses().max(1);
                    used_of_all += u64::from(used_bytes.min(line)) * weight;
                    weights += weight;
                    gain += saved;
                    about.extend(cells);
                }
            }
        }
        let used_bytes = u32::try_from(used_of_all.checked_div(weights)?).unwrap_or(line);
        let against = self.in_order_beside(&about);
        if against.is_some() && self.are_in_blocks(&about) {
            return None;
        }
        let remedy = Remedy::Layout { stride_bytes, used_bytes, against };
        Some(self.finding(remedy, gain, &about))
    }

    /// Whether the first level has room for what the longest walks of nearly all of it go through.
    fn are_in_blocks(&self, cells: &[&Cell]) -> bool {
        let Known { profile, patterns, .. } = self.known;
        let Some(l1) = &profile.machine.l1d else { return false };
        let lines = l1.bytes / u64::from(profile.machine.line_bytes.max(1));
        let is_short = |cell: &&&Cell| {
            let steps = patterns.of(cell.code, cell.object).and_then(|pattern| pattern.walk_steps);
            steps.is_some_and(|steps| u64::from(steps) < lines)
        };
        let misses = |cell: &&Cell| cell.counts.get().l1_misses();
        let of_short: u64 = cells.iter().filter(is_short).map(misses).sum();
        of_short as f64 >= NEARLY_ALL * cells.iter().map(misses).sum::<u64>() as f64
    }

    /// What the line of code that misses most here goes through by steps within a line, about as often.
    fn in_order_beside(&self, cells: &[&Cell]) -> Option<ObjectIx> {
        let Known { profile, patterns, .. } = self.known;
        let most = cells.iter().max_by_key(|cell| cell.counts.get().l1_misses())?;
        let place = |cell: &Cell| {
            let frame = profile.stack_frames(profile.code.get(cell.code.index())?.stack).next()?;
            Some((frame.file.as_deref()?, frame.line?))
        };
        let (line, accesses) = (place(most)?, most.counts.get().accesses());
        let within = i64::from(profile.machine.line_bytes / 2);
        let is_in_order = |cell: &&Cell| {
            let strides = patterns.of(cell.code, cell.object).and_then(|pattern| pattern.stride_bytes);
            strides.is_some_and(|stride| stride != 0 && stride.abs() <= within)
        };
        let is_as_often =
            |cell: &&Cell| (accesses / 2..=accesses * 2).contains(&cell.counts.get().accesses());
        let beside =
            profile.cells.iter().filter(|cell| cell.object != most.object && place(cell) == Some(line));
        beside.filter(is_in_order).find(is_as_often).map(|cell| cell.object)
    }

    /// What would be left of misses at least if the accesses came in the order of addresses, of which now so many bytes of a line are used,
    /// and went through so many bytes in all. Of pages as many bytes are used as their function accesses in all: operands side by side
    /// share them.
    fn in_order(&self, counts: &Counts, (used_bytes, accessed_bytes): (u32, u64), data_bytes: u64) -> Counts {
        let machine = &self.known.profile.machine;
        let used = f64::from(used_bytes) / f64::from(machine.line_bytes.max(1));
        let part = |kept: f64| move |count: u64| (count as f64 * kept) as u64;
        let fits = |bytes: Option<u64>| bytes.is_some_and(|bytes| data_bytes <= bytes);
        let first = if fits(machine.l1d.as_ref().map(|cache| cache.bytes)) { 0.0 } else { used };
        let then = match used > MOST_USED {
            true => *counts,
            // One line behind the other is what a prefetcher asks for in time.
            false if machine.prefetcher_streams > 0 => counts.with_misses(part(first), |_| 0, |_| 0),
            false => counts.with_misses(part(first), part(used), part(used)),
        };
        // In the order of addresses a page is looked up once, or once for all where a TLB has room for them.
        let page_bytes = u64::from(machine.page_bytes.max(1));
        let pages = accessed_bytes / page_bytes;
        let kept = pages as f64 / counts.dtlb_misses.max(1) as f64;
        if kept > MOST_USED {
            return then;
        }
        let left = |tlb: &Option<TlbInfo>| {
            let reach = tlb.as_ref().map(|tlb| u64::from(tlb.entries) * page_bytes);
            part(if fits(reach) { 0.0 } else { kept })
        };
        then.with_tlb_misses(left(&machine.dtlb), left(&machine.stlb))
    }

    /// How many bytes of a line are used before it is gone: what a function accesses of an object, for each miss of the
    /// first level. Several operands may share a line (the fields of an element, an unrolled loop): what one of them uses says
    /// little. A load and a store of the same bytes are one use, of which one misses; where both miss, as in a copy within the object,
    /// they are of different bytes.
    ///
    /// `counts`: of all that; `cells`: the operands meant.
    fn used_bytes(&self, counts: &Counts, cells: &[&Cell]) -> Option<u32> {
        let codes = cells.iter().filter_map(|cell| self.known.profile.code.get(cell.code.index()));
        let largest = codes.map(|code| code.size_bytes).max()?;
        let loaded = (counts.load_bytes, counts.l1_load_misses);
        let stored = (counts.store_bytes, counts.l1_store_misses);
        let misses = |(bytes, misses): (u64, u64)| misses as f64 / bytes.max(1) as f64;
        let (one, other) = (misses(loaded), misses(stored));
        let alike = one.min(other) / one.max(other).max(f64::MIN_POSITIVE);
        let (most, least) = (loaded.0.max(stored.0), loaded.0.min(stored.0));
        let bytes = most + (least as f64 * alike) as u64;
        let of_a_miss = bytes.checked_div(counts.l1_misses()).unwrap_or(u64::MAX);
        Some(u32::try_from(of_a_miss).unwrap_or(u32::MAX).max(largest))
    }

    /// Module and name of the function that a cell's code stands in, inlined calls dissolved.
    fn function(&self, cell: &Cell) -> Option<Function<'a>> {
        let profile = self.known.profile;
        let stack = profile.code.get(cell.code.index())?.stack;
        let frame = profile.stack_frames(stack).last()?;
        let innermost = profile.stack_frames(stack).next().filter(|frame| frame.inlined && is_library(frame));
        Some((
            frame.module,
            frame.function.as_deref()?,
            innermost.and_then(|frame| frame.function.as_deref()),
        ))
    }

    /// Bytes that threads use beside each other: of all objects that have such misses together, for they may be beside one another.
    /// Data that one thread alone uses, or all only read, has other data that is written beside it.
    fn separate(&self) -> Option<Finding> {
        let misses = |member: &&Member<'_>| {
            let shared = member.object.counts.shared;
            shared.false_sharing.min(shared.coherence_misses)
        };
        let members: Vec<&Member<'_>> = self.members.iter().filter(|member| misses(member) > 0).collect();
        let takers = self.takers(&members);
        if takers.users == 0 {
            return None;
        }
        let false_sharing = members.iter().map(misses).sum();
        let remedy = Remedy::Separate {
            false_sharing,
            users: takers.users,
            writers: takers.writers,
            fields: takers.fields.clone(),
        };
        Some(self.without_misses(remedy, false_sharing, &members, takers))
    }

    /// Bytes that several threads write. Objects that one thread alone writes have no copies to gain, so each is asked by itself;
    /// and what one thread writes for others has to reach them.
    fn per_thread(&self) -> Option<Finding> {
        let misses = |member: &&Member<'_>| {
            let shared = member.object.counts.shared;
            shared.coherence_misses.saturating_sub(shared.false_sharing)
        };
        let is_contended = |member: &&Member<'_>| misses(member) > 0 && self.takers(&[*member]).writers > 1;
        let members: Vec<&Member<'_>> = self.members.iter().filter(is_contended).collect();
        if members.is_empty() {
            return None;
        }
        let takers = self.takers(&members);
        let true_sharing = members.iter().map(misses).sum();
        let remedy = Remedy::PerThread {
            true_sharing,
            writers: takers.writers,
            fields: takers.fields.clone(),
            one_writer_each: takers.one_writer_each,
        };
        Some(self.without_misses(remedy, true_sharing, &members, takers))
    }

    /// If so many coherence misses of these objects went away.
    fn without_misses(
        &self,
        remedy: Remedy,
        misses: u64,
        members: &[&Member<'_>],
        takers: Takers,
    ) -> Finding {
        let cells: Vec<&Cell> = members.iter().flat_map(|member| member.cells.iter().copied()).collect();
        let mut now = Counts::default();
        members.iter().for_each(|member| now += &member.object.counts);
        let gain = self.saved(&now, &now.with_fewer_misses(misses));
        Finding { code: takers.code, ..self.finding(remedy, gain, &cells) }
    }

    fn takers(&self, members: &[&Member<'_>]) -> Takers {
        // Who only set it up, or reads it when all is done, takes no line from anybody.
        let takes = |counts: Counts| counts.shared.coherence_misses + counts.invalidations;
        let own = members.iter().flat_map(|member| member.own.iter().copied());
        let cells: Vec<&Cell> = own.filter(|cell| takes(cell.counts.get()) > 0).collect();
        let mut taken: BTreeMap<_, u64> = BTreeMap::new();
        for cell in cells.iter().filter(|cell| cell.counts.get().stores > 0) {
            *taken.entry(cell.thread).or_default() += takes(cell.counts.get());
        }
        let writers = |taken: &BTreeMap<_, u64>| {
            let most = taken.values().copied().max().unwrap_or(0);
            taken.values().filter(|&&taken| taken as f64 >= LEAST_PART_OF_A_WRITER * most as f64).count()
        };
        let mut by_field: BTreeMap<FieldIx, BTreeMap<_, u64>> = BTreeMap::new();
        let mut are_fields_known = true;
        for cell in cells.iter().filter(|cell| cell.counts.get().stores > 0) {
            let mut is_known = false;
            for (field, counts) in self.pieces(cell).filter(|(_, counts)| counts.stores > 0) {
                *by_field.entry(field).or_default().entry(cell.thread).or_default() += takes(counts);
                is_known = true;
            }
            are_fields_known &= is_known;
        }
        // What is only read beside them waits for the line, too.
        let is_written = |field: &FieldIx| by_field.is_empty() || by_field.contains_key(field);
        let pieces = cells.iter().flat_map(|cell| self.pieces(cell)).filter(|(field, _)| is_written(field));
        Takers {
            users: cells.iter().map(|cell| cell.thread).collect::<BTreeSet<_>>().len(),
            writers: writers(&taken),
            one_writer_each: are_fields_known && by_field.values().all(|threads| writers(threads) <= 1),
            fields: costliest(pieces.map(|(field, counts)| (field, takes(counts)))),
            code: costliest(cells.iter().map(|cell| (cell.code, takes(cell.counts.get())))),
        }
    }
}

/// Who takes lines from other threads.
struct Takers {
    /// Threads.
    users: usize,
    /// Those of them that write.
    writers: usize,
    /// See [`Remedy::PerThread`].
    one_writer_each: bool,
    /// What they write and take most.
    fields: Vec<FieldIx>,
    /// Where.
    code: Vec<CodeIx>,
}

/// Accesses with a remedy in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// Addresses come from this object, or from nobody knows where.
    By(Option<ObjectIx>),
    /// So many bytes apart.
    Stride(i64),
}

/// The stride by which an operand goes, each time, or mostly: the inner loop's of several, as of butterflies between the rows of a matrix.
fn main_stride(pattern: &AccessPattern) -> Option<i64> {
    /// Of the differences, in thousandths.
    const MOST: u32 = 500;
    /// What goes on within so many bytes uses its lines up.
    const LINE_BYTES: u64 = 64;
    match pattern.kind {
        PatternKind::Stride => pattern.stride_bytes,
        PatternKind::MultiStride if pattern.stride_permille >= MOST => {
            pattern.stride_bytes.filter(|bytes| bytes.unsigned_abs() > LINE_BYTES)
        }
        _ => None,
    }
}

/// What a walk goes through of an object at least: from structure to structure, what is used of each.
fn walked_bytes(member: &Member<'_>, stride_bytes: i64, used_bytes: u32) -> u64 {
    let bytes = member.bytes().unwrap_or(u64::MAX);
    let stride_bytes = stride_bytes.unsigned_abs().max(1);
    let is_by_structure = member
        .object
        .element
        .as_ref()
        .is_some_and(|element| stride_bytes.is_multiple_of(element.bytes.max(1)));
    if is_by_structure { (bytes / stride_bytes).saturating_mul(u64::from(used_bytes)) } else { bytes }
}

fn sum(cells: &[&Cell]) -> Counts {
    let mut counts = Counts::default();
    cells.iter().for_each(|cell| counts += &cell.counts.get());
    counts
}

/// Without what other cores cause.
fn sum_alone(cells: &[&Cell]) -> Counts {
    let mut counts = Counts::default();
    cells.iter().for_each(|cell| counts += &cell.counts.get().without_coherence());
    counts
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
