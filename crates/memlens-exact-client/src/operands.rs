//! Which memory an instruction touches, as the words its block's record gets.

#![allow(non_upper_case_globals)] // opcodes keep DynamoRIO's names

use crate::ir::{general_register, reg_is_gpr, reg_to_pointer_sized};
use dynamorio_sys::*;
use memlens_events::{Word, WordRole};
use memlens_types::{AccessAttr, AccessKind};

/// One word to record for an instruction, and where its value comes from.
#[derive(Clone, Copy)]
pub struct Planned {
    /// What goes into the block's definition.
    pub word: Word,
    /// Where the value comes from.
    pub source: Source,
}

/// Where a recorded word's value comes from.
#[derive(Clone, Copy)]
pub enum Source {
    /// The effective address of a memory operand.
    Address(opnd_t),
    /// A general register before the instruction.
    Register(reg_id_t),
    /// A general register after the instruction.
    RegisterAfter(reg_id_t),
    /// A mask register (`kmov` opcode) or the sign bits of a vector (`vmovmsk` opcode).
    Mask(u32, opnd_t),
    /// 1 where the instruction is executed, 0 where it is jumped over.
    Happened,
}

/// What planning an instruction found.
#[derive(Default)]
pub struct Plan {
    /// The words, in the order in which they are recorded.
    pub words: Vec<Planned>,
    /// Operands whose address cannot be recorded.
    pub unrecorded: u32,
}

impl Plan {
    /// The plan of an instruction that may be jumped over inside of its block: behind each access a word says whether it happened.
    pub fn of_skippable(mut self) -> Self {
        let told = |planned: Planned| {
            let mut happened = planned;
            happened.word.role = WordRole::Mask;
            happened.source = Source::Happened;
            [planned, happened]
        };
        self.words = self.words.into_iter().flat_map(told).collect();
        self
    }
}

/// Whether the instruction jumps over what follows it in its block: of the code that a gather or scatter has become, where an
/// element's mask is asked.
pub fn skips(instr: *mut instr_t) -> bool {
    // SAFETY: `instr` is a decoded instruction of the block being built; a conditional branch has a target.
    unsafe { instr_is_cbr(instr) != 0 && opnd_is_instr(instr_get_target(instr)) != 0 }
}

/// The register that a gather fills, and whether only its lower 8 bytes. None: it fills one of the largest, or is no gather.
pub fn gathers_into(instr: *mut instr_t) -> Option<(reg_id_t, bool)> {
    // SAFETY: as above; a gather's first destination is a vector register.
    let (is_gather, register) = unsafe {
        let is_gather = instr_is_gather(instr) != 0;
        (is_gather, if is_gather { u32::from(opnd_get_reg(instr_get_dst(instr, 0))) } else { 0 })
    };
    if !is_gather {
        return None;
    }
    // DynamoRIO calls it by the size of the indices, of which these have half as many bytes for each.
    let is_half = matches!(opcode(instr), OP_vpgatherqd | OP_vgatherqps);
    let (register, is_low) = match (register, is_half) {
        (DR_REG_XMM0..=DR_REG_XMM31, _) => (register, is_half),
        (DR_REG_YMM0..=DR_REG_YMM31, false) => (register, false),
        (DR_REG_YMM0..=DR_REG_YMM31, true) => (register - DR_REG_YMM0 + DR_REG_XMM0, false),
        (DR_REG_ZMM0..=DR_REG_ZMM31, true) => (register - DR_REG_ZMM0 + DR_REG_YMM0, false),
        _ => return None,
    };
    Some((register as reg_id_t, is_low))
}

/// Whether a gather or scatter has its addresses relative to rax.
pub fn gathers_by_rax(instr: *mut instr_t) -> bool {
    let is_by_rax = |operand: opnd_t| {
        // SAFETY: an operand of a decoded instruction.
        unsafe {
            opnd_is_memory_reference(operand) != 0
                && matches!(u32::from(opnd_get_base(operand)), DR_REG_RAX | DR_REG_EAX)
        }
    };
    // SAFETY: `instr` is a decoded instruction of the block being built. A gather's only operand in memory is a source, a
    // scatter's a destination.
    unsafe {
        let (is_gather, is_scatter) = (instr_is_gather(instr) != 0, instr_is_scatter(instr) != 0);
        (is_gather && (0..instr_num_srcs(instr)).any(|at| is_by_rax(instr_get_src(instr, at as u32))))
            || (is_scatter && (0..instr_num_dsts(instr)).any(|at| is_by_rax(instr_get_dst(instr, at as u32))))
    }
}

