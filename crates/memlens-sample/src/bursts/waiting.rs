//! Bursts that wait for the next one of their thread: only then it is known what they stand for.
//!
//! ```text
//!  … ───── burst ─────┬──────┬─────┬───────── burst ───── …
//!             look: its code │     look: its code
//!                      look: a system call
//! ```
//!
//! Where in the time between two bursts the program went from what the one saw to what the other saw, looks tell: ticks in between, of
//! which nothing is known but the instruction, and the kernel's glances between ticks (`glances.rs`). The burst whose code is nearer to that has it; if both or none is near, the one
//! nearer in time. Where phases alternate that are shorter than the time between bursts, one that bursts meet seldom would then have no more
//! than what lies around these. If none was near, the thread's next burst that is therefore has the look's time, too, and
//! those that come behind it have so much less. A look in a system call has no burst, and no accesses; nor has one
//! in a loop that waits for other threads, which stands for a call in all of this. Half of the time between two of them all (bursts and
//! looks) is the one's, half the other's: where between them the program went on, nobody knows, and at the middle it is on average,
//! whatever that time's length depends on. It does: a burst where memory is slow or code new costs more, so that the
//! next comes later. If all of that time were the later one's, a short phase behind a slow one would count for many times what it is.
//!
//! A burst that a system call ended lacks what comes behind the call. If it stood for as much as others, what a program does just before
//! its calls would count for too much: every burst that begins anywhere before a call has that, however little else it saw. It keeps
//! the part that its length has of the usual length around it, so that an access counts as much as in bursts that went on; the rest
//! goes to the thread's next burst, in the place of what would have followed.
//!
//! Where a program's next task begins, the first burst translates all of its code, so that the next one comes late, and measures
//! its speed while neither processor nor caches know it: it would stand for a long time of slow accesses. If the
//! next burst is of the same code and its speed, which has settled, is higher, that is the speed of both.

use memlens_locality::{Reference, Timing};
use rustc_hash::FxHashMap;

use super::glances::{Glances, Position};
use super::weights::Speed;

/// Most threads whose last bursts wait, some MB each.
const MOST: usize = 64;
/// Most looks of a thread between two bursts: what comes then stands for what went before. As many that wait for a burst of their code.
const MOST_LOOKS: usize = 4096;
/// Code farther away than this from what a burst executed is not its, in bytes.
const NEAR: u64 = 256;
/// How many of a thread's bursts may come before one of a look's code does.
const PATIENCE: u32 = 32;
/// The most that a burst gives back, as a part of its time around it.
const GIVEN_BACK: f64 = 0.5;

/// A burst of which is known how much it stands for up to its end.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Whose it is, when it was, and how fast.
    pub timing: Timing,
    /// How sure that is.
    pub speed: Speed,
    /// When it began, in cycles.
    pub start: u64,
    /// Accesses for which it stands so far.
    pub weight: f64,
    /// Accesses since the burst before.
    pub unseen_before: f64,
    /// Accesses that were only counted behind it.
    pub counted: f64,
    /// Whether code ended it that bursts leave alone.
    pub is_cut: bool,
    /// Usual length of the thread's bursts up to this one, in accesses.
    pub usual_length: f64,
    /// What it saw.
    pub references: Vec<Reference>,
    /// Addresses in the code that it executed, rising.
    pub code: Vec<u64>,
    /// Processor time before it that it stands for, in ns, back to the burst before.
    pub before_ns: f64,
    /// Processor time that it stands for, in ns …
    pub time_ns: f64,
    /// … and what of it bursts before have had, too, as it is in their time.
    pub taken_ns: f64,
}

/// What a burst's length counts in the usual length: one in so many.
const LENGTHS: f64 = 4.0;

impl Waiting {
    /// Accesses that it stands for by itself: what it saw and what was counted behind it.
    fn own(&self) -> f64 {
        self.references.len() as f64 + self.counted
    }

    /// Takes away what the next burst shall stand for instead.
    fn pass_on(&mut self) -> f64 {
        let kept =
            if self.is_cut { (self.references.len() as f64 / self.usual_length).min(1.0) } else { 1.0 };
        let passed_on = (1.0 - kept) * (self.weight - self.own()).max(0.0);
        self.weight -= passed_on;
        passed_on
    }

