//! Conditions of `memlens check`.

use memlens_report::{Column, Condition};

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "llc_misses > 10M",
        "table:llc-misses >= +5%",
        "std::map<int, a\\*>::p->q:l1_miss_ratio <= +5pp",
        "*:stall_share > 30%",
        "rows #1 : max_live_bytes < 1.5 KiB",
        "loads > -1_000",
        "h?ap:bytes<=1GiB",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let condition: Condition = match text.parse() {
        Ok(condition) => condition,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    // A limit has no sign of comparison in it: the last one parts both sides.
    let at = text.rfind(['<', '>']).expect("it compares");
    let (left, right) = (&text[..at], text[at + 1..].trim_start_matches('='));
    let column = left.rsplit_once(':').map_or(left, |(_, column)| column).trim();
    let column: Column = column.parse().expect("the column is one");
    assert!(right.contains(|c: char| c.is_ascii_digit()), "{right}");
    // What it says of itself is the same condition.
    let told = condition.to_string();
    assert!(told.contains(column.as_str()), "{told}");
    assert_eq!(told.parse::<Condition>().as_ref(), Ok(&condition), "{told}");
}
