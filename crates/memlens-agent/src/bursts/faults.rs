//! Signals that instructions raise, for the program's own handlers.
//!
//! In a burst such a signal comes with translated code's registers. So where the program installs a handler for one,
//! the kernel gets ours with the same flags and mask; it puts the native registers back, ends the burst, and calls the
//! program's. What the program asks of its handlers it is told as if ours were not there, also of the one for prompts (`prompts.rs`).
//!
//! # Signal safety
//! Handlers run where the program's would run. They make system calls and write to the ring.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::arch::{self, number, syscall};
use crate::real;
use crate::real::call;
use crate::signal_action::SignalAction;

use super::prompts;

/// SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS (signal(7)).
const RAISED: [usize; 6] = [4, 5, 7, 8, 11, 31];
const SIGNALS: usize = 65;
/// `SIG_DFL` and `SIG_IGN` are below.
const FIRST_FUNCTION: usize = 2;

/// Of sigaction(2). Without `WITH_INFO` the kernel leaves the second argument as it is.
const NO_DEFER: u64 = 0x4000_0000;
const WITH_INFO: usize = 4;
const RESET_HANDLER: usize = 0x8000_0000;

/// The program's handlers.
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
/// What it asked to be blocked in them, and their flags.
static MASKS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
static FLAGS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

/// Takes over the handlers that libraries have installed before the agent began.
pub fn prepare() {
    for signal in RAISED {
        if let Some(mut action) = SignalAction::of(signal)
            && action.handler >= FIRST_FUNCTION
        {
            note(signal, action.handler, action.mask, action.flags);
            action.handler = on_raised as *const () as usize;
            action.flags |= WITH_INFO;
            SignalAction::set(signal, &action);
        }
    }
    IS_ACTIVE.store(true, Ordering::Release);
}

/// Puts the program's handlers back. No thread is in a burst any more.
pub fn end() {
    IS_ACTIVE.store(false, Ordering::Release);
    for signal in RAISED {
        if let Some(mut action) = SignalAction::of(signal)
            && action.handler == on_raised as *const () as usize
        {
            action.handler = HANDLERS[signal].load(Ordering::Relaxed);
            action.flags = without_ours(action.flags, FLAGS[signal].load(Ordering::Acquire));
            SignalAction::set(signal, &action);
        }
    }
}

/// The flags of an action of ours as the program gave them.
fn without_ours(flags: usize, programs: usize) -> usize {
    flags & !WITH_INFO | programs & WITH_INFO
}

fn note(signal: usize, handler: usize, mask: usize, flags: usize) {
    HANDLERS[signal].store(handler, Ordering::Relaxed);
    MASKS[signal].store(mask, Ordering::Relaxed);
    FLAGS[signal].store(flags, Ordering::Release);
}

fn is_ours(signal: c_int) -> bool {
    IS_ACTIVE.load(Ordering::Acquire) && usize::try_from(signal).is_ok_and(|signal| RAISED.contains(&signal))
}

/// libc's `struct sigaction`: handler, mask of 1,024 bits, flags, restorer.
#[derive(Clone, Copy)]
#[repr(C)]
struct Action {
    handler: usize,
    mask: [usize; 16],
    flags: c_int,
    restorer: usize,
}

/// sigaction(2).
///
/// # Safety
/// As the C function.
pub unsafe extern "C" fn set_action(signal: c_int, new: *const c_void, old: *mut c_void) -> c_int {
    const ERROR: c_int = -1;
    if !real::ready() || real::SIGACTION.load(Ordering::Acquire).is_null() {
        return ERROR;
    }
    if !is_ours(signal) {
        let was_prompts = prompts::is_ours(signal);
        if was_prompts && !new.is_null() {
            prompts::let_go();
        }
        // SAFETY: the program's own call, handed on.
        let status = unsafe { call!(real::SIGACTION, (signal, new, old) -> c_int) };
        // SAFETY: the caller's structure, null or whole.
        if let Some(told) = unsafe { old.cast::<Action>().as_mut() }
            && was_prompts
            && status == 0
        {
            // Nobody had it.
            (told.handler, told.flags, told.mask) = (0, 0, [0; 16]);
        }
        return status;
    }
    let number = signal as usize;
    let before = HANDLERS[number].load(Ordering::Relaxed);
    let flags_before = FLAGS[number].load(Ordering::Acquire);
    let (new, old) = (new.cast::<Action>(), old.cast::<Action>());
    let changed;
    let mut passed = new;
    // SAFETY: the caller's structure, null or whole.
    if let Some(wanted) = unsafe { new.as_ref() }
        && wanted.handler >= FIRST_FUNCTION
    {
        note(number, wanted.handler, wanted.mask[0], wanted.flags as usize);
        let flags = wanted.flags | WITH_INFO as c_int;
        changed = Action { handler: on_raised as *const () as usize, flags, ..*wanted };
        passed = &raw const changed;
    }
    // SAFETY: the program's own call, but for the handler and one flag.
    let status = unsafe { call!(real::SIGACTION, (signal, passed, old) -> c_int) };
    // SAFETY: the caller's structure, null or whole.
    if let Some(told) = unsafe { old.as_mut() }
        && status == 0
        && told.handler == on_raised as *const () as usize
    {
        told.handler = before;
        told.flags = without_ours(told.flags as usize, flags_before) as c_int;
    }
    status
}

