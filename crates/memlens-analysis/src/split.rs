//! Structures of which few bytes do all the waiting, and the rest is hardly touched.
//!
//! Fields that are used beside the hot ones now and then may stay where they are: then each such use misses for itself. Where fields are
//! used at random and others, or the same, by walks through all structures, which other loops do and a prefetcher follows, those of the
//! walks may stay, too. Of all these the best is told. An access that is wider than its field uses those behind it, too.
//!
//! What makes structures or takes them away (initialisation, a vector that grows, destruction) touches all of their fields once, and is
//! no use of them. It is told by its counts: code that goes through the structures, or from one byte of a field to the next, or of
//! all of them, and is executed about as often as that takes for all structures there were. Nor is what is always done with the same one.
//!
//! # Bound
//! With *k* the part of its lines' bytes that is hot, each line of hot fields alone is in the place of 1/*k* lines. So a cache that holds
//! *C* bytes of them misses at least *k* times as often as one of *C*/*k* bytes would now, which is not less than the next level of that
//! size does now. And what is left does not fit: of *H* hot bytes, if all are used alike, *C* are there. So the misses left are at least
//!
//! ```text
//! k · misses(C/k) · (1 − C/H)        none if H ≤ C
//! ```
//!
//! Of uses at random more is known: that of *A* a time to *N* lines, of which each is gone after a time *T* in which it was not used, *m* =
//! exp(−*A* *T* / *N*) miss (R. Fagin, Asymptotic Miss Ratios over Independent References, JCSS 14, 1977; H. Che, Y. Tung, Z. Wang, Hierarchical Web
//! Caching Systems, JSAC 20, 2002). Hot lines are used 1/*k* times as often as lines now, so *m*^(1/*k*) miss, with the same *T*; and *T* becomes
//! longer until the cache is full again of what is in it: hot lines, those that stay behind and are used beside them, and all data of others,
//! which have as much of it as now; that is no more than their part of all misses.
//!
//! TLBs are caches of pages. Of misses that are left the prefetcher covers those of walks through the structures, and of others twice as
//! many as now: the first one in each page it cannot.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use memlens_profile::{AccessPattern, CacheInfo, Cell, CodeIx, Field, FieldIx, MachineInfo, TlbInfo};
use memlens_types::{Counts, PatternKind};

use crate::{About, Finding, Member, Remedy, runtime_code, sum_alone};

/// The hot fields have at least this part of what the object waits beyond the first level.
const HOT_SHARE: f64 = 0.95;
/// Fields with at least this part of the uses of the most used hot one are used beside it, for all that is known:
/// only the first access to a line misses, and not those to the other fields in it.
const BESIDE: f64 = 0.1;
/// With this part they are used with it.
const TOGETHER: f64 = 0.5;
/// Of what the object waits, its uses have at least this part: else making it is what costs.
const LEAST_USED: f64 = 0.5;
/// They are at most this part of the structure.
const MOST_HOT_BYTES: f64 = 0.5;
/// With fewer structures there is nothing to gain from their layout.
const LEAST_STRUCTURES: u64 = 64;
/// What is executed so many times for each structure makes it or takes it away; bursts only estimate how often.
const ONCE: RangeInclusive<f64> = 0.5..=2.5;
/// Of uses at random so many miss at most: of what misses always nobody knows how long it stays.
const MOST_MISSED: f64 = 0.999_999;
/// The longest that lines may stay, in times of what they do now: what stays so long is there whenever it is used.
const LONGEST: f64 = 1e9;
/// Steps to find that out, each half as far as the one before.
const HALVINGS: usize = 64;
/// Types of the languages' libraries are nobody's to change.
const LIBRARIES: [&str; 5] = ["std::", "__gnu_cxx::", "alloc::", "core::", "hashbrown::"];

/// What is known of a field.
#[derive(Default)]
struct Seen {
    /// What it waits in its uses.
    stall: u64,
    /// Accesses but those once for each structure.
    uses: u64,
}

