//! When objects cost what: the misses that the model finds, by slices of the run's time.
//!
//! What an object did in a slice is what its cells have at the slice's end, less what they had before their first finding in it: of each finding
//! no more is done than looking whether it is the first.
//!
//! Time is instructions. Slices end where a batch is handed over to the model, and what is live is noted then; they are over when what
//! was found for that batch is booked. When there are too many, two become one.

use crate::batch::{Finding, Stretch};
use crate::block_table::BlockTable;
use crate::cells::Cells;
use crate::misses::Misses;
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

/// What a cell, or an object, did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    /// Cycles of wait beyond hits of the first level. A line that was prefetched takes less than the miss that it was counted as.
    cost: i64,
    dram_reads: u64,
}

impl Amount {
    fn of(costs: &Costs, misses: &Misses) -> Self {
        Self { cost: costs.of(misses), dram_reads: misses.llc }
    }
}

/// Numbers of objects with the bytes of their live blocks.
type Live = Vec<(u32, u64)>;

/// The slices so far.
pub struct Timeline {
    /// Of data, and of code.
    costs: [Costs; 2],
    /// What one is to be long.
    length: u64,
    /// Where the one under way is to end.
    due: u64,
    /// Where slices end whose last batches are not booked yet, and what was live there.
    ends: VecDeque<(u64, Live)>,
    /// Where those that are over end, and what there was in them: object numbers in the place of rows.
    over: Vec<(u64, Vec<SliceUse>)>,
    /// The cells with findings in the slice under way, which has this number.
    met: Vec<Met>,
    slice: u32,
}

/// What findings add to the wait, in cycles: one of each kind.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    l1: i64,
    l2: i64,
    llc: i64,
    l2_prefetched: i64,
    llc_prefetched: i64,
    dtlb: i64,
    stlb: i64,
    /// An entry that a walk reads, where it is not known what the walk takes.
    entry: i64,
    coherence: i64,
    remote: i64,
    remote_prefetched: i64,
}

impl Costs {
    /// Of data.
    fn of_data(machine: &MachineInfo) -> Self {
        let one = |count: fn(&mut Counts) -> &mut u64| one_more(machine, count);
        Self {
            l1: one(|it| &mut it.l1_load_misses),
            l2: one(|it| &mut it.l2_load_misses),
            llc: one(|it| &mut it.llc_load_misses),
            l2_prefetched: one(|it| &mut it.l2_prefetched),
            llc_prefetched: one(|it| &mut it.llc_prefetched),
            dtlb: one(|it| &mut it.dtlb_misses),
            stlb: one(|it| &mut it.stlb_misses),
            entry: one(|it| &mut it.page_walk_accesses),
            coherence: one(|it| &mut it.shared.coherence_misses),
            remote: one(|it| &mut it.numa.remote_misses),
            remote_prefetched: one(|it| &mut it.numa.remote_prefetched),
        }
    }

    /// Of instructions that are fetched.
    fn of_code(machine: &MachineInfo) -> Self {
        let one = |count: fn(&mut Counts) -> &mut u64| one_more(machine, count);
        Self {
            l1: one(|it| &mut it.fetched.l1i_misses),
            l2: one(|it| &mut it.fetched.l2i_misses),
            llc: one(|it| &mut it.fetched.llci_misses),
            l2_prefetched: 0,
            llc_prefetched: 0,
            ..Self::of_data(machine)
        }
    }

    /// All of these findings.
    fn of(&self, misses: &Misses) -> i64 {
        let walks = match misses.walk_cycles {
            0 => self.entry * misses.walk_accesses as i64,
            known => known as i64,
        };
        let counted = [
            (self.l1, misses.l1),
            (self.l2, misses.l2),
            (self.llc, misses.llc),
            (self.l2_prefetched, misses.l2_prefetched),
            (self.llc_prefetched, misses.llc_prefetched),
            (self.dtlb, misses.dtlb),
            (self.stlb, misses.stlb),
            (self.coherence, misses.coherence),
            (self.remote, misses.numa.remote_misses),
            (self.remote_prefetched, misses.numa.remote_prefetched),
        ];
        walks + counted.into_iter().map(|(cost, count)| cost * count as i64).sum::<i64>()
    }
}

/// What one more adds to the wait of many: so many that no term is below 0.
fn one_more(machine: &MachineInfo, count: fn(&mut Counts) -> &mut u64) -> i64 {
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
        fetched: Fetched { fetches: 1 << 24, l1i_misses: 1 << 20, l2i_misses: 1 << 16, llci_misses: 1 << 12 },
        ..Counts::default()
    };
    let mut more = many;
    *count(&mut more) += 1;
    let wait = |counts| machine.wait_cycles(counts) as i64;
    wait(&more) - wait(&many)
}

