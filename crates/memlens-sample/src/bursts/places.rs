//! Whose an address is, remembered for the next one.

use memlens_objects::SiteId;
use rustc_hash::FxHashMap;

use crate::address_space::{AddressSpace, Area, Place};
use crate::heap::Heap;
use crate::modules::Files;
use crate::recording::{Code, Spot};
use crate::unwinder::StackFrame;

/// How far below the stack pointer of its tick a burst's frames are looked for, in bytes.
const BELOW_STACK_POINTER: u64 = 1 << 20;
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
}

/// The addresses around a reference's last one that are the same cell's, in the present burst.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memo {
    burst: u64,
    start: u64,
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

    pub fn holds(&self, burst: u64, address: u64) -> bool {
        self.burst == burst && (self.start..self.end).contains(&address)
    }
}

/// A spot's number, and what an access to it stands for besides itself.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub number: u32,
    pub unseen: f64,
}

/// The spots that were met.
#[derive(Debug, Default)]
pub struct Places {
    spots: Vec<Spot>,
    numbers: FxHashMap<Spot, u32>,
    burst: u64,
    /// In the data of a file: where the variable around an svma begins, and its size.
    variables: FxHashMap<u32, Vec<(u64, u64)>>,
}

impl Places {
    /// What was remembered of the last burst holds no more.
    pub fn next_burst(&mut self) {
        self.burst += 1;
    }

    /// The present burst's number.
    pub fn present(&self) -> u64 {
        self.burst
    }

    /// A spot, by number.
    pub fn spot(&self, number: u32) -> &Spot {
        &self.spots[number as usize]
    }

    /// Whose an address is, and the addresses around it that are the same's.
    pub fn find(&mut self, address: u64, surroundings: &Surroundings<'_>) -> (Found, (u64, u64)) {
        let alone = (address, address.saturating_add(1));
        if let Some((spot, range)) = on_stack(address, surroundings) {
            return (self.numbered(spot, 0.0), range);
        }
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
        Found { number, unseen }
    }

    /// The variable around an svma, or the gap between two: its begin and size.
    fn variable(&mut self, file: u32, svma: u64, files: &Files) -> (u64, u64) {
        let list = self.variables.entry(file).or_insert_with(|| variables_of(file, files));
        let after = list.partition_point(|&(start, _)| start <= svma);
        let end_of_gap = list.get(after).map_or(u64::MAX, |&(start, _)| start);
        match after.checked_sub(1).map(|at| list[at]) {
            Some((start, size)) if svma - start < size => (start, size),
            // Behind a variable, or before the first: a line's worth of it.
            _ => {
                let start = svma & !63;
                (start, (end_of_gap - start).min(64))
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

/// An address on the thread's stack: its frame's as of the burst's begin, or below them all.
fn on_stack(address: u64, surroundings: &Surroundings<'_>) -> Option<(Spot, (u64, u64))> {
    let (pointer, frames) = surroundings.stack?;
    let mut low = pointer.saturating_sub(128);
    if (low.saturating_sub(BELOW_STACK_POINTER)..low).contains(&address) {
        return Some((Spot::Stack, (low.saturating_sub(BELOW_STACK_POINTER), low)));
    }
    for (level, frame) in frames.iter().enumerate() {
        let cfa = frame.cfa?;
        if (low..cfa).contains(&address) {
            let pc = if level == 0 { frame.pc } else { frame.pc.wrapping_sub(1) };
            let (file, svma) = surroundings.code(pc);
            let (cfa_offset, size) = local(file, svma, address.wrapping_sub(cfa) as i64, surroundings.files);
            let start = cfa.wrapping_add_signed(cfa_offset);
            return Some((Spot::Frame { file, svma, cfa_offset }, (start, start.saturating_add(size))));
        }
        low = cfa;
    }
    None
}

/// The local around an offset from the canonical frame address: its begin and size.
fn local(file: Option<u32>, svma: u64, offset: i64, files: &Files) -> (i64, u64) {
    let symbols = file.and_then(|file| files.get(file)).and_then(|mapped| mapped.symbols());
    let variables = symbols.map(|symbols| symbols.frame_variables(svma)).unwrap_or_default();
    let found = variables.iter().rev().find(|variable| {
        let within = offset.checked_sub(variable.cfa_offset).and_then(|within| u64::try_from(within).ok());
        within.is_some_and(|within| within < variable.size_bytes)
    });
    found.map_or((offset & !7, 8), |variable| (variable.cfa_offset, variable.size_bytes))
}
