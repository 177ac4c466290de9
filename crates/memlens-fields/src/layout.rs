//! Structures' fields, and where in an object its structures lie.

use std::collections::HashMap;
use std::sync::Arc;

use memlens_profile::{CodeIx, Field, Object, Profile};
use memlens_symbols::{Content, Element, Module, TypeRef};
use memlens_types::ObjectKind;

use crate::common::Common;
use crate::{Seen, TypeOf};

/// A structure with more fields is shown by those that were seen.
const MOST_FIELDS: usize = 24;
/// What may lie before the first structure of a block. Units: bytes.
const BEFORE: [u64; 3] = [0, 8, 16];
/// Accesses of more bytes are copies, of several fields at once.
const WORD_BYTES: u64 = 8;
/// An operand is at so many places of one number at most: two halves of a pair are one field, too.
const MOST_PLACES: u32 = 2;
/// Part of the accesses that has to fit fields for a structure to be there without doubt.
const FITS: f64 = 0.95;
/// If not more fit anywhere, it is not there.
const FITS_POORLY: f64 = 0.8;

/// What types consist of and structures look like, as far as they were looked at: by the caller's number of the module,
/// and type. To be kept for the next profile of the same modules.
#[derive(Debug, Default)]
pub struct Layouts {
    contents: HashMap<(u32, TypeRef, bool), Content>,
    layouts: HashMap<(u32, TypeRef), Layout>,
    common: Common,
}

/// A structure.
#[derive(Debug)]
pub struct Layout {
    element: Element,
    whole: Arc<[Field]>,
    /// Whether its last member is an array that goes on behind it (C's flexible array member).
    is_flexible: bool,
    by_offset: HashMap<u64, Option<Arc<Part>>>,
}

/// What lies at an offset of a structure. Of an array of structures the first one's fields stand for all, so that what
/// is shown may lie elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    /// The field that is shown.
    field: Field,
    /// Where the part begins that holds the offset, in bytes from the structure's beginning.
    start: u64,
    /// How long it is; None: to the end of the block.
    bytes: Option<u64>,
}

impl Part {
    /// A field as a whole.
    pub(crate) fn whole(field: Field) -> Option<Self> {
        Some(Self { start: field.offset_bytes?, bytes: field.size_bytes, field })
    }

    /// Whether it is no array, and at most a word, but more than so many bytes.
    fn is_a_word_of_more_than(&self, size: u64) -> bool {
        let is_array = self.field.name.as_ref().is_some_and(|name| name.contains(']'));
        !is_array && self.bytes.is_some_and(|bytes| size < bytes && bytes <= WORD_BYTES)
    }

    /// Whether an offset lies in it.
    fn covers(&self, offset: u64) -> bool {
        offset.checked_sub(self.start).is_some_and(|within| self.bytes.is_none_or(|bytes| within < bytes))
    }
}

/// What a field is known by; in the order in which fields are shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// At an offset of a structure.
    Structure(u64),
    /// A field of it, by place and name.
    Field(u64, Arc<str>),
    /// At an offset of a block, in no structure.
    Behind(u64),
    /// None of these.
    Elsewhere,
}

impl Place {
    /// Of a field with a name.
    pub fn of(field: &Field) -> Self {
        Self::Field(field.offset_bytes.unwrap_or(0), field.name.clone().unwrap_or_default())
    }
}

impl Layouts {
    /// What an object of a type consists of.
    pub(crate) fn content(&mut self, held: &TypeOf<'_>) -> Content {
        let &TypeOf::Known { number, module, type_ref, is_behind } = held else { return Content::Bytes };
        let found = self.contents.entry((number, type_ref, is_behind)).or_insert_with(|| match is_behind {
            true => module.content_behind(type_ref),
            false => module.content_of(type_ref),
        });
        found.clone()
    }

    /// A structure of a module, by the module's number.
    pub(crate) fn structure<'a>(
        &'a mut self,
        number: u32,
        module: &'a Module,
        element: &Element,
    ) -> Structure<'a> {
        let Self { layouts, common, .. } = self;
        let layout = layouts.entry((number, element.type_ref)).or_insert_with(|| {
            let mut whole: Vec<Field> =
                module.fields(element).iter().map(|field| common.field(field)).collect();
            let behind = module.field_at(element.type_ref, element.size_bytes);
            let is_flexible = behind.is_some();
            // How long it is depends on the block.
            whole.extend(behind.map(|last| Field { size_bytes: None, ..common.field(&last) }));
            let whole = common.fields(whole);
            Layout { element: element.clone(), whole, is_flexible, by_offset: HashMap::new() }
        });
        Structure { layout, common, module }
    }
}

