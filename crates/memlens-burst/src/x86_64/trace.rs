//! The instructions that are translated together: a straight path through the code, with side exits.
//!
//! The path follows fall-through at conditional jumps and direct jumps forward, for a few jumps; it ends at a call,
//! a return, an indirect or a backward jump, and before whatever is left to the native code. A loop whose jump leads back to
//! the path's begin is gone through several times, as often as it fits whole: what a block does besides the program's own work
//! is then done once in so many rounds. Not so a loop that touches no memory: only its block's words tell how often it goes round.

use core::sync::atomic::{AtomicI64, Ordering};

use iced_x86::{
    Code, CodeSize, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, MemorySize,
    Mnemonic, OpAccess, OpKind, Register, RflagsBits, UsedMemory,
};

use memlens_events::burst::{End, MAX_BLOCK_WORDS};
use memlens_inside::weak;

use super::assembler::{Address, Gpr};
use super::gather::{Gather, MOST_ELEMENTS};
use crate::code_map::CodeSource;

/// Most instructions of a trace.
pub const MOST_INSTRUCTIONS: usize = 64;
/// Most memory operands of a trace.
const MOST_OPERANDS: usize = 56;
/// Memory operands of an instruction that are looked at; only those have more that nobody counts on.
const MOST_OF_ONE: usize = 8;
const MOST_MEMORIES: usize = MOST_OPERANDS + 2 * MOST_OF_ONE;
/// The last instruction of a trace may have some more than those: a block's words have room for them.
const _: () = assert!(1 + MOST_OPERANDS + 2 + MOST_ELEMENTS < MAX_BLOCK_WORDS);
/// Jumps that a trace goes through.
pub const MOST_JUMPS: usize = 8;
/// Bytes that are looked at from each jump's target on: more than the most instructions take.
pub const WINDOW_BYTES: usize = 1024;
/// The longest instruction.
pub const MOST_BYTES: usize = 15;
const _: () = assert!(WINDOW_BYTES > MOST_BYTES * MOST_INSTRUCTIONS);

/// Registers that a trace never leaves to us: rax and rcx serve for flags and hashes, rsp is the stack.
const NEVER_FREE: u16 = 1 << 0 | 1 << 1 | 1 << 4;

const STATUS_FLAGS: u32 =
    RflagsBits::CF | RflagsBits::PF | RflagsBits::AF | RflagsBits::ZF | RflagsBits::SF | RflagsBits::OF;

/// What an instruction does with the flow of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// On to the next.
    Next,
    /// A jump by the flags.
    Conditional,
    /// `loop`, `jrcxz` and their like.
    Counted,
    Jump,
    JumpIndirect,
    Call,
    CallIndirect,
    Return,
    /// It is left to the native code.
    Native(End),
}

/// How a trace ends, behind its last instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// At this address.
    Next(u64),
    /// With its last instruction: a jump, a call or a return.
    Transfer(Flow),
    /// The burst ends before this address.
    Native(u64, End),
}

/// The memory of the decoder's that it asks for at its first use.
pub struct Decoding(InstructionInfoFactory);

impl Decoding {
    pub fn new() -> Self {
        Self(InstructionInfoFactory::new())
    }

    /// Its tables are made when it is first used.
    pub fn use_first(&mut self) {
        let first = Decoder::with_ip(64, &[0x90], 0, DecoderOptions::NONE).decode();
        core::hint::black_box(self.0.info(&first));
    }

    pub fn infos(&mut self) -> &mut InstructionInfoFactory {
        &mut self.0
    }
}

/// A decoded path.
#[derive(Debug)]
pub struct Trace {
    instructions: [Instruction; MOST_INSTRUCTIONS],
    /// Their bytes, one behind the other, and behind which of these each instruction's end.
    bytes: [u8; MOST_BYTES * MOST_INSTRUCTIONS],
    byte_ends: [u16; MOST_INSTRUCTIONS],
    /// Offset of each instruction's displacement in its bytes.
    displacements: [u8; MOST_INSTRUCTIONS],
    /// General registers that each writes, as bits by number.
    written: [u16; MOST_INSTRUCTIONS],
    /// Memory operands, and behind which of them each instruction's end.
    memories: [UsedMemory; MOST_MEMORIES],
    memory_ends: [u8; MOST_INSTRUCTIONS],
    length: usize,
    /// How it ends.
    pub tail: Tail,
    /// Instructions of a round, if it is a loop that the path goes through more than once; else 0.
    round: usize,
    /// General registers that it uses, as bits by number.
    used: u16,
    /// Before which instruction the flags hold nothing that is used later.
    pub free_flags_at: Option<usize>,
}

