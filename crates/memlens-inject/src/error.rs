//! Why nothing can be injected into a process.

use std::io;

use thiserror::Error;

/// An error of this crate; reads after "failed to". Each says what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InjectError {
    /// There is no such process, or it has ended meanwhile.
    #[error("attach to process {0}: there is no such process, or it has ended")]
    Gone(u32),
    /// It has ended, and its parent has not asked for its exit code yet.
    #[error("attach to process {0}: it has ended already (a zombie)")]
    Zombie(u32),
    /// It belongs to the kernel.
    #[error("attach to process {0}: it is a thread of the kernel")]
    Kernel(u32),
    /// The kernel does not allow it.
    #[error("attach to process {pid}: {error}; {advice}", advice = permission_advice())]
    Forbidden {
        /// The process.
        pid: u32,
        /// What ptrace(2) said.
        error: io::Error,
    },
    /// Somebody else traces it.
    #[error("attach to process {pid}: {tracer} (process {tracer_pid}) traces it already; end that first")]
    Traced {
        /// The process.
        pid: u32,
        /// Who traces it, by name.
        tracer: String,
        /// Its process id.
        tracer_pid: u32,
    },
    /// Another memlens records it.
    #[error("attach to process {pid}: memlens (process {reader}) records it already; end that first")]
    Busy {
        /// The process.
        pid: u32,
        /// The other memlens.
        reader: u32,
    },
    /// It is stopped by a signal.
    #[error("attach to process {0}: it is stopped; let it go on with: kill -CONT {0}")]
    Stopped(u32),
    /// Its machine code is not 64-bit.
    #[error("attach to process {0}: it is a 32-bit program, memlens knows 64-bit ones")]
    Bits(u32),
    /// It filters its system calls.
    #[error(
        "attach to process {0}: it filters its system calls (seccomp), and a call that its filter does not know might \
         end it; start it without the filter"
    )]
    Seccomp(u32),
    /// Its privileges were raised when it was executed.
    #[error(
        "attach to process {0}: it was executed with raised privileges (setuid, setgid or file capabilities); start it \
         as a user who needs none"
    )]
    Privileged(u32),
    /// Its process ids are others than here.
    #[error(
        "attach to process {0}: it lives in another process namespace (a container), where ids differ; run memlens in \
         there: nsenter --target {0} --pid --mount memlens …"
    )]
    Namespace(u32),
    /// There is no glibc in it.
    #[error(
        "attach to process {0}: {1}; libraries can be loaded into programs that are linked dynamically with glibc only; \
         start it with `memlens run --mode exact`"
    )]
    Libc(u32, &'static str),
    /// A sanitizer's runtime is in it.
    #[error("attach to process {0}: it is instrumented by a sanitizer ({1}); run a build without")]
    Sanitizer(u32, String),
    /// The processor has no XSAVE.
    #[error("attach to process {0}: the processor has no XSAVE")]
    Processor(u32),
    /// Its processor has other instructions than those that can be replaced.
    #[error("change the code of process {0}: memlens replaces instructions of x86-64 processors only")]
    Instructions(u32),
    /// There is no place for our code.
    #[error("attach to process {0}: none of its libraries has {1} free bytes behind its code")]
    NoRoom(u32, usize),
    /// No thread could be borrowed.
    #[error(
        "attach to process {pid}: in {tries} tries no thread was found outside of the dynamic linker and of memory \
         allocation ({last}); try again"
    )]
    NoThread {
        /// The process.
        pid: u32,
        /// How often threads were stopped and let go.
        tries: u32,
        /// What was in the way last.
        last: &'static str,
    },
    /// Its code is being run where it was to be changed.
    #[error("change the code of process {pid}: in {tries} tries {last}; try again")]
    CodeInUse {
        /// The process.
        pid: u32,
        /// How often its threads were stopped and let go.
        tries: u32,
        /// What was in the way last.
        last: &'static str,
    },
    /// All of its threads were made without libc.
    #[error(
        "attach to process {0}: it makes its threads without libc, as Go's programs do without cgo; take --mode sample, \
         or start it with `memlens run --mode exact`"
    )]
    OwnThreads(u32),
    /// The dynamic linker refused.
    #[error("attach to process {pid}: its dynamic linker does not load the agent: {why}")]
    NotLoaded {
        /// The process.
        pid: u32,
        /// What it said.
        why: String,
    },
    /// The call did not come back in time.
    #[error(
        "attach to process {0}: the thread that was borrowed has not come back yet; it goes on by itself"
    )]
    TimedOut(u32),
    /// The call raised a signal.
    #[error("attach to process {0}: the agent raised signal {1} in it; the program goes on without")]
    Crashed(u32, i32),
    /// The library in it is of another version.
    #[error(
        "attach to process {0}: the agent of another version of memlens is in it; use that, or restart the process"
    )]
    OtherVersion(u32),
    /// Some system call failed that should not.
    #[error("attach to process {pid}: {what}: {error}")]
    System {
        /// The process.
        pid: u32,
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
}

impl InjectError {
    /// Whether the user may not do this.
    pub fn is_of_permission(&self) -> bool {
        matches!(self, Self::Forbidden { .. } | Self::Privileged(_))
    }

    /// Whether such a process can never be attached to.
    pub fn is_for_good(&self) -> bool {
        matches!(
            self,
            Self::Kernel(_)
                | Self::Bits(_)
                | Self::Seccomp(_)
                | Self::Namespace(_)
                | Self::Libc(..)
                | Self::Sanitizer(..)
                | Self::OwnThreads(_)
                | Self::Processor(_)
                | Self::Instructions(_)
                | Self::NoRoom(..)
                | Self::OtherVersion(_)
        )
    }

    /// Whether the process is not there.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone(_) | Self::Zombie(_))
    }
}

/// What makes the kernel allow ptrace(2).
pub fn permission_advice() -> String {
    // Documentation/admin-guide/LSM/Yama.rst.
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "1" => {
            "run memlens as root, or allow it to your own processes: sudo sysctl kernel.yama.ptrace_scope=0"
                .into()
        }
        "2" => "run memlens as root (kernel.yama.ptrace_scope is 2)".into(),
        "3" => "kernel.yama.ptrace_scope is 3, which forbids it until the next boot".into(),
        _ => {
            "run memlens as the process's owner or as root; in a container, with --cap-add SYS_PTRACE".into()
        }
    }
}
