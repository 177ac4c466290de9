//! The shared-memory segment: one file that the target and memlens both map.
//!
//! ```text
//!  0            Control             one page
//!  4 KiB        answers             module answers (pairs of words)
//!  64 KiB       definitions ring    DEFINITION_BYTES
//!  …            slot 0 header, chunks; slot 1 header, chunks; … those of the first slots are more
//! ```
//!
//! All fields are atomics: the two sides share nothing else. Positions only grow; a ring index is
//! the position modulo the ring's size.
//!
//! # Signal safety
//! Nothing here allocates, locks or makes a system call.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// What a new process asks memlens for its segment: four words, [`MAGIC`], one of these, the number of the
/// parent's segment, and the parent's token for the fork.
pub const ARRIVED_BY_FORK: u64 = 1;
/// See [`ARRIVED_BY_FORK`]; number and token are 0.
pub const ARRIVED_BY_EXEC: u64 = 2;

/// The client's word for recording the programs that the first one executes in its own place.
pub const FOLLOW_EXECUTED: &str = "executed";
/// For recording those, and all processes that it makes.
pub const FOLLOW_CHILDREN: &str = "children";

/// First word of the segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"memlens1");
/// Layout version; both sides must agree.
pub const VERSION: u32 = 5;

/// In `SlotHeader::written`: the writer has left the chunk.
pub const CHUNK_CLOSED: u64 = 1 << 31;

/// Where the answers to module definitions start.
pub const ANSWER_OFFSET: usize = 4096;
/// Room for answers, in (role, address, end address) triples.
pub const ANSWER_CAPACITY: usize = (DEFINITION_OFFSET - ANSWER_OFFSET) / 24;
/// Where the definitions ring starts.
pub const DEFINITION_OFFSET: usize = 64 << 10;
/// Size of the definitions ring.
pub const DEFINITION_BYTES: usize = 1 << 20;
/// Where the slots start.
pub const SLOT_OFFSET: usize = DEFINITION_OFFSET + DEFINITION_BYTES;
/// Size of a slot's header.
pub const SLOT_HEADER_BYTES: usize = 4096;
/// Words in a chunk.
pub const CHUNK_WORDS: usize = 16 << 10;
/// Chunks in the rings of the first [`LONG_RINGS`] slots, enough for the time until a scheduler that has more threads than
/// processors lets the other side run: some milliseconds of records. In short rings either side sleeps now and then while there is
/// a processor for it.
pub const LONG_CHUNKS: usize = 32;
/// How many slots have long rings: what programs of hundreds of threads take stays bounded.
pub const LONG_RINGS: usize = 16;
/// Chunks in all other rings.
pub const SHORT_CHUNKS: usize = 8;
/// Words at a chunk's end that a record may run into: the space check happens once a block.
pub const CHUNK_MARGIN_WORDS: usize = 2 * (crate::MAX_BLOCK_WORDS + 1);
/// How many threads can live at the same time.
pub const SLOTS: usize = 1024;
/// Size of the whole file (sparse: only what is used takes memory).
pub const SEGMENT_BYTES: usize = slot_offset(SLOTS);

/// The segment's first page.
#[repr(C, align(64))]
pub struct Control {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// memlens's process id, so that the target notices when it is gone.
    pub reader_pid: AtomicU32,
    /// 1 when memlens reads no more: the target then goes on without recording.
    pub closed: AtomicU32,
    /// 1 while the reader sleeps on `doorbell`.
    pub reader_waiting: AtomicU32,
    /// Futex: changes when there is something to read.
    pub doorbell: AtomicU32,
    /// Threads that found no slot.
    pub threads_without_slot: AtomicU32,
    /// Blocks that found no id.
    pub blocks_without_id: AtomicU32,
    /// Accesses that instrumentation could not record, by static count.
    pub references_unrecorded: AtomicU32,
    /// Filters of system calls that the target asked for and did not get.
    pub filters_withheld: AtomicU32,
    /// Processes that the target forked and that record nothing.
    pub children_unrecorded: AtomicU32,
    /// Slots below this index have been taken at some time.
    pub slots_used: AtomicU32,
    /// The target's process id, once the collector runs.
    pub target_pid: AtomicU32,
    /// 1 when the collector has begun, 2 when the process has ended normally.
    pub state: AtomicU32,
    /// See [`ANSWER_OFFSET`]: number of triples in the current answer.
    pub answer_count: AtomicU32,
    /// Futex: the id of the module answered last.
    pub answered_module: AtomicU32,
    /// Bytes of definitions written.
    pub definitions_written: AtomicU64,
    /// Bytes of definitions read.
    pub definitions_read: AtomicU64,
    /// memlens's number for the segment, if children are followed.
    pub number: AtomicU32,
    /// Futex: low half of the token of the `Fork` event that memlens has dealt with last.
    pub fork_answered: AtomicU32,
    /// `definitions_read` at that time: what was defined before, the child's pipeline knows.
    pub fork_definitions: AtomicU64,
    /// The epoch, alone on its cache line.
    pub epoch: Epoch,
}

