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
use super::between::{Around, Foreign, Look, Times, divide, least_part};
use super::glances::{Glance, Glances, Position};
use super::known_code::{KnownCode, Met};
use super::weights::Speed;

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

/// Adds to what is waited for. Returns the time of the oldest if there is too much, in ns.
fn lend(all: &mut Vec<Foreign>, new: impl IntoIterator<Item = Foreign>) -> f64 {
    all.extend(new);
    all.drain(..all.len().saturating_sub(MOST_LOOKS)).map(|foreign| foreign.time_ns).sum()
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
        last.stand_for(sum_ns(&self.waiting));
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

/// The bursts that wait, in the order of time.
#[derive(Debug, Default)]
pub struct WaitingBursts {
    bursts: VecDeque<Waiting>,
    /// Accesses in them.
    references: usize,
    /// Looks behind the last burst, by thread, and the thread's process.
    looks: FxHashMap<u32, (u32, Vec<Look>)>,
    /// By thread: what is not of the code of the bursts around it.
    lent: FxHashMap<u32, Lent>,
    glances: Glances,
    known: KnownCode,
    allocations: Allocations,
    /// By thread, what was behind its last burst when all were taken: how often was allocated there its next one tells.
    behind: FxHashMap<u32, Share>,
    /// Processor time in system calls, in ns, but for these looks.
    calls_ns: f64,
    /// Processor time of threads, of which no more is expected, in code that no burst had, in ns.
    unmet_ns: f64,
}

impl WaitingBursts {
    /// A thread's next burst, which took `own_ns`, `period_ns` of processor time behind its burst or look before. It and the burst before
    /// stand for accesses as fast as their own in the time between them. `each` gets the burst before, of which nearly everything is known now,
    /// and what there were more accesses in its time than it says ([`Waiting::with`]).
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
        let times = self.times_before(at, &burst, last);
        self.calls_ns += times.calls;
        burst.before_ns = times.next;
        burst.unseen_before = burst.stand_for(times.next) + times.accesses_elsewhere;
        burst.was_elsewhere = times.was_elsewhere();
        self.take_foreign(&mut burst);
        self.leave_foreign(&mut burst, times.unmet, times.elsewhere);
        if let Some(at) = at {
            let before = &mut self.bursts[at];
            before.learn_from(&burst, true);
            before.behind_ns = times.before;
            burst.counted_before = before.counted;
            burst.unseen_before += before.counted + before.stand_for(times.before);
            self.lent.entry(thread).or_default().give_back(before);
            burst.stand_for(before.pass_on());
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
    ) -> Times {
        let Timing { process, thread, .. } = next.timing;
        let looks = self.looks.remove(&thread).map(|(_, looks)| looks).unwrap_or_default();
        let around = Around {
            bursts: of_thread(&self.bursts, thread).chain([next]).collect(),
            before: at.map(|at| &self.bursts[at]),
            next: Some(next),
            process,
            known: &self.known,
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
        burst.stand_for(sum_ns(&waited) + sum_ns(&too_long) + sum_ns(&taken));
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
        lent.never_met_ns += lend(&mut lent.unmet, unmet);
        for elsewhere in elsewhere {
            match reported_at(&mut self.bursts, thread, elsewhere.whose_ns) {
                Some(there) => there.stand_for(elsewhere.time_ns),
                None => burst.stand_for(lend(&mut lent.waiting, [elsewhere])),
            };
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
        if matches!(at, Position::Waiting(_)) && most_behind_ns < period_ns {
            // The call began within that.
            self.add_look(whose, most_behind_ns, most_behind_ns, at);
            period_ns -= most_behind_ns;
        }
        self.add_look(whose, period_ns, most_behind_ns, at);
    }

    /// Where a thread of a process was since its last tick, when the next comes.
    pub fn glanced(&mut self, whose: (u32, u32), glances: Vec<Glance>) {
        self.glances.add(whose, glances);
    }

    /// A tick came and was over, `period_ns` of processor time behind the one before. Glances since are looks. Returns what is left behind
    /// the last of them, and how much of that its code may have had.
    fn divide_by_glances(&mut self, whose: (u32, u32), tick: (u64, u64), period_ns: f64) -> (f64, f64) {
        let divided = self.glances.divide(whose.1, tick, period_ns);
        if let Some(&(_, Position::Code(ip) | Position::Waiting(ip))) = divided.glances.first()
            && divided.begin_ns > 0.0
        {
            self.add_look(whose, divided.begin_ns, divided.begin_ns, Position::Waiting(ip));
        }
        for (time_ns, at) in divided.glances {
            self.add_look(whose, time_ns, divided.most_behind_ns, at);
        }
        (divided.last_ns, divided.most_behind_ns)
    }

    fn add_look(&mut self, (pid, thread): (u32, u32), period_ns: f64, most_code_ns: f64, at: Position) {
        let (_, looks) = self.looks.entry(thread).or_insert_with(|| (pid, Vec::new()));
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
        let of_thread = |(&thread, (_, looks)): (&u32, &(u32, Vec<Look>))| {
            let before = self.bursts.iter().rfind(|waiting| waiting.timing.thread == thread);
            divide(&Around::nothing(before, &self.known), looks, 0.0, 0.0).calls
        };
        self.calls_ns + self.looks.iter().map(of_thread).sum::<f64>()
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
        for (thread, (_, looks)) in self.looks.extract_if(|_, (process, _)| is_meant(*process)) {
            let before = taken.iter_mut().rfind(|waiting| waiting.timing.thread == thread);
            let times = divide(&Around::nothing(before.as_deref(), &self.known), &looks, 0.0, 0.0);
            self.calls_ns += times.calls;
            if let Some(before) = before {
                let Share { unseen, rate } = before.share();
                before.stand_for(times.before);
                if pid.is_none() {
                    self.behind.insert(thread, Share { unseen: before.share().unseen - unseen, rate });
                }
            }
            if pid.is_some() {
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
mod tests {
    use super::super::weights::Recorded;
    use super::*;
    use Position::{Code, Waiting as InCall};
    use memlens_types::AccessKind;
    use proptest::prelude::*;

    /// Adds a burst that took no time, and none has to go for it.
    fn add(bursts: &mut WaitingBursts, burst: Waiting, period_ns: f64) {
        assert!(bursts.add(burst, 0, period_ns, |_, _| {}).is_empty());
    }

    fn weights(bursts: &WaitingBursts) -> Vec<f64> {
        bursts.bursts.iter().map(|burst| burst.weight).collect()
    }

    fn times(bursts: &WaitingBursts) -> Vec<f64> {
        bursts.bursts.iter().map(|burst| burst.time_ns).collect()
    }

    #[test]
    fn the_time_between_two_bursts_is_half_the_ones_and_half_the_others() {
        let mut bursts = WaitingBursts::default();
        bursts.add(slow(), 0, 1000.0, |_, _| panic!("there was none before"));
        assert_eq!((weights(&bursts), bursts.bursts[0].unseen_before), (vec![120.0], 20.0));
        let mut told = None;
        bursts.add(fast(), 0, 10_000.0, |before, factor| told = Some(before.with(factor).1));
        assert_eq!((weights(&bursts), told), (vec![220.0, 10_200.0], Some(220.0)));
        assert_eq!(bursts.bursts[1].unseen_before, 30.0 + 100.0 + 10_000.0);
        assert_eq!(bursts.calls_ns(), 0.0);
    }

    #[test]
    fn what_was_allocated_between_bursts_tells_how_much_there_was() {
        let mut bursts = WaitingBursts::default();
        for _ in 0..10 {
            // One in the 30 accesses that it counted; 200 more were there in the time before it.
            add(&mut bursts, Waiting { allocations: 1.0, allocations_before: 12.0, ..slow() }, 10_000.0);
        }
        let said: f64 = bursts.bursts.iter().map(|burst| burst.share().unseen / 30.0).sum();
        let before = weights(&bursts)[1];
        let taken = bursts.take_all(None);
        let (Waiting { weight, timing, .. }, times) = (&taken[1], 120.0 / said);
        assert!((1.2..1.4).contains(&times) && before == 300.0, "{times}, {before}");
        let more = (weight - 30.0) / (before - 30.0);
        assert!((more / times - 1.0).abs() < 0.05, "{more} in place of {times}");
        assert!((timing.access_ns * more - slow().timing.access_ns).abs() < 1e-9, "in the same time");
    }

    #[test]
    fn what_is_half_a_system_calls_is_no_bursts() {
        let mut bursts = WaitingBursts::default();
        // Nothing is known of what came before; another thread's calls are its own.
        bursts.look((9, 1), 0, 5000.0, InCall(0x7000));
        bursts.look((9, 2), 0, 100.0, InCall(0x7000));
        assert_eq!(bursts.calls_ns(), 5100.0);
        add(&mut bursts, slow(), 1000.0);
        assert_eq!((weights(&bursts), bursts.bursts[0].unseen_before), (vec![110.0], 10.0));
        assert_eq!(bursts.calls_ns(), 5000.0 + 100.0 + 500.0);
        bursts.look((9, 1), 0, 2000.0, InCall(0x7000));
        bursts.look((9, 1), 0, 700.0, InCall(0x7000));
        assert_eq!(bursts.calls_ns(), 5600.0 + 1000.0 + 700.0);
        add(&mut bursts, fast(), 10_000.0);
        assert_eq!(weights(&bursts), [130.0, 10_200.0]);
        assert_eq!(bursts.bursts[1].unseen_before, 30.0 + 20.0 + 10_000.0);
        assert_eq!(bursts.calls_ns(), 5600.0 + 1000.0 + 700.0 + 5000.0);
        bursts.take_all(Some(9));
        assert_eq!(bursts.calls_ns(), 5600.0 + 1000.0 + 700.0 + 5000.0);
    }

    #[test]
    fn looks_tell_which_of_two_bursts_the_time_between_them_is() {
        let mut bursts = WaitingBursts::default();
        add(&mut bursts, Waiting { code: code(&[0x1000, 0x1010]), ..slow() }, 0.0);
        // In the slow one's code until late, then at the other's; far from both, and in that of both, time decides.
        for at in [0x1014, 0x9000, 0x1008, 0x1018, 0x1031, 0x7777] {
            bursts.look((9, 1), 0, 1000.0, Code(at));
        }
        add(&mut bursts, Waiting { code: code(&[0x1000, 0x1040]), ..fast() }, 1000.0);
        // Its own half, four looks, and half of the next interval.
        assert_eq!(weights(&bursts), [100.0 + 4500.0 / 50.0, 200.0 + 2500.0 / 0.5]);
        assert_eq!(bursts.bursts[1].unseen_before, 30.0 + 4500.0 / 50.0 + 2500.0 / 0.5);
    }

    #[test]
    fn code_of_an_earlier_burst_has_its_time_between_others() {
        let mut bursts = WaitingBursts::default();
        add(&mut bursts, at(1, &[0x1000]), 0.0);
        add(&mut bursts, at(2, &[0x1010]), 1000.0);
        bursts.look((9, 1), 0, 1000.0, Code(0x1004));
        bursts.look((9, 1), 0, 1000.0, Code(0x1004));
        add(&mut bursts, at(3, &[0x1020]), 1000.0);
        assert_eq!(times(&bursts), [500.0 + 2000.0, 500.0 + 500.0, 500.0]);
        // Seen by a thread that goes through memory the accesses are where they were, as fast as there.
        assert_eq!(bursts.bursts[2].unseen_before, (500.0 + 500.0 + 2000.0) / 10.0);
        bursts.look((9, 1), 0, 1000.0, Code(0x1020));
        add(&mut bursts, at(4, &[0x1020]), 1000.0);
        let elsewhere = bursts.bursts.iter().map(|burst| burst.was_elsewhere);
        assert!(elsewhere.eq([None, None, Some(true), Some(false)]), "{bursts:?}");
    }

    #[test]
    fn a_burst_in_which_code_only_ends_does_not_stand_for_it() {
        let mut bursts = WaitingBursts::default();
        add(&mut bursts, at(1, &[0x1000]), 0.0);
        let mixed = |at_ns: u64| Waiting { code: vec![(0x1000, 2), (0x2000, 8)], ..at(at_ns, &[]) };
        add(&mut bursts, mixed(2), 0.0);
        bursts.look((9, 1), 0, 1000.0, Code(0x1000));
        add(&mut bursts, at(3, &[0x2000]), 0.0);
        assert_eq!(times(&bursts), [500.0, 500.0, 0.0]);
        // If it is all there is of it, it does.
        let mut bursts = WaitingBursts::default();
        add(&mut bursts, mixed(1), 0.0);
        bursts.look((9, 1), 0, 1000.0, Code(0x1000));
        add(&mut bursts, at(2, &[0x2000]), 0.0);
        assert_eq!(times(&bursts), [1000.0, 0.0]);
    }

    #[test]
    fn time_that_waits_is_not_for_a_burst_in_which_its_code_only_begins() {
        let mixed = |at_ns: u64| Waiting { code: vec![(0x1000, 2), (0x2000, 8)], ..at(at_ns, &[]) };
        let mut bursts = WaitingBursts::default();
        add(&mut bursts, at(1, &[0x2000]), 0.0);
        bursts.look((9, 1), 0, 1000.0, Code(0x1000));
        // Nothing else is known of it, …
        add(&mut bursts, mixed(2), 0.0);
        assert_eq!(times(&bursts), [500.0, 500.0]);
        // … and now it is.
        add(&mut bursts, at(3, &[0x1000]), 0.0);
        bursts.lent.entry(1).or_default().waiting.push(Foreign {
            pc: 0x1000,
            time_ns: 70.0,
            whose_ns: None,
            age: 0,
        });
        add(&mut bursts, mixed(4), 0.0);
        assert_eq!(times(&bursts), [500.0, 500.0, 0.0, 0.0]);
        add(&mut bursts, at(5, &[0x1000]), 0.0);
        assert_eq!(times(&bursts), [500.0, 500.0, 0.0, 0.0, 70.0]);
    }

    #[test]
    fn of_bursts_of_the_same_code_those_that_are_too_fast_stand_for_no_more() {
        let mut bursts = WaitingBursts::default();
        add(&mut bursts, at(1, &[0x1000]), 0.0);
        add(&mut bursts, at(2, &[0x1000]), 0.0);
        // What was measured behind it is other code.
        let timing = Timing { at_ns: 3, ..of(1, 0.5) };
        add(&mut bursts, Waiting { timing, ..at(3, &[0x1000]) }, 0.0);
        bursts.look((9, 1), 0, 1000.0, Code(0x1000));
        add(&mut bursts, at(4, &[0x2000]), 0.0);
        assert_eq!(times(&bursts), [0.0, 500.0, 500.0, 0.0]);
    }

    #[test]
    fn code_whose_burst_waits_no_more_has_its_time_in_the_next() {
        let mut bursts = WaitingBursts::default();
        bursts.known.add(9, [0x1000].into_iter(), 10.0);
        add(&mut bursts, at(1, &[0x2000]), 0.0);
        bursts.look((9, 1), 0, 1000.0, Code(0x1000));
        add(&mut bursts, at(2, &[0x2000]), 1000.0);
        assert_eq!(times(&bursts), [500.0, 500.0]);
        add(&mut bursts, at(3, &[0x1000]), 0.0);
        assert_eq!(times(&bursts), [500.0, 500.0, 1000.0]);
        // If there is none, those that come at the end have it.
        bursts.look((9, 1), 0, 1000.0, Code(0x1000));
        bursts.known.add(9, [0x3000].into_iter(), 10.0);
        bursts.look((9, 1), 0, 1000.0, Code(0x3000));
        add(&mut bursts, at(4, &[0x2000]), 0.0);
        assert_eq!(times(&bursts), [500.0, 500.0, 2500.0, 0.0]);
        let all: Vec<f64> = bursts.take_all(None).iter().map(|burst| burst.time_ns).collect();
        assert_eq!(all, [500.0, 500.0, 2500.0, 500.0]);
    }

    #[test]
    fn time_in_code_before_the_first_burst_is_that_of_its_code() {
        let mut bursts = WaitingBursts::default();
        for at in [0x1000, 0x5000, 0x9000] {
            bursts.look((9, 1), 0, 1000.0, Code(at));
        }
        add(&mut bursts, at(1, &[0x9000]), 1000.0);
        assert_eq!((times(&bursts), bursts.unmet_ns()), (vec![4000.0], 2000.0));
        // Half before the look there, half behind it.
        add(&mut bursts, at(2, &[0x5000]), 0.0);
        assert_eq!((times(&bursts), bursts.unmet_ns()), (vec![3000.0, 1000.0], 1000.0));
        bursts.take_all(None);
        assert_eq!(bursts.unmet_ns(), 1000.0);
    }

    #[test]
    fn what_is_taken_from_a_burst_that_waits_no_more_others_give_back() {
        let mut bursts = WaitingBursts::default();
        add(&mut bursts, at(1, &[0x1000]), 0.0);
        bursts.look((9, 1), 0, 1000.0, Code(0x5000));
        add(&mut bursts, at(2, &[0x1000]), 1000.0);
        assert_eq!(bursts.take_all(None).len(), 2);
        // Its thread is not forgotten; nobody knows any more who had it.
        bursts.lent.entry(1).or_default().unmet.push(Foreign {
            pc: 0x5000,
            time_ns: 1000.0,
            whose_ns: Some(1),
            age: 0,
        });
        add(&mut bursts, at(3, &[0x5000]), 0.0);
        assert_eq!((times(&bursts), bursts.bursts[0].taken_ns), (vec![1000.0], 1000.0));
        add(&mut bursts, at(4, &[0x1000]), 3000.0);
        add(&mut bursts, at(5, &[0x1000]), 500.0);
        assert_eq!(times(&bursts), [2500.0 - 750.0, 1750.0 - 250.0, 250.0]);
    }

    const MS: u64 = 1_000_000;

    /// One at so many ms, of the code there.
    fn burst(at_ms: u64, address: u64, waiting: Waiting) -> Waiting {
        let timing = Timing { at_ns: at_ms * MS, ..waiting.timing };
        Waiting { timing, code: code(&[address]), ..waiting }
    }

    #[test]
    fn glances_between_two_ticks_are_looks() {
        let mut bursts = WaitingBursts::default();
        add(&mut bursts, burst(10, 0x1000, slow()), 0.0);
        // From 12 ms on in the other's code, and from 16 ms on in a call that ends at 20 ms.
        let glance = |time_ns, ip| Glance { time_ns, period_ns: MS, position: Code(ip) };
        let glances = (11..=16).map(|at| glance(at * MS, if at < 12 { 0x1000 } else { 0x9000 }));
        bursts.glanced((9, 1), glances.collect());
        bursts.look((9, 1), 20 * MS, 10e6, InCall(0x7000));
        // The burst takes a ms; a glance comes in it.
        bursts.glanced((9, 1), vec![glance(21 * MS, 0x9000), glance(22 * MS + 1, 0x4444)]);
        assert!(bursts.add(burst(23, 0x9000, fast()), MS, 2e6, |_, _| {}).is_empty());
        // 4.5 ms up to the last glance, half of a period up to the call, and 1.5 ms of the two behind it.
        assert_eq!(times(&bursts), [1.5e6, 4.5e6 + 0.5e6 + 1.5e6]);
        assert_eq!(bursts.calls_ns(), 4e6);
    }

    #[test]
    fn time_without_glances_is_the_slower_codes() {
        let mut bursts = WaitingBursts::default();
        add(&mut bursts, burst(10, 0x1000, slow()), 0.0);
        // No glance from 12 to 17 ms: page faults, which are the slow code's.
        let glance = |at: u64| Glance {
            time_ns: at * MS,
            period_ns: MS,
            position: Code(if at < 13 { 0x1000 } else { 0x9000 }),
        };
        bursts.glanced((9, 1), [11, 12, 17, 18].map(glance).to_vec());
        add(&mut bursts, burst(19, 0x9000, fast()), 9e6);
        assert_eq!(times(&bursts), [2e6 + 0.5e6 + 4e6, 0.5e6 + 2e6]);
        // Behind the last glance it is so as well.
        bursts.glanced((9, 1), vec![glance(20)]);
        add(&mut bursts, burst(26, 0x1000, slow()), 7e6);
        assert_eq!(times(&bursts), [6.5e6, 2.5e6 + 1e6 + 0.5e6, 0.5e6 + 5e6]);
        // Who knows nothing of glances divides it evenly, as before.
        bursts.look((9, 2), 30 * MS, 4e6, Code(0x9000));
        assert_eq!(bursts.looks[&2].1[0].most_code_ns, 4e6);
    }

    #[test]
    fn phases_shorter_than_the_time_between_bursts_have_their_looks() {
        // One ms of each ten is in other code than the rest. A burst comes every 21 ms, a look every ms between them.
        let (mut bursts, mut weights) = (WaitingBursts::default(), [0.0; 2]);
        let mut feed = |waiting: Waiting| weights[usize::from(waiting.code[0].0 == 0x9000)] += waiting.weight;
        let at = |ms: u64| if ms % 10 == 3 { 0x9000 } else { 0x1000 };
        for ms in 0..21_000 {
            if ms % 21 != 0 {
                bursts.look((9, 1), 0, 1000.0, Code(at(ms)));
                continue;
            }
            let timing = Timing { at_ns: ms, ..of(1, 1.0) };
            let burst = Waiting { timing, code: code(&[at(ms)]), ..Waiting::default() };
            bursts.add(burst, 0, 1000.0, |_, _| {}).into_iter().for_each(&mut feed);
        }
        bursts.take_all(None).into_iter().for_each(feed);
        let [most, tenth] = weights.map(|weight| weight / 21e6);
        assert!((most - 0.9).abs() < 0.001 && (tenth - 0.1).abs() < 0.001, "{most} {tenth}");
    }

    #[test]
    fn a_speed_measured_on_new_code_is_that_of_the_next_burst_of_it() {
        // 2000 ns before it and of the 4000 behind it, at half a ns an access instead of 50, of most or half of the code.
        for (addresses, weight, access_ns) in
            [([1, 2, 9], 100.0 + 4000.0 / 0.5, 0.5), ([1, 7, 9], 100.0 + 4000.0 / 50.0, 50.0)]
        {
            let mut bursts = WaitingBursts::default();
            add(&mut bursts, Waiting { code: code(&addresses), ..slow() }, 2000.0);
            let settled = Waiting { speed: Speed::Settled, code: code(&[1, 2, 3]), ..fast() };
            add(&mut bursts, settled, 4000.0);
            let [first, next] = [&bursts.bursts[0], &bursts.bursts[1]];
            assert_eq!((first.weight, first.timing.access_ns), (weight, access_ns), "{addresses:?}");
            assert_eq!(first.unseen_before, 2000.0 / access_ns);
            assert_eq!(next.unseen_before, 30.0 + 2000.0 / access_ns + 2000.0 / 0.5);
        }
    }

    #[test]
    fn a_speed_that_was_guessed_is_that_of_the_nearest_burst_of_the_code() {
        // A guess of 0.5 ns, where 50 were measured in the same code.
        let guessed = |thread, recorded_ns: Option<f64>| Waiting {
            timing: Timing { process: 0, ..of(thread, 0.5) },
            speed: Speed::Guessed { recorded: recorded_ns.map(|ns| Recorded { ns, shared: 1.0 }) },
            code: code(&[1, 2, 9]),
            ..fast()
        };
        let settled = |thread, access_ns, at: u64| Waiting {
            timing: Timing { process: 0, at_ns: at, ..of(thread, access_ns) },
            speed: Speed::Settled,
            code: code(&[1, 2, 3]),
            ..slow()
        };
        let speeds = |bursts: &WaitingBursts| -> Vec<f64> {
            bursts.bursts.iter().map(|burst| burst.timing.access_ns).collect()
        };
        let mut bursts = WaitingBursts::default();
        // What an access took in the burst may say that it was another phase.
        for recorded_ns in [None, Some(60.0), Some(10_000.0)] {
            add(&mut bursts, guessed(1, recorded_ns), 1000.0);
        }
        assert_eq!(speeds(&bursts), [0.5; 3]);
        let lost = weights(&bursts)[0];
        add(&mut bursts, settled(1, 50.0, 1), 0.0);
        assert_eq!(speeds(&bursts), [50.0, 50.0, 0.5, 50.0]);
        // 1500 ns of its own, at 50 ns an access.
        assert_eq!(lost - weights(&bursts)[0], 1500.0 / 0.5 - 1500.0 / 50.0);
        assert_eq!(bursts.bursts[0].unseen_before, 1000.0 / 50.0);
        // What is counted behind the first, and half of the time before each: the first's is slower now as well.
        assert_eq!(bursts.bursts[1].unseen_before, 40.0 + 500.0 / 50.0 + 500.0 / 50.0);
        // Another thread's tells if there is none of its own; the latest does.
        add(&mut bursts, settled(2, 20.0, 2), 0.0);
        add(&mut bursts, guessed(1, None), 0.0);
        add(&mut bursts, guessed(3, None), 0.0);
        add(&mut bursts, Waiting { code: code(&[7, 8, 9]), ..guessed(3, None) }, 0.0);
        assert_eq!(speeds(&bursts)[5..], [50.0, 20.0, 0.5]);
    }

    #[test]
    fn what_comes_behind_the_last_burst_is_its() {
        let mut bursts = WaitingBursts::default();
        bursts.look((0, 1), 0, 1000.0, Code(0x5000));
        // All before it, too.
        add(&mut bursts, slow(), 1000.0);
        assert_eq!(weights(&bursts), [100.0 + 2000.0 / 50.0]);
        bursts.look((0, 1), 0, 1000.0, Code(0x9000));
        bursts.look((0, 1), 0, 1000.0, InCall(0x7000));
        assert!(bursts.take_all(Some(5)).is_empty());
        let all = bursts.take_all(None);
        assert_eq!(all.iter().map(|waiting| waiting.weight).collect::<Vec<_>>(), [140.0 + 1500.0 / 50.0]);
        assert_eq!(bursts.calls_ns(), 500.0);
    }

    #[test]
    fn what_comes_before_a_system_call_counts_no_more_than_the_rest() {
        let burst = |length: usize, is_cut| Waiting {
            timing: of(1, 1.0),
            weight: length as f64,
            is_cut,
            references: vec![REFERENCE; length],
            ..Waiting::default()
        };
        let mut bursts = WaitingBursts::default();
        let all =
            [burst(1000, false), burst(100, true), burst(1000, false), burst(1000, true), burst(1000, false)];
        all.into_iter().for_each(|burst| add(&mut bursts, burst, 10_000.0));
        let weights: Vec<f64> = bursts.take_all(None).iter().map(|burst| burst.weight).collect();
        // Usually 775 and 873 long by then: the second keeps 129 thousandths of the time around it, the fourth all.
        let kept = 10_000.0 * 100.0 / 775.0;
        let expected = [16_000.0, 100.0 + kept, 11_000.0 + 10_000.0 - kept, 11_000.0, 6000.0];
        assert!(
            weights.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6),
            "{weights:?}"
        );
    }

    proptest! {
        /// Whoever has it, all of the time is somebody's, and twice only what a burst that waited no more had lent.
        #[test]
        fn no_time_is_lost_and_none_counts_twice(
            events in prop::collection::vec((0u32..20, 0u64..12, 1u64..1000, 0u32..8), 1..600)
        ) {
            let mut bursts = WaitingBursts::default();
            let (mut all_ns, mut given_ns, mut twice_ns) = (0.0, 0.0, 0.0);
            let mut give = |burst: Waiting| {
                given_ns += burst.time_ns;
                twice_ns += burst.taken_ns;
            };
            // At the end each thread has a burst: looks alone stand for nothing.
            let ends = (0..20).map(|thread| (thread, 0, 1, 7));
            for (at_ns, (thread, place, period_ns, kind)) in (1..).zip(events.into_iter().chain(ends)) {
                let (pc, period_ns) = (0x1000 * place, period_ns as f64);
                match kind {
                    0..4 => bursts.look((9, thread), at_ns, period_ns, Code(pc + 4)),
                    4 => bursts.look((9, thread), at_ns, period_ns, InCall(0x77_7000)),
                    _ => {
                        let timing = Timing { at_ns, ..of(thread, 1.0) };
                        let burst = Waiting { timing, code: code(&[pc, pc + 0x1000]), ..Waiting::default() };
                        bursts.add(burst, 0, period_ns, |_, _| {}).into_iter().for_each(&mut give);
                    }
                }
                all_ns += period_ns;
            }
            bursts.take_all(None).into_iter().for_each(&mut give);
            let found_ns = given_ns + bursts.calls_ns();
            prop_assert!(found_ns > all_ns - 1e-3, "{} of {}", found_ns, all_ns);
            prop_assert!(found_ns < all_ns + twice_ns + 1e-3, "{} and {} of {}", found_ns, twice_ns, all_ns);
        }
    }

    const REFERENCE: Reference =
        Reference { address: 0, instruction: 0, owner: 0, size: 8, kind: AccessKind::Load };

    /// Of a thread of process 9 whose accesses take so long.
    fn of(thread: u32, access_ns: f64) -> Timing {
        Timing { process: 9, thread, access_ns, ..Timing::default() }
    }

    /// A thread's bursts.
    fn slow() -> Waiting {
        Waiting {
            timing: Timing { process: 0, ..of(1, 50.0) },
            weight: 100.0,
            counted: 30.0,
            ..Waiting::default()
        }
    }

    fn fast() -> Waiting {
        Waiting {
            timing: Timing { process: 0, ..of(1, 0.5) },
            weight: 200.0,
            counted: 40.0,
            ..Waiting::default()
        }
    }

    /// One of thread 1, reported at a time.
    fn at(at_ns: u64, addresses: &[u64]) -> Waiting {
        Waiting { timing: Timing { at_ns, ..of(1, 10.0) }, code: code(addresses), ..Waiting::default() }
    }

    /// Executed ten times each.
    fn code(addresses: &[u64]) -> Vec<(u64, u32)> {
        addresses.iter().map(|&address| (address, 10)).collect()
    }

    #[test]
    fn the_one_that_waited_longest_makes_room() {
        let mut bursts = WaitingBursts::default();
        let one = |thread: u32| Waiting {
            timing: Timing { process: thread % 2, ..of(thread, 1.0) },
            ..Waiting::default()
        };
        (0..MOST as u32 - 1).for_each(|thread| add(&mut bursts, one(thread), 1.0));
        // Thread 0 has another burst.
        let mut had_one = false;
        assert!(bursts.add(one(0), 0, 1.0, |before, _| had_one = before.has_next).is_empty() && had_one);
        let gone = |gone: Vec<Waiting>| gone.iter().map(|burst| burst.timing.thread).collect::<Vec<_>>();
        assert_eq!(gone(bursts.add(one(1000), 0, 1.0, |_, _| {})), [0]);
        assert_eq!(gone(bursts.add(one(1001), 0, 1.0, |_, _| {})), [1]);
        assert_eq!(bursts.take_all(Some(1)).len(), MOST / 2 - 1);
        assert_eq!(bursts.take_all(None).len(), MOST / 2 + 1);
        // Long ones need more room, but the last of each thread.
        let long = |thread| Waiting { references: vec![REFERENCE; MOST_REFERENCES / 2], ..one(thread) };
        [1, 2, 1].into_iter().zip([0, 0, 1]).for_each(|(thread, goes)| {
            assert_eq!(gone(bursts.add(long(thread), 0, 1.0, |_, _| {})), vec![1; goes]);
        });
        assert_eq!(gone(bursts.add(long(3), 0, 1.0, |_, _| {})), [0u32; 0]);
        assert_eq!((bursts.take_all(None).len(), bursts.references), (3, 0));
    }
}
