//! Random instructions, run natively and in a burst: registers, flags, vector registers and memory are the same, and
//! the recorded addresses are those of the instructions' operands.
//!
//! With `MEMLENS_STATES` set they are run once, and the states in which they end are printed: `tests/random_code.py` holds
//! those of exact mode against the native ones.
#![cfg(target_arch = "x86_64")]

mod support;

use std::arch::asm;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use iced_x86::{Decoder, DecoderOptions};
use memlens_burst::{code_has_changed, filter_operations};
use memlens_events::burst::Use;
use support::gathers::{Gathering, Set};
use support::{BURST_WORDS, COUNTED, COUNTED_WORDS, accesses, forget_words, listen, prepare, summary};

const DATA_BYTES: usize = 4096;
/// Files whose addresses are compared, too: stepping takes some microseconds an instruction.
const STEPPED_FILES: u64 = 20;

/// What a piece of code works on.
#[derive(Clone, Debug, PartialEq)]
#[repr(C, align(64))]
struct State {
    /// By number; those of rsp and r13 are not used.
    registers: [u64; 16],
    flags: u64,
    padding: u64,
    vectors: [[u64; 2]; 4],
    data: [u8; DATA_BYTES],
}

impl State {
    fn fill(&mut self, random: &mut Random) {
        self.registers = [0; 16].map(|_: u64| random.next());
        // Status flags only.
        self.flags = 0x202 | random.next() & 0x8d5;
        self.vectors = [[0; 2]; 4].map(|_| [random.next(), random.next()]);
        for byte in &mut self.data {
            *byte = random.next() as u8;
        }
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 33) % bound
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// Writes code whose memory operands all lie in the data, whose address is in r13.
struct Code {
    bytes: Vec<u8>,
    random: Random,
    /// Which gathers there are here, and what those that were written access: by their place.
    sets: Vec<Set>,
    gathers: HashMap<u64, Vec<i64>>,
}

/// All but rsp and r13.
const REGISTERS: [u8; 14] = [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15];

impl Code {
    /// So many pieces of up to `longest` instructions, each with a return behind it, and where they begin.
    fn of_pieces(random: Random, pieces: usize, longest: u64) -> (Self, Vec<usize>) {
        let mut code = Self { bytes: Vec::new(), random, sets: Set::all(), gathers: HashMap::new() };
        let mut starts = Vec::new();
        for _ in 0..pieces {
            starts.push(code.bytes.len());
            for _ in 0..code.random.below(longest) + 1 {
                code.instruction();
            }
            code.put(&[0xc3]);
        }
        (code, starts)
    }

