//! Page-table records: what changed, when (by the tag that announces it), and where the entry lies.

use super::FormatError;
use super::blocks::{self, BlockPosition, BlockReader, BlockWriter, Damage};
use super::header::{Header, Packing, Stream};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Read, Seek, Write};

const RECORD_BYTES: usize = 32;
const BLOCK_RECORDS: usize = 1 << 13;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum PageEvent {
    /// A virtual page was mapped by a leaf entry. Level 1: 4 KiB, 2: 2 MiB, 3: 1 GiB.
    Map = 1,
    /// The same mapping ended.
    Unmap = 2,
    /// A frame became a page table of this level (4: the root); `page` is the first page it covers.
    Table = 3,
    /// The frame is no page table any more.
    TableFreed = 4,
    /// All mappings and tables of the process ended.
    ProcessEnd = 5,
    /// Frames `frame` to `frame + page - 1` are used otherwise: see [`FrameUse`], in `level`.
    Use = 6,
    /// Everything before was there when the trace began and needs no tag.
    DumpEnd = 7,
}

/// What frames are used for that no page table maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum FrameUse {
    /// The kernel's own.
    Kernel = 1,
    /// The page cache: contents of files.
    PageCache = 2,
    /// A device's buffers (DMA).
    Device = 3,
}

impl FrameUse {
    /// The use with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Kernel, Self::PageCache, Self::Device].into_iter().find(|usage| *usage as u8 == code)
    }
}

/// Where the kernel takes a page of more than 4 KiB from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HugeKind {
    /// Made out of ordinary memory, without the program's doing (THP).
    Transparent,
    /// From the pool that was set aside for them (hugetlbfs, `MAP_HUGETLB`).
    Hugetlb,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageRecord {
    /// What happened.
    pub event: PageEvent,
    /// Level of the table or leaf entry, 1 to 4; of `Use`, the use.
    pub level: u8,
    /// Of a large page that is mapped, where it is from; `None`: not told, or no such record.
    pub huge: Option<HugeKind>,
    /// Announced by the same tag as the next record.
    pub more: bool,
    /// Process.
    pub pid: u32,
    /// Frame number: physical address ÷ 4,096.
    pub frame: u64,
    /// Virtual address ÷ 4,096.
    pub page: u64,
    /// Physical byte address of the entry; 0: not known.
    pub entry: u64,
}

impl PageRecord {
    const MORE: u8 = 1;
    const TRANSPARENT: u8 = 2;
    const HUGETLB: u8 = 4;

    /// A record that has a tag of its own.
    pub fn new(event: PageEvent, level: u8, pid: u32, frame: u64, page: u64, entry: u64) -> Self {
        Self { event, level, huge: None, more: false, pid, frame, page, entry }
    }

    /// Its 32 bytes: event, level, flags (1: more, 2: transparent, 4: hugetlb), 0; u32 pid; u64 frame, page, entry.
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        let kind = match self.huge {
            None => 0,
            Some(HugeKind::Transparent) => Self::TRANSPARENT,
            Some(HugeKind::Hugetlb) => Self::HUGETLB,
        };
        let flags = if self.more { Self::MORE | kind } else { kind };
        let mut bytes = [0; RECORD_BYTES];
        bytes[..3].copy_from_slice(&[self.event as u8, self.level, flags]);
        bytes[4..8].copy_from_slice(&self.pid.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.frame.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.page.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.entry.to_le_bytes());
        bytes
    }

    /// Reads 32 bytes. `None`: they are no record.
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        use PageEvent::*;
        let event = [Map, Unmap, Table, TableFreed, ProcessEnd, Use, DumpEnd]
            .into_iter()
            .find(|event| *event as u8 == bytes[0])?;
        let number =
            |at: usize| bytes[at..at + 8].iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
        let level = bytes[1];
        let levels = match event {
            Map | Unmap => 1..=3,
            Table | TableFreed => 1..=4,
            Use => 1..=3,
            ProcessEnd | DumpEnd => 0..=0,
        };
        let (frame, page, entry) = (number(8), number(16), number(24));
        let huge = match bytes[2] & !Self::MORE {
            0 => None,
            Self::TRANSPARENT => Some(HugeKind::Transparent),
            Self::HUGETLB => Some(HugeKind::Hugetlb),
            _ => return None,
        };
        let may_be_huge = event == Map && level > 1;
        let is_sound = levels.contains(&level)
            && (huge.is_none() || may_be_huge)
            && bytes[3] == 0
            && (frame | page) < 1 << 52;
        is_sound.then_some(Self {
            event,
            level,
            huge,
            more: bytes[2] & Self::MORE != 0,
            pid: number(0).wrapping_shr(32) as u32,
            frame,
            page,
            entry,
        })
    }

    /// 4-KiB pages that a leaf of the level maps.
    pub fn pages(level: u8) -> u64 {
        1 << (9 * (u32::from(level.clamp(1, 4)) - 1))
    }
}

