//! Some consecutive records, and what they belong to under tables that do not change meanwhile.

use super::events::Lookahead;
use super::reverse_table::Place;
use super::tables::{Learned, Tables};
use crate::format::{BusBlock, FrameUse};
use std::ops::Range;

/// So many records ahead their frames are fetched into the processor's caches.
const AHEAD: usize = 16;

/// What the line of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Data of a mapped page.
    Page,
    /// The same of a frame that other pages map, too.
    SharedPage,
    /// Data of a page that is not mapped any more.
    FormerPage,
    /// A page table.
    Table,
    /// Of a frame that is used otherwise.
    Used(FrameUse),
    /// Of a frame never heard of.
    Unknown,
    /// Beyond the memory.
    OutOfRange,
}

/// What a record belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resolved {
    /// The object of data, the number of a page table, else 0.
    pub number: u32,
    pub class: Class,
}

/// Records of one block.
#[derive(Debug, Default)]
pub(super) struct Piece {
    /// Which block of the batch.
    pub block: usize,
    /// Its records.
    pub records: Range<usize>,
    /// What they belong to; fewer than there are records if one of them needs its turn: the next.
    pub resolved: Vec<Resolved>,
    /// What was looked up for that.
    pub learned: Learned,
    /// Of the resolved records, those of data.
    pub data: u64,
    /// Clock cycles at the record before the first.
    pub start_cycles: u64,
    /// Data records before the first.
    pub first_data: u64,
}

impl Piece {
    /// Empties it and makes it one of these records.
    pub fn restart(&mut self, block: usize, records: Range<usize>) {
        (self.block, self.records, self.data) = (block, records, 0);
        self.resolved.clear();
        self.learned.forget();
    }

    /// Whether a record is left that needs its turn.
    pub fn is_short(&self) -> bool {
        self.resolved.len() < self.records.len()
    }

    /// Where the resolved records end.
    pub fn end(&self) -> usize {
        self.records.start + self.resolved.len()
    }

    /// Finds what the records belong to, up to one that may change the tables: a tag, or a read of a frame that nothing
    /// maps while one of the next events maps it. Without a look-ahead none does the latter.
    pub fn resolve(&mut self, tables: &Tables, block: &BusBlock, lookahead: Option<&Lookahead>) {
        let lines = &block.lines[self.records.clone()];
        let is_large = tables.reverse.is_large();
        self.resolved.reserve(lines.len());
        for (at, &line) in lines.iter().enumerate() {
            if is_large && at % AHEAD == 0 {
                let next = lines.get(at + AHEAD..).unwrap_or_default();
                tables.reverse.fetch(next.iter().take(AHEAD).map(|line| line >> tables.frame_shift));
            }
            let resolved = match tables.reverse.place(line >> tables.frame_shift) {
                Place::Page { pid, page, is_shared, is_former, memo } => {
                    self.data += 1;
                    let class = match (is_former, is_shared) {
                        (false, false) => Class::Page,
                        (false, true) => Class::SharedPage,
                        (true, _) => Class::FormerPage,
                    };
                    Resolved { number: tables.object_of(line, pid, page, memo, &mut self.learned), class }
                }
                Place::Table(number) => Resolved { number, class: Class::Table },
                other => {
                    let is_read = !block.writes[self.records.start + at];
                    let Some(class) = elsewhere(tables, other, line, is_read, lookahead) else { return };
                    Resolved { number: 0, class }
                }
            };
            self.resolved.push(resolved);
        }
    }
}

/// What a line of a frame is that nothing maps; `None`: it is the record's turn to change the tables.
#[cold]
fn elsewhere(
    tables: &Tables,
    place: Place,
    line: u64,
    is_read: bool,
    lookahead: Option<&Lookahead>,
) -> Option<Class> {
    if tables.tag_lines.contains(&line) {
        return None;
    }
    if line >= tables.last_line {
        return Some(Class::OutOfRange);
    }
    if let Some(lookahead) = lookahead.filter(|_| is_read)
        && (!lookahead.is_full() || lookahead.groups_until_mapped(line >> tables.frame_shift).is_some())
    {
        return None;
    }
    Some(match place {
        Place::Used(usage) => Class::Used(usage),
        _ => Class::Unknown,
    })
}
