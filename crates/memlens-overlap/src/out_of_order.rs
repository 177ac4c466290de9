//! A core that goes on behind accesses that wait.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use memlens_code::{Effects, Order, RegisterSet, Unit};
use rustc_hash::FxHashMap;

use crate::paths::{Join, MOST_BETWEEN};
use crate::queue::Queue;
use crate::served::{Drawn, Source};
use crate::windows::{Kept, SETS};

/// What a core can have under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreLimits {
    /// Instructions that enter and retire each cycle.
    pub width: u32,
    /// Instructions that have entered and not retired: entries of the reorder buffer.
    pub window: u32,
    /// Instructions that have entered and wait for their operands: entries of the schedulers.
    pub scheduled: u32,
    /// The same by kind.
    pub schedulers: Schedulers,
    /// Lines that are under way to the first level.
    pub outstanding: u32,
    /// Stores that have not been written to the first level.
    pub stores: u32,
    /// Sets of the first level that loads go through, at most, where stores behind them come too late for their lines.
    pub crowded_sets: u32,
    /// How fast lines come to the first level.
    pub lines: LineRates,
}

/// Instructions of a kind that have entered and wait for their operands. Those behind wait, too, until one of them begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedulers {
    /// Of general registers; 0: as many as of all kinds.
    pub integer: u32,
    /// Of these, multiplications; 0: as many.
    pub multiply: u32,
    /// Of vector registers; 0: they are among those of general registers.
    pub vector: u32,
    /// Loads and stores that do nothing else; 0: they are among those of general registers.
    pub address: u32,
}

impl Schedulers {
    /// Who shares a scheduler, by [`Unit`], and its entries.
    fn shared(self) -> [([bool; Unit::COUNT], u32); 4] {
        let mut integers = [true; Unit::COUNT];
        integers[Unit::Vector as usize] = self.vector == 0;
        integers[Unit::Address as usize] = self.address == 0;
        let only = |unit: Unit| std::array::from_fn(|it| it == unit as usize);
        [
            (integers, self.integer),
            (only(Unit::Multiply), self.multiply),
            (only(Unit::Vector), self.vector),
            (only(Unit::Address), self.address),
        ]
    }
}

impl CoreLimits {
    /// Who shares a scheduler, by [`Unit`], and its entries: at least one.
    fn shared_schedulers(&self) -> Vec<([bool; Unit::COUNT], usize)> {
        let all = ([true; Unit::COUNT], self.scheduled.max(1));
        let some = self.schedulers.shared().into_iter().filter(|(_, entries)| *entries > 0);
        std::iter::once(all).chain(some).map(|(of, entries)| (of, entries as usize)).collect()
    }

    /// Lines that loads bring, of all sets, so that a set which got [`CROWD`] of them is crowded.
    fn crowd(&self) -> u64 {
        u64::from(self.crowded_sets) * CROWD as u64
    }
}

/// Cycles from one line to the next, at best, however many are under way; 0: no limit is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LineRates {
    /// From a level that the core does not share.
    pub from_own_level: f64,
    /// From the last level.
    pub from_last_level: f64,
    /// From memory.
    pub from_memory: f64,
    /// From memory, if the other line of its pair, an even and an odd one, is not used: prefetchers bring both.
    pub from_memory_alone: f64,
    /// Into the same set of the first level, for loads.
    pub into_set_by_load: f64,
    /// The same for stores.
    pub into_set_by_store: f64,
    /// The same for loads that are followed by a store to the line, where loads behind drive it out in between.
    pub into_set_by_both: f64,
}

impl LineRates {
    /// Of a line; `is_beside`: the other one of its pair has come before. The first of a pair takes what it takes alone, and both what two take.
    fn from(&self, source: Source, is_beside: bool) -> f64 {
        let alone = self.from_memory_alone.max(self.from_memory);
        match source {
            Source::OwnLevel => self.from_own_level,
            Source::LastLevel => self.from_last_level,
            Source::Memory if is_beside => (2.0 * self.from_memory - alone).max(0.0),
            Source::Memory => alone,
        }
    }
}

/// Why a line is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    Load,
    Store,
}

/// Cycles from when a branch is known to have led elsewhere than was guessed until the instructions there enter. 11 to 18
/// for cores of the last ten years (A. Fog, The Microarchitecture of Intel, AMD and VIA CPUs, 2023).
const WRONG_GUESS_CYCLES: f64 = 14.0;

