//! Stretches of the program that touch memory at different rates, or in different code.
//!
//! How many blocks a window of references touches differs between a phase that fills a table in order and one that
//! looks things up in it, and between lookups in a large table and in a small one. One footprint for both would be wrong for
//! both: the small table's phase would make the large one seem to fit. Bursts are therefore sorted
//!
//! - by how many of their references are the first to their block, in a short window at the beginning and in the whole
//!   burst against that, two octaves a class each;
//! - by which instructions make them: the phase whose references are distributed over instructions most alike (T.
//!   Sherwood, E. Perelman, G. Hamerly, B. Calder, Automatically Characterizing Large Scale Program Behavior, ASPLOS 2002,
//!   with instructions for basic blocks, their hashes for random projections, and one pass for k-means).
//!
//! Each phase has a footprint of its own: that of the instructions seen in it. A window that reaches back before the phase's
//! begin has all phases': how likely it does is told by how often a burst's predecessor was in the phase, more often than by
//! chance ([`Phases::persistence`]).

use crate::bins::TRIVIAL;
use crate::burst::{Reference, Unseen};
use crate::groups::Groups;
use crate::model::{Bound, Model};
use crate::reuse::{Distribution, Footprint};
use crate::scopes::Scope;

/// The program's phases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phases {
    known: Vec<Phase>,
    /// Bursts in all, and their references.
    bursts: f64,
    references: f64,
    /// Bursts whose predecessor is known, and references between the two.
    successors: f64,
    unseen: f64,
}

#[derive(Clone, Debug, Default)]
struct Phase {
    class: usize,
    /// Of its bursts.
    signature: Signature,
    bursts: f64,
    /// By all bursts whose predecessor is known, and by those of them before which it was looked where the thread was.
    stays: Stays,
    looked: Stays,
    /// References of its last bursts, and those that these stand for.
    recently: (f64, f64),
}

/// Whether the program was in a phase from one burst to the next.
#[derive(Clone, Copy, Debug, Default)]
struct Stays {
    successors: f64,
    stayed: f64,
}

impl Stays {
    fn add(&mut self, stayed: bool) {
        self.successors += 1.0;
        self.stayed += f64::from(u8::from(stayed));
    }

    /// The part that stayed.
    fn part(&self) -> f64 {
        self.stayed / self.successors
    }
}

/// How references are distributed over instructions: a sum over bursts, each of which has 1 in all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signature([f32; Self::PARTS]);

impl Signature {
    const PARTS: usize = 32;

    /// Of one burst.
    pub(crate) fn of(references: &[Reference]) -> Self {
        let mut counts = [0u32; Self::PARTS];
        for reference in references {
            // The upper bits of a product with the golden ratio.
            counts[(reference.instruction.wrapping_mul(0x9e37_79b9) >> 27) as usize] += 1;
        }
        let all = references.len().max(1) as f32;
        Self(counts.map(|count| count as f32 / all))
    }

    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, part)| *sum += part);
    }

    /// The part of this burst's references that a phase of so many bursts has elsewhere: 0 to 1.
    fn distance(&self, phase: &Self, bursts: f64) -> f32 {
        let bursts = bursts as f32;
        self.0.iter().zip(&phase.0).map(|(own, sum)| (own - sum / bursts).abs()).sum::<f32>() / 2.0
    }
}

/// Where a burst stands among those of its thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    /// The phase of the one before.
    pub(crate) before: Option<usize>,
    /// What was between the two, where that is known.
    pub(crate) unseen: Option<Unseen>,
}

impl Phases {
    /// Classes by either measure.
    const SIDE: usize = 4;
    /// Most phases.
    pub(crate) const MOST: usize = 16;
    /// References of the short window.
    pub(crate) const SHORT_WINDOW: usize = 2048;
    /// Bursts before which it was looked from which on these alone tell how long a phase lasts.
    const ENOUGH_LOOKED: f64 = 8.0;
    /// What a burst counts once the next one has come: they stand for more and for less by chance, and over the run for other reasons.
    const FORGOTTEN: f64 = 7.0 / 8.0;
    /// A burst with more of its references elsewhere is of another phase.
    const APART: f32 = 0.5;

    /// The class of a burst with so many first uses in the short window at its beginning, and in all.
    pub(crate) fn class(early: u64, first_uses: u64, references: usize) -> usize {
        let share = |uses: u64, among: usize| uses.max(1) as f64 / among.max(1) as f64;
        let early = share(early, references.min(Self::SHORT_WINDOW));
        let decline = share(first_uses, references) / early;
        // 1 to 1/4, 1/4 to 1/16 …; 1 to 1/2, 1/2 to 1/8 …
        let step = |value: f64, offset: f64| ((offset - value.log2()) / 2.0).floor().max(0.0) as usize;
        step(early, 0.0).min(Self::SIDE - 1) * Self::SIDE + step(decline, 1.0).min(Self::SIDE - 1)
    }

