//! Strides by which a walk falls onto few sets of a cache, so that lines are gone before their other bytes are used although
//! the cache would hold them all.
//!
//! ```text
//!  1024 lines, each 8192 bytes from the last; a cache of 1024 sets of 64 bytes: 65,536 bytes until a set comes again
//!  set    0   128   256   384   512   640   768   896      8 sets of all: gcd(8192, 65,536) = 8192
//! ```
//!
//! What is known, and from where: strides and how far walks go from the patterns, misses of each level from the model, geometry
//! from the machine, how long a walk can be from the object's size, what one line holds from its element type. A level is one of
//! conflicts if
//!
//! 1. a walk has more lines than its sets hold;
//! 2. the level would hold the longest walk, that was seen or else is possible, of all operands that go by this stride in the function;
//! 3. it misses more often than the object has lines, so lines have been read again, and more often than it would if each
//!    line were read once for all elements in it, walk by walk.
//!
//! The rest of its misses is what padding can spare at most. Where the third cannot be asked, because nobody knows what the
//! object consists of, there is no finding.
//!
//! The same holds for the second-level TLB, whose lines are pages: rows of 16 KiB fall onto a quarter of its sets.
//!
//! Sets are those of virtual addresses, as in the model. Those of a second level are of physical ones: with 4-KiB pages the
//! kernel's choice of frames decides.

use std::collections::{BTreeMap, BTreeSet};

use memlens_profile::{AccessPattern, CacheInfo, Cell, CoreInfo};
use memlens_types::{Counts, PatternKind};

use crate::{About, Finding, Function, Member, Remedy, main_stride, runtime_code};

/// Lines of padding that are tried; one is enough where a cache has a power of two of sets.
const MOST_LINES: u64 = 4;

/// What has sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The first level of data caches.
    First,
    /// The second.
    Second,
    /// The second-level TLB, of pages.
    Stlb,
}

impl Level {
    /// The number of a level of caches.
    pub fn number(self) -> Option<u8> {
        match self {
            Self::First => Some(1),
            Self::Second => Some(2),
            Self::Stlb => None,
        }
    }
}

/// A level of caches with lines of a walk in too few of its sets, or a TLB with pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetConflict {
    /// Which.
    pub level: Level,
    /// Sets that the walk's lines fall onto.
    pub sets: u64,
    /// Sets that there are.
    pub of_sets: u64,
    /// Lines of a set.
    pub ways: u64,
    /// Misses of the level.
    pub misses: u64,
    /// Those that would be left at least.
    pub needed: u64,
}

/// An operand's accesses to an object, with conflicts.
struct Part<'a> {
    cell: &'a Cell,
    /// Of a walk.
    lines: u64,
    conflicts: Vec<SetConflict>,
}

/// Operands that go by one stride.
#[derive(Default)]
struct OfStride<'a> {
    parts: Vec<Part<'a>>,
    /// Stalls of stores into lines that others of them have brought, in cycles.
    late_stores: u64,
}

/// What operands of one function that go by one stride have in common.
struct Walk {
    stride_bytes: u64,
    /// Lines of the longest one of each operand, together.
    most_lines: u64,
    /// Bytes of what lies in a line beside the one that is accessed.
    element_bytes: u64,
    /// Lines that the object has, or, where the stride is the structure's size, that the walk has.
    object_lines: u64,
    line_bytes: u64,
}

