//! The text of `perf script`.
//!
//! What is read, as perf 6.1 prints it (tools/perf/builtin-script.c, Linux 6.1):
//!
//! ```text
//! t 25536/25536  1752.555457: PERF_RECORD_MMAP2 25536/25536: [0x55a3(0x1000) @ 0x1000 fe:00 1028 227]: r-xp /opt/t
//! t 25536/25536  1752.561451:    1000000 cpu-clock:u:            7f00     55a3 main+0x4f (/opt/t)
//!                                 period event:               address     instruction
//! t 25536/25536  1752.562451:    1000000 cpu-clock:u:
//!             10b6 main+0x56 (/opt/t)                     with call stacks the instruction is below,
//!             ...                                         as an offset in its file
//!  ABI:2    AX:0x1312d00    BX:0x7ffc6dc50df8 ...         registers
//! ```
//!
//! Only the time and the process are needed. Without mappings (`--show-mmap-events`) nothing is known of
//! the memory behind an address; without registers (`-F +uregs`) or addresses (`-F +addr`) samples count as time at
//! their instruction.

use std::io::{self, BufRead};
use std::path::PathBuf;

use memlens_profile::Profile;
use thiserror::Error;

use crate::imported::Imported;
use crate::modules::Whereabouts;
use crate::record::{NewMapping, Record, Sample, TimedRecord};
use crate::registers::{PerfRegisters, Registers};

/// Longer lines than this are cut: no line of perf's comes near.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// Addresses from here on are the kernel's (Linux, AArch64 with 48-bit addresses; on x86-64 nothing is below their middle).
const KERNEL: u64 = 0xffff_0000_0000_0000;
/// Where files are laid out whose mappings the text does not tell: outside of what a program can use.
const MADE_UP: u64 = 0x0100_0000_0000_0000;
/// Room for each of them.
const MADE_UP_BYTES: u64 = 1 << 40;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// Why a text cannot be imported. Reads after "failed to".
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PerfScriptError {
    /// It cannot be read.
    #[error("read the text: {0}")]
    Read(#[from] io::Error),
    /// Samples of several events cannot be added up.
    #[error("add up samples of several events ({0}); record one event a file: perf record -e EVENT")]
    SeveralEvents(String),
    /// It has no samples.
    #[error(
        "find samples: none of {0} lines is one; is it the output of perf script --show-mmap-events \
         -F comm,pid,tid,time,period,event,ip,sym,symoff,dso,uregs?"
    )]
    NoSamples(u64),
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptLine {
    /// The first line of a sample.
    Sample(ScriptSample),
    /// A record that is no sample.
    Record(TimedRecord),
    /// A level of the sample's call stack.
    Frame(ScriptFrame),
    /// The sample's registers; None: not all that are needed.
    Registers(Option<Registers>),
    /// The sample ends.
    End,
    /// A comment, or a record of no interest.
    Passed,
    /// Something else.
    Unknown,
}

/// A sample's first line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptSample {
    /// Name of the thread.
    pub comm: String,
    /// Process; without it in the text, the thread.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Nanoseconds.
    pub time_ns: u64,
    /// What it stands for.
    pub period: Option<u64>,
    /// Name of the event.
    pub event: String,
    /// Hexadecimal numbers behind the event: none, the instruction (of samples without call stacks) or
    /// the data address (of those with), or data address and instruction.
    pub numbers: Vec<u64>,
    /// The file of the instruction, if the line names it.
    pub file: Option<String>,
    /// Registers, if they stand in the same line.
    pub registers: Option<Registers>,
}

/// A code position: `10b6 main+0x56 (/opt/t)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptFrame {
    /// An address, or an offset in the file.
    pub number: u64,
    /// The file.
    pub file: Option<String>,
}

