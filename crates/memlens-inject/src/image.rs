//! ELF images as they lie in a process's memory: files may have been replaced since they were mapped.

use crate::target::{Mapping, Target};

/// An image: an executable or a library.
#[derive(Clone, Debug)]
pub struct Image {
    /// What it is called in the mappings.
    pub name: String,
    /// Added to the file's addresses.
    pub bias: u64,
    /// First address and the one behind the last, of all its parts.
    pub range: (u64, u64),
    /// Of its code.
    pub code: Vec<(u64, u64)>,
    /// Its functions that others can call: address, size and name, by address.
    pub functions: Vec<Function>,
    /// What it needs to be run by (`PT_INTERP`), or none.
    pub has_interpreter: bool,
}

/// A function of an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// Address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Name.
    pub name: String,
}

impl Image {
    /// The address of a function.
    pub fn function(&self, name: &str) -> Option<u64> {
        self.functions.iter().find(|function| function.name == name).map(|function| function.address)
    }

    /// From the end of the function before to the begin of the one behind those that `belongs` picks: the compiler's
    /// and linker's order keeps what a source file defines together, static functions included.
    pub fn surroundings(&self, belongs: impl Fn(&str) -> bool) -> Option<(u64, u64)> {
        let of = |function: &&Function| belongs(&function.name);
        let first = self.functions.iter().find(of)?.address;
        let (low, high) = self.code.iter().copied().find(|code| (code.0..code.1).contains(&first))?;
        let here = |function: &&Function| (low..high).contains(&function.address);
        let last = self.functions.iter().rev().filter(here).find(of)?.address;
        let before = self.functions.iter().take_while(|function| function.address < first);
        let start = before.map(|function| function.address.saturating_add(function.size.max(1))).max();
        let end = self.functions.iter().map(|function| function.address).find(|&address| address > last);
        Some((start.unwrap_or(low).clamp(low, first), end.unwrap_or(high).clamp(last, high)))
    }
}

/// All images of a process.
pub fn images(target: &Target, mappings: &[Mapping]) -> Vec<Image> {
    let is_file = |mapping: &&Mapping| {
        let name = mapping.name.as_str();
        mapping.file_offset == 0 && name.starts_with('/') && !name.starts_with("/dev/")
    };
    mappings.iter().filter(is_file).filter_map(|first| image_at(target, first)).collect()
}

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const INTERPRETER: u32 = 3;
const EXECUTABLE: u32 = 1;

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// A program header, without what is of no use here.
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    size: u64,
}

fn segment_of(row: &[u8]) -> Option<Segment> {
    let (kind, flags) = (word32(row, 0)?, word32(row, 4)?);
    Some(Segment { kind, flags, offset: word(row, 8)?, address: word(row, 16)?, size: word(row, 40)? })
}

/// The image whose ELF header lies at a mapping's start (System V gABI, "ELF Header", "Program Header").
fn image_at(target: &Target, first: &Mapping) -> Option<Image> {
    let header = target.bytes(first.start, 64)?;
    if header.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let (offset, size, count) = (word(&header, 32)?, half(&header, 54)?, half(&header, 56)?);
    let table = target.bytes(first.start.checked_add(offset)?, usize::from(size) * usize::from(count))?;
    let segments: Vec<Segment> =
        table.chunks_exact(usize::from(size).max(56)).filter_map(segment_of).collect();
    let loads = || segments.iter().filter(|segment| segment.kind == LOAD);
    // The mapping begins with the file, whatever pages are.
    let bias = loads().next().map(|load| first.start.wrapping_sub(load.address.wrapping_sub(load.offset)))?;
    let range_of = |segment: &Segment| {
        let start = bias.wrapping_add(segment.address);
        (start, start.wrapping_add(segment.size))
    };
    let dynamic = segments.iter().find(|segment| segment.kind == DYNAMIC);
    Some(Image {
        name: first.name.clone(),
        bias,
        range: (first.start, loads().map(|segment| range_of(segment).1).max()?),
        code: loads().filter(|segment| segment.flags & EXECUTABLE != 0).map(range_of).collect(),
        functions: dynamic.and_then(|segment| functions(target, bias, range_of(segment))).unwrap_or_default(),
        has_interpreter: segments.iter().any(|segment| segment.kind == INTERPRETER),
    })
}

