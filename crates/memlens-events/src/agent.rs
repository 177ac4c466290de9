//! The segment between the agent inside a target and memlens: allocations and timer ticks.
//!
//! ```text
//!  0        Control: what to watch, how dense, what was lost
//!  4 KiB    ring 0: header (a page), records     every thread writes to the ring that its id picks,
//!           ring 1 …                             any thread of any process of the family
//! ```
//!
//! # A ring
//!
//! Several writers, one reader, no locks. A writer moves `head` on by a compare-and-swap, fills what it got, and
//! writes the record's first word last. The reader takes records up to the first whose first word is 0, sets
//! what it took to 0, and moves `tail` on. A signal handler that interrupts a writer is just another writer.
//! A record never wraps around the end: a writer fills what is left there with [`Kind::Padding`], and so does one that finds all
//! taken behind the first quarter. Of a ring whose reader keeps up, the rest never gets memory.
//!
//! Whoever finds no room counts the loss and goes on; nobody waits for memlens. Allocations leave the last
//! quarter of a ring to the others, because a block whose end is lost would own what comes after it.
//!
//! # A record
//!
//! 64-bit words in the machine's order; the stack's bytes are padded to whole words.
//!
//! | word | all | `Allocated`, `NewMapping` | `Freed`, `Moving`, `Kept` | `Tick` |
//! |---|---|---|---|---|
//! | 0 | [`Head`] | | | |
//! | 1 | time, ns of `CLOCK_MONOTONIC` | | | |
//! | 2 | process << 32, thread | | | |
//! | 3 | | address | address | ns that it stands for |
//! | 4 | | bytes | | [`REGISTERS`] by DWARF number, then the instruction's address, then whether it came in a system call |
//! | 5 | | mean gap in bytes, 0: watched for certain | | |
//! | 6 | | old address, if it was moved, else 0 | | |
//! | 7 | | where the address was stored (`posix_memalign`), else 0 | | |
//! | 8–10 | | return address of the call, stack and frame pointer there | | |
//! | last | | bytes of stack from the stack pointer on, then they | | the same |
//!
//! A `MappingEnded` has the first address and the bytes of what was unmapped; a `MappingMoved` those of the mapping before, then those
//! of what it is now. A `Look` has the ns that it stands for, the instruction's address, and whether it came in a system call; `Started` and `Mapped` the text of its
//! /proc/self/maps, as far as it could be read, filled up with zero bytes; `Forked` the parent's process. Bursts ([`crate::burst`]) come as two more kinds: a `Block` has the words of [`BlockHead`] and of
//! its references; a `Burst` the words of [`BurstHead`], then its own.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// First word of the segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"memlensA");
/// Layout version; both sides must agree.
pub const VERSION: u32 = 17;
/// The environment variable that tells the agent its segment: a file descriptor of its own, or, in a program that the
/// target has executed, memlens's process id, a colon, and the descriptor there.
pub const VARIABLE: &str = "MEMLENS_AGENT";

/// The name of glibc's dynamic linker (its platform's, ABI since 2.2.5; on AArch64 since 2.17).
pub const GLIBC_LOADER: &str =
    if cfg!(target_arch = "aarch64") { "ld-linux-aarch64.so.1" } else { "ld-linux-x86-64.so.2" };

/// What sanitizers begin by. Where the program itself has one (clang links them statically), its `memcpy` and its like stand
/// before libc's, also for the agent's calls, and take the copy of a stack for an error.
pub const SANITIZER_FUNCTIONS: [&CStr; 5] =
    [c"__asan_init", c"__hwasan_init", c"__lsan_init", c"__msan_init", c"__tsan_init"];

