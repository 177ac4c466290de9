//! Numbers for people: three significant digits, no more precision than they have.

/// Shown where nothing is known.
pub(crate) const UNKNOWN: &str = "–";

/// A count with `k`, `M`, `G` … (powers of 1,000); exact below 1,000.
pub fn count(value: u64) -> String {
    scaled(value, 1000.0, &["", "k", "M", "G", "T", "P", "E"])
}

/// Bytes with `Ki`, `Mi`, `Gi` … (powers of 1,024).
pub(crate) fn bytes(value: u64) -> String {
    scaled(value, 1024.0, &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
}

/// Bytes as a size in running text: `32 KiB`, `1.5 MiB`, `17 B`.
pub(crate) fn size(value: u64) -> String {
    let text = bytes(value);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    format!("{digits} {}B", &text[digits.len()..])
}

fn scaled(value: u64, base: f64, suffixes: &[&str]) -> String {
    let mut scaled = value as f64;
    let mut step = 0;
    // 999.5 and more would be rounded to four digits; 1,000 to 1,023 of a binary unit stay.
    while scaled >= base - 0.5 && step + 1 < suffixes.len() {
        scaled /= base;
        step += 1;
    }
    if step == 0 {
        return value.to_string();
    }
    // A power of two is exact as it stands, and known to be: 32Ki, not 32.0Ki.
    if base > 1000.0 && scaled.fract() == 0.0 {
        return format!("{scaled}{}", suffixes[step]);
    }
    let decimals = match scaled {
        scaled if scaled < 9.995 => 2,
        scaled if scaled < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$}{}", suffixes[step])
}

/// `part` of `whole` in percent with one decimal, at most; unknown when there is no whole.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return UNKNOWN.to_owned();
    }
    percent_of_share(part as f64 / whole as f64)
}

/// A share (0 to 1) in percent with one decimal, at most. What is not nothing is never shown as 0,
/// and what is not everything never as 100.
pub(crate) fn percent_of_share(share: f64) -> String {
    let percent = share * 100.0;
    if percent == 0.0 {
        "0".to_owned()
    } else if percent < 0.05 {
        "<0.1".to_owned()
    } else if percent == 100.0 {
        "100".to_owned()
    } else if (99.95..100.0).contains(&percent) {
        ">99.9".to_owned()
    } else {
        format!("{percent:.1}")
    }
}

/// Seconds: `1.24 s`, `53.0 ms`, `2 min 5 s`.
pub(crate) fn seconds(seconds: f64) -> String {
    if seconds >= 120.0 {
        let whole = seconds.round() as u64;
        format!("{} min {} s", whole / 60, whole % 60)
    } else if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else {
        format!("{:.1} ms", seconds * 1000.0)
    }
}

/// A part (0 to 1) of so many columns, to the eighth of one.
pub(crate) fn bar(part: f64, columns: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (part.clamp(0.0, 1.0) * 8.0 * columns as f64).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// `1 block`, `2 blocks`, `3 addresses`.
pub(crate) fn plural(value: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(value), plural_ending(value, noun))
}

fn plural_ending(value: u64, noun: &str) -> &'static str {
    match value {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    }
}

/// How many of `all` rows a table shows and how to see the others: `20 of 31 objects; --top 31 shows all`.
/// `part` says what the shown rows make, and comes after the noun.
pub(crate) fn shown(rows: usize, all: usize, noun: &str, part: &str) -> String {
    let ending = plural_ending(all as u64, noun);
    match rows < all {
        true => format!("{rows} of {all} {noun}{ending}{part}; --top {all} shows all"),
        false => format!("{all} {noun}{ending}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_three_digits() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1000, "1.00k"),
            (1234, "1.23k"),
            (9994, "9.99k"),
            (9996, "10.0k"),
            (99_949, "99.9k"),
            (99_951, "100k"),
            (999_499, "999k"),
            (999_500, "1.00M"),
            (412_345_678, "412M"),
            (u64::MAX, "18.4E"),
        ];
        for (value, text) in cases {
            assert_eq!(count(value), text, "{value}");
        }
    }

    #[test]
    fn bytes_are_binary() {
        let cases = [
            (17, "17"),
            (1023, "1023"),
            (1024, "1Ki"),
            (1536, "1.50Ki"),
            (32768, "32Ki"),
            (1_048_576, "1Mi"),
            (3_500_000_000, "3.26Gi"),
        ];
        for (value, text) in cases {
            assert_eq!(bytes(value), text, "{value}");
        }
        assert_eq!((size(17), size(32768)), ("17 B".into(), "32 KiB".into()));
    }

    #[test]
    fn tables_say_how_much_they_show() {
        assert_eq!(
            shown(20, 31, "line", ", 5 % of the wait"),
            "20 of 31 lines, 5 % of the wait; --top 31 shows all"
        );
        assert_eq!(shown(31, 31, "line", ", all of it"), "31 lines");
        assert_eq!(shown(1, 1, "line", ""), "1 line");
    }

    #[test]
    fn percentages_never_round_to_all_or_nothing() {
        assert_eq!(percent(0, 10), "0");
        assert_eq!(percent(1, 1_000_000), "<0.1");
        assert_eq!(percent(10, 10), "100");
        assert_eq!(percent(999_999, 1_000_000), ">99.9");
        assert_eq!(percent(1, 3), "33.3");
        assert_eq!(percent(0, 0), UNKNOWN);
    }
}
