//! From the pipeline's state to a profile: names, source lines, sums.

mod builder;
mod machine;
mod objects;
mod sites;

pub(crate) use builder::Builder;
pub use machine::machine_info;

use crate::address_space::AddressSpace;
use crate::process::Process;
use crate::references::References;
use crate::windows::Windows;
use memlens_patterns::{Sources, StallParts};
use memlens_profile::{
    Cell, Clock, CodeIx, CodeLocation, ModuleIx, ObjectIx, Profile, Thread as ThreadRow, ThreadIx,
};
use memlens_sim::Rules;
use memlens_symbols::GeneratedNames;
use memlens_types::{AccessKind, Counts, ObjectKind};
use rustc_hash::{FxHashMap, FxHashSet};

/// What cells are of.
struct Touched {
    /// By number of the reference.
    references: Vec<bool>,
    /// Numbers of the objects.
    objects: FxHashSet<u32>,
}

/// Rows of code by number of the reference.
pub(crate) struct CodeRows(Vec<CodeIx>);

impl CodeRows {
    /// No row.
    const NONE: CodeIx = CodeIx(u32::MAX);

    pub(crate) fn of(&self, reference: u32) -> Option<CodeIx> {
        self.0.get(reference as usize).copied().filter(|&code| code != Self::NONE)
    }

    /// References with their rows.
    fn iter(&self) -> impl Iterator<Item = (u32, CodeIx)> {
        (0..).zip(self.0.iter().copied()).filter(|&(_, code)| code != Self::NONE)
    }
}

impl AddressSpace {
    /// Lets the system take back what was read of the modules' files.
    fn release_pages(&self) {
        for symbols in self.modules().iter().filter_map(|module| module.symbols.as_ref()) {
            symbols.release_pages();
        }
    }
}

impl Process {
    /// The profile as of now. What the pipeline cannot know (command, exit code, time) is left empty.
    pub fn profile(&mut self) -> Profile {
        self.make_profile(false)
    }

    /// As [`Self::profile`], when nothing more is recorded: what the threads kept makes room for it. Later
    /// profiles lack what is in this one.
    pub fn last_profile(&mut self) -> Profile {
        self.make_profile(true)
    }

    fn make_profile(&mut self, is_last: bool) -> Profile {
        self.drain();
        self.space.release_pages();
        for thread in self.threads.iter_mut().flatten() {
            thread.settle(&self.blocks);
        }
        let touched = self.touched();
        let mut builder = Builder::new(&self.space);
        builder.generated = self.pid.map(GeneratedNames::of_process).unwrap_or_default();
        builder.profile.machine = machine_info(&self.machine);
        builder.profile.marks = self.marks.clone();
        let code_of = self.code_rows(touched.references, &mut builder);
        // What is read of the files from here on is other parts of them.
        self.space.release_pages();
        builder.objects(touched.objects, &self.dram_writes, self.merge_sites);
        self.space.release_pages();
        for row in &mut builder.profile.objects {
            row.backing = self.backing.get(&row.id).cloned();
        }
        let operands = self.operands(&code_of);
        self.sum_code(&mut builder.profile.code, &code_of, &builder.object_of);
        // Going through windows takes tens of megabytes for a while: before there are fields, paths and cells.
        let stalls = add_patterns(&mut builder, &mut self.windows, &operands, &mut self.address_sources);
        self.space.release_pages();
        builder.fields(self.offsets(), &code_of, &mut self.layouts);
        self.space.release_pages();
        let paths = builder.paths_of_cells(self.windows.paths().0, &operands);
        let Builder { mut profile, object_of, .. } = builder;
        profile.run.clock = Some(Clock::Instructions);
        let cells = |number: usize| Some(self.threads.get(number)?.as_deref()?.references.cells());
        (profile.slices, profile.slice_uses) =
            self.timeline.slices(self.instructions(), self.space.heap.objects(), cells, |object| {
                object_of.get(&object).copied()
            });
        // Encoding comes next, and needs room.
        self.space.release_pages();
        // The largest table comes last: what making the others takes is free again.
        (profile.cells, profile.threads) = self.cells(&code_of, &object_of, is_last);
        match stalls {
            Some(stalls) => stalls.add_to(&mut profile, None),
            None => profile.sum_cells(),
        }
        if !profile.paths.is_empty() {
            profile.divide_among_paths(|cell| paths.of(cell));
        }
        self.attribution(&mut profile);
        profile.note_generated_code();
        profile.note_huge_pages();
        profile.run.instructions = Some(self.instructions());
        profile.run.threads = profile.threads.len() as u32;
        profile.run.pid = None;
        profile.run.primary_cost = "wait_cycles".into();
        profile
    }

