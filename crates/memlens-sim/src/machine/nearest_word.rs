//! The nearest valid word to a misspelt one.

use alloc::vec::Vec;

/// The candidate with the fewest edits (insert, delete, replace, swap of neighbours count one
/// each), if at most a third of the longer word (at least two) differs. Case is ignored.
pub(super) fn nearest_word<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (edits(word, candidate), candidate))
        .filter(|&(edits, candidate)| edits <= (word.len().max(candidate.len()) / 3).max(2))
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, candidate)| candidate)
}

/// Optimal string alignment distance.
fn edits(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().map(|c| c.to_ascii_lowercase()).collect();
    let b: Vec<char> = b.chars().map(|c| c.to_ascii_lowercase()).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = Vec::from([i]);
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = core::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant_and_nothing_far_away() {
        let levels = ["l1i", "l1d", "l2", "llc"];
        assert_eq!(nearest_word("lcl", levels), Some("llc")); // one swap
        assert_eq!(nearest_word("L1-D", levels), Some("l1d")); // one deletion
        assert_eq!(nearest_word("walker", levels), None);
        assert_eq!(nearest_word("e5540", ["e5504", "host"]), Some("e5504"));
    }
}
