//! A burst from begin to end, and what happens in it when translated code does not know where to go on.
//!
//! ```text
//!  tick's handler ── begin: the interrupted context now leads into the first entry; all asynchronous signals are
//!       │            blocked in it
//!       ▼ the kernel returns
//!  entry ──► next_code ──► translated code ──► entry ──► next_code ──► … ──► end: a signal frame with the program's
//!                                                                           registers and mask, and rt_sigreturn
//! ```
//!
//! A burst has two stages: it records; then, if that is wanted and it reached its length, it runs a while in blocks that
//! only count (`counting.rs`). So the native speed of what was recorded is measured where it was recorded.
//!
//! The end is always correct: all that translated code does to the program's state is what the native code would have
//! done, and the kernel puts registers, mask and next instruction back at once.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use memlens_events::burst::{End, MAX_BLOCK_WORDS, Reference};
use memlens_inside::{number, own_memory, syscall};

use crate::arch::{
    self, Area, Context, Decoding, FIRST_PAIR, Filter, Offsets, Saved, Trace, cycles, first_entry,
    thread_pointer, translate,
};
use crate::cache::{Block, Cache, Exit, Variant};
use crate::code_map::CodeMap;
use crate::counting::{Counted, Counting};
use crate::sys::thread_ns;

/// The most words that a burst has.
pub const MOST_WORDS: usize = 1 << 20;
/// Blocks write so many words behind the limit at most: each looks at it once, somewhere in its middle.
const MARGIN_WORDS: usize = 2 * MAX_BLOCK_WORDS;
const STACK_BYTES: usize = 128 << 10;
/// Words after which a burst whose time is limited asks the clock.
const CLOCK_WORDS: usize = 10_000;
/// A visit of the runtime translates one block, in some ten thousand cycles. Where it took longer than this, another thread
/// ran meanwhile.
const MOST_VISIT_CYCLES: u64 = 100_000;
/// After so many tries a thread that waits for another one's translation lets others run.
const PATIENCE: u32 = 200;

/// What bursts are reported to. Both are called on the runtime's stack, with all signals blocked that a program can
/// handle and that do not come from the code itself.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// A block has been made. False: it could not be reported, and is not used.
    pub block: fn(area: &Area, generation: u64, block: &NewBlock<'_>) -> bool,
    /// A burst has ended. True: if that was for its length, another one follows at once.
    pub burst: fn(area: &Area, burst: &Burst<'_>) -> bool,
}

/// A block that has been made.
#[derive(Clone, Copy, Debug)]
pub struct NewBlock<'a> {
    /// Its number.
    pub number: u32,
    /// Native address of its first instruction.
    pub pc: u64,
    /// Whether it ends with a return or an indirect jump or call.
    pub ends_indirectly: bool,
    /// Its references.
    pub references: &'a [Reference],
    trace: &'a Trace,
}

impl NewBlock<'_> {
    /// Native addresses of its instructions.
    pub fn code(&self) -> impl Iterator<Item = u64> {
        self.trace.code()
    }
}

/// A burst.
#[derive(Clone, Copy, Debug)]
pub struct Burst<'a> {
    /// Which numbering of blocks it uses.
    pub generation: u64,
    /// See [`memlens_events::burst`].
    pub words: &'a [u64],
    /// Why it ended.
    pub end: End,
    /// Processor cycles from its begin to its end (time-stamp counter).
    pub cycles: u64,
    /// Those of them that the runtime took: translation, mostly.
    pub runtime_cycles: u64,
    /// Blocks that were translated in it.
    pub new_blocks: u32,
    /// The thread's processor time at its end, in ns.
    pub until_ns: u64,
    /// What followed it, at nearly native speed.
    pub counted: Option<Counted>,
}

/// What a burst may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Words of its record, at most [`MOST_WORDS`].
    pub words: usize,
    /// Processor time in ns after which it ends as if it had them, once it has some thousand.
    pub recorded_ns: u64,
    /// The most words of the stretch that follows and only counts; 0: there is none. Limits of translation hold for it
    /// anew.
    pub counted_words: usize,
    /// Blocks that are translated in it …
    pub new_blocks: u32,
    /// … and cycles that the runtime takes.
    pub runtime_cycles: u64,
}

