//! Whose an address is, remembered for the next one.

use memlens_objects::SiteId;
use rustc_hash::FxHashMap;

use super::calls::{Accessor, Calls};
use crate::address_space::{AddressSpace, Area, Place};
use crate::heap::Heap;
use crate::modules::Files;
use crate::recording::{Code, Spot};
use crate::unwinder::StackFrame;

/// Alignment of heap blocks: what lies in between is one block's.
const GRANULE: u64 = 16;

/// Memory as it was when a burst began.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The process.
    pub pid: u32,
    /// Its mappings.
    pub space: &'a AddressSpace,
    /// Their files.
    pub files: &'a Files,
    /// Live blocks.
    pub heap: &'a Heap,
    /// The thread's stack: its pointer, and its frames.
    pub stack: Option<&'a (u64, Vec<StackFrame>)>,
}

impl Surroundings<'_> {
    /// File and svma of an instruction.
    pub fn code(&self, pc: u64) -> Code {
        self.space.code(pc).map_or((None, pc), |(file, svma)| (Some(file), svma))
    }

    /// An instruction and its function.
    pub fn accessor(&self, pc: u64) -> Accessor {
        let code = self.code(pc);
        let symbols = code.0.and_then(|file| self.files.get(file)).and_then(|mapped| mapped.symbols());
        let function = symbols.and_then(|symbols| symbols.function_at(code.1));
        Accessor { code, function: (code.0, function.map_or(code.1, |function| function.start)) }
    }
}

/// The addresses around a reference's last one that are the same cell's, in the present burst.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memo {
    burst: u64,
    /// Where the block or variable begins.
    pub start: u64,
    end: u64,
    /// The cell.
    pub cell: u32,
    /// What an access stands for besides itself, on blocks that were not watched.
    pub unseen: f32,
}

impl Memo {
    pub fn new(burst: u64, (start, end): (u64, u64), cell: u32, unseen: f32) -> Self {
        Self { burst, start, end, cell, unseen }
    }

    /// Of an address of which the next access has to be asked for anew.
    pub fn of_one(cell: u32, start: u64) -> Self {
        Self { cell, start, ..Self::default() }
    }

    pub fn holds(&self, burst: u64, address: u64) -> bool {
        self.burst == burst && (self.start..self.end).contains(&address)
    }
}

/// A spot's number, and what an access to it stands for besides itself.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub number: u32,
    pub unseen: f64,
    /// How far into a local an address is; 0 elsewhere.
    pub within: u64,
}

/// The spots that were met.
#[derive(Debug, Default)]
pub struct Places {
    spots: Vec<Spot>,
    numbers: FxHashMap<Spot, u32>,
    burst: u64,
    calls: Calls,
    /// Numbers of spots on the stack, and where the local begins: the instruction in the frame, and the distance from
    /// the frame's address.
    locals: FxHashMap<(Code, i64), (u32, i64)>,
    /// In the data of a file: where the variable around an svma begins, and its size.
    variables: FxHashMap<u32, Vec<(u64, u64)>>,
}

impl Places {
    /// What was remembered of the last burst holds no more.
    pub fn next_burst(&mut self, surroundings: &Surroundings<'_>) {
        self.burst += 1;
        let Some((pointer, frames)) = surroundings.stack else {
            self.calls = Calls::default();
            return;
        };
        let unwound = frames.iter().enumerate().map(|(level, frame)| {
            // Return addresses are those of the instruction behind the call.
            let pc = if level == 0 { frame.pc } else { frame.pc.wrapping_sub(1) };
            (surroundings.accessor(pc), frame.cfa)
        });
        self.calls.begin(*pointer, unwound);
    }

    /// The present burst's number.
    pub fn present(&self) -> u64 {
        self.burst
    }

    /// A spot, by number.
    pub fn spot(&self, number: u32) -> &Spot {
        &self.spots[number as usize]
    }

