//! Objects of one name, and the row that a table has for them. Which are one row says
//! [`Profile::object_rows`](memlens_profile::Profile::object_rows).

use std::collections::HashSet;

use memlens_profile::{Object, ObjectBacking, ObjectIx, Profile, sum_of_known};
use memlens_types::Counts;

use crate::UnknownWord;
use crate::interval::Certainties;
use crate::place::object_place;
use crate::row::{Row, Whole};
use crate::target::Target;
use crate::word::the_one;

/// The part of what all objects of a name wait with which those of one row are meant by it: locals of libraries are called `p`, too.
const MOST: f64 = 0.99;

/// Objects of one name, in the order of their cost.
#[derive(Clone, Debug)]
pub(crate) struct Namesakes<'a> {
    profile: &'a Profile,
    members: Vec<ObjectIx>,
}

impl<'a> Namesakes<'a> {
    /// The rows of a table of objects: those of one kind, name, type and line are one.
    pub(crate) fn of_each_line(profile: &'a Profile) -> Vec<Self> {
        profile.object_rows().into_iter().map(|members| Self { profile, members }).collect()
    }

    /// The object with this number, else all with this name, or with the only name that has this as a part; of these those of one row,
    /// if they make nearly all that they wait.
    pub(crate) fn wanted(profile: &'a Profile, wanted: &str) -> Result<Self, UnknownWord> {
        let all =
            || profile.objects.iter().enumerate().map(|(at, object)| (ObjectIx::from_index(at), object));
        if let Ok(id) = wanted.parse::<u32>() {
            let found = all().find(|(_, object)| object.id == id).map(|(index, _)| index);
            return found.map(|index| Self::one(profile, index)).ok_or_else(|| UnknownWord {
                what: "object of this profile (the # column of the table has the ids)",
                word: wanted.to_owned(),
                nearest: None,
                valid: Vec::new(),
            });
        }
        let names = profile.objects.iter().map(|object| object.name.as_str());
        let name = the_one(
            names,
            wanted,
            ["object of this profile (memlens report PROFILE lists them)", "single object of this profile"],
        )?;
        let members = all().filter(|(_, object)| object.name == name).map(|(index, _)| index).collect();
        let all = Self::of(profile, members);
        Ok(all.costliest_row().filter(|row| row.cost() as f64 >= MOST * all.cost() as f64).unwrap_or(all))
    }

    /// Those of the row of a table that the costliest one is in.
    fn costliest_row(&self) -> Option<Self> {
        let first = self.members.first()?;
        Some(Self { profile: self.profile, members: self.profile.row_of(*first).0 })
    }

    fn cost(&self) -> u64 {
        self.profile.cost(&self.counts())
    }

    /// One object alone.
    pub(crate) fn one(profile: &'a Profile, index: ObjectIx) -> Self {
        Self { profile, members: vec![index] }
    }

    /// Several, or none.
    pub(crate) fn of(profile: &'a Profile, mut members: Vec<ObjectIx>) -> Self {
        profile.costliest_first(&mut members);
        Self { profile, members }
    }

    /// Those of which something holds; perhaps none.
    pub(crate) fn only(&self, holds: impl Fn(ObjectIx) -> bool) -> Self {
        let members = self.members.iter().copied().filter(|&index| holds(index)).collect();
        Self { profile: self.profile, members }
    }

    /// Whether it is one object.
    pub(crate) fn is_single(&self) -> bool {
        self.members.len() == 1
    }

    /// Their places in the profile, the costliest first.
    pub(crate) fn members(&self) -> &[ObjectIx] {
        &self.members
    }

    /// The same, to ask of many cells.
    pub(crate) fn set(&self) -> HashSet<ObjectIx> {
        self.members.iter().copied().collect()
    }

