//! The instructions between two marks: accesses, and beginnings of blocks.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use memlens_code::{Architecture, Effects, Leads, RegisterSet, effects};
use rustc_hash::FxHashMap;

/// An instruction: in which module, by the caller's number, and its address there (svma).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The module.
    pub module: u32,
    /// The address.
    pub svma: u64,
}

impl Place {
    /// The module of code that is in no file.
    pub const NO_MODULE: u32 = u32::MAX;
}

/// Instructions looked at for one way.
const MOST_VISITS: usize = 256;

/// Instructions between a branch and where its ways meet again, at most.
pub(crate) const MOST_BETWEEN: u32 = 64;

/// Where both ways of a branch meet again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Join {
    /// The address (svma).
    pub(crate) at: u64,
    /// Registers that either way may write up to there.
    pub(crate) writes: RegisterSet,
}

/// Where a way begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum From {
    /// Behind this instruction.
    Behind(u32),
    /// At this one.
    At(u32),
}

/// An instruction on a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Its number.
    pub(crate) instruction: u32,
    /// Whether the way leads from here to where it branches.
    pub(crate) is_taken: bool,
}

struct Function {
    end: u64,
    /// Its instructions' numbers.
    instructions: Range<u32>,
}

/// The code of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code<'c> {
    /// Whose it is.
    pub architecture: Architecture,
    /// Its first address (svma).
    pub start: u64,
    /// It.
    pub bytes: &'c [u8],
}

/// The code of the function around a place. None: it is not known.
pub type CodeOf<'c> = dyn Fn(Place) -> Option<Code<'c>> + 'c;

/// Instructions behind a branch, [`MOST_BETWEEN`] at most. Sets of them have a bit for each.
struct Near {
    instructions: Vec<u32>,
    /// Of each those that may be executed next.
    successors: Vec<u64>,
    /// Those behind which the branch may be.
    before_branch: u64,
}

impl Near {
    /// The instructions on all ways from one to another, without that. None: there is no way, or one that comes to the branch before.
    fn between(&self, begin: usize, end: usize) -> Option<u64> {
        let (mut found, mut open, end) = (0, 1u64 << begin, 1u64 << end);
        let mut comes_there = false;
        while open != 0 {
            let at = open.trailing_zeros();
            open &= open - 1;
            if 1 << at == end {
                comes_there = true;
                continue;
            }
            if self.before_branch >> at & 1 == 1 {
                return None;
            }
            found |= 1 << at;
            open |= self.successors[at as usize] & !found;
        }
        comes_there.then_some(found)
    }
}

/// Ways through machine code, and the instructions that are on them.
pub(crate) struct Paths<'c> {
    code_of: &'c CodeOf<'c>,
    functions: BTreeMap<Place, Function>,
    instructions: Vec<(Effects, u32)>,
    ways: FxHashMap<(From, u32), Range<u32>>,
    steps: Vec<Step>,
    joins: FxHashMap<u32, Option<Join>>,
}

impl<'c> Paths<'c> {
    pub(crate) fn new(code_of: &'c CodeOf<'c>) -> Self {
        Self {
            code_of,
            functions: BTreeMap::new(),
            instructions: Vec::new(),
            ways: FxHashMap::default(),
            steps: Vec::new(),
            joins: FxHashMap::default(),
        }
    }

    /// The number of the instruction at a place; None: no code is known there, or no instruction begins.
    pub(crate) fn number(&mut self, place: Place) -> Option<u32> {
        let of = self.function(place)?;
        let known = &self.instructions[of.start as usize..of.end as usize];
        let at = known.binary_search_by_key(&place.svma, |(effects, _)| effects.at).ok()?;
        Some(of.start + at as u32)
    }

    /// The numbers of the instructions of the function around a place.
    fn function(&mut self, place: Place) -> Option<Range<u32>> {
        if let Some((first, function)) = self.functions.range(..=place).next_back()
            && first.module == place.module
            && place.svma < function.end
        {
            return Some(function.instructions.clone());
        }
        if place.module == Place::NO_MODULE {
            return None;
        }
        let Code { architecture, start, bytes } = (self.code_of)(place)?;
        let end = start + bytes.len() as u64;
        if !(start..end).contains(&place.svma) {
            return None;
        }
        // Another function may lie in it, before this place, and was found first.
        let whole = Place { svma: start, ..place };
        if let Some(function) = self.functions.get(&whole).filter(|function| function.end >= end) {
            return Some(function.instructions.clone());
        }
        let first = self.instructions.len() as u32;
        let found = effects(architecture, bytes, start);
        self.instructions.extend(found.into_iter().map(|effects| (effects, place.module)));
        let instructions = first..self.instructions.len() as u32;
        let function = Function { end, instructions: instructions.clone() };
        self.functions.insert(whole, function);
        Some(instructions)
    }

