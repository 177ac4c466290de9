//! Which pattern an operand has, as a whole and on one object.

use std::collections::HashMap;

use crate::{AccessPattern, CodeIx, ObjectIx, Profile};

/// The patterns of a profile, by operand and by operand and object.
#[derive(Clone, Debug, Default)]
pub struct PatternIndex<'a> {
    by_code: HashMap<CodeIx, &'a AccessPattern>,
    by_object: HashMap<(CodeIx, ObjectIx), &'a AccessPattern>,
}

impl<'a> PatternIndex<'a> {
    /// Linear in the patterns.
    pub fn new(profile: &'a Profile) -> Self {
        let of_object = |it: &'a crate::ObjectPattern| ((it.pattern.code, it.object), &it.pattern);
        Self {
            by_code: profile.patterns.iter().map(|it| (it.code, it)).collect(),
            by_object: profile.object_patterns.iter().map(of_object).collect(),
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

    /// How those do that are in one object, where that was seen to be otherwise.
    pub fn of_object_alone(&self, code: CodeIx, object: ObjectIx) -> Option<&'a AccessPattern> {
        self.by_object.get(&(code, object)).copied()
    }

    /// How an operand goes through an object: [`Self::of_object_alone`], else [`Self::of_code`].
    pub fn of(&self, code: CodeIx, object: ObjectIx) -> Option<&'a AccessPattern> {
        self.of_object_alone(code, object).or_else(|| self.of_code(code))
    }
}

#[cfg(test)]
mod tests {
    use memlens_types::PatternKind;

    use super::*;
    use crate::ObjectPattern;

    #[test]
    fn what_an_object_has_by_itself_goes_before_what_all_have() {
        let pattern = |code, kind| AccessPattern { code: CodeIx(code), kind, ..AccessPattern::default() };
        let apart =
            |code, object, kind| ObjectPattern { object: ObjectIx(object), pattern: pattern(code, kind) };
        let profile = Profile {
            patterns: vec![pattern(0, PatternKind::Irregular)],
            object_patterns: vec![apart(0, 7, PatternKind::Stream), apart(1, 7, PatternKind::Stride)],
            ..Profile::default()
        };
        let index = PatternIndex::new(&profile);
        let kind = |code, object| index.of(CodeIx(code), ObjectIx(object)).map(|it| it.kind);
        assert_eq!(kind(0, 7), Some(PatternKind::Stream));
        assert_eq!(kind(0, 8), Some(PatternKind::Irregular));
        assert_eq!((kind(1, 7), kind(1, 8)), (Some(PatternKind::Stride), None));
        assert!(!index.is_empty() && PatternIndex::default().is_empty());
    }
}
