//! The address → id map behind the live-object index.

/// A map from every byte address to a 27-bit id, filled range by range: a radix tree with values
/// at any level, as page tables have huge pages.
///
/// ```text
///  63        47 46          30 29          16 15         4 3    0
/// ┌────────────┬──────────────┬──────────────┬────────────┬──────┐
/// │ top        │ root index   │ node index   │ granule    │ byte │
/// └────────────┴──────────────┴──────────────┴────────────┴──────┘
///   0 almost     17 bits        14 bits        12 bits
///   always       1 GB each      64 KB each     16 B each
/// ```
///
/// A root or node entry is empty, names a child, or holds the id of everything below it. A leaf
/// entry describes the 16 bytes of a granule:
///
/// ```text
///  31      30                 4 3                    0
/// ┌───────┬────────────────────┬──────────────────────┐
/// │ mixed │ id                 │ valid bytes, 0 = all │   mixed = 0
/// │       │ index into `mixed` │ 0                    │   mixed = 1
/// └───────┴────────────────────┴──────────────────────┘
/// ```
///
/// The valid-byte count makes the tail of a block exact whose size is no multiple of 16. Granules
/// that hold anything else (a block that starts inside, two blocks) are *mixed* and have 16 ids of
/// their own, one a byte.
///
/// # Cost
///
/// A lookup is three dependent loads (root, node, leaf), two when a whole 64 KB chunk has one
/// owner. A fill writes one entry per 16 bytes at its edges, one per 64 KB and one per GB between
/// them. Memory: a quarter of the densely used address space below chunk level, 64 KB for each GB
/// touched, 512 KB for the root; chunks and nodes are reused as soon as they are uniform.
#[derive(Clone, Debug)]
pub struct ObjectPages {
    /// Entries for addresses below 2^47, one per GB.
    root: Box<[Entry; ROOT_ENTRIES]>,
    /// Roots for the rest of the 64-bit space (five-level paging, vsyscall), by `addr >> 47`.
    high_roots: Vec<(u32, Box<[Entry; ROOT_ENTRIES]>)>,
    nodes: Vec<[Entry; NODE_ENTRIES]>,
    free_nodes: Vec<u32>,
    leaves: Vec<Leaf>,
    /// Non-empty entries of each leaf, beside the leaves so that these stay a power of two.
    leaf_used: Vec<u16>,
    free_leaves: Vec<u32>,
    mixed: Vec<[u32; GRANULE_BYTES as usize]>,
    free_mixed: Vec<u32>,
}

/// Bytes described by one leaf entry.
pub const GRANULE_BYTES: u64 = 1 << GRANULE_BITS;
/// Bytes described by one leaf.
pub const CHUNK_BYTES: u64 = 1 << CHUNK_BITS;
/// The largest id a map can hold; 0 is "nobody".
pub const MAX_ID: u32 = (1 << 27) - 1;

const GRANULE_BITS: u32 = 4;
const CHUNK_BITS: u32 = 16;
const NODE_BITS: u32 = 30;
const TOP_BITS: u32 = 47;
const LEAF_ENTRIES: usize = 1 << (CHUNK_BITS - GRANULE_BITS);
const NODE_ENTRIES: usize = 1 << (NODE_BITS - CHUNK_BITS);
const ROOT_ENTRIES: usize = 1 << (TOP_BITS - NODE_BITS);
/// Set in a leaf entry that indexes `mixed`.
const MIXED: u32 = 1 << 31;

type Leaf = [u32; LEAF_ENTRIES];

/// A root or node entry: 0 = empty, top bit set = the id of the whole span, else child index + 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Entry(u32);

/// What an [`Entry`] says.
#[derive(Clone, Copy)]
enum Span {
    /// One owner for all of it; 0 = nobody.
    Whole(u32),
    /// Index of the node or leaf below.
    Child(u32),
}

impl Entry {
    const WHOLE: u32 = 1 << 31;

    #[inline(always)]
    fn whole(id: u32) -> Self {
        Self(if id == 0 { 0 } else { Self::WHOLE | id })
    }

    #[inline(always)]
    fn child(index: u32) -> Self {
        Self(index + 1)
    }

    #[inline(always)]
    fn span(self) -> Span {
        if self.0 & Self::WHOLE != 0 || self.0 == 0 {
            Span::Whole(self.0 & !Self::WHOLE)
        } else {
            Span::Child(self.0 - 1)
        }
    }
}

