//! A block of bus records as bytes.
//!
//! ```text
//! u64 cycles before the first record
//! u8  how lines are written: 0 themselves, 1 their distances (zigzag)      u8 bytes a line, 1 to 8
//! u32 number of gaps      then for each: u32 position, u64 records lost
//! ⌈n/8⌉ bytes: bit i = record i is a write
//! n bytes: durations, 255 = in the list      u32 length of the list, then u64 each
//! n bytes: lowest byte of every line's number (or distance); n bytes: the next one; …
//! ```
//!
//! Bytes of one significance lie together, because the low ones of scattered lines cannot be compressed and
//! the high ones nearly vanish. Of the two ways of writing lines, the one is taken that packs better.

use super::bus_block::{BusBlock, Gap};

const ESCAPE: u8 = u8::MAX;
/// As many lines are packed to find the better way of writing them.
const TRIED_LINES: usize = 4096;

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Appends the planes of the numbers.
fn put_planes(numbers: &[u64], out: &mut Vec<u8>) -> u8 {
    let all = numbers.iter().fold(0, |all, number| all | number);
    let bytes = (64 - all.leading_zeros()).div_ceil(8).max(1) as u8;
    for plane in 0..bytes {
        out.extend(numbers.iter().map(|number| (number >> (8 * plane)) as u8));
    }
    bytes
}

fn packed_len(numbers: &[u64]) -> usize {
    let mut planes = Vec::new();
    put_planes(&numbers[..numbers.len().min(TRIED_LINES)], &mut planes);
    zstd::bulk::compress(&planes, 1).map_or(usize::MAX, |packed| packed.len())
}

/// The bytes of a block.
pub fn encode(block: &BusBlock, out: &mut Vec<u8>) {
    out.clear();
    let mut previous = 0;
    let distances: Vec<u64> = block
        .lines
        .iter()
        .map(|&line| zigzag(line.wrapping_sub(std::mem::replace(&mut previous, line)) as i64))
        .collect();
    let by_distance = packed_len(&distances) < packed_len(&block.lines);
    let mut planes = Vec::with_capacity(block.len() * 4);
    let bytes = put_planes(if by_distance { &distances } else { &block.lines }, &mut planes);
    out.extend(block.start_cycles.to_le_bytes());
    out.extend([u8::from(by_distance), bytes]);
    out.extend((block.gaps.len() as u32).to_le_bytes());
    for gap in &block.gaps {
        out.extend(gap.position.to_le_bytes());
        out.extend(gap.lost.to_le_bytes());
    }
    out.extend(
        block.writes.chunks(8).map(|eight| {
            eight.iter().enumerate().fold(0, |byte, (bit, &write)| byte | u8::from(write) << bit)
        }),
    );
    let escaped = |duration: u64| duration >= u64::from(ESCAPE);
    out.extend(block.durations.iter().map(|&time| if escaped(time) { ESCAPE } else { time as u8 }));
    let long: Vec<u64> = block.durations.iter().copied().filter(|&time| escaped(time)).collect();
    out.extend((long.len() as u32).to_le_bytes());
    long.iter().for_each(|time| out.extend(time.to_le_bytes()));
    out.extend(planes);
}

/// Takes bytes off the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

/// Reads a block of `records` records, the first of which has the number `first`. `None`: the bytes are not
/// a block, which a checksum does not exclude (whoever wrote it was wrong).
pub fn decode(bytes: &[u8], first: u64, records: u32, block: &mut BusBlock) -> Option<()> {
    let count = records as usize;
    let mut bytes = Bytes(bytes);
    block.restart(first, bytes.u64()?);
    let &[by_distance @ (0 | 1), planes @ 1..=8] = bytes.take(2)? else { return None };
    let mut before = 0;
    for _ in 0..bytes.u32()? {
        let gap = Gap { position: bytes.u32()?, lost: bytes.u64()? };
        let is_sound = gap.position >= before && (gap.position as usize) < count && gap.lost < 1 << 48;
        before = is_sound.then_some(gap.position)?;
        block.gaps.push(gap);
    }
    let bits = bytes.take(count.div_ceil(8))?;
    block.writes.extend((0..count).map(|at| bits[at / 8] >> (at % 8) & 1 == 1));
    let short = bytes.take(count)?;
    let long = bytes.u32()? as usize;
    let mut long = bytes.take(long.checked_mul(8)?)?.chunks_exact(8);
    block.durations.reserve(count);
    for &time in short {
        let time = match time {
            ESCAPE => u64::from_le_bytes(long.next()?.try_into().ok()?),
            short => u64::from(short),
        };
        block.durations.push(time);
    }
    let planes = bytes.take(count.checked_mul(usize::from(planes))?)?;
    if !bytes.0.is_empty() || long.next().is_some() {
        return None;
    }
    block.lines.resize(count, 0);
    if count > 0 {
        for (index, plane) in planes.chunks_exact(count).enumerate() {
            let shift = 8 * index as u32;
            block.lines.iter_mut().zip(plane).for_each(|(line, &byte)| *line |= u64::from(byte) << shift);
        }
    }
    if by_distance == 1 {
        let mut line = 0_u64;
        for place in &mut block.lines {
            line = line.wrapping_add_signed(unzigzag(*place));
            *place = line;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_come_back_as_they_were(
            records in prop::collection::vec((any::<u64>(), any::<u32>(), any::<bool>(), 0_u64..3), 0..300),
            mask in prop::sample::select(vec![0xff_u64, 0xff_ffff, u64::MAX]),
        ) {
            let mut block = BusBlock::default();
            block.restart(77, 1 << 40);
            for (line, duration, write, lost) in records {
                block.push(line & mask, u64::from(duration) & mask, write, lost);
            }
            let (mut bytes, mut back) = (Vec::new(), BusBlock::default());
            encode(&block, &mut bytes);
            prop_assert_eq!(decode(&bytes, 77, block.len() as u32, &mut back), Some(()));
            prop_assert_eq!(&back, &block);
            // A byte more or less is noticed.
            prop_assert_eq!(decode(&bytes[..bytes.len() - 1], 77, block.len() as u32, &mut back), None);
        }
    }

    #[test]
    fn scattered_lines_cost_at_most_four_bytes() {
        let mut block = BusBlock::default();
        let mut random = 1_u64;
        for _ in 0..65_536 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Any line of a gigabyte.
            block.push(random >> 40, 20 + (random >> 30) % 4, random >> 63 == 1, 0);
        }
        let mut bytes = Vec::new();
        encode(&block, &mut bytes);
        let packed = zstd::bulk::compress(&bytes, 1).expect("packed").len();
        assert!(packed < 4 * block.len(), "{packed} bytes");
    }
}
