//! The writer's side of the shared segment: definitions, and each thread's ring of chunks.
//!
//! # Signal safety
//! Runs inside the target, on DynamoRIO's stack. Definitions take a lock of DynamoRIO's; thread
//! rings take none. Waits for room only in [`Thread::next_chunk`] and [`Channel::define`], and gives
//! up waiting when memlens is gone: the target then goes on unrecorded.

use crate::follow::Execution;
use crate::signals::{self, Saved};
use crate::sys;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use dynamorio_sys::{dr_mark_safe_to_suspend, dr_mutex_create, dr_mutex_lock, dr_mutex_unlock};
use memlens_events::segment::{
    self, ANSWER_CAPACITY, ANSWER_OFFSET, CHUNK_CLOSED, CHUNK_MARGIN_WORDS, CHUNK_WORDS, Control,
    DEFINITION_BYTES, DEFINITION_OFFSET, SEGMENT_BYTES, SLOTS, SlotHeader, SlotState,
};
use memlens_events::{
    Definition, DefinitionKind, EventKind, MAX_BLOCK_WORDS, RecordHeader, ThreadDefinition,
};

/// A thread looks for signals that came while it was in the client after so many chunks, at the latest.
const CHUNKS_PER_LOOK: u64 = 16384;
/// Looking makes DynamoRIO build all code of a file again, so after a look none is made for so many chunks.
const CHUNKS_BETWEEN_LOOKS: u64 = 2048;
/// memlens is not woken for definitions of blocks until so many bytes wait: a program in new code makes some thousand a
/// second, each with little to do. It looks by itself every few milliseconds.
const DEFINITIONS_PER_WAKE: usize = DEFINITION_BYTES / 8;

/// How long to sleep before looking whether memlens still lives.
const PATIENCE_MS: i64 = 50;

/// The process's connection to memlens.
pub struct Channel {
    base: AtomicPtr<u8>,
    lock: AtomicPtr<core::ffi::c_void>,
    /// Set when nobody reads any more, or in a forked child: records are thrown away.
    detached: AtomicBool,
    /// Set before the second thread is created: blocks carry epochs from then on.
    multi_threaded: AtomicBool,
    /// The token of the last fork announced.
    forks: AtomicU64,
    /// Held while a fork is announced.
    fork_lock: AtomicPtr<core::ffi::c_void>,
    /// While forks are under way: definitions written, and the positions behind them. A child may know
    /// blocks that its parent defined after memlens had prepared for it. Reached under `lock` only.
    kept: UnsafeCell<Kept>,
}

struct Kept {
    /// Forks under way.
    forks: u32,
    definitions: Vec<(u64, Vec<u8>)>,
}

// SAFETY: `kept` is only reached under `lock`; the rest is atomic.
unsafe impl Sync for Channel {}

/// The one channel.
pub static CHANNEL: Channel = Channel {
    base: AtomicPtr::new(core::ptr::null_mut()),
    lock: AtomicPtr::new(core::ptr::null_mut()),
    detached: AtomicBool::new(true),
    multi_threaded: AtomicBool::new(false),
    forks: AtomicU64::new(0),
    fork_lock: AtomicPtr::new(core::ptr::null_mut()),
    kept: UnsafeCell::new(Kept { forks: 0, definitions: Vec::new() }),
};

impl Channel {
    /// Maps the segment behind file descriptor `fd`. False when it is not one of ours.
    pub fn connect(&self, fd: usize) -> bool {
        let Some(base) = sys::map_shared(fd, SEGMENT_BYTES) else { return false };
        // SAFETY: DynamoRIO is initialised.
        unsafe {
            self.lock.store(dr_mutex_create(), Ordering::Relaxed);
            self.fork_lock.store(dr_mutex_create(), Ordering::Relaxed);
        }
        self.begin(base)
    }

