//! Bus records as lines of text, for hardware that memlens does not know.
//!
//! After the header a line `seq,duration,rw,paddr`, then one for each record: its number in the trace (or of
//! its packet), clock cycles since the record before, `r` or `w`, and its physical byte address; numbers
//! are decimal or `0x…`.

use super::FormatError;

/// The second line.
pub(crate) const COLUMNS: &str = "seq,duration,rw,paddr";

/// A record's number, duration, byte address, and whether it is a write.
pub(crate) fn parse(line: &str, number: u64) -> Result<(u64, u64, u64, bool), FormatError> {
    let problem = |problem: String| FormatError::Line { line: number, problem };
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [sequence, duration, direction, address] = fields[..] else {
        return Err(problem(format!("it has {} fields, not 4", fields.len())));
    };
    let value = |text: &str| {
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        parsed.map_err(|_| problem(format!("`{text}` is not a number")))
    };
    let write = match direction {
        "r" => false,
        "w" => true,
        other => return Err(problem(format!("`{other}` is neither r nor w"))),
    };
    Ok((value(sequence)?, value(duration)?, value(address)?, write))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_records_or_say_what_is_wrong() {
        assert_eq!(parse("7,12,w,0x1fc0\r", 3).expect("sound"), (7, 12, 0x1fc0, true));
        for (line, expected) in
            [("1,2,r", "3 fields"), ("1,2,x,64", "neither"), ("1,-2,r,64", "`-2`"), ("1,2,r,0xz", "`0xz`")]
        {
            let error = parse(line, 9).expect_err(line).to_string();
            assert!(error.starts_with("read line 9: ") && error.contains(expected), "{error}");
        }
    }
}