/// signal(2) and its relatives: `function` is the real one.
///
/// # Safety
/// As the C function.
unsafe fn set_handler(
    function: &core::sync::atomic::AtomicPtr<c_void>,
    signal: c_int,
    handler: usize,
) -> usize {
    const ERROR: usize = usize::MAX;
    if !real::ready() || function.load(Ordering::Acquire).is_null() {
        return ERROR;
    }
    let was_prompts = prompts::is_ours(signal);
    if was_prompts {
        prompts::let_go();
    }
    let ours = on_raised as *const () as usize;
    let takes_over = is_ours(signal) && (FIRST_FUNCTION..ERROR).contains(&handler);
    let before = if is_ours(signal) { HANDLERS[signal as usize].load(Ordering::Relaxed) } else { 0 };
    let passed = if takes_over { ours } else { handler };
    if takes_over {
        note(signal as usize, handler, 0, 0);
    }
    // SAFETY: the program's own call, but for the handler.
    let told = unsafe { call!(function, (signal, passed) -> usize) };
    if takes_over && let Some(mut action) = SignalAction::of(signal as usize) {
        note(signal as usize, handler, action.mask, action.flags);
        action.flags |= WITH_INFO;
        SignalAction::set(signal as usize, &action);
    }
    match told {
        _ if was_prompts && told != ERROR => 0,
        _ if told == ours => before,
        _ => told,
    }
}

/// signal(2).
///
/// # Safety
/// As the C function.
pub unsafe extern "C" fn set_signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { set_handler(&real::SIGNAL, signal, handler) }
}

/// sysv_signal(3).
///
/// # Safety
/// As the C function.
pub unsafe extern "C" fn set_sysv_signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { set_handler(&real::SYSV_SIGNAL, signal, handler) }
}

/// sigset(3).
///
/// # Safety
/// As the C function.
pub unsafe extern "C" fn set_sigset(signal: c_int, handler: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { set_handler(&real::SIGSET, signal, handler) }
}

/// A signal was raised, in a burst or elsewhere.
extern "C" fn on_raised(signal: c_int, info: *const c_void, context: *mut c_void) {
    arch::allow_unaligned();
    let number = signal as usize % SIGNALS;
    let area = arch::thread();
    // SAFETY: the kernel's argument.
    let (_, pc) = unsafe { arch::interrupted(context) };
    let (start, end) = arch::own_image();
    // A fault of ours may hold what the question needs: it goes to the program's handler as it is.
    let is_own = (start as u64..end as u64).contains(&pc);
    // SAFETY: this is a handler, with its argument and the thread's own area.
    if !is_own && unsafe { memlens_burst::is_interrupted(context, &area.burst) } {
        // `si_code` says who sent it: positive numbers are the kernel's (sigaction(2)).
        // SAFETY: the kernel's structure.
        let code = unsafe { info.cast::<c_int>().add(2).read() };
        if code <= 0 {
            // Somebody else's: it comes again when the burst has ended, soon.
            area.burst.limit.set(0);
            if FLAGS[number].load(Ordering::Acquire) & RESET_HANDLER != 0
                && let Some(mut action) = SignalAction::of(number)
            {
                // It has not been delivered yet.
                action.handler = on_raised as *const () as usize;
                SignalAction::set(number, &action);
            }
            // SAFETY: sends the same to this thread; it is blocked in the burst from now on.
            unsafe {
                let ids = [area.pid.get() as usize, area.tid.get() as usize];
                syscall(number::RT_TGSIGQUEUEINFO, [ids[0], ids[1], number, info as usize, 0, 0]);
                arch::block_in(context, number);
            }
            return;
        }
        // SAFETY: as above, and the instruction raised it.
        let mask = unsafe { memlens_burst::leave_at_fault(context, &area.burst) };
        let own =
            if FLAGS[number].load(Ordering::Acquire) as u64 & NO_DEFER == 0 { 1 << (number - 1) } else { 0 };
        let mask = mask | MASKS[number].load(Ordering::Relaxed) as u64 | own;
        /// Of rt_sigprocmask(2).
        const SET: usize = 2;
        // SAFETY: reads one word.
        unsafe {
            syscall(number::RT_SIGPROCMASK, [SET, &raw const mask as usize, 0, size_of_val(&mask), 0, 0]);
        }
    }
    let handler = HANDLERS[number].load(Ordering::Relaxed);
    if handler >= FIRST_FUNCTION {
        // SAFETY: the program's handler, called as the kernel calls it.
        unsafe {
            let handler: extern "C" fn(c_int, *const c_void, *mut c_void) = core::mem::transmute(handler);
            handler(signal, info, context);
        }
    }
}