    /// In a forked child: leaves the parent's segment for the one behind `fd`. `known` is the position up
    /// to which memlens knows the parent's definitions; what was defined after it is told again.
    pub fn reconnect(&self, fd: usize, known: u64) -> bool {
        let former = self.base.load(Ordering::Relaxed);
        let Some(base) = sys::map_shared(fd, SEGMENT_BYTES) else { return false };
        let begun = self.begin(base);
        // SAFETY: the child has one thread; it takes a slot of the new segment before it runs on.
        unsafe { sys::unmap(former, SEGMENT_BYTES) };
        for (end, definition) in self.keep_definitions(false) {
            const THREAD: [u8; 4] = (DefinitionKind::Thread as u32).to_le_bytes();
            if begun && end > known && !definition.starts_with(&THREAD) {
                self.write_definition(&definition);
            }
        }
        begun
    }

    fn begin(&self, base: *mut u8) -> bool {
        self.base.store(base, Ordering::Relaxed);
        let control = self.control();
        if control.magic.load(Ordering::Relaxed) != segment::MAGIC
            || control.version.load(Ordering::Relaxed) != segment::VERSION
        {
            return false;
        }
        control.target_pid.store(sys::process_id(), Ordering::Relaxed);
        control.state.store(1, Ordering::Release);
        self.detached.store(false, Ordering::Relaxed);
        true
    }