/// A cell that has findings in the slice under way.
#[derive(Clone, Copy, Debug)]
struct Met {
    /// The thread's number, and the cell's among its own.
    thread: u32,
    cell: u32,
    object: u32,
    is_fetch: bool,
    /// What it had before.
    before: Amount,
}

impl Timeline {
    /// Nothing yet.
    pub fn new(machine: &MachineInfo) -> Self {
        Self {
            costs: [Costs::of_data(machine), Costs::of_code(machine)],
            length: FIRST_LENGTH,
            due: FIRST_LENGTH,
            ends: VecDeque::new(),
            over: Vec::new(),
            met: Vec::new(),
            slice: 1,
        }
    }

    /// Books what the model found for some accesses of a thread, whose cells these are.
    pub fn book(
        &mut self,
        finding: Finding,
        found: Stretch<'_>,
        (thread, cells): (usize, &mut Cells),
        blocks: &BlockTable,
    ) {
        let Self { costs, met, slice, .. } = self;
        cells.book(finding, found, *slice, |cells, cell, misses| {
            let attr = cells.reference_of(cell).map(|reference| blocks.references()[reference as usize].attr);
            let is_fetch = attr.is_some_and(|attr| attr.kind() == AccessKind::Fetch);
            let object = cells.object_of(cell);
            if object != NOBODY {
                let before = Amount::of(&costs[usize::from(is_fetch)], misses);
                met.push(Met { thread: thread as u32, cell, object, is_fetch, before });
            }
        });
    }

    /// What each object did in the slice under way. `cells`: a thread's.
    fn amounts<'c>(&self, cells: impl Fn(usize) -> Option<&'c Cells>) -> FxHashMap<u32, Amount> {
        let mut amounts: FxHashMap<u32, Amount> = FxHashMap::default();
        for met in &self.met {
            let Some(cells) = cells(met.thread as usize) else { continue };
            let now = Amount::of(&self.costs[usize::from(met.is_fetch)], &cells.misses_of(met.cell));
            let amount = amounts.entry(met.object).or_default();
            amount.cost += now.cost - met.before.cost;
            amount.dram_reads += now.dram_reads.saturating_sub(met.before.dram_reads);
        }
        amounts
    }

    /// A batch is handed over, and the process has executed so many instructions: ends the slice if it is long enough.
    pub fn hands_over(&mut self, instructions: u64, objects: &ObjectTable) {
        if instructions >= self.due {
            self.ends.push_back((instructions, live(objects)));
            self.due = instructions + self.length;
        }
    }

    /// All is booked that was found up to the batch that was handed over then. `cells`: a thread's.
    pub fn has_booked<'c>(&mut self, instructions: u64, cells: impl Fn(usize) -> Option<&'c Cells>) {
        let Some((end, live)) = self.ends.pop_front_if(|(end, _)| *end <= instructions) else { return };
        let uses = self.uses(live, cells);
        self.over.push((end, uses));
        self.met.clear();
        self.slice += 1;
        if self.over.len() >= MOST_SLICES {
            self.join_pairs();
        }
    }

    /// What there is in the slice under way, small ones joined.
    fn uses<'c>(&self, live: Live, cells: impl Fn(usize) -> Option<&'c Cells>) -> Vec<SliceUse> {
        let mut live: FxHashMap<u32, u64> = live.into_iter().collect();
        let row = |object: u32| Some(ObjectIx(object));
        let amounts = self.amounts(cells);
        let mut uses: Vec<SliceUse> = (amounts.into_iter())
            .map(|(object, Amount { cost, dram_reads })| SliceUse {
                object: row(object),
                cost: cost.max(0) as u64,
                dram_reads: Some(dram_reads),
                live_bytes: live.remove(&object),
                ..SliceUse::default()
            })
            .collect();
        uses.extend(live.into_iter().map(|(object, live_bytes)| SliceUse {
            object: row(object),
            live_bytes: Some(live_bytes),
            ..SliceUse::default()
        }));
        uses.sort_unstable_by_key(|it| it.object);
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
        self.met.iter_mut().for_each(|met| met.before = Amount::default());
    }

    /// All slices until now, when so many instructions have been executed, and what objects did in them. `cells`: a thread's; `row`: an object's row.
    pub fn slices<'c>(
        &self,
        instructions: u64,
        objects: &ObjectTable,
        cells: impl Fn(usize) -> Option<&'c Cells>,
        row: impl Fn(u32) -> Option<ObjectIx>,
    ) -> (Vec<Slice>, Vec<SliceUse>) {
        let (mut slices, mut all) = (Vec::<Slice>::new(), Vec::new());
        let mut begin = 0;
        let last = (instructions, self.uses(live(objects), cells));
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
