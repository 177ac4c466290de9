//! When objects cost what: the misses that the model finds, by slices of the run's time.
//!
//! Time is instructions. Slices end where a batch is handed over to the model, and what is live is noted then; they are over when what
//! was found for that batch is booked. When there are too many, two become one.

use crate::batch::{Finding, Stretch};
use crate::block_table::BlockTable;
use crate::cells::Cells;
use memlens_objects::ObjectTable;
use memlens_profile::{
    MOST_SLICES, MachineInfo, ObjectIx, Slice, SliceIx, SliceUse, join_small, join_small_live,
};
use memlens_types::{AccessKind, Counts, Fetched, Numa};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Instructions of the first slices: some batches.
const FIRST_LENGTH: u64 = 1 << 18;

/// The number of no object: of accesses that are not collected.
const NOBODY: u32 = 0;

/// What an object did in a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    /// Cycles of wait beyond hits of the first level. A line that was prefetched takes less than the miss that it was counted as.
    cost: i64,
    dram_reads: u64,
}

/// Numbers of objects with the bytes of their live blocks.
type Live = Vec<(u32, u64)>;

/// The slices so far.
pub struct Timeline {
    costs: Costs,
    /// What one is to be long.
    length: u64,
    /// Where the one under way is to end.
    due: u64,
    /// Where slices end whose last batches are not booked yet, and what was live there.
    ends: VecDeque<(u64, Live)>,
    /// Where those that are over end, and what there was in them: object numbers in the place of rows.
    over: Vec<(u64, Vec<SliceUse>)>,
    /// By number of the object: where in `amounts` it is, and 0 where it has nothing.
    places: Vec<u32>,
    /// Of the slice under way, with the object's number; the first is [`NOBODY`]'s.
    amounts: Vec<(u32, Amount)>,
}

/// What findings add to the wait, in cycles.
struct Costs {
    /// One of each kind, of data and of code.
    of_findings: [[i64; 2]; Finding::ALL.len()],
    /// An entry that a walk reads, where it is not known what the walk takes.
    of_entry: i64,
}

impl Costs {
    fn new(machine: &MachineInfo) -> Self {
        let entry = Counts { page_walk_accesses: 1, ..Counts::default() };
        Self {
            of_findings: Finding::ALL.map(|it| [false, true].map(|is_fetch| Self::of(machine, it, is_fetch))),
            of_entry: machine.wait_cycles(&entry) as i64,
        }
    }

    fn of(machine: &MachineInfo, finding: Finding, is_fetch: bool) -> i64 {
        // Of many, so that no term is below 0.
        let many = Counts {
            loads: 1 << 24,
            l1_load_misses: 1 << 20,
            l2_load_misses: 1 << 16,
            llc_load_misses: 1 << 12,
            dtlb_misses: 1 << 16,
            stlb_misses: 1 << 12,
            l2_prefetched: 1 << 4,
            llc_prefetched: 1 << 2,
            numa: Numa { remote_misses: 1 << 8, remote_prefetched: 1 << 1, ..Numa::default() },
            fetched: Fetched {
                fetches: 1 << 24,
                l1i_misses: 1 << 20,
                l2i_misses: 1 << 16,
                llci_misses: 1 << 12,
            },
            ..Counts::default()
        };
        let mut more = many;
        let count = match (finding, is_fetch) {
            (Finding::L1, false) => &mut more.l1_load_misses,
            (Finding::L2, false) => &mut more.l2_load_misses,
            (Finding::Llc, false) => &mut more.llc_load_misses,
            (Finding::L1, true) => &mut more.fetched.l1i_misses,
            (Finding::L2, true) => &mut more.fetched.l2i_misses,
            (Finding::Llc, true) => &mut more.fetched.llci_misses,
            (Finding::L2Prefetched, false) => &mut more.l2_prefetched,
            (Finding::LlcPrefetched, false) => &mut more.llc_prefetched,
            (Finding::Dtlb, _) => &mut more.dtlb_misses,
            (Finding::Stlb, _) => &mut more.stlb_misses,
            (Finding::Coherence, _) => &mut more.shared.coherence_misses,
            (Finding::Remote, _) => &mut more.numa.remote_misses,
            (Finding::RemotePrefetched, _) => &mut more.numa.remote_prefetched,
            (Finding::L2Prefetched | Finding::LlcPrefetched, true)
            | (Finding::Walk | Finding::Invalidation | Finding::FalseSharing | Finding::UnclearSharing, _)
            | (Finding::Misplaced | Finding::FirstTouch, _) => {
                return 0;
            }
        };
        *count += 1;
        let wait = |counts| machine.wait_cycles(counts) as i64;
        wait(&more) - wait(&many)
    }
}

impl Timeline {
    /// Nothing yet.
    pub fn new(machine: &MachineInfo) -> Self {
        Self {
            costs: Costs::new(machine),
            length: FIRST_LENGTH,
            due: FIRST_LENGTH,
            ends: VecDeque::new(),
            over: Vec::new(),
            places: Vec::new(),
            amounts: vec![(NOBODY, Amount::default())],
        }
    }