    /// The segment's first page.
    pub fn control(&self) -> &'static Control {
        // SAFETY: set by `connect` before anything else runs, page-aligned, never unmapped, and
        // `Control` consists of atomics.
        unsafe { &*self.base.load(Ordering::Relaxed).cast::<Control>() }
    }

    fn slot(&self, slot: usize) -> &'static SlotHeader {
        // SAFETY: as above; `slot` < SLOTS.
        unsafe { &*self.base.load(Ordering::Relaxed).add(segment::slot_offset(slot)).cast::<SlotHeader>() }
    }

    fn chunk(&self, slot: usize, chunk: u64) -> *mut u64 {
        // SAFETY: stays inside the mapping; chunks are 8-byte aligned.
        unsafe { self.base.load(Ordering::Relaxed).add(segment::chunk_offset(slot, chunk)).cast::<u64>() }
    }

    /// Whether records are thrown away.
    pub fn is_detached(&self) -> bool {
        self.detached.load(Ordering::Relaxed)
    }

    /// Whether this is the process that memlens started, not a child of it. Asks the kernel.
    pub fn is_own_process(&self) -> bool {
        !self.is_detached() && self.control().target_pid.load(Ordering::Relaxed) == sys::process_id()
    }

    /// Gives back the slot of a child that shared our memory (vfork) and has executed another program
    /// or ended: nothing will follow.
    pub fn abandon_slot(&self, tid: u32) {
        if self.is_detached() {
            return;
        }
        let used = (self.control().slots_used.load(Ordering::Acquire) as usize).min(SLOTS);
        for slot in (0..used).map(|index| self.slot(index)) {
            if slot.tid.load(Ordering::Acquire) == tid {
                // Published before the system call that it did not come back from.
                slot.state.store(SlotState::Exited as u32, Ordering::Release);
                self.ring();
            }
        }
    }

    /// Throws records away from now on.
    pub fn detach(&self) {
        self.detached.store(true, Ordering::Relaxed);
    }

    /// Whether blocks carry epochs.
    pub fn is_multi_threaded(&self) -> bool {
        self.multi_threaded.load(Ordering::Relaxed)
    }

    /// Makes blocks built from now on carry epochs.
    pub fn set_multi_threaded(&self) {
        self.multi_threaded.store(true, Ordering::Relaxed);
    }

    /// Wakes the reader if it sleeps.
    fn ring(&self) {
        let control = self.control();
        if control.reader_waiting.swap(0, Ordering::SeqCst) != 0 {
            control.doorbell.fetch_add(1, Ordering::SeqCst);
            sys::futex_wake(&control.doorbell);
        }
    }

    /// Whether memlens still reads. Slow: asks the kernel.
    fn reader_is_gone(&self) -> bool {
        let control = self.control();
        control.closed.load(Ordering::Relaxed) != 0
            || !sys::process_runs(control.reader_pid.load(Ordering::Relaxed))
    }

    /// Announces a fork to memlens and waits until it is prepared. Returns the fork's token and the
    /// position up to which memlens knows the definitions.
    pub fn announce_fork(&self, thread: &mut Thread) -> (u64, u64) {
        let lock = self.fork_lock.load(Ordering::Relaxed);
        self.keep_definitions(true);
        // SAFETY: created in `connect`; released below.
        unsafe { dr_mutex_lock(lock) };
        let token = self.forks.fetch_add(1, Ordering::Relaxed) + 1;
        thread.event(EventKind::Fork, &[token]);
        thread.publish(SlotState::InSystemCall);
        let control = self.control();
        while !self.is_detached() {
            let answered = control.fork_answered.load(Ordering::Acquire);
            // The latter: memlens cannot do anything for forks any more.
            if answered == token as u32 || answered == u32::MAX {
                break;
            }
            self.ring();
            sys::futex_wait(&control.fork_answered, answered, PATIENCE_MS);
            if self.reader_is_gone() {
                self.detach();
            }
        }
        let known = control.fork_definitions.load(Ordering::Relaxed);
        // SAFETY: locked above.
        unsafe { dr_mutex_unlock(lock) };
        (token, known)
    }

    /// A fork begins or is over: keeps definitions meanwhile. Returns what was kept, when it was the last.
    pub fn keep_definitions(&self, begins: bool) -> Vec<(u64, Vec<u8>)> {
        let lock = self.lock.load(Ordering::Relaxed);
        // SAFETY: created in `connect`; `kept` is touched while it is held.
        unsafe {
            dr_mutex_lock(lock);
            let kept = &mut *self.kept.get();
            kept.forks = if begins { kept.forks + 1 } else { kept.forks.saturating_sub(1) };
            let definitions =
                if kept.forks == 0 { core::mem::take(&mut kept.definitions) } else { Vec::new() };
            dr_mutex_unlock(lock);
            definitions
        }
    }

    /// Forgets forks of threads that a forked child does not have.
    pub fn forget_other_forks(&self) {
        // SAFETY: the child has one thread, and its parent's other threads held no lock.
        unsafe { (*self.kept.get()).forks = 1 };
    }

    /// Writes a definition. Does nothing when detached.
    pub fn define(&self, definition: &Definition) {
        if self.is_detached() {
            return;
        }
        let mut payload = Vec::with_capacity(128);
        payload.extend((definition.kind() as u32).to_le_bytes());
        payload.extend([0; 4]);
        definition.encode(&mut payload);
        let length = (payload.len() - 8) as u32;
        payload[4..8].copy_from_slice(&length.to_le_bytes());
        payload.resize(payload.len().next_multiple_of(8), 0);
        self.write_definition(&payload);
    }

    fn write_definition(&self, payload: &[u8]) {
        let lock = self.lock.load(Ordering::Relaxed);
        // SAFETY: created in `connect`; released below on every path.
        unsafe { dr_mutex_lock(lock) };
        let control = self.control();
        let written = control.definitions_written.load(Ordering::Relaxed);
        let waiting = loop {
            let used = written - control.definitions_read.load(Ordering::Acquire);
            let waiting = used as usize + payload.len();
            if waiting <= DEFINITION_BYTES {
                let position = written as usize % DEFINITION_BYTES;
                let first = payload.len().min(DEFINITION_BYTES - position);
                // SAFETY: the ring lies at this offset of the mapping; the two pieces stay inside
                // it, and the reader does not look beyond `definitions_written`.
                unsafe {
                    let ring = self.base.load(Ordering::Relaxed).add(DEFINITION_OFFSET);
                    core::ptr::copy_nonoverlapping(payload.as_ptr(), ring.add(position), first);
                    core::ptr::copy_nonoverlapping(payload.as_ptr().add(first), ring, payload.len() - first);
                }
                let end = written + payload.len() as u64;
                control.definitions_written.store(end, Ordering::Release);
                // SAFETY: under `lock`.
                let kept = unsafe { &mut *self.kept.get() };
                if kept.forks > 0 {
                    kept.definitions.push((end, payload.to_vec()));
                }
                break waiting;
            }
            self.ring();
            if self.reader_is_gone() {
                self.detach();
                break 0;
            }
            sys::futex_wait(&control.closed, 0, 1);
        };
        // SAFETY: locked above.
        unsafe { dr_mutex_unlock(lock) };
        if waiting >= DEFINITIONS_PER_WAKE {
            self.ring();
        }
    }

    /// Defines a module and waits for memlens to say which of its addresses are special.
    pub fn define_module(&self, definition: &Definition, id: u32) -> Vec<(u64, u64, u64)> {
        self.define(definition);
        let control = self.control();
        loop {
            if self.is_detached() {
                return Vec::new();
            }
            let answered = control.answered_module.load(Ordering::Acquire);
            if answered == id {
                break;
            }
            self.ring();
            sys::futex_wait(&control.answered_module, answered, PATIENCE_MS);
            if self.reader_is_gone() {
                self.detach();
            }
        }
        let count = (control.answer_count.load(Ordering::Relaxed) as usize).min(ANSWER_CAPACITY);
        // SAFETY: memlens wrote the triples before it stored `answered_module`, and writes the next
        // answer only after the next definition.
        let triples = unsafe {
            let answers = self.base.load(Ordering::Relaxed).add(ANSWER_OFFSET).cast::<[u64; 3]>();
            core::slice::from_raw_parts(answers, count)
        };
        triples.iter().map(|&[role, start, end]| (role, start, end)).collect()
    }

    /// The process ends: lets the reader know.
    pub fn close(&self) {
        if !self.base.load(Ordering::Relaxed).is_null() && !self.is_detached() {
            self.control().state.store(2, Ordering::Release);
            self.ring();
        }
    }
}