impl About<'_> {
    /// One finding for each stride.
    pub(crate) fn pad(&self) -> Vec<Finding> {
        let mut by_stride: BTreeMap<i64, OfStride<'_>> = BTreeMap::new();
        for member in &self.members {
            for ((stride, _), cells) in self.by_function(member) {
                let Some(walk) = self.walk(member, stride, &cells) else { continue };
                let mut of_walk = OfStride::default();
                for cell in cells {
                    let pattern = self.known.patterns.of(cell.code, cell.object);
                    let lines = pattern.map_or(0, |it| lines(it, walk.stride_bytes));
                    let counts = cell.counts.get();
                    if !brings_lines(&counts) && counts.stores > 0 && self.crowds_sets(&walk, lines) {
                        of_walk.late_stores += counts.stall_cycles;
                    }
                    let conflicts = self.conflicts(&walk, lines, &counts.without_coherence());
                    if !conflicts.is_empty() {
                        of_walk.parts.push(Part { cell, lines, conflicts });
                    }
                }
                if !of_walk.parts.is_empty() {
                    let of_stride = by_stride.entry(stride).or_default();
                    of_stride.parts.extend(of_walk.parts);
                    of_stride.late_stores += of_walk.late_stores;
                }
            }
        }
        by_stride.into_iter().filter_map(|(stride, of_stride)| self.pad_stride(stride, &of_stride)).collect()
    }

    /// Whether a walk of so many lines has stores wait that come behind loads of the same lines: it falls onto sets of the first level that are
    /// as few as the model of the core takes for crowded.
    fn crowds_sets(&self, walk: &Walk, lines: u64) -> bool {
        self.known.profile.machine.l1d.as_ref().is_some_and(|l1d| {
            let ways = u64::from(l1d.ways).max(1);
            let sets = sets(walk.stride_bytes, l1d.bytes / (walk.line_bytes * ways), walk.line_bytes);
            sets <= u64::from(CoreInfo::CROWDED_SETS) && sets * ways < lines
        })
    }

    fn pad_stride(&self, stride_bytes: i64, of_stride: &OfStride<'_>) -> Option<Finding> {
        let OfStride { parts, late_stores } = of_stride;
        let mut of_levels: BTreeMap<Level, SetConflict> = BTreeMap::new();
        for Part { conflicts, .. } in parts {
            for one in conflicts {
                let sum = of_levels.entry(one.level).or_insert(SetConflict { misses: 0, needed: 0, ..*one });
                sum.misses += one.misses;
                sum.needed += one.needed;
            }
        }
        let all: Vec<SetConflict> = of_levels.into_values().collect();
        let machine = &self.known.profile.machine;
        let (line, page) = (u64::from(machine.line_bytes), u64::from(machine.page_bytes));
        let lines = parts.iter().map(|part| part.lines).min()?;
        let most_lines = parts.iter().map(|part| part.lines).max()?;
        let spreads = |padding: u64, one: &SetConflict| {
            let padded = stride_bytes.unsigned_abs() + padding;
            match one.level {
                // Pages move on by one of them in as many lines as a page has: a walk may end before.
                Level::Stlb => most_in_a_set(padded, most_lines, one.of_sets, page) <= one.ways,
                _ => sets(padded, one.of_sets, line) == one.of_sets,
            }
        };
        let padding = |conflicts: &[SetConflict]| {
            let spreads_all = |&padding: &u64| conflicts.iter().all(|one| spreads(padding, one));
            (1..=MOST_LINES).map(|lines| lines * line).find(spreads_all)
        };
        let of_caches: Vec<SetConflict> =
            all.iter().copied().filter(|one| one.level != Level::Stlb).collect();
        let (conflicts, padding_bytes) = match padding(&all) {
            Some(padding_bytes) => (all, padding_bytes),
            // Some lines more in each row help the caches alone.
            None if !of_caches.is_empty() => (of_caches.clone(), padding(&of_caches)?),
            None => return None,
        };
        let gain = parts.iter().map(|Part { cell, conflicts: found, .. }| {
            let now = cell.counts.get().without_coherence();
            let spared: Vec<SetConflict> = found
                .iter()
                .copied()
                .filter(|one| conflicts.iter().any(|kept| kept.level == one.level))
                .collect();
            self.saved(&now, &without(&now, &spared))
        });
        let gain = gain.sum();
        let cells: Vec<&Cell> = parts.iter().map(|part| part.cell).collect();
        let remedy = Remedy::Pad { stride_bytes, lines, padding_bytes, conflicts };
        let mut finding = self.finding(remedy, gain, &cells);
        // Stores that hit have no wait that could be spared, but a stall, which goes with the crowd.
        if let (Some(time_gain), Some(core_cycles)) =
            (&mut finding.time_gain, self.known.profile.run.core_cycles)
        {
            *time_gain = (*time_gain + *late_stores as f64 / core_cycles.max(1) as f64).min(1.0);
        }
        Some(finding)
    }

    /// The cells of an object whose code goes by strides, by stride and function.
    fn by_function<'m>(
        &'m self,
        member: &Member<'m>,
    ) -> BTreeMap<(i64, Option<Function<'m>>), Vec<&'m Cell>> {
        let mut groups: BTreeMap<_, Vec<&Cell>> = BTreeMap::new();
        for &cell in &member.own {
            if runtime_code::is_memory_or_string_function(self.known.profile, cell.code) {
                continue;
            }
            let Some(pattern) = self.known.patterns.of(cell.code, cell.object) else { continue };
            if let Some(stride) = main_stride(pattern) {
                groups.entry((stride, self.function(cell))).or_default().push(cell);
            }
        }
        groups
    }

    /// `None`: nobody knows what shares a line with what is accessed.
    fn walk(&self, member: &Member<'_>, stride: i64, cells: &[&Cell]) -> Option<Walk> {
        let profile = self.known.profile;
        let object = member.object;
        let line_bytes = u64::from(profile.machine.line_bytes).max(1);
        let stride_bytes = stride.unsigned_abs().max(1);
        let all_bytes = object.bytes?;
        let block_bytes = (all_bytes / object.blocks.max(1)).min(member.bytes()?);
        let codes: BTreeSet<_> = cells.iter().map(|cell| cell.code).collect();
        let sizes = codes.iter().filter_map(|code| profile.code.get(code.index()));
        let access_bytes = sizes.map(|code| u64::from(code.size_bytes)).max()?;
        let element_bytes = match &object.element {
            // A structure is as large that it has the walk in it: an array is its member (Fortran's common blocks).
            Some(element) if element.bytes > stride_bytes => self.member_bytes(cells)?.max(access_bytes),
            Some(element) => element.bytes,
            None => {
                let type_name = object.type_name.as_deref()?;
                let of_bytes = || (is_of_bytes(type_name) && self.has_bytes_only(member)).then_some(1);
                scalar_bytes(type_name).or_else(of_bytes)?.max(access_bytes)
            }
        };
        let possible_lines = block_bytes.div_ceil(stride_bytes);
        // Of each operand once, however many threads have it; without stores into lines that loads have brought.
        let bringing = cells.iter().filter(|cell| brings_lines(&cell.counts.get()));
        let operands: BTreeSet<_> = bringing.map(|cell| (cell.code, cell.object)).collect();
        let patterns = operands.iter().map(|&(code, object)| self.known.patterns.of(code, object));
        let most_lines = patterns.map(|it| {
            it.and_then(walk_steps).map_or(possible_lines, |steps| possible_lines.min(u64::from(steps) + 1))
        });
        // A walk over structures, always at the same place of each, comes back to the same lines.
        let comes_back = element_bytes == stride_bytes;
        Some(Walk {
            stride_bytes,
            most_lines: most_lines.fold(0, u64::saturating_add),
            element_bytes: if comes_back { 0 } else { element_bytes },
            object_lines: all_bytes.div_ceil(if comes_back { stride_bytes } else { line_bytes }),
            line_bytes,
        })
    }

    /// Whether code accesses nothing wider than bytes there, but for the C library's functions, which take several at a time.
    fn has_bytes_only(&self, member: &Member<'_>) -> bool {
        let profile = self.known.profile;
        let own =
            member.own.iter().filter(|cell| !runtime_code::is_memory_or_string_function(profile, cell.code));
        let sizes = own.map(|cell| profile.code.get(cell.code.index()).map(|code| code.size_bytes));
        sizes.into_iter().all(|size| size == Some(1))
    }

    /// What the arrays consist of that cells access as a structure's members; None: of numbers of several sizes, or of something else.
    fn member_bytes(&self, cells: &[&Cell]) -> Option<u64> {
        let fields = cells.iter().flat_map(|cell| self.pieces(cell)).map(|(field, _)| field);
        let sizes = fields.map(|field| {
            let field = self.known.profile.fields.get(field.index())?;
            scalar_bytes(field.type_name.as_deref()?)
                .filter(|_| field.name.as_ref().is_some_and(|name| name.ends_with(']')))
        });
        let sizes: Option<BTreeSet<u64>> = sizes.collect();
        sizes.filter(|sizes| sizes.len() == 1)?.first().copied()
    }

    fn conflicts(&self, walk: &Walk, lines: u64, counts: &Counts) -> Vec<SetConflict> {
        let machine = &self.known.profile.machine;
        let levels = [
            (Level::First, &machine.l1d, counts.l1_misses()),
            (Level::Second, &machine.l2, counts.l2_misses()),
        ];
        let conflict = |(level, cache, misses): (Level, &Option<CacheInfo>, u64)| {
            let cache = cache.as_ref()?;
            let ways = u64::from(cache.ways).max(1);
            let of_sets = cache.bytes / (walk.line_bytes * ways);
            let sets = sets(walk.stride_bytes, of_sets, walk.line_bytes);
            let read_once =
                (counts.accesses() as f64 * walk.element_bytes as f64 / walk.line_bytes as f64) as u64;
            let needed = read_once.max(walk.object_lines);
            let is_one = sets * ways < lines && walk.most_lines <= of_sets * ways && misses > needed;
            is_one.then_some(SetConflict { level, sets, of_sets, ways, misses, needed })
        };
        let of_caches = levels.into_iter().filter_map(conflict);
        of_caches.chain(self.stlb_conflict(walk, lines, counts)).collect()
    }

    /// The same of pages: a walk has each of its lines in a page of its own.
    fn stlb_conflict(&self, walk: &Walk, lines: u64, counts: &Counts) -> Option<SetConflict> {
        let machine = &self.known.profile.machine;
        let (tlb, page_bytes) = (machine.stlb.as_ref()?, u64::from(machine.page_bytes).max(1));
        let ways = u64::from(tlb.ways).max(1);
        let of_sets = u64::from(tlb.entries) / ways;
        let sets = sets(walk.stride_bytes, of_sets, page_bytes);
        let read_once = (counts.accesses() as f64 * walk.element_bytes as f64 / page_bytes as f64) as u64;
        let needed = read_once.max((walk.object_lines * walk.line_bytes).div_ceil(page_bytes));
        let misses = counts.stlb_misses;
        let is_one = walk.stride_bytes >= page_bytes
            && sets * ways < lines
            && walk.most_lines <= of_sets * ways
            && misses > needed;
        is_one.then_some(SetConflict { level: Level::Stlb, sets, of_sets, ways, misses, needed })
    }
}

