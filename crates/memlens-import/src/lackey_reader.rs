//! The trace that `valgrind --tool=lackey --trace-mem=yes` writes.

use std::io::{self, BufRead};

use memchr::memchr;
use memlens_types::AccessKind;

use crate::{Access, LackeyError};

/// No access is longer than this: 3 bytes of kind, 16 digits, a comma, 10 digits, a line end. Where
/// so many bytes are buffered, a line is read without a look for its end.
const LONGEST_LINE_BYTES: usize = 3 + 16 + 1 + 10 + 1;

/// A stream of [`Access`]es from lackey's trace.
///
/// An iterator: it ends (`None`) at the end of the source or after an error of the source. Lines
/// that are no accesses do not show; [`skipped_lines`](Self::skipped_lines) counts them.
///
/// # Grammar
///
/// From `lackey/lk_main.c` of valgrind 3.19, functions `trace_instr`, `trace_load`, `trace_store`,
/// `trace_modify` (formats `"I  %08lx,%lu\n"`, `" L %08lx,%lu\n"` and so on):
///
/// | line | meaning |
/// |---|---|
/// | `I  04016000,3` | fetch of 3 bytes at 0x04016000 |
/// | ` L 1ffefff9f8,8` | load |
/// | ` S 1ffefff9f8,8` | store |
/// | ` M 0421747c,4` | modify: load and store by one instruction |
/// | anything else | the tool's messages (`==pid==`, `--pid--`, `**pid**`), superblocks (`SB addr`), or output of the program: skipped and counted |
///
/// A line is an access when it starts with one of the four prefixes and a hexadecimal digit; from
/// there on it must be one, else it is an error, not skipped: a damaged trace is no shorter trace.
/// A program that writes such lines itself into the same stream cannot be told from lackey; give
/// lackey a file of its own (`--log-file=FILE`).
///
/// # Accounting
///
/// Lackey gives one line for each memory operand of VEX's intermediate code after the instruction
/// is split, which is what cachegrind counts too: `rep movs` gives a line an element, a conditional
/// move from memory a line whether it moves or not.
///
/// # Cost
///
/// No allocation a line, about 6 ns a line on a Zen 5 server core (`examples/lackey_speed.rs`).
#[derive(Debug)]
pub struct LackeyReader<R> {
    source: R,
    /// A line that straddles two buffers of the source, as far as it is known.
    partial: Vec<u8>,
    lines: u64,
    skipped_lines: u64,
    ended: bool,
}

impl<R: BufRead> LackeyReader<R> {
    /// A reader at the start of a trace. Give it a source with a large buffer (1 MiB).
    pub fn new(source: R) -> Self {
        Self { source, partial: Vec::new(), lines: 0, skipped_lines: 0, ended: false }
    }

    /// How many lines have been read.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// How many of them were no accesses: messages and output of the program.
    pub fn skipped_lines(&self) -> u64 {
        self.skipped_lines
    }

    /// Takes a line's outcome: `None` means it was no access, go on.
    fn accept(&mut self, outcome: Line) -> Option<Result<Access, LackeyError>> {
        self.lines += 1;
        match outcome {
            Line::Access(access) => Some(Ok(access)),
            Line::Other => {
                self.skipped_lines += 1;
                None
            }
            Line::Bad(defect) => Some(Err(defect.at(self.lines))),
        }
    }

    /// Reads the next line slowly: it may straddle buffers of the source, be the last one, or be
    /// no access. `None` at the end of the source.
    fn next_line(&mut self) -> Option<Result<Line, LackeyError>> {
        self.partial.clear();
        loop {
            let buffer = match self.source.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Some(Err(LackeyError::Read { line: self.lines, kind: error.kind() }));
                }
            };
            if buffer.is_empty() {
                if self.partial.is_empty() {
                    return None;
                }
                return Some(Ok(parse_line(&self.partial, true)));
            }
            match memchr(b'\n', buffer) {
                Some(end) if self.partial.is_empty() => {
                    let line = parse_line(&buffer[..end], false);
                    self.source.consume(end + 1);
                    return Some(Ok(line));
                }
                Some(end) => {
                    keep(&mut self.partial, &buffer[..end]);
                    self.source.consume(end + 1);
                    return Some(Ok(parse_line(&self.partial, false)));
                }
                None => {
                    let taken = buffer.len();
                    keep(&mut self.partial, buffer);
                    self.source.consume(taken);
                }
            }
        }
    }
}

/// Adds to a partial line, of which only the first bytes matter: a program's output may have no
/// line ends at all, and must not fill the memory.
fn keep(partial: &mut Vec<u8>, bytes: &[u8]) {
    let room = (2 * LONGEST_LINE_BYTES).saturating_sub(partial.len());
    partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

impl<R: BufRead> Iterator for LackeyReader<R> {
    type Item = Result<Access, LackeyError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        loop {
            // The usual case: a whole access is buffered.
            let ahead = self.source.fill_buf().ok().and_then(parse_ahead);
            if let Some((access, length)) = ahead {
                self.source.consume(length);
                self.lines += 1;
                return Some(Ok(access));
            }
            match self.next_line() {
                Some(Ok(line)) => {
                    if let Some(item) = self.accept(line) {
                        return Some(item);
                    }
                }
                Some(Err(error)) => {
                    self.ended = true;
                    return Some(Err(error));
                }
                None => {
                    self.ended = true;
                    return None;
                }
            }
        }
    }
}