/// Words of the thread area that instrumented code uses.
#[repr(C)]
pub struct ThreadArea {
    /// Where the next record goes.
    pub position: *mut u64,
    /// Beyond this a new chunk is needed.
    pub limit: *mut u64,
    /// The epoch's address.
    pub epoch: *const AtomicU32,
    /// Where an allocation function under way will store a block's address.
    pub kept_pointer: *const u64,
}

/// How a process is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Making {
    /// With memory of its own.
    Fork,
    /// Sharing its parent's memory until it executes a program or ends; its parent waits meanwhile.
    Vfork,
}

/// A thread's end of the channel.
pub struct Thread {
    /// Arguments of the system call under way.
    pub remembered: [u64; 4],
    /// Signals that the thread blocks.
    pub blocked_signals: u64,
    /// The kernel's mask before a change of the terminal that is under way.
    pub terminal_mask: Option<u64>,
    /// What to put back when the `execve` under way fails.
    pub saved_signals: Option<Box<Saved>>,
    /// The `execve` under way.
    pub execution: Option<Box<Execution>>,
    /// The fork under way: its token, and how far memlens knows the definitions.
    pub fork: Option<(u64, u64)>,
    /// Whether the system call under way waits, which memlens was told.
    pub waits: bool,
    /// The process that the system call under way makes.
    pub making: Option<Making>,
    /// The thread's context while it is in a call from the code cache: there it may be suspended.
    pub in_clean_call: Option<*mut core::ffi::c_void>,
    /// An argument of the system call under way that was replaced, and its value.
    pub replaced: Option<(i32, u64)>,
    area: *mut ThreadArea,
    slot: Option<usize>,
    chunk: u64,
    chunk_base: *mut u64,
    /// The chunk at which signals were looked for last, and whether that is wanted again.
    looked_at: u64,
    wants_look: bool,
}

impl Thread {
    /// Takes a slot and sets up `area`, the thread's words in DynamoRIO's thread area.
    pub fn new(area: *mut ThreadArea, tid: u32) -> Self {
        let mut thread = Self {
            remembered: [0; 4],
            blocked_signals: signals::blocked_at_start(),
            terminal_mask: None,
            saved_signals: None,
            execution: None,
            fork: None,
            waits: false,
            making: None,
            in_clean_call: None,
            replaced: None,
            area,
            slot: None,
            chunk: 0,
            chunk_base: core::ptr::null_mut(),
            looked_at: 0,
            wants_look: false,
        };
        if !CHANNEL.is_detached() {
            thread.take_slot(tid);
        }
        if thread.slot.is_none() {
            thread.throw_away();
        }
        thread
    }

