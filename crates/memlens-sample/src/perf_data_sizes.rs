//! What sort of `perf.data` a file is, if it is one, and whether the sizes that it states fit into the file.
//!
//! The library that reads such files reserves what the file says it needs. In a damaged file that can be
//! more than there is memory, and a reservation that fails ends the process; so all those sizes are looked at
//! first.
//!
//! ```text
//!  0        header: magic, size of an attribute, sections, feature bits
//!  attrs    attributes, each with the section of its ids at its end
//!  data     records
//!           a section for each feature bit that is set, in order
//! ```
//!
//! What `perf record -o -` writes ("pipe mode") has a header of 16 bytes, magic and its own size, and then records
//! to its end; attributes and features are records, too.
//!
//! Source: tools/perf/Documentation/perf.data-file-format.txt (Linux 6.12).

use std::io::{self, BufReader, Read, Seek, SeekFrom};

use crate::perf_data::PerfDataError;

/// Bytes of `struct perf_file_header`.
const HEADER_BYTES: usize = 104;
/// Bytes of the first published `struct perf_event_attr` (`PERF_ATTR_SIZE_VER0`), and more than any has.
const ATTRIBUTE_BYTES: std::ops::RangeInclusive<u64> = 64..=4096;
/// Bytes of a section: offset and size.
const SECTION_BYTES: u64 = 16;
/// Feature bits whose sections hold counts that are reserved for.
const HEADER_CMDLINE: u32 = 11;
const HEADER_EVENT_DESC: u32 = 12;
/// `PERF_RECORD_HEADER_ATTR`: an attribute, in pipe mode.
const HEADER_ATTR: u32 = 64;
/// `PERF_RECORD_FINISHED_ROUND`, which is a header alone: the library does not pass over what else it states.
const FINISHED_ROUND: u32 = 68;
/// `PERF_RECORD_AUXTRACE`: a record that is followed by data of the size it states.
const AUXTRACE: u32 = 71;
/// `PERF_RECORD_HEADER_FEATURE`: a feature by its number, in pipe mode.
const HEADER_FEATURE: u32 = 80;
/// Bytes of `struct perf_pipe_file_header`.
const PIPE_HEADER_BYTES: u64 = 16;
/// What it begins with on a little-endian machine, and on another.
const MAGIC: &[u8; 8] = b"PERFILE2";
const SWAPPED_MAGIC: &[u8; 8] = b"2ELIFREP";
/// The first version's magic, before Linux 2.6.38 or so.
const OLD_MAGIC: &[u8; 8] = b"PERFFILE";

/// The two sorts of perf.data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// Sections, found from the header.
    Sections,
    /// Records from the header to the end: pipe mode.
    Pipe,
}

/// Looks at a file from its start, and goes back there.
///
/// # Errors
/// If it is no perf.data, or what does not fit.
pub fn check_sizes(file: &mut (impl Read + Seek)) -> Result<Container, PerfDataError> {
    let length = file.seek(SeekFrom::End(0)).map_err(PerfDataError::Io)?;
    file.rewind().map_err(PerfDataError::Io)?;
    let mut magic = Vec::with_capacity(MAGIC.len());
    file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut magic).map_err(PerfDataError::Io)?;
    match <&[u8; 8]>::try_from(magic.as_slice()) {
        Ok(MAGIC) => {}
        Ok(SWAPPED_MAGIC) => return Err(PerfDataError::Damaged("it is of a big-endian machine".to_owned())),
        Ok(OLD_MAGIC) => {
            return Err(PerfDataError::Damaged("it was written by a perf of 2010 or older".to_owned()));
        }
        _ => return Err(PerfDataError::Foreign),
    }
    let checked = Sizes { file: &mut *file, length }.check().map_err(PerfDataError::Damaged)?;
    file.rewind().map_err(PerfDataError::Io)?;
    Ok(checked)
}

struct Sizes<'a, F> {
    file: &'a mut F,
    length: u64,
}

#[derive(Clone, Copy)]
struct Section {
    offset: u64,
    size: u64,
}

impl Section {
    fn of(bytes: &[u8], at: usize) -> Option<Self> {
        Some(Self { offset: u64_at(bytes, at)?, size: u64_at(bytes, at.checked_add(8)?)? })
    }
}

