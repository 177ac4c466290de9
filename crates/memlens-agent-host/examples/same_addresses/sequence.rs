//! A thread's accesses in their order.

use std::collections::HashMap;
use std::fs;

/// What an access does, in the order in which those of an instruction are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    Load,
    Modify,
    Store,
}

/// An instruction and what it does there: a number of [`Codes`], four times, plus the action; 3 instead of an action: the
/// address is a count of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operand(u32);

impl Operand {
    pub fn new(code: u32, action: Action) -> Self {
        Self(code << 2 | action as u32)
    }

    pub fn count(code: u32) -> Self {
        Self(code << 2 | 3)
    }

    pub fn code(self) -> u32 {
        self.0 >> 2
    }

    pub fn is_count(self) -> bool {
        self.0 & 3 == 3
    }
}

/// Accesses: each an operand and an address.
#[derive(Debug, Default)]
pub struct Sequence {
    pub operands: Vec<Operand>,
    pub addresses: Vec<u64>,
}

impl Sequence {
    pub fn len(&self) -> usize {
        self.operands.len()
    }

    fn push(&mut self, operand: Operand, address: u64) {
        self.operands.push(operand);
        self.addresses.push(address);
    }

    /// Adds what one execution of an instruction accesses, and empties the list. `elements`: of a repeated string
    /// instruction.
    pub fn add(&mut self, code: u32, accesses: &mut Vec<(Action, u64)>, elements: Option<u64>) {
        if elements != Some(0) {
            accesses.sort_by_key(|&(action, _)| action);
            for &(action, address) in accesses.iter() {
                self.push(Operand::new(code, action), address);
            }
        }
        if let Some(elements) = elements {
            self.push(Operand::count(code), elements);
        }
        accesses.clear();
    }
}

/// Instructions by file and offset: the same numbers for both processes.
#[derive(Debug, Default)]
pub struct Codes {
    files: HashMap<String, u32>,
    numbers: HashMap<(u32, u64), u32>,
    names: Vec<(u32, u64)>,
}

impl Codes {
    pub fn file(&mut self, path: &str) -> u32 {
        let next = self.files.len() as u32;
        *self.files.entry(path.to_owned()).or_insert(next)
    }

    pub fn number(&mut self, file: u32, offset: u64) -> u32 {
        let next = self.names.len() as u32;
        let number = *self.numbers.entry((file, offset)).or_insert(next);
        if number == next {
            self.names.push((file, offset));
        }
        number
    }

    pub fn name(&self, code: u32) -> String {
        let (file, offset) = self.names[code as usize];
        let path = self.files.iter().find(|&(_, &number)| number == file).map_or("", |(path, _)| path);
        format!("{path}+{offset:#x}")
    }
}

/// Which addresses of a process files have: their beginnings, in order.
#[derive(Debug, Default)]
pub struct Places(Vec<(u64, u64, u64, String)>);

impl Places {
    /// Of executable mappings of a process, as they are now: start, end, and the file with the offset of its first byte
    /// there (proc_pid_maps(5)).
    pub fn of(process: u32) -> Self {
        let text = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        let mut places = Self::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(range), Some(access), Some(offset)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let Some((start, end)) = range.split_once('-') else { continue };
            let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
            if let Some(path) = words.nth(2)
                && access.contains('x')
            {
                places.0.push((number(start), number(end), number(offset), path.to_owned()));
            }
        }
        places
    }

    /// Takes in what another look saw, where this one has nothing.
    pub fn add(&mut self, other: Self) {
        for place in other.0 {
            if self.find(place.0).is_none() {
                self.0.push(place);
            }
        }
    }

    /// The file at an address, and the offset there.
    pub fn find(&self, address: u64) -> Option<(&str, u64)> {
        let (start, _, offset, path) =
            self.0.iter().find(|&&(start, end, ..)| (start..end).contains(&address))?;
        Some((path, address - start + offset))
    }
}

/// Whether a file is the agent.
pub fn is_agent(path: &str) -> bool {
    path.contains("agent-") && path.contains("memlens")
}
