//! The first line of every file of a trace: what is in it, and the constants that its records need.

use super::FormatError;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Read};

/// The words before the JSON of a header; `#␣` may stand before them, as in text forms.
const MAGIC: &str = "memlens-bus-trace";
/// Raised when an older reader would misread a file. 2: page-table records say where large pages are from, which
/// readers of version 1 take for damage.
const VERSION: u32 = 2;
/// Older versions are read as well.
const OLDEST: u32 = 1;
/// No header is longer.
/// As many memory nodes as a header may name: Linux's default limit.
const MAX_NODES: usize = 64;
const MAX_HEADER_BYTES: u64 = 16 << 10;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Bus records.
    Bus,
    /// Page-table records.
    Pages,
    /// Object events.
    Objects,
    /// What the virtual card knows of each bus record.
    Truth,
}

/// How records lie in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Packing {
    /// Compressed blocks with checksums.
    Blocks,
    /// Bus records of a fixed number of bits each, see [`FixedLayout`](super::FixedLayout).
    Fixed,
    /// PTAT's page-table records: 13 bytes with 3-byte frames, 14 with 4-byte frames.
    Ptat,
    /// Lines of text.
    Text,
}

/// Order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Endian {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

impl Endian {
    /// An unsigned number of up to 8 bytes.
    pub fn read(self, bytes: &[u8]) -> u64 {
        let push = |number: u64, &byte: &u8| number << 8 | u64::from(byte);
        match self {
            Self::Little => bytes.iter().rev().fold(0, push),
            Self::Big => bytes.iter().fold(0, push),
        }
    }

    /// Appends the low `len` bytes of a number.
    pub fn write(self, number: u64, len: usize, out: &mut Vec<u8>) {
        let bytes = number.to_le_bytes();
        match self {
            Self::Little => out.extend(&bytes[..len.min(8)]),
            Self::Big => out.extend(bytes[..len.min(8)].iter().rev()),
        }
    }
}

/// The reserved, uncached physical region whose accesses are tags (O3).
///
/// The address of a tag says what it announces: bit 6 + `sequence_bits` (after the line offset) is 0 for the
/// next page-table event and 1 for the next object event, the bits below it count the tags of the kind.
/// With 0 sequence bits tags cannot be numbered; then each merely means "the next one".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TagRegion {
    /// First byte, a multiple of the line size.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// Width of the count in the address.
    #[serde(default)]
    pub sequence_bits: u8,
}

/// Header of a file. A field that does not concern the file's stream is ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// What the file holds.
    pub stream: Stream,
    /// How.
    pub packing: Packing,
    /// The same text in all files of one capture; empty if whoever made it had none.
    #[serde(default)]
    pub capture: String,
    /// Cycles a second of the clock that durations count (400 MHz in the paper).
    #[serde(default = "default_clock_hz")]
    pub clock_hz: u64,
    /// Bytes of a bus transaction, a power of two from 8 to 4096.
    #[serde(default = "default_line_bytes")]
    pub line_bytes: u32,
    /// Bytes of physical memory; addresses above it are counted as out of range. 0: not known.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Physical addresses below are where the running machine's kernel had put the pages, those from here on are
    /// modelled. 0: a virtual card without real frames, or hardware.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub real_bytes: u64,
    /// Which of several cards this is, from 0.
    #[serde(default)]
    pub channel: u16,
    /// Where tags are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<TagRegion>,
    /// Uncached region of last-level page tables (PTAT): start and bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptat: Option<(u64, u64)>,
    /// Memory nodes (NUMA), by ascending address: start and bytes. Empty: one, or not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<(u64, u64)>,
    /// Order of bytes in `fixed` and `ptat` records.
    #[serde(default)]
    pub endian: Endian,
    /// Bits of a `fixed` bus record: sequence number.
    #[serde(default)]
    pub sequence_bits: u8,
    /// Bits of a `fixed` bus record: duration.
    #[serde(default)]
    pub duration_bits: u8,
    /// Bits of a `fixed` bus record: line number (physical address ÷ line size).
    #[serde(default)]
    pub address_bits: u8,
    /// Records that share a sequence number, because one packet carried them.
    #[serde(default = "one")]
    pub records_per_packet: u32,
    /// Bytes of a frame number in `ptat` records: 3 or 4.
    #[serde(default)]
    pub frame_bytes: u8,
    /// Page-table records and object events begin with what was there when the trace began, without tags.
    #[serde(default)]
    pub dump: bool,
    /// What was traced, for people.
    #[serde(default)]
    pub command: Vec<String>,
    /// The machine, for people.
    #[serde(default)]
    pub machine: String,
}

