//! One trace to one block.
//!
//! The native instructions are copied as they are, but for those that depend on where they stand; before each, the
//! addresses of its memory operands are stored. Two registers that the trace does not use are ours: the first points
//! to the block's words, the second holds an address for a moment. Their native values lie in the thread's area.
//!
//! ```text
//!  cold:   mov fs:[first], r1 ; mov fs:[second], r2 ; mov r1, fs:[next]
//!  warm:   mov [r1], block's word
//!          … lea r2, [operand] ; mov [r1 + 8], r2 ; the instruction …
//!          cmp r1, fs:[limit] ; jae end          where the flags are free
//!          …
//!  exit:   lea r1, [r1 + bytes] ; jmp warm of the next, if it has the same registers
//!          mov fs:[next], r1 ; mov r1, fs:[first] ; mov r2, fs:[second] ; jmp cold of the next
//!          mov fs:[exit], number ; jmp runtime
//! ```
//!
//! A counting block is the same without the stores of words and addresses; its first register counts them all the same.
//!
//! A conditional jump leads to the exit where the path does not go on: where it is taken, or, at the end of a loop's round, where
//! it is not.
//!
//! A block of generated code compares, at `warm`, that code with what it was made from, if this thread's epoch is not that of the
//! last comparison: in each epoch once. Where the code has changed, the block leads to that of what is there now. Flags that are
//! live wait in rax meanwhile. An epoch ends with each return into generated code and each indirect jump or call of it: a thread
//! that has changed code, or has waited until another one did, comes back from there so. What it reaches by direct jumps and calls
//! alone may be as it was at the epoch's begin.
//!
//! Both jumps of an exit lead to the instruction behind them until the next block is known.

use iced_x86::{Instruction, Mnemonic, OpAccess, OpKind, Register, UsedMemory};
use memlens_events::burst::{End, MAX_BLOCK_WORDS, Reference, Source, Use, block_word};

use super::area::Offsets;
use super::assembler::{Address, Assembler, Gap, Gpr, RAX, RCX, RSP};
use super::entry::AFTER_INDIRECT;
use super::filter::Filter;
use super::gather::{Gather, Mask};
use super::known::Known;
use super::trace::{
    Flow, MOST_BYTES, MOST_INSTRUCTIONS, MOST_JUMPS, Tail, Trace, announcement, flow_of, number_of,
};
use crate::cache::{Block, Cache, Exit, Place, Variant};

/// Translates a decoded trace into the arena; the block's number. `pair`: registers that the trace does not use;
/// `is_generated`: whether the code may change.
///
/// # Errors
/// Why it cannot be.
pub fn translate(
    cache: &mut Cache,
    arena: usize,
    (pc, variant): (u64, Variant),
    (trace, is_generated): (&Trace, bool),
    pair: (Gpr, Gpr),
    filter: Filter,
) -> Result<usize, End> {
    if !cache.has_room() {
        return Err(End::Full);
    }
    let marks = cache.marks();
    let assembler = cache.arena(arena).assembler();
    let entry = cache.arena(arena).entry();
    let epoch = if is_generated { Some(cache.arena(arena).new_epoch().ok_or(End::Full)?) } else { None };
    let epoch = epoch.map(|read_at| (read_at, cache.arena(arena).memory.write_at(read_at) as u64));
    let targets = cache.arena(arena).targets(variant);
    let mut writer = Writer {
        offsets: cache.offsets(),
        block: Block::new(pc, variant, assembler.here(), pair),
        assembler,
        cache,
        entry,
        targets,
        pair,
        bytes: 8,
        words: 0,
        known: Known::new(),
        filter,
        pending: Pending::default(),
    };
    writer.write(trace, epoch);
    let Writer { assembler, mut block, .. } = writer;
    if assembler.is_full() {
        cache.back_to(marks);
        return Err(End::Full);
    }
    block.end = assembler.here();
    block.first_reference = marks.1 as u32;
    block.first_place = marks.2 as u32;
    block.places = (cache.places.len() - marks.2) as u32;
    cache.arena(arena).keep(block.end);
    Ok(cache.add_block(block))
}

