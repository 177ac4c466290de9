//! Joins the profiles of several processes into one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use memlens_types::{AccessKind, Counts, ObjectKind};

use crate::merged_slices::MergedSlices;
use crate::sum_of_known;
use crate::{
    AccessPattern, BurstInfo, CallPath, Cell, CodeIx, CodeLocation, Field, FieldIx, FieldUse, Frame, FrameIx,
    Module, ModuleIx, Object, ObjectIx, ObjectPattern, PathCell, PathIx, Profile, SliceUse, SourceLine,
    SpinWait, Stack, StackIx, Thread, ThreadIx,
};

/// Why profiles cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// There is nothing to merge.
    #[error("there is no profile to merge")]
    Empty,
    /// Their counts mean different things.
    #[error(
        "profile {position} was modelled on the machine ‘{found}’, the first on ‘{first}’ or with other caches, TLBs, \
         latencies or core"
    )]
    DifferentMachine {
        /// Which profile, from 1.
        position: usize,
        /// Its machine.
        found: String,
        /// The first one's.
        first: String,
    },
    /// One was counted otherwise.
    #[error("profile {position} was collected in mode ‘{found}’, the first in mode ‘{first}’")]
    DifferentMode {
        /// Which profile, from 1.
        position: usize,
        /// Its mode.
        found: String,
        /// The first one's.
        first: String,
    },
    /// One has an index out of range.
    #[error("profile {position} is inconsistent: {problem}")]
    Inconsistent {
        /// Which profile, from 1.
        position: usize,
        /// What is wrong.
        problem: crate::Inconsistency,
    },
}

/// What makes two objects of different processes the same: the allocation stack (build-ids and
/// offsets, so address randomisation does not matter), or a variable's module, name and declaration.
///
/// `occurrence` keeps objects apart that one profile keeps apart (merging by site switched off).
#[derive(PartialEq, Eq, Hash)]
struct ObjectKey {
    kind: ObjectKind,
    site: Option<StackIx>,
    name: Option<String>,
    declared: Option<SourceLine>,
    module: Option<ModuleIx>,
    unknown_reason: Option<String>,
}

/// Where code is: in a module, or, for generated code, at an address of one process.
type CodeSpace = Result<ModuleIx, usize>;
type CodeKey = (CodeSpace, u64, u8, AccessKind, u32);
/// Without the source text and column, which depend on what was readable.
type FrameKey = (CodeSpace, u64, Option<Arc<str>>, Option<Arc<str>>, Option<u32>, bool);

impl Profile {
    /// One profile of several processes: objects with the same site or declaration become one, threads
    /// stay apart, ids are given anew. Linear in the tables.
    ///
    /// What cannot be added is treated thus: command, exit and start are the first profile's; wall time
    /// is the longest; `max_live_bytes` is the largest of any one process, a lower bound of the true
    /// peak; predictions are dropped, because they name objects by number.
    ///
    /// # Errors
    /// When the profiles were modelled on different machines or collected in different modes.
    pub fn merge(profiles: &[Self]) -> Result<Self, MergeError> {
        let first = profiles.first().ok_or(MergeError::Empty)?;
        let mut merger = Merger::new(first);
        for profile in profiles {
            merger.add(profile)?;
        }
        Ok(merger.finish())
    }
}

/// The mode; of samples also the event, because time and events do not add up.
fn how_collected(profile: &Profile) -> String {
    match &profile.run.sampling {
        Some(sampling) => {
            format!("{} ({}, {})", profile.run.mode, sampling.event, sampling.unit.as_str())
        }
        None => profile.run.mode.clone(),
    }
}

