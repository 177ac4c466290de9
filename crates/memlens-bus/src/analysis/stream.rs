//! Brings a trace's streams together: blocks of bus records, and the events that tags announce.

use super::analyzer::{Analyzer, Observer};
use super::checkpoint::{Checkpoints, Place};
use super::report::Analysis;
use crate::format::{
    BusBlock, FormatError, MergedBus, MergedPosition, ObjectReader, PageEvent, PageReader, PageRecord,
};
use std::collections::VecDeque;
use std::io::{BufRead, Seek};
use std::sync::mpsc;
use std::thread;

/// So many page-table records ahead are searched when a read finds a frame that nothing maps.
const SEARCHED_RECORDS: usize = 64;
/// Blocks between reading and analysing.
const BLOCKS_AHEAD: usize = 4;
/// No tag announces more records.
const MAX_GROUP: usize = 1 << 24;

/// Where events come from. A stream that is missing has none.
pub(super) struct Events<R> {
    pub pages: Option<PageReader<R>>,
    pub objects: Option<ObjectReader<R>>,
    /// Groups of page-table records read ahead.
    pub waiting: VecDeque<Vec<PageRecord>>,
    pub group: Vec<PageRecord>,
}

impl<R: BufRead + Seek> Events<R> {
    /// Goes on from a place, on readers that have not read yet.
    fn resume(&mut self, place: Place) -> Result<(), FormatError> {
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
        self.waiting = place.waiting;
        Ok(())
    }
}

impl<R: BufRead> Events<R> {
    /// Events of these streams, which must belong to the bus records.
    fn new<B: BufRead>(
        bus: &MergedBus<B>,
        pages: Option<PageReader<R>>,
        objects: Option<ObjectReader<R>>,
    ) -> Result<Self, FormatError> {
        let headers = [pages.as_ref().map(PageReader::header), objects.as_ref().map(ObjectReader::header)];
        if let Some(header) = bus.header() {
            headers.into_iter().flatten().try_for_each(|other| header.check_same_capture(other))?;
        }
        Ok(Self { pages, objects, waiting: VecDeque::new(), group: Vec::new() })
    }

