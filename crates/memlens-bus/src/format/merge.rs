//! Several cards' traces as one, by time.
//!
//! Each memory channel has a card of its own (PTAT's set-up); their clocks are synchronous. Records of the
//! same cycle come in the order of the cards. Numbers of records are then those of the merged trace.

use super::raw_block::{HasNumbers, Numbering, RawBlock};
use super::{BusBlock, BusPosition, BusReader, Damage, FormatError, Header};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Seek};

const BLOCK_RECORDS: usize = 1 << 16;

/// Bus records of one or more cards.
#[derive(Debug)]
pub struct MergedBus<R> {
    cards: Vec<Card<R>>,
    next: u64,
    cycles: u64,
}

#[derive(Debug)]
struct Card<R> {
    reader: BusReader<R>,
    block: BusBlock,
    /// Where `block` was read; `None` before the first.
    before: Option<BusPosition>,
    at: usize,
    /// Cycles at the record before `at`.
    cycles: u64,
    gaps_seen: usize,
    is_over: bool,
}

impl<R: BufRead> Card<R> {
    /// Makes sure that a record is at hand, if there is one.
    fn fill(&mut self) -> Result<(), FormatError> {
        while !self.is_over && self.at >= self.block.len() {
            self.before = Some(self.reader.position());
            self.is_over = !self.reader.next_block(&mut self.block)?;
            (self.at, self.gaps_seen, self.cycles) = (0, 0, self.block.start_cycles);
        }
        Ok(())
    }

    fn time(&self) -> Option<u64> {
        let duration = self.block.durations.get(self.at).filter(|_| !self.is_over)?;
        Some(self.cycles.wrapping_add(*duration))
    }
}

/// A place in merged traces from which reading can go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedPosition {
    cards: Vec<CardPosition>,
    next: u64,
    cycles: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct CardPosition {
    reader: BusPosition,
    /// Records of the block that follows which are used already; `None` if none of it is.
    used: Option<usize>,
    cycles: u64,
    gaps_seen: usize,
}

impl<R: BufRead + Seek> MergedBus<R> {
    /// Goes on from a place, on readers that have not read yet.
    ///
    /// # Errors
    /// When the files have no such place.
    pub fn resume(&mut self, position: &MergedPosition) -> Result<(), FormatError> {
        if position.cards.len() != self.cards.len() {
            let problem = format!("it has {} cards, the trace {}", position.cards.len(), self.cards.len());
            return Err(FormatError::Checkpoint(problem));
        }
        for (card, place) in self.cards.iter_mut().zip(&position.cards) {
            card.reader.resume(&place.reader)?;
            if let Some(used) = place.used {
                card.fill()?;
                (card.at, card.cycles, card.gaps_seen) = (used, place.cycles, place.gaps_seen);
            }
        }
        (self.next, self.cycles) = (position.next, position.cycles);
        Ok(())
    }
}

impl<R: BufRead> MergedBus<R> {
    /// Where reading stands.
    pub fn position(&self) -> MergedPosition {
        let card = |card: &Card<R>| CardPosition {
            reader: card.before.clone().unwrap_or_else(|| card.reader.position()),
            used: card.before.as_ref().map(|_| card.at),
            cycles: card.cycles,
            gaps_seen: card.gaps_seen,
        };
        MergedPosition { cards: self.cards.iter().map(card).collect(), next: self.next, cycles: self.cycles }
    }

    /// Merges what the readers give.
    ///
    /// # Errors
    /// When the cards' clocks, line sizes or captures differ.
    pub fn new(readers: Vec<BusReader<R>>) -> Result<Self, FormatError> {
        for reader in readers.iter().skip(1) {
            readers[0].header().check_same_capture(reader.header())?;
        }
        let card = |reader| Card {
            reader,
            block: BusBlock::default(),
            before: None,
            at: 0,
            cycles: 0,
            gaps_seen: 0,
            is_over: false,
        };
        Ok(Self { cards: readers.into_iter().map(card).collect(), next: 0, cycles: 0 })
    }

    /// The first card's header; `None` without a card.
    pub fn header(&self) -> Option<&Header> {
        self.cards.first().map(|card| card.reader.header())
    }

    /// What could not be read so far, of all cards together.
    pub fn damage(&self) -> Damage {
        self.cards.iter().map(|card| card.reader.damage()).fold(Damage::default(), |all, one| Damage {
            blocks: all.blocks + one.blocks,
            skipped_bytes: all.skipped_bytes + one.skipped_bytes,
            is_cut: all.is_cut || one.is_cut,
        })
    }

