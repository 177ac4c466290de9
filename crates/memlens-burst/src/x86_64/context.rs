//! Signal contexts: that of the tick with which a burst begins, the frame with which it ends, and those of faults.

use core::ffi::c_void;

use super::area::Area;
use super::assembler::{Gpr, RAX};
use super::entry::FLAGS_BELOW_TOP;
use super::translate::FLAGS_FOR_NATIVE;
use crate::cache::Block;

pub const VECTORS_BYTES: usize = 16 << 10;
/// Bytes of the kernel's `struct ucontext` with its signal mask (arch/x86/include/uapi/asm/ucontext.h).
const CONTEXT_BYTES: usize = 304;
type Words = [u64; CONTEXT_BYTES / 8];

// Of `struct ucontext`, in words: 5 before the registers, in the order r8 … r15, di, si, bp, bx, dx, ax, cx, sp, ip,
// flags; then segments, error, trap number, old mask, cr2, address of the vector registers; at the end the mask.
const REGISTERS_AT: usize = 5;
const IP_AT: usize = REGISTERS_AT + 16;
const FLAGS_AT: usize = REGISTERS_AT + 17;
const CX_AT: usize = REGISTERS_AT + 14;
const VECTORS_AT: usize = 28;
const MASK_AT: usize = 37;
/// By the registers' numbers in encodings: their places from [`REGISTERS_AT`] on.
const ORDER: [usize; 16] = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];

/// Where the kernel says what is in the vector registers' area (`struct _fpx_sw_bytes`), and how it is marked.
const MARKS_AT: usize = 464;
const MARK_1: u32 = 0x4650_5853;
const MARK_2: u32 = 0x4650_5845;

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
        self.0[IP_AT]
    }

    /// A general register.
    pub fn register(&self, number: Gpr) -> u64 {
        self.0[REGISTERS_AT + ORDER[usize::from(number)]]
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
        self.0[FLAGS_AT] & FLAGS_FOR_NATIVE == 0 && self.vector_marks().is_some()
    }

    /// What the kernel says of the vector registers that it saved. None: nothing, or more than is known.
    fn vector_marks(&self) -> Option<[u8; 48]> {
        let saved = self.0[VECTORS_AT];
        if saved == 0 {
            return None;
        }
        // SAFETY: the kernel's pointer; it saved at least 512 bytes there.
        let marks = unsafe { ((saved + MARKS_AT as u64) as *const [u8; 48]).read() };
        let word = |at: usize| u32::from_ne_bytes([marks[at], marks[at + 1], marks[at + 2], marks[at + 3]]);
        (word(0) == MARK_1 && word(16) as usize + 4 <= VECTORS_BYTES).then_some(marks)
    }

    /// Of a thread in a block: as it would be in the native code at `pc`.
    pub fn put_back(&mut self, area: &Area, block: &Block, pc: u64) {
        let (first, second) = block.pair;
        let context = &mut *self.0;
        let register = |number: u8| REGISTERS_AT + ORDER[usize::from(number)];
        context[register(first)] = area.first.get();
        context[register(second)] = area.second.get();
        let compares = block.own.comparison.is_some_and(|(from, to)| (from..to).contains(&context[IP_AT]));
        if compares && block.own.are_flags_in_rax {
            // As `lahf` and `seto al` left them.
            const LOW_FLAGS: u64 = 0xd5;
            const OVERFLOW: u64 = 1 << 11;
            let held = context[register(RAX)];
            let others = context[FLAGS_AT] & !(LOW_FLAGS | OVERFLOW);
            context[FLAGS_AT] = others | ((held >> 8) & LOW_FLAGS) | ((held & 1) * OVERFLOW);
            context[register(RAX)] = area.third.get();
        }
        context[IP_AT] = pc;
    }
}

/// What is kept of a thread for its burst's end.
#[repr(C, align(64))]
pub struct Saved {
    vectors: [u8; VECTORS_BYTES],
    context: Words,
}

impl Saved {
    /// The area says where it is.
    pub fn tell(&self, area: &Area) {
        area.own.set(core::ptr::from_ref(area) as u64);
        area.vectors.set(self.vectors.as_ptr() as u64);
        area.frame.set(self.context.as_ptr() as u64);
    }

    /// The program's signal mask.
    pub fn mask(&self) -> u64 {
        self.context[MASK_AT]
    }

    /// Keeps the context, and lets it lead to the runtime's entry.
    pub fn begin(&mut self, context: &mut Context<'_>, area: &Area, entry: u64) {
        self.context = *context.0;
        if let Some(marks) = context.vector_marks() {
            self.vectors[MARKS_AT..MARKS_AT + 48].copy_from_slice(&marks);
        }
        area.third.set(context.0[CX_AT]);
        context.0[IP_AT] = entry;
    }

    /// Makes the frame with which the native code goes on at `target`.
    ///
    /// # Safety
    /// Called from the entry of the thread's burst, with its own area.
    pub unsafe fn end(&mut self, area: &Area, target: u64) {
        let registers = area.registers.get();
        for (register, place) in registers.iter().zip(ORDER) {
            self.context[REGISTERS_AT + place] = *register;
        }
        self.context[IP_AT] = target;
        // SAFETY: the entry pushed the flags there.
        self.context[FLAGS_AT] = unsafe { ((area.stack.get() - FLAGS_BELOW_TOP) as *const u64).read() };
        self.context[VECTORS_AT] = area.vectors.get();
        let marks = &self.vectors[MARKS_AT..];
        let bytes = u32::from_ne_bytes([marks[16], marks[17], marks[18], marks[19]]) as usize;
        self.vectors[bytes..bytes + 4].copy_from_slice(&MARK_2.to_ne_bytes());
    }
}
