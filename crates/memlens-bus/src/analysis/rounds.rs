//! Goes through blocks of records in rounds: pieces between two events, each attributed by whichever thread is free.

use super::analyzer::{Analyzer, Observer, Turn};
use super::events::{Events, Lookahead};
use super::piece::Piece;
use super::tally::Tally;
use crate::format::{BusBlock, FormatError, PackedBus};
use rayon::prelude::*;
use std::io::BufRead;
use std::num::NonZeroUsize;
use std::ops::Range;

/// Records of a piece: some tens of microseconds, ten times what it costs to hand it to another thread. With one of 8,192,
/// a trace with an event for each 4,096 records was one thread's work.
const PIECE_RECORDS: usize = 1 << 10;
/// Pieces of a round, for each thread: so that rounds are seldom, and a thread that is held up delays the others little.
const PIECES_PER_THREAD: usize = 32;

/// Lines that are searched for tags together.
const GROUP_LINES: usize = 64;

/// A block with the places of what may be tags.
#[derive(Debug, Default)]
pub(super) struct TaggedBlock {
    pub packed: PackedBus,
    tags: Vec<usize>,
}

impl TaggedBlock {
    pub fn new(packed: PackedBus) -> Self {
        Self { packed, tags: Vec::new() }
    }

    /// Unpacks the block and finds the lines of the tag region.
    pub fn unpack(&mut self, scratch: &mut Vec<u8>, tag_lines: &Range<u64>) {
        self.packed.unpack(scratch);
        self.tags.clear();
        // Tags are few: most groups are passed over by a comparison that looks at several lines at once.
        for (group, lines) in self.packed.block().lines.chunks(GROUP_LINES).enumerate() {
            if lines.iter().fold(false, |any, line| any | tag_lines.contains(line)) {
                let found = lines.iter().enumerate().filter(|(_, line)| tag_lines.contains(line));
                self.tags.extend(found.map(|(at, _)| group * GROUP_LINES + at));
            }
        }
    }

    fn bus(&self) -> &BusBlock {
        self.packed.block()
    }
}

/// A place in a batch of blocks.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    block: usize,
    at: usize,
}

/// The pieces of a round, and a tally for each thread.
#[derive(Debug)]
pub(super) struct Rounds {
    pieces: Vec<Piece>,
    planned: usize,
    tallies: Vec<Tally>,
}

impl Rounds {
    /// For so many threads, and memory nodes as a header names them.
    pub fn new(threads: NonZeroUsize, nodes: &[(u64, u64)]) -> Self {
        let pieces = if threads.get() == 1 { 1 } else { threads.get() * PIECES_PER_THREAD };
        Self {
            pieces: (0..pieces).map(|_| Piece::default()).collect(),
            planned: 0,
            tallies: vec![Tally::new(nodes); threads.get()],
        }
    }

    /// Analyses a batch of blocks. With several threads it is to be called on one of a pool.
    pub fn batch<R: BufRead>(
        &mut self,
        analyzer: &mut Analyzer,
        blocks: &[TaggedBlock],
        events: &mut Events<R>,
        observer: &mut Option<&mut dyn Observer>,
    ) -> Result<(), FormatError> {
        blocks.iter().for_each(|block| analyzer.begin(block.bus()));
        let mut cursor = Cursor { block: 0, at: 0 };
        while let Some(block) = blocks.get(cursor.block) {
            if cursor.at == block.bus().len() {
                cursor = Cursor { block: cursor.block + 1, at: 0 };
                continue;
            }
            self.plan(blocks, cursor);
            let done = match self.planned {
                1 => self.attribute(analyzer, block.bus(), Some(&events.lookahead)),
                _ => {
                    events.look_ahead()?;
                    self.attribute_by_all(analyzer, blocks, &events.lookahead)
                }
            };
            self.observe(analyzer, done, blocks, observer)?;
            let last = &self.pieces[done - 1];
            cursor = Cursor { block: last.block, at: last.end() };
            if last.is_short() {
                self.turn(analyzer, blocks, cursor, events, observer)?;
                cursor.at = self.pieces[0].end();
            }
        }
        Ok(())
    }

