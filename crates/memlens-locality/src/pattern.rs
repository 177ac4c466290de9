//! How each instruction goes through memory.

use std::collections::HashMap;

use memlens_types::{AccessKind, PatternKind};

use crate::burst::{Burst, Reference};

/// Different deltas counted exactly for each instruction.
const STRIDES: usize = 4;
/// Deltas sorted by hash for the entropy; no power of two, so that strides do not collide.
const CELLS: usize = 61;
/// Deltas looked at of each instruction in each burst: beyond, a burst says little that is new.
const MOST_IN_A_BURST: u32 = 2048;
/// Deltas that a verdict needs.
const FEWEST: u64 = 16;
/// Share of the deltas that must be alike.
const MOSTLY: f64 = 0.8;
/// Executions from which on an instruction's owners are looked at one by one: most are executed seldom, and cost nothing worth telling.
const MANY: u64 = 64;
/// Owners of one instruction whose addresses are kept apart. What goes through more of them, as `memcpy` does, has those that it met first.
const MOST_OWNERS: usize = 16;
/// Bytes of a line, for telling streams from strides.
const LINE: u64 = 64;

/// Where an operand's address comes from, as machine code tells it. A caller that analyses code says so; addresses
/// alone cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// The value that this operand loads becomes, with constants added, its own next address, perhaps through
    /// other loads.
    Itself,
    /// The value that another operand loaded is an index or a pointer in the address: `A[B[i]]`.
    LoadedBy(u32),
    /// Registers that come from no load within the loop.
    Computed,
}

/// A difference between one address of an instruction and its next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stride {
    /// Bytes.
    pub bytes: i64,
    /// At least this share of the differences is so (it is exact while there are no more than four different ones).
    pub share: f64,
}

/// One instruction's pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    /// The verdict.
    pub kind: PatternKind,
    /// The most frequent differences other than 0 and the share of 0, by falling share; at most five.
    pub strides: Vec<Stride>,
    /// Entropy of the differences, in bits: 0 for one stride, towards 5.9 for no rule. Differences are told apart by
    /// hash into 61 cells, so larger entropies than log2 61 do not show.
    pub entropy_bits: f64,
    /// Bytes between the lowest and the highest address seen in one burst, the mean over bursts.
    pub span_bytes: f64,
    /// The most steps in a row by the first of the strides that were seen from their beginning to their end; `None`: none, or
    /// bursts cut off longer walks.
    pub walk_steps: Option<u32>,
    /// References of the thread from one execution to the next, on average: how many iterations ahead a prefetch
    /// must be to come so many references earlier.
    pub references_apart: f64,
    /// Executions looked at.
    pub executions: u64,
    /// Differences that the verdict rests on.
    pub observations: u64,
    /// In how many bursts.
    pub bursts: u64,
    /// The lower end of the 95 % interval of the share that the verdict's strides have; 0 where it rests on no
    /// stride. Observations of one burst count as one and a half at most, since they hang together.
    pub confidence: f64,
    /// What the caller said of the address.
    pub source: Option<AddressSource>,
}

/// Patterns of all instructions, and of those that access several owners' memory also on each by itself. Feed it the same bursts as
/// [`crate::Locality`].
///
/// Memory: 300 bytes an instruction, 500 of those seen often, up to the number given; those with higher numbers are not looked at. As
/// much for each owner of an instruction that has several, up to a further such number.
#[derive(Clone, Debug)]
pub struct Patterns {
    instructions: Vec<Option<Box<Instruction>>>,
    sources: HashMap<u32, AddressSource>,
    most: usize,
    /// Sequences of single owners.
    apart: usize,
    bursts: u64,
}

/// A pattern, and whose it is.
#[derive(Clone, Debug)]
pub struct FoundPattern {
    /// The number of the instruction.
    pub instruction: u32,
    /// The only owner whose memory was looked at; `None`: all of them.
    pub owner: Option<u32>,
    /// The pattern.
    pub pattern: Pattern,
}