/// What the runtime keeps of a thread.
#[repr(C, align(64))]
struct Lane {
    /// The context of the tick with which the burst began; later the one with which it ends.
    saved: Saved,
    limits: Limits,
    generation: u64,
    began: u64,
    began_ns: u64,
    runtime_cycles: u64,
    new_blocks: u32,
    has_looked: bool,
    stage: Stage,
    /// What was recorded, and what is counted, in the stage after that.
    recorded: Recorded,
    counting: Counting,
    /// Whether nothing has been executed yet.
    is_new: bool,
    hooks: Option<Hooks>,
    words: *mut u64,
    /// The thread that has it.
    owner: AtomicU32,
}

/// What a burst is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Blocks record.
    #[default]
    Recording,
    /// They only count.
    Counting,
}

#[derive(Clone, Copy, Debug, Default)]
struct Recorded {
    words: u64,
    cycles: u64,
    runtime_cycles: u64,
    new_blocks: u32,
    until_ns: u64,
}

impl Lane {
    fn variant(&self) -> Variant {
        if self.stage == Stage::Recording { Variant::Recording } else { Variant::Counting }
    }

    /// Counts cycles that are spent once for all bursts: they are not what this one may translate.
    fn spend_once(&mut self, cycles: u64) {
        self.runtime_cycles += cycles;
        self.limits.runtime_cycles = self.limits.runtime_cycles.saturating_add(cycles);
    }

    /// Words so far in this stage.
    fn length(&self, area: &Area) -> u64 {
        (area.next.get() - self.words as u64) / 8
    }

    /// Lets blocks write up to so many words.
    fn set_limit(&self, area: &Area, words: usize) {
        area.limit.set(self.words as u64 + 8 * words.min(MOST_WORDS) as u64);
    }

    /// What is recorded by now.
    fn recorded(&self, area: &Area) -> Recorded {
        Recorded {
            words: self.length(area),
            cycles: cycles() - self.began,
            runtime_cycles: self.runtime_cycles,
            new_blocks: self.new_blocks,
            until_ns: thread_ns(),
        }
    }
}

struct Inner {
    cache: Cache,
    code: CodeMap,
    trace: Trace,
    decoding: Decoding,
}

/// The translations of this process, one thread at a time.
struct Engine {
    is_held: AtomicBool,
    inner: UnsafeCell<Option<Inner>>,
}

// SAFETY: the cell is used by whoever holds it, see `Held`.
unsafe impl Sync for Engine {}