/// The profile in the making and where its rows are found. For profiles of which not all are in memory
/// at a time; see [`Profile::merge`] for the rules.
pub struct Merger {
    merged: Profile,
    /// Profiles added.
    added: usize,
    /// They are of processes whose ids say nothing of each other.
    are_apart: bool,
    /// How many of them have a note of how they were collected.
    said: HashMap<String, usize>,
    /// The process of the first, if all are of that one.
    process_id: Option<u32>,
    /// Which profile is being added, from 0.
    position: usize,
    /// Process and thread ids of all rows of `threads`.
    known_threads: HashSet<(Option<u32>, u32)>,
    modules: HashMap<String, ModuleIx>,
    frames: HashMap<FrameKey, FrameIx>,
    stacks: HashMap<Stack, StackIx>,
    objects: HashMap<(ObjectKey, u32), ObjectIx>,
    code: HashMap<CodeKey, CodeIx>,
    paths: HashMap<(Option<PathIx>, FrameIx), PathIx>,
    path_cells: HashMap<(Option<PathIx>, ObjectIx), usize>,
    patterns: HashMap<CodeIx, usize>,
    object_patterns: HashMap<(CodeIx, ObjectIx), usize>,
    fields: HashMap<Field, FieldIx>,
    field_uses: HashMap<(CodeIx, FieldIx), usize>,
    slices: MergedSlices,
    /// Samples of profiles without paths: their path is not known, if any other profile has some.
    without_paths: Vec<PathCell>,
    /// Stall cycles of profiles whose core's cycles are not known.
    stalls_without_core: u64,
    /// All of them so far.
    stalls: u64,
    /// Where the objects of the profile added last are.
    last_objects: Vec<ObjectIx>,
}

/// How the note begins that says of how many profiles one is.
pub const MERGED_FROM: &str = "merged from";
/// How the note ends that a profile has no stalls, where their model knows too little.
pub const NO_STALLS: &str = "There are no stalls, and rows are ranked by the wait.";

/// Of all stall cycles, the part whose core's time may be unknown, as that of short processes is.
const MOST_WITHOUT_CORE: f64 = 0.02;

impl Merger {
    /// Nothing yet; `first` is the profile that will be added first.
    pub fn new(first: &Profile) -> Self {
        let mut run = first.run.clone();
        run.instructions = Some(0);
        run.threads = 0;
        run.notes.clear();
        run.merged_as = None;
        Self {
            merged: Profile { run, machine: first.machine.clone(), ..Profile::default() },
            added: 0,
            are_apart: false,
            said: HashMap::new(),
            process_id: None,
            position: 0,
            known_threads: HashSet::new(),
            modules: HashMap::new(),
            frames: HashMap::new(),
            stacks: HashMap::new(),
            objects: HashMap::new(),
            code: HashMap::new(),
            paths: HashMap::new(),
            path_cells: HashMap::new(),
            patterns: HashMap::new(),
            object_patterns: HashMap::new(),
            fields: HashMap::new(),
            field_uses: HashMap::new(),
            slices: MergedSlices::default(),
            without_paths: Vec::new(),
            stalls_without_core: 0,
            stalls: 0,
            last_objects: Vec::new(),
        }
    }

    /// The profiles are of programs that were started apart, perhaps on several computers: equal ids are of different processes.
    #[must_use]
    pub fn apart(self) -> Self {
        Self { are_apart: true, ..self }
    }

    /// Adds a profile.
    ///
    /// # Errors
    /// As [`Profile::merge`]; nothing was added then.
    pub fn add(&mut self, profile: &Profile) -> Result<(), MergeError> {
        let position = self.added + 1;
        let (found, first) = (&profile.machine.name, &self.merged.machine.name);
        if !profile.machine.is_like(&self.merged.machine) {
            let (found, first) = (found.clone(), first.clone());
            return Err(MergeError::DifferentMachine { position, found, first });
        }
        let (found, first) = (how_collected(profile), how_collected(&self.merged));
        if found != first {
            return Err(MergeError::DifferentMode { position, found, first });
        }
        profile.validate_references().map_err(|problem| MergeError::Inconsistent { position, problem })?;
        self.add_rows(profile, self.added);
        self.process_id = match self.added {
            _ if self.are_apart => None,
            0 => profile.run.pid,
            _ => self.process_id.filter(|&first| profile.run.pid == Some(first)),
        };
        self.added += 1;
        Ok(())
    }