impl Seen {
    fn add(&mut self, stall: u64, counts: &Counts) {
        self.stall += stall;
        self.uses += counts.accesses();
    }
}

/// Fields that are to be in lines of their own.
struct Choice {
    hot: Vec<FieldIx>,
    bytes: u64,
    /// Uses of those that stay behind, which miss for themselves then.
    beside: u64,
}

/// What an operand does with a field of an object.
struct Piece {
    code: CodeIx,
    field: FieldIx,
    counts: Counts,
    /// Once for each structure, or always in the same one.
    is_once: bool,
    /// From structure to structure: what lies at random places for others comes in order here, and in a loop of its own.
    is_walk: bool,
}

/// Bytes that are to be in lines of their own.
struct Hot {
    /// Of one structure.
    bytes: u64,
    /// All of the structure's.
    of_bytes: u64,
    /// Of all structures.
    all_bytes: u64,
    at_random: AtRandom,
}

/// Uses that are no walks.
#[derive(Clone, Copy, Debug, Default)]
struct AtRandom {
    uses: u64,
    /// Of what stays behind.
    beside: u64,
    counts: Counts,
    /// Of the whole run.
    of_all: Counts,
}

impl About<'_> {
    /// The fields that wait into an array of their own.
    ///
    /// Of all objects of the row that consist of one structure: it has one order of fields for them all.
    pub(crate) fn split(&self) -> Vec<Finding> {
        let mut by_element: BTreeMap<(&str, u64), Vec<&Member<'_>>> = BTreeMap::new();
        for member in &self.members {
            if let Some(element) = &member.object.element {
                by_element.entry((&element.type_name, element.bytes)).or_default().push(member);
            }
        }
        let finding = |((type_name, bytes), members): ((&str, u64), Vec<&Member<'_>>)| {
            self.split_element(type_name, bytes, &members)
        };
        by_element.into_iter().filter_map(finding).collect()
    }

    fn split_element(&self, type_name: &str, element_bytes: u64, members: &[&Member<'_>]) -> Option<Finding> {
        let bytes: u64 = members.iter().filter_map(|member| member.bytes()).sum();
        let structures = bytes / element_bytes.max(1);
        if structures < LEAST_STRUCTURES || LIBRARIES.iter().any(|library| type_name.starts_with(library)) {
            return None;
        }
        let own: Vec<&Cell> = members.iter().flat_map(|member| member.own.iter().copied()).collect();
        let pieces: Vec<Piece> =
            members.iter().flat_map(|member| self.by_code_and_field(member, element_bytes)).collect();
        // By all uses, and by those that are no walks.
        let mut fields: HashMap<FieldIx, Seen> = HashMap::new();
        let mut without_walks: HashMap<FieldIx, Seen> = HashMap::new();
        let (mut made, mut walked) = (0, 0);
        for Piece { field, counts, is_once, is_walk, .. } in &pieces {
            let stall = self.known.stall(counts);
            let (seen, at_random) =
                (fields.entry(*field).or_default(), without_walks.entry(*field).or_default());
            if *is_once {
                made += stall;
                continue;
            }
            seen.add(stall, counts);
            if *is_walk {
                walked += stall;
            } else {
                at_random.add(stall, counts);
            }
        }
        let whole = self.known.stall(&sum_alone(&own));
        let used = whole.saturating_sub(made);
        let at_random = used.saturating_sub(walked);
        if (used as f64) < LEAST_USED * whole as f64 {
            return None;
        }
        let of_all = self.known.profile.totals();
        let gain = |Choice { hot, bytes, beside }: &Choice| {
            let mut at_random = AtRandom { beside: *beside, of_all, ..AtRandom::default() };
            for piece in
                pieces.iter().filter(|piece| hot.contains(&piece.field) && !piece.is_once && !piece.is_walk)
            {
                at_random.counts += &piece.counts;
            }
            let uses = hot.iter().filter_map(|field| Some(without_walks.get(field)?.uses));
            at_random.uses = uses.max().unwrap_or(0);
            let mut apart =
                Hot { bytes: *bytes, of_bytes: element_bytes, all_bytes: bytes * structures, at_random };
            apart.count_lines_once(&self.known.profile.machine);
            let saved = |piece: &Piece| self.saved(&piece.counts, &self.apart(piece, &apart));
            let of_hot = |piece: &&Piece| hot.contains(&piece.field);
            let all: f64 = pieces.iter().filter(of_hot).map(saved).sum();
            let uses = hot.iter().filter_map(|field| Some(fields.get(field)?.uses)).max().unwrap_or(0);
            let stall: u64 = hot.iter().filter_map(|field| Some(fields.get(field)?.stall)).sum();
            let lost = *beside as f64 * stall as f64 / uses.max(1) as f64 / self.known.whole as f64;
            all - lost
        };
        let all = [BESIDE, TOGETHER].map(|least| self.hot_fields(&fields, &pieces, used, least));
        let mut choices: Vec<Choice> = all.into_iter().flatten().collect();
        if walked > 0 && at_random as f64 >= LEAST_USED * used as f64 {
            let some =
                [BESIDE, TOGETHER].map(|least| self.hot_fields(&without_walks, &pieces, at_random, least));
            choices.extend(some.into_iter().flatten());
        }
        let fits =
            choices.into_iter().filter(|choice| choice.bytes as f64 <= MOST_HOT_BYTES * element_bytes as f64);
        // Of two that save as much the one that leaves less behind.
        let mut best: Option<(Choice, f64)> = None;
        for choice in fits {
            let gain = gain(&choice);
            if best.as_ref().is_none_or(|(_, most)| gain > *most) {
                best = Some((choice, gain));
            }
        }
        let (Choice { hot, bytes: hot_bytes, .. }, gain) =
            best.filter(|(choice, _)| !choice.hot.is_empty())?;
        let touches = |cell: &&Cell| self.pieces(cell).any(|(field, _)| hot.contains(&field));
        let cells: Vec<&Cell> = own.into_iter().filter(touches).collect();
        Some(self.finding(Remedy::Split { hot, hot_bytes, element_bytes }, gain, &cells))
    }

    /// The fields that wait, of a structure that waits for so much in its uses, with those that have at least this part of their uses.
    /// None: some of them are bytes without a name, which nobody could move.
    fn hot_fields(
        &self,
        fields: &HashMap<FieldIx, Seen>,
        pieces: &[Piece],
        used: u64,
        least: f64,
    ) -> Option<Choice> {
        let known = &self.known.profile.fields;
        let mut by_stall: Vec<(&FieldIx, &Seen)> = fields.iter().collect();
        by_stall.sort_by_key(|&(field, seen)| (Reverse(seen.stall), *field));
        let (mut hot, mut stall, mut most_uses, mut beside) = (Vec::new(), 0, 0, 0);
        for (&field, seen) in by_stall {
            if stall as f64 >= HOT_SHARE * used as f64 && (seen.uses as f64) < least * most_uses as f64 {
                if seen.uses as f64 >= BESIDE * most_uses as f64 {
                    beside = seen.uses.max(beside);
                }
                continue;
            }
            stall += seen.stall;
            most_uses = most_uses.max(seen.uses);
            hot.push(field);
        }
        // What is seldom done, as to the first element alone, moves nothing.
        let are_used = |piece: &&Piece| {
            let is_often = piece.counts.accesses() as f64 >= least * most_uses as f64;
            !piece.is_once && is_often && hot.contains(&piece.field)
        };
        let covered: Vec<FieldIx> =
            pieces.iter().filter(are_used).flat_map(|piece| self.covered(piece)).collect();
        hot.extend(covered);
        // In the order of the structure.
        hot.sort_unstable();
        hot.dedup();
        let named =
            |field: &FieldIx| known.get(field.index()).filter(|field| field.name.is_some())?.size_bytes;
        let bytes = hot.iter().map(named).sum::<Option<u64>>()?;
        Some(Choice { hot, bytes, beside })
    }

    /// The fields behind its own that an access is wide enough for.
    fn covered(&self, piece: &Piece) -> Vec<FieldIx> {
        let profile = self.known.profile;
        let place = |field: &Field| Some((field.offset_bytes?, field.size_bytes?));
        let own = profile.fields.get(piece.field.index());
        let (Some(own), Some((start, bytes))) = (own, own.and_then(place)) else { return Vec::new() };
        let width = self.operand_bytes(piece.code);
        if width <= bytes || runtime_code::is_memory_or_string_function(profile, piece.code) {
            return Vec::new();
        }
        let is_covered = |field: &Field| {
            let offset = place(field).map(|(offset, _)| offset);
            field.object == own.object
                && offset.is_some_and(|offset| (start + bytes..start + width).contains(&offset))
        };
        let covered = profile.fields.iter().enumerate().filter(|(_, field)| is_covered(field));
        covered.filter_map(|(at, _)| self.known.alike.get(at).copied()).collect()
    }

    /// What each operand does with each field of an object, in all threads.
    fn by_code_and_field(&self, member: &Member<'_>, element_bytes: u64) -> Vec<Piece> {
        let mut pieces: BTreeMap<(CodeIx, FieldIx), Counts> = BTreeMap::new();
        for cell in &member.own {
            for (field, piece) in self.pieces(cell) {
                *pieces.entry((cell.code, field)).or_default() += &piece.without_coherence();
            }
        }
        let made = member.object.bytes.or(member.bytes()).unwrap_or(0) / element_bytes.max(1);
        let mut by_code: HashMap<CodeIx, u64> = HashMap::new();
        for ((code, _), counts) in &pieces {
            *by_code.entry(*code).or_default() += counts.accesses();
        }
        let piece = |((code, field), counts): ((CodeIx, FieldIx), Counts)| {
            let is_once = self.is_in_one(code, field)
                || self.is_once(code, field, counts.accesses(), made)
                || self.sweeps(code, field) && self.is_once_over(code, element_bytes, by_code[&code], made);
            let is_walk = self.walks(code, field, element_bytes);
            Piece { code, field, counts, is_once, is_walk }
        };
        pieces.into_iter().map(piece).collect()
    }

    /// Whether code is always at the same address, as one that fills a vector with copies of its first element reads that: it says nothing of
    /// how the others are used.
    fn is_in_one(&self, code: CodeIx, field: FieldIx) -> bool {
        self.pattern(code, field).is_some_and(|pattern| pattern.kind == PatternKind::Constant)
    }

    /// Whether so many executions are what it takes to go through a field of so many structures once.
    fn is_once(&self, code: CodeIx, field: FieldIx, executions: u64, structures: u64) -> bool {
        let sweeps = self.sweeps(code, field);
        if !sweeps && self.stride(code, field).is_none() {
            return false;
        }
        let field = self.known.profile.fields.get(field.index());
        let field_bytes = field.and_then(|field| field.size_bytes).unwrap_or(0);
        // From byte to byte of the field, or from structure to structure.
        self.is_once_over(code, if sweeps { field_bytes } else { 0 }, executions, structures)
    }

    /// Whether so many executions are what it takes to go through so many bytes of so many structures once.
    fn is_once_over(&self, code: CodeIx, bytes: u64, executions: u64, structures: u64) -> bool {
        let of_each = bytes.div_ceil(self.operand_bytes(code)).max(1);
        ONCE.contains(&(executions as f64 / (structures * of_each).max(1) as f64))
    }

    /// Whether code goes from byte to byte of what has the field.
    fn sweeps(&self, code: CodeIx, field: FieldIx) -> bool {
        let widths = 1..=self.operand_bytes(code);
        runtime_code::is_memory_or_string_function(self.known.profile, code)
            || self.stride(code, field).is_some_and(|stride| widths.contains(&stride.unsigned_abs()))
    }

    /// Whether code goes from structure to structure, always at the same place of each.
    fn walks(&self, code: CodeIx, field: FieldIx, element_bytes: u64) -> bool {
        self.pattern(code, field).is_some_and(|pattern| {
            matches!(pattern.kind, PatternKind::Stream | PatternKind::Stride)
                && pattern.stride_bytes.is_some_and(|stride| stride.unsigned_abs() >= element_bytes)
        })
    }

    fn stride(&self, code: CodeIx, field: FieldIx) -> Option<i64> {
        self.pattern(code, field)?.stride_bytes
    }

    /// How code goes through what has a field.
    fn pattern(&self, code: CodeIx, field: FieldIx) -> Option<&AccessPattern> {
        let object = self.known.profile.fields.get(field.index())?.object;
        self.known.patterns.of(code, object)
    }

    /// At least 1.
    fn operand_bytes(&self, code: CodeIx) -> u64 {
        self.known.profile.code.get(code.index()).map_or(0, |code| u64::from(code.size_bytes)).max(1)
    }

    /// What an operand would miss at least with the hot bytes in lines of their own.
    fn apart(&self, piece: &Piece, hot: &Hot) -> Counts {
        let now = &piece.counts;
        let machine = &self.known.profile.machine;
        let cache = |cache: &Option<CacheInfo>| cache.as_ref().map(|cache| cache.bytes);
        let caches = [&machine.l1d, &machine.l2, &machine.llc].map(cache);
        let misses = [now.l1_misses(), now.l2_misses(), now.llc_misses()];
        let pattern = self.pattern(piece.code, piece.field);
        let is_at_random = pattern.is_some_and(|pattern| pattern.stride_bytes.is_none());
        let of_caches = |counts: &Counts| [counts.l1_misses(), counts.l2_misses(), counts.llc_misses()];
        let random = match is_at_random {
            true => hot.left_at_random(machine.line_bytes, caches, of_caches),
            false => [0.0; 3],
        };
        let bound = hot.left(machine.line_bytes, caches, misses);
        let [l1, l2, llc] = std::array::from_fn(|at| bound[at].max(random[at]));
        let tlb =
            |tlb: &Option<TlbInfo>| Some(u64::from(tlb.as_ref()?.entries) * u64::from(machine.page_bytes));
        let tlbs = [&machine.dtlb, &machine.stlb].map(tlb);
        let of_tlbs = |counts: &Counts| [counts.dtlb_misses, counts.stlb_misses];
        let random = match is_at_random {
            true => hot.left_at_random(machine.page_bytes, tlbs, of_tlbs),
            false => [0.0; 2],
        };
        let bound = hot.left(machine.page_bytes, tlbs, [now.dtlb_misses, now.stlb_misses]);
        let [dtlb, stlb] = std::array::from_fn(|at| bound[at].max(random[at]));
        let part = |kept: f64| move |count: u64| (count as f64 * kept) as u64;
        let mut then = now.with_misses(part(l1), part(l2), part(llc));
        let walks = pattern.is_none_or(|pattern| pattern.stride_bytes.is_some());
        if machine.prefetcher_streams > 0 {
            let most = |misses: u64, prefetched: u64| if walks { misses } else { misses.min(2 * prefetched) };
            then.l2_prefetched = most(then.l2_misses(), then.l2_prefetched);
            then.llc_prefetched = most(then.llc_misses(), then.llc_prefetched);
        }
        then = then.with_tlb_misses(part(dtlb), part(stlb));
        // Fewer pages have fewer page tables: one entry is read at least.
        then.page_walk_accesses = then.page_walk_accesses.min(then.stlb_misses);
        then
    }
}

