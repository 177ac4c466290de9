//! Compiles the test programs with the compilers that are there.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder of its own for the test `name`.
pub fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("cannot make a folder for the test");
    folder
}

/// The source file `name` of the test programs.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Whether the program `name` can be run.
pub fn have(name: &str) -> bool {
    let there =
        Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !there {
        eprintln!("skipped: {name} is not installed");
    }
    there
}

/// Runs a tool in `folder`; panics with its output when it fails.
pub fn tool(folder: &Path, name: &str, arguments: &[&str]) {
    let output =
        Command::new(name).args(arguments).current_dir(folder).output().expect("cannot start the tool");
    assert!(
        output.status.success(),
        "{name} {arguments:?} failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The standard output of a program.
pub fn output(program: &Path) -> String {
    let output = Command::new(program).output().expect("cannot start the test program");
    assert!(output.status.success(), "{} failed", program.display());
    String::from_utf8(output.stdout).expect("the test program prints text")
}

/// `0x…` as a number.
pub fn hexadecimal(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a hexadecimal number")
}
