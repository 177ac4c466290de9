//! Which ticks begin bursts, how long they are, and what is reported of them. Bursts themselves: `memlens-burst`.
//!
//! # Budget
//! A burst's processor time is measured, and what the program did in it by itself is taken off: as many words as it had,
//! at the speed of the stretch behind it that only counts. The thread's next tick comes no sooner than the rest divided
//! by the part of the thread's time that bursts may take. So a program of much new code, whose bursts are spent
//! translating, has fewer of them, and one that waits for memory more. What a burst may translate is limited, too.
//!
//! Nor do ticks come more than so often; twice as often for the first bursts of a process.
//!
//! The first process begins with an advance ([`Control::burst_advance_ns`]), and ticks come more often until it is used up: a short
//! program has some bursts, too. Then bursts take half of their part only, until they have paid it back. Children and executed
//! programs share it: a build is thousands of processes of some ms.
//!
//! # Looks
//! Ticks that come before a burst is due only look where the thread is: some µs each, several between two bursts. They tell which
//! burst's code the time between the two belongs to.
//!
//! # New code
//! A look in code that no burst has met ([`MetCode`]) begins one at once: a phase of some ms would be missed else. It comes on credit: the next
//! one is later by as much as this one is too soon. For the first 750 ms of a program's first thread the kernel's clock prompts the agent each ms or some
//! to look whether there is such code, or a burst due (`memlens-sample/src/prompts.rs`).
//!
//! # Length
//! One burst in twelve has sixteen times the words of the others: how long it is until a line is used again is known only as far as a
//! burst reaches, and caches hold what is used again after more accesses than short bursts have. A few long ones tell, at
//! a fraction of what it would cost if all were as long: what the others have to tell is where the program is, and that many
//! short ones tell better than few long ones.
//!
//! # Signal safety
//! The hooks run on the burst runtime's stack, with the program's signals blocked. They write to the ring and ask for
//! the time.

mod faults;
mod met_code;
mod prompts;

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

pub use memlens_burst::Area;
use memlens_burst::{Burst, Hooks, Limits, NewBlock};
use memlens_events::agent::{BlockHead, BurstHead, Control, Kind, RING_BYTES};
use memlens_events::burst::{End, REFERENCE_WORDS};
use memlens_events::restriction;

pub use self::faults::end;
#[cfg(not(test))]
pub use self::faults::{set_action, set_signal, set_sigset, set_sysv_signal};
use self::met_code::MetCode;
use crate::arch::{self, number, syscall};
#[cfg(not(test))]
use crate::hooks;
use crate::real;
use crate::real::call;
use crate::ring::{Segment, now_ns};
use crate::session::{check_reader, report_mappings, segment, visit};
use crate::signal_action::SignalAction;
use crate::thread_area::ThreadArea;
use crate::ticks;

/// For the decoder of instructions, which asks for memory at its first use.
#[cfg(all(panic = "abort", not(test)))]
#[global_allocator]
static ALLOCATOR: memlens_burst::heap::OwnHeap = memlens_burst::heap::OwnHeap::new();

/// Signals that come besides the ticks', in a signal mask.
pub const SIGNALS: usize = 1 << (prompts::SIGNAL - 1);

/// Functions that lead through the agent for the sake of bursts alone.
#[cfg(not(test))]
pub static HOOKED: [hooks::Row; 8] = {
    use crate::own_entries as own;
    [
        (b"sigaction", own::sigaction, &real::SIGACTION),
        (b"signal", own::signal, &real::SIGNAL),
        (b"bsd_signal", own::bsd_signal, &real::SIGNAL),
        (b"ssignal", own::ssignal, &real::SIGNAL),
        (b"sysv_signal", own::sysv_signal, &real::SYSV_SIGNAL),
        (b"__sysv_signal", own::__sysv_signal, &real::SYSV_SIGNAL),
        (b"sigset", own::sigset, &real::SIGSET),
        (b"dlclose", own::dlclose, &real::DLCLOSE),
    ]
};

