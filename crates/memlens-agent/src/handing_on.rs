//! The agent in programs that the target executes.
//!
//! The environment that memlens made is the target's own again when its first code runs, so a program that it executes
//! would run without the agent. The functions that execute programs lead through here: where the new program would load
//! the agent ([`crate::executable`]), it gets the same two words of environment again, and takes them out again as the
//! first one did. Their array and strings lie on the caller's stack: a child made by vfork(2) leaves nothing behind.
//!
//! Not seen: `system`, `popen`, `fexecve`, `execveat`, and system calls of the program's own. What cannot load the agent
//! is counted.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use memlens_events::agent::{SEGMENT_BYTES, VARIABLE};
use memlens_inside::environment::value_of;
use memlens_inside::weak;

use crate::arch::{number, syscall};
use crate::executable::{self, Executed};
use crate::real::{self, call};
use crate::session;

/// Longest path of the agent, with its zero byte.
pub const PATH_BYTES: usize = 1024;
const PRELOAD: &[u8] = b"LD_PRELOAD";
type Word = *const c_char;

struct OwnPath(UnsafeCell<[u8; PATH_BYTES]>);

// SAFETY: written once, before `READER` says that it is there.
unsafe impl Sync for OwnPath {}

/// The agent's file, as it was preloaded.
static OWN_PATH: OwnPath = OwnPath(UnsafeCell::new([0; PATH_BYTES]));
/// memlens's process << 32, and the segment's descriptor there; 0: the agent is not handed on.
static READER: AtomicU64 = AtomicU64::new(0);

/// From now on programs get the agent, too. `library`: its file; `descriptor`: that of the segment in memlens's process.
///
/// # Safety
/// Called once, before other threads run.
pub unsafe fn prepare(library: &[u8], reader_pid: u32, descriptor: u32) {
    if library.len() >= PATH_BYTES || !library.starts_with(b"/") {
        return;
    }
    // SAFETY: nobody reads it yet, and it fits.
    unsafe { ptr::copy_nonoverlapping(library.as_ptr(), OWN_PATH.0.get().cast(), library.len()) };
    READER.store(u64::from(reader_pid) << 32 | u64::from(descriptor), Ordering::Release);
}

/// Opens the segment's file, which another process has under a descriptor. None: that cannot be, or it is another file.
pub fn open_descriptor(pid: usize, descriptor: usize) -> Option<usize> {
    const AT_FDCWD: usize = -100isize as usize;
    const READ_WRITE_CLOEXEC: usize = 0x0008_0002;
    let (pid, descriptor) = (u32::try_from(pid).ok()?, u32::try_from(descriptor).ok()?);
    let (mut first, mut second) = ([0; 10], [0; 10]);
    let path =
        Text::<48>::of(&[b"/proc/", decimal(pid, &mut first), b"/fd/", decimal(descriptor, &mut second)])?;
    let arguments = [AT_FDCWD, path.word() as usize, READ_WRITE_CLOEXEC, 0, 0, 0];
    // SAFETY: a string.
    let opened = usize::try_from(unsafe { syscall(number::OPENAT, arguments) }).ok()?;
    // Of what is shorter, reading past the end would be a fault.
    if executable::size_of_descriptor(opened) == Some(SEGMENT_BYTES as u64) {
        return Some(opened);
    }
    // SAFETY: ours.
    unsafe { syscall(number::CLOSE, [opened, 0, 0, 0, 0, 0]) };
    None
}

/// What is handed on; None: nothing is.
fn handed_on() -> Option<(u64, &'static CStr)> {
    let reader = READER.load(Ordering::Acquire);
    // SAFETY: written before, and never again; the last byte is 0.
    let path = unsafe { CStr::from_ptr(OWN_PATH.0.get().cast()) };
    // Where the two differ the dynamic linker ignores what is preloaded.
    let ids = [number::GETUID, number::GETEUID, number::GETGID, number::GETEGID];
    // SAFETY: the calls only ask.
    let [user, effective_user, group, effective_group] = ids.map(|id| unsafe { syscall(id, [0; 6]) });
    let is_plain = user == effective_user && group == effective_group;
    // SAFETY: a string. It may lie outside of what the process can reach by now.
    (reader != 0 && is_plain && unsafe { executable::is_readable(path.as_ptr()) }).then_some((reader, path))
}

/// What a new program's environment has, as far as it matters here.
struct Words {
    count: usize,
    /// Where `LD_PRELOAD` stands.
    preload: Option<usize>,
}

/// None: it is another memlens's, or there are several lists of libraries.
///
/// # Safety
/// An array of strings that a null pointer ends.
unsafe fn look_at(environment: *const Word) -> Option<Words> {
    let mut words = Words { count: 0, preload: None };
    loop {
        // SAFETY: up to the null pointer.
        let word = unsafe { environment.add(words.count).read() };
        if word.is_null() {
            return Some(words);
        }
        // SAFETY: a string.
        let text = unsafe { CStr::from_ptr(word) }.to_bytes();
        if value_of(text, VARIABLE.as_bytes()).is_some() {
            return None;
        }
        if value_of(text, PRELOAD).is_some() && words.preload.replace(words.count).is_some() {
            return None;
        }
        words.count += 1;
    }
}

