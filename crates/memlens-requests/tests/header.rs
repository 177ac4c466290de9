//! Holds `include/memlens.h` and this crate together: the same codes, the same machine code, the
//! same defaults. Needs a C compiler (`cc`); valgrind's header is compared where it is installed.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::path::{Path, PathBuf};
use std::process::Command;

use memlens_requests::{PROTOCOL_VERSION, SEQUENCE, code, request};

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles a C or C++ source against `include/` and returns the result's path.
fn compile(compiler: &str, source: &Path, output: &str, flags: &[&str]) -> PathBuf {
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(output);
    let status = Command::new(compiler)
        .args(flags)
        .args(["-Wall", "-Wextra", "-Werror", "-I"])
        .arg(crate_dir().join("../../include"))
        .arg(source)
        .arg("-o")
        .arg(&output)
        .status()
        .unwrap_or_else(|error| panic!("{compiler} must be installed: {error}"));
    assert!(status.success(), "{compiler} {flags:?}");
    output
}

fn count(haystack: &[u8], needle: &[u8]) -> usize {
    haystack.windows(needle.len()).filter(|window| window == &needle).count()
}

#[test]
fn header_and_crate_agree_on_codes_and_defaults() {
    let source = crate_dir().join("tests/header_twin.c");
    for (compiler, level) in [("cc", "-O0"), ("cc", "-O2"), ("c++", "-O2")] {
        let language: &[&str] =
            if compiler == "c++" { &["-x", "c++", level] } else { &["-std=gnu99", level] };
        let program = compile(compiler, &source, &format!("twin{compiler}{level}"), language);
        let run = Command::new(program).output().expect("the program was just built");
        let expected = format!(
            "PROTOCOL {:#x}\nSTART_COLLECTION {:#x}\nSTOP_COLLECTION {:#x}\nMARK {:#x}\nREGION_IS {:#x}\n\
             REGION_FREED {:#x}\nPROTOCOL_VERSION {:#x}\n",
            code::PROTOCOL,
            code::START_COLLECTION,
            code::STOP_COLLECTION,
            code::MARK,
            code::REGION_IS,
            code::REGION_FREED,
            PROTOCOL_VERSION,
        );
        assert_eq!(String::from_utf8_lossy(&run.stdout), expected);
        assert!(run.status.success(), "{compiler} {level}: a request did not give its default");
    }
}

#[test]
fn header_emits_the_sequence_once_a_request() {
    let source = crate_dir().join("tests/header_twin.c");
    // The program makes seven requests. At -O0 the six wrapper functions hold one each, and main
    // the seventh.
    for level in ["-O0", "-O2"] {
        let object = compile("cc", &source, &format!("twin{level}.o"), &[level, "-c"]);
        let bytes = std::fs::read(object).expect("the object file was just built");
        assert_eq!(count(&bytes, &SEQUENCE), 7, "{level}");
    }
    let disabled = compile("cc", &source, "twin-disabled.o", &["-O0", "-c", "-DMEMLENS_DISABLE"]);
    assert_eq!(count(&std::fs::read(disabled).expect("just built"), &SEQUENCE), 0);
}

#[inline(never)]
extern "C" fn one_request(default: u64) -> u64 {
    // SAFETY: the name's address and length are those of a literal.
    unsafe { request(default, &[code::MARK, "x".as_ptr() as u64, 1, 0, 0, 0]) }
}

#[test]
fn crate_emits_the_sequence_and_leaves_the_default() {
    for default in [0, 1, u64::MAX] {
        assert_eq!(one_request(default), default);
    }
    // A frame set-up, six stores and the sequence fit 256 bytes also without optimisation.
    // SAFETY: the test program's text goes on for more than 256 bytes after this function, since
    // the standard library's code is linked behind it; reading code is allowed.
    let text = unsafe { std::slice::from_raw_parts(one_request as *const u8, 256) };
    assert!(count(text, &SEQUENCE) >= 1, "{text:02x?}");
}

#[test]
fn callgrind_codes_are_those_of_its_header() {
    if !Path::new("/usr/include/valgrind/callgrind.h").exists() {
        eprintln!("skipped: valgrind's headers are not installed");
        return;
    }
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("callgrind_codes.c");
    std::fs::write(
        &source,
        "#include <valgrind/callgrind.h>\n#include <stdio.h>\n\
         int main(void) { printf(\"%d %d %d %d %d %d %d\", VG_USERREQ__DUMP_STATS,\n\
         VG_USERREQ__ZERO_STATS, VG_USERREQ__TOGGLE_COLLECT, VG_USERREQ__DUMP_STATS_AT,\n\
         VG_USERREQ__START_INSTRUMENTATION, VG_USERREQ__STOP_INSTRUMENTATION,\n\
         VG_USERREQ__RUNNING_ON_VALGRIND); CALLGRIND_DUMP_STATS; return 0; }\n",
    )
    .expect("the test folder is writable");
    let program = compile("cc", &source, "callgrind-codes", &["-O1"]);
    let run = Command::new(&program).output().expect("the program was just built");
    let expected = [
        code::CALLGRIND_DUMP_STATS,
        code::CALLGRIND_ZERO_STATS,
        code::CALLGRIND_TOGGLE_COLLECT,
        code::CALLGRIND_DUMP_STATS_AT,
        code::CALLGRIND_START_INSTRUMENTATION,
        code::CALLGRIND_STOP_INSTRUMENTATION,
        code::VALGRIND_RUNNING_ON,
    ];
    let printed = String::from_utf8_lossy(&run.stdout);
    assert_eq!(printed.split(' ').map(|word| word.parse().unwrap()).collect::<Vec<u64>>(), expected);
    // Valgrind's own macro emits what our recogniser looks for.
    assert_eq!(count(&std::fs::read(program).expect("just built"), &SEQUENCE), 1);
}
