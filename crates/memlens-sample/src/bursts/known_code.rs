//! Code that bursts have executed: which of it a look's instruction belongs to.
//!
//! Functions lie side by side, and loops in them: a few bytes away may be another phase of the program. So a look is in the code of a
//! burst if, of all that any burst of the process has executed, what is nearest to it is that burst's. Farther away it is in code
//! that no burst has met yet.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

/// Code farther away than this from what bursts executed is none of it, in bytes: known are instructions with memory operands and first ones of
/// blocks, and of others there are no more than some in a row.
const NEAR: u64 = 32;
/// Addresses of a process that are kept in each generation at most, some MB; as many as large programs execute.
const MOST: usize = 1 << 16;

/// What a process's bursts executed. By address: how long an access took in the last burst there, in ns.
#[derive(Debug, Default)]
struct OfProcess {
    recent: BTreeMap<u64, f64>,
    /// What there was when that began anew.
    older: BTreeMap<u64, f64>,
}

/// What bursts executed, by process.
#[derive(Debug, Default)]
pub struct KnownCode {
    processes: FxHashMap<u32, OfProcess>,
}

/// The nearest code that is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Met {
    /// An address in it.
    pub address: u64,
    /// How long an access took there, in ns.
    pub access_ns: f64,
}

impl KnownCode {
    /// A burst of a process was there.
    pub fn add(&mut self, process: u32, code: impl Iterator<Item = u64>, access_ns: f64) {
        let known = self.processes.entry(process).or_default();
        if known.recent.len() >= MOST {
            known.older = std::mem::take(&mut known.recent);
        }
        known.recent.extend(code.map(|address| (address, access_ns)));
    }

    /// What an instruction belongs to. None: to nothing that is known.
    pub fn met(&self, process: u32, pc: u64) -> Option<Met> {
        let known = self.processes.get(&process)?;
        let around = |of: &BTreeMap<u64, f64>| {
            let near = [of.range(..=pc).next_back(), of.range(pc..).next()];
            near.map(|found| found.map(|(&address, &access_ns)| Met { address, access_ns }))
        };
        let found = around(&known.recent).into_iter().chain(around(&known.older)).flatten();
        let nearest = found.min_by_key(|met| met.address.abs_diff(pc))?;
        (nearest.address.abs_diff(pc) < NEAR).then_some(nearest)
    }

    /// A process has other code.
    pub fn forget(&mut self, process: u32) {
        self.processes.remove(&process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_code_that_a_burst_met_decides() {
        let mut known = KnownCode::default();
        known.add(9, [0x1000, 0x1010].into_iter(), 5.0);
        assert_eq!(known.met(9, 0x1018).map(|met| met.address), Some(0x1010));
        known.add(9, [0x101a].into_iter(), 0.5);
        assert_eq!(known.met(9, 0x1018), Some(Met { address: 0x101a, access_ns: 0.5 }));
        assert_eq!(known.met(9, 0x1010), Some(Met { address: 0x1010, access_ns: 5.0 }));
        assert_eq!(known.met(9, 0xff0).map(|met| met.address), Some(0x1000));
        assert_eq!((known.met(9, 0x103a), known.met(9, 0xfe0), known.met(8, 0x1000)), (None, None, None));
        known.forget(9);
        assert_eq!(known.met(9, 0x1010), None);
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_latest() {
        let mut known = KnownCode::default();
        let code = |from: u64| (from..from + MOST as u64).map(|number| 0x1000 + 64 * number);
        for generation in 0..3 {
            known.add(9, code(generation * MOST as u64), 1.0);
        }
        known.add(9, [0x1000].into_iter(), 2.0);
        assert_eq!(known.met(9, 0x1000), Some(Met { address: 0x1000, access_ns: 2.0 }));
        assert_eq!(known.met(9, 0x1040), None);
        let last = 0x1000 + 64 * (3 * MOST as u64 - 1);
        assert_eq!(known.met(9, last).map(|met| met.address), Some(last));
        assert!(known.processes[&9].recent.len() + known.processes[&9].older.len() <= 2 * MOST);
    }
}