    fn register(&mut self) -> u8 {
        self.random.one_of(&REGISTERS)
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// `op reg, rm` with both registers; `opcode` without prefix.
    fn registers(&mut self, opcode: &[u8], reg: u8, rm: u8) {
        let wide = if self.random.below(4) == 0 { 0 } else { 8 };
        self.put(&[0x40 | wide | (reg >> 3) << 2 | rm >> 3]);
        self.put(opcode);
        self.put(&[0xc0 | (reg & 7) << 3 | rm & 7]);
    }

    /// `op reg, [r13 + disp]`, or with an index that is brought into range first.
    fn memory(&mut self, prefix: &[u8], opcode: &[u8], reg: u8) {
        let index = self.register();
        let disp = (self.random.below(200) * 8) as u32;
        if self.random.below(2) == 0 || index == reg {
            self.put(prefix);
            self.put(&[0x49 | (reg >> 3) << 2]);
            self.put(opcode);
            self.put(&[0x85 | (reg & 7) << 3]);
        } else {
            // and index, 127
            self.put(&[0x48 | index >> 3, 0x83, 0xe0 | index & 7, 0x7f]);
            self.put(prefix);
            self.put(&[0x49 | (reg >> 3) << 2 | (index >> 3) << 1]);
            self.put(opcode);
            let scale = self.random.below(4) as u8;
            self.put(&[0x84 | (reg & 7) << 3, scale << 6 | (index & 7) << 3 | 5]);
        }
        self.put(&disp.to_le_bytes());
    }

    /// A loop of up to 40 rounds, each with some accesses and ways past an instruction: blocks hold several rounds.
    fn rounds(&mut self, a: u8) {
        let count = if a == 1 { 2 } else { 1 };
        let times = self.random.below(40) as u8 + 1;
        // mov count, times
        self.put(&[0xb8 | count, times, 0, 0, 0]);
        let again = self.bytes.len();
        if times.is_multiple_of(2) {
            // Another way round, without accesses: dec count; test count, 1; jnz again
            self.put(&[0x48, 0xff, 0xc8 | count, 0xf6, 0xc0 | count, 1, 0x75, 8_u8.wrapping_neg()]);
        }
        for _ in 0..self.random.below(5) {
            // add, adc or sbb [r13 + disp], a, or the other way
            let opcode = self.random.one_of(&[0x01, 0x11, 0x19, 0x03, 0x13, 0x1b]);
            self.put(&[0x49 | (a >> 3) << 2, opcode, 0x85 | (a & 7) << 3]);
            let disp = (self.random.below(200) * 8) as u32;
            self.put(&disp.to_le_bytes());
            if self.random.below(3) == 0 {
                // A conditional jump over inc a
                let condition = self.random.below(16) as u8;
                self.put(&[0x70 | condition, 3, 0x48 | a >> 3, 0xff, 0xc0 | a & 7]);
            }
        }
        // dec count; jg again
        self.put(&[0x48, 0xff, 0xc8 | count]);
        let distance = self.bytes.len() + 2 - again;
        self.put(&[0x7f, (distance as u8).wrapping_neg()]);
    }

    fn instruction(&mut self) {
        let (a, b) = (self.register(), self.register());
        let alu = [0x01, 0x09, 0x11, 0x19, 0x21, 0x29, 0x31, 0x39];
        let code = self.random.below(16) as u8;
        let small = self.random.below(256) as u8;
        match self.random.below(37) {
            0..3 => {
                let opcode = self.random.one_of(&alu);
                self.registers(&[opcode], a, b);
            }
            3..6 => {
                let opcode = self.random.one_of(&alu) + 2;
                self.memory(&[], &[opcode], a);
            }
            6..9 => {
                let opcode = self.random.one_of(&alu);
                self.memory(&[], &[opcode], a);
            }
            9 => self.memory(&[], &[0x8b], a),
            10 => self.memory(&[], &[0x89], a),
            11 => self.memory(&[], &[0x8d], a),
            12 => self.memory(&[], &[0x0f, 0xb6], a),
            13 => self.registers(&[0x0f, 0xaf], a, b),
            14 => self.registers(&[0x0f, 0x40 | code], a, b),
            15 => self.memory(&[], &[0x0f, 0x40 | code], a),
            // setcc rm8 with REX
            16 => self.put(&[0x40 | a >> 3, 0x0f, 0x90 | code, 0xc0 | a & 7]),
            // shl, shr, sar, rol, ror by a constant or by cl
            17 => {
                let kind = self.random.one_of(&[0u8, 1, 4, 5, 7]);
                // By 0 and by 1 most flags are defined.
                let count = small & if self.random.below(2) == 0 { 1 } else { 63 };
                self.put(&[0x48 | a >> 3, 0xc1, 0xc0 | kind << 3 | a & 7, count]);
            }
            18 => {
                let kind = self.random.one_of(&[0u8, 1, 4, 5, 7]);
                self.put(&[0x48 | a >> 3, 0xd3, 0xc0 | kind << 3 | a & 7]);
            }
            // mul
            19 => self.put(&[0x48 | a >> 3, 0xf7, 0xe0 | a & 7]),
            // xchg, cmpxchg, xadd with memory
            20 => {
                let opcode: &[u8] = [&[0x87u8][..], &[0x0f, 0xb1], &[0x0f, 0xc1]][small as usize % 3];
                self.memory(&[], opcode, a);
            }
            // push a; pop b
            21 => {
                self.put(&[0x40 | a >> 3, 0x50 | a & 7]);
                self.put(&[0x40 | b >> 3, 0x58 | b & 7]);
            }
            // pushfq; popfq; lahf; stc, clc, cmc
            22 => self.put(&[0x9c, 0x9d]),
            23 => self.put(&[0x9f]),
            24 => self.put(&[[0xf8, 0xf9, 0xf5][small as usize % 3]]),
            // A conditional jump, short or near, over another instruction.
            25 | 26 => {
                let start = self.bytes.len();
                if small & 1 == 0 {
                    self.put(&[0x70 | code, 0]);
                } else {
                    self.put(&[0x0f, 0x80 | code, 0, 0, 0, 0]);
                }
                let from = self.bytes.len();
                self.instruction();
                let distance = (self.bytes.len() - from) as u32;
                match small & 1 {
                    0 if distance < 128 => self.bytes[start + 1] = distance as u8,
                    0 => {}
                    _ => self.bytes[start + 2..start + 6].copy_from_slice(&distance.to_le_bytes()),
                }
            }
            // call behind the next instruction; pop a
            27 => {
                self.put(&[0xe8, 0, 0, 0, 0]);
                self.put(&[0x40 | a >> 3, 0x58 | a & 7]);
            }
            // call over a `ret`-ending function, and back
            28 => {
                // jmp over the function; function: inc a; ret; then call it
                self.put(&[0xeb, 4, 0x48 | a >> 3, 0xff, 0xc0 | a & 7, 0xc3]);
                self.put(&[0xe8]);
                self.put(&(-9i32).to_le_bytes());
            }
            // mov ecx, 3; again: inc a; loop again
            29 => {
                self.put(&[0xb9, 3, 0, 0, 0]);
                let a = if a == 1 { 2 } else { a };
                self.put(&[0x48 | a >> 3, 0xff, 0xc0 | a & 7, 0xe2, 0xfb]);
            }
            // lea rax, [rip + 2]; jmp rax
            30 => self.put(&[0x48, 0x8d, 0x05, 2, 0, 0, 0, 0xff, 0xe0]),
            // mov a, [rip - 7]: itself
            31 => {
                self.put(&[0x48 | (a >> 3) << 2, 0x8b, 0x05 | (a & 7) << 3]);
                self.put(&(-7i32).to_le_bytes());
            }
            // lea rdi, [r13 + 64]; lea rsi, [r13 + 512]; mov ecx, n; rep movsb
            32 => {
                self.put(&[0x49, 0x8d, 0x7d, 64]);
                self.put(&[0x49, 0x8d, 0xb5, 0, 2, 0, 0]);
                self.put(&[0xb9, small & 31, 0, 0, 0, 0xf3, 0xa4]);
            }
            33 => self.rounds(a),
            34 | 35 if !self.sets.is_empty() => {
                let set = self.random.one_of(&self.sets);
                let gathering = Gathering::new(set, |bound| self.random.below(bound));
                self.gathers.insert((self.bytes.len() + gathering.at) as u64, gathering.elements);
                self.put(&gathering.code);
            }
            // movdqu, paddd, pxor with memory and back
            _ => {
                let vector = small & 3;
                let disp = u32::from(small) * 8;
                for opcode in [&[0xf3, 0x41, 0x0f, 0x6f][..], &[0xf3, 0x41, 0x0f, 0x7f]] {
                    self.put(opcode);
                    self.put(&[0x85 | vector << 3]);
                    self.put(&disp.to_le_bytes());
                    self.put(&[0x66, 0x0f, 0xfe, 0xc0 | (code & 3) << 3 | vector]);
                }
            }
        }
    }
}

/// What native execution does, instruction by instruction: the trap flag raises a signal behind each, whose handler
/// computes the next one's addresses from the registers.
mod steps {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::ffi::{c_int, c_void};
    use std::mem;

    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, Register};

