//! What lies at an address.
//!
//! ```text
//!  known at once: a block, a variable, a line ──► else its region: a stack's frames, a module's data, thread-local storage, a mapping
//! ```

use std::hash::{Hash, Hasher};
use std::ops::Range;

use memlens_objects::{ObjectId, ObjectKey, UnknownReason};
use memlens_symbols::{DataPlace, FrameVariable, SectionKind};

use super::{AddressSpace, FIRST_FILE, FRAME_MEMO_ENTRIES, FrameEntry, Label};
use crate::stacks::Stacks;

/// Accesses of one frame to unnamed stack slots share ranges of this size.
const FRAME_GRANULE: i64 = 256;

/// What an address was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The object.
    pub object: ObjectId,
    /// Where the answer stays the same.
    pub range: CacheRange,
}

/// Addresses for which an answer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheRange {
    /// This address only.
    Nothing,
    /// A range that lasts as long as its module.
    Fixed {
        /// First address.
        start: u64,
        /// Bytes.
        len: u64,
    },
    /// A range that lasts until [`AddressSpace::generation`] changes.
    Volatile {
        /// First address.
        start: u64,
        /// Bytes.
        len: u64,
    },
    /// A range relative to the frame address of the innermost function's caller.
    Caller {
        /// First address minus frame address.
        start: i64,
        /// Bytes.
        len: u64,
    },
    /// A range relative to the frame address of whatever call is innermost.
    Frame {
        /// First address minus frame address.
        start: i64,
        /// Bytes.
        len: u64,
    },
    /// This address only: it lies in the frame of a call further out, or of another thread, which may end at any
    /// time.
    OtherFrame {
        /// Frame address.
        cfa: u64,
        /// Where the object begins, minus the frame address.
        start: i64,
    },
}

impl AddressSpace {
    /// Whose a line is that is written back to memory. If nothing lives there any more, the large block
    /// that was there last.
    pub fn owner(&mut self, line: u64, stacks: Stacks<'_>) -> ObjectId {
        let object = self.resolve(line, 0, stacks).object;
        let is_live = match self.heap.objects().key(object) {
            Some(ObjectKey::Unknown { .. }) => false,
            Some(ObjectKey::Mmap { file, .. }) => *file >= FIRST_FILE,
            _ => true,
        };
        let former = if is_live { None } else { self.former.get(line) };
        former.and_then(|(_, number)| ObjectId::new(number)).unwrap_or(object)
    }

    /// The object at `addr` if that is known at once: a block, or a line or variable looked up lately.
    #[inline(always)]
    pub fn known_at(&self, addr: u64) -> Option<ObjectId> {
        let block = self.heap.blocks().object_at(addr);
        block.or_else(|| self.lines.get(addr, self.generation()))
    }

    /// How far from the beginning of its block or variable an address is that [`Self::known_at`] knows.
    pub fn offset_at(&self, addr: u64) -> Option<u64> {
        Some(self.place_at(addr)?.1)
    }

    /// The block, variable of a module or mapping at `addr`, and how far from its beginning; variables only if they were looked up before.
    pub fn place_at(&self, addr: u64) -> Option<(ObjectId, u64)> {
        if let Some(block) = self.heap.blocks().block_at(addr) {
            return Some((block.object, addr - block.start));
        }
        if let Some((object, range)) = self.lines.variable(addr) {
            return Some((object, addr - range.start));
        }
        let (range, number) = self.regions.get(addr)?;
        match self.labels[number as usize] {
            Label::Mapping { object, holds_heap: false } => Some((object, addr - range.start)),
            Label::Module(number) => {
                let (key, range) = self.place_in_module(addr, number)?;
                let start = range.filter(|_| matches!(key, ObjectKey::Global { .. }))?.start;
                Some((self.heap.objects().id(&key)?, addr - start))
            }
            _ => None,
        }
    }

    /// How far from the beginning of its block or variable an address is, for which [`Self::resolve`] gave `range` in
    /// a thread with these calls under way.
    pub fn offset_of(&self, addr: u64, range: CacheRange, stacks: Stacks<'_>) -> Option<u64> {
        let stack = stacks.own;
        match range {
            CacheRange::Nothing => self.offset_at(addr),
            CacheRange::Fixed { start, .. } | CacheRange::Volatile { start, .. } => addr.checked_sub(start),
            CacheRange::Frame { start, .. } => addr.checked_sub(stack.cfa().wrapping_add_signed(start)),
            CacheRange::Caller { start, .. } => {
                let [.., called, _] = stack.frames() else { return None };
                addr.checked_sub(called.slot.wrapping_add(8).wrapping_add_signed(start))
            }
            CacheRange::OtherFrame { cfa, start } => addr.checked_sub(cfa.wrapping_add_signed(start)),
        }
    }

