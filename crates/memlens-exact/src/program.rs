//! Which file a command line means, found as a shell and the kernel would.

use object::read::elf::FileHeader;
use object::{ReadCache, ReadRef};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{env, fs, io};
use thiserror::Error;

/// The kernel follows at most this many `#!` lines (Linux 6.x, `fs/exec.c`).
const MAX_INTERPRETERS: usize = 5;

/// A program that can be run: an ELF file for this machine and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The ELF file.
    pub file: PathBuf,
    /// All arguments, the program's own name first.
    pub arguments: Vec<OsString>,
}

/// Why a command cannot be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// No such file, on the path or at the place named.
    #[error("{0:?}: command not found; give a path, or a program that is on PATH")]
    NotFound(OsString),
    /// A path with nothing at its end.
    #[error("{0}: no such file; check the path")]
    NoSuchFile(PathBuf),
    /// A folder, a device or the like.
    #[error("{0}: {1}, not a program; give the path of the program itself")]
    NotAFile(PathBuf, &'static str),
    /// The file is there but may not be executed.
    #[error("{0}: permission denied; `chmod +x` it if it is meant to be a program")]
    NotExecutable(PathBuf),
    /// The file is neither ELF nor a script.
    #[error("{0}: not a program: neither an ELF file nor a script with a `#!` line")]
    NotAProgram(PathBuf),
    /// A script's interpreter cannot be run.
    #[error("{script}: its `#!` line names an interpreter that cannot be run: {source}")]
    Interpreter {
        /// The script.
        script: PathBuf,
        /// What its `#!` line names.
        interpreter: PathBuf,
        /// Why not.
        source: Box<ProgramError>,
    },
    /// The dynamic loader that the program names is missing.
    #[error("{program}: its loader {loader} does not exist; is it built for another system?")]
    MissingLoader {
        /// The program.
        program: PathBuf,
        /// What `PT_INTERP` names.
        loader: PathBuf,
    },
    /// The program is for another processor.
    #[error("{0}: built for another processor ({1}); this memlens runs {own} programs", own = own_machine())]
    WrongArchitecture(PathBuf, String),
    /// Running it under a translator would take its privileges away.
    #[error("{0}: setuid or setgid program; run memlens as its owner and in its group instead")]
    Privileged(PathBuf),
    /// It may be executed but not read, and what is recorded must be read.
    #[error("{0}: may not be read, and memlens must read what it records; `chmod +r` it")]
    NotReadable(PathBuf),
    /// Reading the file failed.
    #[error("{0}: cannot be read: {1}")]
    Unreadable(PathBuf, io::Error),
}

impl ProgramError {
    /// The exit code a shell would give: 127 when there is no such command, else 126.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) | Self::NoSuchFile(_) => 127,
            Self::MissingLoader { .. } | Self::Interpreter { .. } => 127,
            _ => 126,
        }
    }
}

impl Program {
    /// Finds what `command` (program and arguments) means.
    pub fn find(command: &[OsString]) -> Result<Self, ProgramError> {
        let name = command.first().ok_or_else(|| ProgramError::NotFound(OsString::new()))?;
        let mut file = search_path(name)?;
        let mut arguments = command.to_vec();
        for _ in 0..MAX_INTERPRETERS {
            let head = read_head(&file)?;
            if head.starts_with(b"\x7fELF") {
                check_elf(&file)?;
                return Ok(Self { file, arguments });
            }
            let Some((interpreter, option)) = interpreter_line(&head) else {
                return Err(ProgramError::NotAProgram(file));
            };
            check_executable(&interpreter).map_err(|source| ProgramError::Interpreter {
                script: file.clone(),
                interpreter: interpreter.clone(),
                source: Box::new(source),
            })?;
            let mut before: Vec<OsString> = vec![interpreter.clone().into()];
            before.extend(option);
            before.push(file.into());
            arguments.splice(..1, before);
            file = interpreter;
        }
        Err(ProgramError::NotAProgram(file))
    }
}

