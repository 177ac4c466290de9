//! Builds the agent, to be carried inside the memlens binary; see `memlens_payload::build`.

use memlens_payload::build::{nested, write_table};

fn main() {
    let agent = "memlens-agent";
    // Without unwinding it needs no runtime; see the agent's `lib.rs`.
    let environment = [("CARGO_PROFILE_RELEASE_PANIC", "abort"), ("CARGO_PROFILE_RELEASE_DEBUG", "0")];
    let release = nested(
        agent,
        &[agent, "memlens-burst", "memlens-events", "memlens-inside", "memlens-types"],
        &environment,
    );
    let library = "libmemlens_agent.so";
    write_table([(library, release.join(library))]);
}
