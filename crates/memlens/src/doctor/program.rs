//! What can be recorded of one program, and whether its data will have names. Of a library: whether it has.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use memlens_exact::Program;
use memlens_symbols::{DebugSearch, Diagnostic, Module};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};

use super::finding::Finding;
use crate::failure::plain;

/// What there is to say about a program, and the exit code that running it would have (0 if it can run).
pub fn findings(program: &OsStr) -> (Vec<Finding>, u8) {
    let found = match Program::find(&[program.to_owned()]) {
        Ok(found) => found,
        Err(_) if is_library(Path::new(program)) => {
            let file = Path::new(program);
            let mut findings = vec![Finding::good("file", format!("{}, a library", file.display()))];
            findings.extend(names(file));
            return (findings, 0);
        }
        Err(error) => {
            let finding = Finding::bad("file", error.to_string(), "").without_advice();
            return (vec![finding], error.exit_code());
        }
    };
    let mut findings = vec![Finding::good("file", found.file.display().to_string())];
    if found.arguments.first() != Some(&program.to_owned()) {
        findings.push(Finding::good("script", format!("runs {}", found.file.display())));
    }
    match fs::read(&found.file) {
        Ok(bytes) => findings.push(linkage(&bytes)),
        Err(error) => {
            findings.push(Finding::limited("file", plain(&error), "make it readable: chmod +r"));
            return (findings, 0);
        }
    }
    findings.extend(names(&found.file));
    (findings, 0)
}

/// Whether a file is a shared library, which nobody can run.
fn is_library(file: &Path) -> bool {
    let shape = fs::read(file).ok().and_then(|bytes| Shape::read(&bytes).ok());
    shape.is_some_and(|shape| shape.is_position_independent && !shape.has_loader)
}

/// How the program is linked.
fn linkage(bytes: &[u8]) -> Finding {
    let Ok(shape) = Shape::read(bytes) else {
        return Finding::limited("linkage", "the ELF headers are damaged", "").without_advice();
    };
    let linked = if shape.has_loader { "dynamic" } else { "static" };
    let placed = if shape.is_position_independent { "position-independent" } else { "at a fixed address" };
    Finding::good("linkage", format!("{linked}, {placed}"))
}

struct Shape {
    has_loader: bool,
    is_position_independent: bool,
}

impl Shape {
    fn read(bytes: &[u8]) -> object::Result<Self> {
        let header = elf::FileHeader64::<Endianness>::parse(bytes)?;
        let endian = header.endian()?;
        let segments = header.program_headers(endian, bytes)?;
        Ok(Self {
            has_loader: segments.iter().any(|segment| segment.p_type(endian) == elf::PT_INTERP),
            is_position_independent: header.e_type(endian) == elf::ET_DYN,
        })
    }
}

/// Whether symbols and debug information are there, and where they would come from.
fn names(file: &Path) -> Vec<Finding> {
    let topic = "debug information";
    let module = match Module::open(file, &DebugSearch::default()) {
        Ok(module) => module,
        Err(error) => return vec![Finding::bad(topic, error.to_string(), "").without_advice()],
    };
    let mut findings = vec![match module.has_symbol_table() {
        true => Finding::good("symbols", "found: functions will have their names"),
        false => Finding::limited(
            "symbols",
            "stripped: only what is exported has a name, the rest shows as module+offset",
            "link without -s, or install its debug package (below)",
        ),
    }];
    if module.has_debug_info() {
        findings.push(Finding::good(topic, "found: variables, types and lines will have their names"));
    } else {
        let build_id: Option<String> =
            module.build_id().map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect());
        let mut text = String::from("none: objects are named by function or module+offset");
        if let Some(place) = build_id.as_deref().and_then(debug_file) {
            text += &format!("; {} is missing", place.display());
        }
        findings.push(Finding::limited(topic, text, advice(file, build_id.as_deref())));
    }
    for diagnostic in module.diagnostics() {
        // A missing debug file has been reported above; one that others share has not.
        if module.has_debug_info() || !matches!(diagnostic, Diagnostic::DebugFileMissing(_)) {
            findings.push(Finding::limited(topic, diagnostic.to_string(), "").without_advice());
        }
    }
    findings
}

/// Where the system's packages put the debug file of a build-id (GDB manual, "Debugging Information in
/// Separate Files").
fn debug_file(build_id: &str) -> Option<PathBuf> {
    let (first, rest) = build_id.split_at_checked(2)?;
    Some(PathBuf::from(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug")))
}

/// The command that brings the debug information.
fn advice(file: &Path, build_id: Option<&str>) -> String {
    if let Some(package) = debian_package(file) {
        // The C library's debug files are in a package with a name of their own.
        return match package.as_str() {
            "libc6" | "libc-bin" => "sudo apt-get install libc6-dbg".to_owned(),
            package => {
                let fetch =
                    build_id.map_or(String::new(), |id| format!("; or debuginfod-find debuginfo {id}"));
                format!(
                    "sudo apt-get install {package}-dbgsym (from the archive for debug symbols: debian-debug, ddebs){fetch}"
                )
            }
        };
    }
    if let Some(package) = rpm_package(file) {
        return format!("sudo dnf debuginfo-install {package}");
    }
    match build_id {
        Some(id) => format!("compile it with -g, or fetch them: debuginfod-find debuginfo {id}"),
        None => "compile it with -g".to_owned(),
    }
}

/// The Debian package that a file came from.
fn debian_package(file: &Path) -> Option<String> {
    let real = file.canonicalize().ok()?;
    // Since /bin became a link to /usr/bin, packages may have registered either name.
    let merged = real.strip_prefix("/usr").ok().map(|rest| Path::new("/").join(rest));
    [Some(real), merged].into_iter().flatten().find_map(|name| {
        let answer = ask("dpkg-query", &["-S".into(), name.into()])?;
        // "coreutils: /bin/ls", "libc6:amd64: /lib/…".
        let package = answer.split(':').next()?.trim();
        (!package.is_empty() && !package.contains([' ', ','])).then(|| package.to_owned())
    })
}

fn rpm_package(file: &Path) -> Option<String> {
    let real = file.canonicalize().ok()?;
    let answer = ask("rpm", &["-qf".into(), "--qf".into(), "%{NAME}".into(), real.into()])?;
    let package = answer.trim();
    (!package.is_empty() && !package.contains(' ')).then(|| package.to_owned())
}

/// What a program prints, if it is there and succeeds.
fn ask(program: &str, arguments: &[OsString]) -> Option<String> {
    let output =
        Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
