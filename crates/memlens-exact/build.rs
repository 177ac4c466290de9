//! Builds the client and DynamoRIO in a nested cargo run and hands the libraries to `payload.rs`.
//!
//! The client is a shared library that runs inside the target; it is built optimised whatever
//! the profile of this crate, and carried inside the memlens binary.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Libraries carried: the engine first.
const DYNAMORIO: &str = "libdynamorio.so";
const EXTENSIONS: [&str; 4] = ["libdrmgr.so", "libdrreg.so", "libdrutil.so", "libdrx.so"];
const CLIENT: &str = "libmemlens_exact_client.so";

fn main() {
    let workspace = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("set by cargo"))
        .ancestors()
        .nth(2)
        .expect("crates/memlens-exact lies two folders below the workspace")
        .to_path_buf();
    for crate_name in ["memlens-exact-client", "memlens-events", "memlens-types"] {
        println!("cargo:rerun-if-changed={}", workspace.join("crates").join(crate_name).display());
    }
    println!("cargo:rerun-if-env-changed=MEMLENS_CLIENT_TARGET_DIR");
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    // One DynamoRIO build serves the debug and the release build of memlens.
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
        .args(["build", "--release", "--package", "memlens-exact-client", "--target-dir"])
        .arg(&target)
        .current_dir(&workspace);
    // Settings meant for this crate's own build (clippy's driver, coverage) must not leak.
    for name in ["RUSTC_WORKSPACE_WRAPPER", "RUSTC_WRAPPER", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS"] {
        command.env_remove(name);
    }
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_FEATURE_") {
            command.env_remove(name);
        }
    }
    let status = command.status().expect("cargo runs");
    assert!(
        status.success(),
        "building the DynamoRIO client failed; see above (cmake, g++, libclang needed)"
    );

    let release = target.join("release");
    let built = newest_dynamorio(&release.join("build"))
        .unwrap_or_else(|| panic!("no {DYNAMORIO} below {}", release.display()));
    let mut sources = vec![(DYNAMORIO, built.join("lib64/release").join(DYNAMORIO))];
    sources.extend(EXTENSIONS.map(|name| (name, built.join("ext/lib64/release").join(name))));
    sources.push((CLIENT, release.join(CLIENT)));
    let mut table = String::from("pub const FILES: &[(&str, &[u8])] = &[\n");
    // Names the folder that the libraries are unpacked into: taken here, not in each run.
    let mut hasher = DefaultHasher::new();
    for (name, source) in sources {
        let copy = out.join(name);
        let content = fs::read(&source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
        (name, &content).hash(&mut hasher);
        fs::write(&copy, content).unwrap_or_else(|error| panic!("{}: {error}", copy.display()));
        table += &format!("    ({name:?}, include_bytes!({:?})),\n", copy.display().to_string());
    }
    table += &format!("];\npub const CONTENT_HASH: u64 = {:#x};\n", hasher.finish());
    fs::write(out.join("payload.rs"), table).expect("OUT_DIR is writable");
}

/// The build folder of the newest DynamoRIO below cargo's `build` folder.
fn newest_dynamorio(builds: &Path) -> Option<PathBuf> {
    fs::read_dir(builds)
        .ok()?
        .flatten()
        .map(|entry| entry.path().join("out/build"))
        .filter_map(|dir| {
            let built = fs::metadata(dir.join("lib64/release").join(DYNAMORIO)).ok()?.modified().ok()?;
            Some((built, dir))
        })
        .max()
        .map(|(_, dir)| dir)
}
