//! Builds the placement library, to be carried inside the memlens binary; see `memlens_payload::build`.

use memlens_payload::build::{nested, write_table};

fn main() {
    let client = "memlens-placement-client";
    // Without unwinding it needs no runtime; see the client's `lib.rs`.
    let environment = [("CARGO_PROFILE_RELEASE_PANIC", "abort"), ("CARGO_PROFILE_RELEASE_DEBUG", "0")];
    let release = nested(client, &[client, "memlens-inside", "memlens-placement"], &environment);
    let library = "libmemlens_placement_client.so";
    write_table([(library, release.join(library))]);
}
