//! Objects that a reader takes for one, because they have one name: blocks that a line of code allocates at several call
//! stacks, a variable of a function in each of its inlined copies.

use std::cmp::Reverse;
use std::collections::HashMap;

use memlens_types::ObjectKind;

use crate::place::object_place;
use crate::{ModuleIx, Object, ObjectIx, Profile};

/// What objects share that are one row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key<'a> {
    Line {
        kind: ObjectKind,
        name: &'a str,
        type_name: Option<&'a str>,
        module: Option<ModuleIx>,
        place: String,
    },
    /// Nobody knows a line of it, or it is to stay apart.
    Single(ObjectIx),
}

impl Profile {
    /// All objects, those of one kind, name, type and line together: the rows of a table of objects, and what findings are
    /// about. Each row's costliest object is its first.
    pub fn object_rows(&self) -> Vec<Vec<ObjectIx>> {
        let mut rows: Vec<Vec<ObjectIx>> = Vec::new();
        let mut row_of: HashMap<Key<'_>, usize> = HashMap::new();
        for (at, object) in self.objects.iter().enumerate() {
            let index = ObjectIx::from_index(at);
            let row = *row_of.entry(self.row_key(index, object)).or_insert(rows.len());
            match rows.get_mut(row) {
                Some(members) => members.push(index),
                None => rows.push(vec![index]),
            }
        }
        rows.iter_mut().for_each(|members| self.costliest_first(members));
        rows
    }

    /// The row that the object is in, the costliest first, if something else of its kind that is accessed has its name: the name alone
    /// does not tell them apart. (A heap block that is called after a variable has the variable's name, but is of another kind.)
    pub fn row_among_namesakes(&self, index: ObjectIx) -> Option<Vec<ObjectIx>> {
        let (row, has_others) = self.row_of(index);
        has_others.then_some(row)
    }

    /// The row that the object is in, the costliest first, and whether something else of its kind that is accessed has its name. Linear
    /// in the objects, and cheap where few have its name.
    pub fn row_of(&self, index: ObjectIx) -> (Vec<ObjectIx>, bool) {
        let Some(object) = self.objects.get(index.index()) else { return (Vec::new(), false) };
        let key = self.row_key(index, object);
        let alike = self
            .objects
            .iter()
            .enumerate()
            .filter(|(_, other)| (other.kind, &other.name) == (object.kind, &object.name));
        let (mut row, mut has_others) = (Vec::new(), false);
        for (at, other) in alike {
            let at = ObjectIx::from_index(at);
            match self.row_key(at, other) == key {
                true => row.push(at),
                false => has_others |= other.counts.accesses() > 0,
            }
        }
        self.costliest_first(&mut row);
        (row, has_others)
    }

    /// Sorts objects by falling cost.
    pub fn costliest_first(&self, objects: &mut [ObjectIx]) {
        let cost = |index: &ObjectIx| self.objects.get(index.index()).map(|it| self.cost(&it.counts));
        objects.sort_by_key(|index| (Reverse(cost(index)), *index));
    }

    fn row_key<'a>(&self, index: ObjectIx, object: &'a Object) -> Key<'a> {
        let has_line = (object.declared.is_some() || object.site.is_some()) && !is_numbered(&object.name);
        match object_place(self, object).filter(|_| has_line) {
            Some(place) => Key::Line {
                kind: object.kind,
                name: &object.name,
                type_name: object.type_name.as_deref(),
                module: object.module,
                place,
            },
            None => Key::Single(index),
        }
    }
}

/// Whether the run was to keep the blocks of a call stack apart (`--no-merge`): it has numbered them (`rows #3`).
fn is_numbered(name: &str) -> bool {
    name.rsplit_once(" #").is_some_and(|(_, number)| number.parse::<u64>().is_ok())
}

#[cfg(test)]
mod tests {
    use memlens_types::Counts;

    use super::*;
    use crate::SourceLine;

    #[test]
    fn namesakes_are_other_rows_of_a_kind() {
        let object = |kind, line, loads| Object {
            kind,
            name: "table".to_owned(),
            declared: Some(SourceLine { file: "a.c".to_owned(), line }),
            counts: Counts { loads, ..Counts::default() },
            ..Object::default()
        };
        let row = |objects: &[Object]| {
            let profile = Profile { objects: objects.to_vec(), ..Profile::default() };
            profile.row_among_namesakes(ObjectIx(0))
        };
        let block = object(ObjectKind::Heap, 3, 100);
        assert_eq!(
            row(&[block.clone(), object(ObjectKind::Global, 1, 100)]),
            None,
            "the variable that leads to it"
        );
        assert_eq!(row(&[block.clone(), object(ObjectKind::Heap, 3, 50)]), None, "the same row");
        assert_eq!(row(&[block.clone(), object(ObjectKind::Heap, 4, 0)]), None, "nobody comes to it");
        let (dearer, other) = (object(ObjectKind::Heap, 3, 500), object(ObjectKind::Heap, 4, 1));
        assert_eq!(row(&[block, dearer, other]), Some(vec![ObjectIx(1), ObjectIx(0)]));
        assert_eq!(row(&[]), None);
    }
}
