//! Builds the placement library, to be carried inside the memlens binary; see `memlens_payload::build`.

use memlens_payload::build::{nested, write_table};

fn main() {
    // Its entry points are x86-64's.
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|target| target != "x86_64") {
        return write_table([]);
    }
    let client = "memlens-placement-client";
    // Without unwinding it needs no runtime; see the client's `lib.rs`.
    let environment = [("CARGO_PROFILE_RELEASE_PANIC", "abort"), ("CARGO_PROFILE_RELEASE_DEBUG", "0")];
    let release = nested(client, &[client, "memlens-inside", "memlens-placement"], &environment);
    let library = "libmemlens_placement_client.so";
    write_table([(library, release.join(library))]);
}
