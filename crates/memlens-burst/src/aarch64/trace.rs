//! The instructions that are translated together: a straight path through the code, with side exits.
//!
//! The path follows fall-through at conditional branches and direct branches forward, for a few of them; it ends at a call,
//! a return, an indirect or a backward branch, and before whatever is left to the native code. A loop whose branch leads back to
//! the path's begin is gone through several times, as often as it fits whole, if it accesses memory: as on x86-64.

use memlens_events::burst::{End, MAX_BLOCK_WORDS};

use super::assembler::{AREA, Gpr, SP};
use super::decode::{Decoded, Flow, Form, Set, decode};
use crate::code_map::CodeSource;
use crate::sys::copy_own;

/// Most instructions of a trace, and so most of its memory operands: each has one at most.
pub const MOST_INSTRUCTIONS: usize = 64;
const _: () = assert!(1 + MOST_INSTRUCTIONS < MAX_BLOCK_WORDS);
/// Jumps that a trace goes through.
pub const MOST_JUMPS: usize = 8;
/// Bytes that are looked at from each jump's target on: more than the most instructions take.
pub const WINDOW_BYTES: usize = 512;
/// Bytes of an instruction.
const BYTES: u64 = 4;
const _: () = assert!(WINDOW_BYTES > BYTES as usize * (MOST_INSTRUCTIONS + 1));

/// Registers that a trace never leaves to us: x18 is the platform's (AAPCS64, section 6.1.1).
const NEVER_FREE: Set = 1 << SP | 1 << AREA | 1 << 18;

/// How a trace ends, behind its last instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// At this address.
    Next(u64),
    /// With its last instruction: a jump, a call or a return.
    Transfer,
    /// The burst ends before this address.
    Native(u64, End),
}

/// What decoding keeps from trace to trace: nothing.
pub struct Decoding;

impl Decoding {
    pub fn new() -> Self {
        Self
    }

    /// There are no tables to be made.
    pub fn use_first(&mut self) {}
}

/// An instruction of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    pub pc: u64,
    pub bits: u32,
    pub decoded: Decoded,
}

impl Instruction {
    pub fn next_pc(&self) -> u64 {
        self.pc + BYTES
    }
}

/// A decoded path.
#[derive(Debug)]
pub struct Trace {
    instructions: [Instruction; MOST_INSTRUCTIONS],
    length: usize,
    /// How it ends.
    pub tail: Tail,
    /// Instructions of a round, if it is a loop that the path goes through more than once; else 0.
    round: usize,
    /// General registers that it uses.
    used: Set,
}

/// Code from an address on.
struct Window<'c> {
    code: &'c [u8],
    start: u64,
}

impl<'c> Window<'c> {
    /// # Safety
    /// As [`CodeSource::code_at`].
    unsafe fn at(pc: u64, source: &'c mut impl CodeSource) -> Option<Self> {
        if !pc.is_multiple_of(BYTES) {
            return None;
        }
        // SAFETY: the caller's promise.
        Some(Self { code: unsafe { source.code_at(pc) }?, start: pc })
    }

    fn instruction(&self, pc: u64) -> Option<Instruction> {
        let at = usize::try_from(pc.checked_sub(self.start)?).ok()?;
        let bytes = self.code.get(at..at + BYTES as usize)?;
        let bits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Some(Instruction { pc, bits, decoded: decode(bits, pc) })
    }
}

impl Trace {
    pub const fn empty() -> Self {
        Self {
            instructions: [Instruction { pc: 0, bits: 0, decoded: Decoded::NATIVE }; MOST_INSTRUCTIONS],
            length: 0,
            tail: Tail::Next(0),
            round: 0,
            used: 0,
        }
    }