/// What a repeated string instruction takes before it touches memory: some 35 cycles (Intel 64 and IA-32 Architectures Optimization Reference
/// Manual, 248966-050, section 3.7.6), of four instructions that its microcode is. With a window of 512, three of them are under way: as
/// many as copies of 64 bytes from random places of 64 MB that were timed, 49 ns each where a load takes 145 (Sapphire Rapids).
const MICROCODE: u32 = 140;
const MICROCODE_SLOT: f64 = 1.0 / 4.0;

/// Lines of a set of the first level that loads bring until the first of them has to go: its ways.
const CROWD: usize = 8;

/// Cycles from a store's data to a load of it, at most: as many as a hit in the first level takes.
const FORWARD_CYCLES: f64 = 5.0;

/// What an instruction's access does, and how it is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) access: Kept,
    pub(crate) drawn: Drawn,
}

impl Served {
    /// The same, if it took no time.
    pub(crate) fn without_latency(&self) -> Self {
        Self { drawn: Drawn { cycles: 0.0, counted_cycles: 0.0, miss: None }, ..*self }
    }

    /// The same, if its address took no time to be translated.
    pub(crate) fn without_translation(&self) -> Self {
        let mut drawn = self.drawn;
        if let Some(miss) = &mut drawn.miss {
            drawn.cycles -= miss.translation;
            drawn.counted_cycles -= miss.translation;
            miss.translation = 0.0;
        }
        Self { drawn, ..*self }
    }
}

/// A store that has retired.
#[derive(Clone, Copy, Debug, Default)]
struct Store {
    retired: f64,
    written: f64,
    operand: u32,
}

/// A time in which retirement waited for an operand's access.
#[derive(Clone, Copy, Debug)]
struct Wait {
    operand: u32,
    begins: f64,
    ends: f64,
}

/// What was stored to a word.
#[derive(Clone, Copy, Debug)]
struct Word {
    /// When the data was there.
    known: f64,
    /// When it was in the cache.
    written: f64,
}

/// A time, to be ordered by.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// What a core does behind a branch whose guess was wrong, until it knows: what is executed whichever way the branch leads, and does not
/// depend on that, is done in vain, but brings lines that are not in vain.
#[derive(Clone, Debug)]
struct Astray {
    /// When the branch is known.
    until: f64,
    /// When the last instruction entered.
    entered: f64,
    /// When each register's value is there; never, where it depends on the way.
    ready: [f64; RegisterSet::COUNT],
    /// Where the ways meet, if they have not.
    join: Option<u64>,
    /// Instructions before that.
    passed: u32,
}

impl Astray {
    /// Behind another branch whose guess is wrong.
    fn branches(&mut self, join: Join) {
        join.writes.iter().for_each(|register| self.ready[register] = f64::INFINITY);
        (self.join, self.passed) = (Some(join.at), 0);
    }

    /// Whether it comes to an instruction at this address, which is executed next.
    fn comes_to(&mut self, at: u64) -> bool {
        self.join = self.join.filter(|join| *join != at);
        self.passed += u32::from(self.join.is_some());
        self.join.is_none()
    }

    fn latest(&self, registers: RegisterSet) -> f64 {
        registers.iter().map(|register| self.ready[register]).fold(self.entered, f64::max)
    }
}

/// Branches at a time whose guesses are wrong and not known to be.
const MOST_ASTRAY: usize = 4;