    /// The references and objects of all cells.
    fn touched(&self) -> Touched {
        let mut touched = Touched {
            references: vec![false; self.blocks.references().len()],
            objects: FxHashSet::default(),
        };
        for thread in self.threads.iter().flatten() {
            let cells = thread.references.cells().iter(|reference| self.blocks.attr_of(reference));
            for (reference, object, _) in cells {
                touched.references[reference as usize] = true;
                touched.objects.insert(object);
            }
        }
        touched
    }

    /// What each row of code did, before there are cells that say it.
    fn sum_code(&self, code: &mut [CodeLocation], code_of: &CodeRows, object_of: &FxHashMap<u32, ObjectIx>) {
        for thread in self.threads.iter().flatten() {
            let cells = thread.references.cells();
            for (reference, object, counts) in cells.iter(|reference| self.blocks.attr_of(reference)) {
                if let (Some(row), true) = (code_of.of(reference), object_of.contains_key(&object)) {
                    let (kind, _) = self.blocks.attr_of(reference);
                    code[row.index()].counts += &by_the_rules(self.machine.rules, kind, counts);
                }
            }
        }
    }

    /// All cells, thread by thread, and the threads.
    fn cells(
        &mut self,
        code_of: &CodeRows,
        object_of: &FxHashMap<u32, ObjectIx>,
        is_last: bool,
    ) -> (Vec<Cell>, Vec<ThreadRow>) {
        let Self { blocks, threads, machine, .. } = self;
        // The largest table of all should not be moved while it grows.
        let most = threads.iter().flatten().map(|thread| thread.references.cells().count()).sum();
        let mut cells = Vec::with_capacity(most);
        let mut rows = Vec::new();
        for thread in threads.iter_mut().flatten() {
            let index = ThreadIx::from_index(rows.len());
            rows.push(ThreadRow {
                tid: thread.tid,
                name: thread.name.clone(),
                instructions: Some(thread.instructions),
                ..ThreadRow::default()
            });
            let taken = is_last.then(|| std::mem::replace(&mut thread.references, References::new()));
            let taken = taken.map(References::into_cells);
            let counted = taken.as_ref().unwrap_or_else(|| thread.references.cells());
            for (reference, object, counts) in counted.iter(|reference| blocks.attr_of(reference)) {
                let counts = by_the_rules(machine.rules, blocks.attr_of(reference).0, counts);
                if let (Some(code), Some(&object)) = (code_of.of(reference), object_of.get(&object)) {
                    cells.push(Cell { code, object, thread: index, counts: counts.into() });
                }
            }
        }
        join_equal(&mut cells);
        (cells, rows)
    }