impl Trace {
    pub const fn empty() -> Self {
        Self {
            // SAFETY: an instruction of zeros is `Instruction::default()`, an invalid one (iced-x86: all its fields are
            // numbers and field-less enums with a zero value).
            instructions: unsafe { core::mem::zeroed() },
            bytes: [0; MOST_BYTES * MOST_INSTRUCTIONS],
            byte_ends: [0; MOST_INSTRUCTIONS],
            displacements: [0; MOST_INSTRUCTIONS],
            written: [0; MOST_INSTRUCTIONS],
            // SAFETY: as above, for `UsedMemory::default()`.
            memories: unsafe { core::mem::zeroed() },
            memory_ends: [0; MOST_INSTRUCTIONS],
            length: 0,
            tail: Tail::Next(0),
            round: 0,
            used: 0,
            free_flags_at: None,
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
        decoding: &mut Decoding,
    ) -> Result<(), End> {
        let infos = decoding.infos();
        self.length = 0;
        self.round = 0;
        self.used = NEVER_FREE;
        let mut operands = 0;
        let mut jumps = 0;
        // Whether it has gone on behind a jump to its begin: rounds are all alike, so it has one.
        let mut has_one_round = false;
        // SAFETY: the caller's promise.
        let (mut code, mut decoder) = unsafe { decoder_at(pc, source) }.ok_or(End::Code)?;
        let mut next = pc;
        self.tail = loop {
            if self.length == MOST_INSTRUCTIONS || operands > MOST_OPERANDS {
                break Tail::Next(next);
            }
            let instruction = &mut self.instructions[self.length];
            let at = decoder.position();
            decoder.decode_out(instruction);
            let flow = flow_of(instruction);
            if let Flow::Native(end) = flow {
                break Tail::Native(next, end);
            }
            let first = self.length.checked_sub(1).map_or(0, |last| usize::from(self.memory_ends[last]));
            let memories = &mut self.memories[first..];
            let Some(Used { used, written, memories, operands: count }) =
                used_by(instruction, infos, memories)
            else {
                break Tail::Native(next, End::Instruction);
            };
            if (self.used | used).count_zeros() < 2 {
                // Two registers must be ours.
                break Tail::Next(next);
            }
            self.used |= used;
            operands += count;
            self.written[self.length] = written;
            self.memory_ends[self.length] = (first + memories) as u8;
            if instruction.is_ip_rel_memory_operand() {
                let offsets = decoder.get_constant_offsets(instruction);
                self.displacements[self.length] = offsets.displacement_offset() as u8;
            }
            let text = &code[at..decoder.position()];
            let start = self.length.checked_sub(1).map_or(0, |last| usize::from(self.byte_ends[last]));
            self.bytes[start..start + text.len()].copy_from_slice(text);
            self.byte_ends[self.length] = (start + text.len()) as u16;
            self.length += 1;
            next = instruction.next_ip();
            match flow {
                Flow::Next => {}
                Flow::Conditional if instruction.near_branch_target() == pc => {
                    jumps += 1;
                    if self.round == 0 {
                        self.round = self.length;
                    }
                    let rounds = self.length / self.round;
                    let has_room = |all: usize, most: usize| all + all / rounds <= most;
                    // Of rounds without accesses nothing else tells how many there were.
                    let goes_on = !has_one_round
                        && self.memory_ends[self.length - 1] > 0
                        && has_room(self.length, MOST_INSTRUCTIONS)
                        && has_room(operands, MOST_OPERANDS)
                        && has_room(jumps, MOST_JUMPS);
                    if goes_on {
                        // SAFETY: as above.
                        (code, decoder) = unsafe { decoder_at(pc, source) }.ok_or(End::Code)?;
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
                Flow::Conditional | Flow::Counted => {
                    jumps += 1;
                    if jumps > MOST_JUMPS {
                        break Tail::Next(next);
                    }
                }
                Flow::Jump => {
                    let (from, to) = (instruction.ip(), instruction.near_branch_target());
                    jumps += 1;
                    if to <= from || jumps > MOST_JUMPS || !follows(to) {
                        break Tail::Transfer(flow);
                    }
                    // SAFETY: as above.
                    match unsafe { decoder_at(to, source) } {
                        Some(another) => (code, decoder) = another,
                        None => break Tail::Transfer(flow),
                    }
                    next = to;
                }
                other => break Tail::Transfer(other),
            }
        };
        if self.length == 0 {
            return match self.tail {
                Tail::Native(_, end) => Err(end),
                // Not even one instruction leaves two registers free.
                _ => Err(End::Instruction),
            };
        }
        self.free_flags_at = self.find_free_flags();
        Ok(())
    }

    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions[..self.length]
    }

    /// Native addresses of its instructions.
    pub fn code(&self) -> impl Iterator<Item = u64> {
        self.instructions().iter().map(Instruction::ip)
    }

    /// The bytes of an instruction.
    pub fn bytes(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| usize::from(self.byte_ends[before]));
        &self.bytes[start..usize::from(self.byte_ends[index])]
    }

    /// The pieces of code that it is made from: where each begins, and its bytes. Rounds of a loop are of the same code.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let length = if self.round == 0 { self.length } else { self.round };
        let follows = |index: usize| {
            let jump = &self.instructions[index - 1];
            flow_of(jump) == Flow::Jump || jump.next_ip() != self.instructions[index].ip()
        };
        let mut first = 0;
        core::iter::from_fn(move || {
            let start = first;
            (start < length).then(|| {
                first = (start + 1..length).find(|&index| follows(index)).unwrap_or(length);
                let from = start.checked_sub(1).map_or(0, |before| usize::from(self.byte_ends[before]));
                (self.instructions[start].ip(), &self.bytes[from..usize::from(self.byte_ends[first - 1])])
            })
        })
    }