    /// Lets it stand for accesses as fast as its own in such a time besides. Returns how many.
    fn stand_for(&mut self, time_ns: f64) -> f64 {
        let accesses = time_ns / self.timing.access_ns;
        self.weight += accesses;
        self.time_ns += time_ns;
        accesses
    }

    /// Takes over how fast the thread's next burst is, if that knows better: new code is slower than known code.
    fn learn_from(&mut self, next: &Self) {
        let is_better = (self.speed, next.speed) == (Speed::New, Speed::Settled)
            && next.timing.access_ns < self.timing.access_ns;
        if is_better && self.is_code_of(next) {
            let more = 1.0 / next.timing.access_ns - 1.0 / self.timing.access_ns;
            self.timing.access_ns = next.timing.access_ns;
            self.weight += self.time_ns * more;
            self.unseen_before += self.before_ns * more;
        }
    }

    /// Whether most of its code is another one's, too.
    fn is_code_of(&self, other: &Self) -> bool {
        let common = self.code.iter().filter(|code| other.code.binary_search(code).is_ok()).count();
        2 * common > self.code.len()
    }

    /// How far an instruction is from what it executed, in bytes. None: too far.
    fn distance(&self, pc: u64) -> Option<u64> {
        let next = self.code.partition_point(|&code| code < pc);
        let around = &self.code[next.saturating_sub(1)..self.code.len().min(next + 1)];
        around.iter().map(|&code| code.abs_diff(pc)).min().filter(|&distance| distance < NEAR)
    }
}

/// A tick between bursts.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Processor time since the burst or look before, in ns.
    period_ns: f64,
    at: Position,
}

/// Whose time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Before,
    Next,
    Call,
}

/// Processor time in ns, by whose it is.
#[derive(Clone, Debug, Default, PartialEq)]
struct Times {
    before: f64,
    next: f64,
    calls: f64,
    /// Of these, what is in neither's code.
    foreign: Vec<Foreign>,
}

/// Time in code of none of the bursts around it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Foreign {
    pc: u64,
    time_ns: f64,
    /// Bursts that have come since.
    age: u32,
}

impl Times {
    fn add(&mut self, owner: Owner, time_ns: f64) {
        *match owner {
            Owner::Before => &mut self.before,
            Owner::Next => &mut self.next,
            Owner::Call => &mut self.calls,
        } += time_ns;
    }

    /// Half of the time behind a look is its code's, too.
    fn add_foreign(&mut self, is_foreign: bool, behind_ns: f64) {
        if let Some(last) = self.foreign.last_mut().filter(|_| is_foreign) {
            last.time_ns += 0.5 * behind_ns;
        }
    }
}

/// Divides the time from one burst to the next, `last_ns` of it behind the last look. A thread's first burst has none before, and
/// what follows its last one has none behind it.
fn divide(before: Option<&Waiting>, next: Option<&Waiting>, looks: &[Look], last_ns: f64) -> Times {
    let whole_ns = looks.iter().map(|look| look.period_ns).sum::<f64>() + last_ns;
    let mut times = Times::default();
    let mut passed_ns = 0.0;
    // What came before the first look of a thread without a burst before is that look's.
    let mut last = before.map(|_| Owner::Before);
    let mut is_foreign = false;
    for look in looks {
        passed_ns += look.period_ns;
        times.add_foreign(is_foreign, look.period_ns);
        is_foreign = false;
        let owner = match (look.at, before, next) {
            (Position::Waiting(_), ..) => Owner::Call,
            (Position::Code(pc), None, next) => {
                is_foreign = next.is_some_and(|next| next.distance(pc).is_none());
                Owner::Next
            }
            (Position::Code(_), Some(_), None) => Owner::Before,
            (Position::Code(pc), Some(before), Some(next)) => {
                match (before.distance(pc), next.distance(pc)) {
                    (Some(one), Some(other)) if one < other => Owner::Before,
                    (Some(one), Some(other)) if other < one => Owner::Next,
                    (Some(_), None) => Owner::Before,
                    (None, Some(_)) => Owner::Next,
                    (one, other) => {
                        is_foreign = one.is_none() && other.is_none();
                        if 2.0 * passed_ns < whole_ns { Owner::Before } else { Owner::Next }
                    }
                }
            }
        };
        if let (Position::Code(pc), true) = (look.at, is_foreign) {
            times.foreign.push(Foreign { pc, time_ns: 0.5 * look.period_ns, age: 0 });
        }
        times.add(last.unwrap_or(owner), 0.5 * look.period_ns);
        times.add(owner, 0.5 * look.period_ns);
        last = Some(owner);
    }
    times.add_foreign(is_foreign, last_ns);
    times.add(last.unwrap_or(Owner::Next), 0.5 * last_ns);
    times.add(Owner::Next, 0.5 * last_ns);
    times
}