static ENGINE: Engine = Engine { is_held: AtomicBool::new(false), inner: UnsafeCell::new(None) };
/// Threads that are in a burst.
static ACTIVE: AtomicU32 = AtomicU32::new(0);
/// Whether translations may be of code that is gone.
static IS_STALE: AtomicBool = AtomicBool::new(false);
/// Of the blocks' present numbering.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The engine, held.
struct Held(&'static Engine);

impl Held {
    fn now() -> Option<Self> {
        // Made only where it is held: its end lets go.
        if ENGINE.is_held.swap(true, Ordering::Acquire) { None } else { Some(Self(&ENGINE)) }
    }

    /// Waits until nobody else has it: for the time of a translation, some microseconds, unless that thread is not
    /// running. The waiting thread must not have it itself.
    fn certainly() -> Self {
        let mut tries = 0u32;
        loop {
            if let Some(held) = Self::now() {
                return held;
            }
            tries += 1;
            if tries.is_multiple_of(PATIENCE) {
                // SAFETY: lets another thread run.
                unsafe { syscall(number::SCHED_YIELD, [0; 6]) };
            }
            core::hint::spin_loop();
        }
    }

    fn inner(&mut self) -> &mut Option<Inner> {
        // SAFETY: held by this one alone.
        unsafe { &mut *self.0.inner.get() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.is_held.store(false, Ordering::Release);
    }
}

/// Cycles that the runtime took since `came`, at most those of a visit without another thread's turn in it.
fn visit_cycles(came: u64) -> u64 {
    cycles().saturating_sub(came).min(MOST_VISIT_CYCLES)
}

/// What bursts need and is not there: numbers of [`memlens_events::agent::NO_BURSTS`], from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// SSE 4.2 or XSAVE.
    Instructions,
    /// Vector registers of a known size.
    KnownVectors,
    /// Returns that need not come from calls.
    PlainReturns,
}

/// Whether this processor and thread can have bursts. To be called before the first; not from a handler.
///
/// # Errors
/// What is missing.
pub fn check_support() -> Result<(), Missing> {
    arch::check_support()
}

/// In a forked child, with its only thread's area: nothing of the parent's bursts goes on.
pub fn forget_after_fork(area: &Area) {
    // SAFETY: the only thread of a new process; what the parent's other threads did to the engine is forgotten.
    unsafe { ptr::write(ENGINE.inner.get(), None) };
    ENGINE.is_held.store(false, Ordering::Release);
    ACTIVE.store(0, Ordering::Relaxed);
    // Their owners are threads of the parent; this one's has another number now.
    for lane in &LANES {
        lane.store(ptr::null_mut(), Ordering::Relaxed);
    }
    area.lane.set(0);
}

/// Whether a thread waits for another one in a loop: what it does there says nothing of the accesses that it would make in
/// such a time elsewhere. Before the first burst, and while another thread asks, loops with `pause` are known alone.
/// Cost: some microseconds.
///
/// # Safety
/// `ip` is the address of an instruction that the calling thread was about to execute.
pub unsafe fn is_waiting(ip: u64) -> bool {
    const PAGE: u64 = 4096;
    const MOST: usize = 2 * arch::AROUND as usize;
    // No further than the page, which is mapped.
    let page = ip & !(PAGE - 1);
    let start = ip.saturating_sub(arch::AROUND).max(page);
    let end = ip.saturating_add(arch::AROUND).min(page + PAGE);
    let mut code = [0; MOST];
    for (byte, address) in code.iter_mut().zip(start..end) {
        // SAFETY: a byte of the page with the instruction; somebody may write there, so it is read by itself.
        *byte = unsafe { ptr::without_provenance::<u8>(address as usize).read_volatile() };
    }
    let code = &code[..(end - start) as usize];
    if !HAS_DECODER.load(Ordering::Acquire) || LOOPS.is_held.swap(true, Ordering::Acquire) {
        return arch::waits_at(code, start, ip, None);
    }
    // SAFETY: held by this one alone.
    let decoding = unsafe { &mut *LOOPS.decoding.get() }.get_or_insert_with(Decoding::new);
    let waits = arch::waits_at(code, start, ip, Some(decoding));
    LOOPS.is_held.store(false, Ordering::Release);
    waits
}

/// Whether the decoder's tables are made.
static HAS_DECODER: AtomicBool = AtomicBool::new(false);

/// Memory to look at loops with. Nobody waits for it: a program's handler that comes meanwhile may never return, unlike in a
/// burst, where the program's signals wait.
struct Loops {
    is_held: AtomicBool,
    decoding: UnsafeCell<Option<Decoding>>,
}

// SAFETY: the cell is used by whoever has set `is_held`.
unsafe impl Sync for Loops {}

static LOOPS: Loops = Loops { is_held: AtomicBool::new(false), decoding: UnsafeCell::new(None) };

/// Code has been unmapped: what was translated is not used by bursts that begin from now on.
pub fn code_has_changed() {
    IS_STALE.store(true, Ordering::Release);
}

/// Lanes that were made, as far as there is room, to be used again when their threads have ended.
static LANES: [AtomicPtr<Lane>; 1024] = [const { AtomicPtr::new(ptr::null_mut()) }; 1024];
/// How many of them are looked at for each new thread.
const LOOKED_AT: usize = 8;
static NEXT_LANE: AtomicUsize = AtomicUsize::new(0);

/// The memory of a thread that has ended.
fn left_lane(own: u32) -> Option<*mut u8> {
    let start = NEXT_LANE.fetch_add(LOOKED_AT, Ordering::Relaxed);
    (start..start + LOOKED_AT).find_map(|at| {
        let lane = LANES[at % LANES.len()].load(Ordering::Acquire);
        // SAFETY: lanes stay mapped.
        let owner = unsafe { &lane.as_ref()?.owner };
        let tid = owner.load(Ordering::Relaxed);
        let is_left = tid != own && !has_thread(tid);
        (is_left && owner.compare_exchange(tid, own, Ordering::AcqRel, Ordering::Relaxed).is_ok())
            .then_some(lane.cast())
    })
}

fn has_thread(tid: u32) -> bool {
    const ESRCH: isize = -3;
    // SAFETY: signal 0 does nothing.
    unsafe {
        let process = syscall(number::GETPID, [0; 6]) as usize;
        syscall(number::TGKILL, [process, tid as usize, 0, 0, 0, 0]) != ESRCH
    }
}

/// Memory for a thread's bursts.
fn new_lane(area: &Area) -> Option<&'static mut Lane> {
    let lane_bytes = size_of::<Lane>().next_multiple_of(4096);
    let words_bytes = (MOST_WORDS + 2 * MARGIN_WORDS) * 8;
    // SAFETY: only asks.
    let own = unsafe { syscall(number::GETTID, [0; 6]) } as u32;
    let left = left_lane(own);
    let is_new = left.is_none();
    let memory = left.or_else(|| own_memory(lane_bytes + STACK_BYTES + words_bytes))?;
    // SAFETY: memory of our own, large enough and aligned for a lane: one that was left, or zeros, which are a valid one.
    let lane = unsafe { &mut *memory.cast::<Lane>() };
    lane.words = memory.wrapping_add(lane_bytes + STACK_BYTES).cast();
    area.stack.set(memory as u64 + (lane_bytes + STACK_BYTES) as u64);
    lane.saved.tell(area);
    area.lane.set(ptr::from_mut(lane) as u64);
    if is_new {
        lane.owner.store(own, Ordering::Relaxed);
        // Where no place is free, the lane is not used again.
        let _is_kept = LANES.iter().any(|place| {
            place.compare_exchange(ptr::null_mut(), lane, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
    }
    Some(lane)
}

/// The thread's lane.
///
/// # Safety
/// The area is the calling thread's, and nobody else has a reference to the lane.
unsafe fn lane_of(area: &Area) -> Option<&'static mut Lane> {
    // SAFETY: set by `new_lane`, for good.
    unsafe { (area.lane.get() as *mut Lane).as_mut() }
}

/// Signals that the code itself raises: SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS.
const OWN_SIGNALS: u64 = 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 30;

/// Makes a burst begin when the signal handler returns that was called with `context`. `own_code`: addresses where
/// none may begin.
///
/// # Errors
/// Why there will be none.
///
/// # Safety
/// Called from a handler of the calling thread, with its own area and the kernel's argument. [`check_support`] has
/// found nothing.
pub unsafe fn begin(
    context: *mut c_void,
    area: &Area,
    limits: Limits,
    hooks: Hooks,
    own_code: (u64, u64),
) -> Result<(), End> {
    if area.is_bursting.get() != 0 {
        return Err(End::Busy);
    }
    // SAFETY: the caller's promise.
    let mut context = unsafe { Context::of(context) };
    let pc = context.pc();
    if (own_code.0..own_code.1).contains(&pc) {
        return Err(End::Code);
    }
    if !context.is_plain() {
        return Err(End::Instruction);
    }
    // SAFETY: the thread's own, not in use: there is no burst.
    let Some(lane) = (unsafe { lane_of(area) }).or_else(|| new_lane(area)) else { return Err(End::Full) };
    let offsets = Offsets::of(area, thread_pointer()).ok_or(End::Full)?;
    let entry = first_entry(offsets).ok_or(End::Full)?;
    ACTIVE.fetch_add(1, Ordering::AcqRel);
    lane.limits = limits;
    lane.hooks = Some(hooks);
    lane.is_new = true;
    lane.began = cycles();
    lane.began_ns = thread_ns();
    lane.runtime_cycles = 0;
    lane.new_blocks = 0;
    lane.has_looked = false;
    lane.stage = Stage::Recording;
    area.next.set(lane.words as u64);
    let has_no_end = limits.recorded_ns == u64::MAX;
    lane.set_limit(area, if has_no_end { limits.words } else { limits.words.min(CLOCK_WORDS) });
    area.begin_epoch(lane.owner.load(Ordering::Relaxed));
    area.target.set(pc);
    area.jump.set(0);
    area.is_bursting.set(1);
    lane.saved.begin(&mut context, area, entry);
    context.set_mask(!OWN_SIGNALS);
    Ok(())
}

fn note_full(end: End) {
    if end == End::Full {
        code_has_changed();
    }
}

impl Inner {
    /// `decoding`: that of an earlier one. Memory that it once took is never given back.
    fn new(area: &Area, decoding: Option<Decoding>) -> Option<Self> {
        let offsets = Offsets::of(area, thread_pointer())?;
        let mut code = CodeMap::new()?;
        code.look();
        let cache = Cache::new(offsets)?;
        // Differs from all earlier ones of this process, and from its parent's.
        GENERATION.store(cycles() | 1, Ordering::Relaxed);
        let mut decoding = decoding.unwrap_or_else(Decoding::new);
        decoding.use_first();
        HAS_DECODER.store(true, Ordering::Release);
        Some(Self { cache, code, trace: Trace::empty(), decoding })
    }

    /// # Safety
    /// No thread is in a burst.
    unsafe fn discard(self) -> Decoding {
        // SAFETY: the caller's promise.
        unsafe { self.cache.discard() };
        self.code.discard();
        self.decoding
    }

    /// The block at a native address; translates it if there is none, or only `changed`, whose code is no more what it was.
    fn block_at(
        &mut self,
        area: &Area,
        lane: &mut Lane,
        (pc, changed): (u64, Option<usize>),
        preferred: (u8, u8),
    ) -> Result<usize, End> {
        let variant = lane.variant();
        if let Some(number) = self.cache.find(pc, variant).filter(|&number| Some(number) != changed) {
            return Ok(number);
        }
        if lane.new_blocks >= lane.limits.new_blocks || lane.runtime_cycles >= lane.limits.runtime_cycles {
            return Err(End::Cost);
        }
        if self.code.range_of(pc).is_none() && !lane.has_looked {
            lane.has_looked = true;
            self.code.look();
        }
        let range = self.code.range_of(pc).ok_or(End::Code)?;
        let decoding = &mut self.decoding;
        let came = cycles();
        let (arena, is_new) = self.cache.arena_for(pc, range.start)?;
        if is_new {
            lane.spend_once(cycles() - came);
        }
        let code = &mut self.code;
        // SAFETY: the thread goes on at `pc`.
        let pair = unsafe {
            let follows = |to: u64| (range.start..range.end).contains(&to);
            self.trace.decode(pc, code, follows, decoding)?;
            self.trace.free_pair(preferred, code, decoding)
        };
        let marks = self.cache.references.len();
        let filter = Filter::new(&area.registers.get());
        let number = translate(
            &mut self.cache,
            arena,
            (pc, variant),
            (&self.trace, range.is_generated),
            pair,
            filter,
        )?;
        lane.new_blocks += 1;
        if variant == Variant::Counting {
            return Ok(number);
        }
        let block = NewBlock {
            number: number as u32,
            pc,
            ends_indirectly: self.trace.ends_indirectly(),
            references: &self.cache.references[marks..],
            trace: &self.trace,
        };
        let is_reported = lane.hooks.is_some_and(|hooks| (hooks.block)(area, lane.generation, &block));
        if !is_reported {
            self.cache.forget_last_block();
            return Err(End::Full);
        }
        Ok(number)
    }

    /// Where to go on after the exit that was taken.
    fn after(&mut self, area: &Area, lane: &mut Lane) -> Result<u64, (u64, End)> {
        let number = area.exit.get() as u32 as usize;
        let (target, changed, link) = match self.cache.exit(number) {
            _ if number == 0 => (area.target.get(), None, None),
            Exit::Native { target, end } => return Err((target, end)),
            Exit::Link { target, pair, warm, cold } => (target, None, Some((pair, warm, cold))),
            Exit::Changed { block: number, warm, cold } => {
                let number = number as usize;
                let Block { pc, pair, .. } = self.cache.blocks()[number];
                (pc, Some(number), Some((pair, warm, cold)))
            }
        };
        let preferred = link.map_or(FIRST_PAIR, |(pair, ..)| pair);
        let found = self.block_at(area, lane, (target, changed), preferred).map_err(|end| (target, end))?;
        let Block { cold, warm, pair, .. } = self.cache.blocks()[found];
        match link {
            Some((exit_pair, warm_jump, cold_jump)) => {
                if exit_pair == pair {
                    self.cache.link(warm_jump, warm);
                }
                self.cache.link(cold_jump, cold);
            }
            None => {
                // The arena whose table was asked is that of the code that asked: a check in it, or its entry. Where a
                // burst begins there is none.
                if let Some(arena) = self.cache.arena_of(area.jump.get()) {
                    self.cache.add_target(arena, found);
                }
            }
        }
        Ok(cold)
    }
}

/// Called by an arena's entry: the code to go on with; 0: the burst has ended, and the frame is ready.
pub(crate) unsafe extern "C" fn next_code(area: &Area) -> u64 {
    let came = cycles();
    // SAFETY: the thread's own; this is the only function that uses it during a burst.
    let Some(lane) = (unsafe { lane_of(area) }) else { return 0 };
    area.renew_epoch();
    // Where an exit leads only the cache knows: there is no way but to wait.
    let mut held = Held::certainly();
    let next = match lane.is_new {
        true => first_block(&mut held, area, lane),
        false => match held.inner() {
            Some(inner) => inner.after(area, lane),
            None => unreachable!("translations are kept while a burst lasts"),
        },
    };
    drop(held);
    lane.runtime_cycles += visit_cycles(came);
    match next {
        Ok(code) => code,
        Err((target, end)) => {
            note_full(end);
            if end == End::Length
                && let Some(code) = further(area, lane, target)
            {
                return code;
            }
            // SAFETY: the thread's own.
            let goes_on = unsafe { report(area, lane, end) } && end == End::Length;
            if goes_on && let Some(code) = go_on(area, lane, target) {
                return code;
            }
            // SAFETY: the thread's own stack of the runtime, whose top the entry wrote the flags to.
            unsafe { end_burst(area, lane, target) };
            0
        }
    }
}

/// Where a burst begins. What is stale is dropped first, if no other thread uses it.
fn first_block(held: &mut Held, area: &Area, lane: &mut Lane) -> Result<u64, (u64, End)> {
    let pc = area.target.get();
    lane.is_new = false;
    let mut decoding = None;
    if IS_STALE.load(Ordering::Acquire) {
        if ACTIVE.load(Ordering::Acquire) > 1 {
            return Err((pc, End::Busy));
        }
        if let Some(old) = held.inner().take() {
            // SAFETY: no other thread is in a burst, or it has not come further than here, where it waits. So none
            // executes in it or will return to it.
            decoding = Some(unsafe { old.discard() });
        }
        IS_STALE.store(false, Ordering::Release);
    }
    if held.inner().is_none() {
        let began = cycles();
        *held.inner() = Inner::new(area, decoding);
        lane.spend_once(cycles() - began);
    }
    let Some(inner) = held.inner() else { return Err((pc, End::Full)) };
    lane.generation = GENERATION.load(Ordering::Relaxed);
    inner.after(area, lane)
}

/// Goes on at `target` where a limit of words was reached, with recording or counting. None: the burst is over.
fn further(area: &Area, lane: &mut Lane, target: u64) -> Option<u64> {
    let length = lane.length(area);
    match lane.stage {
        Stage::Recording => {
            let is_longer = length < lane.limits.words.min(MOST_WORDS) as u64;
            if is_longer && thread_ns().saturating_sub(lane.began_ns) < lane.limits.recorded_ns {
                lane.set_limit(area, lane.limits.words.min(length as usize + CLOCK_WORDS));
                return code_at(area, lane, target);
            }
            if lane.limits.counted_words == 0 {
                return None;
            }
            lane.recorded = lane.recorded(area);
            lane.stage = Stage::Counting;
            (lane.runtime_cycles, lane.new_blocks) = (0, 0);
            lane.counting.begin();
            area.next.set(lane.words as u64);
        }
        Stage::Counting => {
            lane.counting.end_piece(length, lane.runtime_cycles);
            area.next.set(lane.words as u64);
            if lane.counting.is_complete(lane.limits.counted_words as u64) {
                return None;
            }
        }
    }
    let code = code_at(area, lane, target);
    let words = lane.counting.begin_piece(lane.runtime_cycles);
    lane.set_limit(area, words);
    code
}

/// The code of the present stage for `target`.
fn code_at(area: &Area, lane: &mut Lane, target: u64) -> Option<u64> {
    let came = cycles();
    let mut held = Held::certainly();
    let inner = held.inner().as_mut()?;
    let block = inner.block_at(area, lane, (target, None), FIRST_PAIR);
    let code = block.ok().map(|block| inner.cache.blocks()[block].cold);
    drop(held);
    lane.runtime_cycles += visit_cycles(came);
    code
}

/// Another burst, from `target` on. None: it cannot be.
fn go_on(area: &Area, lane: &mut Lane, target: u64) -> Option<u64> {
    area.next.set(lane.words as u64);
    lane.began = cycles();
    lane.runtime_cycles = 0;
    lane.new_blocks = 0;
    code_at(area, lane, target)
}

/// Whether the calling thread's burst has been interrupted, as a handler's `context` says, in translated code.
///
/// # Safety
/// Called from a handler of the calling thread, with its own area and the kernel's argument.
pub unsafe fn is_interrupted(context: *const c_void, area: &Area) -> bool {
    if area.is_bursting.get() == 0 {
        return false;
    }
    // SAFETY: the caller's promise.
    let pc = unsafe { Context::of(context.cast_mut()) }.pc();
    let mut held = Held::certainly();
    held.inner().as_ref().is_some_and(|inner| inner.cache.arena_of(pc).is_some())
}

/// Ends a burst in which an instruction raised a signal: `context` becomes what it would be in the native code, and
/// the signal mask that of the program, which is returned.
///
/// # Safety
/// As [`is_interrupted`], which has said so; the signal came from the instruction itself.
pub unsafe fn leave_at_fault(context: *mut c_void, area: &Area) -> u64 {
    // SAFETY: the caller's promise.
    let mut context = unsafe { Context::of(context) };
    // SAFETY: the thread's own, not in use: it runs translated code.
    let Some(lane) = (unsafe { lane_of(area) }) else { return context.mask() };
    let mask = lane.saved.mask();
    context.set_mask(mask);
    let mut held = Held::certainly();
    let Some(inner) = held.inner() else { return mask };
    let found = inner.cache.native_of(context.pc()).map(|(block, pc)| (*block, pc));
    drop(held);
    if let Some((block, pc)) = found {
        // What the block has stored so far has no end yet: it is left out.
        let pointer = context.register(block.pair.0);
        let words = lane.words as u64;
        if (words..area.next.get().max(area.limit.get())).contains(&pointer) {
            area.next.set(pointer);
        }
        context.put_back(area, &block, pc);
    }
    // SAFETY: the thread's own.
    unsafe { report(area, lane, End::Fault) };
    finish(area);
    mask
}

/// Makes the frame with which the native code goes on at `target`.
///
/// # Safety
/// Called from the entry of the thread's burst.
unsafe fn end_burst(area: &Area, lane: &mut Lane, target: u64) {
    // SAFETY: the caller's promise.
    unsafe { lane.saved.end(area, target) };
    finish(area);
}

/// How many threads are in bursts now.
pub fn active() -> u32 {
    ACTIVE.load(Ordering::Acquire)
}

/// The thread is in no burst any more.
fn finish(area: &Area) {
    area.is_bursting.set(0);
    ACTIVE.fetch_sub(1, Ordering::AcqRel);
}

/// Reports the burst; whether another one is to follow.
///
/// # Safety
/// The area and the lane are the calling thread's.
unsafe fn report(area: &Area, lane: &mut Lane, end: End) -> bool {
    let (recorded, end, counted) = match lane.stage {
        Stage::Recording => (lane.recorded(area), end, None),
        Stage::Counting => {
            // A piece that did not reach its length: what is there is counted, but its time holds the end's.
            lane.counting.leave_piece(lane.length(area));
            (lane.recorded, End::Length, Some(lane.counting.counted()))
        }
    };
    // SAFETY: the words that translated code wrote, below the margin's end.
    let words = unsafe { core::slice::from_raw_parts(lane.words, recorded.words as usize) };
    let Some(hooks) = lane.hooks else { return false };
    let burst = Burst {
        generation: lane.generation,
        words,
        end,
        cycles: recorded.cycles,
        runtime_cycles: recorded.runtime_cycles,
        new_blocks: recorded.new_blocks,
        until_ns: recorded.until_ns,
        counted,
    };
    (hooks.burst)(area, &burst)
}
