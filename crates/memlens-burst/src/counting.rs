//! The stretch behind a burst in which the thread runs from copies that only count: how fast it is by itself.
//!
//! ```text
//!  recorded │ piece │ piece │ … │ piece │ piece │ … │ native
//!           └─ caches get over the recording ─┴─ tell its speed: without translation, without interruptions
//! ```
//!
//! It runs in pieces of some microseconds, each timed by itself. The earlier half of the time is left out if there are pieces in
//! the later, as are pieces in which the runtime translated, and those that took several times the median: an interrupt, or the
//! hypervisor's turn. A page fault is neither: the program's own time, as seldom as it may be. Clearing a huge page takes as long as
//! all else that is done with it. If a piece was slow for that, all pieces tell the speed, also those in which the runtime translated
//! for less than half of the time, without that: what fills new memory and then calls something new has its faults there.

use crate::arch::{cycles, sum_cycles};
use crate::sys::{thread_faults, thread_ns};

/// Most pieces of a stretch.
const MOST_PIECES: usize = 64;
/// A stretch goes on for so long, in ns of processor time, or until it has its words: a tick often comes with another
/// thread's turn, and caches take some hundred µs to be again as they were. Pieces with translation are not among that: where a program
/// begins something new, they alone take as long.
const STRETCH_NS: u64 = 600_000;
/// What a piece should take, in ns.
const PIECE_NS: u64 = 20_000;
/// Words of the first piece, and of the shortest …
const LEAST_PIECE_WORDS: u64 = 2_500;
/// … and the longest.
const MOST_PIECE_WORDS: u64 = 12_500;
/// A piece tells nothing if the runtime took more than one in so many of its cycles.
const RUNTIME_PART: u64 = 20;
/// Of one that had page faults its own time is known if the runtime took no more than one in so many.
const MOST_RUNTIME_PART: u64 = 2;
/// Nor does one that took so many times as long as the median, for its words.
const INTERRUPTED: u64 = 4;

/// What a stretch tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Words that recording would have stored in the pieces that tell the thread's speed; 0: there are none.
    pub words: u64,
    /// Processor time of those in ns.
    pub ns: u64,
    /// Words that it would have stored in the others.
    pub words_besides: u64,
    /// Pieces among the former that took several times as long as others, and had page faults.
    pub slow_faults: u64,
    /// Cycles of `sum_cycles`'s loop beside the stretch.
    pub loop_cycles: u64,
}

#[derive(Clone, Copy, Default)]
struct Piece {
    began_ns: u64,
    ns: u64,
    /// Without the runtime's, if that took much.
    own_ns: u64,
    words: u64,
    is_clear: bool,
    /// And its own time is known well enough.
    has_faults: bool,
}

impl Piece {
    /// Own time of a thousand words, in ns.
    fn slowness(&self) -> u64 {
        1000 * self.own_ns / self.words.max(1)
    }
}

/// A stretch that goes on.
pub struct Counting {
    pieces: [Piece; MOST_PIECES],
    count: usize,
    words: u64,
    began_ns: u64,
    /// Processor time of pieces with translation.
    unclear_ns: u64,
    /// Page faults before the present piece.
    faults: u64,
    /// Of the present piece.
    piece_began_ns: u64,
    began_cycles: u64,
    began_runtime_cycles: u64,
    loop_cycles: u64,
}

impl Counting {
    /// Begins a stretch.
    pub fn begin(&mut self) {
        (self.count, self.words, self.unclear_ns) = (0, 0, 0);
        self.faults = thread_faults();
        self.loop_cycles = sum_cycles();
        self.began_ns = thread_ns();
    }

