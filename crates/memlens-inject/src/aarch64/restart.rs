//! What becomes of a system call that a stop interrupts.
//!
//! A thread that is stopped in a call has, for the tracer, not made it yet: the kernel has put the instruction back to `svc`
//! and x0 to the argument, and knows by itself what the call returned (`do_signal` in arch/arm64/kernel/signal.c). If the thread is let
//! go it goes on accordingly. If it is borrowed that knowledge is lost: whether a signal ends the call, and what is left of
//! a sleep. So a thread that is to be borrowed is let go to the entry of its call and stopped in it once more
//! ([`settle`]), where the result can be read.
//!
//! Of a call that the kernel does not restart x0 is `-EINTR`, and the argument is gone from the registers. The kernel keeps it
//! as long as no other call is made, and shows it in `/proc/TID/syscall` if it is told that the thread is in that call. Not all do
//! (Debian's 6.12 shows x0 as it is): there it is what was shown while the thread still waited, if all else is the same.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use std::{fs, io};

use super::{Registers, WITHOUT_DESCRIPTOR, set_system_call};
use crate::ended_calls::is_ended_by_stops;
use crate::tracer::{self, Resume, Stop};

/// The instruction `svc 0`.
pub const SVC: u32 = 0xd400_0001;
/// Its length.
pub const SVC_BYTES: u64 = 4;

/// What the kernel keeps in x0 of a call that is to be restarted (include/linux/errno.h).
const RESTART_SYS: i64 = -512;
const RESTART_NO_INTERRUPT: i64 = -513;
const RESTART_NO_HANDLER: i64 = -514;
const RESTART_BLOCK: i64 = -516;

/// How often a thread is stopped anew if signals come in between.
const MOST_SIGNALS: u32 = 4;

fn is_restarted(result: i64) -> bool {
    [RESTART_SYS, RESTART_NO_INTERRUPT, RESTART_NO_HANDLER, RESTART_BLOCK].contains(&result)
}

fn instruction(thread: u32, address: u64) -> Option<u32> {
    tracer::peek(thread, address & !7).map(|word| (word >> ((address & 4) * 8)) as u32)
}

fn is_svc(thread: u32, address: u64) -> bool {
    instruction(thread, address) == Some(SVC)
}

/// The registers with which the kernel continues what the stop interrupted, for calls that it would end with `EINTR`: they
/// begin again, with their whole time limit, unless a signal with a handler has come as well. None: they are right as
/// they are. `before`: what was [`shown`] before the stop.
pub fn continued(thread: u32, registers: &Registers, before: Option<Shown>) -> Option<Registers> {
    let user = &registers.user;
    let call = registers.call();
    let is_ended = user.regs[0] as i64 == -i64::from(libc::EINTR) && is_ended_by_stops(call);
    if !is_ended || !is_svc(thread, user.pc.checked_sub(SVC_BYTES)?) || has_handled_signal(thread) {
        return None;
    }
    let kept = first_argument(thread, call).ok().flatten().filter(|&argument| argument != user.regs[0]);
    let argument = kept.or_else(|| argument_before(&before?, registers))?;
    let is_plausible = || fs::symlink_metadata(format!("/proc/{thread}/fd/{}", argument as u32)).is_ok();
    if !WITHOUT_DESCRIPTOR.contains(&call) && !is_plausible() {
        // The end of a handler, which has put these registers back, is a call as well.
        return None;
    }
    let mut registers = *registers;
    registers.user.regs[0] = argument;
    registers.user.pc -= SVC_BYTES;
    Some(registers)
}

/// A call that a thread is in: its number, six arguments, the stack pointer, the instruction behind it.
pub type Shown = [u64; 9];

/// The call that a thread is in (proc_pid_syscall(5)). None: it is in none, or runs.
pub fn shown(thread: u32) -> Option<Shown> {
    shown_in(&fs::read_to_string(format!("/proc/{thread}/syscall")).ok()?)
}

