//! Texts as lines of a page: broken between words, further lines of a paragraph as far in as its first.

use memlens_report::{Line, Style};
use unicode_width::UnicodeWidthStr;

use crate::keys::KEYS;

/// A line of one look.
pub(crate) fn line(style: Style, text: impl Into<String>) -> Line {
    let mut line = Line::default();
    line.spans.push((style, text.into()));
    line
}

/// A text of several lines, in lines of so many columns. What begins with a number and a dot is a heading.
pub(crate) fn lines(text: &str, width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let blanks = paragraph.len() - paragraph.trim_start().len();
        // Behind an arrow as behind blanks.
        let indent = blanks + if paragraph.trim_start().starts_with("→ ") { 2 } else { 0 };
        let style = if is_heading(paragraph) { Style::Bold } else { Style::Plain };
        let mut out = paragraph[..blanks].to_owned();
        let mut is_empty = true;
        for word in paragraph.split_whitespace() {
            if !is_empty && out.width() + 1 + word.width() > width {
                lines.push(line(style, std::mem::replace(&mut out, " ".repeat(indent))));
                is_empty = true;
            }
            if !is_empty {
                out.push(' ');
            }
            out += word;
            is_empty = false;
        }
        lines.push(line(style, out));
    }
    lines
}

fn is_heading(paragraph: &str) -> bool {
    paragraph.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok())
}

/// What keys do.
pub(crate) fn keys() -> Vec<Line> {
    let longest =
        KEYS.iter().flat_map(|(_, keys)| keys.iter()).map(|(key, _)| key.width()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for (place, keys) in KEYS {
        lines.push(line(Style::Dim, place));
        for (key, what) in keys {
            let mut row = line(Style::Bold, format!("  {key}"));
            row.spans.push((Style::Plain, " ".repeat(longest - key.width() + 2)));
            row.spans.push((Style::Plain, (*what).to_owned()));
            lines.push(row);
        }
        lines.push(Line::default());
    }
    lines.extend([
        line(Style::Plain, "A wider terminal has room for more columns; a column sorted by is always shown."),
        line(Style::Plain, "The same as text: memlens report PROFILE, for a browser: --html FILE"),
    ]);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_broken_between_words() {
        let broken = lines("1. a title\n   → one two three\n\nend", 12);
        let texts: Vec<String> = broken.iter().map(Line::text).collect();
        assert_eq!(texts, ["1. a title", "   → one two", "     three", "", "end"]);
        assert_eq!(broken[0].spans[0].0, Style::Bold);
        assert_eq!(broken[1].spans[0].0, Style::Plain);
    }
}
