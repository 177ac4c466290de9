//! Misses of summing a matrix by rows and by columns, on every machine that ships.
//!
//! `cargo run -p memlens-sim --example matrix_order`

use memlens_sim::{Batch, CoreId, MachineDescription, Model, Outcome, SimdLevel};
use memlens_types::{AccessAttr, AccessKind};

/// 1,024 × 1,024 numbers of 8 bytes: 8 MiB.
const SIDE: u64 = 1024;
const BASE: u64 = 0x7f00_0000_0000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:24}{:>12}{:>12}{:>12}{:>12}", "machine", "order", "L1 misses", "LLC misses", "page walks");
    for name in MachineDescription::names() {
        let machine = MachineDescription::named(name)?;
        for order in ["rows", "columns"] {
            let mut model = Model::new(&machine, SimdLevel::detect())?;
            let attrs = vec![AccessAttr::new(AccessKind::Load, 8); SIDE as usize];
            let (mut l1_misses, mut llc_misses, mut walks) = (0, 0, 0);
            let mut out = Outcome::default();
            for outer in 0..SIDE {
                let element =
                    |inner| if order == "rows" { outer * SIDE + inner } else { inner * SIDE + outer };
                let addrs: Vec<u64> = (0..SIDE).map(|inner| BASE + 8 * element(inner)).collect();
                out.clear();
                model.access(CoreId(0), Batch { addrs: &addrs, attrs: &attrs }, &mut out);
                l1_misses += out.l1_misses.len();
                llc_misses += out.llc_misses.len();
                walks += out.walks.len();
            }
            println!("{name:24}{order:>12}{l1_misses:>12}{llc_misses:>12}{walks:>12}");
        }
    }
    Ok(())
}