    const TRAP_FLAG: i64 = 0x100;

    #[derive(Default)]
    pub struct Steps {
        range: (u64, u64),
        was_inside: bool,
        last: u64,
        /// By distance from the code's begin: what gathers and scatters access, from r13 on.
        gathers: HashMap<u64, Vec<i64>>,
        /// Instruction and address of each access, and whether the operation filter leaves it out: rbp is a number here.
        pub accesses: Vec<(u64, u64, bool)>,
    }

    thread_local! {
        pub static STEPS: RefCell<Steps> = RefCell::default();
    }

    pub fn begin(range: (u64, u64), gathers: &HashMap<u64, Vec<i64>>) {
        // SAFETY: the handler runs in code that neither allocates nor holds the cell.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = on_step as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut()), 0);
        }
        let gathers = gathers.clone();
        STEPS.with_borrow_mut(|steps| *steps = Steps { range, gathers, ..Steps::default() });
    }

    extern "C" fn on_step(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the kernel's argument.
        let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let pc = registers[libc::REG_RIP as usize] as u64;
        STEPS.with_borrow_mut(|steps| {
            if !(steps.range.0..steps.range.1).contains(&pc) {
                if steps.was_inside {
                    registers[libc::REG_EFL as usize] &= !TRAP_FLAG;
                }
                return;
            }
            steps.was_inside = true;
            // SAFETY: code that is about to be executed; the mapping's last page is padded.
            let bytes = unsafe { std::slice::from_raw_parts(pc as *const u8, 15) };
            let instruction = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
            // A repeated instruction traps behind each element.
            let is_again = instruction.has_rep_prefix() && steps.last == pc;
            steps.last = pc;
            if is_again {
                return;
            }
            let value = |register: Register| {
                let place = match register.full_register() {
                    Register::RAX => libc::REG_RAX,
                    Register::RCX => libc::REG_RCX,
                    Register::RDX => libc::REG_RDX,
                    Register::RBX => libc::REG_RBX,
                    Register::RSP => libc::REG_RSP,
                    Register::RBP => libc::REG_RBP,
                    Register::RSI => libc::REG_RSI,
                    Register::RDI => libc::REG_RDI,
                    Register::R8 => libc::REG_R8,
                    Register::R9 => libc::REG_R9,
                    Register::R10 => libc::REG_R10,
                    Register::R11 => libc::REG_R11,
                    Register::R12 => libc::REG_R12,
                    Register::R13 => libc::REG_R13,
                    Register::R14 => libc::REG_R14,
                    Register::R15 => libc::REG_R15,
                    // Segments begin at 0.
                    _ => return Some(0),
                };
                Some(registers[place as usize] as u64)
            };
            for memory in InstructionInfoFactory::new().info(&instruction).used_memory() {
                if memory.vsib_size() != 0 {
                    let data = value(Register::R13).expect("a register");
                    let elements = &steps.gathers[&(pc - steps.range.0)];
                    let address = |&distance: &i64| (pc, data.wrapping_add_signed(distance), false);
                    steps.accesses.extend(elements.iter().map(address));
                } else if memory.access() != OpAccess::NoMemAccess {
                    let address = memory.virtual_address(0, |register, _, _| value(register)).expect("known");
                    let is_fixed = matches!(memory.base(), Register::RSP | Register::RIP | Register::None);
                    steps.accesses.push((pc, address, is_fixed && memory.index() == Register::None));
                }
            }
        });
    }
}