impl ScriptLine {
    /// Reads a line without its end.
    pub fn parse(line: &str) -> Self {
        if line.trim().is_empty() {
            return Self::End;
        }
        if line.starts_with('#') {
            return Self::Passed;
        }
        if line.trim_start().starts_with("ABI:") {
            return Self::Registers(registers(line));
        }
        if line.starts_with('\t') {
            return frame(line).map_or(Self::Unknown, Self::Frame);
        }
        let Some(head) = Head::parse(line) else { return Self::Unknown };
        match head.rest.trim_start().strip_prefix("PERF_RECORD_") {
            Some(record) => head.record(record),
            None => head.sample().map_or(Self::Unknown, Self::Sample),
        }
    }
}

/// `comm PID/TID [CPU] TIME: `, with or without PID or TID and CPU.
struct Head<'a> {
    comm: &'a str,
    pid: u32,
    tid: u32,
    time_ns: u64,
    rest: &'a str,
}

impl<'a> Head<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let words: Vec<(usize, &str)> = words(line).collect();
        // Names of threads may have spaces, and may look like anything: the first time that stands
        // behind a process counts.
        words.iter().enumerate().find_map(|(at, &(start, word))| {
            let time_ns = time_of(word.strip_suffix(':')?)?;
            let is_cpu = |word: &str| word.starts_with('[') && word.ends_with(']');
            let mut before = at.checked_sub(1)?;
            if is_cpu(words.get(before)?.1) {
                before = before.checked_sub(1)?;
            }
            let &(comm_end, process) = words.get(before)?;
            let (pid, tid) = match process.split_once('/') {
                Some((pid, tid)) => (pid.parse().ok()?, tid.parse().ok()?),
                // Only one was asked for, and perf's default is the thread's.
                None => (process.parse().ok()?, process.parse().ok()?),
            };
            let rest = line.get(start + word.len()..)?;
            Some(Self { comm: line.get(..comm_end)?.trim(), pid, tid, time_ns, rest })
        })
    }

    fn sample(&self) -> Option<ScriptSample> {
        let (text, registers) = match self.rest.find(" ABI:") {
            Some(at) => (self.rest.get(..at)?, registers(self.rest.get(at..)?)),
            None => (self.rest, None),
        };
        let mut list = words(text);
        let (mut start, mut word) = list.next()?;
        let period = word.parse().ok();
        if period.is_some() {
            (start, word) = list.next()?;
        }
        let event = word.strip_suffix(':').filter(|event| !event.is_empty())?.to_owned();
        let (place, file) = split_file(text.get(start + word.len()..)?);
        Some(ScriptSample {
            comm: self.comm.to_owned(),
            pid: self.pid,
            tid: self.tid,
            time_ns: self.time_ns,
            period,
            event,
            numbers: numbers(place),
            file: file.map(str::to_owned),
            registers,
        })
    }

    fn record(&self, text: &str) -> ScriptLine {
        let (kind, rest) = text.split_at(text.find([' ', ':', '(']).unwrap_or(text.len()));
        let record = match kind {
            // The kernel's own code.
            "MMAP" | "MMAP2" if rest.trim_start().starts_with("-1/") => return ScriptLine::Passed,
            "MMAP" | "MMAP2" => mapping(rest).map(Record::Mapping),
            "COMM" => {
                let (is_exec, rest) = match rest.strip_prefix(" exec") {
                    Some(rest) => (true, rest),
                    None => (false, rest),
                };
                let named = || {
                    let (name, numbers) = rest.strip_prefix(": ")?.rsplit_once(':')?;
                    let (pid, tid) = pair(numbers, '/')?;
                    Some(Record::Name { pid, tid, name: name.to_owned(), is_exec })
                };
                named()
            }
            "FORK" | "EXIT" => {
                let of = || {
                    let (child, parent) = rest.strip_prefix('(')?.split_once("):(")?;
                    let ((pid, tid), (parent_pid, _)) =
                        (pair(child, ':')?, pair(parent.split_once(')')?.0, ':')?);
                    Some(match kind {
                        "FORK" => Record::Fork { pid, parent_pid, tid },
                        _ => Record::Exit { pid, tid },
                    })
                };
                of()
            }
            "LOST" | "LOST_SAMPLES" => {
                words(rest).last().and_then(|(_, count)| count.parse().ok()).map(Record::Lost)
            }
            "THROTTLE" => Some(Record::Throttled),
            _ => return ScriptLine::Passed,
        };
        match record {
            Some(record) => ScriptLine::Record(TimedRecord { time_ns: self.time_ns, record }),
            None => ScriptLine::Unknown,
        }
    }
}

