//! Changes of an address space, noted for whoever keeps a map of its own, and its regions piece by piece.

use crate::address_space::{AddressSpace, CacheRange};
use memlens_objects::{Layer, ObjectId};
use std::ops::Range;

/// A change of the address space, as it is noted when it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SpaceChange {
    /// A range got a meaning.
    Labelled(Range<u64>),
    /// A range lost its meaning.
    Unlabelled(Range<u64>),
    /// A block began.
    Block { layer: u8, start: u64, bytes: u64, object: ObjectId },
    /// A block ended.
    Ended { layer: u8, start: u64, bytes: u64 },
}

/// Unnamed parts of thread-local blocks are looked at in steps of this size.
const TLS_STEP_BYTES: u64 = 8;
/// The same of modules without symbols.
const MODULE_STEP_BYTES: u64 = 4096;

/// Changes since somebody looked last, if anybody wants them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(Option<Vec<SpaceChange>>);

impl Changes {
    /// Notes from now on.
    pub fn begin(&mut self) {
        self.0.get_or_insert_default();
    }

    /// Whether anybody wants them.
    pub fn are_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Notes a change.
    pub fn note(&mut self, change: impl FnOnce() -> SpaceChange) {
        if let Some(changes) = &mut self.0 {
            changes.push(change());
        }
    }

    /// Notes a block of a layer.
    pub fn note_block(&mut self, layer: Layer, start: u64, bytes: u64, object: Option<ObjectId>) {
        let layer = if layer == Layer::POOL { 2 } else { 1 };
        self.note(|| match object {
            Some(object) => SpaceChange::Block { layer, start, bytes, object },
            None => SpaceChange::Ended { layer, start, bytes },
        });
    }

    /// What was noted.
    pub fn take(&mut self) -> Vec<SpaceChange> {
        self.0.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl AddressSpace {
    /// The objects of the regions in a range, heap blocks left out; neighbouring pieces of one object are one.
    pub(crate) fn region_pieces(&mut self, range: Range<u64>) -> Vec<(Range<u64>, ObjectId)> {
        let mut pieces: Vec<(Range<u64>, ObjectId)> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let Some((piece, found)) = self.region_object(at) else { break };
            let end = match found.range {
                CacheRange::Fixed { start, len } | CacheRange::Volatile { start, len } if len > 0 => {
                    start.saturating_add(len)
                }
                _ => 0,
            };
            let step = if self.is_thread_local(at) { TLS_STEP_BYTES } else { MODULE_STEP_BYTES };
            let end = if end > at + 1 { end } else { (at + step) & !(step - 1) };
            let end = if self.is_whole(at) { piece.end } else { end };
            let end = end.clamp(at + 1, range.end.min(piece.end).max(at + 1));
            match pieces.last_mut() {
                Some((last, object)) if *object == found.object && last.end == at => last.end = end,
                _ => pieces.push((at..end, found.object)),
            }
            at = end;
        }
        pieces
    }
}
