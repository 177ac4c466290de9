//! Which modes work here, found out by trying.

use std::ffi::OsString;
use std::path::PathBuf;

use memlens_events::{Definition, ModuleAnswer, RecordSink};
use memlens_exact::{Session, SessionOptions};
use memlens_sample::{BurstModel, BurstSettings, SampleError, SampleOptions, SampleSession, Target};

use memlens_sim::MachineDescription;

use super::finding::Finding;
use crate::processor::IS_X86_64;

/// A program that does next to nothing, with this exit code.
const TRIAL_PROGRAM: &str = "true";

/// The modes.
pub fn findings() -> Vec<Finding> {
    if !IS_X86_64 {
        let elsewhere =
            |topic| Finding::limited(topic, "not on this processor: for x86-64 only", "").without_advice();
        return vec![elsewhere("exact"), burst(), sample()];
    }
    vec![exact(), burst(), sample()]
}

/// Bursts of a shell's loop, as many as come in a moment.
fn burst() -> Finding {
    let topic = "burst";
    let machine = match MachineDescription::named("host") {
        Ok(machine) => memlens_pipeline::machine_info(&machine),
        Err(error) => return Finding::limited(topic, error.to_string(), "name one with --machine"),
    };
    let model = BurstModel::default();
    let bursts = BurstSettings {
        accesses: 1000,
        frequency_hz: 1000,
        often: 0,
        machine,
        core_cycle_ns: None,
        model,
        filter: false,
    };
    let options = SampleOptions { bursts: Some(bursts), overhead: 1.0, ..SampleOptions::default() };
    let target = Target::Program { file: PathBuf::from("/bin/sh"), arguments: spin() };
    let tried = SampleSession::start(&target, &options).and_then(|mut session| {
        session.run(None, |_| {})?;
        Ok(session)
    });
    match tried.as_ref().map(SampleSession::bursts) {
        Ok(Some(counts)) if counts.references > 0 => {
            let text = format!("{} bursts of a trial run have {} accesses", counts.bursts, counts.references);
            Finding::good(topic, text)
        }
        Ok(_) => {
            let text =
                "a trial run has no bursts: its code could not be translated, or the agent did not start";
            Finding::limited(topic, text, "").without_advice()
        }
        Err(error) => Finding::limited(topic, error.to_string(), "").without_advice(),
    }
}

/// Samples a shell's loop for a moment, with the best event that opens.
fn sample() -> Finding {
    let topic = "sample";
    let options = SampleOptions::default();
    let target = Target::Program { file: PathBuf::from("/bin/sh"), arguments: spin() };
    let tried = SampleSession::start(&target, &options).and_then(|mut session| {
        session.run(None, |_| {})?;
        Ok(session)
    });
    match tried {
        Ok(session) => {
            if let Some(error) = session.without_events() {
                return without_events(error, &by_timers(&session));
            }
            let (event, refused) = session.event();
            let what = match event.has_addresses {
                true => "the processor tells data addresses",
                false => "no data addresses from the processor: they are computed from registers",
            };
            let mut text = format!("{} samples of {} in a trial; {what}", session.samples(), event.name);
            text += &format!("; {} samples a second keep to 1 % here", event.frequency_hz);
            for (name, why) in refused {
                text += &format!("; {name}: {why}");
            }
            match session.samples() {
                0 => Finding::limited(topic, text, "").without_advice(),
                _ => Finding::good(topic, text),
            }
        }
        Err(error) => without_events(&error, "nothing can be sampled"),
    }
}

/// Programs that can be preloaded are sampled all the same.
fn by_timers(session: &SampleSession) -> String {
    format!(
        "dynamically linked programs are sampled by timers of their own (agent-clock: {} samples in a trial), also \
         processes that run already (--pid), static programs not at all",
        session.samples()
    )
}

fn without_events(error: &SampleError, instead: &str) -> Finding {
    match error {
        SampleError::Forbidden(error) => {
            let level = memlens_sample::paranoid_level();
            let text =
                format!("perf_event_open is forbidden ({error}); perf_event_paranoid is {level}; {instead}");
            Finding::limited("sample", text, memlens_sample::permission_advice(error))
        }
        SampleError::NoEvents(error) => {
            let text = format!("this kernel has no perf_event_open ({error}); {instead}");
            Finding::limited("sample", text, "").without_advice()
        }
        error => Finding::limited("sample", error.to_string(), "").without_advice(),
    }
}

/// A command that computes for some milliseconds.
fn spin() -> Vec<OsString> {
    ["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"].map(OsString::from).to_vec()
}

/// Counts words, and knows nothing of what they mean.
#[derive(Default)]
struct WordCount {
    words: usize,
}

impl RecordSink for WordCount {
    fn define(&mut self, _: Definition) -> ModuleAnswer {
        ModuleAnswer::new()
    }

    fn records(&mut self, _: usize, words: &[u64]) {
        self.words += words.len();
    }
}

fn exact() -> Finding {
    let topic = "exact";
    let command = vec![OsString::from(TRIAL_PROGRAM)];
    let mut count = WordCount::default();
    let tried =
        Session::start(&SessionOptions { command, ..SessionOptions::default() }).and_then(|mut session| {
            let outcome = session.run(&mut count)?;
            Ok((session, outcome))
        });
    match tried {
        Ok((session, _)) if session.was_recorded() && count.words > 0 => {
            let milliseconds = session.elapsed().as_millis();
            Finding::good(topic, format!("a trial run of `{TRIAL_PROGRAM}` was recorded ({milliseconds} ms)"))
        }
        Ok((_, outcome)) => Finding::bad(
            topic,
            format!("the engine did not start in a trial run of `{TRIAL_PROGRAM}` ({outcome:?})"),
            "look above for what is forbidden; MEMLENS_LOG=debug says more",
        ),
        Err(error) => Finding::bad(
            topic,
            format!("a trial run of `{TRIAL_PROGRAM}` failed: {error}"),
            "look above for what is forbidden",
        ),
    }
}
