//! Texts as lines of a page: broken between words, further lines of a paragraph as far in as its first.

use memlens_report::{Line, LineKind, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

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

/// Lines of which none is wider than so many columns: facts that are go on in the next line, as a terminal would have it, but between
/// words. Tables have been laid out for the width.
pub(crate) fn fit(lines: Vec<Line>, width: usize) -> Vec<Line> {
    let mut fitting = Vec::with_capacity(lines.len());
    for line in lines {
        if line.kind != LineKind::Text || line.text().width() <= width {
            fitting.push(line);
            continue;
        }
        let letters: Vec<(Style, char)> =
            line.spans.iter().flat_map(|(style, text)| text.chars().map(|letter| (*style, letter))).collect();
        let mut rest = &letters[..];
        while !rest.is_empty() {
            let (now, next) = rest.split_at(break_at(rest, width));
            let mut part = Line::default();
            for (style, letter) in now {
                match part.spans.last_mut() {
                    Some((last, text)) if last == style => text.push(*letter),
                    _ => part.spans.push((*style, (*letter).into())),
                }
            }
            fitting.push(part);
            let blanks = next.iter().take_while(|(_, letter)| *letter == ' ').count();
            rest = &next[blanks..];
        }
    }
    fitting
}

/// How many letters have room: all, or those before the last blank that fit, or what fits of a long word; one at least.
fn break_at(letters: &[(Style, char)], width: usize) -> usize {
    let mut used = 0;
    let mut blank = None;
    for (at, (_, letter)) in letters.iter().enumerate() {
        used += letter.width().unwrap_or(0);
        if used > width {
            return blank.unwrap_or(at).max(1);
        }
        if *letter == ' ' && at > 0 {
            blank = Some(at);
        }
    }
    letters.len()
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
    fn facts_that_are_too_wide_go_on_in_the_next_line() {
        let mut long = line(Style::Bold, "name");
        long.spans.push((Style::Plain, " · one 数据 verylongword".into()));
        let mut rows = long.clone();
        rows.kind = LineKind::Row;
        let fitting = fit(vec![long, rows.clone()], 9);
        let texts: Vec<String> = fitting.iter().map(Line::text).collect();
        assert_eq!(texts[..4], ["name ·", "one 数据", "verylongw", "ord"]);
        assert_eq!(fitting[0].spans, [(Style::Bold, "name".into()), (Style::Plain, " ·".into())]);
        assert_eq!(fitting[4], rows);
    }

    #[test]
    fn texts_are_broken_between_words() {
        let broken = lines("1. a title\n   → one two three\n\nend", 12);
        let texts: Vec<String> = broken.iter().map(Line::text).collect();
        assert_eq!(texts, ["1. a title", "   → one two", "     three", "", "end"]);
        assert_eq!(broken[0].spans[0].0, Style::Bold);
        assert_eq!(broken[1].spans[0].0, Style::Plain);
    }
}