/// Text on the stack.
struct Text<const N: usize> {
    bytes: [MaybeUninit<u8>; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    /// Of these parts, ended by a zero byte; None: they do not fit.
    fn of(parts: &[&[u8]]) -> Option<Self> {
        let mut text = Self { bytes: [const { MaybeUninit::uninit() }; N], length: 0 };
        for part in parts.iter().copied().chain([&[0][..]]) {
            let room = text.bytes.get_mut(text.length..text.length + part.len())?;
            // SAFETY: room for them, that overlaps nothing.
            unsafe { ptr::copy_nonoverlapping(part.as_ptr(), room.as_mut_ptr().cast(), part.len()) };
            text.length += part.len();
        }
        Some(text)
    }

    fn word(&self) -> Word {
        self.bytes.as_ptr().cast()
    }
}

/// `value` in decimal, in `place`.
fn decimal(value: u32, place: &mut [u8; 10]) -> &[u8] {
    let mut left = value;
    let mut start = place.len();
    loop {
        start -= 1;
        place[start] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            return &place[start..];
        }
    }
}

/// Executes with the agent's words in the environment, where `file` would load it.
///
/// # Safety
/// `environment` is null, or an array of strings that a null pointer ends; `file` is a string.
unsafe fn with_agent(environment: *const Word, file: Word, execute: impl Fn(*const Word) -> c_int) -> c_int {
    let Some(control) = session::segment().map(|segment| segment.control()) else {
        return execute(environment);
    };
    // SAFETY: the caller's promises.
    let plan = unsafe {
        if environment.is_null() || file.is_null() {
            return execute(environment);
        }
        let Some(words) = look_at(environment) else { return execute(environment) };
        let Some(handed_on) = handed_on() else { return execute(environment) };
        match executable::executed(file) {
            Executed::With => Some((words, handed_on)),
            Executed::Without => None,
            Executed::Nothing => return execute(environment),
        }
    };
    let done = plan.and_then(|(words, handed_on)| {
        // SAFETY: as above. The first that has room; each takes its stack only when it is called.
        unsafe {
            match words.count {
                0..126 => with_room::<128, 512>(environment, &words, handed_on, &execute),
                126..1022 => with_room::<1024, 4096>(environment, &words, handed_on, &execute),
                1022..8190 => with_room::<8192, 16384>(environment, &words, handed_on, &execute),
                _ => None,
            }
        }
    });
    done.unwrap_or_else(|| {
        control.programs_without_agent.fetch_add(1, Ordering::Relaxed);
        execute(environment)
    })
}

/// As [`with_agent`], in arrays of these sizes; None: the list of libraries is too long for them.
///
/// # Safety
/// As there; `words` is what the environment has, and fits.
#[inline(never)]
unsafe fn with_room<const WORDS: usize, const TEXT: usize>(
    environment: *const Word,
    words: &Words,
    (reader, path): (u64, &CStr),
    execute: &dyn Fn(*const Word) -> c_int,
) -> Option<c_int> {
    let mut array = [const { MaybeUninit::<Word>::uninit() }; WORDS];
    // SAFETY: so many words are there, and room for two more and the end.
    unsafe { ptr::copy_nonoverlapping(environment, array.as_mut_ptr().cast(), words.count) };
    let own = words.preload.and_then(|at| {
        // SAFETY: one of the strings.
        let text = unsafe { CStr::from_ptr(environment.add(at).read()) }.to_bytes();
        value_of(text, PRELOAD)
    });
    let colon = if own.is_some() { &b":"[..] } else { b"" };
    let list = Text::<TEXT>::of(&[PRELOAD, b"=", path.to_bytes(), colon, own.unwrap_or_default()])?;
    let (mut pid, mut descriptor) = ([0; 10], [0; 10]);
    let (pid, descriptor) =
        (decimal((reader >> 32) as u32, &mut pid), decimal(reader as u32, &mut descriptor));
    let variable = Text::<48>::of(&[VARIABLE.as_bytes(), b"=", pid, b":", descriptor])?;
    let mut end = words.count;
    match words.preload {
        Some(at) => array[at].write(list.word()),
        None => {
            end += 1;
            array[end - 1].write(list.word())
        }
    };
    array[end].write(variable.word());
    array[end + 1].write(ptr::null());
    Some(execute(array.as_ptr().cast()))
}

/// The process's environment.
fn environment() -> *const Word {
    let place = weak!("environ") as *const *const Word;
    // SAFETY: the variable of that name (POSIX.1-2024, 8.1).
    if place.is_null() { ptr::null() } else { unsafe { place.read() } }
}