fn search_path(name: &OsStr) -> Result<PathBuf, ProgramError> {
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return check_executable(&path).map(|()| path);
    }
    let mut denied = None;
    for folder in env::split_paths(&env::var_os("PATH").unwrap_or_default()) {
        // An empty entry means the current folder.
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        let path = folder.join(name);
        match check_executable(&path) {
            Ok(()) => return Ok(path),
            Err(error @ ProgramError::NotExecutable(_)) if path.is_file() => denied = Some(error),
            Err(_) => {}
        }
    }
    Err(denied.unwrap_or_else(|| ProgramError::NotFound(name.to_owned())))
}

fn check_executable(path: &Path) -> Result<(), ProgramError> {
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ProgramError::NoSuchFile(path.into()),
        // A folder on the way may not be searched, symbolic links go round in circles …
        _ => ProgramError::NotExecutable(path.into()),
    })?;
    if metadata.is_dir() {
        return Err(ProgramError::NotAFile(path.into(), "a folder"));
    }
    if !metadata.is_file() {
        return Err(ProgramError::NotAFile(path.into(), "a device, pipe or socket"));
    }
    let c_path = std::ffi::CString::new(path.as_os_str().as_bytes())
        .map_err(|_| ProgramError::NoSuchFile(path.into()))?;
    // SAFETY: a zero-terminated string; the call only asks.
    let allowed = unsafe { libc::access(c_path.as_ptr(), libc::X_OK) == 0 };
    if !allowed {
        return Err(ProgramError::NotExecutable(path.into()));
    }
    // SAFETY: the calls have no preconditions.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    // Root, too, would keep rights that the program is to run without.
    let mode = metadata.permissions().mode();
    let changes_user = mode & 0o4000 != 0 && user != metadata.uid();
    if changes_user || mode & 0o2000 != 0 && group != metadata.gid() {
        return Err(ProgramError::Privileged(path.into()));
    }
    Ok(())
}

fn unreadable(path: &Path, error: io::Error) -> ProgramError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ProgramError::NotReadable(path.into()),
        _ => ProgramError::Unreadable(path.into(), error),
    }
}

fn read_head(path: &Path) -> Result<Vec<u8>, ProgramError> {
    let unreadable = |error| unreadable(path, error);
    let mut head = Vec::new();
    fs::File::open(path).map_err(unreadable)?.take(256).read_to_end(&mut head).map_err(unreadable)?;
    Ok(head)
}

/// Interpreter and optional argument of a `#!` line, split as Linux does (`fs/binfmt_script.c`).
fn interpreter_line(head: &[u8]) -> Option<(PathBuf, Option<OsString>)> {
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|byte| b" \t".contains(byte)).unwrap_or(line.len());
    let (interpreter, rest) = (&line[..end], line[end..].trim_ascii());
    let option = (!rest.is_empty()).then(|| OsString::from_vec(rest.to_vec()));
    (!interpreter.is_empty()).then(|| (PathBuf::from(OsStr::from_bytes(interpreter)), option))
}

