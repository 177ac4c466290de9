//! Code that a program generates, and changes while it runs in bursts.
#![cfg(target_arch = "x86_64")]

mod support;

use std::arch::asm;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use support::{COUNTED_WORDS, ENDS, GOES_ON, WORDS, begin_now, leave, prepare, summary};

const PAGE: usize = 4096;

/// A page of memory that can be written and executed.
fn page_of(code: &[u8]) -> *mut u8 {
    // SAFETY: a new mapping, filled with code that nobody runs yet.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), PAGE, access, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        std::ptr::copy_nonoverlapping(code.as_ptr(), page.cast(), code.len());
        page.cast()
    }
}

/// Begins bursts that follow each other until a system call, and says how many words they record in `work`.
fn in_bursts<T>(work: impl FnOnce() -> T) -> (T, u64) {
    GOES_ON.store(true, Ordering::Relaxed);
    let before = WORDS.load(Ordering::Relaxed);
    begin_now();
    let result = work();
    // SAFETY: a system call without effect: it ends the burst.
    unsafe { libc::getppid() };
    (result, WORDS.load(Ordering::Relaxed) - before)
}

/// Adds 1 to the number in the code, which the code itself calls.
extern "C" fn change(number: *mut u32) {
    // SAFETY: in a page of this test; no other thread knows it.
    unsafe { number.write_unaligned(number.read_unaligned() + 1) };
}

#[test]
fn code_may_change_while_it_runs() {
    prepare(5_000);
    a_thread_changes_its_own_code();
    another_thread_changes_it();
    flags_that_are_live_at_a_blocks_begin_stay();
    code_that_cannot_be_read_faults_as_it_does_natively();
    COUNTED_WORDS.store(3_000, Ordering::Relaxed);
    a_thread_changes_its_own_code();
    flags_that_are_live_at_a_blocks_begin_stay();
    // The engine as it was: nothing was discarded, and the cache is not full.
    assert_eq!(ENDS[memlens_events::burst::End::Full as usize].load(Ordering::Relaxed), 0, "{}", summary());
}

fn a_thread_changes_its_own_code() {
    const NUMBER_AT: usize = 13;
    const ROUNDS: u64 = 3_000;
    let page = page_of(&[
        0x53, // push rbx
        0x41, 0x54, // push r12
        0x41, 0x55, // push r13
        0x45, 0x31, 0xe4, // xor r12d, r12d
        0x48, 0x89, 0xfb, // mov rbx, rdi
        // again (at 11):
        0x48, 0xb8, 1, 0, 0, 0, 0, 0, 0, 0, // mov rax, number
        0x49, 0x01, 0xc4, // add r12, rax
        0x4c, 0x03, 0x26, // add r12, [rsi]
        0x56, // push rsi
        0x52, // push rdx
        0x57, // push rdi
        0x51, // push rcx
        0x48, 0x89, 0xcf, // mov rdi, rcx
        0xff, 0xd2, // call rdx
        0x59, // pop rcx
        0x5f, // pop rdi
        0x5a, // pop rdx
        0x5e, // pop rsi
        0x48, 0xff, 0xcb, // dec rbx
        0x75, 0xde, // jnz again
        0x4c, 0x89, 0xe0, // mov rax, r12
        0x41, 0x5d, // pop r13
        0x41, 0x5c, // pop r12
        0x5b, // pop rbx
        0xc3, // ret
    ]);
    type Function = extern "C" fn(u64, *const u64, extern "C" fn(*mut u32), *mut u8) -> u64;
    // SAFETY: a function of this type.
    let function: Function = unsafe { std::mem::transmute(page) };
    let added = 1_000_000;
    let (sum, words) = in_bursts(|| function(ROUNDS, &added, change, page.wrapping_add(NUMBER_AT)));
    assert_eq!(sum, ROUNDS * (ROUNDS + 1) / 2 + ROUNDS * added, "{}", summary());
    assert!(words > 7 * ROUNDS, "{words} words; {}", summary());
}

fn another_thread_changes_it() {
    const NUMBER_AT: usize = 4;
    const ROUNDS: u64 = 3_000_000;
    let page = page_of(&[
        0x31, 0xc0, // xor eax, eax
        // again (at 2); the number is aligned:
        0x66, 0xb9, 1, 0, // mov cx, number
        0x0f, 0xb7, 0xc9, // movzx ecx, cx
        0x48, 0x01, 0xc8, // add rax, rcx
        0x48, 0x03, 0x06, // add rax, [rsi]
        0x48, 0xff, 0xcf, // dec rdi
        0x75, 0xee, // jnz again
        0xc3, // ret
    ]);
    type Function = extern "C" fn(u64, *const u64) -> u64;
    // SAFETY: a function of this type.
    let function: Function = unsafe { std::mem::transmute(page) };
    let (ends, changes) = (AtomicBool::new(false), AtomicU64::new(0));
    let number = page.wrapping_add(NUMBER_AT) as usize;
    let sum = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let round = changes.fetch_add(1, Ordering::Relaxed);
                // SAFETY: two aligned bytes of the page.
                unsafe { (number as *mut u16).write_volatile(1 + (round % 2) as u16) };
                for _ in 0..2_000 {
                    std::hint::spin_loop();
                }
            }
        });
        let (sum, words) = in_bursts(|| function(ROUNDS, &10));
        ends.store(true, Ordering::Relaxed);
        assert!(words > 10_000, "{words} words; {}", summary());
        sum
    });
    assert!(changes.load(Ordering::Relaxed) > 2);
    assert!((11 * ROUNDS..=12 * ROUNDS).contains(&sum), "{sum}; {}", summary());
}

