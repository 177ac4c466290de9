//! One record of an operation, from its packets.
//!
//! A record is a sequence of packets up to an end packet or a timestamp. Between records there is padding.
//!
//! # Damage
//!
//! Where bytes are no packet, what follows is passed over up to the next end of a record, one byte at a time, and counts as
//! one damaged place. Bytes in the middle of a packet can look like such an end; the record behind it is then none of an
//! instruction, or is damaged itself, until the reader is in step again.

use super::packet::{SpePacket, SpePacketError};

/// Bits 55:0 of an address packet are the address.
const ADDRESS_BITS: u32 = 56;

// Numbers of address packets (DDI 0487J.a, section D17.2.1), counter packets (D17.2.4), and the class of operations (D17.2.7)
// that load or store.
const INSTRUCTION: u8 = 0;
const DATA: u8 = 2;
const DATA_PHYSICAL: u8 = 3;
const TOTAL_LATENCY: u8 = 0;
const LOAD_OR_STORE: u8 = 1;

/// The instruction that was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeInstruction {
    /// Where it stands.
    pub address: u64,
    /// At which exception level it ran: 0 is that of programs.
    pub level: u8,
}

/// A record. What no packet told is None.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpeRecord {
    /// Of its first byte, in the area that the processor writes to.
    pub position: u64,
    /// The instruction.
    pub instruction: Option<SpeInstruction>,
    /// What a load, a store or an atomic operation does: bit 0 is set for a store.
    pub access: Option<u8>,
    /// Virtual address of the data, without its tag byte.
    pub data_address: Option<u64>,
    /// Physical address of the data.
    pub physical_address: Option<u64>,
    /// What happened, a bit each (DDI 0487J.a, section D17.2.5).
    pub events: u64,
    /// Where the data came from, as the implementation numbers it.
    pub source: Option<u64>,
    /// What the kernel had written into the context register: the thread, if it is configured so.
    pub context: Option<u32>,
    /// Cycles from dispatch to completion.
    pub total_latency: Option<u16>,
    /// The generic timer's counter.
    pub timestamp: Option<u64>,
}

impl SpeRecord {
    /// Takes what a packet tells.
    fn note(&mut self, packet: SpePacket) {
        match packet {
            SpePacket::Address { index: INSTRUCTION, value } => {
                let level = (value >> 61 & 3) as u8;
                self.instruction = Some(SpeInstruction { address: canonical(value), level });
            }
            SpePacket::Address { index: DATA, value } => self.data_address = Some(canonical(value)),
            SpePacket::Address { index: DATA_PHYSICAL, value } => {
                self.physical_address = Some(value & ((1 << ADDRESS_BITS) - 1));
            }
            SpePacket::Counter { index: TOTAL_LATENCY, cycles } => self.total_latency = Some(cycles),
            SpePacket::Operation { class, detail } => {
                self.access = (class == LOAD_OR_STORE).then_some(detail);
            }
            SpePacket::Events(bits) => self.events = bits,
            SpePacket::Source(source) => self.source = Some(source),
            SpePacket::Context { id, .. } => self.context = Some(id),
            SpePacket::Timestamp(counter) => self.timestamp = Some(counter),
            // Other counters and addresses are those of branches, and parts of the latency.
            SpePacket::Address { .. } | SpePacket::Counter { .. } | SpePacket::Padding | SpePacket::End => {}
        }
    }
}

/// An address whose uppermost byte is that of its half of the address space again: the packet has something else there.
fn canonical(value: u64) -> u64 {
    const OTHER_BITS: u32 = u64::BITS - ADDRESS_BITS;
    ((value << OTHER_BITS) as i64 >> OTHER_BITS) as u64
}

/// The records of some bytes, in order.
#[derive(Clone, Debug)]
pub struct SpeRecords<'a> {
    bytes: &'a [u8],
    at: usize,
    position: u64,
    damaged: u64,
}

impl<'a> SpeRecords<'a> {
    /// Those of `bytes`, of which the first lies at `position` in the area that the processor writes to.
    pub fn new(bytes: &'a [u8], position: u64) -> Self {
        Self { bytes, at: 0, position, damaged: 0 }
    }

    /// Places that could not be read, so far: a record is missing at each, or several.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Where the next record is looked for.
    pub fn here(&self) -> u64 {
        self.position.wrapping_add(self.at as u64)
    }

    fn packet(&mut self) -> Result<SpePacket, SpePacketError> {
        let position = self.here();
        let (packet, size) = SpePacket::read(&self.bytes[self.at..], position)?;
        self.at += size;
        Ok(packet)
    }

    /// Goes behind the next end of a record.
    fn find_end(&mut self) {
        while self.at < self.bytes.len() {
            match self.packet() {
                Ok(SpePacket::End | SpePacket::Timestamp(_)) => return,
                Ok(_) => {}
                Err(_) => self.at += 1,
            }
        }
    }
}

