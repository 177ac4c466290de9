//! The TLBs and the walker: one level after another over the references of a chunk.
//!
//! ```text
//! references ──► dTLB ── positions that missed ──► STLB ── positions that missed ──► walks
//! ```
//!
//! No level hears from the next one, so each can run over all references before the next begins.

use super::clock_tlb::ClockTlb;
use super::level::{Geometry, Level, Loop, SetArray, View};
use super::tlb::{StampTlb, Tlb1};
use crate::batch::Outcome;
use crate::machine::{MachineDescription, Policy, TlbDescription, TlbEntries};
use crate::page_sizes::{PageSize, PageSizes};
use crate::plain;
use crate::simd::{Kernel, SimdLevel, Task, dispatch};
use crate::walker::{PageWalker, WalkReads};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use memlens_types::AccessAttr;

/// References between two drains of the queues: the queues stay in the host's L1 and L2.
pub(super) const CHUNK: usize = 4096;

/// The line size that the hot loops are made for, as a power of two.
pub(super) const HOT_LINE_SHIFT: u32 = 6;

const PAGE_SHIFT: u32 = PageSize::Size4K.shift();
/// Page numbers that are sign-extended from this many bits fit the tags of a TLB with
/// [`MIN_SETS`] sets: all addresses of x86-64 and AArch64 with four-level tables.
const PAGE_BITS: u32 = 37;
const MIN_SETS: u64 = 128;

fn folded(page: u64) -> u64 {
    page & ((1 << PAGE_BITS) - 1)
}

/// The page number of a folded one.
fn unfolded(folded: u64) -> u64 {
    let unused = 64 - PAGE_BITS;
    ((folded << unused) as i64 >> unused) as u64 & (u64::MAX >> PAGE_SHIFT)
}

#[derive(Clone, Debug)]
enum Tlb<const SLOTS: usize, const ENTRIES: usize> {
    Clock(ClockTlb),
    /// LRU, at least [`MIN_SETS`] sets.
    Sets(Level),
    /// LRU of any shape.
    Stamps(StampTlb<SLOTS, ENTRIES>),
}

type First = Tlb<1024, 256>;
type Second = Tlb<16384, 16384>;

impl<const SLOTS: usize, const ENTRIES: usize> Tlb<SLOTS, ENTRIES> {
    /// None if it is too large for this engine, or of another policy.
    fn new(description: TlbEntries, in_sets: bool) -> Option<Self> {
        let TlbEntries { entries, ways, .. } = description;
        let sets = u64::from(entries / ways);
        match description.policy() {
            Policy::Clock if sets == 1 => ClockTlb::new(entries).map(Self::Clock),
            Policy::Lru => {
                let stamps = StampTlb::new(entries, ways)?;
                Some(if in_sets && sets >= MIN_SETS && ways <= 32 {
                    Self::Sets(Level::new(sets, ways))
                } else {
                    Self::Stamps(stamps)
                })
            }
            _ => None,
        }
    }

    fn by_page_size(description: Option<&TlbDescription>, in_sets: bool) -> Option<[Option<Self>; 3]> {
        let mut tlbs = [None, None, None];
        let by_size = description.map(TlbDescription::by_page_size).unwrap_or_default();
        for (tlb, entries) in tlbs.iter_mut().zip(by_size) {
            if let Some(entries) = entries {
                *tlb = Some(Self::new(entries, in_sets)?);
            }
        }
        Some(tlbs)
    }

    /// Uses a page, and says whether it was there.
    fn touch(&mut self, page: u64) -> bool {
        self.make_room_for(page);
        match self {
            Self::Clock(tlb) => tlb.touch(page),
            Self::Sets(level) => level.touch(folded(page)),
            Self::Stamps(tlb) => touch(tlb, page),
        }
    }

    /// Whether the page number fits the tags, and folded has the set that it has in full.
    #[inline(always)]
    fn fits(&self, page: u64) -> bool {
        match self {
            Self::Sets(level) if level.sets().is_power_of_two() => unfolded(folded(page)) == page,
            // Of any other number of sets the sign would decide, too.
            Self::Sets(_) => page >> (PAGE_BITS - 1) == 0,
            _ => true,
        }
    }

