//! Holds what bursts record against what exact mode records of the same program: `bench/same_addresses.py`.
//!
//! ```text
//! same_addresses [--control] [--words N] [--out FILE] -- PROGRAM [ARGUMENT]…
//! ```
//!
//! The program runs twice, both times at addresses that are not randomised and with the agent in it: under exact mode's
//! engine with an agent that does nothing, then natively, with one burst behind the other. Each burst's sequence of
//! (instruction, address) must be found in exact mode's sequence of the same thread, whole and without a gap, behind where the
//! burst before was found.
//!
//! - An instruction is the same if it has the same offset in the same file.
//! - Both processes have the same mappings in other places. So a burst's address is the one of exact mode plus a
//!   *shift*, a multiple of the page, that is the same for all accesses to a page as long as neither process changes its
//!   mapping, and for no two pages leads to the same one (`shifts.rs`). The stack has the same place in its page in both
//!   runs: the variable that brings the agent in is made so much longer. The strings of arguments and environment above it
//!   have a shift of their own, which the kernel tells.
//! - Operands of an instruction are compared in the order loads, modifications, stores; a repeated string instruction by where its
//!   operands begin, and by how many elements it had.
//! - Of gathers and scatters the elements are compared whose mask is set.
//! - The agent's own code is left out on both sides, and so are gathers and scatters relative to a segment, whose addresses
//!   bursts do not know.
//!
//! `--control` holds exact mode against itself, its second run cut into pieces as long as bursts: what differs there, the program
//! does not do twice in the same way.
//!
//! Prints a line of JSON; see [`compare::Outcome`]. Exit code 1: something differs.

mod bursts;
mod compare;
mod exact;
mod sequence;
mod shifts;

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use sequence::Codes;

struct Options {
    is_control: bool,
    words: u32,
    out: Option<PathBuf>,
    command: Vec<OsString>,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options { is_control: false, words: 10_000, out: None, command: Vec::new() };
    let mut words = env::args_os().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or("a value is missing");
        match word.to_str() {
            Some("--control") => options.is_control = true,
            Some("--words") => options.words = value()?.to_str().ok_or("no number")?.parse()?,
            Some("--out") => options.out = Some(value()?.into()),
            Some("--") => {
                options.command = words.collect();
                break;
            }
            _ => return Err(format!("unknown word {word:?}").into()),
        }
    }
    if options.command.is_empty() {
        return Err("no program is named behind --".into());
    }
    Ok(options)
}

/// What this process starts lies at the same addresses each time.
fn without_randomisation() -> io::Result<()> {
    // SAFETY: asks for and sets a flag of this process.
    let status = unsafe {
        let before = libc::personality(0xffff_ffff);
        libc::personality(before as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong)
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    without_randomisation()?;
    let mut codes = Codes::default();
    let exact = exact::record(&options.command, &mut codes)?;
    let stack_pointer = exact.stack_pointer.ok_or("exact mode recorded nothing")?;
    let bursts = match options.is_control {
        true => exact::record(&options.command, &mut codes)?.in_pieces(options.words as usize),
        false => bursts::record(&options.command, options.words, stack_pointer, &mut codes)?,
    };
    let outcome = compare::compare(&exact, &bursts, &codes);
    let text = outcome.json();
    match &options.out {
        Some(file) => fs::write(file, text)?,
        None => print!("{text}"),
    }
    Ok(outcome.is_same())
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("same_addresses: {error}");
            ExitCode::from(2)
        }
    }
}
