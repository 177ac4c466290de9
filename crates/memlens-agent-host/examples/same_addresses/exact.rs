//! What exact mode records of a program: all accesses of each thread.

use std::error::Error;
use std::ffi::OsString;

use memlens_agent_host::{Agent, AgentOptions, Watch};
use memlens_events::{
    BlockDefinition, Definition, EventKind, ModuleAnswer, ModuleDefinition, RecordHeader, RecordSink,
    WordRole,
};
use memlens_exact::{ExitOutcome, Extras, Session, SessionOptions};
use memlens_types::AccessKind;

use crate::bursts::{Bursts, let_inherit, strings_start};
use crate::sequence::{Action, Codes, Sequence, is_agent};

/// A thread's accesses, and when its process changed mappings.
#[derive(Debug, Default)]
pub struct Thread {
    pub sequence: Sequence,
    /// Behind how many accesses, and the addresses.
    pub changes: Vec<(usize, u64, u64)>,
}

/// A run.
#[derive(Debug, Default)]
pub struct Exact {
    /// In the order in which they began.
    pub threads: Vec<Thread>,
    /// Of the first thread at its first instruction.
    pub stack_pointer: Option<u64>,
    pub outcome: Option<ExitOutcome>,
    /// See [`crate::bursts::strings_start`].
    pub strings_start: u64,
}

impl Exact {
    /// As if bursts had recorded all of it.
    pub fn in_pieces(self, length: usize) -> Bursts {
        let threads = self.threads.into_iter().zip(0..).map(|(thread, number)| {
            let Sequence { operands, addresses } = thread.sequence;
            let pieces = operands.chunks(length).zip(addresses.chunks(length));
            let pieces = pieces.map(|(operands, addresses)| Sequence {
                operands: operands.to_vec(),
                addresses: addresses.to_vec(),
            });
            (number, pieces.collect())
        });
        Bursts {
            threads: threads.collect(),
            outcome: self.outcome,
            strings_start: self.strings_start,
            ..Bursts::default()
        }
    }
}

struct Word {
    role: WordRole,
    pc_offset: u16,
    action: Action,
    size_bytes: u64,
}

/// A block, with the numbers of its words' instructions.
struct Block {
    /// Whether its accesses are left out.
    is_agents: bool,
    words: Vec<Word>,
    codes: Vec<u32>,
}

struct Sink<'a> {
    codes: &'a mut Codes,
    modules: Vec<ModuleDefinition>,
    blocks: Vec<Option<Block>>,
    /// By slot.
    threads: Vec<Option<usize>>,
    exact: Exact,
}

/// Runs a program under exact mode.
pub fn record(command: &[OsString], codes: &mut Codes) -> Result<Exact, Box<dyn Error>> {
    // An agent without ticks: the program has the same libraries, and the same environment left.
    let agent = Agent::new(&AgentOptions { watch: Watch::Nothing, ..AgentOptions::default() })?;
    let_inherit(agent.descriptor())?;
    let environment = agent.variables(None).map(|(name, value)| (name.into(), value)).to_vec();
    let options = SessionOptions {
        command: command.to_vec(),
        extras: Extras { environment, inherited: None },
        ..SessionOptions::default()
    };
    let mut session = Session::start(&options)?;
    let mut sink =
        Sink { codes, modules: Vec::new(), blocks: Vec::new(), threads: Vec::new(), exact: Exact::default() };
    sink.exact.strings_start = strings_start(session.process_id())?;
    let outcome = session.run(&mut sink)?;
    sink.exact.outcome = Some(outcome);
    Ok(sink.exact)
}

impl Sink<'_> {
    fn block(&mut self, block: &BlockDefinition) -> Block {
        let module = self.modules.iter().rev().find(|module| (module.start..module.end).contains(&block.pc));
        let (path, bias) = module.map_or(("", 0), |module| (module.path.as_str(), module.start));
        let file = self.codes.file(path);
        let mut made = Block { is_agents: is_agent(path), words: Vec::new(), codes: Vec::new() };
        for word in &block.words {
            let action = match word.attr.kind() {
                AccessKind::Store => Action::Store,
                AccessKind::Modify => Action::Modify,
                _ => Action::Load,
            };
            made.words.push(Word {
                role: word.role,
                pc_offset: word.pc_offset,
                action,
                size_bytes: u64::from(word.attr.size_bytes().max(1)),
            });
            made.codes.push(self.codes.number(file, block.pc + u64::from(word.pc_offset) - bias));
        }
        made
    }
}