/// What is kept of an instruction.
#[derive(Clone, Debug, Default)]
struct Instruction {
    /// All its addresses.
    whole: Sequence,
    /// Whose memory it accessed first, and whether it has accessed another's, or nobody's that is known.
    owner: Option<u32>,
    has_several: bool,
    /// Of several owners those of each by itself.
    parts: Vec<(u32, Sequence)>,
}

impl Instruction {
    /// An access of `owner`'s memory. `room` says how many sequences more there may be.
    #[inline]
    fn add(&mut self, when: (u64, u32), reference: &Reference, owner: Option<u32>, room: &mut usize) {
        match owner {
            // Nobody's in particular: what is known of the whole is not the first one's alone.
            None => self.has_several = true,
            Some(owner) => {
                let first = *self.owner.get_or_insert(owner);
                if self.whole.executions < MANY {
                    self.has_several |= first != owner;
                } else if first != owner || self.has_several {
                    self.add_apart(when, reference, (first, owner), room);
                }
            }
        }
        self.whole.add(when, reference);
    }

    fn add_apart(
        &mut self,
        when: (u64, u32),
        reference: &Reference,
        (first, owner): (u32, u32),
        room: &mut usize,
    ) {
        if !self.has_several && *room > 0 {
            // All that was so far is the first one's.
            *room -= 1;
            self.parts.push((first, self.whole.clone()));
        }
        self.has_several = true;
        let known = self.parts.iter().position(|(known, _)| *known == owner);
        let place = known.unwrap_or(self.parts.len());
        if known.is_none() {
            if place == MOST_OWNERS || *room == 0 {
                return;
            }
            *room -= 1;
            self.parts.push((owner, Sequence::default()));
        }
        self.parts[place].1.add(when, reference);
    }
}

/// What is kept of one instruction's addresses.
#[derive(Clone, Debug)]
struct Sequence {
    /// Bytes of an access.
    size: u32,
    last: u64,
    last_at: u32,
    /// The burst that `last` belongs to.
    burst: u64,
    in_burst: u32,
    lowest: u64,
    highest: u64,
    spans: f64,
    apart: u64,
    executions: u64,
    observations: u64,
    bursts: u64,
    same: u64,
    strides: [Candidate; STRIDES],
    run: Run,
    cells: Histogram,
}

/// A difference that may be frequent.
#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    bytes: i64,
    /// 0: there is none.
    count: u64,
    /// The most steps in a row by it, of whole walks and of those that a burst cut off.
    whole: u32,
    cut: u32,
}

/// Equal differences in a row, so far.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    bytes: i64,
    steps: u32,
    /// Another difference was before.
    is_whole: bool,
}

/// How many deltas are in each cell. A byte is enough for most instructions, and programs have tens of thousands.
#[derive(Clone, Debug)]
enum Histogram {
    Small([u8; CELLS]),
    Large(Box<[u32; CELLS]>),
}

impl Histogram {
    #[inline]
    fn count(&mut self, cell: usize) {
        match self {
            Self::Small(counts) => match counts[cell].checked_add(1) {
                Some(more) => counts[cell] = more,
                None => self.widen().count(cell),
            },
            Self::Large(counts) => counts[cell] += 1,
        }
    }

    #[cold]
    fn widen(&mut self) -> &mut Self {
        if let Self::Small(counts) = self {
            *self = Self::Large(Box::new(counts.map(u32::from)));
        }
        self
    }

    fn counts(&self) -> [u32; CELLS] {
        match self {
            Self::Small(counts) => counts.map(u32::from),
            Self::Large(counts) => **counts,
        }
    }
}

impl Patterns {
    /// Looks at instructions with numbers below `most`.
    pub fn new(most: usize) -> Self {
        Self { instructions: Vec::new(), sources: HashMap::new(), most, apart: 0, bursts: 0 }
    }

    /// Tells where an instruction's address comes from.
    pub fn set_source(&mut self, instruction: u32, source: AddressSource) {
        self.sources.insert(instruction, source);
    }

