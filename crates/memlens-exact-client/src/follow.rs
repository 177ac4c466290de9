//! Programs that are recorded besides the first: those that it executes in its place, and with `--follow children` all that
//! its children run.
//!
//! A forked child asks memlens, on an abstract socket, for a segment of its own. A program about to be
//! executed is entered as the first one was: by executing DynamoRIO's library, with the program's path
//! and DynamoRIO's options at the end of the environment; its client then asks for a segment. Whether
//! the program can be executed so is decided before: after the library has begun, `execve` cannot fail
//! any more. What cannot (setuid, other architectures, unreadable) is executed as the target wants it,
//! and memlens is told.
//!
//! # Signal safety
//! Files are looked at by system calls of our own, with descriptors that exist for a moment and are not
//! inherited. Memory comes from DynamoRIO's heap.

use crate::channel::CHANNEL;
use crate::own_exe;
use crate::signals;
use crate::state::STATE;
use crate::sys;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use dynamorio_sys::*;
use memlens_events::segment::{ARRIVED_BY_EXEC, ARRIVED_BY_FORK, FOLLOW_CHILDREN};
use memlens_events::{EventKind, ExecHow};
use std::ffi::CString;

pub const SYS_EXECVE: c_int = 59;
pub const SYS_EXECVEAT: c_int = 322;
const AT_FDCWD: i32 = -100;
const AT_EMPTY_PATH: u64 = 0x1000;
const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
/// The kernel's limit of a path.
const MAX_PATH: usize = 4095;
/// The kernel follows at most this many `#!` lines, and reads so much of one (Linux 6.x,
/// `fs/exec.c`, `include/uapi/linux/binfmts.h`).
const MAX_INTERPRETERS: usize = 5;
const LINE_BYTES: usize = 256;
/// More arguments than the kernel takes.
const MAX_POINTERS: usize = 1 << 22;

/// What following needs; there when memlens follows.
struct Follow {
    /// memlens's socket, an abstract name.
    socket: Vec<u8>,
    /// Which programs are recorded: [`FOLLOW_CHILDREN`], or another word for those that are executed in place.
    whom: Vec<u8>,
    /// DynamoRIO's library.
    engine: CString,
    /// This library.
    client: CString,
    /// `DYNAMORIO_OPTIONS=` up to the client's arguments.
    options: Vec<u8>,
}

impl Follow {
    /// Whether the engine is where it was: a folder of caches may be emptied at any time.
    fn is_whole(&self) -> bool {
        sys::may_access(&self.engine, sys::X_OK) && sys::exists(&self.client)
    }
}

static FOLLOW: AtomicPtr<Follow> = AtomicPtr::new(core::ptr::null_mut());
/// 1 from before a fork until after it, in parent and child.
static FORKING: AtomicU32 = AtomicU32::new(0);

fn follow() -> Option<&'static Follow> {
    let follow = FOLLOW.load(Ordering::Relaxed);
    // SAFETY: null, or leaked in `start` and never changed.
    (!follow.is_null()).then(|| unsafe { &*follow })
}

/// Further programs are to be recorded: by asking on `socket`, with these options for DynamoRIO; `whom` is
/// the word for which.
pub fn start(socket: &[u8], whom: &[u8], options: &[u8]) {
    // The client's own arguments come last: `… -client_lib 'FILE;0;ARGUMENTS'`.
    let Some(end) = options.windows(3).rposition(|three| three == b";0;") else { return };
    let Some(engine) = sys::read_link(c"/proc/self/exe").and_then(|path| CString::new(path).ok()) else {
        return;
    };
    let before = options[..end].iter().rposition(|&byte| byte == b'\'').map_or(0, |quote| quote + 1);
    let Ok(client) = CString::new(&options[before..end]) else { return };
    let (socket, whom, options) = (socket.to_vec(), whom.to_vec(), options[..end + 3].to_vec());
    let follow = Follow { socket, whom, engine, client, options };
    FOLLOW.store(Box::into_raw(Box::new(follow)), Ordering::Relaxed);
}

/// Whether further programs are recorded.
pub fn is_on() -> bool {
    follow().is_some()
}

/// Whether children are recorded.
pub fn follows_children() -> bool {
    follow().is_some_and(|follow| follow.whom == FOLLOW_CHILDREN.as_bytes())
}

