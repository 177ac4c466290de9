//! What a record of a memory operation means as a sample of perf_event_open(2).
//!
//! Events that are looked at, by their bit (DDI 0487J.a, section D17.2.5):
//!
//! | bit | what happened |
//! |---|---|
//! | 2, 3 | the first-level data cache was accessed; it did not have the line |
//! | 4, 5 | the TLB was accessed; a table walk was needed |
//! | 8, 9 | the last-level cache was accessed; it did not have the line |
//! | 10 | another socket was accessed |
//!
//! They become `union perf_mem_data_src` (linux/perf_event.h) as far as they say the same on every processor: the last level
//! that is known to have been asked, and whether it had the data. Sources of the data have other numbers on each
//! processor and are not translated.

use perf_event_open_sys::bindings as abi;

use super::record::SpeRecord;
use crate::record::Sample;

const L1D_ACCESS: u64 = 1 << 2;
const L1D_REFILL: u64 = 1 << 3;
const TLB_ACCESS: u64 = 1 << 4;
const TLB_WALK: u64 = 1 << 5;
const LLC_ACCESS: u64 = 1 << 8;
const LLC_MISS: u64 = 1 << 9;
const REMOTE_ACCESS: u64 = 1 << 10;

/// Of the detail of a load or store: it is a store.
const STORE: u8 = 1;

impl SpeRecord {
    /// The sample of a program's memory operation that stands for `period` of them; None: the record is of something else.
    /// Whose it is, its caller knows.
    pub fn sample(&self, period: u64) -> Option<Sample> {
        let instruction = self.instruction.filter(|instruction| instruction.level == 0)?;
        let access = self.access?;
        // Nothing lies at 0, and samples without an address have that.
        let data_address = self.data_address.filter(|&address| address != 0)?;
        Some(Sample {
            ip: instruction.address,
            period,
            data_address,
            is_exact: true,
            is_user: true,
            weight: self.total_latency.unwrap_or(0).into(),
            data_source: data_source(access, self.events),
            physical_address: self.physical_address.unwrap_or(0),
            ..Sample::default()
        })
    }
}

/// `union perf_mem_data_src`.
fn data_source(access: u8, events: u64) -> u64 {
    let has = |bits: u64| events & bits != 0;
    let operation = if access & STORE == 0 { abi::PERF_MEM_OP_LOAD } else { abi::PERF_MEM_OP_STORE };
    let found = |is_missed| if is_missed { abi::PERF_MEM_LVL_MISS } else { abi::PERF_MEM_LVL_HIT };
    let mut level = if has(LLC_ACCESS | LLC_MISS) {
        abi::PERF_MEM_LVL_L3 | found(has(LLC_MISS))
    } else if has(L1D_ACCESS | L1D_REFILL) {
        abi::PERF_MEM_LVL_L1 | found(has(L1D_REFILL))
    } else {
        abi::PERF_MEM_LVL_NA
    };
    if has(REMOTE_ACCESS) {
        level |= abi::PERF_MEM_LVL_REM_CCE1;
    }
    // A walk is the last level of translation, so the walker is what missed or hit.
    let translation = if has(TLB_ACCESS | TLB_WALK) {
        abi::PERF_MEM_TLB_WK | if has(TLB_WALK) { abi::PERF_MEM_TLB_MISS } else { abi::PERF_MEM_TLB_HIT }
    } else {
        abi::PERF_MEM_TLB_NA
    };
    u64::from(operation) << abi::PERF_MEM_OP_SHIFT
        | u64::from(level) << abi::PERF_MEM_LVL_SHIFT
        | u64::from(translation) << abi::PERF_MEM_TLB_SHIFT
}

#[cfg(test)]
mod tests {
    use super::super::record::SpeRecords;
    use super::super::tests::{Encoded, load};
    use super::*;

    fn record(bytes: &[u8]) -> SpeRecord {
        SpeRecords::new(bytes, 0).next().expect("a record")
    }

    #[test]
    fn a_load_is_an_exact_sample_with_its_address() {
        let sample = record(&load(0x40_1000, 0x7f00_0000_0010, 7)).sample(4096).expect("a sample");
        assert_eq!((sample.ip, sample.data_address, sample.period), (0x40_1000, 0x7f00_0000_0010, 4096));
        assert!(sample.is_exact && sample.is_user && sample.registers.is_none() && sample.stack.is_empty());
        assert_eq!(sample.weight, 12);
    }

    #[test]
    fn what_is_no_memory_operation_of_the_program_is_no_sample() {
        let base = || Encoded::default().address(0, 0x40_1000).address(2, 0x1000);
        assert!(record(&base().operation(1, 0).end().bytes()).sample(1).is_some());
        // A branch; nothing known; a null pointer; no address; the kernel.
        assert_eq!(record(&base().operation(2, 0).end().bytes()).sample(1), None);
        assert_eq!(record(&base().end().bytes()).sample(1), None);
        assert_eq!(record(&base().operation(1, 0).address(2, 0).end().bytes()).sample(1), None);
        let without = Encoded::default().address(0, 0x40_1000).operation(1, 0).end();
        assert_eq!(record(&without.bytes()).sample(1), None);
        let kernel = base().operation(1, 0).address(0, 1 << 61).end();
        assert_eq!(record(&kernel.bytes()).sample(1), None);
    }

    #[test]
    fn events_say_where_the_data_was() {
        // (level, translation): bits of linux/perf_event.h, `mem_lvl` and `mem_dtlb`.
        let level = |events| data_source(0, events) >> 5 & 0x3fff;
        let translation = |events| data_source(0, events) >> 26 & 0x7f;
        // N/A; L1 hit; L1 miss; L3 hit, L3 miss; and in another socket's cache.
        assert_eq!(level(0b10), 0x01);
        assert_eq!(level(0b110), 0x08 | 0x02);
        assert_eq!(level(0b1110), 0x08 | 0x04);
        assert_eq!(level(0x10e), 0x40 | 0x02);
        assert_eq!(level(0x30e), 0x40 | 0x04);
        assert_eq!(level(0x70e), 0x400 | 0x40 | 0x04);
        assert_eq!(translation(0b10), 0x01);
        assert_eq!(translation(0b01_0000), 0x20 | 0x02);
        assert_eq!(translation(0b11_0000), 0x20 | 0x04);
        // A load, a store.
        assert_eq!((data_source(0x10, 0) & 0x1f, data_source(0x11, 0) & 0x1f), (2, 4));
    }
}
