//! Lackey's traces.

use std::io::BufReader;

use memlens_import::{Access, LackeyError, LackeyReader};
use memlens_types::AccessKind;

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let trace = "==7== Lackey, an example Valgrind tool\nI  04016000,3\n S 1ffefff9f8,8\n L 04227f10,4\n\
                 program output\n M 0421747c,4294967295\nI  ffffffffffffffff,15\nSB 0401\n\n L 0421,16\n";
    let odd = " L 0,1\n L ,1\n S 1,\n M 12345678901234567,8\n L 4,00000000001\n L 4,0000000001\n L 4,1\r\n I 4,4\n L 4,16";
    vec![trace.into(), odd.into()]
}

/// What a line is.
#[derive(Debug, PartialEq)]
enum Line {
    Access(Access),
    Bad(u64),
    Other,
}

pub(crate) fn check(bytes: &[u8]) {
    let mut lines: Vec<_> = bytes.split(|&byte| byte == b'\n').collect();
    let ends_whole = bytes.is_empty() || bytes.ends_with(b"\n");
    if ends_whole {
        lines.pop();
    }
    let total = lines.len();
    let expected: Vec<_> = lines
        .iter()
        .enumerate()
        .map(|(index, line)| read_line(line, index as u64 + 1, !ends_whole && index + 1 == total))
        .collect();
    let other = expected.iter().filter(|line| **line == Line::Other).count() as u64;
    let expected: Vec<_> = expected.into_iter().filter(|line| *line != Line::Other).collect();
    for capacity in [1, 37, bytes.len() + 1] {
        let mut reader = LackeyReader::new(BufReader::with_capacity(capacity, bytes));
        let found: Vec<_> = reader
            .by_ref()
            .map(|access| match access {
                Ok(access) => Line::Access(access),
                Err(
                    LackeyError::Syntax { line, .. }
                    | LackeyError::Truncated { line, .. }
                    | LackeyError::Range { line, .. },
                ) => Line::Bad(line),
                Err(error) => panic!("{error}"),
            })
            .collect();
        assert_eq!(found, expected, "buffer of {capacity} bytes");
        assert_eq!((reader.lines(), reader.skipped_lines()), (total as u64, other));
    }
}

/// The grammar of [`LackeyReader`], a line at a time.
fn read_line(line: &[u8], number: u64, cut: bool) -> Line {
    let kinds = [
        (b"I  ", AccessKind::Fetch),
        (b" L ", AccessKind::Load),
        (b" S ", AccessKind::Store),
        (b" M ", AccessKind::Modify),
    ];
    let kind = kinds.into_iter().find(|(prefix, _)| line.starts_with(*prefix));
    let Some((_, kind)) = kind.filter(|_| line.get(3).is_some_and(u8::is_ascii_hexdigit)) else {
        return Line::Other;
    };
    let numbers = || {
        let (addr, size) = std::str::from_utf8(&line[3..]).ok()?.split_once(',')?;
        let fits = addr.len() <= 16
            && size.len() <= 10
            && addr.bytes().all(|byte| byte.is_ascii_hexdigit())
            && size.bytes().all(|byte| byte.is_ascii_digit());
        let addr = u64::from_str_radix(addr, 16).ok()?;
        let size = size.parse().ok().filter(|size| *size > 0)?;
        (fits && !cut).then_some(Access { kind, addr, size })
    };
    numbers().map_or(Line::Bad(number), Line::Access)
}
