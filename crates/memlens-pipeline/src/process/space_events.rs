//! What changes in a process's memory, as events, for whoever keeps a map of its own.

use super::Process;
use crate::address_space::AddressSpace;
use crate::snapshot::Builder;
use crate::space_change::SpaceChange;
use memlens_objects::{ObjectId, ObjectKey, split_frame_key};
use memlens_types::ObjectKind;
use std::ops::Range;

/// A change of what lies where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpaceEvent {
    /// Addresses belong to an object, whatever they belonged to.
    Region {
        /// The addresses.
        range: Range<u64>,
        /// The object's number.
        object: u32,
    },
    /// Addresses belong to no region.
    Clear {
        /// The addresses.
        range: Range<u64>,
    },
    /// A heap block (layer 1), or a block inside one (2), began.
    Block {
        /// 1 or 2.
        layer: u8,
        /// First address.
        start: u64,
        /// Length.
        bytes: u64,
        /// The object's number.
        object: u32,
    },
    /// A block ended.
    End {
        /// 1 or 2.
        layer: u8,
        /// First address.
        start: u64,
        /// Length.
        bytes: u64,
    },
}

/// What an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectDescription {
    /// Kind.
    pub kind: ObjectKind,
    /// Name.
    pub name: String,
    /// Call stack of its allocation, innermost first: `FILE+OFFSET`, separated by spaces; empty without one.
    pub site: String,
}

impl Process {
    /// Notes changes of the address space from now on.
    pub fn watch_space(&mut self) {
        self.space.note_changes();
    }

    /// Changes since the last call, in order. Parts of modules and thread-local blocks come by variable.
    pub fn take_space_events(&mut self) -> Vec<SpaceEvent> {
        let mut events = Vec::new();
        for change in self.space.take_changes() {
            match change {
                SpaceChange::Labelled(range) => {
                    let pieces = self.space.region_pieces(range);
                    let region = |(range, object): (Range<u64>, ObjectId)| SpaceEvent::Region {
                        range,
                        object: object.get(),
                    };
                    events.extend(pieces.into_iter().map(region));
                }
                SpaceChange::Unlabelled(range) => events.push(SpaceEvent::Clear { range }),
                SpaceChange::Block { layer, start, bytes, object } => {
                    events.push(SpaceEvent::Block { layer, start, bytes, object: object.get() });
                }
                SpaceChange::Ended { layer, start, bytes } => {
                    events.push(SpaceEvent::End { layer, start, bytes });
                }
            }
        }
        events
    }

    /// What the object of a number is. Costs a look into debug information and source.
    pub fn describe_object(&self, object: u32) -> Option<ObjectDescription> {
        let id = ObjectId::new(object)?;
        let key = *self.space.heap.objects().key(id)?;
        let name = match key {
            // Frames are not told apart here, and names are held against those of other runs.
            ObjectKey::Stack { thread } => match self.space.stack_number(thread) {
                Some(number) => format!("stack of thread {number}"),
                None => "stack".to_owned(),
            },
            _ => Builder::for_names(&self.space).describe(id, &key).name,
        };
        let site = key.site().map(|site| site_text(&self.space, self.space.heap.sites().stack(site)));
        Some(ObjectDescription { kind: key.kind(), name, site: site.unwrap_or_default() })
    }

    /// Whether entering the code at an address begins or ends collection.
    pub fn switches_at(&self, pc: u64) -> bool {
        self.switch_pcs.contains_key(&pc)
    }

    /// Whether accesses count now (`--start-on`, client requests …).
    pub fn is_collecting(&self) -> bool {
        self.collecting
    }
}

fn site_text(space: &AddressSpace, keys: &[u64]) -> String {
    let frame = |&key: &u64| {
        let (module, offset) = split_frame_key(key);
        let path = space.module(module.into()).map_or("?", |module| module.path.as_str());
        format!("{path}+{offset:#x}")
    };
    keys.iter().map(frame).collect::<Vec<_>>().join(" ")
}
