//! Signal contexts: that of the tick with which a burst begins, the frame with which it ends, and those of faults.
//!
//! A frame is a `struct rt_sigframe` (arch/arm64/kernel/signal.c): a `siginfo_t`, then a `struct ucontext`, whose end is a list of
//! records (arch/arm64/include/uapi/asm/sigcontext.h). The one with which a burst ends has the records of that with which it began, but for
//! the vector registers as they are then. What else records may hold no copied instruction changes; where one holds more than
//! vector registers of 128 bits, no burst begins: with them would go the rest of those registers.

use core::ffi::c_void;

use super::area::Area;
use super::assembler::{AREA, Gpr};
use super::entry::VECTOR_BYTES;
use crate::cache::Block;

/// Of `struct ucontext`, in words: the signal mask; behind the fault's address x0 to x30, sp, pc, PSTATE; the records.
const MASK_AT: usize = 5;
const REGISTERS_AT: usize = 23;
const PC_AT: usize = REGISTERS_AT + 32;
const PSTATE_AT: usize = REGISTERS_AT + 33;
const RECORDS_AT: usize = 58;
const RECORDS_BYTES: usize = 4096;
const CONTEXT_WORDS: usize = RECORDS_AT + RECORDS_BYTES / 8;
type Words = [u64; CONTEXT_WORDS];
/// Words of a `siginfo_t`.
const INFO_WORDS: usize = 16;

/// Records, by their first word (magic number): vector registers of 128 bits, …
const FPSIMD: u32 = 0x4650_8001;
/// … of more, or of which some or no more is live: as the bytes say; …
const SVE: u32 = 0x5356_4501;
const ZA: u32 = 0x5436_6345;
/// … and such of registers that copied instructions leave as they are: ESR_EL1, TPIDR2_EL0, FPMR, POR_EL0.
const OTHERS: [u32; 4] = [0x4553_5201, 0x5450_4902, 0x4650_4d52, 0x504f_4530];
/// Bytes of an SVE or ZA record without registers.
const NO_REGISTERS: usize = 16;
/// Bytes of the FPSIMD record, and where the registers begin in it, behind FPSR and FPCR.
const FPSIMD_BYTES: usize = 16 + VECTOR_BYTES as usize;
const VECTORS_IN_RECORD: usize = 16;

/// PSTATE: the flags; the kind of branch that comes before, which only its target asks; somebody steps through the program.
const NZCV: u64 = 0xf << 28;
const BRANCH_TYPE: u64 = 3 << 10;
const STEPS: u64 = 1 << 21;

/// A signal's context, which the kernel puts back when the handler returns.
pub struct Context<'c>(&'c mut Words);

impl Context<'_> {
    /// # Safety
    /// The third argument of a handler of the calling thread, to which nobody else has a reference.
    pub unsafe fn of(context: *mut c_void) -> Self {
        // SAFETY: the caller's promise; the structure has so many words.
        Self(unsafe { &mut *context.cast::<Words>() })
    }

    /// The instruction that comes next.
    pub fn pc(&self) -> u64 {
        self.0[PC_AT]
    }

    /// A general register.
    pub fn register(&self, number: Gpr) -> u64 {
        self.0[REGISTERS_AT + usize::from(number)]
    }

    /// The signals that are blocked.
    pub fn mask(&self) -> u64 {
        self.0[MASK_AT]
    }

    /// Blocks these signals, and no others.
    pub fn set_mask(&mut self, mask: u64) {
        self.0[MASK_AT] = mask;
    }

    /// Whether a burst may begin there.
    pub fn is_plain(&self) -> bool {
        self.0[PSTATE_AT] & STEPS == 0 && vectors_at(self.0).is_some()
    }

    /// Of a thread in a block: as it would be in the native code at `pc`.
    pub fn put_back(&mut self, area: &Area, block: &Block, pc: u64) {
        let registers = &mut self.0[REGISTERS_AT..];
        registers[usize::from(block.pair.0)] = area.first.get();
        registers[usize::from(block.pair.1)] = area.second.get();
        if let Some(stand_in) = block.own.stand_in {
            registers[usize::from(stand_in)] = area.renamed.get();
        }
        registers[usize::from(AREA)] = area.registers.get()[usize::from(AREA)];
        self.0[PC_AT] = pc;
    }
}