    /// Whose an address on the thread's stack is. None: it lies elsewhere.
    pub fn on_stack(&mut self, address: u64, by: Accessor, files: &Files) -> Option<Found> {
        let (code, offset) = self.calls.touch(address, by)?;
        let (number, start) = match self.locals.get(&(code, offset)) {
            Some(&known) => known,
            None => {
                let cfa_offset = local(code, offset, files);
                let spot = Spot::Frame { file: code.0, svma: code.1, cfa_offset };
                let number = self.numbered(spot, 0.0).number;
                self.locals.insert((code, offset), (number, cfa_offset));
                (number, cfa_offset)
            }
        };
        Some(Found { number, unseen: 0.0, within: offset.abs_diff(start) })
    }

    /// Whose an address elsewhere is, and the addresses around it that are the same's.
    pub fn find(&mut self, address: u64, surroundings: &Surroundings<'_>) -> (Found, (u64, u64)) {
        let alone = (address, address.saturating_add(1));
        match surroundings.space.find(address) {
            Place::Image { file, svma } => {
                let (start, size) = self.variable(file, svma, surroundings.files);
                let first = address.wrapping_sub(svma - start);
                (self.numbered(Spot::Image { file, svma: start }, 0.0), (first, first.saturating_add(size)))
            }
            Place::Area(Area::Stack) => (self.numbered(Spot::Stack, 0.0), alone),
            Place::Area(area @ (Area::Break | Area::Anonymous)) => {
                match surroundings.heap.owner(surroundings.pid, address) {
                    Some(owner) => {
                        let site: SiteId = owner.site;
                        let unseen = 1.0 / owner.probability - 1.0;
                        (self.numbered(Spot::Block { site, area }, unseen), owner.range)
                    }
                    None => {
                        let start = address & !(GRANULE - 1);
                        (self.numbered(Spot::Area(area), 0.0), (start, start + GRANULE))
                    }
                }
            }
            Place::Area(area) => (self.numbered(Spot::Area(area), 0.0), alone),
            Place::Unmapped => (self.numbered(Spot::Unmapped, 0.0), alone),
        }
    }

    fn numbered(&mut self, spot: Spot, unseen: f64) -> Found {
        let next = self.spots.len() as u32;
        let number = *self.numbers.entry(spot).or_insert_with_key(|spot| {
            self.spots.push(spot.clone());
            next
        });
        Found { number, unseen, within: 0 }
    }

    /// The variable around an svma, or the gap between two: its begin and size.
    fn variable(&mut self, file: u32, svma: u64, files: &Files) -> (u64, u64) {
        let list = self.variables.entry(file).or_insert_with(|| variables_of(file, files));
        let after = list.partition_point(|&(start, _)| start <= svma);
        let end_of_gap = list.get(after).map_or(u64::MAX, |&(start, _)| start);
        let before = after.checked_sub(1).map(|at| list[at]);
        match before {
            Some((start, size)) if svma - start < size => (start, size),
            // Behind a variable, or before the first: a line's worth of it.
            _ => {
                let end_before = before.map_or(0, |(start, size)| start + size);
                let line = svma & !63;
                let start = line.max(end_before);
                (start, end_of_gap.min(line.saturating_add(64)) - start)
            }
        }
    }
}

/// The variables of a file, by svma.
fn variables_of(file: u32, files: &Files) -> Vec<(u64, u64)> {
    let Some(symbols) = files.get(file).and_then(|mapped| mapped.symbols()) else { return Vec::new() };
    let fixed = symbols.data_symbols().iter().filter(|symbol| symbol.kind != memlens_symbols::DataKind::Tls);
    let mut list: Vec<_> = fixed.map(|symbol| (symbol.svma, symbol.size)).collect();
    list.sort_unstable();
    list
}

/// The begin of the local around a distance from the canonical frame address.
fn local((file, svma): Code, offset: i64, files: &Files) -> i64 {
    let symbols = file.and_then(|file| files.get(file)).and_then(|mapped| mapped.symbols());
    let variables = symbols.map(|symbols| symbols.frame_variables(svma)).unwrap_or_default();
    let found = variables.iter().rev().find(|variable| {
        let within = offset.checked_sub(variable.cfa_offset).and_then(|within| u64::try_from(within).ok());
        within.is_some_and(|within| within < variable.size_bytes)
    });
    found.map_or(offset & !7, |variable| variable.cfa_offset)
}