    /// The objects, the costliest first.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &'a Object> + Clone {
        self.members.iter().filter_map(|index| self.profile.objects.get(index.index()))
    }

    /// What all of them have; None if they differ.
    pub(crate) fn common<T: PartialEq>(&self, of: impl Fn(&'a Object) -> Option<T>) -> Option<T> {
        let mut values = self.objects().map(of);
        let first = values.next()??;
        values.all(|value| value.as_ref() == Some(&first)).then_some(first)
    }

    /// How the kernel backed their memory, as far as that is known of them.
    pub(crate) fn backing(&self) -> Option<ObjectBacking> {
        self.objects().filter_map(|object| object.backing.clone()).reduce(|mut sum, one| {
            sum += one;
            sum
        })
    }

    /// Their accesses.
    pub(crate) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.objects().for_each(|object| sum += &object.counts);
        sum
    }

    /// What leads to them.
    pub(crate) fn target(&self) -> Option<Target> {
        let ids = self.objects().map(|object| object.id).collect();
        self.objects().next().map(|first| Target::Objects { ids, name: first.name.clone() })
    }

    /// One row for them all.
    pub(crate) fn row(&self, whole: Whole) -> Row {
        let profile = self.profile;
        let Some(first) = self.objects().next() else {
            return Row::new(profile, String::new(), &Counts::default(), true, whole);
        };
        let row = Row::new(profile, first.name.clone(), &self.counts(), true, whole);
        let bytes = self.objects().map(|object| object.bytes);
        // What they have at one time is known of each alone.
        let max_live_bytes = first.max_live_bytes.filter(|_| self.is_single());
        Row {
            ids: self.objects().map(|object| object.id).collect(),
            target: self.target(),
            kind: self.common(|object| Some(object.kind)).map(|kind| kind.as_str().to_owned()),
            type_name: self.common(|object| object.type_name.clone()),
            blocks: Some(self.objects().fold(0, |sum, object| sum.saturating_add(object.blocks))),
            bytes: bytes.reduce(|sum, more| Some(sum?.saturating_add(more?))).flatten(),
            max_live_bytes,
            live_at_peak_bytes: self
                .objects()
                .map(|object| object.live_at_peak_bytes)
                .fold(None, sum_of_known),
            live_at_end_bytes: self.objects().map(|object| object.live_at_end_bytes).fold(None, sum_of_known),
            huge_share: self.backing().as_ref().and_then(ObjectBacking::huge_share),
            place: self.common(|object| object_place(profile, object)),
            certainties: Certainties::of_objects(profile, self.objects(), whole),
            ..row
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Column;
    use memlens_profile::SourceLine;
    use memlens_types::ObjectKind;

    fn declared(kind: ObjectKind, name: &str, line: u32) -> Object {
        let declared = Some(SourceLine { file: "/src/a.c".into(), line });
        let counts = Counts { loads: line.into(), ..Counts::default() };
        Object { kind, name: name.into(), declared, blocks: 1, bytes: Some(8), counts, ..Object::default() }
    }

    /// Of these objects, numbered from 1.
    fn profile(objects: Vec<Object>) -> Profile {
        let objects = objects.into_iter().zip(1..).map(|(object, id)| Object { id, ..object }).collect();
        Profile { objects, ..Profile::default() }
    }

    #[test]
    fn one_kind_name_and_line_are_one() {
        let profile = profile(vec![
            declared(ObjectKind::Local, "op", 3),
            declared(ObjectKind::Local, "to", 3),
            declared(ObjectKind::Local, "op", 3),
            declared(ObjectKind::Local, "op", 4),
            declared(ObjectKind::Global, "op", 3),
            declared(ObjectKind::Heap, "rows #1", 5),
            declared(ObjectKind::Heap, "rows #1", 5),
            Object { name: "no line".into(), ..Object::default() },
            Object { name: "no line".into(), ..Object::default() },
        ]);
        let groups = Namesakes::of_each_line(&profile);
        let ids: Vec<Vec<u32>> =
            groups.iter().map(|group| group.objects().map(|object| object.id).collect()).collect();
        assert_eq!(ids, [vec![1, 3], vec![2], vec![4], vec![5], vec![6], vec![7], vec![8], vec![9]]);
        let row = groups[0].row(Whole { cost: 100, stall: 100, leading: Column::Share });
        assert_eq!((row.ids, row.blocks, row.bytes), (vec![1, 3], Some(2), Some(16)));
        assert_eq!((row.known.loads, row.place.as_deref()), (Some(6), Some("a.c:3")));
    }

    #[test]
    fn numbers_names_and_parts_of_names_find_objects() {
        let profile = profile(vec![
            declared(ObjectKind::Local, "op", 3),
            declared(ObjectKind::Global, "op", 5),
            declared(ObjectKind::Heap, "graph->column", 3),
            declared(ObjectKind::Heap, "graph->row", 4),
        ]);
        let ids = |wanted: &str| -> Result<Vec<u32>, UnknownWord> {
            Ok(Namesakes::wanted(&profile, wanted)?.objects().map(|object| object.id).collect())
        };
        assert_eq!(ids("1"), Ok(vec![1]));
        // The costliest first.
        assert_eq!(ids("op"), Ok(vec![2, 1]));
        assert_eq!(ids("column"), Ok(vec![3]));
        assert_eq!(ids("5").unwrap_err().word, "5");
        assert_eq!(ids("graph").unwrap_err().valid, ["graph->column", "graph->row"]);
        assert_eq!(ids("grahp->row").unwrap_err().nearest.as_deref(), Some("graph->row"));
    }
}
