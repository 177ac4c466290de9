//! Whether a program about to be executed would load the agent, and come to no harm by it: the rules of
//! `memlens-agent-host`'s `check_preloadable`, by system calls and the stack alone.

use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;

use memlens_events::agent::GLIBC_LOADER;

use crate::arch::{self, number, syscall};

/// The kernel follows at most this many `#!` lines, and reads so much of one (Linux 6.x, `fs/exec.c`,
/// `include/uapi/linux/binfmts.h`).
const MAX_INTERPRETERS: usize = 5;
const LINE_BYTES: usize = 256;
/// ELF header and program headers of a program: 13 of 56 bytes behind 64 are usual.
const HEAD_BYTES: usize = 2048;
/// Of openat(2): paths count from the current folder.
const AT_FDCWD: usize = -100isize as usize;
/// Libraries that refuse to start behind another one.
const SANITIZERS: [&[u8]; 4] = [b"libasan.so", b"libhwasan.so", b"liblsan.so", b"libtsan.so"];
/// Entries of a dynamic section that are looked at; programs have some thirty.
const MAX_DYNAMIC: u64 = 512;

/// A file that is open for reading.
pub(crate) struct File(usize);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: a descriptor of ours.
        unsafe { syscall(number::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

impl File {
    /// # Safety
    /// `path` is a string.
    pub(crate) unsafe fn open(path: *const c_char) -> Option<Self> {
        const NONBLOCK_CLOEXEC: usize = 0x0008_0800;
        // SAFETY: the caller's string.
        let file = unsafe { syscall(number::OPENAT, [AT_FDCWD, path as usize, NONBLOCK_CLOEXEC, 0, 0, 0]) };
        usize::try_from(file).ok().map(Self)
    }

    /// Mode and size; None: they cannot be had.
    fn status(&self) -> Option<(u32, u64)> {
        // `struct stat` of asm/stat.h: 144 bytes at most, the size at 48.
        let mut status = [0u64; 18];
        // SAFETY: the call fills the structure.
        let result = unsafe { syscall(number::FSTAT, [self.0, status.as_mut_ptr() as usize, 0, 0, 0, 0]) };
        (result == 0).then_some((status[arch::STAT_MODE_WORD] as u32, status[6]))
    }

    /// Reads what is there of `bytes` at an offset.
    pub(crate) fn read<'a>(&self, offset: u64, bytes: &'a mut [MaybeUninit<u8>]) -> &'a [u8] {
        let arguments = [self.0, bytes.as_mut_ptr() as usize, bytes.len(), offset as usize, 0, 0];
        // SAFETY: at most so many bytes are written.
        let read = unsafe { syscall(number::PREAD64, arguments) };
        let length = usize::try_from(read).unwrap_or(0).min(bytes.len());
        // SAFETY: the kernel has written these.
        unsafe { core::slice::from_raw_parts(bytes.as_ptr().cast(), length) }
    }

    fn words<const N: usize>(&self, offset: u64) -> Option<[u64; N]> {
        let mut words = [0u64; N];
        // SAFETY: the array's own bytes, of which any are words.
        let bytes = unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), 8 * N) };
        (self.read(offset, bytes).len() == 8 * N).then_some(words)
    }
}

/// What executing a file means for the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// It is loaded, and harms nobody.
    With,
    /// It has to stay out.
    Without,
    /// Nothing is executed: there is no such program.
    Nothing,
}

/// What executing this file would mean.
///
/// # Safety
/// `path` is a string.
pub unsafe fn executed(path: *const c_char) -> Executed {
    let mut interpreter = [0; LINE_BYTES];
    let mut next = path;
    for _ in 0..=MAX_INTERPRETERS {
        // SAFETY: the caller's string, then one of ours.
        let Some(file) = (unsafe { File::open(next) }) else {
            // SAFETY: the same.
            return if unsafe { may_be_executed(next) } { Executed::Without } else { Executed::Nothing };
        };
        let mut head = [MaybeUninit::uninit(); HEAD_BYTES];
        let head = file.read(0, &mut head);
        if head.is_empty() {
            return Executed::Nothing;
        }
        if let Some(line) = head.strip_prefix(b"#!") {
            let Some(word) = interpreter_of(line) else { return Executed::Without };
            interpreter[..word.len()].copy_from_slice(word);
            interpreter[word.len()] = 0;
            next = interpreter.as_ptr().cast();
            continue;
        }
        // SAFETY: as above.
        let is_plain = unsafe { !has_privileges(&file, next) };
        return if is_plain && is_of_glibc(&file, head) { Executed::With } else { Executed::Without };
    }
    Executed::Without
}

