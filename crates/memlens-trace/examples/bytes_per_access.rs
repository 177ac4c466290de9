//! How many bytes an access of a real program takes as Parquet, and how long writing it takes.
//!
//! ```text
//! valgrind --tool=lackey --trace-mem=yes --log-fd=9 PROGRAM 9>&1 >/dev/null |
//!     cargo run --release -p memlens-trace --example bytes_per_access FOLDER
//! ```
//!
//! Lackey names no objects: every 128 KiB of addresses stand for one here.

use std::collections::HashMap;
use std::io::{self, BufReader};
use std::time::Instant;

use memlens_import::LackeyReader;
use memlens_trace::{TraceFilter, TraceFormat, TraceRow, TraceSink, TraceWriter};
use memlens_types::AccessKind;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("usage: bytes_per_access FOLDER < TRACE")?;
    let (mut rows, mut codes, mut objects) = (Vec::new(), HashMap::new(), HashMap::new());
    let (mut instructions, mut code) = (0, 0);
    for access in LackeyReader::new(BufReader::with_capacity(1 << 20, io::stdin().lock())) {
        let access = access?;
        if access.kind == AccessKind::Fetch {
            instructions += 1;
            let next = codes.len() as u32;
            code = *codes.entry(access.addr).or_insert(next);
            continue;
        }
        let next = objects.len() as u32;
        rows.push(TraceRow {
            kind: access.kind,
            addr: access.addr,
            size: access.size,
            instructions,
            thread: 1,
            code,
            object: *objects.entry(access.addr >> 17).or_insert(next),
            offset: access.addr & 0x1ffff,
            block: 0,
        });
    }
    let start = Instant::now();
    let mut writer =
        TraceWriter::create(folder.as_ref(), TraceFormat::Parquet, TraceFilter::default(), true)?;
    for row in &rows {
        writer.access(row);
    }
    let summary = writer.finish()?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} accesses, {:.3} bytes each, {:.1} million a second",
        summary.written,
        summary.bytes as f64 / summary.written as f64,
        summary.written as f64 / seconds / 1e6
    );
    Ok(())
}