/// Number of rings.
pub const RINGS: usize = 4;
/// Where the first ring begins; also the size of a ring's header.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of records in a ring: a power of two. Pages get memory when they are written, and a ring that has been read begins anew:
/// it is as large as what memlens has not read yet. What a program does while memlens reads its debug information fits in: 2,000
/// watched allocations a second with 8 KiB of stack each, and 100 bursts of 100 KB, are 26 MB.
pub const RING_BYTES: usize = 32 << 20;
/// Bytes of a ring that allocations leave free.
pub const RESERVED_BYTES: usize = RING_BYTES / 4;
/// Size of the whole file (sparse: only what is used takes memory).
pub const SEGMENT_BYTES: usize = PAGE_BYTES + RINGS * (PAGE_BYTES + RING_BYTES);
/// Bytes of stack that a record holds at most.
pub const MAX_STACK_BYTES: usize = 16 << 10;

/// In [`Control::gap_shift`]: nothing is drawn by bytes.
pub const NO_GAP: u32 = 64;
/// Mean gaps are between 2 to this power bytes, by which of the smallest blocks of glibc (24 bytes) 19 of 20 are watched, …
pub const LEAST_GAP_SHIFT: u32 = 3;
/// … and 2 to this power (64 GiB).
pub const MOST_GAP_SHIFT: u32 = 36;

/// The segment's first page.
#[repr(C, align(64))]
pub struct Control {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// memlens's process id, so that the target notices when it is gone.
    pub reader_pid: AtomicU32,
    /// 1 when memlens reads no more.
    pub closed: AtomicU32,
    /// Stack bytes copied with a record, at most [`MAX_STACK_BYTES`].
    pub stack_bytes: AtomicU32,
    /// Blocks of this many bytes and more are all watched; `u64::MAX`: none for their size.
    pub always_from_bytes: AtomicU64,
    /// Processor time between two ticks of a thread, in ns; 0: no ticks.
    pub tick_ns: AtomicU64,
    /// The mean gap between drawn bytes is 2 to this power; [`NO_GAP`]: none are drawn.
    pub gap_shift: AtomicU32,
    /// Drawn blocks since memlens last looked …
    pub window_blocks: AtomicU32,
    /// … and how many there may be before the gap is doubled.
    pub window_limit: AtomicU32,
    /// What reporting drawn blocks has taken in all, in ns, …
    pub drawing_ns: AtomicU64,
    /// … and how many these were.
    pub drawn_blocks: AtomicU64,
    /// Processes in which the agent was started.
    pub started: AtomicU32,
    /// Of those, processes whose calls of `malloc` do not reach the agent: the program has its own.
    pub own_allocator: AtomicU32,
    /// Blocks that were drawn, but for which there was no room in the agent's table.
    pub blocks_without_room: AtomicU32,
    /// Records of allocations for which the ring had no room.
    pub lost_allocations: AtomicU32,
    /// Records of ended or moved blocks for which it had none.
    pub lost_ends: AtomicU32,
    /// Ticks for which it had none.
    pub lost_ticks: AtomicU32,
    /// Threads whose timer could not be made.
    pub threads_without_timer: AtomicU32,
    /// Words of a burst at most; 0: ticks begin no bursts.
    pub burst_words: AtomicU32,
    /// The part of a thread's time that bursts may take, in millionths.
    pub burst_millionths: AtomicU32,
    /// Bursts of a process that come twice as often as those behind them.
    pub bursts_often: AtomicU32,
    /// What is left of what bursts may take before that part counts, in ns: an advance to all processes together …
    pub burst_advance_ns: AtomicU64,
    /// … and what of it they have not paid back.
    pub burst_owed_ns: AtomicU64,
    /// The process that has a handler for prompts (see `memlens-sample/src/prompts.rs`), or had when it executed another program; 0: none has.
    pub promptable: AtomicU32,
    /// The process that memlens sends prompts to; 0: none. Set before the first may come, and cleared behind the last.
    pub prompted: AtomicU32,
    /// 1: bursts leave out accesses by a register of the stack alone, and at fixed addresses.
    pub burst_filter: AtomicU32,
    /// Ticks on which no burst began: in code that is not translated, or while another thread translated.
    pub bursts_not_begun: AtomicU32,
    /// Bursts and blocks for which the ring had no room.
    pub lost_bursts: AtomicU32,
    /// Why there are no bursts, by its number in [`NO_BURSTS`]; 0: there are.
    pub no_bursts: AtomicU32,
    /// The segment's descriptor in memlens's process, plus 1; 0: the agent is not handed on to programs that the target
    /// executes.
    pub reader_descriptor: AtomicU32,
    /// Programs in which the agent was started: the first, and those that were executed.
    pub programs: AtomicU32,
    /// Programs that were executed without the agent.
    pub programs_without_agent: AtomicU32,
    /// Processes that the agent left because they were about to restrict their system calls.
    pub restricted: AtomicU32,
}

