//! All objects of a run, and how blocks merge into them.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use memlens_types::ObjectKind;
use rustc_hash::FxBuildHasher;

use crate::{ObjectId, SiteId};

/// A number the caller gives to a loaded module (executable or library).
pub type ModuleId = u32;

/// Whether heap blocks of one call stack are one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Merge {
    /// Blocks from one call stack are one object: a matrix of rows, a temporary made in a loop.
    #[default]
    BySite,
    /// Every block is an object of its own.
    Off,
}

/// Why an address belongs to nothing known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum UnknownReason {
    /// No region covers the address.
    Unmapped,
    /// A region covers it of which only the address range is known.
    UnlabelledRegion,
    /// It lies in the heap's arena, but in no live block: allocator metadata, or freed memory.
    HeapGap,
    /// An allocation there was not reported (made before attaching, or by an unseen allocator).
    UnseenAllocation,
    /// Records of the run were lost here.
    LostRecords,
}

impl UnknownReason {
    /// The words for reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unmapped => "no mapping covers the address",
            Self::UnlabelledRegion => "mapping of unknown origin",
            Self::HeapGap => "inside the heap but in no live block",
            Self::UnseenAllocation => "allocated by a call that was not seen",
            Self::LostRecords => "records were lost",
        }
    }
}

/// What makes two objects the same. Addresses in here are svmas or sizes, never avmas, so that
/// keys mean the same in another run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ObjectKey {
    /// Heap blocks of one call stack.
    HeapSite(SiteId),
    /// A single heap block, the `block`-th (from 1) of its site.
    HeapBlock {
        /// Where it was allocated.
        site: SiteId,
        /// Counts the site's blocks.
        block: u64,
    },
    /// A global or static variable.
    Global {
        /// Module.
        module: ModuleId,
        /// Where the variable begins.
        svma: u64,
    },
    /// What lies between the variables of a section of a module, or all of it where there are none.
    DataGap {
        /// Module.
        module: ModuleId,
        /// Where the section begins; 0: in none.
        section_svma: u64,
    },
    /// A variable in a function's frame.
    Local {
        /// Module.
        module: ModuleId,
        /// Entry of the function.
        function_svma: u64,
        /// Offset of the variable from the canonical frame address, bytes.
        cfa_offset: i64,
        /// Tells variables of disjoint scopes apart that share a place: the offset of the
        /// declaration in the debug information, 0 without.
        declaration: u64,
    },
    /// The unnamed parts of a function's frames.
    StackFrame {
        /// Module.
        module: ModuleId,
        /// Entry of the function.
        function_svma: u64,
    },
    /// A thread's stack outside all known frames.
    Stack {
        /// Thread number, 0 for all threads together.
        thread: u32,
    },
    /// A thread-local variable, or an unnamed stretch of a module's TLS block.
    Tls {
        /// Module.
        module: ModuleId,
        /// Offset in the module's TLS block, bytes.
        offset_bytes: u64,
    },
    /// Machine code.
    Code {
        /// Module.
        module: ModuleId,
    },
    /// Mappings of one origin: a file, or a call site of anonymous `mmap`.
    Mmap {
        /// The caller's number for the file, 0 for anonymous memory.
        file: u32,
        /// Where it was mapped, if known.
        site: Option<SiteId>,
    },
    /// Kernel-provided pages (vDSO, vvar, vsyscall), by the caller's number.
    Kernel {
        /// Which of them.
        page: u32,
    },
    /// Nothing known covers the address.
    Unknown {
        /// Why.
        reason: UnknownReason,
    },
}

impl ObjectKey {
    /// The kind that reports show.
    pub fn kind(&self) -> ObjectKind {
        match self {
            Self::HeapSite(_) | Self::HeapBlock { .. } => ObjectKind::Heap,
            Self::Global { .. } | Self::DataGap { .. } => ObjectKind::Global,
            Self::Local { .. } => ObjectKind::Local,
            Self::StackFrame { .. } | Self::Stack { .. } => ObjectKind::Stack,
            Self::Tls { .. } => ObjectKind::Tls,
            Self::Code { .. } => ObjectKind::Code,
            Self::Mmap { .. } => ObjectKind::Mmap,
            Self::Kernel { .. } => ObjectKind::Kernel,
            Self::Unknown { .. } => ObjectKind::Unknown,
        }
    }

    /// The allocation site, for heap blocks and mappings.
    pub fn site(&self) -> Option<SiteId> {
        match *self {
            Self::HeapSite(site) | Self::HeapBlock { site, .. } => Some(site),
            Self::Mmap { site, .. } => site,
            _ => None,
        }
    }
}

/// What an object's blocks did over the run. Sizes are as requested, without the allocator's
/// padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectStats {
    /// Blocks ever allocated; a realloc is not a new block.
    pub blocks: u64,
    /// Blocks live now.
    pub live_blocks: u64,
    /// The most blocks live at one time.
    pub max_live_blocks: u64,
    /// Bytes ever allocated, growth by realloc included.
    pub total_bytes: u64,
    /// Bytes live now.
    pub live_bytes: u64,
    /// The most bytes live at one time.
    pub max_live_bytes: u64,
    /// Serial of the first allocation.
    pub first_serial: u64,
    /// Serial of the last allocation.
    pub last_serial: u64,
    /// Whether blocks of it lie in other blocks, which are counted, too.
    pub is_nested: bool,
}

impl ObjectStats {
    /// Records a new block.
    #[inline]
    pub fn allocated(&mut self, len_bytes: u64, serial: u64) {
        if self.blocks == 0 {
            self.first_serial = serial;
        }
        self.last_serial = serial;
        self.blocks += 1;
        self.live_blocks += 1;
        self.max_live_blocks = self.max_live_blocks.max(self.live_blocks);
        self.grew(len_bytes);
    }

