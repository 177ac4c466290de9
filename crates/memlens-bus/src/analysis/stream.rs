//! Brings a trace's streams together: blocks of bus records, and the events that tags announce.

use super::analyzer::{Analyzer, Observer};
use super::checkpoint::Checkpoints;
use super::events::Events;
use super::report::Analysis;
use super::rounds::{Rounds, TaggedBlock};
use crate::format::{FormatError, MergedBus, MergedPosition, ObjectReader, PackedBus, PageReader, Sequencer};
use rayon::prelude::*;
use std::io::{self, BufRead, Seek};
use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::thread;

/// Blocks of a batch, for each thread.
const BLOCKS_PER_THREAD: usize = 2;

/// Analyses a trace on so many threads, which makes no difference to the result. With several, one more reads files.
///
/// # Errors
/// When a file cannot be read, or the files do not belong together. Damage is no error: it is counted, and what is sound
/// is used.
pub fn analyze<B, R>(
    bus: MergedBus<B>,
    pages: Option<PageReader<R>>,
    objects: Option<ObjectReader<R>>,
    threads: NonZeroUsize,
) -> Result<Analysis, FormatError>
where
    B: BufRead + Send,
    R: BufRead + Send,
{
    let mut course = Course::start(&bus, Events::new(&bus, pages, objects)?, threads)?;
    course.go_through(bus, None)?;
    course.finish()
}

/// The same on one thread; `observer` sees every record.
///
/// # Errors
/// As [`analyze`]; also if the observer ends it.
pub fn observe<B: BufRead, R: BufRead>(
    bus: MergedBus<B>,
    pages: Option<PageReader<R>>,
    objects: Option<ObjectReader<R>>,
    observer: &mut dyn Observer,
) -> Result<Analysis, FormatError> {
    let mut course = Course::start(&bus, Events::new(&bus, pages, objects)?, NonZeroUsize::MIN)?;
    course.go_through_alone(bus, Some(observer), None)?;
    course.finish()
}

/// [`analyze`], keeping a checkpoint, and going on from it if there is one, on any number of threads.
///
/// # Errors
/// As [`analyze`]; also if there is a checkpoint and it is damaged or of another trace, or none can be written.
pub fn analyze_restartable<B, R>(
    mut bus: MergedBus<B>,
    pages: Option<PageReader<R>>,
    objects: Option<ObjectReader<R>>,
    threads: NonZeroUsize,
    checkpoints: &mut Checkpoints,
) -> Result<Analysis, FormatError>
where
    B: BufRead + Seek + Send,
    R: BufRead + Seek + Send,
{
    let mut events = Events::new(&bus, pages, objects)?;
    let mut course = match checkpoints.load()? {
        Some((place, analyzer)) => {
            if bus.header() != Some(&analyzer.header) {
                return Err(FormatError::Checkpoint("it is of another trace".into()));
            }
            bus.resume(&place.bus)?;
            events.resume(place)?;
            Course::of(analyzer, events, threads)
        }
        None => Course::start(&bus, events, threads)?,
    };
    course.go_through(bus, Some(checkpoints))?;
    let found = course.finish()?;
    checkpoints.finish()?;
    Ok(found)
}

/// An analysis on its way through a trace.
struct Course<R> {
    analyzer: Analyzer,
    events: Events<R>,
    rounds: Rounds,
    threads: NonZeroUsize,
}

impl<R: BufRead> Course<R> {
    fn of(analyzer: Analyzer, events: Events<R>, threads: NonZeroUsize) -> Self {
        let rounds = Rounds::new(threads, &analyzer.header.nodes);
        Self { analyzer, events, rounds, threads }
    }

    /// At the beginning of a trace.
    fn start<B: BufRead>(
        bus: &MergedBus<B>,
        mut events: Events<R>,
        threads: NonZeroUsize,
    ) -> Result<Self, FormatError> {
        let Some(header) = bus.header() else {
            return Err(FormatError::Mismatch("there are no bus records".into()));
        };
        let mut analyzer = Analyzer::new(header);
        analyzer.apply_dump(&mut events)?;
        analyzer.initial_objects(&mut events)?;
        Ok(Self::of(analyzer, events, threads))
    }

    fn finish(mut self) -> Result<Analysis, FormatError> {
        self.rounds.absorb_into(&mut self.analyzer);
        self.analyzer.finish(&mut self.events)
    }

    /// Keeps a checkpoint if one is due.
    fn keep(&mut self, checkpoints: Option<&mut Checkpoints>, at: MergedPosition) -> Result<(), FormatError> {
        match checkpoints.filter(|checkpoints| checkpoints.is_due(&self.analyzer)) {
            Some(checkpoints) => {
                self.rounds.absorb_into(&mut self.analyzer);
                checkpoints.keep(&self.events.place(at), &self.analyzer)
            }
            None => Ok(()),
        }
    }

    /// Reads, unpacks and analyses on this thread, a block at a time.
    fn go_through_alone<B: BufRead>(
        &mut self,
        mut bus: MergedBus<B>,
        mut observer: Option<&mut dyn Observer>,
        mut checkpoints: Option<&mut Checkpoints>,
    ) -> Result<(), FormatError> {
        let mut sequencer = bus.sequencer();
        let (mut block, mut scratch) = (TaggedBlock::default(), Vec::new());
        loop {
            match bus.next_packed(&mut block.packed) {
                Ok(false) => break,
                Ok(true) => {
                    block.unpack(&mut scratch, &self.analyzer.tables.tag_lines);
                    let Some(position) = sequencer.place(&mut block.packed) else { continue };
                    let blocks = std::slice::from_ref(&block);
                    self.rounds.batch(&mut self.analyzer, blocks, &mut self.events, &mut observer)?;
                    self.keep(checkpoints.as_deref_mut(), position)?;
                }
                // After a bad line the next call goes on behind it; all else ends here.
                Err(error) => self.analyzer.problem(error)?,
            }
        }
        self.analyzer.losses.bus_damage = sequencer.with_damaged(bus.damage());
        Ok(())
    }

