//! Bursts that wait until it is known what they stand for.
//!
//! Whose the time between two bursts is, `between.rs` tells. Time in code of an earlier burst is that burst's, so bursts wait until 64 have come; of
//! one that waits no more, it is the next one's there: phases that bursts meet seldom have their time so. Time in code that no burst has met is
//! the nearer one's in time, until one comes that does meet it.
//!
//! A burst that a system call ended lacks what comes behind the call. If it stood for as much as others, what a program does just before
//! its calls would count for too much: every burst that begins anywhere before a call has that, however little else it saw. It keeps
//! the part that its length has of the usual length around it, so that an access counts as much as in bursts that went on; the rest
//! goes to the thread's next burst, in the place of what would have followed.
//!
//! Where a program's next task begins, the first burst translates all of its code, so that the next one comes late, and measures
//! its speed while neither processor nor caches know it: it would stand for a long time of slow accesses. If the
//! next burst is of the same code and its speed, which has settled, is higher, that is the speed of both. A burst that spent its time
//! translating, or ended early, has none: its speed is that of the nearest burst of the same code whose speed has settled, before it or behind
//! it, its thread's or another one's, unless what its accesses took says that it was another phase. (Of a
//! Python script that sums the columns of an array, three bursts of which half was translation had the usual time of an access, a quarter
//! of the true one there, and half of the time: totals were 1.5 to 3.6 times the true ones.)

use std::collections::VecDeque;

use memlens_locality::{Extent, Reference, Timing};
use rustc_hash::FxHashMap;

use super::allocations::{Allocations, Correction, Share};
use super::between::{Around, Foreign, Look, Span, Times, divide, least_part};
use super::glances::{Glance, Glances, Position};
use super::known_code::{KnownCode, Met};
use super::paths::Seen as SeenPath;
use super::weights::Speed;
use crate::address_space::Code;
use crate::when::When;

/// Bursts that wait at most, and most threads whose last bursts do …
const MOST: usize = 64;
/// … and most accesses of those that are not the last of their threads, some 24 MB.
const MOST_REFERENCES: usize = 1 << 20;
/// Most looks of a thread between two bursts: what comes then stands for what went before. As many that wait for a burst of their code,
/// of each kind.
const MOST_LOOKS: usize = 4096;
/// How many of a thread's bursts may come before one of a look's code does.
const PATIENCE: u32 = 32;
/// The most that a burst gives back, as a part of its time around it.
const GIVEN_BACK: f64 = 0.5;

/// A burst, and how much it stands for as far as that is known.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Whose it is, when it was, and how fast.
    pub timing: Timing,
    /// How sure that is.
    pub speed: Speed,
    /// Accesses for which it stands so far.
    pub weight: f64,
    /// Accesses since the burst before …
    pub unseen_before: f64,
    /// … and those of them that were counted.
    pub counted_before: f64,
    /// Whether the thread was in code of neither since then, if there were looks.
    pub was_elsewhere: Option<bool>,
    /// Accesses that were only counted behind it.
    pub counted: f64,
    /// Calls of allocation functions since the burst before …
    pub allocations_before: f64,
    /// … and in it and behind it, as far as that was counted.
    pub allocations: f64,
    /// Whether code ended it that bursts leave alone.
    pub is_cut: bool,
    /// Usual length of the thread's bursts up to this one, in accesses.
    pub usual_length: f64,
    /// What it saw.
    pub references: Vec<Reference>,
    /// Where objects of known size lie that they touch.
    pub extents: Vec<Extent>,
    /// Through which calls some of its accesses came.
    pub paths: Vec<SeenPath>,
    /// Addresses in the code that it executed, rising, and how often.
    pub code: Vec<(u64, u32)>,
    /// Processor time before it that it stands for, in ns, back to the burst before …
    pub before_ns: f64,
    /// … and behind it, up to the next.
    pub behind_ns: f64,
    /// Processor time that it stands for, in ns …
    pub time_ns: f64,
    /// … and what of it bursts before have had, too, as it is in their time.
    pub taken_ns: f64,
    /// When that was, as far as it was not given to others.
    pub when: Vec<(Span, f64)>,
    /// Whether the thread's next burst has come.
    pub has_next: bool,
}

