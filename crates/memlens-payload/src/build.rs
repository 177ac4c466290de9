//! For build scripts: builds a crate of the workspace in a cargo run of its own, and writes what it made as a table
//! that the library includes.
//!
//! Everything panics that goes wrong: that is how build scripts fail.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The workspace's folder, of a crate in `crates/`.
pub fn workspace() -> PathBuf {
    let manifest = env::var("CARGO_MANIFEST_DIR").expect("set by cargo");
    let crates = Path::new(&manifest).ancestors().nth(2);
    crates.expect("the crate lies two folders below the workspace").to_path_buf()
}

/// Builds `package` optimised, whatever the profile of the build that asks, and returns the folder of its release
/// build. `crates` are those whose change calls for a new build; `environment` is set in addition.
///
/// All such builds share one target folder, beside that of the build that asks or in `MEMLENS_CLIENT_TARGET_DIR`.
pub fn nested(package: &str, crates: &[&str], environment: &[(&str, &str)]) -> PathBuf {
    let workspace = workspace();
    for crate_name in crates {
        println!("cargo:rerun-if-changed={}", workspace.join("crates").join(crate_name).display());
    }
    println!("cargo:rerun-if-env-changed=MEMLENS_CLIENT_TARGET_DIR");
    let out = out_folder();
    // What is carried runs where memlens runs, also where that is another machine than this one.
    let [triple, host, arch] =
        ["TARGET", "HOST", "CARGO_CFG_TARGET_ARCH"].map(|name| env::var(name).expect("set by cargo"));
    let is_cross = is_cross(&host, &arch);
    // One build serves the debug and the release build of memlens.
    let target = env::var_os("MEMLENS_CLIENT_TARGET_DIR").map_or_else(
        || {
            out.ancestors()
                .find(|dir| dir.ends_with("build"))
                .and_then(|dir| dir.ancestors().nth(2))
                .map_or_else(|| out.join("client"), |dir| dir.join("memlens-client"))
        },
        PathBuf::from,
    );
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["build", "--release", "--package", package, "--target-dir"])
        .arg(&target)
        .current_dir(&workspace);
    if is_cross {
        command.args(["--target", &triple]);
    }
    // Settings meant for this crate's own build (clippy's driver, coverage) must not leak.
    for name in ["RUSTC_WORKSPACE_WRAPPER", "RUSTC_WRAPPER", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS"] {
        command.env_remove(name);
    }
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_FEATURE_") {
            command.env_remove(name);
        }
    }
    command.envs(environment.iter().copied());
    let status = command.status().expect("cargo runs");
    assert!(status.success(), "building {package} failed; see above (cmake, g++, libclang needed)");
    if is_cross { target.join(triple).join("release") } else { target.join("release") }
}

/// Whether what runs on processors of this name is not built by default. Only they count: memlens built with another C library
/// (musl, which has no libraries of this kind) carries what runs in programs of glibc's all the same.
fn is_cross(host: &str, arch: &str) -> bool {
    host.split('-').next() != Some(arch)
}

fn out_folder() -> PathBuf {
    PathBuf::from(env::var("OUT_DIR").expect("set by cargo"))
}

/// Copies the files and writes `payload.rs` into cargo's output folder: `FILES` and `CONTENT_HASH`, for a
/// [`Carried`](crate::Carried).
pub fn write_table(files: impl IntoIterator<Item = (&'static str, PathBuf)>) {
    let out = out_folder();
    let mut table = String::from("pub const FILES: &[(&str, &[u8])] = &[\n");
    // Names the folder that the libraries are unpacked into: taken here, not in each run.
    let mut hasher = DefaultHasher::new();
    for (name, source) in files {
        let copy = out.join(name);
        let content = fs::read(&source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
        (name, &content).hash(&mut hasher);
        fs::write(&copy, content).unwrap_or_else(|error| panic!("{}: {error}", copy.display()));
        table += &format!("    ({name:?}, include_bytes!({:?})),\n", copy.display().to_string());
    }
    table += &format!("];\npub const CONTENT_HASH: u64 = {:#x};\n", hasher.finish());
    fs::write(out.join("payload.rs"), table).expect("OUT_DIR is writable");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_processor_is_built_for_apart() {
        assert!(!is_cross("x86_64-unknown-linux-gnu", "x86_64"));
        assert!(is_cross("x86_64-unknown-linux-gnu", "aarch64"));
    }
}
