//! The memory model on cores of its own.
//!
//! ```text
//!  2 processors   attribution ──► model ──────────────────────► booking
//!  3 and more     attribution ──► TLBs, L1 ──► other levels ──► booking
//!                 └─ one thread                                 └─ the same
//! ```
//!
//! Attribution fills a batch, hands it over and fills the next. What the model found for a batch is
//! booked a fixed number of batches later, so that results do not depend on timing: they equal those
//! of running the model in place, but for the owner of lines written back, which is looked up when
//! they are booked. Both ways therefore book with the same delay.

use crate::batch::Batch;
use crate::nodes::Beside;
use memlens_sim::{MachineDescription, Model};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Batches between handing one over and booking its findings: some for each thread, which do not take equally long for each, and
/// enough for the time until a scheduler that has more threads than processors lets one of them run.
const DELAY: usize = 16;
/// So many are handed over together: to wake a thread that sleeps costs a tenth of what a batch does.
const TOGETHER: usize = 4;
/// Handed over, being worked on, or back, at most: each may be alone, because who waits hands over what there is. Nobody ever waits for
/// room, so that no two threads wait for each other.
const UNDER_WAY: usize = DELAY + 1;

/// Runs batches through the model, in order.
pub struct Simulator {
    engine: Engine,
    /// Batches submitted, neither booked nor to be booked now.
    in_flight: usize,
    /// The model is through with them; from the oldest on.
    done: VecDeque<Batch>,
    spare: Vec<Batch>,
    machine: MachineDescription,
    has_fetches: bool,
}

enum Engine {
    Here { model: Box<Model>, beside: Beside },
    Elsewhere(Elsewhere),
}

/// The model on other threads.
struct Elsewhere {
    /// Not handed over yet.
    held: Vec<Batch>,
    /// `None`: no more are handed over.
    to: Option<SyncSender<Vec<Batch>>>,
    from: Receiver<Vec<Batch>>,
    threads: Vec<JoinHandle<()>>,
}

impl Elsewhere {
    fn new(to: SyncSender<Vec<Batch>>, from: Receiver<Vec<Batch>>, threads: Vec<JoinHandle<()>>) -> Self {
        Self { held: Vec::new(), to: Some(to), from, threads }
    }

    /// Hands over what is held.
    fn hand_over(&mut self) {
        if let Some(to) = &self.to
            && !self.held.is_empty()
        {
            // The other end lives as long as we do.
            let _ = to.send(std::mem::take(&mut self.held));
        }
    }

    /// Waits for the next batches that the model is through with; some are under way, or held.
    fn next(&mut self) -> Vec<Batch> {
        if let Ok(done) = self.from.try_recv() {
            return done;
        }
        // Perhaps none but those that are held.
        self.hand_over();
        self.from.recv().unwrap_or_default()
    }
}

/// From so many processors on the model is on two threads: the program and attribution have theirs.
const ENOUGH_FOR_HALVES: usize = 3;

impl Simulator {
    /// Runs the model on a thread of its own where there is a second core, on two where there are enough. `has_fetches`:
    /// instruction fetches may be among the accesses.
    pub fn new(machine: &MachineDescription, model: Model, has_fetches: bool) -> Self {
        let engine = match std::thread::available_parallelism().map_or(1, usize::from) {
            1 => Self::here(machine, model),
            ENOUGH_FOR_HALVES.. => Self::in_halves(machine, model),
            _ => Self::elsewhere(machine, model),
        };
        Self::with_engine(machine, engine, has_fetches)
    }

    fn with_engine(machine: &MachineDescription, engine: Engine, has_fetches: bool) -> Self {
        let (done, machine) = (VecDeque::new(), machine.clone());
        Self { engine, in_flight: 0, done, spare: Vec::new(), machine, has_fetches }
    }

    fn here(machine: &MachineDescription, model: Model) -> Engine {
        Engine::Here { model: Box::new(model), beside: Beside::new(machine) }
    }

    fn elsewhere(machine: &MachineDescription, mut model: Model) -> Engine {
        let mut beside = Beside::new(machine);
        let (to, batches) = sync_channel(UNDER_WAY);
        let (thread, from) = stage(batches, move |batch| batch.run(&mut model, &mut beside));
        Engine::Elsewhere(Elsewhere::new(to, from, vec![thread]))
    }