/// The agent's function that memlens calls in a process that runs already, with the address of a [`Request`].
pub const REQUEST_FUNCTION: &str = "memlens_agent_request";

/// What memlens asks of the agent, and its answer.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// Number of a [`Wish`].
    pub wish: u32,
    /// Descriptor in the process of the segment, or of the file to be mapped.
    pub segment: u32,
    /// How many threads are to get timers …
    pub thread_count: u32,
    /// … and the address of their kernel ids (32 bits each).
    pub threads: u64,
    /// Number of an [`Answer`]; 0: there is none.
    pub answer: u32,
    /// Addresses of functions in the libraries' tables that lead to the agent since this request.
    pub hooked: u32,
    /// Libraries that were looked at.
    pub modules: u32,
    /// memlens's process that has the agent already.
    pub reader_pid: u32,
    /// Where the file is to be mapped, and nothing may be yet.
    pub address: u64,
    /// Bytes of its code, whole pages, which are mapped first …
    pub code_bytes: u32,
    /// … and of its data behind them.
    pub data_bytes: u32,
}

/// What a [`Request`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Wish {
    /// Begin, with a segment.
    Begin = 1,
    /// Hook the tables of libraries that were loaded later, too.
    Look = 2,
    /// End: put everything back.
    End = 3,
    /// Map a file with code and data at a given place, for good.
    Map = 4,
}

/// What the agent says to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Answer {
    /// It is done.
    Done = 1,
    /// The agent in the process is of another version.
    OtherVersion = 2,
    /// Another memlens has it.
    Busy = 3,
    /// There was no memory, or not in that place, or too old a kernel.
    NoMemory = 4,
    /// Some thread is still at work in the agent: the segment and the tick's handler are still there. Asked again
    /// later, it ends.
    NotYet = 5,
}

impl Answer {
    /// By its number.
    pub fn of(number: u32) -> Option<Self> {
        let all = [Self::Done, Self::OtherVersion, Self::Busy, Self::NoMemory, Self::NotYet];
        all.into_iter().find(|&answer| answer as u32 == number)
    }
}

/// Why a process has no bursts, from number 1 on.
pub const NO_BURSTS: [&str; 3] = [
    "the processor lacks SSE 4.2 or XSAVE",
    "the processor's vector registers are larger than is known",
    "the process has shadow stacks",
];

/// The head of a ring.
#[repr(C, align(64))]
pub struct RingHeader {
    /// Bytes given to writers since the start, with those passed over where the ring began anew.
    pub head: AtomicU64,
    /// Keeps the two sides' words on different cache lines.
    pub apart: [u64; 15],
    /// Bytes taken by the reader since the start, in the same way. Both move when it lets the ring begin anew: the head first.
    pub tail: AtomicU64,
}

/// Offset of a ring's header in the segment; its records follow a page later.
pub const fn ring_offset(ring: usize) -> usize {
    PAGE_BYTES + (ring % RINGS) * (PAGE_BYTES + RING_BYTES)
}

