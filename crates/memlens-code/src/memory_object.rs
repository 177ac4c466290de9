//! Objects that code can point to, pointers to them, and sets of pointers.

use std::collections::HashMap;

/// A handle of an [`Object`] in one [`PointsTo`](crate::PointsTo).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectIx(pub u32);

/// Memory that static analysis tells from other memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Object {
    /// The variable (or unnamed part of a section) that begins at an address (svma).
    Global {
        /// Its first address.
        svma: u64,
    },
    /// The frames of a function. Offset 0 is the canonical frame address: where the stack pointer
    /// was before the call.
    Frame {
        /// The function's first address.
        function: u64,
    },
    /// The thread's block of thread-local storage; offsets count from the thread pointer.
    Thread,
    /// Blocks of memory from an allocation function.
    Heap {
        /// Return addresses of the calls that led to it, the call of the allocation function first;
        /// more than one where functions hand a new block on to their callers.
        calls: Vec<u64>,
    },
    /// What an argument register points to in a function that nobody in sight calls.
    Argument {
        /// The function's first address.
        function: u64,
        /// The register's x86 encoding (rax 0, rcx 1, rdx 2 …).
        register: u8,
    },
    /// What a function out of sight returned a pointer to.
    Returned {
        /// The return address.
        call: u64,
    },
    /// What the pointer in a cell of memory points to, when no store to the cell is in sight.
    Pointee {
        /// The object that the cell is in.
        of: ObjectIx,
        /// The cell's offset in it; `None`: somewhere in it.
        offset: Option<i64>,
    },
}

/// A pointer: an object and an offset in it, `None` if that varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pointer {
    /// The object.
    pub object: ObjectIx,
    /// Bytes from its start.
    pub offset: Option<i64>,
}

/// A handle of a set of pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SetIx(u32);

/// No pointer: a number, or nothing known.
pub(crate) const NONE: SetIx = SetIx(0);
/// More pointers than are worth telling apart.
const MANY: SetIx = SetIx(1);

/// More pointers than this into one object are one, whose offset varies.
const MOST_OFFSETS: usize = 4;
/// A set larger than this says nothing any more.
const MOST: usize = 24;

/// All sets, each once, so that they are compared and copied as numbers.
#[derive(Debug)]
pub(crate) struct Sets {
    sets: Vec<Box<[Pointer]>>,
    known: HashMap<Box<[Pointer]>, SetIx>,
    unions: HashMap<(SetIx, SetIx), SetIx>,
}

impl Sets {
    pub(crate) fn new() -> Self {
        let known = HashMap::from([(Box::default(), NONE)]);
        Self { sets: vec![Box::default(), Box::default()], known, unions: HashMap::new() }
    }

    pub(crate) fn pointers(&self, set: SetIx) -> &[Pointer] {
        &self.sets[set.0 as usize]
    }

    pub(crate) fn one(&mut self, object: ObjectIx, offset: Option<i64>) -> SetIx {
        self.intern(vec![Pointer { object, offset }])
    }

    /// Of one object at most [`MOST_OFFSETS`] pointers stay: with more, the offset varies. That is
    /// what makes a pointer that walks through an array settle.
    fn intern(&mut self, mut pointers: Vec<Pointer>) -> SetIx {
        pointers.sort_unstable();
        pointers.dedup();
        let mut kept: Vec<Pointer> = Vec::with_capacity(pointers.len());
        for of_object in pointers.chunk_by(|a, b| a.object == b.object) {
            let varies = of_object.len() > MOST_OFFSETS || of_object.iter().any(|p| p.offset.is_none());
            if varies {
                kept.push(Pointer { offset: None, ..of_object[0] });
            } else {
                kept.extend_from_slice(of_object);
            }
        }
        if kept.len() > MOST {
            return MANY;
        }
        if let Some(&set) = self.known.get(kept.as_slice()) {
            return set;
        }
        let set = SetIx(u32::try_from(self.sets.len()).unwrap_or(1));
        self.sets.push(kept.clone().into());
        self.known.insert(kept.into(), set);
        set
    }

    pub(crate) fn union(&mut self, a: SetIx, b: SetIx) -> SetIx {
        if a == b || b == NONE {
            return a;
        }
        if a == NONE {
            return b;
        }
        if a == MANY || b == MANY {
            return MANY;
        }
        let key = if a.0 < b.0 { (a, b) } else { (b, a) };
        if let Some(&known) = self.unions.get(&key) {
            return known;
        }
        let all = self.pointers(a).iter().chain(self.pointers(b)).copied().collect();
        let set = self.intern(all);
        self.unions.insert(key, set);
        set
    }

    /// All pointers moved by a constant.
    pub(crate) fn shifted(&mut self, set: SetIx, by: i64) -> SetIx {
        if by == 0 {
            return set;
        }
        self.map(set, |offset| offset.map(|offset| offset.wrapping_add(by)))
    }

    /// All pointers moved by something unknown.
    pub(crate) fn blurred(&mut self, set: SetIx) -> SetIx {
        self.map(set, |_| None)
    }

    fn map(&mut self, set: SetIx, change: impl Fn(Option<i64>) -> Option<i64>) -> SetIx {
        if set == NONE || set == MANY {
            return set;
        }
        let moved = self.pointers(set).iter().map(|p| Pointer { offset: change(p.offset), ..*p }).collect();
        self.intern(moved)
    }

    /// The set of those that `keep`.
    pub(crate) fn filtered(&mut self, set: SetIx, keep: impl Fn(Pointer) -> bool) -> SetIx {
        if set == MANY {
            return set;
        }
        let kept = self.pointers(set).iter().copied().filter(|&pointer| keep(pointer)).collect();
        self.intern(kept)
    }
}
