//! Compressed blocks with checksums, each readable by itself.
//!
//! ```text
//! block:  magic "MLBK"  u32 records  u64 first record  u32 bytes unpacked  u32 bytes packed
//!         u32 CRC-32 of the packed bytes  u32 CRC-32 of the 28 bytes before      then the packed bytes (zstd)
//! end:    a block of 0 records whose first record is the number of all
//! ```
//!
//! Numbers are little-endian. A damaged block is left out and counted; reading goes on at the next sound one. Finding
//! a block and unpacking it are apart ([`BlockReader::next_packed`]), so that several threads can unpack.

use super::FormatError;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};

const MAGIC: [u8; 4] = *b"MLBK";
const HEADER_BYTES: usize = 32;
/// No block is larger, unpacked or packed.
const MAX_BLOCK_BYTES: u32 = 64 << 20;
/// zstd's fastest ordinary level: the columns have little left to find.
const LEVEL: i32 = 1;

/// What of a file could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Damage {
    /// Blocks whose content is damaged.
    pub blocks: u64,
    /// Bytes passed over in search of the next block.
    pub skipped_bytes: u64,
    /// The end is missing: whoever wrote the file was stopped, or it was cut.
    pub is_cut: bool,
}

impl Damage {
    /// Whether everything was sound.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Writes blocks.
#[derive(Debug)]
pub struct BlockWriter<W> {
    out: W,
    records: u64,
    packed: Vec<u8>,
}

impl<W: Write> BlockWriter<W> {
    /// Writes behind what `out` has already.
    pub fn new(out: W) -> Self {
        Self { out, records: 0, packed: Vec::new() }
    }

    /// Writes a block.
    ///
    /// # Errors
    /// When writing fails.
    pub fn block(&mut self, records: u32, first: u64, content: &[u8]) -> Result<(), FormatError> {
        self.packed.clear();
        zstd::stream::copy_encode(content, &mut self.packed, LEVEL).map_err(FormatError::write)?;
        let packed = std::mem::take(&mut self.packed);
        self.put(records, first, content.len() as u32, &packed).map_err(FormatError::write)?;
        self.packed = packed;
        self.records += u64::from(records);
        Ok(())
    }

    fn put(&mut self, records: u32, first: u64, unpacked: u32, packed: &[u8]) -> io::Result<()> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend(MAGIC);
        header.extend(records.to_le_bytes());
        header.extend(first.to_le_bytes());
        header.extend(unpacked.to_le_bytes());
        header.extend((packed.len() as u32).to_le_bytes());
        header.extend(crc32fast::hash(packed).to_le_bytes());
        header.extend(crc32fast::hash(&header).to_le_bytes());
        self.out.write_all(&header)?;
        self.out.write_all(packed)
    }

    /// Writes the end, and gives back what was written to.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(mut self) -> Result<W, FormatError> {
        let records = self.records;
        self.put(0, records, 0, &[]).and_then(|()| self.out.flush()).map_err(FormatError::write)?;
        Ok(self.out)
    }
}

/// A block as it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockInfo {
    /// Records in it.
    pub records: u32,
    /// Number of its first record.
    pub first: u64,
}

/// Reads blocks.
#[derive(Debug)]
pub struct BlockReader<R> {
    source: R,
    damage: Damage,
    /// Bytes read so far.
    consumed: u64,
    is_over: bool,
    packed: PackedBlock,
}

/// A block as it stands in the file: neither its checksum nor its content was looked at.
#[derive(Debug, Default)]
pub(super) struct PackedBlock {
    pub info: BlockInfo,
    unpacked: usize,
    checksum: u32,
    bytes: Vec<u8>,
}

impl PackedBlock {
    /// Unpacks it into `content`; `false` if it is damaged.
    pub fn unpack(&self, content: &mut Vec<u8>) -> bool {
        crc32fast::hash(&self.bytes) == self.checksum && unpack(&self.bytes, self.unpacked, content)
    }
}

/// A place between two blocks, from which reading can go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct BlockPosition {
    /// Bytes behind the file's header.
    bytes: u64,
    /// What could not be read before.
    pub(super) damage: Damage,
    is_over: bool,
}

impl<R: BufRead + Seek> BlockReader<R> {
    /// Goes on from a place, on a reader that has not read yet.
    pub(super) fn resume(&mut self, position: &BlockPosition) -> Result<(), FormatError> {
        skip(&mut self.source, position.bytes)?;
        (self.consumed, self.damage, self.is_over) = (position.bytes, position.damage, position.is_over);
        Ok(())
    }
}

/// Passes over bytes without reading them.
pub(super) fn skip(source: &mut impl Seek, bytes: u64) -> Result<(), FormatError> {
    let distance = i64::try_from(bytes).map_err(|_| FormatError::Checkpoint("it makes no sense".into()))?;
    source.seek(SeekFrom::Current(distance)).map(|_| ()).map_err(FormatError::read)
}

/// A header that makes sense.
struct BlockHeader {
    info: BlockInfo,
    unpacked: usize,
    packed: usize,
    checksum: u32,
}

impl<R: BufRead> BlockReader<R> {
    /// Reads from where `source` stands.
    pub fn new(source: R) -> Self {
        Self {
            source,
            damage: Damage::default(),
            consumed: 0,
            is_over: false,
            packed: PackedBlock::default(),
        }
    }

    /// What could not be read so far.
    pub fn damage(&self) -> Damage {
        self.damage
    }

