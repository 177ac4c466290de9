//! Delinquent loads: the fewest instructions that have nearly all last-level load misses (Zhao et al., "Ubiquitous
//! Memory Introspection", section 6), and two profiles' held against each other in the measures of its table 6.
//!
//! An instruction that reads and writes the same place (`add %rax,(%rbx)`) waits for what it reads: it is a load here, though its
//! misses are counted as a store's.

use std::collections::{BTreeMap, HashMap};

use memlens_locality::{DelinquentComparison, smallest_covering};
use memlens_profile::{CodeIx, ModuleIx, Profile};
use memlens_types::Counts;

/// The part of the misses that they have.
pub const DELINQUENT_SHARE: f64 = 0.9;

/// A profile's delinquent loads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DelinquentLoads {
    /// The first row of `code` of each, by falling misses.
    pub loads: Vec<CodeIx>,
    /// Loads that miss the last level at all.
    pub of: usize,
    /// The part of the last-level load misses that they have, 0 to 1.
    pub covered: f64,
    /// Last-level load misses of all of them.
    pub misses: u64,
}

/// Last-level misses that an instruction waits for.
fn read_misses(counts: &Counts) -> u64 {
    let modified = if counts.modifies > 0 { counts.llc_store_misses } else { 0 };
    counts.llc_load_misses + modified
}

/// An instruction's place and misses: row of code, module, offset.
type Load = (CodeIx, (Option<ModuleIx>, u64), f64);

fn loads(profile: &Profile) -> Vec<Load> {
    let mut loads: BTreeMap<(Option<ModuleIx>, u64), (CodeIx, f64)> = BTreeMap::new();
    for (at, code) in profile.code.iter().enumerate() {
        let misses = read_misses(&code.counts.get()) as f64;
        if misses > 0.0 {
            loads.entry((code.module, code.offset)).or_insert((CodeIx::from_index(at), 0.0)).1 += misses;
        }
    }
    loads.into_iter().map(|(place, (code, misses))| (code, place, misses)).collect()
}

/// The delinquent loads of a profile. Linear in its code.
pub fn delinquent_loads(profile: &Profile) -> DelinquentLoads {
    let loads = loads(profile);
    let misses = |number: u32| loads[number as usize].2;
    let set = smallest_covering(numbered(&loads), DELINQUENT_SHARE);
    let all: f64 = loads.iter().map(|(.., misses)| misses).sum();
    let covered: f64 = set.iter().map(|&number| misses(number)).sum();
    DelinquentLoads {
        loads: set.iter().map(|&number| loads[number as usize].0).collect(),
        of: loads.len(),
        covered: if all > 0.0 { covered / all } else { 0.0 },
        misses: all as u64,
    }
}

fn numbered(loads: &[Load]) -> impl Iterator<Item = (u32, f64)> {
    (0u32..).zip(loads).map(|(number, (.., misses))| (number, *misses))
}

/// Whether files that B has not mapped have nearly all of A's misses: it is another program, or has another name.
fn is_of_others(a: &Profile, loads_a: &[Load], b: &Profile) -> bool {
    let (mut all, mut in_both) = (0.0, 0.0);
    for &(_, (module, _), misses) in loads_a {
        let name = a.module(module).map_or("", |module| module.name());
        let is_in_both = b.modules.iter().any(|module| module.name() == name);
        all += misses;
        in_both += if is_in_both { misses } else { 0.0 };
    }
    in_both < (1.0 - DELINQUENT_SHARE) * all
}

/// Whether a file that is mapped in both profiles was built anew: its code is elsewhere.
fn was_rebuilt(a: &Profile, b: &Profile) -> bool {
    let ids = |profile: &Profile| -> HashMap<String, String> {
        let known = profile.modules.iter();
        known.filter_map(|module| Some((module.name().to_owned(), module.build_id.clone()?))).collect()
    };
    let of_a = ids(a);
    ids(b).iter().any(|(name, id)| of_a.get(name).is_some_and(|other| other != id))
}

/// B's delinquent loads as a prediction of A's, which are taken for true. `None`: one has no last-level load misses, or they are
/// of two builds or programs. Loads are the same if module (its file name) and offset are: the same binaries.
pub(crate) fn compare_delinquent(a: &Profile, b: &Profile) -> Option<DelinquentComparison> {
    let (loads_a, loads_b) = (loads(a), loads(b));
    if loads_a.is_empty() || loads_b.is_empty() || was_rebuilt(a, b) || is_of_others(a, &loads_a, b) {
        return None;
    }
    let mut numbers: HashMap<(&str, u64), u32> = HashMap::new();
    let mut misses_of = Vec::new();
    for (profile, loads) in [(a, &loads_a), (b, &loads_b)] {
        let numbered: Vec<(u32, f64)> = loads
            .iter()
            .map(|&(_, (module, offset), misses)| {
                let name = profile.module(module).map_or("", |module| module.name());
                let next = numbers.len() as u32;
                (*numbers.entry((name, offset)).or_insert(next), misses)
            })
            .collect();
        misses_of.push(numbered);
    }
    let predicted = smallest_covering(misses_of[1].iter().copied(), DELINQUENT_SHARE);
    Some(DelinquentComparison::new(&predicted, misses_of[0].iter().copied(), DELINQUENT_SHARE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reads_and_writes_waits_for_what_it_reads() {
        let store = Counts { stores: 9, llc_store_misses: 9, ..Counts::default() };
        assert_eq!(read_misses(&store), 0);
        let load = Counts { loads: 9, llc_load_misses: 8, ..Counts::default() };
        assert_eq!(read_misses(&load), 8);
        let modify = Counts { loads: 9, stores: 9, modifies: 9, llc_store_misses: 7, ..Counts::default() };
        assert_eq!(read_misses(&modify), 7);
    }
}
