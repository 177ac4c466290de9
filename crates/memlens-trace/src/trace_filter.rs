//! Which accesses a trace holds.

use std::fmt;
use std::ops::Range;

use memlens_names::Glob;
use memlens_types::ObjectKind;

use crate::word::nearest;
use crate::{CodeInfo, ObjectInfo, TraceRow};

/// Which accesses a trace holds. Conditions of one sort are alternatives, those of different sorts
/// must all hold; a sort without a condition always holds.
///
/// | condition | holds for |
/// |---|---|
/// | `object=GLOB` | objects with such a name; a [kind's word](ObjectKind::as_str) means all objects of the kind (`\heap` means the name) |
/// | `function=GLOB` | accesses by such a function |
/// | `range=FROM-TO`, `range=FROM+BYTES` | accesses that touch a byte of [FROM, TO); numbers are decimal or `0x…` |
/// | `thread=N` | accesses by this thread |
/// | `limit=N` | nothing: no more than N accesses are written |
///
/// Globs: see [`Glob`].
///
/// ```
/// use memlens_trace::TraceFilter;
///
/// let mut filter = TraceFilter::default();
/// filter.add("object=heap")?;
/// filter.add("object=visited*")?;
/// filter.add("range=0x1000+0x200")?;
/// assert_eq!(filter.ranges(), [0x1000..0x1200]);
/// let error = filter.add("thraed=1").unwrap_err();
/// assert_eq!(error.to_string(), "‘thraed=1’, character 1: expected a condition (object, function, \
///     range, thread or limit), found ‘thraed’; did you mean ‘thread’?");
/// # Ok::<(), memlens_trace::FilterError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceFilter {
    objects: Vec<ObjectPattern>,
    functions: Vec<Glob>,
    ranges: Vec<Range<u64>>,
    threads: Vec<u32>,
    limit: Option<u64>,
}

/// What an object must be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ObjectPattern {
    Kind(ObjectKind),
    Name(Glob),
}

/// What is wrong with a condition, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FilterError {
    /// The whole condition as given.
    pub text: String,
    /// Byte offset of the part that is wrong.
    pub offset: usize,
    /// Its length in bytes.
    pub length: usize,
    /// What should be there.
    pub expected: &'static str,
    /// The nearest valid word, if one is near.
    pub nearest: Option<&'static str>,
}

impl FilterError {
    fn new(text: &str, at: Range<usize>, expected: &'static str) -> Self {
        Self {
            text: text.to_owned(),
            offset: at.start,
            length: at.end.saturating_sub(at.start),
            expected,
            nearest: None,
        }
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let character = self.text.get(..self.offset).unwrap_or_default().chars().count() + 1;
        write!(f, "‘{}’, character {character}: expected {}", self.text, self.expected)?;
        match self.text.get(self.offset..self.offset + self.length) {
            Some(found) if !found.is_empty() => write!(f, ", found ‘{found}’")?,
            _ => f.write_str(", found the end")?,
        }
        match self.nearest {
            Some(nearest) => write!(f, "; did you mean ‘{nearest}’?"),
            None => Ok(()),
        }
    }
}

const KEYS: [&str; 5] = ["object", "function", "range", "thread", "limit"];

impl TraceFilter {
    /// Adds a condition `SORT=VALUE`, as in the table above.
    ///
    /// # Errors
    ///
    /// When it is none; the filter is as before then.
    pub fn add(&mut self, condition: &str) -> Result<(), FilterError> {
        let key_end = condition.find('=').unwrap_or(condition.len());
        let key = &condition[..key_end];
        if !KEYS.contains(&key) {
            let expected = "a condition (object, function, range, thread or limit)";
            let error = FilterError::new(condition, 0..key_end, expected);
            return Err(FilterError { nearest: nearest(key, KEYS.into_iter()), ..error });
        }
        if key_end == condition.len() {
            return Err(FilterError::new(condition, key_end..key_end, "‘=’ and a value"));
        }
        let value = Value { text: condition, at: key_end + 1..condition.len() };
        match key {
            "object" => self.objects.push(value.object()?),
            "function" => self.functions.push(value.glob()?),
            "range" => self.ranges.push(value.range()?),
            "thread" => self.threads.push(value.thread()?),
            _ => self.limit = Some(value.number()?),
        }
        Ok(())
    }

    /// Adds the value of an `object` condition.
    ///
    /// # Errors
    ///
    /// When it is no glob.
    pub fn add_object(&mut self, value: &str) -> Result<(), FilterError> {
        self.objects.push(Value::whole(value).object()?);
        Ok(())
    }

