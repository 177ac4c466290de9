//! Instrumentation of a basic block.
//!
//! ```text
//!   mov  P, gs:[position]          P: a register the block does not use, where there is one
//!   mov  qword [P], id|words       header (two halves when blocks carry epochs)
//!   …
//!   lea  A, [operand]              for each memory operand, before its instruction
//!   mov  [P + 8k], A
//!   …
//!   cmp  P, gs:[limit]; jb ok      once, at the first place where flags are dead
//!   …
//!   lea  P, [P + 8n]               before the last instruction
//!   mov  gs:[position], P
//! ```
//!
//! The position moves only at the end, so a block that faults leaves its words behind the position;
//! see `PartialBlock`. What it costs was measured: the check once a block and one pointer per block
//! instead of per reference are worth a factor of five on CPython.

use crate::blocks::BLOCKS;
use crate::channel::CHANNEL;
use crate::ir::{Inserter, memory, reg_is_gpr, reg_to_pointer_sized, register, register32, thread_slot};
use crate::modules::{CONTINUATION_BYTES, SPECIALS};
use crate::operands::{self, Planned, Source};
use crate::requests;
use crate::state::STATE;
use core::ffi::c_void;
use core::sync::atomic::Ordering;
use dynamorio_sys::*;
use memlens_events::{BlockDefinition, BlockFlags, MAX_BLOCK_WORDS, RecordHeader, Word, WordRole};
use memlens_types::{AccessAttr, AccessKind};

/// Integer arguments in registers that allocation entries record.
const ARGUMENTS: [u32; 4] = [DR_REG_RDI, DR_REG_RSI, DR_REG_RDX, DR_REG_RCX];
const NONE: reg_id_t = DR_REG_NULL as reg_id_t;
const RAX: reg_id_t = DR_REG_RAX as reg_id_t;
/// The registers that can hold the pointer to the record, a bit each: all but rax, by which flags are saved, and rsp.
const POINTERS: u16 = !(1 << 0 | 1 << 4);

/// What is known of a block while it is instrumented.
struct Build {
    low_half: u32,
    words: usize,
    /// Words recorded before any instruction's own.
    arguments: usize,
    returns_value: bool,
    bumps_epoch: bool,
    next_word: usize,
    skippable: Skippable,
    /// General registers that the block names, a bit each.
    registers: u16,
    pointer: reg_id_t,
    checked: bool,
    after: Option<(reg_id_t, usize)>,
    pc: u64,
    is_request: bool,
    /// The first argument is a pointer to where the block's address will be stored.
    keeps_pointer: bool,
    /// The block's address has been stored when this block is left.
    tells_pointer: bool,
}

/// First pass: string instructions stay whole, gathers and scatters become scalar accesses, and a
/// client request ends its block. So does an instruction with which the block would name all of [`POINTERS`]: DynamoRIO 11.90
/// keeps what the client holds in a register across an instruction that writes it only if the program reads later what is
/// written, so the pointer has to be in one that the block leaves alone.
pub unsafe extern "C" fn transform(
    context: *mut c_void,
    _tag: *mut c_void,
    block: *mut instrlist_t,
    _for_trace: bool_,
    _translating: bool_,
) -> dr_emit_flags_t {
    // SAFETY: DynamoRIO hands over a well-formed block; instructions after a request are removed
    // as a whole, which truncates the block, and a nop is appended with the translation of the
    // instruction it follows.
    unsafe {
        expand_gather(context, block);
        let mut instr = instrlist_first_app(block);
        let (mut named, mut last_pc) = (0, core::ptr::null_mut());
        while !instr.is_null() {
            let next = instr_get_next_app(instr);
            let pc = instr_get_app_pc(instr);
            let with_this = named | operands::general_registers(instr);
            if pc != last_pc && !last_pc.is_null() && with_this & POINTERS == POINTERS {
                remove_from(context, block, instr);
                break;
            }
            (named, last_pc) = (with_this, pc);
            if operands::keeps_flags_unsaid(instr) {
                say_that_flags_are_read(context, block, instr);
            }
            if requests::ends_request(instr) {
                remove_from(context, block, instr_get_next(instr));
                requests::leave_unanswered(context, block, instr);
                break;
            }
            instr = next;
        }
        // What a string instruction leaves in its registers is recorded before the next one; the flags that a `cmc` needs are not
        // there in front of it.
        let last = instrlist_last_app(block);
        if !last.is_null() && (operands::is_repeated_string(last) || operands::keeps_flags_unsaid(last)) {
            let nop = instr_create_0dst_0src(context, OP_nop as i32);
            instr_set_translation(nop, instr_get_app_pc(last));
            instr_set_app(nop);
            instrlist_append(block, nop);
        }
    }
    dr_emit_flags_t::DR_EMIT_DEFAULT
}

