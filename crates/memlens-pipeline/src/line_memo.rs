//! Answers remembered by line: which object a whole line of memory belongs to.

use memlens_objects::ObjectId;
use std::ops::Range;

const LINE_SHIFT: u32 = 6;
/// A power of two: 64 KiB, for code that reads a few thousand lines of large objects in turn.
const ENTRIES: usize = 4096;

/// Whole lines of large objects, by their addresses; later answers replace earlier ones.
#[derive(Debug)]
pub struct LineMemo {
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    line: u64,
    generation: u32,
    /// 0 = none.
    object: u32,
}

impl LineMemo {
    /// An empty one.
    pub fn new() -> Self {
        Self { entries: vec![Entry::default(); ENTRIES] }
    }

    /// The owner of the line of `addr`, if one was remembered in this generation.
    #[inline(always)]
    pub fn get(&self, addr: u64, generation: u64) -> Option<ObjectId> {
        let line = addr >> LINE_SHIFT;
        let entry = self.entries[line as usize % ENTRIES];
        if entry.line != line || entry.generation != generation as u32 {
            return None;
        }
        ObjectId::new(entry.object)
    }

    /// Remembers that `object` owns the line of `addr`, if it is all within `range`.
    pub fn put(&mut self, addr: u64, range: Range<u64>, generation: u64, object: ObjectId) {
        let line = addr >> LINE_SHIFT;
        let start = line << LINE_SHIFT;
        if range.start <= start && start.saturating_add(1 << LINE_SHIFT) <= range.end {
            self.entries[line as usize % ENTRIES] =
                Entry { line, generation: generation as u32, object: object.get() };
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.fill(Entry::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_of_this_generation_are_answered() {
        let mut memo = LineMemo::new();
        let object = ObjectId::new(7).expect("not 0");
        memo.put(0x1050, 0x1000..0x1080, 3, object);
        assert_eq!(memo.get(0x107f, 3), Some(object));
        assert_eq!(memo.get(0x103f, 3), None, "another line");
        assert_eq!(memo.get(0x107f, 4), None, "another generation");
        memo.put(0x2000, 0x2001..0x3000, 3, object);
        assert_eq!(memo.get(0x2010, 3), None, "its first byte is another's");
        memo.put(0x2fff, 0x2001..0x2fff, 3, object);
        assert_eq!(memo.get(0x2fc0, 3), None, "its last byte is another's");
        // The same place in the table.
        memo.put(0x1040 + (64 << 12), 0..u64::MAX, 3, object);
        assert_eq!(memo.get(0x1050, 3), None);
        memo.clear();
        assert_eq!(memo.get(0x1040 + (64 << 12), 3), None);
    }
}