    /// An instruction.
    pub(crate) fn effects(&self, number: u32) -> &Effects {
        &self.instructions[number as usize].0
    }

    /// The shortest way to an instruction that touches no memory in between, without the instruction itself; empty where there is
    /// none.
    pub(crate) fn way(&mut self, from: From, to: u32) -> &[Step] {
        let range = match self.ways.get(&(from, to)) {
            Some(known) => known.clone(),
            None => {
                let found = self.search(from, to);
                let first = self.steps.len() as u32;
                self.steps.extend(found);
                let range = first..self.steps.len() as u32;
                self.ways.insert((from, to), range.clone());
                range
            }
        };
        &self.steps[range.start as usize..range.end as usize]
    }

    /// Where both ways of a conditional branch meet, as far as they stay within the next [`MOST_BETWEEN`] instructions, whatever branches lie
    /// between: the nearest such place. None: there is none before the branch comes again.
    pub(crate) fn join(&mut self, branch: u32) -> Option<Join> {
        if let Some(known) = self.joins.get(&branch) {
            return *known;
        }
        let found = self.find_join(branch);
        self.joins.insert(branch, found);
        found
    }

    fn find_join(&mut self, branch: u32) -> Option<Join> {
        let [Some((one, _)), Some((other, _))] = self.successors(branch) else { return None };
        let near = self.near(branch, [one, other])?;
        let places = 0..near.instructions.len();
        let ways =
            places.filter_map(|place| Some((place, near.between(0, place)? | near.between(1, place)?)));
        let (place, between) = ways.min_by_key(|(_, between)| between.count_ones())?;
        let mut writes = RegisterSet::default();
        for (at, &number) in near.instructions.iter().enumerate() {
            if between >> at & 1 == 1 {
                let effects = self.effects(number);
                writes |= effects.writes;
                writes |= effects.moves;
            }
        }
        Some(Join { at: self.effects(near.instructions[place]).at, writes })
    }

    /// What is executed behind a branch, in the order of both ways. None: one way leads to the branch itself, or both to one place.
    fn near(&mut self, branch: u32, begins: [u32; 2]) -> Option<Near> {
        if begins.contains(&branch) || begins[0] == begins[1] {
            return None;
        }
        let mut near = Near { instructions: begins.to_vec(), successors: Vec::new(), before_branch: 0 };
        while let Some(&number) = near.instructions.get(near.successors.len()) {
            let (at, mut successors) = (near.successors.len(), 0);
            for (next, _) in self.successors(number).into_iter().flatten() {
                if next == branch {
                    near.before_branch |= 1 << at;
                    continue;
                }
                let known = near.instructions.iter().position(|&it| it == next);
                let has_room = near.instructions.len() < MOST_BETWEEN as usize;
                if let Some(position) = known.or_else(|| has_room.then_some(near.instructions.len())) {
                    if known.is_none() {
                        near.instructions.push(next);
                    }
                    successors |= 1 << position;
                }
            }
            near.successors.push(successors);
        }
        Some(near)
    }

    fn search(&mut self, from: From, to: u32) -> Vec<Step> {
        // By instruction: the one before on the way, and whether that branches there.
        let mut before: FxHashMap<u32, Option<Step>> = FxHashMap::default();
        let mut queue: Vec<u32> = Vec::new();
        let mut next = 0;
        match from {
            From::At(first) if first == to => return Vec::new(),
            From::At(first) => {
                before.insert(first, None);
                queue.push(first);
            }
            From::Behind(last) => {
                for (instruction, _) in self.successors(last).into_iter().flatten() {
                    if instruction == to {
                        return Vec::new();
                    }
                    before.insert(instruction, None);
                    queue.push(instruction);
                }
            }
        }
        while let Some(&at) = queue.get(next)
            && next < MOST_VISITS
        {
            next += 1;
            if self.effects(at).touches_memory {
                continue;
            }
            for (instruction, is_taken) in self.successors(at).into_iter().flatten() {
                let step = Step { instruction: at, is_taken };
                if instruction == to {
                    return way_to(step, &before);
                }
                if let Entry::Vacant(new) = before.entry(instruction) {
                    new.insert(Some(step));
                    queue.push(instruction);
                }
            }
        }
        Vec::new()
    }

    /// Where execution goes behind an instruction, and whether that is where it branches.
    fn successors(&mut self, number: u32) -> [Option<(u32, bool)>; 2] {
        let (Effects { next, leads, .. }, module) = self.instructions[number as usize];
        let mut at = |svma| self.number(Place { module, svma });
        match leads {
            Leads::On => [at(next).map(|next| (next, false)), None],
            Leads::To(target) => [at(target).map(|next| (next, true)), None],
            Leads::Either(target) => {
                [at(next).map(|next| (next, false)), at(target).map(|next| (next, true))]
            }
            Leads::Away => [None, None],
        }
    }
}

