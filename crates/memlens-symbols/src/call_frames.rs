//! Canonical frame addresses by pc, from `.eh_frame` and `.debug_frame`.
//!
//! Sources: DWARF 5, section 6.4; System V ABI AMD64 supplement 1.0, section 3.7; Linux Standard
//! Base 5.0, "Exception Frames" (`.eh_frame_hdr`).

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use gimli::{BaseAddresses, DebugFrame, EhFrame, LittleEndian, UnwindContext, UnwindSection};
use object::{Object, ObjectSection};

use crate::dwarf_file::Bytes;

/// DWARF number of rbp (System V ABI AMD64, figure 3.36).
pub const RBP: u16 = 6;
/// DWARF number of rsp.
pub const RSP: u16 = 7;

/// How the canonical frame address (CFA) of a frame is found at a pc: `register + offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CfaRule {
    /// DWARF register number: [`RSP`], [`RBP`] or another.
    pub register: u16,
    /// Bytes to add to the register.
    pub offset: i64,
}

/// One row: the rule for pcs in `[start, end)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CfaRow {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// None where the rule is an expression, which no frame-relative answer can use.
    pub(crate) rule: Option<CfaRule>,
}

/// The rows of one function.
#[derive(Debug)]
pub(crate) struct CfaTable {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) rows: Vec<CfaRow>,
}

impl CfaTable {
    pub(crate) fn rule_at(&self, svma: u64) -> Option<CfaRule> {
        let after = self.rows.partition_point(|row| row.start <= svma);
        let row = self.rows.get(after.checked_sub(1)?)?;
        if svma < row.end { row.rule } else { None }
    }
}

struct Fde {
    start: u64,
    end: u64,
    offset: usize,
}

/// The sorted table of `.eh_frame_hdr`, in the only encoding that linkers write: 32-bit offsets
/// from the section's address. Read here because gimli 0.34 overflows on damaged counts.
struct SearchTable<'a> {
    /// Pairs of the function's address and its entry's address.
    pairs: &'a [u8],
    /// Address (svma) that both count from.
    address: u64,
    /// Address (svma) of `.eh_frame`.
    eh_frame: u64,
}

impl<'a> SearchTable<'a> {
    /// None if there is no table, or one in another encoding: then `.eh_frame` is read through.
    fn new(data: &'a [u8], address: u64, eh_frame: u64) -> Option<Self> {
        // Version 1; pointer pcrel|sdata4; count udata4; table datarel|sdata4.
        let (header, rest) = data.split_at_checked(12)?;
        if header[..4] != [1, 0x1b, 0x03, 0x3b] {
            return None;
        }
        let count = u32::from_le_bytes(header[8..12].try_into().ok()?) as usize;
        let pairs = rest.get(..count.checked_mul(8)?)?;
        (count > 0).then_some(Self { pairs, address, eh_frame })
    }

    /// Offset in `.eh_frame` of the last entry that starts at or before `svma`.
    fn lookup(&self, svma: u64) -> Option<usize> {
        let (pairs, _) = self.pairs.as_chunks::<8>();
        let half = |pair: &[u8; 8], at: usize| {
            let bytes = [pair[at], pair[at + 1], pair[at + 2], pair[at + 3]];
            self.address.wrapping_add_signed(i64::from(i32::from_le_bytes(bytes)))
        };
        let after = pairs.partition_point(|pair| half(pair, 0) <= svma);
        let pair = pairs.get(after.checked_sub(1)?)?;
        usize::try_from(half(pair, 4).checked_sub(self.eh_frame)?).ok()
    }
}

/// The call frame information of a module, parsed function by function at first use.
pub(crate) struct CallFrames<'a> {
    eh_frame: Option<EhFrame<Bytes<'a>>>,
    debug_frame: Option<DebugFrame<Bytes<'a>>>,
    search: Option<SearchTable<'a>>,
    bases: BaseAddresses,
    eh_index: OnceCell<Vec<Fde>>,
    debug_index: OnceCell<Vec<Fde>>,
    tables: RefCell<HashMap<u64, Arc<CfaTable>>>,
}

impl<'a> CallFrames<'a> {
    /// No information at all.
    pub(crate) fn empty() -> Self {
        Self {
            eh_frame: None,
            debug_frame: None,
            search: None,
            bases: BaseAddresses::default(),
            eh_index: OnceCell::new(),
            debug_index: OnceCell::new(),
            tables: RefCell::default(),
        }
    }

