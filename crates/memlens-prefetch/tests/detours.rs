//! Random loops, run as they are and with detours: registers, flags and memory are the same, and nothing faults though
//! the walked arrays end where memory ends.

use std::arch::asm;
use std::ptr;

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Instruction, InstructionBlock, MemoryOperand, Register,
};
use memlens_prefetch::{COUNTERS, Function, Task, jumps, plan};

const PAGE: usize = 4096;
const TABLE_WORDS: usize = 512;

/// What a loop works on. r13 points behind the registers, to the table.
#[derive(Clone, Debug, PartialEq)]
#[repr(C, align(64))]
struct State {
    /// By number; those of rsp and r13 are not used.
    registers: [u64; 16],
    flags: u64,
    padding: [u64; 7],
    table: [u64; TABLE_WORDS],
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 33) % bound as u64) as usize
    }

    fn is(&mut self) -> bool {
        self.below(2) == 0
    }
}

fn wide(register: usize) -> Register {
    Register::RAX + register as u32
}

fn narrow(register: usize) -> Register {
    Register::EAX + register as u32
}

/// A loop: its instructions, and what its registers must hold at first.
struct Made {
    instructions: Vec<Instruction>,
    /// Position of the access to the table.
    target: usize,
    base: usize,
    counter: usize,
    /// Bytes of an element and of a step through the array.
    element: usize,
    step: i64,
    iterations: usize,
    /// Whether it ends in a return, rather than a jump to another function.
    returns: bool,
}

/// Registers that a caller expects to be changed, other than results: rcx, rsi, rdi, r8 to r11.
const CHANGED_BY_CALLS: [usize; 7] = [1, 6, 7, 8, 9, 10, 11];

const LABEL: u64 = 1;

/// Makes a loop `table[f(array[i])]`, with other work between.
fn make(random: &mut Random, elsewhere: u64) -> Made {
    let mut free: Vec<usize> = vec![0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15];
    let mut take = |random: &mut Random| free.swap_remove(random.below(free.len()));
    let (base, counter, value, sum, other, spare) =
        (take(random), take(random), take(random), take(random), take(random), take(random));
    let element = [1, 2, 4, 8][random.below(4)];
    let (elements_a_step, backwards) = ([1, 1, 1, 2, 3][random.below(5)], random.is());
    let step = (element * elements_a_step) as i64 * if backwards { -1 } else { 1 };
    let iterations = 1 + random.below(2 * PAGE / (element * elements_a_step) / 2).min(700);
    let mut code: Vec<Instruction> = Vec::new();
    let mut put = |instruction: Result<Instruction, iced_x86::IcedError>| {
        code.push(instruction.expect("valid"));
    };
    // Work that the slice has nothing to do with; flags and the red zone in use.
    let filler = |random: &mut Random| match random.below(9) {
        0 => Instruction::with2(Code::Add_r64_rm64, wide(sum), wide(other)),
        1 => Instruction::with2(Code::Adc_r64_rm64, wide(sum), wide(spare)),
        2 => Instruction::with2(
            Code::Mov_rm64_r64,
            MemoryOperand::with_base_displ(Register::RSP, -8 * (1 + random.below(16) as i64)),
            wide(sum),
        ),
        3 => Instruction::with2(
            Code::Xor_r64_rm64,
            wide(sum),
            MemoryOperand::with_base_displ(Register::RSP, -8 * (1 + random.below(16) as i64)),
        ),
        4 => Instruction::with2(Code::Cmovb_r64_rm64, wide(spare), wide(other)),
        5 => Instruction::with2(
            Code::Lea_r64_m,
            wide(other),
            MemoryOperand::with_base_index(wide(sum), wide(spare)),
        ),
        6 => Instruction::with2(Code::Imul_r64_rm64, wide(other), wide(sum)),
        7 => Instruction::with2(Code::Cmp_r64_rm64, wide(sum), wide(other)),
        _ => Instruction::with2(Code::Shr_rm64_imm8, wide(spare), 3),
    };
    let fill = |random: &mut Random, put: &mut dyn FnMut(Result<Instruction, iced_x86::IcedError>)| {
        for _ in 0..random.below(4) {
            put(filler(random));
        }
    };
    fill(random, &mut put);
    let place = MemoryOperand::with_base_displ(wide(base), 0);
    let load = match (element, random.is()) {
        (1, true) => Code::Movzx_r32_rm8,
        (1, false) => Code::Movsx_r64_rm8,
        (2, true) => Code::Movzx_r32_rm16,
        (2, false) => Code::Movsx_r64_rm16,
        (4, true) => Code::Mov_r32_rm32,
        (4, false) => Code::Movsxd_r64_rm32,
        _ => Code::Mov_r64_rm64,
    };
    let into = if matches!(load, Code::Movzx_r32_rm8 | Code::Movzx_r32_rm16 | Code::Mov_r32_rm32) {
        narrow(value)
    } else {
        wide(value)
    };
    let step_early = random.is();
    put(Instruction::with2(load, into, place));
    if step_early {
        put(Instruction::with2(Code::Add_rm64_imm32, wide(base), step as i32));
    }
    fill(random, &mut put);
    for _ in 0..random.below(5) {
        put(match random.below(8) {
            0 => Instruction::with3(Code::Imul_r64_rm64_imm32, wide(value), wide(value), 0x51ed_2701),
            1 => Instruction::with2(Code::Shr_rm64_imm8, wide(value), 5),
            // Nothing in the loop writes it.
            2 => Instruction::with2(Code::Xor_r64_rm64, wide(value), Register::R13),
            3 if value == 0 => Instruction::with2(Code::Add_EAX_imm32, Register::EAX, 0x1234),
            3 => Instruction::with2(Code::Add_rm32_imm32, narrow(value), 0x1234),
            4 => Instruction::with2(
                Code::Lea_r64_m,
                wide(value),
                MemoryOperand::new(wide(value), wide(value), 2, 77, 1, false, Register::None),
            ),
            5 => Instruction::with1(Code::Not_rm64, wide(value)),
            // From memory that the loop may write: any value will do for a prefetch.
            6 => Instruction::with2(
                Code::Add_r64_rm64,
                wide(value),
                MemoryOperand::with_base_displ(Register::R13, 8 * random.below(TABLE_WORDS) as i64),
            ),
            _ => Instruction::with2(
                Code::Xor_r64_rm64,
                wide(value),
                MemoryOperand::with_base_displ(Register::RSP, -8 * (1 + random.below(16) as i64)),
            ),
        });
        fill(random, &mut put);
    }
    put(Instruction::with2(Code::And_rm32_imm32, narrow(value), TABLE_WORDS as i32 - 1));
    let entry = MemoryOperand::new(Register::R13, wide(value), 8, 0, 1, false, Register::None);
    put(match random.below(3) {
        0 => Instruction::with2(Code::Add_r64_rm64, wide(sum), entry),
        1 => Instruction::with2(Code::Xor_rm64_r64, entry, wide(sum)),
        _ => Instruction::with2(Code::Mov_r64_rm64, wide(other), entry),
    });
    let target = code.len() - 1;
    let mut put = |instruction: Result<Instruction, iced_x86::IcedError>| {
        code.push(instruction.expect("valid"));
    };
    fill(random, &mut put);
    if !step_early {
        put(Instruction::with2(Code::Add_rm64_imm32, wide(base), step as i32));
    }
    put(Instruction::with2(Code::Sub_rm64_imm32, wide(counter), 1));
    put(Instruction::with_branch(Code::Jne_rel32_64, LABEL));
    // A caller knows which registers a function may have changed; somebody it goes on to may want all of them.
    let returns = random.is();
    put(match returns {
        true => Ok(Instruction::with(Code::Retnq)),
        false => Instruction::with_branch(Code::Jmp_rel32_64, elsewhere),
    });
    code[0].set_ip(LABEL);
    Made { instructions: code, target, base, counter, element, step, iterations, returns }
}

