//! Reuse times sorted into bins of nearly equal ratio.
//!
//! Bin 0 holds times below 16. From there each octave has four bins up to 2^18, two up to 2^36. Longer times fall
//! into the last bin.

/// Times below this are trivial: so few references cannot push a block out of any cache of 16 blocks or ways.
pub(crate) const TRIVIAL: u64 = 16;

const FINE_OCTAVES: u32 = 14;
const COARSE_OCTAVES: u32 = 18;
const FINE: usize = 1 + 4 * FINE_OCTAVES as usize;
/// Number of bins.
pub(crate) const BINS: usize = FINE + 2 * COARSE_OCTAVES as usize;

/// The bin of a time.
#[inline]
pub(crate) fn bin(time: u64) -> usize {
    if time < TRIVIAL {
        return 0;
    }
    let octave = 63 - time.leading_zeros() - 4;
    if octave < FINE_OCTAVES {
        1 + octave as usize * 4 + (time >> (octave + 2) & 3) as usize
    } else {
        let half = (time >> (octave + 3) & 1) as usize;
        (FINE + (octave - FINE_OCTAVES) as usize * 2 + half).min(BINS - 1)
    }
}

/// The shortest time of a bin; for `BINS`, one more than the longest that is told apart.
pub(crate) fn lower_edge(bin: usize) -> f64 {
    if bin == 0 {
        return 0.0;
    }
    let (octave, quarter) = if bin < FINE {
        ((bin - 1) / 4, (bin - 1) % 4)
    } else {
        (FINE_OCTAVES as usize + (bin - FINE) / 2, (bin - FINE) % 2 * 2)
    };
    (TRIVIAL << octave) as f64 * (1.0 + quarter as f64 / 4.0)
}

/// The mean of a bin's times.
pub(crate) fn middle(bin: usize) -> f64 {
    (lower_edge(bin) + lower_edge(bin + 1)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_and_bins_agree() {
        for at in 1..BINS {
            let edge = lower_edge(at) as u64;
            assert_eq!(bin(edge), at, "edge {edge}");
            assert_eq!(bin(edge - 1), at - 1, "below {edge}");
        }
        assert_eq!((bin(0), bin(15), bin(u64::MAX)), (0, 0, BINS - 1));
        assert_eq!(lower_edge(BINS), (1u64 << 36) as f64);
    }
}
