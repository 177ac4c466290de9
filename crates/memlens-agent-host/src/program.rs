//! Whether a program's dynamic linker would preload the agent, and whether the agent would see what runs then.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use memlens_events::agent::{GLIBC_LOADER, SANITIZER_FUNCTIONS};
use object::Endianness;
use object::elf::{DT_NEEDED, DT_SONAME, Dyn64, DynamicTag, FileHeader64, PT_INTERP, SHT_DYNSYM, Sym64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, Sym};
use object::read::{ReadCache, ReadRef};
use thiserror::Error;

/// The kernel follows at most this many `#!` lines (Linux 6.x, `fs/exec.c`).
const MAX_INTERPRETERS: usize = 5;

/// Libraries that refuse to start behind another one.
const SANITIZERS: [&str; 4] = ["libasan.so", "libhwasan.so", "liblsan.so", "libtsan.so"];

/// Why the agent cannot be preloaded into a program. Reads after "allocations are not watched: ".
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotPreloadable {
    /// There is no dynamic linker.
    #[error("the program is linked statically")]
    Static,
    /// It is the dynamic linker, which loads the program that its first argument names.
    #[error("the program is the dynamic linker itself; give the program that it is to load, without it")]
    DynamicLinker,
    /// The dynamic linker is not glibc's: the agent might keep the program from starting.
    #[error("the program's dynamic linker is {0}, not glibc's")]
    OtherLoader(String),
    /// The dynamic linker ignores preloaded libraries then.
    #[error("the program is setuid or setgid, or has capabilities of its own")]
    Privileged,
    /// A sanitizer's library, which must come first.
    #[error("the program is linked with {0}, which must come before all other libraries")]
    Sanitizer(String),
    /// A sanitizer that is linked statically.
    #[error("the program is built with a sanitizer ({0}), which takes the agent's copies for errors")]
    OwnSanitizer(String),
    /// The runtime of Go without cgo: it makes its threads by clone(2), and uses their `fs` for itself.
    #[error("the program is Go's without cgo, which makes its threads without libc")]
    OwnThreads,
    /// It is no ELF file that can be read.
    #[error("the program's file cannot be read")]
    Unreadable,
}

/// Looks at an ELF file, or at the interpreter of a script.
///
/// # Errors
/// Why the agent cannot be preloaded.
pub fn check_preloadable(file: &Path) -> Result<(), NotPreloadable> {
    let mut file = file.to_owned();
    for _ in 0..MAX_INTERPRETERS {
        match interpreter_of(&file) {
            Some(interpreter) => file = interpreter,
            None => return check_elf(&file),
        }
    }
    Err(NotPreloadable::Unreadable)
}

/// What the `#!` line of a script names (execve(2), "Interpreter scripts"); None: it is no script.
fn interpreter_of(file: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    fs::File::open(file).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let word = line.trim_ascii().split(u8::is_ascii_whitespace).next()?;
    (!word.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(word)))
}

fn check_elf(file: &Path) -> Result<(), NotPreloadable> {
    let opened = fs::File::open(file).map_err(|_| NotPreloadable::Unreadable)?;
    let status = opened.metadata().map_err(|_| NotPreloadable::Unreadable)?;
    if status.mode() & 0o6000 != 0 || has_capabilities(file) {
        return Err(NotPreloadable::Privileged);
    }
    let cache = ReadCache::new(opened);
    let Some(loader) = loader_of(&cache).ok_or(NotPreloadable::Unreadable)? else {
        let is_loader = dynamic_names(&cache, DT_SONAME).unwrap_or_default() == [GLIBC_LOADER];
        return Err(if is_loader { NotPreloadable::DynamicLinker } else { NotPreloadable::Static });
    };
    if loader.rsplit('/').next() != Some(GLIBC_LOADER) {
        return Err(NotPreloadable::OtherLoader(loader));
    }
    let sanitizer = dynamic_names(&cache, DT_NEEDED)
        .unwrap_or_default()
        .into_iter()
        .find(|library| SANITIZERS.iter().any(|sanitizer| library.starts_with(sanitizer)));
    if let Some(library) = sanitizer {
        return Err(NotPreloadable::Sanitizer(library));
    }
    check_functions(&cache).unwrap_or(Ok(()))
}