    /// The place in all streams, given that of the bus records.
    fn place(&self, bus: MergedPosition) -> Place {
        Place {
            bus,
            pages: self.pages.as_ref().map(PageReader::position),
            objects: self.objects.as_ref().map(ObjectReader::position),
            waiting: self.waiting.clone(),
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
        match self.waiting.pop_front() {
            Some(group) => Ok(Some(group)),
            None => self.read_group(),
        }
    }

    /// How many groups have to happen until one maps the frame, if one of the next does.
    pub fn groups_until_mapped(&mut self, frame: u64) -> Result<Option<usize>, FormatError> {
        let mut searched = 0;
        for at in 0.. {
            if at >= self.waiting.len() {
                match self.read_group()? {
                    Some(group) => self.waiting.push_back(group),
                    None => return Ok(None),
                }
            }
            let group = &self.waiting[at];
            let maps = |record: &PageRecord| {
                let frames = record.frame..record.frame + PageRecord::pages(record.level);
                record.event == PageEvent::Map && frames.contains(&frame)
                    || record.event == PageEvent::Table && record.frame == frame
            };
            if group.iter().take(SEARCHED_RECORDS).any(maps) {
                return Ok(Some(at + 1));
            }
            searched += group.len();
            if searched >= SEARCHED_RECORDS {
                break;
            }
        }
        Ok(None)
    }
}

/// Analyses a trace. Blocks are read and unpacked on a thread of their own.
///
/// # Errors
/// When a file cannot be read, the files do not belong together, or the observer ends it. Damage is no
/// error: it is counted, and what is sound is used.
pub fn analyze<B, R, O>(
    bus: MergedBus<B>,
    pages: Option<PageReader<R>>,
    objects: Option<ObjectReader<R>>,
    observer: &mut O,
) -> Result<Analysis, FormatError>
where
    B: BufRead + Send,
    R: BufRead,
    O: Observer,
{
    let mut events = Events::new(&bus, pages, objects)?;
    let mut analyzer = start(&bus, &mut events)?;
    go_through(bus, &mut analyzer, &mut events, observer, |_, _, _| Ok(()))?;
    analyzer.finish(&mut events)
}

/// The same, keeping a checkpoint, and going on from it if there is one.
///
/// # Errors
/// As [`analyze`]; also if there is a checkpoint and it is damaged or of another trace, or none can be written.
pub fn analyze_restartable<B, R>(
    mut bus: MergedBus<B>,
    pages: Option<PageReader<R>>,
    objects: Option<ObjectReader<R>>,
    checkpoints: &mut Checkpoints,
) -> Result<Analysis, FormatError>
where
    B: BufRead + Seek + Send,
    R: BufRead + Seek,
{
    let mut events = Events::new(&bus, pages, objects)?;
    let mut analyzer = match checkpoints.load()? {
        Some((place, analyzer)) => {
            if bus.header() != Some(&analyzer.header) {
                return Err(FormatError::Checkpoint("it is of another trace".into()));
            }
            bus.resume(&place.bus)?;
            events.resume(place)?;
            analyzer
        }
        None => start(&bus, &mut events)?,
    };
    go_through(bus, &mut analyzer, &mut events, &mut (), |analyzer, events, position| {
        checkpoints.offer(analyzer, || events.place(position))
    })?;
    let found = analyzer.finish(&mut events)?;
    checkpoints.finish()?;
    Ok(found)
}

/// An analysis at the beginning of a trace.
fn start<B: BufRead, R: BufRead>(
    bus: &MergedBus<B>,
    events: &mut Events<R>,
) -> Result<Analyzer, FormatError> {
    let Some(header) = bus.header() else {
        return Err(FormatError::Mismatch("there are no bus records".into()));
    };
    let mut analyzer = Analyzer::new(header);
    analyzer.apply_dump(events)?;
    analyzer.initial_objects(events)?;
    Ok(analyzer)
}

/// What the reading thread sends: a block and the place behind it.
type Message = Result<(BusBlock, MergedPosition), FormatError>;

/// Analyses all blocks from where `bus` stands; `after_block` is called behind each.
fn go_through<B, R, O>(
    mut bus: MergedBus<B>,
    analyzer: &mut Analyzer,
    events: &mut Events<R>,
    observer: &mut O,
    mut after_block: impl FnMut(&Analyzer, &Events<R>, MergedPosition) -> Result<(), FormatError>,
) -> Result<(), FormatError>
where
    B: BufRead + Send,
    R: BufRead,
    O: Observer,
{
    analyzer.losses.bus_damage = thread::scope(|scope| {
        let (full, next) = mpsc::sync_channel::<Message>(BLOCKS_AHEAD);
        let (used, empty) = mpsc::channel::<BusBlock>();
        let reader = scope.spawn(move || {
            loop {
                let mut block = empty.try_recv().unwrap_or_default();
                let read = bus.next_block(&mut block);
                let (is_over, message) = match read {
                    Ok(true) => (false, Ok((block, bus.position()))),
                    Ok(false) => return bus.damage(),
                    // The next call goes on behind a bad line.
                    Err(error @ FormatError::Line { .. }) => (false, Err(error)),
                    Err(error) => (true, Err(error)),
                };
                if full.send(message).is_err() || is_over {
                    return bus.damage();
                }
            }
        });
        for message in next {
            match message {
                Ok((block, position)) => {
                    analyzer.block(&block, events, observer)?;
                    // The reader may have ended.
                    let _ = used.send(block);
                    after_block(analyzer, events, position)?;
                }
                Err(error) => analyzer.problem(error)?,
            }
        }
        Ok::<_, FormatError>(reader.join().unwrap_or_default())
    })?;
    Ok(())
}
