//! Makes new inputs of old ones, the same ones every time.

/// A deterministic source of mutations, by xorshift64 (Marsaglia: Xorshift RNGs, Journal of
/// Statistical Software 8, 2003).
#[derive(Clone, Debug)]
pub struct Mutator {
    state: u64,
}

/// Bytes and numbers at which parsers change their mind.
const INTERESTING: [u8; 12] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b',', b'"', b'=', b'0', b'9', b' '];

impl Mutator {
    /// A source; equal seeds give equal mutations.
    pub fn new(seed: u64) -> Self {
        // The state must not be 0.
        Self { state: seed ^ 0x9e37_79b9_7f4a_7c15 | 1 }
    }

    fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// A number below `limit`, or 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.random() >> 11) as usize % limit.max(1)
    }

    /// One of the seeds, changed in one to four places: bits flipped, bytes set, numbers replaced,
    /// pieces removed, doubled, or taken from another seed, the end cut off.
    pub fn mutate(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let Some(seed) = seeds.get(self.below(seeds.len())) else { return Vec::new() };
        let mut bytes = seed.clone();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            let length = self.below(16.min(bytes.len() - at) + 1);
            match self.below(8) {
                _ if bytes.is_empty() => bytes.push(self.random() as u8),
                0 | 1 => bytes[at] ^= 1 << self.below(8),
                2 => bytes[at] = INTERESTING[self.below(INTERESTING.len())],
                3 => bytes[at..at + length].fill(INTERESTING[self.below(5)]),
                4 => drop(bytes.drain(at..at + length)),
                5 => bytes.splice(at..at, bytes[at..at + length].to_vec()).for_each(drop),
                6 => bytes.truncate(at),
                _ => {
                    let other = &seeds[self.below(seeds.len())];
                    let from = self.below(other.len());
                    let to = from + self.below(64.min(other.len() - from) + 1);
                    let end = bytes.len().min(at + (to - from));
                    bytes.splice(at..end, other[from..to].iter().copied()).for_each(drop);
                }
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_inputs_and_most_differ_from_the_corpus() {
        let corpus = [b"hello, world".to_vec(), b"0123456789".to_vec(), Vec::new()];
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..1000).map(|_| mutator.mutate(&corpus)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
        assert!(inputs(1).iter().filter(|input| !corpus.contains(input)).count() > 900);
    }
}