impl RecordSink for Sink<'_> {
    fn define(&mut self, definition: Definition) -> ModuleAnswer {
        match definition {
            Definition::Block(block) => {
                let index = block.id as usize;
                let made = self.block(&block);
                if self.blocks.len() <= index {
                    self.blocks.resize_with(index + 1, || None);
                }
                self.blocks[index] = Some(made);
            }
            Definition::Thread(thread) => {
                let slot = thread.slot as usize;
                if self.threads.len() <= slot {
                    self.threads.resize(slot + 1, None);
                }
                self.threads[slot] = Some(self.exact.threads.len());
                self.exact.threads.push(Thread::default());
            }
            Definition::Module(module) => self.modules.push(module),
        }
        ModuleAnswer::new()
    }

    fn records(&mut self, slot: usize, words: &[u64]) {
        let Some(thread) = self.threads.get(slot).copied().flatten() else { return };
        let Thread { sequence, changes } = &mut self.exact.threads[thread];
        let mut accesses = Vec::new();
        let mut at = 0;
        while at < words.len() {
            let header = RecordHeader(words[at]);
            let mut values = &words[at + 1..at + 1 + header.words()];
            at += 1 + header.words();
            let mut id = header.block_id();
            if id == 0 {
                match EventKind::from_code(values[0] as u16) {
                    Some(kind @ (EventKind::MapAdd | EventKind::MapRemove)) => {
                        changes.push((sequence.len(), values[1], values[1] + values[2]));
                        // What was moved (mremap(2)) had no more bytes, where programs let it grow.
                        if let Some(&old) = values.get(5)
                            && kind == EventKind::MapAdd
                            && old != 0
                        {
                            changes.push((sequence.len(), old, old + values[2]));
                        }
                        continue;
                    }
                    // The words of a block that was left where something was raised.
                    Some(EventKind::PartialBlock) => {
                        id = values[1] as u32;
                        values = &values[3..];
                    }
                    _ => continue,
                }
            }
            let Some(Some(block)) = self.blocks.get(id as usize) else { continue };
            if self.exact.stack_pointer.is_none() {
                // The dynamic linker's first access is its first call's, which pushes.
                self.exact.stack_pointer = values.first().map(|&address| address + 8);
            }
            if block.is_agents {
                continue;
            }
            execution(block, values, sequence, &mut accesses);
        }
    }
}

/// One execution of a block, as far as it has words.
fn execution(block: &Block, values: &[u64], sequence: &mut Sequence, accesses: &mut Vec<(Action, u64)>) {
    let count = block.words.len().min(values.len());
    let mut first = 0;
    while first < count {
        let pc_offset = block.words[first].pc_offset;
        let end = (first..count).find(|&at| block.words[at].pc_offset != pc_offset).unwrap_or(count);
        let (mut elements, mut start) = (None, 0);
        // Of a gather or scatter each element has an address, and a word behind it that tells whether it happened.
        let addresses = block.words[first..end].iter().filter(|word| word.role == WordRole::Address).count();
        let is_gather =
            addresses > 1 && block.words[first..end].iter().any(|word| word.role == WordRole::Mask);
        for (word, &value) in block.words[first..end].iter().zip(&values[first..end]) {
            match word.role {
                WordRole::Address => accesses.push((word.action, value)),
                WordRole::RepStart => {
                    start = value;
                    accesses.push((word.action, value));
                }
                WordRole::RepEnd => {
                    elements = Some((value.wrapping_sub(start) as i64).unsigned_abs() / word.size_bytes);
                }
                WordRole::Mask if is_gather && value == 0 => {
                    accesses.pop();
                }
                WordRole::Mask | WordRole::Argument | WordRole::ReturnValue => {}
            }
        }
        if !accesses.is_empty() {
            sequence.add(block.codes[first], accesses, elements);
        }
        first = end;
    }
}
