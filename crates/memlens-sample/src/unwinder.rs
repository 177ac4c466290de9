//! Call stacks from copied registers and stack bytes, by call frame information.
//!
//! The unwinder is `framehop`; nothing of the target is touched.

use std::sync::Arc;

use framehop::aarch64::{CacheAarch64, PtrAuthMask, UnwindRegsAarch64, UnwinderAarch64};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module as UnwindModule, Unwinder};
use memlens_code::Architecture;
use memlens_events::agent::Caller;
use object::{Object, ObjectSection, ReadRef};

use crate::record::Sample;

/// Frames of one stack at most.
const MAX_FRAMES: usize = 512;

/// A section's first and last address (svma) and its bytes.
type LocatedSection = ((u64, u64), Arc<[u8]>);

/// What unwinding needs of a file: the sections with call frame information.
#[derive(Clone, Debug, Default)]
pub struct UnwindSections {
    architecture: Option<Architecture>,
    text: Option<(u64, u64)>,
    got: Option<(u64, u64)>,
    eh_frame: Option<LocatedSection>,
    eh_frame_hdr: Option<LocatedSection>,
    debug_frame: Option<Arc<[u8]>>,
}

impl UnwindSections {
    /// Copies them out of an ELF file.
    pub fn of<'data>(
        file: &object::File<'data, impl ReadRef<'data>>,
        architecture: Option<Architecture>,
    ) -> Self {
        let range = |name: &str| {
            let section = file.section_by_name(name)?;
            Some((section.address(), section.address().checked_add(section.size())?))
        };
        let data = |name: &str| {
            let data = file.section_by_name(name)?.data().ok().filter(|data| !data.is_empty())?;
            Some(Arc::from(data))
        };
        Self {
            architecture,
            text: range(".text"),
            got: range(".got"),
            eh_frame: range(".eh_frame").zip(data(".eh_frame")),
            eh_frame_hdr: range(".eh_frame_hdr")
                .zip(data(".eh_frame_hdr"))
                .filter(|((address, _), data)| is_sound(*address, data)),
            debug_frame: data(".debug_frame"),
        }
    }
}

/// Whether an `.eh_frame_hdr` has its table, in the only encoding that linkers write (Linux Standard Base 5.0,
/// "Exception Frames"), and all of it points into `.eh_frame` or behind. Without one `.eh_frame` is read through. Where
/// overflows are checked, gimli 0.33 panics on entries before it.
fn is_sound(address: u64, table: &[u8]) -> bool {
    let Some((header, entries)) = table.split_first_chunk::<12>() else { return false };
    let [1, 0x1b, 0x03, 0x3b, frames @ .., c0, c1, c2, c3] = *header else { return false };
    let at = |distance: [u8; 4]| address.checked_add_signed(i32::from_le_bytes(distance).into());
    // It counts from where it stands.
    let Some(frames) = at(frames).and_then(|frames| frames.checked_add(4)) else { return false };
    let count = u32::from_le_bytes([c0, c1, c2, c3]) as usize;
    let entries = entries.as_chunks::<8>().0.get(..count).filter(|entries| !entries.is_empty());
    entries.is_some_and(|entries| {
        entries.iter().all(|&[.., e0, e1, e2, e3]| at([e0, e1, e2, e3]).is_some_and(|entry| entry >= frames))
    })
}

/// A level of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackFrame {
    /// The sampled instruction, or a return address.
    pub pc: u64,
    /// The frame's canonical frame address; None for the last one found.
    pub cfa: Option<u64>,
}

/// Below the stack pointer a function may keep something without a frame (System V ABI AMD64 1.0, section 3.2.2). On AArch64 nothing is
/// there (AAPCS64, section 6.4.5.1), but what was just taken off.
pub const RED_ZONE: u64 = 128;

