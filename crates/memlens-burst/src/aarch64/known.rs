//! Which addresses of a block follow from one that it stored: registers have versions, which change when they are written.

use memlens_events::burst::Source;

use super::assembler::Gpr;
use super::decode::{Decoded, Place};

/// Addresses of a block that a further one may be near to.
pub struct Known {
    versions: [u16; 32],
    /// Change of each register since its version began, by numbers that were added to it.
    changes: [i64; 32],
    recorded: [Recorded; 64],
    count: usize,
    /// Whether the next address must be stored, wherever it comes from: it is the first behind a side exit.
    pub must_store: bool,
}

/// An address in terms of its registers' versions.
#[derive(Clone, Copy, Default)]
pub struct Recorded {
    base: (Gpr, u16),
    /// Register, version and change; extension and shift.
    index: Option<(Gpr, u16, i64, u8, u8)>,
    disp: i64,
    word: u16,
}

impl Known {
    /// At a block's begin.
    pub const fn new() -> Self {
        let nothing = Recorded { base: (0, 0), index: None, disp: 0, word: 0 };
        Self { versions: [0; 32], changes: [0; 32], recorded: [nothing; 64], count: 0, must_store: true }
    }

    /// The address in terms of versions; its displacement counts from where the base was. None: no register tells it.
    pub fn name(&self, place: Place) -> Option<Recorded> {
        let version = |register: Gpr| self.versions[usize::from(register)];
        let change = |register: Gpr| self.changes[usize::from(register)];
        match place {
            Place::Offset(base, disp) => Some(Recorded {
                base: (base, version(base)),
                index: None,
                disp: disp.wrapping_add(change(base)),
                word: 0,
            }),
            Place::Index { base, index, option, shift } => Some(Recorded {
                base: (base, version(base)),
                index: Some((index, version(index), change(index), option, shift)),
                disp: change(base),
                word: 0,
            }),
            Place::Fixed(_) | Place::Around(_) => None,
        }
    }

    /// How the address follows from one that was stored.
    pub fn near(&self, wanted: &Recorded) -> Option<Source> {
        let found = self.recorded[..self.count]
            .iter()
            .rev()
            .find(|known| known.base == wanted.base && known.index == wanted.index)?;
        Some(Source::Near { word: found.word, distance: wanted.disp.wrapping_sub(found.disp) })
    }

    /// It is stored as this word.
    pub fn note(&mut self, name: Recorded, word: u16) {
        if let Some(place) = self.recorded.get_mut(self.count) {
            *place = Recorded { word, ..name };
            self.count += 1;
        }
    }

    /// Behind a side exit the next address must be stored.
    pub fn forget(&mut self) {
        self.count = 0;
        self.must_store = true;
    }

    /// An instruction has been executed.
    pub fn executed(&mut self, decoded: &Decoded) {
        let added = decoded.sum.filter(|(to, from, _)| to == from);
        for register in 0..32u8 {
            let at = usize::from(register);
            if decoded.written & 1 << register == 0 {
                continue;
            }
            match added {
                Some((to, _, by)) if to == register => {
                    self.changes[at] = self.changes[at].wrapping_add(by);
                }
                _ => {
                    self.versions[at] += 1;
                    self.changes[at] = 0;
                }
            }
        }
    }
}
