//! Text in pieces with looks. A report is laid out in these; then it becomes text with a terminal's codes, or lines
//! for something that shows them in another way.
//!
//! ```text
//!  header, grid, detail ──► Layout ──paint──► text: pieces in their order, each with its codes
//!                             └─────lines───► Line, Line …: the same text, cut where it has line ends
//! ```

use crate::target::Target;

/// How a piece of text looks when colour is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Style {
    /// As other text.
    #[default]
    Plain,
    /// What a row or a page is of.
    Bold,
    /// What may be passed over: titles, rules, what is unknown.
    Dim,
    /// Takes a large part of the cost.
    Hot,
    /// Takes a fair part of the cost.
    Warm,
}

impl Style {
    /// The text with the terminal's codes around it.
    pub(crate) fn paint(self, text: &str, colour: bool) -> String {
        let code = match self {
            _ if !colour || text.is_empty() => return text.to_owned(),
            Self::Plain => return text.to_owned(),
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Hot => "1;31",
            Self::Warm => "33",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// What a line is in a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineKind {
    /// Facts, headings, notes.
    #[default]
    Text,
    /// Above the rows of a table: titles of its columns, or the rule below them.
    Titles,
    /// A row of a table.
    Row,
    /// Below the rows: the rule, or what they are together.
    Total,
}

/// A line of a page, without its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// What it is.
    pub kind: LineKind,
    /// Its text with its looks, from left to right. Nothing in it steers a terminal.
    pub spans: Vec<(Style, String)>,
    /// What a row is of, if there is more to see of it.
    pub target: Option<Target>,
    /// Of a row: its texts as they were before they were cut to the width, to be searched.
    pub words: String,
}

impl Line {
    /// Its text without looks.
    pub fn text(&self) -> String {
        self.spans.iter().map(|(_, text)| text.as_str()).collect()
    }

    fn add(&mut self, style: Style, text: &str) {
        match self.spans.last_mut() {
            _ if text.is_empty() => {}
            Some((last, before)) if *last == style => before.push_str(text),
            _ => self.spans.push((style, text.to_owned())),
        }
    }
}

/// What is said of a line at its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineEnd {
    pub(crate) kind: LineKind,
    pub(crate) target: Option<Target>,
    pub(crate) words: String,
}

#[derive(Clone, Debug)]
struct Piece {
    style: Style,
    /// Where its text ends, which may have line ends.
    to: usize,
    /// About the line that this piece ends, where there is something to say of it.
    end: Option<Box<LineEnd>>,
}

/// Pieces in the order in which they are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    /// The texts of all: there are dozens in a line.
    text: String,
    pieces: Vec<Piece>,
}

impl Layout {
    /// Adds a piece, which may have line ends.
    pub(crate) fn push(&mut self, style: Style, text: impl AsRef<str>) {
        self.text += text.as_ref();
        let to = self.text.len();
        match self.pieces.last_mut() {
            // Without codes between them two are one.
            Some(last) if last.end.is_none() && (last.style, style) == (Style::Plain, Style::Plain) => {
                last.to = to;
            }
            _ => self.pieces.push(Piece { style, to, end: None }),
        }
    }

    /// Ends a line.
    pub(crate) fn end_line(&mut self, end: LineEnd) {
        self.text.push('\n');
        self.pieces.push(Piece { style: Style::Plain, to: self.text.len(), end: Some(Box::new(end)) });
    }

    /// Adds another one's pieces.
    pub(crate) fn append(&mut self, other: Self) {
        let from = self.text.len();
        self.text += &other.text;
        self.pieces.extend(other.pieces.into_iter().map(|piece| Piece { to: from + piece.to, ..piece }));
    }

    /// The text, with the terminal's codes if it is to have colour.
    pub(crate) fn paint(self, colour: bool) -> String {
        if !colour {
            return self.text;
        }
        let mut out = String::with_capacity(self.text.len());
        let mut from = 0;
        for piece in &self.pieces {
            out += &piece.style.paint(&self.text[from..piece.to], colour);
            from = piece.to;
        }
        out
    }

    /// The lines. A last one without an end is one, too.
    pub(crate) fn lines(self) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut line = Line::default();
        let mut from = 0;
        for Piece { style, to, end } in self.pieces {
            let mut parts = self.text[from..to].split('\n');
            from = to;
            let mut part = parts.next().unwrap_or_default();
            let mut end = end.map(|end| *end).unwrap_or_default();
            for next in parts {
                line.add(style, part);
                let LineEnd { kind, target, words } = std::mem::take(&mut end);
                lines.push(Line { kind, target, words, ..std::mem::take(&mut line) });
                part = next;
            }
            line.add(style, part);
        }
        if !line.spans.is_empty() {
            lines.push(line);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_lines_are_the_same() {
        let mut layout = Layout::default();
        layout.push(Style::Dim, "\nabove\nbelow");
        layout.push(Style::Plain, "\n");
        layout.push(Style::Bold, "name");
        layout.push(Style::Bold, "s");
        layout.push(Style::Plain, "  7");
        layout.end_line(LineEnd { kind: LineKind::Row, ..LineEnd::default() });
        layout.push(Style::Warm, "end");
        assert_eq!(layout.clone().paint(false), "\nabove\nbelow\nnames  7\nend");
        assert_eq!(
            layout.clone().paint(true),
            "\x1b[2m\nabove\nbelow\x1b[0m\n\x1b[1mname\x1b[0m\x1b[1ms\x1b[0m  7\n\x1b[33mend\x1b[0m"
        );
        let lines = layout.clone().lines();
        let texts: Vec<String> = lines.iter().map(Line::text).collect();
        assert_eq!(texts.join("\n"), layout.paint(false));
        assert_eq!(lines[1].spans, [(Style::Dim, "above".to_owned())]);
        assert_eq!(lines[3].spans, [(Style::Bold, "names".into()), (Style::Plain, "  7".into())]);
        assert_eq!((lines[2].kind, lines[3].kind), (LineKind::Text, LineKind::Row));
    }
}