/// A structure with the module that tells more of it.
pub struct Structure<'a> {
    layout: &'a mut Layout,
    common: &'a mut Common,
    module: &'a Module,
}

impl Structure<'_> {
    /// The structure's size.
    pub fn bytes(&self) -> u64 {
        self.layout.element.size_bytes
    }

    /// All of its fields, if they are not too many to be shown.
    pub fn whole(&self) -> &[Field] {
        let whole = &*self.layout.whole;
        if whole.len() > MOST_FIELDS { &[] } else { whole }
    }

    /// The field at an offset. Cost: a look at the debug information, once for each offset in arrays.
    pub fn field_at(&mut self, offset: u64) -> Option<Field> {
        Some(self.part_at(offset)?.field)
    }

    fn part_at(&mut self, offset: u64) -> Option<Part> {
        let Layout { element, whole, is_flexible, by_offset } = &mut *self.layout;
        // Fields do not overlap, and but for the one that goes on behind the structure they are in order.
        let sized = &whole[..whole.len() - usize::from(*is_flexible)];
        let after = sized.partition_point(|field| field.offset_bytes.is_some_and(|start| start <= offset));
        let covers = |field: &&Field| {
            let end = field.offset_bytes.zip(field.size_bytes).and_then(|(at, bytes)| at.checked_add(bytes));
            let is_plain = field.name.as_ref().is_some_and(|name| !name.contains(']'));
            end.is_some_and(|end| offset < end) && is_plain
        };
        if let Some(known) = after.checked_sub(1).map(|at| &sized[at]).filter(covers) {
            return Part::whole(known.clone());
        }
        let (module, common) = (self.module, &mut *self.common);
        let found = by_offset.entry(offset).or_insert_with(|| {
            let found = common.field(&module.field_at(element.type_ref, offset)?);
            let part = match whole.iter().find(|field| field.name == found.name) {
                None => Part::whole(found)?,
                Some(known) => {
                    let array = Part::whole(known.clone())?;
                    // An array of numbers is one part.
                    if array.covers(offset) {
                        array
                    } else {
                        Part { field: array.field, ..Part::whole(found)? }
                    }
                }
            };
            Some(common.part(part))
        });
        found.as_deref().cloned()
    }

    /// Whether a field ends before an offset.
    fn ends_a_field(&mut self, offset: u64) -> bool {
        let last =
            offset.checked_sub(1).filter(|_| offset <= self.bytes()).and_then(|last| self.part_at(last));
        let end = last.and_then(|part| part.start.checked_add(part.bytes?));
        end == Some(offset)
    }
}

/// Where an object's structures begin: behind so many bytes that an allocator of the program's own, or C++'s `new[]`
/// (Itanium C++ ABI, section 2.7), keeps before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// One after the other.
    Array { bytes: u64, before: u64 },
    /// There is one in each block, and perhaps something else behind it.
    One { bytes: u64, before: u64 },
    /// The same, and its last member takes the rest of the block.
    Flexible { before: u64 },
}

impl Start {
    /// In `object`; None: the accesses seen do not fit the structure, wherever it begins.
    pub fn of(profile: &Profile, object: &Object, layout: &mut Structure<'_>, seen: &[Seen]) -> Option<Self> {
        let bytes = layout.bytes();
        let array = |before| Self::Array { bytes, before };
        let (ObjectKind::Heap, Some(all)) = (object.kind, object.bytes) else { return Some(array(0)) };
        let sizes = (all, object.blocks);
        let is_whole = |before: &u64| is_array_behind(*before, sizes, bytes);
        if layout.layout.is_flexible {
            return Self::best(BEFORE.map(|before| Self::Flexible { before }), profile, layout, seen);
        }
        let steps = steps(profile, bytes, seen);
        let ones = BEFORE.map(|before| Self::One { bytes, before });
        // Of blocks of many sizes the sum may be a whole number of structures by chance. Those of less than two structures on average have
        // something else behind one of them where operands say so.
        let are_small = all < 2 * bytes * object.blocks;
        let by_chance = are_small && !is_one_size(sizes, bytes) && steps == Some(Steps::Other);
        let alone = ones.into_iter().filter(|_| by_chance);
        // An array if the size of the blocks allows it.
        let whole = BEFORE.into_iter().filter(is_whole).map(array);
        Self::best(alone.chain(whole), profile, layout, seen).or_else(|| match steps {
            Some(Steps::Whole) => Self::best(BEFORE.map(array), profile, layout, seen),
            _ => Self::best(ones, profile, layout, seen),
        })
    }

