//! What structures have in common, kept once.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use memlens_profile::{Field, Texts};

use crate::layout::Part;

/// Names, lists of fields, and parts. A structure is described in each unit of a program that uses it: CPython's descriptions have
/// 71,000 fields.
#[derive(Debug, Default)]
pub(crate) struct Common {
    texts: Texts,
    fields: HashSet<Arc<[Field]>>,
    parts: HashSet<Arc<Part>>,
}

impl Common {
    /// A field as profiles have it.
    pub(crate) fn field(&mut self, field: &memlens_symbols::Field) -> Field {
        Field {
            offset_bytes: Some(field.offset_bytes),
            size_bytes: Some(field.size_bytes),
            name: Some(self.texts.shared(&field.name)),
            type_name: Some(self.texts.shared(&field.type_name)),
            ..Field::default()
        }
    }

    /// The list that is equal to this.
    pub(crate) fn fields(&mut self, fields: Vec<Field>) -> Arc<[Field]> {
        kept_once(&mut self.fields, fields.into())
    }

    /// The part that is equal to this.
    pub(crate) fn part(&mut self, part: Part) -> Arc<Part> {
        kept_once(&mut self.parts, part.into())
    }
}

fn kept_once<T: Eq + Hash + ?Sized>(known: &mut HashSet<Arc<T>>, new: Arc<T>) -> Arc<T> {
    if let Some(known) = known.get(&*new) {
        return known.clone();
    }
    known.insert(new.clone());
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_that_are_alike_share_all_but_their_places() {
        let mut common = Common::default();
        let described = |offset_bytes, name: &str| memlens_symbols::Field {
            offset_bytes,
            size_bytes: 8,
            name: name.to_owned(),
            type_name: "long int".to_owned(),
        };
        let mut list = |name: &str| {
            let fields = [described(0, "next"), described(8, name)].map(|field| common.field(&field));
            common.fields(fields.to_vec())
        };
        let (first, again, other) = (list("key"), list("key"), list("value"));
        assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &other));
        let name_of = |list: &[Field]| list[0].name.clone().expect("a name");
        assert!(Arc::ptr_eq(&name_of(&first), &name_of(&other)));
        let mut part = |field: &Field| common.part(Part::whole(field.clone()).expect("it has a place"));
        assert!(Arc::ptr_eq(&part(&first[0]), &part(&other[0])));
        assert_ne!(part(&first[1]), part(&other[1]));
    }
}