/// How code is run.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Natively,
    InBurst,
    Stepped,
}

/// Calls the code with the state in the registers. `InBurst`: a burst begins right before.
unsafe fn run(code: u64, state: &mut State, how: How) {
    state.flags |= if how == How::Stepped { 0x100 } else { 0 };
    // SAFETY: both only ask.
    let (pid, tid) = unsafe { (libc::getpid(), libc::gettid()) };
    let signal = libc::SIGUSR2;
    let call = if how == How::InBurst { libc::SYS_tgkill } else { libc::SYS_getpid };
    // SAFETY: the code keeps rsp and r13, and all other registers are named or saved. Its stack use is below the red
    // zone, which is left out.
    unsafe {
        asm!(
            "sub rsp, 256",
            "push rbx",
            "push rbp",
            "push r8",
            "push r9",
            "mov r13, r8",
            "syscall",
            "movdqu xmm0, [r13 + 144]",
            "movdqu xmm1, [r13 + 160]",
            "movdqu xmm2, [r13 + 176]",
            "movdqu xmm3, [r13 + 192]",
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
            "lea r13, [r13 + 256]",
            "call [rsp]",
            "lea r13, [r13 - 256]",
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
            "movdqu [r13 + 144], xmm0",
            "movdqu [r13 + 160], xmm1",
            "movdqu [r13 + 176], xmm2",
            "movdqu [r13 + 192], xmm3",
            "cld",
            "pop r9",
            "pop r8",
            "pop rbp",
            "pop rbx",
            "add rsp, 256",
            inout("rax") call => _, inout("rdi") pid as u64 => _, inout("rsi") tid as u64 => _,
            inout("rdx") signal as u64 => _, inout("r8") &raw mut *state => _, inout("r9") code => _,
            out("rcx") _, out("r10") _, out("r11") _, out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
            out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
        );
    }
}

