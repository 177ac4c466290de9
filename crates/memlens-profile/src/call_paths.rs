//! Through which calls samples or accesses came to where they were: a tree of return addresses, while a profile is made.
//!
//! ```text
//!  start ─── main+0x12 ─┬─ build+0x40 ─── insert+0x8     a node is a return address, reached from its parent;
//!                       └─ search+0x33                   the sampled function itself is not among them
//! ```
//!
//! # Bounds
//!
//! Of the calls under way the innermost [`MAX_PATH_FRAMES`] are looked at. Each is on a path once: what is called on the way from one to the same
//! again is folded away, or an interpreter that calls itself would have a path for each depth. The tree has at most [`MAX_NODES`] nodes (some 8 MB);
//! what would need more has no path. Both are counted.

use std::collections::HashMap;
use std::hash::Hash;

/// Calls under way that are looked at, the innermost ones.
pub const MAX_PATH_FRAMES: usize = 1024;
/// Nodes of all paths at most.
const MAX_NODES: usize = 1 << 18;

/// A node of the tree: the callers of a sampled function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(u32);

impl PathId {
    /// No caller at all.
    pub const ROOT: Self = Self(0);
}

/// The tree. `C` is what stands for a return address.
#[derive(Clone, Debug)]
pub struct CallPaths<C> {
    /// Parent and return address of each node; parents come first. The root's are not used.
    nodes: Vec<(PathId, C)>,
    known: HashMap<(PathId, C), PathId>,
    shortened: u64,
    without_room: u64,
    most_nodes: usize,
}

impl<C: Copy + Default + Eq + Hash> Default for CallPaths<C> {
    fn default() -> Self {
        Self::with_room(MAX_NODES)
    }
}

impl<C: Copy + Default + Eq + Hash> CallPaths<C> {
    fn with_room(most_nodes: usize) -> Self {
        let nodes = vec![(PathId::ROOT, C::default())];
        Self { nodes, known: HashMap::new(), shortened: 0, without_room: 0, most_nodes }
    }

    /// The path of a sample whose callers these are, innermost first. `None`: there is no room for it.
    pub fn intern(&mut self, callers: impl DoubleEndedIterator<Item = C>) -> Option<PathId> {
        let mut callers: Vec<C> = callers.collect();
        callers.dedup();
        if callers.len() > MAX_PATH_FRAMES {
            self.shorten();
            callers.truncate(MAX_PATH_FRAMES);
        }
        callers.iter().rev().try_fold(PathId::ROOT, |path, &code| self.child(path, code))
    }

    /// Something has more callers than a path keeps.
    pub fn shorten(&mut self) {
        self.shortened += 1;
    }

    /// The path that goes on from another one by a call with this return address. A call that is on the path already is the same: recursion is folded.
    /// `None`: there is no room for it.
    pub fn child(&mut self, path: PathId, code: C) -> Option<PathId> {
        if let Some(&known) = self.known.get(&(path, code)) {
            return Some(known);
        }
        let mut at = path;
        while let Some((parent, call)) = self.node(at) {
            if call == code {
                if self.known.len() < 2 * self.nodes.len() {
                    self.known.insert((path, code), at);
                }
                return Some(at);
            }
            at = parent;
        }
        if self.nodes.len() >= self.most_nodes {
            self.without_room += 1;
            return None;
        }
        let next = PathId(u32::try_from(self.nodes.len()).ok()?);
        self.nodes.push((path, code));
        self.known.insert((path, code), next);
        Some(next)
    }

    /// The parent and the return address of a node; `None` for the root.
    pub fn node(&self, path: PathId) -> Option<(PathId, C)> {
        self.nodes.get(path.0 as usize).copied().filter(|_| path != PathId::ROOT)
    }

    /// What was cut, one sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.shortened > 0 {
            notes.push(format!(
                "Where callers were looked at, there were more than {MAX_PATH_FRAMES} of them {} times; their call paths are of the innermost.",
                self.shortened
            ));
        }
        if self.without_room > 0 {
            notes.push(format!(
                "There was no room for a caller {} times, beside {} different ones; what came through it has no call path.",
                self.without_room, self.most_nodes
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_share_what_they_have_in_common() {
        let mut paths = CallPaths::default();
        let mut intern = |svmas: &[u64]| paths.intern(svmas.iter().copied()).expect("room");
        assert_eq!(intern(&[]), PathId::ROOT);
        // insert < build < main, search < main, and the first again.
        let insert = intern(&[3, 2, 1]);
        let search = intern(&[4, 1]);
        assert_eq!(intern(&[3, 2, 1]), insert);
        // Recursion is folded.
        assert_eq!(intern(&[3, 3, 3, 2, 1, 1]), insert);
        assert_eq!(intern(&[3, 2, 3, 4, 2, 3, 2, 1]), insert);
        let (build, code) = paths.node(insert).expect("a node");
        let (main, _) = paths.node(build).expect("a node");
        assert_eq!((code, paths.node(search).map(|node| node.0)), (3, Some(main)));
        assert_eq!(paths.node(main).map(|node| node.0), Some(PathId::ROOT));
        assert_eq!(paths.node(PathId::ROOT), None);
        assert!(paths.notes().is_empty());
    }

    #[test]
    fn what_is_cut_is_counted() {
        let deep: Vec<u64> = (0..2000).collect();
        let mut paths = CallPaths::default();
        let path = paths.intern(deep.into_iter()).expect("room");
        let mut length = 0;
        let mut at = path;
        while let Some((parent, code)) = paths.node(at) {
            assert_eq!(code, length, "the innermost are kept");
            (at, length) = (parent, length + 1);
        }
        assert_eq!(length, MAX_PATH_FRAMES as u64);
        let mut small = CallPaths::with_room(3);
        assert!(small.intern([2, 1].into_iter()).is_some());
        assert_eq!(small.intern([3, 1].into_iter()), None);
        assert!(small.intern([2, 1].into_iter()).is_some(), "known ones need no room");
        let notes = [paths.notes(), small.notes()].concat().join(" ");
        assert!(
            notes.contains("more than 1024 of them 1 times") && notes.contains("a caller 1 times"),
            "{notes}"
        );
    }
}