/// What a burst's length counts in the usual length: one in so many.
const LENGTHS: f64 = 4.0;

impl Waiting {
    /// Accesses that it stands for by itself: what it saw and what was counted behind it.
    fn own(&self) -> f64 {
        self.references.len() as f64 + self.counted
    }

    /// What it says of the accesses that nobody saw.
    pub fn share(&self) -> Share {
        let own = self.own();
        Share { unseen: (self.weight - own).max(0.0), rate: self.allocations / own.max(1.0) }
    }

    /// When it was and how fast, and for how many accesses it stands, if there were so many times as many in its time.
    pub fn with(&self, factor: f64) -> (Timing, f64) {
        let timing = Timing { access_ns: self.timing.access_ns / factor, ..self.timing };
        (timing, self.weight + (factor - 1.0) * self.share().unseen)
    }

    /// For how many accesses it stands when: its own are where it was, the others in the times that it stands for.
    pub fn times(&self) -> When {
        let own = self.own().min(self.weight);
        let all_ns: f64 = self.when.iter().map(|(_, time_ns)| time_ns.max(0.0)).sum();
        let mut times = When::default();
        let others = self.weight - own;
        match all_ns > 0.0 {
            true => times.add(self.timing.at_ns, own),
            false => times.add(self.timing.at_ns, self.weight),
        }
        for &(Span { from_ns, to_ns }, time_ns) in self.when.iter().filter(|(_, time_ns)| *time_ns > 0.0) {
            times.add_evenly(from_ns..to_ns, others * time_ns / all_ns);
        }
        times
    }

    /// Lets it stand for more accesses in its time, or fewer.
    fn correct(&mut self, correction: Correction) {
        let factor = correction.of(self.share());
        (self.timing, self.weight) = self.with(factor);
        self.unseen_before = self.counted_before + (self.unseen_before - self.counted_before) * factor;
    }

    /// Takes away the time for which the next burst shall stand instead.
    fn pass_on(&mut self) -> f64 {
        let kept =
            if self.is_cut { (self.references.len() as f64 / self.usual_length).min(1.0) } else { 1.0 };
        let passed_on_ns = (1.0 - kept) * self.time_ns.max(0.0);
        self.lose(passed_on_ns);
        passed_on_ns
    }

    /// As [`Self::stand_for`]; says when that time was.
    fn stand_for_in(&mut self, time_ns: f64, when: Span) -> f64 {
        match self.when.last_mut() {
            Some((last, sum)) if *last == when => *sum += time_ns,
            _ => self.when.push((when, time_ns)),
        }
        self.stand_for(time_ns)
    }

    /// The same for several.
    fn stand_for_all(&mut self, all: &[Foreign]) {
        all.iter().for_each(|foreign| {
            self.stand_for_in(foreign.time_ns, foreign.when);
        });
    }

    /// Lets it stand for accesses as fast as its own in such a time besides. Returns how many.
    fn stand_for(&mut self, time_ns: f64) -> f64 {
        let accesses = time_ns / self.timing.access_ns;
        self.weight += accesses;
        self.time_ns += time_ns;
        accesses
    }

    /// Lets it stand for less time, which is another burst's.
    fn lose(&mut self, time_ns: f64) {
        self.stand_for(-time_ns);
        // It may have passed some on.
        self.weight = self.weight.max(self.own());
    }