/// The state of a core, in cycles since the window's first instruction.
pub(crate) struct Core {
    limits: CoreLimits,
    /// Cycles that an instruction takes of the width.
    slot: f64,
    /// When the instructions that wait for operands have them, by [`Unit`].
    waiting: [BinaryHeap<Reverse<Time>>; Unit::COUNT],
    /// Which of them share a scheduler, and its entries.
    schedulers: Vec<([bool; Unit::COUNT], usize)>,
    /// When each register's value is there.
    ready: [f64; RegisterSet::COUNT],
    /// When the last instruction entered.
    entered: f64,
    /// When the instructions behind a wrong guess enter.
    resumes: f64,
    /// When the last instructions retired, the one next to be overwritten at `oldest`.
    retired: Vec<f64>,
    oldest: usize,
    last_retired: f64,
    /// When all that was loaded is there.
    last_loaded: f64,
    /// When accesses begin that something in front of them holds back.
    accesses_from: f64,
    /// When each line under way is there.
    lines: FxHashMap<u16, f64>,
    words: FxHashMap<(u16, u8), Word>,
    /// When each place for a line under way is free, and whose line it is.
    outstanding: Vec<(f64, u32)>,
    stores: Vec<Store>,
    next_store: usize,
    last_written: f64,
    /// What was waited for since the last instruction entered, one after another.
    recent: VecDeque<Wait>,
    /// What each [`Source`] delivers.
    delivered: [Queue; 3],
    /// What each set of the first level takes.
    sets: Vec<Queue>,
    /// Lines that loads have brought, and which of them were the last ones of each set.
    loaded: u64,
    crowds: Vec<[u64; CROWD]>,
    /// Why the line that was fetched last came late: whose lines were before it, and for how many cycles.
    late: Vec<(u32, f64)>,
    /// The same of the slowest load of the present instruction.
    slowest_late: Vec<(u32, f64)>,
    astray: Vec<Astray>,
    /// Lines of the present instruction that were asked for astray.
    early: Vec<u16>,
}

impl Core {
    pub(crate) fn new(limits: CoreLimits) -> Self {
        let places = |count: u32| count.max(1) as usize;
        Self {
            limits,
            slot: 1.0 / f64::from(limits.width.max(1)),
            waiting: std::array::from_fn(|_| BinaryHeap::new()),
            schedulers: limits.shared_schedulers(),
            ready: [0.0; RegisterSet::COUNT],
            entered: 0.0,
            resumes: 0.0,
            retired: vec![0.0; places(limits.window)],
            oldest: 0,
            last_retired: 0.0,
            last_loaded: 0.0,
            accesses_from: 0.0,
            lines: FxHashMap::default(),
            words: FxHashMap::default(),
            outstanding: vec![(0.0, 0); places(limits.outstanding)],
            stores: vec![Store::default(); places(limits.stores)],
            next_store: 0,
            last_written: 0.0,
            recent: VecDeque::new(),
            delivered: std::array::from_fn(|_| Queue::default()),
            sets: vec![Queue::default(); SETS],
            loaded: limits.crowd(),
            crowds: vec![[0; CROWD]; SETS],
            late: Vec::new(),
            slowest_late: Vec::new(),
            astray: Vec::new(),
            early: Vec::new(),
        }
    }

    /// When the last instruction retired.
    pub(crate) fn now(&self) -> f64 {
        self.last_retired
    }

    /// An instruction whose accesses are these. `waited` is told how long retirement waited for which operand's access.
    /// Returned is when it was done.
    pub(crate) fn execute(
        &mut self,
        effects: &Effects,
        accesses: &[Served],
        mut waited: impl FnMut(u32, f64),
    ) -> f64 {
        let room = self.retired[self.oldest];
        self.go_astray(effects, accesses, room);
        let mut entered = (self.entered + self.slot).max(room).max(self.resumes);
        let may_retire = self.last_retired + self.slot;
        if accesses.iter().any(|it| it.access.what.writes()) {
            let first = self.stores[self.next_store];
            // Nothing else can retire in the meantime, but for what entered before.
            if first.written > entered {
                waited(first.operand, (first.written - entered.max(may_retire)).max(0.0));
                // What these waited for in the meantime did not matter.
                let from = entered.max(first.retired);
                for wait in self.recent.iter_mut().rev().take_while(|wait| wait.ends > from) {
                    let hidden = (wait.ends.min(first.written) - wait.begins.max(from)).max(0.0);
                    waited(wait.operand, -hidden);
                    waited(first.operand, hidden);
                    wait.begins = wait.begins.max(first.written);
                }
                entered = first.written;
            }
        }
        self.waiting_until(entered);
        entered = entered.max(self.scheduled(effects.unit));
        self.entered = entered;
        while self.recent.pop_front_if(|wait| wait.ends <= entered).is_some() {}
        let latest =
            |registers: RegisterSet| registers.iter().map(|it| self.ready[it]).fold(entered, f64::max);
        let (mut addressed, read) = (latest(effects.address), latest(effects.reads));
        if !accesses.is_empty() {
            addressed = addressed.max(self.accesses_from);
        }
        let (mut loaded, mut slowest) = (addressed, None);
        for it in accesses.iter().filter(|it| it.access.what.reads()) {
            let there = self.load(it, addressed);
            if there > loaded {
                (loaded, slowest) = (there, Some(it.access.number));
                std::mem::swap(&mut self.late, &mut self.slowest_late);
            }
        }
        // What loads leaves the scheduler with its address; what computes besides, with all operands.
        let begins = if effects.latency_cycles == 0 { addressed } else { loaded.max(read) };
        if begins > entered {
            self.waiting[effects.unit as usize].push(Reverse(Time(begins)));
        }
        let done = loaded.max(read) + f64::from(effects.latency_cycles);
        effects.writes.iter().for_each(|register| self.ready[register] = done);
        let moved = addressed + f64::from(Effects::MOVE_CYCLES);
        effects.moves.iter().for_each(|register| self.ready[register] = moved);
        let retired = may_retire.max(done);
        self.last_loaded = self.last_loaded.max(loaded);
        self.keep_order(effects.order, done, retired);
        if let Some(operand) = slowest {
            let wait = Wait { operand, begins: addressed.max(may_retire), ends: loaded };
            self.waits(wait, &mut waited);
        }
        self.retire(retired);
        for it in accesses {
            let what = it.access.what;
            if what.writes() {
                self.store(it, done, retired);
            } else if !what.reads() {
                // A prefetch: nobody waits.
                self.fetch(it, addressed, Want::Load);
            }
        }
        done
    }