/// # Safety
/// `path` is a string.
unsafe fn may_be_executed(path: *const c_char) -> bool {
    const X_OK: usize = 1;
    // SAFETY: the caller's string; the call only asks.
    unsafe { syscall(number::FACCESSAT, [AT_FDCWD, path as usize, X_OK, 0, 0, 0]) == 0 }
}

/// Whether a file can be read at present.
///
/// # Safety
/// `path` is a string.
pub unsafe fn is_readable(path: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    unsafe { File::open(path) }.is_some()
}

/// Size of an open file in bytes; None: it cannot be had.
pub fn size_of_descriptor(descriptor: usize) -> Option<u64> {
    let file = core::mem::ManuallyDrop::new(File(descriptor));
    file.status().map(|(_, size)| size)
}

/// What a `#!` line names; shorter than [`LINE_BYTES`].
fn interpreter_of(line: &[u8]) -> Option<&[u8]> {
    let line = &line[..line.len().min(LINE_BYTES - 2)];
    let line = line.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let word = line.split(|byte| b" \t".contains(byte)).next()?;
    (!word.is_empty() && !word.contains(&0)).then_some(word)
}

/// Whether executing the file raises privileges: the dynamic linker then ignores what is preloaded.
///
/// # Safety
/// `path` is the file's.
unsafe fn has_privileges(file: &File, path: *const c_char) -> bool {
    const SETUID_SETGID: u32 = 0o6000;
    let Some((mode, _)) = file.status() else { return true };
    let name = c"security.capability";
    // SAFETY: both are strings; only the size is asked for.
    let bytes = unsafe { syscall(number::GETXATTR, [path as usize, name.as_ptr() as usize, 0, 0, 0, 0]) };
    mode & SETUID_SETGID != 0 || bytes > 0
}

/// Whether it is a program for this machine that glibc's dynamic linker starts, without a sanitizer.
fn is_of_glibc(file: &File, head: &[u8]) -> bool {
    const PT_LOAD: u32 = 1;
    const PT_DYNAMIC: u32 = 2;
    const PT_INTERP: u32 = 3;
    const PROGRAM_HEADER_BYTES: usize = 56;
    let word = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    // 64-bit, little-endian; this machine's; program headers of the size that is known.
    if !head.starts_with(b"\x7fELF\x02\x01")
        || half(18) != Some(arch::ELF_MACHINE)
        || half(54) != Some(PROGRAM_HEADER_BYTES as u16)
    {
        return false;
    }
    let (Some(start), Some(count)) = (word(32), half(56)) else { return false };
    let header = |index: u16| {
        let at = usize::try_from(start).ok()?.checked_add(usize::from(index) * PROGRAM_HEADER_BYTES)?;
        // Kind; offset, address and bytes in the file.
        Some((word(at)? as u32, word(at + 8)?, word(at + 16)?, word(at + 32)?))
    };
    let (mut is_glibcs, mut dynamic) = (false, None);
    for index in 0..count {
        // Headers that do not stand at the file's beginning are not looked at.
        let Some((kind, offset, _, bytes)) = header(index) else { return false };
        match kind {
            PT_INTERP => {
                let mut name = [MaybeUninit::uninit(); 128];
                let most = usize::try_from(bytes).unwrap_or(usize::MAX).min(name.len());
                let name = file.read(offset, &mut name[..most]);
                let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
                is_glibcs = name.rsplit(|&byte| byte == b'/').next() == Some(GLIBC_LOADER.as_bytes());
            }
            PT_DYNAMIC => dynamic = Some((offset, bytes)),
            _ => {}
        }
    }
    let place_of = |address: u64| {
        (0..count).find_map(|index| {
            let (kind, offset, start, bytes) = header(index)?;
            let within = address.checked_sub(start).filter(|&within| within < bytes)?;
            (kind == PT_LOAD).then_some(offset + within)
        })
    };
    is_glibcs && dynamic.is_none_or(|dynamic| !needs_sanitizer(file, dynamic, place_of))
}