    /// Where each object of the profile that was added last is in the merged one.
    pub fn objects_of_last(&self) -> &[ObjectIx] {
        &self.last_objects
    }

    /// The merged profile.
    pub fn finish(mut self) -> Profile {
        if !self.merged.path_cells.is_empty() {
            for part in std::mem::take(&mut self.without_paths) {
                self.add_path_cell(part);
            }
        }
        // Ranks of a job begin together, what a process starts does not.
        let slices = std::mem::take(&mut self.slices).finish(self.are_apart);
        self.merged.run.clock = slices.as_ref().map(|&(clock, ..)| clock);
        (self.merged.slices, self.merged.slice_uses) =
            slices.map(|(_, slices, uses)| (slices, uses)).unwrap_or_default();
        // Of stalls in an unknown time nobody knows which part of all time they are.
        let all = self.merged.totals().stall_cycles;
        let unknown = self.stalls_without_core as f64 / all.max(1) as f64;
        if unknown > MOST_WITHOUT_CORE && self.merged.run.core_cycles.take().is_some() {
            let note = format!(
                "Stalls are left out: {:.0} % of them are of processes too short for their core to be modelled. memlens report --process shows one by itself.",
                100.0 * unknown
            );
            append_new(&mut self.merged.run.notes, &[note]);
        }
        if self.merged.has_stalls() {
            // Others of the processes do.
            let notes = &mut self.merged.attribution.notes;
            let before = notes.len();
            notes.retain(|note| !note.ends_with(NO_STALLS));
            if notes.len() < before {
                let note = "Of some processes it is not known how much of the wait other work hides: the stalls are the others'. memlens \
                            report --process N shows each by itself.";
                append_new(notes, &[note.to_owned()]);
            }
        }
        if self.are_apart {
            self.keep_common_notes();
        } else if self.added > 1 {
            let what = match self.process_id {
                Some(_) => "programs that the process executed one after another",
                None => "processes",
            };
            self.merged.run.notes.push(format!("{MERGED_FROM} {} {what}", self.added));
        }
        self.merged
    }

    /// Of what the profiles' notes say of how each was collected, keeps what all say.
    fn keep_common_notes(&mut self) {
        let (notes, said, added) = (&mut self.merged.run.notes, &self.said, self.added);
        notes.retain(|note| said.get(note) == Some(&added));
        let single = said.len() - notes.len();
        if single > 0 {
            notes.push(format!(
                "{single} notes more are of single runs: memlens report --process N --notes shows each with its own."
            ));
        }
    }

