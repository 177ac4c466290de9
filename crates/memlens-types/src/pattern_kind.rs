//! How an instruction's addresses follow one another.

use core::fmt;

/// What sort of sequence an instruction's addresses are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PatternKind {
    /// Too few addresses to say.
    #[default]
    Unknown,
    /// The same address each time.
    Constant,
    /// One stride of at most a line: all lines, one after another.
    Stream,
    /// One stride of more than a line.
    Stride,
    /// Two to four strides make up the sequence, as in nested loops and structures.
    MultiStride,
    /// The address was loaded from the block before: a list, a tree.
    PointerChase,
    /// The address was loaded by another operand: `A[B[i]]`.
    Indirect,
    /// None of these: no rule in the addresses, and none known of the code.
    Irregular,
}

impl PatternKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Unknown,
        Self::Constant,
        Self::Stream,
        Self::Stride,
        Self::MultiStride,
        Self::PointerChase,
        Self::Indirect,
        Self::Irregular,
    ];

    /// The word for tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Constant => "constant",
            Self::Stream => "stream",
            Self::Stride => "stride",
            Self::MultiStride => "multi-stride",
            Self::PointerChase => "pointer-chase",
            Self::Indirect => "indirect",
            Self::Irregular => "irregular",
        }
    }

    /// The kind that a word names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl fmt::Display for PatternKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        for kind in PatternKind::ALL {
            assert_eq!(PatternKind::from_word(kind.as_str()), Some(kind));
        }
        assert_eq!(PatternKind::from_word("random"), None);
    }
}