    /// What lies at `addr`, accessed by the code at `pc` in a thread with these calls under way.
    pub fn resolve(&mut self, addr: u64, pc: u64, stacks: Stacks<'_>) -> Resolved {
        // A block in a variable's memory goes first.
        if let Some((object, range)) = self.lines.variable(addr)
            && self.heap.blocks().object_at(addr).is_none()
        {
            let range = CacheRange::Fixed { start: range.start, len: range.end - range.start };
            return Resolved { object, range };
        }
        let Resolved { object, range } = self.look_up(addr, pc, stacks);
        if let CacheRange::Fixed { start, len } | CacheRange::Volatile { start, len } = range {
            let (generation, owned) = (self.generation(), start..start.saturating_add(len));
            let is_line = self.lines.put_line(addr, &owned, generation, object);
            if !is_line && matches!(range, CacheRange::Fixed { .. }) {
                self.lines.put_variable(addr, owned, object);
            }
        }
        Resolved { object, range }
    }

    /// The region at an address and its object, whatever heap blocks lie there; stacks are one object each.
    pub(crate) fn region_object(&mut self, addr: u64) -> Option<(Range<u64>, Resolved)> {
        let (range, number) = self.region(addr)?;
        let resolved = match self.labels[number as usize] {
            Label::Stack { thread, .. } => self.plain(ObjectKey::Stack { thread }),
            Label::Module(number) => self.resolve_module(addr, number),
            Label::Tls { module, start } => self.resolve_tls(addr, module, start, range.clone()),
            Label::Mapping { object, .. } => Resolved { object, range: CacheRange::Nothing },
            Label::Kernel(page) => self.plain(ObjectKey::Kernel { page }),
        };
        Some((range, resolved))
    }

    /// Mappings of at least `least_bytes` bytes, each with its object's number.
    pub(crate) fn large_mappings(&self, least_bytes: u64) -> Vec<(Range<u64>, u32)> {
        let large = self.regions.iter().filter(|(range, _)| range.end - range.start >= least_bytes);
        large
            .filter_map(|(range, label)| match self.labels.get(label as usize)? {
                Label::Mapping { object, .. } => Some((range, object.get())),
                _ => None,
            })
            .collect()
    }

    /// Whether the region at an address is one object.
    pub(crate) fn is_whole(&mut self, addr: u64) -> bool {
        let label = self.region(addr).map(|(_, number)| self.labels[number as usize]);
        matches!(label, Some(Label::Stack { .. } | Label::Mapping { .. } | Label::Kernel(_)))
    }

    /// Whether an address is on a stack, as far as that is known at once.
    pub fn is_on_stack(&self, addr: u64) -> bool {
        let label = self.regions.get(addr).map(|(_, number)| self.labels[number as usize]);
        matches!(label, Some(Label::Stack { .. }))
    }

    /// Whether the region at an address is a thread-local block.
    pub(crate) fn is_thread_local(&mut self, addr: u64) -> bool {
        let label = self.region(addr).map(|(_, number)| self.labels[number as usize]);
        matches!(label, Some(Label::Tls { .. }))
    }

    fn look_up(&mut self, addr: u64, pc: u64, stacks: Stacks<'_>) -> Resolved {
        let stack = stacks.own;
        if stack.is_region() && stack.range().contains(&addr) {
            return self.resolve_stack(addr, pc, (0, u32::MAX), stacks);
        }
        if let Some(block) = self.heap.lend_range(addr, self.now) {
            let range = CacheRange::Volatile { start: block.start, len: block.len_bytes };
            return Resolved { object: block.object, range };
        }
        if let Some(object) = self.heap.blocks().object_at(addr) {
            return Resolved { object, range: CacheRange::Nothing };
        }
        let region = self.region(addr);
        let label = region.as_ref().map(|(_, number)| self.labels[*number as usize]);
        match (region, label) {
            (Some(_), Some(Label::Stack { thread, number })) => {
                self.resolve_stack(addr, pc, (thread, number), stacks)
            }
            (Some(_), Some(Label::Module(number))) => self.resolve_module(addr, number),
            (Some((range, _)), Some(Label::Tls { module, start })) => {
                self.resolve_tls(addr, module, start, range)
            }
            (Some((range, _)), Some(Label::Mapping { object, holds_heap })) => {
                let range = if holds_heap {
                    CacheRange::Nothing
                } else {
                    CacheRange::Volatile { start: range.start, len: range.end - range.start }
                };
                Resolved { object, range }
            }
            (Some(_), Some(Label::Kernel(page))) => self.plain(ObjectKey::Kernel { page }),
            _ if stack.range().contains(&addr) => self.resolve_stack(addr, pc, (0, u32::MAX), stacks),
            _ => self.plain(ObjectKey::Unknown { reason: UnknownReason::Unmapped }),
        }
    }

