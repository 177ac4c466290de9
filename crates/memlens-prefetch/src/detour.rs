//! The code of a detour: prefetches for a later iteration, and the displaced instructions.

use std::collections::BTreeMap;
use std::ops::Range;

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, Instruction,
    InstructionBlock, MemoryOperand, Mnemonic, OpKind, Register,
};
use thiserror::Error;

use crate::function::{Loop, RSP, Registers, number};
use crate::slice::{Refusal, Slice, Value, has_memory, loaded_bytes};
use crate::window::{JUMP_BYTES, Prefetch};

/// Iterations ahead, at most.
pub const MAX_DISTANCE: u32 = 1024;
/// Look-ahead loads go so far at most: half a page, so that most of them stay in it.
const MAX_LOOK_AHEAD_BYTES: u64 = 2048;
const PAGE_BYTES: u64 = 4096;
/// Below the stack pointer a function without calls may keep data (System V ABI AMD64 1.0, section 3.2.2).
const RED_ZONE_BYTES: i64 = 128;
const LINE_BYTES: u64 = 64;
/// Trampolines are encoded for a place so far behind the code that no jump between both is a short one.
pub const TRAMPOLINE_GAP: u64 = 1 << 20;

/// Why a detour cannot be encoded. Reads after "failed to".
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("encode a detour: {0}")]
pub struct EncodeError(String);

/// A detour's code for one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The code.
    pub bytes: Vec<u8>,
    /// Offsets of 4-byte distances to places outside of the code: from each, what the code is moved by has to be
    /// subtracted.
    pub relocations: Vec<u32>,
}

/// A part of a detour: one prefetch, and what it needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub prefetch: &'a Prefetch,
    pub position: usize,
    pub slice: &'a Slice,
}

/// A place where a jump is put, and what it leads to.
#[derive(Clone, Debug)]
pub struct Detour {
    /// Address (svma) of the first displaced instruction.
    pub address: u64,
    /// What stands there: the displaced instructions.
    pub displaced: Vec<u8>,
    /// What is prefetched.
    pub prefetches: Vec<Prefetch>,
    /// The largest number of iterations ahead that its look-ahead loads can go.
    pub max_distance: u32,
    /// Registers that are saved, the flags counted as one.
    pub saved: u32,
    before: Vec<Instruction>,
    after: Vec<Instruction>,
    operations: Vec<Operation>,
    /// For the counter: registers, and whether they have to be kept.
    counting: ([usize; 2], bool),
}

/// How many counters a detour's table has: 8 bytes each, chosen by bits of the stack pointer, so that threads whose
/// stacks are 8 MiB apart, glibc's usual size, count on cache lines of their own.
pub const COUNTERS: usize = 256;
/// Where jumps to the next instruction go, before they have places: no program has code there.
const HOP_LABEL: u64 = 1;
/// The lowest of those bits.
const COUNTER_SHIFT: u32 = 20;

/// What a detour's code does beside the program's own instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Prefetches for so many iterations ahead, or [`Detour::max_distance`]; None: none.
    pub distance: Option<u32>,
    /// Counts how often it runs, in a table of [`COUNTERS`] counters at this address (svma). Needs BMI2 (Intel SDM vol. 2,
    /// "RORX").
    pub counters: Option<u64>,
    /// Counts and jumps once more, in a table at this address: what the detour costs without prefetches, a second time.
    pub twice: Option<u64>,
}

/// An instruction of a detour.
#[derive(Clone, Debug)]
enum Operation {
    Plain(Instruction),
    /// Its displacement grows with the distance, by so much an iteration.
    Ahead(Instruction, i64),
    /// The same, of a look-ahead load: modulo a page.
    InPage(Instruction, i64),
}

