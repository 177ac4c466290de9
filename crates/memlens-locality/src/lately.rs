//! Which lines were used lately: what stands in for a first level where accesses are seen and no cache is modelled.

/// As many lines as a first level of 32 KiB has, with as many in a set. Which set a line is in is drawn by [`set_of`]: by the lowest bits of their
/// numbers arrays that lie multiples of 2 MiB apart would have the same.
const SETS: usize = 64;
const WAYS: usize = 8;
/// No line has this address.
const NO_LINE: u64 = u64::MAX;

/// The lines that were used last.
#[derive(Clone, Debug)]
pub struct Lately {
    line_shift: u32,
    /// The most recent line of a set comes first.
    lines: Box<[[u64; WAYS]; SETS]>,
}

impl Lately {
    /// None yet, of so many bytes each, a power of two.
    pub fn new(line_bytes: u32) -> Self {
        Self { line_shift: line_bytes.trailing_zeros(), lines: Box::new([[NO_LINE; WAYS]; SETS]) }
    }

    /// What was used is not known any more.
    pub fn clear(&mut self) {
        self.lines.fill([NO_LINE; WAYS]);
    }

    /// An access. Whether its line was not used lately.
    #[inline]
    pub fn is_new(&mut self, address: u64) -> bool {
        let line = address >> self.line_shift;
        let lines = &mut self.lines[set_of(line)];
        if lines[0] == line {
            return false;
        }
        let found = lines.iter().position(|&used| used == line);
        // The one that goes is that which was not used for longest.
        lines[..=found.unwrap_or(WAYS - 1)].rotate_right(1);
        lines[0] = line;
        found.is_none()
    }
}

/// Multiplicative hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
fn set_of(line: u64) -> usize {
    (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SETS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_new_when_others_have_come_between() {
        let mut lately = Lately::new(64);
        let mut new = |addresses: &mut dyn Iterator<Item = u64>| {
            addresses.filter(|&address| lately.is_new(address)).count()
        };
        assert_eq!(new(&mut [0, 8, 63, 64, 0].into_iter()), 2);
        // A hundred lines stay, thousands do not.
        let mut rounds = |lines: u64| new(&mut (0..10 * lines).map(|at| 0x10_0000 + at % lines * 64));
        assert!(rounds(100) <= 110);
        assert!(rounds(10_000) > 90_000);
        lately.clear();
        assert!(lately.is_new(0));
    }
}