/// The words of a line with the positions they begin at.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    line.split(' ').filter_map(move |word| {
        let start = at;
        at += word.len() + 1;
        (!word.is_empty()).then_some((start, word))
    })
}

/// `1752.561451` in nanoseconds. perf prints six digits or (`--ns`) nine.
fn time_of(word: &str) -> Option<u64> {
    let (seconds, fraction) = word.split_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(seconds) || !is_number(fraction) || !matches!(fraction.len(), 6 | 9) {
        return None;
    }
    let scale = 10u64.pow(9 - fraction.len() as u32);
    let nanoseconds = fraction.parse::<u64>().ok()? * scale;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

fn hex(word: &str) -> Option<u64> {
    let is_hex = !word.is_empty() && word.len() <= 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u64::from_str_radix(word, 16).ok()).flatten()
}

fn pair(text: &str, between: char) -> Option<(u32, u32)> {
    let (first, second) = text.trim().split_once(between)?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

/// Data address and instruction are right-aligned in 16 columns, so more than one space stands before
/// them or they fill their columns; a symbol that looks like a number has one before it.
fn numbers(text: &str) -> Vec<u64> {
    let is_aligned = |start: usize, word: &str| {
        word.len() == 16 || start.checked_sub(2).is_some_and(|at| text.as_bytes().get(at) == Some(&b' '))
    };
    let found: Vec<u64> = words(text)
        .filter(|(start, word)| is_aligned(*start, word))
        .filter_map(|(_, word)| hex(word))
        .collect();
    match found.as_slice() {
        // Weights may stand between.
        [first, .., last] => vec![*first, *last],
        other => other.to_vec(),
    }
}

/// Cuts off the file in parentheses at the end.
fn split_file(text: &str) -> (&str, Option<&str>) {
    let parts = text.trim_end().strip_suffix(')').and_then(|text| text.rsplit_once(" ("));
    match parts {
        Some((place, file)) if file.starts_with('/') => (place, Some(file)),
        _ => (text, None),
    }
}

fn frame(line: &str) -> Option<ScriptFrame> {
    let (place, file) = split_file(line.trim());
    let number = hex(place.split(' ').next()?)?;
    Some(ScriptFrame { number, file: file.map(str::to_owned) })
}

/// ` ABI:2    AX:0x1312d00 …`; None if one that is needed is missing, or the process is no 64-bit one.
fn registers(text: &str) -> Option<Registers> {
    let (mut by_perf, mut owner) = ([None; 64], None);
    let mut list = words(text).filter_map(|(_, word)| word.split_once(':'));
    if list.next()? != ("ABI", "2") {
        return None;
    }
    for (name, value) in list {
        // Registers at the interrupt may stand before those in user mode.
        if name == "ABI" {
            by_perf = [None; 64];
        }
        if let Some((architecture, number)) = PerfRegisters::named(name) {
            by_perf[number] = value.strip_prefix("0x").and_then(hex);
            owner = Some(architecture);
        }
    }
    owner?.gathered(|number| by_perf[number])
}

/// ` 25536/25536: [0x55a3(0x1000) @ 0x1000 fe:00 1028 227]: r-xp /opt/t`
fn mapping(text: &str) -> Option<NewMapping> {
    let (process, rest) = text.split_once(": [")?;
    let (pid, _) = pair(process, '/')?;
    let (place, rest) = rest.split_once("]: ")?;
    let (range, place) = place.split_once(" @ ")?;
    let (start, length) = range.strip_suffix(')')?.split_once('(')?;
    let number = |word: &str| hex(word.strip_prefix("0x").unwrap_or(word));
    let mut place = place.split(' ');
    let file_offset = number(place.next()?)?;
    // Device, inode, generation; or a build-id; or nothing.
    let inode = place.nth(1).and_then(|inode| inode.parse().ok()).unwrap_or(0);
    let (protection, name) = rest.split_once(' ')?;
    Some(NewMapping {
        pid,
        start: number(start)?,
        length: number(length)?,
        file_offset,
        inode,
        is_executable: protection.contains('x'),
        is_reserved: !protection.contains(['r', 'w', 'x']),
        name: name.to_owned(),
    })
}

/// A sample whose lines are being read.
#[derive(Debug, Default)]
struct Pending {
    first: ScriptSample,
    frame: Option<ScriptFrame>,
}

/// Mappings of code, to find the addresses of offsets, and what is made up where there are none.
#[derive(Debug, Default)]
struct CodeMappings {
    known: Vec<NewMapping>,
    made_up: Vec<(u32, String)>,
}

impl CodeMappings {
    /// The address of a code position, and the mapping that must be made up for it.
    fn address(&mut self, pid: u32, frame: &ScriptFrame) -> (u64, Option<NewMapping>) {
        let Some(file) = frame.file.as_deref().filter(|_| frame.number < KERNEL) else {
            return (frame.number, None);
        };
        // Later mappings replace former ones.
        let of_file = || self.known.iter().rev().filter(|known| known.pid == pid && known.name == file);
        let holds = |known: &NewMapping, number: u64, from: u64| {
            number.checked_sub(from).is_some_and(|within| within < known.length)
        };
        if of_file().any(|known| holds(known, frame.number, known.start)) {
            return (frame.number, None);
        }
        if let Some(known) = of_file().find(|known| holds(known, frame.number, known.file_offset)) {
            return (known.start.wrapping_add(frame.number - known.file_offset), None);
        }
        if of_file().next().is_some() || frame.number >= MADE_UP_BYTES {
            return (frame.number, None);
        }
        let place = (pid, file.to_owned());
        let index = self.made_up.iter().position(|known| *known == place).unwrap_or_else(|| {
            self.made_up.push(place);
            self.made_up.len() - 1
        });
        let base = MADE_UP.saturating_add((index as u64).saturating_mul(MADE_UP_BYTES));
        let page = frame.number & !(PAGE - 1);
        let made_up = NewMapping {
            pid,
            start: base + page,
            length: PAGE,
            file_offset: page,
            inode: 0,
            is_executable: true,
            is_reserved: false,
            name: file.to_owned(),
        };
        (base + frame.number, Some(made_up))
    }
}

/// What a text lacks that would tell more. Units: samples.
#[derive(Debug, Default)]
struct Missing {
    samples: u64,
    registers_and_address: u64,
    period: u64,
    instruction: u64,
}

/// Makes a profile of a text of `perf script`. Names come from the files below `sysroot`, a folder with another machine's files, and else
/// from those on this machine.
///
/// # Errors
/// If the text cannot be read, or has no samples, or samples that cannot be added up.
pub fn import_perf_script(text: impl BufRead, sysroot: Option<PathBuf>) -> Result<Profile, PerfScriptError> {
    let mut reader = Reader {
        imported: Imported::new(Whereabouts { sysroot, ..Whereabouts::default() }),
        code: CodeMappings::default(),
        pending: None,
        missing: Missing::default(),
    };
    let (mut lines, mut has_mappings) = (0u64, false);
    let mut text = text;
    let mut line = Vec::new();
    loop {
        line.clear();
        if io::Read::take(&mut text, MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        lines += 1;
        let line = String::from_utf8_lossy(&line);
        match ScriptLine::parse(line.trim_end_matches(['\n', '\r'])) {
            ScriptLine::Sample(first) => {
                reader.finish();
                reader.pending = Some(Pending { first, frame: None });
            }
            ScriptLine::Record(record) => {
                reader.finish();
                if let Record::Mapping(mapping) = &record.record {
                    has_mappings = true;
                    if mapping.is_executable {
                        reader.code.known.push(mapping.clone());
                    }
                }
                reader.imported.take(record, "");
            }
            ScriptLine::Frame(frame) => match &mut reader.pending {
                Some(pending) => {
                    pending.frame.get_or_insert(frame);
                }
                None => reader.imported.note_unread(),
            },
            ScriptLine::Registers(registers) => match &mut reader.pending {
                Some(pending) => pending.first.registers = registers.or(pending.first.registers),
                None => reader.imported.note_unread(),
            },
            ScriptLine::End => reader.finish(),
            ScriptLine::Passed => {}
            ScriptLine::Unknown => reader.imported.note_unread(),
        }
    }
    reader.finish();
    let Reader { imported, missing, .. } = reader;
    let mut profile = imported.profile().map_err(|events| match events.as_slice() {
        [] => PerfScriptError::NoSamples(lines),
        several => PerfScriptError::SeveralEvents(several.join(", ")),
    })?;
    let notes = &mut profile.run.notes;
    if !has_mappings {
        notes
            .push("The text has no mappings, so memory has no names: perf script --show-mmap-events.".into());
    }
    let lacking = [
        (missing.registers_and_address, "registers nor data address: -F +uregs (recorded with --user-regs)"),
        (missing.period, "period and count 1: -F +period"),
        (missing.instruction, "instruction: -F +ip"),
    ];
    for (count, what) in lacking.into_iter().filter(|(count, _)| *count > 0) {
        notes.push(format!("{count} of {} samples have no {what}.", missing.samples));
    }
    Ok(profile)
}

struct Reader {
    imported: Imported,
    code: CodeMappings,
    pending: Option<Pending>,
    missing: Missing,
}

impl Reader {
    /// The sample whose lines have been read is complete.
    fn finish(&mut self) {
        let Some(Pending { first, frame }) = self.pending.take() else { return };
        // With a call stack the one number in the first line is the data address.
        let (data_address, inline) = match (first.numbers.as_slice(), &frame) {
            ([address], Some(_)) => (*address, None),
            ([address, ip], _) => (*address, Some(*ip)),
            ([ip], None) => (0, Some(*ip)),
            _ => (0, None),
        };
        let frame = frame.or(inline.map(|number| ScriptFrame { number, file: first.file.clone() }));
        let (ip, made_up) = match (&first.registers, &frame) {
            // The registers' own is an address for sure.
            (Some(registers), _) => (registers.ip, None),
            (None, Some(frame)) => self.code.address(first.pid, frame),
            (None, None) => (0, None),
        };
        let missing = &mut self.missing;
        missing.samples += 1;
        missing.registers_and_address += u64::from(first.registers.is_none() && data_address == 0);
        missing.period += u64::from(first.period.is_none());
        missing.instruction += u64::from(ip == 0);
        let time_ns = first.time_ns;
        if let Some(mapping) = made_up {
            self.imported.take(TimedRecord { time_ns, record: Record::Mapping(mapping) }, "");
        }
        let name = Record::Name { pid: first.pid, tid: first.tid, name: first.comm, is_exec: false };
        self.imported.take(TimedRecord { time_ns, record: name }, "");
        // Registers are the program's, whatever was interrupted.
        let is_kernels = ip >= KERNEL || frame.is_some_and(|frame| frame.number >= KERNEL);
        let sample = Sample {
            pid: first.pid,
            tid: first.tid,
            ip,
            period: first.period.unwrap_or(1),
            data_address,
            is_user: !is_kernels,
            registers: first.registers,
            ..Sample::default()
        };
        self.imported.take(TimedRecord { time_ns, record: Record::Sample(Box::new(sample)) }, &first.event);
    }
}

#[cfg(test)]
mod tests {
    use memlens_profile::IN_KERNEL;

    use super::*;
    use memlens_code::Architecture;

    fn sample(line: &str) -> ScriptSample {
        match ScriptLine::parse(line) {
            ScriptLine::Sample(sample) => sample,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn first_lines_of_samples() {
        let found = sample(
            "t 25737/25738 [001]  1762.561961:    1000000 cpu-clock:u:                0     55a34bb270af main+0x4f (/opt/t)",
        );
        let expected = ScriptSample {
            comm: "t".into(),
            pid: 25737,
            tid: 25738,
            time_ns: 1_762_561_961_000,
            period: Some(1_000_000),
            event: "cpu-clock:u".into(),
            numbers: vec![0, 0x55a3_4bb2_70af],
            file: Some("/opt/t".into()),
            registers: None,
        };
        assert_eq!(found, expected);
        // A name with spaces and numbers, no process, nanoseconds, no period, a symbol like a number.
        let found =
            sample("Web 3 1.5: x  77   9.000000001: cycles:      7f0000001000 add (/usr/lib/libc.so.6)");
        assert_eq!((found.comm.as_str(), found.pid, found.tid), ("Web 3 1.5: x", 77, 77));
        assert_eq!((found.time_ns, found.period, found.event.as_str()), (9_000_000_001, None, "cycles"));
        assert_eq!(found.numbers, [0x7f00_0000_1000]);
        // An address that fills its columns; the data source and a weight between.
        let found = sample(
            "t 7 1.000001: 5 mem-loads: ffff888000001000     |OP LOAD|LVL L1 hit|   30     401000 f (/opt/t)",
        );
        assert_eq!(found.numbers, [0xffff_8880_0000_1000, 0x401000]);
    }

    #[test]
    fn records_and_the_lines_behind_a_sample() {
        let line = "t 7/7  1.000001: PERF_RECORD_MMAP2 7/7: [0x55a3000(0x1000) @ 0x1000 fe:00 1028 227]: r-xp /opt/a b";
        let ScriptLine::Record(TimedRecord { record: Record::Mapping(mapping), .. }) =
            ScriptLine::parse(line)
        else {
            panic!("a mapping")
        };
        assert_eq!(
            (mapping.pid, mapping.start, mapping.length, mapping.file_offset),
            (7, 0x55a_3000, 0x1000, 0x1000)
        );
        assert_eq!((mapping.inode, mapping.is_executable, mapping.name.as_str()), (1028, true, "/opt/a b"));
        let record = |line: &str| match ScriptLine::parse(line) {
            ScriptLine::Record(record) => record.record,
            other => panic!("{other:?}"),
        };
        let name = |name: &str, is_exec| Record::Name { pid: 7, tid: 8, name: name.into(), is_exec };
        assert_eq!(record("t 7/7 1.000001: PERF_RECORD_COMM exec: t:x:7/8"), name("t:x", true));
        assert_eq!(record("t 7/7 1.000001: PERF_RECORD_COMM: t:7/8"), name("t", false));
        let fork = Record::Fork { pid: 9, parent_pid: 7, tid: 9 };
        assert_eq!(record("t 7/7 1.000001: PERF_RECORD_FORK(9:9):(7:7)"), fork);
        assert_eq!(record("t 7/7 1.000001: PERF_RECORD_EXIT(9:9):(7:7)"), Record::Exit { pid: 9, tid: 9 });
        assert_eq!(record("t 7/7 1.000001: PERF_RECORD_LOST lost 12"), Record::Lost(12));
        let frame = ScriptFrame { number: 0x10b6, file: Some("/opt/t".into()) };
        assert_eq!(ScriptLine::parse("\t            10b6 main+0x56 (/opt/t)"), ScriptLine::Frame(frame));
        let text = " ABI:2    AX:0x1    BX:0x2    CX:0x3    DX:0x4    SI:0x5    DI:0x6    BP:0x7    SP:0x8    \
                    IP:0x9    R8:0xa   R9:0xb   R10:0xc   R11:0xd   R12:0xe   R13:0xf   R14:0x10   R15:0x11 ";
        // rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp.
        let values = [1, 4, 3, 2, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17];
        let registers = Registers::new(Architecture::X86_64, &values, 9);
        assert_eq!(ScriptLine::parse(text), ScriptLine::Registers(Some(registers)));
        let list =
            |names: std::ops::Range<u64>| names.map(|n| format!(" x{n}:{:#x} ", n + 1)).collect::<String>();
        let text = format!(" ABI:2 {} lr:0x1f sp:0x20 pc:0x21 ", list(0..30));
        let values: Vec<u64> = (1..=32).collect();
        let registers = Registers::new(Architecture::AArch64, &values, 0x21);
        assert_eq!(ScriptLine::parse(&text), ScriptLine::Registers(Some(registers)));
        let text = format!(" ABI:2 {} lr:0x1f sp:0x20 pc:0x21 ", list(0..29));
        assert_eq!(ScriptLine::parse(&text), ScriptLine::Registers(None));
        assert_eq!(ScriptLine::parse(" ABI:2    AX:0x1"), ScriptLine::Registers(None));
        for (line, expected) in [
            ("", ScriptLine::End),
            ("# captured on", ScriptLine::Passed),
            ("t 7/7 1.000001: PERF_RECORD_KSYMBOL addr", ScriptLine::Passed),
            ("t 7/7 1.000001: PERF_RECORD_MMAP2 7/7: [0x5", ScriptLine::Unknown),
            (
                "swapper 0/0 0.000000: PERF_RECORD_MMAP -1/0: [0xffffffff81000000(0x120bb08) @ 0xffffffff81000000]: x \
                 [kernel.kallsyms]_text",
                ScriptLine::Passed,
            ),
            ("what?", ScriptLine::Unknown),
        ] {
            assert_eq!(ScriptLine::parse(line), expected, "{line}");
        }
    }

    /// The registers are those of the program's system call or page fault.
    #[test]
    fn samples_in_the_kernel_are_its() {
        let registers = " ABI:2    AX:0x1    BX:0x2    CX:0x3    DX:0x4    SI:0x5    DI:0x6    BP:0x7    SP:0x8    IP:0x9    R8:0xa   \
                         R9:0xb   R10:0xc   R11:0xd   R12:0xe   R13:0xf   R14:0x10   R15:0x11";
        let text = format!(
            "t 7/7 1.000001:  5000 cpu-clock:  ffffffff821f5127 exc_page_fault+0xd7 ([kernel.kallsyms]){registers}\n\
             t 7/7 1.000002:  3000 cpu-clock:            401000 f (/nowhere/t){registers}\n"
        );
        let profile = import_perf_script(text.as_bytes(), None).expect("two samples");
        let kernels =
            profile.objects.iter().find(|object| object.unknown_reason.as_deref() == Some(IN_KERNEL));
        assert_eq!(kernels.expect("one is the kernel's").counts.sampled.cost, 5000);
    }

    #[test]
    fn a_text_becomes_a_profile_that_says_what_is_missing() {
        let text = "t 7/7 1.000001:   5000 cpu-clock:u: \n\t    10b6 main+0x56 (/nowhere/t)\n\nt 7/7 1.000002: \
                    cpu-clock:u:      401000 f (/nowhere/t)\n";
        let profile = import_perf_script(text.as_bytes(), None).expect("two samples");
        let sampling = profile.run.sampling.as_ref().expect("sampled");
        assert_eq!((sampling.samples, sampling.cost, sampling.event.as_str()), (2, 5001, "cpu-clock:u"));
        let notes = profile.run.notes.join(" ");
        for word in
            ["--show-mmap-events", "2 of 2 samples have no registers", "1 of 2 samples have no period"]
        {
            assert!(notes.contains(word), "{notes}");
        }
        let error = import_perf_script("what?\n\n".as_bytes(), None).expect_err("no samples");
        assert!(matches!(error, PerfScriptError::NoSamples(2)), "{error}");
        let two = "t 7 1.000001: a:  1 f\n\nt 7 1.000001: b:  1 f\n";
        let error = import_perf_script(two.as_bytes(), None).expect_err("two events");
        assert!(matches!(&error, PerfScriptError::SeveralEvents(names) if names == "a, b"), "{error}");
    }
}