    /// Decodes from `pc` on. `Err`: nothing can be translated there.
    ///
    /// # Safety
    /// As [`CodeSource::code_at`].
    pub unsafe fn decode(
        &mut self,
        pc: u64,
        source: &mut impl CodeSource,
        follows: impl Fn(u64) -> bool,
        _: &mut Decoding,
    ) -> Result<(), End> {
        (self.length, self.round, self.used) = (0, 0, NEVER_FREE);
        let mut jumps = 0;
        let (mut has_operands, mut needs_stand_in) = (false, false);
        // Whether it has gone on behind a branch to its begin: rounds are all alike, so it has one.
        let mut has_one_round = false;
        // SAFETY: the caller's promise: the code before is of the same mapping, or none.
        let mut constants = unsafe { Constants::before(pc, source) };
        // SAFETY: the caller's promise.
        let mut window = unsafe { Window::at(pc, source) }.ok_or(End::Code)?;
        let mut next = pc;
        self.tail = loop {
            if self.length == MOST_INSTRUCTIONS {
                break Tail::Next(next);
            }
            let Some(instruction) = window.instruction(next) else {
                break if self.length == 0 { Tail::Native(next, End::Code) } else { Tail::Next(next) };
            };
            let decoded = instruction.decoded;
            if let Flow::Native(end) = decoded.flow {
                break Tail::Native(next, end);
            }
            if decoded
                .stored
                .and_then(|register| constants.of(register))
                .is_some_and(|value| announces(value, instruction.next_pc()))
            {
                break Tail::Native(next, End::Instruction);
            }
            // Two registers must be ours, and one more where another register stands for x28.
            needs_stand_in |= decoded.used() & 1 << AREA != 0;
            if (self.used | decoded.used()).count_zeros() < 2 + u32::from(needs_stand_in) {
                break Tail::Next(next);
            }
            self.used |= decoded.used();
            has_operands |= decoded.operand.is_some();
            constants.execute(&decoded);
            self.instructions[self.length] = instruction;
            self.length += 1;
            next = instruction.next_pc();
            match decoded.flow {
                Flow::Next => {}
                Flow::Conditional(target) if target == pc => {
                    jumps += 1;
                    if self.round == 0 {
                        self.round = self.length;
                    }
                    let rounds = self.length / self.round;
                    let has_room = |all: usize, most: usize| all + all / rounds <= most;
                    // Of rounds without accesses nothing else tells how many there were.
                    let goes_on = !has_one_round
                        && has_operands
                        && has_room(self.length, MOST_INSTRUCTIONS)
                        && has_room(jumps, MOST_JUMPS);
                    if goes_on {
                        // SAFETY: as above.
                        window = unsafe { Window::at(pc, source) }.ok_or(End::Code)?;
                        next = pc;
                    } else if rounds > 1 {
                        break Tail::Next(pc);
                    } else {
                        (self.round, has_one_round) = (0, true);
                        if jumps > MOST_JUMPS {
                            break Tail::Next(next);
                        }
                    }
                }
                Flow::Conditional(_) => {
                    jumps += 1;
                    if jumps > MOST_JUMPS {
                        break Tail::Next(next);
                    }
                }
                Flow::Jump(to) => {
                    jumps += 1;
                    if to <= instruction.pc || jumps > MOST_JUMPS || !follows(to) {
                        break Tail::Transfer;
                    }
                    // SAFETY: as above.
                    match unsafe { Window::at(to, source) } {
                        Some(another) => window = another,
                        None => break Tail::Transfer,
                    }
                    next = to;
                }
                _ => break Tail::Transfer,
            }
        };
        if self.length == 0 {
            return match self.tail {
                Tail::Native(_, end) => Err(end),
                // Not even one instruction leaves enough registers free.
                _ => Err(End::Instruction),
            };
        }
        Ok(())
    }

    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions[..self.length]
    }

    /// Native addresses of its instructions.
    pub fn code(&self) -> impl Iterator<Item = u64> {
        self.instructions().iter().map(|instruction| instruction.pc)
    }

    /// Where the path leaves at a conditional branch, and whether that is where the branch is not taken: it ends a round.
    pub fn way_out(&self, index: usize) -> Option<(u64, bool)> {
        let instruction = &self.instructions[index];
        let Flow::Conditional(target) = instruction.decoded.flow else { return None };
        Some(match self.round != 0 && (index + 1).is_multiple_of(self.round) {
            true => (instruction.next_pc(), true),
            false => (target, false),
        })
    }

    /// Whether it ends with a return or an indirect jump or call.
    pub fn ends_indirectly(&self) -> bool {
        let last = self.instructions().last().map(|last| last.decoded.flow);
        self.tail == Tail::Transfer
            && matches!(last, Some(Flow::Return(_) | Flow::JumpIndirect(_) | Flow::CallIndirect(_)))
    }

    /// Two registers that it does not use: `preferred` if they are, else those that the code it goes on to uses least, so
    /// that a loop of several blocks can keep them.
    ///
    /// # Safety
    /// As [`Self::decode`].
    pub unsafe fn free_pair(
        &self,
        preferred: (Gpr, Gpr),
        source: &mut impl CodeSource,
        _: &mut Decoding,
    ) -> (Gpr, Gpr) {
        let is_free = |register: Gpr| self.used & 1 << register == 0;
        if preferred.0 != preferred.1 && is_free(preferred.0) && is_free(preferred.1) {
            return preferred;
        }
        let mut uses = [0u8; 32];
        for target in self.targets() {
            // SAFETY: the caller's promise.
            let used = unsafe { used_from(target, source) };
            for (register, uses) in uses.iter_mut().enumerate() {
                *uses += u8::from(used & 1 << register != 0);
            }
        }
        let mut chosen = (0..31).filter(|&register| is_free(register));
        let (mut first, mut second) = (chosen.next().unwrap_or(0), chosen.next().unwrap_or(1));
        // Of equals the later one: temporaries come behind arguments. The frame pointer and the link register are the last choice.
        let rank = |register: Gpr| (uses[usize::from(register)], register >= 29, !register);
        for register in chosen {
            let (worse, better) = if rank(first) < rank(second) { (second, first) } else { (first, second) };
            if rank(register) < rank(worse) {
                (first, second) = (better, register);
            }
        }
        (first.max(second), first.min(second))
    }

    /// The register that stands for x28, if it uses that: one that it does not use, nor the pair.
    pub fn stand_in(&self, pair: (Gpr, Gpr)) -> Option<Gpr> {
        let needs_it = self.instructions().iter().any(|one| one.decoded.used() & 1 << AREA != 0);
        let used = self.used | 1 << pair.0 | 1 << pair.1;
        needs_it.then(|| (0..31).rev().find(|&register| used & 1 << register == 0)).flatten()
    }

    /// Where it goes on, as far as its instructions say.
    fn targets(&self) -> impl Iterator<Item = u64> {
        let tail = match (self.tail, self.instructions().last().map(|last| last.decoded.flow)) {
            (Tail::Next(target), _) => Some(target),
            (Tail::Transfer, Some(Flow::Jump(target) | Flow::Call(target))) => Some(target),
            _ => None,
        };
        (0..self.length).filter_map(|index| Some(self.way_out(index)?.0)).chain(tail)
    }
}