/// What following needs, if a program that this process executes is to be recorded.
fn follow_execution() -> Option<&'static Follow> {
    follow().filter(|_| follows_children() || CHANNEL.is_own_process())
}

/// A segment for this process, which has just begun by `execve`.
pub fn segment_after_exec() -> Option<usize> {
    sys::ask_for_descriptor(&follow()?.socket, &[memlens_events::segment::MAGIC, ARRIVED_BY_EXEC, 0, 0])
}

/// A segment for this process, which the process with segment number `parent` has just forked; `token`
/// is what that one told memlens before.
pub fn segment_after_fork(parent: u64, token: u64) -> Option<usize> {
    let question = [memlens_events::segment::MAGIC, ARRIVED_BY_FORK, parent, token];
    sys::ask_for_descriptor(&follow()?.socket, &question)
}

/// A fork begins or is over.
pub fn set_forking(forking: bool) {
    FORKING.store(forking.into(), Ordering::SeqCst);
}

/// Whether a fork is under way: then another process than the one that began it is its child, whose
/// other threads are mere copies.
pub fn is_forking() -> bool {
    FORKING.load(Ordering::SeqCst) != 0
}

/// An `execve` under way.
pub struct Execution {
    /// The arguments as the target gave them, by index.
    arguments: [u64; 4],
    /// What the kernel is given; read until the call has failed or replaced the process.
    _texts: Vec<CString>,
    _arrays: [Vec<u64>; 2],
}

/// What becomes of a program to be executed.
enum Plan {
    /// Recorded: the file to load, and what goes before the arguments after the first.
    Record { file: CString, before: Vec<CString> },
    /// Executed natively, for this reason.
    Native(ExecHow),
    /// The kernel will refuse it.
    Fails,
}

/// Before an `execve` or `execveat`: prepares that the new program is recorded, or that
/// `/proc/self/exe` is the program. Keep the result until the call has returned.
///
/// # Safety
/// Called from the pre-system-call event of that call.
pub unsafe fn before_exec(context: *mut c_void, number: c_int, blocked: u64) -> Box<Execution> {
    // SAFETY: the caller's promise.
    unsafe {
        let mut execution = Box::new(Execution {
            arguments: [0, 1, 2, 3].map(|index| dr_syscall_get_param(context, index)),
            _texts: Vec::new(),
            _arrays: [Vec::new(), Vec::new()],
        });
        let thread = STATE.thread(context);
        let path = path_of(context, number);
        let Some(follow) = follow_execution() else {
            thread.event(EventKind::Exec, &[0]);
            let own = path.is_some_and(|path| own_exe::is_meant_by(&path));
            if let Some(own) = own_exe::path().filter(|_| own) {
                let index = c_int::from(number == SYS_EXECVEAT);
                dr_syscall_set_param(context, index, own.as_ptr() as reg_t);
            }
            return execution;
        };
        let name = path.clone().unwrap_or_default();
        let plan = match path {
            _ if !follow.is_whole() => Plan::Native(ExecHow::NoEngine),
            _ if number == SYS_EXECVEAT && dr_syscall_get_param(context, 4) & AT_SYMLINK_NOFOLLOW != 0 => {
                Plan::Fails
            }
            Some(path) => plan(path),
            None => Plan::Fails,
        };
        let (file, before) = match plan {
            Plan::Record { file, before } => (file, before),
            Plan::Native(reason) => {
                thread.event(EventKind::Exec, &packed(reason as u64, &name));
                return execution;
            }
            Plan::Fails => {
                thread.event(EventKind::Exec, &[0]);
                return execution;
            }
        };
        let first = c_int::from(number == SYS_EXECVEAT);
        let (argv, envp) = (execution.arguments[first as usize + 1], execution.arguments[first as usize + 2]);
        let (Some(mut arguments), Some(mut environment)) = (pointers_at(argv), pointers_at(envp)) else {
            // The kernel will say what is wrong with them.
            thread.event(EventKind::Exec, &[0]);
            return execution;
        };
        if !before.is_empty() {
            let rest = arguments.split_off(arguments.len().min(1));
            arguments = before.iter().map(|text| text.as_ptr() as u64).chain(rest).collect();
        }
        let options = options_with(follow, blocked);
        let file_variable = [b"DYNAMORIO_EXE_PATH=", file.to_bytes()].concat();
        let (Ok(options), Ok(file_variable)) = (CString::new(options), CString::new(file_variable)) else {
            return execution;
        };
        environment.extend([options.as_ptr() as u64, file_variable.as_ptr() as u64]);
        arguments.push(0);
        environment.push(0);
        dr_syscall_set_sysnum(context, SYS_EXECVE);
        dr_syscall_set_param(context, 0, follow.engine.as_ptr() as reg_t);
        dr_syscall_set_param(context, 1, arguments.as_ptr() as reg_t);
        dr_syscall_set_param(context, 2, environment.as_ptr() as reg_t);
        execution._texts = before;
        execution._texts.extend([options, file_variable]);
        execution._arrays = [arguments, environment];
        thread.event(EventKind::Exec, &[1]);
        execution
    }
}