    fn add_rows(&mut self, profile: &Profile, position: usize) {
        self.position = position;
        let modules: Vec<_> = profile.modules.iter().map(|module| self.module(module)).collect();
        let at = |module: Option<ModuleIx>| module.map(|module| modules[module.index()]);
        let frames: Vec<_> = profile.frames.iter().map(|frame| self.frame(frame, at(frame.module))).collect();
        let stacks: Vec<_> = profile.stacks.iter().map(|stack| self.stack(stack, &frames)).collect();
        let site = |stack: Option<StackIx>| stack.map(|stack| stacks[stack.index()]);

        let mut occurrences: HashMap<ObjectKey, u32> = HashMap::new();
        let mut objects = Vec::with_capacity(profile.objects.len());
        for object in &profile.objects {
            let moved = Object { site: site(object.site), module: at(object.module), ..object.clone() };
            let occurrence = occurrences.entry(object_key(&moved)).or_default();
            let nth = *occurrence;
            *occurrence += 1;
            objects.push(self.object(moved, nth));
        }
        let code: Vec<_> = profile
            .code
            .iter()
            .map(|code| {
                let moved = CodeLocation { stack: site(code.stack), module: at(code.module), ..code.clone() };
                self.code(moved)
            })
            .collect();

        let first_thread = self.merged.threads.len();
        let thread_at = |thread: ThreadIx| ThreadIx::from_index(first_thread + thread.index());
        let who = |thread: &Thread| (thread.pid.or(profile.run.pid), thread.tid);
        if self.are_apart {
            self.known_threads.clear();
        }
        // A thread that executed another program is still the same.
        let is_known = |thread: &&Thread| self.known_threads.contains(&who(thread));
        let same = profile.threads.iter().filter(is_known).count() as u32;
        self.known_threads.extend(profile.threads.iter().map(who));
        self.merged.run.threads += profile.run.threads.saturating_sub(same);
        // One that executed another program has a row for each.
        let program = profile.run.command.first().and_then(|path| path.rsplit('/').next());
        for thread in &profile.threads {
            let name = thread.name.clone().or_else(|| program.map(str::to_owned));
            self.merged.threads.push(Thread { pid: who(thread).0, name, ..thread.clone() });
        }
        // Threads are each process's own, so no two profiles' cells can have the same key; two
        // operands of one profile can still become one (generated code of the same address).
        let mut cells: HashMap<(CodeIx, ObjectIx, ThreadIx), usize> = HashMap::new();
        for cell in &profile.cells {
            let key = (code[cell.code.index()], objects[cell.object.index()], thread_at(cell.thread));
            let next = self.merged.cells.len();
            let row = *cells.entry(key).or_insert(next);
            match self.merged.cells.get_mut(row) {
                Some(existing) => existing.counts += &cell.counts.get(),
                None => {
                    let (code, object, thread) = key;
                    self.merged.cells.push(Cell { code, object, thread, counts: cell.counts.clone() });
                }
            }
        }
        let moved = |pattern: &AccessPattern| {
            let at = |ix: CodeIx| code[ix.index()];
            let (code, loaded_by) = (at(pattern.code), pattern.loaded_by.map(at));
            AccessPattern { code, loaded_by, ..pattern.clone() }
        };
        for pattern in &profile.patterns {
            self.add_pattern(moved(pattern));
        }
        for ObjectPattern { object, pattern } in &profile.object_patterns {
            self.add_object_pattern(objects[object.index()], moved(pattern));
        }
        let fields: Vec<_> = profile
            .fields
            .iter()
            .map(|field| self.field(Field { object: objects[field.object.index()], ..field.clone() }))
            .collect();
        for part in &profile.field_uses {
            self.add_field_use(code[part.code.index()], fields[part.field.index()], part.seen);
        }
        let mut paths: Vec<PathIx> = Vec::with_capacity(profile.paths.len());
        for path in &profile.paths {
            let parent = path.parent.map(|parent| paths[parent.index()]);
            let found = self.path(parent, frames[path.frame.index()]);
            paths.push(found);
        }
        for part in &profile.path_cells {
            let path = part.path.map(|path| paths[path.index()]);
            self.add_path_cell(PathCell { path, object: objects[part.object.index()], ..part.clone() });
        }
        if profile.path_cells.is_empty() {
            for (object, &ix) in profile.objects.iter().zip(&objects) {
                let counts = Counts { dram_writes: 0, ..object.counts };
                if counts != Counts::default() {
                    self.without_paths.push(PathCell { path: None, object: ix, counts: counts.into() });
                }
            }
        }
        let uses = profile.slice_uses.iter();
        let uses =
            uses.map(|part| SliceUse { object: part.object.map(|object| objects[object.index()]), ..*part });
        self.slices.add(profile.run.clock, &profile.slices, uses.collect());
        for mark in &profile.marks {
            let thread = mark.thread.map(thread_at);
            self.merged.marks.push(crate::Mark { thread, ..mark.clone() });
        }
        self.run(profile);
        self.last_objects = objects;
    }