/// Of the thread's time, in millionths.
const ALL: u64 = 1_000_000;
/// Blocks that a burst may translate: at some 3 µs each, most of a millisecond.
const NEW_BLOCKS: u32 = 300;
/// Cycles that it may spend on that.
const RUNTIME_CYCLES: u64 = 3_000_000;
/// References that a block can have.
const MOST_REFERENCES: usize = 256;

const HOOKS: Hooks = Hooks { block: on_block, burst: on_burst };

/// As long as bursts owe something they cost so many times as much: with 2, half of their part of the time pays it back.
const OWING: u64 = 2;

/// Of the words of a burst, how many times as many are counted behind it at most.
const COUNTED: usize = 4;
/// Processor time after which a burst has enough, in ns: one that waits for memory at each access would take what ten others
/// take.
const RECORDED_NS: u64 = 2_000_000;
/// How many times more often ticks come while there is an advance.
const HURRY: u64 = 4;

/// One burst in so many is longer: it sees uses of a line that lie further apart …
const LONG_EACH: u32 = 12;
/// … by this factor …
const LONGER: usize = 16;
/// … but not longer than a quarter of a ring, in words, and only while no more than a burst waits to be read.
const MOST_WORDS: usize = RING_BYTES / 32;

/// A burst comes no more than this too soon, in ns of the thread's time, if bursts may take what they could at the begin, and by as much longer as
/// they may take less (where no processor is idle, memlens's own work leaves a tenth or fewer: a phase of a second had no burst) …
const MOST_BORROWED_NS: u64 = 250_000_000;
/// … nor by more than what the thread has run and this: it may end before it has paid back.
const BORROWED_AT_ONCE_NS: u64 = 50_000_000;

/// Nor if of the last bursts so many more were given up for what translation took than had their length: in a program whose code is always new
/// (a compiler) all that has just begun is, and its data with it.
const MOST_GIVEN_UP: u32 = 2;
/// They are counted up to this.
const GIVEN_UP_CAP: u32 = 8;

/// What bursts of this process have met.
static MET: MetCode = MetCode::new();
/// Bursts that were given up, less those that had their length.
static GIVEN_UP: AtomicU32 = AtomicU32::new(0);
/// Of the thread's time, in millionths: what they could take at the begin.
static AT_BEGIN: AtomicU32 = AtomicU32::new(0);
/// Words of a burst; 0: there are none.
static WORDS: AtomicU32 = AtomicU32::new(0);
/// Of how many ticks come twice as often.
static OFTEN: AtomicU32 = AtomicU32::new(0);
/// Whether they may take a part of the program's time only.
static ARE_APART: AtomicBool = AtomicBool::new(false);
/// Bursts begun.
static BEGUN: AtomicU32 = AtomicU32::new(0);
/// The process whose mappings memlens looks at from its begin on.
static LOOKED_AT: AtomicU32 = AtomicU32::new(0);
/// The process (upper half), and how many bursts it has reported: a forked child begins anew.
static REPORTED: AtomicU64 = AtomicU64::new(0);
/// The last burst before which other processes report their mappings; halves of it are the others, down to the first.
const LAST_MAPPINGS: u64 = 16;

/// Sees whether bursts are wanted and possible. `action`: what the ticks' signal does, and what prompts shall do.
pub fn prepare(control: &Control, action: &SignalAction) {
    let words = control.burst_words.load(Ordering::Relaxed);
    if words == 0 {
        return;
    }
    match memlens_burst::check_support() {
        Ok(()) => {
            faults::prepare();
            memlens_burst::filter_operations(control.burst_filter.load(Ordering::Relaxed) != 0);
            let millionths = u64::from(control.burst_millionths.load(Ordering::Relaxed));
            // This reader knows none of the blocks that were made for another one.
            memlens_burst::code_has_changed();
            ARE_APART.store(millionths < ALL, Ordering::Relaxed);
            AT_BEGIN.store(millionths as u32, Ordering::Relaxed);
            MET.clear();
            GIVEN_UP.store(0, Ordering::Relaxed);
            OFTEN.store(control.bursts_often.load(Ordering::Relaxed), Ordering::Relaxed);
            WORDS.store(words, Ordering::Relaxed);
        }
        Err(missing) => control.no_bursts.store(missing as u32 + 1, Ordering::Relaxed),
    }
    if are_apart() {
        // SAFETY: the call only asks.
        let pid = unsafe { syscall(number::GETPID, [0; 6]) } as u32;
        prompts::prepare(control, pid, action);
    }
}