/// Types of PTAT's records.
mod ptat {
    pub const MAP_4K: u8 = 0x01;
    pub const UNMAP_4K: u8 = 0x02;
    /// Where the entry of the mapping before lies: frame of the table, byte offset in it.
    pub const ENTRY: u8 = 0x03;
    pub const MAP_2M: u8 = 0x11;
    pub const UNMAP_2M: u8 = 0x12;
    pub const MAP_1G: u8 = 0x21;
    pub const UNMAP_1G: u8 = 0x22;
    /// A directory of level 2, 3 or 4 (in the low bits) is in this frame …
    pub const TABLE: u8 = 0x40;
    /// … or not any more.
    pub const TABLE_FREED: u8 = 0x50;
    pub const DUMP_END: u8 = 0x7f;
}

/// Writes page-table records.
#[derive(Debug)]
pub struct PageWriter<W: Write> {
    header: Header,
    out: Sink<W>,
    pending: Vec<u8>,
    first: u64,
}

#[derive(Debug)]
enum Sink<W> {
    Blocks(BlockWriter<W>),
    Ptat(W),
}

impl<W: Write> PageWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// When writing fails, or the packing is none of page-table records.
    pub fn new(mut out: W, header: Header) -> Result<Self, FormatError> {
        out.write_all(header.to_line().as_bytes()).map_err(FormatError::write)?;
        let out = match header.packing {
            Packing::Blocks => Sink::Blocks(BlockWriter::new(out)),
            Packing::Ptat => Sink::Ptat(out),
            _ => return Err(FormatError::Unsupported("a page-table trace of this packing".into())),
        };
        Ok(Self { header, out, pending: Vec::new(), first: 0 })
    }

    /// Adds a record. PTAT's form has none for uses of frames and ends of processes; those are left out.
    ///
    /// # Errors
    /// When writing fails.
    pub fn record(&mut self, record: &PageRecord) -> Result<(), FormatError> {
        match &mut self.out {
            Sink::Blocks(_) => {
                self.pending.extend(record.to_bytes());
                if self.pending.len() >= BLOCK_RECORDS * RECORD_BYTES { self.flush() } else { Ok(()) }
            }
            Sink::Ptat(out) => {
                let mut bytes = Vec::new();
                let mut put = |kind: u8, frame: u64, page: u64| {
                    bytes.push(kind);
                    self.header.endian.write(record.pid.into(), 4, &mut bytes);
                    self.header.endian.write(frame, self.header.frame_bytes.into(), &mut bytes);
                    self.header.endian.write(page, 5, &mut bytes);
                };
                let by_level = |codes: [u8; 3]| codes[usize::from(record.level.clamp(1, 3)) - 1];
                let kind = match record.event {
                    PageEvent::Map => by_level([ptat::MAP_4K, ptat::MAP_2M, ptat::MAP_1G]),
                    PageEvent::Unmap => by_level([ptat::UNMAP_4K, ptat::UNMAP_2M, ptat::UNMAP_1G]),
                    PageEvent::Table => ptat::TABLE | record.level,
                    PageEvent::TableFreed => ptat::TABLE_FREED | record.level,
                    PageEvent::DumpEnd => ptat::DUMP_END,
                    PageEvent::ProcessEnd | PageEvent::Use => return Ok(()),
                };
                put(kind, record.frame, record.page);
                if record.event == PageEvent::Map {
                    put(ptat::ENTRY, record.entry >> 12, record.entry & 0xfff);
                }
                out.write_all(&bytes).map_err(FormatError::write)
            }
        }
    }

    fn flush(&mut self) -> Result<(), FormatError> {
        let records = (self.pending.len() / RECORD_BYTES) as u32;
        if let Sink::Blocks(writer) = &mut self.out {
            writer.block(records, self.first, &self.pending)?;
        }
        self.first += u64::from(records);
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
        match self.out {
            Sink::Blocks(writer) => writer.finish(),
            Sink::Ptat(mut out) => {
                out.flush().map_err(FormatError::write)?;
                Ok(out)
            }
        }
    }
}