    /// Begins a piece: the most words that it should have. `runtime_cycles`: the runtime's in the burst so far.
    pub fn begin_piece(&mut self, runtime_cycles: u64) -> usize {
        let words = match self.pieces[..self.count].last() {
            Some(last) => (PIECE_NS * last.words / last.ns.max(1)).clamp(LEAST_PIECE_WORDS, MOST_PIECE_WORDS),
            None => LEAST_PIECE_WORDS,
        };
        self.began_runtime_cycles = runtime_cycles;
        self.began_cycles = cycles();
        self.piece_began_ns = thread_ns();
        words as usize
    }

    /// Ends it with so many words.
    pub fn end_piece(&mut self, words: u64, runtime_cycles: u64) {
        let now_ns = thread_ns();
        let took = cycles().saturating_sub(self.began_cycles);
        self.words += words;
        if words > 0
            && let Some(place) = self.pieces.get_mut(self.count)
        {
            let ns = now_ns.saturating_sub(self.piece_began_ns);
            let runtimes = runtime_cycles.saturating_sub(self.began_runtime_cycles);
            let is_clear = runtimes <= took / RUNTIME_PART;
            let before = core::mem::replace(&mut self.faults, thread_faults());
            let has_faults = self.faults > before && runtimes <= took / MOST_RUNTIME_PART;
            self.unclear_ns += if is_clear { 0 } else { ns };
            let own_ns = if is_clear { ns } else { ns - ns * runtimes.min(took) / took.max(1) };
            *place = Piece { began_ns: self.piece_began_ns, ns, own_ns, words, is_clear, has_faults };
            self.count += 1;
        }
    }

    /// Ends it where it is left early: its words count, its time tells nothing.
    pub fn leave_piece(&mut self, words: u64) {
        self.words += words;
    }

    /// Whether that is enough.
    pub fn is_complete(&self, most_words: u64) -> bool {
        let clear_ns = (self.end_ns() - self.began_ns).saturating_sub(self.unclear_ns);
        self.count == MOST_PIECES || self.words >= most_words || clear_ns >= STRETCH_NS
    }

    fn end_ns(&self) -> u64 {
        self.pieces[..self.count].last().map_or(self.began_ns, |last| last.began_ns + last.ns)
    }

    /// What it tells.
    pub fn counted(&self) -> Counted {
        let all = || self.pieces[..self.count].iter();
        let clear = || all().filter(|piece| piece.is_clear);
        let half_ns = self.began_ns.midpoint(self.end_ns());
        let settled_ns = if clear().any(|piece| piece.began_ns >= half_ns) { half_ns } else { 0 };
        let settled = || clear().filter(|piece| piece.began_ns >= settled_ns);
        let most = median_slowness(settled()).saturating_mul(INTERRUPTED);
        // Of all pieces, since a long one moves the half of the time.
        let most_of_all = median_slowness(clear()).saturating_mul(INTERRUPTED);
        let is_slow = |piece: &&Piece| piece.has_faults && piece.slowness() > most_of_all;
        let slow_faults = all().filter(is_slow).count() as u64;
        let is_telling = |piece: &&Piece| match slow_faults > 0 {
            true => piece.has_faults || piece.is_clear && piece.slowness() <= most_of_all,
            false => piece.is_clear && piece.began_ns >= settled_ns && piece.slowness() <= most,
        };
        let (mut words, mut ns) = (0, 0);
        for piece in all().filter(is_telling) {
            words += piece.words;
            ns += piece.own_ns;
        }
        Counted {
            words,
            ns,
            words_besides: self.words - words,
            slow_faults,
            loop_cycles: self.loop_cycles.midpoint(sum_cycles()),
        }
    }
}