/// Reserves rax in front of an instruction, as which it goes on to hold the program's value.
///
/// # Safety
/// As [`transform`].
unsafe fn hold_rax(context: *mut c_void, block: *mut instrlist_t, at: *mut instr_t) -> bool {
    // SAFETY: the vector lives on the stack and is deleted; the block is well-formed.
    unsafe {
        drreg_set_bb_properties(context, drreg_bb_properties_t_DRREG_HANDLE_MULTI_PHASE_SLOT_RESERVATIONS);
        let mut allowed: drvector_t = core::mem::zeroed();
        drreg_init_and_fill_vector(&mut allowed, 0);
        drreg_set_vector_entry(&mut allowed, RAX, 1);
        let mut reg = NONE;
        let status = drreg_reserve_register(context, block, at, &mut allowed, &mut reg);
        drvector_delete(&mut allowed);
        status == drreg_status_t_DRREG_SUCCESS
    }
}

/// Puts a move that reads flags, and changes nothing, in front of an instruction that
/// [keeps flags unsaid](operands::keeps_flags_unsaid): flags that DynamoRIO 11.90 takes to be dead are not kept. Up to that move
/// they are, all of them (the overflow if it is read, and the others if one of them is); between both nothing may be inserted
/// that changes them.
///
/// # Safety
/// As [`transform`].
unsafe fn say_that_flags_are_read(context: *mut c_void, block: *mut instrlist_t, at: *mut instr_t) {
    // SAFETY: the caller's promise.
    unsafe {
        let rax = opnd_create_reg(RAX);
        let reader = instr_create_1dst_1src(context, OP_cmovle as i32, rax, rax);
        instr_set_predicate(reader, _dr_pred_type_t_DR_PRED_LE);
        instr_set_translation(reader, instr_get_app_pc(at));
        instr_set_app(reader);
        instrlist_preinsert(block, at, reader);
    }
}

/// Takes an instruction and all behind it out of a block.
///
/// # Safety
/// As [`transform`].
unsafe fn remove_from(context: *mut c_void, block: *mut instrlist_t, first: *mut instr_t) {
    let mut rest = first;
    while !rest.is_null() {
        // SAFETY: the caller's promise; each is taken out before it is destroyed.
        unsafe {
            let following = instr_get_next(rest);
            instrlist_remove(block, rest);
            instr_destroy(context, rest);
            rest = following;
        }
    }
}

/// Makes scalar accesses of a gather or scatter. DynamoRIO 11.90 does that without setting what lies above the destination to
/// zero (Intel SDM volume 2, VGATHERDPS: "DEST[MAXVL-1:VL] := 0"); a move of the register to itself does. And it keeps the
/// flags in rax, from which it takes them away where rax is the base and is first read: behind the jump that passes an
/// element over. So rax is held before, and the flags go elsewhere.
///
/// # Safety
/// As [`transform`].
unsafe fn expand_gather(context: *mut c_void, block: *mut instrlist_t) {
    // SAFETY: the caller's promise; the register is read before its instruction is replaced.
    unsafe {
        let first = instrlist_first_app(block);
        let target = if first.is_null() { None } else { operands::gathers_into(first) };
        let mut is_expanded = 0;
        let holds_base =
            !first.is_null() && operands::gathers_by_rax(first) && hold_rax(context, block, first);
        drx_expand_scatter_gather(context, block, &mut is_expanded);
        if holds_base {
            drreg_unreserve_register(context, block, core::ptr::null_mut(), RAX);
        }
        if let Some((target, is_low)) = target.filter(|_| is_expanded != 0) {
            let register = opnd_create_reg(target);
            let is_extended = |first: u32, last: u32| (first..=last).contains(&u32::from(target));
            let clear = if is_low {
                let low = opnd_create_reg_partial(target, OPSZ_8 as opnd_size_t);
                instr_create_1dst_1src(context, OP_vmovq as i32, register, low)
            } else if is_extended(DR_REG_XMM16, DR_REG_XMM31) || is_extended(DR_REG_YMM16, DR_REG_YMM31) {
                // Only AVX-512's encoding names these.
                let all = opnd_create_reg(DR_REG_K0 as reg_id_t);
                instr_create_1dst_2src(context, OP_vmovups as i32, register, all, register)
            } else {
                instr_create_1dst_1src(context, OP_vmovups as i32, register, register)
            };
            instrlist_meta_append(block, clear);
        }
    }
}