/// Memory of our own.
fn map(bytes: usize, access: i32) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

/// Calls the code with the state in the registers.
unsafe fn run(code: u64, state: &mut State) {
    // SAFETY: the code keeps rsp and r13, and all other registers are named or saved. What it keeps below the stack
    // pointer lies below what is kept here.
    unsafe {
        asm!(
            "sub rsp, 256",
            "push rbx",
            "push rbp",
            "push r8",
            "push r9",
            "mov r13, r8",
            "push qword ptr [r13 + 128]",
            "popfq",
            "mov rax, [r13]",
            "mov rcx, [r13 + 8]",
            "mov rdx, [r13 + 16]",
            "mov rbx, [r13 + 24]",
            "mov rbp, [r13 + 40]",
            "mov rsi, [r13 + 48]",
            "mov rdi, [r13 + 56]",
            "mov r8, [r13 + 64]",
            "mov r9, [r13 + 72]",
            "mov r10, [r13 + 80]",
            "mov r11, [r13 + 88]",
            "mov r12, [r13 + 96]",
            "mov r14, [r13 + 112]",
            "mov r15, [r13 + 120]",
            "lea r13, [r13 + 192]",
            "call [rsp]",
            "lea r13, [r13 - 192]",
            "mov [r13], rax",
            "mov [r13 + 8], rcx",
            "mov [r13 + 16], rdx",
            "mov [r13 + 24], rbx",
            "mov [r13 + 40], rbp",
            "mov [r13 + 48], rsi",
            "mov [r13 + 56], rdi",
            "mov [r13 + 64], r8",
            "mov [r13 + 72], r9",
            "mov [r13 + 80], r10",
            "mov [r13 + 88], r11",
            "mov [r13 + 96], r12",
            "mov [r13 + 112], r14",
            "mov [r13 + 120], r15",
            "pushfq",
            "pop qword ptr [r13 + 128]",
            "cld",
            "pop r9",
            "pop r8",
            "pop rbp",
            "pop rbx",
            "add rsp, 256",
            inout("r8") &raw mut *state => _, inout("r9") code => _,
            out("rax") _, out("rdi") _, out("rsi") _, out("rdx") _,
            out("rcx") _, out("r10") _, out("r11") _, out("r12") _, out("r13") _, out("r14") _, out("r15") _,
        );
    }
}