/// How slow pieces usually were; 0: there are none.
fn median_slowness<'p>(pieces: impl Iterator<Item = &'p Piece>) -> u64 {
    let mut sorted = [0; MOST_PIECES];
    let mut count = 0;
    for (place, piece) in sorted.iter_mut().zip(pieces) {
        *place = piece.slowness();
        count += 1;
    }
    sorted[..count].sort_unstable();
    if count > 0 { sorted[count / 2] } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stretch of pieces: words, ns, whether they are clear.
    fn counting(pieces: &[(u64, u64, bool)]) -> Counting {
        // SAFETY: numbers and bools, for all of which zeros are a value.
        let mut counting: Counting = unsafe { core::mem::zeroed() };
        let mut began_ns = 0;
        for &(words, ns, is_clear) in pieces {
            counting.pieces[counting.count] =
                Piece { began_ns, ns, own_ns: ns, words, is_clear, has_faults: false };
            counting.count += 1;
            counting.words += words;
            counting.unclear_ns += if is_clear { 0 } else { ns };
            began_ns += ns;
        }
        counting
    }

    fn telling(pieces: &[(u64, u64, bool)]) -> (u64, u64, u64) {
        let Counted { words, ns, words_besides, .. } = counting(pieces).counted();
        (words, ns, words_besides)
    }

    #[test]
    fn the_later_half_of_the_time_tells_the_speed() {
        let cold = (1000, 30_000, true);
        let warm = (1000, 10_000, true);
        assert_eq!(telling(&[cold, warm, warm, warm]), (3000, 30_000, 1000));
        assert_eq!(
            telling(&[cold, cold, warm]),
            (1000, 10_000, 2000),
            "the second began in the earlier half"
        );
        assert_eq!(telling(&[]), (0, 0, 0));
        assert_eq!(telling(&[cold]), (1000, 30_000, 0), "better than nothing");
    }

    #[test]
    fn pieces_with_translation_or_interruptions_tell_nothing() {
        let warm = (1000, 10_000, true);
        let translated = (1000, 12_000, false);
        let interrupted = (1000, 60_000, true);
        let pieces = [(1000, 200_000, true), warm, translated, warm, interrupted, warm];
        assert_eq!(telling(&pieces), (3000, 30_000, 3000));
        assert_eq!(telling(&[translated, translated]), (0, 0, 2000));
    }

    #[test]
    fn page_faults_are_the_programs_own_time() {
        // Wherever in the stretch the page is that is cleared.
        for slow in 0..5 {
            let mut pieces = [(2500, 2_500, true); 5];
            pieces[slow] = (2500, 400_000, true);
            let mut counting = counting(&pieces);
            let Counted { words, ns, slow_faults, .. } = counting.counted();
            assert!(words < 12_500 && ns < 12_500 && slow_faults == 0, "an interrupt: {words} in {ns}");
            counting.pieces[slow].has_faults = true;
            let Counted { words, ns, words_besides, slow_faults, .. } = counting.counted();
            assert_eq!((words, ns, words_besides, slow_faults), (12_500, 410_000, 0, 1));
        }
        // In each piece some: they are as fast as the others.
        let mut often = counting(&[(2500, 100_000, true); 5]);
        often.pieces.iter_mut().for_each(|piece| piece.has_faults = true);
        assert_eq!(often.counted().slow_faults, 0);
        // Slow for faults, and something was translated at its end: without that it tells, too.
        let mut new = counting(&[(2500, 60_000, false), (2500, 2_500, true), (2500, 2_500, true)]);
        assert_eq!((new.counted().words, new.counted().ns), (5000, 5_000));
        (new.pieces[0].own_ns, new.pieces[0].has_faults) = (50_000, true);
        let Counted { words, ns, slow_faults, .. } = new.counted();
        assert_eq!((words, ns, slow_faults), (7_500, 55_000, 1));
    }

    #[test]
    fn a_stretch_ends_after_its_time_or_words() {
        assert!(!counting(&[(1000, 10_000, true)]).is_complete(2000));
        assert!(counting(&[(1000, 10_000, true), (1000, 10_000, true)]).is_complete(2000));
        assert!(counting(&[(1000, STRETCH_NS, true)]).is_complete(2000));
        assert!(!counting(&[(1000, STRETCH_NS, false), (100, 1000, true)]).is_complete(2000));
        assert!(counting(&[(1, 1, true); MOST_PIECES]).is_complete(2000));
    }
}