    /// Goes on with stamps if the page number does not fit the tags.
    #[cold]
    fn make_room_for(&mut self, page: u64) {
        if !self.fits(page)
            && let Self::Sets(level) = self
            && let Some(mut stamps) = StampTlb::new((level.sets() * level.ways()) as u32, level.ways() as u32)
        {
            level.lines().for_each(|(line, _)| stamps.fill(unfolded(line)));
            *self = Self::Stamps(stamps);
        }
    }

    /// Puts the same pages into the obvious model's TLB.
    fn copy_to(&self, cache: &mut plain::Cache) {
        let mut fill = |line| {
            cache.fill(plain::Line { line, dirty: false, sole: true });
        };
        match self {
            Self::Clock(tlb) => {
                let (pages, hand) = tlb.state();
                let (pages, referenced): (Vec<u64>, Vec<bool>) = pages.unzip();
                pages.into_iter().for_each(&mut fill);
                cache.set_clock(&referenced, hand);
            }
            Self::Sets(level) => level.lines().for_each(|(line, _)| fill(unfolded(line))),
            Self::Stamps(tlb) => tlb.pages().into_iter().for_each(fill),
        }
    }
}

#[inline(always)]
fn touch(tlb: &mut impl Tlb1, page: u64) -> bool {
    let hit = tlb.lookup(page);
    if !hit {
        tlb.fill(page);
    }
    hit
}

/// Every page is there: a machine without TLBs.
struct NoTlb;

impl Tlb1 for NoTlb {
    fn lookup(&mut self, _: u64) -> bool {
        true
    }

    fn fill(&mut self, _: u64) {}
}

/// A walk whose reads come before the lines of the access at `position`.
#[derive(Clone, Copy, Debug)]
pub(super) struct WalkEvent {
    pub(super) position: u32,
    /// Place in [`Outcome::walks`].
    pub(super) walk: usize,
    pub(super) reads: WalkReads,
}

/// Positions in a chunk that are appended without a branch.
#[derive(Clone, Debug)]
struct Positions {
    room: Box<[u32; CHUNK]>,
    len: usize,
}

impl Positions {
    fn new() -> Option<Self> {
        Some(Self { room: vec![0; CHUNK].into_boxed_slice().try_into().ok()?, len: 0 })
    }

    #[inline(always)]
    fn push_if(&mut self, position: u32, is_wanted: bool) {
        self.room[self.len % CHUNK] = position;
        self.len += usize::from(is_wanted);
    }

    fn as_slice(&self) -> &[u32] {
        &self.room[..self.len.min(CHUNK)]
    }
}

/// All that turns addresses into pages.
#[derive(Clone, Debug)]
pub(super) struct Translation {
    page_sizes: PageSizes,
    is_modelled: bool,
    first: [Option<First>; 3],
    second: [Option<Second>; 3],
    walker: Option<PageWalker>,
    first_missed: Positions,
    second_missed: Positions,
    /// References to two lines of one page.
    straddling: Vec<u32>,
    events: Vec<WalkEvent>,
}

impl Translation {
    /// None if a TLB is not one for this engine.
    pub(super) fn new(machine: &MachineDescription) -> Option<Self> {
        Some(Self {
            page_sizes: PageSizes::new(),
            is_modelled: machine.dtlb.is_some(),
            first: Tlb::by_page_size(machine.dtlb.as_ref(), false)?,
            second: Tlb::by_page_size(machine.stlb.as_ref(), true)?,
            walker: PageWalker::new(&machine.walker),
            first_missed: Positions::new()?,
            second_missed: Positions::new()?,
            straddling: Vec::new(),
            events: Vec::new(),
        })
    }

    pub(super) fn page_sizes(&mut self) -> &mut PageSizes {
        &mut self.page_sizes
    }

    /// Whether [`Self::run`] can be used.
    pub(super) fn is_uniform(&self) -> bool {
        self.page_sizes.is_uniform() && (!self.is_modelled || self.first[0].is_some())
    }

