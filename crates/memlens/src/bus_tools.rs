//! `memlens bus verify`, `check`, `dump` and `damage`.

use std::io::Write;
use std::path::Path;

use memlens_bus::analysis::{Analyzer, Attribution, Observer, RecordKind, Verifier};
use memlens_bus::format::FormatError;
use memlens_bus::system::{FaultPlan, inject_faults};

use crate::bus::{self, DamageArgs, DumpArgs};
use crate::bus_analyze::{all_processors, field, lacks, observe, run};
use crate::bus_table;
use crate::failure::{Failure, FailureKind};
use crate::streams::{self, say};

/// Holds the analysis against the truth. Wrong records are a failure, unless the trace has lost some.
pub fn verify(place: &Path) -> Result<u8, Failure> {
    let folder = bus::open(place)?;
    let failed = |error: FormatError| bus::failure(place, &error);
    let truth = folder.truth().map_err(failed)?;
    let truth = truth.ok_or_else(|| lacks(place, "truth: only a virtual card's trace can be verified"))?;
    let mut verifier = Verifier::new(truth);
    let found = observe(&folder, &mut verifier).map_err(failed)?;
    let verification = verifier.into_verification();
    let lost = bus_table::losses(&found.losses);
    streams::write_result(|out| {
        write!(out, "{}", bus_table::verification(&verification))?;
        lost.iter().try_for_each(|line| writeln!(out, "  {line}"))
    })?;
    if verification.wrong() > 0 && lost.is_empty() {
        let message = format!("{} records of a sound trace are attributed wrongly", verification.wrong());
        return Err(Failure::new(FailureKind::Internal, message));
    }
    Ok(0)
}

/// Says what is wrong with a trace.
pub fn check(place: &Path) -> Result<u8, Failure> {
    let folder = bus::open(place)?;
    let found = run(&folder, all_processors()).map_err(|error| bus::failure(place, &error))?;
    let lost = bus_table::losses(&found.losses);
    streams::write_result(|out| {
        let (records, tags) = (found.totals.records, found.totals.tags);
        writeln!(out, "{records} records, {tags} tags, {:.6} s", found.seconds)?;
        lost.iter().try_for_each(|line| writeln!(out, "  {line}"))
    })?;
    match lost.is_empty() {
        true => Ok(0),
        false => Err(Failure::new(FailureKind::BadData, format!("{} is not sound", place.display()))),
    }
}

/// Prints records as they are attributed.
struct Printer<'a> {
    out: &'a mut dyn Write,
    only_tlb_misses: bool,
    left: u64,
    error: Option<std::io::Error>,
}

/// Ends an analysis early; the printer knows why.
fn stop() -> FormatError {
    FormatError::Unsupported("printing more".into())
}

impl Observer for Printer<'_> {
    fn record(&mut self, analyzer: &Analyzer, record: &Attribution) -> Result<(), FormatError> {
        let mut size = 0;
        if self.only_tlb_misses {
            let RecordKind::Walk(level) = record.kind else { return Ok(()) };
            let Some((pid, pages)) = analyzer.pages_of_line(record.paddr) else { return Ok(()) };
            let mut mapped = analyzer.reverse_table().mapped(pid, pages);
            let leaf = mapped.next().and_then(|(page, _, _)| analyzer.reverse_table().leaf_level(pid, page));
            if leaf != Some(level) {
                return Ok(());
            }
            size = 1_u64 << (12 + 9 * u32::from(level - 1));
        }
        if self.left == 0 {
            return Err(stop());
        }
        self.left -= 1;
        let name = analyzer.objects().objects().get(record.object as usize).map_or("", |info| &info.name);
        let seconds = record.cycles as f64 / analyzer.header.clock_hz as f64;
        let (kind, level) = (record.kind.as_str(), record.kind.level());
        let direction = if record.write { 'w' } else { 'r' };
        let (number, paddr, pid, vaddr) = (record.number, record.paddr, record.pid, record.vaddr);
        let shared = u8::from(record.is_shared);
        let written = match self.only_tlb_misses {
            true => writeln!(self.out, "{number},{seconds:.9},{pid},{vaddr:#x},{size}"),
            false => writeln!(
                self.out,
                "{number},{seconds:.9},{direction},{paddr:#x},{kind},{level},{pid},{vaddr:#x},{shared},{}",
                field(name)
            ),
        };
        written.map_err(|error| {
            self.error = Some(error);
            stop()
        })
    }
}

/// Prints a trace.
pub fn dump(args: &DumpArgs) -> Result<u8, Failure> {
    let folder = bus::open(&args.trace)?;
    let mut failure = None;
    streams::write_result(|out| {
        match args.tlb_misses {
            true => writeln!(out, "number,seconds,pid,vaddr,page_bytes")?,
            false => writeln!(out, "number,seconds,rw,paddr,kind,level,pid,vaddr,shared,object")?,
        }
        let left = args.limit.unwrap_or(u64::MAX);
        let mut printer = Printer { out, only_tlb_misses: args.tlb_misses, left, error: None };
        let result = observe(&folder, &mut printer);
        if let Some(error) = printer.error {
            return Err(error);
        }
        if let Err(error) = result
            && printer.left > 0
        {
            failure = Some(error);
        }
        Ok(())
    })?;
    failure.map_or(Ok(0), |error| Err(bus::failure(&args.trace, &error)))
}

/// Writes a damaged copy of a trace.
pub fn damage(args: &DamageArgs) -> Result<u8, Failure> {
    let folder = bus::open(&args.trace)?;
    let failed = |error: FormatError| bus::failure(&args.trace, &error);
    let mut source = folder.bus().map_err(failed)?;
    let Some(mut header) = source.header().cloned() else { return Err(lacks(&args.trace, "bus records")) };
    header.records_per_packet = args.packet;
    let copy = bus::create(&args.out, args.force)?;
    let broken = |error: FormatError| bus::failure(&args.out, &error);
    for name in ["pages.mlpages", "objects.txt"] {
        let (from, to) = (folder.path().join(name), copy.path().join(name));
        if from.exists() {
            std::fs::copy(&from, &to)
                .map_err(|error| Failure::of_io("copy", &from.display().to_string(), &error))?;
        }
    }
    let plan = FaultPlan {
        lost_packets: args.lose,
        records_per_packet: args.packet,
        dropped_tags: args.drop_tags,
        late_tags: args.delay_tags,
        late_by: args.delay_by,
        seed: args.seed,
    };
    let truth = folder.truth().map_err(failed)?;
    let mut bus_out = copy.write_bus(header.clone()).map_err(broken)?;
    let mut truth_out = truth.is_some().then(|| copy.write_truth(&header)).transpose().map_err(broken)?;
    let outputs = (&mut bus_out, truth_out.as_mut());
    let counts = inject_faults(&mut source, truth, &header, &plan, outputs).map_err(broken)?;
    bus_out.finish().map_err(broken)?;
    truth_out.map(|truth| truth.finish()).transpose().map_err(broken)?;
    say(&format!(
        "{} records lost, {} tags dropped, {} tags late: {}",
        counts.lost,
        counts.dropped_tags,
        counts.late_tags,
        args.out.display()
    ));
    Ok(0)
}
