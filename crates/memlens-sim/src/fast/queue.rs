//! What the first levels ask of those behind them, in order.

use super::regions::Uppers;
use crate::batch::Outcome;
use crate::plain::Origin;
use alloc::vec::Vec;

/// Requests to the levels behind the first, chunk by chunk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    pub(super) requests: List,
    pub(super) chunks: Vec<Chunk>,
    /// How compact lines are expanded, if more are known than the last time.
    pub(super) uppers: Option<Uppers>,
}

/// The requests that one chunk of accesses left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    /// Where in the queue they end.
    pub(super) end: usize,
    pub(super) origins: Origins,
    /// None is a fetch's or a walk's.
    pub(super) only_data: bool,
}

impl Queue {
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.chunks.clear();
        self.uppers = None;
    }

    /// How many requests there are.
    pub(super) fn len(&self) -> usize {
        self.requests.len
    }
}

/// Who asks for a line, in the low bits of a word.
///
/// ```text
///  23 22   21          0
/// ┌──────┬───────────────┐
/// │ who  │ position in   │
/// │      │ chunk / walks │
/// └──────┴───────────────┘
/// ```
pub(super) type Asker = u32;
pub(super) const DATA: Asker = 0;
pub(super) const FETCH: Asker = 1 << 22;
pub(super) const WALK: Asker = 2 << 22;
const POSITION_MASK: u32 = FETCH - 1;

/// A request to L2 or the last level, in one word.
///
/// ```text
///  63                25  24            23 22   21      0
/// ┌────────────────────┬───────────────┬──────┬──────────┐
/// │ compact line       │ is a          │ who  │ position │
/// │ address            │ write-back    │      │          │
/// └────────────────────┴───────────────┴──────┴──────────┘
/// ```
pub(super) type Request = u64;
pub(super) const LINE_SHIFT: u32 = 25;
pub(super) const WRITE_BACK_SHIFT: u32 = 24;
pub(super) const WRITE_BACK: Request = 1 << WRITE_BACK_SHIFT;
pub(super) const ASKER_MASK: u64 = WRITE_BACK - 1;

/// A list with room that is appended to by position, without branches.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    room: Vec<u64>,
    len: usize,
}

impl List {
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Room for so many more; [`List::take`] says how many were filled.
    #[inline(always)]
    pub(super) fn free(&mut self, count: usize) -> Appender<'_> {
        if self.room.len() - self.len < count {
            self.grow(count);
        }
        Appender { room: &mut self.room[self.len..], len: 0 }
    }

    #[cold]
    fn grow(&mut self, count: usize) {
        self.room.resize((self.len + count).next_power_of_two(), 0);
    }

    #[inline(always)]
    pub(super) fn take(&mut self, count: usize) {
        self.len += count;
    }

    pub(super) fn as_slice(&self) -> &[u64] {
        &self.room[..self.len]
    }
}

/// The end of a list, in registers.
pub(super) struct Appender<'a> {
    room: &'a mut [u64],
    pub(super) len: usize,
}

impl Appender<'_> {
    #[inline(always)]
    pub(super) fn push_if(&mut self, word: u64, is_wanted: bool) {
        if let Some(place) = self.room.get_mut(self.len) {
            *place = word;
        }
        self.len += usize::from(is_wanted);
    }
}

/// Where the askers' positions are counted from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origins {
    /// Accesses of the batch.
    pub(super) first_index: u32,
    /// Walks of the outcome.
    pub(super) first_walk: usize,
}

impl Origins {
    #[inline(always)]
    pub(super) fn of(self, asker: Asker) -> Origin {
        let position = asker & POSITION_MASK;
        if asker & WALK != 0 {
            Origin::Walk(self.first_walk + position as usize)
        } else if asker & FETCH != 0 {
            Origin::Fetch(self.first_index + position)
        } else {
            Origin::Data(self.first_index + position)
        }
    }

    /// Appends the positions of data whose requests go on to a level, less write-backs, to their list, all
    /// others by `record`.
    pub(super) fn record(
        self,
        requests: &[Request],
        only_data: bool,
        out: &mut Outcome,
        list: impl Fn(&mut Outcome) -> &mut Vec<u32>,
        record: impl Fn(Origin, &mut Outcome),
    ) {
        if only_data {
            let list = list(out);
            let mut len = list.len();
            // One more, so that there is a place for what is not kept.
            list.resize(len + requests.len() + 1, 0);
            for &request in requests {
                if let Some(place) = list.get_mut(len) {
                    *place = self.first_index + (request as u32 & POSITION_MASK);
                }
                len += usize::from(request & WRITE_BACK == 0);
            }
            list.truncate(len);
        } else {
            let reads = requests.iter().filter(|&request| request & WRITE_BACK == 0);
            reads.for_each(|&request| record(self.of(request as u32), out));
        }
    }
}
