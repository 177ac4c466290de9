//! A set-associative array of lines, also used as a TLB with pages for lines.

use super::policy::Replacement;
use crate::machine::Policy;
use alloc::vec;
use alloc::vec::Vec;

/// A resident line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Line address (or page number).
    pub(crate) line: u64,
    /// Differs from the next level.
    pub(crate) dirty: bool,
    /// No other core has it: a write needs to ask nobody. (States M and E of MESI; S otherwise.)
    pub(crate) sole: bool,
}

/// One cache or TLB.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    ways: usize,
    sets: u64,
    lines: Vec<Option<Line>>,
    ranks: Vec<u64>,
    trees: Vec<u64>,
    replacement: Replacement,
}

impl Cache {
    pub(crate) fn new(sets: u64, ways: u32, policy: Policy) -> Self {
        let entries = sets as usize * ways as usize;
        Self {
            ways: ways as usize,
            sets,
            lines: vec![None; entries],
            ranks: vec![0; entries],
            trees: vec![0; sets as usize],
            replacement: Replacement::new(policy),
        }
    }

    fn first_of_set(&self, line: u64) -> (usize, usize) {
        let set = (line % self.sets) as usize;
        (set, set * self.ways)
    }

    fn position(&self, line: u64) -> Option<usize> {
        let (_, first) = self.first_of_set(line);
        let set = &self.lines[first..first + self.ways];
        set.iter().position(|entry| entry.is_some_and(|entry| entry.line == line)).map(|way| first + way)
    }

    /// Looks at a line without using it.
    pub(crate) fn peek(&mut self, line: u64) -> Option<&mut Line> {
        let at = self.position(line)?;
        self.lines[at].as_mut()
    }

    /// Looks a line up and uses it if it is there.
    pub(crate) fn lookup(&mut self, line: u64) -> Option<&mut Line> {
        let at = self.position(line)?;
        let (set, first) = self.first_of_set(line);
        let ranks = &mut self.ranks[first..first + self.ways];
        self.replacement.hit(ranks, &mut self.trees[set], at - first);
        self.lines[at].as_mut()
    }

    /// Puts a line in that is not there, and returns the line it replaced.
    pub(crate) fn fill(&mut self, new: Line) -> Option<Line> {
        let (set, first) = self.first_of_set(new.line);
        let lines = &mut self.lines[first..first + self.ways];
        let ranks = &mut self.ranks[first..first + self.ways];
        let way = match lines.iter().position(Option::is_none) {
            Some(empty) => empty,
            None => self.replacement.victim(ranks, &mut self.trees[set]),
        };
        self.replacement.filled(ranks, &mut self.trees[set], way);
        lines[way].replace(new)
    }

    /// Takes a line out.
    pub(crate) fn remove(&mut self, line: u64) -> Option<Line> {
        let at = self.position(line)?;
        self.lines[at].take()
    }

    /// For a fully associative clock whose first entries are filled: their reference bits, in the
    /// order of filling, and the hand.
    pub(crate) fn set_clock(&mut self, referenced: &[bool], hand: usize) {
        for (rank, &bit) in self.ranks.iter_mut().zip(referenced) {
            *rank = u64::from(bit);
        }
        self.trees[0] = hand as u64;
    }

    /// The lines of a fully associative clock that was only filled, never emptied, with their reference bits,
    /// in the order of filling; and the hand.
    pub(crate) fn clock(&self) -> (Vec<(Line, bool)>, usize) {
        let lines =
            self.lines.iter().zip(&self.ranks).filter_map(|(line, &rank)| Some(((*line)?, rank != 0)));
        (lines.collect(), self.trees[0] as usize)
    }

    /// All resident lines in the order of their last use. For LRU, whose ranks are times.
    pub(crate) fn lines_oldest_first(&self) -> Vec<Line> {
        let resident = self.lines.iter().zip(&self.ranks).filter_map(|(line, &rank)| Some((rank, (*line)?)));
        let mut used: Vec<(u64, Line)> = resident.collect();
        used.sort_unstable_by_key(|&(rank, _)| rank);
        used.into_iter().map(|(_, line)| line).collect()
    }

