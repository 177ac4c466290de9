//! One function's instructions, and what its memory operands look like.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::architecture::Architecture;
use crate::destination::Register;
use crate::instructions::{Constant, Instructions, Known, Place};
use crate::{aarch64, x86_64};

/// Steps back in all, over all ways, to what a base register holds.
const MAX_KNOWN_VISITS: usize = 256;

/// What is added to an address of a register that is an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IndexExtension {
    /// All 64 bits.
    #[default]
    None,
    /// Its low 32 bits, as a number without sign (`uxtw` of AArch64).
    Unsigned32,
    /// Its low 32 bits, as a number with a sign (`sxtw` of AArch64).
    Signed32,
}

impl IndexExtension {
    /// The index that a register's value is.
    pub fn extended(self, value: u64) -> u64 {
        match self {
            Self::None => value,
            Self::Unsigned32 => u64::from(value as u32),
            Self::Signed32 => i64::from(value as i32) as u64,
        }
    }
}

/// How an operand's address is made: `base + index · scale + disp`.
///
/// On AArch64 a base that is made of a fixed address, or of the thread pointer, by other instructions than the operand's
/// (`adrp`, `add`) has been replaced by that, where there is no index, or the base is the thread pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressExpression {
    /// A general-purpose register.
    pub base: Option<Register>,
    /// Another one.
    pub index: Option<Register>,
    /// 1, 2, 4 or 8; 16 as well on AArch64, and up to 128 where registers were added outside of the operand.
    pub scale: u8,
    /// What part of the index register counts.
    pub index_extension: IndexExtension,
    /// Bytes to add; with neither register the address itself (an svma).
    pub disp: i64,
    /// Whether something is added that general-purpose registers do not hold: the base of fs or gs, the thread pointer
    /// of AArch64, or a vector of indices.
    pub is_partial: bool,
    /// Whether that is the thread pointer alone: the base of fs, or `tpidr_el0`.
    pub is_thread_local: bool,
}

impl AddressExpression {
    /// Of nothing: 0.
    pub(crate) const NOTHING: Self = Self {
        base: None,
        index: None,
        scale: 1,
        index_extension: IndexExtension::None,
        disp: 0,
        is_partial: false,
        is_thread_local: false,
    };

    /// The address, if every register is known. `svma` is [`AddressExpression::is_svma`]'s matter.
    pub fn value(&self, mut register: impl FnMut(Register) -> Option<u64>) -> Option<u64> {
        if self.is_partial {
            return None;
        }
        let mut address = self.disp as u64;
        if let Some(base) = self.base {
            address = address.wrapping_add(register(base)?);
        }
        if let Some(index) = self.index {
            let index = self.index_extension.extended(register(index)?);
            address = address.wrapping_add(index.wrapping_mul(u64::from(self.scale)));
        }
        Some(address)
    }

    /// Whether the value is an address as the file states it, not one of the running process.
    pub fn is_svma(&self) -> bool {
        !self.has_registers() && !self.is_partial
    }

    /// Whether a general-purpose register is part of it.
    pub fn has_registers(&self) -> bool {
        self.base.is_some() || self.index.is_some()
    }
}

/// One memory operand of one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOperand {
    /// Address (svma) of the instruction.
    pub pc: u64,
    /// Which memory operand of the instruction, from 0.
    pub operand: u8,
    /// Whether it reads.
    pub reads: bool,
    /// Whether it writes.
    pub writes: bool,
    /// Bytes touched; 0 if that varies.
    pub size_bytes: u32,
    /// Where.
    pub address: AddressExpression,
}

/// The decoded instructions of one function and the jumps between them.
///
/// Cost: linear in the function, once.
pub struct FunctionCode {
    architecture: Architecture,
    start: u64,
    places: Vec<Place>,
    instructions: Box<dyn Instructions>,
    /// Target address → positions of the jumps to it.
    jumps: FxHashMap<u64, Vec<usize>>,
}

impl std::fmt::Debug for FunctionCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionCode").field("start", &self.start).finish_non_exhaustive()
    }
}

impl FunctionCode {
    /// Decodes `code`, whose first byte is at address (svma) `start`. What is no instruction is
    /// passed over: of x86-64 byte by byte; of AArch64, where all instructions have four, it is one that nothing is known of.
    pub fn new(architecture: Architecture, code: &[u8], start: u64) -> Self {
        let (places, instructions): (Vec<Place>, Box<dyn Instructions>) = match architecture {
            Architecture::X86_64 => {
                let code = x86_64::Code::new(code, start);
                (code.places(), Box::new(code))
            }
            Architecture::AArch64 => {
                let code = aarch64::Code::new(code, start);
                (code.places(), Box::new(code))
            }
        };
        let mut jumps: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
        for (position, place) in places.iter().enumerate() {
            if let Some(target) = place.transfer.target() {
                jumps.entry(target).or_default().push(position);
            }
        }
        Self { architecture, start, places, instructions, jumps }
    }

