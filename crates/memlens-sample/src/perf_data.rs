//! `perf.data`: what `perf record` and `perf mem record` write.
//!
//! The container is read by `linux-perf-data`; the records are the kernel's, as in a live recording.
//! Samples need user registers (`perf record --user-regs=…`, `--call-graph dwarf`) or data addresses
//! (`perf mem record`, `-d`) to have objects; others count as time at their instruction.
//!
//! What `perf record -o -` writes is read, too, as far as it is a file.
//!
//! Samples of Arm's Statistical Profiling Extension (`perf record -e arm_spe//`, `perf mem record` on such machines) are no
//! records of their own but bytes that the processor wrote: [`SpeTraces`].

use std::io::{self, BufReader, Read, Seek};
use std::path::PathBuf;

use linux_perf_data::linux_perf_event_reader::{
    AttrFlags, PerfEventType, SamplingPolicy, SoftwareCounterType,
};
use linux_perf_data::{AttributeDescription, PerfFileReader, PerfFileRecord, UserRecordType};
use memlens_code::Architecture;
use memlens_profile::Profile;
use perf_event_open_sys::bindings as abi;
use thiserror::Error;

use crate::imported::Imported;
use crate::modules::Whereabouts;
use crate::perf_data_sizes::{Container, check_sizes};
use crate::record::{Layout, Record};
use crate::spe::SpeTraces;

/// Why a file cannot be imported. Reads after "failed to".
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PerfDataError {
    /// It cannot be read at all.
    #[error("read the file: {0}; perf.data must be a file, no pipe and no folder")]
    Io(io::Error),
    /// It is something else.
    #[error(
        "read it as perf.data: it does not begin with PERFILE2, as all that `perf record` and `perf mem record` \
         write does; for the text of `perf script`, use `memlens import perf-script`"
    )]
    Foreign,
    /// It is damaged, or of a sort that is not read.
    #[error("read perf.data: {0}")]
    Damaged(String),
    /// Samples of several events cannot be added up.
    #[error("add up samples of several events ({0}); record one event a file: perf record -e EVENT")]
    SeveralEvents(String),
    /// It has no samples.
    #[error("find samples: the file has {0} records and none of them is a sample")]
    NoSamples(u64),
}

impl PerfDataError {
    fn of_events(events: &[String], records: u64) -> Self {
        match events {
            [] => Self::NoSamples(records),
            several => Self::SeveralEvents(several.join(", ")),
        }
    }
}

/// Makes a profile of a perf.data file. Names come from the files below `sysroot`, a folder with another machine's files, and else from
/// those on this machine, as far as their build-ids are those of the recording, or, where it has none, their inodes.
///
/// # Errors
/// If the file cannot be read, or has no samples, or samples that cannot be added up.
pub fn import_perf_data(
    mut file: impl Read + Seek,
    sysroot: Option<PathBuf>,
) -> Result<Profile, PerfDataError> {
    let container = check_sizes(&mut file)?;
    let damaged = |error: linux_perf_data::Error| PerfDataError::Damaged(error.to_string());
    let file = BufReader::new(file);
    let PerfFileReader { mut perf_file, mut record_iter } = match container {
        Container::Sections => PerfFileReader::parse_file(file),
        Container::Pipe => PerfFileReader::parse_pipe(file),
    }
    .map_err(damaged)?;
    let attributes: Vec<AttributeDescription> = perf_file.event_attributes().to_vec();
    let machine = perf_file.arch().ok().flatten().map(str::to_owned);
    let layouts: Vec<Layout> =
        attributes.iter().map(|attribute| layout_of(attribute, machine.as_deref())).collect();
    let names: Vec<&str> = attributes.iter().map(name_of).collect();
    let build_ids = perf_file.build_ids().unwrap_or_default().into_values().filter_map(|file| {
        let path = String::from_utf8(file.path).ok()?;
        (!file.build_id.is_empty()).then_some((path, file.build_id))
    });
    let mut imported = Imported::new(Whereabouts { sysroot, build_ids: build_ids.collect() });
    let mut records = 0u64;
    let mut traces: Option<SpeTraces> = None;
    // A file whose writer was stopped ends anywhere: what stands before the end is good.
    let mut end = None;
    loop {
        let record = match record_iter.next_record(&mut perf_file) {
            Ok(Some(record)) => record,
            Ok(None) => break,
            Err(error) => {
                end = Some(error);
                break;
            }
        };
        let (attr_index, record) = match record {
            PerfFileRecord::EventRecord { attr_index, record } => (attr_index, record),
            PerfFileRecord::UserRecord(record) => {
                let is_read = note_trace(&mut traces, record.record_type, &record.data.as_slice());
                if is_read.is_none() {
                    imported.note_unread();
                }
                continue;
            }
        };
        records += 1;
        let (Some(layout), Some(name)) = (layouts.get(attr_index), names.get(attr_index)) else { continue };
        match layout.parse(record.record_type.0, record.misc, &record.data.as_slice()) {
            Err(_) => imported.note_unread(),
            // Samples of other events have objects, or have none, at once.
            Ok(record) => match &mut traces {
                Some(traces) if !matches!(record.record, Record::Sample(_)) => traces.hold(record),
                _ => imported.take(record, name),
            },
        }
    }
    let without_thread = match traces {
        Some(traces) => take_traces(traces, &attributes, &mut imported),
        None => 0,
    };
    let mut profile = match (imported.profile(), end) {
        (Ok(mut profile), Some(error)) => {
            profile.attribution.truncated = true;
            profile.run.notes.push(format!("The file cannot be read beyond its record {records}: {error}."));
            profile
        }
        (Ok(profile), None) => profile,
        (Err(events), Some(error)) if events.is_empty() => return Err(damaged(error)),
        (Err(events), _) => return Err(PerfDataError::of_events(&events, records)),
    };
    if without_thread > 0 {
        profile.attribution.lost_events = profile.attribution.lost_events.saturating_add(without_thread);
        profile.run.notes.push(format!(
            "{without_thread} samples are missing: nothing in the file says of which thread they are. Recorded of a program or process \
             (perf record -e arm_spe// -- PROGRAM), they say so."
        ));
    }
    if let Ok(Some(command)) = perf_file.cmdline() {
        profile.run.notes.push(format!("recorded by: {}", command.join(" ")));
    }
    if let Ok(Some(host)) = perf_file.hostname() {
        profile.run.hostname = Some(host.to_owned());
    }
    Ok(profile)
}