impl Detour {
    pub(crate) fn new(
        view: &Loop<'_>,
        pieces: &[Piece<'_>],
        range: Range<usize>,
        place: usize,
    ) -> Result<Self, Refusal> {
        let instructions = &view.function.flow.instructions;
        let (live, has_live_flags) = view.function.live_at(place);
        // Once to see what it needs.
        let mut emitter = Emitter::new(view, place);
        emitter.scratch = (0..16).collect();
        emitter.emit(pieces)?;
        let needed = emitter.renamed.len() + emitter.temporaries;
        let used = emitter.used | 1 << RSP;
        // Free ones first.
        let mut scratch: Vec<usize> = (0..16).filter(|&register| used >> register & 1 == 0).collect();
        scratch.sort_by_key(|&register| live >> register & 1);
        if scratch.len() < needed {
            return Err(Refusal::Encoding);
        }
        scratch.truncate(needed);
        let spilled: Vec<usize> =
            scratch.iter().copied().filter(|&register| live >> register & 1 == 1).collect();
        let saves_flags = has_live_flags && emitter.changes_flags;
        let saved = spilled.len() + usize::from(saves_flags);
        let stack_shift = if saved > 0 { RED_ZONE_BYTES + 8 * saved as i64 } else { 0 };
        let mut emitter = Emitter::new(view, place);
        (emitter.scratch, emitter.stack_shift) = (scratch, stack_shift);
        emitter.emit(pieces)?;

        let mut operations = Vec::new();
        let plain = |instruction: Result<Instruction, iced_x86::IcedError>| {
            instruction.map(Operation::Plain).map_err(|_| Refusal::Encoding)
        };
        let move_stack = |bytes: i64| {
            let place = MemoryOperand::with_base_displ(Register::RSP, bytes);
            plain(Instruction::with2(Code::Lea_r64_m, Register::RSP, place))
        };
        if saved > 0 {
            operations.push(move_stack(-RED_ZONE_BYTES)?);
            for &register in &spilled {
                operations.push(plain(Instruction::with1(Code::Push_r64, sized(register, 8)))?);
            }
            if saves_flags {
                operations.push(Operation::Plain(Instruction::with(Code::Pushfq)));
            }
        }
        operations.append(&mut emitter.operations);
        if saved > 0 {
            if saves_flags {
                operations.push(Operation::Plain(Instruction::with(Code::Popfq)));
            }
            for &register in spilled.iter().rev() {
                operations.push(plain(Instruction::with1(Code::Pop_r64, sized(register, 8)))?);
            }
            operations.push(move_stack(RED_ZONE_BYTES)?);
        }
        let widest = pieces.iter().flat_map(|piece| &piece.slice.roots).map(|(_, step)| step.unsigned_abs());
        let max_distance = widest.max().map_or(MAX_DISTANCE, |step| {
            (MAX_LOOK_AHEAD_BYTES / step.max(1)).min(u64::from(MAX_DISTANCE)) as u32
        });
        if max_distance == 0 {
            return Err(Refusal::Encoding);
        }
        // Without their places, so that jumps back to them go to the program, not to the copies.
        let moved = |range: Range<usize>| {
            let copies = instructions[range].iter().map(|instruction| {
                let mut copy = *instruction;
                copy.set_ip(0);
                copy
            });
            copies.collect::<Vec<_>>()
        };
        let mut after = moved(place..range.end);
        let last = &instructions[range.end - 1];
        if last.flow_control() != FlowControl::UnconditionalBranch {
            let back = Instruction::with_branch(Code::Jmp_rel32_64, last.next_ip());
            after.push(back.map_err(|_| Refusal::Encoding)?);
        }
        let free: Vec<usize> = (0..16).filter(|&at| at != RSP && live >> at & 1 == 0).collect();
        let counting = match free[..] {
            [first, second, ..] => ([first, second], false),
            _ => ([0, 1], true),
        };
        let address = instructions[range.start].ip();
        let displaced = view.function.bytes(address..last.next_ip()).to_vec();
        debug_assert!(displaced.len() >= JUMP_BYTES);
        let detour = Self {
            address,
            displaced,
            prefetches: pieces.iter().map(|piece| piece.prefetch.clone()).collect(),
            max_distance,
            saved: saved as u32,
            before: moved(range.start..place),
            after,
            operations,
            counting,
        };
        // Whether it can be encoded at all.
        let far = last.next_ip().wrapping_add(TRAMPOLINE_GAP);
        detour.encode(1, far).map_err(|_| Refusal::Encoding)?;
        Ok(detour)
    }

    /// Where instructions begin behind the first one, in the place of the jump: addresses (svma).
    pub fn inner(&self) -> Vec<u64> {
        let mut decoder = Decoder::with_ip(64, &self.displaced, self.address, DecoderOptions::NONE);
        let starts = decoder.iter().map(|instruction| instruction.ip()).skip(1);
        starts.take_while(|&start| start < self.address + JUMP_BYTES as u64).collect()
    }

    /// Its code for address (svma) `at`, with prefetches for `distance` iterations ahead, or [`Self::max_distance`].
    ///
    /// # Errors
    /// Where something is further away than 2 GiB.
    pub fn encode(&self, distance: u32, at: u64) -> Result<Moved, EncodeError> {
        self.encode_for(Task { distance: Some(distance), ..Task::default() }, at)
    }

    /// Its code for address (svma) `at`, with or without prefetches and a counter.
    ///
    /// # Errors
    /// Where something is further away than 2 GiB.
    pub fn encode_for(&self, task: Task, at: u64) -> Result<Moved, EncodeError> {
        let distance = i64::from(task.distance.unwrap_or(1).min(self.max_distance).max(1));
        let error = |error: iced_x86::IcedError| EncodeError(error.to_string());
        let mut all = self.before.clone();
        for table in task.counters.into_iter().chain(task.twice) {
            all.extend(self.count(table).map_err(error)?);
        }
        if task.twice.is_some() {
            // To the next instruction each: there and back.
            let hops: Vec<Instruction> = [Code::Jmp_rel32_64, Code::Jmp_rel32_64, Code::Nopd]
                .into_iter()
                .enumerate()
                .map(|(at, code)| {
                    let label = HOP_LABEL + at as u64;
                    let mut hop = match code {
                        Code::Nopd => Instruction::with(code),
                        _ => Instruction::with_branch(code, label + 1)?,
                    };
                    hop.set_ip(label);
                    Ok(hop)
                })
                .collect::<Result<_, _>>()
                .map_err(error)?;
            all.extend(hops);
        }
        let operations = if task.distance.is_some() { &self.operations[..] } else { &[] };
        for operation in operations {
            all.push(match operation {
                Operation::Plain(instruction) => *instruction,
                Operation::Ahead(instruction, step) => {
                    let ahead = step.checked_mul(distance);
                    let ahead = ahead
                        .and_then(|ahead| (instruction.memory_displacement64() as i64).checked_add(ahead));
                    let ahead = ahead
                        .filter(|&ahead| i32::try_from(ahead).is_ok())
                        .ok_or_else(|| EncodeError("it looks too far ahead".to_owned()))?;
                    let mut instruction = *instruction;
                    instruction.set_memory_displacement64(ahead as u64);
                    instruction
                }
                Operation::InPage(instruction, step) => {
                    let mut instruction = *instruction;
                    let ahead = step.wrapping_mul(distance) as u64 % PAGE_BYTES;
                    instruction.set_memory_displacement64(ahead);
                    instruction
                }
            });
        }
        all.extend(&self.after);
        let block = InstructionBlock::new(&all, at);
        let bytes = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).map_err(error)?.code_buffer;
        let relocations = relocations(&bytes, at)?;
        Ok(Moved { bytes, relocations })
    }
}