/// Reads page-table records.
#[derive(Debug)]
pub struct PageReader<R> {
    header: Header,
    source: Source<R>,
    content: Vec<u8>,
    at: usize,
    /// Number of the record read next, lost ones counted.
    next: u64,
    lost: u64,
    bad_records: u64,
    /// Where the block in `content` was read; `None` before the first.
    before: Option<BlockPosition>,
}

#[derive(Debug)]
enum Source<R> {
    Blocks(BlockReader<R>),
    /// The record that an entry's address may follow.
    Ptat {
        source: R,
        waiting: Option<PageRecord>,
        /// Bytes read so far.
        consumed: u64,
        is_cut: bool,
    },
}

/// A place between two records, from which reading can go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagePosition {
    blocks: BlockPosition,
    /// Bytes of the block that follows which are used already; `None` if none of it is.
    used: Option<usize>,
    next: u64,
    lost: u64,
    bad_records: u64,
    plain_bytes: u64,
    waiting: Option<PageRecord>,
    is_cut: bool,
}

impl<R: BufRead + Seek> PageReader<R> {
    /// Goes on from a place, on a reader that has not read yet.
    ///
    /// # Errors
    /// When the file has no such place.
    pub fn resume(&mut self, position: &PagePosition) -> Result<(), FormatError> {
        match &mut self.source {
            Source::Blocks(reader) => {
                reader.resume(&position.blocks)?;
                if let Some(used) = position.used {
                    self.before = Some(reader.position());
                    reader.next_block(&mut self.content)?;
                    self.at = used;
                }
            }
            Source::Ptat { source, waiting, consumed, is_cut } => {
                blocks::skip(source, position.plain_bytes)?;
                (*waiting, *consumed, *is_cut) = (position.waiting, position.plain_bytes, position.is_cut);
            }
        }
        (self.next, self.lost, self.bad_records) = (position.next, position.lost, position.bad_records);
        Ok(())
    }
}

impl<R: BufRead> PageReader<R> {
    /// Where reading stands.
    pub fn position(&self) -> PagePosition {
        let (next, lost, bad_records) = (self.next, self.lost, self.bad_records);
        let place = PagePosition { next, lost, bad_records, ..PagePosition::default() };
        match &self.source {
            Source::Blocks(reader) => PagePosition {
                blocks: self.before.unwrap_or_else(|| reader.position()),
                used: self.before.map(|_| self.at),
                ..place
            },
            Source::Ptat { waiting, consumed, is_cut, .. } => {
                PagePosition { plain_bytes: *consumed, waiting: *waiting, is_cut: *is_cut, ..place }
            }
        }
    }