/// What bursts of a thread have that is not of their code.
#[derive(Debug, Default)]
struct Lent {
    foreign: Vec<Foreign>,
    /// What has been taken by bursts of the code, and not been given back by others.
    owed_ns: f64,
    /// What no burst of the code has taken in time.
    unmet_ns: f64,
}

impl Lent {
    /// Time in other code than that of the bursts around it, which have it for now. The oldest is forgotten if there is too much.
    fn lend(&mut self, foreign: Vec<Foreign>) {
        self.foreign.extend(foreign);
        self.foreign.drain(..self.foreign.len().saturating_sub(MOST_LOOKS));
    }

    /// What a burst, which has come, has in addition: time in its code that others have.
    fn take(&mut self, burst: &Waiting) -> f64 {
        let mut taken_ns = 0.0;
        self.foreign.retain_mut(|foreign| {
            foreign.age += 1;
            let is_its = burst.distance(foreign.pc).is_some();
            let is_kept = !is_its && foreign.age < PATIENCE;
            if is_its {
                taken_ns += foreign.time_ns;
            } else if !is_kept {
                self.unmet_ns += foreign.time_ns;
            }
            is_kept
        });
        self.owed_ns += taken_ns;
        taken_ns
    }

    /// Takes away what others have taken from a burst of which everything else is known, unless it is one of these itself.
    fn give_back(&mut self, burst: &mut Waiting) {
        let own_ns = burst.time_ns - burst.taken_ns;
        if own_ns > burst.taken_ns {
            let given_back = self.owed_ns.min(GIVEN_BACK * own_ns);
            burst.stand_for(-given_back);
            self.owed_ns -= given_back;
        }
    }

    /// Time in code that no burst had, of a thread of which nothing more comes.
    fn left_ns(&self) -> f64 {
        self.unmet_ns + self.foreign.iter().map(|foreign| foreign.time_ns).sum::<f64>()
    }
}

/// Each thread's last burst, the one that came first at the front.
#[derive(Debug, Default)]
pub struct WaitingBursts {
    bursts: Vec<Waiting>,
    /// Looks behind the last burst, by thread, and the thread's process.
    looks: FxHashMap<u32, (u32, Vec<Look>)>,
    /// By thread: what its bursts have that is not of their code.
    lent: FxHashMap<u32, Lent>,
    glances: Glances,
    /// Processor time in system calls, in ns, but for these looks.
    calls_ns: f64,
    /// Processor time of threads, of which no more is expected, in code that no burst had, in ns.
    unmet_ns: f64,
}

impl WaitingBursts {
    /// A thread's next burst, `period_ns` of processor time behind its burst or look before. It and the burst before stand for
    /// accesses as fast as their own in the time between them. Given back is the burst before, of which everything is known now.
    pub fn next(&mut self, burst: &mut Waiting, own_ns: u64, period_ns: f64) -> Option<Waiting> {
        let Timing { process, thread, at_ns, .. } = burst.timing;
        let (period_ns, _) =
            self.divide_by_glances((process, thread), (at_ns.saturating_sub(own_ns), at_ns), period_ns);
        let at = self.bursts.iter().position(|waiting| waiting.timing.thread == burst.timing.thread);
        let mut before = at.map(|at| self.bursts.remove(at));
        let looks = self.looks.remove(&burst.timing.thread).map(|(_, looks)| looks).unwrap_or_default();
        let times = divide(before.as_ref(), Some(burst), &looks, period_ns);
        self.calls_ns += times.calls;
        burst.before_ns = times.next;
        burst.unseen_before = burst.stand_for(times.next);
        let lent = self.lent.entry(burst.timing.thread).or_default();
        burst.taken_ns = lent.take(burst);
        burst.stand_for(burst.taken_ns);
        lent.lend(times.foreign);
        burst.usual_length = burst.references.len() as f64;
        if let Some(before) = &mut before {
            before.learn_from(burst);
            burst.unseen_before += before.counted + before.stand_for(times.before);
            lent.give_back(before);
            burst.weight += before.pass_on();
            burst.usual_length = before.usual_length + (burst.usual_length - before.usual_length) / LENGTHS;
        }
        before
    }