/// Prompts, which `handler` has, are ignored from now on.
pub fn end_prompts(handler: usize) {
    prompts::end(handler);
}

/// Whether a signal is a prompt.
pub fn is_prompt(signal: c_int) -> bool {
    signal == prompts::SIGNAL as c_int
}

/// In a forked child: its only thread is in no burst.
pub fn forget_after_fork(area: &ThreadArea) {
    memlens_burst::forget_after_fork(&area.burst);
}

/// Whether the calling thread, which was about to execute the instruction at `ip`, waits in a loop for another one; where there
/// are bursts.
///
/// # Safety
/// The thread is about to go on there.
pub unsafe fn is_waiting(ip: u64) -> bool {
    // SAFETY: the caller's promise.
    are_wanted() && unsafe { memlens_burst::is_waiting(ip) }
}

/// memlens started this process, and looks at what it maps.
pub fn set_looked_at(pid: u32) {
    LOOKED_AT.store(pid, Ordering::Relaxed);
}

/// The number of a process's next burst, from 1 on.
fn next_number(pid: u32) -> u64 {
    let none = u64::from(pid) << 32;
    let next = |before: u64| 1 + if before >> 32 == u64::from(pid) { before } else { none };
    let before = REPORTED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| Some(next(before)));
    next(before.unwrap_or_default()) - none
}

/// Whether a process's mappings are reported before its burst with this number: if it has been made by another one, and may
/// have ended when memlens looks. It maps most at its begin.
fn are_mappings_due(pid: u32, number: u64) -> bool {
    pid != LOOKED_AT.load(Ordering::Relaxed) && number <= LAST_MAPPINGS && number.is_power_of_two()
}

/// None from now on.
pub fn stop() {
    WORDS.store(0, Ordering::Relaxed);
}

/// Whether a thread is in one.
pub fn are_active() -> bool {
    memlens_burst::active() != 0
}

/// Begins a burst when the handler that got `context` returns, if there should be one. Whether there will: then the
/// next tick is set when it ends.
///
/// # Safety
/// Called from the tick's handler.
pub unsafe fn begin(context: *mut c_void, segment: Segment, area: &ThreadArea, period_ns: u64) -> bool {
    let control = segment.control();
    let words = WORDS.load(Ordering::Relaxed) as usize;
    if words == 0 {
        return false;
    }
    let is_long = BEGUN.fetch_add(1, Ordering::Relaxed) % LONG_EACH == LONG_EACH - 1
        && segment.waiting_bytes(area.tid.get()) <= 8 * words;
    let mut limits = Limits {
        words: if is_long { words.max((LONGER * words).min(MOST_WORDS)) } else { words },
        recorded_ns: RECORDED_NS,
        counted_words: COUNTED * words,
        new_blocks: NEW_BLOCKS,
        runtime_cycles: RUNTIME_CYCLES,
    };
    if u64::from(control.burst_millionths.load(Ordering::Relaxed)) >= ALL {
        // Nothing lies between bursts whose length would have to be known.
        limits.words = words;
        limits.counted_words = 0;
        limits.recorded_ns = u64::MAX;
        (limits.new_blocks, limits.runtime_cycles) = (u32::MAX, u64::MAX);
    }
    let (start, end) = arch::own_image();
    // SAFETY: the caller's promise; `prepare` has looked whether bursts are possible.
    let begun =
        unsafe { memlens_burst::begin(context, &area.burst, limits, HOOKS, (start as u64, end as u64)) };
    if begun.is_err() {
        control.bursts_not_begun.fetch_add(1, Ordering::Relaxed);
        return false;
    }
    area.burst_period_ns.set(area.burst_period_ns.get() + period_ns);
    area.calls_at_begin.set(area.budget.calls());
    true
}

/// Whether there are bursts.
pub fn are_wanted() -> bool {
    WORDS.load(Ordering::Relaxed) > 0
}

