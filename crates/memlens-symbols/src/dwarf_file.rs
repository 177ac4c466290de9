//! One file's DWARF: its units, parsed one by one when asked for.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use gimli::{
    Attribute, AttributeValue, DebugInfoOffset, DwAt, Dwarf, EndianSlice, LittleEndian, Unit, UnitHeader,
    UnitOffset, UnitType,
};

use crate::unit_index::UnitIndex;

pub(crate) type Bytes<'a> = EndianSlice<'a, LittleEndian>;
pub(crate) type Attr<'a> = Attribute<Bytes<'a>>;
pub(crate) type Value<'a> = AttributeValue<Bytes<'a>>;

/// How many references (`DW_AT_specification`, `DW_AT_abstract_origin`, `DW_AT_type` chains) are
/// followed before a chain is taken for a loop made by damage.
pub(crate) const MAX_REFERENCES: u32 = 24;

/// One unit, parsed at first use.
pub(crate) struct UnitSlot<'a> {
    header: UnitHeader<Bytes<'a>>,
    unit: OnceLock<Option<Unit<Bytes<'a>>>>,
    index: OnceLock<UnitIndex<'a>>,
}

/// The DWARF of one file: the module, its debug file, a supplementary file or a `.dwo`.
pub(crate) struct DwarfFile<'a> {
    /// Number of the file within [`crate::debug_info::DebugInfo`].
    pub(crate) id: u32,
    pub(crate) dwarf: Arc<Dwarf<Bytes<'a>>>,
    slots: Vec<UnitSlot<'a>>,
    type_units: OnceLock<HashMap<u64, (u32, UnitOffset)>>,
    /// The unit in the main file that a split file's unit belongs to.
    pub(crate) skeleton: OnceLock<UnitHandle<'a>>,
    /// The damage that ended the list of units, if any.
    pub(crate) damage: Option<gimli::Error>,
}

impl<'a> DwarfFile<'a> {
    /// Lists the units' headers (a few bytes of each are read).
    pub(crate) fn new(id: u32, dwarf: Arc<Dwarf<Bytes<'a>>>) -> Self {
        let mut slots = Vec::new();
        let mut damage = None;
        let slot = |header| UnitSlot { header, unit: OnceLock::new(), index: OnceLock::new() };
        let mut units = dwarf.units();
        loop {
            match units.next() {
                Ok(Some(header)) => slots.push(slot(header)),
                Ok(None) => break,
                Err(error) => {
                    damage = Some(error);
                    break;
                }
            }
        }
        let mut types = dwarf.type_units();
        loop {
            match types.next() {
                Ok(Some(header)) => slots.push(slot(header)),
                Ok(None) => break,
                Err(error) => {
                    damage = Some(error);
                    break;
                }
            }
        }
        Self { id, dwarf, slots, type_units: OnceLock::new(), skeleton: OnceLock::new(), damage }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Gives the first unit the attributes that its skeleton in the main file holds (DWARF 5,
    /// section 3.1.3). Called once, before anything else of the file is used.
    pub(crate) fn adopt_skeleton(&self, skeleton: &Unit<Bytes<'a>>, wanted: gimli::DwoId) -> Option<usize> {
        for (index, slot) in self.slots.iter().enumerate() {
            let Ok(mut unit) = self.dwarf.unit(slot.header) else { continue };
            if unit.dwo_id != Some(wanted) {
                continue;
            }
            unit.copy_relocated_attributes(skeleton);
            slot.unit.set(Some(unit)).ok()?;
            return Some(index);
        }
        None
    }

    fn type_unit(&self, signature: u64) -> Option<(u32, UnitOffset)> {
        self.type_units
            .get_or_init(|| {
                self.slots
                    .iter()
                    .enumerate()
                    .filter_map(|(index, slot)| match slot.header.type_() {
                        UnitType::Type { type_signature, type_offset }
                        | UnitType::SplitType { type_signature, type_offset } => {
                            Some((type_signature.0, (index as u32, type_offset)))
                        }
                        _ => None,
                    })
                    .collect()
            })
            .get(&signature)
            .copied()
    }

    fn slot_of(&self, offset: DebugInfoOffset) -> Option<usize> {
        // Units of .debug_info come first, in order; those of .debug_types have no such offset.
        let after = self
            .slots
            .partition_point(|slot| slot.header.debug_info_offset().is_some_and(|start| start.0 <= offset.0));
        after.checked_sub(1)
    }
}

/// A unit of a file. Cheap to clone.
#[derive(Clone)]
pub(crate) struct UnitHandle<'a> {
    pub(crate) file: Arc<DwarfFile<'a>>,
    pub(crate) slot: usize,
}

impl<'a> UnitHandle<'a> {
    pub(crate) fn dwarf(&self) -> &Dwarf<Bytes<'a>> {
        &self.file.dwarf
    }

