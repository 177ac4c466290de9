//! Lays cells out in columns on a terminal of a given width.
//!
//! When the natural width is too much, the least important columns go first; then flexible columns
//! shrink to their least width and their texts are elided.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::Column;
use crate::styled::{Layout, LineEnd, LineKind};
use crate::target::Target;

pub(crate) use crate::elide::{Elide, elide};
pub(crate) use crate::styled::Style;

/// One cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct GridCell {
    text: String,
    style: Style,
}

impl GridCell {
    pub(crate) fn new(text: impl AsRef<str>, style: Style) -> Self {
        Self { text: printable(text.as_ref()), style }
    }

    /// What it says.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// Names come from the profiled program's files: nothing in them may steer the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c == '\t' {
                ' '
            } else if c.is_control() {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

/// Widths of a column whose texts may be elided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flexible {
    /// Never narrower than this.
    pub(crate) least: usize,
    /// Columns that are merely nice to have go before this one gets narrower than this.
    pub(crate) comfortable: usize,
    /// Never wider than this.
    pub(crate) most: usize,
}

/// Columns from this priority on are merely nice to have.
const NICE_TO_HAVE: u8 = 3;

/// Columns up to this priority are missed where there is no room for them.
const MISSED: u8 = 2;

/// What stands above a column, in two lines.
pub(crate) type Titles = [Cow<'static, str>; 2];

/// Titles that are always the same.
pub(crate) fn fixed(titles: [&'static str; 2]) -> Titles {
    titles.map(Cow::Borrowed)
}

/// One column.
#[derive(Clone, Debug)]
pub(crate) struct GridColumn {
    /// Title lines, aligned like the cells.
    pub(crate) titles: Titles,
    /// Neighbouring columns with the same section share a heading above their titles.
    pub(crate) section: Option<&'static str>,
    pub(crate) right: bool,
    /// 0 stays; the highest goes first.
    pub(crate) priority: u8,
    /// For a column of texts, which may be elided.
    pub(crate) flexible: Option<Flexible>,
    pub(crate) elide: Elide,
    /// What it holds, where rows can be sorted by it.
    pub(crate) of: Option<Column>,
}

impl GridColumn {
    /// A column of numbers.
    pub(crate) fn number(titles: [&'static str; 2], priority: u8) -> Self {
        Self {
            titles: fixed(titles),
            section: None,
            right: true,
            priority,
            flexible: None,
            elide: Elide::End,
            of: None,
        }
    }

    /// A column of texts between so many columns wide.
    pub(crate) fn text(
        titles: [&'static str; 2],
        priority: u8,
        (least, most): (usize, usize),
        elide: Elide,
    ) -> Self {
        let flexible = Some(Flexible { least, comfortable: least, most });
        Self { titles: fixed(titles), section: None, right: false, priority, flexible, elide, of: None }
    }
}

/// Columns, rows, and a row below the line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grid {
    pub(crate) columns: Vec<GridColumn>,
    pub(crate) rows: Vec<Vec<GridCell>>,
    pub(crate) footer: Option<Vec<GridCell>>,
    /// What rows are of; empty: of nothing that there is more to see of.
    pub(crate) targets: Vec<Option<Target>>,
}

const GAP: usize = 2;

impl Grid {
    /// The lines, none wider than `width` columns as long as that is at least about 50.
    pub(crate) fn layout(&self, width: usize) -> Layout {
        let (shown, widths) = self.fit(width);
        let mut out = Layout::default();
        if shown.is_empty() {
            return out;
        }
        let total = widths.iter().sum::<usize>() + GAP * (shown.len() - 1);
        let end = |kind| LineEnd { kind, ..LineEnd::default() };
        let rule = |out: &mut Layout, kind| {
            out.push(Style::Dim, "─".repeat(total));
            out.end_line(end(kind));
        };
        self.sections(&mut out, &shown, &widths);
        for line in 0..2 {
            let titles = shown.iter().map(|&column| &self.columns[column].titles[line]);
            if titles.clone().any(|title| !title.is_empty()) {
                let cells: Vec<_> = titles.map(|title| GridCell::new(title, Style::Dim)).collect();
                self.line(&mut out, &shown, &widths, &cells.iter().collect::<Vec<_>>());
                out.end_line(end(LineKind::Titles));
            }
        }
        rule(&mut out, LineKind::Titles);
        for (at, row) in self.rows.iter().enumerate() {
            let cells: Vec<_> = shown.iter().map(|&column| &row[column]).collect();
            self.line(&mut out, &shown, &widths, &cells);
            let target = self.targets.get(at).cloned().flatten();
            out.end_line(LineEnd { kind: LineKind::Row, target, words: self.words(row, &shown) });
        }
        if let Some(footer) = &self.footer {
            rule(&mut out, LineKind::Total);
            let cells: Vec<_> = shown.iter().map(|&column| &footer[column]).collect();
            self.line(&mut out, &shown, &widths, &cells);
            out.end_line(end(LineKind::Total));
        }
        out
    }

    /// The same as text.
    pub(crate) fn render(&self, width: usize, colour: bool) -> String {
        self.layout(width).paint(colour)
    }

    /// A row's texts as a whole, whether there is room for them or not, and the figures that are shown.
    fn words(&self, row: &[GridCell], shown: &[usize]) -> String {
        let cells = row.iter().zip(&self.columns).enumerate();
        let wanted = cells.filter(|(at, (_, column))| !column.right || shown.contains(at));
        let texts = wanted.map(|(_, (cell, _))| cell.text.trim()).filter(|text| !text.is_empty());
        texts.collect::<Vec<_>>().join(" ")
    }

    /// The columns that rows can be sorted by, as far as there is room for them: each with its first place on the line, and its width.
    pub(crate) fn places(&self, width: usize) -> Vec<(Column, usize, usize)> {
        let (shown, widths) = self.fit(width);
        let mut from = 0;
        let mut places = Vec::new();
        for (column, width) in shown.into_iter().zip(widths) {
            places.extend(self.columns[column].of.map(|of| (of, from, width)));
            from += width + GAP;
        }
        places
    }

    /// Titles of columns that a reader may look for and that are not shown for want of room, and a width that shows them.
    pub(crate) fn missed(&self, width: usize) -> Option<(String, usize)> {
        const STEP: usize = 20;
        let missed = |width: usize| -> Vec<String> {
            let (shown, _) = self.fit(width);
            (0..self.columns.len())
                .filter(|column| self.columns[*column].priority <= MISSED && !shown.contains(column))
                .map(|column| self.columns[column].titles.join(" ").trim().to_owned())
                .collect()
        };
        let titles = missed(width);
        let wider =
            (1..=20).map(|steps| (width / STEP + steps) * STEP).find(|&wider| missed(wider).is_empty());
        wider.filter(|_| !titles.is_empty()).map(|wider| (titles.join(", "), wider))
    }

    /// Which columns are shown, and how wide.
    fn fit(&self, width: usize) -> (Vec<usize>, Vec<usize>) {
        let natural: Vec<usize> = (0..self.columns.len()).map(|column| self.natural_width(column)).collect();
        let least = |column: usize| match self.columns[column].flexible {
            Some(flexible) => flexible.least.min(natural[column]),
            None => natural[column],
        };
        let comfortable = |column: usize| match self.columns[column].flexible {
            Some(flexible) => flexible.comfortable.min(natural[column]),
            None => natural[column],
        };
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        loop {
            // Of equally unimportant columns the right-most goes.
            let victim = shown.iter().copied().max_by_key(|&column| (self.columns[column].priority, column));
            let Some(victim) = victim.filter(|&victim| self.columns[victim].priority > 0) else { break };
            let nice_to_have = self.columns[victim].priority >= NICE_TO_HAVE;
            let wanted = |&column: &usize| if nice_to_have { comfortable(column) } else { least(column) };
            let needed = shown.iter().map(wanted).sum::<usize>() + GAP * (shown.len() - 1);
            if needed <= width {
                break;
            }
            shown.retain(|&column| column != victim);
        }
        let mut widths: Vec<usize> = shown.iter().map(|&column| least(column)).collect();
        let used = widths.iter().sum::<usize>() + GAP * shown.len().saturating_sub(1);
        let mut spare = width.saturating_sub(used);
        // One character each in turn, so that flexible columns share what is left evenly.
        loop {
            let before = spare;
            for (width, &column) in widths.iter_mut().zip(&shown) {
                if spare > 0 && *width < natural[column] {
                    *width += 1;
                    spare -= 1;
                }
            }
            if spare == before {
                return (shown, widths);
            }
        }
    }

    fn natural_width(&self, column: usize) -> usize {
        let titles = self.columns[column].titles.iter().map(|title| title.width()).max().unwrap_or(0);
        let cells =
            self.rows.iter().chain(&self.footer).map(|row| row[column].text.width()).max().unwrap_or(0);
        let most = self.columns[column].flexible.map_or(usize::MAX, |flexible| flexible.most);
        titles.max(cells.min(most))
    }

    /// The line with the sections' names, each over its columns.
    fn sections(&self, out: &mut Layout, shown: &[usize], widths: &[usize]) {
        let section_of = |position: usize| self.columns[shown[position]].section;
        if (0..shown.len()).all(|position| section_of(position).is_none()) {
            return;
        }
        let mut line = String::new();
        let mut position = 0;
        while position < shown.len() {
            let section = section_of(position);
            let mut span = 0;
            let start = position;
            while position < shown.len() && section_of(position) == section {
                span += widths[position] + if position > start { GAP } else { 0 };
                position += 1;
            }
            let heading = match section {
                Some(name) if name.width() + 4 <= span => {
                    let rest = span - name.width() - 2;
                    format!("{} {name} {}", "─".repeat(rest / 2), "─".repeat(rest - rest / 2))
                }
                Some(name) => pad(&elide(name, span, Elide::End), span, true),
                None => " ".repeat(span),
            };
            line += &heading;
            line += &" ".repeat(GAP);
        }
        out.push(Style::Dim, line.trim_end());
        out.end_line(LineEnd { kind: LineKind::Titles, ..LineEnd::default() });
    }

    fn line(&self, out: &mut Layout, shown: &[usize], widths: &[usize], cells: &[&GridCell]) {
        let mut pending = 0;
        for ((cell, &column), &width) in cells.iter().zip(shown).zip(widths) {
            let text = elide(&cell.text, width, self.columns[column].elide);
            let fill = width.saturating_sub(text.width());
            let (before, after) = if self.columns[column].right { (fill, 0) } else { (0, fill) };
            // Blanks are written only when something follows, so that no line ends with them.
            pending += before;
            if !text.trim_end().is_empty() {
                out.push(Style::Plain, " ".repeat(pending));
                out.push(cell.style, text);
                pending = 0;
            } else {
                pending += text.width();
            }
            pending += after + GAP;
        }
    }
}

pub(crate) fn pad(text: &str, width: usize, right: bool) -> String {
    let fill = " ".repeat(width.saturating_sub(text.width()));
    if right { fill + text } else { text.to_owned() + &fill }
}

/// A heading in bold with a plain end, whole: what is too long for a line goes on in the next.
pub(crate) fn heading(text: &str, end: &str, width: usize) -> Layout {
    let text = printable(text);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide > width.max(1) {
            lines.push(String::new());
            used = 0;
        }
        used += wide;
        if let Some(line) = lines.last_mut() {
            line.push(c);
        }
    }
    let mut out = Layout::default();
    for (at, line) in lines.iter().enumerate() {
        out.push(Style::Plain, if at > 0 { "\n" } else { "" });
        out.push(Style::Bold, line.trim_end());
    }
    let is_apart = used + end.width() > width;
    let end = if is_apart { end.trim_start_matches([' ', '·']) } else { end };
    out.push(Style::Plain, if is_apart { "\n" } else { "" });
    out.push(Style::Plain, format!("{end}\n"));
    out
}

/// What stands between pieces.
pub(crate) const JOINT: &str = " · ";

/// Joins pieces by ` · ` and breaks lines at `width`; each line starts with a label or its width in
/// blanks.
pub(crate) fn wrapped(label: &str, indent: usize, pieces: &[String], width: usize) -> Layout {
    let room = width.saturating_sub(indent);
    let pieces = pieces.iter().map(|piece| elide(&printable(piece), room, Elide::End));
    joined(label, indent, pieces, JOINT, width)
}

/// The same as text.
pub(crate) fn wrap(label: &str, indent: usize, pieces: &[String], width: usize, colour: bool) -> String {
    wrapped(label, indent, pieces, width).paint(colour)
}

/// A text as a whole, its lines broken between words at `width`, behind a label.
pub(crate) fn paragraph(label: &str, indent: usize, text: &str, width: usize) -> Layout {
    let text = printable(text);
    joined(label, indent, text.split_whitespace(), " ", width)
}

/// The sentences of a text that fit `lines` of so many columns; of one that does not fit, its beginning. None: all of it fits.
pub(crate) fn beginning(text: &str, columns: usize, lines: usize) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (mut line, mut lines_used, mut fitting, mut whole) = (0, 1, 0, 0);
    for (at, word) in words.iter().enumerate() {
        let joined = if line == 0 { word.width() } else { line + 1 + word.width() };
        line = if joined > columns { word.width() } else { joined };
        lines_used += usize::from(joined > columns);
        if lines_used > lines {
            break;
        }
        fitting = at + 1;
        whole = if word.ends_with('.') { fitting } else { whole };
    }
    match (fitting == words.len(), whole) {
        (true, _) => None,
        // Of the last word's room the mark of what is missing has one column.
        (false, 0) => Some(words[..fitting.max(2) - 1].join(" ") + " …"),
        (false, whole) => Some(words[..whole].join(" ")),
    }
}

fn joined(
    label: &str,
    indent: usize,
    pieces: impl IntoIterator<Item = impl AsRef<str>>,
    joint: &str,
    width: usize,
) -> Layout {
    let mut out = Layout::default();
    let mut label = pad(label, indent, false);
    let mut line = String::new();
    let mut flush = |line: &mut String| {
        out.push(Style::Dim, std::mem::replace(&mut label, " ".repeat(indent)));
        out.push(Style::Plain, format!("{}\n", std::mem::take(line)));
    };
    for piece in pieces {
        let piece = piece.as_ref();
        if !line.is_empty() && indent + line.width() + joint.width() + piece.width() > width {
            flush(&mut line);
        }
        if !line.is_empty() {
            line += joint;
        }
        line += piece;
    }
    if !line.is_empty() {
        flush(&mut line);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_break_between_words() {
        let text = "Bursts were made rarer: no processor was idle.";
        let found = paragraph("note", 6, text, 30).paint(false);
        assert_eq!(found, "note  Bursts were made rarer:\n      no processor was idle.\n");
        assert_eq!(
            paragraph("note", 6, "averyveryverylongword", 10).paint(false),
            "note  averyveryverylongword\n"
        );
    }

    #[test]
    fn of_long_texts_whole_sentences_are_the_beginning() {
        let text = "Bursts were rare: no processor was idle. Ask for more. There are others.";
        assert_eq!(beginning(text, 20, 4), None);
        assert_eq!(
            beginning(text, 20, 3).as_deref(),
            Some("Bursts were rare: no processor was idle. Ask for more.")
        );
        assert_eq!(beginning(text, 20, 2).as_deref(), Some("Bursts were rare: no processor was idle."));
        assert_eq!(beginning(text, 20, 1).as_deref(), Some("Bursts were rare: …"));
        assert_eq!(beginning("averyveryverylongword", 10, 1).as_deref(), Some("averyveryverylongword …"));
    }

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(GridCell::new("a\x1b[2Jb\nc\td", Style::Plain).text, "a\u{fffd}[2Jb\u{fffd}c d");
    }
}