    /// Translates the chunk's references from `from` on, up to the first that is none of data within
    /// one page, and returns that one's position. `first_index` is the chunk's place in the batch.
    pub(super) fn run(
        &mut self,
        simd: SimdLevel,
        addrs: &[u64],
        attrs: &[AccessAttr],
        from: usize,
        first_index: u32,
        out: &mut Outcome,
    ) -> usize {
        self.events.clear();
        self.straddling.clear();
        let mut at = from;
        loop {
            self.first_missed.len = 0;
            let (next, is_wide) = dispatch(simd, FirstLevel { translation: self, addrs, attrs, from: at });
            at = next;
            if self.first_missed.len > 0 {
                let missed = self.first_missed.as_slice();
                out.dtlb_misses.extend(missed.iter().map(|position| first_index + position));
                self.second_level(simd, addrs, first_index, out);
            }
            if !is_wide {
                return at;
            }
            if let Some(second) = &mut self.second[0] {
                second.make_room_for(addrs[at] >> PAGE_SHIFT);
            }
        }
    }

    fn second_level(&mut self, simd: SimdLevel, addrs: &[u64], first_index: u32, out: &mut Outcome) {
        let missed = self.first_missed.as_slice();
        self.second_missed.len = 0;
        match &mut self.second[0] {
            Some(Tlb::Sets(level)) => {
                dispatch(simd, SecondLevel { level, missed, addrs, out: &mut self.second_missed });
            }
            Some(tlb) => {
                for &position in missed {
                    let hit = tlb.touch(addrs[position as usize] >> PAGE_SHIFT);
                    self.second_missed.push_if(position, !hit);
                }
            }
            None => self.second_missed.clone_from(&self.first_missed),
        }
        if self.second_missed.len > 0 {
            self.walk_missed(addrs, first_index, out);
        }
    }

    #[inline(never)]
    fn walk_missed(&mut self, addrs: &[u64], first_index: u32, out: &mut Outcome) {
        for &position in self.second_missed.as_slice() {
            let event = walk(
                &mut self.walker,
                addrs[position as usize],
                PageSize::Size4K,
                position,
                first_index + position,
                out,
            );
            self.events.extend(event);
        }
    }

    /// The walks of the last [`Self::run`], by position.
    pub(super) fn events(&self) -> &[WalkEvent] {
        &self.events
    }

    /// Positions of the last [`Self::run`]'s references to more than one line.
    pub(super) fn straddling(&self) -> &[u32] {
        &self.straddling
    }

    /// Translates one address of any kind of page.
    pub(super) fn translate(
        &mut self,
        vaddr: u64,
        position: u32,
        index: u32,
        out: &mut Outcome,
    ) -> Option<WalkEvent> {
        if !self.is_modelled {
            return None;
        }
        let size = if self.page_sizes.is_uniform() { PageSize::Size4K } else { self.page_sizes.at(vaddr) };
        let page = vaddr >> size.shift();
        if self.first[size as usize].as_mut().is_some_and(|tlb| tlb.touch(page)) {
            return None;
        }
        out.dtlb_misses.push(index);
        if self.second[size as usize].as_mut().is_some_and(|tlb| tlb.touch(page)) {
            return None;
        }
        walk(&mut self.walker, vaddr, size, position, index, out)
    }

    /// Puts the same state into the obvious model's parts.
    pub(super) fn copy_to(
        &self,
        page_sizes: &mut PageSizes,
        dtlb: &mut [Option<plain::Cache>; 3],
        stlb: &mut [Option<plain::Cache>; 3],
        walker: &mut Option<PageWalker>,
    ) {
        page_sizes.clone_from(&self.page_sizes);
        for (cache, tlb) in dtlb.iter_mut().flatten().zip(self.first.iter().flatten()) {
            tlb.copy_to(cache);
        }
        for (cache, tlb) in stlb.iter_mut().flatten().zip(self.second.iter().flatten()) {
            tlb.copy_to(cache);
        }
        walker.clone_from(&self.walker);
    }
}

/// References to the first level. Returns where it stopped, and whether because the page's number does not
/// fit the second level.
struct FirstLevel<'a> {
    translation: &'a mut Translation,
    addrs: &'a [u64],
    attrs: &'a [AccessAttr],
    from: usize,
}