/// The leaf entry for a granule wholly owned by `id`.
#[inline(always)]
fn full(id: u32) -> u32 {
    id << 4
}

fn index(addr: u64, low: u32, entries: usize) -> usize {
    (addr >> low) as usize & (entries - 1)
}

fn new_root() -> Box<[Entry; ROOT_ENTRIES]> {
    // Through a Vec so that the zeroes never pass over the stack.
    match vec![Entry::default(); ROOT_ENTRIES].into_boxed_slice().try_into() {
        Ok(root) => root,
        Err(_) => unreachable!("the vector was made with ROOT_ENTRIES entries"),
    }
}

impl Default for ObjectPages {
    fn default() -> Self {
        Self::new()
    }
}

impl ObjectPages {
    /// A map in which nobody owns anything.
    pub fn new() -> Self {
        Self {
            root: new_root(),
            high_roots: Vec::new(),
            nodes: Vec::new(),
            free_nodes: Vec::new(),
            leaves: Vec::new(),
            leaf_used: Vec::new(),
            free_leaves: Vec::new(),
            mixed: Vec::new(),
            free_mixed: Vec::new(),
        }
    }

    /// The id that owns `addr`, 0 for nobody.
    #[inline(always)]
    pub fn get(&self, addr: u64) -> u32 {
        let root = if addr >> TOP_BITS == 0 {
            self.root[index(addr, NODE_BITS, ROOT_ENTRIES)]
        } else {
            self.high_entry(addr)
        };
        let Span::Child(node) = root.span() else { return root.0 & !Entry::WHOLE };
        let entry = self.nodes[node as usize][index(addr, CHUNK_BITS, NODE_ENTRIES)];
        let Span::Child(leaf) = entry.span() else { return entry.0 & !Entry::WHOLE };
        let granule = self.leaves[leaf as usize][index(addr, GRANULE_BITS, LEAF_ENTRIES)];
        let byte = addr as u32 & 15;
        // Wrapping turns "0 = all" into "all": valid − 1 is then the largest u32.
        if granule & MIXED == 0 {
            if byte <= (granule & 15).wrapping_sub(1) { granule >> 4 } else { 0 }
        } else {
            self.mixed[(granule & !MIXED) as usize >> 4][byte as usize]
        }
    }

    #[cold]
    #[inline(never)]
    fn high_entry(&self, addr: u64) -> Entry {
        let top = (addr >> TOP_BITS) as u32;
        self.high_roots
            .iter()
            .find(|(of, _)| *of == top)
            .map_or(Entry::default(), |(_, root)| root[index(addr, NODE_BITS, ROOT_ENTRIES)])
    }

    fn root_entry(&self, addr: u64) -> Entry {
        if addr >> TOP_BITS == 0 {
            self.root[index(addr, NODE_BITS, ROOT_ENTRIES)]
        } else {
            self.high_entry(addr)
        }
    }

    fn set_root_entry(&mut self, addr: u64, entry: Entry) {
        let at = index(addr, NODE_BITS, ROOT_ENTRIES);
        let top = (addr >> TOP_BITS) as u32;
        if top == 0 {
            self.root[at] = entry;
            return;
        }
        match self.high_roots.iter_mut().find(|(of, _)| *of == top) {
            Some((_, root)) => root[at] = entry,
            None if entry == Entry::default() => {}
            None => {
                let mut root = new_root();
                root[at] = entry;
                self.high_roots.push((top, root));
            }
        }
    }

    /// Gives the bytes `start..end` to `id`, whoever had them; id 0 clears them. An empty or
    /// inverted range does nothing. Ids above [`MAX_ID`] lose their upper bits.
    #[inline]
    pub fn fill(&mut self, start: u64, end: u64, id: u32) {
        let id = id & MAX_ID;
        if start >= end {
            return;
        }
        // Almost every block lies inside one chunk that exists already.
        if (start ^ (end - 1)) >> CHUNK_BITS == 0
            && let Span::Child(node) = self.root_entry(start).span()
            && let Span::Child(leaf) =
                self.nodes[node as usize][index(start, CHUNK_BITS, NODE_ENTRIES)].span()
        {
            self.fill_leaf(leaf, start, end, id);
            self.release_leaf_if_uniform(node, leaf, start, end, id);
            return;
        }
        self.fill_spans(start, end, id);
    }