    fn run(&mut self, profile: &Profile) {
        let run = &mut self.merged.run;
        run.instructions = run.instructions.zip(profile.run.instructions).map(|(a, b)| a + b);
        run.estimated |= profile.run.estimated;
        if self.position > 0 {
            run.wall_seconds = match (run.wall_seconds, profile.run.wall_seconds) {
                (Some(a), Some(b)) => Some(a.max(b)),
                (a, b) => a.or(b),
            };
        }
        if self.position > 0 {
            run.heap_peak_bytes = sum_of_known(run.heap_peak_bytes, profile.run.heap_peak_bytes);
        }
        if self.position > 0 {
            run.bursts = BurstInfo::together(run.bursts, profile.run.bursts);
            let ours = std::mem::take(&mut run.spin_waits);
            run.spin_waits = SpinWait::together(ours.into_iter().chain(profile.run.spin_waits.clone()));
        }
        if self.position > 0
            && let (Some(sum), Some(part)) = (&mut run.effective_bursts, profile.run.effective_bursts)
        {
            *sum += part;
        }
        if self.position > 0 {
            run.core_cycles = match (run.core_cycles, profile.run.core_cycles) {
                (Some(a), Some(b)) => Some(a.saturating_add(b)),
                (a, b) => a.or(b),
            };
        }
        let stalls = profile.totals().stall_cycles;
        if self.position > 0 {
            let both = run.measured_cycles.zip(profile.run.measured_cycles);
            run.measured_cycles = both.map(|(a, b)| a.saturating_add(b));
            // What was not held is as it was modelled.
            let (ours, theirs) = (run.modelled_stall_cycles, profile.run.modelled_stall_cycles);
            let sum = ours.unwrap_or(self.stalls).saturating_add(theirs.unwrap_or(stalls));
            run.modelled_stall_cycles = ours.or(theirs).map(|_| sum);
        }
        if self.position > 0 && stalls > 0 {
            run.has_translation_stalls =
                profile.run.has_translation_stalls && (run.has_translation_stalls || self.stalls == 0);
        }
        self.stalls = self.stalls.saturating_add(stalls);
        if profile.run.core_cycles.is_none() {
            self.stalls_without_core += stalls;
        }
        if self.position > 0
            && let (Some(sum), Some(part)) = (&mut run.sampling, &profile.run.sampling)
        {
            // Each process's part in proportion to its time.
            let [ours, theirs] = [&*sum, part].map(|of| of.cost as f64);
            let both =
                |a: Option<f64>, b: Option<f64>| Some((a? * ours + b? * theirs) / (ours + theirs).max(1.0));
            sum.overhead = both(sum.overhead, part.overhead);
            sum.allocations_overhead = both(sum.allocations_overhead, part.allocations_overhead);
            sum.frequency_changes += part.frequency_changes;
            sum.samples += part.samples;
            sum.cost += part.cost;
            sum.squared_cost += part.squared_cost;
            sum.lost += part.lost;
            sum.throttled += part.throttled;
            sum.whole_stacks += part.whole_stacks;
            sum.cut_stacks += part.cut_stacks;
            sum.own_cpu_seconds = sum.own_cpu_seconds.zip(part.own_cpu_seconds).map(|(a, b)| a + b);
        }
        // How many there are is told anew.
        let own: Vec<String> =
            profile.run.notes.iter().filter(|note| !note.starts_with(MERGED_FROM)).cloned().collect();
        append_new(&mut run.notes, &own);
        for note in own.into_iter().collect::<HashSet<_>>() {
            *self.said.entry(note).or_default() += 1;
        }
        let sum = &mut self.merged.attribution;
        let part = &profile.attribution;
        sum.attributed_accesses += part.attributed_accesses;
        sum.unknown_accesses += part.unknown_accesses;
        for (reason, accesses) in &part.unknown_reasons {
            *sum.unknown_reasons.entry(reason.clone()).or_default() += accesses;
        }
        sum.lost_events += part.lost_events;
        sum.truncated_stacks += part.truncated_stacks;
        sum.unresolved_code += part.unresolved_code;
        sum.truncated |= part.truncated;
        append_new(&mut sum.notes, &part.notes);
    }