    /// Where the path leaves at a conditional jump, and whether that is where the jump is not taken: it ends a round.
    pub fn way_out(&self, index: usize) -> (u64, bool) {
        let instruction = &self.instructions[index];
        match self.round != 0 && (index + 1).is_multiple_of(self.round) {
            true => (instruction.next_ip(), true),
            false => (instruction.near_branch_target(), false),
        }
    }

    /// Whether it ends with a return or an indirect jump or call.
    pub fn ends_indirectly(&self) -> bool {
        matches!(self.tail, Tail::Transfer(Flow::Return | Flow::JumpIndirect | Flow::CallIndirect))
    }

    /// The memory operands of an instruction.
    pub fn memories(&self, index: usize) -> &[UsedMemory] {
        let start = index.checked_sub(1).map_or(0, |before| usize::from(self.memory_ends[before]));
        &self.memories[start..usize::from(self.memory_ends[index])]
    }

    /// The general registers that an instruction writes.
    pub fn written(&self, index: usize) -> impl Iterator<Item = Gpr> + use<> {
        let written = self.written[index];
        (0..16).filter(move |&register| written & 1 << register != 0)
    }

    /// Offset of the displacement in the bytes of an instruction that has one relative to the instruction pointer.
    pub fn displacement(&self, index: usize) -> u64 {
        u64::from(self.displacements[index])
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
        decoding: &mut Decoding,
    ) -> (Gpr, Gpr) {
        let is_free = |register: Gpr| self.used & 1 << register == 0;
        if preferred.0 != preferred.1 && is_free(preferred.0) && is_free(preferred.1) {
            return preferred;
        }
        let mut uses = [0u8; 16];
        for target in self.targets() {
            // SAFETY: the caller's promise.
            let used = unsafe { used_from(target, source, decoding.infos()) };
            for (register, uses) in uses.iter_mut().enumerate() {
                *uses += u8::from(used & 1 << register != 0);
            }
        }
        let mut free: [Gpr; 13] = [15, 14, 13, 12, 11, 10, 9, 8, 3, 5, 2, 6, 7];
        free.sort_unstable_by_key(|&register| (!is_free(register), uses[usize::from(register)], !register));
        debug_assert!(is_free(free[1]), "decoding ends before fewer than two registers are free");
        (free[0], free[1])
    }