/// Second pass: plans the record and defines the block.
pub unsafe extern "C" fn analyse(
    context: *mut c_void,
    tag: *mut c_void,
    block: *mut instrlist_t,
    _for_trace: bool_,
    translating: bool_,
    user_data: *mut *mut c_void,
) -> dr_emit_flags_t {
    // SAFETY: DynamoRIO hands over a well-formed block and a place for our pointer.
    unsafe {
        let build = plan_block(context, tag, block, translating != 0);
        *user_data = Box::into_raw(Box::new(build)).cast();
    }
    dr_emit_flags_t::DR_EMIT_DEFAULT
}

/// # Safety
/// As [`analyse`].
unsafe fn plan_block(
    context: *mut c_void,
    tag: *mut c_void,
    block: *mut instrlist_t,
    translating: bool,
) -> Build {
    // SAFETY: the caller's promise.
    unsafe {
        let pc = dr_fragment_app_pc(tag) as u64;
        let mut flags = BlockFlags::default();
        let mut words: Vec<Word> = Vec::new();
        let alloc_function = SPECIALS.alloc_entry(pc);
        let mut bumps_epoch = false;
        if alloc_function.is_some() {
            flags.insert(BlockFlags::ALLOC_ENTRY);
            flags.insert(BlockFlags::IRREGULAR);
            bumps_epoch = true;
            words.extend((0..ARGUMENTS.len()).map(|index| Word {
                role: WordRole::Argument,
                pc_offset: 0,
                instruction: 0,
                attr: AccessAttr::new(AccessKind::Load, index as u32),
            }));
        }
        let arguments = words.len();
        let (mut instructions, mut end, mut last_pc) = (0_u16, pc, 0);
        let mut starts: Vec<u64> = Vec::new();
        let (mut slot_word, mut returns_value, mut is_request) = (0, false, false);
        let mut tells_pointer = false;
        let mut registers = 0;
        let mut skippable = Skippable::default();
        let mut instr = instrlist_first_app(block);
        while !instr.is_null() {
            let at = instr_get_app_pc(instr) as u64;
            let next = instr_get_next_app(instr);
            if at != last_pc {
                instructions += 1;
                last_pc = at;
                starts.push(at);
                end = end.max(at + instr_length(context, instr).max(0) as u64);
            }
            registers |= operands::general_registers(instr);
            let plan = skippable.plan(instr, at.saturating_sub(pc).min(0xffff) as u16);
            let fits = words.len() + plan.words.len() < MAX_BLOCK_WORDS;
            let instruction = instructions.saturating_sub(1).min(0xff) as u8;
            if plan.unrecorded > 0 || !fits {
                flags.insert(BlockFlags::INCOMPLETE);
                if !translating {
                    let lost = plan.unrecorded + if fits { 0 } else { plan.words.len() as u32 };
                    CHANNEL.control().references_unrecorded.fetch_add(lost, Ordering::Relaxed);
                }
            }
            if fits {
                for planned in &plan.words {
                    if planned.word.role != WordRole::Address {
                        flags.insert(BlockFlags::IRREGULAR);
                    }
                    if matches!(planned.source, Source::Happened) {
                        skippable.told.push(words.len());
                    }
                    words.push(Word { instruction, ..planned.word });
                }
            }
            if next.is_null() {
                is_request = requests::ends_request(instr);
                if !translating && let Some(target) = jump_target(instr) {
                    follow_jump(pc, at, target);
                }
                let (is_call, is_return) = (instr_is_call(instr) != 0, instr_is_return(instr) != 0);
                if (is_call || is_return) && fits && !plan.words.is_empty() {
                    flags.insert(if is_call { BlockFlags::CALL } else { BlockFlags::RETURN });
                    // The push of a call is its last access, the pop of a return its only one.
                    slot_word = (words.len() - 1) as u8;
                }
                let ends_allocation = is_return && SPECIALS.is_alloc_return(at);
                if is_return
                    && words.len() < MAX_BLOCK_WORDS
                    && (ends_allocation || SPECIALS.is_value_return(at))
                {
                    returns_value = true;
                    tells_pointer = SPECIALS.is_pointer_return(at);
                    bumps_epoch |= ends_allocation;
                    flags.insert(BlockFlags::RETURNS_VALUE);
                    words.push(Word {
                        role: WordRole::ReturnValue,
                        pc_offset: at.saturating_sub(pc).min(0xffff) as u16,
                        instruction,
                        attr: AccessAttr::default(),
                    });
                }
            }
            instr = next;
        }
        let count = words.len();
        let id = if translating {
            Some(0)
        } else {
            BLOCKS.id_of(BlockDefinition {
                id: 0,
                pc,
                code_bytes: (end - pc).min(0xffff) as u16,
                instructions,
                flags,
                slot_word,
                alloc_function: alloc_function.map_or(0, |entry| entry.function),
                module: SPECIALS.module_at(pc),
                words,
                lengths: lengths(&starts, end),
            })
        };
        if id.is_none() {
            CHANNEL.control().blocks_without_id.fetch_add(1, Ordering::Relaxed);
        }
        Build {
            // A block without an id says so: id 0 with words but no event kind would be misread, so
            // such blocks record nothing.
            low_half: id.map_or(0, |id| RecordHeader::low_half(id, count)),
            words: count,
            arguments,
            returns_value,
            bumps_epoch: bumps_epoch && CHANNEL.is_multi_threaded(),
            next_word: arguments,
            skippable: Skippable { is_behind_jump: false, ..skippable },
            registers,
            pointer: NONE,
            checked: false,
            after: None,
            pc,
            is_request,
            keeps_pointer: alloc_function.is_some_and(|entry| entry.through_pointer),
            tells_pointer,
        }
    }
}