    fn module(&mut self, module: &Module) -> ModuleIx {
        let key = module.build_id.clone().unwrap_or_else(|| module.path.clone());
        let next = ModuleIx::from_index(self.merged.modules.len());
        let found = *self.modules.entry(key).or_insert(next);
        match self.merged.modules.get_mut(found.index()) {
            Some(existing) => existing.has_debug |= module.has_debug,
            None => self.merged.modules.push(module.clone()),
        }
        found
    }

    fn space(&self, module: Option<ModuleIx>) -> CodeSpace {
        module.ok_or(self.position)
    }

    fn frame(&mut self, frame: &Frame, module: Option<ModuleIx>) -> FrameIx {
        let key = (
            self.space(module),
            frame.offset,
            frame.function.clone(),
            frame.file.clone(),
            frame.line,
            frame.inlined,
        );
        let next = FrameIx::from_index(self.merged.frames.len());
        let found = *self.frames.entry(key).or_insert(next);
        match self.merged.frames.get_mut(found.index()) {
            Some(existing) => {
                if existing.source_text.is_none() {
                    existing.source_text.clone_from(&frame.source_text);
                }
            }
            None => self.merged.frames.push(Frame { module, ..frame.clone() }),
        }
        found
    }

    fn stack(&mut self, stack: &Stack, frames: &[FrameIx]) -> StackIx {
        let moved = Stack(stack.0.iter().map(|frame| frames[frame.index()]).collect());
        let next = StackIx::from_index(self.merged.stacks.len());
        let found = *self.stacks.entry(moved.clone()).or_insert(next);
        if found == next {
            self.merged.stacks.push(moved);
        }
        found
    }

    fn path(&mut self, parent: Option<PathIx>, frame: FrameIx) -> PathIx {
        let next = PathIx::from_index(self.merged.paths.len());
        let found = *self.paths.entry((parent, frame)).or_insert(next);
        if found == next {
            self.merged.paths.push(CallPath { parent, frame });
        }
        found
    }

    /// Of two processes' patterns of an operand the one that rests on more executions stands.
    fn add_pattern(&mut self, pattern: AccessPattern) {
        let next = self.merged.patterns.len();
        let row = *self.patterns.entry(pattern.code).or_insert(next);
        match self.merged.patterns.get_mut(row) {
            Some(existing) if existing.executions >= pattern.executions => {}
            Some(existing) => *existing = pattern,
            None => self.merged.patterns.push(pattern),
        }
    }

    /// As [`Self::add_pattern`], of one object. Where an operand differs from object to object in one profile and not in another, the other's
    /// objects have no rows: then nothing is known of them.
    fn add_object_pattern(&mut self, object: ObjectIx, pattern: AccessPattern) {
        let next = self.merged.object_patterns.len();
        let row = *self.object_patterns.entry((pattern.code, object)).or_insert(next);
        match self.merged.object_patterns.get_mut(row) {
            Some(existing) if existing.pattern.executions >= pattern.executions => {}
            Some(existing) => existing.pattern = pattern,
            None => self.merged.object_patterns.push(ObjectPattern { object, pattern }),
        }
    }

    fn field(&mut self, field: Field) -> FieldIx {
        let next = FieldIx::from_index(self.merged.fields.len());
        let found = *self.fields.entry(field.clone()).or_insert(next);
        if found == next {
            self.merged.fields.push(field);
        }
        found
    }

