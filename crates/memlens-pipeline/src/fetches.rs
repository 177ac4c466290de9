//! Instruction fetches: which lines a block's execution asks the first-level instruction cache for, and what
//! they count for.
//!
//! A block is one run of instructions after another, each run in one line. The first instruction of a run
//! stands for it: the model is asked for that one, whose misses they are. The others hit, as does a run in the
//! line that was fetched last of all lines that share its set of the cache: it is the set's most recent one
//! already, so nothing changes. Every instruction is counted all the same.

use crate::address_space::AddressSpace;
use crate::block_table::BlockTable;
use crate::cells::{Cells, DISCARD};
use crate::references::References;
use crate::stacks::Stacks;
use memlens_sim::{Inclusion, MachineDescription, Policy, Rules};
use memlens_types::{AccessAttr, AccessKind};

/// No line.
const NONE: u64 = u64::MAX;

/// Which fetches the model is asked for.
#[derive(Clone, Copy, Debug)]
pub struct FetchRule {
    /// log₂ of a line's bytes.
    line_shift: u32,
    /// Sets of the instruction cache.
    sets: u64,
    /// Whether a fetch from its set's most recent line may be left out whatever data was accessed in between,
    /// because data cannot drive lines out of the instruction cache.
    leaves_out: bool,
    /// Whether each element of a string instruction is a fetch, as valgrind counts.
    counts_elements: bool,
}

impl FetchRule {
    /// That of a machine.
    pub fn of(machine: &MachineDescription) -> Self {
        let keeps_order =
            matches!(machine.l1i.policy, Policy::Lru | Policy::TreePlru | Policy::Random | Policy::Clock);
        // What data drives out of an inclusive last level leaves the instruction cache, too.
        let is_apart = machine.inclusion != Inclusion::Inclusive || machine.rules == Rules::Cachegrind;
        Self {
            line_shift: machine.l1i.line.max(1).ilog2(),
            sets: machine.l1i.sets().max(1),
            leaves_out: keeps_order && is_apart,
            counts_elements: machine.rules == Rules::Cachegrind,
        }
    }

    /// The runs of a block that begins at `pc` and whose instructions have these lengths.
    pub fn runs(self, pc: u64, lengths: &[u8]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut addr = pc;
        for (position, &bytes) in lengths.iter().enumerate() {
            let end = addr.wrapping_add(bytes.max(1).into());
            let (line, last) = (addr >> self.line_shift, end.wrapping_sub(1) >> self.line_shift);
            match runs.last_mut().filter(|run| run.last_line == line && line == last) {
                Some(run) => run.instructions += 1,
                None => runs.push(Run {
                    addr,
                    bytes,
                    position,
                    instructions: 1,
                    line,
                    last_line: last,
                    set: (line % self.sets) as u32,
                    last_set: (last % self.sets) as u32,
                }),
            }
            addr = end;
        }
        runs
    }
}

/// Instructions of a block in one line; the first one may begin in the line before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where the first one begins.
    pub addr: u64,
    /// Its length.
    pub bytes: u8,
    /// Which of the block's instructions it is, from 0.
    pub position: usize,
    /// How many there are.
    pub instructions: u16,
    /// The line in which the first one begins.
    line: u64,
    /// The line of all.
    last_line: u64,
    /// The sets of these lines.
    set: u32,
    last_set: u32,
}

/// What a thread fetched.
#[derive(Debug)]
pub struct Fetches {
    /// The line fetched last of each set of the instruction cache.
    recent: Vec<u64>,
    /// Executions that are not booked yet, by block.
    executions: Vec<u64>,
    /// Cells, by number of the run.
    cells: Vec<u32>,
}

/// What finding a run's cell takes.
pub struct Attribution<'a> {
    /// The code.
    pub blocks: &'a BlockTable,
    /// What lies where.
    pub space: &'a mut AddressSpace,
    /// The calls of the thread and of the others.
    pub stacks: Stacks<'a>,
    /// Where its cells are.
    pub references: &'a mut References,
}

impl Fetches {
    /// None yet.
    pub fn new() -> Self {
        Self { recent: Vec::new(), executions: Vec::new(), cells: Vec::new() }
    }

    /// Another thread ran in between: it may have written to the lines, or fetched others on the same core.
    pub fn forget_lines(&mut self) {
        self.recent.fill(NONE);
    }

    /// A block is executed and counted: `put` gets the fetches that the model is to be asked for, with their
    /// cells.
    #[inline(always)]
    pub fn count(&mut self, attribution: Attribution<'_>, id: u32, put: impl FnMut(u64, AccessAttr, u32)) {
        let Attribution { blocks, space, stacks, references } = attribution;
        if self.executions.len() <= id as usize || self.cells.len() < blocks.runs().len() {
            self.make_room(blocks);
        }
        let Some(executions) = self.executions.get_mut(id as usize) else { return };
        *executions += 1;
        let first = blocks.runs_of(id).start as usize;
        if self.cells.get(first) == Some(&DISCARD) {
            self.find_cells(Attribution { blocks, space, stacks, references }, id);
        }
        self.ask(blocks, id, u64::MAX, true, put);
    }