    /// The unit, if it can be parsed.
    pub(crate) fn unit(&self) -> Option<&Unit<Bytes<'a>>> {
        let slot = self.file.slots.get(self.slot)?;
        slot.unit.get_or_init(|| self.file.dwarf.unit(slot.header).ok()).as_ref()
    }

    /// The unit's functions, variables and scopes; one pass over its entries at first use.
    pub(crate) fn index(&self) -> Option<&UnitIndex<'a>> {
        let unit = self.unit()?;
        let slot = self.file.slots.get(self.slot)?;
        Some(slot.index.get_or_init(|| UnitIndex::build(self.dwarf(), unit)))
    }

    pub(crate) fn is_type_unit(&self) -> bool {
        self.file
            .slots
            .get(self.slot)
            .is_some_and(|s| matches!(s.header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. }))
    }

    /// The language of the unit, or else 0.
    pub(crate) fn language(&self) -> gimli::DwLang {
        self.index().map_or(gimli::DwLang(0), |index| index.language)
    }

    /// The attributes of the entry at `die`, with its tag.
    pub(crate) fn entry(&self, die: UnitOffset) -> Option<(gimli::DwTag, Vec<Attr<'a>>)> {
        let unit = self.unit()?;
        let mut entries = unit.entries_raw(Some(die)).ok()?;
        let abbreviation = entries.read_abbreviation().ok()??;
        let mut attributes = Vec::with_capacity(abbreviation.attributes().len());
        entries.read_attributes(abbreviation.attributes(), &mut attributes).ok()?;
        Some((abbreviation.tag(), attributes))
    }

    /// The entry that the reference `value` leads to.
    pub(crate) fn resolve(
        &self,
        value: Value<'a>,
        sup: Option<&Arc<DwarfFile<'a>>>,
    ) -> Option<(Self, UnitOffset)> {
        let in_file = |file: &Arc<DwarfFile<'a>>, offset: DebugInfoOffset| {
            let slot = file.slot_of(offset)?;
            let die = offset.to_unit_offset(&file.slots.get(slot)?.header)?;
            Some((Self { file: file.clone(), slot }, die))
        };
        match value {
            AttributeValue::UnitRef(die) => Some((self.clone(), die)),
            AttributeValue::DebugInfoRef(offset) => in_file(&self.file, offset),
            AttributeValue::DebugInfoRefSup(offset) => in_file(sup?, offset),
            AttributeValue::DebugTypesRef(signature) => {
                let (slot, die) = self.file.type_unit(signature.0)?;
                Some((Self { file: self.file.clone(), slot: slot as usize }, die))
            }
            _ => None,
        }
    }

    /// The string that `value` is or refers to.
    pub(crate) fn string(&self, value: Value<'a>) -> Option<&'a str> {
        let bytes = self.dwarf().attr_string(self.unit()?, value).ok()?;
        std::str::from_utf8(bytes.slice()).ok()
    }
}

/// The value of the attribute `name`.
pub(crate) fn attribute<'a>(attributes: &[Attr<'a>], name: DwAt) -> Option<Value<'a>> {
    attributes.iter().find(|a| a.name() == name).map(Attribute::value)
}

/// The address ranges that an entry's attributes state; empty ranges are left out.
pub(crate) fn ranges<'a>(
    dwarf: &Dwarf<Bytes<'a>>,
    unit: &Unit<Bytes<'a>>,
    attributes: &[Attr<'a>],
) -> Vec<(u64, u64)> {
    let mut list = Vec::new();
    if let Some(value) = attribute(attributes, gimli::DW_AT_ranges) {
        if let Ok(Some(mut iter)) = dwarf.attr_ranges(unit, value) {
            while let Ok(Some(range)) = iter.next() {
                if range.begin < range.end {
                    list.push((range.begin, range.end));
                }
            }
        }
        return list;
    }
    let low = attribute(attributes, gimli::DW_AT_low_pc)
        .and_then(|value| dwarf.attr_address(unit, value).ok().flatten());
    let high = attribute(attributes, gimli::DW_AT_high_pc);
    if let (Some(low), Some(high)) = (low, high) {
        let end = match high.udata_value() {
            Some(length) => low.checked_add(length),
            None => dwarf.attr_address(unit, high).ok().flatten(),
        };
        // Functions that the linker dropped stay in the debug information at address 0 or 1, or
        // at the highest address.
        if let Some(end) = end
            && low < end
            && low > 1
        {
            list.push((low, end));
        }
    }
    list
}