/// The event counter shared by all threads; see the crate's promises.
#[repr(C, align(64))]
pub struct Epoch(pub AtomicU32);

/// The head of a slot.
#[repr(C, align(64))]
pub struct SlotHeader {
    /// Kernel thread id; 0 = free.
    pub tid: AtomicU32,
    /// See [`SlotState`].
    pub state: AtomicU32,
    /// Futex: low half of `chunks_read`, for a writer that waits for room.
    pub room: AtomicU32,
    /// 1 while the writer waits for room.
    pub writer_waiting: AtomicU32,
    /// For each chunk: chunk number << 32, [`CHUNK_CLOSED`], words published. See [`Self::written`].
    written: [AtomicU64; LONG_CHUNKS],
    /// Chunks that the reader has given back.
    pub chunks_read: AtomicU64,
}

/// What a slot's thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SlotState {
    /// Nobody owns the slot.
    Free = 0,
    /// The thread runs; unpublished records may exist.
    Running = 1,
    /// The thread is in a system call; all its records are published.
    InSystemCall = 2,
    /// The thread is gone; all its records are published.
    Exited = 3,
}

impl SlotState {
    /// The state with this code; unknown codes read as `Running`, the cautious choice.
    pub fn from_code(code: u32) -> Self {
        match code {
            0 => Self::Free,
            2 => Self::InSystemCall,
            3 => Self::Exited,
            _ => Self::Running,
        }
    }
}

impl SlotHeader {
    /// What the writer says of chunk number `chunk` of slot `slot`, whose header this is.
    #[inline]
    pub fn written(&self, slot: usize, chunk: u64) -> &AtomicU64 {
        &self.written[place(slot, chunk)]
    }
}

/// Chunks in the ring of slot `slot`; a power of two.
#[inline]
pub const fn chunks(slot: usize) -> usize {
    if slot < LONG_RINGS { LONG_CHUNKS } else { SHORT_CHUNKS }
}

/// Which chunk of its ring chunk number `chunk` (any position in the stream) of slot `slot` is.
const fn place(slot: usize, chunk: u64) -> usize {
    chunk as usize % chunks(slot)
}

/// Offset of slot `slot` in the segment.
pub const fn slot_offset(slot: usize) -> usize {
    let long = if slot < LONG_RINGS { slot } else { LONG_RINGS };
    let chunks = long * LONG_CHUNKS + (slot - long) * SHORT_CHUNKS;
    SLOT_OFFSET + slot * SLOT_HEADER_BYTES + chunks * CHUNK_WORDS * 8
}

/// Offset of chunk number `chunk` (any position in the stream) of slot `slot`.
pub const fn chunk_offset(slot: usize, chunk: u64) -> usize {
    slot_offset(slot) + SLOT_HEADER_BYTES + place(slot, chunk) * CHUNK_WORDS * 8
}

const _: () = {
    assert!(core::mem::size_of::<Control>() <= ANSWER_OFFSET);
    assert!(core::mem::size_of::<SlotHeader>() <= SLOT_HEADER_BYTES);
    assert!((CHUNK_WORDS * 8).is_multiple_of(4096) && SLOT_HEADER_BYTES.is_multiple_of(4096));
    assert!(LONG_CHUNKS.is_power_of_two() && SHORT_CHUNKS.is_power_of_two());
    // What a thread closed and what it enters next are told apart by their places.
    assert!(1 < SHORT_CHUNKS && SHORT_CHUNKS <= LONG_CHUNKS);
};