/// Where random code lies.
enum Mapping {
    /// In a file's mapping of its own, as programs have it.
    File(u64, usize),
    /// In memory that can be written, where other code was before that memlens has not been told of.
    Generated(u64, usize),
}

impl Mapping {
    fn of(bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("memlens-random-code.{}", std::process::id()));
        let mut file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
        file.write_all(bytes).expect("written");
        std::fs::remove_file(&path).expect("removed");
        let length = bytes.len().next_multiple_of(4096);
        // SAFETY: a new mapping.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_EXEC;
            libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self::File(start as u64, length)
    }

    fn generated(bytes: &[u8]) -> Self {
        const BYTES: usize = 1 << 20;
        static START: OnceLock<usize> = OnceLock::new();
        let start = *START.get_or_init(|| {
            // SAFETY: a new mapping.
            let start = unsafe {
                let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                libc::mmap(std::ptr::null_mut(), BYTES, access, flags, -1, 0)
            };
            assert_ne!(start, libc::MAP_FAILED);
            start as usize
        });
        assert!(bytes.len() <= BYTES);
        // SAFETY: the mapping is so long, and nothing runs in it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start as *mut u8, bytes.len()) };
        Self::Generated(start as u64, bytes.len())
    }

    fn range(&self) -> (u64, u64) {
        let (Self::File(start, bytes) | Self::Generated(start, bytes)) = *self;
        (start, start + bytes as u64)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Self::File(start, bytes) = *self {
            // SAFETY: our mapping, in which nothing runs.
            unsafe { libc::munmap(start as *mut _, bytes) };
            code_has_changed();
        }
    }
}

#[test]
fn random_code_does_in_a_burst_what_it_does_natively() {
    prepare(50_000);
    listen(libc::SIGUSR2);
    let (mut recorded, mut of_gathers) = (0, 0);
    for file in 0..40u64 {
        let (mut code, starts) = Code::of_pieces(Random(0x9e37_79b9 + file * 7919), 200, 2 * file + 2);
        let mapping = if file % 2 == 1 { Mapping::generated(&code.bytes) } else { Mapping::of(&code.bytes) };
        let range = mapping.range();
        let is_filtered = file % 3 == 2;
        filter_operations(is_filtered);
        for &start in &starts {
            let mut state = State {
                registers: [0; 16],
                flags: 0,
                padding: 0,
                vectors: [[0; 2]; 4],
                data: [0; DATA_BYTES],
            };
            state.fill(&mut code.random);
            // Both runs in the same place: addresses are part of what they compute.
            let before = state.clone();
            let at = range.0 + start as u64;
            // SAFETY: the code is of our making.
            unsafe { run(at, &mut state, How::Natively) };
            let native = state.clone();
            let bytes: String =
                code.bytes[start..].iter().take(512).map(|byte| format!("{byte:02x}")).collect();
            let same = |state: &State, how: &str| {
                let seed = format!("{how}, file {file}, offset {start:#x}; {}; code {bytes}", summary());
                assert_eq!(state.registers, native.registers, "{seed}");
                assert_eq!(state.flags, native.flags, "{seed}");
                assert!(*state == native, "{seed}");
            };
            // The first block records, the next count until the second stage, and there on.
            state.clone_from(&before);
            BURST_WORDS.store(1, Ordering::Relaxed);
            COUNTED_WORDS.store(1 + code.random.below(60) as usize, Ordering::Relaxed);
            // SAFETY: as above.
            unsafe { run(at, &mut state, How::InBurst) };
            same(&state, "counted");
            BURST_WORDS.store(50_000, Ordering::Relaxed);
            COUNTED_WORDS.store(0, Ordering::Relaxed);
            state.clone_from(&before);
            forget_words();
            // SAFETY: as above.
            unsafe { run(at, &mut state, How::InBurst) };
            same(&state, "recorded");
            if file >= STEPPED_FILES {
                continue;
            }
            let inside: Vec<_> = accesses()
                .into_iter()
                .filter(|(.., reference)| reference.used != Use::Prefetch)
                .map(|(pc, address, _)| (pc, address))
                .filter(|(pc, _)| (range.0..range.1).contains(pc))
                .collect();
            state.clone_from(&before);
            steps::begin(range, &code.gathers);
            // SAFETY: as above.
            unsafe { run(at, &mut state, How::Stepped) };
            let all = steps::STEPS.with_borrow_mut(|steps| std::mem::take(&mut steps.accesses));
            let kept = all.iter().filter(|(.., is_left_out)| !(is_filtered && *is_left_out));
            let expected: Vec<_> = kept.map(|&(pc, address, _)| (pc, address)).collect();
            assert_eq!(inside, expected, "file {file}, offset {start:#x}; {}; code {bytes}", summary());
            recorded += inside.len();
            of_gathers += inside.iter().filter(|(pc, _)| code.gathers.contains_key(&(pc - range.0))).count();
        }
    }
    assert!(COUNTED.load(Ordering::Relaxed) > 20_000, "{}", summary());
    assert!(recorded > 20_000, "{recorded} accesses; {}", summary());
    assert!(Set::all().is_empty() || of_gathers > 1000, "{of_gathers} elements");
    eprintln!("{recorded} accesses, {of_gathers} of gathers; {}", summary());
}

