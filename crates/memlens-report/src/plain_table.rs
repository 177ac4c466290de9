//! Rows of somebody else's making, in the looks of the other tables.

use std::borrow::Cow;

use crate::grid::{Elide, Flexible, Grid, GridCell, GridColumn, Style};

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

/// Columns and rows as text. With a `width`, lines that are wider have their texts cut, and what is wider still stays so: no column
/// is left out.
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
    grid.render(width.unwrap_or(usize::MAX), colour)
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
        let found = plain_table(&columns, &rows, None, false);
        assert!(found.contains("a_long_name_of_something     1234567\n"), "{found}");
    }
}
