//! x86-64: what its instructions read, write and take.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};

use super::{Effects, Leads, Order, RegisterSet, Unit};

const FIRST_VECTOR: u32 = 16;
const FLAGS: u32 = 48;
const FIRST_MASK: u32 = 49;

impl RegisterSet {
    /// The stack pointer.
    const STACK_POINTER: Self = Self(1 << 4);
    /// Vector registers and masks.
    const VECTORS: Self = Self(((1 << 32) - 1) << FIRST_VECTOR | ((1 << 8) - 1) << FIRST_MASK);
    /// What string instructions count and go by: rcx, rsi and rdi.
    const STRING_POINTERS: Self = Self(1 << 1 | 1 << 6 | 1 << 7);

    fn of(register: Register) -> Self {
        let register = register.full_register();
        let bit = match register {
            _ if register.is_gpr64() => register.number() as u32,
            _ if register.is_vector_register() => FIRST_VECTOR + register.number() as u32,
            _ if register.is_k() => FIRST_MASK + register.number() as u32,
            _ => return Self::default(),
        };
        Self(1 << bit)
    }
}

/// The instructions of a function. What is no instruction is passed over.
pub(super) fn effects(code: &[u8], start: u64) -> Vec<Effects> {
    let mut factory = InstructionInfoFactory::new();
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut found = Vec::with_capacity(code.len() / 4);
    while decoder.can_decode() {
        let at = decoder.position();
        let instruction = decoder.decode();
        if !instruction.is_invalid() {
            found.push(Effects::of(&instruction, factory.info(&instruction)));
        } else if decoder.set_position(at + 1).is_ok() {
            decoder.set_ip(start + (at as u64 + 1));
        } else {
            break;
        }
    }
    found
}

impl Effects {
    fn of(instruction: &Instruction, info: &InstructionInfo) -> Self {
        // What `lea` computes is no access.
        let accesses = || info.used_memory().iter().filter(|memory| memory.access() != OpAccess::NoMemAccess);
        let mut address = RegisterSet::default();
        for memory in accesses() {
            address |= RegisterSet::of(memory.base());
            address |= RegisterSet::of(memory.index());
        }
        let mut explicit = RegisterSet::default();
        let (mut reads, mut writes) = (RegisterSet::default(), RegisterSet::default());
        for operand in 0..instruction.op_count() {
            if instruction.op_kind(operand) == OpKind::Register && is_read(info.op_access(operand)) {
                explicit |= RegisterSet::of(instruction.op_register(operand));
            }
        }
        for used in info.used_registers() {
            let register = RegisterSet::of(used.register());
            // Of a register that serves as an address the contents are no operand, unless it is one besides.
            if is_read(used.access()) && (!register.intersects(address) || register.intersects(explicit)) {
                reads |= register;
            }
            if is_written(used.access()) {
                writes |= register;
                // Bytes and words leave the rest of their register as it was.
                if used.register().is_gpr8() || used.register().is_gpr16() {
                    reads |= register;
                }
            }
        }
        if instruction.rflags_read() != 0 {
            reads |= RegisterSet(1 << FLAGS);
        }
        if instruction.rflags_modified() != 0 {
            writes |= RegisterSet(1 << FLAGS);
        }
        if is_zeroing(instruction) {
            reads = RegisterSet::default();
        }
        if instruction.is_stack_instruction() {
            let pointer = RegisterSet::STACK_POINTER;
            (address, reads, writes) =
                (address.without(pointer), reads.without(pointer), writes.without(pointer));
        }
        if copies_string(instruction) {
            writes = writes.without(RegisterSet::STRING_POINTERS);
        }
        let latency_cycles = latency_cycles(instruction);
        let touches_memory = accesses().next().is_some();
        let unit = match instruction.mnemonic() {
            _ if touches_memory && latency_cycles == 0 => Unit::Address,
            Mnemonic::Imul | Mnemonic::Mul | Mnemonic::Mulx => Unit::Multiply,
            _ if reads.intersects(RegisterSet::VECTORS) || writes.intersects(RegisterSet::VECTORS) => {
                Unit::Vector
            }
            _ => Unit::Integer,
        };
        Self {
            at: instruction.ip(),
            next: instruction.next_ip(),
            leads: leads(instruction),
            address,
            reads,
            writes,
            moves: RegisterSet::default(),
            latency_cycles,
            unit,
            order: Order::Free,
            touches_memory,
            repeats: instruction.is_string_instruction()
                && (instruction.has_rep_prefix() || instruction.has_repne_prefix()),
        }
    }
}