fn opcode(instr: *mut instr_t) -> u32 {
    // SAFETY: `instr` is a decoded instruction of the block being built.
    unsafe { instr_get_opcode(instr) as u32 }
}

/// Whether flags from before the instruction count behind it although DynamoRIO 11.90 takes it to write them only: a `cmc`
/// (Intel SDM volume 2, CMC: "CF := NOT CF"), and a shift by a constant that is 0 in the bits that count (SAL/SAR/SHL/SHR: "If
/// the count is 0, the flags are not affected").
pub fn keeps_flags_unsaid(instr: *mut instr_t) -> bool {
    match opcode(instr) {
        OP_cmc => true,
        // SAFETY: `instr` is a decoded instruction of the block being built; shifts have one destination, and a double shift
        // its count as the second source.
        OP_shl | OP_shr | OP_sar | OP_rol | OP_ror | OP_rcl | OP_rcr | OP_shld | OP_shrd => unsafe {
            let counted =
                if opnd_get_size(instr_get_dst(instr, 0)) == OPSZ_8 as opnd_size_t { 63 } else { 31 };
            (0..instr_num_srcs(instr))
                .map(|at| instr_get_src(instr, at as u32))
                .any(|source| opnd_is_immed_int(source) != 0 && opnd_get_immed_int(source) & counted == 0)
        },
        _ => false,
    }
}

/// Whether the instruction repeats a string operation.
pub fn is_repeated_string(instr: *mut instr_t) -> bool {
    matches!(
        opcode(instr),
        OP_rep_ins
            | OP_rep_outs
            | OP_rep_movs
            | OP_rep_stos
            | OP_rep_lods
            | OP_rep_cmps
            | OP_repne_cmps
            | OP_rep_scas
            | OP_repne_scas
    )
}

/// The general registers that the instruction names, reads or writes: a bit each, as the processor numbers them.
pub fn general_registers(instr: *mut instr_t) -> u16 {
    // SAFETY: as above; indices stay below the counts.
    unsafe {
        let sources = (0..instr_num_srcs(instr)).map(|index| instr_get_src(instr, index as u32));
        let targets = (0..instr_num_dsts(instr)).map(|index| instr_get_dst(instr, index as u32));
        let named = sources.chain(targets).flat_map(|operand| {
            (0..opnd_num_regs_used(operand)).map(move |at| opnd_get_reg_used(operand, at))
        });
        named.filter(|&reg| reg_is_gpr(reg) != 0).fold(0, |bits, reg| {
            bits | general_register(reg_to_pointer_sized(reg)).map_or(0, |number| 1 << number)
        })
    }
}

fn touches_memory(instr: *mut instr_t) -> bool {
    let ignored = matches!(opcode(instr), OP_lea | OP_nop_modrm | OP_clflush | OP_clflushopt | OP_clwb);
    // SAFETY: as above.
    !ignored
        && unsafe {
            instr_is_nop(instr) == 0 && (instr_reads_memory(instr) != 0 || instr_writes_memory(instr) != 0)
        }
}

fn memory_operands(instr: *mut instr_t) -> (Vec<opnd_t>, Vec<opnd_t>) {
    // SAFETY: as above; indices stay below the counts.
    unsafe {
        let sources = (0..instr_num_srcs(instr)).map(|index| instr_get_src(instr, index as u32));
        let targets = (0..instr_num_dsts(instr)).map(|index| instr_get_dst(instr, index as u32));
        let is_memory = |operand: &opnd_t| opnd_is_memory_reference(*operand) != 0;
        (sources.filter(is_memory).collect(), targets.filter(is_memory).collect())
    }
}

fn size_bytes(operand: opnd_t) -> u32 {
    // SAFETY: reads a value.
    unsafe { opnd_size_in_bytes(opnd_get_size(operand)) }
}

