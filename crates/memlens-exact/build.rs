//! Builds the client and DynamoRIO, to be carried inside the memlens binary; see `memlens_payload::build`.

use std::fs;
use std::path::{Path, PathBuf};

use memlens_payload::build::{nested, write_table};

/// Libraries carried: the engine first.
const DYNAMORIO: &str = "libdynamorio.so";
const EXTENSIONS: [&str; 4] = ["libdrmgr.so", "libdrreg.so", "libdrutil.so", "libdrx.so"];
const CLIENT: &str = "libmemlens_exact_client.so";

fn main() {
    // The client makes x86-64 instructions.
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|target| target != "x86_64") {
        return write_table([]);
    }
    let client = "memlens-exact-client";
    let release = nested(client, &[client, "memlens-events", "memlens-types"], &[]);
    let built = newest_dynamorio(&release.join("build"))
        .unwrap_or_else(|| panic!("no {DYNAMORIO} below {}", release.display()));
    let mut files = vec![(DYNAMORIO, built.join("lib64/release").join(DYNAMORIO))];
    files.extend(EXTENSIONS.map(|name| (name, built.join("ext/lib64/release").join(name))));
    files.push((CLIENT, release.join(CLIENT)));
    write_table(files);
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