    #[inline(never)]
    fn fill_spans(&mut self, start: u64, end: u64, id: u32) {
        let mut from = start;
        loop {
            let last = from | ((1 << NODE_BITS) - 1);
            let to = last.saturating_add(1).min(end);
            if from & ((1 << NODE_BITS) - 1) == 0 && to == last.wrapping_add(1) {
                if let Span::Child(node) = self.root_entry(from).span() {
                    self.free_node(node);
                }
                self.set_root_entry(from, Entry::whole(id));
            } else {
                self.fill_in_node(from, to, id);
            }
            if to == end {
                return;
            }
            from = to;
        }
    }

    /// `start..end` lies inside one node's GB and is not all of it.
    fn fill_in_node(&mut self, start: u64, end: u64, id: u32) {
        let node = match self.root_entry(start).span() {
            Span::Child(node) => node,
            Span::Whole(owner) if owner == id => return,
            Span::Whole(owner) => {
                let node = self.new_node(owner);
                self.set_root_entry(start, Entry::child(node));
                node
            }
        };
        let mut from = start;
        let mut whole_chunks = false;
        while from < end {
            let last = from | (CHUNK_BYTES - 1);
            let to = last.saturating_add(1).min(end);
            let at = index(from, CHUNK_BITS, NODE_ENTRIES);
            let entry = self.nodes[node as usize][at];
            if from.is_multiple_of(CHUNK_BYTES) && to == last.wrapping_add(1) {
                if let Span::Child(leaf) = entry.span() {
                    self.free_leaf(leaf);
                }
                self.nodes[node as usize][at] = Entry::whole(id);
                whole_chunks = true;
            } else {
                match entry.span() {
                    Span::Child(leaf) => {
                        self.fill_leaf(leaf, from, to, id);
                        self.release_leaf_if_uniform(node, leaf, from, to, id);
                    }
                    Span::Whole(owner) if owner == id => {}
                    Span::Whole(owner) => {
                        let leaf = self.new_leaf(owner);
                        self.nodes[node as usize][at] = Entry::child(leaf);
                        self.fill_leaf(leaf, from, to, id);
                    }
                }
            }
            from = to;
        }
        // Only a clearing of whole chunks is worth a look at 16,384 entries.
        if id == 0 && whole_chunks && self.nodes[node as usize].iter().all(|e| e.0 == 0) {
            self.free_nodes.push(node);
            self.set_root_entry(start, Entry::default());
        }
    }

    /// Writes the granules of `start..end`, which lies inside the leaf's chunk.
    #[inline]
    fn fill_leaf(&mut self, leaf: u32, start: u64, end: u64, id: u32) {
        let mut first = index(start, GRANULE_BITS, LEAF_ENTRIES);
        let head = (start & (GRANULE_BYTES - 1)) as usize;
        let after = ((end - 1) >> GRANULE_BITS) as usize % LEAF_ENTRIES + 1;
        let tail = (end & (GRANULE_BYTES - 1)) as usize;
        if head != 0 {
            let to = if first + 1 == after && tail != 0 { tail } else { GRANULE_BYTES as usize };
            self.fill_granule(leaf, first, head, to, id);
            first += 1;
            if first == after {
                return;
            }
        }
        let whole_end = if tail == 0 { after } else { after - 1 };
        if first < whole_end {
            self.fill_granules(leaf, first, whole_end, id);
        }
        if tail != 0 {
            self.fill_granule(leaf, whole_end, 0, tail, id);
        }
    }

    /// Whole granules `first..after`.
    #[inline]
    fn fill_granules(&mut self, leaf: u32, first: usize, after: usize, id: u32) {
        let granules = &mut self.leaves[leaf as usize][first..after];
        let mut were_used = 0;
        let mut any = 0;
        for granule in granules.iter_mut() {
            were_used += u16::from(*granule != 0);
            any |= *granule;
        }
        if any & MIXED != 0 {
            self.free_mixed.extend(granules.iter().filter(|g| **g & MIXED != 0).map(|g| (*g & !MIXED) >> 4));
        }
        granules.fill(full(id));
        let used = &mut self.leaf_used[leaf as usize];
        *used -= were_used;
        if id != 0 {
            *used += (after - first) as u16;
        }
    }