/// Bytes of instructions that begin at these addresses, the last before `end`.
fn lengths(starts: &[u64], end: u64) -> Vec<u8> {
    let ends = starts.iter().skip(1).chain([&end]);
    starts.iter().zip(ends).map(|(start, end)| end.saturating_sub(*start).min(0xff) as u8).collect()
}

/// Where a direct jump goes, or an indirect one through a fixed place, as of a linkage table.
///
/// # Safety
/// `instr` is a decoded instruction of the target's code.
unsafe fn jump_target(instr: *mut instr_t) -> Option<u64> {
    // SAFETY: reads the instruction; the place is read with fault protection.
    unsafe {
        if instr_is_ubr(instr) != 0 || instr_is_cbr(instr) != 0 {
            return Some(instr_get_branch_target_pc(instr) as u64);
        }
        if instr_get_opcode(instr) as u32 != OP_jmp_ind {
            return None;
        }
        let place = instr_get_src(instr, 0);
        let is_fixed = opnd_is_rel_addr(place) != 0 || opnd_is_abs_addr(place) != 0;
        let (mut target, mut read) = (0_u64, 0);
        let is_read =
            is_fixed && dr_safe_read(opnd_get_addr(place), 8, (&raw mut target).cast(), &mut read) != 0;
        is_read.then_some(target)
    }
}