    /// Whose code it is.
    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// First address (svma).
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Where the instruction begins that a byte of code belongs to, as the byte before a return address does to its call.
    pub fn instruction_around(&self, pc: u64) -> Option<u64> {
        let behind = self.places.partition_point(|place| place.pc <= pc);
        let place = self.place(behind.checked_sub(1)?)?;
        (pc < place.next).then_some(place.pc)
    }

    pub(crate) fn position(&self, pc: u64) -> Option<usize> {
        self.places.binary_search_by_key(&pc, |place| place.pc).ok()
    }

    pub(crate) fn place(&self, position: usize) -> Option<Place> {
        self.places.get(position).copied()
    }

    /// What each instruction does.
    pub(crate) fn instructions(&self) -> &dyn Instructions {
        &*self.instructions
    }

    /// Positions of the jumps to an address.
    pub(crate) fn jumps_to(&self, pc: u64) -> &[usize] {
        self.jumps.get(&pc).map_or(&[], Vec::as_slice)
    }

    /// The memory operands of the instruction at `pc`, those of its own stack use (`push`, `call`)
    /// included.
    pub fn operands(&self, pc: u64) -> Vec<MemoryOperand> {
        self.position(pc).map(|position| self.operands_at(position)).unwrap_or_default()
    }

    pub(crate) fn operands_at(&self, position: usize) -> Vec<MemoryOperand> {
        let mut operands = self.instructions.operands(position);
        for operand in &mut operands {
            operand.address = self.resolved(position, operand.address);
        }
        operands
    }

    /// With what a base holds in every run in the place of the base.
    fn resolved(&self, position: usize, address: AddressExpression) -> AddressExpression {
        let Some(base) = address.base.filter(|_| !address.is_partial) else { return address };
        match self.known_before(position, base) {
            Some(Known::Fixed(svma)) if address.index.is_none() => {
                AddressExpression { base: None, disp: address.disp.wrapping_add(svma as i64), ..address }
            }
            Some(Known::ThreadPointer(offset)) => AddressExpression {
                base: None,
                disp: address.disp.wrapping_add(offset),
                is_partial: true,
                is_thread_local: true,
                ..address
            },
            _ => address,
        }
    }

    /// What a register holds before an instruction, if that is the same on all ways there. Jumps by a table are not among the ways:
    /// where a case is entered by one and by what stands before it, it is as the latter left it.
    pub(crate) fn known_before(&self, position: usize, register: Register) -> Option<Known> {
        if !self.instructions.makes_constants() {
            return None;
        }
        let mut queue = VecDeque::from([(position, register, 0i64)]);
        let mut seen: FxHashMap<(usize, Register), i64> = FxHashMap::default();
        let mut found: Option<Known> = None;
        while let Some((at, register, plus)) = queue.pop_front() {
            if register == self.architecture.stack_pointer() {
                return None;
            }
            match seen.insert((at, register), plus) {
                // A loop that changes it.
                Some(before) if before != plus => return None,
                Some(_) => continue,
                None if seen.len() > MAX_KNOWN_VISITS => return None,
                None => {}
            }
            let before = self.predecessors(at);
            if before.is_empty() || at == 0 {
                return None;
            }
            for before in before {
                match self.constant_after(before, register) {
                    Some(Constant::Is(known)) => {
                        let known = known.plus(plus);
                        if *found.get_or_insert(known) != known {
                            return None;
                        }
                    }
                    Some(Constant::Plus(from, by)) => queue.push_back((before, from, plus.wrapping_add(by))),
                    None => return None,
                }
            }
        }
        found
    }

    /// What a register holds after an instruction in every run.
    pub(crate) fn known_after(&self, position: usize, register: Register) -> Option<Known> {
        match self.constant_after(position, register)? {
            Constant::Is(known) => Some(known),
            Constant::Plus(from, by) => Some(self.known_before(position, from)?.plus(by)),
        }
    }

    fn constant_after(&self, position: usize, register: Register) -> Option<Constant> {
        if self.place(position)?.transfer.is_call() {
            return self.architecture.is_callee_saved(register).then_some(Constant::Plus(register, 0));
        }
        if self.instructions.writes(position, register) {
            return self.instructions.constant(position, register);
        }
        Some(Constant::Plus(register, 0))
    }
}