    /// Takes over how fast another burst is, if that knows better. `is_next`: it is the thread's next one. Returns how many more accesses
    /// there are then behind it, which the thread's next burst has before it.
    fn learn_from(&mut self, other: &Self, is_next: bool) -> f64 {
        let other_ns = other.timing.access_ns;
        let is_better = match self.speed {
            Speed::Guessed { recorded } => recorded.is_none_or(|recorded| recorded.is_alike(other_ns)),
            // New code is slower than known code.
            Speed::New => is_next && other_ns < self.timing.access_ns,
            Speed::Settled | Speed::Learned | Speed::Repeated { .. } => false,
        };
        if is_better && other.speed == Speed::Settled && self.is_code_of(other) {
            let more = 1.0 / other_ns - 1.0 / self.timing.access_ns;
            self.timing.access_ns = other_ns;
            if let Speed::Guessed { .. } = self.speed {
                self.speed = Speed::Learned;
            }
            // Others may have taken more of its time than it kept.
            self.weight = (self.weight + self.time_ns.max(0.0) * more).max(self.own());
            self.unseen_before = (self.unseen_before + self.before_ns * more).max(0.0);
            return self.behind_ns * more;
        }
        0.0
    }

    /// Whether most of what it executed another one did, too, and as much of it.
    fn is_code_of(&self, other: &Self) -> bool {
        let parts = || self.code.iter().map(|&(address, _)| (self.part(address), other.part(address)));
        let common: f64 = parts().map(|(ours, theirs)| ours.min(theirs)).sum();
        2.0 * common > parts().map(|(ours, _)| ours).sum()
    }

    /// How often it executed what is there.
    pub fn executions(&self, address: u64) -> u32 {
        let at = self.code.binary_search_by_key(&address, |&(address, _)| address);
        at.map_or(0, |at| self.code[at].1)
    }

    /// How much of it is the code there: executions an access.
    pub fn part(&self, address: u64) -> f64 {
        f64::from(self.executions(address)) / self.references.len().max(1) as f64
    }
}

/// A thread's time in code of none of the bursts around it.
#[derive(Debug, Default)]
struct Lent {
    /// In code that was met before, by a burst that waits no more: it waits for the next one there.
    waiting: Vec<Foreign>,
    /// In code that no burst had met: one of those around it has it for now.
    unmet: Vec<Foreign>,
    /// What of that has been taken by bursts of the code, and not been given back by others.
    owed_ns: f64,
    /// What no burst of the code has taken in time.
    never_met_ns: f64,
}

/// Takes from `all` what `is_its` or too old.
fn taken(all: &mut Vec<Foreign>, is_its: impl Fn(u64) -> bool) -> (Vec<Foreign>, Vec<Foreign>) {
    all.iter_mut().for_each(|foreign| foreign.age += 1);
    let its = all.extract_if(.., |foreign| is_its(foreign.pc)).collect();
    let old = all.extract_if(.., |foreign| foreign.age >= PATIENCE).collect();
    (its, old)
}

/// The sum of times.
fn sum_ns(all: &[Foreign]) -> f64 {
    all.iter().map(|foreign| foreign.time_ns).sum()
}

/// Adds to what is waited for. Returns the oldest if there is too much.
fn lend(all: &mut Vec<Foreign>, new: impl IntoIterator<Item = Foreign>) -> Vec<Foreign> {
    all.extend(new);
    all.drain(..all.len().saturating_sub(MOST_LOOKS)).collect()
}

impl Lent {
    /// Takes away what others have taken from a burst of which everything else is known, unless it is one of these itself.
    fn give_back(&mut self, burst: &mut Waiting) {
        let own_ns = burst.time_ns - burst.taken_ns;
        if own_ns > burst.taken_ns {
            let given_back = self.owed_ns.min(GIVEN_BACK * own_ns);
            burst.stand_for(-given_back);
            self.owed_ns -= given_back;
        }
    }

    /// What still waits is the last burst's. Returns the time in code that no burst had, in ns.
    fn end(mut self, last: &mut Waiting) -> f64 {
        self.give_back(last);
        last.stand_for_all(&self.waiting);
        self.left_ns()
    }

    /// Time in code that no burst had, of a thread of which nothing more comes.
    fn left_ns(&self) -> f64 {
        self.never_met_ns + sum_ns(&self.unmet)
    }
}

