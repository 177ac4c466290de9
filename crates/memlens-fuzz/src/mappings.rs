//! The text of `/proc/PID/maps` (proc_pid_maps(5)), as memlens and its library in the target read it.

use memlens_placement::{file_start, reserved_mapping};
use memlens_sample::{NewMapping, mappings_of};

const PID: u32 = 7;
const RESERVED: &str = "/anon_hugepage (deleted)";

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let program = "555555554000-555555556000 r--p 00000000 fe:00 1321                       /usr/bin/t\n\
        555555556000-55555555b000 r-xp 00002000 fe:00 1321                       /usr/bin/t\n\
        555555560000-555555581000 rw-p 00000000 00:00 0                          [heap]\n\
        7ffff7c00000-7ffff7c26000 r--p 00000000 fe:00 43                         /opt/a b/libc.so.6\n\
        7ffff7fc1000-7ffff7fc3000 r-xp 00000000 00:00 0                          [vdso]\n\
        7ffff7fff000-7ffff8000000 rw-p 00000000 00:00 0 \n\
        7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0                          [stack]\n\
        ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";
    let other = "7f5d4c400000-7f5d4cc00000 rw-p 00000000 00:0f 77                         /anon_hugepage (deleted)\n\
        7f5d4d000000-7f5d4d001000 rw-s 00000000 00:01 1048601                    /memfd:jit (deleted)\n\
        7f5d4e000000-7f5d4e001000 r--s 7fffffff000 103:1b 18446744073709551615   /tmp/new\\012line \n\
        7f5d4f000000-7f5d4f001000 ---p 00000000 00:00 0                          [anon:stack guard]\n\
        10000-10000 r-xp 0 0:0 1 /e\nffff-1000 r-xp 0 0:0 1 /f\n+1-+2 r-xp +0 x +7\t/g\r\n\n";
    vec![program.into(), other.into()]
}

pub(crate) fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut all = Vec::new();
    for line in text.split('\n') {
        let found = mappings_of(line, PID);
        let expected = read_line(line);
        if let Some(expected) = &expected {
            check_line(line, expected, &found);
        }
        for mapping in &found {
            assert_eq!(mappings_of(&write(mapping), PID), found, "{line:?}");
        }
        all.extend(found);
    }
    assert_eq!(mappings_of(&text, PID), all, "lines by themselves are the text");
}

/// A line as the kernel writes it says the same to all who read it.
fn check_line(line: &str, expected: &Line<'_>, found: &[NewMapping]) {
    let &Line { start, end, is_executable, is_reserved, offset, inode, name } = expected;
    let mapping = |length| NewMapping {
        pid: PID,
        start,
        length,
        file_offset: offset,
        inode,
        is_executable,
        is_reserved,
        name: name.to_owned(),
    };
    assert_eq!(found, end.checked_sub(start).map(mapping).as_slice(), "{line:?}");
    let file = (offset == 0 && name.starts_with('/')).then_some((start, name.as_bytes()));
    assert_eq!(file_start(line.as_bytes()), file, "{line:?}");
    let reserved = (name == RESERVED).then_some((start, end));
    assert_eq!(reserved_mapping(line.as_bytes()), reserved, "{line:?}");
}

/// As the kernel writes it: names begin in column 74.
fn write(mapping: &NewMapping) -> String {
    let &NewMapping { start, length, file_offset, inode, is_executable, is_reserved, ref name, .. } = mapping;
    let read = if is_reserved { '-' } else { 'r' };
    let execute = if is_executable { 'x' } else { '-' };
    let numbers =
        format!("{start:08x}-{:08x} {read}-{execute}p {file_offset:08x} 00:00 {inode} ", start + length);
    format!("{numbers:73}{name}")
}

/// What a line of the kernel's says.
struct Line<'a> {
    start: u64,
    end: u64,
    is_executable: bool,
    is_reserved: bool,
    offset: u64,
    inode: u64,
    name: &'a str,
}

/// `START-END PERMISSIONS OFFSET MAJOR:MINOR INODE`, a blank, and the name, if any, behind more of them.
fn read_line(line: &str) -> Option<Line<'_>> {
    let mut parts = line.splitn(6, ' ');
    let (start, end) = parts.next()?.split_once('-')?;
    let [read, write, execute, shared] = parts.next()?.as_bytes() else { return None };
    let permissions = [(read, b"r-"), (write, b"w-"), (execute, b"x-"), (shared, b"sp")];
    let offset = number(parts.next()?, 16)?;
    let (major, minor) = parts.next()?.split_once(':')?;
    number(major, 16).and(number(minor, 16))?;
    let inode = number(parts.next()?, 10)?;
    let name = parts.next()?.trim_start_matches(' ');
    let is_name = name.is_empty() || name.starts_with(['/', '[']);
    (is_name && permissions.iter().all(|(is, may)| may.contains(is))).then_some(Line {
        start: number(start, 16)?,
        end: number(end, 16)?,
        is_executable: *execute == b'x',
        is_reserved: [read, write, execute].iter().all(|&&may| may == b'-'),
        offset,
        inode,
        name,
    })
}

/// Digits only, 16 at most of those in hexadecimal.
fn number(digits: &str, radix: u32) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    (is_number && (radix != 16 || digits.len() <= 16)).then(|| u64::from_str_radix(digits, radix).ok())?
}