/// Whether an ELF file has functions, or lacks some, that tell what the agent must stay out of; None: it cannot be read.
///
/// A Go program that does not ask libc for its threads has the section that Go's linker makes (`cmd/link`, "buildinfo"), and
/// not the function that `runtime/cgo` makes threads by.
fn check_functions<'a>(data: impl ReadRef<'a>) -> Option<Result<(), NotPreloadable>> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let symbols = sections.symbols(endian, data, SHT_DYNSYM).ok()?;
    // All names at once: a program may export tens of thousands, and each by itself would be two system calls.
    let strings = sections.section(symbols.string_section()).ok()?.data(endian, data).ok()?;
    let name = |symbol: &Sym64<Endianness>| {
        let from = strings.get(symbol.st_name(endian) as usize..)?;
        from.split(|&byte| byte == 0).next()
    };
    let is_go = sections.section_by_name(endian, b".go.buildinfo").is_some();
    if is_go && !symbols.iter().any(|symbol| name(symbol) == Some(b"pthread_create".as_slice())) {
        return Some(Err(NotPreloadable::OwnThreads));
    }
    let own = symbols.iter().filter(|symbol| !symbol.is_undefined(endian)).filter_map(name);
    let sanitizer = own
        .into_iter()
        .find_map(|name| SANITIZER_FUNCTIONS.iter().find(|function| function.to_bytes() == name));
    Some(sanitizer.map_or(Ok(()), |function| {
        let function = function.to_string_lossy();
        Err(NotPreloadable::OwnSanitizer(function.trim_matches('_').trim_end_matches("_init").to_owned()))
    }))
}

/// What the entries of a kind in an ELF file's dynamic section name: the libraries that it asks for (`DT_NEEDED`), or
/// what it is called itself (`DT_SONAME`).
fn dynamic_names<'a>(data: impl ReadRef<'a>, tag: DynamicTag) -> Option<Vec<String>> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let (entries, strings) = sections.dynamic(endian, data).ok()??;
    let strings = sections.strings(endian, data, strings).ok()?;
    let entries = entries.iter().filter(|entry| entry.d_tag(endian) == tag);
    let name = |entry: &Dyn64<Endianness>| {
        let offset = u32::try_from(entry.d_val(endian)).ok()?;
        Some(String::from_utf8_lossy(strings.get(offset).ok()?).into_owned())
    };
    Some(entries.filter_map(name).collect())
}

/// What `PT_INTERP` names, if there is one. None: no 64-bit ELF file.
fn loader_of<'a>(data: impl ReadRef<'a>) -> Option<Option<String>> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, data).ok()? {
        if segment.p_type(endian) == PT_INTERP {
            let bytes = segment.data(endian, data).ok()?;
            let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
            return Some(Some(String::from_utf8_lossy(&bytes[..end]).into_owned()));
        }
    }
    Some(None)
}

/// Whether executing the file raises privileges (capabilities(7), "File capabilities").
fn has_capabilities(file: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(file.as_os_str().as_bytes()) else { return false };
    // SAFETY: both strings end in a zero byte; only the size is asked for.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn our_own_program_can_be_preloaded_and_a_text_cannot() {
        let own = std::env::current_exe().expect("known");
        let expected = if cfg!(target_env = "gnu") { Ok(()) } else { Err(NotPreloadable::Static) };
        assert_eq!(check_preloadable(&own), expected);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let text = folder.path().join("script");
        fs::write(&text, format!("#! {} -x\n", own.display())).expect("written");
        assert_eq!(check_preloadable(&text), expected, "a script is its interpreter");
        fs::write(&text, "no program\n").expect("written");
        assert_eq!(check_preloadable(&text), Err(NotPreloadable::Unreadable));
        // The dynamic linker as a program.
        if let Some(loader) = loader_of(&*fs::read(&own).expect("read")).flatten() {
            assert_eq!(check_preloadable(Path::new(&loader)), Err(NotPreloadable::DynamicLinker));
        }
        // The same program under the bits that make the dynamic linker careful.
        let copy = folder.path().join("setuid");
        fs::copy(&own, &copy).expect("copied");
        fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).expect("changed");
        assert_eq!(check_preloadable(&copy), Err(NotPreloadable::Privileged));
    }

    /// Go and clang are not among what tests may need; what tells their programs is.
    #[test]
    fn go_without_cgo_and_sanitizers_are_left_alone() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let build = |name: &str, body: &str| {
            let source = folder.path().join(format!("{name}.c"));
            fs::write(&source, body).expect("written");
            let program = folder.path().join(name);
            let mut compiler = Command::new("cc");
            compiler.args(["-w", "-pthread", "-rdynamic", "-o"]).args([&program, &source]);
            let built = compiler.status().expect("a C compiler");
            assert!(built.success());
            program
        };
        let mark = "__attribute__((section(\".go.buildinfo\"), used)) static char mark[32] = \"go\";";
        let without = build("without_cgo", &format!("{mark} int main(void) {{ return 0; }}"));
        assert_eq!(check_preloadable(&without), Err(NotPreloadable::OwnThreads));
        let with = build(
            "with_cgo",
            &format!("#include <pthread.h>\n{mark} int main(void) {{ return pthread_create(0, 0, 0, 0); }}"),
        );
        assert_eq!(check_preloadable(&with), Ok(()));
        let clangs = build("sanitizer", "void __tsan_init(void) {} int main(void) { return 0; }");
        assert_eq!(check_preloadable(&clangs), Err(NotPreloadable::OwnSanitizer("tsan".into())));
    }
}