    /// The first that fits without doubt, else the one that fits best, if well enough.
    fn best(
        candidates: impl IntoIterator<Item = Self>,
        profile: &Profile,
        layout: &mut Structure<'_>,
        seen: &[Seen],
    ) -> Option<Self> {
        let (mut best, mut best_fit) = (None, FITS_POORLY);
        for candidate in candidates {
            let fit = candidate.fit(profile, layout, seen);
            if fit >= FITS {
                return Some(candidate);
            }
            if fit > best_fit {
                (best, best_fit) = (Some(candidate), fit);
            }
        }
        best
    }

    /// The part of the accesses to structures, and loads before the first of them, that are inside of one field, and aligned in it, or are
    /// several fields as a whole, as compilers join them. Only of those that are no copies: 1 if there are none. An operand that goes
    /// through the parts of a field as small as a word has another idea of what is there. What an allocator stores before a structure
    /// is hardly looked at.
    fn fit(self, profile: &Profile, layout: &mut Structure<'_>, seen: &[Seen]) -> f64 {
        let (mut fits, mut all) = (0, 0);
        // By operand and field: at which of its bytes, a bit each, and how often.
        let mut in_parts: HashMap<(CodeIx, u64), (u8, u64)> = HashMap::new();
        for one in seen {
            let Some(code) = profile.code.get(one.code.index()) else { continue };
            let (size, is_load) = (u64::from(code.size_bytes), code.kind.reads());
            if size == 0 || size > WORD_BYTES || one.is_run {
                continue;
            }
            let offset = match self.place(one.offset_bytes) {
                Place::Structure(offset) => offset,
                Place::Elsewhere => {
                    all += if is_load { one.times } else { 0 };
                    continue;
                }
                Place::Field(..) | Place::Behind(_) => continue,
            };
            all += one.times;
            let part = layout.part_at(offset);
            let is_field = part.as_ref().is_some_and(|part| {
                let within = offset - part.start;
                let is_inside = part.bytes.is_none_or(|bytes| within.saturating_add(size) <= bytes);
                within.is_multiple_of(size) && is_inside || within == 0 && layout.ends_a_field(offset + size)
            });
            fits += if is_field { one.times } else { 0 };
            if let Some(part) = part.filter(|part| is_field && part.is_a_word_of_more_than(size)) {
                let (bytes, times) = in_parts.entry((one.code, part.start)).or_default();
                *bytes |= 1 << (offset - part.start);
                *times += one.times;
            }
        }
        let through_parts = in_parts.into_values().filter(|(bytes, _)| bytes.count_ones() > MOST_PLACES);
        fits -= through_parts.map(|(_, times)| times).sum::<u64>();
        if all == 0 { 1.0 } else { fits as f64 / all as f64 }
    }

    /// Where an offset of the object is.
    pub fn place(self, offset: u64) -> Place {
        let before = match self {
            Self::Array { before, .. } | Self::One { before, .. } | Self::Flexible { before } => before,
        };
        let Some(within) = offset.checked_sub(before) else { return Place::Elsewhere };
        match self {
            Self::Array { bytes, .. } => Place::Structure(within % bytes),
            Self::One { bytes, .. } if within >= bytes => Place::Behind(offset),
            Self::One { .. } | Self::Flexible { .. } => Place::Structure(within),
        }
    }
}

/// How far operands are apart from themselves, beyond the first structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Steps {
    /// By whole structures, mostly.
    Whole,
    /// By something else, mostly.
    Other,
}

/// Of operands that were seen at several offsets; None: they are too few, or both. Those of copies, as of an array that grows, go by other steps
/// than its structures, and count for nothing.
fn steps(profile: &Profile, bytes: u64, seen: &[Seen]) -> Option<Steps> {
    let (mut alike, mut all) = (0, 0);
    let is_copy = |one: &Seen| {
        let size = profile.code.get(one.code.index()).map_or(0, |code| code.size_bytes);
        one.is_run || u64::from(size) > WORD_BYTES && !u64::from(size).is_multiple_of(bytes)
    };
    // Those of one operand follow each other.
    let pairs = seen.windows(2).filter(|pair| pair[0].code == pair[1].code);
    for pair in pairs.filter(|pair| !is_copy(&pair[0])) {
        let apart = pair[0].offset_bytes.abs_diff(pair[1].offset_bytes);
        if apart > 0 && pair[0].offset_bytes.max(pair[1].offset_bytes) >= bytes {
            all += 1;
            alike += usize::from(apart.is_multiple_of(bytes));
        }
    }
    match (alike, all) {
        _ if alike * 10 >= all * 9 && alike > 1 => Some(Steps::Whole),
        _ if alike * 2 < all && all > 2 => Some(Steps::Other),
        _ => None,
    }
}