/// Follows an allocation function that ends by a jump.
fn follow_jump(block: u64, pc: u64, target: u64) {
    // A child made by vfork shares all memory, but flushing would wait for its parent, which waits for it.
    if CHANNEL.is_own_process() && SPECIALS.follow_jump(block, pc, target) {
        // Blocks built there so far do not record what they return.
        // SAFETY: allowed in any event; no callback.
        unsafe { dr_delay_flush_region(target as app_pc, CONTINUATION_BYTES as usize, 0, None) };
    }
}

/// Third pass, for each instruction: inserts the recording.
pub unsafe extern "C" fn insert(
    context: *mut c_void,
    _tag: *mut c_void,
    block: *mut instrlist_t,
    instr: *mut instr_t,
    _for_trace: bool_,
    translating: bool_,
    user_data: *mut c_void,
) -> dr_emit_flags_t {
    // SAFETY: `user_data` is the box made in `analyse`; it is taken back at the last instruction.
    unsafe {
        drmgr_disable_auto_predication(context, block);
        let build = &mut *user_data.cast::<Build>();
        let here = Inserter { context, block, at: instr };
        let is_last = drmgr_is_last_instr(context, instr) != 0;
        if build.low_half != 0 || translating != 0 {
            if drmgr_is_first_instr(context, instr) != 0 {
                begin(here, build);
            }
            if let Some((reg, word)) = build.after.take() {
                store_register(here, build, reg, word);
            }
            // See `say_that_flags_are_read`.
            if !build.checked && !operands::keeps_flags_unsaid(instr) {
                let mut dead: bool_ = 0;
                if is_last
                    || (drreg_are_aflags_dead(context, instr, &mut dead) == drreg_status_t_DRREG_SUCCESS
                        && dead != 0)
                {
                    check_space(here, build);
                }
            }
            if instr_is_app(instr) != 0 {
                let at = instr_get_app_pc(instr) as u64;
                let plan = build.skippable.plan(instr, at.saturating_sub(build.pc).min(0xffff) as u16);
                let limit = build.words - usize::from(build.returns_value);
                if build.next_word + plan.words.len() <= limit {
                    for planned in &plan.words {
                        record(here, build, planned);
                    }
                }
            }
            if is_last {
                if build.returns_value {
                    store_register(here, build, RAX, build.words - 1);
                }
                let pointer = build.pointer;
                here.add(pointer, pointer, 8 * (1 + build.words));
                here.store(position(), register(pointer));
                drreg_unreserve_register(context, block, instr, pointer);
            }
        }
        if is_last {
            if build.is_request {
                requests::insert_call(here);
            }
            if build.tells_pointer {
                let callee = crate::tell_pointer as *mut c_void;
                dr_insert_clean_call(context, block, instr, callee, 0, 0);
            }
            drop(Box::from_raw(user_data.cast::<Build>()));
        }
    }
    dr_emit_flags_t::DR_EMIT_DEFAULT
}

/// The part of a block that its own jumps may leave out: the code of a gather or scatter.
#[derive(Default)]
struct Skippable {
    is_behind_jump: bool,
    /// The words that tell whether an access happened.
    told: Vec<usize>,
}

impl Skippable {
    /// The words of the block's next instruction.
    fn plan(&mut self, instr: *mut instr_t, pc_offset: u16) -> operands::Plan {
        let plan = operands::plan(instr, pc_offset);
        self.is_behind_jump |= operands::skips(instr);
        if self.is_behind_jump { plan.of_skippable() } else { plan }
    }
}

fn slot(index: u32) -> opnd_t {
    let segment = STATE.tls_segment.load(Ordering::Relaxed) as reg_id_t;
    thread_slot(segment, STATE.tls_offset.load(Ordering::Relaxed) + 8 * index)
}

fn position() -> opnd_t {
    slot(0)
}

fn limit() -> opnd_t {
    slot(1)
}

fn epoch() -> opnd_t {
    slot(2)
}

fn kept_pointer() -> opnd_t {
    slot(3)
}

