//! Patterns for names.

use std::fmt;

/// A pattern for a whole name: `*` stands for any characters, `?` for one, `\` takes the next
/// character as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Char(char),
    AnyChar,
    AnyChars,
}

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// The byte offset of a `\` that has no character after it.
    pub fn parse(text: &str) -> Result<Self, usize> {
        let mut parts = Vec::new();
        let mut chars = text.char_indices();
        while let Some((at, char)) = chars.next() {
            parts.push(match char {
                '*' if parts.last() == Some(&Part::AnyChars) => continue,
                '*' => Part::AnyChars,
                '?' => Part::AnyChar,
                '\\' => Part::Char(chars.next().ok_or(at)?.1),
                _ => Part::Char(char),
            });
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    /// The only name that it fits, with each `\` gone that takes the next character as it is; `None` if it
    /// fits others, too.
    pub fn only_name(&self) -> Option<String> {
        let char = |part: &Part| match part {
            Part::Char(char) => Some(*char),
            Part::AnyChar | Part::AnyChars => None,
        };
        self.parts.iter().map(char).collect()
    }

    /// Whether the whole name fits. Time: pattern × name.
    pub fn matches(&self, name: &str) -> bool {
        let mut part = 0;
        let mut rest = name.chars();
        // Where to go on when a character does not fit: behind the last `*`, one character later.
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            let mut ahead = rest.clone();
            let next = ahead.next();
            match (self.parts.get(part), next) {
                (Some(Part::AnyChars), _) => {
                    part += 1;
                    retry = Some((part, rest.clone()));
                    continue;
                }
                (Some(Part::AnyChar), Some(_)) => {
                    (part, rest) = (part + 1, ahead);
                    continue;
                }
                (Some(Part::Char(wanted)), Some(found)) if *wanted == found => {
                    (part, rest) = (part + 1, ahead);
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            let Some((behind, from)) = &mut retry else { return false };
            if from.next().is_none() {
                return false;
            }
            (part, rest) = (*behind, from.clone());
        }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, by recursion.
    fn slow(parts: &[Part], name: &[char]) -> bool {
        match (parts.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((Part::AnyChars, rest)), _) => (0..=name.len()).any(|skip| slow(rest, &name[skip..])),
            (Some((Part::AnyChar, rest)), Some((_, name))) => slow(rest, name),
            (Some((Part::Char(wanted), rest)), Some((found, name))) => wanted == found && slow(rest, name),
            _ => false,
        }
    }

    #[test]
    fn examples() {
        for (pattern, name, fits) in [
            ("column", "column", true),
            ("column", "columns", false),
            ("col*", "column", true),
            ("*", "", true),
            ("?", "", false),
            ("?ew?", "newq", true),
            ("*::push*", "std::vector<int>::push_back", true),
            ("operator\\*", "operator*", true),
            ("operator\\*", "operator+", false),
            ("*ab", "aab", true),
            ("ä?", "äö", true),
        ] {
            assert_eq!(Glob::parse(pattern).unwrap().matches(name), fits, "{pattern} {name}");
        }
        assert_eq!(Glob::parse("ab\\"), Err(2));
        let only = |pattern| Glob::parse(pattern).unwrap().only_name();
        assert_eq!(only("std::map<int, a\\*>"), Some("std::map<int, a*>".to_owned()));
        assert_eq!((only("co?umn"), only("co*")), (None, None));
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(pattern in "[ab*?]{0,8}", name in "[ab]{0,10}") {
            let glob = Glob::parse(&pattern).unwrap();
            let chars: Vec<char> = name.chars().collect();
            prop_assert_eq!(glob.matches(&name), slow(&glob.parts, &chars));
        }
    }
}
