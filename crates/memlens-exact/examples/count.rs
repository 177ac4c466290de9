//! Runs a program and counts what its stream holds: `cargo run --example count -- ls -l`.

use memlens_events::{Definition, ModuleAnswer, RecordHeader, RecordSink};
use memlens_exact::{Session, SessionOptions};

#[derive(Default)]
struct Counter {
    blocks: u64,
    events: u64,
    words: u64,
    definitions: u64,
}

impl RecordSink for Counter {
    fn define(&mut self, definition: Definition) -> ModuleAnswer {
        self.definitions += 1;
        if let Definition::Module(module) = definition {
            eprintln!("{:#x}-{:#x} {}", module.start, module.end, module.path);
        }
        ModuleAnswer::new()
    }

    fn records(&mut self, _slot: usize, words: &[u64]) {
        let mut at = 0;
        while at < words.len() {
            let header = RecordHeader(words[at]);
            if header.block_id() == 0 {
                self.events += 1
            } else {
                self.blocks += 1
            }
            self.words += header.words() as u64;
            at += 1 + header.words();
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let command = std::env::args_os().skip(1).collect();
    let mut session = Session::start(&SessionOptions { command, ..SessionOptions::default() })?;
    let mut counter = Counter::default();
    let outcome = session.run(&mut counter)?;
    eprintln!(
        "{outcome:?}, {:?}: {} definitions, {} events, {} blocks, {} words; {:?}",
        session.elapsed(),
        counter.definitions,
        counter.events,
        counter.blocks,
        counter.words,
        session.statistics()
    );
    Ok(())
}