    /// Reads the header.
    ///
    /// # Errors
    /// When it is not that of a page-table trace.
    pub fn new(mut source: R) -> Result<Self, FormatError> {
        let header = Header::read(&mut source)?;
        if header.stream != Stream::Pages {
            return Err(FormatError::Header("the file is of another stream than pages".into()));
        }
        let source = match header.packing {
            Packing::Blocks => Source::Blocks(BlockReader::new(source)),
            Packing::Ptat => Source::Ptat { source, waiting: None, consumed: 0, is_cut: false },
            _ => return Err(FormatError::Unsupported("a page-table trace of this packing".into())),
        };
        Ok(Self {
            header,
            source,
            content: Vec::new(),
            at: 0,
            next: 0,
            lost: 0,
            bad_records: 0,
            before: None,
        })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What could not be read so far.
    pub fn damage(&self) -> Damage {
        match &self.source {
            Source::Blocks(reader) => reader.damage(),
            Source::Ptat { is_cut, .. } => Damage { is_cut: *is_cut, ..Damage::default() },
        }
    }

    /// Records in damaged blocks, and records that make no sense, so far.
    pub fn lost(&self) -> (u64, u64) {
        (self.lost, self.bad_records)
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// When reading fails. Records that make no sense are counted.
    pub fn next_record(&mut self) -> Result<Option<PageRecord>, FormatError> {
        if matches!(self.source, Source::Ptat { .. }) {
            return self.next_ptat();
        }
        loop {
            if let Some(bytes) = self.content.get(self.at..).and_then(|rest| rest.first_chunk()) {
                self.at += RECORD_BYTES;
                self.next = self.next.saturating_add(1);
                match PageRecord::from_bytes(bytes) {
                    Some(record) => return Ok(Some(record)),
                    None => self.bad_records += 1,
                }
                continue;
            }
            let Source::Blocks(reader) = &mut self.source else { return Ok(None) };
            self.at = 0;
            self.before = Some(reader.position());
            let Some(info) = reader.next_block(&mut self.content)? else {
                self.content.clear();
                return Ok(None);
            };
            self.lost = self.lost.saturating_add(info.first.saturating_sub(self.next));
            self.next = info.first;
        }
    }

    fn next_ptat(&mut self) -> Result<Option<PageRecord>, FormatError> {
        let Source::Ptat { source, waiting, consumed, is_cut } = &mut self.source else { return Ok(None) };
        let frame_bytes = usize::from(self.header.frame_bytes);
        let bytes = 1 + 4 + frame_bytes + 5;
        loop {
            self.content.clear();
            let got = source.take(bytes as u64).read_to_end(&mut self.content).map_err(FormatError::read)?;
            *consumed += got as u64;
            if got < bytes {
                *is_cut |= got > 0;
                return Ok(waiting.take());
            }
            let number = |from: usize, len: usize| self.header.endian.read(&self.content[from..from + len]);
            let (kind, pid) = (self.content[0], number(1, 4) as u32);
            let (frame, page) = (number(5, frame_bytes), number(5 + frame_bytes, 5));
            let record = |event, level| Some(PageRecord::new(event, level, pid, frame, page, 0));
            let next = match kind {
                ptat::ENTRY => {
                    if let Some(map) = waiting
                        .as_mut()
                        .filter(|map| map.event == PageEvent::Map && map.pid == pid && page < 4096)
                    {
                        map.entry = frame << 12 | page;
                        return Ok(waiting.take());
                    }
                    None
                }
                ptat::MAP_4K => record(PageEvent::Map, 1),
                ptat::MAP_2M => record(PageEvent::Map, 2),
                ptat::MAP_1G => record(PageEvent::Map, 3),
                ptat::UNMAP_4K => record(PageEvent::Unmap, 1),
                ptat::UNMAP_2M => record(PageEvent::Unmap, 2),
                ptat::UNMAP_1G => record(PageEvent::Unmap, 3),
                ptat::DUMP_END => record(PageEvent::DumpEnd, 0),
                kind @ 0x42..=0x44 => record(PageEvent::Table, kind & 7),
                kind @ 0x52..=0x54 => record(PageEvent::TableFreed, kind & 7),
                // Tables of the last level are known by their entries.
                0x41 | 0x51 => continue,
                _ => None,
            };
            let Some(next) = next else {
                self.bad_records += 1;
                continue;
            };
            let before = match next.event {
                PageEvent::Map => waiting.replace(next),
                // Nothing follows it: hand both over, this one next time.
                _ => match waiting.take() {
                    Some(map) => {
                        *waiting = Some(next);
                        Some(map)
                    }
                    None => Some(next),
                },
            };
            if before.is_some() {
                return Ok(before);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Endian;

    fn records() -> Vec<PageRecord> {
        vec![
            PageRecord::new(PageEvent::Table, 4, 7, 0x100, 0, 0),
            PageRecord::new(PageEvent::Map, 1, 7, 0x1234, 0x55_5555_5555, 0x77_7018),
            PageRecord::new(PageEvent::DumpEnd, 0, 0, 0, 0, 0),
            PageRecord { more: true, ..PageRecord::new(PageEvent::Map, 2, 7, 0x200, 0x400, 0x10_1008) },
            PageRecord {
                huge: Some(HugeKind::Transparent),
                ..PageRecord::new(PageEvent::Map, 2, 7, 0x400, 0x600, 0x10_1010)
            },
            PageRecord {
                huge: Some(HugeKind::Hugetlb),
                more: true,
                ..PageRecord::new(PageEvent::Map, 3, 7, 0x4_0000, 0x4_0000, 0x10_2008)
            },
            PageRecord::new(PageEvent::Unmap, 1, 7, 0x1234, 0x55_5555_5555, 0),
        ]
    }

    fn through(header: Header) -> Vec<PageRecord> {
        let mut writer = PageWriter::new(Vec::new(), header).expect("written");
        records().iter().for_each(|record| writer.record(record).expect("written"));
        let bytes = writer.finish().expect("written");
        let mut reader = PageReader::new(&bytes[..]).expect("a header");
        let all = std::iter::from_fn(|| reader.next_record().expect("readable")).collect();
        assert_eq!((reader.lost(), reader.damage()), ((0, 0), Damage::default()));
        all
    }

    #[test]
    fn wide_records_come_back() {
        assert_eq!(through(Header::new(Stream::Pages, Packing::Blocks)), records());
    }

    #[test]
    fn ptat_records_come_back_without_what_they_lack() {
        for (frame_bytes, endian) in [(3, Endian::Little), (4, Endian::Big)] {
            let header = Header { frame_bytes, endian, ..Header::new(Stream::Pages, Packing::Ptat) };
            // No record says that another follows: each has a tag.
            // Neither groups nor where large pages are from.
            let expected: Vec<_> =
                records().into_iter().map(|r| PageRecord { more: false, huge: None, ..r }).collect();
            assert_eq!(through(header), expected);
        }
    }

    #[test]
    fn a_ptat_mapping_is_two_records_of_13_bytes() {
        let header = Header { frame_bytes: 3, ..Header::new(Stream::Pages, Packing::Ptat) };
        let start = header.to_line().len();
        let mut writer = PageWriter::new(Vec::new(), header).expect("written");
        writer
            .record(&PageRecord::new(PageEvent::Map, 1, 2, 0x03_0201, 0x05_0403_0201, 0x9018))
            .expect("written");
        let bytes = writer.finish().expect("written");
        // type 1, pid 2, frame, virtual page; type 3, pid 2, frame 9 of the table, offset 0x18
        let mapping = [1, 2, 0, 0, 0, 1, 2, 3, 1, 2, 3, 4, 5];
        let entry = [3, 2, 0, 0, 0, 9, 0, 0, 0x18, 0, 0, 0, 0];
        assert_eq!(bytes[start..], [mapping, entry].concat());
    }
}
