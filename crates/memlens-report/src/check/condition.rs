//! What a condition says, and how it is written.

use std::fmt;
use std::str::FromStr;

use memlens_names::Glob;

use crate::UnknownWord;
use crate::column::Column;

/// `[OBJECT:]COLUMN > LIMIT`: what a profile must not be.
///
/// | part | is |
/// |---|---|
/// | `OBJECT` | a name, or the only part of one that fits: all objects of that name together. With `*` or `?` each name that fits, by itself (`\` takes the next character as it is). Not given: the whole program |
/// | `COLUMN` | a [`Column`] that holds a number |
/// | `>` | or `>=`, `<`, `<=` |
/// | `LIMIT` | `1000`, `1.5M`, `64KiB`; `30%` of columns that are shares and ratios; against the baseline `+5%` (times 1.05), `-5%`, `+100k`, `+5pp` (shares and ratios: 5 of a hundred more) |
///
/// Blanks around the parts mean nothing. [`fmt::Display`] gives the text back, without these.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    text: String,
    pub(super) subject: Subject,
    pub(super) column: Column,
    pub(super) side: Side,
    pub(super) limit: Limit,
}

/// What must not be so.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Subject {
    Program,
    /// All objects of the name together.
    Named(String),
    /// Each name that fits, by itself.
    Each(Glob),
}

/// On which side of the limit nothing may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Above,
    AtOrAbove,
    Below,
    AtOrBelow,
}

impl Side {
    const ALL: [(&'static str, Self); 4] =
        [(">=", Self::AtOrAbove), ("<=", Self::AtOrBelow), (">", Self::Above), ("<", Self::Below)];

    /// Whether it is what lies above.
    pub(super) fn is_above(self) -> bool {
        matches!(self, Self::Above | Self::AtOrAbove)
    }

    /// Whether a value that is so much more than the limit is on it.
    pub(super) fn has(self, excess: f64) -> bool {
        match self {
            Self::Above => excess > 0.0,
            Self::AtOrAbove => excess >= 0.0,
            Self::Below => excess < 0.0,
            Self::AtOrBelow => excess <= 0.0,
        }
    }
}

/// What a value is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Limit {
    Fixed(f64),
    /// So many times the baseline's value.
    Times(f64),
    /// So much more than the baseline's value.
    Plus(f64),
}

impl Limit {
    /// Whether it is one against a baseline.
    pub(super) fn is_relative(self) -> bool {
        !matches!(self, Self::Fixed(_))
    }

    /// The baseline's value counts so many times.
    pub(super) fn factor(self) -> f64 {
        match self {
            Self::Fixed(_) => 0.0,
            Self::Times(factor) => factor,
            Self::Plus(_) => 1.0,
        }
    }

