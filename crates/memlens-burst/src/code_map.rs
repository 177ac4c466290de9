//! Which code may be translated: whatever can be read and executed. Private mappings of files that cannot be written,
//! and the kernel's own code (`[vdso]`), stay as they are; all other code is *generated*: it may change, or be unmapped, at
//! any time. It is translated from a copy, with which its blocks compare it later (`translate.rs` says when).
//!
//! Source: proc_pid_maps(5).

use memlens_inside::own_memory;

use crate::arch::WINDOW_BYTES;
use crate::sys::{copy_own, give_back, read_file};
use crate::table::Table;

const MOST_RANGES: usize = 4096;
const TEXT_BYTES: usize = 1 << 20;

/// Code that may be translated.
pub trait CodeSource {
    /// Some code from `pc` on, [`WINDOW_BYTES`] at most; None: what is there is not translated.
    ///
    /// # Safety
    /// The calling thread executes code in its process at `pc`, or may so soon.
    unsafe fn code_at(&mut self, pc: u64) -> Option<&[u8]>;
}

/// A mapping of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeRange {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// Whether its code may change.
    pub is_generated: bool,
}

/// The mappings of code, as of the last look.
#[derive(Debug)]
pub struct CodeMap {
    ranges: Table<CodeRange>,
    text: *mut u8,
    /// Generated code, as it was when it was asked for.
    copy: [u8; WINDOW_BYTES],
}

impl CodeMap {
    /// Empty. None: the kernel has no memory.
    pub fn new() -> Option<Self> {
        Some(Self {
            ranges: Table::with_capacity(MOST_RANGES)?,
            text: own_memory(TEXT_BYTES)?,
            copy: [0; WINDOW_BYTES],
        })
    }

    /// Reads the process's mappings. Cost: a read of `/proc/self/maps`, 10 to 100 µs.
    pub fn look(&mut self) {
        // SAFETY: memory that is this map's alone.
        let text = unsafe { core::slice::from_raw_parts_mut(self.text, TEXT_BYTES) };
        self.ranges.clear();
        let Some(length) = read_file(c"/proc/self/maps", text) else { return };
        for line in text[..length].split(|&byte| byte == b'\n') {
            if self.ranges.room() > 0
                && let Some(range) = code_range(line)
            {
                self.ranges.push(range);
            }
        }
    }

    /// Gives its memory back.
    pub fn discard(self) {
        self.ranges.discard();
        // SAFETY: its own memory, which nobody can borrow any more.
        unsafe { give_back(self.text, TEXT_BYTES) };
    }

    /// The mapping of code around an address.
    pub fn range_of(&self, pc: u64) -> Option<CodeRange> {
        let at = self.ranges.partition_point(|range| range.end <= pc);
        self.ranges.get(at).copied().filter(|range| range.start <= pc)
    }
}

impl CodeSource for CodeMap {
    unsafe fn code_at(&mut self, pc: u64) -> Option<&[u8]> {
        let range = self.range_of(pc)?;
        let length = usize::try_from(range.end - pc).map_or(WINDOW_BYTES, |bytes| bytes.min(WINDOW_BYTES));
        if range.is_generated {
            let copied = copy_own(pc, &mut self.copy[..length]);
            return (copied > 0).then_some(&self.copy[..copied]);
        }
        // SAFETY: mapped code of a file, which nothing unmaps while the thread that asks runs in it or may soon: a program
        // that unmaps the code that it is about to execute has ended.
        Some(unsafe { core::slice::from_raw_parts(pc as *const u8, length) })
    }
}

/// A line's mapping, if its code may be translated.
fn code_range(line: &[u8]) -> Option<CodeRange> {
    let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let (addresses, permissions) = (fields.next()?, fields.next()?);
    let path = fields.nth(3).unwrap_or_default();
    let [b'r', _, b'x', _] = permissions else { return None };
    let is_file = path.starts_with(b"/") && !path.starts_with(b"/memfd:") && !path.starts_with(b"/dev/");
    let is_generated = permissions != b"r-xp" || !(is_file || path == b"[vdso]");
    let dash = addresses.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (hexadecimal(&addresses[..dash])?, hexadecimal(&addresses[dash + 1..])?);
    Some(CodeRange { start, end, is_generated })
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    digits
        .iter()
        .try_fold(0u64, |number, &digit| Some(number << 4 | u64::from((digit as char).to_digit(16)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_files_is_told_from_generated_code() {
        let cases = [
            (&b"55d0-55e0 r-xp 00002000 08:02 1234    /usr/bin/a b"[..], Some((0x55d0, 0x55e0, false))),
            (b"7fff1000-7fff2000 r-xp 00000000 00:00 0    [vdso]", Some((0x7fff_1000, 0x7fff_2000, false))),
            (b"55d0-55e0 rwxp 00002000 08:02 1234    /usr/bin/a", Some((0x55d0, 0x55e0, true))),
            (b"55d0-55e0 r-xp 00000000 00:00 0 ", Some((0x55d0, 0x55e0, true))),
            (b"55d0-55e0 r-xs 00000000 00:01 7    /memfd:jit (deleted)", Some((0x55d0, 0x55e0, true))),
            (b"55d0-55e0 --xp 00000000 00:00 0    [vsyscall]", None),
            (b"55d0-55e0 rw-p 00000000 00:00 0    [heap]", None),
            (b"", None),
        ];
        for (line, expected) in cases {
            let expected = expected.map(|(start, end, is_generated)| CodeRange { start, end, is_generated });
            assert_eq!(code_range(line), expected);
        }
    }

    #[test]
    fn our_own_code_is_found() {
        let mut map = CodeMap::new().expect("memory");
        map.look();
        let here = our_own_code_is_found as *const () as u64;
        let range = map.range_of(here).expect("mapped");
        assert!(range.start <= here && here < range.end);
        assert_eq!(map.range_of(8), None);
        assert_eq!(map.range_of(&raw const map as u64), None, "the stack is no code");
    }
}
