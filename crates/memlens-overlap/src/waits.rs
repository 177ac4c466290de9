//! What each operand's accesses wait, window by window.

#[cfg(test)]
mod aarch64_tests;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use memlens_code::Leads;
use rustc_hash::FxHashMap;

use crate::held_to_time::{Expected, Held, held};
use crate::out_of_order::{CoreLimits, Served as ServedAccess};
use crate::paths::{CodeOf, From, Paths, Place, Step};
use crate::predictor::Predictor;
use crate::script::{OtherCores, Script};
use crate::served::{Draw, Drawn, Served};
use crate::windows::{Kept, Windows};

/// Accesses at a window's beginning that are not counted: the core is empty there.
const WARM_UP: usize = 96;

/// Windows that may have gone through the first core and be on their way through the others.
const UNDER_WAY: usize = 4;

/// An operand, as the caller knows it.
#[derive(Clone, Debug)]
pub struct Operand {
    /// Its instruction.
    pub place: Place,
    /// Which of the instruction's memory operands it is, from 0.
    pub operand: u8,
    /// How its accesses are served.
    pub served: Served,
}

/// What was found of one operand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waited {
    /// Accesses looked at.
    pub accesses: u64,
    /// Their latencies.
    pub latency_cycles: f64,
    /// Cycles in which the core could retire nothing because of them, and that it would not take if no access took any; no more than
    /// the measured time has room for.
    pub waited_cycles: f64,
    /// What translation is of the latencies, in cycles.
    pub translation_cycles: f64,
    /// Cycles of those waited that the core would not take if no address took time to be translated.
    pub translation_waited_cycles: f64,
}

/// What was found in all windows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waits {
    /// By operand's number, those whose code is known.
    pub operands: FxHashMap<u32, Waited>,
    /// Cycles that the modelled core took for them and all instructions between them.
    pub cycles: f64,
    /// What those whose code is known would take if no access took time.
    pub instant_cycles: f64,
    /// None: too little time was measured that they could be held against.
    pub held: Option<HeldToTime>,
}

/// What became of stalls that were held against the measured time of the windows' code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeldToTime {
    /// How many times [`Waited::waited_cycles`] the modelled core waits by itself.
    pub modelled_times: f64,
    /// The part of the time that there is room for stalls in: the rest it would take if no access took any.
    pub room: f64,
}

/// What is known of an operand while windows are gone through.
struct Known<'a> {
    /// Its instruction's number; None: there is no code.
    instruction: Option<u32>,
    operand: u8,
    draw: Draw<'a>,
    found: Waited,
    /// Cycles of its windows if no access took time, its accesses' part of them.
    instant_cycles: f64,
}

/// What the accesses of each operand waited in these windows.
///
/// `operands`: all whose counts are known; others are taken for hits. Cost: some hundred nanoseconds an access, and decoding the
/// functions they are in.
pub fn waits<'c>(
    windows: &Windows,
    core: CoreLimits,
    operands: &FxHashMap<u32, Operand>,
    code_of: &'c CodeOf<'c>,
) -> Waits {
    let mut seen: FxHashMap<u32, (u64, u64)> = FxHashMap::default();
    let all = windows.iter().flat_map(|window| &window.accesses);
    for access in all.filter(|kept| !kept.what.is_block()) {
        let (accesses, firsts) = seen.entry(access.number).or_default();
        *accesses += 1;
        *firsts += u64::from(access.what.is_first());
    }
    let mut paths = Paths::new(code_of);
    let hit = Served::default();
    let mut known: FxHashMap<u32, Known<'_>> = seen
        .into_iter()
        .map(|(number, (accesses, firsts))| {
            let operand = operands.get(&number);
            let known = Known {
                instruction: operand.and_then(|it| paths.number(it.place)),
                operand: operand.map_or(0, |it| it.operand),
                draw: Draw::new(operand.map_or(&hit, |it| &it.served), accesses, firsts),
                found: Waited::default(),
                instant_cycles: 0.0,
            };
            (number, known)
        })
        .collect();
    let blocks: Vec<Option<u32>> = windows.blocks().iter().map(|&place| paths.number(place)).collect();
    let mut writer = Writer { paths: &mut paths, predictor: Predictor::default() };
    let mut cycles = 0.0;
    std::thread::scope(|scope| {
        let mut others = OtherCores::new(scope, core);
        let mut under_way = VecDeque::new();
        for window in windows.iter() {
            let is_full = under_way.len() == UNDER_WAY;
            let free = is_full.then(|| settle(&mut under_way, &mut others, &mut known));
            let mut script = free.flatten().unwrap_or_default();
            let of_window = writer.window(&window.accesses, &blocks, &mut known, &mut script);
            let script = Arc::new(script);
            others.begin(&script);
            let mut gone = Gone { script, of_window, cycles: 0.0 };
            gone.cycles = gone.script.cycles(core, |operand, cycles| {
                gone.of_window.entry(operand).or_default().held_up += cycles;
            });
            cycles += gone.cycles;
            under_way.push_back(gone);
        }
        while !under_way.is_empty() {
            settle(&mut under_way, &mut others, &mut known);
        }
    });
    let held = hold_to_time(windows, &mut known);
    let mut found = Waits { cycles, held, ..Waits::default() };
    for (number, known) in known {
        if known.instruction.is_some() && known.found.accesses > 0 {
            found.instant_cycles += known.instant_cycles;
            found.operands.insert(number, known.found);
        }
    }
    found
}

