//! One file's DWARF: its units, parsed one by one when asked for.
//!
//! A parsed unit is some ten times as large as what is asked of it: its abbreviations alone take more
//! room than the entries they describe. So only the units used last stay parsed; of every other one
//! that was read, the places of its functions and variables stay ([`UnitSummary`]).

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gimli::{
    Attribute, AttributeValue, DebugInfoOffset, DwAt, Dwarf, EndianSlice, LittleEndian, Unit, UnitHeader,
    UnitOffset, UnitType,
};

use crate::source_lines::SourceLines;
use crate::unit_index::{UnitIndex, UnitSummary};

pub(crate) type Bytes<'a> = EndianSlice<'a, LittleEndian>;
pub(crate) type Attr<'a> = Attribute<Bytes<'a>>;
pub(crate) type Value<'a> = AttributeValue<Bytes<'a>>;

/// How many references (`DW_AT_specification`, `DW_AT_abstract_origin`, `DW_AT_type` chains) are
/// followed before a chain is taken for a loop made by damage.
pub(crate) const MAX_REFERENCES: u32 = 24;

/// Units that stay parsed. What belongs together (a function, its types, its lines) is in one unit,
/// with link-time optimisation in a few; asking about one place after another in the order of their
/// addresses parses each unit once.
const PARSED_UNITS: usize = 24;

/// One unit: what stays of it.
struct UnitSlot<'a> {
    header: UnitHeader<Bytes<'a>>,
    summary: OnceLock<UnitSummary>,
    /// A split unit that was joined with its skeleton: it cannot be had from the header alone.
    joined: OnceLock<Arc<ParsedUnit<'a>>>,
}

/// A parsed unit, and what was derived from it.
pub(crate) struct ParsedUnit<'a> {
    unit: Unit<Bytes<'a>>,
    index: OnceLock<Arc<UnitIndex<'a>>>,
    lines: OnceLock<SourceLines>,
}

impl<'a> ParsedUnit<'a> {
    fn new(unit: Unit<Bytes<'a>>) -> Arc<Self> {
        Arc::new(Self { unit, index: OnceLock::new(), lines: OnceLock::new() })
    }

    /// The rows of the unit's own line program, none if it has no readable one.
    pub(crate) fn lines(&self) -> &SourceLines {
        self.lines.get_or_init(|| SourceLines::read(&self.unit))
    }
}

impl<'a> Deref for ParsedUnit<'a> {
    type Target = Unit<Bytes<'a>>;

    fn deref(&self) -> &Self::Target {
        &self.unit
    }
}

