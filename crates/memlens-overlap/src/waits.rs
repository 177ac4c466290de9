//! What each operand's accesses wait, window by window.

use memlens_code::Leads;
use rustc_hash::FxHashMap;

use crate::held_to_time::{Expected, Held, held};
use crate::out_of_order::{Core, CoreLimits, Served as ServedAccess};
use crate::paths::{CodeOf, From, Paths, Place, Step};
use crate::predictor::Predictor;
use crate::served::{Draw, Drawn, Served};
use crate::windows::{Kept, Windows};

/// Accesses at a window's beginning that are not counted: the core is empty there.
const WARM_UP: usize = 96;

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
    let mut predictor = Predictor::default();
    let mut cycles = 0.0;
    for window in windows.iter() {
        let cores = std::array::from_fn(|_| Core::new(core));
        let mut run = Run { cores, paths: &mut paths, predictor: &mut predictor };
        cycles += run.window(&window.accesses, &blocks, &mut known);
    }
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

/// One window on its way through the core, through the same core if no access took time, and if no address took time to be translated.
struct Run<'a, 'c> {
    cores: [Core; 3],
    paths: &'a mut Paths<'c>,
    predictor: &'a mut Predictor,
}

impl Run<'_, '_> {
    /// How many cycles it takes behind its beginning. `blocks`: their first instructions, by number.
    fn window(
        &mut self,
        window: &[Kept],
        blocks: &[Option<u32>],
        known: &mut FxHashMap<u32, Known<'_>>,
    ) -> f64 {
        let warm_up = WARM_UP.min(window.len() / 4);
        let mut from: Option<From> = None;
        let (mut served, mut without): (Vec<ServedAccess>, Vec<ServedAccess>) = (Vec::new(), Vec::new());
        let mut waits: Vec<(u32, f64)> = Vec::new();
        let mut of_window: FxHashMap<u32, InWindow> = FxHashMap::default();
        let (mut at, mut warm_at) = (0, None);
        while at < window.len() {
            let is_warm = at >= warm_up;
            if is_warm {
                warm_at.get_or_insert_with(|| self.now());
            }
            if window[at].what.is_block() {
                let begins = blocks[window[at].number as usize];
                match begins {
                    // It has gone round once.
                    Some(first) if from == Some(From::At(first)) => {
                        self.pass(Step { instruction: first, is_taken: false });
                        self.go(Some(From::Behind(first)), begins);
                    }
                    _ => self.go(from, begins),
                }
                from = begins.map(From::At);
                at += 1;
                continue;
            }
            let instruction = known.get(&window[at].number).and_then(|it| it.instruction);
            let end = at + length_of_instruction(&window[at..], known, instruction);
            served.clear();
            for &access in &window[at..end] {
                if let Some(known) = known.get_mut(&access.number) {
                    let drawn = known.draw.next(access.what.is_first(), access.what.is_prefetched());
                    if is_warm {
                        of_window.entry(access.number).or_default().accessed(&drawn);
                        known.found.accesses += 1;
                        known.found.latency_cycles += drawn.counted_cycles;
                        known.found.translation_cycles += drawn.translation_cycles();
                    }
                    served.push(ServedAccess { access, drawn });
                }
            }
            waits.clear();
            let mut waited = |operand, cycles| waits.push((operand, cycles));
            // Each line of a string that is gone through comes with an access, behind the first all of the same execution.
            let repeats = instruction.is_some_and(|number| self.paths.effects(number).repeats);
            if !(repeats && from == instruction.map(From::Behind)) {
                self.go(from, instruction);
                if repeats {
                    self.cores.iter_mut().for_each(Core::begins_to_repeat);
                }
            }
            let effects = instruction.map(|number| *self.paths.effects(number));
            let [core, others @ ..] = &mut self.cores;
            core.execute_known(effects.as_ref(), &served, &mut waited);
            for (core, accesses) in others.iter_mut().zip(WITHOUT) {
                without.clear();
                without.extend(served.iter().map(accesses));
                core.execute_known(effects.as_ref(), &without, &mut |_, _| ());
            }
            from = instruction.map(From::Behind);
            if is_warm {
                for &(operand, cycles) in &waits {
                    of_window.entry(operand).or_default().held_up += cycles;
                }
            }
            at = end;
        }
        let Some(warm_at) = warm_at else { return 0.0 };
        let now = self.now();
        let [cycles, instant_cycles, translated_cycles] =
            std::array::from_fn(|which| now[which] - warm_at[which]);
        // A loop that another chain holds up has each load at the head of what retires, some cycles behind the chain, and would take as
        // long without them. Along a list what uses the load retires behind it, and would come earlier, too.
        let sum = |of: fn(&InWindow) -> f64| of_window.values().map(of).sum::<f64>();
        let part = |spared: f64, of: f64| if of > 0.0 { (spared / of).max(0.0) } else { 0.0 };
        let cost = part(cycles - instant_cycles, sum(|it| it.held_up));
        // What is spared without translation is theirs that wait for it, no more than they wait.
        let of_translation =
            part(cycles - translated_cycles, cost * sum(InWindow::held_up_by_translation)).min(1.0);
        let all: u64 = of_window.values().map(|it| it.accesses).sum();
        for (operand, it) in of_window {
            if let Some(known) = known.get_mut(&operand) {
                known.found.waited_cycles += it.held_up * cost;
                known.found.translation_waited_cycles += it.held_up_by_translation() * cost * of_translation;
                known.instant_cycles += instant_cycles * it.accesses as f64 / all.max(1) as f64;
            }
        }
        cycles
    }