    /// Takes a burst in. No difference is taken across bursts. `owner_of`: whose memory an access is of, where that is known; owners here may
    /// be others than [`Reference::owner`].
    pub fn feed(&mut self, burst: &Burst<'_>, owner_of: impl Fn(&Reference) -> Option<u32>) {
        self.bursts += 1;
        for (at, reference) in (0u32..).zip(burst.references) {
            if matches!(reference.kind, AccessKind::Prefetch | AccessKind::Fetch) {
                continue;
            }
            let instruction = reference.instruction as usize;
            if instruction >= self.instructions.len() {
                if instruction >= self.most {
                    continue;
                }
                self.instructions.resize_with(instruction + 1, || None);
            }
            let known = self.instructions[instruction].get_or_insert_with(Box::default);
            let mut room = self.most - self.apart;
            known.add((self.bursts, at), reference, owner_of(reference), &mut room);
            self.apart = self.most - room;
        }
    }

    /// An instruction's pattern by itself; `None` if it was never seen.
    pub fn of(&self, instruction: u32) -> Option<Pattern> {
        let known = self.instructions.get(instruction as usize)?.as_ref()?;
        Some(known.whole.pattern(self.sources.get(&instruction).copied()))
    }

    /// All patterns of instructions as a whole, by rising number, and those of single owners' memory. Instructions that go by large steps are
    /// of a stream where they do so together: copies of one, in a loop that was unrolled.
    pub fn all(&self) -> impl Iterator<Item = FoundPattern> {
        let known = || {
            (0u32..).zip(&self.instructions).filter_map(|(number, known)| Some((number, known.as_deref()?)))
        };
        let wholes = known().map(|(number, known)| (number, None, &known.whole));
        let parts = known().flat_map(|(number, known)| {
            known.parts.iter().map(move |(owner, sequence)| (number, Some(*owner), sequence))
        });
        self.found(wholes).into_iter().chain(self.found(parts))
    }

    /// The patterns of sequences, of which those of one round of a loop are told.
    fn found<'s>(
        &self,
        sequences: impl Iterator<Item = (u32, Option<u32>, &'s Sequence)>,
    ) -> Vec<FoundPattern> {
        let (mut all, mut strided) = (Vec::new(), Vec::new());
        for (instruction, owner, sequence) in sequences {
            let pattern = sequence.pattern(self.sources.get(&instruction).copied());
            if let (Some(stride), PatternKind::Stride) = (pattern.strides.first(), pattern.kind) {
                strided.push(Steps {
                    at: all.len(),
                    bytes: stride.bytes,
                    size: sequence.size,
                    burst: sequence.burst,
                    last: sequence.last,
                    executions: sequence.in_burst,
                });
            }
            all.push(FoundPattern { instruction, owner, pattern });
        }
        strided.sort_unstable_by_key(|it| (it.burst, it.bytes, it.last));
        for together in strided.chunk_by(|one, other| one.is_beside(other)) {
            if are_copies(together) {
                together.iter().for_each(|it| all[it.at].pattern.kind = PatternKind::Stream);
            }
        }
        all
    }
}

/// An instruction that goes by large steps.
struct Steps {
    /// Its place among all.
    at: usize,
    /// Bytes of a step, and of an access.
    bytes: i64,
    size: u32,
    /// The last burst that has it; where it was last there, of what was looked at, and how often that is.
    burst: u64,
    last: u64,
    executions: u32,
}

impl Steps {
    /// Whether another one, which was farther up in the end, was in the same or the next round of the same loop.
    fn is_beside(&self, other: &Self) -> bool {
        (self.burst, self.bytes) == (other.burst, other.bytes)
            && other.last - self.last <= self.bytes.unsigned_abs()
            && self.executions.abs_diff(other.executions) <= 1
    }
}