impl<F: Read + Seek> Sizes<'_, F> {
    fn check(&mut self) -> Result<Container, String> {
        let header = self.bytes(Section { offset: 0, size: PIPE_HEADER_BYTES })?;
        if u64_at(&header, 8) == Some(PIPE_HEADER_BYTES) {
            let records = Section { offset: PIPE_HEADER_BYTES, size: self.length - PIPE_HEADER_BYTES };
            self.records(records, Container::Pipe)?;
            return Ok(Container::Pipe);
        }
        let header = self.bytes(Section { offset: 0, size: HEADER_BYTES as u64 })?;
        let attribute_bytes = u64_at(&header, 16).unwrap_or(0);
        let section = |at| Section::of(&header, at).ok_or_else(|| "its header is too short".to_owned());
        let (attributes, data, event_types) = (section(24)?, section(40)?, section(56)?);
        if !ATTRIBUTE_BYTES.contains(&attribute_bytes) {
            return Err(format!("an attribute of {attribute_bytes} bytes"));
        }
        if event_types.size != 0 {
            return Err("it was written by a perf of Linux 3.4 or older".to_owned());
        }
        let bytes = self.bytes(attributes)?;
        for entry in bytes.chunks_exact(attribute_bytes as usize) {
            let ids = Section::of(entry, entry.len() - SECTION_BYTES as usize);
            self.fits(ids.ok_or("an attribute is too short")?)?;
        }
        self.fits(data)?;
        let end_of_data = data.offset + data.size;
        let words: Vec<u64> = (0..4).filter_map(|word| u64_at(&header, 72 + 8 * word)).collect();
        let features: Vec<u32> = (0..256u32)
            .filter(|bit| words.get(*bit as usize / 64).is_some_and(|word| (word >> (bit % 64)) & 1 == 1))
            .collect();
        let table = Section { offset: end_of_data, size: SECTION_BYTES * features.len() as u64 };
        let table = self.bytes(table)?;
        let mut total = 0u64;
        for (bit, entry) in features.into_iter().zip(table.chunks_exact(SECTION_BYTES as usize)) {
            let section = Section::of(entry, 0).ok_or("a feature's section is too short")?;
            self.fits(section)?;
            total = total.saturating_add(section.size);
            if total > self.length {
                return Err("its features are larger than the file".to_owned());
            }
            if [HEADER_CMDLINE, HEADER_EVENT_DESC].contains(&bit) {
                feature_fits(bit, &self.bytes(section)?)?;
            }
        }
        self.records(data, Container::Sections)?;
        Ok(Container::Sections)
    }

    /// Whether a section lies in the file.
    fn fits(&self, section: Section) -> Result<(), String> {
        match section.offset.checked_add(section.size) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(format!(
                "{} bytes at {:#x} are beyond its end: was it cut?",
                section.size, section.offset
            )),
        }
    }

    fn bytes(&mut self, section: Section) -> Result<Vec<u8>, String> {
        self.fits(section)?;
        let mut bytes = Vec::new();
        let mut read = |file: &mut F| {
            file.seek(SeekFrom::Start(section.offset))?;
            file.by_ref().take(section.size).read_to_end(&mut bytes)
        };
        read(self.file).map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    /// Traces between the records are not longer than the rest of the file, and features among them hold what they
    /// count.
    fn records(&mut self, data: Section, container: Container) -> Result<(), String> {
        let of_reading = |error: io::Error| error.to_string();
        let length = self.length;
        let mut reader = BufReader::new(&mut *self.file);
        reader.seek(SeekFrom::Start(data.offset)).map_err(of_reading)?;
        let mut left = data.size;
        let mut is_begin = container == Container::Pipe;
        // The library reads on while something is left, also a record that ends behind the section.
        while left > 0 {
            let mut header = [0; 8];
            if reader.read_exact(&mut header).is_err() {
                return Ok(());
            }
            let record_type = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            let size = u64::from(u16::from_le_bytes([header[6], header[7]]));
            // What the reader makes of such a header is its affair: it reserves 64 KiB at most.
            let Some(mut body) = size.checked_sub(8) else { return Ok(()) };
            left = left.saturating_sub(size);
            if record_type == AUXTRACE && is_begin {
                // Of the first record the library does not pass over it.
                return Err("a hardware trace comes before what describes it".to_owned());
            }
            is_begin &= [HEADER_ATTR, HEADER_FEATURE].contains(&record_type);
            if record_type == FINISHED_ROUND {
                continue;
            }
            if record_type == AUXTRACE && body >= 8 {
                let mut trace = [0; 8];
                if reader.read_exact(&mut trace).is_err() {
                    return Ok(());
                }
                let trace = u64::from_le_bytes(trace);
                if trace > length {
                    return Err("a hardware trace is longer than the file".to_owned());
                }
                left = left.saturating_sub(trace);
                body = body - 8 + trace;
            }
            if record_type == HEADER_FEATURE && body >= 8 {
                let mut feature = vec![0; body as usize];
                // Cut off: that is how far the library reads, too.
                if reader.read_exact(&mut feature).is_err() {
                    return Ok(());
                }
                let number = u64_at(&feature, 0).unwrap_or(0);
                feature_fits(number as u32, feature.get(8..).unwrap_or_default())?;
                continue;
            }
            let body = i64::try_from(body).map_err(|_| "a record is longer than the file")?;
            reader.seek_relative(body).map_err(of_reading)?;
        }
        Ok(())
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}

/// Features whose counts are reserved for hold as much.
fn feature_fits(number: u32, bytes: &[u8]) -> Result<(), String> {
    match number {
        HEADER_CMDLINE => words_fit(bytes),
        HEADER_EVENT_DESC => descriptions_fit(bytes),
        _ => Some(()),
    }
    .ok_or_else(|| format!("feature {number} counts more than it holds"))
}

/// A count, and as many strings, each with its length before it.
fn words_fit(section: &[u8]) -> Option<()> {
    let mut at = 4usize;
    for _ in 0..u32_at(section, 0)? {
        at = at.checked_add(4)?.checked_add(u32_at(section, at)?)?;
        section.get(..at)?;
    }
    Some(())
}

/// A count, the size of an attribute, and as many attributes, each with a count of ids, a name, and its ids.
fn descriptions_fit(section: &[u8]) -> Option<()> {
    let (count, attribute_bytes) = (u32_at(section, 0)?, u32_at(section, 4)?);
    let mut at = 8usize;
    for _ in 0..count {
        at = at.checked_add(attribute_bytes)?;
        let (ids, name) = (u32_at(section, at)?, u32_at(section, at.checked_add(4)?)?);
        at = at.checked_add(8)?.checked_add(name)?.checked_add(ids.checked_mul(8)?)?;
        section.get(..at)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_do_not_fit_are_found() {
        let words = |list: &[u32]| list.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        // Two strings of 4 bytes.
        assert_eq!(words_fit(&words(&[2, 4, 0, 4, 0])), Some(()));
        assert_eq!(words_fit(&words(&[3, 4, 0, 4, 0])), None);
        assert_eq!(words_fit(&words(&[u32::MAX])), None);
        assert_eq!(words_fit(&words(&[1, u32::MAX, 0])), None);
        // One attribute of 8 bytes, with one id and a name of 4 bytes.
        assert_eq!(descriptions_fit(&words(&[1, 8, 0, 0, 1, 4, 0, 7, 7])), Some(()));
        assert_eq!(descriptions_fit(&words(&[1, 8, 0, 0, 2, 4, 0, 7, 7])), None);
        assert_eq!(descriptions_fit(&words(&[u32::MAX, 8, 0])), None);
    }

    /// A file of pipe mode with these bytes behind its header.
    fn checked(records: &[u8]) -> Result<Container, String> {
        let header = [&MAGIC[..], &PIPE_HEADER_BYTES.to_le_bytes()].concat();
        let mut bytes = [&header[..], records].concat();
        let length = bytes.len() as u64;
        Sizes { file: &mut io::Cursor::new(&mut bytes), length }.check()
    }

    #[test]
    fn traces_are_no_longer_than_the_file() {
        let record = |record_type: u32, size: u64, words: &[u64]| {
            let header = u64::from(record_type) | (size << 48);
            [&[header], words].concat().iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()
        };
        // Announced; a trace of 8 bytes.
        let info = record(70, 16, &[4]);
        let trace = |bytes| record(AUXTRACE, 48, &[bytes, 0, 0, 0, 0, 7]);
        assert_eq!(checked(&[info.clone(), trace(8)].concat()), Ok(Container::Pipe));
        assert!(checked(&[info.clone(), trace(1 << 40)].concat()).is_err());
        assert!(checked(&trace(8)).is_err(), "nothing was announced");
        // What the end of a round hides is read as a record.
        let round = record(FINISHED_ROUND, 8 + 48, &[]);
        assert!(checked(&[info, round, trace(1 << 40)].concat()).is_err());
    }
}