    fn take_slot(&mut self, tid: u32) {
        for index in 0..SLOTS {
            let slot = CHANNEL.slot(index);
            if slot.tid.compare_exchange(0, tid, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.slot = Some(index);
                CHANNEL.control().slots_used.fetch_max(index as u32 + 1, Ordering::SeqCst);
                // A used slot goes on counting chunks where its last owner stopped.
                self.chunk = slot.chunks_read.load(Ordering::Acquire);
                slot.state.store(SlotState::Running as u32, Ordering::Release);
                self.enter_chunk();
                CHANNEL.define(&Definition::Thread(ThreadDefinition { slot: index as u32, tid }));
                return;
            }
        }
        CHANNEL.control().threads_without_slot.fetch_add(1, Ordering::Relaxed);
    }

    /// In a forked child, after [`Channel::reconnect`]: takes a slot of the new segment.
    pub fn restart(&mut self, tid: u32) {
        self.slot = None;
        self.take_slot(tid);
        if self.slot.is_none() {
            self.throw_away();
        }
    }

    /// Records go to memory of their own and are overwritten there.
    pub fn throw_away(&mut self) {
        self.slot = None;
        if let Some(memory) = sys::map_private(CHUNK_WORDS * 8) {
            self.chunk_base = memory.cast();
        }
        self.set_position(self.chunk_base);
    }

    fn enter_chunk(&mut self) {
        if let Some(slot) = self.slot {
            self.chunk_base = CHANNEL.chunk(slot, self.chunk);
        }
        self.set_position(self.chunk_base);
    }

    fn set_position(&mut self, position: *mut u64) {
        // SAFETY: `area` belongs to this thread and lives as long as it; the chunk has CHUNK_WORDS
        // words.
        unsafe {
            (*self.area).position = position;
            (*self.area).limit = self.chunk_base.add(CHUNK_WORDS - CHUNK_MARGIN_WORDS);
            (*self.area).epoch = match self.slot {
                Some(_) => &raw const CHANNEL.control().epoch.0,
                // A private word: a forked child must not touch the parent's.
                None => self.chunk_base.add(CHUNK_WORDS - 1).cast(),
            };
        }
    }

    fn position(&self) -> *mut u64 {
        // SAFETY: as above.
        unsafe { (*self.area).position }
    }

    /// Makes all complete records visible to the reader.
    pub fn publish(&self, state: SlotState) {
        let Some(slot) = self.slot else { return };
        // SAFETY: both point into the current chunk.
        let words = unsafe { self.position().offset_from(self.chunk_base) } as u64;
        let header = CHANNEL.slot(slot);
        header.written(slot, self.chunk).store(self.chunk << 32 | words, Ordering::Release);
        header.state.store(state as u32, Ordering::Release);
        if CHANNEL.is_multi_threaded() || state == SlotState::Exited {
            CHANNEL.ring();
        }
    }

    /// The thread runs again after a system call.
    pub fn resume(&self) {
        if let Some(slot) = self.slot {
            CHANNEL.slot(slot).state.store(SlotState::Running as u32, Ordering::Release);
        }
    }

    /// The chunk is full: goes to the next, taking the words of the block under way along. Whether a signal may have come that
    /// DynamoRIO keeps for later; see [`crate::signals`].
    pub fn next_chunk(&mut self) -> bool {
        let mut was_interrupted = false;
        let unfinished = self.position();
        if let Some(slot) = self.slot.filter(|_| !CHANNEL.is_detached()) {
            let header = CHANNEL.slot(slot);
            if !self.is_between_chunks() {
                // SAFETY: both point into the current chunk.
                let words = unsafe { unfinished.offset_from(self.chunk_base) } as u64;
                let closed = self.chunk << 32 | CHUNK_CLOSED | words;
                header.written(slot, self.chunk).store(closed, Ordering::Release);
                CHANNEL.ring();
                self.chunk += 1;
            }
            was_interrupted = self.wait_for_room(slot, header);
        }
        self.enter_chunk();
        // SAFETY: a block has at most MAX_BLOCK_WORDS words after its header, the margin leaves
        // room for them behind `unfinished`, and the ranges may overlap when thrown away.
        unsafe { core::ptr::copy(unfinished, self.position(), MAX_BLOCK_WORDS + 1) };
        let since = self.chunk.saturating_sub(self.looked_at);
        self.wants_look |= was_interrupted || since >= CHUNKS_PER_LOOK;
        let looks = self.wants_look && (self.looked_at == 0 || since >= CHUNKS_BETWEEN_LOOKS);
        if looks {
            (self.looked_at, self.wants_look) = (self.chunk, false);
        }
        looks
    }

