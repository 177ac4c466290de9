//! Call stacks from copied registers and stack bytes, by call frame information.
//!
//! The unwinder is `framehop`; nothing of the target is touched.

use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module as UnwindModule, Unwinder as _};
use memlens_events::agent::Caller;
use object::{Object, ObjectSection};

use crate::record::{RBP, RSP, Sample};

/// Frames of one stack at most.
const MAX_FRAMES: usize = 512;

/// A section's first and last address (svma) and its bytes.
type LocatedSection = ((u64, u64), Arc<[u8]>);

/// What unwinding needs of a file: the sections with call frame information.
#[derive(Clone, Debug, Default)]
pub struct UnwindSections {
    text: Option<(u64, u64)>,
    got: Option<(u64, u64)>,
    eh_frame: Option<LocatedSection>,
    eh_frame_hdr: Option<LocatedSection>,
    debug_frame: Option<Arc<[u8]>>,
}

impl UnwindSections {
    /// Copies them out of an ELF file.
    pub fn of(file: &object::File<'_>) -> Self {
        let range = |name: &str| {
            let section = file.section_by_name(name)?;
            Some((section.address(), section.address().checked_add(section.size())?))
        };
        let data = |name: &str| {
            let data = file.section_by_name(name)?.data().ok().filter(|data| !data.is_empty())?;
            Some(Arc::from(data))
        };
        Self {
            text: range(".text"),
            got: range(".got"),
            eh_frame: range(".eh_frame").zip(data(".eh_frame")),
            eh_frame_hdr: range(".eh_frame_hdr").zip(data(".eh_frame_hdr")),
            debug_frame: data(".debug_frame"),
        }
    }
}

/// A level of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackFrame {
    /// The sampled instruction, or a return address.
    pub pc: u64,
    /// The frame's canonical frame address; None for the last one found.
    pub cfa: Option<u64>,
}

/// The unwinder of one process.
#[derive(Clone)]
pub struct StackUnwinder {
    unwinder: UnwinderX86_64<Arc<[u8]>>,
}

/// Rules that were looked up before; one for all processes.
#[derive(Default)]
pub struct UnwindCache(CacheX86_64);

impl std::fmt::Debug for UnwindCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnwindCache").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for StackUnwinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StackUnwinder").finish_non_exhaustive()
    }
}

impl Default for StackUnwinder {
    fn default() -> Self {
        Self { unwinder: UnwinderX86_64::new() }
    }
}

impl StackUnwinder {
    /// A file is mapped at `start..end`, its addresses shifted by `bias`.
    pub fn add(&mut self, start: u64, end: u64, bias: u64, sections: &UnwindSections) {
        let range = |range: Option<(u64, u64)>| range.map(|(start, end)| start..end);
        let info = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: range(sections.text),
            got_svma: range(sections.got),
            eh_frame_svma: range(sections.eh_frame.as_ref().map(|section| section.0)),
            eh_frame: sections.eh_frame.as_ref().map(|section| section.1.clone()),
            eh_frame_hdr_svma: range(sections.eh_frame_hdr.as_ref().map(|section| section.0)),
            eh_frame_hdr: sections.eh_frame_hdr.as_ref().map(|section| section.1.clone()),
            debug_frame: sections.debug_frame.clone(),
            ..ExplicitModuleSectionInfo::default()
        };
        self.unwinder.add_module(UnwindModule::new(String::new(), start..end, bias, info));
    }

    /// What was mapped from `start` on is gone.
    pub fn remove(&mut self, start: u64) {
        self.unwinder.remove_module(start);
    }

    /// The stack of a sample, innermost first, and whether its outermost frame was reached.
    pub fn unwind(&self, sample: &Sample, cache: &mut UnwindCache, frames: &mut Vec<StackFrame>) -> bool {
        frames.clear();
        let Some(registers) = &sample.registers else { return false };
        let state = UnwindRegsX86_64::new(registers.ip, registers.values[RSP], registers.values[RBP]);
        let address = FrameAddress::from_instruction_pointer(registers.ip);
        self.walk(address, state, &sample.stack, cache, frames)
    }

    /// The stack of a call, from its return address on: as [`Self::unwind`].
    pub fn unwind_call(
        &self,
        caller: &Caller,
        stack: &[u8],
        cache: &mut UnwindCache,
        frames: &mut Vec<StackFrame>,
    ) -> bool {
        frames.clear();
        let Some(address) = FrameAddress::from_return_address(caller.ip) else { return false };
        let state = UnwindRegsX86_64::new(caller.ip, caller.sp, caller.bp);
        self.walk(address, state, stack, cache, frames)
    }

    fn walk(
        &self,
        mut address: FrameAddress,
        mut state: UnwindRegsX86_64,
        stack: &[u8],
        cache: &mut UnwindCache,
        frames: &mut Vec<StackFrame>,
    ) -> bool {
        let (stack_start, mut pc) = (state.sp(), state.ip());
        let mut read = |address: u64| {
            let at = address.checked_sub(stack_start).and_then(|at| usize::try_from(at).ok()).ok_or(())?;
            let bytes = stack.get(at..at.checked_add(8).ok_or(())?).ok_or(())?;
            Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| ())?))
        };
        loop {
            let found = self.unwinder.unwind_frame(address, &mut state, &mut cache.0, &mut read);
            // After a return the stack pointer is the CFA (System V ABI AMD64 1.0, section 3.2.2).
            let cfa = matches!(found, Ok(Some(_))).then(|| state.sp());
            frames.push(StackFrame { pc, cfa });
            match found {
                Ok(Some(return_address)) if frames.len() < MAX_FRAMES => {
                    let Some(next) = FrameAddress::from_return_address(return_address) else { return true };
                    (address, pc) = (next, return_address);
                }
                Ok(None) => return true,
                _ => return false,
            }
        }
    }
}