fn default_clock_hz() -> u64 {
    400_000_000
}

fn default_line_bytes() -> u32 {
    64
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

fn one() -> u32 {
    1
}

impl Header {
    /// A header with the defaults.
    pub fn new(stream: Stream, packing: Packing) -> Self {
        Self {
            stream,
            packing,
            capture: String::new(),
            clock_hz: default_clock_hz(),
            line_bytes: default_line_bytes(),
            memory_bytes: 0,
            real_bytes: 0,
            channel: 0,
            tags: None,
            ptat: None,
            nodes: Vec::new(),
            endian: Endian::Little,
            sequence_bits: 0,
            duration_bits: 0,
            address_bits: 0,
            records_per_packet: 1,
            frame_bytes: 0,
            dump: false,
            command: Vec::new(),
            machine: String::new(),
        }
    }

    /// The same for another stream of the capture.
    pub fn of(&self, stream: Stream, packing: Packing) -> Self {
        Self { stream, packing, ..self.clone() }
    }

    /// Base-two logarithm of the line size.
    pub fn line_shift(&self) -> u32 {
        self.line_bytes.trailing_zeros()
    }

    /// The header as a line, with its end.
    pub fn to_line(&self) -> String {
        let comment = if self.packing == Packing::Text { "# " } else { "" };
        // The fields are numbers, words and texts: they always have a JSON form.
        let json = serde_json::to_string(self).unwrap_or_default();
        format!("{comment}{MAGIC} {VERSION} {json}\n")
    }

    /// Reads the first line of a file.
    ///
    /// # Errors
    /// If it is no header, one of a later version, or its values make no sense.
    pub fn read(source: &mut impl BufRead) -> Result<Self, FormatError> {
        let mut line = Vec::new();
        source.take(MAX_HEADER_BYTES).read_until(b'\n', &mut line).map_err(FormatError::read)?;
        let problem = |text: &str| FormatError::Header(text.to_owned());
        let text = std::str::from_utf8(&line).map_err(|_| problem("the first line is not text"))?;
        let text = text.strip_prefix("# ").unwrap_or(text);
        let rest =
            text.strip_prefix(MAGIC).ok_or_else(|| problem("the first line is not one of a bus trace"))?;
        if !text.ends_with('\n') {
            return Err(problem("the first line has no end"));
        }
        let (version, json) =
            rest.trim().split_once(' ').ok_or_else(|| problem("the first line ends too early"))?;
        match version.parse::<u32>() {
            Ok(OLDEST..=VERSION) => {}
            Ok(other) => return Err(FormatError::Unsupported(format!("version {other} of the format"))),
            Err(_) => return Err(problem("the version is not a number")),
        }
        let header: Self =
            serde_json::from_str(json).map_err(|error| FormatError::Header(error.to_string()))?;
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), FormatError> {
        let problem = |text: String| Err(FormatError::Header(text));
        if !self.line_bytes.is_power_of_two() || !(8..=4096).contains(&self.line_bytes) {
            return problem(format!("line_bytes is {}, not a power of two from 8 to 4096", self.line_bytes));
        }
        if self.clock_hz == 0 {
            return problem("clock_hz is 0".into());
        }
        if self.records_per_packet == 0 {
            return problem("records_per_packet is 0".into());
        }
        let regions = self.tags.map(|tags| (tags.start, tags.bytes)).into_iter().chain(self.ptat);
        for (start, bytes) in regions {
            if start % u64::from(self.line_bytes) != 0 || bytes == 0 || start.checked_add(bytes).is_none() {
                return problem(format!("the region {start:#x}+{bytes:#x} does not lie on lines of memory"));
            }
        }
        let mut end = 0;
        for &(start, bytes) in &self.nodes {
            match start.checked_add(bytes).filter(|_| start >= end && bytes > 0) {
                Some(next) => end = next,
                None => {
                    return problem(format!(
                        "the memory node {start:#x}+{bytes:#x} does not lie behind the others"
                    ));
                }
            }
        }
        if self.nodes.len() > MAX_NODES {
            return problem(format!("{} memory nodes; at most {MAX_NODES} are supported", self.nodes.len()));
        }
        if let Some(tags) = self.tags {
            let needed = 2_u64.checked_shl(u32::from(tags.sequence_bits));
            let needed = needed.and_then(|lines| lines.checked_mul(u64::from(self.line_bytes)));
            if tags.sequence_bits > 32 || needed.is_none_or(|needed| needed > tags.bytes) {
                return problem(format!(
                    "a tag region of {} bytes has no room for {} sequence bits",
                    tags.bytes, tags.sequence_bits
                ));
            }
        }
        let bits = [self.sequence_bits, self.duration_bits, self.address_bits].map(u32::from);
        if self.packing == Packing::Fixed && (bits[2] == 0 || bits.iter().sum::<u32>() > 63) {
            return problem(
                "the bits of a fixed record are more than 63, or none are for the address".into(),
            );
        }
        if self.packing == Packing::Ptat && ![3, 4].contains(&self.frame_bytes) {
            return problem(format!("frame_bytes is {}, not 3 or 4", self.frame_bytes));
        }
        Ok(())
    }

    /// Checks that two files are of one capture.
    ///
    /// # Errors
    /// If their captures, clocks or line sizes differ.
    pub fn check_same_capture(&self, other: &Self) -> Result<(), FormatError> {
        let mismatch = |text: String| Err(FormatError::Mismatch(text));
        if self.capture != other.capture && !self.capture.is_empty() && !other.capture.is_empty() {
            return mismatch(format!(
                "they are of different captures ({} and {})",
                self.capture, other.capture
            ));
        }
        if self.line_bytes != other.line_bytes {
            return mismatch(format!("lines are of {} and of {} bytes", self.line_bytes, other.line_bytes));
        }
        if self.clock_hz != other.clock_hz {
            return mismatch(format!("their clocks run at {} and {} Hz", self.clock_hz, other.clock_hz));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Header, FormatError> {
        Header::read(&mut text.as_bytes())
    }

    #[test]
    fn a_header_comes_back_as_it_was() {
        let mut header = Header::new(Stream::Bus, Packing::Blocks);
        header.tags = Some(TagRegion { start: 1 << 30, bytes: 32 << 20, sequence_bits: 18 });
        header.command = vec!["bfs".into(), "20\n".into()];
        assert_eq!(read(&header.to_line()).expect("sound"), header);
        let text = header.of(Stream::Objects, Packing::Text);
        assert!(text.to_line().starts_with("# memlens-bus-trace 2 {"));
        assert_eq!(read(&text.to_line()).expect("sound"), text);
        let former = text.to_line().replace("trace 2", "trace 1");
        assert_eq!(read(&former).expect("an older version"), text);
    }

    #[test]
    fn what_is_no_header_is_said() {
        for (text, expected) in [
            ("seq,duration\n", "not one of a bus trace"),
            ("memlens-bus-trace 1 {}", "no end"),
            ("memlens-bus-trace 3 {}\n", "version 3"),
            ("memlens-bus-trace 1 {}\n", "missing field"),
            ("memlens-bus-trace 1 {\"stream\":\"bus\",\"packing\":\"blocks\",\"line_bytes\":48}\n", "is 48"),
            ("memlens-bus-trace 1 {\"stream\":\"bus\",\"packing\":\"fixed\"}\n", "address"),
            (
                "memlens-bus-trace 1 {\"stream\":\"bus\",\"packing\":\"blocks\",\"nodes\":[[0,64],[32,64]]}\n",
                "memory node 0x20+0x40",
            ),
            ("memlens-bus-trace 1 {\"stream\":\"pages\",\"packing\":\"ptat\"}\n", "frame_bytes"),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
