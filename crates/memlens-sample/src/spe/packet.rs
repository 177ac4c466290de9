//! One packet of an SPE record, from bytes.
//!
//! | header | packet | payload bytes |
//! |---|---|---|
//! | `0000_0000` | padding | 0 |
//! | `0000_0001` | end of the record | 0 |
//! | `01ss_0010` | events | 1, 2, 4 or 8 |
//! | `01ss_0011` | source of the data | 1, 2, 4 or 8 |
//! | `0100_10cc` | type of the operation, and its class `cc` | 1 |
//! | `0110_01ll` | context of exception level `ll` + 1 | 4 |
//! | `0111_0001` | timestamp, which ends the record, too | 8 |
//! | `1001_1iii` | counter `iii` | 2 |
//! | `1011_0iii` | address `iii` | 8 |
//! | `0010_00jj`, then one of the two above | the same, number `jjiii` | |
//! | `0010_aaaa`, `0000_0000` | padding to a multiple of 2 to the power of `aaaa` + 1 | |
//!
//! Payloads have their lowest byte first; `ss` is the binary logarithm of their size.
//!
//! Source: Arm Architecture Reference Manual (DDI 0487J.a), sections D17.1 and D17.2.

use thiserror::Error;

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpePacket {
    /// Nothing.
    Padding,
    /// The record ends, without a timestamp.
    End,
    /// What happened, a bit each.
    Events(u64),
    /// Where the data came from, as the implementation numbers it.
    Source(u64),
    /// What the operation does.
    Operation {
        /// 0: other; 1: load, store or atomic; 2: branch or exception return.
        class: u8,
        /// What it means depends on the class.
        detail: u8,
    },
    /// `CONTEXTIDR_EL1` or `CONTEXTIDR_EL2`.
    Context {
        /// 1 or 2; others are reserved.
        level: u8,
        /// The register.
        id: u32,
    },
    /// The counter of the generic timer; the record ends.
    Timestamp(u64),
    /// Cycles that something took.
    Counter {
        /// 0: all; 1: until it was issued; 2: the translation of its address.
        index: u8,
        /// How many.
        cycles: u16,
    },
    /// An address.
    Address {
        /// 0: of the instruction; 1: that a branch goes to; 2: of the data; 3: of the data, physical.
        index: u8,
        /// As it stands there: bits 63:56 are no part of the address.
        value: u64,
    },
}

/// Why bytes are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SpePacketError {
    /// The header is of no packet that is known.
    #[error("read a packet: {0:#04x} begins none")]
    Unknown(u8),
    /// The bytes end before the packet does.
    #[error("read a packet: it ends behind the last byte")]
    Cut,
}

impl SpePacket {
    /// Reads the packet that `bytes` begins with, and says how many bytes it has. `position`: of the first byte in the area
    /// that the processor writes to, which begins with a page.
    ///
    /// # Errors
    /// If it is none, or not whole.
    pub fn read(bytes: &[u8], position: u64) -> Result<(Self, usize), SpePacketError> {
        let first = *bytes.first().ok_or(SpePacketError::Cut)?;
        match first {
            0x00 => return Ok((Self::Padding, 1)),
            0x01 => return Ok((Self::End, 1)),
            0x20..=0x2f => {
                let second = *bytes.get(1).ok_or(SpePacketError::Cut)?;
                if second == 0 {
                    return aligned(first & 0xf, position, bytes.len());
                }
                // Of others the upper half of the number is two bits only.
                if first > 0x23 {
                    return Err(SpePacketError::Unknown(first));
                }
                let payload = payload(second, &bytes[2..]);
                let packet = Self::numbered(second, (first & 3) << 3, payload?);
                return packet.map(|(packet, size)| (packet, 2 + size));
            }
            _ => {}
        }
        let value = || payload(first, &bytes[1..]);
        let whole = |(packet, size): (Self, usize)| (packet, 1 + size);
        match first {
            0x71 => value().map(|(value, size)| (Self::Timestamp(value), 1 + size)),
            0x42 | 0x52 | 0x62 | 0x72 => value().map(|(value, size)| (Self::Events(value), 1 + size)),
            0x43 | 0x53 | 0x63 | 0x73 => value().map(|(value, size)| (Self::Source(value), 1 + size)),
            0x48..=0x4b => value()
                .map(|(value, size)| (Self::Operation { class: first & 3, detail: value as u8 }, 1 + size)),
            0x64..=0x67 => value()
                .map(|(value, size)| (Self::Context { level: (first & 3) + 1, id: value as u32 }, 1 + size)),
            _ => Self::numbered(first, 0, value()?).map(whole),
        }
    }

    /// A packet whose header holds a number: counters and addresses.
    fn numbered(header: u8, upper: u8, (value, size): (u64, usize)) -> Result<(Self, usize), SpePacketError> {
        let index = upper | (header & 7);
        match header {
            0x98..=0x9f => Ok((Self::Counter { index, cycles: value as u16 }, size)),
            0xb0..=0xb7 => Ok((Self::Address { index, value }, size)),
            _ => Err(SpePacketError::Unknown(header)),
        }
    }
}