/// Whether there are bursts, with the program's own code between them.
pub fn are_apart() -> bool {
    are_wanted() && ARE_APART.load(Ordering::Relaxed)
}

/// By how much ticks come more often than they should in the long run.
pub fn hurry(control: &Control) -> u64 {
    let has_advance =
        WORDS.load(Ordering::Relaxed) > 0 && control.burst_advance_ns.load(Ordering::Relaxed) > 0;
    if has_advance { HURRY } else { 1 }
}

/// By how much ticks come more often as long as the process has had few bursts.
pub fn eagerness() -> u64 {
    if BEGUN.load(Ordering::Relaxed) < OFTEN.load(Ordering::Relaxed) { 2 } else { 1 }
}

/// Whether a burst begins that would be due after so much of the time of a thread, which has had `cpu_ns`: the code there is new. Each place in
/// it is new once.
pub fn begin_early(control: &Control, pc: u64, left_ns: u64, cpu_ns: u64) -> bool {
    let are_worthwhile = GIVEN_UP.load(Ordering::Relaxed) <= MOST_GIVEN_UP;
    let now = u64::from(control.burst_millionths.load(Ordering::Relaxed));
    let at_begin = u64::from(AT_BEGIN.load(Ordering::Relaxed)).max(now);
    let most_ns = (cpu_ns + BORROWED_AT_ONCE_NS).min(MOST_BORROWED_NS);
    let is_affordable = left_ns.saturating_mul(now) <= most_ns.saturating_mul(at_begin);
    let is_new = is_affordable && are_worthwhile && !MET.has(pc);
    if is_new {
        MET.add(pc);
    }
    is_new
}

/// dlclose(3): what has been translated may be gone.
///
/// # Safety
/// As the C function.
pub unsafe extern "C" fn close_library(library: *mut c_void) -> c_int {
    const ERROR: c_int = -1;
    if !real::ready() || real::DLCLOSE.load(Ordering::Acquire).is_null() {
        return ERROR;
    }
    // SAFETY: the program's own call, handed on.
    let status = unsafe { call!(real::DLCLOSE, (library) -> c_int) };
    memlens_burst::code_has_changed();
    status
}

/// Whether a signal waits for the burst's end.
fn has_pending_signal() -> bool {
    let mut pending = 0u64;
    // SAFETY: writes one word.
    unsafe { syscall(number::RT_SIGPENDING, [&raw mut pending as usize, size_of::<u64>(), 0, 0, 0, 0]) };
    pending != 0
}

fn on_block(_: &Area, generation: u64, block: &NewBlock<'_>) -> bool {
    let references = block.references;
    let _visit = visit();
    let Some(segment) = segment() else { return false };
    let mut words = [0; MOST_REFERENCES * REFERENCE_WORDS];
    let Some(sent) = words.get_mut(..references.len() * REFERENCE_WORDS) else { return false };
    for (place, reference) in sent.chunks_exact_mut(REFERENCE_WORDS).zip(references) {
        place.copy_from_slice(&reference.words());
    }
    let NewBlock { number, pc, ends_indirectly, .. } = *block;
    block.code().for_each(|pc| MET.add(pc));
    let head = BlockHead { generation, number, ends_indirectly, pc };
    let is_sent = segment.write_words(Kind::Block, now_ns(), arch::thread(), &head.words(), sent);
    if !is_sent {
        segment.control().lost_bursts.fetch_add(1, Ordering::Relaxed);
    }
    is_sent
}

