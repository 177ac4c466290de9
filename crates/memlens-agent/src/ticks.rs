//! Threads: how they begin, and their ticks: a timer of processor time for each thread, whose signal's handler writes
//! registers and a piece of stack to the ring, and may begin a burst.
//!
//! The signal is 32, which glibc keeps for itself: its functions let no program handle it, block it or wait for
//! it, so the ticks collide with none. glibc takes it when the first thread is cancelled (`pthread_cancel`); its
//! handler then looks for the sender and passes ticks over, which end them, harmlessly.
//!
//! A timer is set anew at each tick, for a time that varies: the kernel looks at such timers when its own tick
//! comes (250 times a second, say), and an even period would beat with that. How much processor time a tick stands
//! for is measured, not assumed.
//!
//! A thread's processor time has the kernel's in it. A tick that comes in a system call is delivered when the call ends: it
//! says so, and begins no burst, which would stand for the call's time with whatever the program does behind it.
//!
//! The first thread of a program gets prompts besides, by the kernel's clock and another signal (`bursts/prompts.rs`): the handler then only looks whether a
//! burst is due, or should begin because the code is new.
//!
//! # Signal safety
//! The handler makes system calls and writes to the ring. It runs on the alternate stack of threads that have one.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use memlens_events::agent::{Activity, Control, Kind, REGISTERS, SP, TICK_WORDS};

use crate::arch::{self, number, syscall};
use crate::bursts;
#[cfg(not(test))]
use crate::real::{self, call};
use crate::ring::{Segment, StackPart, clock_ns, now_ns};
#[cfg(not(test))]
use crate::session;
use crate::session::{check_reader, here, visit};
use crate::signal_action::SignalAction;
use crate::thread_area::ThreadArea;

/// `SIGCANCEL` of glibc (sysdeps/unix/sysv/linux/internal-signals.h).
const SIGNAL: u32 = 32;
/// The calling thread's processor time (clock_getres(2)).
const THREAD_CPU_CLOCK: usize = 3;

/// Mean processor time between ticks in ns; 0: there are none.
static TICK_NS: AtomicU64 = AtomicU64::new(0);

/// Timers that were made, as thread << 32 | number + 1; 0: no timer. The kernel does not delete those of threads
/// that have ended.
static TIMERS: [AtomicU64; 2048] = [const { AtomicU64::new(0) }; 2048];
/// What was done about the signal before: the default, or nothing.
static HANDLER_BEFORE: AtomicUsize = AtomicUsize::new(0);
static NEXT_TIMER: AtomicUsize = AtomicUsize::new(0);
/// A place in that list which is taken, for a timer to be made.
const RESERVED: u64 = u64::MAX;
/// Processor time after which a thread that ran before begins, in ns.
const WAKE_NS: u64 = 3_000_000;
/// Mean processor time between ticks that only look, in ns: as often as kernels with 250 ticks a second see such timers.
const LOOK_NS: u64 = 3_000_000;
/// How many timers are looked at for each new one.
const LOOKED_AT: usize = 4;

/// Sets the signal's handler, if ticks are wanted and the signal is free.
pub fn prepare(control: &Control) {
    // posix_spawn(3) of glibc leaves the signal ignored in what it starts, where nothing else can make it so.
    const IGNORED: usize = 1;
    const ON_STACK_RESTART_INFO_RESTORER: usize = 0x0800_0000 | 0x1000_0000 | 4 | 0x0400_0000;
    let tick_ns = control.tick_ns.load(Ordering::Relaxed);
    if tick_ns == 0 {
        return;
    }
    // Nothing more is blocked than the agent's signals.
    let action = SignalAction {
        handler: on_tick as *const () as usize,
        flags: ON_STACK_RESTART_INFO_RESTORER,
        restorer: arch::return_from_signal as *const () as usize,
        mask: 1 << (SIGNAL - 1) | bursts::SIGNALS,
    };
    let before = SignalAction::of(SIGNAL as usize).map_or(usize::MAX, |action| action.handler);
    if before <= IGNORED {
        HANDLER_BEFORE.store(before, Ordering::Relaxed);
    }
    let is_free = before <= IGNORED || before == action.handler;
    if !is_free || !SignalAction::set(SIGNAL as usize, &action) {
        control.threads_without_timer.fetch_add(1, Ordering::Relaxed);
        return;
    }
    bursts::prepare(control, &action);
    TICK_NS.store(tick_ns, Ordering::Release);
}