    /// Whether the thread has closed a chunk and not entered the next. It waits for room then: where the process ends
    /// meanwhile, another thread tells for it that it ends.
    fn is_between_chunks(&self) -> bool {
        self.slot.is_some_and(|slot| self.chunk_base != CHANNEL.chunk(slot, self.chunk).cast())
    }

    /// Whether a signal came meanwhile.
    fn wait_for_room(&self, slot: usize, header: &SlotHeader) -> bool {
        let mut was_interrupted = false;
        let chunks = segment::chunks(slot) as u64;
        while self.chunk >= header.chunks_read.load(Ordering::Acquire) + chunks {
            let room = header.room.load(Ordering::Relaxed);
            header.writer_waiting.store(1, Ordering::SeqCst);
            if self.chunk < header.chunks_read.load(Ordering::SeqCst) + chunks {
                break;
            }
            CHANNEL.ring();
            was_interrupted |= self.sleep(&header.room, room);
            if CHANNEL.reader_is_gone() {
                CHANNEL.detach();
                break;
            }
        }
        was_interrupted
    }

    /// Sleeps on a futex. A thread that forks waits until all others are suspended; one that sleeps here
    /// must not keep it waiting, for the reader may wait for one that is suspended already.
    fn sleep(&self, word: &AtomicU32, value: u32) -> bool {
        // SAFETY: the thread's own context: `thread_exit` takes it out before it goes on for a stopped one. It holds no lock;
        // DynamoRIO resumes it where it was and, in this state, neither moves it nor removes code that it returns to.
        unsafe {
            if let Some(context) = self.in_clean_call {
                dr_mark_safe_to_suspend(context, 1);
            }
            let was_interrupted = sys::futex_wait(word, value, PATIENCE_MS);
            if let Some(context) = self.in_clean_call {
                dr_mark_safe_to_suspend(context, 0);
            }
            was_interrupted
        }
    }

    /// Where the allocation function that is returning stored its block's address.
    pub fn kept_pointer(&self) -> *const u64 {
        // SAFETY: as above.
        unsafe { (*self.area).kept_pointer }
    }

    /// Writes an event record with a stamp of its own. Call between blocks only.
    pub fn event(&mut self, kind: EventKind, payload: &[u64]) {
        if self.slot.is_none() {
            return;
        }
        // SAFETY: the comparison is between pointers into one chunk.
        if self.is_between_chunks() || self.position() >= unsafe { (*self.area).limit } {
            self.next_chunk();
        }
        let count = payload.len().min(MAX_BLOCK_WORDS - 1);
        let epoch = CHANNEL.control().epoch.0.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        let position = self.position();
        // SAFETY: the margin leaves room for a record of the largest size.
        unsafe {
            position.write(RecordHeader::new(0, count + 1, epoch).0);
            position.add(1).write(kind as u64);
            core::ptr::copy_nonoverlapping(payload.as_ptr(), position.add(2), count);
            (*self.area).position = position.add(2 + count);
        }
    }

    /// The number of the block under way, when there is one.
    pub fn block_id(&self) -> u32 {
        // SAFETY: the header is written before the block's words.
        RecordHeader(unsafe { self.position().read() }).block_id()
    }

    /// The header and words of the block under way, when there is one.
    pub fn unfinished_block(&self) -> [u64; MAX_BLOCK_WORDS + 1] {
        let mut words = [0; MAX_BLOCK_WORDS + 1];
        // SAFETY: the margin leaves that many words behind the position.
        unsafe { core::ptr::copy_nonoverlapping(self.position(), words.as_mut_ptr(), words.len()) };
        words
    }
}