    fn add_field_use(&mut self, code: CodeIx, field: FieldIx, seen: u64) {
        let next = self.merged.field_uses.len();
        let row = *self.field_uses.entry((code, field)).or_insert(next);
        match self.merged.field_uses.get_mut(row) {
            Some(existing) => existing.seen = existing.seen.saturating_add(seen),
            None => self.merged.field_uses.push(FieldUse { code, field, seen }),
        }
    }

    fn add_path_cell(&mut self, part: PathCell) {
        let next = self.merged.path_cells.len();
        let row = *self.path_cells.entry((part.path, part.object)).or_insert(next);
        match self.merged.path_cells.get_mut(row) {
            Some(existing) => existing.counts += &part.counts.get(),
            None => self.merged.path_cells.push(part),
        }
    }

    fn object(&mut self, mut object: Object, occurrence: u32) -> ObjectIx {
        let next = ObjectIx::from_index(self.merged.objects.len());
        let found = *self.objects.entry((object_key(&object), occurrence)).or_insert(next);
        match self.merged.objects.get_mut(found.index()) {
            Some(existing) => {
                // A global is there once in each process, so its blocks and bytes add up as well.
                existing.blocks += object.blocks;
                existing.bytes = existing.bytes.zip(object.bytes).map(|(a, b)| a + b);
                existing.max_live_bytes =
                    existing.max_live_bytes.zip(object.max_live_bytes).map(|(a, b)| a.max(b));
                // Each process's at its own peak.
                existing.live_at_peak_bytes =
                    sum_of_known(existing.live_at_peak_bytes, object.live_at_peak_bytes);
                existing.live_at_end_bytes =
                    sum_of_known(existing.live_at_end_bytes, object.live_at_end_bytes);
                existing.bursts = existing.bursts.zip(object.bursts).map(|(a, b)| (a + b).min(2));
                // Processes have bursts of their own. One that never used it says nothing wrong of it.
                let is_used = [&*existing, &object].map(|it| it.counts.accesses() > 0);
                let of_both = |errors: [Option<u64>; 2]| match (errors, is_used) {
                    ([error, _], [true, false]) | ([_, error], [false, true]) => error,
                    ([a, b], _) => a.zip(b).map(|(a, b)| (a as f64).hypot(b as f64).round() as u64),
                };
                existing.wait_error_cycles = of_both([existing.wait_error_cycles, object.wait_error_cycles]);
                existing.stall_error_cycles =
                    of_both([existing.stall_error_cycles, object.stall_error_cycles]);
                // Each process has memory of its own.
                if let Some(backing) = object.backing.take() {
                    match &mut existing.backing {
                        Some(known) => *known += backing,
                        None => existing.backing = Some(backing),
                    }
                }
                if existing.element.is_none() {
                    existing.element = object.element;
                }
                if existing.type_name.is_none() {
                    existing.type_name = object.type_name;
                }
                existing.counts += &object.counts;
            }
            None => self.merged.objects.push(Object { id: found.0.saturating_add(1), ..object }),
        }
        found
    }

    fn code(&mut self, code: CodeLocation) -> CodeIx {
        let key = (self.space(code.module), code.offset, code.operand, code.kind, code.size_bytes);
        let next = CodeIx::from_index(self.merged.code.len());
        let found = *self.code.entry(key).or_insert(next);
        match self.merged.code.get_mut(found.index()) {
            Some(existing) => existing.counts += &code.counts.get(),
            None => self.merged.code.push(CodeLocation { id: found.0.saturating_add(1), ..code }),
        }
        found
    }
}

fn append_new(notes: &mut Vec<String>, more: &[String]) {
    for note in more {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
}

/// A heap block is its site; anything else is its declaration.
fn object_key(object: &Object) -> ObjectKey {
    let by_site = object.kind == ObjectKind::Heap && object.site.is_some();
    ObjectKey {
        kind: object.kind,
        site: object.site,
        name: (!by_site).then(|| object.name.clone()),
        declared: object.declared.clone(),
        module: object.module,
        unknown_reason: object.unknown_reason.clone(),
    }
}