impl Detour {
    /// Adds one to a counter, and changes no flag. Not atomically: who shares a counter may lose some.
    fn count(&self, table: u64) -> Result<Vec<Instruction>, iced_x86::IcedError> {
        let ([entry, other], is_kept) = self.counting;
        let (entry, base) = (sized(entry, 8), sized(other, 8));
        let at_entry = MemoryOperand::with_base(entry);
        let stack = |bytes| MemoryOperand::with_base_displ(Register::RSP, bytes);
        let lea = |into, operand| Instruction::with2(Code::Lea_r64_m, into, operand);
        let narrow = |bytes| sized(self.counting.0[0], bytes);
        let in_table = MemoryOperand::new(base, entry, size_of::<u64>() as u32, 0, 0, false, Register::None);
        let absolute =
            MemoryOperand::new(Register::RIP, Register::None, 1, table as i64, 8, false, Register::None);
        let mut all = Vec::new();
        if is_kept {
            all.push(lea(Register::RSP, stack(-RED_ZONE_BYTES))?);
            all.push(Instruction::with1(Code::Push_r64, entry)?);
            all.push(Instruction::with1(Code::Push_r64, base)?);
        }
        all.extend([
            Instruction::with3(Code::VEX_Rorx_r64_rm64_imm8, entry, Register::RSP, COUNTER_SHIFT)?,
            Instruction::with2(Code::Movzx_r32_rm8, narrow(4), narrow(1))?,
            lea(base, absolute)?,
            lea(entry, in_table)?,
            Instruction::with2(Code::Mov_r64_rm64, base, at_entry)?,
            lea(base, MemoryOperand::with_base_displ(base, 1))?,
            Instruction::with2(Code::Mov_rm64_r64, at_entry, base)?,
        ]);
        if is_kept {
            all.push(Instruction::with1(Code::Pop_r64, base)?);
            all.push(Instruction::with1(Code::Pop_r64, entry)?);
            all.push(lea(Register::RSP, stack(RED_ZONE_BYTES))?);
        }
        Ok(all)
    }
}

