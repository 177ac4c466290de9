//! Times the pipeline by itself, without the program that made the records and without the ring between both:
//! `cargo run --release -p memlens --example replay -- 3 ls -l` keeps a program's records in memory and gives them to three
//! pipelines, one after the other. Each reads the modules' symbols anew: that is part of attribution here. Short programs only: a
//! record takes 8 bytes, and 8 for each access.

use std::time::Instant;

use memlens_events::{Definition, ModuleAnswer, RecordSink};
use memlens_exact::{Session, SessionOptions};
use memlens_pipeline::{Process, ProcessOptions};
use memlens_sim::MachineDescription;

/// What a sink is told, in order.
enum Told {
    Definition(Definition),
    /// Records of a slot, which end here in the words.
    Records(usize, usize),
}

/// Keeps what it is told, and answers what a pipeline answers.
struct Keeper {
    pipeline: Process,
    told: Vec<Told>,
    words: Vec<u64>,
}

impl RecordSink for Keeper {
    fn define(&mut self, definition: Definition) -> ModuleAnswer {
        self.told.push(Told::Definition(definition.clone()));
        self.pipeline.define(definition)
    }

    fn records(&mut self, slot: usize, words: &[u64]) {
        self.words.extend_from_slice(words);
        self.told.push(Told::Records(slot, self.words.len()));
        self.pipeline.records(slot, words);
    }

    fn idle(&mut self) {
        self.pipeline.idle();
    }
}

/// Processor time so far, in seconds: of this thread, of all.
fn processor_seconds() -> (f64, f64) {
    let seconds_of = |clock| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes the time to where it is told to.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    (seconds_of(libc::CLOCK_THREAD_CPUTIME_ID), seconds_of(libc::CLOCK_PROCESS_CPUTIME_ID))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let rounds: usize = arguments
        .next()
        .and_then(|rounds| rounds.to_str()?.parse().ok())
        .ok_or("replay ROUNDS PROGRAM ...")?;
    let options = ProcessOptions::new(MachineDescription::named("host")?);
    let mut session =
        Session::start(&SessionOptions { command: arguments.collect(), ..SessionOptions::default() })?;
    let mut keeper = Keeper { pipeline: Process::new(options.clone())?, told: Vec::new(), words: Vec::new() };
    keeper.pipeline.set_process_id(session.process_id());
    session.run(&mut keeper)?;
    let Keeper { told, words, .. } = keeper;
    for _ in 0..rounds {
        let mut pipeline = Process::new(options.clone())?;
        let (begun, (thread, process)) = (Instant::now(), processor_seconds());
        let mut from = 0;
        for told in &told {
            match told {
                Told::Definition(definition) => drop(pipeline.define(definition.clone())),
                &Told::Records(slot, end) => {
                    pipeline.records(slot, &words[from..end]);
                    from = end;
                }
            }
        }
        let (thread_end, process_end) = processor_seconds();
        let (attribution, all) = (thread_end - thread, process_end - process);
        let accesses = pipeline.accesses() as f64;
        println!(
            "{:.0} M accesses in {:.3} s: attribution {attribution:.3} s, {:.2} ns an access; model {:.3} s, {:.2} ns",
            accesses / 1e6,
            begun.elapsed().as_secs_f64(),
            attribution / accesses * 1e9,
            all - attribution,
            (all - attribution) / accesses * 1e9,
        );
    }
    Ok(())
}
