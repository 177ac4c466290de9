//! What the memory model found for cells, in little room: there are a hundred thousand that missed, most of them a few times.

use memlens_types::{Numa, Shared};

/// What the memory model found for a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    pub l1: u64,
    pub l2: u64,
    /// Each of them reads a line from memory.
    pub llc: u64,
    pub l2_prefetched: u64,
    pub llc_prefetched: u64,
    pub dtlb: u64,
    pub stlb: u64,
    pub walk_accesses: u64,
    pub walk_cycles: u64,
    pub invalidations: u64,
    pub coherence: u64,
    pub false_sharing: u64,
    /// Coherence misses of which it is not known whether they are false sharing.
    pub unclear_sharing: u64,
    pub numa: Numa,
}

impl Misses {
    /// Of what is not known as much is false sharing as of the rest; nothing where nothing is known.
    pub fn shared(&self) -> Shared {
        let known = self.coherence.saturating_sub(self.unclear_sharing);
        let also = match known {
            0 => 0,
            _ => u128::from(self.unclear_sharing) * u128::from(self.false_sharing) / u128::from(known),
        };
        let also = u64::try_from(also).unwrap_or(u64::MAX);
        Shared { coherence_misses: self.coherence, false_sharing: self.false_sharing + also }
    }
}

/// Those that many cells have, as far as 4 bytes go.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usual {
    pub l1: u32,
    pub l2: u32,
    pub llc: u32,
    pub l2_prefetched: u32,
    pub llc_prefetched: u32,
    pub dtlb: u32,
    /// Where in [`MissTable::rest`] the rest is; 0: there is none.
    rest: u32,
    /// In which slice of time something was counted last.
    slice: u32,
}

/// The misses of many cells: by row, which the caller keeps.
#[derive(Debug)]
pub struct MissTable {
    /// The first is for all that have none.
    usual: Vec<Usual>,
    /// What is counted in few cells, and what went beyond the 4 bytes; the first is for all that have none.
    rest: Vec<Misses>,
}

impl MissTable {
    /// Only the row of those that have none: 0.
    pub fn new() -> Self {
        Self { usual: vec![Usual::default()], rest: vec![Misses::default()] }
    }

    /// A row more.
    pub fn add_row(&mut self) -> u32 {
        self.usual.push(Usual::default());
        (self.usual.len() - 1) as u32
    }

    /// Something is to be counted, in this slice of time: whether it is the first in it.
    #[inline(always)]
    pub fn is_first_of(&mut self, slice: u32, row: u32) -> bool {
        let last = &mut self.usual[row as usize].slice;
        std::mem::replace(last, slice) != slice
    }

    /// Counts `times` of a kind that many cells have; `of_rest` is the same kind.
    #[inline(always)]
    pub fn count(
        &mut self,
        row: u32,
        times: u64,
        of_usual: impl Fn(&mut Usual) -> &mut u32,
        of_rest: impl Fn(&mut Misses) -> &mut u64,
    ) {
        let counter = of_usual(&mut self.usual[row as usize]);
        let sum = u64::from(*counter) + times;
        match u32::try_from(sum) {
            Ok(sum) => *counter = sum,
            Err(_) => {
                *counter = 0;
                *of_rest(self.rest_mut(row)) += sum;
            }
        }
    }

    /// What few cells have, to count in.
    #[inline]
    pub fn rest_mut(&mut self, row: u32) -> &mut Misses {
        let place = &mut self.usual[row as usize].rest;
        if *place == 0 {
            *place = self.rest.len() as u32;
            self.rest.push(Misses::default());
        }
        &mut self.rest[*place as usize]
    }

    /// All that was counted in a row.
    pub fn get(&self, row: u32) -> Misses {
        let Usual { l1, l2, llc, l2_prefetched, llc_prefetched, dtlb, rest, .. } = self.usual[row as usize];
        let rest = self.rest[rest as usize];
        Misses {
            l1: rest.l1 + u64::from(l1),
            l2: rest.l2 + u64::from(l2),
            llc: rest.llc + u64::from(llc),
            l2_prefetched: rest.l2_prefetched + u64::from(l2_prefetched),
            llc_prefetched: rest.llc_prefetched + u64::from(llc_prefetched),
            dtlb: rest.dtlb + u64::from(dtlb),
            ..rest
        }
    }

    /// Forgets all counts, not the rows.
    pub fn zero(&mut self) {
        for usual in &mut self.usual {
            *usual = Usual { rest: usual.rest, slice: usual.slice, ..Usual::default() };
        }
        self.rest.fill(Misses::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_of_sharing_is_as_what_is() {
        let shared = |coherence, false_sharing, unclear_sharing| {
            Misses { coherence, false_sharing, unclear_sharing, ..Misses::default() }.shared().false_sharing
        };
        assert_eq!((shared(100, 24, 76), shared(100, 10, 60), shared(100, 0, 100)), (100, 25, 0));
    }

    #[test]
    fn counts_go_on_beyond_their_four_bytes() {
        let mut table = MissTable::new();
        let (one, other) = (table.add_row(), table.add_row());
        let l1 =
            |table: &mut MissTable, row, times| table.count(row, times, |it| &mut it.l1, |it| &mut it.l1);
        let most = u64::from(u32::MAX);
        for times in [most - 1, 1, 1, most, 3 * most, 5] {
            l1(&mut table, one, times);
        }
        table.count(one, 7, |it| &mut it.dtlb, |it| &mut it.dtlb);
        table.rest_mut(one).stlb += 2;
        assert_eq!([3, 3, 4].map(|slice| table.is_first_of(slice, one)), [true, false, true]);
        assert!(table.is_first_of(4, other));
        l1(&mut table, other, 4);
        let expected = Misses { l1: 5 * most + 6, dtlb: 7, stlb: 2, ..Misses::default() };
        assert_eq!(table.get(one), expected);
        assert_eq!(table.get(other), Misses { l1: 4, ..Misses::default() });
        assert_eq!(table.get(0), Misses::default());
        table.zero();
        assert_eq!(table.get(one), Misses::default());
        assert!(!table.is_first_of(4, one));
        // It has its place for the rest still, and nobody else has.
        l1(&mut table, one, most + 1);
        assert_eq!(table.get(one).l1, most + 1);
        assert_eq!((table.get(other), table.rest.len()), (Misses::default(), 2));
    }
}
