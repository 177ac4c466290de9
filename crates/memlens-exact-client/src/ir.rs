//! The few machine instructions that instrumentation consists of, as safe-to-read constructors.
//!
//! DynamoRIO's own constructors are C macros; these are their expansions.

use dynamorio_sys::*;

// Exported by DynamoRIO but missing from the bindings' list.
unsafe extern "C" {
    fn reg_64_to_32(reg: reg_id_t) -> reg_id_t;
    /// Whether the register is general (of any size).
    pub fn reg_is_gpr(reg: reg_id_t) -> bool_;
    /// The 64-bit register that contains the register.
    pub fn reg_to_pointer_sized(reg: reg_id_t) -> reg_id_t;
}

/// The operand size of `lea`'s memory operand (`OPSZ_lea` in DynamoRIO's headers).
const OPSZ_LEA: u32 = OPSZ_0;

/// Where instrumentation is inserted: before `at` in `block`.
#[derive(Clone, Copy)]
pub struct Inserter {
    /// The context of the thread that builds the block.
    pub context: *mut core::ffi::c_void,
    /// The block.
    pub block: *mut instrlist_t,
    /// The instruction before which new ones go.
    pub at: *mut instr_t,
}

/// A general register as an operand.
pub fn register(reg: reg_id_t) -> opnd_t {
    // SAFETY: builds a value; any register id is accepted.
    unsafe { opnd_create_reg(reg) }
}

/// The low 32 bits of a general register as an operand.
pub fn register32(reg: reg_id_t) -> opnd_t {
    // SAFETY: as above; `reg` is one of the 16 general registers.
    unsafe { opnd_create_reg(reg_64_to_32(reg)) }
}

/// The number, as the processor counts, of a general register of 64 or 32 bits.
pub fn general_register(reg: reg_id_t) -> Option<u8> {
    match u32::from(reg) {
        reg @ DR_REG_RAX..=DR_REG_R15 => Some((reg - DR_REG_RAX) as u8),
        reg @ DR_REG_EAX..=DR_REG_R15D => Some((reg - DR_REG_EAX) as u8),
        _ => None,
    }
}

/// Whether the register is a general one of 64 bits.
pub fn is_wide_register(reg: reg_id_t) -> bool {
    (DR_REG_RAX..=DR_REG_R15).contains(&u32::from(reg))
}

/// Memory at `base + displacement`.
pub fn memory(base: reg_id_t, displacement: usize, size: u32) -> opnd_t {
    // SAFETY: builds a value.
    unsafe {
        opnd_create_base_disp(base, DR_REG_NULL as reg_id_t, 0, displacement as i32, size as opnd_size_t)
    }
}

/// A slot of the thread area that the segment register `segment` points to.
pub fn thread_slot(segment: reg_id_t, offset: u32) -> opnd_t {
    let none = DR_REG_NULL as reg_id_t;
    // SAFETY: builds a value.
    unsafe { opnd_create_far_base_disp(segment, none, none, 0, offset as i32, OPSZ_8 as opnd_size_t) }
}

fn immediate32(value: i64) -> opnd_t {
    // SAFETY: builds a value.
    unsafe { opnd_create_immed_int(value as ptr_int_t, OPSZ_4 as opnd_size_t) }
}

impl Inserter {
    fn insert(self, instr: *mut instr_t) {
        // SAFETY: `instr` was just made in this context and is given to the list, which owns it.
        unsafe { instrlist_meta_preinsert(self.block, self.at, instr) }
    }

    fn one_to_one(self, opcode: u32, to: opnd_t, from: opnd_t) {
        // SAFETY: creates an instruction in the context's heap.
        self.insert(unsafe { instr_create_1dst_1src(self.context, opcode as i32, to, from) });
    }

    /// `mov to, [from]`
    pub fn load(self, to: opnd_t, from: opnd_t) {
        self.one_to_one(OP_mov_ld, to, from);
    }

    /// `mov [to], from`
    pub fn store(self, to: opnd_t, from: opnd_t) {
        self.one_to_one(OP_mov_st, to, from);
    }

