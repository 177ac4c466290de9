//! Lets a thread of a running process load a library and call a function of it, and puts the thread back to where it
//! was; and replaces instructions of a running process.
//!
//! It knows nothing of what the library does, nor of samples or profiles. All that is x86-64 lies in `x86_64/`, all that is
//! AArch64 in `aarch64/`. Both have the same items.
//!
//! ```text
//!  target.rs      which processes are refused, and why; mappings, threads
//!  image.rs       the ELF images in a process's memory: symbols, room behind code
//!  safe_point.rs  whether a stopped thread may be borrowed
//!  tracer.rs      ptrace(2)
//!  ended_calls.rs which system calls do not survive a stop
//!  x86_64/        the code that the thread runs, its registers, what becomes of a system call that a stop interrupts
//!  aarch64/       the same
//!  injector.rs    the order of things
//!  code_change.rs instructions replaced while all threads are stopped (x86-64 only)
//! ```
//!
//! # How
//!
//! 1. One thread is stopped (ptrace(2), `PTRACE_SEIZE` and `PTRACE_INTERRUPT`); the others run on, so whatever lock one
//!    of them holds is given back. A thread that is itself inside of the dynamic linker, of an allocator, or of what
//!    starts and ends threads is let go again; another one, or the same one later, is taken.
//! 2. Code of ours, written behind the last instruction of a library that is mapped already (to a page's end nothing
//!    else is there), is what the thread goes on with. It blocks signals, takes a stack of its own, saves the vector
//!    registers, has the library loaded (`dlopen` of a file in memory, so no folder of the target is needed), calls the
//!    function, and puts all back.
//! 3. When it is done the thread is stopped once more, gets its registers and its mask of signals, and goes on where it
//!    was. A system call that was interrupted is continued by the kernel as after any stop: the program sees no
//!    `EINTR` (also from calls which Linux does not restart, such as epoll_wait(2)).
//!
//! # Promises
//!
//! * If this process dies at any moment, the thread is either where it was or in code that takes it back without us.
//!   What differs then: a system call that a signal would have ended in just that time goes on instead; and in the few µs between
//!   a stop and the order to repeat the call, one that Linux does not restart returns `EINTR`, as after `SIGCONT`.
//! * errno, all registers, the mask of signals and the stack are what they were. Nothing is written below the stack
//!   pointer but one word, behind the red zone. (What AArch64 cannot promise if this process dies is said in `aarch64/`.)
//! * Nothing waits without bound: after [`MOST_WAIT`] the thread is left to end the call by itself.
//!
//! # Sources
//! ptrace(2); signal(7), "Interruption of system calls and library functions by stop signals"; System V ABI AMD64 1.0;
//! AAPCS64 (ARM IHI 0055).

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("injection's architecture-dependent part exists for x86-64 and AArch64 only: see src/x86_64");

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod code_change;
mod ended_calls;
mod error;
mod image;
mod injector;
mod safe_point;
mod target;
mod tracer;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as arch;
#[cfg(target_arch = "x86_64")]
use x86_64 as arch;

pub use arch::Registers;
pub use code_change::{Changed, CodeChange, MOST_SEARCHED, Made, change_code};
pub use error::{InjectError, permission_advice};
pub use injector::{Call, Called, Library, MOST_WAIT, Prepared, call};
pub use safe_point::WalkStack;
pub use target::{check, proc_folder};