fn on_burst(_: &Area, burst: &Burst<'_>) -> bool {
    let _visit = visit();
    let area = arch::thread();
    let began_ns = area.last_cpu_ns.get();
    let own_ns = ticks::restart_period(area).saturating_sub(began_ns);
    let Some(segment) = segment() else { return false };
    let control = segment.control();
    if burst.words.is_empty() {
        // Nothing ran: the code is not translated, or another thread was dropping old translations.
        control.bursts_not_begun.fetch_add(1, Ordering::Relaxed);
        area.burst_period_ns.set(0);
        area.burst_borrowed_ns.set(0);
        ticks::set_next(area, 0);
        return false;
    }
    let given_up = GIVEN_UP.load(Ordering::Relaxed);
    match burst.end {
        End::Cost => GIVEN_UP.store((given_up + 1).min(GIVEN_UP_CAP), Ordering::Relaxed),
        End::Length => GIVEN_UP.store(given_up.saturating_sub(1), Ordering::Relaxed),
        _ => {}
    }
    let counted = burst.counted.unwrap_or_default();
    // If another one follows at once, it begins with these.
    let calls = area.budget.calls();
    let calls_at_begin = area.calls_at_begin.replace(calls);
    let head = BurstHead {
        generation: burst.generation,
        period_ns: area.burst_period_ns.get(),
        own_ns,
        recorded_ns: burst.until_ns.saturating_sub(began_ns),
        cycles: burst.cycles,
        runtime_cycles: burst.runtime_cycles,
        thread_pointer: arch::thread_pointer() as u64,
        end: burst.end as u64,
        new_blocks: u64::from(burst.new_blocks),
        counted_words: counted.words,
        counted_ns: counted.ns,
        words_besides: counted.words_besides,
        loop_cycles: counted.loop_cycles,
        slow_faults: counted.slow_faults,
        allocations_before: since(calls_at_begin, area.calls_at_report.get()),
        allocations: since(calls, calls_at_begin),
        processor: arch::processor().map_or(0, |number| u64::from(number) + 1),
    };
    let pid = area.pid.get();
    if are_mappings_due(pid, next_number(pid)) {
        report_mappings(Kind::Mapped, segment, area);
    }
    tell_name(segment, area);
    if segment.write_words(Kind::Burst, now_ns(), area, &head.words(), burst.words) {
        area.burst_period_ns.set(0);
        area.calls_at_report.set(calls);
    } else {
        // The next one that is reported stands for its time, too.
        control.lost_bursts.fetch_add(1, Ordering::Relaxed);
        check_reader(control);
    }
    let millionths = u64::from(control.burst_millionths.load(Ordering::Relaxed).max(1));
    if millionths >= ALL {
        // All of the program's time: until a system call or a signal it runs in nothing but bursts.
        let goes_on = burst.end == End::Length && !has_pending_signal();
        if !goes_on {
            ticks::set_next(area, 0);
        }
        return goes_on;
    }
    let cost_ns = head.cost_ns(burst.words.len() as u64);
    let due_ns = pay(control, cost_ns).saturating_mul(ALL) / millionths;
    match hurry(control) {
        1 => ticks::set_next(area, due_ns),
        part => ticks::set_soon(area, part),
    }
    false
}

/// How many calls more. A thread that has no ticks may have lost some: [`crate::draw::Budget`].
fn since(calls: u64, before: u64) -> u64 {
    (calls.wrapping_sub(before) as i64).max(0) as u64
}

/// Tells the thread's name, if it has another one than was told last: memlens may ask when the thread is gone.
fn tell_name(segment: Segment, area: &ThreadArea) {
    const PR_GET_NAME: usize = 16;
    let mut name = [0_u64; 2];
    // SAFETY: the kernel writes at most 16 bytes (PR_GET_NAME(2const)).
    let result =
        unsafe { syscall(restriction::PRCTL, [PR_GET_NAME, name.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    let is_new = result == 0 && name != area.name.get();
    if is_new && segment.write_words(Kind::Named, now_ns(), area, &name, &[]) {
        area.name.set(name);
    }
}

/// Pays a burst from the advance; if that is used up, what of the thread's budget pays for it.
fn pay(control: &Control, cost_ns: u64) -> u64 {
    // What a burst takes beyond the advance is given to it.
    let advance = |left: u64| (left > 0).then(|| left.saturating_sub(cost_ns));
    if let Ok(left) = control.burst_advance_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance) {
        control.burst_owed_ns.fetch_add(left.min(cost_ns), Ordering::Relaxed);
        return 0;
    }
    let back = |owed: u64| Some(owed.saturating_sub(cost_ns));
    match control.burst_owed_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, back) {
        Ok(0) | Err(_) => cost_ns,
        Ok(_) => OWING.saturating_mul(cost_ns),
    }
}
