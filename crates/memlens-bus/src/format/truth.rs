//! What the virtual card knows of each bus record, to hold the analysis against it.

use super::FormatError;
use super::blocks::{BlockReader, BlockWriter, Damage};
use super::header::{Header, Packing, Stream};
use std::io::{BufRead, Write};

const RECORD_BYTES: usize = 24;
const BLOCK_RECORDS: usize = 1 << 15;

/// Why a line was on the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TruthKind {
    /// A process read data.
    Read = 0,
    /// A line of data was written back; process and address are those that the frame is mapped at.
    WriteBack = 1,
    /// A page walk read an entry; the address is that which was translated.
    Walk = 2,
    /// A tag.
    Tag = 3,
    /// A line was written back after its page was unmapped; process and address are those of that page.
    LateWriteBack = 4,
    /// A line of data was written back after its frame had become a page table: nobody's any more.
    Stale = 5,
}

impl TruthKind {
    /// The words for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "a read",
            Self::WriteBack => "a write-back",
            Self::Walk => "a walk",
            Self::Tag => "a tag",
            Self::LateWriteBack => "a late write-back",
            Self::Stale => "a write-back of what is now a page table",
        }
    }
}

/// One record; the n-th belongs to the n-th bus record, lost ones counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruthRecord {
    /// Why.
    pub kind: TruthKind,
    /// Of a walk: level of the entry, 1 to 4.
    pub level: u8,
    /// Process.
    pub pid: u32,
    /// Number of the object in the object events; 0: none.
    pub object: u32,
    /// Virtual address: of the line, or, for a walk, what was translated.
    pub vaddr: u64,
}

impl TruthRecord {
    /// 24 bytes: kind, level, u16 0, u32 pid, u32 object, u32 0, u64 vaddr.
    fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..2].copy_from_slice(&[self.kind as u8, self.level]);
        bytes[4..8].copy_from_slice(&self.pid.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.object.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.vaddr.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        use TruthKind::*;
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Some(Self {
            kind: [Read, WriteBack, Walk, Tag, LateWriteBack, Stale]
                .into_iter()
                .find(|kind| *kind as u8 == bytes[0])?,
            level: bytes[1],
            pid: number(4),
            object: number(8),
            vaddr: u64::from(number(20)) << 32 | u64::from(number(16)),
        })
    }
}

/// Writes truth.
#[derive(Debug)]
pub struct TruthWriter<W: Write> {
    out: BlockWriter<W>,
    pending: Vec<u8>,
    next: u64,
}

impl<W: Write> TruthWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// When writing fails.
    pub fn new(mut out: W, header: &Header) -> Result<Self, FormatError> {
        let header = header.of(Stream::Truth, Packing::Blocks);
        out.write_all(header.to_line().as_bytes()).map_err(FormatError::write)?;
        Ok(Self { out: BlockWriter::new(out), pending: Vec::new(), next: 0 })
    }

    /// Adds the next record.
    ///
    /// # Errors
    /// When writing fails.
    pub fn record(&mut self, record: TruthRecord) -> Result<(), FormatError> {
        self.pending.extend(record.to_bytes());
        if self.pending.len() >= BLOCK_RECORDS * RECORD_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), FormatError> {
        let records = (self.pending.len() / RECORD_BYTES) as u32;
        self.out.block(records, self.next, &self.pending)?;
        self.next += u64::from(records);
        self.pending.clear();
        Ok(())
    }

    /// Writes what is left and the end.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(mut self) -> Result<W, FormatError> {
        if !self.pending.is_empty() {
            self.flush()?;
        }
        self.out.finish()
    }
}

/// Reads truth in order.
#[derive(Debug)]
pub struct TruthReader<R> {
    header: Header,
    source: BlockReader<R>,
    content: Vec<u8>,
    /// Number of the content's first record.
    first: u64,
}

impl<R: BufRead> TruthReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// When it is not that of truth.
    pub fn new(mut source: R) -> Result<Self, FormatError> {
        let header = Header::read(&mut source)?;
        if header.stream != Stream::Truth || header.packing != Packing::Blocks {
            return Err(FormatError::Header("the file is of another stream than truth".into()));
        }
        Ok(Self { header, source: BlockReader::new(source), content: Vec::new(), first: 0 })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What could not be read so far.
    pub fn damage(&self) -> Damage {
        self.source.damage()
    }

    /// The record with this number, which must not be smaller than one asked for before. `None`: it is not
    /// there or makes no sense.
    ///
    /// # Errors
    /// When reading fails.
    pub fn record(&mut self, number: u64) -> Result<Option<TruthRecord>, FormatError> {
        loop {
            let Some(index) = number.checked_sub(self.first) else { return Ok(None) };
            let at = usize::try_from(index).unwrap_or(usize::MAX).saturating_mul(RECORD_BYTES);
            if let Some(bytes) = self.content.get(at..).and_then(|rest| rest.first_chunk()) {
                return Ok(TruthRecord::from_bytes(bytes));
            }
            match self.source.next_block(&mut self.content)? {
                Some(info) => self.first = info.first,
                None => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_by_number() {
        let record = |number: u64| TruthRecord {
            kind: TruthKind::Walk,
            level: (number % 4) as u8 + 1,
            pid: 4711,
            object: number as u32,
            vaddr: number << 33,
        };
        let header = Header::new(Stream::Bus, Packing::Blocks);
        let mut writer = TruthWriter::new(Vec::new(), &header).expect("written");
        (0..100_000).for_each(|number| writer.record(record(number)).expect("written"));
        let bytes = writer.finish().expect("written");
        let mut reader = TruthReader::new(&bytes[..]).expect("a header");
        for number in [0, 1, 40_000, 99_999] {
            assert_eq!(reader.record(number).expect("readable"), Some(record(number)));
        }
        assert_eq!(reader.record(100_000).expect("readable"), None);
    }
}
