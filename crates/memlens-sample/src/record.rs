//! The kernel's records, from bytes.
//!
//! Source: linux/perf_event.h, `enum perf_event_type` (Linux 6.12), which states the order of the
//! fields. The layout of a sample follows from the attributes its event was opened with.

use memlens_code::Architecture;
use memlens_events::agent::{Activity, BlockHead, BurstHead};
use memlens_events::burst::Reference;
use perf_event_open_sys::bindings as abi;
use thiserror::Error;

use crate::heap::HeapEvent;
use crate::registers::{PerfRegisters, Registers};

/// One sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The event it belongs to.
    pub id: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Sampled instruction.
    pub ip: u64,
    /// What the sample stands for: nanoseconds or events.
    pub period: u64,
    /// Data address that the processor reported; 0 means that it did not.
    pub data_address: u64,
    /// Whether `ip` is exactly the instruction that caused the event.
    pub is_exact: bool,
    /// Whether it was taken in user mode.
    pub is_user: bool,
    /// What it was due in. Those in system calls are taken at the call's end. Only the agent's are in anything but code.
    pub activity: Activity,
    /// Registers in user mode.
    pub registers: Option<Registers>,
    /// The stack from its pointer upwards.
    pub stack: Vec<u8>,
    /// Latency or other weight, as the processor defines it.
    pub weight: u64,
    /// `union perf_mem_data_src`.
    pub data_source: u64,
    /// Physical address of the data; 0: unknown.
    pub physical_address: u64,
    /// Size of the data's page in bytes; 0: unknown.
    pub page_bytes: u64,
}

/// A mapping that came into being.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewMapping {
    /// Process.
    pub pid: u32,
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// Offset in the file, in bytes.
    pub file_offset: u64,
    /// Inode of the file; 0: unknown.
    pub inode: u64,
    /// Whether code in it can be executed.
    pub is_executable: bool,
    /// Whether nobody may access it, as far as that is known: addresses are kept free, say between a library's segments.
    pub is_reserved: bool,
    /// Path, `[heap]`, `//anon` …
    pub name: String,
}

/// Bytes that an event has written to an AUX area, a memory of its own beside the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuxRecord {
    /// Process that ran when it was done.
    pub pid: u32,
    /// Thread that did.
    pub tid: u32,
    /// Processor, if the record says so.
    pub cpu: Option<u32>,
    /// Of the first byte, of all that were ever written there.
    pub offset: u64,
    /// How many.
    pub size: u64,
    /// `PERF_AUX_FLAG_…`.
    pub flags: u64,
}

impl AuxRecord {
    /// Behind the last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.size)
    }

    /// Whether there was no room for what came then: the event may have stopped.
    pub fn is_truncated(&self) -> bool {
        self.flags & u64::from(abi::PERF_AUX_FLAG_TRUNCATED) != 0
    }

    /// Whether something is missing there: no room, a gap, or an operation that was chosen before the one before it was done.
    pub fn has_lost(&self) -> bool {
        let missing =
            abi::PERF_AUX_FLAG_TRUNCATED | abi::PERF_AUX_FLAG_PARTIAL | abi::PERF_AUX_FLAG_COLLISION;
        self.flags & u64::from(missing) != 0
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// A sample.
    Sample(Box<Sample>),
    /// A mapping.
    Mapping(NewMapping),
    /// A thread has a name; with `is_exec` the process has a new program.
    Name {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// Its name.
        name: String,
        /// Whether it executed a program.
        is_exec: bool,
    },
    /// A thread or process began.
    Fork {
        /// Process.
        pid: u32,
        /// Process of the parent.
        parent_pid: u32,
        /// Thread.
        tid: u32,
    },
    /// A thread ended.
    Exit {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
    },
    /// The agent reports a watched heap block.
    Heap {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// What became of the block.
        event: HeapEvent,
    },
    /// The agent has made a block of translated code.
    Block {
        /// Process.
        pid: u32,
        /// What is known of it.
        head: BlockHead,
        /// Its references.
        references: Vec<Reference>,
    },
    /// The agent finds itself in a copy of a process that it was in.
    Forked {
        /// Process.
        pid: u32,
        /// Process that was copied.
        parent_pid: u32,
    },
    /// A program was started with the agent in it, in a process that may have run another before.
    Started {
        /// The process.
        pid: u32,
        /// What it had mapped when the record was read.
        mappings: Vec<NewMapping>,
    },
    /// What a process has mapped.
    Mapped {
        /// The process.
        pid: u32,
        /// All of its mappings.
        mappings: Vec<NewMapping>,
    },
    /// The agent reports a burst.
    Burst {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// What is known of it.
        head: Box<BurstHead>,
        /// See [`memlens_events::burst`].
        words: Vec<u64>,
    },
    /// The agent says where a thread is, between bursts.
    Look {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// Processor time that it stands for, in ns.
        period_ns: u64,
        /// The interrupted instruction.
        ip: u64,
        /// What it came in.
        activity: Activity,
    },
    /// The kernel's clock says where a thread is, between what the agent says.
    Glance {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// Time that a thread which runs goes on until the next, in ns.
        period_ns: u64,
        /// The interrupted instruction.
        ip: u64,
    },
    /// An event has written to its AUX area.
    Aux(AuxRecord),
    /// Records that the kernel dropped.
    Lost(u64),
    /// The kernel slowed an event down.
    Throttled,
    /// Nothing of interest.
    Other,
}