/// After an `execve` that failed: puts its arguments back.
///
/// # Safety
/// Called from the post-system-call event of that call.
pub unsafe fn exec_failed(context: *mut c_void, execution: &Execution) {
    // SAFETY: the caller's promise: there the context may be changed.
    unsafe {
        let mut machine: dr_mcontext_t = core::mem::zeroed();
        machine.size = core::mem::size_of::<dr_mcontext_t>();
        machine.flags = dr_mcontext_flags_t::DR_MC_INTEGER;
        if dr_get_mcontext(context, &mut machine) != 0 {
            machine.__bindgen_anon_1.xdi = execution.arguments[0] as reg_t;
            machine.__bindgen_anon_2.xsi = execution.arguments[1] as reg_t;
            machine.__bindgen_anon_6.xdx = execution.arguments[2] as reg_t;
            dr_set_mcontext(context, &mut machine);
        }
        // The process goes on as it was.
        STATE.thread(context).event(EventKind::Exec, &[u64::MAX]);
    }
}

/// An `Exec` event's words: how, then the bytes of a name, packed.
fn packed(how: u64, name: &[u8]) -> Vec<u64> {
    const MAX_NAME_BYTES: usize = 256;
    let name = &name[..name.len().min(MAX_NAME_BYTES)];
    let words = name.chunks(8).map(|chunk| {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(bytes)
    });
    [how, name.len() as u64].into_iter().chain(words).collect()
}

fn options_with(follow: &Follow, blocked: u64) -> Vec<u8> {
    let signals = format!("- {:x} {blocked:x} ", signals::ignored());
    [&follow.options, signals.as_bytes(), &follow.socket, b" ", &follow.whom, b"'"].concat()
}

/// The path that an `execve` or `execveat` names, independent of descriptors that will be closed.
unsafe fn path_of(context: *mut c_void, number: c_int) -> Option<Vec<u8>> {
    // SAFETY: called from a pre-system-call event.
    let argument = |index| unsafe { dr_syscall_get_param(context, index) };
    if number == SYS_EXECVE {
        return sys::text_at(argument(0), MAX_PATH);
    }
    let path = sys::text_at(argument(1), MAX_PATH)?;
    let folder = argument(0) as i32;
    if path.starts_with(b"/") || (folder == AT_FDCWD && !path.is_empty()) {
        return Some(path);
    }
    if path.is_empty() && argument(4) & AT_EMPTY_PATH == 0 {
        return None;
    }
    let link = CString::new(format!("/proc/self/fd/{folder}")).ok()?;
    let mut full = sys::read_link(&link)?;
    if !path.is_empty() {
        full.push(b'/');
        full.extend(path);
    }
    Some(full)
}

/// An array of pointers that ends with a null; none for a null.
fn pointers_at(address: u64) -> Option<Vec<u64>> {
    let mut pointers = Vec::new();
    if address == 0 {
        return Some(pointers);
    }
    loop {
        match sys::word_at(address + 8 * pointers.len() as u64)? {
            0 => return Some(pointers),
            pointer if pointers.len() < MAX_POINTERS => pointers.push(pointer),
            _ => return None,
        }
    }
}