    /// Bytes `from..to` of one granule, not all 16.
    #[inline]
    fn fill_granule(&mut self, leaf: u32, at: usize, from: usize, to: usize, id: u32) {
        let old = self.leaves[leaf as usize][at];
        // The common cases need no look at single bytes: a tail on an empty granule, and its end.
        let new = if from == 0 && old == 0 {
            if id == 0 { 0 } else { full(id) | to as u32 }
        } else if from == 0 && id == 0 && old & MIXED == 0 && (old & 15).wrapping_sub(1) < to as u32 {
            0
        } else {
            self.fill_bytes(old, from, to, id)
        };
        self.leaves[leaf as usize][at] = new;
        let used = &mut self.leaf_used[leaf as usize];
        *used = *used + u16::from(new != 0) - u16::from(old != 0);
    }

    /// The entry that `old` becomes when its bytes `from..to` go to `id`.
    #[inline(never)]
    fn fill_bytes(&mut self, old: u32, from: usize, to: usize, id: u32) -> u32 {
        let mut bytes = self.granule_bytes(old);
        bytes[from..to].fill(id);
        // A granule is plain when one owner holds a prefix of it and nobody the rest.
        let owner = bytes[0];
        let valid = bytes.iter().take_while(|b| **b == owner).count();
        let plain = if owner == 0 { valid == 16 } else { bytes[valid..].iter().all(|b| *b == 0) };
        let old_index = (old & MIXED != 0).then_some((old & !MIXED) >> 4);
        if plain {
            self.free_mixed.extend(old_index);
            return if owner == 0 { 0 } else { full(owner) | (valid as u32 & 15) };
        }
        let index = match old_index.or_else(|| self.free_mixed.pop()) {
            Some(index) => {
                self.mixed[index as usize] = bytes;
                index
            }
            None => {
                self.mixed.push(bytes);
                self.mixed.len() as u32 - 1
            }
        };
        MIXED | (index << 4)
    }

    fn granule_bytes(&self, granule: u32) -> [u32; 16] {
        if granule & MIXED != 0 {
            return self.mixed[(granule & !MIXED) as usize >> 4];
        }
        let mut bytes = [granule >> 4; 16];
        if granule & 15 != 0 {
            bytes[(granule & 15) as usize..].fill(0);
        }
        bytes
    }

    /// Empty leaves go back; so do those of one owner, when enough of the leaf was just filled for
    /// the check to cost less than the fill.
    #[inline]
    fn release_leaf_if_uniform(&mut self, node: u32, leaf: u32, start: u64, end: u64, id: u32) {
        let used = usize::from(self.leaf_used[leaf as usize]);
        let owner = if used == 0 {
            0
        } else if used == LEAF_ENTRIES
            && end - start >= CHUNK_BYTES / 4
            && self.leaves[leaf as usize].iter().all(|g| *g == full(id))
        {
            id
        } else {
            return;
        };
        self.free_leaf(leaf);
        self.nodes[node as usize][index(start, CHUNK_BITS, NODE_ENTRIES)] = Entry::whole(owner);
    }

    fn new_leaf(&mut self, owner: u32) -> u32 {
        let used = if owner == 0 { 0 } else { LEAF_ENTRIES as u16 };
        if let Some(leaf) = self.free_leaves.pop() {
            if owner != 0 {
                self.leaves[leaf as usize].fill(full(owner));
            }
            self.leaf_used[leaf as usize] = used;
            return leaf;
        }
        self.leaves.push([full(owner); LEAF_ENTRIES]);
        self.leaf_used.push(used);
        self.leaves.len() as u32 - 1
    }

    /// Leaves in the pool are all zero, so that a block which comes and goes alone in its chunk
    /// costs no clearing of 16 KB each time.
    fn free_leaf(&mut self, leaf: u32) {
        if self.leaf_used[leaf as usize] != 0 {
            self.fill_granules(leaf, 0, LEAF_ENTRIES, 0);
        }
        self.free_leaves.push(leaf);
    }

    fn new_node(&mut self, owner: u32) -> u32 {
        if let Some(node) = self.free_nodes.pop() {
            self.nodes[node as usize].fill(Entry::whole(owner));
            return node;
        }
        self.nodes.push([Entry::whole(owner); NODE_ENTRIES]);
        self.nodes.len() as u32 - 1
    }