/// Deletes all timers.
pub fn delete_timers() {
    for place in &TIMERS {
        let value = place.swap(0, Ordering::Relaxed);
        // A reserved place's thread may be about to make its timer; whoever waits for all visits waits for that, too.
        if value != 0 && value != RESERVED {
            delete_timer(value as u32 - 1);
        }
    }
}

/// Prompts are ignored from now on.
pub fn end_prompts() {
    bursts::end_prompts(on_tick as *const () as usize);
}

/// Gives the signals back. There are no timers, and no thread can make one.
pub fn end() {
    end_prompts();
    const IGNORED: usize = 1;
    let is_ours = |action: &SignalAction| action.handler == on_tick as *const () as usize;
    let Some(action) = SignalAction::of(SIGNAL as usize).filter(is_ours) else { return };
    // Ignoring a signal drops what is pending (POSIX.1-2024, 2.4.3): by default it would end the process.
    SignalAction::set(SIGNAL as usize, &SignalAction { handler: IGNORED, ..action });
    let before = SignalAction { handler: HANDLER_BEFORE.load(Ordering::Relaxed), ..SignalAction::default() };
    SignalAction::set(SIGNAL as usize, &before);
}

/// Starts timers for threads that run already. The first tick of such a thread lets it begin by itself.
pub fn wake(control: &Control, threads: &[u32]) {
    let tick_ns = TICK_NS.load(Ordering::Acquire);
    if tick_ns == 0 {
        return;
    }
    // SAFETY: the call only asks.
    let pid = unsafe { syscall(number::GETPID, [0; 6]) } as u32;
    for &tid in threads {
        // A thread's clock of processor time: the kernel's MAKE_THREAD_CPUCLOCK (include/linux/posix-timers.h).
        let clock = (!(tid as i32) << 3 | 6) as isize as usize;
        if let Some(timer) = new_timer(control, clock, pid, tid) {
            set_timer(timer, WAKE_NS);
        }
    }
}

/// No more ticks: each thread's timer goes when it comes next.
pub fn stop() {
    TICK_NS.store(0, Ordering::Relaxed);
}

/// In a forked child: timers were not inherited.
pub fn forget_timers() {
    for timer in &TIMERS {
        timer.store(0, Ordering::Relaxed);
    }
}

/// Starts the calling thread's timer.
pub fn start_here(control: &Control, area: &ThreadArea) {
    let tick_ns = TICK_NS.load(Ordering::Acquire);
    if tick_ns == 0 {
        return;
    }
    let Some(timer) = new_timer(control, THREAD_CPU_CLOCK, area.pid.get(), area.tid.get()) else { return };
    area.timer.set(timer + 1);
    area.last_cpu_ns.set(clock_ns(THREAD_CPU_CLOCK as i32));
    area.burst_due_ns.set(0);
    area.burst_borrowed_ns.set(0);
    set_timer(timer, tick_ns / bursts::hurry(control));
}