/// Whether accesses bring lines into the first level that were not there: one in a hundred at least.
fn brings_lines(counts: &Counts) -> bool {
    counts.l1_misses().saturating_mul(100) >= counts.accesses().max(1)
}

/// Lines of a walk by this stride, as it was seen.
fn lines(pattern: &AccessPattern, stride_bytes: u64) -> u64 {
    walk_steps(pattern).map_or(pattern.span_bytes / stride_bytes, u64::from) + 1
}

/// The most steps in a row that a walk was seen to have; of one that goes by several strides nobody knows.
fn walk_steps(pattern: &AccessPattern) -> Option<u32> {
    pattern.walk_steps.filter(|_| pattern.kind == PatternKind::Stride)
}

/// Sets that addresses so far from each other fall onto.
fn sets(stride_bytes: u64, of_sets: u64, line_bytes: u64) -> u64 {
    let span_bytes = of_sets * line_bytes;
    span_bytes / greatest_common_divisor(stride_bytes, span_bytes).max(line_bytes).max(1)
}

/// How many of a walk's pages fall onto the set that gets most of them.
fn most_in_a_set(stride_bytes: u64, lines: u64, of_sets: u64, page_bytes: u64) -> u64 {
    /// Of longer walks no more are looked at: no TLB holds as many pages.
    const MOST: u64 = 1 << 16;
    let mut counts = vec![0; usize::try_from(of_sets.max(1)).unwrap_or(1)];
    for at in 0..lines.min(MOST) {
        let page = at.saturating_mul(stride_bytes) / page_bytes.max(1);
        counts[(page % of_sets.max(1)) as usize] += 1;
    }
    counts.into_iter().max().unwrap_or(0)
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    match other {
        0 => one,
        _ => greatest_common_divisor(other, one % other),
    }
}

