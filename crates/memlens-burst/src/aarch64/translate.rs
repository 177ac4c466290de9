//! One trace to one block.
//!
//! The native instructions are copied as they are, but for those that depend on where they stand and those that use x28, which holds
//! the thread's area; before each, the address of its memory operand is stored. Two registers that the trace does not use are ours: the
//! first points to the block's words, the second holds an address for a moment. Their native values lie in the thread's area.
//! In a trace that uses x28 a third such register stands for it: its value comes from the area at the begin, and goes there whenever it is
//! written. Nothing of that changes a flag.
//!
//! ```text
//!  resume: ldp x0, x1, [x28, third]                              from the runtime, and from checks
//!  cold:   stp r1, r2, [x28, first] ; ldr r1, [x28, next]
//!  warm:   ldr r2, [x28, limit] ; sub r2, r1, r2 ; tbz r2, 63, end
//!          str r3, [x28, renamed] ; ldr r3, [x28, x28's place]   where x28 is used
//!          mov r2, block's word ; str r2, [r1]
//!          … add r2, operand's base, offset ; str r2, [r1, 8] ; the instruction …
//!  exit:   ldr r3, [x28, renamed] ; add r1, r1, bytes ; b warm of the next, if it has the same registers
//!          str r1, [x28, next] ; ldp r1, r2, [x28, first] ; b cold of the next
//!          stp x0, x1, [x28, third] ; mov x0, number ; ldr x1, [x28, entry] ; br x1
//! ```
//!
//! A counting block is the same without the stores of words and addresses; its first register counts them all the same.
//!
//! A conditional branch leads to the exit where the path does not go on: where it is taken, or, at the end of a loop's round, where
//! it is not. Both branches of an exit lead to the instruction behind them until the next block is known.

use memlens_events::burst::{End, MAX_BLOCK_WORDS, Reference, Source, Use, block_word};

use super::area::{ENTRY, FIRST, JUMP, LIMIT, NEXT, RENAMED, TARGET, THIRD, X28};
use super::assembler::{AREA, Assembler, Gap, Gpr, LINK, SP};
use super::check::OfBlock;
use super::decode::{FIELDS, Flow, Form, Operand, Place as Address};
use super::filter::Filter;
use super::known::Known;
use super::processor::zeroed_bytes;
use super::trace::{Instruction, MOST_JUMPS, Tail, Trace};
use crate::cache::{Block, Cache, Exit, Place, Variant};

/// Translates a decoded trace into the arena; the block's number. `pair`: registers that the trace does not use;
/// `is_generated`: whether the code may change, which is not translated.
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
    if is_generated {
        return Err(End::Code);
    }
    if !cache.has_room() {
        return Err(End::Full);
    }
    let marks = cache.marks();
    let mut assembler = cache.arena(arena).assembler();
    let start = cache.arena(arena).entry();
    let targets = cache.arena(arena).targets(variant);
    assembler.load_pair_area((0, 1), THIRD);
    let mut writer = Writer {
        block: Block::new(pc, variant, assembler.here(), pair),
        assembler,
        cache,
        start,
        targets,
        pair,
        stand_in: trace.stand_in(pair),
        bytes: 8,
        words: 0,
        known: Known::new(),
        filter,
        pending: Pending::default(),
    };
    writer.write(trace);
    let Writer { assembler, mut block, stand_in, .. } = writer;
    if assembler.is_full() {
        cache.back_to(marks);
        return Err(End::Full);
    }
    block.own = OfBlock { stand_in };
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
    exits: [Option<SideExit>; MOST_JUMPS + 1],
    count: usize,
}

#[derive(Clone, Copy)]
struct SideExit {
    gap: Gap,
    target: u64,
    bytes: u32,
}

struct Writer<'a> {
    assembler: Assembler<'static>,
    cache: &'a mut Cache,
    /// Of the arena: where it begins, and its table of indirect targets.
    start: u64,
    targets: u64,
    pair: (Gpr, Gpr),
    stand_in: Option<Gpr>,
    block: Block,
    /// Bytes of words up to here, the block's own included.
    bytes: u32,
    /// Addresses among them.
    words: u16,
    known: Known,
    filter: Filter,
    pending: Pending,
}

