//! Which addresses of a block follow from one that it stored: registers have versions, which change when they are written.

use iced_x86::{Instruction, OpKind, Register};
use memlens_events::burst::Source;

use super::assembler::{Gpr, RSP};

/// Addresses of a block that a further one may be near to.
pub struct Known {
    versions: [u16; 16],
    /// Change of rsp since its version began, by pushes and pops, in bytes.
    stack_change: i64,
    recorded: [Recorded; 64],
    count: usize,
    /// Whether the next address must be stored, wherever it comes from: it is the first behind a side exit.
    pub must_store: bool,
}

/// An address in terms of its registers' versions.
#[derive(Clone, Copy, Default)]
pub struct Recorded {
    base: Option<(Gpr, u16)>,
    index: Option<(Gpr, u16, u8)>,
    disp: i64,
    word: u16,
}

impl Known {
    /// At a block's begin.
    pub const fn new() -> Self {
        let nothing = Recorded { base: None, index: None, disp: 0, word: 0 };
        Self { versions: [0; 16], stack_change: 0, recorded: [nothing; 64], count: 0, must_store: true }
    }

    /// The address in terms of versions; its displacement counts from where rsp was.
    pub fn name(&self, base: Option<Gpr>, index: Option<(Gpr, u8)>, disp: i64) -> Recorded {
        let version = |register: Gpr| self.versions[usize::from(register)];
        let moved = if base == Some(RSP) { self.stack_change } else { 0 };
        Recorded {
            base: base.map(|register| (register, version(register))),
            index: index.map(|(register, scale)| (register, version(register), scale)),
            disp: disp + moved,
            word: 0,
        }
    }

    /// How the address follows from one that was stored.
    pub fn near(&self, wanted: &Recorded) -> Option<Source> {
        let found = self.recorded[..self.count]
            .iter()
            .rev()
            .find(|known| known.base == wanted.base && known.index == wanted.index)?;
        Some(Source::Near { word: found.word, distance: wanted.disp.wrapping_sub(found.disp) })
    }

    /// It is stored as this word.
    pub fn note(&mut self, name: Recorded, word: u16) {
        if let Some(place) = self.recorded.get_mut(self.count) {
            *place = Recorded { word, ..name };
            self.count += 1;
        }
    }

    /// Behind a side exit the next address must be stored.
    pub fn forget(&mut self) {
        self.count = 0;
        self.must_store = true;
    }

    /// An instruction has written these registers.
    pub fn written(&mut self, instruction: &Instruction, registers: impl Iterator<Item = Gpr>) {
        let change = i64::from(instruction.stack_pointer_increment());
        // `leave` and `pop rsp` set it; others add a constant.
        let is_known = change != 0
            && !matches!(instruction.mnemonic(), iced_x86::Mnemonic::Leave | iced_x86::Mnemonic::Enter)
            && !(0..instruction.op_count()).any(|operand| {
                instruction.op_kind(operand) == OpKind::Register
                    && instruction.op_register(operand).full_register() == Register::RSP
            });
        for register in registers {
            if register == RSP && is_known {
                self.stack_change += change;
            } else {
                self.versions[usize::from(register)] += 1;
                if register == RSP {
                    self.stack_change = 0;
                }
            }
        }
    }
}