/// Reserves a register, with preference for one that the whole block leaves alone: `named` are those it does not.
unsafe fn reserve_pointer(here: Inserter, named: u16) -> reg_id_t {
    // SAFETY: the vector lives on the stack and is deleted; the block is well-formed.
    unsafe {
        let mut allowed: drvector_t = core::mem::zeroed();
        drreg_init_and_fill_vector(&mut allowed, 1);
        for (number, reg) in (DR_REG_RAX..=DR_REG_R15).enumerate() {
            // Saving flags needs rax.
            if named >> number & 1 == 1 || reg == DR_REG_RAX {
                drreg_set_vector_entry(&mut allowed, reg as reg_id_t, 0);
            }
        }
        let mut reg = NONE;
        let status = drreg_reserve_register(here.context, here.block, here.at, &mut allowed, &mut reg);
        drvector_delete(&mut allowed);
        if status == drreg_status_t_DRREG_SUCCESS { reg } else { reserve(here) }
    }
}

/// Reserves any register.
unsafe fn reserve(here: Inserter) -> reg_id_t {
    let mut reg = NONE;
    // SAFETY: a place for the result; the block is well-formed. Six spill slots serve at most five
    // simultaneous reservations, so this does not fail.
    unsafe {
        drreg_reserve_register(here.context, here.block, here.at, core::ptr::null_mut(), &mut reg);
    }
    reg
}

unsafe fn unreserve(here: Inserter, reg: reg_id_t) {
    // SAFETY: reserved before at the same place.
    unsafe { drreg_unreserve_register(here.context, here.block, here.at, reg) };
}

unsafe fn begin(here: Inserter, build: &mut Build) {
    // SAFETY: `here` is the block's first instruction.
    unsafe {
        build.pointer = reserve_pointer(here, build.registers);
        let pointer = build.pointer;
        here.load(register(pointer), position());
        if CHANNEL.is_multi_threaded() {
            let stamp = reserve(here);
            if build.bumps_epoch {
                drreg_reserve_aflags(here.context, here.block, here.at);
                let address = reserve(here);
                here.load(register(address), epoch());
                here.set32(stamp, 1);
                here.exchange_add32(memory(address, 0, OPSZ_4), stamp);
                here.add(stamp, stamp, 1);
                unreserve(here, address);
                drreg_unreserve_aflags(here.context, here.block, here.at);
            } else {
                here.load(register(stamp), epoch());
                here.load(register32(stamp), memory(stamp, 0, OPSZ_4));
            }
            here.store(memory(pointer, 4, OPSZ_4), register32(stamp));
            here.store_immediate(memory(pointer, 0, OPSZ_4), build.low_half);
            unreserve(here, stamp);
        } else {
            here.store_immediate(memory(pointer, 0, OPSZ_8), build.low_half);
        }
        for &word in &build.skippable.told {
            here.store_immediate(word_slot(build, word), 0);
        }
        for (index, &argument) in ARGUMENTS.iter().take(build.arguments).enumerate() {
            store_register(here, build, argument as reg_id_t, index);
        }
        if build.keeps_pointer {
            keep_pointer(here, build);
        }
    }
}

unsafe fn check_space(here: Inserter, build: &mut Build) {
    // SAFETY: the block is well-formed; the stub for this register exists.
    unsafe {
        let pointer = build.pointer;
        drreg_reserve_aflags(here.context, here.block, here.at);
        let (enough, back) = (here.new_label(), here.new_label());
        here.compare(register(pointer), limit());
        here.jump_if_below(enough);
        here.set_label(pointer, back);
        here.jump(STATE.stub(pointer));
        here.label(back);
        here.load(register(pointer), position());
        here.label(enough);
        drreg_unreserve_aflags(here.context, here.block, here.at);
    }
    build.checked = true;
}

/// Keeps the first argument in the thread area until the function returns.
unsafe fn keep_pointer(here: Inserter, build: &Build) {
    let first = ARGUMENTS[0] as reg_id_t;
    // SAFETY: the block is well-formed.
    unsafe {
        if first == build.pointer {
            let copy = reserve(here);
            copy_pointers_app_value(here, build, copy);
            here.store(kept_pointer(), register(copy));
            unreserve(here, copy);
        } else {
            drreg_get_app_value(here.context, here.block, here.at, first, first);
            here.store(kept_pointer(), register(first));
        }
    }
}