    /// Where it goes on, as far as its instructions say.
    fn targets(&self) -> impl Iterator<Item = u64> {
        let tail = match self.tail {
            Tail::Next(target) => Some(target),
            Tail::Transfer(Flow::Jump | Flow::Call) => {
                self.instructions().last().map(Instruction::near_branch_target)
            }
            _ => None,
        };
        let is_way_out =
            |index: &usize| matches!(flow_of(&self.instructions[*index]), Flow::Conditional | Flow::Counted);
        (0..self.length).filter(is_way_out).map(|index| self.way_out(index).0).chain(tail)
    }

    /// The first instruction before which no status flag is live. At exits all are.
    fn find_free_flags(&self) -> Option<usize> {
        let mut live = STATUS_FLAGS;
        let mut found = None;
        for (index, instruction) in self.instructions().iter().enumerate().rev() {
            if !matches!(flow_of(instruction), Flow::Next | Flow::Jump) {
                live = STATUS_FLAGS;
            }
            // A shift by 0 and a string of no elements leave them.
            let counts_in_cl = instruction.op_count() > 1
                && instruction.op1_kind() == OpKind::Register
                && instruction.op1_register() == Register::CL;
            let is_certain =
                !instruction.has_rep_prefix() && !instruction.has_repne_prefix() && !counts_in_cl;
            if is_certain {
                // What is undefined may well be as it was before.
                live &=
                    !(instruction.rflags_written() | instruction.rflags_cleared() | instruction.rflags_set());
            }
            live |= instruction.rflags_read() & STATUS_FLAGS;
            if live == 0 {
                found = Some(index);
            }
        }
        found
    }
}

/// The general registers, as bits, that the next few instructions from an address on use.
///
/// # Safety
/// As [`Trace::decode`].
unsafe fn used_from(pc: u64, source: &mut impl CodeSource, infos: &mut InstructionInfoFactory) -> u16 {
    const FEW: usize = 12;
    // SAFETY: the caller's promise.
    let Some((_, mut decoder)) = (unsafe { decoder_at(pc, source) }) else { return 0 };
    let (mut used, mut memories) = (0, [UsedMemory::default(); MOST_OF_ONE]);
    for _ in 0..FEW {
        let instruction = decoder.decode();
        let flow = flow_of(&instruction);
        if !matches!(flow, Flow::Native(_)) {
            used |= used_by(&instruction, infos, &mut memories).map_or(0, |found| found.used);
        }
        if flow != Flow::Next {
            break;
        }
    }
    used
}

/// Some code from `pc` on, and a decoder of it.
///
/// # Safety
/// As [`CodeSource::code_at`].
unsafe fn decoder_at(pc: u64, source: &mut impl CodeSource) -> Option<(&[u8], Decoder<'_>)> {
    // SAFETY: the caller's promise.
    let code = unsafe { source.code_at(pc) }?;
    Some((code, Decoder::with_ip(64, code, pc, DecoderOptions::NONE)))
}

