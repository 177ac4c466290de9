//! System calls of the target that change its address space or its threads.

use crate::channel::{CHANNEL, Making, Thread};
use crate::follow::{self, SYS_EXECVE, SYS_EXECVEAT};
use crate::own_exe::{self, Handled};
use crate::program_break::BREAK;
use crate::shared_memory::SEGMENTS;
use crate::signals;
use crate::state::STATE;
use crate::sys::{self, word_at};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use dynamorio_sys::*;
use memlens_events::EventKind;
use memlens_events::restriction::{self, by_prctl, by_seccomp};
use memlens_events::segment::SlotState;

const SYS_MMAP: c_int = 9;
const SYS_MUNMAP: c_int = 11;
const SYS_BRK: c_int = 12;
const SYS_RT_SIGACTION: c_int = 13;
const SYS_RT_SIGPROCMASK: c_int = 14;
const SYS_IOCTL: c_int = 16;
const SYS_MREMAP: c_int = 25;
const SYS_SHMAT: c_int = 30;
const SYS_MADVISE: c_int = 28;
const SYS_CLONE: c_int = 56;
const SYS_FORK: c_int = 57;
const SYS_VFORK: c_int = 58;
const SYS_SHMDT: c_int = 67;
const SYS_FUTEX: c_int = 202;
const SYS_EXIT_GROUP: c_int = 231;
const SYS_ARCH_PRCTL: c_int = 158;
const ARCH_SET_FS: u64 = 0x1002;
const SYS_PRCTL: c_int = restriction::PRCTL as c_int;
const PR_SET_NAME: u64 = 15;
const SYS_SECCOMP: c_int = restriction::SECCOMP as c_int;
const SYS_CLONE3: c_int = 435;
const SYS_CLOSE_RANGE: c_int = 436;
/// What is there for waiting: `poll`, `select`, `pause`, `nanosleep`, `wait4`, `rt_sigtimedwait`, `rt_sigsuspend`,
/// `clock_nanosleep`, `epoll_wait`, `waitid`, `pselect6`, `ppoll`, `epoll_pwait`, `epoll_pwait2`, `futex_waitv`,
/// `futex_wait`.
const WAITING: [c_int; 16] = [7, 23, 34, 35, 61, 128, 130, 230, 232, 247, 270, 271, 281, 441, 449, 455];
/// `FUTEX_WAIT`, `FUTEX_LOCK_PI`, `FUTEX_WAIT_BITSET`, `FUTEX_WAIT_REQUEUE_PI`, `FUTEX_LOCK_PI2`.
const FUTEX_WAITS: [u64; 5] = [0, 6, 9, 11, 13];
/// Without `FUTEX_PRIVATE_FLAG` and `FUTEX_CLOCK_REALTIME`.
const FUTEX_COMMAND: u64 = 0x7f;
const MAP_DENYWRITE: u64 = 0x800;
const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;

/// Every system call is of interest: before it, the thread's records are published, so that a thread
/// that sleeps holds nobody back.
pub unsafe extern "C" fn filter(_context: *mut c_void, _number: c_int) -> bool_ {
    1
}

