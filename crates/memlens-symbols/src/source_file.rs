//! A source file, and where its lines are.

use std::fs;
use std::path::Path;

/// Larger files are no source that anybody wrote.
const MAX_BYTES: u64 = 64 << 20;

/// The text of a file. The start of each line is kept: a file of a quarter of a million lines (SQLite's) is asked for
/// thousands of them.
#[derive(Debug)]
pub(crate) struct SourceFile {
    text: String,
    starts: Vec<u32>,
}

impl SourceFile {
    /// Reads a file; None if it is not there, or is none.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().filter(|status| status.is_file() && status.len() <= MAX_BYTES)?;
        Some(Self::new(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned()))
    }

    fn new(text: String) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at as u32 + 1);
        let starts = std::iter::once(0).chain(ends).collect();
        Self { text, starts }
    }

    /// A line, counted from 1, without its end.
    pub(crate) fn line(&self, line: u32) -> Option<&str> {
        let index = usize::try_from(line.checked_sub(1)?).ok()?;
        let start = *self.starts.get(index)? as usize;
        // The same rule as anywhere: behind the last line break is no line if nothing is there.
        self.text.get(start..)?.lines().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_standard_library() {
        for text in ["", "\n", "one", "one\ntwo", "one\r\n\n\ntwo\n", "ä\nß\r\n"] {
            let file = SourceFile::new(text.to_owned());
            let lines: Vec<&str> = (1..=10).map_while(|line| file.line(line)).collect();
            assert_eq!(lines, text.lines().collect::<Vec<_>>(), "{text:?}");
            assert_eq!(file.line(0), None);
        }
    }
}