impl Hot {
    /// The part of a structure's bytes that are read now with lines of so many bytes that is hot: of a structure of more than a line only the lines
    /// of its hot fields are read, one at least.
    fn kept(&self, line_bytes: u32) -> f64 {
        let read = self.of_bytes.min(u64::from(line_bytes).max(self.bytes));
        (self.bytes as f64 / read.max(1) as f64).min(1.0)
    }

    /// A line that is used several times in a row is used once: what the first level misses tells how often that is, since of uses at random it has
    /// as much as it has of all lines.
    fn count_lines_once(&mut self, machine: &MachineInfo) {
        let Some(first) = &machine.l1d else { return };
        let all_bytes = self.all_bytes as f64 / self.kept(machine.line_bytes).max(f64::MIN_POSITIVE);
        let missed = 1.0 - first.bytes as f64 / all_bytes.max(1.0);
        let misses = self.at_random.counts.l1_misses() as f64;
        if missed > 0.0 && misses > 0.0 {
            self.at_random.uses = self.at_random.uses.min((misses / missed) as u64);
        }
    }

    /// The parts of the misses of uses at random that are left: see the top. 0 where nobody knows. `misses`: of the levels.
    fn left_at_random<const N: usize>(
        &self,
        line_bytes: u32,
        levels: [Option<u64>; N],
        misses: impl Fn(&Counts) -> [u64; N],
    ) -> [f64; N] {
        let AtRandom { uses, beside, counts, of_all } = &self.at_random;
        let (misses, of_all) = (misses(counts), misses(of_all));
        let (kept, line_bytes) = (self.kept(line_bytes), f64::from(line_bytes.max(1)));
        let hot_lines = self.all_bytes as f64 / line_bytes;
        let lines = hot_lines / kept.max(f64::MIN_POSITIVE);
        let behind = *beside as f64 / (*uses).max(1) as f64;
        std::array::from_fn(|at| {
            let (Some(bytes), true) = (levels[at], *uses > 0 && misses[at] > 0) else { return 0.0 };
            let (room, missed) =
                (bytes as f64 / line_bytes, (misses[at] as f64 / *uses as f64).min(MOST_MISSED));
            let of_others = 1.0 - (misses[at] as f64 / of_all[at].max(1) as f64).min(1.0);
            let of_others = (room - lines * (1.0 - missed)).clamp(0.0, room * of_others);
            // What is there if unused lines stay so long, in times of what they do now.
            let full = |time: f64| {
                let of_hot = hot_lines * (1.0 - missed.powf(time / kept));
                of_hot + lines * (1.0 - missed.powf(time * behind)) + of_others * time.min(1.0)
            };
            let (mut short, mut long) = (0.0, LONGEST);
            for _ in 0..HALVINGS {
                let middle = 0.5 * (short + long);
                *(if full(middle) < room { &mut short } else { &mut long }) = middle;
            }
            (missed.powf(long / kept) / missed).min(1.0)
        })
    }

