//! Reading and writing bus traces, in any packing.

use super::blocks::{self, BlockPosition, BlockReader, BlockWriter, Damage};
use super::bus_block::BusBlock;
use super::fixed::{FixedLayout, Sequence};
use super::header::{Header, Packing, Stream};
use super::raw_block::{Numbering, RawBlock, RawPlace};
use super::{FormatError, bus_columns, bus_text};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Read, Seek, Write};

/// Records of a block.
const BLOCK_RECORDS: usize = 1 << 16;

/// Writes a bus trace.
#[derive(Debug)]
pub struct BusWriter<W: Write> {
    header: Header,
    out: Sink<W>,
    block: BusBlock,
    encoded: Vec<u8>,
}

#[derive(Debug)]
enum Sink<W> {
    Blocks(BlockWriter<W>),
    Plain(W),
}

impl<W: Write> BusWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// When writing fails, or the header's packing is none of bus records.
    pub fn new(mut out: W, header: Header) -> Result<Self, FormatError> {
        out.write_all(header.to_line().as_bytes()).map_err(FormatError::write)?;
        let out = match header.packing {
            Packing::Blocks => Sink::Blocks(BlockWriter::new(out)),
            Packing::Fixed => Sink::Plain(out),
            Packing::Text => {
                writeln!(out, "{}", bus_text::COLUMNS).map_err(FormatError::write)?;
                Sink::Plain(out)
            }
            Packing::Ptat => return Err(FormatError::Unsupported("a bus trace packed as ptat".into())),
        };
        Ok(Self { header, out, block: BusBlock::default(), encoded: Vec::new() })
    }

    /// Adds a record: `duration` cycles after the one before, after `lost` that are missing.
    ///
    /// # Errors
    /// When writing fails.
    pub fn record(&mut self, line: u64, duration: u64, write: bool, lost: u64) -> Result<(), FormatError> {
        self.block.push(line, duration, write, lost);
        if self.block.len() >= BLOCK_RECORDS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), FormatError> {
        let block = &self.block;
        match &mut self.out {
            Sink::Blocks(writer) => {
                bus_columns::encode(block, &mut self.encoded);
                writer.block(block.len() as u32, block.first, &self.encoded)?;
            }
            Sink::Plain(out) => {
                self.encoded.clear();
                let layout = FixedLayout::of(&self.header);
                let line_shift = self.header.line_shift();
                for (at, (number, _, line, write)) in block.iter().enumerate() {
                    let duration = block.durations[at];
                    if self.header.packing == Packing::Fixed {
                        layout.encode(number, duration, line, write, &mut self.encoded);
                    } else {
                        let packet = number / u64::from(self.header.records_per_packet);
                        let direction = if write { 'w' } else { 'r' };
                        let text = format!("{packet},{duration},{direction},{:#x}\n", line << line_shift);
                        self.encoded.extend(text.bytes());
                    }
                }
                out.write_all(&self.encoded).map_err(FormatError::write)?;
            }
        }
        let (next, time) = (self.block.next(), self.block.end_cycles());
        self.block.restart(next, time);
        Ok(())
    }

    /// Writes what is left and the end.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(mut self) -> Result<W, FormatError> {
        if !self.block.is_empty() {
            self.flush()?;
        }
        match self.out {
            Sink::Blocks(writer) => writer.finish(),
            Sink::Plain(mut out) => {
                out.flush().map_err(FormatError::write)?;
                Ok(out)
            }
        }
    }
}

/// Reads a bus trace.
#[derive(Debug)]
pub struct BusReader<R> {
    header: Header,
    source: Source<R>,
    /// A line of text, or plain records.
    content: Vec<u8>,
    numbering: Numbering,
    raw: RawBlock,
}

#[derive(Debug)]
enum Source<R> {
    Blocks(BlockReader<R>),
    Fixed {
        source: R,
        layout: FixedLayout,
        plain: PlainPosition,
    },
    Text {
        source: R,
        layout: FixedLayout,
        plain: PlainPosition,
        /// The line behind the records given last makes no sense.
        problem: Option<(FormatError, u64)>,
    },
}

/// Where reading of plain records or lines stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlainPosition {
    /// Bytes behind the file's header.
    bytes: u64,
    /// Lines of text before, with the header.
    line: u64,
    sequence: Sequence,
    /// The file ended inside a record.
    is_cut: bool,
}

/// A place between two blocks of records, from which reading can go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusPosition {
    /// Number of the record expected next, and the cycles before it.
    pub(super) next: u64,
    pub(super) cycles: u64,
    pub(super) blocks: BlockPosition,
    pub(super) plain: PlainPosition,
}