    /// The limit, with the baseline's value.
    pub(super) fn of(self, baseline: f64) -> f64 {
        match self {
            Self::Fixed(limit) => limit,
            Self::Times(factor) => factor * baseline,
            Self::Plus(more) => baseline + more,
        }
    }
}

/// Why a text is no condition. Reads after "the condition is wrong: ".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionError {
    /// Nothing in it compares.
    #[error("‘{0}’ compares nothing; write for instance ‘llc_misses > 10M’ or ‘table:llc_misses > +5%’")]
    NoComparison(String),
    /// The column is none.
    #[error("{0}")]
    Column(UnknownWord),
    /// The column holds no number that could be held against another.
    #[error("‘{0}’ is no amount; hold share, stall_share, llc_misses, l1_miss_ratio, max_live_bytes …")]
    NoAmount(&'static str),
    /// The limit is none.
    #[error(
        "‘{limit}’ is no limit for {column}; write for instance {}",
        if *.is_ratio { "‘30%’, or against a baseline ‘+5pp’ (points) or ‘+5%’ (of what it was)" }
        else { "‘1.5M’, or against a baseline ‘+5%’ or ‘+100k’" }
    )]
    Limit {
        /// What was given.
        limit: String,
        /// The column.
        column: &'static str,
        /// Whether it is a share or a ratio.
        is_ratio: bool,
    },
    /// There is a colon, and nothing before it.
    #[error(
        "no object is named before ‘:{0}’; without a colon it is the whole program, with ‘*:’ each object"
    )]
    NoObject(String),
    /// The pattern for objects ends in the middle.
    #[error("‘{0}’ ends with ‘\\’, which takes the next character as it is")]
    Pattern(String),
    /// The whole program has all of it.
    #[error(
        "the whole program's {column} is always 1; name an object (‘table:{column}’), or each (‘*:{column}’)"
    )]
    Whole {
        /// The column.
        column: &'static str,
    },
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        // Names have signs like that in them, limits have not.
        let (at, sign, side) = text
            .rfind(['<', '>'])
            .and_then(|at| {
                let found = Side::ALL.into_iter().find(|(sign, _)| text[at..].starts_with(sign));
                found.map(|(sign, side)| (at, sign, side))
            })
            .ok_or_else(|| ConditionError::NoComparison(text.to_owned()))?;
        let (left, limit) = (text[..at].trim(), text[at + sign.len()..].trim());
        let (object, column) = match left.rsplit_once(':') {
            Some((object, column)) => (Some(object.trim()), column.trim()),
            None => (None, left),
        };
        let column: Column = column.parse().map_err(ConditionError::Column)?;
        let word = column.as_str();
        if !column.is_amount() {
            return Err(ConditionError::NoAmount(word));
        }
        let subject = match object {
            None if matches!(column, Column::Share | Column::StallShare) => {
                return Err(ConditionError::Whole { column: word });
            }
            None => Subject::Program,
            Some("") => return Err(ConditionError::NoObject(word.to_owned())),
            Some(name) => {
                let glob = Glob::parse(name).map_err(|_| ConditionError::Pattern(name.to_owned()))?;
                glob.only_name().map_or(Subject::Each(glob), Subject::Named)
            }
        };
        let is_ratio = column.is_ratio();
        let wrong = || ConditionError::Limit { limit: limit.to_owned(), column: word, is_ratio };
        let parsed = parse_limit(limit, is_ratio, column.is_bytes()).ok_or_else(wrong)?;
        let of = object.map_or(String::new(), |object| format!("{object}:"));
        Ok(Self { text: format!("{of}{word} {sign} {limit}"), subject, column, side, limit: parsed })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// See [`Condition`].
fn parse_limit(text: &str, is_ratio: bool, is_bytes: bool) -> Option<Limit> {
    let (sign, rest) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (if text.starts_with('-') { -1.0 } else { 1.0 }, rest),
        None => (0.0, text),
    };
    let is_relative = sign != 0.0;
    if let Some(points) = rest.strip_suffix("pp") {
        return number(points).filter(|_| is_relative && is_ratio).map(|it| Limit::Plus(sign * it / 100.0));
    }
    if let Some(percent) = rest.strip_suffix('%') {
        let part = number(percent)? / 100.0;
        return match is_relative {
            true => Some(Limit::Times(1.0 + sign * part)),
            false => is_ratio.then_some(Limit::Fixed(part)),
        };
    }
    let value = if is_ratio { number(rest)? } else { amount(rest, is_bytes)? };
    Some(if is_relative { Limit::Plus(sign * value) } else { Limit::Fixed(value) })
}

/// A number with a unit: `k`, `M`, `G`, `T` (powers of 1,000), `Ki`, `Mi` … (of 1,024), and of bytes a `B` behind it.
fn amount(text: &str, is_bytes: bool) -> Option<f64> {
    let text = text.strip_suffix('B').filter(|_| is_bytes).unwrap_or(text).trim_end();
    let (text, base) = text.strip_suffix('i').map_or((text, 1000.0), |text| (text, 1024.0_f64));
    let unit = text.chars().next_back()?;
    let power = match unit {
        'k' | 'K' => 1,
        'M' => 2,
        'G' => 3,
        'T' => 4,
        _ if base > 1000.0 => return None,
        _ => return number(text),
    };
    Some(number(&text[..text.len() - 1])? * base.powi(power))
}