    /// As [`Self::count`], of a block that is not counted, or not to its end: runs that begin behind `last` are
    /// not fetched.
    pub fn pass(&mut self, blocks: &BlockTable, id: u32, last: u64, put: impl FnMut(u64, AccessAttr, u32)) {
        self.ask(blocks, id, last, false, put);
    }

    #[inline(always)]
    fn ask(
        &mut self,
        blocks: &BlockTable,
        id: u32,
        last: u64,
        is_counted: bool,
        mut put: impl FnMut(u64, AccessAttr, u32),
    ) {
        let Some(FetchRule { sets, leaves_out, .. }) = blocks.fetch_rule() else { return };
        if self.recent.is_empty() {
            self.recent.resize(sets as usize, NONE);
        }
        let numbers = blocks.runs_of(id);
        let Some(runs) = blocks.runs().get(numbers.start as usize..numbers.end as usize) else { return };
        for (run, number) in runs.iter().zip(numbers).take_while(|(run, _)| run.addr <= last) {
            let (set, last_set) = (run.set as usize, run.last_set as usize);
            let is_recent = self.recent[set] == run.line && self.recent[last_set] == run.last_line;
            if !(is_recent && leaves_out) {
                let cell = if is_counted { self.cells[number as usize] } else { DISCARD };
                put(run.addr, AccessAttr::new(AccessKind::Fetch, run.bytes.into()), cell);
            }
            self.recent[set] = run.line;
            self.recent[last_set] = run.last_line;
        }
    }

    /// A counted string instruction at `pc` has run through so many elements: valgrind executes it for each of them,
    /// and once more to find that there is none left.
    pub fn string(&self, blocks: &BlockTable, cells: &mut Cells, (id, pc): (u32, u64), elements: u64) {
        if !blocks.fetch_rule().is_some_and(|rule| rule.counts_elements) {
            return;
        }
        let run = blocks.runs_of(id).rev().find(|&number| blocks.runs()[number as usize].addr <= pc);
        if let Some(&cell) = run.and_then(|number| self.cells.get(number as usize)) {
            cells.add(cell, elements);
        }
    }

    /// The first time that the thread counts a block.
    #[inline(never)]
    fn find_cells(&mut self, attribution: Attribution<'_>, id: u32) {
        let Attribution { blocks, space, stacks, references } = attribution;
        for number in blocks.runs_of(id) {
            let run = blocks.runs()[number as usize];
            let object = space.resolve(run.addr, run.addr, stacks).object;
            let reference = blocks.reference_of_run(id, number);
            self.cells[number as usize] = references.cells_mut().of(reference, object.get(), || None);
        }
    }

    #[inline(never)]
    fn make_room(&mut self, blocks: &BlockTable) {
        self.executions.resize(blocks.count().next_power_of_two(), 0);
        self.cells.resize(blocks.runs().len().next_power_of_two(), DISCARD);
    }

    /// Books what was executed in the cells.
    pub fn settle(&mut self, blocks: &BlockTable, cells: &mut Cells) {
        for (id, executions) in (0..).zip(&mut self.executions) {
            let executions = std::mem::take(executions);
            if executions == 0 {
                continue;
            }
            for number in blocks.runs_of(id) {
                let instructions = blocks.runs()[number as usize].instructions;
                cells.add(self.cells[number as usize], executions * u64::from(instructions));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_with_its_line_and_an_instruction_over_two_lines_begins_one() {
        let machine = MachineDescription::named("cachegrind").expect("shipped");
        let rule = FetchRule::of(&machine);
        // From 0x1038: 4 and 3 bytes in line 0x40, 5 bytes over its end (at 0x1040), then two in line 0x41.
        let runs = rule.runs(0x1038, &[4, 3, 5, 2, 6]);
        let shown: Vec<_> =
            runs.iter().map(|run| (run.addr, run.bytes, run.position, run.instructions)).collect();
        assert_eq!(shown, [(0x1038, 4, 0, 2), (0x103f, 5, 2, 3)]);
        assert_eq!((runs[1].line, runs[1].last_line), (0x40, 0x41));
        // Up to the end of a line and on in the next: 0x1080 - 0x103c = 68 = 4 + 64.
        let runs = rule.runs(0x103c, &[4, 8, 8, 8, 8, 8, 8, 8, 8, 1]);
        let shown: Vec<_> = runs.iter().map(|run| (run.addr, run.instructions)).collect();
        assert_eq!(shown, [(0x103c, 1), (0x1040, 8), (0x1080, 1)]);
        assert_eq!(rule.runs(0x1000, &[]), []);
    }
}