fn way_to(last: Step, before: &FxHashMap<u32, Option<Step>>) -> Vec<Step> {
    let mut way = vec![last];
    while let Some(Some(step)) = before.get(&way[way.len() - 1].instruction) {
        way.push(*step);
    }
    way.reverse();
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: [u8; 18] = [
        0x48, 0x8b, 0x07, // 1000 mov rax, [rdi]
        0x48, 0xff, 0xc0, // 1003 inc rax
        0x48, 0x85, 0xf6, // 1006 test rsi, rsi
        0x75, 0xf5, //       1009 jne 1000
        0x48, 0x8b, 0x1e, // 100b mov rbx, [rsi]
        0x53, //             100e push rbx
        0xeb, 0xf9, //       100f jmp 100a+…: into the middle of nothing
        0x90, //             1011 nop
    ];

    /// Symbols of some programs cover others: node's of several megabytes was read anew for each of its instructions behind one in it.
    #[test]
    fn a_function_that_others_lie_in_is_read_once() {
        let code_of = |place: Place| {
            let (start, bytes) = match place.svma {
                0x1003..0x1006 => (0x1003, &CODE[3..6]),
                _ => (0x1000, &CODE[..]),
            };
            Some(Code { architecture: Architecture::X86_64, start, bytes })
        };
        let mut paths = Paths::new(&code_of);
        let mut number = |svma| {
            paths.number(Place { module: 1, svma }).expect("an instruction");
            paths.instructions.len()
        };
        assert_eq!(number(0x1003), 1);
        let all = number(0x100b);
        assert_eq!([number(0x100e), number(0x1006), number(0x1000), number(0x1003)], [all; 4]);
    }

    #[test]
    fn the_ways_of_a_branch_meet_where_all_come_by() {
        const CODE: [u8; 32] = [
            0x74, 0x03, //       2000 je 2005
            0x48, 0xff, 0xc0, // 2002 inc rax
            0x74, 0x05, //       2005 je 200c
            0x48, 0xff, 0xc1, // 2007 inc rcx
            0xeb, 0x03, //       200a jmp 200f
            0x48, 0xff, 0xc2, // 200c inc rdx
            0x74, 0x02, //       200f je 2013
            0xff, 0xd0, //       2011 call rax
            0x74, 0x03, //       2013 je 2018
            0x48, 0xff, 0xc3, // 2015 inc rbx
            0x75, 0xe6, //       2018 jne 2000
            0x75, 0xe4, //       201a jne 2000
            0xff, 0xd0, //       201c call rax
            0xeb, 0xfe, //       201e jmp 201e
        ];
        let code = Code { architecture: Architecture::X86_64, start: 0x2000, bytes: &CODE };
        let code_of = |place: Place| (0x2000..0x2020).contains(&place.svma).then_some(code);
        let mut paths = Paths::new(&code_of);
        let mut join = |svma| {
            let branch = paths.number(Place { module: 1, svma }).expect("an instruction");
            let join = paths.join(branch)?;
            Some((join.at, join.writes.iter().filter(|&it| it < 16).collect::<Vec<_>>()))
        };
        assert_eq!(join(0x2000), Some((0x2005, vec![0])));
        // Either of two parts: rcx and rdx.
        assert_eq!(join(0x2005), Some((0x200f, vec![1, 2])));
        assert_eq!(join(0x200f), None, "a call, behind which nothing is known");
        assert_eq!(join(0x2013), Some((0x2018, vec![3])));
        // What is behind it leads to the begin of the loop, too, or nowhere.
        assert_eq!(join(0x2018), Some((0x2000, vec![])));
        assert_eq!(join(0x201a), None, "the end of a loop");
    }

    #[test]
    fn ways_pass_no_other_access() {
        let code = Code { architecture: Architecture::X86_64, start: 0x1000, bytes: &CODE };
        let code_of = |place: Place| (0x1000..0x1012).contains(&place.svma).then_some(code);
        let mut paths = Paths::new(&code_of);
        let mut at = |svma| paths.number(Place { module: 1, svma }).expect("an instruction");
        let [load, inc, test, jump, other, push] =
            [0x1000, 0x1003, 0x1006, 0x1009, 0x100b, 0x100e].map(&mut at);
        let step = |instruction, is_taken| Step { instruction, is_taken };
        let round = [step(inc, false), step(test, false), step(jump, true)];
        let out = [step(inc, false), step(test, false), step(jump, false)];
        assert_eq!(paths.way(From::Behind(load), load), round);
        assert_eq!(paths.way(From::Behind(load), other), out);
        assert_eq!(paths.way(From::At(test), other), &out[1..]);
        // The other load would be in between.
        assert_eq!(paths.way(From::Behind(load), push), []);
        assert_eq!(paths.way(From::Behind(other), push), []);
        assert_eq!(paths.number(Place { module: 1, svma: 0x1001 }), None);
    }
}