    /// Adds the value of a `function` condition.
    ///
    /// # Errors
    ///
    /// When it is no glob.
    pub fn add_function(&mut self, value: &str) -> Result<(), FilterError> {
        self.functions.push(Value::whole(value).glob()?);
        Ok(())
    }

    /// Adds the value of a `range` condition.
    ///
    /// # Errors
    ///
    /// When it is none, or an empty one.
    pub fn add_range(&mut self, value: &str) -> Result<(), FilterError> {
        self.ranges.push(Value::whole(value).range()?);
        Ok(())
    }

    /// Adds a thread.
    pub fn add_thread(&mut self, thread: u32) {
        self.threads.push(thread);
    }

    /// Writes no more than so many accesses.
    pub fn set_limit(&mut self, limit: Option<u64>) {
        self.limit = limit;
    }

    /// The address ranges.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// The threads.
    pub fn threads(&self) -> &[u32] {
        &self.threads
    }

    /// How many accesses are written at most.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Whether the object's name or kind fits.
    pub fn admits_object(&self, object: &ObjectInfo) -> bool {
        self.objects.is_empty()
            || self.objects.iter().any(|pattern| match pattern {
                ObjectPattern::Kind(kind) => *kind == object.kind,
                ObjectPattern::Name(glob) => glob.matches(&object.name),
            })
    }

    /// Whether the function's name fits.
    pub fn admits_code(&self, code: &CodeInfo) -> bool {
        self.functions.is_empty() || self.functions.iter().any(|glob| glob.matches(&code.function))
    }

    /// Whether thread and addresses fit.
    #[inline]
    pub fn admits_place(&self, row: &TraceRow) -> bool {
        (self.threads.is_empty() || self.threads.contains(&row.thread))
            && (self.ranges.is_empty() || self.ranges.iter().any(|range| touches(row, range)))
    }

    /// Whether accesses by undefined code to undefined objects can fit.
    pub(crate) fn admits_undefined(&self) -> (bool, bool) {
        (self.objects.is_empty(), self.functions.is_empty())
    }
}

/// Whether one of the access's bytes is in the range. An access of 0 bytes counts as one of 1; one
/// that would wrap around ends with the address space.
fn touches(row: &TraceRow, range: &Range<u64>) -> bool {
    let last = row.addr.saturating_add(u64::from(row.size.max(1)) - 1);
    row.addr < range.end && last >= range.start
}

/// A part of a condition.
struct Value<'a> {
    text: &'a str,
    at: Range<usize>,
}

impl<'a> Value<'a> {
    fn whole(text: &'a str) -> Self {
        Self { text, at: 0..text.len() }
    }

    fn str(&self) -> &'a str {
        &self.text[self.at.clone()]
    }

    fn error(&self, expected: &'static str) -> FilterError {
        FilterError::new(self.text, self.at.clone(), expected)
    }

    fn object(&self) -> Result<ObjectPattern, FilterError> {
        match self.str().parse() {
            Ok(kind) => Ok(ObjectPattern::Kind(kind)),
            Err(_) => self.glob().map(ObjectPattern::Name),
        }
    }

    fn glob(&self) -> Result<Glob, FilterError> {
        if self.at.is_empty() {
            return Err(self.error("a name"));
        }
        Glob::parse(self.str()).map_err(|backslash| {
            let at = self.at.start + backslash;
            FilterError::new(self.text, at..at + 1, "a character after ‘\\’")
        })
    }

    fn range(&self) -> Result<Range<u64>, FilterError> {
        let expected = "FROM-TO or FROM+BYTES";
        let separator = self.str().find(['-', '+']).ok_or_else(|| self.error(expected))?;
        let middle = self.at.start + separator;
        let from = Value { text: self.text, at: self.at.start..middle }.number()?;
        let second = Value { text: self.text, at: middle + 1..self.at.end };
        let to = second.number()?;
        let end = if self.text.as_bytes()[middle] == b'+' {
            from.checked_add(to).ok_or_else(|| second.error("a range within 64 bits"))?
        } else {
            to
        };
        if end <= from {
            return Err(second.error("a range that is not empty"));
        }
        Ok(from..end)
    }

    fn thread(&self) -> Result<u32, FilterError> {
        self.number()?.try_into().map_err(|_| self.error("a number within 32 bits"))
    }

    /// Decimal, or hexadecimal with `0x`; nothing else, no sign.
    fn number(&self) -> Result<u64, FilterError> {
        let expected = "a number (decimal or 0x…)";
        let word = self.str();
        let (digits, radix) = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
            Some(digits) => (digits, 16),
            None => (word, 10),
        };
        if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
            return Err(self.error(expected));
        }
        u64::from_str_radix(digits, radix).map_err(|_| self.error("a number within 64 bits"))
    }
}

#[cfg(test)]
mod tests;