const _: () = {
    assert!(size_of::<Control>() <= PAGE_BYTES && size_of::<RingHeader>() <= PAGE_BYTES);
    assert!(RING_BYTES.is_power_of_two() && RING_BYTES > 16 * MAX_STACK_BYTES);
};

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Nothing: the end of a ring is passed over.
    Padding = 1,
    /// A watched block came into being.
    Allocated = 2,
    /// A watched block ended.
    Freed = 3,
    /// A watched block is being moved or resized; it ends, unless `Kept`, or `Allocated` with its address as
    /// the old one, follows from the same thread.
    Moving = 4,
    /// It was not moved after all.
    Kept = 5,
    /// A thread has used so much processor time.
    Tick = 6,
    /// A block of translated code has been made.
    Block = 7,
    /// A thread has run translated code for a while.
    Burst = 8,
    /// The agent was started in a program: the process has become another.
    Started = 9,
    /// Where a thread is, between bursts.
    Look = 10,
    /// The process is a forked child, and writes its first record.
    Forked = 11,
    /// What a process has mapped that may have ended before memlens looks.
    Mapped = 12,
    /// The program mapped anonymous memory, which is watched.
    NewMapping = 13,
    /// It unmapped some memory, whatever it was.
    MappingEnded = 14,
    /// It changed a mapping's size, and perhaps its place (mremap(2)).
    MappingMoved = 15,
    /// A thread that writes a burst has another name than it had at its last one.
    Named = 16,
}

impl Kind {
    fn from_code(code: u8) -> Option<Self> {
        let kinds = [
            Self::Padding,
            Self::Allocated,
            Self::Freed,
            Self::Moving,
            Self::Kept,
            Self::Tick,
            Self::Block,
            Self::Burst,
            Self::Started,
            Self::Look,
            Self::Forked,
            Self::Mapped,
            Self::NewMapping,
            Self::MappingEnded,
            Self::MappingMoved,
            Self::Named,
        ];
        kinds.into_iter().find(|&kind| kind as u8 == code)
    }
}

/// A record's first word: never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its kind.
    pub kind: Kind,
    /// Its length with this word, in bytes: a multiple of 8.
    pub length: u32,
}

impl Head {
    /// As one word.
    pub fn word(self) -> u64 {
        ((self.kind as u64) << 32) | u64::from(self.length)
    }

    /// From one word; None: damaged.
    pub fn of(word: u64) -> Option<Self> {
        let length = word as u32;
        let kind = Kind::from_code(u8::try_from(word >> 32).ok()?)?;
        (length >= 8 && length.is_multiple_of(8) && length as usize <= RING_BYTES)
            .then_some(Self { kind, length })
    }
}

/// Words of `Freed`, `Moving` and `Kept`.
pub const END_WORDS: usize = 4;
/// Words of `Allocated` before the stack.
pub const ALLOCATED_WORDS: usize = 12;
/// Words of `Tick` before the stack.
pub const TICK_WORDS: usize = 4 + REGISTERS + 3;

/// Registers of a `Tick`, by DWARF number: on x86-64 the 16 general ones (System V ABI AMD64 1.0, figure 3.36), on AArch64 x0 to x30 and sp (DWARF
/// for the Arm 64-bit Architecture, 2023Q3, section 4.1).
pub const REGISTERS: usize = if cfg!(target_arch = "aarch64") { 32 } else { 16 };
/// The stack pointer among them: rsp, or sp.
pub const SP: usize = if cfg!(target_arch = "aarch64") { 31 } else { 7 };
/// The frame pointer, of code that has one: rbp, or x29.
pub const FP: usize = if cfg!(target_arch = "aarch64") { 29 } else { 6 };

/// Where a call was made from: enough to unwind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Return address.
    pub ip: u64,
    /// Stack pointer after the return.
    pub sp: u64,
    /// The frame pointer: rbp, or x29.
    pub bp: u64,
}

