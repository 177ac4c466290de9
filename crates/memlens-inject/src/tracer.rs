//! ptrace(2), for one thread of ours: what it traces goes on when that thread ends.

use std::io;
use std::time::{Duration, Instant};

use crate::arch::{self, Registers};

/// Why a traced thread has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It was asked to.
    Asked,
    /// Its whole process is stopped by a signal.
    Group,
    /// A signal is about to be delivered.
    Signal(i32),
    /// It enters or leaves a system call.
    SystemCall,
    /// It has executed another program.
    Executed,
    /// Something else.
    Other,
    /// It has ended.
    Ended,
}

/// How a stopped thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// As it likes.
    Run,
    /// To the next system call.
    ToSystemCall,
    /// Untraced.
    Free,
}

fn ptrace(request: libc::c_uint, thread: u32, address: usize, data: usize) -> io::Result<libc::c_long> {
    // SAFETY: requests whose `data` is a pointer come from the functions below, with room for what is written.
    let result = unsafe {
        *libc::__errno_location() = 0;
        libc::ptrace(request, thread as libc::pid_t, address, data)
    };
    match result {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

/// Traces a thread from now on, without stopping it.
pub fn seize(thread: u32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACEEXEC;
    ptrace(libc::PTRACE_SEIZE, thread, 0, options as usize).map(drop)
}

/// Asks it to stop.
pub fn interrupt(thread: u32) -> io::Result<()> {
    ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0).map(drop)
}

/// Lets a stopped thread go on, with a signal or none.
pub fn resume(thread: u32, how: Resume, signal: i32) -> io::Result<()> {
    let request = match how {
        Resume::Run => libc::PTRACE_CONT,
        Resume::ToSystemCall => libc::PTRACE_SYSCALL,
        Resume::Free => libc::PTRACE_DETACH,
    };
    ptrace(request, thread, 0, signal as usize).map(drop)
}

/// Leaves it stopped with its process, until that goes on.
pub fn listen(thread: u32) -> io::Result<()> {
    ptrace(libc::PTRACE_LISTEN, thread, 0, 0).map(drop)
}

/// A stopped thread's registers.
pub fn registers(thread: u32) -> io::Result<Registers> {
    Registers::of(thread)
}

/// Changes them, all at once.
pub fn set_registers(thread: u32, registers: &Registers) -> io::Result<()> {
    registers.set(thread)
}

/// The signals that a stopped thread blocks.
pub fn signal_mask(thread: u32) -> io::Result<u64> {
    let mut mask = 0u64;
    ptrace(libc::PTRACE_GETSIGMASK, thread, size_of::<u64>(), (&raw mut mask) as usize)?;
    Ok(mask)
}

/// Changes them.
pub fn set_signal_mask(thread: u32, mask: u64) -> io::Result<()> {
    ptrace(libc::PTRACE_SETSIGMASK, thread, size_of::<u64>(), (&raw const mask) as usize).map(drop)
}

/// The address of the thread's `struct rseq` (rseq(2)); None: it has none, or the kernel (before 5.13) does not say.
pub fn restartable_sequences(thread: u32) -> Option<u64> {
    /// `PTRACE_GET_RSEQ_CONFIGURATION`, and its structure's size.
    const REQUEST: libc::c_uint = 0x420f;
    let mut answer = [0u64; 3];
    ptrace(REQUEST, thread, size_of_val(&answer), answer.as_mut_ptr() as usize).ok()?;
    (answer[0] != 0).then_some(answer[0])
}

/// Writes whole words to a stopped thread's memory, also where it may not itself.
pub fn poke(thread: u32, address: u64, bytes: &[u8]) -> io::Result<()> {
    for (index, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
        ptrace(libc::PTRACE_POKEDATA, thread, address as usize + index * 8, usize::from_ne_bytes(*word))?;
    }
    Ok(())
}

/// A stopped thread's general registers.
#[cfg(target_arch = "x86_64")]
pub fn general_registers(thread: u32, registers: &mut libc::user_regs_struct) -> io::Result<()> {
    ptrace(libc::PTRACE_GETREGS, thread, 0, (&raw mut *registers) as usize).map(drop)
}

/// Changes them.
#[cfg(target_arch = "x86_64")]
pub fn set_general_registers(thread: u32, registers: &libc::user_regs_struct) -> io::Result<()> {
    ptrace(libc::PTRACE_SETREGS, thread, 0, (&raw const *registers) as usize).map(drop)
}

/// A set of a stopped thread's registers, by the type of its note in an ELF file. How many bytes of it there are.
#[cfg(target_arch = "aarch64")]
pub fn register_set(thread: u32, set: usize, bytes: &mut [u8]) -> io::Result<usize> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    ptrace(libc::PTRACE_GETREGSET, thread, set, (&raw mut part) as usize)?;
    Ok(part.iov_len)
}