/// Where code names places outside of itself.
fn relocations(bytes: &[u8], at: u64) -> Result<Vec<u32>, EncodeError> {
    let inside = at..at + bytes.len() as u64;
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    let mut relocations = Vec::new();
    while decoder.can_decode() {
        let start = decoder.position();
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(EncodeError("an instruction was encoded that is none".to_owned()));
        }
        let offsets = decoder.get_constant_offsets(&instruction);
        let is_jump = matches!(
            instruction.flow_control(),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        );
        let field = if instruction.is_ip_rel_memory_operand() {
            (!inside.contains(&instruction.ip_rel_memory_address()))
                .then(|| (offsets.displacement_offset(), offsets.displacement_size()))
        } else if is_jump {
            (!inside.contains(&instruction.near_branch_target()))
                .then(|| (offsets.immediate_offset(), offsets.immediate_size()))
        } else {
            None
        };
        match field {
            Some((offset, 4)) => relocations.push((start + offset) as u32),
            Some(_) => return Err(EncodeError("a distance has not four bytes".to_owned())),
            None => {}
        }
    }
    Ok(relocations)
}

/// A register's name by size in bytes.
fn sized(register: usize, bytes: usize) -> Register {
    const BYTES: [Register; 16] = [
        Register::AL,
        Register::CL,
        Register::DL,
        Register::BL,
        Register::SPL,
        Register::BPL,
        Register::SIL,
        Register::DIL,
        Register::R8L,
        Register::R9L,
        Register::R10L,
        Register::R11L,
        Register::R12L,
        Register::R13L,
        Register::R14L,
        Register::R15L,
    ];
    match bytes {
        1 => BYTES[register],
        2 => Register::AX + register as u32,
        4 => Register::EAX + register as u32,
        _ => Register::RAX + register as u32,
    }
}

/// Where a register's value is at the detour.
struct Source {
    register: usize,
    /// What has to be added.
    add: i64,
    /// What each iteration adds.
    step: i64,
}

/// Writes the repeated instructions with other registers.
struct Emitter<'a> {
    view: &'a Loop<'a>,
    place: usize,
    /// Registers that may be written: first those of the slice, then temporary ones.
    scratch: Vec<usize>,
    /// Which of them stands for a register of the slice.
    renamed: BTreeMap<usize, usize>,
    /// All of the slice's registers, in order: how many there are is known after the first pass.
    temporaries: usize,
    /// The program's own registers that it reads.
    used: Registers,
    changes_flags: bool,
    /// Bytes between the program's stack pointer and that of the detour.
    stack_shift: i64,
    operations: Vec<Operation>,
    prefetched: Vec<(Register, Register, u32, i64)>,
}

impl<'a> Emitter<'a> {
    fn new(view: &'a Loop<'a>, place: usize) -> Self {
        Self {
            view,
            place,
            scratch: Vec::new(),
            renamed: BTreeMap::new(),
            temporaries: 0,
            used: 0,
            changes_flags: false,
            stack_shift: 0,
            operations: Vec::new(),
            prefetched: Vec::new(),
        }
    }

