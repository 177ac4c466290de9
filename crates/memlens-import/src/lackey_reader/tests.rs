//! The reader against hand-written lines, and against a twin that splits and converts strings.

use std::io::{BufReader, Read};

use proptest::prelude::*;

use super::*;

/// Everything a trace gives: items, lines, skipped lines.
type Outcome = (Vec<Result<Access, LackeyError>>, u64, u64);

fn read(trace: &[u8], buffer_bytes: usize) -> Outcome {
    let mut reader = LackeyReader::new(BufReader::with_capacity(buffer_bytes, trace));
    let items = reader.by_ref().collect();
    (items, reader.lines(), reader.skipped_lines())
}

/// The obvious, slow twin. It knows good lines, other lines and bad ones, but not where a bad line
/// is bad: its errors are only lines.
fn twin(trace: &[u8]) -> (Vec<Result<Access, u64>>, u64, u64) {
    let (mut items, mut lines, mut skipped) = (Vec::new(), 0, 0);
    for with_end in trace.split_inclusive(|&byte| byte == b'\n') {
        lines += 1;
        let (line, cut) = match with_end.strip_suffix(b"\n") {
            Some(line) => (line, false),
            None => (with_end, true),
        };
        let line: String = line.iter().map(|&byte| byte as char).collect();
        let kind = match line.get(..3) {
            Some("I  ") => AccessKind::Fetch,
            Some(" L ") => AccessKind::Load,
            Some(" S ") => AccessKind::Store,
            Some(" M ") => AccessKind::Modify,
            _ => {
                skipped += 1;
                continue;
            }
        };
        let numbers = &line[3..];
        if !numbers.starts_with(|first: char| first.is_ascii_hexdigit()) {
            skipped += 1;
            continue;
        }
        let access = numbers.split_once(',').and_then(|(addr, size)| {
            // from_str_radix takes a sign; the grammar does not.
            let plain = |text: &str| text.chars().all(|digit| digit.is_ascii_hexdigit());
            if cut || !plain(addr) || !plain(size) || addr.len() > 16 || size.len() > 10 {
                return None;
            }
            let addr = u64::from_str_radix(addr, 16).ok()?;
            let size = size.parse().ok().filter(|&size: &u32| size > 0)?;
            Some(Access { kind, addr, size })
        });
        items.push(access.ok_or(lines));
    }
    (items, lines, skipped)
}

fn line_of(error: LackeyError) -> u64 {
    match error {
        LackeyError::Syntax { line, .. }
        | LackeyError::Truncated { line, .. }
        | LackeyError::Range { line, .. }
        | LackeyError::Read { line, .. } => line,
    }
}

#[test]
fn a_real_trace_with_messages_and_output_between() {
    // The head of `valgrind --tool=lackey --trace-mem=yes true`, with a program's line put between.
    let trace = b"==71== Lackey, an example Valgrind tool\n\
        ==71== \n\
        I  04017a90,3\n\
        \x20S 1fff0001e8,8\n\
        hello, I am the program\n\
        \x20L 04037e68,8\n\
        \x20M 0421747c,4\n\
        ==71== Exit code:       0\n";
    let access = |kind, addr, size| Ok(Access { kind, addr, size });
    let expected = vec![
        access(AccessKind::Fetch, 0x0401_7a90, 3),
        access(AccessKind::Store, 0x1f_ff00_01e8, 8),
        access(AccessKind::Load, 0x0403_7e68, 8),
        access(AccessKind::Modify, 0x0421_747c, 4),
    ];
    assert_eq!(read(trace, 1 << 16), (expected, 8, 4));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let syntax = |offset, found| LackeyError::Syntax { line: 1, offset, found };
    let range = |offset| LackeyError::Range { line: 1, offset };
    for (line, expected) in [
        // Offsets by hand: the kind takes bytes 0 to 2.
        (" L 12x4,8\n", syntax(5, 'x')),
        (" L 1234\n", syntax(7, '\n')),
        (" L 1234,\n", syntax(8, '\n')),
        (" L 1234,8 \n", syntax(9, ' ')),
        (" L 1234,8,8\n", syntax(9, ',')),
        (" L 1234,-8\n", syntax(8, '-')),
        (" L 1234,0\n", range(9)),
        // The 17th digit, at byte 19, is one too many.
        (" L 123456789abcdef01,8\n", range(19)),
        // 4294967296 is 2^32: its last digit, at byte 14, is what makes it too large.
        (" L 1,4294967296\n", range(14)),
        (" L 1234", LackeyError::Truncated { line: 1, offset: 7 }),
        // Perhaps 16 was meant.
        (" L 1234,1", LackeyError::Truncated { line: 1, offset: 9 }),
    ] {
        assert_eq!(read(line.as_bytes(), 4096), (vec![Err(expected)], 1, 0), "{line:?}");
    }
    for line in [" L \n", " L ,8\n", " L", "I 04016000,3\n", "L 1234,8\n", "\n", " L -1,8\n"] {
        assert_eq!(read(line.as_bytes(), 4096), (vec![], 1, 1), "{line:?}");
    }
}

