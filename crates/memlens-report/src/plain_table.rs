//! Rows of somebody else's making, in the looks of the other tables.

use std::borrow::Cow;

use unicode_width::UnicodeWidthStr;

use crate::grid::{Elide, Flexible, Grid, GridCell, GridColumn, Style, pad, printable};

/// Texts longer than this give way where a line has no room for them.
const LEAST_TEXT: usize = 12;

/// A column of [`plain_table`].
#[derive(Clone, Debug)]
pub struct PlainColumn {
    /// Above it.
    pub title: String,
    /// Whether it holds numbers, which stand at its right and are never cut.
    pub is_number: bool,
}

/// Columns and rows as text. With a `width`, lines that are wider have their texts cut; where that is not enough, each row takes a
/// line for each column, so that none is left out.
pub fn plain_table(
    columns: &[PlainColumn],
    rows: &[Vec<String>],
    width: Option<usize>,
    colour: bool,
) -> String {
    let column = |column: &PlainColumn| GridColumn {
        titles: [Cow::Borrowed(""), Cow::Owned(column.title.clone())],
        section: None,
        right: column.is_number,
        priority: 0,
        flexible: (!column.is_number).then_some(Flexible {
            least: LEAST_TEXT,
            comfortable: LEAST_TEXT,
            most: usize::MAX,
        }),
        elide: Elide::End,
        of: None,
    };
    let cells = |row: &Vec<String>| row.iter().map(|text| GridCell::new(text, Style::Plain)).collect();
    let grid = Grid {
        columns: columns.iter().map(column).collect(),
        rows: rows.iter().map(cells).collect(),
        ..Grid::default()
    };
    let text = grid.render(width.unwrap_or(usize::MAX), false);
    let is_wider = |width| text.lines().next().is_some_and(|line| line.width() > width);
    match width.is_some_and(is_wider) {
        true => line_by_line(columns, rows, colour),
        false => grid.render(width.unwrap_or(usize::MAX), colour),
    }
}

/// A line for each column of each row.
fn line_by_line(columns: &[PlainColumn], rows: &[Vec<String>], colour: bool) -> String {
    let width = columns.iter().map(|column| column.title.width()).max().unwrap_or(0);
    let mut out = String::new();
    for (row, number) in rows.iter().zip(1..) {
        out += &Style::Dim.paint(&format!("─── row {number}"), colour);
        out.push('\n');
        for (column, text) in columns.iter().zip(row) {
            let title = pad(&printable(&column.title), width, false);
            out += &format!("{}  {}\n", Style::Dim.paint(&title, colour), printable(text));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_give_way_and_numbers_do_not() {
        let columns = [("name", false), ("llc_misses", true)]
            .map(|(title, is_number)| PlainColumn { title: title.to_owned(), is_number });
        let rows =
            [["a_long_name_of_something", "1234567"], ["b", "–"]].map(|row| row.map(str::to_owned).to_vec());
        let found = plain_table(&columns, &rows, Some(26), false);
        assert_eq!(
            found,
            "name            llc_misses\n\
             ──────────────────────────\n\
             a_long_name_o…     1234567\n\
             b                        –\n"
        );
        let found = plain_table(&columns, &rows, Some(20), false);
        assert_eq!(
            found,
            "─── row 1\n\
             name        a_long_name_of_something\n\
             llc_misses  1234567\n\
             ─── row 2\n\
             name        b\n\
             llc_misses  –\n"
        );
        let found = plain_table(&columns, &rows, None, false);
        assert!(found.contains("a_long_name_of_something     1234567\n"), "{found}");
    }
}