    fn plain(&mut self, key: ObjectKey) -> Resolved {
        Resolved { object: self.heap.objects_mut().intern(key), range: CacheRange::Nothing }
    }

    /// `owner`: id and number of the thread whose stack it is, if that is another one, or a stack that was left.
    fn resolve_stack(&mut self, addr: u64, pc: u64, owner: (u32, u32), stacks: Stacks<'_>) -> Resolved {
        let stack = stacks.own;
        let frames = stack.frames();
        if !stack.range().contains(&addr) {
            return self.resolve_other_stack(addr, owner, stacks);
        }
        if addr < stack.cfa() {
            let (object, start, len) = self.frame_object(pc, addr.wrapping_sub(stack.cfa()) as i64);
            return Resolved { object, range: CacheRange::Frame { start, len } };
        }
        match stack.frame_of(addr) {
            Some(index) if index + 1 < frames.len() => {
                let caller_pc = frames[index + 1].return_pc.wrapping_sub(1);
                let cfa = frames[index].slot.wrapping_add(8);
                let offset = addr.wrapping_sub(cfa) as i64;
                let (object, start, len) = self.frame_object(caller_pc, offset);
                let is_caller = index + 2 == frames.len();
                let range = match is_caller {
                    true => CacheRange::Caller { start, len },
                    false => CacheRange::OtherFrame { cfa, start },
                };
                Resolved { object, range }
            }
            _ => self.plain(ObjectKey::Stack { thread: owner.0 }),
        }
    }

    /// A stack on which the thread at hand is not. The frames are those that its owner has now, in the order of the
    /// records: whoever is told where a local is learns it by something that both threads see, mostly an event.
    fn resolve_other_stack(
        &mut self,
        addr: u64,
        (thread, number): (u32, u32),
        stacks: Stacks<'_>,
    ) -> Resolved {
        if let Some(frame) = stacks.around(addr, number).and_then(|calls| calls.frame_at(addr)) {
            let offset = addr.wrapping_sub(frame.cfa) as i64;
            let (object, start, _) = self.frame_object(frame.pc.wrapping_sub(1), offset);
            // Below the variables of the innermost function nothing says whose the stack is.
            let is_named = matches!(self.heap.objects().key(object), Some(ObjectKey::Local { .. }));
            if is_named || !frame.is_innermost {
                return Resolved { object, range: CacheRange::OtherFrame { cfa: frame.cfa, start } };
            }
        }
        self.plain(ObjectKey::Stack { thread })
    }