    /// Reads no more than section headers and the header of the search table.
    ///
    /// `debug_frame` comes from the debug file, the rest from `module`, whose sections the debug
    /// file has only as names.
    pub(crate) fn new(module: &object::File<'a>, debug_frame: Option<&'a [u8]>) -> Self {
        let mut bases = BaseAddresses::default();
        let mut data_of = |name: &str| {
            let section = module.section_by_name(name)?;
            let address = section.address();
            match name {
                ".eh_frame" => bases = bases.clone().set_eh_frame(address),
                ".eh_frame_hdr" => bases = bases.clone().set_eh_frame_hdr(address),
                ".text" => bases = bases.clone().set_text(address),
                _ => bases = bases.clone().set_got(address),
            }
            section.data().ok().filter(|data| !data.is_empty())
        };
        let _ = data_of(".text");
        let _ = data_of(".got");
        let eh_frame = data_of(".eh_frame");
        let eh_frame_hdr = data_of(".eh_frame_hdr");
        let address_size = if module.is_64() { 8 } else { 4 };
        let search = eh_frame_hdr
            .zip(bases.eh_frame_hdr.section)
            .zip(bases.eh_frame.section)
            .and_then(|((data, address), eh_frame)| SearchTable::new(data, address, eh_frame));
        Self {
            eh_frame: eh_frame.map(|data| {
                let mut section = EhFrame::new(data, LittleEndian);
                section.set_address_size(address_size);
                section
            }),
            debug_frame: debug_frame.filter(|data| !data.is_empty()).map(|data| {
                let mut section = DebugFrame::new(data, LittleEndian);
                section.set_address_size(address_size);
                section
            }),
            search,
            bases,
            eh_index: OnceCell::new(),
            debug_index: OnceCell::new(),
            tables: RefCell::new(HashMap::new()),
        }
    }

    /// The rows of the function that holds `svma`.
    pub(crate) fn table_at(&self, svma: u64) -> Option<Arc<CfaTable>> {
        if let Some(table) = self.in_section(self.eh_frame.as_ref(), &self.eh_index, true, svma) {
            return Some(table);
        }
        self.in_section(self.debug_frame.as_ref(), &self.debug_index, false, svma)
    }

    /// How the canonical frame address is found at `svma`.
    pub(crate) fn rule_at(&self, svma: u64) -> Option<CfaRule> {
        self.table_at(svma)?.rule_at(svma)
    }

    /// The range of the function that holds `svma`, as the unwind information states it.
    pub(crate) fn range_at(&self, svma: u64) -> Option<(u64, u64)> {
        self.table_at(svma).map(|table| (table.start, table.end))
    }

    fn in_section<S>(
        &self,
        section: Option<&S>,
        index: &OnceCell<Vec<Fde>>,
        has_header: bool,
        svma: u64,
    ) -> Option<Arc<CfaTable>>
    where
        S: UnwindSection<Bytes<'a>>,
        S::Offset: gimli::UnwindOffset<usize>,
    {
        let section = section?;
        let parse = |offset: usize| {
            section.fde_from_offset(&self.bases, S::Offset::from(offset), |section, bases, offset| {
                section.cie_from_offset(bases, offset)
            })
        };
        let search = self.search.as_ref().filter(|_| has_header);
        let fde = match search {
            Some(table) => parse(table.lookup(svma)?).ok()?,
            None => {
                let fdes = index.get_or_init(|| self.list(section));
                let after = fdes.partition_point(|fde| fde.start <= svma);
                let fde = fdes.get(after.checked_sub(1)?)?;
                if svma >= fde.end {
                    return None;
                }
                parse(fde.offset).ok()?
            }
        };
        if !fde.contains(svma) {
            return None;
        }
        let start = fde.initial_address();
        if let Some(table) = self.tables.borrow().get(&start) {
            return Some(table.clone());
        }
        let mut rows = Vec::new();
        let mut context = UnwindContext::new();
        if let Ok(mut iter) = fde.rows(section, &self.bases, &mut context) {
            while let Ok(Some(row)) = iter.next_row() {
                let rule = match row.cfa() {
                    gimli::CfaRule::RegisterAndOffset { register, offset } => {
                        Some(CfaRule { register: register.0, offset: *offset })
                    }
                    gimli::CfaRule::Expression(_) => None,
                };
                if row.start_address() < row.end_address() {
                    rows.push(CfaRow { start: row.start_address(), end: row.end_address(), rule });
                }
            }
        }
        rows.sort_by_key(|row| row.start);
        let table = Arc::new(CfaTable { start, end: fde.end_address(), rows });
        self.tables.borrow_mut().insert(start, table.clone());
        Some(table)
    }

    fn list<S>(&self, section: &S) -> Vec<Fde>
    where
        S: UnwindSection<Bytes<'a>>,
        S::Offset: gimli::UnwindOffset<usize>,
    {
        let mut fdes = Vec::new();
        let mut entries = section.entries(&self.bases);
        while let Ok(Some(entry)) = entries.next() {
            let gimli::CieOrFde::Fde(partial) = entry else { continue };
            let Ok(fde) = partial.parse(|section, bases, offset| section.cie_from_offset(bases, offset))
            else {
                continue;
            };
            if fde.initial_address() < fde.end_address() {
                fdes.push(Fde { start: fde.initial_address(), end: fde.end_address(), offset: fde.offset() });
            }
        }
        fdes.sort_by_key(|fde| fde.start);
        fdes
    }
}
