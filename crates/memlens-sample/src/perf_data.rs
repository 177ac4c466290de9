//! `perf.data`: what `perf record` and `perf mem record` write.
//!
//! The container is read by `linux-perf-data`; the records are the kernel's, as in a live recording.
//! Samples need user registers (`perf record --user-regs=…`, `--call-graph dwarf`) or data addresses
//! (`perf mem record`, `-d`) to have objects; others count as time at their instruction.

use std::io::{BufReader, Read, Seek};

use linux_perf_data::{AttributeDescription, PerfFileReader, PerfFileRecord};
use memlens_profile::{Profile, SampleUnit, SamplingInfo};
use perf_event_open_sys::bindings as abi;
use thiserror::Error;

use crate::builder::ProfileBuilder;
use crate::record::{Layout, Record};
use crate::recording::Recording;

/// Why a file cannot be imported. Reads after "failed to".
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PerfDataError {
    /// It is no perf.data, or damaged.
    #[error("read perf.data: {0}")]
    Damaged(String),
    /// Samples of several events cannot be added up.
    #[error("add up samples of several events ({0}); record one event a file: perf record -e EVENT")]
    SeveralEvents(String),
    /// It has no samples.
    #[error("find samples: the file has {0} records and none of them is a sample")]
    NoSamples(u64),
}

/// Makes a profile of a perf.data file. Names come from the files on this machine, as far as their
/// inodes are those that were mapped.
///
/// # Errors
/// If the file cannot be read, or has no samples, or samples that cannot be added up.
pub fn import_perf_data(file: impl Read + Seek) -> Result<Profile, PerfDataError> {
    let damaged = |error: linux_perf_data::Error| PerfDataError::Damaged(error.to_string());
    let PerfFileReader { mut perf_file, mut record_iter } =
        PerfFileReader::parse_file(BufReader::new(file)).map_err(damaged)?;
    let attributes: Vec<AttributeDescription> = perf_file.event_attributes().to_vec();
    let layouts: Vec<Layout> = attributes.iter().map(layout_of).collect();
    let mut recording = Recording::new(false);
    let mut builder = ProfileBuilder::default();
    let (mut sampled_by, mut records, mut lost, mut unread) = (Vec::new(), 0u64, 0u64, 0u64);
    while let Some(record) = record_iter.next_record(&mut perf_file).map_err(damaged)? {
        let PerfFileRecord::EventRecord { attr_index, record } = record else { continue };
        records += 1;
        let Some(layout) = layouts.get(attr_index) else { continue };
        let body = record.data.as_slice();
        match layout.parse(record.record_type.0, record.misc, &body) {
            Err(_) => unread += 1,
            Ok(record) => {
                match &record.record {
                    Record::Lost(count) => lost += count,
                    Record::Sample(_) if !sampled_by.contains(&attr_index) => sampled_by.push(attr_index),
                    _ => {}
                }
                if recording.take(record) {
                    builder.fold(&mut recording);
                }
            }
        }
    }
    let name_of = |index: usize| {
        attributes.get(index).and_then(|attribute| attribute.name()).unwrap_or("unknown event").to_owned()
    };
    let event = match sampled_by.as_slice() {
        [] => return Err(PerfDataError::NoSamples(records)),
        [one] => *one,
        several => {
            let names: Vec<String> = several.iter().map(|&index| name_of(index)).collect();
            return Err(PerfDataError::SeveralEvents(names.join(", ")));
        }
    };
    builder.fold(&mut recording);
    let name = name_of(event);
    let unit = match name.split(':').next() {
        Some("cpu-clock" | "task-clock") => SampleUnit::Nanoseconds,
        _ => SampleUnit::Events,
    };
    let info = SamplingInfo { event: name, unit, lost, ..SamplingInfo::default() };
    let mut profile = builder.profile(&recording, info);
    profile.attribution.lost_events = lost + unread;
    if unread > 0 {
        profile.attribution.notes.push(format!("{unread} records could not be read."));
    }
    if let Ok(Some(command)) = perf_file.cmdline() {
        profile.run.notes.push(format!("recorded by: {}", command.join(" ")));
    }
    if let Ok(Some(host)) = perf_file.hostname() {
        profile.run.hostname = Some(host.to_owned());
    }
    Ok(profile)
}

fn layout_of(description: &AttributeDescription) -> Layout {
    let attribute = &description.attr;
    Layout {
        sample_type: attribute.sample_format.bits(),
        read_format: attribute.read_format.bits(),
        user_registers: attribute.sample_regs_user,
        interrupt_registers: attribute.sample_regs_intr,
        branch_sample_type: attribute.branch_sample_format.bits(),
        has_sample_id: attribute
            .flags
            .contains(linux_perf_data::linux_perf_event_reader::AttrFlags::SAMPLE_ID_ALL),
    }
}

// The bits of `sample_type` are the kernel's in both crates.
const _: () = assert!(
    linux_perf_data::linux_perf_event_reader::SampleFormat::STACK_USER.bits()
        == abi::PERF_SAMPLE_STACK_USER as u64
);