/// The mask that governs the instruction's memory lanes, and the size of a lane in bytes.
fn lane_mask(instr: *mut instr_t) -> Option<(Source, u32)> {
    let code = opcode(instr);
    if matches!(code, OP_kmovb | OP_kmovw | OP_kmovd | OP_kmovq) {
        return None;
    }
    // SAFETY: as above.
    let sources: Vec<opnd_t> =
        unsafe { (0..instr_num_srcs(instr)).map(|index| instr_get_src(instr, index as u32)).collect() };
    let register = |operand: &opnd_t| {
        // SAFETY: reads a value; the register is only asked of register operands.
        unsafe { (opnd_is_reg(*operand) != 0).then(|| u32::from(opnd_get_reg(*operand))) }
    };
    match code {
        // The vector forms: a lane is active when the sign bit of its mask lane is set. A load's only
        // register source is the mask; a store's are the data and then the mask.
        OP_vmaskmovps | OP_vpmaskmovd => {
            let mask = sources.iter().rfind(|operand| register(operand).is_some())?;
            Some((Source::Mask(OP_vmovmskps, *mask), 4))
        }
        OP_vmaskmovpd | OP_vpmaskmovq => {
            let mask = sources.iter().rfind(|operand| register(operand).is_some())?;
            Some((Source::Mask(OP_vmovmskpd, *mask), 8))
        }
        _ => {
            let mask = sources.iter().find(|operand| {
                register(operand).is_some_and(|reg| (DR_REG_K1..=DR_REG_K7).contains(&reg))
            })?;
            let lane = match code {
                OP_vmovdqu8 => 1,
                OP_vmovdqu16 => 2,
                OP_vmovdqu64 | OP_vmovdqa64 | OP_vmovupd | OP_vmovapd => 8,
                OP_vmovdqu32 | OP_vmovdqa32 | OP_vmovups | OP_vmovaps => 4,
                // Arithmetic with a masked memory operand: counted whole when any lane is active.
                _ => 0,
            };
            Some((Source::Mask(OP_kmovq, *mask), lane))
        }
    }
}

/// Whether its accesses are atomic: by a prefix, or because it exchanges with memory.
fn is_locked(instr: *mut instr_t) -> bool {
    /// `PREFIX_LOCK` of DynamoRIO's `core/ir/instr_api.h`, which the bindings leave out.
    const LOCK: u32 = 1;
    // SAFETY: reads values of the decoded instruction.
    unsafe { instr_get_prefix_flag(instr, LOCK) != 0 || instr_get_opcode(instr) == OP_xchg as i32 }
}

/// Plans the words of one instruction at distance `pc_offset` from its block's start. Which
/// instruction of the block it is, the caller adds.
pub fn plan(instr: *mut instr_t, pc_offset: u16) -> Plan {
    let mut plan = Plan::default();
    if !touches_memory(instr) {
        return plan;
    }
    let (sources, targets) = memory_operands(instr);
    if is_repeated_string(instr) {
        let operands = sources
            .iter()
            .map(|operand| (AccessKind::Load, *operand))
            .chain(targets.iter().map(|operand| (AccessKind::Store, *operand)));
        let mut last = None;
        for (kind, operand) in operands {
            // SAFETY: reads a value; string operands have a base register.
            let base = unsafe { opnd_get_base(operand) };
            let attr = AccessAttr::new(kind, size_bytes(operand));
            let word = Word { role: WordRole::RepStart, pc_offset, instruction: 0, attr };
            plan.words.push(Planned { word, source: Source::Register(base) });
            last = Some((base, attr));
        }
        if let Some((base, attr)) = last {
            let word = Word { role: WordRole::RepEnd, pc_offset, instruction: 0, attr };
            plan.words.push(Planned { word, source: Source::RegisterAfter(base) });
        }
        return plan;
    }
    // SAFETY: as above.
    let is_prefetch = unsafe { instr_is_prefetch(instr) != 0 };
    let is_locked = is_locked(instr);
    let mask = lane_mask(instr);
    let same = |left: &opnd_t, right: &opnd_t| {
        // SAFETY: compares values.
        unsafe { opnd_same_address(*left, *right) != 0 }
    };
    let mut add = |kind: AccessKind, operand: opnd_t| {
        // SAFETY: reads a value.
        if unsafe { opnd_is_vsib(operand) != 0 } {
            plan.unrecorded += 1;
            return;
        }
        // xsave and its kin say no size; their smallest is the legacy area and the header.
        let size = match size_bytes(operand) {
            0 => 576,
            size => size,
        };
        let mut word = Word::address(kind, size, pc_offset);
        if is_locked {
            word.attr = word.attr.locked();
        }
        plan.words.push(Planned { word, source: Source::Address(operand) });
        if let Some((source, lane)) = mask {
            let attr = AccessAttr::new(kind, lane);
            let word = Word { role: WordRole::Mask, pc_offset, instruction: 0, attr };
            plan.words.push(Planned { word, source });
        }
    };
    for source in &sources {
        let kind = if is_prefetch {
            AccessKind::Prefetch
        } else if targets.iter().any(|target| same(source, target)) {
            AccessKind::Modify
        } else {
            AccessKind::Load
        };
        add(kind, *source);
    }
    for target in &targets {
        if !sources.iter().any(|source| same(source, target)) {
            add(AccessKind::Store, *target);
        }
    }
    plan
}