/// The counts if of the misses of these levels only the needed were left, and no more behind them.
fn without(now: &Counts, conflicts: &[SetConflict]) -> Counts {
    let mut left = now.accesses();
    let needed = |level| conflicts.iter().find(|one| one.level == level).map(|one| one.needed);
    let mut kept = |needed: Option<u64>, misses: u64| {
        left = left.min(needed.unwrap_or(misses)).min(misses);
        left as f64 / misses.max(1) as f64
    };
    let kept = [
        kept(needed(Level::First), now.l1_misses()),
        kept(needed(Level::Second), now.l2_misses()),
        kept(None, now.llc_misses()),
    ];
    let part = |level: usize| move |count: u64| (count as f64 * kept[level]) as u64;
    let mut then = now.with_misses(part(0), part(1), part(2));
    if let Some(needed) = needed(Level::Stlb) {
        let kept = needed.min(then.stlb_misses) as f64 / then.stlb_misses.max(1) as f64;
        let part = |count: u64| (count as f64 * kept) as u64;
        then = then.with_tlb_misses(|dtlb| dtlb, part);
    }
    then
}

/// Whether a type's name is that of bytes, or of memory that may hold anything.
fn is_of_bytes(type_name: &str) -> bool {
    const BYTES: [&str; 9] =
        ["char", "unsigned char", "signed char", "int8_t", "uint8_t", "i8", "u8", "bool", "_Bool"];
    let words = type_name.split('[').next().unwrap_or_default().trim_end_matches([' ', '*', '&']);
    BYTES.contains(&words.trim_start_matches("const ").trim_start_matches("volatile "))
}

