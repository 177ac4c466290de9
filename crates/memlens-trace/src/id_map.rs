//! A map from ids that are mostly small and dense.

use std::collections::HashMap;

/// Ids below this are kept in a vector, which grows to the largest of them.
const DENSE_LIMIT: u32 = 1 << 20;

/// Constant-time lookup; a few bytes an id below 2^20 even if it is not used.
#[derive(Debug)]
pub(crate) struct IdMap<T> {
    dense: Vec<Option<T>>,
    sparse: HashMap<u32, T>,
}

impl<T> Default for IdMap<T> {
    fn default() -> Self {
        Self { dense: Vec::new(), sparse: HashMap::new() }
    }
}

impl<T> IdMap<T> {
    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        if id < DENSE_LIMIT { self.dense.get(id as usize)?.as_ref() } else { self.sparse.get(&id) }
    }

    /// The value of an id, made by `default` where there is none.
    #[inline]
    pub(crate) fn get_or_insert_with(&mut self, id: u32, default: impl FnOnce() -> T) -> &mut T {
        if id >= DENSE_LIMIT {
            return self.sparse.entry(id).or_insert_with(default);
        }
        let index = id as usize;
        if index >= self.dense.len() {
            self.dense.resize_with(index + 1, || None);
        }
        self.dense[index].get_or_insert_with(default)
    }

    pub(crate) fn insert(&mut self, id: u32, value: T) {
        if id >= DENSE_LIMIT {
            self.sparse.insert(id, value);
            return;
        }
        let index = id as usize;
        if index >= self.dense.len() {
            self.dense.resize_with(index + 1, || None);
        }
        self.dense[index] = Some(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_huge_ids_are_found() {
        let mut map = IdMap::default();
        for id in [0, 7, DENSE_LIMIT - 1, DENSE_LIMIT, u32::MAX] {
            assert_eq!(map.get(id), None);
            map.insert(id, id);
            assert_eq!(map.get(id), Some(&id));
        }
        map.insert(7, 8);
        assert_eq!((map.get(7), map.get(6)), (Some(&8), None));
    }
}
