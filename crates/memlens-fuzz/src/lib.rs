//! Fuzz targets for every parser of memlens: each a function of bytes that panics when a parser is
//! wrong, which is more than when it panics itself.
//!
//! The crate deliberately knows nothing of how bytes are found. Two drivers feed it: `cargo test -p
//! memlens-fuzz`, a short run of [mutated](Mutator) seeds that is the same every time, and the
//! workspace `fuzz/` at the root for cargo-fuzz. [`TARGETS`] is the one list of targets; a test holds
//! `fuzz/` to it.
//!
//! | target | checked against |
//! |---|---|
//! | `agent_record` | the table of words; what is missing makes it no record; heads and references written again |
//! | `bus` | records keep their numbers; writing and reading again; an analysis counts each record once |
//! | `calibration` | its numbers by a general parser of TOML; shares add up; writing and reading again |
//! | `condition` | sides and column by the last sign of comparison; its own text is the same condition |
//! | `definition` | fields by their fixed offsets; encoding and decoding again |
//! | `generated_names` | a list in which later functions remove those that they lie over |
//! | `host_files` | `validate`; each cache as its folder says, or noted as assumed |
//! | `lackey` | a reader of one line at a time; buffers of 1 byte and of everything |
//! | `machine_toml` | `validate`; writing as TOML and reading again |
//! | `machine_override` | the same override spelt from the result; errors point into the text |
//! | `machine_code` | dominators and loops by their definitions; detours at two places are the same code |
//! | `mappings` | the kernel's grammar, a line at a time, for three readers; what was read, written as the kernel writes it |
//! | `module` | what answers must satisfy: ranges hold the address asked for, lists are sorted, operands are instructions |
//! | `perf_data` | what is imported is consistent, and each sample is there once |
//! | `perf_script` | first lines written again; as many samples as first lines |
//! | `profile` | a damaged file is an error or changes nothing; with its checksum forged, what opens is consistent |
//! | `sample_record` | the fields of fixed size by their offsets; what follows the fields changes nothing |
//! | `spe` | a table of the packets' sizes; each record again by itself |
//! | `stack` | CFAs by `memlens-symbols`, return addresses below them; of any file that it ends, upwards |
//! | `trace_filter` | ranges by the definition, at their borders; errors point into the text |
//!
//! A crash: `memlens_fuzz::target("NAME").unwrap().check(BYTES)` shows it again.
#![forbid(unsafe_code)]

mod agent_record;
mod bus;
mod calibration;
mod condition;
mod definition;
mod generated_names;
mod host_files;
mod lackey;
mod machine;
mod machine_code;
mod mappings;
mod module;
mod mutator;
mod perf_data;
mod perf_script;
mod profile;
mod sample_record;
mod spe;
mod stack;
mod trace_filter;

pub use mutator::Mutator;

/// A parser and its checker.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also that of the cargo-fuzz binary.
    pub name: &'static str,
    /// Inputs that the parser takes, to mutate. Made when called.
    pub seeds: fn() -> Vec<Vec<u8>>,
    check: fn(&[u8]),
}

impl Target {
    /// Parses the bytes and checks what comes out.
    ///
    /// # Panics
    ///
    /// When the parser is wrong.
    pub fn check(&self, bytes: &[u8]) {
        (self.check)(bytes);
    }
}

/// All targets.
pub const TARGETS: [Target; 20] = [
    Target { name: "agent_record", seeds: agent_record::seeds, check: agent_record::check },
    Target { name: "bus", seeds: bus::seeds, check: bus::check },
    Target { name: "calibration", seeds: calibration::seeds, check: calibration::check },
    Target { name: "condition", seeds: condition::seeds, check: condition::check },
    Target { name: "definition", seeds: definition::seeds, check: definition::check },
    Target { name: "generated_names", seeds: generated_names::seeds, check: generated_names::check },
    Target { name: "host_files", seeds: host_files::seeds, check: host_files::check },
    Target { name: "lackey", seeds: lackey::seeds, check: lackey::check },
    Target { name: "machine_toml", seeds: machine::toml_seeds, check: machine::check_toml },
    Target { name: "machine_override", seeds: machine::override_seeds, check: machine::check_override },
    Target { name: "machine_code", seeds: machine_code::seeds, check: machine_code::check },
    Target { name: "mappings", seeds: mappings::seeds, check: mappings::check },
    Target { name: "module", seeds: module::seeds, check: module::check },
    Target { name: "perf_data", seeds: perf_data::seeds, check: perf_data::check },
    Target { name: "perf_script", seeds: perf_script::seeds, check: perf_script::check },
    Target { name: "profile", seeds: profile::seeds, check: profile::check },
    Target { name: "sample_record", seeds: sample_record::seeds, check: sample_record::check },
    Target { name: "spe", seeds: spe::seeds, check: spe::check },
    Target { name: "stack", seeds: stack::seeds, check: stack::check },
    Target { name: "trace_filter", seeds: trace_filter::seeds, check: trace_filter::check },
];

/// The target of a name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}