/// A record with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedRecord {
    /// Nanoseconds of the events' clock.
    pub time_ns: u64,
    /// What it says.
    pub record: Record,
}

/// A record that ends before its fields do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("read record of type {record_type}: it ends at byte {length}, in the middle of its fields")]
pub struct RecordError {
    /// `perf_event_header.type`.
    pub record_type: u32,
    /// Bytes behind the header.
    pub length: usize,
}

/// What decides where the fields of a record are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Whose registers samples have; None: of an architecture that is not known, and they mean nothing.
    pub architecture: Option<Architecture>,
    /// `perf_event_attr.sample_type`.
    pub sample_type: u64,
    /// `read_format`.
    pub read_format: u64,
    /// `sample_regs_user`.
    pub user_registers: u64,
    /// `sample_regs_intr`.
    pub interrupt_registers: u64,
    /// `branch_sample_type`.
    pub branch_sample_type: u64,
    /// `sample_id_all`.
    pub has_sample_id: bool,
    /// What a sample stands for that does not say it: `sample_period`.
    pub fixed_period: u64,
}

struct Cursor<'a> {
    rest: &'a [u8],
    error: RecordError,
}

impl<'a> Cursor<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], RecordError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(self.error)?;
        self.rest = rest;
        Ok(taken)
    }

    fn u64(&mut self) -> Result<u64, RecordError> {
        let bytes = self.bytes(8)?;
        Ok(bytes.try_into().map(u64::from_le_bytes).unwrap_or(0))
    }

    fn u32(&mut self) -> Result<u32, RecordError> {
        let bytes = self.bytes(4)?;
        Ok(bytes.try_into().map(u32::from_le_bytes).unwrap_or(0))
    }

    fn words(&mut self, count: u64) -> Result<&'a [u8], RecordError> {
        let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(8)).ok_or(self.error)?;
        self.bytes(bytes)
    }

    /// A string, ended by a zero or by the record.
    fn text(&mut self, ends: usize) -> String {
        let bytes = self.rest.get(..self.rest.len().saturating_sub(ends)).unwrap_or_default();
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

impl Default for Layout {
    /// Nothing, of this machine.
    fn default() -> Self {
        Self {
            architecture: Some(Architecture::HOST),
            sample_type: 0,
            read_format: 0,
            user_registers: 0,
            interrupt_registers: 0,
            branch_sample_type: 0,
            has_sample_id: false,
            fixed_period: 0,
        }
    }
}

impl Layout {
    fn has(&self, bit: u64) -> bool {
        self.sample_type & bit != 0
    }

    /// Bytes of `struct sample_id` at the end of records that are no samples.
    fn sample_id_bytes(&self) -> usize {
        if !self.has_sample_id {
            return 0;
        }
        let parts = [
            abi::PERF_SAMPLE_TID,
            abi::PERF_SAMPLE_TIME,
            abi::PERF_SAMPLE_ID,
            abi::PERF_SAMPLE_STREAM_ID,
            abi::PERF_SAMPLE_CPU,
            abi::PERF_SAMPLE_IDENTIFIER,
        ];
        8 * parts.iter().filter(|&&bit| self.has(bit.into())).count()
    }

    /// A field in `struct sample_id`, which begins `before` bytes behind its start.
    fn word_of_other(&self, body: &[u8], before: usize) -> Option<u64> {
        let start = body.len().checked_sub(self.sample_id_bytes())? + before;
        Some(u64::from_le_bytes(body.get(start..start + 8)?.try_into().ok()?))
    }

    /// Bytes of `struct sample_id` before the field of this bit, if it has it.
    fn before(&self, bit: u32) -> Option<usize> {
        let fields = [
            abi::PERF_SAMPLE_TID,
            abi::PERF_SAMPLE_TIME,
            abi::PERF_SAMPLE_ID,
            abi::PERF_SAMPLE_STREAM_ID,
            abi::PERF_SAMPLE_CPU,
        ];
        let place = fields.iter().position(|&field| field == bit)?;
        let present = fields[..place].iter().filter(|&&field| self.has(field.into()));
        (self.has_sample_id && self.has(bit.into())).then(|| 8 * present.count())
    }

    /// The time in `struct sample_id`; 0 if it is not there.
    fn time_of_other(&self, body: &[u8]) -> u64 {
        let time = self.before(abi::PERF_SAMPLE_TIME).and_then(|before| self.word_of_other(body, before));
        time.unwrap_or(0)
    }

    /// Reads a record: its type, its `misc` bits, and the bytes behind the header.
    ///
    /// # Errors
    /// If the record is shorter than its fields.
    pub fn parse(&self, record_type: u32, misc: u16, body: &[u8]) -> Result<TimedRecord, RecordError> {
        let error = RecordError { record_type, length: body.len() };
        let mut cursor = Cursor { rest: body, error };
        if record_type == abi::PERF_RECORD_SAMPLE {
            let (time_ns, sample) = self.sample(&mut cursor, misc)?;
            return Ok(TimedRecord { time_ns, record: Record::Sample(Box::new(sample)) });
        }
        let tail = self.sample_id_bytes();
        let mut time_ns = self.time_of_other(body);
        let record = match record_type {
            abi::PERF_RECORD_MMAP | abi::PERF_RECORD_MMAP2 => {
                let (pid, _tid) = (cursor.u32()?, cursor.u32()?);
                let (start, length, file_offset) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
                let mut inode = 0;
                let mut is_executable = misc & abi::PERF_RECORD_MISC_MMAP_DATA as u16 == 0;
                let mut is_reserved = false;
                if record_type == abi::PERF_RECORD_MMAP2 {
                    let id = cursor.bytes(24)?;
                    if misc & abi::PERF_RECORD_MISC_MMAP_BUILD_ID as u16 == 0 {
                        inode = id[8..16].try_into().map_or(0, u64::from_le_bytes);
                    }
                    let protection = cursor.u32()?;
                    let _flags = cursor.u32()?;
                    is_executable = protection & libc::PROT_EXEC as u32 != 0;
                    is_reserved = protection == libc::PROT_NONE as u32;
                }
                let name = cursor.text(tail);
                Record::Mapping(NewMapping {
                    pid,
                    start,
                    length,
                    file_offset,
                    inode,
                    is_executable,
                    is_reserved,
                    name,
                })
            }
            abi::PERF_RECORD_COMM => {
                let (pid, tid) = (cursor.u32()?, cursor.u32()?);
                let is_exec = misc & abi::PERF_RECORD_MISC_COMM_EXEC as u16 != 0;
                Record::Name { pid, tid, name: cursor.text(tail), is_exec }
            }
            abi::PERF_RECORD_FORK | abi::PERF_RECORD_EXIT => {
                let (pid, parent_pid, tid, _) = (cursor.u32()?, cursor.u32()?, cursor.u32()?, cursor.u32()?);
                let time = cursor.u64()?;
                if time_ns == 0 {
                    time_ns = time;
                }
                match record_type {
                    abi::PERF_RECORD_FORK => Record::Fork { pid, parent_pid, tid },
                    _ => Record::Exit { pid, tid },
                }
            }
            abi::PERF_RECORD_LOST => {
                let _id = cursor.u64()?;
                Record::Lost(cursor.u64()?)
            }
            abi::PERF_RECORD_LOST_SAMPLES => Record::Lost(cursor.u64()?),
            abi::PERF_RECORD_THROTTLE => Record::Throttled,
            abi::PERF_RECORD_AUX => {
                let (offset, size, flags) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
                let of_other = |bit| self.before(bit).and_then(|before| self.word_of_other(body, before));
                let thread = of_other(abi::PERF_SAMPLE_TID).unwrap_or(0);
                let cpu = of_other(abi::PERF_SAMPLE_CPU).map(|cpu| cpu as u32);
                Record::Aux(AuxRecord {
                    pid: thread as u32,
                    tid: (thread >> 32) as u32,
                    cpu,
                    offset,
                    size,
                    flags,
                })
            }
            _ => Record::Other,
        };
        Ok(TimedRecord { time_ns, record })
    }

    fn sample(&self, cursor: &mut Cursor<'_>, misc: u16) -> Result<(u64, Sample), RecordError> {
        let has = |bit: u32| self.has(bit.into());
        let mode = u32::from(misc) & abi::PERF_RECORD_MISC_CPUMODE_MASK;
        let mut sample = Sample {
            is_exact: misc & abi::PERF_RECORD_MISC_EXACT_IP as u16 != 0,
            is_user: mode == abi::PERF_RECORD_MISC_USER,
            period: self.fixed_period,
            ..Sample::default()
        };
        let mut time_ns = 0;
        if has(abi::PERF_SAMPLE_IDENTIFIER) {
            sample.id = cursor.u64()?;
        }
        if has(abi::PERF_SAMPLE_IP) {
            sample.ip = cursor.u64()?;
        }
        if has(abi::PERF_SAMPLE_TID) {
            (sample.pid, sample.tid) = (cursor.u32()?, cursor.u32()?);
        }
        if has(abi::PERF_SAMPLE_TIME) {
            time_ns = cursor.u64()?;
        }
        if has(abi::PERF_SAMPLE_ADDR) {
            sample.data_address = cursor.u64()?;
        }
        if has(abi::PERF_SAMPLE_ID) {
            let id = cursor.u64()?;
            if !has(abi::PERF_SAMPLE_IDENTIFIER) {
                sample.id = id;
            }
        }
        if has(abi::PERF_SAMPLE_STREAM_ID) {
            cursor.u64()?;
        }
        if has(abi::PERF_SAMPLE_CPU) {
            cursor.u64()?;
        }
        if has(abi::PERF_SAMPLE_PERIOD) {
            sample.period = cursor.u64()?;
        }
        if has(abi::PERF_SAMPLE_READ) {
            self.skip_read(cursor)?;
        }
        if has(abi::PERF_SAMPLE_CALLCHAIN) {
            let count = cursor.u64()?;
            cursor.words(count)?;
        }
        if has(abi::PERF_SAMPLE_RAW) {
            let bytes = cursor.u32()?;
            cursor.bytes(bytes as usize)?;
        }
        if has(abi::PERF_SAMPLE_BRANCH_STACK) {
            let count = cursor.u64()?;
            if self.branch_sample_type & u64::from(abi::PERF_SAMPLE_BRANCH_HW_INDEX) != 0 {
                cursor.u64()?;
            }
            cursor.words(count.checked_mul(3).ok_or(cursor.error)?)?;
        }
        if has(abi::PERF_SAMPLE_REGS_USER) {
            sample.registers = self.registers(cursor, self.user_registers)?;
        }
        if has(abi::PERF_SAMPLE_STACK_USER) {
            let room = cursor.u64()?;
            let copied = cursor.bytes(usize::try_from(room).map_err(|_| cursor.error)?)?;
            if room > 0 {
                let valid = usize::try_from(cursor.u64()?).unwrap_or(usize::MAX);
                sample.stack = copied.get(..valid).unwrap_or(copied).to_vec();
            }
        }
        // PERF_SAMPLE_WEIGHT and PERF_SAMPLE_WEIGHT_STRUCT share their place.
        if has(abi::PERF_SAMPLE_WEIGHT) {
            sample.weight = cursor.u64()?;
        } else if has(abi::PERF_SAMPLE_WEIGHT_STRUCT) {
            sample.weight = cursor.u64()? & 0xffff_ffff;
        }
        if has(abi::PERF_SAMPLE_DATA_SRC) {
            sample.data_source = cursor.u64()?;
        }
        if has(abi::PERF_SAMPLE_TRANSACTION) {
            cursor.u64()?;
        }
        if has(abi::PERF_SAMPLE_REGS_INTR) {
            let at_interrupt = self.registers(cursor, self.interrupt_registers)?;
            // Of a precise event these are the sampled instruction's.
            if sample.is_exact && at_interrupt.is_some() {
                sample.registers = at_interrupt;
            }
        }
        if has(abi::PERF_SAMPLE_PHYS_ADDR) {
            sample.physical_address = cursor.u64()?;
        }
        if has(abi::PERF_SAMPLE_CGROUP) {
            cursor.u64()?;
        }
        if has(abi::PERF_SAMPLE_DATA_PAGE_SIZE) {
            sample.page_bytes = cursor.u64()?;
        }
        Ok((time_ns, sample))
    }

    /// `struct read_format`.
    fn skip_read(&self, cursor: &mut Cursor<'_>) -> Result<(), RecordError> {
        let has = |bit: u32| self.read_format & u64::from(bit) != 0;
        let times = u64::from(has(abi::PERF_FORMAT_TOTAL_TIME_ENABLED))
            + u64::from(has(abi::PERF_FORMAT_TOTAL_TIME_RUNNING));
        let each = 1 + u64::from(has(abi::PERF_FORMAT_ID)) + u64::from(has(abi::PERF_FORMAT_LOST));
        let count = if has(abi::PERF_FORMAT_GROUP) { cursor.u64()? } else { 1 };
        let words = count.checked_mul(each).and_then(|words| words.checked_add(times)).ok_or(cursor.error)?;
        cursor.words(words)?;
        Ok(())
    }

    /// The registers of `mask`, lowest bit first; None if the kernel had none, not all that are needed, or those of a
    /// process that is no 64-bit one.
    fn registers(&self, cursor: &mut Cursor<'_>, mask: u64) -> Result<Option<Registers>, RecordError> {
        let kind = cursor.u64()?;
        if kind == 0 {
            return Ok(None);
        }
        let mut by_perf = [0u64; 64];
        for bit in (0..64).filter(|bit| mask & (1 << bit) != 0) {
            by_perf[bit] = cursor.u64()?;
        }
        if kind != u64::from(abi::PERF_SAMPLE_REGS_ABI_64) {
            return Ok(None);
        }
        let of_mask = |number: usize| (mask >> number & 1 == 1).then_some(by_perf[number]);
        Ok(self.architecture.and_then(|architecture| PerfRegisters::of(architecture).gathered(of_mask)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[u64]) -> Vec<u8> {
        list.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// A load-latency sample as Intel's and AMD's events deliver it.
    #[test]
    fn a_memory_sample_tells_address_weight_source_and_page() {
        let layout = Layout {
            sample_type: u64::from(
                abi::PERF_SAMPLE_IP
                    | abi::PERF_SAMPLE_TID
                    | abi::PERF_SAMPLE_TIME
                    | abi::PERF_SAMPLE_ADDR
                    | abi::PERF_SAMPLE_PERIOD
                    | abi::PERF_SAMPLE_DATA_SRC
                    | abi::PERF_SAMPLE_WEIGHT_STRUCT
                    | abi::PERF_SAMPLE_PHYS_ADDR
                    | abi::PERF_SAMPLE_DATA_PAGE_SIZE
                    | abi::PERF_SAMPLE_IDENTIFIER,
            ),
            ..Layout::default()
        };
        // identifier, ip, pid|tid, time, addr, period, weight (upper half: other parts), source,
        // physical address, page size.
        let body = words(&[
            7,
            0x401000,
            (12 << 32) | 11,
            99,
            0x7fff_0010,
            1000,
            (5 << 32) | 300,
            0x6_8104_0142,
            0x1234_5010,
            4096,
        ]);
        let misc = (abi::PERF_RECORD_MISC_USER | abi::PERF_RECORD_MISC_EXACT_IP) as u16;
        let parsed = layout.parse(abi::PERF_RECORD_SAMPLE, misc, &body).expect("whole");
        let Record::Sample(sample) = parsed.record else { panic!("a sample") };
        assert_eq!((parsed.time_ns, sample.id, sample.ip, sample.pid, sample.tid), (99, 7, 0x401000, 11, 12));
        assert_eq!((sample.data_address, sample.period, sample.weight), (0x7fff_0010, 1000, 300));
        assert_eq!((sample.data_source, sample.physical_address), (0x6_8104_0142, 0x1234_5010));
        assert_eq!((sample.page_bytes, sample.is_exact, sample.is_user), (4096, true, true));
        for cut in 0..body.len() {
            assert!(layout.parse(abi::PERF_RECORD_SAMPLE, misc, &body[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn registers_come_in_dwarfs_order_and_the_stack_only_as_far_as_it_is_valid() {
        let layout = Layout {
            architecture: Some(Architecture::X86_64),
            sample_type: u64::from(abi::PERF_SAMPLE_REGS_USER | abi::PERF_SAMPLE_STACK_USER),
            user_registers: PerfRegisters::of(Architecture::X86_64).mask(),
            ..Layout::default()
        };
        // abi 64; ax bx cx dx si di bp sp ip r8 … r15; 16 bytes of room, 8 of them valid.
        let mut list = vec![2];
        list.extend(100..117);
        list.extend([16, 0xaaaa, 0xbbbb, 8]);
        let parsed = layout.parse(abi::PERF_RECORD_SAMPLE, 2, &words(&list)).expect("whole");
        let Record::Sample(sample) = parsed.record else { panic!("a sample") };
        let registers = sample.registers.expect("asked for");
        // rax = ax, rdx = dx (103), rcx, rbx = bx (101), rsi, rdi, rbp, rsp = sp (107), r8 = 109.
        assert_eq!(registers.values[..9], [100, 103, 102, 101, 104, 105, 106, 107, 109]);
        assert_eq!((registers.ip, registers.values[15]), (108, 116));
        assert_eq!(sample.stack, 0xaaaau64.to_le_bytes());
    }

    #[test]
    fn other_records_have_their_time_at_the_end() {
        let layout = Layout {
            sample_type: u64::from(
                abi::PERF_SAMPLE_TID | abi::PERF_SAMPLE_TIME | abi::PERF_SAMPLE_IDENTIFIER,
            ),
            has_sample_id: true,
            ..Layout::default()
        };
        let id = [(1 << 32) | 1, 555, 42];
        let mut body = words(&[(3 << 32) | 2]);
        body.extend(b"worker\0\0");
        body.extend(words(&id));
        let parsed = layout.parse(abi::PERF_RECORD_COMM, 0, &body).expect("whole");
        let name = Record::Name { pid: 2, tid: 3, name: "worker".into(), is_exec: false };
        assert_eq!(parsed, TimedRecord { time_ns: 555, record: name });
        let mut body = words(&[9, 1234]);
        body.extend(words(&id));
        let lost = layout.parse(abi::PERF_RECORD_LOST, 0, &body).expect("whole");
        assert_eq!(lost.record, Record::Lost(1234));
    }

    #[test]
    fn a_mapping_tells_who_may_access_it() {
        let mapping = |protection: i32| {
            // pid|tid, start, length, offset, device and inode and generation, protection|flags, name.
            let mut body = words(&[(3 << 32) | 2, 0x1000, 0x2000, 0x3000, 0, 7, 0, protection as u64]);
            body.extend(b"/lib.so\0");
            let parsed = Layout::default().parse(abi::PERF_RECORD_MMAP2, 0, &body).expect("whole");
            let Record::Mapping(mapping) = parsed.record else { panic!("a mapping") };
            assert_eq!((mapping.start, mapping.file_offset, &*mapping.name), (0x1000, 0x3000, "/lib.so"));
            (mapping.is_executable, mapping.is_reserved)
        };
        assert_eq!(mapping(libc::PROT_READ | libc::PROT_EXEC), (true, false));
        assert_eq!(mapping(libc::PROT_READ), (false, false));
        assert_eq!(mapping(libc::PROT_NONE), (false, true));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 20
        };
        for _ in 0..20_000 {
            let architectures = [None, Some(Architecture::X86_64), Some(Architecture::AArch64)];
            let layout = Layout {
                architecture: architectures[next() as usize % 3],
                sample_type: next(),
                read_format: next(),
                user_registers: next() << 20 | next(),
                interrupt_registers: next(),
                branch_sample_type: next(),
                has_sample_id: next() % 2 == 0,
                fixed_period: next(),
            };
            let body: Vec<u8> = (0..next() % 200).map(|_| (next() % 5) as u8).collect();
            let _ = layout.parse((next() % 20) as u32, next() as u16, &body);
        }
    }
}