/// Where the record of the vector registers begins in a context, in bytes. None: there is none, or one that is not known, or one with more
/// registers.
fn vectors_at(context: &Words) -> Option<usize> {
    let (mut at, mut found) = (RECORDS_AT * 8, None);
    loop {
        let head = *context.get(at / 8)?;
        let (magic, bytes) = (head as u32, (head >> 32) as usize);
        match magic {
            0 if bytes == 0 => return found,
            FPSIMD if bytes == FPSIMD_BYTES => found = Some(at),
            SVE | ZA if bytes == NO_REGISTERS => {}
            _ if OTHERS.contains(&magic) => {}
            _ => return None,
        }
        // Records are of a multiple of 16 bytes.
        if bytes == 0 || !bytes.is_multiple_of(16) {
            return None;
        }
        at += bytes;
    }
}

/// What is kept of a thread for its burst's end.
#[repr(C, align(64))]
pub struct Saved {
    info: [u64; INFO_WORDS],
    context: Words,
    /// The vector registers, FPSR and FPCR, while the runtime works.
    vectors: [u64; VECTOR_BYTES as usize / 8 + 2],
}

impl Saved {
    /// The area says where it is.
    pub fn tell(&self, area: &Area) {
        area.vectors.set(self.vectors.as_ptr() as u64);
        area.frame.set(self.info.as_ptr() as u64);
    }

    /// The program's signal mask.
    pub fn mask(&self) -> u64 {
        self.context[MASK_AT]
    }

    /// Keeps the context, and lets it lead to the runtime's entry.
    pub fn begin(&mut self, context: &mut Context<'_>, area: &Area, entry: u64) {
        self.context = *context.0;
        let words = &mut *context.0;
        area.set_register(usize::from(AREA), words[REGISTERS_AT + usize::from(AREA)]);
        area.third.set(words[REGISTERS_AT]);
        area.fourth.set(words[REGISTERS_AT + 1]);
        area.entry.set(entry);
        words[REGISTERS_AT] = 0;
        words[REGISTERS_AT + usize::from(AREA)] = core::ptr::from_ref(area) as u64;
        words[PC_AT] = entry;
        words[PSTATE_AT] &= !BRANCH_TYPE;
    }

    /// Makes the frame with which the native code goes on at `target`.
    ///
    /// # Safety
    /// Called from the entry of the thread's burst, with its own area.
    pub unsafe fn end(&mut self, area: &Area, target: u64) {
        let registers = area.registers.get();
        self.context[REGISTERS_AT..REGISTERS_AT + 32].copy_from_slice(&registers);
        self.context[PC_AT] = target;
        self.context[PSTATE_AT] = self.context[PSTATE_AT] & !(NZCV | BRANCH_TYPE) | area.flags.get() & NZCV;
        // It is there: a burst has begun.
        if let Some(at) = vectors_at(&self.context) {
            let record = &mut self.context[at / 8..];
            let (vectors, state) = self.vectors.split_at(VECTOR_BYTES as usize / 8);
            // FPSR, then FPCR, of 32 bits each.
            record[1] = state[0] & 0xffff_ffff | state[1] << 32;
            record[VECTORS_IN_RECORD / 8..][..vectors.len()].copy_from_slice(vectors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A context with these records: magic numbers and bytes.
    fn context(records: &[(u32, u32)]) -> Box<Words> {
        let mut context: Box<Words> = vec![0; CONTEXT_WORDS].into_boxed_slice().try_into().expect("so long");
        let mut at = RECORDS_AT;
        for &(magic, bytes) in records {
            context[at] = u64::from(magic) | u64::from(bytes) << 32;
            at += bytes as usize / 8;
        }
        context
    }

    #[test]
    fn bursts_begin_where_all_registers_are_known() {
        let fpsimd = (FPSIMD, 528);
        assert_eq!(vectors_at(&context(&[fpsimd])), Some(464));
        assert_eq!(vectors_at(&context(&[(0x4553_5201, 16), fpsimd, (SVE, 16), (ZA, 16)])), Some(480));
        assert_eq!(vectors_at(&context(&[fpsimd, (SVE, 16 + 544)])), None, "vectors of 256 bits are live");
        assert_eq!(vectors_at(&context(&[fpsimd, (0x4558_5401, 32)])), None, "there is more elsewhere");
        assert_eq!(vectors_at(&context(&[fpsimd, (0x4743_5300, 32)])), None, "a guarded stack");
        assert_eq!(vectors_at(&context(&[(SVE, 16)])), None);
        assert_eq!(vectors_at(&context(&[fpsimd, (SVE, 0)])), None);
        assert_eq!(vectors_at(&context(&[(OTHERS[0], 4096)])), None, "no end");
    }
}