    fn free_node(&mut self, node: u32) {
        for at in 0..NODE_ENTRIES {
            if let Span::Child(leaf) = self.nodes[node as usize][at].span() {
                self.free_leaf(leaf);
            }
        }
        self.free_nodes.push(node);
    }

    /// Whether nobody owns any byte of `start..end`.
    #[inline]
    pub fn is_clear(&self, start: u64, end: u64) -> bool {
        if start >= end {
            return true;
        }
        if (start ^ (end - 1)) >> CHUNK_BITS == 0
            && start.is_multiple_of(GRANULE_BYTES)
            && let Span::Child(node) = self.root_entry(start).span()
            && let Span::Child(leaf) =
                self.nodes[node as usize][index(start, CHUNK_BITS, NODE_ENTRIES)].span()
        {
            let first = index(start, GRANULE_BITS, LEAF_ENTRIES);
            let after = index(end - 1, GRANULE_BITS, LEAF_ENTRIES) + 1;
            let any = self.leaves[leaf as usize][first..after].iter().fold(0, |any, g| any | g);
            if any == 0 {
                return true;
            }
        }
        let mut clear = true;
        self.owned_runs(start, end, |_, _, _| {
            clear = false;
            false
        });
        clear
    }

    /// Calls `visit(from, to, id)` for each maximal stretch of `start..end` that one id owns, in
    /// address order, until `visit` returns false. Stretches of neighbouring granules, chunks and
    /// GBs are joined.
    pub fn owned_runs(&self, start: u64, end: u64, mut visit: impl FnMut(u64, u64, u32) -> bool) {
        let mut run = Run { from: start, to: start, id: 0 };
        let mut at = start;
        while at < end {
            let root = self.root_entry(at);
            let Span::Child(node) = root.span() else {
                let to = (at | ((1 << NODE_BITS) - 1)).saturating_add(1).min(end);
                if !run.extend(at, to, root.0 & !Entry::WHOLE, &mut visit) {
                    return;
                }
                at = to;
                continue;
            };
            let entry = self.nodes[node as usize][index(at, CHUNK_BITS, NODE_ENTRIES)];
            let Span::Child(leaf) = entry.span() else {
                let to = (at | (CHUNK_BYTES - 1)).saturating_add(1).min(end);
                if !run.extend(at, to, entry.0 & !Entry::WHOLE, &mut visit) {
                    return;
                }
                at = to;
                continue;
            };
            let granule = self.leaves[leaf as usize][index(at, GRANULE_BITS, LEAF_ENTRIES)];
            let to = (at | (GRANULE_BYTES - 1)).saturating_add(1).min(end);
            if granule & (MIXED | 15) == 0 {
                if !run.extend(at, to, granule >> 4, &mut visit) {
                    return;
                }
            } else {
                let bytes = self.granule_bytes(granule);
                for byte in at..to {
                    if !run.extend(byte, byte + 1, bytes[(byte & 15) as usize], &mut visit) {
                        return;
                    }
                }
            }
            at = to;
        }
        if run.id != 0 {
            visit(run.from, run.to, run.id);
        }
    }

    /// Bytes this map has taken from the allocator (capacity, not resident memory).
    pub fn memory_bytes(&self) -> usize {
        let roots = 1 + self.high_roots.len();
        roots * size_of::<[Entry; ROOT_ENTRIES]>()
            + self.nodes.capacity() * size_of::<[Entry; NODE_ENTRIES]>()
            + self.leaves.capacity() * size_of::<Leaf>()
            + self.leaf_used.capacity() * 2
            + self.mixed.capacity() * 64
            + (self.free_nodes.capacity() + self.free_leaves.capacity() + self.free_mixed.capacity()) * 4
    }

    /// Leaves (16 KB each, one per 64 KB of address space) in use now.
    pub fn live_leaves(&self) -> usize {
        self.leaves.len() - self.free_leaves.len()
    }
}

/// The stretch that [`ObjectPages::owned_runs`] is growing.
struct Run {
    from: u64,
    to: u64,
    id: u32,
}

impl Run {
    /// Adds `from..to`; false when the visitor has seen enough.
    fn extend(&mut self, from: u64, to: u64, id: u32, visit: &mut impl FnMut(u64, u64, u32) -> bool) -> bool {
        if id == self.id {
            self.to = to;
            return true;
        }
        let more = self.id == 0 || visit(self.from, self.to, self.id);
        *self = Self { from, to, id: if more { id } else { 0 } };
        more
    }
}
