//! Rows for spreadsheets: RFC 4180, raw numbers, empty where nothing is known.

use std::io::{self, Write};

use memlens_profile::Profile;

use crate::View;
use crate::column::{Column, Content};
use crate::row::rows;

/// Writes all columns of the rows that `view` asks for; its width and colour are not used. Ratios are
/// 0 to 1, bytes and counts are whole numbers.
///
/// # Errors
/// Those of `out`.
pub fn csv(profile: &Profile, view: &View, out: &mut impl Write) -> io::Result<()> {
    // A sparkline says nothing to a spreadsheet: that has `over_time_csv`.
    let columns = || Column::ALL.iter().filter(|column| **column != Column::When);
    let titles: Vec<&str> = columns().map(|column| column.as_str()).collect();
    write!(out, "{}\r\n", titles.join(","))?;
    for row in rows(profile, view.by, view.sort_of(profile)).iter().take(view.top.unwrap_or(usize::MAX)) {
        let fields: Vec<String> = columns()
            .map(|column| match column.content(row) {
                Content::Text(text) => quoted(text.unwrap_or("")),
                Content::Count(value) | Content::Bytes(value) => {
                    value.map_or(String::new(), |value| value.to_string())
                }
                Content::Ratio(value) => value.map_or(String::new(), |value| format!("{value:.6}")),
            })
            .collect();
        write!(out, "{}\r\n", fields.join(","))?;
    }
    Ok(())
}

/// A field of a CSV file: in quotes where it has to be.
pub fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