    /// What the model found for some accesses of a thread, whose cells these are.
    pub fn book(&mut self, finding: Finding, found: Stretch<'_>, cells: &Cells, blocks: &BlockTable) {
        let costs = self.costs.of_findings[finding as usize];
        let is_read = finding == Finding::Llc;
        let has_fetches = blocks.fetch_rule().is_some();
        let is_fetch = |cell| {
            let attr = cells.reference_of(cell).map(|reference| blocks.references()[reference as usize].attr);
            attr.is_some_and(|attr| attr.kind() == AccessKind::Fetch)
        };
        match finding {
            Finding::Walk => {
                let of_entry = self.costs.of_entry;
                found.for_each_walk(|cell, walk| {
                    let cost = match walk.cycles {
                        0 => of_entry * i64::from(walk.entries_read),
                        cycles => cycles.into(),
                    };
                    self.amount(cells.object_of(cell)).cost += cost;
                });
            }
            _ if costs == [0; 2] && !is_read => {}
            _ => found.for_each(|cell, times| {
                let is_fetch = has_fetches && costs[0] != costs[1] && is_fetch(cell);
                let amount = self.amount(cells.object_of(cell));
                amount.cost += costs[usize::from(is_fetch)] * times as i64;
                amount.dram_reads += if is_read { times } else { 0 };
            }),
        }
    }

    /// Of an object in the slice under way.
    #[inline(always)]
    fn amount(&mut self, object: u32) -> &mut Amount {
        let at = object as usize;
        if at >= self.places.len() {
            self.places.resize(at + 1 + at / 2, 0);
        }
        if self.places[at] == 0 && object != NOBODY {
            self.places[at] = self.amounts.len() as u32;
            self.amounts.push((object, Amount::default()));
        }
        &mut self.amounts[self.places[at] as usize].1
    }

    /// A batch is handed over, and the process has executed so many instructions: ends the slice if it is long enough.
    pub fn hands_over(&mut self, instructions: u64, objects: &ObjectTable) {
        if instructions >= self.due {
            self.ends.push_back((instructions, live(objects)));
            self.due = instructions + self.length;
        }
    }

    /// All is booked that was found up to the batch that was handed over then.
    pub fn has_booked(&mut self, instructions: u64) {
        let Some((end, live)) = self.ends.pop_front_if(|(end, _)| *end <= instructions) else { return };
        let uses = self.uses(live);
        self.over.push((end, uses));
        for (object, _) in self.amounts.drain(1..) {
            self.places[object as usize] = 0;
        }
        if self.over.len() >= MOST_SLICES {
            self.join_pairs();
        }
    }

    /// What there is in the slice under way, small ones joined.
    fn uses(&self, live: Live) -> Vec<SliceUse> {
        let row = |object: u32| Some(ObjectIx(object));
        let mut uses: Vec<SliceUse> = (self.amounts[1..].iter())
            .map(|&(object, Amount { cost, dram_reads })| SliceUse {
                object: row(object),
                cost: cost.max(0) as u64,
                dram_reads: Some(dram_reads),
                ..SliceUse::default()
            })
            .collect();
        for (object, live_bytes) in live {
            let live_bytes = Some(live_bytes);
            match self.places.get(object as usize) {
                Some(&place) if place > 0 => uses[place as usize - 1].live_bytes = live_bytes,
                _ => uses.push(SliceUse { object: row(object), live_bytes, ..SliceUse::default() }),
            }
        }
        join_small(uses)
    }

    /// Two slices become one.
    fn join_pairs(&mut self) {
        self.length *= 2;
        let mut slices = std::mem::take(&mut self.over).into_iter();
        while let Some((end, first)) = slices.next() {
            self.over.push(match slices.next() {
                Some((end, second)) => (end, joined(first, second)),
                None => (end, first),
            });
        }
    }

    /// Forgets what was counted so far, not what the time is.
    pub fn zero(&mut self) {
        for (_, uses) in &mut self.over {
            uses.iter_mut().for_each(|it| (it.cost, it.dram_reads) = (0, Some(0)));
            uses.retain(|it| it.live_bytes.is_some());
        }
        self.amounts.iter_mut().for_each(|(_, amount)| *amount = Amount::default());
    }

    /// All slices until now, when so many instructions have been executed, and what objects did in them; `row` has their rows.
    pub fn slices(
        &self,
        instructions: u64,
        objects: &ObjectTable,
        row: impl Fn(u32) -> Option<ObjectIx>,
    ) -> (Vec<Slice>, Vec<SliceUse>) {
        let (mut slices, mut all) = (Vec::<Slice>::new(), Vec::new());
        let mut begin = 0;
        let last = (instructions, self.uses(live(objects)));
        for (end, uses) in self.over.iter().chain([&last]) {
            let end = (*end).max(begin);
            // What comes without an instruction is in the slice before.
            let is_new = end > begin || slices.is_empty();
            if is_new {
                slices.push(Slice { begin, end });
                begin = end;
            }
            let slice = SliceIx::from_index(slices.len() - 1);
            let in_rows = uses.iter().map(|it| SliceUse {
                slice,
                object: it.object.and_then(|object| row(object.0)),
                ..*it
            });
            let before = if is_new { Vec::new() } else { all.pop().unwrap_or_default() };
            // Objects without a row are others.
            all.push(joined(before, in_rows.collect()));
        }
        (slices, join_small_live(all.into_iter().flatten().collect()))
    }
}

fn live(objects: &ObjectTable) -> Live {
    objects.live_of_sites().map(|(object, bytes)| (object.get(), bytes)).collect()
}

/// What objects did in two slices in a row: what is live at the second one's end is.
fn joined(first: Vec<SliceUse>, second: Vec<SliceUse>) -> Vec<SliceUse> {
    let mut sums: FxHashMap<Option<ObjectIx>, SliceUse> = FxHashMap::default();
    let was = first.into_iter().map(|it| SliceUse { live_bytes: None, ..it });
    for part in was.chain(second) {
        sums.entry(part.object).and_modify(|sum| sum.add(&part)).or_insert(part);
    }
    let mut uses: Vec<SliceUse> = sums.into_values().collect();
    uses.sort_unstable_by_key(|it| it.object);
    join_small(uses)
}