impl<R: BufRead + Seek> BusReader<R> {
    /// Goes on from a place, on a reader that has not read yet.
    ///
    /// # Errors
    /// When the file has no such place.
    pub fn resume(&mut self, position: &BusPosition) -> Result<(), FormatError> {
        self.numbering = Numbering::from(position);
        match &mut self.source {
            Source::Blocks(reader) => reader.resume(&position.blocks),
            Source::Fixed { source, plain, .. } | Source::Text { source, plain, .. } => {
                *plain = position.plain;
                blocks::skip(source, plain.bytes)
            }
        }
    }
}

impl<R: BufRead> BusReader<R> {
    /// Where reading stands.
    pub fn position(&self) -> BusPosition {
        self.numbering.position(&self.place())
    }

    /// Where the blocks stand that were read.
    fn place(&self) -> RawPlace {
        match &self.source {
            Source::Blocks(reader) => RawPlace { blocks: reader.position(), ..RawPlace::default() },
            Source::Fixed { plain, .. } | Source::Text { plain, .. } => {
                RawPlace { plain: *plain, ..RawPlace::default() }
            }
        }
    }

    /// Reads the header.
    ///
    /// # Errors
    /// When it is not that of a bus trace.
    pub fn new(mut source: R) -> Result<Self, FormatError> {
        let header = Header::read(&mut source)?;
        if header.stream != Stream::Bus {
            return Err(FormatError::Header("the file is of another stream than bus".into()));
        }
        let layout = FixedLayout::of(&header);
        let plain = PlainPosition { line: 1, ..PlainPosition::default() };
        let source = match header.packing {
            Packing::Blocks => Source::Blocks(BlockReader::new(source)),
            Packing::Fixed => Source::Fixed { source, layout, plain },
            // Text has the whole number.
            Packing::Text => {
                let layout = FixedLayout::of(&Header { sequence_bits: 63, ..header.clone() });
                Source::Text { source, layout, plain, problem: None }
            }
            Packing::Ptat => return Err(FormatError::Unsupported("a bus trace packed as ptat".into())),
        };
        Ok(Self {
            header,
            source,
            content: Vec::new(),
            numbering: Numbering::default(),
            raw: RawBlock::default(),
        })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What could not be read so far.
    pub fn damage(&self) -> Damage {
        let damage = match &self.source {
            Source::Blocks(reader) => reader.damage(),
            Source::Fixed { plain, .. } | Source::Text { plain, .. } => {
                Damage { is_cut: plain.is_cut, ..Damage::default() }
            }
        };
        self.numbering.with_damaged(damage)
    }

    /// Where the records of blocks stand whose numbers are given elsewhere.
    pub(super) fn numbering(&self) -> Numbering {
        self.numbering.clone()
    }

    /// The next records; `false` at the end. Records that are missing between blocks show as a gap.
    ///
    /// # Errors
    /// When reading fails, or a line of text makes no sense; after the latter the next call goes on behind it.
    pub fn next_block(&mut self, block: &mut BusBlock) -> Result<bool, FormatError> {
        let mut raw = std::mem::take(&mut self.raw);
        let found = loop {
            match self.next_raw(&mut raw) {
                Ok(false) => break Ok(false),
                Ok(true) => {
                    let is_sound = raw.unpack(&mut self.content, block);
                    if self.numbering.number(is_sound, block) {
                        break Ok(true);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        self.raw = raw;
        if !matches!(found, Ok(true)) {
            self.numbering.restart(block);
        }
        found
    }

    /// The next records as they stand in the file; `false` at the end. Whoever unpacks them gives them their numbers.
    pub(super) fn next_raw(&mut self, raw: &mut RawBlock) -> Result<bool, FormatError> {
        let there = match &mut self.source {
            Source::Blocks(reader) => reader.next_packed(raw.packed())?,
            Source::Fixed { source, layout, plain } => {
                let block = raw.records();
                let bytes = layout.record_bytes();
                self.content.clear();
                let wanted = (bytes * BLOCK_RECORDS) as u64;
                let got = source.take(wanted).read_to_end(&mut self.content).map_err(FormatError::read)?;
                plain.bytes += got as u64;
                let records = self.content.chunks_exact(bytes);
                plain.is_cut |= !records.remainder().is_empty();
                for record in records {
                    let (packet, duration, line, write) = layout.decode(record);
                    block.push(line, duration, write, layout.lost_before(packet, &mut plain.sequence));
                }
                !block.is_empty()
            }
            Source::Text { source, layout, plain, problem } => {
                let block = raw.records();
                if let Some((error, bytes)) = problem.take() {
                    (plain.line, plain.bytes) = (plain.line + 1, plain.bytes + bytes);
                    return Err(error);
                }
                while block.len() < BLOCK_RECORDS {
                    self.content.clear();
                    let got = source.read_until(b'\n', &mut self.content).map_err(FormatError::read)?;
                    if got == 0 {
                        break;
                    }
                    let text = String::from_utf8_lossy(&self.content);
                    let text = text.trim();
                    if !text.is_empty() && !text.starts_with('#') && text != bus_text::COLUMNS {
                        match bus_text::parse(text, plain.line + 1) {
                            Ok((packet, duration, addr, write)) => {
                                let lost = layout.lost_before(packet, &mut plain.sequence);
                                block.push(addr >> self.header.line_shift(), duration, write, lost);
                            }
                            // The sound records before it come first.
                            Err(error) if !block.is_empty() => {
                                *problem = Some((error, got as u64));
                                break;
                            }
                            Err(error) => {
                                (plain.line, plain.bytes) = (plain.line + 1, plain.bytes + got as u64);
                                return Err(error);
                            }
                        }
                    }
                    (plain.line, plain.bytes) = (plain.line + 1, plain.bytes + got as u64);
                }
                !block.is_empty()
            }
        };
        raw.place = self.place();
        Ok(there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(packing: Packing) -> Header {
        Header { sequence_bits: 16, duration_bits: 12, address_bits: 35, ..Header::new(Stream::Bus, packing) }
    }

    /// (line, duration, write, lost before)
    fn records() -> Vec<(u64, u64, bool, u64)> {
        (0..200_000_u64)
            .map(|at| (at * 7 % 100_003, at % 300, at % 5 == 0, u64::from(at == 70_000) * 9))
            .collect()
    }

    fn written(packing: Packing) -> Vec<u8> {
        let mut writer = BusWriter::new(Vec::new(), header(packing)).expect("written");
        for (line, duration, write, lost) in records() {
            writer.record(line, duration, write, lost).expect("written");
        }
        writer.finish().expect("written")
    }

    /// A line of text that makes no sense is named, and every other one is read.
    #[test]
    fn a_bad_line_costs_no_other() {
        let mut text = header(Packing::Text).to_line();
        for at in 0..100_u64 {
            let paddr = at * 64;
            text += &if at % 33 == 10 { "7,1,?,0\n".to_owned() } else { format!("{at},1,r,{paddr}\n") };
        }
        let mut reader = BusReader::new(text.as_bytes()).expect("a header");
        let (mut block, mut lines, mut bad) = (BusBlock::default(), Vec::new(), Vec::new());
        loop {
            match reader.next_block(&mut block) {
                Ok(true) => lines.extend(block.lines.iter().copied()),
                Ok(false) => break,
                Err(FormatError::Line { line, .. }) => bad.push(line),
                Err(other) => panic!("{other}"),
            }
        }
        // The header is the first line.
        assert_eq!(bad, [12, 45, 78]);
        assert_eq!(lines, (0..100).filter(|at| at % 33 != 10).collect::<Vec<_>>());
    }

    /// Number, cycles, line, whether it was written.
    type Record = (u64, u64, u64, bool);

    fn read(bytes: &[u8]) -> (Vec<Record>, u64, Damage) {
        let mut reader = BusReader::new(bytes).expect("a header");
        let (mut block, mut all, mut lost) = (BusBlock::default(), Vec::new(), 0);
        while reader.next_block(&mut block).expect("readable") {
            all.extend(block.iter());
            lost += block.lost();
        }
        (all, lost, reader.damage())
    }

    #[test]
    fn every_packing_holds_the_same() {
        for packing in [Packing::Blocks, Packing::Fixed, Packing::Text] {
            let (all, lost, damage) = read(&written(packing));
            assert_eq!((all.len(), lost), (200_000, 9), "{packing:?}");
            assert!(damage.is_none());
            let (mut time, mut number) = (0, 0);
            for (found, (line, duration, write, lost)) in all.into_iter().zip(records()) {
                time += duration;
                number += lost;
                assert_eq!(found, (number, time, line, write), "{packing:?}");
                number += 1;
            }
        }
    }

    #[test]
    fn a_damaged_block_is_a_gap() {
        let mut bytes = written(Packing::Blocks);
        let second =
            bytes.windows(4).enumerate().filter(|(_, four)| four == b"MLBK").map(|(at, _)| at).nth(1);
        bytes[second.expect("several blocks") + 100] ^= 1;
        let (all, lost, damage) = read(&bytes);
        // The second block, in which the nine missing records were.
        assert_eq!((all.len(), lost, damage.blocks), (200_000 - 65_536, 65_536 + 9, 1));
        assert_eq!(all[65_536].2, records()[131_072].0);
    }
}
