//! Where what pointers point to lies in the structures of the blocks that their accesses are on: a pointer to a base or a member
//! of a structure leads into its middle.
//!
//! Of a block that was not watched the beginning is not known: what an operand adds to a pointer is all that says which field it
//! touches.

use memlens_symbols::Content;
use rustc_hash::FxHashMap;

use crate::modules::Files;
use crate::naming::{HeldType, NamedObject};

/// The places, found once for each pointer and object.
#[derive(Debug, Default)]
pub struct PartPlaces(FxHashMap<(u32, u32), PartPlace>);

/// How offsets behind a pointer become those in a block.
#[derive(Clone, Copy, Debug)]
enum PartPlace {
    /// What it points to lies so far in the block's structure.
    Inside(u64),
    /// The block's structure lies so far in what it points to.
    Around(u64),
    /// Neither.
    Elsewhere,
}

impl PartPlaces {
    /// The offset in the structure of `owner` of what is `offset_bytes` behind `pointer`, two of the `objects`, by number.
    pub fn offset_in(
        &mut self,
        (pointer, owner): (u32, u32),
        offset_bytes: u64,
        objects: &[NamedObject],
        files: &Files,
    ) -> Option<u64> {
        let place = match pointer == owner {
            true => PartPlace::Inside(0),
            false => *self.0.entry((pointer, owner)).or_insert_with(|| {
                PartPlace::of(objects.get(pointer as usize), objects.get(owner as usize), files)
            }),
        };
        match place {
            PartPlace::Inside(at) => offset_bytes.checked_add(at),
            PartPlace::Around(at) => offset_bytes.checked_sub(at),
            PartPlace::Elsewhere => None,
        }
    }
}

impl PartPlace {
    fn of(pointer: Option<&NamedObject>, owner: Option<&NamedObject>, files: &Files) -> Self {
        let structure = |object: Option<&NamedObject>| {
            let HeldType { file, type_ref, is_behind } = object?.held?;
            let module = files.get(file)?.symbols()?;
            match if is_behind { module.content_behind(type_ref) } else { module.content_of(type_ref) } {
                Content::Structures(element) => Some((file, module, element)),
                Content::Values | Content::Bytes => None,
            }
        };
        let (Some((file, module, part)), Some((other, _, whole))) = (structure(pointer), structure(owner))
        else {
            return Self::Inside(0);
        };
        if file != other {
            return if part.type_name == whole.type_name { Self::Inside(0) } else { Self::Elsewhere };
        }
        let inside = module.part_offset(&whole, &part).map(Self::Inside);
        inside.or_else(|| module.part_offset(&part, &whole).map(Self::Around)).unwrap_or(Self::Elsewhere)
    }
}