    /// Accesses behind an instruction wait for it, or for what is in front of it.
    fn keep_order(&mut self, order: Order, done: f64, retired: f64) {
        let from = match order {
            Order::Free => return,
            Order::Acquire => done,
            Order::AfterLoads => self.last_loaded,
            Order::AfterAccesses => self.last_loaded.max(self.last_written),
            Order::AfterAll => {
                // They are fetched anew, as those behind a wrong guess are.
                self.resumes = self.resumes.max(retired + WRONG_GUESS_CYCLES);
                return;
            }
        };
        self.accesses_from = self.accesses_from.max(from);
    }

    /// Retirement waits for a load. It would wait for less without the lines that came before: that part is theirs.
    fn waits(&mut self, wait: Wait, waited: &mut impl FnMut(u32, f64)) {
        let cycles = wait.ends - wait.begins;
        if cycles <= 0.0 {
            return;
        }
        let late: f64 = self.slowest_late.iter().map(|(_, cycles)| cycles).sum();
        let part = if late > cycles { cycles / late } else { 1.0 };
        let mut begins = wait.begins;
        let own = (wait.operand, cycles - part * late);
        let others = self.slowest_late.iter().map(|&(operand, cycles)| (operand, part * cycles));
        for (operand, cycles) in std::iter::once(own).chain(others).filter(|(_, cycles)| *cycles > 0.0) {
            waited(operand, cycles);
            self.recent.push_back(Wait { operand, begins, ends: begins + cycles });
            begins += cycles;
        }
    }

    /// An instruction's accesses; `None`: its code is not known.
    pub(crate) fn execute_known(
        &mut self,
        effects: Option<&Effects>,
        accesses: &[Served],
        mut waited: impl FnMut(u32, f64),
    ) {
        match effects {
            Some(effects) => {
                self.execute(effects, accesses, waited);
            }
            None => accesses.iter().for_each(|it| self.execute_alone(it, &mut waited)),
        }
    }

    /// An access of code that is not known: it waits for all before, and all behind for it.
    pub(crate) fn execute_alone(&mut self, access: &Served, mut waited: impl FnMut(u32, f64)) {
        self.astray.clear();
        self.early.clear();
        let begins = self.ready.iter().copied().fold(self.last_retired, f64::max);
        let there = self.load(access, begins);
        waited(access.access.number, there - begins);
        self.entered = there;
        self.retire(there);
    }

    /// A repeated string instruction begins.
    pub(crate) fn begins_to_repeat(&mut self) {
        let slot = self.slot.max(MICROCODE_SLOT);
        for _ in 0..MICROCODE {
            let room = self.retired[self.oldest];
            self.entered = (self.entered + slot).max(room).max(self.resumes);
            self.retire((self.last_retired + slot).max(self.entered));
        }
    }

