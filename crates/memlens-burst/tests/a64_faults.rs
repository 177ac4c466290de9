//! A fault in a burst is what it is natively: the handler finds the program's registers, and what it changes in them counts.
#![cfg(target_arch = "aarch64")]

mod support;

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memlens_events::burst::End;
use support::{ENDS, begin_now, leave, prepare, summary};

const PAGE: usize = 65536;

/// x0 to x30, sp, pc and flags where the fault was met.
static MET: [AtomicU64; 34] = [const { AtomicU64::new(0) }; 34];
static IN_BURSTS: AtomicU32 = AtomicU32::new(0);

/// Notes the registers, and lets the page be read.
extern "C" fn on_fault(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    IN_BURSTS.fetch_add(leave(context).into(), Ordering::Relaxed);
    // SAFETY: the kernel's argument; the page is this test's.
    unsafe {
        let saved = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        let all = saved.regs.iter().copied().chain([saved.sp, saved.pc, saved.pstate & 0xf << 28]);
        for (place, value) in MET.iter().zip(all) {
            place.store(value, Ordering::Relaxed);
        }
        libc::mprotect(HIDDEN.load(Ordering::Relaxed) as *mut c_void, PAGE, libc::PROT_READ);
    }
}

static HIDDEN: AtomicU64 = AtomicU64::new(0);

/// `x28` is written before the fault, a flag set, every register holds a number of its own; the fault is that of a load with write-back by
/// x28 itself. What it returns is what the loads loaded.
///
/// # Safety
/// The address is that of 16 bytes.
#[unsafe(naked)]
unsafe extern "C" fn fault_with_all_registers(address: u64) -> u64 {
    naked_asm!(
        "stp x29, x30, [sp, #-96]!",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "mov x28, x0",
        ".irp n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 29, 30",
        "mov x\\n, #\\n",
        ".endr",
        "sub x28, x28, #8",
        "cmp x1, x2",
        "cset x0, lo",
        "add x0, x0, #6",
        // Here.
        "ldr x3, [x28, #8]!",
        "ldr x4, [x28, #8]",
        "add x0, x3, x4",
        "ldp x19, x20, [sp, #16]",
        "ldp x21, x22, [sp, #32]",
        "ldp x23, x24, [sp, #48]",
        "ldp x25, x26, [sp, #64]",
        "ldp x27, x28, [sp, #80]",
        "ldp x29, x30, [sp], #96",
        "ret",
    )
}

#[test]
fn a_fault_is_what_it_is_natively() {
    prepare(100_000);
    // SAFETY: a new mapping; the handler keeps the rules of handlers; the structures are whole.
    let page = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        page.cast::<u64>().write(40);
        page.cast::<u64>().add(1).write(2);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()), 0);
        page
    };
    HIDDEN.store(page as u64, Ordering::Relaxed);
    let hide = || {
        // SAFETY: the page is this function's.
        assert_eq!(unsafe { libc::mprotect(page, PAGE, libc::PROT_NONE) }, 0);
    };
    let met = || MET.each_ref().map(|place| place.load(Ordering::Relaxed));
    let call = || {
        // SAFETY: 16 bytes of the page, which the handler lets be read.
        std::hint::black_box(unsafe { fault_with_all_registers(page as u64) })
    };
    hide();
    assert_eq!(call(), 42);
    let natively = met();
    let start = fault_with_all_registers as *const () as u64;
    assert!((start..start + 256).contains(&natively[32]), "{natively:x?}");
    assert_eq!(natively[28], page as u64 - 8);
    // Once where it is translated before it faults, once where it faults first.
    for is_known in [false, true] {
        hide();
        begin_now();
        if is_known {
            // SAFETY: as above, of another array.
            assert_eq!(unsafe { fault_with_all_registers([1u64, 2].as_ptr() as u64) }, 3);
        }
        let result = call();
        let in_burst = met();
        assert_eq!(result, 42, "{}", summary());
        // Where the stack was, and what x18 holds, is the caller's business.
        for (number, (found, expected)) in in_burst.iter().zip(natively).enumerate() {
            assert!(
                *found == expected || matches!(number, 18 | 31),
                "{number}: {found:#x}, not {expected:#x}; {}",
                summary()
            );
        }
    }
    assert_eq!(IN_BURSTS.load(Ordering::Relaxed), 2, "{}", summary());
    assert_eq!(ENDS[End::Fault as usize].load(Ordering::Relaxed), 2, "{}", summary());
}