/// The DWARF of one file: the module, its debug file, a supplementary file or a `.dwo`.
pub(crate) struct DwarfFile<'a> {
    /// Number of the file within [`crate::debug_info::DebugInfo`].
    pub(crate) id: u32,
    pub(crate) dwarf: Arc<Dwarf<Bytes<'a>>>,
    slots: Vec<UnitSlot<'a>>,
    /// The units used last, latest first.
    parsed: Mutex<VecDeque<(usize, Arc<ParsedUnit<'a>>)>>,
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
        let slot = |header| UnitSlot { header, summary: OnceLock::new(), joined: OnceLock::new() };
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
        Self {
            id,
            dwarf,
            slots,
            parsed: Mutex::default(),
            type_units: OnceLock::new(),
            skeleton: OnceLock::new(),
            damage,
        }
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
            slot.joined.set(ParsedUnit::new(unit)).ok()?;
            return Some(index);
        }
        None
    }

    fn parsed(&self) -> MutexGuard<'_, VecDeque<(usize, Arc<ParsedUnit<'a>>)>> {
        // A list of finished units is in order whatever happened to who held it.
        self.parsed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unit number `slot`, if it can be parsed.
    fn unit(&self, slot: usize) -> Option<Arc<ParsedUnit<'a>>> {
        let known = self.slots.get(slot)?;
        if let Some(joined) = known.joined.get() {
            return Some(joined.clone());
        }
        let mut parsed = self.parsed();
        if let Some(at) = parsed.iter().position(|&(number, _)| number == slot) {
            if at > 0 {
                let entry = parsed.remove(at)?;
                parsed.push_front(entry);
            }
            return parsed.front().map(|(_, unit)| unit.clone());
        }
        let unit = ParsedUnit::new(self.dwarf.unit(known.header).ok()?);
        parsed.truncate(PARSED_UNITS - 1);
        parsed.push_front((slot, unit.clone()));
        Some(unit)
    }

    /// Ranges of code (start, end, slot) of the units that `.debug_aranges` lists (DWARF 5, section
    /// 6.1.2), and which these are. Read without parsing a unit.
    pub(crate) fn listed_ranges(&self) -> (Vec<(u64, u64, u32)>, Vec<bool>) {
        let mut list = Vec::new();
        let mut listed = vec![false; self.slots.len()];
        let mut headers = self.dwarf.debug_aranges.headers();
        while let Ok(Some(header)) = headers.next() {
            let Some(slot) = self.slot_at(header.debug_info_offset()) else { continue };
            let mut ranges = Vec::new();
            let mut entries = header.entries();
            let complete = loop {
                match entries.next() {
                    Ok(Some(entry)) => ranges.push(entry.range()),
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            };
            if !complete {
                continue;
            }
            // As in `ranges`: what the linker dropped lies at 0 or 1.
            let kept = ranges.iter().filter(|range| range.begin > 1 && range.begin < range.end);
            let before = list.len();
            list.extend(kept.map(|range| (range.begin, range.end, slot as u32)));
            listed[slot] |= list.len() > before;
        }
        (list, listed)
    }

    /// The unit that starts at `offset`.
    fn slot_at(&self, offset: DebugInfoOffset) -> Option<usize> {
        let slot = self.slot_of(offset)?;
        (self.slots.get(slot)?.header.debug_info_offset() == Some(offset)).then_some(slot)
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

    /// The unit whose entries include `offset`.
    pub(crate) fn slot_of(&self, offset: DebugInfoOffset) -> Option<usize> {
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
    pub(crate) fn unit(&self) -> Option<Arc<ParsedUnit<'a>>> {
        self.file.unit(self.slot)
    }

    /// The unit's functions, variables and scopes; one pass over its entries, kept as long as the unit
    /// stays parsed.
    pub(crate) fn index(&self) -> Option<Arc<UnitIndex<'a>>> {
        let parsed = self.unit()?;
        let index = parsed.index.get_or_init(|| Arc::new(UnitIndex::build(self.dwarf(), &parsed)));
        if let Some(slot) = self.file.slots.get(self.slot) {
            slot.summary.get_or_init(|| index.summary());
        }
        Some(index.clone())
    }

    /// What stays of the unit's index; one pass over its entries at first use.
    pub(crate) fn summary(&self) -> Option<&UnitSummary> {
        let slot = self.file.slots.get(self.slot)?;
        if slot.summary.get().is_none() {
            self.index()?;
        }
        slot.summary.get()
    }

    pub(crate) fn is_type_unit(&self) -> bool {
        self.file
            .slots
            .get(self.slot)
            .is_some_and(|s| matches!(s.header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. }))
    }

    /// The language of the unit, or else 0.
    pub(crate) fn language(&self) -> gimli::DwLang {
        self.summary().map_or(gimli::DwLang(0), |summary| summary.language)
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
        let bytes = match value {
            // Most strings need no unit.
            AttributeValue::String(bytes) => bytes,
            AttributeValue::DebugStrRef(offset) => self.dwarf().string(offset).ok()?,
            AttributeValue::DebugLineStrRef(offset) => self.dwarf().line_string(offset).ok()?,
            value => self.dwarf().attr_string(&*self.unit()?, value).ok()?,
        };
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