    fn emit(&mut self, pieces: &[Piece<'_>]) -> Result<(), Refusal> {
        let function = self.view.function;
        let flow = &function.flow;
        let when = |position: usize| (function.order[flow.block_of(position)], position);
        // In the order of the program: slices, and prefetches where their accesses are.
        let mut steps: BTreeMap<((usize, usize), usize), Option<usize>> = BTreeMap::new();
        for (at, piece) in pieces.iter().enumerate() {
            for &position in &piece.slice.instructions {
                steps.insert((when(position), 0), None);
                let instruction = &flow.instructions[position];
                let destination = destination(instruction).ok_or(Refusal::Encoding)?;
                let next = self.renamed.len();
                self.renamed.entry(destination).or_insert(next);
            }
            steps.insert((when(piece.position), at + 1), Some(at));
        }
        for (((_, position), _), piece) in steps {
            match piece {
                Some(_) => self.prefetch(position)?,
                None => self.repeat(position, pieces)?,
            }
        }
        Ok(())
    }

    fn push(&mut self, instruction: Result<Instruction, iced_x86::IcedError>) -> Result<(), Refusal> {
        let instruction = instruction.map_err(|_| Refusal::Encoding)?;
        self.changes_flags |= instruction.rflags_modified() != 0;
        self.operations.push(Operation::Plain(instruction));
        Ok(())
    }

    fn renamed(&self, register: usize) -> Result<usize, Refusal> {
        let at = *self.renamed.get(&register).ok_or(Refusal::Encoding)?;
        Ok(self.scratch[at])
    }

    /// A register for the time of one instruction.
    fn temporary(&mut self, which: usize) -> Result<usize, Refusal> {
        self.temporaries = self.temporaries.max(which + 1);
        self.scratch.get(self.renamed.len() + which).copied().ok_or(Refusal::Encoding)
    }

    /// Finds what a register holds at `position`, as it is at the detour. `exactly`: to the bit, else as good as needed
    /// for a prefetch.
    fn source(&self, position: usize, register: usize, exactly: bool) -> Result<Option<Source>, Refusal> {
        let (value, step) = match self.view.value(position, register)? {
            Value::Computed(_) => return Ok(None),
            Value::Linear(value, step) => (value, step),
        };
        if self.view.reaching(position, register) == self.view.reaching(self.place, register) {
            return Ok(Some(Source { register, add: 0, step }));
        }
        let order = std::iter::once(value.register).chain(0..16);
        for register in order {
            let Some(here) = self.view.linear(self.place, register) else { continue };
            // Sums of 32 bits may have lost a carry that a difference would bring back.
            let is_exact = !here.is_narrow && !value.is_narrow;
            if here.register == value.register && (is_exact || !exactly) {
                let add = value.offset.checked_sub(here.offset).ok_or(Refusal::Encoding)?;
                return Ok(Some(Source { register, add, step }));
            }
        }
        Err(Refusal::Encoding)
    }

    /// The memory operand of the instruction at `position`, its bytes ahead for each iteration. `exactly`: of this
    /// iteration, as the program has it.
    fn operand(&mut self, position: usize, exactly: bool) -> Result<(MemoryOperand, i64), Refusal> {
        let instruction = &self.view.function.flow.instructions[position];
        if instruction.is_ip_rel_memory_operand() {
            let address = instruction.ip_rel_memory_address() as i64;
            return Ok((
                MemoryOperand::new(Register::RIP, Register::None, 1, address, 8, false, Register::None),
                0,
            ));
        }
        let mut displacement = instruction.memory_displacement64() as i64;
        let mut ahead = 0_i64;
        let mut registers = [Register::None; 2];
        let base = number(instruction.memory_base()).map(|register| (0, register, 1));
        let scale = instruction.memory_index_scale();
        let index = number(instruction.memory_index()).map(|register| (1, register, i64::from(scale)));
        for (at, register, scale) in base.into_iter().chain(index) {
            match self.source(position, register, exactly)? {
                None => registers[at] = sized(self.renamed(register)?, 8),
                Some(source) => {
                    self.used |= 1 << source.register;
                    registers[at] = sized(source.register, 8);
                    let sum = |sum: i64, amount: i64| {
                        amount
                            .checked_mul(scale)
                            .and_then(|amount| sum.checked_add(amount))
                            .ok_or(Refusal::Encoding)
                    };
                    displacement = sum(displacement, source.add)?;
                    ahead = sum(ahead, source.step)?;
                    if source.register == RSP {
                        displacement = sum(displacement, self.stack_shift)?;
                    }
                }
            }
        }
        // Only an index may not be rsp.
        if registers[1] == Register::RSP || i32::try_from(displacement).is_err() {
            return Err(Refusal::Encoding);
        }
        let operand =
            MemoryOperand::new(registers[0], registers[1], scale, displacement, 1, false, Register::None);
        Ok((operand, ahead))
    }

    fn prefetch(&mut self, position: usize) -> Result<(), Refusal> {
        let (operand, ahead) = self.operand(position, false)?;
        let key = (operand.base, operand.index, operand.scale, operand.displacement);
        let is_same_line = self.prefetched.iter().any(|known| {
            (known.0, known.1, known.2) == (key.0, key.1, key.2) && known.3.abs_diff(key.3) < LINE_BYTES
        });
        // With registers that a slice sets in between it is another line.
        if is_same_line && self.renamed.is_empty() {
            return Ok(());
        }
        self.prefetched.push(key);
        let instruction = Instruction::with1(Code::Prefetcht0_m8, operand).map_err(|_| Refusal::Encoding)?;
        self.operations.push(Operation::Ahead(instruction, ahead));
        Ok(())
    }

    /// Brings what a register would hold some iterations later into another one.
    fn bring(&mut self, source: &Source, into: usize, bytes: usize) -> Result<(), Refusal> {
        self.used |= 1 << source.register;
        let shift = if source.register == RSP { self.stack_shift } else { 0 };
        let operand = MemoryOperand::with_base_displ(sized(source.register, 8), source.add + shift);
        let code = if bytes == 4 { Code::Lea_r32_m } else { Code::Lea_r64_m };
        let instruction = Instruction::with2(code, sized(into, bytes.max(4)), operand);
        self.operations.push(Operation::Ahead(instruction.map_err(|_| Refusal::Encoding)?, source.step));
        Ok(())
    }

    /// The register to be used for one that the instruction at `position` reads.
    fn read(
        &mut self,
        position: usize,
        register: usize,
        bytes: usize,
        temporary: &mut usize,
    ) -> Result<usize, Refusal> {
        match self.source(position, register, false)? {
            None => self.renamed(register),
            Some(source) if source.add == 0 && source.step == 0 && source.register != RSP => {
                self.used |= 1 << source.register;
                Ok(source.register)
            }
            Some(source) => {
                let into = self.temporary(*temporary)?;
                *temporary += 1;
                self.bring(&source, into, bytes)?;
                Ok(into)
            }
        }
    }

    fn repeat(&mut self, position: usize, pieces: &[Piece<'_>]) -> Result<(), Refusal> {
        let instruction = self.view.function.flow.instructions[position];
        let (code, mnemonic) = (instruction.code(), instruction.mnemonic());
        let own = destination(&instruction).ok_or(Refusal::Encoding)?;
        let into = self.renamed(own)?;
        let mut temporary = 0;
        match code {
            Code::Cdqe | Code::Cwde => {
                let from = self.read(position, 0, 8, &mut temporary)?;
                let (code, size, half) = if code == Code::Cdqe {
                    (Code::Movsxd_r64_rm32, 8, 4)
                } else {
                    (Code::Movsx_r32_rm16, 4, 2)
                };
                return self.push(Instruction::with2(code, sized(into, size), sized(from, half)));
            }
            Code::Cqo => {
                let from = self.read(position, 0, 8, &mut temporary)?;
                self.push(Instruction::with2(Code::Mov_r64_rm64, sized(into, 8), sized(from, 8)))?;
                return self.push(Instruction::with2(Code::Sar_rm64_imm8, sized(into, 8), 63));
            }
            _ => {}
        }
        let bytes = instruction.op0_register().size();
        if mnemonic == Mnemonic::Lea {
            let (operand, ahead) = self.operand(position, false)?;
            let instruction = Instruction::with2(code, sized(into, bytes), operand);
            self.operations.push(Operation::Ahead(instruction.map_err(|_| Refusal::Encoding)?, ahead));
            return Ok(());
        }
        let is_move =
            matches!(mnemonic, Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd);
        let mut copy = instruction;
        copy.set_ip(0);
        // What it changes must be there first.
        if changes_its_first(&instruction)
            && let Some(source) = self.source(position, own, false)?
        {
            self.bring(&source, into, 8)?;
        }
        if has_memory(&instruction) {
            self.memory(position, &mut copy, into, is_move, pieces, &mut temporary)?;
        }
        for operand in 1..instruction.op_count() {
            if instruction.op_kind(operand) == OpKind::Register {
                let register = instruction.op_register(operand);
                let read = number(register).ok_or(Refusal::Encoding)?;
                let from = self.read(position, read, 8, &mut temporary)?;
                // A shift's count has its own register.
                if register == Register::CL && from != read {
                    return Err(Refusal::Encoding);
                }
                copy.set_op_register(operand, sized(from, register.size()));
            }
        }
        copy.set_op0_register(sized(into, bytes));
        if let Some(code) = without_accumulator(&instruction) {
            let immediate = i32::try_from(instruction.immediate(1) as i64)
                .or_else(|_| u32::try_from(instruction.immediate(1)).map(u32::cast_signed))
                .map_err(|_| Refusal::Encoding)?;
            return self.push(Instruction::with2(code, sized(into, bytes), immediate));
        }
        self.push(Ok(copy))
    }

    /// Makes the memory operand of a repeated load one of a later iteration.
    fn memory(
        &mut self,
        position: usize,
        copy: &mut Instruction,
        into: usize,
        is_move: bool,
        pieces: &[Piece<'_>],
        temporary: &mut usize,
    ) -> Result<(), Refusal> {
        let step = pieces.iter().flat_map(|piece| &piece.slice.roots).find(|root| root.0 == position);
        let (operand, _) = self.operand(position, true)?;
        let Some(&(_, step)) = step else {
            // What does not change: as the program has it.
            set_memory(copy, &operand);
            return Ok(());
        };
        let bytes = loaded_bytes(copy).ok_or(Refusal::Encoding)?;
        let offset = self.temporary(*temporary)?;
        *temporary += 1;
        // What only loads can have its address where the value goes.
        let page = if is_move {
            into
        } else {
            let page = self.temporary(*temporary)?;
            *temporary += 1;
            page
        };
        let (page_name, offset_name) = (sized(page, 8), sized(offset, 8));
        self.push(Instruction::with2(Code::Lea_r64_m, page_name, operand))?;
        let ahead = MemoryOperand::with_base_displ(page_name, 0);
        let ahead = Instruction::with2(Code::Lea_r64_m, offset_name, ahead).map_err(|_| Refusal::Encoding)?;
        self.operations.push(Operation::InPage(ahead, step));
        self.push(Instruction::with2(Code::And_rm64_imm32, page_name, -(PAGE_BYTES as i32)))?;
        let mask = (PAGE_BYTES - 1) & !(bytes - 1);
        self.push(Instruction::with2(Code::And_rm32_imm32, sized(offset, 4), mask as i32))?;
        set_memory(copy, &MemoryOperand::with_base_index(page_name, offset_name));
        Ok(())
    }
}

fn set_memory(instruction: &mut Instruction, operand: &MemoryOperand) {
    instruction.set_memory_base(operand.base);
    instruction.set_memory_index(operand.index);
    instruction.set_memory_index_scale(operand.scale);
    instruction.set_memory_displacement64(operand.displacement as u64);
    instruction.set_memory_displ_size(operand.displ_size);
    instruction.set_segment_prefix(Register::None);
}

/// The register that a repeatable instruction sets.
fn destination(instruction: &Instruction) -> Option<usize> {
    match instruction.code() {
        Code::Cdqe | Code::Cwde => Some(0),
        Code::Cqo => Some(2),
        _ => number(instruction.op0_register()),
    }
}

/// Whether the first operand of a repeatable instruction is read, too.
fn changes_its_first(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Mov
        | Mnemonic::Movzx
        | Mnemonic::Movsx
        | Mnemonic::Movsxd
        | Mnemonic::Lea
        | Mnemonic::Rorx
        | Mnemonic::Shlx
        | Mnemonic::Shrx
        | Mnemonic::Sarx
        | Mnemonic::Andn => false,
        Mnemonic::Imul => instruction.op_count() == 2,
        _ => true,
    }
}

/// The form with any register of an instruction that names rax or eax without saying so.
fn without_accumulator(instruction: &Instruction) -> Option<Code> {
    Some(match instruction.code() {
        Code::Add_EAX_imm32 => Code::Add_rm32_imm32,
        Code::Or_EAX_imm32 => Code::Or_rm32_imm32,
        Code::And_EAX_imm32 => Code::And_rm32_imm32,
        Code::Sub_EAX_imm32 => Code::Sub_rm32_imm32,
        Code::Xor_EAX_imm32 => Code::Xor_rm32_imm32,
        Code::Add_RAX_imm32 => Code::Add_rm64_imm32,
        Code::Or_RAX_imm32 => Code::Or_rm64_imm32,
        Code::And_RAX_imm32 => Code::And_rm64_imm32,
        Code::Sub_RAX_imm32 => Code::Sub_rm64_imm32,
        Code::Xor_RAX_imm32 => Code::Xor_rm64_imm32,
        _ => return None,
    })
}