fn word_slot(build: &Build, word: usize) -> opnd_t {
    memory(build.pointer, 8 * (1 + word), OPSZ_8)
}

/// Gets what the target has in the register that holds our pointer.
///
/// drreg 11.90 restores a spilled register's value into the register itself whatever destination it is
/// given, so the pointer is fetched again afterwards: until the block's end it equals the position.
unsafe fn copy_pointers_app_value(here: Inserter, build: &Build, copy: reg_id_t) {
    let pointer = build.pointer;
    // SAFETY: the block is well-formed.
    unsafe {
        drreg_get_app_value(here.context, here.block, here.at, pointer, pointer);
        here.load(register(copy), register(pointer));
        here.load(register(pointer), position());
    }
}

unsafe fn store_register(here: Inserter, build: &Build, reg: reg_id_t, word: usize) {
    // SAFETY: the block is well-formed.
    unsafe {
        if reg == build.pointer {
            let copy = reserve(here);
            copy_pointers_app_value(here, build, copy);
            here.store(word_slot(build, word), register(copy));
            unreserve(here, copy);
        } else {
            drreg_get_app_value(here.context, here.block, here.at, reg, reg);
            here.store(word_slot(build, word), register(reg));
        }
    }
}

unsafe fn record(here: Inserter, build: &mut Build, planned: &Planned) {
    let word = build.next_word;
    build.next_word += 1;
    // SAFETY: the operands belong to the instruction at `here`.
    unsafe {
        match planned.source {
            Source::Address(operand) => store_address(here, build, operand, word),
            Source::Register(reg) => store_register(here, build, reg, word),
            Source::RegisterAfter(reg) => build.after = Some((reg, word)),
            Source::Happened => here.store_immediate(word_slot(build, word), 1),
            Source::Mask(opcode, mask) => {
                let bits = reserve(here);
                here.mask_to_register(opcode, bits, mask);
                here.store(word_slot(build, word), register(bits));
                unreserve(here, bits);
            }
        }
    }
}

unsafe fn store_address(here: Inserter, build: &Build, mut operand: opnd_t, word: usize) {
    // SAFETY: the block is well-formed; `operand` is a memory operand of the instruction at `here`.
    unsafe {
        let (context, block, at) = (here.context, here.block, here.at);
        let address = reserve(here);
        if opnd_is_base_disp(operand) == 0 {
            // Absolute or pc-relative: the address is known now.
            if opnd_is_far_memory_reference(operand) != 0 {
                let scratch = reserve(here);
                drutil_insert_get_mem_addr(context, block, at, operand, address, scratch);
                unreserve(here, scratch);
            } else {
                here.set64(address, opnd_get_addr(operand) as u64);
            }
        } else {
            let needs_help = opnd_is_far_memory_reference(operand) != 0
                || instr_get_opcode(at) as u32 == OP_xlat
                || instr_get_opcode(at) as u32 == OP_maskmovdqu;
            let uses_pointer = opnd_uses_reg(operand, build.pointer) != 0;
            let scratch = if needs_help || uses_pointer { reserve(here) } else { NONE };
            let pointer_copy = if needs_help && uses_pointer { reserve(here) } else { scratch };
            if uses_pointer {
                copy_pointers_app_value(here, build, pointer_copy);
                opnd_replace_reg_resize(&mut operand, build.pointer, pointer_copy);
            }
            for reg in [opnd_get_base(operand), opnd_get_index(operand)] {
                if reg != NONE && reg_is_gpr(reg) != 0 {
                    let whole = reg_to_pointer_sized(reg);
                    if whole != scratch && whole != pointer_copy {
                        drreg_get_app_value(context, block, at, whole, whole);
                    }
                }
            }
            if needs_help {
                drutil_insert_get_mem_addr(context, block, at, operand, address, scratch);
            } else {
                here.address_of(address, operand);
            }
            if pointer_copy != NONE && pointer_copy != scratch {
                unreserve(here, pointer_copy);
            }
            if scratch != NONE {
                unreserve(here, scratch);
            }
        }
        here.store(word_slot(build, word), register(address));
        unreserve(here, address);
    }
}