    /// Plans pieces from a place up to the next tag, as many as there may be.
    fn plan(&mut self, blocks: &[TaggedBlock], from: Cursor) {
        let Cursor { mut block, mut at } = from;
        self.planned = 0;
        while let (Some(piece), Some(tagged)) = (self.pieces.get_mut(self.planned), blocks.get(block)) {
            let is_first = self.planned == 0;
            let tag = tagged.tags.partition_point(|&tag| tag < at);
            let (next, behind) = match tagged.tags.get(tag) {
                // A tag is a piece of its own.
                Some(&tag) if tag == at && is_first => (at + 1, true),
                Some(&tag) if tag == at => break,
                Some(&tag) => (tag, false),
                None => (tagged.bus().len(), false),
            };
            let end = next.min(at + PIECE_RECORDS);
            if end > at {
                piece.restart(block, at..end);
                self.planned += 1;
            }
            if behind {
                break;
            }
            at = end;
            if at == tagged.bus().len() {
                (block, at) = (block + 1, 0);
            }
        }
    }

    /// Attributes the first piece alone; it counts as done even if it stops before its end.
    fn attribute(
        &mut self,
        analyzer: &mut Analyzer,
        block: &BusBlock,
        lookahead: Option<&Lookahead>,
    ) -> usize {
        let piece = &mut self.pieces[0];
        piece.resolve(&analyzer.tables, block, lookahead);
        analyzer.place(piece, block);
        analyzer.count(piece, block);
        1
    }

    /// Attributes the planned pieces, up to the first that stops before its end; how many are done.
    fn attribute_by_all(
        &mut self,
        analyzer: &mut Analyzer,
        blocks: &[TaggedBlock],
        lookahead: &Lookahead,
    ) -> usize {
        let planned = &mut self.pieces[..self.planned];
        let bus = |piece: &Piece| blocks[piece.block].bus();
        let tables = &analyzer.tables;
        planned.par_iter_mut().for_each(|piece| piece.resolve(tables, bus(piece), Some(lookahead)));
        let done = planned.iter().position(Piece::is_short).map_or(planned.len(), |short| short + 1);
        let pieces = &mut planned[..done];
        pieces.iter_mut().for_each(|piece| analyzer.place(piece, blocks[piece.block].bus()));
        let each = done.div_ceil(self.tallies.len());
        let (tables, every) = (&analyzer.tables, analyzer.points_every());
        pieces.par_chunks(each).zip(&mut self.tallies).for_each(|(pieces, tally)| {
            pieces.iter().for_each(|piece| tally.count(tables, bus(piece), piece, every));
        });
        pieces.iter_mut().for_each(|piece| analyzer.tables.learn(&mut piece.learned));
        self.tallies.iter_mut().for_each(|tally| analyzer.collect(tally));
        done
    }

    /// The turn of a record, which may change the tables. Afterwards the first piece ends where it goes on.
    fn turn<R: BufRead>(
        &mut self,
        analyzer: &mut Analyzer,
        blocks: &[TaggedBlock],
        Cursor { block, at }: Cursor,
        events: &mut Events<R>,
        observer: &mut Option<&mut dyn Observer>,
    ) -> Result<(), FormatError> {
        let bus = blocks[block].bus();
        let (line, write) = (bus.lines[at], bus.writes[at]);
        let seen = observer.as_ref().map(|_| {
            let cycles = analyzer.cycles.wrapping_add(bus.durations[at]);
            analyzer.attribution((bus.number(at), cycles), line, write)
        });
        match analyzer.turn(line, write, bus.durations[at], events)? {
            Turn::Again => self.pieces[0].restart(block, at..at),
            Turn::Tag => {
                self.pieces[0].restart(block, at + 1..at + 1);
                if let (Some(observer), Some(record)) = (observer, seen) {
                    observer.record(analyzer, &record)?;
                }
            }
            Turn::Last => {
                self.pieces[0].restart(block, at..at + 1);
                self.attribute(analyzer, bus, None);
                self.observe(analyzer, 1, blocks, observer)?;
            }
        }
        Ok(())
    }

    /// Shows the records of the first pieces.
    fn observe(
        &self,
        analyzer: &Analyzer,
        pieces: usize,
        blocks: &[TaggedBlock],
        observer: &mut Option<&mut dyn Observer>,
    ) -> Result<(), FormatError> {
        let Some(observer) = observer else { return Ok(()) };
        for piece in &self.pieces[..pieces] {
            let bus = blocks[piece.block].bus();
            let mut cycles = piece.start_cycles;
            for at in piece.records.start..piece.end() {
                cycles = cycles.wrapping_add(bus.durations[at]);
                let place = (bus.number(at), cycles);
                observer.record(analyzer, &analyzer.attribution(place, bus.lines[at], bus.writes[at]))?;
            }
        }
        Ok(())
    }

    /// Adds what the threads counted to what the analyzer has.
    pub fn absorb_into(&mut self, analyzer: &mut Analyzer) {
        self.tallies.iter_mut().for_each(|tally| analyzer.tally.absorb(tally));
    }
}
