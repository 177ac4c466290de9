//! Writes what the modelled bus carries, and the events that belong to it.

use crate::format::{
    BusWriter, FormatError, Header, ObjectEvent, ObjectWriter, PageRecord, PageWriter, Stream, TraceFolder,
    TruthKind, TruthRecord, TruthWriter,
};
use std::io::Write;

/// The files of a capture.
pub struct Card<W: Write> {
    header: Header,
    bus: BusWriter<W>,
    pages: PageWriter<W>,
    objects: ObjectWriter<W>,
    truth: TruthWriter<W>,
    /// Cycles of the last record.
    cycles: u64,
    page_tags: u64,
    object_tags: u64,
    /// Records so far.
    pub records: u64,
}

impl Card<std::io::BufWriter<std::fs::File>> {
    /// A capture in a folder.
    ///
    /// # Errors
    /// When a file cannot be made.
    pub fn create(folder: &TraceFolder, header: &Header) -> Result<Self, FormatError> {
        Ok(Self::new(
            header,
            folder.write_bus(header.clone())?,
            folder.write_pages(header.of(Stream::Pages, header.packing))?,
            folder.write_objects(header)?,
            folder.write_truth(header)?,
        ))
    }
}

impl<W: Write> Card<W> {
    /// A capture in these files.
    pub fn new(
        header: &Header,
        bus: BusWriter<W>,
        pages: PageWriter<W>,
        objects: ObjectWriter<W>,
        truth: TruthWriter<W>,
    ) -> Self {
        let header = header.clone();
        Self { header, bus, pages, objects, truth, cycles: 0, page_tags: 0, object_tags: 0, records: 0 }
    }

    /// A line on the bus at a time of the card's clock.
    pub(crate) fn line(
        &mut self,
        paddr: u64,
        write: bool,
        cycles: u64,
        truth: TruthRecord,
    ) -> Result<(), FormatError> {
        let duration = cycles.saturating_sub(self.cycles);
        self.cycles += duration;
        self.records += 1;
        self.bus.record(paddr >> self.header.line_shift(), duration, write, 0)?;
        self.truth.record(truth)
    }

    /// Page-table events that happen together, and their tag.
    pub(crate) fn pages(&mut self, group: &mut [PageRecord], cycles: u64) -> Result<(), FormatError> {
        if group.is_empty() {
            return Ok(());
        }
        self.untagged_pages(group)?;
        let number = self.page_tags;
        self.page_tags += 1;
        self.tag(0, number, cycles)
    }

    /// Page-table records that need no tag: what was there at the start.
    pub(crate) fn untagged_pages(&mut self, group: &mut [PageRecord]) -> Result<(), FormatError> {
        let last = group.len().saturating_sub(1);
        for (at, record) in group.iter_mut().enumerate() {
            record.more = at < last;
            self.pages.record(record)?;
        }
        Ok(())
    }

    /// Object events that happen together, and their tag.
    pub(crate) fn objects(&mut self, events: &[ObjectEvent], cycles: u64) -> Result<(), FormatError> {
        events.iter().try_for_each(|event| self.objects.event(event))?;
        self.objects.event(&ObjectEvent::Tag)?;
        let number = self.object_tags;
        self.object_tags += 1;
        self.tag(1, number, cycles)
    }

    /// An object event that needs no tag: a name, or the end of what was there at the start.
    pub(crate) fn untagged_object(&mut self, event: &ObjectEvent) -> Result<(), FormatError> {
        self.objects.event(event)
    }

    fn tag(&mut self, kind: u64, number: u64, cycles: u64) -> Result<(), FormatError> {
        let Some(region) = self.header.tags else { return Ok(()) };
        let bits = region.sequence_bits;
        let line = kind << bits | number & ((1 << bits) - 1);
        let paddr = region.start + (line << self.header.line_shift());
        let truth = TruthRecord { kind: TruthKind::Tag, level: 0, pid: 0, object: 0, vaddr: 0 };
        self.line(paddr, false, cycles, truth)
    }

    /// Ends all files.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(self) -> Result<(), FormatError> {
        self.bus.finish()?;
        self.pages.finish()?;
        self.objects.finish()?;
        self.truth.finish()?;
        Ok(())
    }
}