/// Those of a thread.
fn of_thread(bursts: &VecDeque<Waiting>, thread: u32) -> impl DoubleEndedIterator<Item = &Waiting> {
    bursts.iter().filter(move |waiting| waiting.timing.thread == thread)
}

/// A thread's that was reported at a time, if it still waits.
fn reported_at(bursts: &mut VecDeque<Waiting>, thread: u32, at_ns: Option<u64>) -> Option<&mut Waiting> {
    bursts.iter_mut().rfind(|waiting| waiting.timing.thread == thread && Some(waiting.timing.at_ns) == at_ns)
}

/// Adds the time in which a thread waited, in ns.
fn waited(calls_ns: &mut f64, spins: &mut FxHashMap<Code, f64>, times: &Times) {
    *calls_ns += times.calls;
    for &(code, time_ns) in &times.spins {
        *spins.entry(code).or_default() += time_ns;
    }
}

/// Looks at a thread behind its last burst.
#[derive(Debug, Default)]
struct Behind {
    process: u32,
    looks: Vec<Look>,
    /// When the last of them was.
    at_ns: u64,
}

/// The bursts that wait, in the order of time.
#[derive(Debug, Default)]
pub struct WaitingBursts {
    bursts: VecDeque<Waiting>,
    /// Accesses in them.
    references: usize,
    /// Looks behind the last burst, by thread.
    looks: FxHashMap<u32, Behind>,
    /// By thread: what is not of the code of the bursts around it.
    lent: FxHashMap<u32, Lent>,
    glances: Glances,
    known: KnownCode,
    allocations: Allocations,
    /// By thread, what was behind its last burst when all were taken: how often was allocated there its next one tells.
    behind: FxHashMap<u32, Share>,
    /// Processor time in system calls, in ns, but for these looks.
    calls_ns: f64,
    /// Of that, what went by in loops that wait for other threads, by where.
    spins: FxHashMap<Code, f64>,
    /// Processor time of threads, of which no more is expected, in code that no burst had, in ns.
    unmet_ns: f64,
}

impl WaitingBursts {
    /// A thread's next burst, which took `own_ns`, `period_ns` of processor time behind its burst or look before. It and the burst before
    /// stand for accesses as fast as their own in the time between them. `each` gets the burst before, of which nearly everything is known now,
    /// and how many times as many accesses there were in its time as it says ([`Waiting::with`]).
    /// Given back are those that have waited for long enough, in the order of time.
    pub fn add(
        &mut self,
        mut burst: Waiting,
        own_ns: u64,
        period_ns: f64,
        each: impl FnOnce(&Waiting, f64),
    ) -> Vec<Waiting> {
        let Timing { process, thread, at_ns, .. } = burst.timing;
        let tick = (at_ns.saturating_sub(own_ns), at_ns);
        let last = self.divide_by_glances((process, thread), tick, period_ns);
        self.teach(&mut burst);
        let addresses = burst.code.iter().map(|&(address, _)| address);
        self.known.add(process, addresses, burst.timing.access_ns);
        let at = self.bursts.iter().rposition(|waiting| waiting.timing.thread == thread);
        let length = burst.references.len() as f64;
        let usual = at.map_or(length, |at| self.bursts[at].usual_length);
        burst.usual_length = usual + (length - usual) / LENGTHS;
        let before_ns = at.map(|at| self.bursts[at].timing.at_ns);
        let when = Span {
            from_ns: before_ns.unwrap_or(at_ns.saturating_sub(own_ns + period_ns as u64)),
            to_ns: at_ns,
        };
        let times = self.times_before(at, &burst, last, when);
        waited(&mut self.calls_ns, &mut self.spins, &times);
        burst.before_ns = times.next;
        burst.unseen_before = burst.stand_for_in(times.next, when) + times.accesses_elsewhere;
        burst.was_elsewhere = times.was_elsewhere();
        self.take_foreign(&mut burst);
        self.leave_foreign(&mut burst, times.unmet, times.elsewhere);
        if let Some(at) = at {
            let before = &mut self.bursts[at];
            before.learn_from(&burst, true);
            before.behind_ns = times.before;
            burst.counted_before = before.counted;
            burst.unseen_before += before.counted + before.stand_for_in(times.before, when);
            self.lent.entry(thread).or_default().give_back(before);
            burst.stand_for_in(before.pass_on(), when);
            before.has_next = true;
        }
        self.allocations.between(burst.allocations_before);
        if let Some(behind) = self.behind.remove(&thread) {
            self.allocations.add(behind);
        }
        if let Some(at) = at {
            let correction =
                self.allocations.correction(self.bursts.iter().chain([&burst]).map(Waiting::share));
            let before = &self.bursts[at];
            each(before, correction.of(before.share()));
        }
        self.references += burst.references.len();
        self.bursts.push_back(burst);
        self.waited_enough()
    }

