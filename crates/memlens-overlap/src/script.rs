//! What goes through a core in a window, written down once: it goes through the same core as it is, if no access took time, and if no
//! address took time to be translated.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, Scope};

use memlens_code::Effects;

use crate::out_of_order::{Core, CoreLimits, Served};
use crate::paths::Join;

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// An instruction that touches no memory.
    Passes(Effects),
    /// A branch that leads elsewhere than was guessed; both ways meet there.
    Misleads(Effects, Option<Join>),
    /// An instruction and its accesses; without code, these alone.
    Accesses { effects: Option<Effects>, first: u32, end: u32 },
    /// A string instruction repeats itself from here on.
    Repeats,
    /// Time counts from here on.
    Counts,
}

/// A window.
#[derive(Debug, Default)]
pub(crate) struct Script {
    events: Vec<Event>,
    served: Vec<Served>,
}

impl Script {
    /// Forgets all, not the memory that it takes.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.served.clear();
    }

    pub(crate) fn pass(&mut self, effects: &Effects) {
        self.events.push(Event::Passes(*effects));
    }

    pub(crate) fn mislead(&mut self, effects: &Effects, join: Option<Join>) {
        self.events.push(Event::Misleads(*effects, join));
    }

    pub(crate) fn access(&mut self, effects: Option<&Effects>, accesses: impl Iterator<Item = Served>) {
        let first = self.served.len() as u32;
        self.served.extend(accesses);
        let end = self.served.len() as u32;
        self.events.push(Event::Accesses { effects: effects.copied(), first, end });
    }

    pub(crate) fn repeat(&mut self) {
        self.events.push(Event::Repeats);
    }

    pub(crate) fn count(&mut self) {
        self.events.push(Event::Counts);
    }

    /// How many cycles it takes from where time counts. `waited` is told which operand's accesses were waited for, and how long.
    pub(crate) fn cycles(&self, limits: CoreLimits, waited: impl FnMut(u32, f64)) -> f64 {
        self.go_through(Core::new(limits), |served| *served, true, waited)
    }

    /// The same if no access took time, and if no address took time to be translated; None: none does.
    fn other_cycles(&self, limits: CoreLimits) -> OtherCycles {
        let nobody = |_, _| ();
        let is_translated = self.served.iter().any(|it| it.drawn.translation_cycles() > 0.0);
        let translated = || self.go_through(Core::new(limits), Served::without_translation, true, nobody);
        OtherCycles {
            instant: self.go_through(Core::new(limits), Served::without_latency, false, nobody),
            translated: is_translated.then(translated),
        }
    }

    fn go_through(
        &self,
        mut core: Core,
        served_as: fn(&Served) -> Served,
        has_misses: bool,
        mut waited: impl FnMut(u32, f64),
    ) -> f64 {
        let (mut counts, mut begins) = (false, 0.0);
        let mut accesses: Vec<Served> = Vec::new();
        for event in &self.events {
            match event {
                Event::Passes(effects) => {
                    core.execute(effects, &[], |_, _| ());
                }
                Event::Misleads(effects, join) => {
                    let done = core.execute(effects, &[], |_, _| ());
                    core.guessed_wrong(done, join.filter(|_| has_misses));
                }
                &Event::Accesses { ref effects, first, end } => {
                    accesses.clear();
                    accesses.extend(self.served[first as usize..end as usize].iter().map(served_as));
                    let waited = |operand, cycles| {
                        if counts {
                            waited(operand, cycles);
                        }
                    };
                    core.execute_known(effects.as_ref(), &accesses, waited);
                }
                Event::Repeats => core.begins_to_repeat(),
                Event::Counts => (counts, begins) = (true, core.now()),
            }
        }
        if counts { core.now() - begins } else { 0.0 }
    }
}

/// How many cycles a window takes otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OtherCycles {
    /// If no access took time.
    pub(crate) instant: f64,
    /// If no address took time to be translated; None: none does.
    pub(crate) translated: Option<f64>,
}

/// Lets windows go through the other cores, on a thread of its own if there can be one.
pub(crate) struct OtherCores {
    limits: CoreLimits,
    /// None: there could be no thread.
    to: Option<Sender<Arc<Script>>>,
    from: Receiver<OtherCycles>,
    /// What was done here.
    done: VecDeque<OtherCycles>,
}

impl OtherCores {
    pub(crate) fn new<'scope>(scope: &'scope Scope<'scope, '_>, limits: CoreLimits) -> Self {
        let (to, scripts) = channel::<Arc<Script>>();
        let (found, from) = channel();
        let work = move || {
            let cycles = scripts.into_iter().map(|script| script.other_cycles(limits));
            // Nobody waits for it: then there is nothing more to do.
            let _ = cycles.map(|cycles| found.send(cycles)).find(Result::is_err);
        };
        let is_there = Builder::new().spawn_scoped(scope, work).is_ok();
        Self { limits, to: is_there.then_some(to), from, done: VecDeque::new() }
    }

    /// Lets a window go through them. To be followed by [`Self::next`], sooner or later.
    pub(crate) fn begin(&mut self, script: &Arc<Script>) {
        match &self.to {
            Some(to) => {
                // Where the thread has panicked, the scope does so, too.
                let _ = to.send(Arc::clone(script));
            }
            None => self.done.push_back(script.other_cycles(self.limits)),
        }
    }

    /// Waits for the first window that has not been asked for. None: there is none.
    pub(crate) fn next(&mut self) -> Option<OtherCycles> {
        match &self.to {
            Some(_) => self.from.recv().ok(),
            None => self.done.pop_front(),
        }
    }
}