#[test]
fn the_extremes_of_both_numbers_are_read() {
    let access = Ok(Access { kind: AccessKind::Load, addr: u64::MAX, size: u32::MAX });
    assert_eq!(read(b" L ffffffffffffffff,4294967295\n", 4096), (vec![access], 1, 0));
    let access = Ok(Access { kind: AccessKind::Load, addr: 1, size: 1 });
    assert_eq!(read(b" L 0000000000000001,0000000001\n", 4096), (vec![access], 1, 0));
}

#[test]
fn after_a_bad_line_the_reader_goes_on() {
    let (items, lines, skipped) = read(b" L 1,1\n L 2x\n L 3,1\n", 4096);
    assert_eq!(items.len(), 3);
    assert_eq!(items[1], Err(LackeyError::Syntax { line: 2, offset: 4, found: 'x' }));
    assert_eq!((lines, skipped), (3, 0));
}

#[test]
fn a_source_that_fails_ends_the_trace() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }
    let mut reader = LackeyReader::new(BufReader::new(b" L 1,1\n".chain(Broken)));
    assert!(matches!(reader.next(), Some(Ok(_))));
    let error = LackeyError::Read { line: 1, kind: io::ErrorKind::PermissionDenied };
    assert_eq!(reader.next(), Some(Err(error)));
    assert_eq!(reader.next(), None);
}

#[test]
fn output_without_line_ends_takes_no_memory() {
    let mut reader = LackeyReader::new(BufReader::new(io::repeat(b'x').take(8 << 20)));
    assert_eq!(reader.next(), None);
    assert_eq!((reader.lines(), reader.skipped_lines()), (1, 1));
    assert!(reader.partial.capacity() < 4096);
}

/// Pieces of traces: good lines, nearly good lines, messages, noise.
fn trace() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        8 => ("I  | L | S | M ", "[0-9a-f]{1,16},[1-9][0-9]{0,3}").prop_map(|(kind, rest)| kind + &rest),
        2 => ("I  | L | S | M ", "[0-9a-fA-F]{0,18},?[-+0-9a ]{0,11}").prop_map(|(kind, rest)| kind + &rest),
        1 => "==[0-9]{1,5}== [ -~]{0,60}",
        1 => "[ -~]{0,90}",
    ];
    let damage = (any::<prop::sample::Index>(), any::<u8>());
    (prop::collection::vec(line, 0..40), prop::collection::vec(damage, 0..3), any::<bool>()).prop_map(
        |(lines, damages, last_end)| {
            let mut bytes = lines.join("\n").into_bytes();
            if last_end && !bytes.is_empty() {
                bytes.push(b'\n');
            }
            for (index, byte) in damages {
                if !bytes.is_empty() {
                    let at = index.index(bytes.len());
                    bytes[at] = byte;
                }
            }
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn reader_equals_twin_whatever_the_buffer(trace in trace(), buffer_bytes in 1_usize..200) {
        let (items, lines, skipped) = read(&trace, buffer_bytes);
        let plain = items.into_iter().map(|item| item.map_err(line_of)).collect::<Vec<_>>();
        prop_assert_eq!((plain, lines, skipped), twin(&trace));
    }

    #[test]
    fn errors_do_not_depend_on_the_buffer(trace in trace(), buffer_bytes in 1_usize..200) {
        prop_assert_eq!(read(&trace, buffer_bytes), read(&trace, 1 << 16));
    }

    #[test]
    fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let (items, lines, skipped) = read(&bytes, 16);
        prop_assert_eq!(items.len() as u64 + skipped, lines);
        prop_assert_eq!(lines, bytes.split_inclusive(|&byte| byte == b'\n').count() as u64);
    }
}