    /// How fast the code of a burst is that has come, those that wait tell if it does not know, its thread's before others of the
    /// process; it tells them if they do not.
    fn teach(&mut self, burst: &mut Waiting) {
        let Timing { process, thread, .. } = burst.timing;
        match burst.speed {
            Speed::Guessed { .. } => {
                let before = of_thread(&self.bursts, thread).rev();
                let of_others = self
                    .bursts
                    .iter()
                    .rev()
                    .filter(|other| other.timing.process == process && other.timing.thread != thread);
                for other in before.chain(of_others) {
                    burst.learn_from(other, false);
                }
            }
            Speed::Settled => {
                for at in 0..self.bursts.len() {
                    if self.bursts[at].timing.process != process {
                        continue;
                    }
                    let more = self.bursts[at].learn_from(burst, false);
                    let learner = self.bursts[at].timing.thread;
                    let next = self.bursts.iter_mut().skip(at + 1).find(|it| it.timing.thread == learner);
                    if let Some(next) = next {
                        next.unseen_before = (next.unseen_before + more).max(0.0);
                    }
                }
            }
            Speed::New | Speed::Learned | Speed::Repeated { .. } => {}
        }
    }

    /// Divides the time from a thread's burst, of this number, to its next.
    fn times_before(
        &mut self,
        at: Option<usize>,
        next: &Waiting,
        (last_ns, most_code_ns): (f64, f64),
        when: Span,
    ) -> Times {
        let Timing { process, thread, .. } = next.timing;
        let looks = self.looks.remove(&thread).map(|behind| behind.looks).unwrap_or_default();
        let around = Around {
            bursts: of_thread(&self.bursts, thread).chain([next]).collect(),
            before: at.map(|at| &self.bursts[at]),
            next: Some(next),
            process,
            known: &self.known,
            when,
        };
        divide(&around, &looks, last_ns, most_code_ns)
    }

    /// A burst, which has come, stands for time in its code that waits for it, or that others have, and for what has waited too long. One
    /// in which that code only begins or ends does not, while there are others.
    fn take_foreign(&mut self, burst: &mut Waiting) {
        let Timing { process, thread, .. } = burst.timing;
        let is_its = |pc| {
            self.known.met(process, pc).is_some_and(|Met { address, .. }| {
                let part = burst.part(address);
                part > 0.0 && part >= least_part(of_thread(&self.bursts, thread), address)
            })
        };
        let lent = self.lent.entry(thread).or_default();
        let (waited, too_long) = taken(&mut lent.waiting, is_its);
        let (taken, never_met) = taken(&mut lent.unmet, is_its);
        lent.never_met_ns += sum_ns(&never_met);
        [&waited, &too_long, &taken].iter().for_each(|all| burst.stand_for_all(all));
        for Foreign { time_ns, whose_ns, .. } in taken {
            match reported_at(&mut self.bursts, thread, whose_ns) {
                Some(lender) => lender.lose(time_ns),
                None => {
                    burst.taken_ns += time_ns;
                    lent.owed_ns += time_ns;
                }
            }
        }
    }

