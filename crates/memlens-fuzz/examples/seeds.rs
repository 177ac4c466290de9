//! Writes the seeds of every target to files, as a first corpus for coverage-guided runs:
//!
//! ```text
//! cargo run --release -p memlens-fuzz --example seeds -- FOLDER
//! ```
//!
//! makes `FOLDER/TARGET/seed-NUMBER`.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| io::Error::other("which folder do the seeds go to?"))?;
    for target in &memlens_fuzz::TARGETS {
        let corpus = folder.join(target.name);
        fs::create_dir_all(&corpus)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            fs::write(corpus.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