    fn in_halves(machine: &MachineDescription, model: Model) -> Engine {
        let (mut upper, mut lower) = match model.split() {
            Ok(halves) => halves,
            Err(model) => return Self::elsewhere(machine, model),
        };
        let mut beside = Beside::new(machine);
        let (to, batches) = sync_channel(UNDER_WAY);
        let (first, halfway) = stage(batches, move |batch| batch.run_upper(&mut upper));
        let (second, from) = stage(halfway, move |batch| batch.run_lower(&mut lower, &mut beside));
        Engine::Elsewhere(Elsewhere::new(to, from, vec![first, second]))
    }

    /// An empty batch.
    pub fn empty_batch(&mut self) -> Batch {
        self.spare.pop().unwrap_or_else(|| Batch::new(&self.machine, self.has_fetches))
    }

    /// Hands a batch over. Returns one whose findings are to be booked now, if any; give it back with
    /// [`Self::recycle`].
    pub fn submit(&mut self, mut batch: Batch) -> Option<Batch> {
        match &mut self.engine {
            Engine::Here { model, beside } => {
                batch.run(model, beside);
                self.done.push_back(batch);
            }
            Engine::Elsewhere(elsewhere) => {
                elsewhere.held.push(batch);
                if elsewhere.held.len() == TOGETHER {
                    elsewhere.hand_over();
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
        if self.done.is_empty()
            && let Engine::Elsewhere(elsewhere) = &mut self.engine
        {
            self.done.extend(elsewhere.next());
        }
        self.done.pop_front()
    }

    /// Takes a booked batch back.
    pub fn recycle(&mut self, mut batch: Batch) {
        batch.clear();
        self.spare.push(batch);
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        if let Engine::Elsewhere(elsewhere) = &mut self.engine {
            elsewhere.to = None;
            for thread in elsewhere.threads.drain(..) {
                // It ends when its channel closes; a panic of its was reported already.
                let _ = thread.join();
            }
        }
    }
}

/// A thread that does something with each batch and hands them on as they came.
fn stage(
    batches: Receiver<Vec<Batch>>,
    mut work: impl FnMut(&mut Batch) + Send + 'static,
) -> (JoinHandle<()>, Receiver<Vec<Batch>>) {
    let (done, from) = sync_channel(UNDER_WAY);
    let thread = std::thread::spawn(move || {
        for mut together in batches {
            together.iter_mut().for_each(&mut work);
            if done.send(together).is_err() {
                return;
            }
        }
    });
    (thread, from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Finding;
    use memlens_sim::{CoreId, SimdLevel};
    use memlens_types::{AccessAttr, AccessKind};

    /// Thread, cell, what was found, how often.
    type Booked = (usize, u32, Finding, u64);

    type Make = fn(&MachineDescription, Model) -> Engine;

    /// Two threads' accesses, some to shared lines, in segments of uneven length; all findings in order. From a round on the
    /// second has a core of its own.
    fn findings(machine: &str, second_core: u32, make: Make) -> (Vec<Booked>, Vec<u64>) {
        let mut machine = MachineDescription::named(machine).expect("shipped");
        machine.apply_override("llc=1M,16,64").expect("valid");
        let model = Model::new(&machine, SimdLevel::SCALAR).expect("valid");
        let mut simulator = Simulator::with_engine(&machine, make(&machine, model), false);
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
                let core = if round < second_core { 0 } else { (segment % 2) as u16 };
                batch.begin(segment % 2, CoreId(core));
                for at in 0..500 + 100 * segment as u64 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let kind = if random >> 63 == 0 { AccessKind::Load } else { AccessKind::Store };
                    // At random, and along lines, for the prefetcher.
                    let addr = if segment == 2 {
                        (u64::from(round) << 20) + at * 24
                    } else {
                        (random >> 30) % (64 << 20)
                    };
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
        for (machine, second_core) in [("e5504", 0), ("amd-zen4", 0), ("amd-zen4", 20), ("amd-zen4", 99)] {
            let here = findings(machine, second_core, Simulator::here);
            assert!(here.0.len() > 1000 && !here.1.is_empty(), "the streams must miss and write back");
            let prefetched = here.0.iter().filter(|booked| booked.2 == Finding::LlcPrefetched).count();
            assert!(prefetched > 1000 || machine == "e5504", "{prefetched}");
            assert!(here == findings(machine, second_core, Simulator::elsewhere), "{machine} {second_core}");
            assert!(here == findings(machine, second_core, Simulator::in_halves), "{machine} {second_core}");
        }
    }
}