/// Makes a timer for a thread and remembers it.
fn new_timer(control: &Control, clock: usize, pid: u32, tid: u32) -> Option<u32> {
    let Some(place) = place_for_timer(pid) else {
        control.threads_without_timer.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    // `struct sigevent` (include/uapi/asm-generic/siginfo.h): value, signal, SIGEV_THREAD_ID, thread.
    let mut event = [0u32; 16];
    (event[2], event[3], event[4]) = (SIGNAL, 4, tid);
    let mut timer = 0u32;
    let arguments = [clock, event.as_ptr() as usize, &raw mut timer as usize, 0, 0, 0];
    // SAFETY: reads the structure, writes the number.
    if unsafe { syscall(number::TIMER_CREATE, arguments) } != 0 {
        place.store(0, Ordering::Relaxed);
        // One that ended meanwhile needs none.
        if !has_ended(pid, tid) {
            control.threads_without_timer.fetch_add(1, Ordering::Relaxed);
        }
        return None;
    }
    place.store(u64::from(tid) << 32 | u64::from(timer + 1), Ordering::Relaxed);
    Some(timer)
}

/// Whether a thread of this process has ended.
fn has_ended(pid: u32, tid: u32) -> bool {
    const ESRCH: isize = -3;
    // SAFETY: signal 0 does nothing.
    unsafe { syscall(number::TGKILL, [pid as usize, tid as usize, 0, 0, 0, 0]) == ESRCH }
}

/// A free place in [`TIMERS`], reserved by a value that is no timer; on the way deletes those of some threads that
/// have ended.
fn place_for_timer(pid: u32) -> Option<&'static AtomicU64> {
    let start = NEXT_TIMER.fetch_add(LOOKED_AT, Ordering::Relaxed);
    let mut found = None;
    for step in 0..TIMERS.len() {
        if step >= LOOKED_AT && found.is_some() {
            break;
        }
        let place = &TIMERS[(start + step) % TIMERS.len()];
        let value = place.load(Ordering::Relaxed);
        let take =
            |from| place.compare_exchange(from, RESERVED, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let is_free = match value {
            RESERVED => false,
            0 => found.is_none() && take(0),
            value => {
                let is_taken = has_ended(pid, (value >> 32) as u32) && take(value);
                if is_taken {
                    delete_timer(value as u32 - 1);
                    if found.is_some() {
                        place.store(0, Ordering::Relaxed);
                    }
                }
                is_taken
            }
        };
        if is_free && found.is_none() {
            found = Some(place);
        }
    }
    found
}

/// Deletes a timer if it is in the list.
fn forget(timer: u32) {
    let is_it = |value: u64| value != 0 && value != RESERVED && value as u32 == timer + 1;
    let place = TIMERS.iter().find(|place| is_it(place.load(Ordering::Relaxed)));
    if let Some(place) = place {
        let value = place.load(Ordering::Relaxed);
        if is_it(value) && place.compare_exchange(value, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            delete_timer(timer);
        }
    }
}

fn delete_timer(timer: u32) {
    // SAFETY: a timer of ours.
    unsafe { syscall(number::TIMER_DELETE, [timer as usize, 0, 0, 0, 0, 0]) };
}

/// Lets the thread's next tick come after half to one and a half of the ticks' period, or of `least_ns` if that is
/// longer; it looks in between, if there are bursts.
pub fn set_next(area: &ThreadArea, least_ns: u64) {
    let tick_ns = TICK_NS.load(Ordering::Relaxed);
    if tick_ns != 0 {
        wait(area, (tick_ns / bursts::eagerness()).max(least_ns));
    }
}

/// Lets the thread's next tick come after half to one and a half of a part of the ticks' period; it looks in between, if there are
/// bursts.
pub fn set_soon(area: &ThreadArea, part: u64) {
    let tick_ns = TICK_NS.load(Ordering::Relaxed);
    if tick_ns != 0 {
        wait(area, tick_ns / part.max(1));
    }
}

fn wait(area: &ThreadArea, mean_ns: u64) {
    let Some(timer) = area.timer.get().checked_sub(1) else { return };
    let wait_ns = varied(mean_ns);
    let now_cpu_ns = area.last_cpu_ns.get();
    let due_ns = now_cpu_ns.saturating_add(wait_ns).saturating_add(area.burst_borrowed_ns.replace(0));
    area.burst_due_ns.set(due_ns);
    if bursts::are_apart() {
        look_soon(area, now_cpu_ns);
    } else {
        set_timer_once(timer, wait_ns);
    }
}

/// Lets the thread's timer come when a tick is due, or before that to look.
fn look_soon(area: &ThreadArea, now_cpu_ns: u64) {
    if let Some(timer) = area.timer.get().checked_sub(1) {
        let left_ns = area.burst_due_ns.get().saturating_sub(now_cpu_ns);
        set_timer_once(timer, left_ns.min(varied(LOOK_NS)));
    }
}

/// Says where the thread is; the tick is not due yet.
fn look(
    segment: Segment,
    area: &ThreadArea,
    now_cpu_ns: u64,
    (period_ns, ip, activity): (u64, u64, Activity),
) {
    let words = [period_ns, ip, activity.word()];
    if !segment.write(Kind::Look, now_ns(), area, &words, None) {
        // The next burst that is reported stands for its time, too.
        area.burst_period_ns.set(area.burst_period_ns.get() + period_ns);
        check_reader(segment.control());
    }
    look_soon(area, now_cpu_ns);
}

/// Processor time of the calling thread in ns, at which the next tick's period begins.
pub fn restart_period(area: &ThreadArea) -> u64 {
    let cpu_ns = clock_ns(THREAD_CPU_CLOCK as i32);
    area.last_cpu_ns.set(cpu_ns);
    cpu_ns
}

/// Half to one and a half of a time.
fn varied(mean_ns: u64) -> u64 {
    // The low bits of the clock are random enough: nobody chooses them.
    let part = now_ns().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
    mean_ns / 2 + mean_ns * part / 1024
}

/// Lets a timer come once, after half to one and a half of the period.
fn set_timer(timer: u32, tick_ns: u64) {
    set_timer_once(timer, varied(tick_ns));
}

/// Lets a timer come once, after so much time.
fn set_timer_once(timer: u32, wait_ns: u64) {
    let wait = wait_ns.max(1);
    // `struct itimerspec`: no period, then the time.
    let value = [0, 0, wait / 1_000_000_000, wait % 1_000_000_000];
    // SAFETY: reads the structure; a timer of ours.
    unsafe { syscall(number::TIMER_SETTIME, [timer as usize, 0, value.as_ptr() as usize, 0, 0, 0]) };
}

/// The number of the timer whose signal this is.
///
/// # Safety
/// `info` is the second argument of a signal handler.
unsafe fn timer_of(info: *const c_void) -> Option<u32> {
    const SENT_BY_TIMER: c_int = -2;
    // `siginfo_t` (include/uapi/asm-generic/siginfo.h): signal, error, code, a gap, the timer's number.
    // SAFETY: the kernel's structure.
    let (code, timer) = unsafe { (info.cast::<c_int>().add(2).read(), info.cast::<u32>().add(4).read()) };
    (code == SENT_BY_TIMER).then_some(timer)
}

extern "C" fn on_tick(signal: c_int, info: *const c_void, context: *mut c_void) {
    arch::allow_unaligned();
    // Once: who jumps out of a handler that interrupted the question leaves it set.
    let asked_clock = arch::thread().asks_clock.replace(false);
    let _visit = visit();
    // SAFETY: the kernel's argument.
    unsafe { arch::begin_call_again(context) };
    // SAFETY: the kernel's argument.
    let sender = unsafe { timer_of(info) };
    let timer = arch::thread().timer.get();
    let tick_ns = TICK_NS.load(Ordering::Relaxed);
    let Some((segment, area)) = here().filter(|_| tick_ns != 0) else {
        if timer != 0 {
            delete_timer(timer - 1);
            arch::thread().timer.set(0);
        }
        return;
    };
    // The thread ran before: it has begun by now, with a timer of its own.
    if let Some(sender) = sender
        && sender + 1 != area.timer.get()
    {
        forget(sender);
        return;
    }
    let cpu_ns = clock_ns(THREAD_CPU_CLOCK as i32);
    let left_ns = area.burst_due_ns.get().saturating_sub(cpu_ns);
    // SAFETY: the kernel's argument.
    let (registers, ip) = unsafe { arch::interrupted(context) };
    // SAFETY: the kernel's argument.
    let is_call = unsafe { arch::was_in_call(context) };
    // What the agent does for the program is like what the kernel does for it.
    let (start, end) = arch::own_image();
    let is_own = (start..end).contains(&(ip as usize));
    if !is_own {
        // Nobody is about to change it.
        area.budget.move_calls();
    }
    let activity = match is_call || asked_clock || is_own {
        true => Activity::Call,
        // SAFETY: the thread was about to go on there.
        false if unsafe { bursts::is_waiting(ip) } => Activity::Spin,
        false => Activity::Code,
    };
    let is_code = activity == Activity::Code;
    let is_early = bursts::are_apart() && left_ns > 0;
    let begins_early = is_early && is_code && bursts::begin_early(segment.control(), ip, left_ns, cpu_ns);
    let is_prompt = bursts::is_prompt(signal);
    if is_prompt && (!is_code || !bursts::are_apart() || is_early && !begins_early) {
        area.asks_clock.set(asked_clock);
        return;
    }
    let period_ns = cpu_ns.saturating_sub(area.last_cpu_ns.replace(cpu_ns));
    if begins_early {
        area.burst_borrowed_ns.set(left_ns);
    } else if is_early {
        look(segment, area, cpu_ns, (period_ns, ip, activity));
        return;
    }
    let mut words = [0; TICK_WORDS - 4];
    words[0] = period_ns;
    words[1..=REGISTERS].copy_from_slice(&registers);
    words[REGISTERS + 1] = ip;
    words[REGISTERS + 2] = activity.word();
    let control = segment.control();
    let stack = StackPart::from(registers[SP] as usize, control, area);
    if !segment.write(Kind::Tick, now_ns(), area, &words, Some(stack)) {
        control.lost_ticks.fetch_add(1, Ordering::Relaxed);
        check_reader(control);
    }
    // SAFETY: this is the handler, with its argument.
    let has_begun = is_code && unsafe { bursts::begin(context, segment, area, period_ns) };
    if !has_begun {
        area.burst_borrowed_ns.set(0);
        set_soon(area, bursts::hurry(control));
    }
}

// ---- new threads ------------------------------------------------------------------------------

/// What a thread that is being made will begin with.
struct Start {
    is_taken: AtomicBool,
    function: AtomicUsize,
    argument: AtomicUsize,
    /// See [`ThreadArea::stack_bytes`].
    stack_bytes: AtomicUsize,
}

static STARTS: [Start; 256] = [const {
    Start {
        is_taken: AtomicBool::new(false),
        function: AtomicUsize::new(0),
        argument: AtomicUsize::new(0),
        stack_bytes: AtomicUsize::new(0),
    }
}; 256];
static NEXT_START: AtomicU32 = AtomicU32::new(0);

/// A function and its argument, as C returns two words: in two registers.
#[repr(C)]
pub struct FirstCall {
    function: usize,
    argument: usize,
}

/// How many bytes a new thread's stack has at least.
fn stack_bytes(attributes: *const c_void) -> usize {
    // glibc's default is the limit of the first thread's stack, or 2 MiB (pthread_attr_init(3)).
    const LEAST_DEFAULT: usize = 1 << 20;
    /// `RLIMIT_STACK` (getrlimit(2)).
    const STACK_LIMIT: usize = 3;
    let mut bytes = LEAST_DEFAULT;
    if attributes.is_null() {
        let mut limits = [0usize; 2];
        let arguments = [0, STACK_LIMIT, 0, limits.as_mut_ptr() as usize, 0, 0];
        // SAFETY: writes two words.
        let known = unsafe { syscall(number::PRLIMIT64, arguments) } == 0;
        return if known { bytes.min(limits[0]) } else { 0 };
    }
    let function = memlens_inside::symbol(c"pthread_attr_getstacksize");
    if function.is_null() {
        return 0;
    }
    // SAFETY: the C function of that name, with the program's own attributes.
    let status = unsafe {
        let function: unsafe extern "C" fn(*const c_void, *mut usize) -> c_int =
            core::mem::transmute(function);
        function(attributes, &raw mut bytes)
    };
    if status == 0 { bytes } else { 0 }
}

/// pthread_create(3), so that the new thread's stack is known and it gets a timer.
///
/// # Safety
/// As the C function.
#[cfg(not(test))]
pub unsafe extern "C" fn create_thread(
    thread: *mut c_void,
    attributes: *const c_void,
    function: usize,
    argument: usize,
) -> c_int {
    const EAGAIN: c_int = 11;
    if !real::ready() || real::PTHREAD_CREATE.load(Ordering::Acquire).is_null() {
        return EAGAIN;
    }
    // SAFETY: the program's own call, handed on.
    let plainly =
        || unsafe { call!(real::PTHREAD_CREATE, (thread, attributes, function, argument) -> c_int) };
    if session::segment().is_none() {
        return plainly();
    }
    let first = NEXT_START.fetch_add(1, Ordering::Relaxed) as usize;
    let free = (0..STARTS.len()).map(|step| (first + step) % STARTS.len()).find(|&at| {
        let taken = &STARTS[at].is_taken;
        taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    });
    let Some(at) = free else { return plainly() };
    let start = &STARTS[at];
    start.function.store(function, Ordering::Relaxed);
    start.argument.store(argument, Ordering::Relaxed);
    start.stack_bytes.store(stack_bytes(attributes), Ordering::Relaxed);
    let begin = arch::begin_thread as *const () as usize;
    // SAFETY: as above; the new thread calls the program's function with its argument.
    let status = unsafe { call!(real::PTHREAD_CREATE, (thread, attributes, begin, at) -> c_int) };
    if status != 0 {
        start.is_taken.store(false, Ordering::Release);
    }
    status
}

/// Called by a new thread, with its stack pointer: starts its timer; returns what it shall do.
pub extern "C" fn take_start(at: usize, sp: usize) -> FirstCall {
    let start = &STARTS[at % STARTS.len()];
    let function = start.function.load(Ordering::Relaxed);
    let argument = start.argument.load(Ordering::Relaxed);
    let area = arch::thread();
    area.stack_start.set(sp);
    // glibc's descriptor and thread-local blocks lie above; a page of the rest may be the guard.
    area.stack_bytes.set((start.stack_bytes.load(Ordering::Relaxed) / 2).min(1 << 20));
    start.is_taken.store(false, Ordering::Release);
    let visit = visit();
    here();
    drop(visit);
    FirstCall { function, argument }
}