/// How names of the languages' libraries begin.
const LIBRARIES: [&str; 4] = ["std::", "alloc::", "core::", "__"];

/// The size of what an array or pointer of this type leads to, if it is a number of more than a byte. Bytes can be anything ([`is_of_bytes`]). A
/// program's own template of one such type, as `Image<float>`, holds them; of the library's, nodes have more in them.
fn scalar_bytes(type_name: &str) -> Option<u64> {
    if let Some((template, arguments)) = type_name.trim_end_matches([' ', '*', '&']).split_once('<')
        && let Some(arguments) = arguments.strip_suffix('>')
        && !LIBRARIES.iter().any(|library| template.starts_with(library))
        && !matches!(template, "Vec" | "Box")
        && !arguments.contains('<')
    {
        let mut types = arguments.split(", ").filter(|argument| argument.parse::<u64>().is_err());
        return types.next().and_then(scalar_bytes).filter(|_| types.next().is_none());
    }
    /// Words that say nothing of the size.
    const AROUND: [&str; 12] = [
        "const", "volatile", "restrict", "mut", "unsigned", "signed", "std", "vector", "alloc", "vec", "Vec",
        "Box",
    ];
    let words = type_name.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let words: Vec<&str> = words
        .filter(|word| !word.is_empty() && !AROUND.contains(word) && word.parse::<u64>().is_err())
        .collect();
    match words[..] {
        ["short" | "int16_t" | "uint16_t" | "i16" | "u16"] | ["short", "int"] => Some(2),
        ["int" | "float" | "int32_t" | "uint32_t" | "i32" | "u32" | "f32"] => Some(4),
        [
            "double" | "long" | "int64_t" | "uint64_t" | "size_t" | "i64" | "u64" | "f64" | "usize" | "isize",
        ]
        | ["long", "int"]
        | ["long", "long"]
        | ["long", "long", "int"] => Some(8),
        // Fortran's.
        ["real" | "integer", "kind"] if type_name.contains("kind=8") => Some(8),
        ["real" | "integer", "kind"] if type_name.contains("kind=4") => Some(4),
        ["complex", "kind"] if type_name.contains("kind=8") => Some(16),
        ["complex", "kind"] if type_name.contains("kind=4") => Some(8),
        ["complex" | "_Complex", number] | [number, "complex" | "_Complex"] => {
            scalar_bytes(number).map(|part| 2 * part)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_fall_onto_sets() {
        // 64 sets of 64 bytes come again after 4096 bytes.
        let of = |stride| sets(stride, 64, 64);
        assert_eq!([of(4096), of(8192), of(2048), of(192), of(8), of(4160)], [1, 1, 2, 64, 64, 64]);
        assert_eq!(sets(8192, 48, 64), 3, "three times 1024 bytes");
    }

    #[test]
    fn padding_may_not_spread_the_pages_of_short_walks() {
        let most = |stride, lines| most_in_a_set(stride, lines, 128, 4096);
        assert_eq!([most(16 << 10, 1024), most((16 << 10) + 64, 1024)], [32, 8]);
        assert_eq!([most(512 << 10, 64), most((512 << 10) + 64, 64)], [64, 64], "a page in 64 lines");
    }

    #[test]
    fn numbers_have_a_size_and_bytes_may_be_anything() {
        let known =
            ["double*", "const double [1024][1024]", "Vec<f64>", "unsigned int*", "real(kind=4)(:,:)"];
        assert_eq!(known.map(scalar_bytes), [8, 8, 8, 4, 4].map(Some));
        assert_eq!(["char*", "void*", "long double*", "struct cell*", ""].map(scalar_bytes), [None; 5]);
        let known =
            ["Image<float>", "ns::Matrix<double, 3, 3>&", "Grid<unsigned int>*", "std::vector<double>"];
        assert_eq!(known.map(scalar_bytes), [4, 8, 4, 8].map(Some));
        let known = ["complex(kind=8)[][]", "double _Complex*", "complex float*", "std::complex<double>*"];
        assert_eq!(known.map(scalar_bytes), [16, 16, 8, 16].map(Some));
        let unknown =
            ["Table<int, double>", "std::list<float>", "std::map<int, int>", "Image<Pixel>", "Image<char>"];
        assert_eq!(unknown.map(scalar_bytes), [None; 5]);
        assert!(["char*", "const unsigned char [64][4096]", "u8", "uint8_t*"].into_iter().all(is_of_bytes));
        assert!(!["void*", "char16_t*", "struct char_list*", ""].into_iter().any(is_of_bytes));
    }
}