/// What an instruction does with the flow of control.
pub fn flow_of(instruction: &Instruction) -> Flow {
    let native = Flow::Native(End::Instruction);
    if instruction.is_invalid() {
        return native;
    }
    if instruction.mnemonic() == Mnemonic::Syscall {
        return Flow::Native(End::SystemCall);
    }
    let or_native = |is_known, flow| if is_known { flow } else { native };
    match instruction.flow_control() {
        FlowControl::Next => match instruction.mnemonic() {
            // The thread waits for another one, for an unknown time: what comes then is other work.
            Mnemonic::Pause => native,
            // They change what fs or gs means, or the shadow stack.
            Mnemonic::Wrfsbase | Mnemonic::Wrgsbase | Mnemonic::Enter => native,
            _ if instruction.segment_prefix() == Register::GS => native,
            // It may announce a restartable sequence (rseq(2)), which only native code is.
            _ if writes_thread_memory(instruction) && announcement(instruction).is_none() => native,
            // Those that load a segment register.
            _ if loads_segment(instruction) => native,
            _ => Flow::Next,
        },
        FlowControl::ConditionalBranch => {
            if instruction.is_jcc_short_or_near() {
                Flow::Conditional
            } else {
                Flow::Counted
            }
        }
        FlowControl::UnconditionalBranch => or_native(instruction.is_jmp_short_or_near(), Flow::Jump),
        FlowControl::IndirectBranch => {
            or_native(instruction.is_jmp_near_indirect() && is_plain_operand(instruction), Flow::JumpIndirect)
        }
        FlowControl::Call => or_native(instruction.is_call_near(), Flow::Call),
        FlowControl::IndirectCall => or_native(
            instruction.is_call_near_indirect() && is_plain_operand(instruction),
            Flow::CallIndirect,
        ),
        FlowControl::Return => {
            or_native(matches!(instruction.code(), Code::Retnq | Code::Retnq_imm16), Flow::Return)
        }
        _ => native,
    }
}

/// How far from the thread pointer the word lies that announces a restartable sequence.
static ANNOUNCEMENT: AtomicI64 = AtomicI64::new(NOWHERE);
const NOWHERE: i64 = i64::MIN;

/// Finds out where the C library keeps the thread's `struct rseq` (glibc 2.35 and later say so). Not to be called from
/// handlers.
pub fn find_announcement() {
    /// `rseq_cs` of `struct rseq` (include/uapi/linux/rseq.h).
    const FIELD: i64 = 8;
    let (offset, size) = (weak!("__rseq_offset"), weak!("__rseq_size"));
    if offset == 0 || size == 0 {
        return;
    }
    // SAFETY: constants of the C library, of these types.
    let (offset, size) = unsafe { ((offset as *const isize).read(), (size as *const u32).read()) };
    if size > 0 {
        ANNOUNCEMENT.store(offset as i64 + FIELD, Ordering::Relaxed);
    }
}

/// Of an instruction that writes to the thread's memory at an offset that registers tell: what is 0 where it announces a
/// restartable sequence. None: it writes elsewhere, or it cannot be told.
pub fn announcement(instruction: &Instruction) -> Option<Address> {
    let at = ANNOUNCEMENT.load(Ordering::Relaxed);
    if at == NOWHERE || !writes_thread_memory(instruction) {
        return None;
    }
    let number = |register: Register| match register {
        Register::None => Some(None),
        register if register.is_gpr64() => Some(number_of(register)),
        _ => None,
    };
    let (base, index) = (number(instruction.memory_base())?, number(instruction.memory_index())?);
    let disp = i32::try_from(instruction.memory_displacement64() as i64 - at).ok()?;
    Some(Address {
        base,
        index: index.map(|register| (register, instruction.memory_index_scale() as u8)),
        disp,
    })
}

/// Whether an instruction writes to memory at an offset from `fs` that only registers tell.
fn writes_thread_memory(instruction: &Instruction) -> bool {
    instruction.segment_prefix() == Register::FS
        && instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Memory
        && (instruction.memory_base() != Register::None || instruction.memory_index() != Register::None)
}

fn loads_segment(instruction: &Instruction) -> bool {
    instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().is_segment_register()
}

/// Whether the target of an indirect transfer can be loaded by ourselves.
fn is_plain_operand(instruction: &Instruction) -> bool {
    match instruction.op0_kind() {
        OpKind::Register => instruction.op0_register().is_gpr64(),
        OpKind::Memory => {
            matches!(
                instruction.segment_prefix(),
                Register::None | Register::DS | Register::FS | Register::CS
            )
        }
        _ => false,
    }
}

/// The number of the register that an address or operand uses, if it is a general one.
pub fn number_of(register: Register) -> Option<Gpr> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number() as Gpr)
}