/// The begin of a watched block, or mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// First byte.
    pub address: u64,
    /// Size as requested.
    pub size_bytes: u64,
    /// Mean gap between drawn bytes when it was drawn; 0: it would have been watched in any case.
    pub gap_bytes: u64,
    /// Where it was before; 0: it is new, or was not watched.
    pub old_address: u64,
    /// Where the address was stored, if it was not returned; else 0.
    pub stored_at: u64,
    /// Who asked for it.
    pub caller: Caller,
}

impl Allocation {
    /// The words behind the first three.
    pub fn words(&self) -> [u64; ALLOCATED_WORDS - 4] {
        let Caller { ip, sp, bp } = self.caller;
        [self.address, self.size_bytes, self.gap_bytes, self.old_address, self.stored_at, ip, sp, bp]
    }
}

/// Some memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub address: u64,
    /// How many there are.
    pub size_bytes: u64,
}

/// What a burst's record says before its words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BurstHead {
    /// Which numbering of blocks it uses.
    pub generation: u64,
    /// Processor time of the thread that it stands for, in ns.
    pub period_ns: u64,
    /// Processor time that it took, in ns, with what followed it …
    pub own_ns: u64,
    /// … and without.
    pub recorded_ns: u64,
    /// Processor cycles that it took (time-stamp counter) …
    pub cycles: u64,
    /// … and those that were not the thread's own code: translation.
    pub runtime_cycles: u64,
    /// The thread pointer (`fs` base).
    pub thread_pointer: u64,
    /// Number of its [`End`](crate::burst::End).
    pub end: u64,
    /// Blocks that were translated in it.
    pub new_blocks: u64,
    /// Words that the thread would have stored behind the burst, where it ran from copies that only count: in the pieces of
    /// that stretch which tell its speed; 0: there are none …
    pub counted_words: u64,
    /// … their processor time in ns …
    pub counted_ns: u64,
    /// … words that it would have stored in the other pieces …
    pub words_besides: u64,
    /// … and processor cycles that a fixed number of additions took there; 0: not measured.
    pub loop_cycles: u64,
    /// How many of the pieces that tell the speed are slow for page faults that most did not have.
    pub slow_faults: u64,
    /// How often the thread allocated since the end of the last burst that was reported of it, but for blocks that are watched for their size
    /// alone …
    pub allocations_before: u64,
    /// … and in this one, with what was counted behind it.
    pub allocations: u64,
    /// The processor that it ended on: its number and 1; 0: not known.
    pub processor: u64,
}

/// What comes before a block's references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockHead {
    /// Which numbering of blocks it belongs to.
    pub generation: u64,
    /// Its number.
    pub number: u32,
    /// Whether it ends with a return or an indirect jump or call.
    pub ends_indirectly: bool,
    /// Native address of its first instruction.
    pub pc: u64,
}

/// Words of [`BlockHead`].
pub const BLOCK_HEAD_WORDS: usize = 3;

impl BlockHead {
    /// As it is sent.
    pub fn words(&self) -> [u64; BLOCK_HEAD_WORDS] {
        [self.generation, u64::from(self.number) | u64::from(self.ends_indirectly) << 32, self.pc]
    }

    /// From its words.
    pub fn of([generation, number, pc]: [u64; BLOCK_HEAD_WORDS]) -> Self {
        Self { generation, number: number as u32, ends_indirectly: number >> 32 & 1 != 0, pc }
    }
}

/// Words of [`BurstHead`].
pub const BURST_HEAD_WORDS: usize = 17;

impl BurstHead {
    /// As it is sent.
    pub fn words(&self) -> [u64; BURST_HEAD_WORDS] {
        let &Self {
            generation,
            period_ns,
            own_ns,
            recorded_ns,
            cycles,
            runtime_cycles,
            thread_pointer,
            end,
            new_blocks,
            counted_words,
            counted_ns,
            words_besides,
            loop_cycles,
            slow_faults,
            allocations_before,
            allocations,
            processor,
        } = self;
        [
            generation,
            period_ns,
            own_ns,
            recorded_ns,
            cycles,
            runtime_cycles,
            thread_pointer,
            end,
            new_blocks,
            counted_words,
            counted_ns,
            words_besides,
            loop_cycles,
            slow_faults,
            allocations_before,
            allocations,
            processor,
        ]
    }

