//! Which code may be translated: private mappings of files that can be read and executed and not written, and the
//! kernel's own code (`[vdso]`). Code that a program generates is left alone: it may change while it runs.
//!
//! Source: proc_pid_maps(5).

use crate::sys::{give_back, own_memory, read_file};
use crate::table::Table;
use crate::trace::CodeSource;

const MOST_RANGES: usize = 4096;
const TEXT_BYTES: usize = 1 << 20;

/// A mapping of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeRange {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
}

/// The mappings of code, as of the last look.
#[derive(Debug)]
pub struct CodeMap {
    ranges: Table<CodeRange>,
    text: *mut u8,
}

impl CodeMap {
    /// Empty. None: the kernel has no memory.
    pub fn new() -> Option<Self> {
        Some(Self { ranges: Table::with_capacity(MOST_RANGES)?, text: own_memory(TEXT_BYTES)? })
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
    fn readable_until(&self, pc: u64) -> Option<u64> {
        self.range_of(pc).map(|range| range.end)
    }
}

/// A line's mapping, if its code may be translated.
fn code_range(line: &[u8]) -> Option<CodeRange> {
    let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let (addresses, permissions) = (fields.next()?, fields.next()?);
    let path = fields.nth(3)?;
    let is_code = permissions == b"r-xp"
        && (path == b"[vdso]"
            || path.starts_with(b"/") && !path.starts_with(b"/memfd:") && !path.starts_with(b"/dev/"));
    if !is_code {
        return None;
    }
    let dash = addresses.iter().position(|&byte| byte == b'-')?;
    Some(CodeRange { start: hexadecimal(&addresses[..dash])?, end: hexadecimal(&addresses[dash + 1..])? })
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
    fn only_code_of_files_is_translated() {
        let cases = [
            (&b"55d0-55e0 r-xp 00002000 08:02 1234    /usr/bin/a b"[..], Some((0x55d0, 0x55e0))),
            (b"7fff1000-7fff2000 r-xp 00000000 00:00 0    [vdso]", Some((0x7fff_1000, 0x7fff_2000))),
            (b"55d0-55e0 rwxp 00002000 08:02 1234    /usr/bin/a", None),
            (b"55d0-55e0 r-xp 00000000 00:00 0 ", None),
            (b"55d0-55e0 r-xs 00000000 00:01 7    /memfd:jit (deleted)", None),
            (b"", None),
        ];
        for (line, expected) in cases {
            assert_eq!(code_range(line), expected.map(|(start, end)| CodeRange { start, end }));
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
