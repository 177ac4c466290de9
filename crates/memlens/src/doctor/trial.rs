//! Which modes work here, found out by trying.

use std::ffi::OsString;

use memlens_events::{Definition, ModuleAnswer, RecordSink};
use memlens_exact::{Session, SessionOptions};

use super::finding::Finding;

/// A program that does next to nothing, with this exit code.
const TRIAL_PROGRAM: &str = "true";

/// The modes.
pub fn findings() -> Vec<Finding> {
    let later = |mode| Finding::limited(mode, "not in this version", "").without_advice();
    vec![exact(), later("burst"), later("sample")]
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
        Session::start(&SessionOptions { command, follow_children: false }).and_then(|mut session| {
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
