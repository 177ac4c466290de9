//! How fast lackey traces are read: `cargo run --release -p memlens-import --example lackey_speed [LINES]`.
//!
//! The trace is in memory, three fetches to a load and a store, as programs are.

use std::io::{BufReader, Write as _};
use std::time::Instant;

use memlens_import::{LackeyError, LackeyReader};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lines: u64 = std::env::args().nth(1).as_deref().unwrap_or("20000000").parse()?;
    let mut trace = Vec::new();
    for line in 0..lines {
        let word = line.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match line % 5 {
            0 => writeln!(trace, " L {:08x},8", 0x1f_fe00_0000 + (word >> 44))?,
            1 => writeln!(trace, " S {:08x},4", 0x0420_0000 + (word >> 44))?,
            _ => writeln!(trace, "I  {:08x},{}", 0x0401_6000 + line % 4096, 1 + word % 9)?,
        }
    }
    let start = Instant::now();
    let sum = LackeyReader::new(BufReader::with_capacity(1 << 20, &trace[..]))
        .try_fold(0_u64, |sum, access| Ok::<_, LackeyError>(sum.wrapping_add(access?.addr)))?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{:.1} million lines/s, sum of addresses {sum:#x}", lines as f64 / seconds / 1e6);
    Ok(())
}