    /// The phase of a burst of a class, each of whose references stands for `weight`.
    pub(crate) fn of(
        &mut self,
        class: usize,
        signature: &Signature,
        at: Position,
        references: usize,
        weight: f64,
    ) -> usize {
        // Another class is further away than other code.
        let distance = |phase: &Phase| {
            let classes = [phase.class / Self::SIDE, phase.class % Self::SIDE];
            let steps = classes[0].abs_diff(class / Self::SIDE) + classes[1].abs_diff(class % Self::SIDE);
            steps as f32 + signature.distance(&phase.signature, phase.bursts)
        };
        let nearest =
            self.known.iter().map(distance).enumerate().min_by(|one, other| one.1.total_cmp(&other.1));
        let found = match nearest {
            Some((found, apart)) if apart <= Self::APART || self.known.len() == Self::MOST => found,
            _ => {
                let signature = Signature::default();
                self.known.push(Phase { class, signature, ..Phase::default() });
                self.known.len() - 1
            }
        };
        let phase = &mut self.known[found];
        phase.signature.add(signature);
        phase.bursts += 1.0;
        let (seen, stood) = phase.recently;
        let more = references as f64;
        phase.recently = (seen * Self::FORGOTTEN + more, stood * Self::FORGOTTEN + more * weight);
        self.bursts += 1.0;
        self.references += references as f64;
        if let (Some(before), Some(unseen)) = (at.before, at.unseen) {
            phase.stays.add(before == found);
            if let Some(was_elsewhere) = unseen.was_elsewhere {
                phase.looked.add(before == found && !was_elsewhere);
            }
            self.successors += 1.0;
            self.unseen += unseen.references as f64;
        }
        found
    }

    /// How many references of one phase a reference of another stands for as much as, in the last bursts of both.
    pub(crate) fn stands_for(&self, phase: usize, of: usize) -> f64 {
        let weight =
            |phase: usize| self.known.get(phase).map(|Phase { recently: (seen, stood), .. }| stood / seen);
        match (weight(phase), weight(of)) {
            (Some(one), Some(other)) if phase != of => one / other,
            _ => 1.0,
        }
    }

    /// How long a phase lasts.
    fn persistence(&self, phase: usize) -> Persistence {
        let Some(known) = self.known.get(phase) else { return Persistence::ALWAYS };
        if known.stays.successors == 0.0 {
            return Persistence::ALWAYS;
        }
        // Rounds that take about as long as it is from burst to burst are in the same phase at each.
        let stays = if known.looked.successors >= Self::ENOUGH_LOOKED { known.looked } else { known.stays };
        let length = self.references / self.bursts;
        let by_chance = known.bursts / self.bursts;
        let stayed = stays.part();
        let kept = if by_chance < 1.0 { (stayed - by_chance) / (1.0 - by_chance) } else { 1.0 };
        Persistence { kept: kept.clamp(0.0, 1.0), length, step: length + self.unseen / self.successors }
    }

    /// A model for each phase, from the instructions' distributions; `all`: of all phases together. `short`, `groups`: of this size of block.
    pub(crate) fn models(
        &self,
        instructions: &[(&Scope, Distribution)],
        all: &Distribution,
        short: &Short,
        groups: &Groups,
        bound: Option<Bound>,
    ) -> Vec<Option<Model>> {
        let everywhere = Footprint::new(all, &short.all());
        let evenness = groups.all();
        let model = |phase: usize| {
            let parts = instructions.iter().map(|(scope, times)| (scope.phases[phase], times));
            let own = Distribution::mixed(parts)?;
            let footprint = Footprint::new(&own, &short.of[phase]);
            let persistence = self.persistence(phase);
            let footprint = footprint.continued_by(&everywhere, |time| persistence.at(time));
            Some(Model::new(own, footprint, groups.of(phase, &evenness), bound))
        };
        (0..Self::MOST).map(model).collect()
    }
}

/// How likely the program was in the present phase so many references ago, for more than by chance.
#[derive(Clone, Copy, Debug)]
struct Persistence {
    /// One burst before.
    kept: f64,
    /// References of a burst, and from one to the next.
    length: f64,
    step: f64,
}

impl Persistence {
    const ALWAYS: Self = Self { kept: 1.0, length: 0.0, step: 1.0 };

    fn at(&self, time: f64) -> f64 {
        if time <= self.length { 1.0 } else { self.kept.powf((time - self.length) / self.step) }
    }
}

/// Weights of trivial reuse times by phase, for one size of block.
#[derive(Clone, Debug)]
pub(crate) struct Short {
    of: [[f64; TRIVIAL as usize]; Phases::MOST],
}

impl Default for Short {
    fn default() -> Self {
        Self { of: [[0.0; TRIVIAL as usize]; Phases::MOST] }
    }
}