impl Writer<'_> {
    fn write(&mut self, trace: &Trace) {
        let (first, second) = self.pair;
        self.assembler.store_pair_area(self.pair, FIRST);
        self.assembler.load_area(first, NEXT);
        self.block.warm = self.assembler.here();
        self.assembler.load_area(second, LIMIT);
        self.assembler.subtract(second, first, second);
        let limit = self.assembler.branch_if_positive(second);
        if let Some(stand_in) = self.stand_in {
            self.assembler.store_area(stand_in, RENAMED);
            self.assembler.load_area(stand_in, X28);
        }
        if self.is_recording() {
            let number = self.cache.next_block();
            self.assembler.set(second, block_word(number));
            self.assembler.store(second, first, 0);
        }
        for (index, instruction) in trace.instructions().iter().enumerate() {
            if let Some(operand) = instruction.decoded.operand {
                self.operand(instruction, &operand);
            }
            self.cache.places.push(Place { code: self.assembler.here(), pc: instruction.pc });
            self.instruction(instruction, trace.way_out(index));
            self.known.executed(&instruction.decoded);
            self.filter.executed(&instruction.decoded);
        }
        match trace.tail {
            Tail::Next(target) => self.exit(target, self.bytes),
            Tail::Native(target, end) => {
                self.give_stand_in_back();
                self.native_exit(target, self.bytes, end);
            }
            Tail::Transfer => {
                let last = &trace.instructions()[trace.instructions().len() - 1];
                match last.decoded.flow {
                    Flow::Jump(target) | Flow::Call(target) => self.exit(target, self.bytes),
                    _ => self.indirect_exit(),
                }
            }
        }
        for index in 0..self.pending.count {
            if let Some(SideExit { gap, target, bytes }) = self.pending.exits[index] {
                self.assembler.fill(gap, self.assembler.here());
                self.exit(target, bytes);
            }
        }
        self.assembler.fill(limit, self.assembler.here());
        self.native_exit(self.block.pc, 0, End::Length);
    }

    fn is_recording(&self) -> bool {
        self.block.variant == Variant::Recording
    }

    /// The register that has a register's value here.
    fn renamed(&self, register: Gpr) -> Gpr {
        match self.stand_in {
            Some(stand_in) if register == AREA => stand_in,
            _ => register,
        }
    }

    /// Stores the address of an instruction's operand.
    fn operand(&mut self, instruction: &Instruction, operand: &Operand) {
        let size_bytes = if operand.size_bytes == 0 { zeroed_bytes() } else { operand.size_bytes };
        let reference = Reference {
            pc: instruction.pc,
            operand: 0,
            used: operand.used,
            size_bytes,
            source: Source::Word,
        };
        if self.filter.leaves_out(operand) {
            self.reference(Reference { source: Source::LeftOut, ..reference });
            return;
        }
        let source = self.source(operand);
        self.known.must_store = false;
        self.reference(Reference { source, ..reference });
    }

    fn reference(&mut self, reference: Reference) {
        if self.is_recording() {
            self.cache.references.push(reference);
        }
    }

    /// How the operand's address is known; stores it if it must be.
    fn source(&mut self, operand: &Operand) -> Source {
        let second = self.pair.1;
        if let Address::Fixed(address) = operand.place
            && !self.known.must_store
        {
            return Source::Fixed(address);
        }
        let name = self.known.name(operand.place);
        if let Some(name) = &name
            && let Some(source) = self.known.near(name)
        {
            return source;
        }
        if self.is_recording() {
            let mut address = second;
            match operand.place {
                Address::Fixed(value) => self.assembler.set(second, value),
                Address::Offset(base, 0) if base != SP => address = self.renamed(base),
                Address::Offset(base, disp) => {
                    let base = self.renamed(base);
                    let distance = disp.unsigned_abs() as u32;
                    match disp < 0 {
                        true => self.assembler.subtract_value(second, base, distance),
                        false => self.assembler.add_value(second, base, distance),
                    }
                }
                Address::Index { base, index, option, shift } => {
                    let (base, index) = (self.renamed(base), self.renamed(index));
                    self.assembler.add_extended(second, base, index, option, shift);
                }
                Address::Around(base) => {
                    let base = self.renamed(base);
                    self.assembler.clear_low(second, base, zeroed_bytes().trailing_zeros());
                }
            }
            if operand.used == Use::Prefetch {
                // It may be any number, as no prefetch faults; a word with the upper bits set is a block's.
                self.assembler.extract(second, address, 0, 56);
                address = second;
            }
            self.assembler.store(address, self.pair.0, self.bytes);
        }
        let word = self.words;
        self.bytes += 8;
        self.words += 1;
        debug_assert!(self.bytes as usize <= 8 * MAX_BLOCK_WORDS);
        if let Some(name) = name
            && operand.used != Use::Prefetch
        {
            self.known.note(name, word);
        }
        Source::Word
    }

    /// The instruction itself, or what does the same elsewhere.
    fn instruction(&mut self, instruction: &Instruction, way_out: Option<(u64, bool)>) {
        let second = self.pair.1;
        let decoded = &instruction.decoded;
        let word = self.with_stand_in(instruction.bits, decoded.fields);
        match decoded.flow {
            Flow::Next => {
                match decoded.form {
                    Form::Plain => self.assembler.word(word),
                    Form::Value(value) => {
                        let register = (word & 31) as Gpr;
                        if register != SP {
                            self.assembler.set(register, value);
                        }
                    }
                    Form::Literal(load) => {
                        if let Some(Operand { place: Address::Fixed(address), .. }) = decoded.operand {
                            self.assembler.set(second, address);
                        }
                        let load = load & !31 | word & 31;
                        self.assembler.word(load | u32::from(second) << 5);
                    }
                }
                self.keep_stand_in(decoded.written);
            }
            Flow::Conditional(_) => {
                if let Some((out, is_otherwise)) = way_out {
                    let word = if is_otherwise { negated(word) } else { word };
                    let gap = self.assembler.branch_by(word);
                    self.side_exit(gap, out);
                }
            }
            // The path goes on at the target.
            Flow::Jump(_) => {}
            Flow::Call(_) => self.assembler.set(LINK, instruction.next_pc()),
            Flow::JumpIndirect(register) | Flow::Return(register) => {
                let register = self.renamed(register);
                self.assembler.copy(second, register);
            }
            Flow::CallIndirect(register) => {
                let register = self.renamed(register);
                self.assembler.copy(second, register);
                self.assembler.set(LINK, instruction.next_pc());
            }
            Flow::Native(_) => debug_assert!(false, "a trace ends before it"),
        }
    }

    /// The instruction with the register that stands for x28 in its place.
    fn with_stand_in(&self, bits: u32, fields: u8) -> u32 {
        let Some(stand_in) = self.stand_in else { return bits };
        FIELDS.iter().fold(bits, |word, &(field, at)| {
            match fields & field != 0 && word >> at & 31 == u32::from(AREA) {
                true => word & !(31 << at) | u32::from(stand_in) << at,
                false => word,
            }
        })
    }

    /// The area keeps x28 as the program has it.
    fn keep_stand_in(&mut self, written: u32) {
        if let Some(stand_in) = self.stand_in
            && written & 1 << AREA != 0
        {
            self.assembler.store_area(stand_in, X28);
        }
    }

    fn give_stand_in_back(&mut self) {
        if let Some(stand_in) = self.stand_in {
            self.assembler.load_area(stand_in, RENAMED);
        }
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
    fn exit(&mut self, target: u64, bytes: u32) {
        let (first, _) = self.pair;
        self.give_stand_in_back();
        self.assembler.add_value(first, first, bytes);
        let warm = self.assembler.branch_on();
        self.back_to_the_programs_registers();
        let cold = self.assembler.branch_on();
        self.enter_runtime(Exit::Link { target, pair: self.pair, warm, cold });
    }

    /// The register that stands for x28 has been given back.
    fn native_exit(&mut self, target: u64, bytes: u32, end: End) {
        let (first, _) = self.pair;
        if bytes != 0 {
            self.assembler.add_value(first, first, bytes);
        }
        self.back_to_the_programs_registers();
        self.enter_runtime(Exit::Native { target, end });
    }

    fn back_to_the_programs_registers(&mut self) {
        self.assembler.store_area(self.pair.0, NEXT);
        self.assembler.load_pair_area(self.pair, FIRST);
    }

    fn enter_runtime(&mut self, exit: Exit) {
        let number = self.cache.add_exit(exit);
        self.assembler.store_pair_area((0, 1), THIRD);
        self.assembler.set(0, number as u64);
        self.assembler.load_area(1, ENTRY);
        self.assembler.branch_to(1);
    }

    /// To wherever the second register says: by the table to a check (`check.rs`), which has the target in x0 and its own address in x1.
    fn indirect_exit(&mut self) {
        let (first, second) = self.pair;
        self.give_stand_in_back();
        self.assembler.add_value(first, first, self.bytes);
        self.assembler.store_area(first, NEXT);
        self.assembler.store_area(second, TARGET);
        // As `check::target_hash`.
        self.assembler.mix(second, second, second, 16);
        self.assembler.extract(second, second, 2, 16);
        self.assembler.set_page(first, self.targets);
        self.assembler.load_half(second, first, second);
        self.assembler.set_page(first, self.start);
        self.assembler.add(first, first, second);
        self.assembler.store_area(first, JUMP);
        self.assembler.load_pair_area(self.pair, FIRST);
        self.assembler.store_pair_area((0, 1), THIRD);
        self.assembler.load_pair_area((0, 1), TARGET);
        self.assembler.branch_to(1);
    }
}

/// The conditional branch that is taken where the other one is not: B.cond by the lowest bit of its condition, the others by bit 24.
fn negated(word: u32) -> u32 {
    if word >> 24 == 0x54 { word ^ 1 } else { word ^ 1 << 24 }
}