/// Where exact mode and the processor alone find the same addresses.
fn fixed(address: usize, bytes: usize) -> *mut u8 {
    // SAFETY: a new mapping, in a place where programs that lie anywhere have nothing.
    let place = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::mmap(address as *mut libc::c_void, bytes, access, flags, -1, 0)
    };
    assert_eq!(place as usize, address);
    place.cast()
}

/// Whether all that a piece of code leaves behind is defined, the auxiliary carry aside, which nothing here reads: not all
/// is after a multiplication, for one.
fn is_defined(code: &[u8]) -> bool {
    const AUXILIARY: u32 = iced_x86::RflagsBits::AF;
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let reads = instruction.rflags_read();
        if instruction.is_invalid()
            || instruction.rflags_undefined() & !AUXILIARY != 0
            || reads & AUXILIARY != 0
        {
            return false;
        }
        // Gathers have their indices and masks in front of them, behind a jump.
        let target = instruction.near_branch_target();
        if instruction.is_jmp_short_or_near() && target > decoder.ip() + 48 {
            let Ok(()) = decoder.set_position((target as usize).min(code.len())) else { return false };
            decoder.set_ip(target);
        }
    }
    true
}

#[test]
fn states_of_random_code() {
    const AUXILIARY: u64 = 1 << 4;
    let Ok(files) = std::env::var("MEMLENS_STATES") else { return };
    let files: u64 = files.parse().expect("a number of files");
    let (place, memory) = (0x1000_0000_usize, 1 << 20);
    // SAFETY: aligned memory of our own, of which all bytes make a state.
    let state = unsafe { &mut *fixed(0x2000_0000, memory).cast::<State>() };
    let mut text = String::new();
    for file in 0..files {
        let longest = 2 * (file % 40) + 2;
        let (mut code, starts) = Code::of_pieces(Random(0x2545_f491 + file * 7919), 100, longest);
        assert!(code.bytes.len() <= memory);
        // SAFETY: fresh memory of that size.
        unsafe {
            std::ptr::copy_nonoverlapping(code.bytes.as_ptr(), fixed(place, memory), code.bytes.len());
        }
        for (number, &start) in starts.iter().enumerate() {
            state.fill(&mut code.random);
            // SAFETY: the code is of our making.
            unsafe { run((place + start) as u64, state, How::Natively) };
            let end = starts.get(number + 1).copied().unwrap_or(code.bytes.len());
            let bytes = &code.bytes[start..end];
            state.flags &= !AUXILIARY;
            let words = state.registers.iter().chain([&state.flags]).chain(state.vectors.iter().flatten());
            let hash = words
                .copied()
                .chain(state.data.iter().map(|&byte| u64::from(byte)))
                .fold(0xcbf2_9ce4_8422_2325, |hash: u64, word| (hash ^ word).wrapping_mul(0x100_0000_01b3));
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let kind = if is_defined(bytes) { "defined" } else { "undefined" };
            writeln!(
                text,
                "{file} {number} {kind} {hash:016x} {:x?} {:x} {hex}",
                state.registers, state.flags
            )
            .expect("text");
        }
    }
    std::fs::write(std::env::var_os("MEMLENS_STATES_OUT").expect("a file"), text).expect("written");
}