fn shown_in(text: &str) -> Option<Shown> {
    let (number, rest) = text.split_once(' ')?;
    let mut shown = [number.parse::<i64>().ok()? as u64; 9];
    let mut words = rest.split_whitespace();
    for word in &mut shown[1..] {
        *word = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some(shown)
}

/// The first argument of a call that was shown before the stop, if it is the one that the stop ended.
fn argument_before(
    &[number, argument, ref others @ .., sp, pc]: &Shown,
    registers: &Registers,
) -> Option<u64> {
    let user = &registers.user;
    let is_it = number as i64 == registers.call() && *others == user.regs[1..6];
    (is_it && (sp, pc) == (user.sp, user.pc)).then_some(argument)
}

/// The first argument of the call that a stopped thread was in last, if its number is this.
fn first_argument(thread: u32, call: i64) -> io::Result<Option<u64>> {
    set_system_call(thread, call as i32)?;
    let shown = shown(thread);
    set_system_call(thread, -1)?;
    Ok(shown.filter(|shown| shown[0] as i64 == call).map(|shown| shown[1]))
}

/// Whether a signal is about to be delivered to a handler of the program's (proc_pid_status(5)).
fn has_handled_signal(thread: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|word| u64::from_str_radix(word.trim(), 16).ok()).unwrap_or(0)
    };
    (set("SigPnd") | set("ShdPnd")) & !set("SigBlk") & set("SigCgt") != 0
}

/// Makes known what became of the call that a stop interrupted, by having it interrupted once more. None: the thread runs
/// on, or has ended. It is stopped as before otherwise, maybe behind a call that has come to its end.
///
/// # Errors
/// As [`tracer::stop`].
pub fn settle(thread: u32, registers: &Registers, within: Duration) -> Result<Option<Registers>, Stop> {
    let mut registers = *registers;
    for _ in 0..MOST_SIGNALS {
        if !is_svc(thread, registers.user.pc) {
            break;
        }
        if let ControlFlow::Break(settled) = interrupt_again(thread, within)? {
            return Ok(settled);
        }
        match tracer::stop(thread, within)? {
            Some(stopped) => registers = stopped,
            None => return Ok(None),
        }
    }
    Ok(Some(registers))
}

/// Lets a thread go to its call and stops it in that. Breaks with its registers, or none if it runs on or has ended; continues
/// if a signal came in between.
fn interrupt_again(thread: u32, within: Duration) -> Result<ControlFlow<Option<Registers>>, Stop> {
    const LOST: ControlFlow<Option<Registers>> = ControlFlow::Break(None);
    let until = Instant::now() + within;
    let mut interrupted = None;
    let mut how = Resume::ToSystemCall;
    // At its end, x8 is already the one that it has put back.
    let mut is_signal_return = false;
    // Before its begin, a stop is one that was asked for earlier: as many may come.
    let mut most_stale = 1;
    loop {
        if tracer::resume(thread, how, 0).is_err() {
            return Ok(LOST);
        }
        let stop = loop {
            match tracer::next_stop(until) {
                Some((who, stop)) if who == thread => break stop,
                Some((who, stop)) => tracer::pass_on(who, stop),
                None => return Ok(LOST),
            }
        };
        match stop {
            Stop::SystemCall => {
                let Ok(registers) = Registers::of(thread) else { return Ok(LOST) };
                // At the entry: so that it finds, as soon as it would wait, that it is to stop. At the end: once more, for
                // each stop takes that back.
                if tracer::interrupt(thread).is_err() {
                    return Ok(LOST);
                }
                most_stale = 0;
                if registers.is_entry() {
                    is_signal_return = registers.call() == libc::SYS_rt_sigreturn;
                } else {
                    interrupted = if is_signal_return { None } else { result_of(thread, &registers) };
                    how = Resume::Run;
                }
            }
            Stop::Asked if most_stale > 0 => most_stale -= 1,
            Stop::Asked => {
                let registers = Registers::of(thread).ok();
                return Ok(ControlFlow::Break(registers.map(|registers| {
                    let is_sleep = registers.call() == libc::SYS_restart_syscall;
                    let first_call = call_before(thread, registers.user.pc).filter(|_| is_sleep);
                    Registers { interrupted, first_call, ..registers }
                })));
            }
            Stop::Executed | Stop::Group => return Err(stop),
            Stop::Ended => return Ok(LOST),
            Stop::Signal(_) | Stop::Other => {
                tracer::pass_on(thread, stop);
                return Ok(ControlFlow::Continue(()));
            }
        }
    }
}

/// The number of the call that an `svc` makes, as the instructions before it say: `mov x8, number`.
fn call_before(thread: u32, svc: u64) -> Option<i64> {
    /// So many instructions, of which most put arguments in their places.
    const LOOKED_AT: u64 = 16;
    let is_move = |code: u32| code & 0x7fe0_001f == 0x5280_0008;
    let code = (1..=LOOKED_AT).map_while(|at| instruction(thread, svc.checked_sub(at * SVC_BYTES)?));
    let number = |code: u32| i64::from(code >> 5 & 0xffff);
    code.into_iter().find(|&code| is_move(code)).map(number)
}