    fn now(&self) -> [f64; 3] {
        std::array::from_fn(|which| self.cores[which].now())
    }

    /// The instructions up to this one.
    fn go(&mut self, from: Option<From>, to: Option<u32>) {
        let (Some(from), Some(to)) = (from, to) else { return };
        for at in 0..self.paths.way(from, to).len() {
            let step = self.paths.way(from, to)[at];
            self.pass(step);
        }
    }

    /// An instruction that touches no memory.
    fn pass(&mut self, step: Step) {
        let effects = *self.paths.effects(step.instruction);
        let is_wrong = matches!(effects.leads, Leads::Either(_))
            && !self.predictor.guesses(step.instruction, step.is_taken);
        let join = if is_wrong { self.paths.join(step.instruction) } else { None };
        for (core, has_misses) in self.cores.iter_mut().zip([true, false, true]) {
            let done = core.execute(&effects, &[], |_, _| ());
            if is_wrong {
                core.guessed_wrong(done, join.filter(|_| has_misses));
            }
        }
    }
}

/// What the second and the third core are without.
const WITHOUT: [fn(&ServedAccess) -> ServedAccess; 2] =
    [ServedAccess::without_latency, ServedAccess::without_translation];

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out_of_order::{LineRates, Schedulers};
    use crate::served::{Service, Source};
    use memlens_locality::Reference;
    use memlens_types::AccessKind;

    const CORE: CoreLimits = CoreLimits {
        width: 4,
        window: 240,
        scheduled: 97,
        schedulers: Schedulers { integer: 0, multiply: 0, vector: 0, address: 0 },
        outstanding: 10,
        stores: 48,
        crowded_sets: 6,
        lines: LineRates {
            from_own_level: 0.0,
            from_last_level: 0.0,
            from_memory: 0.0,
            into_set_by_load: 0.0,
            into_set_by_store: 0.0,
            into_set_by_both: 0.0,
        },
    };

    /// The part of the latency that is waited for, by operand.
    fn parts_of(found: &[Waited]) -> Vec<f64> {
        found.iter().map(|it| it.waited_cycles / it.latency_cycles).collect()
    }

    /// The same where each operand's accesses are served like this.
    fn parts(
        code: &[u8],
        accesses: &[(u64, u8, AccessKind, u64)],
        served: &[Served],
        core: CoreLimits,
    ) -> Vec<f64> {
        parts_of(&found(code, accesses, served, core, (0, 0)))
    }

    /// What is found of each operand whose accesses are served like this, in code in which a loop that touches no memory, there, goes round so
    /// many times behind each access of the first instruction.
    fn found(
        code: &[u8],
        accesses: &[(u64, u8, AccessKind, u64)],
        served: &[Served],
        core: CoreLimits,
        (in_loop, rounds): (u64, usize),
    ) -> Vec<Waited> {
        let numbers: Vec<(u64, u8)> = {
            let mut all: Vec<_> = accesses.iter().map(|&(at, operand, ..)| (at, operand)).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let mut windows = Windows::new(100);
        for window in accesses.chunks(1000) {
            let references: Vec<Reference> = window
                .iter()
                .map(|&(at, operand, kind, address)| {
                    let instruction = numbers.binary_search(&(at, operand)).expect("in it") as u32;
                    Reference { address, instruction, owner: 0, size: 8, kind }
                })
                .collect();
            // What jumps lead to begins a block: here the first instruction.
            let begins = |(at, _): &(usize, &(u64, u8, AccessKind, u64))| window[*at].0 == 0x1000;
            let blocks: Vec<(u32, u64)> = window
                .iter()
                .enumerate()
                .filter(begins)
                .flat_map(|(at, _)| {
                    let round = (at as u32 + 1, in_loop);
                    std::iter::once((at as u32, 0x1000)).chain(std::iter::repeat_n(round, rounds))
                })
                .collect();
            windows.feed(&references, &blocks, None, |svma| Place { module: 0, svma });
        }
        let operand = |(at, &(svma, operand)): (usize, &(u64, u8))| {
            (at as u32, Operand { place: Place { module: 0, svma }, operand, served: served[at].clone() })
        };
        let operands = numbers.iter().enumerate().map(operand).collect();
        let code_of = |_: Place| Some((0x1000, code));
        let found = waits(&windows, core, &operands, &code_of);
        (0..numbers.len() as u32).map(|it| found.operands[&it]).collect()
    }

    fn always(cycles: f64) -> Served {
        Served {
            hit_cycles: 4.0,
            prefetched_cycles: None,
            misses: vec![Service { share: 1.0, cycles, source: Source::Memory, ..Service::default() }],
        }
    }

    fn is_near(value: f64, expected: f64) -> bool {
        (value / expected - 1.0).abs() < 0.05
    }

    fn loads(at: u64, count: u64) -> Vec<(u64, u8, AccessKind, u64)> {
        (0..count).map(|n| (at, 0, AccessKind::Load, n << 12)).collect()
    }

    #[test]
    fn along_a_list_each_access_is_waited_for() {
        // mov rdi, [rdi] ; test rdi, rdi ; jne
        let code = [0x48, 0x8b, 0x3f, 0x48, 0x85, 0xff, 0x75, 0xf8];
        let parts = parts(&code, &loads(0x1000, 5000), &[always(300.0)], CORE);
        assert!(is_near(parts[0], 1.0), "{parts:?}");
    }

    #[test]
    fn along_a_list_translation_is_waited_for_too() {
        let code = [0x48, 0x8b, 0x3f, 0x48, 0x85, 0xff, 0x75, 0xf8];
        let mut translated = always(300.0);
        translated.misses[0].translation_cycles = 100.0;
        let waited = found(&code, &loads(0x1000, 5000), &[translated], CORE, (0, 0))[0];
        assert!(is_near(waited.translation_waited_cycles, waited.waited_cycles / 3.0), "{waited:?}");
        assert!(is_near(waited.translation_cycles, waited.latency_cycles / 3.0), "{waited:?}");
    }

    #[test]
    fn hits_that_another_chain_hides_cost_nothing() {
        // mov rcx, [rax] ; add rax, 8 ; cmp rax, rdx ; jne: an iteration a cycle, whatever the load takes
        let code = [0x48, 0x8b, 0x08, 0x48, 0x83, 0xc0, 8, 0x48, 0x39, 0xd0, 0x75, 0xf4];
        let hits = [Served { hit_cycles: 4.0, prefetched_cycles: None, misses: Vec::new() }];
        let accesses: Vec<_> = (0..5000).map(|n| (0x1000, 0, AccessKind::Load, n << 3)).collect();
        let hidden = parts(&code, &accesses, &hits, CoreLimits { width: 6, ..CORE });
        assert!(hidden[0] < 0.01, "{hidden:?}");
        // mov rax, [rax] ; cmp rax, rdx ; jne: a list that the first level has.
        let code = [0x48, 0x8b, 0x00, 0x48, 0x39, 0xd0, 0x75, 0xf8];
        let list = parts(&code, &accesses, &hits, CoreLimits { width: 6, ..CORE });
        // Three instructions are half a cycle without it.
        assert!(is_near(list[0], 3.5 / 4.0), "{list:?}");
    }

    #[test]
    fn independent_misses_share_their_latency() {
        // mov rax, [rdi] ; add rdi, 4096 ; cmp rdi, rsi ; jne: 4 instructions for a load
        let code = [0x48, 0x8b, 0x07, 0x48, 0x81, 0xc7, 0, 0x10, 0, 0, 0x48, 0x39, 0xf7, 0x75, 0xf1];
        let all = |core| parts(&code, &loads(0x1000, 5000), &[always(300.0)], core)[0];
        // As many as there are places for lines …
        let by_places = all(CORE);
        assert!(is_near(by_places, 0.1), "{by_places}");
        // … which none has while its address is translated: 300 of 500 cycles …
        let mut translated = always(500.0);
        translated.misses[0].translation_cycles = 200.0;
        let by_places = found(&code, &loads(0x1000, 5000), &[translated], CORE, (0, 0))[0];
        assert!(is_near(by_places.waited_cycles / by_places.latency_cycles, 0.06), "{by_places:?}");
        assert!(by_places.translation_waited_cycles < 0.01 * by_places.waited_cycles, "{by_places:?}");
        // … or loads in the window: 20 instructions are 5 of them …
        let by_window = all(CoreLimits { window: 20, ..CORE });
        assert!(is_near(by_window, 0.2), "{by_window}");
        // … or lines that memory delivers: one in 60 cycles.
        let by_memory =
            all(CoreLimits { lines: LineRates { from_memory: 60.0, ..LineRates::default() }, ..CORE });
        assert!(is_near(by_memory, 0.2), "{by_memory}");
    }

    #[test]
    fn loops_that_touch_nothing_take_room_with_each_round() {
        // 1000: mov rax, [rdi] ; xor rbx, rax ; 1006: imul rbx, rbx ; dec ecx ; jne 1006 ; add rdi, 4096 ; jmp 1000
        let code = [
            0x48, 0x8b, 0x07, 0x48, 0x31, 0xc3, 0x48, 0x0f, 0xaf, 0xdb, 0xff, 0xc9, 0x75, 0xf8, 0x48, 0x81,
            0xc7, 0, 0x10, 0, 0, 0xeb, 0xe9,
        ];
        let of = |rounds| {
            let core = CoreLimits { window: 120, scheduled: 1000, ..CORE };
            parts_of(&found(&code, &loads(0x1000, 5000), &[always(300.0)], core, (0x1006, rounds)))[0]
        };
        // Seven instructions for a load: as many as there are places for lines.
        let one = of(1);
        assert!((0.08..0.11).contains(&one), "{one}");
        // 34 of them: three to four, less what the multiplications take by themselves.
        let ten = of(10);
        assert!((0.16..0.2).contains(&ten), "{ten}");
    }

    #[test]
    fn what_waits_in_a_small_scheduler_holds_up_loads_behind() {
        // mov rax, [rdi] ; xor rbx, rax ; 8 imul rbx, rbx ; add rdi, 4096 ; jmp
        let mut code = vec![0x48, 0x8b, 0x07, 0x48, 0x31, 0xc3];
        (0..8).for_each(|_| code.extend([0x48, 0x0f, 0xaf, 0xdb]));
        code.extend([0x48, 0x81, 0xc7, 0, 0x10, 0, 0, 0xeb, 0xd1]);
        let of = |schedulers| {
            let core = CoreLimits { scheduled: 1000, schedulers, ..CORE };
            parts(&code, &loads(0x1000, 5000), &[always(300.0)], core)[0]
        };
        let none = Schedulers::default();
        // Ten lines at a time are 30 cycles each, and 25 go by anyway.
        assert!(of(none) < 0.03, "{}", of(none));
        // Three loads with their multiplications, and a fourth whose multiplications go on: 75 to 100.
        let few = of(Schedulers { multiply: 24, ..none });
        assert!((0.16..0.25).contains(&few), "{few}");
        // They are integers', too, and nobody else's.
        let integers = of(Schedulers { integer: 24, ..none });
        assert!((few..0.3).contains(&integers), "{integers}");
        assert_eq!(of(Schedulers { integer: 240, vector: 4, address: 4, ..none }), of(none));
    }

    #[test]
    fn lines_of_one_set_come_one_behind_the_other() {
        // mov rax, [rdi] ; add rdi, 4096 ; cmp rdi, rsi ; jne
        let code = [0x48, 0x8b, 0x07, 0x48, 0x81, 0xc7, 0, 0x10, 0, 0, 0x48, 0x39, 0xf7, 0x75, 0xf1];
        let lines = LineRates { into_set_by_load: 60.0, ..LineRates::default() };
        let core = CoreLimits { lines, ..CORE };
        let in_one = parts(&code, &loads(0x1000, 5000), &[always(300.0)], core)[0];
        assert!(is_near(in_one, 0.2), "{in_one}");
        let padded: Vec<_> = (0..5000).map(|n| (0x1000, 0, AccessKind::Load, n * 4160)).collect();
        let in_many = parts(&code, &padded, &[always(300.0)], core)[0];
        assert!(is_near(in_many, 0.1), "{in_many}");
    }

    #[test]
    fn a_line_that_is_stored_to_after_its_load_comes_twice_where_its_set_is_crowded() {
        // mov rax, [rdi] ; mov [rdi], rax ; add rdi, 4096 ; jmp
        let code = [0x48, 0x8b, 0x07, 0x48, 0x89, 0x07, 0x48, 0x81, 0xc7, 0, 0x10, 0, 0, 0xeb, 0xf1];
        let lines = LineRates { into_set_by_load: 10.0, into_set_by_both: 45.0, ..LineRates::default() };
        let core = CoreLimits { lines, ..CORE };
        let hits = Served { hit_cycles: 4.0, prefetched_cycles: None, misses: Vec::new() };
        let of = |stride: u64, core| {
            let once = |n: u64| {
                let at = n * stride;
                [(0x1000, 0, AccessKind::Load, at), (0x1003, 0, AccessKind::Store, at)]
            };
            let accesses: Vec<_> = (0..2500).flat_map(once).collect();
            let parts = parts(&code, &accesses, &[always(14.0), hits.clone()], core);
            14.0 * parts[0] + 4.0 * parts[1]
        };
        // 45 cycles less one of four instructions; of loads alone 10.
        let in_one = of(4096, core);
        assert!((42.0..46.0).contains(&in_one), "{in_one}");
        // Through two sets in turn half of that each.
        let in_two = of(2048, core);
        assert!((20.0..23.0).contains(&in_two), "{in_two}");
        let in_all = of(4160, core);
        assert!(in_all < 4.0, "{in_all}");
        let unknown = of(4096, CoreLimits { lines: LineRates { into_set_by_both: 0.0, ..lines }, ..CORE });
        assert!((8.0..11.0).contains(&unknown), "{unknown}");
    }

    #[test]
    fn an_index_that_hits_makes_no_chain_and_one_that_misses_does() {
        // mov rax, [rdi] ; mov rbx, [rsi+rax*8] ; add rdi, 8 ; cmp rdi, rdx ; jne
        let code =
            [0x48, 0x8b, 0x07, 0x48, 0x8b, 0x1c, 0xc6, 0x48, 0x83, 0xc7, 8, 0x48, 0x39, 0xd7, 0x75, 0xf0];
        let accesses: Vec<_> = (0..5000_u64)
            .flat_map(|n| {
                [(0x1000, 0, AccessKind::Load, n << 12), (0x1003, 0, AccessKind::Load, 1 << 40 | n << 12)]
            })
            .collect();
        let hits = Served { hit_cycles: 4.0, prefetched_cycles: None, misses: Vec::new() };
        let gathered = parts(&code, &accesses, &[hits, always(300.0)], CORE);
        assert!(gathered[0] < 0.05 && (0.09..0.11).contains(&gathered[1]), "{gathered:?}");
        // Twenty misses for ten places; both kinds wait, together as long as both need them.
        let both = parts(&code, &accesses, &[always(300.0), always(300.0)], CORE);
        assert!(is_near(both[0] + both[1], 0.2), "{both:?}");
    }

    /// The part of a load's latency that is waited for, where a branch over some code depends on it. `stores`: where that code has its
    /// store, and where one is behind it.
    fn part_with_a_branch(code: &[u8], stores: [u64; 2], goes: &dyn Fn(u64) -> bool) -> f64 {
        let hits = Served { hit_cycles: 4.0, prefetched_cycles: None, misses: Vec::new() };
        let served = [always(300.0), hits.clone(), hits];
        let once = |n: u64| {
            let load = (0x1000, 0, AccessKind::Load, n << 12);
            let [store, last] = stores.map(|at| (at, 0, AccessKind::Store, 8));
            [Some(load), goes(n).then_some(store), Some(last)]
        };
        let accesses: Vec<_> = (0..5000).flat_map(once).flatten().collect();
        parts(code, &accesses, &served, CORE)[0]
    }

    fn by_chance(n: u64) -> bool {
        (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).count_ones().is_multiple_of(2)
    }

    #[test]
    fn a_branch_that_nobody_can_guess_ends_the_overlap_of_what_depends_on_it() {
        // cmp qword [rdi], 0 ; je 100d ; mov [rdx], rax ; add rdi, 8 ; 100d: mov [rcx], rax ; add rdi, 8 ; jmp 1000
        let code = [
            0x48, 0x83, 0x3f, 0, 0x74, 7, 0x48, 0x89, 0x02, 0x48, 0x83, 0xc7, 8, 0x48, 0x89, 0x01, 0x48,
            0x83, 0xc7, 8, 0xeb, 0xea,
        ];
        let part = |goes: &dyn Fn(u64) -> bool| part_with_a_branch(&code, [0x1006, 0x100d], goes);
        let guessed = part(&|n| n % 2 == 0);
        assert!((0.09..0.11).contains(&guessed), "{guessed}");
        // Half of the guesses are wrong: up to the next such one the misses go together, two of them on average.
        let unknown = part(&by_chance);
        assert!((0.45..0.6).contains(&unknown), "{unknown}");
    }

    #[test]
    fn what_goes_on_whichever_way_is_asked_for_before_the_branch_is_known() {
        // cmp qword [rdi], 0 ; je 1009 ; mov [rdx], rax ; 1009: mov [rcx], rax ; add rdi, 8 ; jmp 1000
        let code = [
            0x48, 0x83, 0x3f, 0, 0x74, 3, 0x48, 0x89, 0x02, 0x48, 0x89, 0x01, 0x48, 0x83, 0xc7, 8, 0xeb, 0xee,
        ];
        let part = |goes: &dyn Fn(u64) -> bool| part_with_a_branch(&code, [0x1006, 0x1009], goes);
        let (guessed, unknown) = (part(&|n| n % 2 == 0), part(&by_chance));
        assert!((0.09..0.11).contains(&guessed), "{guessed}");
        // Wrong guesses take their time without misses, too, which hides some of these.
        assert!((0.05..0.11).contains(&unknown), "{unknown}");
    }

    #[test]
    fn copies_by_string_instructions_leave_room_for_few() {
        // mov rcx, [rdx] ; rep movsq ; add rsi, 4096 ; jmp
        let code = [0x48, 0x8b, 0x0a, 0xf3, 0x48, 0xa5, 0x48, 0x81, 0xc6, 0, 0x10, 0, 0, 0xeb, 0xf1];
        let hits = Served { hit_cycles: 4.0, prefetched_cycles: None, misses: Vec::new() };
        // The instruction's load and store of each line, of so many.
        let part = |lines: u64| {
            let of_line = move |n: u64, line: u64| {
                let from = n << 12 | line << 6;
                [(0x1003, 0, AccessKind::Load, from), (0x1003, 1, AccessKind::Store, 1 << 40 | line << 6)]
            };
            let accesses: Vec<_> = (0..2000_u64)
                .flat_map(|n| {
                    let lines = (0..lines).flat_map(move |line| of_line(n, line));
                    std::iter::once((0x1000, 0, AccessKind::Load, 8)).chain(lines)
                })
                .collect();
            parts(&code, &accesses, &[hits.clone(), always(300.0), hits.clone()], CORE)[1]
        };
        // Of 240 instructions 144 are one copy's: 1.7 at a time take 300 cycles, 35 each of which they would take anyway.
        let of_one = part(1);
        assert!((0.38..0.5).contains(&of_one), "{of_one}");
        // The lines of one copy come together.
        let of_four = part(4);
        assert!((0.25 * of_one - of_four).abs() < 0.04, "{of_four} {of_one}");
    }

    #[test]
    fn stores_wait_for_nobody_until_their_buffer_is_full() {
        // mov [rdi], rax ; add rdi, 8 ; jmp
        let code = [0x48, 0x89, 0x07, 0x48, 0x83, 0xc7, 8, 0xeb, 0xf7];
        let every =
            |bytes: u64| -> Vec<_> { (0..5000).map(|n| (0x1000, 0, AccessKind::Store, n * bytes)).collect() };
        // One line in ten, in time behind 48 stores.
        let seldom = Served {
            hit_cycles: 4.0,
            prefetched_cycles: None,
            misses: vec![Service { share: 0.125, cycles: 14.0, ..Service::default() }],
        };
        let seldom = parts(&code, &every(8), &[seldom], CORE);
        assert!(seldom[0] < 0.05, "{seldom:?}");
        // Each store another line: as many at a time as there are places.
        let often = parts(&code, &every(4096), &[always(300.0)], CORE);
        assert!(is_near(often[0], 0.1), "{often:?}");
    }

    #[test]
    fn loads_between_stores_that_all_wait_for_are_not_to_blame() {
        // mov rax, [rdi] ; mov [rdx], rax ; add rdi, 8 ; add rdx, 4096 ; jmp
        let code = [
            0x48, 0x8b, 0x07, 0x48, 0x89, 0x02, 0x48, 0x83, 0xc7, 8, 0x48, 0x81, 0xc2, 0, 0x10, 0, 0, 0xeb,
            0xed,
        ];
        let accesses: Vec<_> = (0..2500_u64)
            .flat_map(|n| {
                [(0x1000, 0, AccessKind::Load, n << 3), (0x1003, 0, AccessKind::Store, 1 << 40 | n << 12)]
            })
            .collect();
        let lines = LineRates { into_set_by_store: 28.0, ..LineRates::default() };
        let hits = Served { hit_cycles: 4.0, prefetched_cycles: None, misses: Vec::new() };
        let parts = parts(&code, &accesses, &[hits, always(14.0)], CoreLimits { lines, ..CORE });
        // 28 cycles of a latency of 14, some of them for instructions.
        assert!(parts[0].abs() < 0.05 && (1.7..2.0).contains(&parts[1]), "{parts:?}");
    }
}