    /// Where a thread of a process was at a time, `period_ns` of processor time behind its burst or look before.
    pub fn look(&mut self, whose: (u32, u32), at_ns: u64, period_ns: f64, at: Position) {
        let (mut period_ns, most_behind_ns) = self.divide_by_glances(whose, (at_ns, at_ns), period_ns);
        if let Position::Waiting(ip) = at {
            self.glances.note_waiting(whose.0, ip);
            if most_behind_ns < period_ns {
                // The call began within that.
                self.add_look(whose, most_behind_ns, at);
                period_ns -= most_behind_ns;
            }
        }
        self.add_look(whose, period_ns, at);
    }

    /// Where a thread of a process was, between what its ticks tell.
    pub fn glance(&mut self, whose: (u32, u32), time_ns: u64, period_ns: u64, ip: u64) {
        self.glances.add(whose, time_ns, period_ns, ip);
    }

    /// A tick came and was over, `period_ns` of processor time behind the one before. Glances since are looks. Returns what is left behind
    /// the last of them, and how much of that its code may have had.
    fn divide_by_glances(&mut self, whose: (u32, u32), tick: (u64, u64), period_ns: f64) -> (f64, f64) {
        let divided = self.glances.divide(whose.1, tick, period_ns);
        for (time_ns, at) in divided.glances {
            self.add_look(whose, time_ns, at);
        }
        (divided.last_ns, divided.most_behind_ns)
    }

    fn add_look(&mut self, (pid, thread): (u32, u32), period_ns: f64, at: Position) {
        let (_, looks) = self.looks.entry(thread).or_insert_with(|| (pid, Vec::new()));
        match looks.get_mut(MOST_LOOKS - 1) {
            Some(last) => last.period_ns += period_ns,
            None => looks.push(Look { period_ns, at }),
        }
    }

    /// Processor time in system calls, in ns.
    pub fn calls_ns(&self) -> f64 {
        let of_thread = |(&thread, (_, looks)): (&u32, &(u32, Vec<Look>))| {
            let before = self.bursts.iter().find(|waiting| waiting.timing.thread == thread);
            divide(before, None, looks, 0.0).calls
        };
        self.calls_ns + self.looks.iter().map(of_thread).sum::<f64>()
    }

    /// Processor time in code that no burst had, in ns, as far as looks tell. It stands for what the bursts around it saw.
    pub fn unmet_ns(&self) -> f64 {
        self.unmet_ns + self.lent.values().map(Lent::left_ns).sum::<f64>()
    }

    /// The last bursts of a process, or of all. They stand for what came behind them, too.
    pub fn take_all(&mut self, pid: Option<u32>) -> Vec<Waiting> {
        let is_meant = |process: u32| pid.is_none_or(|pid| process == pid);
        self.glances.forget(pid);
        let mut last: Vec<Waiting> =
            self.bursts.extract_if(.., |waiting| is_meant(waiting.timing.process)).collect();
        for (thread, (_, looks)) in self.looks.extract_if(|_, (process, _)| is_meant(*process)) {
            let before = last.iter_mut().find(|waiting| waiting.timing.thread == thread);
            let times = divide(before.as_deref(), None, &looks, 0.0);
            self.calls_ns += times.calls;
            if let Some(before) = before {
                before.stand_for(times.before);
            }
        }
        for burst in &mut last {
            let mut lent = self.lent.remove(&burst.timing.thread).unwrap_or_default();
            lent.give_back(burst);
            self.unmet_ns += lent.left_ns();
        }
        last
    }