/// The general registers that the next few instructions from an address on use.
///
/// # Safety
/// As [`Trace::decode`].
unsafe fn used_from(pc: u64, source: &mut impl CodeSource) -> Set {
    const FEW: u64 = 12;
    // SAFETY: the caller's promise.
    let Some(window) = (unsafe { Window::at(pc, source) }) else { return 0 };
    let mut used = 0;
    for number in 0..FEW {
        let Some(instruction) = window.instruction(pc + number * BYTES) else { break };
        used |= instruction.decoded.used();
        if instruction.decoded.flow != Flow::Next {
            break;
        }
    }
    used
}

/// Registers whose values the code alone tells.
struct Constants {
    known: Set,
    values: [u64; 31],
}

impl Constants {
    /// As the two instructions before `pc` leave them, if execution comes from there: a trace may begin between an address and its use.
    ///
    /// # Safety
    /// As [`Trace::decode`].
    unsafe fn before(pc: u64, source: &mut impl CodeSource) -> Self {
        let mut constants = Self { known: 0, values: [0; 31] };
        let start = pc.wrapping_sub(2 * BYTES);
        // SAFETY: the caller's promise.
        if let Some(window) = unsafe { Window::at(start, source) } {
            for number in 0..2 {
                if let Some(instruction) = window.instruction(start + number * BYTES) {
                    constants.execute(&instruction.decoded);
                }
            }
        }
        constants
    }

    fn of(&self, register: Gpr) -> Option<u64> {
        (self.known & 1 << register != 0).then(|| self.values[usize::from(register)])
    }

    fn execute(&mut self, decoded: &Decoded) {
        let value = match (decoded.form, decoded.sum) {
            (Form::Value(value), _) => Some(value),
            (_, Some((_, from, by))) => self.of(from).map(|value| value.wrapping_add_signed(by)),
            _ => None,
        };
        let written = decoded.written & !(1 << SP);
        self.known &= !written;
        if written.is_power_of_two()
            && let Some(value) = value
        {
            self.known |= written;
            self.values[written.trailing_zeros() as usize] = value;
        }
    }
}

/// Whether a store of this address, with `next` behind it, announces a restartable sequence, which only native code is: its descriptor lies
/// there, and the sequence begins behind the store (rseq(2); `struct rseq_cs` of include/uapi/linux/rseq.h).
fn announces(descriptor: u64, next: u64) -> bool {
    const START_IP_AT: usize = 8;
    let mut words = [0; 32];
    copy_own(descriptor, &mut words) == words.len()
        && words[START_IP_AT..START_IP_AT + 8] == next.to_le_bytes()
}