fn check_elf(path: &Path) -> Result<(), ProgramError> {
    use object::elf::{ET_DYN, ET_EXEC, FileHeader64, PT_LOAD};
    let file = fs::File::open(path).map_err(|error| unreadable(path, error))?;
    let cache = ReadCache::new(file);
    let bytes = &cache;
    let wrong = |what: String| ProgramError::WrongArchitecture(path.into(), what);
    let header = match FileHeader64::<object::Endianness>::parse(bytes) {
        Ok(header) => header,
        Err(_) if bytes.read_bytes_at(4, 1) == Ok(&[1]) => return Err(wrong("32-bit".into())),
        Err(_) => return Err(ProgramError::NotAProgram(path.into())),
    };
    let endian = header.endian().map_err(|_| ProgramError::NotAProgram(path.into()))?;
    let machine = header.e_machine(endian);
    if machine != OWN_MACHINE {
        return Err(wrong(machine_name(machine)));
    }
    if ![ET_EXEC, ET_DYN].contains(&header.e_type(endian)) {
        return Err(ProgramError::NotAProgram(path.into()));
    }
    let segments =
        header.program_headers(endian, bytes).map_err(|_| ProgramError::NotAProgram(path.into()))?;
    use object::read::elf::ProgramHeader;
    for segment in segments {
        if let Ok(Some(name)) = segment.interpreter(endian, bytes) {
            let loader = PathBuf::from(OsStr::from_bytes(name));
            if !loader.exists() {
                return Err(ProgramError::MissingLoader { program: path.into(), loader });
            }
        }
    }
    // As the kernel, in this order: nothing to load is no program.
    if !segments.iter().any(|segment| segment.p_type(endian) == PT_LOAD) {
        return Err(ProgramError::NotAProgram(path.into()));
    }
    Ok(())
}

/// The `e_machine` of programs that run here.
const OWN_MACHINE: object::elf::Machine =
    if cfg!(target_arch = "aarch64") { object::elf::EM_AARCH64 } else { object::elf::EM_X86_64 };

fn own_machine() -> String {
    machine_name(OWN_MACHINE)
}

/// What people call an `e_machine`.
fn machine_name(machine: object::elf::Machine) -> String {
    use object::elf;
    match machine {
        elf::EM_X86_64 => "x86-64".into(),
        elf::EM_AARCH64 => "AArch64".into(),
        elf::EM_ARM => "32-bit Arm".into(),
        elf::EM_386 => "32-bit x86".into(),
        elf::EM_PPC64 => "64-bit PowerPC".into(),
        elf::EM_S390 => "IBM Z".into(),
        elf::EM_RISCV => "RISC-V".into(),
        elf::EM_LOONGARCH => "LoongArch".into(),
        _ => format!("ELF machine {}", machine.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(words: &[&str]) -> Result<Program, ProgramError> {
        Program::find(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn shebang_lines_split_as_the_kernel_does() {
        let of = |line: &str| interpreter_line(line.as_bytes());
        assert_eq!(of("#!/bin/sh\n"), Some(("/bin/sh".into(), None)));
        assert_eq!(of("#! /usr/bin/env  -S a b \nx"), Some(("/usr/bin/env".into(), Some("-S a b".into()))));
        assert_eq!(of("#!\n"), None);
        assert_eq!(of("echo"), None);
    }

    #[test]
    fn commands_are_found_as_a_shell_finds_them() {
        let program = find(&["true", "x"]).expect("true is on every PATH");
        assert!(program.file.ends_with("true"), "{program:?}");
        assert_eq!(program.arguments, ["true", "x"]);
        assert_eq!(find(&["no-such-command-here"]).unwrap_err().exit_code(), 127);
        assert_eq!(find(&["/etc/passwd"]).unwrap_err().exit_code(), 126);
        assert_eq!(find(&["/"]).unwrap_err().exit_code(), 126);
        assert_eq!(find(&[]).unwrap_err().exit_code(), 127);
    }

    #[test]
    fn a_script_runs_its_interpreter() {
        let folder = env::temp_dir().join(format!("memlens-script-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let script = folder.join("script");
        fs::write(&script, "#!/bin/sh -e\nexit 0\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let program = find(&[script.to_str().unwrap(), "one"]).unwrap();
        assert_eq!(program.file, Path::new("/bin/sh"));
        assert_eq!(program.arguments, ["/bin/sh", "-e", script.to_str().unwrap(), "one"]);
        fs::write(&script, "#!/no/such/interpreter\n").unwrap();
        assert_eq!(find(&[script.to_str().unwrap()]).unwrap_err().exit_code(), 127);
        fs::write(&script, "just text").unwrap();
        assert_eq!(find(&[script.to_str().unwrap()]).unwrap_err().exit_code(), 126);
        fs::remove_dir_all(&folder).unwrap();
    }
}