/// Whether so many bytes in so many blocks are taken for blocks of one size.
fn is_one_size((all, blocks): (u64, u64), bytes: u64) -> bool {
    /// A mean size that is a whole number once in so many times by chance is taken for the size of each block.
    const MANY: u64 = 16;
    // The sizes of arrays of structures have the structure's factors in common; what is left of the number of blocks is chance.
    all.is_multiple_of(blocks.max(1)) && blocks / common_factor(blocks, bytes) >= MANY
}

/// Whether so many bytes in so many blocks can be structures of `bytes` bytes behind `before` others in each.
fn is_array_behind(before: u64, (all, blocks): (u64, u64), bytes: u64) -> bool {
    let is_one_size = is_one_size((all, blocks), bytes);
    let (all, before) = if is_one_size { (all / blocks, before) } else { (all, before * blocks) };
    all.checked_sub(before).is_some_and(|rest| rest > 0 && rest.is_multiple_of(bytes))
}

/// The greatest common divisor; 1 of zeros.
fn common_factor(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { common_factor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_profile::{CodeLocation, ObjectIx};

    #[test]
    fn blocks_of_one_size_are_looked_at_by_themselves() {
        // 100,000 times 61 bytes are 190,625 times 32.
        assert!(!is_array_behind(0, (6_100_000, 100_000), 32));
        assert!(is_array_behind(0, (6_400_000, 100_000), 32) && is_array_behind(8, (7_200_000, 100_000), 32));
        // 32, 64 and 128 bytes; the mean says nothing of three.
        assert!(is_array_behind(0, (224, 3), 32) && is_array_behind(16, (272, 3), 32));
        // Sixteen arrays of 32-byte structures, 17 in all: the mean is whole whatever their lengths are.
        assert!(is_array_behind(0, (17 * 32, 16), 32) && is_array_behind(8, (17 * 32 + 16 * 8, 16), 32));
        assert!(!is_array_behind(0, (0, 0), 32) && !is_array_behind(8, (6, 1), 32));
    }

    fn seen(code: u32, offset_bytes: u64) -> Seen {
        Seen { code: CodeIx(code), object: ObjectIx(0), offset_bytes, times: 1, is_run: false }
    }

    #[test]
    fn steps_of_whole_structures_tell_an_array() {
        let of = |all: &[Seen]| steps(&Profile::default(), 24, all);
        let array = [seen(0, 8), seen(0, 56), seen(0, 200), seen(1, 16), seen(1, 880)];
        assert_eq!(of(&array), Some(Steps::Whole));
        // A header of 24 bytes, and numbers behind it.
        let numbers = [seen(0, 8), seen(1, 24), seen(1, 32), seen(1, 72), seen(1, 80)];
        assert_eq!(of(&numbers), Some(Steps::Other));
        assert_eq!(of(&[seen(0, 8), seen(0, 32)]), None, "once may be chance");
    }

    #[test]
    fn copies_of_an_array_that_grows_are_no_steps() {
        let code = |size_bytes| CodeLocation { size_bytes, ..CodeLocation::default() };
        let all =
            [seen(0, 8), seen(0, 56), seen(0, 200), seen(1, 64), seen(1, 128), seen(1, 192), seen(1, 320)];
        let of = |of_copy| {
            let profile = Profile { code: vec![code(8), code(of_copy)], ..Profile::default() };
            steps(&profile, 24, &all)
        };
        assert_eq!(of(64), Some(Steps::Whole), "by lines");
        assert_eq!(of(8), Some(Steps::Other), "by words, of something else");
    }

    #[test]
    fn offsets_find_their_structure() {
        let array = |before| Start::Array { bytes: 24, before };
        assert_eq!(array(0).place(24 * 7 + 16), Place::Structure(16));
        assert_eq!(array(8).place(24 * 7 + 24), Place::Structure(16));
        assert_eq!(array(8).place(7), Place::Elsewhere, "the allocator's");
        let one = Start::One { bytes: 24, before: 8 };
        assert_eq!((one.place(8), one.place(31)), (Place::Structure(0), Place::Structure(23)));
        assert_eq!(one.place(32), Place::Behind(32));
        assert_eq!(Start::Flexible { before: 0 }.place(4000), Place::Structure(4000));
    }
}