impl Iterator for SpeRecords<'_> {
    type Item = SpeRecord;

    fn next(&mut self) -> Option<SpeRecord> {
        while self.at < self.bytes.len() {
            let mut record = SpeRecord { position: self.here(), ..SpeRecord::default() };
            let mut is_empty = true;
            loop {
                if self.at >= self.bytes.len() {
                    // Padding needs no end.
                    self.damaged += u64::from(!is_empty);
                    return None;
                }
                match self.packet() {
                    Ok(SpePacket::Padding) if is_empty => record.position = self.here(),
                    Ok(SpePacket::Padding) => {}
                    // An end of nothing.
                    Ok(SpePacket::End) if is_empty => break,
                    Ok(packet) => {
                        is_empty = false;
                        record.note(packet);
                        if matches!(packet, SpePacket::End | SpePacket::Timestamp(_)) {
                            return Some(record);
                        }
                    }
                    Err(_) => {
                        self.damaged += 1;
                        self.at += 1;
                        self.find_end();
                        break;
                    }
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Encoded, load};
    use super::*;

    #[test]
    fn a_record_is_all_that_its_packets_tell() {
        let bytes = Encoded::default()
            .address(0, 0x8000_0000_0040_1234)
            .padding(5)
            .context(2, 4711)
            .operation(1, 1)
            .events16(0x0212)
            .counter(1, 4)
            .counter(0, 300)
            .address(2, 0x5a00_7f12_3456_7890)
            .address(3, 0x8000_0012_3456_7890)
            .counter(2, 1)
            .padding(3)
            .source(8)
            .timestamp(99)
            .bytes();
        let records: Vec<SpeRecord> = SpeRecords::new(&bytes, 64).collect();
        let expected = SpeRecord {
            position: 64,
            instruction: Some(SpeInstruction { address: 0x40_1234, level: 0 }),
            access: Some(1),
            data_address: Some(0x7f12_3456_7890),
            physical_address: Some(0x12_3456_7890),
            events: 0x212,
            source: Some(8),
            context: Some(4711),
            total_latency: Some(300),
            timestamp: Some(99),
        };
        assert_eq!(records, [expected]);
    }

    #[test]
    fn addresses_of_the_kernel_are_whole_again() {
        // Non-secure, exception levels 2 and 1.
        for (top, level) in [(0xc0, 2), (0xa0, 1), (0x80, 0)] {
            let bytes = Encoded::default().address(0, (top << 56) | 0xff_8000_0801_0000).end().bytes();
            let record = SpeRecords::new(&bytes, 0).next().expect("a record");
            let address = 0xffff_8000_0801_0000;
            assert_eq!(record.instruction, Some(SpeInstruction { address, level }));
        }
    }

    #[test]
    fn damage_costs_the_record_that_it_is_in() {
        let whole = load(0x40_1000, 0x7f00_0000_0010, 7);
        let mut bytes = whole.clone();
        let damaged_at = bytes.len();
        bytes.extend(&whole);
        // No packet begins so: in the place of the type of the operation.
        let place = whole.iter().position(|&byte| byte == 0x49).expect("a load");
        bytes[damaged_at + place] = 0xff;
        bytes.extend(&whole);
        // What the driver fills the rest of a page with.
        bytes.extend([0; 40]);
        bytes.extend(&whole);
        let mut records = SpeRecords::new(&bytes, 0);
        let found: Vec<u64> = records.by_ref().map(|record| record.position).collect();
        let size = whole.len() as u64;
        assert_eq!(found, [0, 2 * size, 3 * size + 40]);
        assert_eq!(records.damaged(), 1);
    }

    #[test]
    fn a_record_that_is_cut_off_is_none() {
        let whole = load(0x40_1000, 0x7f00_0000_0010, 7);
        for end in 0..whole.len() {
            let mut records = SpeRecords::new(&whole[..end], 0);
            assert_eq!(records.next(), None, "{end}");
            assert_eq!(records.damaged(), u64::from(end > 0), "{end}");
        }
    }

    #[test]
    fn no_bytes_make_it_panic_and_all_are_passed() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 20
        };
        let headers = [0x00, 0x01, 0x20, 0x23, 0x42, 0x43, 0x49, 0x52, 0x64, 0x71, 0x98, 0xb0, 0xb2, 0xff];
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..next() % 100)
                .map(|_| match next() % 2 {
                    0 => headers[next() as usize % headers.len()],
                    _ => next() as u8,
                })
                .collect();
            let mut records = SpeRecords::new(&bytes, next());
            let found = records.by_ref().count();
            assert_eq!(records.at, bytes.len());
            assert!(found <= bytes.len());
        }
    }
}
