//! When cells' accesses were.

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
    /// A burst that stands for so much at such times, each of its references for a part.
    pub fn add(&mut self, when: &When, references: &[Reference]) {
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
            let part = f64::from(count) / references.len() as f64;
            self.of_cells[cell as usize].add_all(when, part);
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
        let when = |from_ms: u64, to_ms: u64, amount: f64| {
            let mut when = When::default();
            when.add_evenly(1_000_000 * from_ms..1_000_000 * to_ms, amount);
            when
        };
        let mut times = Times::default();
        times.add(&when(4000, 8000, 30.0), &[reference(3), reference(1), reference(3)]);
        times.add(&when(13_000, 13_000, 5.0), &[reference(1)]);
        let slices: Vec<Slice> =
            (0..7).map(|at| Slice { begin: at * 2_000_000_000, end: (at + 1) * 2_000_000_000 }).collect();
        let of = |cell| {
            times
                .of(cell)
                .map(|when| when.in_slices(0, &slices).iter().map(|it| it.round() as u64).collect::<Vec<_>>())
        };
        assert_eq!(of(3), Some(vec![0, 0, 10, 10, 0, 0, 0]));
        assert_eq!(of(1), Some(vec![0, 0, 5, 5, 0, 0, 5]));
        assert_eq!(of(2), None);
    }
}