/// What an instruction uses.
struct Used {
    /// General registers, as bits by number …
    used: u16,
    /// … and those of them that it writes.
    written: u16,
    /// Memory operands that were noted.
    memories: usize,
    /// Words that recording it takes at most.
    operands: usize,
}

/// What an instruction uses; its memory operands go to `memories`. None: addresses of 32 bits.
fn used_by(
    instruction: &Instruction,
    infos: &mut InstructionInfoFactory,
    memories: &mut [UsedMemory],
) -> Option<Used> {
    let info = infos.info(instruction);
    // A string instruction has a count, too.
    let mut found = Used { used: 0, written: 0, memories: 0, operands: 1 };
    for register in info.used_registers() {
        let bit = number_of(register.register()).map_or(0, |number| 1 << number);
        found.used |= bit;
        if !matches!(
            register.access(),
            OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess | OpAccess::None
        ) {
            found.written |= bit;
        }
    }
    // What a prefetch asks for is no used memory of iced's.
    let prefetched = prefetched_by(instruction);
    for memory in info.used_memory().iter().chain(&prefetched) {
        if memory.address_size() == CodeSize::Code32 || memory.address_size() == CodeSize::Code16 {
            return None;
        }
        for register in [memory.base(), memory.index()] {
            found.used |= number_of(register).map_or(0, |number| 1 << number);
        }
        if memory.access() != OpAccess::NoMemAccess || prefetched.is_some() {
            found.operands += Gather::of(instruction, memory).map_or(1, |gather| gather.words());
            if found.memories < MOST_OF_ONE {
                memories[found.memories] = *memory;
                found.memories += 1;
            }
        }
    }
    Some(found)
}

/// The memory operand of a prefetch, whose access is [`OpAccess::NoMemAccess`].
fn prefetched_by(instruction: &Instruction) -> Option<UsedMemory> {
    let is_prefetch = matches!(
        instruction.mnemonic(),
        Mnemonic::Prefetch
            | Mnemonic::Prefetchnta
            | Mnemonic::Prefetcht0
            | Mnemonic::Prefetcht1
            | Mnemonic::Prefetcht2
            | Mnemonic::Prefetchw
            | Mnemonic::Prefetchwt1
    );
    let address_size = match instruction.memory_base().size().max(instruction.memory_index().size()) {
        4 => CodeSize::Code32,
        _ => CodeSize::Code64,
    };
    is_prefetch.then(|| {
        UsedMemory::new2(
            instruction.memory_segment(),
            instruction.memory_base(),
            instruction.memory_index(),
            instruction.memory_index_scale(),
            instruction.memory_displacement64(),
            MemorySize::UInt8,
            OpAccess::NoMemAccess,
            address_size,
            0,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;

    struct Code(&'static [u8]);

    impl CodeSource for Code {
        unsafe fn code_at(&mut self, pc: u64) -> Option<&[u8]> {
            self.0.get(usize::try_from(pc.checked_sub(START)?).ok()?..)
        }
    }

    #[test]
    fn rounds_of_loops_with_accesses_are_of_one_trace() {
        let length = |code: &'static [u8]| {
            let mut trace = Trace::empty();
            // SAFETY: what is decoded is not executed.
            let decoded = unsafe { trace.decode(START, &mut Code(code), |_| true, &mut Decoding::new()) };
            decoded.expect("instructions");
            trace.instructions().len()
        };
        // add eax, [rdi] ; dec ecx ; jne ; ret
        assert_eq!(length(&[0x03, 0x07, 0xff, 0xc9, 0x75, 0xfa, 0xc3]), 3 * MOST_JUMPS);
        // add eax, edi ; dec ecx ; jne ; add eax, [rdi] ; dec edx ; jne ; ret: two ways round, of which one has no access.
        let two_ways = &[0x01, 0xf8, 0xff, 0xc9, 0x75, 0xfa, 0x03, 0x07, 0xff, 0xca, 0x75, 0xf4, 0xc3];
        assert_eq!(length(two_ways), 7);
        // add eax, edi ; dec ecx ; jne ; ret: each round is told of by a word of its own.
        assert_eq!(length(&[0x01, 0xf8, 0xff, 0xc9, 0x75, 0xfa, 0xc3]), 4);
    }
}