/// The red zone's content is part of what the loop reads: it is the same before each run.
#[inline(never)]
fn clear_stack() {
    let mut words = [0_u64; 256];
    // SAFETY: an array of our own; written so that it is not left out.
    words.iter_mut().for_each(|word| unsafe { ptr::write_volatile(word, 0x5555) });
}

#[test]
fn random_loops_do_the_same_with_detours() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let code = map(64 * PAGE, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
    let trampoline = 32 * PAGE;
    let counters = 56 * PAGE;
    let can_count = std::arch::is_x86_feature_detected!("bmi2");
    // ret
    // SAFETY: our own memory.
    unsafe { code.add(48 * PAGE).write(0xc3) };
    // Pages that may not be touched on both sides of the array.
    let guarded = map(4 * PAGE, libc::PROT_NONE);
    // SAFETY: our own pages.
    let array = unsafe {
        let array = guarded.add(PAGE);
        assert_eq!(libc::mprotect(array.cast(), 2 * PAGE, libc::PROT_READ | libc::PROT_WRITE), 0);
        std::slice::from_raw_parts_mut(array, 2 * PAGE)
    };
    let (mut patched, mut saved, mut flags_kept, mut counted) = (0, 0, 0, 0);
    for number in 0..4000 {
        let made = make(&mut random, code as u64 + (48 * PAGE) as u64);
        let at = code as u64;
        let block = InstructionBlock::new(&made.instructions, at);
        let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS)
            .expect("encodes");
        let bytes = encoded.code_buffer;
        // SAFETY: our own memory, in which nothing runs now.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), code, bytes.len()) };
        array.iter_mut().for_each(|byte| *byte = random.next() as u8);
        let mut before = State {
            registers: [0; 16].map(|_: u64| random.next()),
            flags: 0x202 | random.next() & 0x8d5,
            padding: [0; 7],
            table: [0; TABLE_WORDS].map(|_: u64| random.next()),
        };
        // The last element read ends where the array ends, or begins where it begins.
        let start = if made.step > 0 {
            array.len() as i64 - made.element as i64 - (made.iterations as i64 - 1) * made.step
        } else {
            (made.iterations as i64 - 1) * -made.step
        };
        before.registers[made.base] = (array.as_ptr() as u64).wrapping_add_signed(start);
        before.registers[made.counter] = made.iterations as u64;
        let mut state = Box::new(before.clone());
        clear_stack();
        // SAFETY: code of our making.
        unsafe { run(at, &mut state) };
        let mut native = state.clone();

        let all = jumps(at, &bytes);
        let function = Function::new(&[(at, &bytes)], &all).expect("a plain function");
        let target = at + u64::from(encoded.new_instruction_offsets[made.target]);
        let plan = plan(&function, &[target], &all);
        let Some(detour) = plan.detours.first() else { continue };
        patched += 1;
        saved += usize::from(detour.saved > 0);
        let task = Task {
            distance: (random.below(4) > 0).then(|| 1 + random.below(100) as u32),
            counters: (can_count && random.is()).then_some(at + counters as u64),
            twice: (can_count && random.is()).then_some(at + (counters + PAGE) as u64),
        };
        let moved = detour.encode_for(task, at + trampoline as u64).expect("encodes");
        // SAFETY: our own memory, aligned to pages.
        let table = unsafe { std::slice::from_raw_parts_mut(code.add(counters).cast::<u64>(), COUNTERS) };
        table.fill(0);
        flags_kept += usize::from(moved.bytes.contains(&0x9c));
        // SAFETY: as above.
        unsafe {
            ptr::copy_nonoverlapping(moved.bytes.as_ptr(), code.add(trampoline), moved.bytes.len());
            let place = code.add((detour.address - at) as usize);
            assert_eq!(std::slice::from_raw_parts(place, detour.displaced.len()), detour.displaced);
            let distance = trampoline as i32 - (detour.address - at) as i32 - 5;
            place.write(0xe9);
            place.add(1).cast::<i32>().write_unaligned(distance);
        }
        // In the same place: its address may be part of what is computed.
        *state = before;
        let mut again = state;
        clear_stack();
        // SAFETY: as above.
        unsafe { run(at, &mut again) };
        if made.returns {
            for register in CHANGED_BY_CALLS {
                (native.registers[register], again.registers[register]) = (0, 0);
            }
        }
        if task.counters.is_some() {
            assert_eq!(table.iter().sum::<u64>(), made.iterations as u64, "loop {number}");
            counted += 1;
        }
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let code: String = moved.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            (again.registers, again.flags),
            (native.registers, native.flags),
            "loop {number}: {text}: {code}"
        );
        assert!(*again == *native, "loop {number}: {text}; detour at {:#x}: {code}", detour.address - at);
    }
    eprintln!("{patched} loops with detours, {saved} save registers, {flags_kept} flags");
    assert!(patched > 2500 && saved > 100, "{patched} {saved}");
    assert!(counted > 1000 || !can_count, "{counted}");
}