/// Changes it.
#[cfg(target_arch = "aarch64")]
pub fn set_register_set(thread: u32, set: usize, bytes: &[u8]) -> io::Result<()> {
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    ptrace(libc::PTRACE_SETREGSET, thread, set, (&raw const part) as usize).map(drop)
}

/// A word of a stopped thread's memory; None: nothing is mapped there, or it is -1.
#[cfg(target_arch = "aarch64")]
pub fn peek(thread: u32, address: u64) -> Option<u64> {
    ptrace(libc::PTRACE_PEEKDATA, thread, address as usize, 0).ok().map(|word| word as u64)
}

/// The next stop of a thread that this thread of ours traces; None: there was none in that time.
pub fn next_stop(until: Instant) -> Option<(u32, Stop)> {
    let mut pause = Duration::from_micros(5);
    loop {
        let mut status = 0;
        // Others' children are not touched.
        let flags = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
        // SAFETY: writes the status.
        let thread = unsafe { libc::waitpid(-1, &raw mut status, flags) };
        if thread > 0 {
            return Some((thread as u32, stop_of(status)));
        }
        if thread < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD) {
            return None;
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_micros(200));
    }
}

/// Stops a thread that is traced; what others do meanwhile is passed on. None: it does not stop, or has ended.
///
/// # Errors
/// [`Stop::Executed`] or [`Stop::Group`], if that is what happens to it: then it is not stopped by us.
pub fn stop(thread: u32, within: Duration) -> Result<Option<Registers>, Stop> {
    let before = arch::shown(thread);
    if interrupt(thread).is_err() {
        return Ok(None);
    }
    let until = Instant::now() + within;
    while let Some((who, stop)) = next_stop(until) {
        match stop {
            Stop::Asked if who == thread => {
                let registers = registers(thread).ok();
                // At once: should this process die, the thread's call goes on.
                return Ok(registers.map(|registers| match arch::continued(thread, &registers, before) {
                    Some(changed) if set_registers(thread, &changed).is_ok() => changed,
                    _ => registers,
                }));
            }
            Stop::Executed => return Err(stop),
            Stop::Ended if who == thread => return Ok(None),
            Stop::Group if who == thread => return Err(stop),
            stop => pass_on(who, stop),
        }
    }
    Ok(None)
}

fn stop_of(status: i32) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended;
    }
    match (libc::WSTOPSIG(status), status >> 16) {
        (libc::SIGTRAP, libc::PTRACE_EVENT_STOP) => Stop::Asked,
        (_, libc::PTRACE_EVENT_STOP) => Stop::Group,
        (_, libc::PTRACE_EVENT_EXEC) => Stop::Executed,
        (signal, 0) if signal == libc::SIGTRAP | 0x80 => Stop::SystemCall,
        (signal, 0) => Stop::Signal(signal),
        _ => Stop::Other,
    }
}

/// What a thread that is not waited for does next.
pub fn pass_on(thread: u32, stop: Stop) {
    // It may have ended: then nothing is to be done.
    let _ = match stop {
        Stop::Group => listen(thread),
        Stop::Signal(signal) => resume(thread, Resume::Run, signal),
        Stop::Ended => Ok(()),
        Stop::Asked | Stop::SystemCall | Stop::Executed | Stop::Other => resume(thread, Resume::Run, 0),
    };
}