    /// Lets one wait. Another one that has to go for it has waited longest.
    pub fn add(&mut self, waiting: Waiting) -> Option<Waiting> {
        let first = (self.bursts.len() == MOST).then(|| self.bursts.remove(0));
        if let Some(first) = &first
            && let Some(lent) = self.lent.remove(&first.timing.thread)
        {
            self.unmet_ns += lent.left_ns();
        }
        self.bursts.push(waiting);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Position::{Code, Waiting as InCall};
    use memlens_types::AccessKind;

    #[test]
    fn the_time_between_two_bursts_is_half_the_ones_and_half_the_others() {
        let mut bursts = WaitingBursts::default();
        let mut slow = slow();
        assert!(bursts.next(&mut slow, 0, 1000.0).is_none());
        assert_eq!((slow.weight, slow.unseen_before), (120.0, 20.0));
        bursts.add(slow);
        let mut fast = fast();
        let slow = bursts.next(&mut fast, 0, 10_000.0).expect("the one before");
        assert_eq!((slow.weight, fast.weight), (220.0, 10_200.0));
        assert_eq!(fast.unseen_before, 30.0 + 100.0 + 10_000.0);
        assert_eq!(bursts.calls_ns(), 0.0);
    }

    #[test]
    fn what_is_half_a_system_calls_is_no_bursts() {
        let mut bursts = WaitingBursts::default();
        // Nothing is known of what came before; another thread's calls are its own.
        bursts.look((9, 1), 0, 5000.0, InCall(0x7000));
        bursts.look((9, 2), 0, 100.0, InCall(0x7000));
        assert_eq!(bursts.calls_ns(), 5100.0);
        let mut slow = slow();
        assert!(bursts.next(&mut slow, 0, 1000.0).is_none());
        assert_eq!((slow.weight, slow.unseen_before), (110.0, 10.0));
        assert_eq!(bursts.calls_ns(), 5000.0 + 100.0 + 500.0);
        bursts.add(slow);
        bursts.look((9, 1), 0, 2000.0, InCall(0x7000));
        bursts.look((9, 1), 0, 700.0, InCall(0x7000));
        assert_eq!(bursts.calls_ns(), 5600.0 + 1000.0 + 700.0);
        let mut fast = fast();
        let slow = bursts.next(&mut fast, 0, 10_000.0).expect("the one before");
        assert_eq!((slow.weight, fast.weight), (130.0, 10_200.0));
        assert_eq!(fast.unseen_before, 30.0 + 20.0 + 10_000.0);
        assert_eq!(bursts.calls_ns(), 5600.0 + 1000.0 + 700.0 + 5000.0);
        bursts.take_all(Some(9));
        assert_eq!(bursts.calls_ns(), 5600.0 + 1000.0 + 700.0 + 5000.0);
    }

    #[test]
    fn looks_tell_which_of_two_bursts_the_time_between_them_is() {
        let code = |waiting: Waiting, code: &[u64]| Waiting { code: code.to_vec(), ..waiting };
        let mut bursts = WaitingBursts::default();
        let mut slow = code(slow(), &[0x1000, 0x1010]);
        bursts.next(&mut slow, 0, 0.0);
        bursts.add(slow);
        // In the slow one's code until late, then at the other's; far from both, and as near to both, time decides.
        for at in [0x1014, 0x9000, 0x1008, 0x1024, 0x1031, 0x7777] {
            bursts.look((9, 1), 0, 1000.0, Code(at));
        }
        let mut fast = code(fast(), &[0x1000, 0x1040]);
        let slow = bursts.next(&mut fast, 0, 1000.0).expect("the one before");
        // Its own half, four looks, and half of the next interval.
        assert_eq!(slow.weight, 100.0 + 4500.0 / 50.0);
        assert_eq!(fast.weight, 200.0 + 2500.0 / 0.5);
        assert_eq!(fast.unseen_before, 30.0 + 4500.0 / 50.0 + 2500.0 / 0.5);
    }

    #[test]
    fn time_in_code_before_the_first_burst_is_that_of_its_code() {
        let code = |waiting: Waiting, code: &[u64]| Waiting { code: code.to_vec(), ..waiting };
        let mut bursts = WaitingBursts::default();
        for at in [0x1000, 0x5000, 0x9000] {
            bursts.look((9, 1), 0, 1000.0, Code(at));
        }
        let mut first = code(slow(), &[0x9000]);
        bursts.next(&mut first, 0, 1000.0);
        assert_eq!(first.time_ns, 4000.0);
        bursts.add(first);
        assert_eq!(bursts.unmet_ns(), 2000.0);
        let mut next = code(fast(), &[0x5000]);
        let before = bursts.next(&mut next, 0, 0.0).expect("the one before");
        // Half before the look there, half behind it, and given back at once.
        assert_eq!((next.taken_ns, before.time_ns), (1000.0, 3000.0));
        assert_eq!(bursts.unmet_ns(), 1000.0);
        bursts.add(next);
        bursts.take_all(None);
        assert_eq!(bursts.unmet_ns(), 1000.0);
    }

    #[test]
    fn glances_between_two_ticks_are_looks() {
        const MS: u64 = 1_000_000;
        let code = |waiting: Waiting, at_ms: u64, code: u64| {
            let timing = Timing { at_ns: at_ms * MS, ..waiting.timing };
            Waiting { timing, code: vec![code], ..waiting }
        };
        let mut bursts = WaitingBursts::default();
        let mut slow = code(slow(), 10, 0x1000);
        bursts.next(&mut slow, 0, 0.0);
        bursts.add(slow);
        // From 12 ms on in the other's code, and from 16 ms on in a call that ends at 20 ms.
        for at in 11..=16 {
            bursts.glance((9, 1), at * MS, MS, if at < 12 { 0x1000 } else { 0x9000 });
        }
        bursts.look((9, 1), 20 * MS, 10e6, InCall(0x7000));
        // The burst takes a ms; a glance comes in it.
        bursts.glance((9, 1), 21 * MS, MS, 0x9000);
        bursts.glance((9, 1), 22 * MS + 1, MS, 0x4444);
        let mut fast = code(fast(), 23, 0x9000);
        let slow = bursts.next(&mut fast, MS, 2e6).expect("the one before");
        assert_eq!(slow.time_ns, 1.5e6);
        // 4.5 ms up to the last glance, half of a period up to the call, and 1.5 ms of the two behind it.
        assert_eq!(fast.time_ns, 4.5e6 + 0.5e6 + 1.5e6);
        assert_eq!(bursts.calls_ns(), 4e6);
    }

    #[test]
    fn phases_shorter_than_the_time_between_bursts_have_their_looks() {
        // One ms of each ten is in other code than the rest. A burst comes every 21 ms, a look every ms between them.
        let (mut bursts, mut weights) = (WaitingBursts::default(), [0.0; 2]);
        let mut feed = |waiting: Waiting| weights[usize::from(waiting.code[0] == 0x9000)] += waiting.weight;
        let at = |ms: u64| if ms % 10 == 3 { 0x9000 } else { 0x1000 };
        for ms in 0..21_000 {
            if ms % 21 != 0 {
                bursts.look((9, 1), 0, 1000.0, Code(at(ms)));
                continue;
            }
            let mut burst = Waiting { timing: of(1, 1.0), code: vec![at(ms)], ..Waiting::default() };
            if let Some(before) = bursts.next(&mut burst, 0, 1000.0) {
                feed(before);
            }
            bursts.add(burst);
        }
        bursts.take_all(None).into_iter().for_each(feed);
        let [most, tenth] = weights.map(|weight| weight / 21e6);
        assert!((most - 0.9).abs() < 0.01 && (tenth - 0.1).abs() < 0.01, "{most} {tenth}");
    }

    #[test]
    fn a_speed_measured_on_new_code_is_that_of_the_next_burst_of_it() {
        let new = |code: &[u64]| Waiting { code: code.to_vec(), ..slow() };
        let settled = Waiting { speed: Speed::Settled, code: vec![1, 2, 3], ..fast() };
        // 2000 ns before it and of the 4000 behind it, at half a ns an access instead of 50, of most or half of the code.
        for (code, weight, access_ns) in
            [(&[1, 2, 9], 100.0 + 4000.0 / 0.5, 0.5), (&[1, 7, 9], 100.0 + 4000.0 / 50.0, 50.0)]
        {
            let mut bursts = WaitingBursts::default();
            let mut first = new(code);
            bursts.next(&mut first, 0, 2000.0);
            bursts.add(first);
            let mut next = Waiting { references: Vec::new(), code: settled.code.clone(), ..settled };
            let first = bursts.next(&mut next, 0, 4000.0).expect("the one before");
            assert_eq!((first.weight, first.timing.access_ns), (weight, access_ns), "{code:?}");
            assert_eq!(first.unseen_before, 2000.0 / access_ns);
            assert_eq!(next.unseen_before, 30.0 + 2000.0 / access_ns + 2000.0 / 0.5);
        }
    }

    #[test]
    fn what_comes_behind_the_last_burst_is_its() {
        let mut bursts = WaitingBursts::default();
        bursts.look((0, 1), 0, 1000.0, Code(0x5000));
        let mut only = slow();
        // All before it, too.
        bursts.next(&mut only, 0, 1000.0);
        assert_eq!(only.weight, 100.0 + 2000.0 / 50.0);
        bursts.add(only);
        bursts.look((0, 1), 0, 1000.0, Code(0x9000));
        bursts.look((0, 1), 0, 1000.0, InCall(0x7000));
        assert!(bursts.take_all(Some(5)).is_empty());
        let all = bursts.take_all(None);
        assert_eq!(all.iter().map(|waiting| waiting.weight).collect::<Vec<_>>(), [140.0 + 1500.0 / 50.0]);
        assert_eq!(bursts.calls_ns(), 500.0);
    }

    #[test]
    fn what_comes_before_a_system_call_counts_no_more_than_the_rest() {
        let reference = Reference { address: 0, instruction: 0, owner: 0, size: 8, kind: AccessKind::Load };
        let burst = |length: usize, is_cut| Waiting {
            timing: of(0, 1.0),
            weight: length as f64,
            is_cut,
            references: vec![reference; length],
            ..Waiting::default()
        };
        let mut bursts = WaitingBursts::default();
        let mut weights = Vec::new();
        let all =
            [burst(1000, false), burst(100, true), burst(1000, false), burst(1000, true), burst(1000, false)];
        for mut burst in all {
            weights.extend(bursts.next(&mut burst, 0, 10_000.0).map(|before| before.weight));
            bursts.add(burst);
        }
        weights.extend(bursts.take_all(None).iter().map(|last| last.weight));
        // Usually 775 and 873 long by then: the second keeps 129 thousandths of the time around it, the fourth all.
        let kept = 10_000.0 * 100.0 / 775.0;
        let expected = [16_000.0, 100.0 + kept, 11_000.0 + 10_000.0 - kept, 11_000.0, 6000.0];
        assert!(
            weights.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6),
            "{weights:?}"
        );
    }

