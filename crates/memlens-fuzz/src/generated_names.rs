//! Names of generated code.

use std::collections::BTreeSet;

use memlens_symbols::GeneratedNames;

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let map = "1000 100 first one\n1100 100 JS:*second t.js:3:4\n\nno line\n1080 90 third\n2000 0 none\n\
               0x1000 0x80 again\nffffffffffffff00 100 overflows\nffffffffffffff00 ff last";
    let jvm = "  7f0010 20 int T.run(int[], double) [tier 4]\r\n7f0030 0x10  py::f:/t.py\n7f0018 4 \n+7f 8 x";
    vec![map.into(), jvm.into()]
}

pub(crate) fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<_> = text.split('\n').filter_map(read_line).collect();
    // A later function takes the place of all that it lies over.
    let mut alive: Vec<(u64, u64, &str)> = Vec::new();
    for &(start, end, name) in &lines {
        alive.retain(|other| other.1 <= start || end <= other.0);
        alive.push((start, end, name));
    }
    let mut names = GeneratedNames::default();
    names.add(&text);
    let borders = lines.iter().flat_map(|&(start, end, _)| [start.wrapping_sub(1), start, end - 1, end]);
    for address in borders.chain([0, u64::MAX]).collect::<BTreeSet<_>>() {
        let expected = alive.iter().find(|(start, end, _)| (*start..*end).contains(&address));
        assert_eq!(names.function_at(address), expected.map(|known| known.2), "at {address:#x}");
    }
    // Taken from another process's, they are the same; in two pieces of the text, too.
    let mut copy = GeneratedNames::default();
    copy.extend(names.clone());
    assert_eq!(copy, names);
    let mut pieces = GeneratedNames::default();
    let (first, second) = text.split_at(text.find('\n').map_or(0, |at| at + 1));
    pieces.add(first);
    pieces.add(second);
    assert_eq!(pieces, names);
}

/// `START SIZE NAME`; what memlens makes of such a line, without the standard library's parser.
fn read_line(line: &str) -> Option<(u64, u64, &str)> {
    let (start, rest) = line.trim_start().split_once(' ')?;
    let (size, name) = rest.split_once(' ')?;
    let (start, size) = (hexadecimal(start)?, hexadecimal(size)?);
    let (name, end) = (name.trim(), u64::try_from(start + size).ok()?);
    (size > 0 && !name.is_empty()).then_some((start as u64, end, name))
}

fn hexadecimal(mut word: &str) -> Option<u128> {
    while let Some(rest) = word.strip_prefix("0x") {
        word = rest;
    }
    let digits = word.strip_prefix('+').unwrap_or(word);
    let mut value = (!digits.is_empty()).then_some(0_u128)?;
    for digit in digits.chars() {
        value = value * 16 + u128::from(digit.to_digit(16)?);
        if value >> 64 != 0 {
            return None;
        }
    }
    Some(value)
}