    /// Time before a burst in other code is the burst's that met it, or waits for one.
    fn leave_foreign(&mut self, burst: &mut Waiting, unmet: Vec<Foreign>, elsewhere: Vec<Foreign>) {
        let thread = burst.timing.thread;
        let lent = self.lent.entry(thread).or_default();
        lent.never_met_ns += sum_ns(&lend(&mut lent.unmet, unmet));
        for elsewhere in elsewhere {
            match reported_at(&mut self.bursts, thread, elsewhere.whose_ns) {
                Some(there) => there.stand_for_all(&[elsewhere]),
                None => burst.stand_for_all(&lend(&mut lent.waiting, [elsewhere])),
            }
        }
    }

    /// Those that have to go for others, which came later: first such as have a next one.
    fn waited_enough(&mut self) -> Vec<Waiting> {
        let mut gone = Vec::new();
        while self.bursts.len() > MOST || self.references > MOST_REFERENCES {
            let known = self.bursts.iter().position(|burst| burst.has_next);
            let Some(at) = known.or((self.bursts.len() > MOST).then_some(0)) else { break };
            let Some(mut first) = self.bursts.remove(at) else { break };
            self.references -= first.references.len();
            if !first.has_next {
                self.unmet_ns += self.lent.remove(&first.timing.thread).unwrap_or_default().end(&mut first);
            }
            self.allocations.add(first.share());
            first.correct(self.correction());
            gone.push(first);
        }
        gone
    }

    /// A thread has called allocation functions so often before a burst that tells nothing else: looks before it are of time that others get.
    pub fn allocated(&mut self, calls: u64) {
        self.allocations.between(calls as f64);
    }

    /// What a reader has to know of that.
    pub fn allocations_note(&self) -> Option<String> {
        self.allocations.note()
    }

    /// What allocations say so far of how much bursts stand for.
    pub fn correction(&self) -> Correction {
        self.allocations.correction(self.bursts.iter().map(Waiting::share))
    }

    /// Where a thread of a process was at a time, `period_ns` of processor time behind its burst or look before.
    pub fn look(&mut self, whose: (u32, u32), at_ns: u64, period_ns: f64, at: Position) {
        let (mut period_ns, most_behind_ns) = self.divide_by_glances(whose, (at_ns, at_ns), period_ns);
        if !matches!(at, Position::Code(_)) && most_behind_ns < period_ns {
            // The call began within that.
            self.add_look(whose, at_ns, (most_behind_ns, most_behind_ns), at);
            period_ns -= most_behind_ns;
        }
        self.add_look(whose, at_ns, (period_ns, most_behind_ns), at);
    }

    /// Where a thread of a process was since its last tick, when the next comes.
    pub fn glanced(&mut self, whose: (u32, u32), glances: Vec<Glance>) {
        self.glances.add(whose, glances);
    }

    /// A tick came and was over, `period_ns` of processor time behind the one before. Glances since are looks. Returns what is left behind
    /// the last of them, and how much of that its code may have had.
    fn divide_by_glances(&mut self, whose: (u32, u32), tick: (u64, u64), period_ns: f64) -> (f64, f64) {
        let divided = self.glances.divide(whose.1, tick, period_ns);
        if divided.begin_ns > 0.0 {
            // In the kernel, whatever it executes there.
            self.add_look(whose, tick.1, (divided.begin_ns, divided.begin_ns), Position::Waiting);
        }
        for (time_ns, at) in divided.glances {
            self.add_look(whose, tick.1, (time_ns, divided.most_behind_ns), at);
        }
        (divided.last_ns, divided.most_behind_ns)
    }

    fn add_look(
        &mut self,
        (process, thread): (u32, u32),
        at_ns: u64,
        (period_ns, most_code_ns): (f64, f64),
        at: Position,
    ) {
        let Behind { looks, at_ns: last_ns, .. } =
            self.looks.entry(thread).or_insert_with(|| Behind { process, ..Behind::default() });
        *last_ns = at_ns.max(*last_ns);
        match looks.get_mut(MOST_LOOKS - 1) {
            Some(last) => {
                last.period_ns += period_ns;
                last.most_code_ns += most_code_ns;
            }
            None => looks.push(Look { period_ns, most_code_ns, at }),
        }
    }

