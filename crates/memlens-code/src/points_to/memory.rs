//! What cells hold: stores, loads, and the objects that constants and unknown contents are.

use super::{Analysis, MAX_POINTEES, is_pointee};
use crate::memory_object::{NONE, Object, ObjectIx, Pointer, SetIx};

impl Analysis<'_> {
    /// The set for a constant that may be an address of data or of a function.
    pub(super) fn fixed(&mut self, svma: u64) -> SetIx {
        if self.functions.contains_key(&svma) {
            let object = self.object(Object::Global { svma });
            return self.sets.one(object, Some(0));
        }
        match self.surroundings.data_start(svma) {
            Some(start) => {
                let object = self.object(Object::Global { svma: start });
                self.sets.one(object, Some(svma.wrapping_sub(start) as i64))
            }
            None => NONE,
        }
    }

    pub(super) fn store_to(&mut self, object: ObjectIx, offset: Option<i64>, set: SetIx) {
        if set == NONE {
            return;
        }
        let memory = self.memory.entry(object).or_default();
        let cell = match offset {
            Some(offset) => memory.cells.entry(offset).or_insert(NONE),
            None => memory.anywhere.get_or_insert(NONE),
        };
        let joined = self.sets.union(*cell, set);
        if joined != *cell {
            *cell = joined;
            self.clock += 1;
            memory.version = self.clock;
        }
    }

    pub(super) fn store(&mut self, to: SetIx, set: SetIx) {
        if set == NONE {
            return;
        }
        for pointer in self.sets.pointers(to).to_vec() {
            self.store_to(pointer.object, pointer.offset, set);
        }
    }

    /// What a cell of an object holds, without what its copies for callers hold.
    pub(super) fn content(&mut self, object: ObjectIx, offset: Option<i64>) -> SetIx {
        let Some(memory) = self.memory.get(&object) else { return NONE };
        let mut all: Vec<SetIx> = memory.anywhere.into_iter().collect();
        match offset {
            Some(offset) => all.extend(memory.cells.get(&offset)),
            None => all.extend(memory.cells.values()),
        }
        all.into_iter().fold(NONE, |joined, set| self.sets.union(joined, set))
    }

    /// What is loaded through pointers. A block as its caller knows it also holds what was stored
    /// where it was made.
    pub(super) fn load(&mut self, start: u64, from: SetIx, name_unknown: bool) -> SetIx {
        let mut loaded = NONE;
        for pointer in self.sets.pointers(from).to_vec() {
            let mut content = NONE;
            for object in self.origins(pointer.object) {
                if let Some(summary) = self.functions.get_mut(&start) {
                    summary.read.insert(object);
                }
                let more = self.content(object, pointer.offset);
                content = self.sets.union(content, more);
            }
            if content == NONE && name_unknown && self.name_pointees {
                content = self.pointee(pointer);
            }
            loaded = self.sets.union(loaded, content);
        }
        loaded
    }

    /// The object, and the ones that it was before calls handed it on.
    pub(super) fn origins(&mut self, object: ObjectIx) -> Vec<ObjectIx> {
        let mut all = vec![object];
        if let Object::Heap { calls } = &self.objects[object.0 as usize] {
            let calls = calls.clone();
            for length in (1..calls.len()).rev() {
                all.push(self.object(Object::Heap { calls: calls[..length].to_vec() }));
            }
        }
        all
    }

    pub(super) fn pointee(&mut self, of: Pointer) -> SetIx {
        let mut depth = 0;
        let mut object = of.object;
        while let Object::Pointee { of, .. } = self.objects[object.0 as usize] {
            depth += 1;
            object = of;
        }
        // Text holds no pointers; beyond a few links everything is alike.
        if depth >= MAX_POINTEES {
            return self.sets.one(of.object, None);
        }
        let object = self.object(Object::Pointee { of: of.object, offset: of.offset });
        self.sets.one(object, Some(0))
    }

    /// Without objects that stand for unknown contents, if there are others.
    pub(super) fn best(&mut self, set: SetIx) -> SetIx {
        let objects = &self.objects;
        let strong = self.sets.filtered(set, |pointer| !is_pointee(&objects[pointer.object.0 as usize]));
        if strong == NONE { set } else { strong }
    }
}