    /// Records a block's end.
    #[inline]
    pub fn freed(&mut self, len_bytes: u64) {
        self.live_blocks = self.live_blocks.saturating_sub(1);
        self.live_bytes = self.live_bytes.saturating_sub(len_bytes);
    }

    /// Records that a block changed its size in place or by moving.
    #[inline]
    pub fn resized(&mut self, old_bytes: u64, new_bytes: u64) {
        if new_bytes >= old_bytes {
            self.grew(new_bytes - old_bytes);
        } else {
            self.live_bytes = self.live_bytes.saturating_sub(old_bytes - new_bytes);
        }
    }

    /// Keeps what is live. Allocated are its blocks elsewhere: none, and no bytes, count here.
    fn inherited(&mut self) {
        *self = Self {
            live_blocks: self.live_blocks,
            max_live_blocks: self.live_blocks,
            live_bytes: self.live_bytes,
            max_live_bytes: self.live_bytes,
            is_nested: self.is_nested,
            ..Self::default()
        };
    }

    #[inline]
    fn grew(&mut self, bytes: u64) {
        self.total_bytes = self.total_bytes.saturating_add(bytes);
        self.live_bytes = self.live_bytes.saturating_add(bytes);
        self.max_live_bytes = self.max_live_bytes.max(self.live_bytes);
    }
}

/// All objects ever seen, by dense id from 1. Objects stay when their memory is gone.
#[derive(Debug, Default, Clone)]
pub struct ObjectTable {
    keys: Vec<ObjectKey>,
    stats: Vec<ObjectStats>,
    by_key: HashMap<ObjectKey, ObjectId, FxBuildHasher>,
    /// With [`Merge::BySite`]: the object of each site, by site index.
    by_site: Vec<Option<ObjectId>>,
    /// With [`Merge::Off`]: blocks of each site so far.
    site_blocks: Vec<u64>,
    merge: Merge,
}

impl ObjectTable {
    /// A table without objects.
    pub fn new(merge: Merge) -> Self {
        Self { merge, ..Self::default() }
    }

    /// The merging rule for heap blocks.
    pub fn merge(&self) -> Merge {
        self.merge
    }

    /// The object with this key, if there is one.
    pub fn id(&self, key: &ObjectKey) -> Option<ObjectId> {
        self.by_key.get(key).copied()
    }

    /// The object with this key; a new one if there was none.
    pub fn intern(&mut self, key: ObjectKey) -> ObjectId {
        match self.by_key.entry(key) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let id = ObjectId::from_index(self.keys.len());
                entry.insert(id);
                self.keys.push(key);
                self.stats.push(ObjectStats::default());
                id
            }
        }
    }

    /// The object for a new heap block of `site`, by the merging rule. Does not count the block:
    /// that is [`ObjectStats::allocated`].
    #[inline]
    pub fn heap_object(&mut self, site: SiteId) -> ObjectId {
        match self.merge {
            Merge::BySite => match self.by_site.get(site.index()) {
                Some(&Some(id)) => id,
                _ => self.first_of_site(site),
            },
            Merge::Off => {
                if self.site_blocks.len() <= site.index() {
                    self.site_blocks.resize(site.index() + 1, 0);
                }
                self.site_blocks[site.index()] += 1;
                let block = self.site_blocks[site.index()];
                // Keys of single blocks cannot repeat, so they need no place in the hash table.
                let id = ObjectId::from_index(self.keys.len());
                self.keys.push(ObjectKey::HeapBlock { site, block });
                self.stats.push(ObjectStats::default());
                id
            }
        }
    }

    #[cold]
    fn first_of_site(&mut self, site: SiteId) -> ObjectId {
        let id = self.intern(ObjectKey::HeapSite(site));
        if self.by_site.len() <= site.index() {
            self.by_site.resize(site.index() + 1, None);
        }
        self.by_site[site.index()] = Some(id);
        id
    }

    /// The key of an object; `None` for an id of another table.
    pub fn key(&self, id: ObjectId) -> Option<&ObjectKey> {
        self.keys.get(id.index())
    }

    /// The block statistics of an object; all zero for an id of another table.
    pub fn stats(&self, id: ObjectId) -> ObjectStats {
        self.stats.get(id.index()).copied().unwrap_or_default()
    }

    /// The block statistics of an object, to be changed.
    #[inline]
    pub fn stats_mut(&mut self, id: ObjectId) -> Option<&mut ObjectStats> {
        self.stats.get_mut(id.index())
    }

    /// The objects of sites that have live blocks, with the bytes of these; those that lie in others' blocks are left out, so that together
    /// they are what is live. None with [`Merge::Off`]. Linear in the sites.
    pub fn live_of_sites(&self) -> impl Iterator<Item = (ObjectId, u64)> {
        let all = self.by_site.iter().flatten().map(|&id| (id, self.stats(id)));
        let live = all.filter(|(_, stats)| stats.live_bytes > 0 && !stats.is_nested);
        live.map(|(id, stats)| (id, stats.live_bytes))
    }

    /// Forgets what was allocated so far, but not what is live: what a forked process starts from.
    pub fn forget_history(&mut self) {
        for stats in &mut self.stats {
            stats.inherited();
        }
    }

    /// How many objects there are; their ids are 1 to this.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// All objects, by id.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectId, &ObjectKey, &ObjectStats)> {
        self.keys.iter().zip(&self.stats).enumerate().map(|(at, (key, stats))| {
            let id = ObjectId::from_index(at);
            (id, key, stats)
        })
    }
}