    /// Processor time in system calls, in ns.
    pub fn calls_ns(&self) -> f64 {
        let of_thread = |(&thread, behind): (&u32, &Behind)| {
            let before = self.bursts.iter().rfind(|waiting| waiting.timing.thread == thread);
            divide(&Around::nothing(before, &self.known), &behind.looks, 0.0, 0.0).calls
        };
        self.calls_ns + self.looks.iter().map(of_thread).sum::<f64>()
    }

    /// Processor time in loops that wait for other threads, in ns, and where; of looks that have their burst.
    pub fn spins(&self) -> impl Iterator<Item = (Code, f64)> {
        self.spins.iter().map(|(&code, &time_ns)| (code, time_ns))
    }

    /// Processor time in code that no burst had, in ns, as far as looks tell. It stands for what the bursts around it saw.
    pub fn unmet_ns(&self) -> f64 {
        self.unmet_ns + self.lent.values().map(Lent::left_ns).sum::<f64>()
    }

    /// All bursts of a process, or of all. The last one of each thread stands for what came behind it, too.
    pub fn take_all(&mut self, pid: Option<u32>) -> Vec<Waiting> {
        let is_meant = |process: u32| pid.is_none_or(|pid| process == pid);
        let (mut taken, left): (Vec<Waiting>, Vec<Waiting>) =
            self.bursts.drain(..).partition(|burst| is_meant(burst.timing.process));
        self.bursts = left.into();
        for burst in taken.iter_mut().filter(|burst| !burst.has_next) {
            self.unmet_ns += self.lent.remove(&burst.timing.thread).unwrap_or_default().end(burst);
        }
        // How often was allocated behind the last bursts nobody has told.
        taken.iter().for_each(|burst| self.allocations.add(burst.share()));
        let correction = self.correction();
        for (thread, behind) in self.looks.extract_if(|_, behind| is_meant(behind.process)) {
            let is_its = |waiting: &Waiting| waiting.timing.thread == thread;
            let Some(last) = taken.iter().rposition(is_its) else {
                let times = divide(&Around::nothing(None, &self.known), &behind.looks, 0.0, 0.0);
                waited(&mut self.calls_ns, &mut self.spins, &times);
                continue;
            };
            let when = Span { from_ns: taken[last].timing.at_ns, to_ns: behind.at_ns };
            let around = Around {
                bursts: taken.iter().filter(|waiting| is_its(waiting)).collect(),
                process: behind.process,
                when,
                ..Around::nothing(Some(&taken[last]), &self.known)
            };
            let times = divide(&around, &behind.looks, 0.0, 0.0);
            waited(&mut self.calls_ns, &mut self.spins, &times);
            self.unmet_ns += sum_ns(&times.unmet);
            let Share { unseen, rate } = taken[last].share();
            taken[last].stand_for_in(times.before, when);
            self.behind.insert(thread, Share { unseen: taken[last].share().unseen - unseen, rate });
            for elsewhere in times.elsewhere {
                let is_there =
                    |waiting: &Waiting| is_its(waiting) && Some(waiting.timing.at_ns) == elsewhere.whose_ns;
                let there = taken.iter().rposition(is_there).unwrap_or(last);
                taken[there].stand_for_all(&[elsewhere]);
            }
            if pid.is_some() {
                // Nobody will tell.
                self.behind.remove(&thread);
            }
        }
        taken.iter_mut().for_each(|burst| burst.correct(correction));
        self.references = self.bursts.iter().map(|burst| burst.references.len()).sum();
        if let Some(pid) = pid {
            self.known.forget(pid);
            self.glances.forget(pid);
        }
        taken
    }
}

#[cfg(test)]
mod tests;