/// Whether instructions with one step leave out no line that lies between their addresses of a round and those of the next, and access half of
/// its bytes or more: some members of a large structure may each be in a line of their own.
fn are_copies(all: &[Steps]) -> bool {
    let Some(first) = all.first().filter(|_| all.len() > 1) else { return false };
    let step = first.bytes.unsigned_abs();
    let mut places: Vec<u64> = all.iter().map(|it| it.last % step).collect();
    places.sort_unstable();
    let accessed: u64 = all.iter().map(|it| u64::from(it.size)).sum();
    let around = places.iter().copied().chain([places[0] + step]);
    2 * accessed >= step && around.clone().zip(around.skip(1)).all(|(place, next)| next - place <= LINE)
}

impl Default for Sequence {
    fn default() -> Self {
        Self {
            size: 0,
            last: 0,
            last_at: 0,
            burst: 0,
            in_burst: 0,
            lowest: 0,
            highest: 0,
            spans: 0.0,
            apart: 0,
            executions: 0,
            observations: 0,
            bursts: 0,
            same: 0,
            strides: [Candidate::default(); STRIDES],
            run: Run::default(),
            cells: Histogram::Small([0; CELLS]),
        }
    }
}

impl Sequence {
    #[inline]
    fn add(&mut self, (burst, at): (u64, u32), reference: &Reference) {
        let address = reference.address;
        self.size = reference.size;
        if self.burst != burst {
            self.begin(burst, at, address);
            return;
        }
        if self.in_burst >= MOST_IN_A_BURST {
            return;
        }
        self.in_burst += 1;
        self.executions += 1;
        let delta = address.wrapping_sub(self.last) as i64;
        self.apart += u64::from(at.wrapping_sub(self.last_at));
        (self.last, self.last_at) = (address, at);
        self.observations += 1;
        self.lowest = self.lowest.min(address);
        self.highest = self.highest.max(address);
        self.cells.count(((delta as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % CELLS);
        match delta {
            0 => self.same += 1,
            _ => self.count(delta),
        }
        if delta == self.run.bytes {
            self.run.steps += 1;
        } else {
            self.end_run(true);
            self.run = Run { bytes: delta, steps: 1, is_whole: self.run.steps > 0 };
        }
    }

    /// The walk is over, or the burst ends (`is_over` is false) in the middle of it.
    #[inline]
    fn end_run(&mut self, is_over: bool) {
        let run = self.run;
        // Where nothing is frequent each run has one step.
        if run.steps > 1
            && let Some(known) = self.strides.iter_mut().find(|known| known.bytes == run.bytes)
        {
            let longest = if is_over && run.is_whole { &mut known.whole } else { &mut known.cut };
            *longest = run.steps.max(*longest);
        }
    }

    #[cold]
    fn begin(&mut self, burst: u64, at: u32, address: u64) {
        self.spans += (self.highest - self.lowest) as f64;
        self.end_run(false);
        self.run = Run::default();
        (self.burst, self.in_burst, self.last, self.last_at) = (burst, 1, address, at);
        (self.lowest, self.highest) = (address, address);
        self.executions += 1;
        self.bursts += 1;
    }

    /// Keeps every delta that more than a fifth of all have (J. Misra, D. Gries, Finding Repeated Elements, Science of
    /// Computer Programming 2, 1982); counts are too low by a fifth of all at most.
    #[inline]
    fn count(&mut self, delta: i64) {
        if let Some(known) = self.strides.iter_mut().find(|it| it.bytes == delta && it.count > 0) {
            known.count += 1;
        } else if let Some(free) = self.strides.iter_mut().find(|it| it.count == 0) {
            *free = Candidate { bytes: delta, count: 1, ..Candidate::default() };
        } else {
            self.strides.iter_mut().for_each(|it| it.count -= 1);
        }
    }

    fn pattern(&self, source: Option<AddressSource>) -> Pattern {
        let observations = self.observations;
        let share = |count: u64| count as f64 / observations.max(1) as f64;
        let mut strides: Vec<Stride> = self
            .strides
            .iter()
            .filter(|it| it.count > 0)
            .map(|it| Stride { bytes: it.bytes, share: share(it.count) })
            .collect();
        if self.same > 0 {
            strides.push(Stride { bytes: 0, share: share(self.same) });
        }
        strides.sort_by(|one, other| other.share.total_cmp(&one.share));
        let (kind, rests_on) = self.verdict(&strides, source);
        // One and a half a burst: between independent and wholly dependent observations.
        let independent = (observations as f64).min(1.5 * self.bursts as f64 + 8.0);
        let entropy: f64 = self
            .cells
            .counts()
            .into_iter()
            .filter(|&count| count > 0)
            .map(|count| {
                let part = share(u64::from(count));
                -part * part.log2()
            })
            .sum();
        let first = strides.first().map(|first| first.bytes);
        let walked = self.strides.iter().find(|it| it.count > 0 && Some(it.bytes) == first);
        // The last burst's may still be under way.
        let under_way = |it: &&Candidate| if self.run.bytes == it.bytes { self.run.steps } else { 0 };
        let is_known = |it: &&Candidate| it.whole > 0 && it.whole >= it.cut.max(under_way(it));
        Pattern {
            kind,
            walk_steps: walked.filter(is_known).map(|it| it.whole),
            strides,
            entropy_bits: entropy.max(0.0),
            span_bytes: (self.spans + (self.highest - self.lowest) as f64) / self.bursts.max(1) as f64,
            references_apart: self.apart as f64 / observations.max(1) as f64,
            executions: self.executions,
            observations,
            bursts: self.bursts,
            confidence: if rests_on > 0.0 { crate::interval::wilson_low(rests_on, independent) } else { 0.0 },
            source,
        }
    }

    /// The kind, and the share of the deltas that it rests on.
    fn verdict(&self, strides: &[Stride], source: Option<AddressSource>) -> (PatternKind, f64) {
        if self.observations < FEWEST {
            return (PatternKind::Unknown, 0.0);
        }
        let loaded = match source {
            Some(AddressSource::Itself) => Some(PatternKind::PointerChase),
            Some(AddressSource::LoadedBy(_)) => Some(PatternKind::Indirect),
            Some(AddressSource::Computed) | None => None,
        };
        let Some(first) = strides.first() else { return (loaded.unwrap_or(PatternKind::Irregular), 0.0) };
        if first.share >= MOSTLY {
            // A list whose blocks lie in order is still a list: what counts is where addresses come from.
            let kind = match (loaded, first.bytes) {
                (Some(loaded), _) => loaded,
                (None, 0) => PatternKind::Constant,
                (None, bytes) if bytes.unsigned_abs() <= LINE => PatternKind::Stream,
                (None, _) => PatternKind::Stride,
            };
            return (kind, first.share);
        }
        let together: f64 = strides.iter().map(|stride| stride.share).sum();
        match loaded {
            Some(loaded) => (loaded, 0.0),
            None if together >= MOSTLY => {
                // Several elements of a line at a time, going one way: a stream all the same.
                let short = |stride: &Stride| stride.bytes.unsigned_abs() <= LINE;
                let up = strides
                    .iter()
                    .filter(|stride| short(stride) && stride.bytes >= 0)
                    .map(|stride| stride.share)
                    .sum::<f64>();
                let down = strides
                    .iter()
                    .filter(|stride| short(stride) && stride.bytes <= 0)
                    .map(|stride| stride.share)
                    .sum::<f64>();
                let stream = up.max(down) >= MOSTLY;
                (if stream { PatternKind::Stream } else { PatternKind::MultiStride }, together)
            }
            None => (PatternKind::Irregular, 0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_on_where_a_byte_is_full() {
        let mut histogram = Histogram::Small([0; CELLS]);
        histogram.count(7);
        (0..1000).for_each(|_| histogram.count(3));
        let counts = histogram.counts();
        assert_eq!((counts[3], counts[7], counts.iter().sum::<u32>()), (1000, 1, 1001));
    }
}