/// Whether it moves elements on, whatever they are.
fn copies_string(instruction: &Instruction) -> bool {
    use Mnemonic::{Cmpsb, Cmpsd, Cmpsq, Cmpsw, Scasb, Scasd, Scasq, Scasw};
    let compares =
        matches!(instruction.mnemonic(), Cmpsb | Cmpsw | Cmpsd | Cmpsq | Scasb | Scasw | Scasd | Scasq);
    instruction.is_string_instruction() && !compares
}

fn is_read(access: OpAccess) -> bool {
    use OpAccess::{CondRead, Read, ReadCondWrite, ReadWrite};
    matches!(access, Read | CondRead | ReadWrite | ReadCondWrite)
}

fn is_written(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

fn leads(instruction: &Instruction) -> Leads {
    let target = instruction.near_branch_target();
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::Interrupt | FlowControl::XbeginXabortXend => Leads::On,
        FlowControl::ConditionalBranch => Leads::Either(target),
        // The kernel comes back to the next one.
        FlowControl::Call if instruction.mnemonic() == Mnemonic::Syscall => Leads::On,
        FlowControl::UnconditionalBranch | FlowControl::Call => Leads::To(target),
        FlowControl::IndirectCall
        | FlowControl::IndirectBranch
        | FlowControl::Return
        | FlowControl::Exception => Leads::Away,
    }
}

/// Whether the result is 0 whatever its registers hold, which cores know (Intel 64 and IA-32 Architectures Optimization
/// Reference Manual, 248966-050, section 3.5.1.7).
fn is_zeroing(instruction: &Instruction) -> bool {
    use Mnemonic::{Pxor, Sub, Vpxor, Vpxord, Vpxorq, Vxorpd, Vxorps, Xor, Xorpd, Xorps};
    let last = instruction.op_count().saturating_sub(1);
    matches!(
        instruction.mnemonic(),
        Xor | Sub | Pxor | Xorps | Xorpd | Vpxor | Vpxord | Vpxorq | Vxorps | Vxorpd
    ) && last > 0
        && instruction.op_kind(last) == OpKind::Register
        && instruction.op_kind(last - 1) == OpKind::Register
        && instruction.op_register(last) == instruction.op_register(last - 1)
}

/// Cycles of the kinds of instructions that take more than one, to a cycle or two what cores of the last ten years have in
/// common (A. Fog, Instruction Tables, 2022: Zen 2 to 4, Skylake to Ice Lake). What waits for memory takes hundreds.
fn latency_cycles(instruction: &Instruction) -> u8 {
    use Mnemonic as M;
    match instruction.mnemonic() {
        M::Mov
        | M::Movaps
        | M::Movups
        | M::Movdqa
        | M::Movdqu
        | M::Vmovaps
        | M::Vmovups
        | M::Vmovdqa
        | M::Vmovdqu
        | M::Nop
        | M::Push
        | M::Pop
        | M::Jmp
        | M::Call
        | M::Ret
        | M::Endbr64 => 0,
        M::Imul | M::Mul | M::Mulx | M::Popcnt | M::Crc32 | M::Pdep | M::Pext => 3,
        M::Div | M::Idiv => 14,
        M::Divss | M::Vdivss | M::Divps | M::Vdivps | M::Sqrtss | M::Vsqrtss | M::Sqrtps | M::Vsqrtps => 12,
        M::Divsd | M::Vdivsd | M::Divpd | M::Vdivpd | M::Sqrtsd | M::Vsqrtsd | M::Sqrtpd | M::Vsqrtpd => 15,
        M::Addss
        | M::Addsd
        | M::Addps
        | M::Addpd
        | M::Subss
        | M::Subsd
        | M::Subps
        | M::Subpd
        | M::Mulss
        | M::Mulsd
        | M::Mulps
        | M::Mulpd
        | M::Vaddss
        | M::Vaddsd
        | M::Vaddps
        | M::Vaddpd
        | M::Vsubss
        | M::Vsubsd
        | M::Vsubps
        | M::Vsubpd
        | M::Vmulss
        | M::Vmulsd
        | M::Vmulps
        | M::Vmulpd => 3,
        M::Cvtsi2sd
        | M::Cvtsi2ss
        | M::Cvttsd2si
        | M::Cvttss2si
        | M::Vcvtsi2sd
        | M::Vcvtsi2ss
        | M::Vcvttsd2si
        | M::Vcvttss2si
        | M::Cvtss2sd
        | M::Cvtsd2ss
        | M::Vcvtss2sd
        | M::Vcvtsd2ss
        | M::Aesenc
        | M::Aesdec
        | M::Vaesenc
        | M::Vaesdec
        | M::Pclmulqdq
        | M::Pmulld
        | M::Vpmulld
        | M::Pmuludq
        | M::Vpmuludq
        | M::Pmaddwd
        | M::Vpmaddwd => 4,
        mnemonic if is_fused_multiply(mnemonic) => 4,
        _ => 1,
    }
}

