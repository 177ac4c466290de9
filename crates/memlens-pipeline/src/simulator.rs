//! The memory model on a core of its own.
//!
//! Attribution fills a batch, hands it over and fills the next. What the model found for a batch is
//! booked a fixed number of batches later, so that results do not depend on timing: they equal those
//! of running the model in place, but for the owner of lines written back, which is looked up when
//! they are booked. Both ways therefore book with the same delay.

use crate::batch::Batch;
use crate::sharing::Sharing;
use memlens_sim::{MachineDescription, Model};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Batches between handing one over and booking its findings.
const DELAY: usize = 3;

/// Runs batches through the model, in order.
pub struct Simulator {
    engine: Engine,
    in_flight: usize,
    spare: Vec<Batch>,
    machine: MachineDescription,
    has_fetches: bool,
}

enum Engine {
    Here { model: Box<Model>, sharing: Sharing, done: VecDeque<Batch> },
    Elsewhere { to: Option<SyncSender<Batch>>, from: Receiver<Batch>, thread: Option<JoinHandle<()>> },
}

impl Simulator {
    /// Runs the model on a thread of its own where there is a second core. `has_fetches`: instruction fetches may
    /// be among the accesses.
    pub fn new(machine: &MachineDescription, model: Model, has_fetches: bool) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let engine = if cores > 1 { Self::elsewhere(machine, model) } else { Self::here(machine, model) };
        Self { engine, in_flight: 0, spare: Vec::new(), machine: machine.clone(), has_fetches }
    }

    #[cfg(test)]
    fn with_engine(machine: &MachineDescription, engine: Engine) -> Self {
        Self { engine, in_flight: 0, spare: Vec::new(), machine: machine.clone(), has_fetches: false }
    }

    fn here(machine: &MachineDescription, model: Model) -> Engine {
        Engine::Here { model: Box::new(model), sharing: Sharing::new(machine), done: VecDeque::new() }
    }

    fn elsewhere(machine: &MachineDescription, mut model: Model) -> Engine {
        let mut sharing = Sharing::new(machine);
        let (to, batches) = sync_channel::<Batch>(DELAY + 1);
        let (done, from) = sync_channel::<Batch>(DELAY + 1);
        let thread = std::thread::spawn(move || {
            for mut batch in batches {
                batch.run(&mut model, &mut sharing);
                if done.send(batch).is_err() {
                    return;
                }
            }
        });
        Engine::Elsewhere { to: Some(to), from, thread: Some(thread) }
    }

    /// An empty batch.
    pub fn empty_batch(&mut self) -> Batch {
        self.spare.pop().unwrap_or_else(|| Batch::new(&self.machine, self.has_fetches))
    }

    /// Hands a batch over. Returns one whose findings are to be booked now, if any; give it back with
    /// [`Self::recycle`].
    pub fn submit(&mut self, mut batch: Batch) -> Option<Batch> {
        match &mut self.engine {
            Engine::Here { model, sharing, done } => {
                batch.run(model, sharing);
                done.push_back(batch);
            }
            Engine::Elsewhere { to, .. } => {
                // The other end lives as long as we do.
                if let Some(to) = to {
                    let _ = to.send(batch);
                }
            }
        }
        self.in_flight += 1;
        if self.in_flight > DELAY { self.next_finished() } else { None }
    }

    /// Waits for the next batch under way. `None` when there is none.
    pub fn next_finished(&mut self) -> Option<Batch> {
        if self.in_flight == 0 {
            return None;
        }
        self.in_flight -= 1;
        match &mut self.engine {
            Engine::Here { done, .. } => done.pop_front(),
            Engine::Elsewhere { from, .. } => from.recv().ok(),
        }
    }

    /// Takes a booked batch back.
    pub fn recycle(&mut self, mut batch: Batch) {
        batch.clear();
        self.spare.push(batch);
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        if let Engine::Elsewhere { to, thread, .. } = &mut self.engine {
            *to = None;
            if let Some(thread) = thread.take() {
                // It ends when its channel closes; a panic of its was reported already.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Finding;
    use memlens_sim::{CoreId, SimdLevel};
    use memlens_types::{AccessAttr, AccessKind};

    /// Thread, cell, what was found, how often.
    type Booked = (usize, u32, Finding, u64);

    /// Two threads' accesses, some to shared lines, in segments of uneven length; all findings in order.
    fn findings(elsewhere: bool) -> (Vec<Booked>, Vec<u64>) {
        let machine = MachineDescription::named("e5504").expect("shipped");
        let model = Model::new(&machine, SimdLevel::SCALAR).expect("valid");
        let engine =
            if elsewhere { Simulator::elsewhere(&machine, model) } else { Simulator::here(&machine, model) };
        let mut simulator = Simulator::with_engine(&machine, engine);
        let (mut found, mut written) = (Vec::new(), Vec::new());
        let mut book = |batch: &Batch| {
            batch.findings(|thread, finding, stretch| {
                stretch.for_each(|cell, times| found.push((thread, cell, finding, times)));
            });
            written.extend_from_slice(batch.dram_writes());
        };
        let mut random = 1_u64;
        for round in 0..40 {
            let mut batch = simulator.empty_batch();
            for segment in 0..3 {
                batch.begin(segment % 2, CoreId((segment % 2) as u16), 0);
                for _ in 0..500 + 100 * segment {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let kind = if random >> 63 == 0 { AccessKind::Load } else { AccessKind::Store };
                    let addr = (random >> 30) % (64 << 20);
                    batch.push(addr, AccessAttr::new(kind, 8), round);
                }
            }
            if let Some(done) = simulator.submit(batch) {
                book(&done);
                simulator.recycle(done);
            }
        }
        while let Some(done) = simulator.next_finished() {
            book(&done);
        }
        (found, written)
    }

    #[test]
    fn a_thread_of_its_own_finds_the_same_in_the_same_order() {
        let here = findings(false);
        assert!(here.0.len() > 1000 && !here.1.is_empty(), "the streams must miss and write back");
        assert!(here == findings(true));
    }
}
