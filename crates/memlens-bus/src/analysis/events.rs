//! The events that tags announce, in the order of their files.

use super::checkpoint::Place;
use crate::format::{
    FormatError, MergedBus, MergedPosition, ObjectReader, PageEvent, PageReader, PageRecord,
};
use std::collections::VecDeque;
use std::io::{BufRead, Seek};

/// So many page-table records ahead are searched when a read finds a frame that nothing maps.
const SEARCHED_RECORDS: usize = 64;
/// No tag announces more records.
const MAX_GROUP: usize = 1 << 24;

/// Groups of page-table records that were read ahead of their tags.
#[derive(Debug, Default)]
pub(super) struct Lookahead {
    groups: VecDeque<Vec<PageRecord>>,
    /// All that a search goes through is here.
    is_full: bool,
}

impl Lookahead {
    /// Whether [`Self::groups_until_mapped`] can be asked.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// How many groups have to happen until one maps the frame, if one of the next does.
    pub fn groups_until_mapped(&self, frame: u64) -> Option<usize> {
        let maps = |record: &PageRecord| {
            let frames = record.frame..record.frame + PageRecord::pages(record.level);
            record.event == PageEvent::Map && frames.contains(&frame)
                || record.event == PageEvent::Table && record.frame == frame
        };
        let mut searched = 0;
        for (at, group) in self.groups.iter().enumerate() {
            if group.iter().take(SEARCHED_RECORDS).any(maps) {
                return Some(at + 1);
            }
            searched += group.len();
            if searched >= SEARCHED_RECORDS {
                break;
            }
        }
        None
    }
}

/// Where events come from. A stream that is missing has none.
pub(super) struct Events<R> {
    pub pages: Option<PageReader<R>>,
    pub objects: Option<ObjectReader<R>>,
    pub lookahead: Lookahead,
    pub group: Vec<PageRecord>,
}

impl<R: BufRead + Seek> Events<R> {
    /// Goes on from a place, on readers that have not read yet.
    pub fn resume(&mut self, place: Place) -> Result<(), FormatError> {
        if (place.pages.is_some(), place.objects.is_some()) != (self.pages.is_some(), self.objects.is_some())
        {
            return Err(FormatError::Checkpoint("the trace has other streams than it had".into()));
        }
        if let (Some(pages), Some(position)) = (&mut self.pages, &place.pages) {
            pages.resume(position)?;
        }
        if let (Some(objects), Some(position)) = (&mut self.objects, &place.objects) {
            objects.resume(position)?;
        }
        self.lookahead = Lookahead { groups: place.waiting, is_full: false };
        Ok(())
    }
}

impl<R: BufRead> Events<R> {
    /// Events of these streams, which must belong to the bus records.
    pub fn new<B: BufRead>(
        bus: &MergedBus<B>,
        pages: Option<PageReader<R>>,
        objects: Option<ObjectReader<R>>,
    ) -> Result<Self, FormatError> {
        let headers = [pages.as_ref().map(PageReader::header), objects.as_ref().map(ObjectReader::header)];
        if let Some(header) = bus.header() {
            headers.into_iter().flatten().try_for_each(|other| header.check_same_capture(other))?;
        }
        Ok(Self { pages, objects, lookahead: Lookahead::default(), group: Vec::new() })
    }

    /// The place in all streams, given that of the bus records.
    pub fn place(&self, bus: MergedPosition) -> Place {
        Place {
            bus,
            pages: self.pages.as_ref().map(PageReader::position),
            objects: self.objects.as_ref().map(ObjectReader::position),
            waiting: self.lookahead.groups.clone(),
        }
    }

    /// Reads a group of page-table records.
    pub fn read_group(&mut self) -> Result<Option<Vec<PageRecord>>, FormatError> {
        let Some(pages) = &mut self.pages else { return Ok(None) };
        let mut group = std::mem::take(&mut self.group);
        group.clear();
        while let Some(record) = pages.next_record()? {
            let is_last = !record.more || group.len() >= MAX_GROUP;
            group.push(record);
            if is_last {
                break;
            }
        }
        Ok((!group.is_empty()).then_some(group))
    }

    pub fn next_group(&mut self) -> Result<Option<Vec<PageRecord>>, FormatError> {
        self.lookahead.is_full = false;
        match self.lookahead.groups.pop_front() {
            Some(group) => Ok(Some(group)),
            None => self.read_group(),
        }
    }

    /// Reads ahead as far as a search goes.
    pub fn look_ahead(&mut self) -> Result<(), FormatError> {
        if self.lookahead.is_full {
            return Ok(());
        }
        let mut waiting: usize = self.lookahead.groups.iter().map(Vec::len).sum();
        while waiting < SEARCHED_RECORDS {
            let Some(group) = self.read_group()? else { break };
            waiting += group.len();
            self.lookahead.groups.push_back(group);
        }
        self.lookahead.is_full = true;
        Ok(())
    }
}