/// What stands behind a header that says its size, and how many bytes that are.
fn payload(header: u8, bytes: &[u8]) -> Result<(u64, usize), SpePacketError> {
    // No other headers have one; of them it is not asked whether it is there.
    if !matches!(header, 0x40..=0x7f | 0x98..=0x9f | 0xb0..=0xb7) {
        return Err(SpePacketError::Unknown(header));
    }
    let size = 1usize << (header >> 4 & 3);
    let mut word = [0; 8];
    word[..size].copy_from_slice(bytes.get(..size).ok_or(SpePacketError::Cut)?);
    Ok((u64::from_le_bytes(word), size))
}

/// Padding from `position` to the next multiple; it holds its own header at least.
fn aligned(exponent: u8, position: u64, left: usize) -> Result<(SpePacket, usize), SpePacketError> {
    const HEADER_BYTES: u64 = 2;
    let unit = 2u64 << exponent;
    let mut size = unit - position % unit;
    if size < HEADER_BYTES {
        size += unit;
    }
    match usize::try_from(size) {
        Ok(size) if size <= left => Ok((SpePacket::Padding, size)),
        _ => Err(SpePacketError::Cut),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_header_is_its_packet() {
        let read = |bytes: &[u8]| SpePacket::read(bytes, 0).expect("a packet");
        assert_eq!(read(&[0x00]), (SpePacket::Padding, 1));
        assert_eq!(read(&[0x01]), (SpePacket::End, 1));
        assert_eq!(read(&[0x42, 0x16]), (SpePacket::Events(0x16), 2));
        assert_eq!(read(&[0x52, 0x16, 0x03]), (SpePacket::Events(0x316), 3));
        assert_eq!(read(&[0x62, 1, 0, 0, 0x80]), (SpePacket::Events(0x8000_0001), 5));
        assert_eq!(read(&[0x72, 1, 2, 3, 4, 5, 6, 7, 8]), (SpePacket::Events(0x0807_0605_0403_0201), 9));
        assert_eq!(read(&[0x43, 0x0d]), (SpePacket::Source(13), 2));
        assert_eq!(read(&[0x49, 1]), (SpePacket::Operation { class: 1, detail: 1 }, 2));
        assert_eq!(read(&[0x64, 4, 3, 0, 0]), (SpePacket::Context { level: 1, id: 772 }, 5));
        assert_eq!(read(&[0x65, 4, 3, 0, 0]), (SpePacket::Context { level: 2, id: 772 }, 5));
        assert_eq!(read(&[0x71, 9, 0, 0, 0, 0, 0, 0, 1]), (SpePacket::Timestamp((1 << 56) | 9), 9));
        assert_eq!(read(&[0x9a, 7, 1]), (SpePacket::Counter { index: 2, cycles: 263 }, 3));
        let value = 0x8000_0000_0040_1000;
        assert_eq!(
            read(&[0xb0, 0x00, 0x10, 0x40, 0, 0, 0, 0, 0x80]),
            (SpePacket::Address { index: 0, value }, 9)
        );
        // The same with a longer header, and a number that only such have.
        assert_eq!(
            read(&[0x20, 0xb0, 0x00, 0x10, 0x40, 0, 0, 0, 0, 0x80]),
            (SpePacket::Address { index: 0, value }, 10)
        );
        assert_eq!(read(&[0x22, 0x99, 5, 0]), (SpePacket::Counter { index: 17, cycles: 5 }, 4));
    }

    #[test]
    fn padding_reaches_to_the_next_multiple() {
        let zeros = [0x23, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        // To a multiple of 16.
        assert_eq!(SpePacket::read(&zeros, 0), Ok((SpePacket::Padding, 16)));
        assert_eq!(SpePacket::read(&zeros, 35), Ok((SpePacket::Padding, 13)));
        assert_eq!(SpePacket::read(&zeros, 46), Ok((SpePacket::Padding, 2)));
        assert_eq!(SpePacket::read(&zeros, 47), Ok((SpePacket::Padding, 17)));
        assert_eq!(SpePacket::read(&zeros[..15], 0), Err(SpePacketError::Cut));
    }

    #[test]
    fn what_is_no_packet_says_so() {
        let whole: [&[u8]; 6] = [
            &[0x52, 1, 2],
            &[0x49, 1],
            &[0x64, 1, 2, 3, 4],
            &[0x71, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x98, 1, 2],
            &[0x21, 0xb2, 1, 2, 3, 4, 5, 6, 7, 8],
        ];
        for bytes in whole {
            for end in 0..bytes.len() {
                assert_eq!(
                    SpePacket::read(&bytes[..end], 0),
                    Err(SpePacketError::Cut),
                    "{bytes:x?} to {end}"
                );
            }
        }
        let all: Vec<u8> = (0..=0xff).collect();
        let known = all.iter().filter(|&&first| {
            let bytes = [first, 0xb1, 0, 0, 0, 0, 0, 0, 0, 0];
            SpePacket::read(&bytes, 0) != Err(SpePacketError::Unknown(first))
        });
        // Padding, end, timestamp; 4 × events, source, operation, context, longer headers; 8 × counter, address.
        assert_eq!(known.count(), 3 + 4 * 5 + 8 * 2);
        assert_eq!(SpePacket::read(&[0x20, 0x42, 1], 0), Err(SpePacketError::Unknown(0x42)));
    }
}
