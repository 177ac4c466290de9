//! Allocation call stacks, each kept once.

use core::hash::BuildHasher;

use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::SiteId;

/// Interns call stacks: equal stacks get equal [`SiteId`]s.
///
/// A frame is any `u64` that names a place in code; [`frame_key`] packs module and offset so that
/// a stack means the same in another run. Frames are kept in the order given (innermost first by
/// convention). The empty stack is a site like any other.
///
/// Cost: one hash of the slice and one comparison for a stack seen before; the frames of all sites
/// lie in one vector.
#[derive(Debug, Default, Clone)]
pub struct Sites {
    frames: Vec<u64>,
    /// Exclusive end of each site's frames; they begin where those of the site before end.
    ends: Vec<usize>,
    /// Names that tell sites of one stack apart, where some were given.
    names: FxHashMap<SiteId, Box<str>>,
    table: HashTable<SiteId>,
}

/// Names that are told apart, for programs that count in them.
const MOST_NAMES: usize = 1 << 16;

/// Module number in the upper 16 bits, offset of the frame in the module in the lower 48.
#[inline]
pub fn frame_key(module: u16, offset: u64) -> u64 {
    (u64::from(module) << 48) | (offset & ((1 << 48) - 1))
}

/// The module and offset of a [`frame_key`].
#[inline]
pub fn split_frame_key(key: u64) -> (u16, u64) {
    ((key >> 48) as u16, key & ((1 << 48) - 1))
}

impl Sites {
    /// A table without sites.
    pub fn new() -> Self {
        Self::default()
    }

    /// The site of this stack; a new one if it was not seen before.
    #[inline]
    pub fn intern(&mut self, stack: &[u64]) -> SiteId {
        let hash = hash(stack);
        let (frames, ends, names) = (&self.frames, &self.ends, &self.names);
        let is_it = |site: &SiteId| slice(frames, ends, *site) == stack && !names.contains_key(site);
        if let Some(&site) = self.table.find(hash, is_it) {
            return site;
        }
        self.add(stack, hash)
    }

    /// The site of this stack with this name, which is another one than those with other names, and without one. Beyond 65,536
    /// names all that are new share the site without a name.
    pub fn intern_named(&mut self, stack: &[u64], name: &str) -> SiteId {
        let hash = hash(stack);
        let (frames, ends, names) = (&self.frames, &self.ends, &self.names);
        let is_it = |site: &SiteId| {
            slice(frames, ends, *site) == stack && names.get(site).is_some_and(|known| **known == *name)
        };
        if let Some(&site) = self.table.find(hash, is_it) {
            return site;
        }
        if self.names.len() >= MOST_NAMES {
            return self.intern(stack);
        }
        let site = self.add(stack, hash);
        self.names.insert(site, name.into());
        site
    }

    #[cold]
    fn add(&mut self, stack: &[u64], hash_of_stack: u64) -> SiteId {
        let site = SiteId::from_index(self.ends.len());
        self.frames.extend_from_slice(stack);
        self.ends.push(self.frames.len());
        let (frames, ends) = (&self.frames, &self.ends);
        self.table.insert_unique(hash_of_stack, site, |&site| hash(slice(frames, ends, site)));
        site
    }

    /// The frames of a site; empty for an id of another table.
    pub fn stack(&self, site: SiteId) -> &[u64] {
        slice(&self.frames, &self.ends, site)
    }

    /// How many sites there are; their ids are 1 to this.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All sites with their stacks, by id.
    pub fn iter(&self) -> impl Iterator<Item = (SiteId, &[u64])> {
        (0..self.ends.len()).map(|at| {
            let site = SiteId::from_index(at);
            (site, self.stack(site))
        })
    }
}

fn hash(stack: &[u64]) -> u64 {
    FxBuildHasher.hash_one(stack)
}

fn slice<'a>(frames: &'a [u64], ends: &[usize], site: SiteId) -> &'a [u64] {
    let at = site.index();
    let end = ends.get(at).copied().unwrap_or(0);
    let start = if at == 0 { 0 } else { ends.get(at - 1).copied().unwrap_or(0) };
    frames.get(start..end).unwrap_or(&[])
}
