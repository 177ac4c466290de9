//! Which operands are left out of the record, if that is asked for: those that seldom miss.
//!
//! As on x86-64 what refers to the stack by its registers, or to a static address, by Q. Zhao, R. Rabbah, S. Amarasinghe, L. Rudolph
//! and W.-F. Wong, *Ubiquitous Memory Introspection*, CGO 2007, section 4.1. x29 counts as a register of the stack only where it points
//! to the stack as the block is translated, until the block writes it, and where the block sets it from sp. What has an index is recorded, as
//! are prefetches.

use memlens_events::burst::Use;

use super::assembler::{Gpr, SP};
use super::decode::{Decoded, Operand, Place};
use crate::filter::is_filter_wanted;

/// The frame pointer (AAPCS64, section 6.1.1).
const FP: Gpr = 29;
/// How far above sp a frame pointer may be, in bytes: frames are seldom larger.
const FRAME_BYTES: u64 = 1 << 20;

/// What is left out of a block.
pub struct Filter {
    is_on: bool,
    has_frame_pointer: bool,
}

impl Filter {
    /// Of a block that begins with these values of the registers, by number; 31: sp.
    pub fn new(registers: &[u64; 32]) -> Self {
        let above = registers[usize::from(FP)].wrapping_sub(registers[usize::from(SP)]);
        Self { is_on: is_filter_wanted(), has_frame_pointer: above < FRAME_BYTES }
    }

    /// Whether anything is.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether the operand is.
    pub fn leaves_out(&self, operand: &Operand) -> bool {
        let seldom_misses = match operand.place {
            Place::Fixed(_) | Place::Offset(SP, _) => true,
            Place::Offset(FP, _) => self.has_frame_pointer,
            _ => false,
        };
        self.is_on && seldom_misses && operand.used != Use::Prefetch
    }

    /// An instruction has been executed.
    pub fn executed(&mut self, decoded: &Decoded) {
        if decoded.written & 1 << FP != 0 {
            self.has_frame_pointer = matches!(decoded.sum, Some((FP, SP, _)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode::decode;
    use super::*;

    #[test]
    fn what_goes_by_the_stacks_registers_or_is_fixed_is_left_out() {
        let cases = [
            ("ldr x0, [sp, #8]", 0xf940_07e0, false, true),
            ("ldr x0, [sp, x1]", 0xf861_6be0, false, false),
            ("ldr x0, [x29, #16]", 0xf940_0ba0, true, true),
            ("ldr x0, [x29, #16], x29 points elsewhere", 0xf940_0ba0, false, false),
            ("ldr x0, .+8", 0x5800_0040, false, true),
            ("ldr x0, [x1]", 0xf940_0020, true, false),
            ("prfm pldl1keep, [sp]", 0xf980_03e0, false, false),
        ];
        for (text, bits, has_frame_pointer, expected) in cases {
            let filter = Filter { is_on: true, has_frame_pointer };
            let operand = decode(bits, 0x1000).operand.expect("an operand");
            assert_eq!(filter.leaves_out(&operand), expected, "{text}");
        }
    }

    #[test]
    fn the_frame_pointer_is_followed() {
        let mut registers = [0; 32];
        (registers[31], registers[29]) = (0x7fff_0000, 0x7fff_0100);
        let mut filter = Filter::new(&registers);
        assert!(filter.has_frame_pointer && !filter.is_on);
        let mut execute = |bits: u32| {
            filter.executed(&decode(bits, 0x1000));
            filter.has_frame_pointer
        };
        assert!(!execute(0xf940_001d), "ldr x29, [x0]");
        assert!(execute(0x9100_03fd), "mov x29, sp");
        assert!(!execute(0xaa00_03fd), "mov x29, x0");
        registers[29] = 0x5555_0000;
        assert!(!Filter::new(&registers).has_frame_pointer, "an address of the heap");
    }
}