    fn of(words: [u64; BURST_HEAD_WORDS]) -> Self {
        let [
            generation,
            period_ns,
            own_ns,
            recorded_ns,
            cycles,
            runtime_cycles,
            thread_pointer,
            end,
            new_blocks,
            counted_words,
            counted_ns,
            words_besides,
            loop_cycles,
            slow_faults,
            allocations_before,
            allocations,
            processor,
        ] = words;
        Self {
            generation,
            period_ns,
            own_ns,
            recorded_ns,
            cycles,
            runtime_cycles,
            thread_pointer,
            end,
            new_blocks,
            counted_words,
            counted_ns,
            words_besides,
            loop_cycles,
            slow_faults,
            allocations_before,
            allocations,
            processor,
        }
    }
}

/// What a thread was doing when a tick or a look came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activity {
    /// It executed code.
    #[default]
    Code,
    /// It was in a system call, or in what the agent does for it; told of at the end of that.
    Call,
    /// It waited in a loop for another thread. Known where there are bursts.
    Spin,
}

impl Activity {
    /// In an event.
    pub fn word(self) -> u64 {
        self as u64
    }

    /// What an event says.
    fn of(word: u64) -> Self {
        match word {
            0 => Self::Code,
            2 => Self::Spin,
            _ => Self::Call,
        }
    }
}

/// What a record says, with the bytes of its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// See [`Kind::Allocated`].
    Allocated(Allocation, &'a [u8]),
    /// See [`Kind::NewMapping`].
    NewMapping(Allocation, &'a [u8]),
    /// See [`Kind::MappingEnded`].
    MappingEnded(Extent),
    /// See [`Kind::MappingMoved`].
    MappingMoved {
        /// What the mapping was …
        from: Extent,
        /// … and is.
        to: Extent,
    },
    /// See [`Kind::Freed`].
    Freed(u64),
    /// See [`Kind::Moving`].
    Moving(u64),
    /// See [`Kind::Kept`].
    Kept(u64),
    /// See [`Kind::Tick`].
    Tick {
        /// Processor time that it stands for, in ns.
        period_ns: u64,
        /// By DWARF number.
        registers: [u64; REGISTERS],
        /// The interrupted instruction.
        ip: u64,
        /// What it came in.
        activity: Activity,
        /// From the stack pointer on.
        stack: &'a [u8],
    },
    /// See [`Kind::Block`].
    Block {
        /// What is known of it.
        head: BlockHead,
        /// Its references: [`REFERENCE_WORDS`](crate::burst::REFERENCE_WORDS) words each, in the machine's order.
        references: &'a [u8],
    },
    /// See [`Kind::Burst`].
    Burst {
        /// What is known of it.
        head: BurstHead,
        /// Its words, in the machine's order; see [`crate::burst`].
        words: &'a [u8],
    },
    /// See [`Kind::Started`].
    Started {
        /// What was mapped then, as proc_pid_maps(5) has it; empty: it could not be read.
        mappings: &'a [u8],
    },
    /// See [`Kind::Mapped`].
    Mapped {
        /// As proc_pid_maps(5) has it.
        mappings: &'a [u8],
    },
    /// See [`Kind::Look`].
    Look {
        /// Processor time that it stands for, in ns.
        period_ns: u64,
        /// The interrupted instruction.
        ip: u64,
        /// What it came in.
        activity: Activity,
    },
    /// See [`Kind::Named`].
    Named {
        /// As the kernel has it.
        name: &'a [u8],
    },
    /// See [`Kind::Forked`].
    Forked {
        /// The parent; of one that the agent never saw in a process between, an older ancestor.
        parent_pid: u32,
    },
}

/// A whole record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentRecord<'a> {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// What happened.
    pub event: Event<'a>,
}