fn is_fused_multiply(mnemonic: Mnemonic) -> bool {
    let number = mnemonic as usize;
    (Mnemonic::Vfmadd132pd as usize..=Mnemonic::Vfnmsub231ss as usize).contains(&number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers(bits: &[u32]) -> RegisterSet {
        RegisterSet(bits.iter().map(|bit| 1 << bit).sum())
    }

    #[test]
    fn addresses_operands_and_results_are_told_apart() {
        // lea rax, [rbx+rcx*8] ; add rax, [rbx+rcx*8] ; mov [rdi], rdi ; push rbx ; xor eax, eax ; jne start
        let code =
            [0x48, 0x8d, 0x04, 0xcb, 0x48, 0x03, 0x04, 0xcb, 0x48, 0x89, 0x3f, 0x53, 0x31, 0xc0, 0x75, 0xf0];
        let found = effects(&code, 0x1000);
        let [lea, add, store, push, zero, jump] = found[..] else { panic!("{found:?}") };
        assert_eq!((lea.address, lea.reads, lea.touches_memory), (registers(&[]), registers(&[1, 3]), false));
        assert_eq!(
            (add.address, add.reads, add.writes),
            (registers(&[1, 3]), registers(&[0]), registers(&[0, FLAGS]))
        );
        assert_eq!(
            (store.address, store.reads, store.writes),
            (registers(&[7]), registers(&[7]), registers(&[]))
        );
        assert_eq!(
            (push.address, push.reads, push.writes),
            (registers(&[]), registers(&[3]), registers(&[]))
        );
        assert_eq!((zero.reads, zero.writes), (registers(&[]), registers(&[0, FLAGS])));
        let units = [lea, add, store, jump].map(|it| it.unit);
        assert_eq!(units, [Unit::Integer, Unit::Integer, Unit::Address, Unit::Integer]);
        assert_eq!((jump.leads, jump.reads), (Leads::Either(0x1000), registers(&[FLAGS])));
        assert_eq!((add.touches_memory, zero.touches_memory, push.next), (true, false, 0x100c));
    }

    #[test]
    fn string_instructions_do_not_wait_for_what_they_copy() {
        // rep movsb ; lodsb ; repne scasb
        let found = effects(&[0xf3, 0xa4, 0xac, 0xf2, 0xae], 0x1000);
        let [copy, load, length] = found[..] else { panic!("{found:?}") };
        assert_eq!((copy.address, copy.touches_memory), (registers(&[6, 7]), true));
        assert_eq!((copy.writes, load.writes), (RegisterSet::default(), registers(&[0])));
        assert!(length.writes.intersects(registers(&[1])), "how far it came depends on what was there");
    }

    #[test]
    fn calls_lead_to_their_functions_and_returns_away() {
        // call 0x1010 ; syscall ; jmp rax ; ret
        let code = [0xe8, 0x0b, 0, 0, 0, 0x0f, 0x05, 0xff, 0xe0, 0xc3];
        let leads: Vec<Leads> = effects(&code, 0x1000).iter().map(|it| it.leads).collect();
        assert_eq!(leads, [Leads::To(0x1010), Leads::On, Leads::Away, Leads::Away]);
    }
}
