//! Bus records as hardware writes them: a fixed number of bits each.
//!
//! ```text
//! bit  n-1                                                  0     n = 8 × ⌈all bits ÷ 8⌉
//!  ┌────────┬─────────────────┬──────────┬───┬──────────────┐
//!  │ unused │ sequence number │ duration │rw │ line number  │     rw: 1 = read, 0 = write
//!  └────────┴─────────────────┴──────────┴───┴──────────────┘
//! ```
//!
//! The widths and the order of the bytes are in the header. All records of a packet carry its number.

use super::header::{Endian, Header};

/// Widths of the fields of a fixed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedLayout {
    endian: Endian,
    sequence_bits: u32,
    duration_bits: u32,
    address_bits: u32,
    records_per_packet: u64,
}

/// Follows sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Sequence {
    last: Option<u64>,
    /// Records seen of that packet.
    seen: u64,
}

impl FixedLayout {
    /// What a header says.
    pub fn of(header: &Header) -> Self {
        Self {
            endian: header.endian,
            sequence_bits: header.sequence_bits.into(),
            duration_bits: header.duration_bits.into(),
            address_bits: header.address_bits.into(),
            records_per_packet: header.records_per_packet.into(),
        }
    }

    /// Bytes of a record.
    pub fn record_bytes(&self) -> usize {
        (self.sequence_bits + self.duration_bits + 1 + self.address_bits).div_ceil(8) as usize
    }

    /// A record's packet number, duration, line, and whether it is a write.
    pub(crate) fn decode(&self, bytes: &[u8]) -> (u64, u64, u64, bool) {
        let mut word = self.endian.read(bytes);
        let mut low = |bits: u32| {
            let field = word & ((1 << bits) - 1);
            word >>= bits;
            field
        };
        let line = low(self.address_bits);
        let is_write = low(1) == 0;
        let duration = low(self.duration_bits);
        (low(self.sequence_bits), duration, line, is_write)
    }

    /// Appends a record. Numbers that are too wide lose their upper bits; a duration becomes the largest.
    pub(crate) fn encode(&self, number: u64, duration: u64, line: u64, write: bool, out: &mut Vec<u8>) {
        let mask = |bits: u32| (1_u64 << bits) - 1;
        let packet = (number / self.records_per_packet) & mask(self.sequence_bits);
        let duration = duration.min(mask(self.duration_bits));
        let word = (packet << self.duration_bits | duration) << 1 | u64::from(!write);
        let word = word << self.address_bits | line & mask(self.address_bits);
        self.endian.write(word, self.record_bytes(), out);
    }

    /// Records missing before one of this packet.
    pub(crate) fn lost_before(&self, packet: u64, sequence: &mut Sequence) -> u64 {
        let each = self.records_per_packet;
        let Some(last) = sequence.last.filter(|_| self.sequence_bits > 0) else {
            *sequence = Sequence { last: Some(packet), seen: 1 };
            return 0;
        };
        if packet == last && sequence.seen < each {
            sequence.seen += 1;
            return 0;
        }
        let steps = packet.wrapping_sub(last) & ((1 << self.sequence_bits) - 1);
        let rest = each.saturating_sub(sequence.seen);
        *sequence = Sequence { last: Some(packet), seen: 1 };
        rest.saturating_add(steps.saturating_sub(1).saturating_mul(each))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Packing, Stream};

    fn layout(endian: Endian, records_per_packet: u32) -> FixedLayout {
        FixedLayout::of(&Header {
            endian,
            sequence_bits: 8,
            duration_bits: 12,
            address_bits: 30,
            records_per_packet,
            ..Header::new(Stream::Bus, Packing::Fixed)
        })
    }

    #[test]
    fn records_come_back_in_either_order_of_bytes() {
        for endian in [Endian::Little, Endian::Big] {
            let layout = layout(endian, 1);
            assert_eq!(layout.record_bytes(), 7); // 8 + 12 + 1 + 30 = 51 bits
            let mut bytes = Vec::new();
            layout.encode(0x1_05, 0x2_000, 0x2345_6789, true, &mut bytes);
            // The number is cut to 8 bits, the duration is the largest of 12 bits.
            assert_eq!(layout.decode(&bytes), (5, 0xfff, 0x2345_6789, true));
        }
        let mut bytes = Vec::new();
        layout(Endian::Big, 1).encode(1, 2, 3, false, &mut bytes);
        // 1 << 43 | 2 << 31 | 1 << 30 | 3, most significant byte first.
        assert_eq!(bytes, [0, 0x08, 0x01, 0x40, 0, 0, 0x03]);
    }

    #[test]
    fn missing_packets_are_counted_in_records() {
        let layout = layout(Endian::Little, 4);
        let mut sequence = Sequence::default();
        let lost: Vec<u64> =
            [0, 0, 0, 0, 1, 1, 3, 3, 3, 3, 4].map(|packet| layout.lost_before(packet, &mut sequence)).into();
        // Two records of packet 1 and all four of packet 2.
        assert_eq!(lost, [0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0]);
        // 255 is followed by 0.
        let mut sequence = Sequence { last: Some(255), seen: 4 };
        assert_eq!(layout.lost_before(0, &mut sequence), 0);
    }
}