impl<'a> AgentRecord<'a> {
    /// Reads a record from its bytes, first word included. None: damaged, or padding.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let word = |at: usize| {
            let bytes = bytes.get(at * 8..at * 8 + 8)?;
            Some(u64::from_ne_bytes(bytes.try_into().ok()?))
        };
        let stack = |at: usize| {
            let length = usize::try_from(word(at)?).ok()?;
            bytes.get(at * 8 + 8..)?.get(..length)
        };
        let rest = |at: usize| bytes.get(at * 8..);
        let extent = |at: usize| Some(Extent { address: word(at)?, size_bytes: word(at + 1)? });
        let head = Head::of(word(0)?).filter(|head| head.length as usize == bytes.len())?;
        let who = word(2)?;
        let event = match head.kind {
            Kind::Padding => return None,
            Kind::Freed => Event::Freed(word(3)?),
            Kind::Moving => Event::Moving(word(3)?),
            Kind::Kept => Event::Kept(word(3)?),
            Kind::MappingEnded => Event::MappingEnded(extent(3)?),
            Kind::MappingMoved => Event::MappingMoved { from: extent(3)?, to: extent(5)? },
            Kind::Allocated | Kind::NewMapping => {
                let allocation = Allocation {
                    address: word(3)?,
                    size_bytes: word(4)?,
                    gap_bytes: word(5)?,
                    old_address: word(6)?,
                    stored_at: word(7)?,
                    caller: Caller { ip: word(8)?, sp: word(9)?, bp: word(10)? },
                };
                let stack = stack(ALLOCATED_WORDS - 1)?;
                match head.kind {
                    Kind::NewMapping => Event::NewMapping(allocation, stack),
                    _ => Event::Allocated(allocation, stack),
                }
            }
            Kind::Tick => {
                let mut registers = [0; REGISTERS];
                for (index, register) in registers.iter_mut().enumerate() {
                    *register = word(4 + index)?;
                }
                Event::Tick {
                    period_ns: word(3)?,
                    registers,
                    ip: word(4 + REGISTERS)?,
                    activity: Activity::of(word(5 + REGISTERS)?),
                    stack: stack(TICK_WORDS - 1)?,
                }
            }
            Kind::Block => Event::Block {
                head: BlockHead::of([word(3)?, word(4)?, word(5)?]),
                references: rest(3 + BLOCK_HEAD_WORDS)?,
            },
            Kind::Burst => {
                let mut words = [0; BURST_HEAD_WORDS];
                for (index, place) in words.iter_mut().enumerate() {
                    *place = word(3 + index)?;
                }
                Event::Burst { head: BurstHead::of(words), words: rest(3 + BURST_HEAD_WORDS)? }
            }
            Kind::Started => Event::Started { mappings: text_of(rest(3)?) },
            Kind::Mapped => Event::Mapped { mappings: text_of(rest(3)?) },
            Kind::Look => Event::Look { period_ns: word(3)?, ip: word(4)?, activity: Activity::of(word(5)?) },
            Kind::Named => {
                Event::Named { name: rest(3)?.split(|&byte| byte == 0).next().unwrap_or_default() }
            }
            Kind::Forked => Event::Forked { parent_pid: word(3)? as u32 },
        };
        Some(Self { time_ns: word(1)?, pid: (who >> 32) as u32, tid: who as u32, event })
    }
}