    /// As [`Self::find_frame_object`], remembered.
    #[inline]
    fn frame_object(&mut self, pc: u64, offset: i64) -> (ObjectId, i64, u64) {
        let mix = (pc ^ (offset as u64 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .wrapping_mul(0x2545_f491_4f6c_dd1d);
        let at = (mix >> 40) as usize % FRAME_MEMO_ENTRIES;
        let known = self.frame_memo[at];
        if let Some(object) = known.object
            && known.pc == pc
            && (offset.wrapping_sub(known.start) as u64) < known.len
        {
            return (object, known.start, known.len);
        }
        let (object, start, len) = self.find_frame_object(pc, offset);
        self.frame_memo[at] = FrameEntry { pc, start, len, object: Some(object) };
        (object, start, len)
    }

    /// The variable, or else the unnamed part, at `offset` from the frame address of the function that
    /// contains `pc`; and the range of offsets (start, length) for which that holds.
    fn find_frame_object(&mut self, pc: u64, offset: i64) -> (ObjectId, i64, u64) {
        let (number, svma) = self.module_at(pc).unwrap_or((0, pc));
        let symbols = self.module(number).and_then(|module| module.symbols.as_ref());
        let function_svma = symbols.and_then(|symbols| symbols.function_at(svma)).map_or(0, |f| f.start);
        let granule = offset & !(FRAME_GRANULE - 1);
        let (mut start, mut end) = (granule, (granule + FRAME_GRANULE).min(0));
        let mut found: Option<FrameVariable> = None;
        if let Some(symbols) = symbols {
            for variable in symbols.frame_variables(svma).iter() {
                let (low, high) =
                    (variable.cfa_offset, variable.cfa_offset + variable.size_bytes.max(1) as i64);
                if (low..high).contains(&offset) {
                    // Innermost scopes come last.
                    found = Some(variable.clone());
                } else if high <= offset {
                    start = start.max(high);
                } else {
                    end = end.min(low);
                }
            }
        }
        let objects = self.heap.objects_mut();
        match found {
            Some(variable) => {
                let (low, len) = (variable.cfa_offset, variable.size_bytes.max(1));
                let object = objects.intern(ObjectKey::Local {
                    module: number,
                    function_svma,
                    cfa_offset: low,
                    declaration: declaration_of(&variable),
                });
                self.locals.entry(object).or_insert(variable);
                (object, low, len)
            }
            None => {
                let object = objects.intern(ObjectKey::StackFrame { module: number, function_svma });
                (object, start, end.saturating_sub(start).max(0) as u64)
            }
        }
    }

    fn resolve_module(&mut self, addr: u64, number: u32) -> Resolved {
        let Some((key, range)) = self.place_in_module(addr, number) else {
            return self.plain(ObjectKey::Unknown { reason: UnknownReason::UnlabelledRegion });
        };
        let object = self.heap.objects_mut().intern(key);
        let range = range.map_or(CacheRange::Nothing, |range| CacheRange::Fixed {
            start: range.start,
            len: range.end - range.start,
        });
        Resolved { object, range }
    }

    /// What lies there in a module, and from where to where. None: the module is gone.
    fn place_in_module(&self, addr: u64, number: u32) -> Option<(ObjectKey, Option<Range<u64>>)> {
        let module = self.module(number)?;
        let bias = module.load_bias;
        let svma = addr.wrapping_sub(bias);
        let (key, range) = match &module.symbols {
            None => (ObjectKey::DataGap { module: number, section_svma: 0 }, None),
            Some(symbols) => {
                let section = symbols.sections().iter().find(|section| section.contains(svma));
                match (symbols.data_place(svma), section) {
                    (DataPlace::Variable(range), _) => {
                        (ObjectKey::Global { module: number, svma: range.start }, Some(range))
                    }
                    (DataPlace::Gap(_), Some(section)) if section.kind == SectionKind::Text => {
                        (ObjectKey::Code { module: number }, Some(section.start..section.end))
                    }
                    // Between two variables of the section, or in one without symbols.
                    (DataPlace::Gap(gap), Some(section)) => {
                        let range = gap.start.max(section.start)..gap.end.min(section.end);
                        (ObjectKey::DataGap { module: number, section_svma: section.start }, Some(range))
                    }
                    (DataPlace::Gap(_), None) => {
                        (ObjectKey::DataGap { module: number, section_svma: 0 }, None)
                    }
                }
            }
        };
        let range = range.map(|range| range.start.wrapping_add(bias)..range.end.wrapping_add(bias));
        Some((key, range))
    }

    fn resolve_tls(&mut self, addr: u64, number: u32, start: u64, region: Range<u64>) -> Resolved {
        let offset = addr.wrapping_sub(start);
        let symbols = self.module(number).and_then(|module| module.symbols.as_ref());
        let variable = symbols.and_then(|symbols| match symbols.tls_place(offset) {
            DataPlace::Variable(range) => Some(range),
            _ => None,
        });
        let (offset_bytes, range) = match variable {
            Some(range) => (range.start, start + range.start..start + range.end),
            // The unnamed rest; a number no variable has.
            None => (u64::MAX, addr..addr + 1),
        };
        let object = self.heap.objects_mut().intern(ObjectKey::Tls { module: number, offset_bytes });
        let end = range.end.min(region.end);
        let len = end.saturating_sub(range.start);
        Resolved { object, range: CacheRange::Volatile { start: range.start, len } }
    }
}

/// Tells locals of disjoint scopes apart that share a place.
fn declaration_of(variable: &FrameVariable) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    (&variable.name, variable.decl_line, &variable.inlined_from).hash(&mut hasher);
    hasher.finish()
}