impl Task for FirstLevel<'_> {
    type Output = (usize, bool);

    #[inline(always)]
    fn run<K: Kernel>(self, _: K) -> (usize, bool) {
        let Self { translation, addrs, attrs, from } = self;
        let Translation { first, second, first_missed, straddling, .. } = translation;
        let (first, second) = (&mut first[0], &second[0]);
        let fits = |page| second.as_ref().is_none_or(|second| second.fits(page));
        match first {
            Some(Tlb::Clock(tlb)) if tlb.is_narrow() => {
                let mut cursor = tlb.cursor::<false>();
                let result = first_level(&mut cursor, addrs, attrs, from, first_missed, straddling, fits);
                let registers = cursor.registers();
                tlb.keep(registers);
                result
            }
            Some(Tlb::Clock(tlb)) => {
                let mut cursor = tlb.cursor::<true>();
                let result = first_level(&mut cursor, addrs, attrs, from, first_missed, straddling, fits);
                let registers = cursor.registers();
                tlb.keep(registers);
                result
            }
            Some(Tlb::Stamps(tlb)) => first_level(tlb, addrs, attrs, from, first_missed, straddling, fits),
            Some(Tlb::Sets(_)) | None => {
                first_level(&mut NoTlb, addrs, attrs, from, first_missed, straddling, fits)
            }
        }
    }
}

/// The pages that missed the first level, in a second level of sets.
struct SecondLevel<'a> {
    level: &'a mut Level,
    missed: &'a [u32],
    addrs: &'a [u64],
    out: &'a mut Positions,
}

impl Task for SecondLevel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let Self { level, missed, addrs, out } = self;
        level.run(SecondLoop { kernel, missed, addrs, out });
    }
}

struct SecondLoop<'a, K> {
    kernel: K,
    missed: &'a [u32],
    addrs: &'a [u64],
    out: &'a mut Positions,
}

impl<K: Kernel> Loop for SecondLoop<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: SetArray, G: Geometry>(self, mut level: View<S, G>) {
        let Self { kernel, missed, addrs, out } = self;
        let Positions { room, len: out_len } = out;
        let mut len = *out_len;
        for &position in missed {
            let page = addrs[position as usize] >> PAGE_SHIFT;
            let (hit, ..) = level.touch(kernel, folded(page), 0);
            room[len % CHUNK] = position;
            len += usize::from(!hit);
        }
        *out_len = len;
    }
}

/// A miss of the second level.
fn walk(
    walker: &mut Option<PageWalker>,
    vaddr: u64,
    size: PageSize,
    position: u32,
    index: u32,
    out: &mut Outcome,
) -> Option<WalkEvent> {
    out.stlb_misses.push(index);
    let reads = walker.as_mut()?.walk(vaddr, size);
    let event = WalkEvent { position, walk: out.walks.len(), reads };
    out.walks.push(reads.walk(index));
    Some(event)
}

/// The loop over all references. Returns where it stopped, and whether because the page's number
/// does not fit the second level.
#[inline(always)]
fn first_level(
    tlb: &mut impl Tlb1,
    addrs: &[u64],
    attrs: &[AccessAttr],
    from: usize,
    missed: &mut Positions,
    straddling: &mut Vec<u32>,
    fits: impl Fn(u64) -> bool,
) -> (usize, bool) {
    const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;
    const LINE_BYTES: u64 = 1 << HOT_LINE_SHIFT;
    let end = addrs.len().min(attrs.len());
    let (addrs, attrs) = (&addrs[..end], &attrs[..end]);
    let Positions { room, len: missed } = missed;
    let (mut at, mut len, mut is_wide) = (from, *missed, false);
    while let (Some(&addr), Some(&attr)) = (addrs.get(at), attrs.get(at)) {
        let size_bytes = u64::from(attr.size_bytes());
        // Bit 2 of the kind is set for fetches only.
        let is_other = attr.0 & 4 != 0;
        if is_other | ((addr & (LINE_BYTES - 1)) + size_bytes > LINE_BYTES) {
            if is_other || (addr & (PAGE_BYTES - 1)) + size_bytes > PAGE_BYTES {
                break;
            }
            straddle(straddling, at as u32);
        }
        let page = addr >> PAGE_SHIFT;
        if !tlb.lookup(page) {
            if !fits(page) {
                is_wide = true;
                break;
            }
            tlb.fill(page);
            room[len % CHUNK] = at as u32;
            len += 1;
        }
        at += 1;
    }
    *missed = len;
    (at, is_wide)
}

/// Adds a position, unless it was added before.
#[inline(never)]
fn straddle(straddling: &mut Vec<u32>, at: u32) {
    if straddling.last() != Some(&at) {
        straddling.push(at);
    }
}
