//! The Statistical Profiling Extension (SPE) of Arm processors: samples of operations, with the address of their data,
//! that the processor itself writes into memory.
//!
//! ```text
//!  processor ──► AUX area of each cpu      bytes: packets of records           packet.rs, record.rs
//!  kernel    ──► ring of each cpu          AUX records: whose bytes lie where  crate::record
//!                                                     │
//!                            samples of a perf.data file, in the order of time  traces.rs
//! ```
//!
//! What the bytes mean is read here, from whatever source they come: a live recording or a perf.data file. Opening the
//! event is the affair of [`crate::event`], mapping the area that of [`crate::ring`].
//!
//! # What is a sample
//!
//! Each record of an operation of the program itself (exception level 0) that loads or stores and whose virtual address
//! is known. Other operations touch no data, and operations of the kernel are not the program's: both are left out, and
//! are no loss. The processor chooses one of so many operations and then looks whether it is wanted, so a sample stands for as
//! many memory operations as there are operations between two choices: the event's period.
//!
//! An operation may have been done in vain, on the wrong side of a branch; it is a sample all the same.
//!
//! This has been tested against the architecture's description and bytes put together after it; it has never met
//! hardware.
//!
//! Sources: Arm Architecture Reference Manual for A-profile (DDI 0487J.a), chapters D16, "The Statistical Profiling
//! Extension", and D17, "Statistical Profiling Extension Sample Record Specification"; linux/perf_event.h, `PERF_RECORD_AUX`
//! and "AUX area" (Linux 6.12).

mod conversion;
mod counter_clock;
mod packet;
mod record;
mod sample;
mod traces;
mod words;

pub use counter_clock::{CounterClock, Look};
pub use record::{SpeInstruction, SpeRecord, SpeRecords};
pub use traces::SpeTraces;

/// When a record was written: of what its own timestamp says, if anything, and when it was handed over, if that is known.
pub fn time_of(own_ns: Option<u64>, handed_over_ns: Option<u64>) -> Option<u64> {
    match (own_ns, handed_over_ns) {
        // It cannot have been later.
        (Some(own_ns), Some(handed_over_ns)) => Some(own_ns.min(handed_over_ns)),
        (own_ns, handed_over_ns) => own_ns.or(handed_over_ns),
    }
}

#[cfg(test)]
pub mod tests {
    /// Puts packets together after the architecture's description, not after the reader.
    #[derive(Default)]
    pub struct Encoded(Vec<u8>);

    impl Encoded {
        fn packet(mut self, header: u8, payload: &[u8]) -> Self {
            self.0.push(header);
            self.0.extend(payload);
            self
        }

        pub fn padding(mut self, bytes: usize) -> Self {
            self.0.resize(self.0.len() + bytes, 0);
            self
        }

        pub fn address(self, index: u8, value: u64) -> Self {
            self.packet(0b1011_0000 | index, &value.to_le_bytes())
        }

        pub fn counter(self, index: u8, cycles: u16) -> Self {
            self.packet(0b1001_1000 | index, &cycles.to_le_bytes())
        }

        pub fn context(self, level: u8, id: u32) -> Self {
            self.packet(0b0110_0100 | (level - 1), &id.to_le_bytes())
        }

        pub fn operation(self, class: u8, detail: u8) -> Self {
            self.packet(0b0100_1000 | class, &[detail])
        }

        pub fn events16(self, bits: u16) -> Self {
            self.packet(0b0101_0010, &bits.to_le_bytes())
        }

        pub fn source(self, source: u8) -> Self {
            self.packet(0b0100_0011, &[source])
        }

        pub fn timestamp(self, counter: u64) -> Self {
            self.packet(0b0111_0001, &counter.to_le_bytes())
        }

        pub fn end(self) -> Self {
            self.packet(0b0000_0001, &[])
        }

        pub fn bytes(self) -> Vec<u8> {
            self.0
        }
    }

    /// A load in a program, as a processor without the kernel's context packets writes it.
    pub fn load(ip: u64, address: u64, timestamp: u64) -> Vec<u8> {
        Encoded::default()
            .address(0, ip | (1 << 63))
            .operation(1, 0)
            .events16(0b1_0110)
            .counter(1, 4)
            .counter(0, 12)
            .address(2, address)
            .counter(2, 1)
            .timestamp(timestamp)
            .bytes()
    }
}
