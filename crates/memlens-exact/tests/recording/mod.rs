//! A sink that keeps everything and holds the reader to its promises; and the programs it records.

use memlens_events::{
    BlockDefinition, Definition, EventKind, ModuleAnswer, RecordHeader, RecordSink, WordRole,
};
use memlens_exact::{ExitOutcome, ReaderStatistics, Session, SessionOptions};
use memlens_types::{AccessAttr, AccessKind};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A compiled program.
pub struct Built {
    file: PathBuf,
    symbols: HashMap<String, u64>,
}

impl Built {
    /// Compiles `source` at fixed addresses.
    pub fn new(name: &str, source: &str, flags: &[&str]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (code, file) = (folder.join(format!("{name}.c")), folder.join(name));
        fs::write(&code, source).expect("the folder is writable");
        let made = Command::new("cc")
            .args(["-g", "-no-pie", "-fno-pie", "-std=gnu11", "-o"])
            .args([&file, &code])
            .args(flags)
            .output()
            .expect("cc runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let listed = Command::new("nm").arg(&file).output().expect("nm runs");
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let symbols = text.lines().filter_map(|line| {
            let mut fields = line.split_whitespace();
            let address = u64::from_str_radix(fields.next()?, 16).ok()?;
            Some((fields.nth(1)?.to_owned(), address))
        });
        Self { file, symbols: symbols.collect() }
    }

    /// Where a variable or function lies.
    pub fn address(&self, name: &str) -> u64 {
        *self.symbols.get(name).unwrap_or_else(|| panic!("no symbol {name}"))
    }
}

/// One word of a record, with what its block's definition says of it.
#[derive(Clone, Copy, Debug)]
pub struct RecordedWord {
    pub role: WordRole,
    pub attr: AccessAttr,
    pub value: u64,
}

/// Everything that a run delivered.
#[derive(Default)]
pub struct Recording {
    pub outcome: Option<ExitOutcome>,
    pub statistics: ReaderStatistics,
    blocks: HashMap<u32, BlockDefinition>,
    slots: HashSet<usize>,
    records: Vec<(u32, Vec<u64>)>,
    /// Greatest epoch delivered, by slot and of all.
    epochs: HashMap<usize, u32>,
    epoch: u32,
}

impl RecordSink for Recording {
    fn define(&mut self, definition: Definition) -> ModuleAnswer {
        match definition {
            Definition::Block(block) => {
                assert!(self.blocks.insert(block.id, block).is_none(), "a block is defined twice");
            }
            Definition::Thread(thread) => {
                self.slots.insert(thread.slot as usize);
            }
            Definition::Module(_) => {}
        }
        ModuleAnswer::new()
    }

    fn records(&mut self, slot: usize, words: &[u64]) {
        assert!(self.slots.contains(&slot), "slot {slot} was not defined");
        let mut at = 0;
        while at < words.len() {
            let header = RecordHeader(words[at]);
            let payload = &words[at + 1..at + 1 + header.words()];
            if header.block_id() != 0 {
                let block = self.blocks.get(&header.block_id());
                assert_eq!(block.expect("defined before use").words.len(), payload.len());
            }
            if header.epoch() != 0 {
                let own = self.epochs.entry(slot).or_default();
                assert!(header.epoch() >= *own, "slot {slot}: {} after {own}", header.epoch());
                assert!(header.epoch() >= self.epoch, "{} after {}", header.epoch(), self.epoch);
                *own = header.epoch();
                self.epoch = header.epoch();
            }
            self.records.push((header.block_id(), payload.to_vec()));
            at += 1 + header.words();
        }
    }
}

impl Recording {
    /// The blocks that ran, in the order of delivery, with their words.
    pub fn blocks_run(&self) -> impl Iterator<Item = (&BlockDefinition, &[u64])> {
        let blocks = self.records.iter().filter(|(id, _)| *id != 0);
        blocks.map(|(id, words)| (&self.blocks[id], words.as_slice()))
    }

    /// All words of all blocks.
    pub fn words(&self) -> impl Iterator<Item = RecordedWord> {
        self.blocks_run().flat_map(|(block, values)| {
            let pairs = block.words.iter().zip(values);
            pairs.map(|(word, &value)| RecordedWord { role: word.role, attr: word.attr, value })
        })
    }

    /// Kind, size and address of the plain accesses in a range.
    pub fn accesses(&self, range: Range<u64>) -> Vec<(AccessKind, u32, u64)> {
        let plain = self.words().filter(|word| word.role == WordRole::Address);
        let inside = plain.filter(|word| range.contains(&word.value));
        inside.map(|word| (word.attr.kind(), word.attr.size_bytes(), word.value)).collect()
    }

    /// The payloads of the events of a kind.
    pub fn events(&self, kind: EventKind) -> impl Iterator<Item = &[u64]> {
        let events = self.records.iter().filter(|(id, _)| *id == 0);
        events.filter(move |(_, words)| words[0] == kind as u64).map(|(_, words)| &words[1..])
    }
}

/// Runs a program to its end.
pub fn run(program: &Built, arguments: &[&str]) -> Recording {
    let command =
        std::iter::once(program.file.clone().into()).chain(arguments.iter().map(Into::into)).collect();
    let mut session =
        Session::start(&SessionOptions { command, ..SessionOptions::default() }).expect("the engine starts");
    let mut recording = Recording::default();
    recording.outcome = Some(session.run(&mut recording).expect("the program runs"));
    recording.statistics = session.statistics();
    recording
}