    /// Of a thread whose accesses take so long.
    fn of(thread: u32, access_ns: f64) -> Timing {
        Timing { thread, access_ns, ..Timing::default() }
    }

    /// A thread's bursts.
    fn slow() -> Waiting {
        Waiting { timing: of(1, 50.0), weight: 100.0, counted: 30.0, ..Waiting::default() }
    }

    fn fast() -> Waiting {
        Waiting { timing: of(1, 0.5), weight: 200.0, counted: 40.0, ..Waiting::default() }
    }

    #[test]
    fn the_one_that_waited_longest_makes_room() {
        let mut bursts = WaitingBursts::default();
        let one = |thread: u32| Waiting {
            timing: Timing { process: thread % 2, ..of(thread, 1.0) },
            ..Waiting::default()
        };
        assert!((0..MOST as u32).all(|thread| bursts.add(one(thread)).is_none()));
        // Thread 0 has another burst.
        let mut next = one(0);
        assert!(bursts.next(&mut next, 0, 1.0).is_some() && bursts.next(&mut next, 0, 1.0).is_none());
        assert!(bursts.add(next).is_none());
        assert_eq!(bursts.add(one(1000)).map(|first| first.timing.thread), Some(1));
        assert_eq!(bursts.take_all(Some(1)).len(), MOST / 2 - 1);
        assert_eq!(bursts.take_all(None).len(), MOST / 2 + 1);
    }
}