/// What a line is.
enum Line {
    Access(Access),
    Other,
    Bad(Defect),
}

/// A [`LackeyError`] that does not know its line yet.
#[derive(Clone, Copy)]
enum Defect {
    Syntax { offset: usize, found: u8 },
    Truncated { offset: usize },
    Range { offset: usize },
}

impl Defect {
    fn at(self, line: u64) -> LackeyError {
        // Offsets lie inside the first 62 bytes of a line (see `keep`, and no parse goes on behind
        // the longest possible access), so the casts are exact.
        match self {
            Self::Syntax { offset, found } => {
                LackeyError::Syntax { line, offset: offset as u32, found: found as char }
            }
            Self::Truncated { offset } => LackeyError::Truncated { line, offset: offset as u32 },
            Self::Range { offset } => LackeyError::Range { line, offset: offset as u32 },
        }
    }
}

/// Value of a hexadecimal digit in either case, or 0xff.
const HEX: [u8; 256] = {
    let mut table = [0xff; 256];
    let mut digit = 0;
    while digit < 16 {
        table[b"0123456789abcdef"[digit] as usize] = digit as u8;
        table[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
        digit += 1;
    }
    table
};

#[inline]
fn kind_of(prefix: [u8; 3]) -> Option<AccessKind> {
    Some(match &prefix {
        b"I  " => AccessKind::Fetch,
        b" L " => AccessKind::Load,
        b" S " => AccessKind::Store,
        b" M " => AccessKind::Modify,
        _ => return None,
    })
}

/// Reads a well-formed access at the start of `buffer` and says how many bytes it took, line end
/// included. `None`: not one, or not enough bytes to be sure; [`parse_line`] then says what it is.
#[inline]
fn parse_ahead(buffer: &[u8]) -> Option<(Access, usize)> {
    let buffer: &[u8; LONGEST_LINE_BYTES] = buffer.first_chunk()?;
    let kind = kind_of([buffer[0], buffer[1], buffer[2]])?;
    let mut at = 3;
    let mut addr = 0_u64;
    // At most 16 digits: then a comma must have come.
    while at < 19 {
        let digit = HEX[usize::from(buffer[at])];
        if digit == 0xff {
            break;
        }
        addr = addr << 4 | u64::from(digit);
        at += 1;
    }
    if at == 3 || buffer[at] != b',' {
        return None;
    }
    at += 1;
    // At most 9 digits, which fit 32 bits. Longer ones go the slow way.
    let size_start = at;
    let mut size = 0_u32;
    while at < size_start + 9 {
        let digit = buffer[at].wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        size = size * 10 + u32::from(digit);
        at += 1;
    }
    if size == 0 || buffer[at] != b'\n' {
        return None;
    }
    Some((Access { kind, addr, size }, at + 1))
}

/// Says what a line without its line end is. `cut`: the source ended in it.
fn parse_line(line: &[u8], cut: bool) -> Line {
    let Some((&prefix, rest)) = line.split_first_chunk::<3>() else {
        return Line::Other;
    };
    let Some(kind) = kind_of(prefix) else {
        return Line::Other;
    };
    if rest.first().is_none_or(|&byte| HEX[usize::from(byte)] == 0xff) {
        return Line::Other;
    }
    let mut at = 3;
    let mut addr = 0_u64;
    while let Some(&byte) = line.get(at) {
        let digit = HEX[usize::from(byte)];
        if digit == 0xff {
            break;
        }
        if at == 3 + 16 {
            return Line::Bad(Defect::Range { offset: at });
        }
        addr = addr << 4 | u64::from(digit);
        at += 1;
    }
    match line.get(at) {
        Some(b',') => at += 1,
        Some(&found) => return Line::Bad(Defect::Syntax { offset: at, found }),
        None => return Line::Bad(ends_early(at, cut)),
    }
    let size_start = at;
    let mut size = 0_u32;
    while let Some(&byte) = line.get(at) {
        if !byte.is_ascii_digit() {
            return Line::Bad(Defect::Syntax { offset: at, found: byte });
        }
        let grown = size.checked_mul(10).and_then(|size| size.checked_add(u32::from(byte - b'0')));
        let Some(grown) = grown.filter(|_| at < size_start + 10) else {
            return Line::Bad(Defect::Range { offset: at });
        };
        size = grown;
        at += 1;
    }
    // A cut line whose size seems complete may have lost digits (`,1` of `,16`): say so.
    if at == size_start || cut {
        return Line::Bad(ends_early(at, cut));
    }
    if size == 0 {
        return Line::Bad(Defect::Range { offset: at });
    }
    Line::Access(Access { kind, addr, size })
}

/// A line that ends inside its numbers: cut with the trace, or wrong in the middle of it.
fn ends_early(offset: usize, cut: bool) -> Defect {
    if cut { Defect::Truncated { offset } } else { Defect::Syntax { offset, found: b'\n' } }
}

#[cfg(test)]
mod tests;