/// Before a system call.
pub unsafe extern "C" fn before(context: *mut c_void, number: c_int) -> bool_ {
    // SAFETY: called on the thread that makes the call.
    unsafe {
        let thread = STATE.thread(context);
        if matches!(number, SYS_CLONE | SYS_CLONE3 | SYS_FORK | SYS_VFORK) {
            signals::thread_is_made(thread.blocked_signals);
        }
        thread.making = making(context, number);
        match thread.making {
            Some(Making::Vfork) => thread.remembered[0] = signals::ignored(),
            Some(Making::Fork) => {
                follow::set_forking(true);
                if follow::follows_children() && CHANNEL.is_own_process() {
                    let announced = CHANNEL.announce_fork(thread);
                    thread.fork = Some(announced);
                }
            }
            None => {}
        }
        if restricts(context, number) {
            // DynamoRIO's own system calls, and ours, would be filtered with the program's.
            CHANNEL.control().filters_withheld.fetch_add(1, Ordering::Relaxed);
            dr_syscall_set_result(context, 0);
            return 0;
        }
        match own_exe::before(context, number) {
            Handled::Answered => return 0,
            Handled::Substituted(index, value) => thread.replaced = Some((index, value)),
            Handled::Not => {}
        }
        match number {
            SYS_CLONE | SYS_CLONE3 if !CHANNEL.is_multi_threaded() && makes_thread(context, number) => {
                CHANNEL.set_multi_threaded();
                // Blocks built so far carry no epoch.
                dr_flush_region(core::ptr::null_mut(), usize::MAX);
            }
            SYS_EXECVE | SYS_EXECVEAT => {
                let blocked = thread.blocked_signals;
                let execution = follow::before_exec(context, number, blocked);
                let thread = STATE.thread(context);
                thread.execution = Some(execution);
                thread.saved_signals = Some(Box::new(signals::before_exec(blocked)));
            }
            SYS_EXIT_GROUP if CHANNEL.is_own_process() => {
                thread.event(EventKind::ProcessExit, &[argument(context, 0)]);
            }
            SYS_CLOSE_RANGE => {
                remember_arguments(context);
                // DynamoRIO closes the descriptors one by one: up to 2^32 - 1 it would take a minute.
                let greatest = sys::greatest_descriptor();
                if thread.remembered[1] as u32 > greatest {
                    dr_syscall_set_param(context, 1, greatest as reg_t);
                }
            }
            // What they point to may be overwritten by the call itself.
            SYS_RT_SIGACTION | SYS_RT_SIGPROCMASK => {
                remember_arguments(context);
                thread.remembered[3] = word_at(argument(context, 1)).unwrap_or(0);
            }
            SYS_IOCTL if signals::may_stop_for_terminal(argument(context, 1)) => {
                thread.terminal_mask = signals::before_terminal_change(thread.blocked_signals);
            }
            SYS_MUNMAP => {
                // Announced before it happens: afterwards another thread may get the addresses.
                let (start, length) = (argument(context, 0), argument(context, 1));
                crate::unmapped(context, start..start.saturating_add(length));
                thread.event(EventKind::MapRemove, &[start, length]);
            }
            SYS_SHMDT => {
                let address = argument(context, 0);
                if let Some(length) = SEGMENTS.detached(address) {
                    thread.event(EventKind::MapRemove, &[address, length]);
                }
            }
            SYS_BRK => {
                let asked = argument(context, 0);
                let end = BREAK.move_to(asked);
                thread.event(EventKind::Break, &[asked, end]);
                dr_syscall_set_result(context, end);
                return 0;
            }
            // What was asked for, so that the change shows afterwards.
            SYS_MMAP | SYS_MREMAP | SYS_MADVISE | SYS_SHMAT | SYS_ARCH_PRCTL | SYS_PRCTL => {
                remember_arguments(context);
            }
            _ => {}
        }
        let thread = STATE.thread(context);
        thread.waits = is_waiting(context, number);
        if thread.waits {
            thread.event(EventKind::Waits, &[1]);
        }
        thread.publish(SlotState::InSystemCall);
    }
    1
}

/// After a system call.
pub unsafe extern "C" fn after(context: *mut c_void, number: c_int) {
    // SAFETY: called on the thread that made the call.
    unsafe {
        let thread = STATE.thread(context);
        thread.resume();
        if core::mem::take(&mut thread.waits) {
            thread.event(EventKind::Waits, &[0]);
        }
        let result = dr_syscall_get_result(context) as i64;
        let failed = (-4095..0).contains(&result);
        let [address, length, third, fourth] = remembered_arguments(context);
        if let Some(replaced) = thread.replaced.take() {
            restore_argument(context, replaced);
        }
        if let Some(making) = thread.making.take() {
            process_made(thread, making, result);
        }
        match number {
            SYS_MMAP if !failed => {
                // As glibc's dynamic linker maps a library: first as a whole, then its parts.
                if fourth & MAP_DENYWRITE != 0 {
                    crate::file_mapped(context, result as u64);
                }
                thread.event(EventKind::MapAdd, &[result as u64, length, third, fourth, 0]);
            }
            SYS_MREMAP if !failed => {
                thread.event(EventKind::MapRemove, &[address, length]);
                // The new length is mremap's third argument; protection and flags stay.
                thread.event(EventKind::MapAdd, &[result as u64, third, u64::MAX, u64::MAX, address]);
            }
            SYS_SHMAT if !failed => {
                if let Some(segment) = SEGMENTS.attached(address as i32, result as u64) {
                    const MAP_SHARED: u64 = 1;
                    let (start, key, id) = (result as u64, segment.key.into(), address + 1);
                    thread
                        .event(EventKind::MapAdd, &[start, segment.bytes, u64::MAX, MAP_SHARED, 0, id, key]);
                }
            }
            SYS_PRCTL if !failed && address == PR_SET_NAME => {
                if let Some(name) = sys::thread_name() {
                    thread.event(EventKind::ThreadName, &name);
                }
            }
            SYS_MADVISE if !failed => thread.event(EventKind::MapAdvice, &[address, length, third]),
            SYS_RT_SIGACTION if !failed && length != 0 => signals::disposition_set(address, fourth),
            SYS_RT_SIGPROCMASK if !failed && length != 0 => {
                thread.blocked_signals = signals::changed_mask(thread.blocked_signals, address, fourth);
            }
            SYS_IOCTL => {
                if let Some(mask) = thread.terminal_mask.take() {
                    sys::set_signal_mask(mask);
                }
            }
            // Still here: it failed.
            SYS_EXECVE | SYS_EXECVEAT => {
                let execution = thread.execution.take();
                if let Some(saved) = thread.saved_signals.take() {
                    signals::exec_failed(&saved);
                }
                if let Some(execution) = execution {
                    follow::exec_failed(context, &execution);
                }
            }
            SYS_ARCH_PRCTL if !failed && address == ARCH_SET_FS => {
                // Told again, now with the thread pointer; no stack pointer.
                let tid = dr_get_thread_id(context) as u64;
                thread.event(EventKind::ThreadStart, &[tid, 0, length]);
            }
            SYS_CLOSE_RANGE => restore_argument(context, (1, length)),
            _ => {}
        }
    }
}