/// Finds what executing `path` means, as the kernel would.
fn plan(path: Vec<u8>) -> Plan {
    let mut path = match own_exe::path() {
        Some(own) if own_exe::is_meant_by(&path) => own.to_bytes().to_vec(),
        _ => path,
    };
    let mut before: Vec<CString> = Vec::new();
    for _ in 0..=MAX_INTERPRETERS {
        let Ok(file) = CString::new(path.clone()) else { return Plan::Fails };
        if !sys::may_access(&file, sys::X_OK) {
            let is_gone = path.ends_with(b" (deleted)");
            return if is_gone { Plan::Native(ExecHow::Deleted) } else { Plan::Fails };
        }
        let Some(status) = sys::status(&file) else { return Plan::Fails };
        const KIND: u32 = 0o170_000;
        const REGULAR: u32 = 0o100_000;
        if status.mode & KIND != REGULAR {
            return Plan::Fails;
        }
        let mut head = vec![0_u8; 4096];
        let length = sys::read_file(&file, &mut head);
        head.truncate(length);
        if head.is_empty() {
            return Plan::Native(ExecHow::Unreadable);
        }
        if head.starts_with(b"#!") {
            let Some((interpreter, option)) = interpreter_line(&head) else { return Plan::Fails };
            // What the interpreter gets first: its own name, its option, the script.
            let mut words = vec![interpreter.to_vec()];
            words.extend(option.map(<[u8]>::to_vec));
            words.push(path);
            path = interpreter.to_vec();
            let Ok(words) = words.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>() else {
                return Plan::Fails;
            };
            // An interpreter that is a script itself: its name is replaced.
            before.splice(..before.len().min(1), words);
            continue;
        }
        // A script's own bits do not count; its interpreter's do.
        let changes_user = status.mode & 0o4000 != 0 && sys::effective_user() != status.owner;
        let changes_group = status.mode & 0o2000 != 0 && sys::effective_group() != status.group;
        if changes_user || changes_group || sys::has_capabilities(&file) {
            return Plan::Native(ExecHow::Privileged);
        }
        return match loader(&head) {
            Ok(Some(loader)) if !sys::exists(&loader) => Plan::Fails,
            Ok(_) => Plan::Record { file, before },
            Err(reason) => Plan::Native(reason),
        };
    }
    Plan::Fails
}

/// Interpreter and optional argument of a `#!` line, split as Linux does (`fs/binfmt_script.c`).
fn interpreter_line(head: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let head = &head[..head.len().min(LINE_BYTES)];
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|byte| b" \t".contains(byte)).unwrap_or(line.len());
    let (interpreter, rest) = (&line[..end], line[end..].trim_ascii());
    (!interpreter.is_empty()).then_some((interpreter, (!rest.is_empty()).then_some(rest)))
}

/// The loader that a program of ours names, if it names one. `head` is the beginning of its file.
fn loader(head: &[u8]) -> Result<Option<CString>, ExecHow> {
    let field = |at: usize, bytes: usize| -> Option<u64> {
        let field = head.get(at..at + bytes)?;
        Some(field.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    };
    if !head.starts_with(b"\x7fELF") {
        return Err(ExecHow::NoProgram);
    }
    const CLASS_64_LITTLE: u64 = 0x0102;
    const EM_X86_64: u64 = 62;
    if field(4, 2) != Some(CLASS_64_LITTLE) || field(18, 2) != Some(EM_X86_64) {
        return Err(ExecHow::OtherArchitecture);
    }
    if !matches!(field(16, 2), Some(2 | 3)) {
        return Err(ExecHow::NoProgram);
    }
    // Program headers that do not stand at the file's beginning are not looked at.
    let (start, size, count) = (field(32, 8), field(54, 2), field(56, 2));
    let (Some(start), Some(size), Some(count)) = (start, size, count) else { return Ok(None) };
    for index in 0..count {
        let at = (start + index * size) as usize;
        const PT_INTERP: u64 = 3;
        if at > head.len() || field(at, 4) != Some(PT_INTERP) {
            continue;
        }
        let (offset, bytes) = (field(at + 8, 8).unwrap_or(0), field(at + 32, 8).unwrap_or(0));
        let name = head.get(offset as usize..(offset.saturating_add(bytes)) as usize);
        let name = name.and_then(|name| CStr::from_bytes_until_nul(name).ok());
        return Ok(name.map(CStr::to_owned));
    }
    Ok(None)
}