fn flags_that_are_live_at_a_blocks_begin_stay() {
    let page = page_of(&[
        0xf8, // clc
        // again (at 1):
        0x48, 0x8b, 0x06, // mov rax, [rsi]
        0x48, 0x11, 0x02, // adc [rdx], rax
        0x48, 0x8d, 0x76, 0x08, // lea rsi, [rsi + 8]
        0x48, 0x8d, 0x52, 0x08, // lea rdx, [rdx + 8]
        0x48, 0xff, 0xcf, // dec rdi
        0x75, 0xed, // jnz again
        0x0f, 0x92, 0xc0, // setc al
        0x0f, 0xb6, 0xc0, // movzx eax, al
        0xc3, // ret
    ]);
    type Function = extern "C" fn(usize, *const u64, *mut u64) -> u64;
    // SAFETY: a function of this type.
    let function: Function = unsafe { std::mem::transmute(page) };
    let mut state = 7u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Many sums of all ones: carries go far.
        if state >> 63 == 0 { state } else { u64::MAX }
    };
    let one: Vec<u64> = (0..5_000).map(|_| random()).collect();
    let other: Vec<u64> = (0..5_000).map(|_| random()).collect();
    let mut natively = other.clone();
    let carry = function(one.len(), one.as_ptr(), natively.as_mut_ptr());
    let mut in_burst = other.clone();
    let (carry_in_burst, words) = in_bursts(|| function(one.len(), one.as_ptr(), in_burst.as_mut_ptr()));
    assert_eq!((carry_in_burst, in_burst), (carry, natively), "{}", summary());
    assert!(words > 1_000, "{words} words; {}", summary());
}

/// The page whose code is hidden, the address at which it was met, rax and the flags there.
static HIDDEN: AtomicU64 = AtomicU64::new(0);
static MET: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static MET_IN_BURSTS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_fault(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    MET_IN_BURSTS.fetch_add(leave(context).into(), Ordering::Relaxed);
    // SAFETY: the kernel's argument; the page is this test's.
    unsafe {
        let registers = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let met = [libc::REG_RIP, libc::REG_RAX, libc::REG_EFL].map(|at| registers[at as usize] as u64);
        for (place, value) in MET.iter().zip(met) {
            place.store(value, Ordering::Relaxed);
        }
        let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        libc::mprotect(HIDDEN.load(Ordering::Relaxed) as *mut c_void, PAGE, access);
    }
}

fn code_that_cannot_be_read_faults_as_it_does_natively() {
    let page = page_of(&[
        0x48, 0x8b, 0x0e, // mov rcx, [rsi]
        0x48, 0x11, 0xc8, // adc rax, rcx
        0xc3, // ret
    ]);
    HIDDEN.store(page as u64, Ordering::Relaxed);
    // SAFETY: the handler keeps the rules of handlers; the structures are whole.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()), 0);
    }
    let call = || {
        let (mut sum, number) = (u64::MAX - 2, 2u64);
        // SAFETY: the code changes rax, rcx and flags, and uses the stack below the red zone.
        unsafe {
            asm!(
                "sub rsp, 256", "cmp rsi, rsi", "stc", "call {code}", "lea rsp, [rsp + 256]",
                code = in(reg) page, in("rsi") &raw const number, inout("rax") sum, out("rcx") _,
            );
        }
        sum
    };
    let met = || MET.each_ref().map(|place| place.load(Ordering::Relaxed));
    let hide = || {
        // SAFETY: the page is this function's.
        assert_eq!(unsafe { libc::mprotect(page.cast(), PAGE, libc::PROT_NONE) }, 0);
    };
    hide();
    assert_eq!(call(), 0);
    let natively = met();
    assert_eq!((natively[0], natively[1], natively[2] & 1), (page as u64, u64::MAX - 2, 1));
    // Translated, then not readable.
    assert_eq!(in_bursts(call).0, 0);
    hide();
    let (sum, _) = in_bursts(call);
    assert_eq!(sum, 0);
    assert_eq!(MET_IN_BURSTS.load(Ordering::Relaxed), 1, "{}", summary());
    // Status flags and direction. The processor sets the resume flag as it likes.
    let comparable = |[pc, rax, flags]: [u64; 3]| (pc, rax, flags & 0xcd5);
    assert_eq!(comparable(met()), comparable(natively));
}