unsafe fn argument(context: *mut c_void, index: c_int) -> u64 {
    // SAFETY: called from a pre-system-call event.
    unsafe { dr_syscall_get_param(context, index) }
}

/// Whether a system call lets the thread sleep until another one, or time, wakes it.
unsafe fn is_waiting(context: *mut c_void, number: c_int) -> bool {
    if number == SYS_FUTEX {
        // SAFETY: called from a pre-system-call event.
        return FUTEX_WAITS.contains(&(unsafe { argument(context, 1) } & FUTEX_COMMAND));
    }
    WAITING.contains(&number)
}

/// Whether a system call asks the kernel to filter further ones.
unsafe fn restricts(context: *mut c_void, number: c_int) -> bool {
    // SAFETY: called from a pre-system-call event.
    let argument = |index| unsafe { argument(context, index) as usize };
    match number {
        SYS_PRCTL => by_prctl(argument(0), argument(1), argument(2)),
        SYS_SECCOMP => by_seccomp(argument(0), argument(1), argument(2)),
        _ => false,
    }
}

/// A process was made, or not: back in its parent, or in the child.
fn process_made(thread: &mut Thread, making: Making, result: i64) {
    match making {
        Making::Vfork if result > 0 => {
            signals::vfork_returned(thread.remembered[0]);
            CHANNEL.abandon_slot(result as u32);
        }
        Making::Fork if result != 0 => {
            follow::set_forking(false);
            if let Some((token, _)) = thread.fork.take() {
                CHANNEL.keep_definitions(false);
                thread.event(EventKind::Fork, &[token, result.max(0) as u64]);
            }
        }
        _ => {}
    }
}

/// System calls leave their arguments' registers alone: puts back the first (0) or second (1).
unsafe fn restore_argument(context: *mut c_void, (index, value): (c_int, u64)) {
    // SAFETY: called from a post-system-call event, where the context may be changed.
    unsafe {
        let mut machine: dr_mcontext_t = core::mem::zeroed();
        machine.size = core::mem::size_of::<dr_mcontext_t>();
        machine.flags = dr_mcontext_flags_t::DR_MC_INTEGER;
        if dr_get_mcontext(context, &mut machine) != 0 {
            match index {
                0 => machine.__bindgen_anon_1.xdi = value as reg_t,
                _ => machine.__bindgen_anon_2.xsi = value as reg_t,
            }
            dr_set_mcontext(context, &mut machine);
        }
    }
}

/// What process a system call makes, if it makes one.
unsafe fn making(context: *mut c_void, number: c_int) -> Option<Making> {
    match number {
        SYS_FORK => Some(Making::Fork),
        SYS_VFORK => Some(Making::Vfork),
        SYS_CLONE | SYS_CLONE3 => {
            // SAFETY: called from a pre-system-call event.
            let flags = unsafe { clone_flags(context, number) };
            match (flags & CLONE_VM != 0, flags & CLONE_VFORK != 0) {
                (false, _) => Some(Making::Fork),
                (true, true) => Some(Making::Vfork),
                (true, false) => None,
            }
        }
        _ => None,
    }
}

/// The flags of `clone` or `clone3`.
unsafe fn clone_flags(context: *mut c_void, number: c_int) -> u64 {
    // SAFETY: called from a pre-system-call event; clone3's structure is copied with fault protection.
    let first = unsafe { argument(context, 0) };
    if number == SYS_CLONE3 { word_at(first).unwrap_or(0) } else { first }
}

/// Whether a `clone` makes a thread of this process rather than a process.
unsafe fn makes_thread(context: *mut c_void, number: c_int) -> bool {
    // SAFETY: called from a pre-system-call event.
    let flags = unsafe { clone_flags(context, number) };
    flags & CLONE_VM != 0 && flags & CLONE_VFORK == 0
}

unsafe fn remember_arguments(context: *mut c_void) {
    // SAFETY: called from a pre-system-call event on the calling thread.
    unsafe {
        let arguments = [0, 1, 2, 3].map(|index| argument(context, index));
        STATE.thread(context).remembered = arguments;
    }
}

unsafe fn remembered_arguments(context: *mut c_void) -> [u64; 4] {
    // SAFETY: the calling thread's own state.
    unsafe { STATE.thread(context).remembered }
}
