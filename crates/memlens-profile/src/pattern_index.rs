//! Which pattern an operand has, as a whole and on one object.

use std::collections::{HashMap, HashSet};

use crate::{AccessPattern, CodeIx, ObjectIx, Profile};

/// The patterns of a profile, by operand and by operand and object.
#[derive(Clone, Debug, Default)]
pub struct PatternIndex<'a> {
    by_code: HashMap<CodeIx, &'a AccessPattern>,
    by_object: HashMap<(CodeIx, ObjectIx), &'a AccessPattern>,
    several: HashSet<CodeIx>,
}

impl<'a> PatternIndex<'a> {
    /// Linear in the patterns.
    pub fn new(profile: &'a Profile) -> Self {
        let of_object = |it: &'a crate::ObjectPattern| ((it.pattern.code, it.object), &it.pattern);
        Self {
            by_code: profile.patterns.iter().map(|it| (it.code, it)).collect(),
            by_object: profile.object_patterns.iter().map(of_object).collect(),
            several: profile.object_patterns.iter().map(|it| it.pattern.code).collect(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_code.is_empty() && self.by_object.is_empty()
    }

    /// How an operand's addresses follow one another, whatever they are of.
    pub fn of_code(&self, code: CodeIx) -> Option<&'a AccessPattern> {
        self.by_code.get(&code).copied()
    }

    /// How those do that are in one object: of an operand that has several patterns, the object's alone, if it was looked at; else the
    /// operand's.
    pub fn of(&self, code: CodeIx, object: ObjectIx) -> Option<&'a AccessPattern> {
        match self.several.contains(&code) {
            true => self.by_object.get(&(code, object)).copied(),
            false => self.of_code(code),
        }
    }

    /// Whether what an operand does was seen to differ from object to object.
    pub fn has_several(&self, code: CodeIx) -> bool {
        self.several.contains(&code)
    }
}

#[cfg(test)]
mod tests {
    use memlens_types::PatternKind;

    use super::*;
    use crate::ObjectPattern;

    #[test]
    fn an_operand_with_several_patterns_has_none_where_it_was_not_looked_at() {
        let pattern = |code, kind| AccessPattern { code: CodeIx(code), kind, ..AccessPattern::default() };
        let apart = |object, kind| ObjectPattern { object: ObjectIx(object), pattern: pattern(0, kind) };
        let profile = Profile {
            patterns: vec![pattern(0, PatternKind::Irregular), pattern(1, PatternKind::Stride)],
            object_patterns: vec![apart(7, PatternKind::Stream), apart(8, PatternKind::Irregular)],
            ..Profile::default()
        };
        let index = PatternIndex::new(&profile);
        let kind = |code, object| index.of(CodeIx(code), ObjectIx(object)).map(|it| it.kind);
        assert_eq!(kind(0, 7), Some(PatternKind::Stream));
        assert_eq!(kind(0, 8), Some(PatternKind::Irregular));
        assert_eq!((kind(0, 9), kind(1, 9)), (None, Some(PatternKind::Stride)));
        assert_eq!(index.of_code(CodeIx(0)).map(|it| it.kind), Some(PatternKind::Irregular));
        assert!(index.has_several(CodeIx(0)) && !index.has_several(CodeIx(1)));
        assert!(!index.is_empty() && PatternIndex::default().is_empty());
    }
}