/// The frame that an address is in, of a stack with this pointer: its level, a place in its function, and its canonical frame address.
pub fn frame_around(pointer: u64, frames: &[StackFrame], address: u64) -> Option<(usize, u64, u64)> {
    let mut low = pointer.saturating_sub(RED_ZONE);
    for (level, frame) in frames.iter().enumerate() {
        let cfa = frame.cfa?;
        if (low..cfa).contains(&address) {
            // A return address may be behind the function's end.
            let pc = if level == 0 { frame.pc } else { frame.pc.wrapping_sub(1) };
            return Some((level, pc, cfa));
        }
        low = cfa;
    }
    None
}

/// The unwinder of one process. Files of several architectures may be known, of which a process executes one.
#[derive(Clone)]
pub struct StackUnwinder {
    x86_64: UnwinderX86_64<Arc<[u8]>>,
    aarch64: UnwinderAarch64<Arc<[u8]>>,
}

/// Rules that were looked up before; one for all processes.
#[derive(Default)]
pub struct UnwindCache {
    x86_64: CacheX86_64,
    aarch64: CacheAarch64,
}

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
        Self { x86_64: UnwinderX86_64::new(), aarch64: UnwinderAarch64::new() }
    }
}

/// Where a walk begins: an instruction or a return address, and the registers there.
#[derive(Clone, Copy, Debug)]
struct Begin {
    address: FrameAddress,
    sp: u64,
    /// rbp or x29.
    frame_pointer: u64,
    /// x30.
    link: u64,
}

/// Bits of a return address that are an address on AArch64: those above may be its signature (Arm ARM DDI 0487, D8.10, of 48-bit
/// addresses, which programs have that do not ask for more).
const SIGNED_ADDRESS: PtrAuthMask = PtrAuthMask((1 << 48) - 1);

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
        let module = UnwindModule::new(String::new(), start..end, bias, info);
        match sections.architecture {
            Some(Architecture::X86_64) => self.x86_64.add_module(module),
            Some(Architecture::AArch64) => self.aarch64.add_module(module),
            None => {}
        }
    }

    /// What was mapped from `start` on is gone.
    pub fn remove(&mut self, start: u64) {
        self.x86_64.remove_module(start);
        self.aarch64.remove_module(start);
    }

    /// The stack of a sample, innermost first, and whether its outermost frame was reached.
    pub fn unwind(&self, sample: &Sample, cache: &mut UnwindCache, frames: &mut Vec<StackFrame>) -> bool {
        let Some(registers) = &sample.registers else {
            frames.clear();
            return false;
        };
        let begin = Begin {
            address: FrameAddress::from_instruction_pointer(registers.ip),
            sp: registers.stack_pointer(),
            frame_pointer: registers.frame_pointer(),
            link: registers.link(),
        };
        self.walk(registers.architecture, begin, words_of(&sample.stack, begin.sp), cache, frames)
    }

    /// The stack of a thread of this machine at an instruction, of whose registers the stack pointer is known alone, in memory that can
    /// be read: as [`Self::unwind`].
    pub fn unwind_memory(
        &self,
        ip: u64,
        pointer: u64,
        word: impl FnMut(u64) -> Result<u64, ()>,
        cache: &mut UnwindCache,
        frames: &mut Vec<StackFrame>,
    ) -> bool {
        let address = FrameAddress::from_instruction_pointer(ip);
        let begin = Begin { address, sp: pointer, frame_pointer: 0, link: 0 };
        self.walk(Architecture::HOST, begin, word, cache, frames)
    }

    /// The stack of a call on this machine, from its return address on: as [`Self::unwind`].
    pub fn unwind_call(
        &self,
        caller: &Caller,
        stack: &[u8],
        cache: &mut UnwindCache,
        frames: &mut Vec<StackFrame>,
    ) -> bool {
        let Some(address) = FrameAddress::from_return_address(caller.ip) else {
            frames.clear();
            return false;
        };
        // Whoever calls has its own return address on the stack.
        let begin = Begin { address, sp: caller.sp, frame_pointer: caller.bp, link: 0 };
        self.walk(Architecture::HOST, begin, words_of(stack, caller.sp), cache, frames)
    }

    fn walk(
        &self,
        architecture: Architecture,
        begin: Begin,
        word: impl FnMut(u64) -> Result<u64, ()>,
        cache: &mut UnwindCache,
        frames: &mut Vec<StackFrame>,
    ) -> bool {
        let Begin { address, sp, frame_pointer, link } = begin;
        match architecture {
            Architecture::X86_64 => {
                let state = UnwindRegsX86_64::new(address.address(), sp, frame_pointer);
                let way = (&self.x86_64, &mut cache.x86_64, UnwindRegsX86_64::sp);
                walk_by(way, (address, state), word, frames)
            }
            Architecture::AArch64 => {
                let state =
                    UnwindRegsAarch64::new_with_ptr_auth_mask(SIGNED_ADDRESS, link, sp, frame_pointer);
                let way = (&self.aarch64, &mut cache.aarch64, |state: &UnwindRegsAarch64| state.sp());
                walk_by(way, (address, state), word, frames)
            }
        }
    }
}