impl Short {
    /// Counts those of a burst.
    pub(crate) fn add(&mut self, phase: usize, short: &[u32; TRIVIAL as usize], weight: f64) {
        for (sum, &count) in self.of[phase].iter_mut().zip(short) {
            *sum += f64::from(count) * weight;
        }
    }

    /// Of all phases together.
    pub(crate) fn all(&self) -> [f64; TRIVIAL as usize] {
        let mut sums = [0.0; TRIVIAL as usize];
        for phase in &self.of {
            for (sum, count) in sums.iter_mut().zip(phase) {
                *sum += count;
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use memlens_types::AccessKind;

    use super::*;

    #[test]
    fn classes_tell_streams_from_random_lines() {
        // A stream of 8-byte words; 2,048 lines at random; a loop over 100 lines.
        let classes =
            [(256, 2500), (1294, 2048), (100, 100)].map(|(early, all)| Phases::class(early, all, 20_000));
        assert_eq!(classes, [4, 1, 10]);
        assert_eq!((Phases::class(0, 0, 1), Phases::class(5, 5, 5)), (0, 0));
    }

    /// A hundred references of each of these instructions.
    fn signature(instructions: impl Iterator<Item = u32> + Clone) -> Signature {
        let reference =
            |instruction| Reference { address: 0, size: 8, kind: AccessKind::Load, instruction, owner: 0 };
        let references: Vec<_> = (0..100).flat_map(|_| instructions.clone()).map(reference).collect();
        Signature::of(&references)
    }

    /// Bursts of 1,000 references, 9,000 apart, in code of these instructions.
    fn phases_of(bursts: impl Iterator<Item = u32>) -> (Phases, Vec<usize>) {
        let mut phases = Phases::default();
        let mut found: Vec<usize> = Vec::new();
        for first in bursts {
            let at = Position { before: found.last().copied(), unseen: Some(9_000.into()) };
            found.push(phases.of(4, &signature(first..first + 10), at, 1_000, 10.0));
        }
        (phases, found)
    }

    #[test]
    fn code_makes_a_phase_and_parts_of_it_do_not() {
        let (_, found) = phases_of([0, 1, 0, 100, 0, 101].into_iter());
        assert_eq!(found, [0, 0, 0, 1, 0, 1]);
        // Where there is no room, the most similar.
        let (_, found) = phases_of((0..40).map(|phase| 1000 * (phase % 20)));
        assert!(found.iter().all(|&phase| phase < Phases::MOST));
        assert_eq!(found[..20], found[20..], "the same code is the same phase");
    }

    #[test]
    fn references_of_phases_stand_for_more_and_less() {
        let mut phases = Phases::default();
        for burst in 0..20 {
            let (first, weight) = [(0, 10.0), (500, 40.0)][burst % 2];
            let at = Position { before: None, unseen: None };
            phases.of(4, &signature(first..first + 10), at, 1_000, weight);
        }
        let counts = [phases.stands_for(0, 1), phases.stands_for(1, 0), phases.stands_for(1, 1)];
        assert_eq!(counts, [0.25, 4.0, 1.0]);
        assert_eq!(phases.stands_for(0, 7), 1.0, "nothing is known of it");
    }

    #[test]
    fn phases_last_as_long_as_bursts_stay_in_them() {
        let (lasting, _) = phases_of((0..200).map(|burst| if burst < 100 { 0 } else { 500 }));
        let lasting = lasting.persistence(0);
        assert!(lasting.at(1_000.0) == 1.0 && lasting.at(11_000.0) == 1.0, "{lasting:?}");
        let (coming, _) = phases_of((0..200).map(|burst| if burst / 10 % 2 == 0 { 0 } else { 500 }));
        let coming = coming.persistence(0);
        // Nine of ten have their like before them, five by chance.
        assert!((0.75..0.85).contains(&coming.at(11_000.0)), "{coming:?}");
        assert!(coming.at(101_000.0) < 0.15);
        // One phase twenty times, then another: but between any two bursts there was other code.
        let mut interrupted = Phases::default();
        for burst in 0..40 {
            let unseen = Unseen { references: 9_000, was_elsewhere: Some(true) };
            let at = Position { before: Some(burst / 20).filter(|_| burst % 20 > 0), unseen: Some(unseen) };
            let first = 500 * (burst / 20) as u32;
            interrupted.of(4, &signature(first..first + 10), at, 1_000, 10.0);
        }
        let interrupted = interrupted.persistence(0);
        assert!(interrupted.at(1_000.0) == 1.0 && interrupted.at(11_000.0) == 0.0, "{interrupted:?}");
        // As often the one as the other, whatever was before: nothing but chance.
        let mut random = 1_u64;
        let (mixed, _) = phases_of((0..400).map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if random >> 63 == 0 { 0 } else { 500 }
        }));
        let mixed = mixed.persistence(0);
        assert!(mixed.at(1_000.0) == 1.0 && mixed.at(11_000.0) < 0.15, "{mixed:?}");
    }
}