/// A record of perf's own that tells of traces; None: it is cut off.
fn note_trace(traces: &mut Option<SpeTraces>, record_type: UserRecordType, body: &[u8]) -> Option<()> {
    match (record_type, traces) {
        (UserRecordType::PERF_AUXTRACE_INFO, traces @ None) => *traces = SpeTraces::announced(body),
        (UserRecordType::PERF_AUXTRACE, Some(traces)) => return traces.add_trace(body),
        (UserRecordType::PERF_TIME_CONV, Some(traces)) => traces.note_conversion(body),
        // Those of other processors' traces are not read.
        _ => {}
    }
    Some(())
}

/// Takes the samples of traces, and what was recorded with them. Returns how many are left out because nothing says whose
/// they are.
fn take_traces(mut traces: SpeTraces, attributes: &[AttributeDescription], imported: &mut Imported) -> u64 {
    let is_theirs = |description: &&AttributeDescription| match description.attr.type_ {
        PerfEventType::DynamicPmu(event_type, ..) => traces.are_of(event_type),
        _ => false,
    };
    let event = attributes.iter().find(is_theirs);
    let name = event.and_then(AttributeDescription::name).unwrap_or("arm_spe");
    let period = event.map_or(0, |event| match event.attr.sampling_policy {
        SamplingPolicy::Period(period) => period.get(),
        _ => 0,
    });
    if event.is_some_and(|event| event.attr.flags.contains(AttrFlags::USE_CLOCKID)) {
        traces.forget_conversion();
    }
    // Without a period the driver takes the smallest that there is, and does not say it.
    let losses = traces.deliver(period.max(1), |record| imported.take(record, name));
    (0..losses.damaged).for_each(|_| imported.note_unread());
    losses.without_thread
}

/// What perf calls the event. Pipe mode tells names later than it need; those of clocks are in their attributes.
fn name_of(description: &AttributeDescription) -> &str {
    match (description.name(), description.attr.type_) {
        (Some(name), _) => name,
        (None, PerfEventType::Software(SoftwareCounterType::CpuClock)) => "cpu-clock",
        (None, PerfEventType::Software(SoftwareCounterType::TaskClock)) => "task-clock",
        (None, _) => "unknown event",
    }
}

/// Where things are in an event's samples, recorded on a machine that is called so (uname(2)): in pipe mode it may be told later
/// than samples are, and the numbers of the registers tell.
fn layout_of(description: &AttributeDescription, machine: Option<&str>) -> Layout {
    let attribute = &description.attr;
    let registers = attribute.sample_regs_user | attribute.sample_regs_intr;
    let architecture = match machine {
        Some("x86_64") => Some(Architecture::X86_64),
        Some("aarch64" | "arm64") => Some(Architecture::AArch64),
        Some(_) => None,
        // x86-64's general-purpose registers end before these, its vector registers begin behind them.
        None if registers >> 24 & 0xff != 0 => Some(Architecture::AArch64),
        None => Some(Architecture::X86_64),
    };
    Layout {
        architecture,
        sample_type: attribute.sample_format.bits(),
        read_format: attribute.read_format.bits(),
        user_registers: attribute.sample_regs_user,
        interrupt_registers: attribute.sample_regs_intr,
        branch_sample_type: attribute.branch_sample_format.bits(),
        has_sample_id: attribute.flags.contains(AttrFlags::SAMPLE_ID_ALL),
        fixed_period: match attribute.sampling_policy {
            SamplingPolicy::Period(period) => period.get(),
            // Then each sample tells its own.
            _ => 0,
        },
    }
}

// The bits of `sample_type` are the kernel's in both crates.
const _: () = assert!(
    linux_perf_data::linux_perf_event_reader::SampleFormat::STACK_USER.bits()
        == abi::PERF_SAMPLE_STACK_USER as u64
);
