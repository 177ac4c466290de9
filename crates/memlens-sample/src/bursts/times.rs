//! When cells' accesses were.

use std::ops::Range;

use memlens_locality::Reference;

use crate::when::When;

/// By the numbers of cells.
#[derive(Debug, Default)]
pub struct Times {
    of_cells: Vec<When>,
    /// Of a burst: how many references each cell has, and which cells have any.
    counts: Vec<u32>,
    met: Vec<u32>,
}

impl Times {
    /// A burst, each of whose references stands for so many accesses in this time.
    pub fn add(&mut self, time_ns: Range<f64>, references: &[Reference], each: f64) {
        /// Pieces of the time that are told apart: a slice of a profile has several bursts.
        const PIECES: u32 = 8;
        let piece = (time_ns.end - time_ns.start).max(0.0) / f64::from(PIECES);
        let pieces: [u64; PIECES as usize] =
            std::array::from_fn(|at| (time_ns.start + (at as f64 + 0.5) * piece).max(0.0) as u64);
        for reference in references {
            let cell = reference.owner as usize;
            if cell >= self.counts.len() {
                self.counts.resize(cell + 1, 0);
                self.of_cells.resize(cell + 1, When::default());
            }
            if self.counts[cell] == 0 {
                self.met.push(reference.owner);
            }
            self.counts[cell] += 1;
        }
        for cell in self.met.drain(..) {
            let count = std::mem::take(&mut self.counts[cell as usize]);
            let amount = each * f64::from(count) / f64::from(PIECES);
            pieces.iter().for_each(|&at_ns| self.of_cells[cell as usize].add(at_ns, amount));
        }
    }

    /// Of a cell; None: none of its bursts stands for anything yet.
    pub fn of(&self, cell: u32) -> Option<&When> {
        self.of_cells.get(cell as usize).filter(|when| when.sum() > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use memlens_profile::Slice;
    use memlens_types::AccessKind;

    use super::*;

    #[test]
    fn a_burst_is_in_all_of_the_time_that_it_stands_for() {
        let reference =
            |owner| Reference { address: 0, instruction: 0, owner, size: 8, kind: AccessKind::Load };
        let mut times = Times::default();
        times.add(40e6..80e6, &[reference(3), reference(1), reference(3)], 10.0);
        times.add(120e6..120e6, &[reference(1)], 5.0);
        let slices: Vec<Slice> =
            (0..6).map(|at| Slice { begin: at * 20_000_000, end: (at + 1) * 20_000_000 }).collect();
        let of = |cell| {
            times
                .of(cell)
                .map(|when| when.in_slices(0, &slices).iter().map(|it| it.round() as u64).collect::<Vec<_>>())
        };
        assert_eq!(of(3), Some(vec![0, 0, 10, 10, 0, 0]));
        assert_eq!(of(1), Some(vec![0, 0, 5, 5, 0, 5]));
        assert_eq!(of(2), None);
    }
}
