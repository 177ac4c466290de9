//! The most of it in a fraction of a second, for who has never calibrated.
//!
//! Lines that memory serves are few here, and taken out of the caches before each turn (`clflush`): neither has memory of several times the
//! last level to be filled, nor walked through. Page walks are those of as many pages as the second-level TLB has entries, four times
//! over. How far the last level reaches is not measured.

use std::io;
use std::time::Duration;

use crate::chain::Chain;
use crate::clock::Latency;
use crate::latency::{Geometry, LatencyTable, Sizes, best, cycle, extra, small};
use crate::mapping::{LINE, PAGE, Pages};
use crate::nodes;
use crate::rates::LineRates;
use crate::transfer;

/// Times that everything is measured.
const PASSES: usize = 2;
/// Turns of each.
const TURNS: usize = 8;
/// Lines that memory serves in a turn.
const FAR_LINES: usize = 2048;
/// From one to the next: none is in the page of another, so nothing is fetched with them.
const APART: usize = 4 * PAGE;
/// Other memory nodes that are measured.
const NODES: usize = 2;
/// How long another core may take to begin.
const PATIENCE: Duration = Duration::from_millis(20);

/// What accesses cost, and how fast lines follow each other, by little; `None`: this processor cannot be measured so. A fifth of a second,
/// and 50 MB of memory.
///
/// # Errors
/// If there is not enough memory.
pub fn measure_briefly(geometry: &Geometry) -> io::Result<Option<(LatencyTable, LineRates)>> {
    let (mut tables, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..PASSES {
        let (Some(table), Some(lines)) = (pass(geometry)?, LineRates::brief_pass(TURNS, geometry)?) else {
            return Ok(None);
        };
        tables.push(table);
        rates.push(lines);
    }
    let nodes = nodes::of_others(NODES, FAR_LINES * APART, memory)?;
    Ok(Some((LatencyTable { nodes, ..LatencyTable::joined(&tables, 0) }, LineRates::joined(&rates))))
}

fn pass(geometry: &Geometry) -> io::Result<Option<LatencyTable>> {
    let sizes = Sizes::of(geometry);
    let Some((dram, _)) = memory()? else { return Ok(None) };
    let (cycle_ns, cycle_spread) = cycle(TURNS);
    let walked = (geometry.stlb_entries as usize * 4).min((geometry.available_bytes / 4) as usize / PAGE);
    Ok(Some(LatencyTable {
        cycle_ns,
        cycle_spread,
        l1: small(TURNS, sizes.l1)?,
        l2: sizes.l2.map(|bytes| best(TURNS, bytes)).transpose()?,
        llc: best(TURNS, sizes.llc)?,
        dram,
        stlb: Some(extra(TURNS, sizes.dtlb_pages)?),
        walk: Some(extra(TURNS, walked)?),
        transfer: transfer::measure(1, PATIENCE)?,
        ..LatencyTable::default()
    }))
}

/// Of lines that no cache has, with their memory.
fn memory() -> io::Result<Option<(Latency, Chain)>> {
    let offsets: Vec<usize> = (0..FAR_LINES).map(|line| line * APART + line * 37 * LINE % APART).collect();
    let chain = Chain::new(FAR_LINES * APART, &offsets, Pages::Huge)
        .or_else(|_| Chain::new(FAR_LINES * APART, &offsets, Pages::Small))?;
    let flush = || chain.flush(&offsets);
    if !flush() {
        return Ok(None);
    }
    let latency = Latency::of_turns(TURNS, FAR_LINES, || _ = flush(), || chain.read(FAR_LINES));
    Ok(Some((latency, chain)))
}