/// What a thread's call, other than rt_sigreturn(2), has returned, if the kernel is to make it again; it is told to where it
/// would not. (x7 is the kernel's at such a stop: what is written there has no effect.)
fn result_of(thread: u32, registers: &Registers) -> Option<i64> {
    let (call, result) = (registers.call(), registers.user.regs[0] as i64);
    if result == -i64::from(libc::EINTR) && is_ended_by_stops(call) {
        let mut registers = *registers;
        registers.user.regs[0] = RESTART_NO_HANDLER as u64;
        return registers.set(thread).ok().map(|()| RESTART_NO_HANDLER);
    }
    Some(result).filter(|&result| is_restarted(result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_known_again_by_all_but_its_first_argument() {
        let text = "192 0x5 0x7fe8 0x1 0x2 0xd 0x1352 0x7f90 0x7c28\n";
        let shown = shown_in(text).expect("a call");
        assert_eq!(shown, [192, 5, 0x7fe8, 1, 2, 13, 0x1352, 0x7f90, 0x7c28]);
        assert_eq!(["-1 0x7f90 0x7c28\n", "running\n", ""].map(shown_in), [None; 3]);
        // SAFETY: numbers only.
        let mut user: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        user.regs[..6].copy_from_slice(&[-4_i64 as u64, 0x7fe8, 1, 2, 13, 0x1352]);
        (user.regs[8], user.sp, user.pc) = (192, 0x7f90, 0x7c28);
        let mut registers = Registers { user, thread_pointer: 0, interrupted: None, first_call: None };
        assert_eq!(argument_before(&shown, &registers), Some(5));
        registers.user.regs[5] += 1;
        assert_eq!(argument_before(&shown, &registers), None);
    }

    #[unsafe(naked)]
    unsafe extern "C" fn spins() {
        std::arch::naked_asm!("b .")
    }

    /// Waits for what never comes, until a signal's handler has ended. Exits with the error that it saw.
    fn waits_until_signal() -> ! {
        // SAFETY: system calls alone, as behind a fork; numbers where there are structures.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = spins as *const () as usize;
            libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
            libc::alarm(1);
            let mut event: libc::epoll_event = std::mem::zeroed();
            let count = libc::epoll_wait(libc::epoll_create1(0), &raw mut event, 1, -1);
            libc::_exit(if count == -1 { *libc::__errno_location() } else { 0 })
        }
    }

    /// An emulator of programs alone has no ptrace(2): nothing is shown there.
    #[test]
    fn a_call_that_a_handler_ended_is_not_made_again_at_its_return() {
        // SAFETY: the child makes system calls alone.
        let child = unsafe { libc::fork() };
        if child == 0 {
            waits_until_signal();
        }
        let thread = child as u32;
        if tracer::seize(thread).is_err() {
            // SAFETY: our own child.
            unsafe { libc::kill(child, libc::SIGKILL) };
            return;
        }
        let until = Instant::now() + Duration::from_secs(10);
        let (signalled, stop) = tracer::next_stop(until).expect("a signal");
        assert_eq!((signalled, stop), (thread, Stop::Signal(libc::SIGALRM)));
        tracer::pass_on(thread, stop);
        let mut registers = loop {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(20));
            let registers =
                tracer::stop(thread, Duration::from_secs(1)).expect("no other stop").expect("stopped");
            if registers.ip() == spins as *const () as u64 {
                break registers;
            }
            tracer::resume(thread, Resume::Run, 0).expect("it goes on");
        };
        // At the last instruction of what handlers return to: `mov x8, 139; svc 0`.
        registers.user.pc = registers.user.regs[30] + SVC_BYTES;
        registers.user.regs[8] = libc::SYS_rt_sigreturn as u64;
        registers.set(thread).expect("set");
        let settled = settle(thread, &registers, Duration::from_secs(1)).expect("no other stop");
        assert_eq!(settled.expect("stopped").interrupted, None);
        tracer::resume(thread, Resume::Free, 0).expect("it goes on");
        let mut status = 0;
        // SAFETY: our own child; writes the status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), libc::EINTR);
    }
}