    /// Rows of code for these references.
    fn code_rows(&self, touched: Vec<bool>, builder: &mut Builder<'_>) -> CodeRows {
        let references = self.blocks.references();
        // In the order of addresses: then what the debug information says of one place lies beside what
        // it says of the next.
        let mut places: Vec<(u64, u32)> = (0..)
            .zip(references)
            .zip(touched)
            .filter(|&(_, is_touched)| is_touched)
            .map(|((number, code), _)| (self.space.frame_key_in(code.module, code.pc), number))
            .collect();
        places.sort_unstable();
        let mut rows = CodeRows(vec![CodeRows::NONE; references.len()]);
        builder.profile.code.reserve_exact(places.len());
        for (place, reference) in places {
            let known = references[reference as usize];
            let attr = known.attr;
            rows.0[reference as usize] = builder.code(place, known.operand, attr.kind(), attr.size_bytes());
        }
        rows
    }

    /// Operands by their numbers in windows, with their rows of code.
    fn operands(&self, code_of: &CodeRows) -> Vec<(u32, CodeIx)> {
        let references = self.blocks.references();
        let (_, numbers) = self.windows.paths();
        let row = |(reference, code): (u32, CodeIx)| {
            let reference = references.get(reference as usize)?;
            if reference.attr.kind() == AccessKind::Fetch {
                return None;
            }
            Some((*numbers.get(&reference.operand_key())?, code))
        };
        code_of.iter().filter_map(row).collect()
    }

    fn attribution(&self, profile: &mut Profile) {
        let mut attribution = std::mem::take(&mut profile.attribution);
        for object in &profile.objects {
            let accesses = object.counts.accesses();
            if object.kind == ObjectKind::Unknown {
                attribution.unknown_accesses += accesses;
                if let Some(reason) = &object.unknown_reason
                    && accesses > 0
                {
                    *attribution.unknown_reasons.entry(reason.clone()).or_default() += accesses;
                }
            } else {
                attribution.attributed_accesses += accesses;
            }
        }
        let seen = &self.irregularities;
        attribution.truncated_stacks = seen.stacks_cut;
        attribution.lost_events = seen.undefined_blocks + seen.damaged_records;
        if seen.results_unseen > 0 {
            attribution.notes.push(format!(
                "{} allocation calls ended where their result was not seen",
                seen.results_unseen
            ));
        }
        attribution.notes.extend(self.notes_on_names());
        attribution.notes.extend(self.windows.paths().0.notes());
        profile.attribution = attribution;
    }
}

/// How operands go through memory; what comes back says how much of it they wait for.
fn add_patterns(
    builder: &mut Builder<'_>,
    windows: &mut Windows,
    operands: &[(u32, CodeIx)],
    sources: &mut Sources,
) -> Option<StallParts> {
    let Builder { space, profile, object_of, .. } = builder;
    let (patterns, kept, others, _) = windows.patterns();
    let symbols_of = |module: ModuleIx| space.module(module.0 + 1)?.symbols.as_ref();
    let object_of = |_, owner: u32| object_of.get(&owner).copied();
    memlens_patterns::add_patterns(profile, patterns, operands, &object_of, &symbols_of, sources);
    memlens_patterns::stall_parts(profile, (kept, others), operands, &symbols_of)
}

/// What operands of a kind did, as the machine's rules have it.
fn by_the_rules(rules: Rules, kind: AccessKind, mut counts: Counts) -> Counts {
    if rules == Rules::Cachegrind && kind == AccessKind::Modify {
        // Under valgrind's rules a modify misses as a read.
        counts.l1_load_misses += std::mem::take(&mut counts.l1_store_misses);
        counts.l2_load_misses += std::mem::take(&mut counts.l2_store_misses);
        counts.llc_load_misses += std::mem::take(&mut counts.llc_store_misses);
    }
    counts
}

/// The same code may have been seen through several blocks. Joined where they are: there may be many.
fn join_equal(cells: &mut Vec<Cell>) {
    cells.sort_unstable_by_key(|cell| (cell.thread, cell.code, cell.object));
    cells.dedup_by(|next, kept| {
        let is_same = (next.thread, next.code, next.object) == (kept.thread, kept.code, kept.object);
        if is_same {
            kept.counts += &next.counts.get();
        }
        is_same
    });
}
