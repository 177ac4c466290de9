//! How a burst's addresses lie to those of exact mode.

use std::collections::{HashMap, HashSet};

const PAGE_BYTES: u64 = 4096;
/// Behind the first thread's stack (`TASK_SIZE` of x86-64 with four levels of page tables).
const STACK_END: u64 = 0x7fff_ffff_f000;

/// A page's distance to its partner in the other process, and how many changes of mappings there had been when that was
/// first seen.
type Known = (u64, usize);

/// Which pages of the two processes are each other's: the distance from a page of exact mode's to that of the bursts', by
/// either.
#[derive(Debug, Default)]
pub struct Shifts {
    /// Where the strings of arguments and environment begin above the stack, here and there: the kernel puts the program's
    /// file name above them, which is the engine's in exact mode. They keep their distance from there.
    strings: (u64, u64),
    of_bursts: HashMap<u64, Known>,
    of_exact: HashMap<u64, Known>,
    changes: usize,
    /// Pages that came in since [`Shifts::settle`], each with what was known before: the bursts', and exact mode's.
    noted: Vec<[(u64, Option<Known>); 2]>,
    last: Option<(u64, u64)>,
    pages: HashSet<u64>,
    distinct: HashSet<u64>,
}

impl Shifts {
    /// `strings`: where these begin, in the bursts' process and in exact mode's.
    pub fn new(strings: (u64, u64)) -> Self {
        Self { strings, ..Self::default() }
    }

    fn is_of_strings(&self, exact: u64) -> bool {
        (self.strings.1..STACK_END).contains(&exact)
    }

    /// Whether a burst's address can be exact mode's with any shift of its page.
    pub fn is_possible(&self, burst: u64, exact: u64) -> bool {
        let shift = burst.wrapping_sub(exact);
        match self.is_of_strings(exact) {
            true => shift == self.strings.0.wrapping_sub(self.strings.1),
            false => shift.is_multiple_of(PAGE_BYTES),
        }
    }

    /// Whether a burst's address can be exact mode's; notes their pages for the moment. `takes_new`: a page may have
    /// another shift than those beside it, and another one than before the last change of mappings.
    pub fn are_same(&mut self, burst: u64, exact: u64, takes_new: bool) -> bool {
        if !self.is_possible(burst, exact) {
            return false;
        }
        if self.is_of_strings(exact) {
            return true;
        }
        let shift = burst.wrapping_sub(exact);
        let (page, exact_page) = (burst / PAGE_BYTES, exact / PAGE_BYTES);
        if self.last == Some((page, shift)) {
            return true;
        }
        let known = [self.of_bursts.get(&page).copied(), self.of_exact.get(&exact_page).copied()];
        let is_known = known.iter().all(|known| known.is_some_and(|(known, _)| known == shift));
        if !is_known {
            let is_contradicted =
                known.iter().flatten().any(|&(known, changes)| known != shift && changes == self.changes);
            let has_neighbour = || {
                let beside = [page.wrapping_sub(1), page + 1];
                beside.iter().any(|page| self.of_bursts.get(page).is_some_and(|known| known.0 == shift))
            };
            let is_plain = known.iter().all(Option::is_none) && has_neighbour();
            if is_contradicted || !(is_plain || takes_new) {
                return false;
            }
            self.noted.push([(page, known[0]), (exact_page, known[1])]);
            self.of_bursts.insert(page, (shift, self.changes));
            self.of_exact.insert(exact_page, (shift, self.changes));
        }
        self.last = Some((page, shift));
        true
    }

    /// What was noted: pages with their shifts.
    pub fn noted(&self) -> HashSet<(u64, u64)> {
        self.noted.iter().filter_map(|[(page, _), _]| Some((*page, self.of_bursts.get(page)?.0))).collect()
    }

    /// Keeps what was noted.
    pub fn settle(&mut self) {
        for (page, shift) in self.noted() {
            self.pages.insert(page);
            self.distinct.insert(shift);
        }
        self.noted.clear();
    }

    /// Forgets what was noted.
    pub fn take_back(&mut self) {
        let put_back = |map: &mut HashMap<u64, Known>, (page, before): (u64, Option<Known>)| match before {
            Some(known) => map.insert(page, known),
            None => map.remove(&page),
        };
        while let Some([of_bursts, of_exact]) = self.noted.pop() {
            put_back(&mut self.of_bursts, of_bursts);
            put_back(&mut self.of_exact, of_exact);
        }
        self.last = None;
    }

    /// Exact mode's process has changed the mapping of these addresses.
    pub fn forget(&mut self, start: u64, end: u64) {
        let pages = start / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        let are_few = pages.end - pages.start < self.of_exact.len() as u64;
        let gone: Vec<u64> = match are_few {
            true => pages.filter(|page| self.of_exact.contains_key(page)).collect(),
            false => self.of_exact.keys().copied().filter(|page| pages.contains(page)).collect(),
        };
        for page in gone {
            if let Some((shift, _)) = self.of_exact.remove(&page) {
                self.of_bursts.remove(&(page.wrapping_mul(PAGE_BYTES).wrapping_add(shift) / PAGE_BYTES));
            }
        }
        self.changes += 1;
        self.last = None;
    }

    /// Pages that were compared.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Different shifts that they had.
    pub fn distinct(&self) -> usize {
        self.distinct.len()
    }
}