/// Exits that are written behind the block's straight part.
#[derive(Default)]
struct Pending {
    exits: [Option<SideExit>; 16],
    count: usize,
}

#[derive(Clone, Copy)]
struct SideExit {
    gap: Gap,
    target: u64,
    bytes: i32,
}

/// Where a block leaves because its code has changed.
struct Changed {
    gaps: [Gap; MOST_COMPARED],
    count: usize,
}

impl Default for Changed {
    fn default() -> Self {
        Self { gaps: [Gap(0); MOST_COMPARED], count: 0 }
    }
}

impl Changed {
    fn note(&mut self, gap: Gap) {
        self.gaps[self.count] = gap;
        self.count += 1;
    }
}

struct Writer<'a> {
    assembler: Assembler<'static>,
    cache: &'a mut Cache,
    offsets: Offsets,
    entry: u64,
    targets: u64,
    pair: (Gpr, Gpr),
    block: Block,
    /// Bytes of words up to here, the block's own included.
    bytes: i32,
    /// Addresses among them.
    words: u16,
    known: Known,
    filter: Filter,
    pending: Pending,
}

impl Writer<'_> {
    /// `epoch`: where that of generated code is read, and where it is written.
    fn write(&mut self, trace: &Trace, epoch: Option<(u64, u64)>) {
        let (first, second) = self.pair;
        self.assembler.store_thread(first, self.offsets.first());
        self.assembler.store_thread(second, self.offsets.second());
        self.assembler.load_thread(first, self.offsets.next());
        self.block.warm = self.assembler.here();
        let number = self.cache.next_block();
        let mut limit = None;
        let looks_first = trace.free_flags_at.is_none();
        let needs_flags = looks_first || (epoch.is_some() && trace.free_flags_at != Some(0));
        if needs_flags {
            // Live flags wait in rax.
            self.assembler.store_thread(RAX, self.offsets.third());
            self.assembler.save_flags_in_rax();
        }
        let compares = epoch.map(|(read_at, write_at)| {
            self.assembler.load_thread(second, self.offsets.epoch());
            self.assembler.compare_relative(second, read_at);
            (self.assembler.jump_if(NOT_EQUAL), self.assembler.here(), write_at)
        });
        if looks_first {
            self.assembler.compare_thread(first, self.offsets.limit());
            let gap = self.assembler.jump_if(ABOVE_OR_EQUAL);
            limit = Some((gap, self.block.pc, 0));
        }
        if needs_flags {
            self.restore_flags();
        }
        if self.is_recording() {
            self.assembler.store_value(Address::at(first, 0), block_word(number) as i32);
        }
        let instructions = trace.instructions();
        for (index, instruction) in instructions.iter().enumerate() {
            if trace.free_flags_at == Some(index) {
                self.assembler.compare_thread(first, self.offsets.limit());
                let gap = self.assembler.jump_if(ABOVE_OR_EQUAL);
                limit = Some((gap, instruction.ip(), self.bytes));
                // It is a side exit.
                self.known.forget();
            }
            if let Some(address) = announcement(instruction) {
                self.guard(instruction, address);
            }
            if matches!(instruction.mnemonic(), Mnemonic::Popfq | Mnemonic::Popf) {
                self.guard_flags(instruction);
            }
            self.record(instruction, trace.memories(index));
            self.cache.places.push(Place { code: self.assembler.here(), pc: instruction.ip() });
            self.instruction(
                instruction,
                (trace.bytes(index), trace.displacement(index)),
                trace.way_out(index),
            );
            self.known.written(instruction, trace.written(index));
            self.filter.written(instruction, trace.written(index));
        }
        match trace.tail {
            Tail::Next(target) => self.exit(target, self.bytes),
            Tail::Native(target, end) => self.native_exit(target, self.bytes, end),
            Tail::Transfer(_) => {
                let last = &instructions[instructions.len() - 1];
                match flow_of(last) {
                    Flow::Jump | Flow::Call => self.exit(last.near_branch_target(), self.bytes),
                    _ => self.indirect_exit(last),
                }
            }
        }
        for index in 0..self.pending.count {
            if let Some(SideExit { gap, target, bytes }) = self.pending.exits[index] {
                self.assembler.fill(gap, self.assembler.here());
                self.exit(target, bytes);
            }
        }
        if let Some((gap, target, bytes)) = limit {
            self.assembler.fill(gap, self.assembler.here());
            if looks_first {
                self.restore_flags();
            }
            self.native_exit(target, bytes, End::Length);
        }
        if let Some((gap, back, write_at)) = compares {
            self.assembler.fill(gap, self.assembler.here());
            self.block.own.are_flags_in_rax = needs_flags;
            let changed = self.compare(trace);
            self.assembler.load_thread(second, self.offsets.epoch());
            self.assembler.store_thread(first, self.offsets.fourth());
            self.assembler.set(first, write_at);
            self.assembler.store(second, Address::at(first, 0));
            self.assembler.load_thread(first, self.offsets.fourth());
            self.assembler.jump(back);
            for gap in &changed.gaps[..changed.count] {
                self.assembler.fill(*gap, self.assembler.here());
            }
            if needs_flags {
                self.restore_flags();
            }
            let (warm, cold) = self.ways_on(0);
            self.enter_runtime(Exit::Changed { block: number, warm, cold });
        }
    }

    /// Compares the code with what is translated; jumps where it has changed.
    fn compare(&mut self, trace: &Trace) -> Changed {
        let mut changed = Changed::default();
        let from = self.assembler.here();
        self.cache.places.push(Place { code: self.assembler.here(), pc: self.block.pc });
        let second = self.pair.1;
        for (start, bytes) in trace.pieces() {
            // The last word may have bytes of the one before it.
            let words = bytes.len().div_ceil(8);
            let last = bytes.len().checked_sub(8);
            for word in 0..words {
                let Some(at) = last.map(|last| last.min(8 * word)) else { break };
                let mut expected = [0; 8];
                expected.copy_from_slice(&bytes[at..at + 8]);
                self.assembler.set(second, u64::from_le_bytes(expected));
                self.assembler.compare_relative(second, start + at as u64);
                changed.note(self.assembler.jump_if(NOT_EQUAL));
            }
            if last.is_none() {
                for (at, &byte) in bytes.iter().enumerate() {
                    self.assembler.compare_byte_relative(byte, start + at as u64);
                    changed.note(self.assembler.jump_if(NOT_EQUAL));
                }
            }
        }
        self.block.own.comparison = Some((from, self.assembler.here()));
        changed
    }

    /// Goes on natively before an instruction that announces a restartable sequence: where `address` is 0.
    fn guard(&mut self, instruction: &Instruction, address: Address) {
        self.assembler.store_thread(RCX, self.offsets.third());
        self.assembler.lea(RCX, address);
        let announces = self.assembler.jump_short_if_rcx_is_zero();
        let on = self.assembler.jump(self.assembler.here());
        self.assembler.end_short(announces);
        self.assembler.load_thread(RCX, self.offsets.third());
        self.native_exit(instruction.ip(), self.bytes, End::Instruction);
        self.assembler.fill(on, self.assembler.here());
        self.assembler.load_thread(RCX, self.offsets.third());
        // It is a side exit.
        self.known.forget();
    }

    /// Goes on natively before an instruction that pops one of [`FLAGS_FOR_NATIVE`]. It sets all flags that the test changes.
    fn guard_flags(&mut self, instruction: &Instruction) {
        let second = self.pair.1;
        self.assembler.load(second, Address::at(RSP, 0));
        self.assembler.test(second, FLAGS_FOR_NATIVE as i32);
        let on = self.assembler.jump_if(EQUAL);
        self.native_exit(instruction.ip(), self.bytes, End::Instruction);
        self.assembler.fill(on, self.assembler.here());
        // It is a side exit.
        self.known.forget();
    }

    fn is_recording(&self) -> bool {
        self.block.variant == Variant::Recording
    }

    fn restore_flags(&mut self) {
        self.assembler.restore_flags_from_rax();
        self.assembler.load_thread(RAX, self.offsets.third());
    }

    /// Stores the addresses of an instruction's operands.
    fn record(&mut self, instruction: &Instruction, memories: &[UsedMemory]) {
        let is_repeated = instruction.is_string_instruction()
            && (instruction.has_rep_prefix() || instruction.has_repne_prefix());
        for (number, memory) in memories.iter().enumerate() {
            self.operand(instruction, number as u8, memory, is_repeated);
        }
        if is_repeated {
            self.store_word(RCX);
            let last = Reference {
                pc: instruction.ip(),
                operand: 0,
                used: Use::Count,
                size_bytes: 0,
                source: Source::Word,
            };
            self.reference(last);
        }
    }

    fn operand(&mut self, instruction: &Instruction, operand: u8, memory: &UsedMemory, is_repeated: bool) {
        let used = match memory.access() {
            OpAccess::Read | OpAccess::CondRead => Use::Read,
            OpAccess::Write | OpAccess::CondWrite => Use::Write,
            OpAccess::NoMemAccess => Use::Prefetch,
            // Exchanges with memory are locked without a prefix.
            _ if instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg => Use::Locked,
            _ => Use::Both,
        };
        // Of what a repeated instruction does in all the size is not known: its element's is told.
        let size = if is_repeated { instruction.memory_size() } else { memory.memory_size() };
        let size_bytes = u16::try_from(size.size()).unwrap_or(u16::MAX);
        let reference = Reference { pc: instruction.ip(), operand, used, size_bytes, source: Source::Word };
        if self.filter.leaves_out(memory) {
            self.reference(Reference { source: Source::LeftOut, ..reference });
            return;
        }
        if let Some(gather) = Gather::of(instruction, memory) {
            self.gather(&gather, reference);
            return;
        }
        let source = match self.source(instruction, memory, is_repeated) {
            Source::Word => Source::Word,
            source if self.known.must_store => self.store_known(source),
            source => source,
        };
        self.known.must_store = false;
        self.reference(Reference { source, ..reference });
    }

    /// Stores which elements of a gather or scatter happen, and the addresses of all.
    fn gather(&mut self, gather: &Gather, element: Reference) {
        let (first, second) = self.pair;
        let is_recording = self.is_recording();
        if is_recording {
            match gather.mask {
                Mask::Signs(vector) => self.assembler.signs(second, vector, false),
                Mask::WideSigns(vector) => self.assembler.signs(second, vector, true),
                Mask::Bits(mask) => self.assembler.mask_bits(second, mask),
            }
        }
        self.store_word(second);
        self.reference(Reference { used: Use::Mask, size_bytes: 0, ..element });
        self.known.must_store = false;
        let indices = self.bytes + gather.indices_at();
        if is_recording {
            // It may reach behind the addresses, where nothing has been stored yet.
            self.assembler.store_vector(gather.index, first, indices);
        }
        for number in 0..gather.elements {
            if is_recording {
                let index = Address::at(first, indices + (number * gather.index_bytes) as i32);
                match gather.index_bytes {
                    4 => self.assembler.load_signed_half(second, index),
                    _ => self.assembler.load(second, index),
                }
                let Gather { base, scale, disp, .. } = *gather;
                self.assembler.lea(second, Address { base, index: Some((second, scale)), disp });
            }
            self.store_word(second);
            if is_recording {
                // Where the mask leaves an element out it may be any number; a word with the top bit is a block's.
                self.assembler.store_zero_byte(Address::at(first, self.bytes - 1));
            }
            self.reference(element);
        }
    }

    fn reference(&mut self, reference: Reference) {
        if self.is_recording() {
            self.cache.references.push(reference);
        }
    }

    /// How the operand's address is known; stores it if it must be.
    fn source(&mut self, instruction: &Instruction, memory: &UsedMemory, is_repeated: bool) -> Source {
        let disp = memory.displacement() as i64;
        let is_thread = memory.segment() == Register::FS;
        let (base, index) = (memory.base(), memory.index());
        if memory.vsib_size() != 0 {
            // Relative to a segment.
            return Source::Unknown;
        }
        if base == Register::RIP || (base == Register::None && index == Register::None) {
            let address = match base == Register::RIP {
                true => instruction.ip_rel_memory_address(),
                false => disp as u64,
            };
            return if is_thread { Source::Thread(disp) } else { Source::Fixed(address) };
        }
        let number = |register: Register| match register {
            Register::None => Some(None),
            register if register.is_gpr64() => Some(number_of(register)),
            _ => None,
        };
        let (Some(base), Some(index)) = (number(base), number(index)) else { return Source::Unknown };
        let index = index.map(|register| (register, memory.scale() as u8));
        let name = self.known.name(base, index, disp);
        if !is_thread
            && !is_repeated
            && let Some(source) = self.known.near(&name)
        {
            return source;
        }
        let Ok(disp) = i32::try_from(disp) else { return Source::Unknown };
        let second = self.pair.1;
        if !self.is_recording() {
            // Counted by `store_word`.
        } else if is_thread {
            // mov r2, fs:[0]: the ABI keeps the base there.
            self.assembler.load_thread(second, 0);
            if let Some(base) = base {
                self.assembler.lea(second, Address { base: Some(second), index: Some((base, 1)), disp: 0 });
            }
            self.assembler.lea(second, Address { base: Some(second), index, disp });
        } else {
            self.assembler.lea(second, Address { base, index, disp });
        }
        let (word, bytes) = (self.words, self.bytes);
        self.store_word(second);
        if memory.access() == OpAccess::NoMemAccess {
            // It may be any number, as no prefetch faults; a word with the top bit is a block's.
            if self.is_recording() {
                self.assembler.store_zero_byte(Address::at(self.pair.0, bytes + 7));
            }
        } else if !is_thread {
            self.known.note(name, word);
        }
        Source::Word
    }

    /// Stores an address that would follow from the definition, so that the execution's words tell that it got here.
    fn store_known(&mut self, source: Source) -> Source {
        let second = self.pair.1;
        match source {
            _ if !self.is_recording() => {}
            Source::Fixed(address) => self.assembler.set_address(second, address),
            Source::Thread(distance) => {
                self.assembler.load_thread(second, 0);
                let disp = i32::try_from(distance).unwrap_or_default();
                self.assembler.lea(second, Address::at(second, disp));
            }
            // Address 0: not known. Nothing is near behind a side exit, and nothing that is left out comes here.
            Source::Unknown | Source::Near { .. } | Source::Word | Source::LeftOut => {
                self.assembler.set(second, 0);
            }
        }
        self.store_word(second);
        Source::Word
    }

    fn store_word(&mut self, register: Gpr) {
        if self.is_recording() {
            self.assembler.store(register, Address::at(self.pair.0, self.bytes));
        }
        self.bytes += 8;
        self.words += 1;
        debug_assert!(self.bytes as usize <= 8 * MAX_BLOCK_WORDS);
    }

    /// The instruction itself, or what does the same elsewhere: see [`Trace::bytes`], [`Trace::displacement`] and
    /// [`Trace::way_out`].
    fn instruction(
        &mut self,
        instruction: &Instruction,
        (bytes, displacement): (&[u8], u64),
        way_out: (u64, bool),
    ) {
        let (out, is_otherwise) = way_out;
        let (first, second) = self.pair;
        match flow_of(instruction) {
            Flow::Next => self.copy(instruction, bytes, displacement),
            Flow::Conditional => {
                // The lowest bit negates a condition.
                let gap = self.assembler.jump_if(condition_of(instruction) ^ u8::from(is_otherwise));
                self.side_exit(gap, out);
            }
            Flow::Counted => {
                // Its jump is short: it leads over one jump, to the one that leads to the exit.
                self.assembler.bytes(&bytes[..bytes.len() - 1]);
                self.assembler.byte(5);
                let here = self.assembler.here();
                let on = self.assembler.jump(here);
                let gap = self.assembler.jump(here);
                self.side_exit(gap, out);
                self.assembler.fill(on, self.assembler.here());
            }
            // The path goes on at the target.
            Flow::Jump => {}
            Flow::Call => {
                self.assembler.set(second, instruction.next_ip());
                self.assembler.push(second);
            }
            Flow::Return => {
                self.assembler.load(second, Address::at(RSP, 0));
                let popped =
                    if instruction.op_count() > 0 { i32::from(instruction.immediate16()) } else { 0 };
                self.assembler.lea(RSP, Address::at(RSP, 8 + popped));
            }
            Flow::JumpIndirect => self.load_target(instruction),
            Flow::CallIndirect => {
                self.load_target(instruction);
                self.assembler.lea(first, Address::at(first, self.bytes));
                self.assembler.store_thread(first, self.offsets.next());
                self.assembler.set(first, instruction.next_ip());
                self.assembler.push(first);
            }
            Flow::Native(_) => debug_assert!(false, "a trace ends before it"),
        }
    }

    fn copy(&mut self, instruction: &Instruction, bytes: &[u8], displacement: u64) {
        let start = self.assembler.here();
        if instruction.is_ip_rel_memory_operand() {
            let target = instruction.ip_rel_memory_address();
            if instruction.mnemonic() == Mnemonic::Lea
                && let Some(register) =
                    Some(instruction.op0_register()).filter(|register| register.is_gpr64())
                && let Some(number) = number_of(register)
            {
                self.assembler.set_address(number, target);
                return;
            }
            self.assembler.bytes(bytes);
            let distance = target.wrapping_sub(self.assembler.here()) as i64;
            match i32::try_from(distance) {
                Ok(distance) => self.assembler.change_word(start + displacement, distance),
                // Too far: the translation fails, as if there were no room.
                Err(_) => {
                    self.assembler.jump(target);
                }
            }
            return;
        }
        self.assembler.bytes(bytes);
    }

    /// The address that an indirect jump or call leads to, into the second register.
    fn load_target(&mut self, instruction: &Instruction) {
        let second = self.pair.1;
        if instruction.op0_kind() == OpKind::Register {
            if let Some(register) = number_of(instruction.op0_register()) {
                self.assembler.copy(second, register);
            }
            return;
        }
        if instruction.is_ip_rel_memory_operand() {
            self.assembler.load_relative(second, instruction.ip_rel_memory_address());
            return;
        }
        if instruction.segment_prefix() == Register::FS {
            self.assembler.byte(0x64);
        }
        let register =
            |register: Register| (register != Register::None).then(|| number_of(register)).flatten();
        let index =
            register(instruction.memory_index()).map(|index| (index, instruction.memory_index_scale() as u8));
        let disp = instruction.memory_displacement64() as i32;
        self.assembler.load(second, Address { base: register(instruction.memory_base()), index, disp });
    }

    fn side_exit(&mut self, gap: Gap, target: u64) {
        self.pending.exits[self.pending.count] = Some(SideExit { gap, target, bytes: self.bytes });
        self.pending.count += 1;
        self.known.forget();
        if self.filter.is_on() {
            let way_out = Reference {
                pc: target,
                operand: 0,
                used: Use::WayOut,
                size_bytes: 0,
                source: Source::Unknown,
            };
            self.reference(way_out);
        }
    }

    /// To a block whose address is known.
    fn exit(&mut self, target: u64, bytes: i32) {
        let (warm, cold) = self.ways_on(bytes);
        self.enter_runtime(Exit::Link { target, pair: self.pair, warm, cold });
    }

    /// The two jumps of an exit, that lead on to what follows them until they are linked.
    fn ways_on(&mut self, bytes: i32) -> (u64, u64) {
        let (first, _) = self.pair;
        self.assembler.lea(first, Address::at(first, bytes));
        let warm = self.assembler.jump_aligned_on();
        self.back_to_the_programs_registers();
        let cold = self.assembler.jump_aligned_on();
        (warm.0, cold.0)
    }

    fn native_exit(&mut self, target: u64, bytes: i32, end: End) {
        let (first, _) = self.pair;
        if bytes != 0 {
            self.assembler.lea(first, Address::at(first, bytes));
        }
        self.back_to_the_programs_registers();
        self.enter_runtime(Exit::Native { target, end });
    }

    fn back_to_the_programs_registers(&mut self) {
        let (first, second) = self.pair;
        self.assembler.store_thread(first, self.offsets.next());
        self.assembler.load_thread(first, self.offsets.first());
        self.assembler.load_thread(second, self.offsets.second());
    }

    fn enter_runtime(&mut self, exit: Exit) {
        let number = self.cache.add_exit(exit);
        self.assembler.store_thread_value(self.offsets.exit(), number as i32);
        self.assembler.jump(self.entry + AFTER_INDIRECT);
    }

    /// To wherever the second register says.
    fn indirect_exit(&mut self, last: &Instruction) {
        let (first, second) = self.pair;
        let offsets = self.offsets;
        if flow_of(last) != Flow::CallIndirect {
            self.assembler.lea(first, Address::at(first, self.bytes));
            self.assembler.store_thread(first, offsets.next());
        }
        self.assembler.store_thread(RCX, offsets.third());
        self.assembler.hash_to_rcx(second);
        self.assembler.set_address(first, self.targets);
        self.assembler.load_half(first, Address { base: Some(first), index: Some((RCX, 4)), disp: 0 });
        self.assembler.set_address(RCX, self.entry);
        self.assembler.lea(first, Address { base: Some(first), index: Some((RCX, 1)), disp: 0 });
        self.assembler.store_thread(first, offsets.jump());
        self.assembler.store_thread(second, offsets.target());
        self.assembler.copy(RCX, second);
        self.assembler.load_thread(first, offsets.first());
        self.assembler.load_thread(second, offsets.second());
        self.assembler.jump_thread(offsets.jump());
    }
}