/// Digits, with a point and underscores where they help.
fn number(text: &str) -> Option<f64> {
    let text = text.trim_end();
    let is_plain = text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'_');
    is_plain.then(|| text.replace('_', "").parse().ok()).flatten().filter(|value: &f64| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Condition {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn parts_are_told_apart() {
        for (text, subject, column, side, limit) in [
            ("llc_misses > 10M", Subject::Program, Column::LlcMisses, Side::Above, Limit::Fixed(1e7)),
            ("llc-misses>=+5%", Subject::Program, Column::LlcMisses, Side::AtOrAbove, Limit::Times(1.05)),
            (
                "table:share > 30%",
                Subject::Named("table".into()),
                Column::Share,
                Side::Above,
                Limit::Fixed(0.3),
            ),
            // Names may have every sign of a condition in them.
            (
                "std::map<int, a\\*>::p->q >= 3:l1_miss_ratio <= +5pp",
                Subject::Named("std::map<int, a*>::p->q >= 3".into()),
                Column::L1MissRatio,
                Side::AtOrBelow,
                Limit::Plus(0.05),
            ),
            (
                "x : max_live_bytes < 1.5 KiB",
                Subject::Named("x".into()),
                Column::MaxLiveBytes,
                Side::Below,
                Limit::Fixed(1536.0),
            ),
            ("loads > -1_000", Subject::Program, Column::Loads, Side::Above, Limit::Plus(-1000.0)),
            ("loads > -100%", Subject::Program, Column::Loads, Side::Above, Limit::Times(0.0)),
        ] {
            let condition = parsed(text);
            assert_eq!(condition.subject, subject, "{text}");
            assert_eq!((condition.column, condition.side), (column, side), "{text}");
            match (condition.limit, limit) {
                (Limit::Fixed(a), Limit::Fixed(b))
                | (Limit::Times(a), Limit::Times(b))
                | (Limit::Plus(a), Limit::Plus(b)) => assert!((a - b).abs() <= 1e-12 * b.abs(), "{text}"),
                other => panic!("{text}: {other:?}"),
            }
            assert_eq!(parsed(&condition.to_string()), condition, "{text}");
        }
        assert!(matches!(parsed("graph->*:llc_misses > +5%").subject, Subject::Each(_)));
    }

    #[test]
    fn what_is_no_condition_says_why() {
        for (text, part) in [
            ("", "compares nothing"),
            ("llc_misses", "‘llc_misses > 10M’"),
            ("llc_missess > 1", "did you mean ‘llc_misses’"),
            ("name > 1", "‘name’ is no amount"),
            ("id > 1", "‘id’ is no amount"),
            ("share_low > 1", "is no amount"),
            (":llc_misses > 1", "‘*:’ each object"),
            ("a\\:llc_misses > 1", "takes the next character"),
            ("share > 30%", "‘table:share’"),
            ("stall_share > 30%", "‘*:stall_share’"),
            ("llc_misses > 30%", "‘30%’ is no limit for llc_misses; write for instance ‘1.5M’"),
            ("llc_misses > +5pp", "no limit"),
            ("llc_misses > 1GB", "no limit"),
            ("llc_misses > 1i", "no limit"),
            ("llc_misses > ", "no limit"),
            ("llc_misses > =5", "no limit"),
            ("llc_misses > 1e9", "no limit"),
            ("llc_misses > M", "no limit"),
            ("a:share > 5pp", "‘+5pp’ (points)"),
            ("a:share > 1k", "no limit"),
            ("a:share > --5%", "no limit"),
        ] {
            let error = text.parse::<Condition>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