/// Whether the dynamic section asks for one of [`SANITIZERS`].
fn needs_sanitizer(file: &File, (start, bytes): (u64, u64), place_of: impl Fn(u64) -> Option<u64>) -> bool {
    const NEEDED: u64 = 1;
    const STRINGS: u64 = 5;
    let entries = || {
        let count = (bytes / 16).min(MAX_DYNAMIC);
        (0..count).map_while(|index| file.words::<2>(start + 16 * index)).take_while(|[tag, _]| *tag != 0)
    };
    let Some(strings) = entries().find(|[tag, _]| *tag == STRINGS).and_then(|[_, address]| place_of(address))
    else {
        // What cannot be read is left alone.
        return true;
    };
    entries().filter(|[tag, _]| *tag == NEEDED).any(|[_, name]| {
        let mut bytes = [MaybeUninit::uninit(); 16];
        let name = file.read(strings.wrapping_add(name), &mut bytes);
        SANITIZERS.iter().any(|sanitizer| name.starts_with(sanitizer))
    })
}

/// The file that execvp(3) means by a name, in `place`; None: it is not found. `path`: the value of `PATH`.
pub fn found_on_path<'a>(name: &[u8], path: Option<&[u8]>, place: &'a mut [u8]) -> Option<&'a CStr> {
    // Of a process without PATH (glibc 2.36, posix/execvpe.c).
    let path = path.unwrap_or(b"/bin:/usr/bin");
    let folders = path.split(|&byte| byte == b':');
    let has_folder = name.contains(&b'/');
    let mut length = None;
    for folder in folders.take(if has_folder { 1 } else { usize::MAX }) {
        let folder = if has_folder { &b""[..] } else { folder };
        let slash = usize::from(!folder.is_empty());
        let end = folder.len() + slash + name.len();
        let Some(room) = place.get_mut(..=end) else { continue };
        room[..folder.len()].copy_from_slice(folder);
        room[folder.len()..folder.len() + slash].fill(b'/');
        room[folder.len() + slash..end].copy_from_slice(name);
        room[end] = 0;
        // SAFETY: a string of ours.
        if unsafe { may_be_executed(room.as_ptr().cast()) } {
            length = Some(end);
            break;
        }
    }
    CStr::from_bytes_with_nul(place.get(..=length?)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn would(path: &Path) -> bool {
        let path = CString::new(path.to_str().expect("text")).expect("no zero");
        // SAFETY: a string.
        unsafe { executed(path.as_ptr()) == Executed::With }
    }

    #[test]
    fn programs_that_would_load_us_are_told_from_others() {
        let own = std::env::current_exe().expect("known");
        assert_eq!(would(&own), cfg!(target_env = "gnu"));
        let folder = std::env::temp_dir().join(format!("memlens-executable-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let script = folder.join("script");
        std::fs::write(&script, format!("#! {} -x\n", own.display())).expect("written");
        assert!(would(&script), "a script is its interpreter");
        std::fs::write(&script, format!("#!{}\n", script.display())).expect("written");
        assert!(!would(&script), "one that names itself");
        std::fs::write(&script, "no program\n").expect("written");
        assert!(!would(&script));
        let copy = folder.join("copy");
        std::fs::copy(&own, &copy).expect("copied");
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o4755)).expect("changed");
        assert!(!would(&copy), "setuid");
        // The library that it needs last is called libtsan.so… from now on, in the copy's table of strings.
        let mut bytes = std::fs::read(&own).expect("read");
        let at = bytes.windows(10).position(|part| part == b"libc.so.6\0").expect("it needs libc");
        bytes[at..at + 10].copy_from_slice(b"libtsan.so");
        std::fs::write(&copy, &bytes).expect("written");
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).expect("changed");
        assert!(!would(&copy), "a sanitizer");
        for length in [0, 3, 17, 63, 100, 500, 1000] {
            std::fs::write(&copy, &bytes[..length]).expect("written");
            assert!(!would(&copy), "cut after {length} bytes");
        }
        // SAFETY: strings.
        let others = unsafe { [executed(c"/no/such/file".as_ptr()), executed(c"/tmp".as_ptr())] };
        assert_eq!(others, [Executed::Nothing; 2]);
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn names_are_looked_for_on_the_path() {
        let mut place = [0; 300];
        let found = found_on_path(b"sh", Some(b"/no/such/folder:/bin"), &mut place);
        assert_eq!(found.map(CStr::to_bytes), Some(&b"/bin/sh"[..]));
        let mut place = [0; 300];
        assert_eq!(
            found_on_path(b"/bin/sh", Some(b"/x:/y"), &mut place).map(CStr::to_bytes),
            Some(&b"/bin/sh"[..])
        );
        assert_eq!(found_on_path(b"no-such-program-here", None, &mut place), None);
        let mut short = [0; 7];
        assert_eq!(found_on_path(b"sh", Some(b"/bin"), &mut short), None, "no room");
    }
}