/// Flags with which code runs natively. The trap flag: somebody steps through the program, traps come behind instructions, and
/// must not find ours. The alignment check (some programs try whether the processor has it): our code is not made for that.
pub const FLAGS_FOR_NATIVE: u64 = 1 << 8 | 1 << 18;

/// Condition codes of `jae`, `je` and `jne`.
const ABOVE_OR_EQUAL: u8 = 3;
const EQUAL: u8 = 4;
const NOT_EQUAL: u8 = 5;
/// Comparisons of a block's code: words, and of each of its pieces seven single bytes or a word that is not whole.
const MOST_COMPARED: usize = MOST_INSTRUCTIONS * MOST_BYTES / 8 + 8 * MOST_JUMPS;

/// The condition in a jump's encoding (Intel SDM volume 2, appendix B.1.4.7).
fn condition_of(instruction: &Instruction) -> u8 {
    use iced_x86::ConditionCode;
    match instruction.condition_code() {
        ConditionCode::o => 0,
        ConditionCode::no => 1,
        ConditionCode::b => 2,
        ConditionCode::ae => 3,
        ConditionCode::e => 4,
        ConditionCode::ne => 5,
        ConditionCode::be => 6,
        ConditionCode::a => 7,
        ConditionCode::s => 8,
        ConditionCode::ns => 9,
        ConditionCode::p => 10,
        ConditionCode::np => 11,
        ConditionCode::l => 12,
        ConditionCode::ge => 13,
        ConditionCode::le => 14,
        _ => 15,
    }
}
