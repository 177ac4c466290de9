//! The rows of one line program, for look-ups by address.

use gimli::{ColumnType, Unit};

use crate::dwarf_file::Bytes;

/// A source position as a line program states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineRow {
    address: u64,
    /// Index in the program's list of files.
    pub(crate) file: u32,
    /// From 1; 0: no line.
    pub(crate) line: u32,
    /// From 1; 0: the left edge, or unknown.
    pub(crate) column: u32,
}

/// A contiguous piece of code, with its rows.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    start: u64,
    end: u64,
    first_row: u32,
    end_row: u32,
}

/// A unit's line table (DWARF 5, section 6.2): 20 bytes a row.
#[derive(Debug, Default)]
pub(crate) struct SourceLines {
    rows: Vec<LineRow>,
    /// By address.
    sequences: Vec<Sequence>,
}

impl SourceLines {
    /// Runs the unit's line program. What follows damage is missing.
    pub(crate) fn read(unit: &Unit<Bytes<'_>>) -> Self {
        let mut lines = Self::default();
        let Some(program) = unit.line_program.clone() else { return lines };
        let mut rows = program.rows();
        let mut first = 0;
        while let Ok(Some((_, row))) = rows.next_row() {
            let address = row.address();
            if row.end_sequence() {
                let start = lines.rows.get(first).map(|row| row.address);
                match start {
                    Some(start) if start < address => lines.sequences.push(Sequence {
                        start,
                        end: address,
                        first_row: first as u32,
                        end_row: lines.rows.len() as u32,
                    }),
                    _ => lines.rows.truncate(first),
                }
                first = lines.rows.len();
                continue;
            }
            let narrow = |number: u64| u32::try_from(number).unwrap_or(0);
            let new = LineRow {
                address,
                file: u32::try_from(row.file_index()).unwrap_or(u32::MAX),
                line: row.line().map_or(0, |line| narrow(line.get())),
                column: match row.column() {
                    ColumnType::LeftEdge => 0,
                    ColumnType::Column(column) => narrow(column.get()),
                },
            };
            // Of several rows at one address the last holds.
            match lines.rows[first..].last_mut() {
                Some(last) if last.address == address => *last = new,
                _ => lines.rows.push(new),
            }
        }
        lines.rows.truncate(first);
        lines.rows.shrink_to_fit();
        lines.sequences.sort_by_key(|sequence| sequence.start);
        lines
    }

    /// The row that holds at `svma`.
    pub(crate) fn at(&self, svma: u64) -> Option<&LineRow> {
        let after = self.sequences.partition_point(|sequence| sequence.start <= svma);
        let sequence = self.sequences.get(after.checked_sub(1)?).filter(|sequence| svma < sequence.end)?;
        let rows = self.rows.get(sequence.first_row as usize..sequence.end_row as usize)?;
        let after = rows.partition_point(|row| row.address <= svma);
        rows.get(after.checked_sub(1)?)
    }
}
