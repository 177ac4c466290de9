//! Filters of traces.

use memlens_trace::{TraceFilter, TraceFormat, TraceRow};
use memlens_types::AccessKind;

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "object=heap",
        "object=std::map<int, *>\\*",
        "function=next_?andom",
        "range=0x1000-0x2000",
        "range=4096+16",
        "range=0xffffffffffffff00+0xff",
        "thread=4294967295",
        "limit=18446744073709551615",
        "parquet",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match text.parse::<TraceFormat>() {
        Ok(format) => assert_eq!(format.as_str(), text),
        Err(error) => assert_eq!(error.word, text),
    }
    let mut filter = TraceFilter::default();
    let added = filter.add(text);
    let (sort, value) = text.split_once('=').unwrap_or((text, ""));
    let fits = match sort {
        // A backslash takes the next character: the number of them at the end decides.
        "object" | "function" => {
            !value.is_empty() && value.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 0
        }
        "range" => range(value).is_some(),
        "thread" => number(value).is_some_and(|thread| thread <= u128::from(u32::MAX)),
        "limit" => number(value).is_some_and(|limit| limit <= u128::from(u64::MAX)),
        _ => false,
    };
    assert_eq!(added.is_ok(), fits, "{added:?}");
    if let Err(error) = added {
        assert_eq!(error.text, text);
        assert!(text.get(error.offset..error.offset + error.length).is_some(), "{error:?}");
        assert!(!error.to_string().is_empty());
        assert_eq!(filter, TraceFilter::default(), "a condition that fails changes nothing");
        return;
    }
    if let Some((from, to)) = range(value).filter(|_| sort == "range") {
        let admits = |addr: u128| {
            let row = TraceRow {
                kind: AccessKind::Load,
                addr: addr as u64,
                size: 1,
                instructions: 0,
                thread: 0,
                code: 0,
                object: 0,
                offset: 0,
                block: 0,
            };
            filter.admits_place(&row)
        };
        assert!(admits(from) && admits(to - 1) && !admits(to));
        assert!(from == 0 || !admits(from - 1));
    }
    if sort == "limit" {
        assert_eq!(filter.limit().map(u128::from), number(value));
    }
}

/// Digits by their value, without the standard library's parser; none above 2^64.
fn number(word: &str) -> Option<u128> {
    let (digits, radix) = match word.as_bytes() {
        [b'0', b'x' | b'X', digits @ ..] => (digits, 16),
        digits => (digits, 10),
    };
    let mut value = (!digits.is_empty()).then_some(0_u128)?;
    for digit in digits {
        value = value * u128::from(radix) + u128::from(char::from(*digit).to_digit(radix)?);
        if value >> 64 != 0 {
            return None;
        }
    }
    Some(value)
}

fn range(value: &str) -> Option<(u128, u128)> {
    let at = value.find(['-', '+'])?;
    let (from, second) = (number(&value[..at])?, number(&value[at + 1..])?);
    let to = if value.as_bytes()[at] == b'+' { from + second } else { second };
    (from < to && to >> 64 == 0).then_some((from, to))
}