    /// All resident lines.
    pub(crate) fn lines_mut(&mut self) -> impl Iterator<Item = &mut Line> {
        self.lines.iter_mut().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    /// One set of lines named by letters: `access` returns the set as it stands afterwards, one
    /// letter a way, `.` for an empty one.
    struct OneSet(Cache);

    impl OneSet {
        fn new(ways: u32, policy: Policy) -> Self {
            Self(Cache::new(1, ways, policy))
        }

        fn access(&mut self, name: char) -> String {
            let line = u64::from(u32::from(name));
            if self.0.lookup(line).is_none() {
                self.0.fill(Line { line, dirty: false, sole: true });
            }
            let letter = |entry: &Option<Line>| entry.map_or('.', |entry| entry.line as u8 as char);
            self.0.lines.iter().map(letter).collect()
        }
    }

    #[test]
    fn lru_replaces_the_least_recent() {
        let mut set = OneSet::new(3, Policy::Lru);
        assert_eq!(set.access('a'), "a.."); // recency: a
        assert_eq!(set.access('b'), "ab."); //          b a
        assert_eq!(set.access('c'), "abc"); //          c b a
        assert_eq!(set.access('a'), "abc"); //          a c b
        assert_eq!(set.access('d'), "adc"); //          d a c    b went
        assert_eq!(set.access('e'), "ade"); //          e d a    c went
        assert_eq!(set.access('b'), "bde"); //          b e d    a went
    }

    #[test]
    fn tree_plru_follows_the_bits() {
        //        root
        //       /    \        a bit points to the half of the next victim,
        //     n2      n3      an access points all bits on its way elsewhere
        //    a  b    c  d
        let mut set = OneSet::new(4, Policy::TreePlru);
        assert_eq!(set.access('a'), "a..."); // root → right, n2 → b
        assert_eq!(set.access('b'), "ab.."); // root → right, n2 → a
        assert_eq!(set.access('c'), "abc."); // root → left,  n3 → d
        assert_eq!(set.access('d'), "abcd"); // root → left,  n3 → c
        assert_eq!(set.access('a'), "abcd"); // root → right, n2 → b
        // The victim is c (right, then c); true LRU would have taken b.
        assert_eq!(set.access('e'), "abed"); // root → left,  n3 → d
        assert_eq!(set.access('f'), "afed"); // left, then b
    }

    #[test]
    fn tree_plru_of_three_ways_never_points_to_the_missing_leaf() {
        let mut set = OneSet::new(3, Policy::TreePlru);
        assert_eq!(set.access('a'), "a.."); // root → right, n2 → b
        assert_eq!(set.access('b'), "ab."); // root → right, n2 → a
        assert_eq!(set.access('c'), "abc"); // root → left,  n3 → the missing leaf
        assert_eq!(set.access('d'), "dbc"); // left, a; root → right, n2 → b
        assert_eq!(set.access('e'), "dbe"); // right; its missing half is not followed
    }

    #[test]
    fn srrip_ages_until_a_line_is_distant() {
        let mut set = OneSet::new(3, Policy::Srrip);
        assert_eq!(set.access('a'), "a.."); // intervals: 2
        assert_eq!(set.access('b'), "ab."); //            2 2
        assert_eq!(set.access('a'), "ab."); //            0 2
        assert_eq!(set.access('c'), "abc"); //            0 2 2
        assert_eq!(set.access('d'), "adc"); // aged once  1 3 3, b goes → 1 2 3
        assert_eq!(set.access('e'), "ade"); // c goes               → 1 2 2
        assert_eq!(set.access('f'), "afe"); // aged once  2 3 3, d goes → 2 2 3
    }

    #[test]
    fn brrip_fills_are_distant_but_every_32nd() {
        let mut set = OneSet::new(2, Policy::Brrip);
        assert_eq!(set.access('a'), "a."); // intervals: 3
        assert_eq!(set.access('a'), "a."); //            0
        assert_eq!(set.access('b'), "ab"); //            0 3
        // A scan goes through the one way and leaves `a` alone: fills 3 … 32.
        for name in ('A'..).take(30) {
            assert_eq!(set.access(name).chars().next(), Some('a'));
        }
        // The 32nd fill (`^`, the 30th of the scan) has interval 2: ageing makes it distant and
        // brings `a` to 1.
        assert_eq!(set.access('z'), "az");
    }

    #[test]
    fn clock_gives_every_used_line_a_second_chance() {
        let mut set = OneSet::new(3, Policy::Clock);
        assert_eq!(set.access('a'), "a.."); // bits: 1    the hand is at a
        assert_eq!(set.access('b'), "ab."); //       11
        assert_eq!(set.access('c'), "abc"); //       111
        assert_eq!(set.access('d'), "dbc"); //       100, all were passed and cleared; the hand is at b
        assert_eq!(set.access('b'), "dbc"); //       110
        assert_eq!(set.access('e'), "dbe"); //       101, b was passed; the hand is at d
        assert_eq!(set.access('f'), "dfe"); //       011, d was passed; the hand is at e
        assert_eq!(set.access('g'), "gfe"); //       110, e was passed; the hand is at f
    }

    #[test]
    fn random_repeats_itself() {
        let run = || {
            let mut set = OneSet::new(4, Policy::Random);
            ('a'..='z').map(|name| set.access(name)).collect::<Vec<_>>()
        };
        assert_eq!(run(), run());
        // Empty ways are filled in order first.
        assert_eq!(run()[3], "abcd");
    }
}