    /// The next records; `false` at the end.
    ///
    /// # Errors
    /// As [`BusReader::next_block`].
    pub fn next_block(&mut self, block: &mut BusBlock) -> Result<bool, FormatError> {
        if let [only] = &mut self.cards[..] {
            return only.reader.next_block(block);
        }
        block.restart(self.next, self.cycles);
        while block.len() < BLOCK_RECORDS {
            self.cards.iter_mut().try_for_each(Card::fill)?;
            let earliest = self.cards.iter_mut().filter(|card| !card.is_over).min_by_key(|card| card.time());
            let Some(card) = earliest else { break };
            let Some(time) = card.time() else { break };
            let mut lost = 0;
            while let Some(gap) = card.block.gaps.get(card.gaps_seen) {
                if gap.position as usize > card.at {
                    break;
                }
                lost = gap.lost.saturating_add(lost);
                card.gaps_seen += 1;
            }
            // A card that was started later has a clock behind the others' at worst: time never goes back.
            let duration = time.saturating_sub(self.cycles);
            block.push(card.block.lines[card.at], duration, card.block.writes[card.at], lost);
            self.cycles += duration;
            card.cycles = time;
            card.at += 1;
        }
        self.next = block.next();
        Ok(!block.is_empty())
    }
}

/// The next records of a trace, to be unpacked by any thread. Those of several cards are unpacked already, because
/// merging looks at each.
#[derive(Debug, Default)]
pub struct PackedBus {
    raw: RawBlock,
    block: BusBlock,
    unpacked: Option<HasNumbers>,
    /// Where merging stands behind it; `None`: the records are one card's.
    merged: Option<MergedPosition>,
}

impl PackedBus {
    /// Unpacks it.
    pub fn unpack(&mut self, scratch: &mut Vec<u8>) {
        if self.merged.is_none() {
            self.unpacked = self.raw.unpack(scratch, &mut self.block);
        }
    }

    /// The records, once they are unpacked and have their place.
    pub fn block(&self) -> &BusBlock {
        &self.block
    }
}

/// Gives unpacked records their numbers and cycles, in the order in which they were read.
#[derive(Debug)]
pub struct Sequencer(Numbering);

impl Sequencer {
    /// Gives the records their place; the place behind them, or `None` if they are damaged and left out.
    pub fn place(&mut self, packed: &mut PackedBus) -> Option<MergedPosition> {
        if let Some(position) = packed.merged.take() {
            return Some(position);
        }
        let is_placed = self.0.number(packed.unpacked.take(), &mut packed.block);
        is_placed.then(|| {
            let reader = self.0.position(&packed.raw.place);
            let card = CardPosition { reader, ..CardPosition::default() };
            MergedPosition { cards: vec![card], ..MergedPosition::default() }
        })
    }

    /// The damage that reading found, with the blocks that were left out here.
    pub fn with_damaged(&self, damage: Damage) -> Damage {
        self.0.with_damaged(damage)
    }
}

impl<R: BufRead> MergedBus<R> {
    /// The next records, not yet unpacked; `false` at the end.
    ///
    /// # Errors
    /// As [`BusReader::next_block`].
    pub fn next_packed(&mut self, packed: &mut PackedBus) -> Result<bool, FormatError> {
        if let [only] = &mut self.cards[..] {
            packed.merged = None;
            return only.reader.next_raw(&mut packed.raw);
        }
        let there = self.next_block(&mut packed.block)?;
        packed.merged = Some(self.position());
        Ok(there)
    }

    /// For the records of [`Self::next_packed`], from where it stands.
    pub fn sequencer(&self) -> Sequencer {
        Sequencer(self.cards.first().map_or_else(Numbering::default, |card| card.reader.numbering()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{BusWriter, Packing, Stream};

    #[test]
    fn records_of_two_cards_come_by_time() {
        let trace = |times: &[u64]| {
            let mut writer =
                BusWriter::new(Vec::new(), Header::new(Stream::Bus, Packing::Blocks)).expect("written");
            let mut before = 0;
            for &time in times {
                writer.record(time * 10, time - before, false, u64::from(time == 6) * 3).expect("written");
                before = time;
            }
            writer.finish().expect("written")
        };
        let (first, second) = (trace(&[1, 4, 5, 9]), trace(&[2, 4, 6]));
        let readers = [&first, &second].map(|bytes| BusReader::new(&bytes[..]).expect("a header"));
        let mut merged = MergedBus::new(readers.into()).expect("they fit");
        let mut block = BusBlock::default();
        assert!(merged.next_block(&mut block).expect("readable"));
        let all: Vec<_> = block.iter().map(|(number, time, line, _)| (number, time, line)).collect();
        // Three records of the second card are missing before its record at 6.
        assert_eq!(all, [(0, 1, 10), (1, 2, 20), (2, 4, 40), (3, 4, 40), (4, 5, 50), (8, 6, 60), (9, 9, 90)]);
        assert!(!merged.next_block(&mut block).expect("readable"));
    }
}
