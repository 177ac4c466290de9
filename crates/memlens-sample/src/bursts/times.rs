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
    /// A burst at a time, each of whose references stands for so many accesses.
    pub fn add(&mut self, at_ns: u64, references: &[Reference], each: f64) {
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
            self.of_cells[cell as usize].add(at_ns, each * f64::from(count));
        }
    }

    /// Of a cell; None: none of its bursts stands for anything yet.
    pub fn of(&self, cell: u32) -> Option<&When> {
        self.of_cells.get(cell as usize).filter(|when| when.sum() > 0.0)
    }
}