    /// `mov [to], value`, sign-extended when `to` has 8 bytes
    pub fn store_immediate(self, to: opnd_t, value: u32) {
        self.store(to, immediate32(i64::from(value as i32)));
    }

    /// `mov to, value` (32 bits, zero-extended)
    pub fn set32(self, to: reg_id_t, value: u32) {
        self.one_to_one(OP_mov_imm, register32(to), immediate32(i64::from(value as i32)));
    }

    /// `lea to, [base + displacement]`
    pub fn add(self, to: reg_id_t, base: reg_id_t, displacement: usize) {
        self.one_to_one(OP_lea, register(to), memory(base, displacement, OPSZ_LEA));
    }

    /// `lea to, address`
    pub fn address_of(self, to: reg_id_t, mut address: opnd_t) {
        // SAFETY: changes the operand's size, as `lea` wants it.
        unsafe { opnd_set_size(&mut address, OPSZ_LEA as opnd_size_t) };
        self.one_to_one(OP_lea, register(to), address);
    }

    /// `mov to, value` (64 bits)
    pub fn set64(self, to: reg_id_t, value: u64) {
        // SAFETY: builds a value.
        let value = unsafe { opnd_create_immed_int(value as ptr_int_t, OPSZ_8 as opnd_size_t) };
        self.one_to_one(OP_mov_imm, register(to), value);
    }

    /// `mov to, offset label`
    pub fn set_label(self, to: reg_id_t, label: *mut instr_t) {
        // SAFETY: builds a value; the label is in the same list.
        self.one_to_one(OP_mov_imm, register(to), unsafe { opnd_create_instr(label) });
    }

    /// `kmovq to, mask` or `vmovmsk to, vector`: a mask as an integer. The register is a 64-bit one
    /// for all of them: DynamoRIO has no encoding of `vmovmsk` to another.
    pub fn mask_to_register(self, opcode: u32, to: reg_id_t, mask: opnd_t) {
        self.one_to_one(opcode, register(to), mask);
    }

    /// `cmp left, right`
    pub fn compare(self, left: opnd_t, right: opnd_t) {
        // SAFETY: creates an instruction in the context's heap.
        self.insert(unsafe { instr_create_0dst_2src(self.context, OP_cmp as i32, left, right) });
    }

    /// `lock xadd [to], register` (32 bits); `register` gets the old value
    pub fn exchange_add32(self, to: opnd_t, reg: reg_id_t) {
        let reg = register32(reg);
        // SAFETY: creates an instruction in the context's heap and sets its lock prefix.
        unsafe {
            let instr = instr_create_2dst_2src(self.context, OP_xadd as i32, to, reg, to, reg);
            self.insert(instr_set_prefix_flag(instr, PREFIX_LOCK));
        }
    }

    /// A label, not inserted yet.
    pub fn new_label(self) -> *mut instr_t {
        // SAFETY: creates an instruction in the context's heap.
        unsafe { instr_create_0dst_0src(self.context, OP_LABEL as i32) }
    }

    /// Puts a label here.
    pub fn label(self, label: *mut instr_t) {
        self.insert(label);
    }

    /// `jb label`
    pub fn jump_if_below(self, label: *mut instr_t) {
        // SAFETY: creates an instruction; the label is (or will be) in the same list.
        let target = unsafe { opnd_create_instr(label) };
        // SAFETY: creates an instruction in the context's heap.
        self.insert(unsafe { instr_create_0dst_1src(self.context, OP_jb as i32, target) });
    }

    /// `jmp pc`
    pub fn jump(self, pc: *mut u8) {
        // SAFETY: builds a value.
        let target = unsafe { opnd_create_pc(pc) };
        // SAFETY: creates an instruction in the context's heap.
        self.insert(unsafe { instr_create_0dst_1src(self.context, OP_jmp as i32, target) });
    }
}

/// `PREFIX_LOCK` of DynamoRIO's instruction representation.
const PREFIX_LOCK: u32 = 0x1;