/// Takes away what the measured time of the windows has no room for.
fn hold_to_time(windows: &Windows, known: &mut FxHashMap<u32, Known<'_>>) -> Option<HeldToTime> {
    let expected = |number| {
        let known = known.get(&number).filter(|known| known.found.accesses > 0)?;
        let an_access = |cycles: f64| cycles / known.found.accesses as f64;
        Some(Expected {
            waited: an_access(known.found.waited_cycles),
            instant: an_access(known.instant_cycles),
        })
    };
    let Held { parts, usual, room } =
        held(windows.iter().filter_map(|window| window.stretch.as_ref()), expected)?;
    let (mut modelled, mut left) = (0.0, 0.0);
    for (number, known) in known.iter_mut() {
        modelled += known.found.waited_cycles;
        let part = parts.get(number).copied().unwrap_or(usual);
        known.found.waited_cycles *= part;
        known.found.translation_waited_cycles *= part;
        left += known.found.waited_cycles;
    }
    let modelled_times = if left > 0.0 { modelled / left } else { 1.0 };
    Some(HeldToTime { modelled_times, room })
}

/// A window that has gone through the core, and is on its way through the others.
struct Gone {
    script: Arc<Script>,
    of_window: FxHashMap<u32, InWindow>,
    /// How many it took behind its beginning.
    cycles: f64,
}

/// Books the first of these windows as soon as it has gone through all cores. What comes back is where the next can be written down.
fn settle(
    under_way: &mut VecDeque<Gone>,
    others: &mut OtherCores,
    known: &mut FxHashMap<u32, Known<'_>>,
) -> Option<Script> {
    let Gone { script, of_window, cycles } = under_way.pop_front()?;
    let others = others.next()?;
    // A loop that another chain holds up has each load at the head of what retires, some cycles behind the chain, and would take as
    // long without them. Along a list what uses the load retires behind it, and would come earlier, too.
    let sum = |of: fn(&InWindow) -> f64| of_window.values().map(of).sum::<f64>();
    let part = |spared: f64, of: f64| if of > 0.0 { (spared / of).max(0.0) } else { 0.0 };
    let cost = part(cycles - others.instant, sum(|it| it.held_up));
    // What is spared without translation is theirs that wait for it, no more than they wait.
    let spared = cycles - others.translated.unwrap_or(cycles);
    let of_translation = part(spared, cost * sum(InWindow::held_up_by_translation)).min(1.0);
    let all: u64 = of_window.values().map(|it| it.accesses).sum();
    for (operand, it) in of_window {
        if let Some(known) = known.get_mut(&operand) {
            known.found.waited_cycles += it.held_up * cost;
            known.found.translation_waited_cycles += it.held_up_by_translation() * cost * of_translation;
            known.instant_cycles += others.instant * it.accesses as f64 / all.max(1) as f64;
        }
    }
    // The other thread has let go of it.
    let mut script = Arc::into_inner(script)?;
    script.clear();
    Some(script)
}

/// Writes down what goes through cores.
struct Writer<'a, 'c> {
    paths: &'a mut Paths<'c>,
    predictor: Predictor,
}

