//! The nearest of a few words.

/// The valid word with the smallest edit distance, if at most a third of its letters are wrong.
pub(crate) fn nearest(word: &str, valid: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    valid
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, candidate)| distance * 3 <= candidate.len().max(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance in characters. Quadratic; a word of more than 32 characters is far.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    if a.chars().count() > 32 {
        return usize::MAX / 4;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        // kitten → sitten → sittin → sitting.
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!((distance("", "abc"), distance("same", "same")), (3, 0));
        assert_eq!(nearest("objetc", ["object", "limit"].into_iter()), Some("object"));
        assert_eq!(nearest(&"x".repeat(1000), ["object"].into_iter()), None);
    }
}