/// Follows a stack with an architecture's unwinder, its cache and what tells its stack pointer.
fn walk_by<U: Unwinder>(
    (unwinder, cache, sp): (&U, &mut U::Cache, impl Fn(&U::UnwindRegs) -> u64),
    (mut address, mut state): (FrameAddress, U::UnwindRegs),
    mut word: impl FnMut(u64) -> Result<u64, ()>,
    frames: &mut Vec<StackFrame>,
) -> bool {
    frames.clear();
    loop {
        let pc = address.address();
        let found = unwinder.unwind_frame(address, &mut state, cache, &mut word);
        // After a return the stack pointer is the CFA (System V ABI AMD64 1.0, section 3.2.2; of AArch64, DWARF for the
        // Arm 64-bit Architecture, 2023Q3, section 4.3).
        let cfa = matches!(found, Ok(Some(_))).then(|| sp(&state));
        frames.push(StackFrame { pc, cfa });
        match found {
            Ok(Some(return_address)) if frames.len() < MAX_FRAMES => {
                let Some(next) = FrameAddress::from_return_address(return_address) else { return true };
                address = next;
            }
            Ok(None) => return true,
            _ => return false,
        }
    }
}

/// The words of a stack that was copied from its pointer on.
fn words_of(stack: &[u8], pointer: u64) -> impl FnMut(u64) -> Result<u64, ()> {
    move |address| {
        let at = address.checked_sub(pointer).and_then(|at| usize::try_from(at).ok()).ok_or(())?;
        let bytes = stack.get(at..at.checked_add(8).ok_or(())?).ok_or(())?;
        Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| ())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_table_that_is_not_sound_is_left_out() {
        // At 0x1000, of frames at 0x1040.
        let table = |count: u32, entries: &[i32]| {
            let pairs = entries.iter().flat_map(|&entry| [0, entry]).flat_map(i32::to_le_bytes);
            let header = [1, 0x1b, 0x03, 0x3b, 0x3c, 0, 0, 0].into_iter().chain(count.to_le_bytes());
            header.chain(pairs).collect::<Vec<u8>>()
        };
        let is_sound = |table: &[u8]| is_sound(0x1000, table);
        assert!(is_sound(&table(2, &[0x40, 0x58])) && is_sound(&table(1, &[0x40, 0])));
        assert!(!is_sound(&table(0, &[0x40])), "no entries");
        assert!(!is_sound(&table(2, &[0x40])), "one is missing");
        assert!(!is_sound(&table(2, &[0x40, 0x3f])) && !is_sound(&table(1, &[-0x2000])), "before the frames");
        assert!(!is_sound(&table(1, &[0x40])[..11]) && !is_sound(&[0xff; 64]));
    }
}