    /// The parts of the misses of caches, or TLBs, that are left at least, with lines or pages of so many bytes: see the top. A level that
    /// is not modelled is like the one before.
    fn left<const N: usize>(&self, line_bytes: u32, levels: [Option<u64>; N], misses: [u64; N]) -> [f64; N] {
        let kept = self.kept(line_bytes);
        let mut before = kept;
        std::array::from_fn(|at| {
            if let Some(bytes) = levels[at] {
                let holds = |bytes: u64, needed: f64| bytes as f64 >= needed;
                let mut behind = (at..N).filter_map(|at| Some((levels[at]?, misses[at])));
                let larger = behind.clone().find(|&(other, _)| holds(other, bytes as f64 / kept));
                let (_, of_larger) = larger.or(behind.next_back()).unwrap_or((bytes, misses[at]));
                let fit = (bytes as f64 / self.all_bytes.max(1) as f64).min(1.0);
                before = kept * (1.0 - fit) * (of_larger as f64 / misses[at].max(1) as f64).min(1.0);
            }
            before
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 80 KiB, an eighth of what is read now. The second level holds as many lines as the first would then, and misses 40 times of 1000.
    #[test]
    fn what_a_larger_level_holds_now_the_smaller_may_hold_then() {
        let hot = Hot { bytes: 8, of_bytes: 64, all_bytes: 80 << 10, at_random: AtRandom::default() };
        let left = hot.left(64, [Some(10 << 10), Some(80 << 10), None], [1000, 40, 40]);
        // An eighth of these, less the eighth that is kept.
        assert!((left[0] - 0.125 * 0.875 * 0.04).abs() < 1e-9, "{left:?}");
        assert_eq!(left[1..], [0.0, 0.0]);
        // Pages whose size nobody knows.
        assert_eq!(hot.left(0, [Some(0)], [1000]), [1.0]);
    }

    /// The keys of 1.5 million pairs of key and next, of 24 MB, are looked up 5.46 million times, and `next` 1.46 million times, beside a table of
    /// 16 MB, with a last level of 16 MB: 62 % of the keys' uses miss. Apart from each other it is 40 % as exact mode counts it.
    #[test]
    fn what_is_used_at_random_shares_the_cache_with_others() {
        let missed = |part: f64| Counts { llc_load_misses: (part * 5.46e6) as u64, ..Counts::default() };
        let left = |beside, part: f64, of_all: f64| {
            let at_random =
                AtRandom { uses: 5_460_000, beside, counts: missed(part), of_all: missed(of_all) };
            let hot = Hot { bytes: 8, of_bytes: 16, all_bytes: 12_000_000, at_random };
            hot.left_at_random(64, [Some(16 << 20)], |counts| [counts.llc_misses()])[0] * part
        };
        let with_next = left(1_460_000, 0.62, 0.62 + 0.51);
        assert!((with_next - 0.40).abs() < 0.02, "{with_next}");
        let alone = left(0, 0.62, 0.62 + 0.51);
        assert!(alone < 0.9 * with_next && alone > 0.2, "{alone}");
        assert!(left(0, 0.62, 0.62) < 0.01, "nobody else has a part of the cache");
        assert_eq!(left(0, 0.0, 1.0), 0.0);
    }

    /// Of 2.85 million uses of 16 bytes of 32 in 16 MiB the first level of 32 KiB misses 2.55 million: the others follow them in the same line.
    #[test]
    fn what_follows_in_the_same_line_is_no_use_of_another_one() {
        let counts = Counts { l1_load_misses: 2_550_000, l2_load_misses: 2_420_000, ..Counts::default() };
        let at_random = AtRandom { uses: 2_850_000, beside: 0, counts, of_all: counts };
        let mut hot = Hot { bytes: 16, of_bytes: 32, all_bytes: 8 << 20, at_random };
        let cache = |bytes| Some(CacheInfo { bytes, ways: 8, ..CacheInfo::default() });
        hot.count_lines_once(&MachineInfo { line_bytes: 64, l1d: cache(32 << 10), ..MachineInfo::default() });
        assert_eq!(hot.at_random.uses, 2_554_990);
        let left = |hot: &Hot| {
            hot.left_at_random(64, [Some(32 << 10), Some(1 << 20)], |counts| {
                [counts.l1_misses(), counts.l2_misses()]
            })
        };
        // The first level has twice as much of them, the second an eighth instead of a sixteenth.
        let [first, second] = left(&hot);
        assert!((first - 0.998).abs() < 1e-3 && (second - 0.92).abs() < 0.02, "{first} {second}");
        hot.at_random.uses = 100_000_000;
        assert!(left(&hot).iter().all(|&part| part <= 1.0), "never more than now");
    }
}