/// The functions that an image's dynamic symbols define.
fn functions(target: &Target, bias: u64, dynamic: (u64, u64)) -> Option<Vec<Function>> {
    const STRINGS: u64 = 5;
    const SYMBOLS: u64 = 6;
    const STRING_BYTES: u64 = 10;
    const GNU_HASH: u64 = 0x6fff_fef5;
    let section = target.bytes(dynamic.0, usize::try_from(dynamic.1.checked_sub(dynamic.0)?).ok()?)?;
    let entries = section.as_chunks::<16>().0;
    let value = |tag: u64| {
        entries.iter().find(|entry| word(&entry[..], 0) == Some(tag)).and_then(|entry| word(&entry[..], 8))
    };
    let address = |tag: u64| {
        // glibc writes addresses over most offsets.
        value(tag).map(|value| if value < bias { value.wrapping_add(bias) } else { value })
    };
    let (symbols, strings) = (address(SYMBOLS)?, address(STRINGS)?);
    let count = symbol_count(target, address(GNU_HASH)?)?;
    let table = target.bytes(symbols, count.checked_mul(24)?)?;
    let names = target.bytes(strings, usize::try_from(value(STRING_BYTES)?).ok()?)?;
    let function = |row: &[u8]| {
        const FUNCTION: u8 = 2;
        const INDIRECT: u8 = 10;
        let kind = row[4] & 15;
        let is_defined = half(row, 6)? != 0 && [FUNCTION, INDIRECT].contains(&kind);
        let name = names.get(word32(row, 0)? as usize..)?.split(|&byte| byte == 0).next()?;
        is_defined.then_some(())?;
        Some(Function {
            address: word(row, 8)?.wrapping_add(bias),
            size: word(row, 16)?,
            name: String::from_utf8_lossy(name).into_owned(),
        })
    };
    let mut functions: Vec<Function> = table.chunks_exact(24).filter_map(function).collect();
    functions.sort_unstable();
    Some(functions)
}

