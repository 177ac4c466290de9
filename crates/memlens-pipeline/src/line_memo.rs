//! Answers remembered: which object a line of memory belongs to, and where small variables lie.

use memlens_objects::ObjectId;
use std::ops::Range;

const LINE_SHIFT: u32 = 6;
/// A power of two: 64 KiB, for code that reads a few thousand lines of large objects in turn.
const ENTRIES: usize = 4096;

/// Bytes that variables are told apart by: those that share a line seldom share a place.
const PART_SHIFT: u32 = 4;
/// A power of two: for code that goes through many small variables, as interpreters through their static types.
const PARTS: usize = 1024;

/// Whole lines of large objects, by their addresses, and modules' variables; later answers replace earlier ones.
#[derive(Debug)]
pub struct LineMemo {
    entries: Vec<Entry>,
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    line: u64,
    generation: u32,
    /// 0 = none.
    object: u32,
}

/// A variable of a module.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    start: u64,
    len: u64,
    /// 0 = none.
    object: u32,
}

impl LineMemo {
    /// An empty one.
    pub fn new() -> Self {
        Self { entries: vec![Entry::default(); ENTRIES], parts: vec![Part::default(); PARTS] }
    }

    /// The owner of `addr`, if its line was remembered in this generation, or its variable.
    #[inline(always)]
    pub fn get(&self, addr: u64, generation: u64) -> Option<ObjectId> {
        let line = addr >> LINE_SHIFT;
        let entry = self.entries[line as usize % ENTRIES];
        if entry.line == line && entry.generation == generation as u32 {
            return ObjectId::new(entry.object);
        }
        self.variable(addr).map(|(object, _)| object)
    }

    /// The variable that `addr` lies in, and its range.
    #[inline(always)]
    pub fn variable(&self, addr: u64) -> Option<(ObjectId, Range<u64>)> {
        let Part { start, len, object } = self.parts[(addr >> PART_SHIFT) as usize % PARTS];
        let is_inside = addr.wrapping_sub(start) < len;
        ObjectId::new(object).filter(|_| is_inside).map(|object| (object, start..start + len))
    }

    /// Remembers that `object` owns the line of `addr`, if it is all within `range`; false otherwise.
    pub fn put_line(&mut self, addr: u64, range: &Range<u64>, generation: u64, object: ObjectId) -> bool {
        let line = addr >> LINE_SHIFT;
        let start = line << LINE_SHIFT;
        let is_whole = range.start <= start && start.saturating_add(1 << LINE_SHIFT) <= range.end;
        if is_whole {
            self.entries[line as usize % ENTRIES] =
                Entry { line, generation: generation as u32, object: object.get() };
        }
        is_whole
    }

    /// Remembers that `object` owns `range`, which holds `addr`, as long as its module is there.
    pub fn put_variable(&mut self, addr: u64, range: Range<u64>, object: ObjectId) {
        let len = range.end.saturating_sub(range.start);
        self.parts[(addr >> PART_SHIFT) as usize % PARTS] =
            Part { start: range.start, len, object: object.get() };
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.fill(Entry::default());
        self.parts.fill(Part::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_of_this_generation_are_answered() {
        let mut memo = LineMemo::new();
        let object = ObjectId::new(7).expect("not 0");
        assert!(memo.put_line(0x1050, &(0x1000..0x1080), 3, object));
        assert_eq!(memo.get(0x107f, 3), Some(object));
        assert_eq!(memo.get(0x103f, 3), None, "another line");
        assert_eq!(memo.get(0x107f, 4), None, "another generation");
        assert!(!memo.put_line(0x2000, &(0x2001..0x3000), 3, object));
        assert_eq!(memo.get(0x2010, 3), None, "its first byte is another's");
        assert!(!memo.put_line(0x2fff, &(0x2001..0x2fff), 3, object));
        assert_eq!(memo.get(0x2fc0, 3), None, "its last byte is another's");
        // The same place in the table.
        memo.put_line(0x1040 + (64 << 12), &(0..u64::MAX), 3, object);
        assert_eq!(memo.get(0x1050, 3), None);
        memo.clear();
        assert_eq!(memo.get(0x1040 + (64 << 12), 3), None);
    }

    #[test]
    fn variables_are_answered_byte_by_byte() {
        let mut memo = LineMemo::new();
        let (first, second) = (ObjectId::new(7).expect("not 0"), ObjectId::new(8).expect("not 0"));
        memo.put_variable(0x2003, 0x2003..0x2100, first);
        assert_eq!(memo.get(0x200f, 3), Some(first), "the same sixteen bytes");
        assert_eq!(memo.get(0x2002, 3), None, "the variable before");
        assert_eq!(memo.get(0x2010, 3), None, "not asked about yet");
        memo.put_variable(0x2001, 0x1ff0..0x2003, second);
        assert_eq!(memo.variable(0x2002), Some((second, 0x1ff0..0x2003)));
        assert_eq!(memo.get(0x2003, 3), None, "replaced");
        memo.clear();
        assert_eq!(memo.variable(0x2002), None);
    }
}