/// Text that was filled up to whole words.
fn text_of(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn an_allocation_comes_out_as_it_went_in() {
        let caller = Caller { ip: 8, sp: 9, bp: 10 };
        let allocation =
            Allocation { address: 3, size_bytes: 4, gap_bytes: 5, old_address: 6, stored_at: 7, caller };
        let length = 8 * (ALLOCATED_WORDS as u32 + 1);
        let mut words = std::vec![Head { kind: Kind::Allocated, length }.word(), 99, (11 << 32) | 12];
        words.extend(allocation.words());
        // Five bytes of stack, padded to a word.
        words.extend([5, u64::from_ne_bytes(*b"stack\0\0\0")]);
        let bytes = bytes(&words);
        let record = AgentRecord::decode(&bytes).expect("whole");
        assert_eq!((record.time_ns, record.pid, record.tid), (99, 11, 12));
        assert_eq!(record.event, Event::Allocated(allocation, b"stack"));
        for cut in 0..bytes.len() {
            assert_eq!(AgentRecord::decode(&bytes[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn a_damaged_record_is_no_record() {
        assert_eq!(Head::of(0), None);
        assert_eq!(Head::of((Kind::Freed as u64) << 32 | 12), None, "not whole words");
        assert_eq!(Head::of(200 << 32 | 16), None, "no such kind");
        let freed = Head { kind: Kind::Freed, length: 32 };
        assert_eq!(Head::of(freed.word()), Some(freed));
        assert_eq!(Head::of(freed.word() | 1 << 40), None, "bits that no head has");
        let length = 8 * END_WORDS as u32;
        let whole = bytes(&[Head { kind: Kind::Freed, length }.word(), 1, 2, 0x1000]);
        assert_eq!(AgentRecord::decode(&whole).map(|record| record.event), Some(Event::Freed(0x1000)));
        let mappings = b"0-8 r\n";
        for (kind, event) in
            [(Kind::Started, Event::Started { mappings }), (Kind::Mapped, Event::Mapped { mappings })]
        {
            let words = [Head { kind, length: 8 * 4 }.word(), 1, 2, u64::from_ne_bytes(*b"0-8 r\n\0\0")];
            assert_eq!(AgentRecord::decode(&bytes(&words)).map(|record| record.event), Some(event));
        }
        let name =
            [Head { kind: Kind::Named, length: 8 * 5 }.word(), 1, 2, u64::from_ne_bytes(*b"worker-1"), 0];
        let named = Event::Named { name: b"worker-1" };
        assert_eq!(AgentRecord::decode(&bytes(&name)).map(|record| record.event), Some(named));
        let length = 8 * 6;
        let whole = bytes(&[Head { kind: Kind::Look, length }.word(), 1, 2, 5000, 0x1000, 1]);
        let look = Event::Look { period_ns: 5000, ip: 0x1000, activity: Activity::Call };
        assert_eq!(AgentRecord::decode(&whole).map(|record| record.event), Some(look));
        assert_eq!(AgentRecord::decode(&whole[..40]), None);
        let whole = bytes(&[Head { kind: Kind::Forked, length: 8 * 4 }.word(), 1, 2, 77]);
        let forked = Event::Forked { parent_pid: 77 };
        assert_eq!(AgentRecord::decode(&whole).map(|record| record.event), Some(forked));
        let whole =
            bytes(&[Head { kind: Kind::MappingMoved, length: 8 * 7 }.word(), 1, 2, 0x1000, 64, 0x2000, 128]);
        let extent = |address, size_bytes| Extent { address, size_bytes };
        let moved = Event::MappingMoved { from: extent(0x1000, 64), to: extent(0x2000, 128) };
        assert_eq!(AgentRecord::decode(&whole).map(|record| record.event), Some(moved));
        let whole = bytes(&[Head { kind: Kind::MappingEnded, length: 8 * 5 }.word(), 1, 2, 0x1000, 64]);
        let ended = Event::MappingEnded(extent(0x1000, 64));
        assert_eq!(AgentRecord::decode(&whole).map(|record| record.event), Some(ended));
        // A stack longer than the record.
        let mut words = [0; ALLOCATED_WORDS + 1];
        words[0] = Head { kind: Kind::Allocated, length: 8 * words.len() as u32 }.word();
        words[ALLOCATED_WORDS - 1] = 9;
        assert_eq!(AgentRecord::decode(&bytes(&words)), None);
    }
}