    /// The branch that was done then, the last instruction, led elsewhere than was guessed. Its ways meet there; `None`: nowhere near.
    pub(crate) fn guessed_wrong(&mut self, done: f64, join: Option<Join>) {
        self.resumes = done + WRONG_GUESS_CYCLES;
        let Some(join) = join else {
            self.astray.clear();
            return;
        };
        self.astray.iter_mut().filter(|path| path.join.is_none()).for_each(|path| path.branches(join));
        if self.astray.len() < MOST_ASTRAY {
            let (entered, ready) = (self.entered, self.ready);
            let mut path = Astray { until: done, entered, ready, join: None, passed: 0 };
            path.branches(join);
            self.astray.push(path);
        }
    }

    /// An instruction that is executed next, as far as it was executed astray before.
    fn go_astray(&mut self, effects: &Effects, accesses: &[Served], room: f64) {
        self.early.clear();
        if self.astray.is_empty() {
            return;
        }
        let mut paths = std::mem::take(&mut self.astray);
        paths.retain_mut(|path| {
            if !path.comes_to(effects.at) {
                return path.passed < MOST_BETWEEN;
            }
            path.entered = (path.entered + self.slot).max(room);
            if path.entered >= path.until {
                return false;
            }
            let (addressed, read) = (path.latest(effects.address), path.latest(effects.reads));
            let loads = accesses.iter().filter(|it| it.access.what.reads());
            let loaded =
                loads.fold(addressed, |loaded, it| loaded.max(self.load_astray(it, addressed, path.until)));
            let done = loaded.max(read) + f64::from(effects.latency_cycles);
            effects.writes.iter().for_each(|register| path.ready[register] = done);
            let moved = addressed + f64::from(Effects::MOVE_CYCLES);
            effects.moves.iter().for_each(|register| path.ready[register] = moved);
            true
        });
        self.astray = paths;
    }

    /// When the data is there that a load asks for astray, if it does so in time.
    fn load_astray(&mut self, it: &Served, begins: f64, until: f64) -> f64 {
        let line = it.access.line;
        if begins >= until {
            return f64::INFINITY;
        }
        if it.drawn.miss.is_some() && !self.early.contains(&line) {
            let comes = self.fetch(it, begins, Want::Load);
            self.early.push(line);
            return comes;
        }
        self.hit(it, begins)
    }

    /// When the data of a line is there that the first level has, or that is on its way.
    fn hit(&self, it: &Served, begins: f64) -> f64 {
        let comes = self.lines.get(&it.access.line).copied().unwrap_or(0.0);
        (begins + it.drawn.cycles.min(FORWARD_CYCLES)).max(comes)
    }

    /// Those that have their operands by then wait no more.
    fn waiting_until(&mut self, time: f64) {
        for waiting in &mut self.waiting {
            while waiting.peek().is_some_and(|Reverse(Time(begins))| *begins <= time) {
                waiting.pop();
            }
        }
    }

    /// When a scheduler has room for another one of these: where it is full, when the first of those in it begins, which leaves it.
    fn scheduled(&mut self, unit: Unit) -> f64 {
        let mut from: f64 = 0.0;
        for (of, entries) in self.schedulers.iter().filter(|(of, _)| of[unit as usize]) {
            let sharers = || (0..Unit::COUNT).filter(|&sharer| of[sharer]);
            if sharers().map(|sharer| self.waiting[sharer].len()).sum::<usize>() < *entries {
                continue;
            }
            // The heap's order is reversed: the greatest begins first.
            let first = sharers().max_by_key(|&sharer| self.waiting[sharer].peek());
            if let Some(Reverse(Time(begins))) = first.and_then(|first| self.waiting[first].pop()) {
                from = from.max(begins);
            }
        }
        from
    }

    fn retire(&mut self, at: f64) {
        self.last_retired = at;
        self.retired[self.oldest] = at;
        self.oldest = (self.oldest + 1) % self.retired.len();
    }

    /// When the data is there.
    fn load(&mut self, it: &Served, begins: f64) -> f64 {
        let key = (it.access.line, it.access.word);
        match self.words.get(&key) {
            // From the store that is on its way.
            Some(word) if word.written > begins => {
                self.late.clear();
                begins.max(word.known) + it.drawn.cycles.min(FORWARD_CYCLES)
            }
            _ => self.fetch(it, begins, Want::Load),
        }
    }

