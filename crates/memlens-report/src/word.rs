//! Words from the user: when one is unknown, the nearest valid one is offered.

use std::fmt;

/// A word that is not among the valid ones. Reads after "failed to …: ".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord {
    /// What the word should be: `column`, `function` …
    pub what: &'static str,
    /// What was given.
    pub word: String,
    /// The nearest valid word, if one is near.
    pub nearest: Option<String>,
    /// All valid words, if they are few.
    pub valid: Vec<String>,
}

impl UnknownWord {
    pub(crate) fn new<'a>(
        what: &'static str,
        word: &str,
        valid: impl Iterator<Item = &'a str> + Clone,
        list: bool,
    ) -> Self {
        Self {
            what,
            word: word.to_owned(),
            nearest: nearest(word, valid.clone()).map(str::to_owned),
            valid: if list { valid.map(str::to_owned).collect() } else { Vec::new() },
        }
    }
}

/// So many names are shown when a part of a name is not enough.
const SHOWN_NAMES: usize = 8;

/// The one of `names` that is `wanted`, or else the only one whose last component it is (`types::tp`, `main.m%tp`), or
/// else the only one that has it as a part; `what` they are names of.
pub(crate) fn the_one<'a>(
    names: impl Iterator<Item = &'a str> + Clone,
    wanted: &str,
    [what, single]: [&'static str; 2],
) -> Result<&'a str, UnknownWord> {
    if let Some(exact) = names.clone().find(|name| *name == wanted) {
        return Ok(exact);
    }
    let mut distinct: Vec<&str> = names.collect();
    distinct.sort_unstable();
    distinct.dedup();
    let mut with_part: Vec<&str> = distinct.iter().copied().filter(|name| name.contains(wanted)).collect();
    let ends_so = |name: &&str| {
        let before = name.strip_suffix(wanted);
        before.is_some_and(|before| ["::", "->", ".", "%"].iter().any(|sign| before.ends_with(sign)))
    };
    let mut last_components = with_part.iter().copied().filter(ends_so);
    if let (Some(only), None) = (last_components.next(), last_components.next()) {
        return Ok(only);
    }
    with_part.sort_by_key(|name| !ends_so(name));
    match with_part.as_slice() {
        [name] => Ok(name),
        [] => Err(UnknownWord::new(what, wanted, distinct.iter().copied(), false)),
        several => {
            let mut valid: Vec<String> = several.iter().take(SHOWN_NAMES).map(|&name| name.into()).collect();
            if several.len() > SHOWN_NAMES {
                valid.push(format!("and {} more", several.len() - SHOWN_NAMES));
            }
            Err(UnknownWord { what: single, word: wanted.to_owned(), nearest: None, valid })
        }
    }
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "‘{}’ is no {}", self.word, self.what)?;
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean ‘{nearest}’?"),
            None if self.valid.is_empty() => Ok(()),
            None => write!(f, "; valid are {}", self.valid.join(", ")),
        }
    }
}

impl std::error::Error for UnknownWord {}

/// The valid word with the smallest distance, if at most a third of its letters are wrong; a word that
/// the given one is part of counts as near, too.
pub fn nearest<'a>(word: &str, valid: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let by_distance = valid
        .clone()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, candidate)| distance * 3 <= candidate.chars().count().max(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate);
    let contains =
        || valid.filter(|candidate| word.len() >= 2 && candidate.contains(word)).min_by_key(|c| c.len());
    by_distance.or_else(contains)
}

/// Edit distance in characters: insertions, deletions, replacements, and swaps of neighbours (optimal
/// string alignment). Quadratic.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        // kitten → sitten → sittin → sitting.
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("same", "same"), 0);
        // One swap of neighbours.
        assert_eq!(distance("lodas", "loads"), 1);
    }

    #[test]
    fn a_last_component_is_enough() {
        let one = |wanted| the_one(NAMES.into_iter(), wanted, ["object", "single object"]);
        const NAMES: [&str; 6] =
            ["frame of __tls_init_tp", "http", "types::tp", "main.m%flux", "a.flux", "ptp"];
        assert_eq!(one("tp"), Ok("types::tp"));
        assert_eq!(one("http"), Ok("http"));
        // Of two they are told first.
        assert_eq!(
            one("flux").map_err(|error| error.valid),
            Err(vec!["a.flux".into(), "main.m%flux".into()])
        );
        assert!(one("t").is_err_and(|error| error.valid.len() == 4));
    }

    #[test]
    fn near_words_are_offered_and_far_ones_are_not() {
        let words = ["loads", "stores", "llc_misses", "l1_misses"];
        assert_eq!(nearest("load", words.into_iter()), Some("loads"));
        assert_eq!(nearest("misses", words.into_iter()), Some("l1_misses"));
        assert_eq!(nearest("temperature", words.into_iter()), None);
    }
}