    /// Where reading stands: between two blocks.
    pub(super) fn position(&self) -> BlockPosition {
        BlockPosition { bytes: self.consumed, damage: self.damage, is_over: self.is_over }
    }

    /// The block read last is sound, but what is in it makes no sense.
    pub fn count_damaged(&mut self) {
        self.damage.blocks += 1;
    }

    /// The next sound block, its content in `content`; `None` at the end.
    ///
    /// # Errors
    /// When reading fails. Damage is no error, it is counted.
    pub fn next_block(&mut self, content: &mut Vec<u8>) -> Result<Option<BlockInfo>, FormatError> {
        let mut packed = std::mem::take(&mut self.packed);
        let found = loop {
            match self.next_packed(&mut packed) {
                Ok(true) if packed.unpack(content) => break Ok(Some(packed.info)),
                Ok(true) => self.count_damaged(),
                Ok(false) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        self.packed = packed;
        found
    }

    /// The next block, not yet unpacked; `false` at the end.
    pub(super) fn next_packed(&mut self, block: &mut PackedBlock) -> Result<bool, FormatError> {
        if self.is_over {
            return Ok(false);
        }
        self.is_over = true;
        let Some(header) = self.next_header().map_err(FormatError::read)? else { return Ok(false) };
        block.bytes.clear();
        let wanted = header.packed as u64;
        let got = (&mut self.source).take(wanted).read_to_end(&mut block.bytes).map_err(FormatError::read)?;
        self.consumed += got as u64;
        self.damage.is_cut |= got < header.packed;
        let is_end = header.info.records == 0 && header.unpacked == 0;
        if self.damage.is_cut || is_end {
            return Ok(false);
        }
        (block.info, block.unpacked, block.checksum) = (header.info, header.unpacked, header.checksum);
        self.is_over = false;
        Ok(true)
    }

    /// The next header that makes sense; `None` when the file ends before.
    fn next_header(&mut self) -> io::Result<Option<BlockHeader>> {
        let mut window: Vec<u8> = Vec::with_capacity(2 * HEADER_BYTES);
        loop {
            let missing = (HEADER_BYTES - window.len()) as u64;
            let got = (&mut self.source).take(missing).read_to_end(&mut window)? as u64;
            self.consumed += got;
            if got < missing {
                self.damage.is_cut = true;
                self.damage.skipped_bytes += window.len() as u64;
                return Ok(None);
            }
            if let Some(header) = sound(&window) {
                return Ok(Some(header));
            }
            // On to the next place that could be a beginning.
            let next = (1..HEADER_BYTES).find(|&at| {
                let rest = &window[at..];
                let seen = rest.len().min(MAGIC.len());
                rest[..seen] == MAGIC[..seen]
            });
            let skipped = next.unwrap_or(HEADER_BYTES);
            self.damage.skipped_bytes += skipped as u64;
            window.drain(..skipped);
        }
    }
}

fn sound(bytes: &[u8]) -> Option<BlockHeader> {
    let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let header = BlockHeader {
        info: BlockInfo { records: number(4)?, first: u64::from(number(12)?) << 32 | u64::from(number(8)?) },
        unpacked: number(16)? as usize,
        packed: number(20)? as usize,
        checksum: number(24)?,
    };
    let is_small = header.unpacked.max(header.packed) <= MAX_BLOCK_BYTES as usize;
    let is_sound = bytes.starts_with(&MAGIC) && crc32fast::hash(&bytes[..28]) == number(28)?;
    (is_sound && is_small).then_some(header)
}

/// Whether the bytes unpack to as many as they should.
fn unpack(packed: &[u8], unpacked: usize, content: &mut Vec<u8>) -> bool {
    content.clear();
    // A byte more shows that there is too much.
    content.reserve(unpacked + 1);
    let length = zstd::bulk::Decompressor::new()
        .and_then(|mut decompressor| decompressor.decompress_to_buffer(packed, content));
    length.is_ok_and(|length| length == unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let mut writer = BlockWriter::new(Vec::new());
        for block in 0..4_u8 {
            let content: Vec<u8> = (0..100).map(|at| at * block).collect();
            writer.block(100, u64::from(block) * 100, &content).expect("written");
        }
        writer.finish().expect("written")
    }

    fn blocks(bytes: &[u8]) -> (Vec<u64>, Damage) {
        let mut reader = BlockReader::new(bytes);
        let (mut content, mut firsts) = (Vec::new(), Vec::new());
        while let Some(info) = reader.next_block(&mut content).expect("memory can be read") {
            assert_eq!(content[1], (info.first / 100) as u8);
            firsts.push(info.first);
        }
        (firsts, reader.damage())
    }

    #[test]
    fn sound_files_are_read_whole() {
        assert_eq!(blocks(&file()), (vec![0, 100, 200, 300], Damage::default()));
    }

    /// Whatever byte is changed, no other block is lost, and the loss is noticed.
    #[test]
    fn any_damaged_byte_costs_one_block_at_most() {
        let sound = file();
        for at in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 0x55;
            let (firsts, damage) = blocks(&bytes);
            assert!(firsts.len() >= 3, "byte {at}: {firsts:?}");
            assert!(!damage.is_none(), "byte {at}");
        }
    }

    #[test]
    fn a_cut_file_is_a_beginning() {
        let sound = file();
        for length in 0..sound.len() {
            let (firsts, damage) = blocks(&sound[..length]);
            assert!(damage.is_cut, "{length} bytes");
            assert!(firsts.iter().enumerate().all(|(at, first)| *first == at as u64 * 100));
        }
    }
}
