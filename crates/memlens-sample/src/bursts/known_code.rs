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
/// Addresses of a process that are kept at most, some MB; as many as large programs execute.
const MOST: usize = 1 << 17;

/// What bursts executed, by process.
#[derive(Debug, Default)]
pub struct KnownCode {
    /// By address: how long an access took in the last burst there, in ns.
    processes: FxHashMap<u32, BTreeMap<u64, f64>>,
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
        for address in code {
            if known.len() < MOST {
                known.insert(address, access_ns);
            } else if let Some(kept) = known.get_mut(&address) {
                *kept = access_ns;
            }
        }
    }

    /// What an instruction belongs to. None: to nothing that is known.
    pub fn met(&self, process: u32, pc: u64) -> Option<Met> {
        let known = self.processes.get(&process)?;
        let around = [known.range(..=pc).next_back(), known.range(pc..).next()];
        let nearest = around.into_iter().flatten().min_by_key(|&(&address, _)| address.abs_diff(pc))?;
        let (&address, &access_ns) = nearest;
        (address.abs_diff(pc) < NEAR).then_some(Met { address, access_ns })
    }

    /// A process, or all, has other code.
    pub fn forget(&mut self, process: Option<u32>) {
        self.processes.retain(|&of, _| process.is_some_and(|process| of != process));
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
        known.forget(Some(9));
        assert_eq!(known.met(9, 0x1010), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut known = KnownCode::default();
        let code: Vec<u64> = (0..MOST as u64 + 10).map(|number| 0x1000 + 64 * number).collect();
        known.add(9, code.iter().copied(), 1.0);
        assert_eq!(known.processes[&9].len(), MOST);
        known.add(9, [0x1000, code[MOST]].into_iter(), 2.0);
        assert_eq!(known.met(9, 0x1000).map(|met| met.access_ns), Some(2.0));
        assert_eq!(known.met(9, code[MOST]), None);
    }
}