    /// When the line is there, and what is wanted of it.
    fn fetch(&mut self, it: &Served, begins: f64, want: Want) -> f64 {
        let Drawn { cycles, miss, .. } = it.drawn;
        let operand = it.access.number;
        self.late.clear();
        if self.early.contains(&it.access.line) {
            return self.hit(it, begins);
        }
        let Some(miss) = miss else {
            let comes = self.lines.get(&it.access.line).copied().unwrap_or(0.0);
            return (begins + cycles).max(comes);
        };
        // Walks are under way besides lines, and have no places of theirs.
        let (begins, cycles) = (begins + miss.translation, cycles - miss.translation);
        let place = self.place_at(begins);
        let free = self.outstanding[place].0;
        if free > begins {
            // None is: all have one.
            let each = (free - begins) / self.outstanding.len() as f64;
            self.late.extend(self.outstanding.iter().map(|&(_, holder)| (holder, each)));
        }
        let begins = begins.max(free);
        let source = &mut self.delivered[miss.source as usize];
        let rate = self.limits.lines.from(miss.source, it.access.what.is_beside());
        let delivered = source.take(operand, begins - miss.asked_before, rate);
        self.late.extend(source.since(begins + cycles));
        let comes = (begins + cycles).max(delivered);
        self.outstanding[place] = (comes, operand);
        // What waits for its set keeps no place from others: samples of time blame a transpose's stores, not the loads between them.
        let takes = match want {
            Want::Load => self.limits.lines.into_set_by_load,
            Want::Store => self.limits.lines.into_set_by_store,
        };
        if want == Want::Load {
            self.loaded += 1;
            let crowd = &mut self.crowds[it.access.set()];
            crowd.rotate_left(1);
            crowd[CROWD - 1] = self.loaded;
        }
        let taken = self.set_has_taken(it, begins, takes);
        self.late.extend(self.sets[it.access.set()].since(comes));
        let comes = comes.max(taken);
        self.lines.insert(it.access.line, comes);
        comes
    }

    /// When the set of its line, wanted then, has taken it.
    fn set_has_taken(&mut self, it: &Served, wanted: f64, takes: f64) -> f64 {
        self.sets[it.access.set()].take(it.access.number, wanted, takes)
    }

    /// What a store into a line takes of its set besides the access of the window that has brought it, if loads behind drive the line out
    /// before the store is written: that is told by those in front.
    fn takes_twice(&self, it: &Served) -> Option<f64> {
        let LineRates { into_set_by_load, into_set_by_both, .. } = self.limits.lines;
        let more = into_set_by_both - into_set_by_load;
        let is_crowded = self.loaded - self.crowds[it.access.set()][0] < self.limits.crowd();
        (more > 0.0 && is_crowded && self.lines.contains_key(&it.access.line)).then_some(more)
    }

    /// The place for a line that has been free for the shortest time then; if none is, the one that will be first. Accesses come here
    /// in the order of the program: a place that is free earlier may serve one behind this that begins earlier.
    fn place_at(&self, begins: f64) -> usize {
        let by_time = |&(_, one): &(usize, f64), &(_, other): &(usize, f64)| one.total_cmp(&other);
        let places = || self.outstanding.iter().map(|&(free, _)| free).enumerate();
        let free = places().filter(|&(_, free)| free <= begins).max_by(by_time);
        free.or_else(|| places().min_by(by_time)).map_or(0, |(place, _)| place)
    }

    fn store(&mut self, it: &Served, known: f64, retired: f64) {
        let there = match (it.access.what.reads(), it.drawn.miss, self.takes_twice(it)) {
            (false, Some(_), _) | (false, None, None) => self.fetch(it, known, Want::Store),
            // What was read before it was written is there by now, if others have not taken its place in the meantime.
            (_, _, Some(takes)) => self.set_has_taken(it, known, takes),
            (true, Some(_), None) => self.set_has_taken(it, known, self.limits.lines.into_set_by_store),
            (true, None, None) => known,
        };
        let written = (self.last_written + 1.0).max(retired).max(there);
        self.last_written = written;
        self.stores[self.next_store] = Store { retired, written, operand: it.access.number };
        self.next_store = (self.next_store + 1) % self.stores.len();
        self.words.insert((it.access.line, it.access.word), Word { known, written });
    }
}
