//! The definitions in force.

use memlens_types::ObjectKind;

use crate::id_map::IdMap;
use crate::{CodeInfo, ObjectInfo};

/// A definition, whether the filter admits it, and whether a written row has named it.
#[derive(Debug)]
pub(crate) struct Entry<T> {
    pub(crate) info: T,
    pub(crate) admitted: bool,
    pub(crate) used: bool,
}

/// Objects and code by id. Memory: that of the definitions.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) objects: IdMap<Entry<ObjectInfo>>,
    pub(crate) code: IdMap<Entry<CodeInfo>>,
}

impl Tables {
    pub(crate) fn define_object(&mut self, info: ObjectInfo, admitted: bool) {
        let used = self.objects.get(info.id).is_some_and(|entry| entry.used);
        self.objects.insert(info.id, Entry { info, admitted, used });
    }

    pub(crate) fn define_code(&mut self, info: CodeInfo, admitted: bool) {
        let used = self.code.get(info.id).is_some_and(|entry| entry.used);
        self.code.insert(info.id, Entry { info, admitted, used });
    }

    /// The object's definition; one that says "unknown" where there is none.
    #[inline]
    pub(crate) fn object(&mut self, id: u32) -> &mut Entry<ObjectInfo> {
        self.objects.get_or_insert_with(id, || {
            let info =
                ObjectInfo { id, kind: ObjectKind::Unknown, name: String::new(), declared: None, site: 0 };
            Entry { info, admitted: true, used: false }
        })
    }

    /// As [`Self::object`], for code.
    #[inline]
    pub(crate) fn code(&mut self, id: u32) -> &mut Entry<CodeInfo> {
        self.code.get_or_insert_with(id, || Entry {
            info: CodeInfo { id, ..CodeInfo::default() },
            admitted: true,
            used: false,
        })
    }
}