/// How many dynamic symbols there are: the hash table's chains end with the last (binutils' `bfd/elflink.c`, layout
/// as glibc reads it in `elf/dl-lookup.c`).
fn symbol_count(target: &Target, table: u64) -> Option<usize> {
    let head = target.bytes(table, 16)?;
    let (buckets, first, filter) = (word32(&head, 0)?, word32(&head, 4)?, word32(&head, 8)?);
    let start = table.checked_add(16 + u64::from(filter) * 8)?;
    let heads = target.bytes(start, buckets as usize * 4)?;
    let last = (0..buckets as usize).filter_map(|at| word32(&heads, at * 4)).max()?;
    if last < first {
        return Some(first as usize);
    }
    let chains = start.checked_add(u64::from(buckets) * 4)?;
    let mut symbol = last;
    loop {
        let link = target.bytes(chains.checked_add(u64::from(symbol - first) * 4)?, 4)?;
        symbol = symbol.checked_add(1)?;
        if word32(&link, 0)? & 1 == 1 {
            return Some(symbol as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_libc_is_found_with_its_functions() {
        let target = Target::open(std::process::id()).expect("our own");
        let images = images(&target, &target.mappings().expect("readable"));
        let libc = images.iter().find(|image| image.function("gnu_get_libc_version").is_some());
        let libc = libc.expect("libc");
        // Beside the dynamic linker's own answer.
        // SAFETY: the name ends in a zero byte.
        let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) } as u64;
        assert_eq!(libc.function("malloc"), Some(expected));
        assert!(libc.code.iter().any(|range| (range.0..range.1).contains(&expected)));
        let (start, end) = libc.surroundings(|name| name == "malloc").expect("something");
        assert!((start..end).contains(&expected));
        assert!(images.iter().any(|image| image.has_interpreter));
    }

    /// A library as it lies in memory: code, `malloc` and `free`.
    fn library() -> Vec<u64> {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let symbol = |name: u32, value: u64| [pair(name, 0x0001_0012), value, 0x10];
        let mut words = vec![u64::from_le_bytes(*b"\x7fELF\x02\x01\x01\0"), 0, 0, 0, 64, 0, 56 << 48, 2];
        words.extend([pair(LOAD, EXECUTABLE), 0, 0, 0, 0x400, 0x400, 0x1000]);
        words.extend([pair(DYNAMIC, 0), 176, 176, 0, 80, 80, 8]);
        words.extend([6, 296, 5, 368, 10, 13, 0x6fff_fef5, 256, 0, 0]);
        // One bucket, from symbol 1 on; one word of the filter; chains of symbols 1 and 2, the last.
        words.extend([pair(1, 1), pair(1, 0), 0, pair(1, 0), pair(1, 0)]);
        words.extend([[0; 3], symbol(1, 0x200), symbol(8, 0x300)].concat());
        words.extend([u64::from_le_bytes(*b"\0malloc\0"), u64::from_le_bytes(*b"free\0\0\0\0")]);
        words.resize(0x400 / 8, 0);
        words
    }

    #[test]
    fn an_image_lies_where_its_file_begins_whatever_pages_are() {
        let target = Target::open(std::process::id()).expect("our own");
        let mut words = library();
        // Of the first segment: its code, from 0x120 on, at an address that is no page's beginning where pages have 64 KiB.
        const OFFSET: usize = 9;
        const ADDRESS: usize = 10;
        const DYNAMIC_ADDRESS: usize = 17;
        (words[OFFSET], words[ADDRESS], words[DYNAMIC_ADDRESS]) = (0x120, 0x1_3120, 0x1_30b0);
        for symbol in [1, 2] {
            words[37 + 3 * symbol + 1] += 0x1_3000;
        }
        let start = words.as_ptr() as u64;
        let [is_executable, is_writable] = [false; 2];
        let name = "/lib/t.so".to_owned();
        let mapping = Mapping { start, end: start, file_offset: 0, is_executable, is_writable, name };
        let image = images(&target, &[mapping]).pop().expect("one");
        assert_eq!(image.bias, start.wrapping_sub(0x1_3000));
        assert_eq!(image.code, [(start + 0x120, start + 0x520)]);
    }

    #[test]
    fn damaged_images_are_read_as_far_as_they_make_sense() {
        let target = Target::open(std::process::id()).expect("our own");
        let is_ours = |name: &str| ["malloc", "free"].contains(&name);
        let read = |words: &[u64]| {
            let start = words.as_ptr() as u64;
            let [is_executable, is_writable] = [false; 2];
            let name = "/lib/t.so".to_owned();
            let mapping = Mapping { start, end: start, file_offset: 0, is_executable, is_writable, name };
            (start, images(&target, &[mapping]))
        };
        let whole = library();
        let (start, images) = read(&whole);
        assert_eq!(images[0].function("free"), Some(start + 0x300));
        assert_eq!(images[0].surroundings(is_ours), Some((start, start + 0x400)));
        for at in 0..whole.len() {
            let low = u64::from(u32::MAX);
            for value in [0, 1, low, low << 32, 1 << 46, i64::MAX as u64, u64::MAX - 7, u64::MAX] {
                for value in [value, whole[at] & !low | value & low, whole[at] & low | value & !low] {
                    let mut words = whole.clone();
                    words[at] = value;
                    for image in read(&words).1 {
                        assert!(image.functions.is_sorted());
                        assert!(image.surroundings(is_ours).is_none_or(|(low, high)| low < high));
                    }
                }
            }
        }
    }
}