/// The file that a name on the path means, handed to `then`; null: it is not found, or nothing is handed on.
///
/// # Safety
/// `name` is a string.
#[inline(never)]
unsafe fn on_path(name: Word, then: impl FnOnce(Word) -> c_int) -> c_int {
    if session::segment().is_none() {
        return then(ptr::null());
    }
    let mut place = [0; 1024];
    // SAFETY: the caller's string; the environment's strings.
    let found = unsafe {
        let mut path = None;
        let mut at = environment();
        while path.is_none() && !at.is_null() && !at.read().is_null() {
            path = value_of(CStr::from_ptr(at.read()).to_bytes(), b"PATH");
            at = at.add(1);
        }
        let name = if name.is_null() { &[][..] } else { CStr::from_ptr(name).to_bytes() };
        executable::found_on_path(name, path, &mut place)
    };
    then(found.map_or(ptr::null(), CStr::as_ptr))
}

/// `int execve(const char *path, char *const argv[], char *const envp[])`
///
/// # Safety
/// As the C function; so are those below.
pub unsafe extern "C" fn execve(path: Word, arguments: *const Word, environment: *const Word) -> c_int {
    real::ready();
    // SAFETY: the caller's promise.
    unsafe {
        with_agent(
            environment,
            path,
            |environment| call!(real::EXECVE, (path, arguments, environment) -> c_int),
        )
    }
}

/// `int execv(const char *path, char *const argv[])`
pub unsafe extern "C" fn execv(path: Word, arguments: *const Word) -> c_int {
    // SAFETY: the caller's promise; execv(3) is that.
    unsafe { execve(path, arguments, environment()) }
}

/// `int execvpe(const char *file, char *const argv[], char *const envp[])`
pub unsafe extern "C" fn execvpe(file: Word, arguments: *const Word, environment: *const Word) -> c_int {
    real::ready();
    // SAFETY: the caller's promise.
    unsafe {
        on_path(file, |path| {
            with_agent(
                environment,
                path,
                |environment| call!(real::EXECVPE, (file, arguments, environment) -> c_int),
            )
        })
    }
}

/// `int execvp(const char *file, char *const argv[])`
pub unsafe extern "C" fn execvp(file: Word, arguments: *const Word) -> c_int {
    // SAFETY: the caller's promise; execvp(3) is that.
    unsafe { execvpe(file, arguments, environment()) }
}

/// execl(3), execlp(3) and execle(3), their arguments behind the first as an array: a null pointer ends it, and
/// execle's environment follows that.
pub unsafe extern "C" fn execl(path: Word, arguments: *const Word) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { execv(path, arguments) }
}

/// See [`execl`].
pub unsafe extern "C" fn execlp(file: Word, arguments: *const Word) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { execvp(file, arguments) }
}

/// See [`execl`].
pub unsafe extern "C" fn execle(path: Word, arguments: *const Word) -> c_int {
    let mut at = arguments;
    // SAFETY: the caller's promise.
    unsafe {
        while !at.read().is_null() {
            at = at.add(1);
        }
        execve(path, arguments, at.add(1).cast::<*const Word>().read())
    }
}

/// `int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t
/// *attributes, char *const argv[], char *const envp[])`
pub unsafe extern "C" fn posix_spawn(
    pid: *mut c_int,
    path: Word,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const Word,
    environment: *const Word,
) -> c_int {
    real::ready();
    // SAFETY: the caller's promise.
    unsafe {
        with_agent(
            environment,
            path,
            |environment| call!(real::POSIX_SPAWN, (pid, path, actions, attributes, arguments, environment) -> c_int),
        )
    }
}

/// The same with a name that is looked for on the path.
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut c_int,
    file: Word,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const Word,
    environment: *const Word,
) -> c_int {
    real::ready();
    // SAFETY: the caller's promise.
    unsafe {
        on_path(file, |path| {
            with_agent(
                environment,
                path,
                |environment| call!(real::POSIX_SPAWNP, (pid, file, actions, attributes, arguments, environment) -> c_int),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts() {
        assert_eq!(
            [decimal(0, &mut [0; 10]), decimal(4_294_967_295, &mut [0; 10])],
            [&b"0"[..], b"4294967295"]
        );
        let text = Text::<8>::of(&[b"ab", b"", b"cdefg"]).expect("it fits");
        // SAFETY: ended by a zero byte.
        assert_eq!(unsafe { CStr::from_ptr(text.word()) }, c"abcdefg");
        assert!(Text::<8>::of(&[b"ab", b"cdefgh"]).is_none());
    }

    #[test]
    fn an_environment_of_another_memlens_is_left_alone() {
        let look = |words: &[&CStr]| {
            let array: Vec<Word> = words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect();
            // SAFETY: strings, ended by a null pointer.
            unsafe { look_at(array.as_ptr()) }.map(|words| (words.count, words.preload))
        };
        assert_eq!(look(&[]), Some((0, None)));
        assert_eq!(look(&[c"A=1", c"LD_PRELOAD=/x.so", c"B=2"]), Some((3, Some(1))));
        assert_eq!(look(&[c"LD_PRELOAD=/x.so", c"LD_PRELOAD=/y.so"]), None);
        assert_eq!(look(&[c"A=1", c"MEMLENS_AGENT=3"]), None);
    }
}
