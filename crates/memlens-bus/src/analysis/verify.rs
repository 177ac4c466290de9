//! Holds an analysis against what the virtual card knows, record by record.

use super::analyzer::{Analyzer, Attribution, Observer, RecordKind};
use super::object_space::NO_OBJECT;
use crate::format::{FormatError, TruthKind, TruthReader, TruthRecord};
use serde::Serialize;
use std::io::BufRead;

/// So many wrong records are kept as text.
const KEPT: usize = 10;

/// How many records were attributed rightly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// Records compared.
    pub records: u64,
    /// Those of which everything is right: kind, process, virtual address, object, level.
    pub right: u64,
    /// Of the right ones, those of frames that several pages map, of which the true one is among the owners.
    pub right_shared: u64,
    /// Of the right ones, those whose line has several objects, of which the true one is not the largest.
    pub right_other_object: u64,
    /// Records of another kind than the truth: data for a walk, unknown for data …
    pub wrong_kind: u64,
    /// Right kind, wrong process.
    pub wrong_process: u64,
    /// Right process, wrong virtual address.
    pub wrong_address: u64,
    /// Right address, wrong object.
    pub wrong_object: u64,
    /// Walks of the wrong level.
    pub wrong_level: u64,
    /// Records without truth.
    pub without_truth: u64,
    /// The first few wrong ones.
    pub examples: Vec<String>,
}

impl Verification {
    /// Records that are wrong in some way.
    pub fn wrong(&self) -> u64 {
        self.records - self.right
    }
}

/// What is wrong with a record.
enum Verdict {
    Right,
    RightShared,
    RightOtherObject,
    Kind,
    Process,
    Address,
    Object,
    Level,
}

/// Compares while an analysis runs.
pub struct Verifier<R> {
    truth: TruthReader<R>,
    found: Verification,
}

impl<R: BufRead> Verifier<R> {
    /// Compares with this truth.
    pub fn new(truth: TruthReader<R>) -> Self {
        Self { truth, found: Verification::default() }
    }

    /// What was found.
    pub fn into_verification(self) -> Verification {
        self.found
    }

    fn judge(analyzer: &Analyzer, record: &Attribution, truth: &TruthRecord) -> Verdict {
        match (truth.kind, record.kind) {
            (TruthKind::Tag, RecordKind::Tag)
            // What was a page table's is nobody's; all that can be told is what its frame is now.
            | (TruthKind::Stale, RecordKind::TableWrite(_) | RecordKind::Used(_) | RecordKind::Unknown) => Verdict::Right,
            (TruthKind::Walk, RecordKind::Walk(level)) => Self::judge_walk(analyzer, record, truth, level),
            // A line that is written back after its page was unmapped belongs to nobody; its former page's
            // process and address are all that can be told.
            (TruthKind::LateWriteBack, RecordKind::Late) => Self::judge_place(analyzer, record, truth, false),
            (TruthKind::Read, RecordKind::Data) if !record.write => {
                Self::judge_place(analyzer, record, truth, true)
            }
            (TruthKind::WriteBack, RecordKind::Data) if record.write => {
                Self::judge_place(analyzer, record, truth, true)
            }
            _ => Verdict::Kind,
        }
    }

    fn judge_walk(analyzer: &Analyzer, record: &Attribution, truth: &TruthRecord, level: u8) -> Verdict {
        if level != truth.level {
            return Verdict::Level;
        }
        let Some((pid, pages)) = analyzer.pages_of_line(record.paddr) else { return Verdict::Kind };
        if pid != truth.pid {
            return Verdict::Process;
        }
        if !pages.contains(&(truth.vaddr >> 12)) {
            return Verdict::Address;
        }
        let wanted = analyzer.objects().number(truth.pid, truth.object).unwrap_or(0);
        // The page's object is among those below the line; look at the page alone, which is cheap.
        let page = truth.vaddr >> 12;
        let is_there =
            analyzer.objects_below(pid, page..page + 1).iter().any(|&(object, _)| object == wanted);
        if is_there { Verdict::Right } else { Verdict::Object }
    }

    fn judge_place(
        analyzer: &Analyzer,
        record: &Attribution,
        truth: &TruthRecord,
        with_object: bool,
    ) -> Verdict {
        let line = !(u64::from(analyzer.header.line_bytes) - 1);
        let vaddr = truth.vaddr & line;
        let is_first = record.pid == truth.pid && record.vaddr == vaddr;
        let mut owners = analyzer.reverse_table().owners(record.paddr >> 12);
        if !is_first && !owners.any(|owner| owner == (truth.pid, truth.vaddr >> 12)) {
            return if record.pid == truth.pid { Verdict::Address } else { Verdict::Process };
        }
        if !with_object {
            return Verdict::Right;
        }
        let wanted = analyzer.objects().number(truth.pid, truth.object).unwrap_or(0);
        if is_first && record.object == wanted {
            return Verdict::Right;
        }
        let mut is_there = false;
        let bytes = u64::from(analyzer.header.line_bytes);
        analyzer.objects().pieces(truth.pid, vaddr..vaddr + bytes, |object, _| is_there |= object == wanted);
        match (is_there, is_first) {
            (true, true) => Verdict::RightOtherObject,
            (true, false) => Verdict::RightShared,
            (false, _) => Verdict::Object,
        }
    }
}

impl<R: BufRead> Observer for Verifier<R> {
    fn record(&mut self, analyzer: &Analyzer, record: &Attribution) -> Result<(), FormatError> {
        let Some(truth) = self.truth.record(record.number)? else {
            self.found.without_truth += 1;
            return Ok(());
        };
        self.found.records += 1;
        let verdict = Self::judge(analyzer, record, &truth);
        let (counter, is_right) = match verdict {
            Verdict::Right => (None, true),
            Verdict::RightShared => (Some(&mut self.found.right_shared), true),
            Verdict::RightOtherObject => (Some(&mut self.found.right_other_object), true),
            Verdict::Kind => (Some(&mut self.found.wrong_kind), false),
            Verdict::Process => (Some(&mut self.found.wrong_process), false),
            Verdict::Address => (Some(&mut self.found.wrong_address), false),
            Verdict::Object => (Some(&mut self.found.wrong_object), false),
            Verdict::Level => (Some(&mut self.found.wrong_level), false),
        };
        if let Some(counter) = counter {
            *counter += 1;
        }
        self.found.right += u64::from(is_right);
        if !is_right && self.found.examples.len() < KEPT {
            let name = |number: u32| match analyzer.objects().objects().get(number as usize) {
                Some(info) if number != NO_OBJECT => format!(" in {}", info.name),
                _ => String::new(),
            };
            let level = |level: u8| if level > 0 { format!(" of level {level}") } else { String::new() };
            let wanted = analyzer.objects().number(truth.pid, truth.object).unwrap_or(0);
            self.found.examples.push(format!(
                "record {} at {:#x}: found {}{} of process {} at {:#x}{}; it is {}{} of process {} at {:#x}{}",
                record.number,
                record.paddr,
                record.kind.as_str(),
                level(record.kind.level()),
                record.pid,
                record.vaddr,
                name(record.object),
                truth.kind.as_str(),
                level(truth.level),
                truth.pid,
                truth.vaddr,
                name(wanted),
            ));
        }
        Ok(())
    }
}