    /// Analyses all blocks from where `bus` stands.
    fn go_through<B>(
        &mut self,
        mut bus: MergedBus<B>,
        checkpoints: Option<&mut Checkpoints>,
    ) -> Result<(), FormatError>
    where
        B: BufRead + Send,
        R: Send,
    {
        if self.threads.get() == 1 {
            return self.go_through_alone(bus, None, checkpoints);
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads.get()).build();
        let pool =
            pool.map_err(|error| FormatError::Io { what: "start threads", source: io::Error::other(error) })?;
        let batch_blocks = self.threads.get() * BLOCKS_PER_THREAD;
        let mut sequencer = bus.sequencer();
        let damage = thread::scope(|scope| {
            let (full, packed) = mpsc::sync_channel(batch_blocks);
            let (used, empty) = mpsc::channel::<PackedBus>();
            let reader = scope.spawn(move || {
                loop {
                    let mut block = empty.try_recv().unwrap_or_default();
                    let (is_over, message) = match bus.next_packed(&mut block) {
                        Ok(true) => (false, Ok(block)),
                        Ok(false) => return bus.damage(),
                        Err(error) => (!matches!(error, FormatError::Line { .. }), Err(error)),
                    };
                    if full.send(message).is_err() || is_over {
                        return bus.damage();
                    }
                }
            });
            let source = Source { packed, used, sequencer: &mut sequencer, batch_blocks };
            pool.install(|| self.go_through_batches(source, checkpoints))?;
            Ok::<_, FormatError>(reader.join().unwrap_or_default())
        })?;
        self.analyzer.losses.bus_damage = sequencer.with_damaged(damage);
        Ok(())
    }

    /// Analyses a batch while the next one is unpacked.
    fn go_through_batches(
        &mut self,
        mut source: Source<'_>,
        mut checkpoints: Option<&mut Checkpoints>,
    ) -> Result<(), FormatError>
    where
        R: Send,
    {
        let tag_lines = self.analyzer.tables.tag_lines.clone();
        let (mut batch, mut next) = (Batch::default(), Batch::default());
        loop {
            // A trace may come through a pipe: what is there is not kept waiting for more.
            if batch.is_empty() && !source.fill(&mut batch, &tag_lines, Wait::ForOne) {
                return Ok(());
            }
            let Self { analyzer, events, rounds, .. } = self;
            let (analysed, _) = rayon::join(
                || rounds.batch(analyzer, &batch.blocks, events, &mut None),
                || source.fill(&mut next, &tag_lines, Wait::Not),
            );
            analysed?;
            if let Some(position) = batch.position.take() {
                self.keep(checkpoints.as_deref_mut(), position)?;
            }
            if let Some(problem) = batch.problem.take() {
                self.analyzer.problem(problem)?;
            }
            source.give_back(&mut batch);
            std::mem::swap(&mut batch, &mut next);
        }
    }
}

/// Some blocks, and what was wrong behind them.
#[derive(Default)]
struct Batch {
    blocks: Vec<TaggedBlock>,
    /// The place behind them.
    position: Option<MergedPosition>,
    problem: Option<FormatError>,
}

impl Batch {
    /// Whether there is nothing in it.
    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.problem.is_none()
    }
}

/// Whether to wait if nothing is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    ForOne,
    Not,
}

/// Where batches come from: the reading thread.
struct Source<'a> {
    packed: mpsc::Receiver<Result<PackedBus, FormatError>>,
    /// Blocks to be read into.
    used: mpsc::Sender<PackedBus>,
    sequencer: &'a mut Sequencer,
    batch_blocks: usize,
}

impl Source<'_> {
    /// Fills an empty batch with the next blocks that are there, unpacked by whichever threads are free; up to a problem,
    /// if there is one. Whether anything is in it.
    fn fill(&mut self, batch: &mut Batch, tag_lines: &std::ops::Range<u64>, wait: Wait) -> bool {
        // Damaged blocks are left out; a batch without any other is no end.
        while batch.is_empty() {
            while batch.blocks.len() < self.batch_blocks && batch.problem.is_none() {
                let message = match wait {
                    Wait::ForOne if batch.blocks.is_empty() => self.packed.recv().ok(),
                    _ => self.packed.try_recv().ok(),
                };
                match message {
                    Some(Ok(packed)) => batch.blocks.push(TaggedBlock::new(packed)),
                    Some(Err(problem)) => batch.problem = Some(problem),
                    None => break,
                }
            }
            if batch.is_empty() {
                return false;
            }
            let blocks = batch.blocks.par_iter_mut();
            blocks.for_each_init(Vec::new, |scratch, block| block.unpack(scratch, tag_lines));
            batch.blocks.retain_mut(|block| match self.sequencer.place(&mut block.packed) {
                Some(position) => {
                    batch.position = Some(position);
                    true
                }
                None => false,
            });
        }
        true
    }

    /// Lets the reader have blocks again.
    fn give_back(&self, batch: &mut Batch) {
        for block in batch.blocks.drain(..) {
            // The reader may have ended.
            let _ = self.used.send(block.packed);
        }
    }
}