impl Writer<'_, '_> {
    /// A window; what comes back are the accesses of each operand behind its beginning. `blocks`: their first instructions, by number.
    fn window(
        &mut self,
        window: &[Kept],
        blocks: &[Option<u32>],
        known: &mut FxHashMap<u32, Known<'_>>,
        script: &mut Script,
    ) -> FxHashMap<u32, InWindow> {
        let warm_up = WARM_UP.min(window.len() / 4);
        let mut from: Option<From> = None;
        let mut of_window: FxHashMap<u32, InWindow> = FxHashMap::default();
        let (mut at, mut was_warm) = (0, false);
        while at < window.len() {
            let is_warm = at >= warm_up;
            if is_warm && !std::mem::replace(&mut was_warm, true) {
                script.count();
            }
            if window[at].what.is_block() {
                let begins = blocks[window[at].number as usize];
                match begins {
                    // It has gone round once.
                    Some(first) if from == Some(From::At(first)) => {
                        self.pass(Step { instruction: first, is_taken: false }, script);
                        self.go(Some(From::Behind(first)), begins, script);
                    }
                    _ => self.go(from, begins, script),
                }
                from = begins.map(From::At);
                at += 1;
                continue;
            }
            let instruction = known.get(&window[at].number).and_then(|it| it.instruction);
            let end = at + length_of_instruction(&window[at..], known, instruction);
            // Each line of a string that is gone through comes with an access, behind the first all of the same execution.
            let repeats = instruction.is_some_and(|number| self.paths.effects(number).repeats);
            if !(repeats && from == instruction.map(From::Behind)) {
                self.go(from, instruction, script);
                if repeats {
                    script.repeat();
                }
            }
            let served = window[at..end].iter().filter_map(|&access| {
                let known = known.get_mut(&access.number)?;
                let drawn = known.draw.next(access.what.is_first(), access.what.is_prefetched());
                if is_warm {
                    of_window.entry(access.number).or_default().accessed(&drawn);
                    known.found.accesses += 1;
                    known.found.latency_cycles += drawn.counted_cycles;
                    known.found.translation_cycles += drawn.translation_cycles();
                }
                Some(ServedAccess { access, drawn })
            });
            script.access(instruction.map(|number| self.paths.effects(number)), served);
            from = instruction.map(From::Behind);
            at = end;
        }
        of_window
    }

    /// The instructions up to this one.
    fn go(&mut self, from: Option<From>, to: Option<u32>, script: &mut Script) {
        let (Some(from), Some(to)) = (from, to) else { return };
        for at in 0..self.paths.way(from, to).len() {
            let step = self.paths.way(from, to)[at];
            self.pass(step, script);
        }
    }

    /// An instruction that touches no memory.
    fn pass(&mut self, step: Step, script: &mut Script) {
        let effects = *self.paths.effects(step.instruction);
        let is_branch = matches!(effects.leads, Leads::Either(_));
        if is_branch && !self.predictor.guesses(step.instruction, step.is_taken) {
            script.mislead(&effects, self.paths.join(step.instruction));
        } else {
            script.pass(&effects);
        }
    }
}

/// An operand's accesses of a window.
#[derive(Clone, Copy, Debug, Default)]
struct InWindow {
    accesses: u64,
    /// Cycles that they held up the core.
    held_up: f64,
    latency_cycles: f64,
    /// Those of the latency in which addresses were translated.
    translation_cycles: f64,
}

impl InWindow {
    fn accessed(&mut self, drawn: &Drawn) {
        self.accesses += 1;
        self.latency_cycles += drawn.cycles;
        self.translation_cycles += drawn.translation_cycles();
    }

    /// The part of what they held up the core that translation is of their latency.
    fn held_up_by_translation(&self) -> f64 {
        if self.latency_cycles > 0.0 {
            self.held_up.max(0.0) * self.translation_cycles / self.latency_cycles
        } else {
            0.0
        }
    }
}

/// How many of the accesses are the first one's instruction's: its operands in order, each once.
fn length_of_instruction(
    accesses: &[Kept],
    known: &FxHashMap<u32, Known<'_>>,
    instruction: Option<u32>,
) -> usize {
    if instruction.is_none() {
        return 1;
    }
    let mut last = None;
    let of_it = accesses.iter().take_while(|access| {
        let of_it = known
            .get(&access.number)
            .filter(|_| !access.what.is_block())
            .filter(|it| it.instruction == instruction);
        let is_next = of_it.is_some_and(|it| last.is_none_or(|last| last < it.operand));
        last = of_it.map(|it| it.operand);
        is_next
    });
    of_it.count().max(1)
}
