//! From tallies to a profile: names, source lines, sums.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use memlens_fields::{Layouts, Offset, Offsets, Seen as SeenField, TypeOf, add_fields};
use memlens_locality::{CostSpread, Summary};
use memlens_objects::SiteId;
use memlens_patterns::Sources;
use memlens_profile::{
    Cell, CodeIx, CodeLocation, Module as ModuleRow, ModuleIx, Object, ObjectIx, PackedCounts, PathAmount,
    PathCell, PathId, PathIx, PathRows, PathUse, PathUses, Profile, SampleUnit, SamplingInfo, SourceLine,
    Thread, ThreadIx,
};
use memlens_symbols::Module;
use memlens_types::{AccessKind, Counts, ObjectKind, Sampled};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::address_space::Code;
use crate::bursts::{Bursts, Cell as BurstCell, Seen};
use crate::frame_rows::{CodeFrames, FrameRows};
use crate::heap::HeapSite;
use crate::heap_blocks::BlockArea;
use crate::kin::Kin;
use crate::modules::{Files, OTHER_BUILD, REPLACED};
use crate::naming::{HeldType, NamedObject, Namer, access_of, offset_in};
use crate::part_places::PartPlaces;
use crate::recording::{Recording, Tally};
use crate::slices::{add_live, add_slices};
use crate::spin_waits::SpinTicks;
use crate::spot::Spot;
use crate::static_attribution::CodeSamples;
use crate::unseen::{Missing, Unseen, pieces};
use crate::when::When;

/// Rows that grow as tallies come; a profile can be taken at any time.
#[derive(Debug, Default)]
pub struct ProfileBuilder {
    namer: Namer,
    rows: Rows,
    /// Samples of which only the instruction is to be used.
    code_samples: CodeSamples,
    /// When these were.
    code_samples_when: When,
    /// Structures of the files, as far as earlier profiles looked at them.
    layouts: Layouts,
    /// Ticks in loops that wait for other threads.
    spins: SpinTicks,
}

/// Objects, code and the cells where they meet.
#[derive(Clone, Debug, Default)]
struct Rows {
    objects: Vec<NamedObject>,
    object_numbers: FxHashMap<NamedObject, u32>,
    code: Vec<(Code, u8, AccessKind, u32)>,
    code_numbers: FxHashMap<(Code, u8, AccessKind, u32), u32>,
    cells: FxHashMap<CellKey, Counts>,
    /// The same samples by call path.
    paths: FxHashMap<PathKey, Sampled>,
    /// Through which calls bursts' accesses came: by row of code, object, what is not known of them, and path.
    path_uses: FxHashMap<(u32, u32, Missing, Option<PathId>), PathAmount>,
    unseen: Unseen,
    /// When the cost was: by row of code, object, and what is not known of it.
    when: FxHashMap<(u32, u32, Missing), When>,
    /// By object: which bursts saw it.
    seen: FxHashMap<u32, Seen>,
    /// What objects wait in bursts at each row of code, and what is not known of them: row of code, object.
    spreads: FxHashMap<(u32, u32, Missing), CostSpread>,
    /// By row of code and object: where in the object samples were.
    offsets: Offsets,
    /// The same of bursts' accesses.
    burst_offsets: Vec<Offset>,
    /// Objects of the owners of bursts' patterns.
    pattern_owners: FxHashMap<(u32, u32), u32>,
}

/// Call paths of an instruction and an object at most.
const MOST_PATHS: usize = 32;

/// Code, object, thread, and what is not known of the samples.
type CellKey = (u32, u32, u32, Missing);
/// Callers, the sampled function's code, object, and what is not known of the samples.
type PathKey = (Option<PathId>, Code, u32, Missing);

impl ProfileBuilder {
    /// Names the tallies of a recording and takes them in.
    pub fn fold(&mut self, recording: &mut Recording) {
        let tallies = recording.take_tallies();
        let of_allocators = self.namer.mapped_by_allocators(recording.heap(), recording.files());
        recording.note_allocators(&of_allocators);
        let files = recording.files();
        self.namer.prepare(&tallies, files);
        let spins = recording.take_spins();
        let files = recording.files();
        let keys: Vec<_> = spins.iter().map(|(key, _)| (key.clone(), Tally::default())).collect();
        self.namer.prepare(&keys, files);
        for (mut key, time_ns) in spins {
            key.spot = recording.heap().resolved(key.spot);
            let (object, _) = self.namer.object(&key, Sampled::default(), files, recording.heap());
            self.spins.add(key.code, object, time_ns);
        }
        for (mut key, tally) in tallies {
            key.spot = recording.heap().resolved(key.spot);
            if let (Spot::CodeOnly, Some(file)) = (&key.spot, key.code.0) {
                self.code_samples.add(file, key.code.1, key.thread, tally.sampled);
                self.code_samples_when.add_all(&tally.when, 1.0);
                continue;
            }
            let (object, sampled) = self.namer.object(&key, tally.sampled, files, recording.heap());
            let has_pointer = object.has_pointer();
            let object = self.rows.number(object);
            let code = self.rows.code_of((key.code, key.operand), files);
            let missing = match &key.spot {
                Spot::Block { site, memory } if !recording.heap().detail(*site).is_mapping => {
                    let pointer = self.namer.unwatched(&key, memory, files);
                    if pointer.has_pointer() {
                        let pointer = (self.rows.number(pointer), code);
                        let area = BlockArea::of(&memory.area);
                        self.rows.unseen.watched(pointer, area, object, sampled.cost as f64, tally.unseen);
                    }
                    Missing::Nothing
                }
                Spot::Heap(memory) if has_pointer => {
                    let area = BlockArea::of(&memory.area);
                    self.rows.unseen.unwatched((object, code), area, sampled.cost as f64, &tally.pages);
                    Missing::Watch(area)
                }
                Spot::Lost { .. } => Missing::Address,
                _ => Missing::Nothing,
            };
            let counts = Counts { sampled, ..Counts::default() };
            self.rows.add(object, code, key.thread, missing, &counts);
            self.rows.when.entry((code, object, missing)).or_default().add_all(&tally.when, 1.0);
            if let Some(within) = key.operand.and_then(|_| offset_in(&key, files)) {
                (0..sampled.samples).for_each(|_| self.rows.offsets.saw(code, object, within));
            }
            self.rows.add_path(key.path, key.code, object, missing, &sampled);
        }
    }

    /// What bursts say, as of now.
    fn burst_rows(&mut self, bursts: &Bursts, summary: &Summary, recording: &Recording) -> Rows {
        let files = recording.files();
        let mut cells = bursts.cells(summary);
        cells
            .iter_mut()
            .for_each(|(cell, _)| cell.key.spot = recording.heap().resolved(cell.key.spot.clone()));
        let keys: Vec<_> = cells.iter().map(|(cell, _)| (cell.key.clone(), Tally::default())).collect();
        self.namer.prepare(&keys, files);
        let mut rows = Rows::default();
        let offsets = bursts.offsets();
        let mut path_uses: FxHashMap<u32, Vec<(Option<PathId>, PathAmount)>> = FxHashMap::default();
        for (cell, path, amount) in bursts.path_uses() {
            path_uses.entry(cell).or_default().push((path, amount));
        }
        for (cell, counts) in cells {
            let pattern_owner = bursts.pattern_owner(&cell);
            let BurstCell { key, seen, unseen_part, spread, kind, size_bytes, number, pages, .. } = cell;
            let (object, _) = self.namer.object(&key, Sampled::default(), files, recording.heap());
            let has_pointer = object.has_pointer();
            let object = rows.number(object);
            rows.saw(object, seen);
            rows.pattern_owners.insert(pattern_owner, object);
            let accesses = counts.accesses() as f64;
            let code = rows.code_at((key.code, key.operand.unwrap_or(0), kind, size_bytes));
            let missing = match &key.spot {
                Spot::Block { site, memory } if !recording.heap().detail(*site).is_mapping => {
                    let pointer = self.namer.unwatched(&key, memory, files);
                    if pointer.has_pointer() {
                        let pointer = (rows.number(pointer), code);
                        let area = BlockArea::of(&memory.area);
                        rows.unseen.watched(pointer, area, object, accesses, accesses * unseen_part);
                    }
                    Missing::Nothing
                }
                Spot::Heap(memory) if has_pointer => {
                    let area = BlockArea::of(&memory.area);
                    rows.unseen.unwatched((object, code), area, accesses, &pages);
                    Missing::Watch(area)
                }
                _ => Missing::Nothing,
            };
            for &(path, amount) in path_uses.get(&number).into_iter().flatten() {
                *rows.path_uses.entry((code, object, missing, path)).or_default() += amount;
            }
            *rows.spreads.entry((code, object, missing)).or_default() += spread;
            rows.add(object, code, key.thread, missing, &counts);
            let cost = bursts.machine().wait_beyond_first_level(&counts) as f64;
            if let Some(when) = bursts.when(number).filter(|_| cost > 0.0) {
                rows.when.entry((code, object, missing)).or_default().add_all(when, cost / when.sum());
            }
            match offsets.get(&number) {
                Some(seen) => {
                    let rows_of = seen.iter().map(|&of_cell| Offset { operand: code, object, ..of_cell });
                    rows.burst_offsets.extend(rows_of);
                }
                // Their spots are the variables' beginnings.
                None if key.spot.has_start() => {}
                None => {
                    let within = offset_in(&key, files).map(|bytes| Offset {
                        operand: code,
                        object,
                        bytes,
                        times: 1,
                        is_run: false,
                    });
                    rows.burst_offsets.extend(within);
                }
            }
        }
        rows
    }

    /// With what static analysis makes of samples that are known by their instruction only.
    fn rows(&self, recording: &Recording) -> Cow<'_, Rows> {
        if self.code_samples.is_empty() {
            return Cow::Borrowed(&self.rows);
        }
        let files = recording.files();
        let (mut rows, mut namer) = (self.rows.clone(), Namer::default());
        self.code_samples.attribute(files, recording.skid(), |file, part, thread, sampled| {
            let object = rows.number(namer.of_part(file, part, files));
            let access = ((Some(file), part.pc), part.waited.operand());
            let counts = Counts { sampled, ..Counts::default() };
            let code = rows.code_of(access, files);
            rows.add(object, code, thread, Missing::Nothing, &counts);
            rows.add_path(None, access.0, object, Missing::Nothing, &sampled);
        });
        Cow::Owned(rows)
    }

    /// The objects of sites that hold a thousandth of the heap when it is largest, or at the end.
    fn holders(&mut self, recording: &Recording) -> Vec<NamedObject> {
        let (heap, live) = (recording.heap(), recording.live());
        let sites: BTreeSet<SiteId> = live.most().large_sites().chain(live.last().large_sites()).collect();
        let named = |site| NamedObject { held: None, ..self.namer.of_site(site, recording.files(), heap) };
        sites.into_iter().map(named).collect()
    }

    /// The profile of what was taken in so far. `run` and what only the collector knows is left to
    /// the caller; `sampling` gets its counts.
    pub fn profile(&mut self, recording: &Recording, mut sampling: SamplingInfo) -> Profile {
        let counts = recording.counts();
        sampling.samples = counts.samples;
        sampling.cost = counts.cost;
        sampling.squared_cost = counts.squared_cost;
        sampling.whole_stacks = counts.whole_stacks;
        sampling.cut_stacks = counts.cut_stacks;
        let mut profile = Profile::default();
        let mut layouts = std::mem::take(&mut self.layouts);
        let bursts = recording.bursts().map(|bursts| (bursts, bursts.summary()));
        let holders = self.holders(recording);
        let rows = match &bursts {
            Some((bursts, summary)) => {
                let mut rows = self.burst_rows(bursts, summary, recording);
                rows.know_sites(&mut self.namer, recording);
                Cow::Owned(rows)
            }
            None => {
                self.rows.know_sites(&mut self.namer, recording);
                self.rows(recording)
            }
        };
        for file in recording.files().iter() {
            let symbols = file.symbols();
            profile.modules.push(ModuleRow {
                path: file.path.clone(),
                build_id: symbols
                    .and_then(Module::build_id)
                    .map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect()),
                has_debug: symbols.is_some_and(Module::has_debug_info),
            });
            if let Some(problem) = &file.problem
                && !problem.is_empty()
                // Of a file that was replaced not even the code's place is known.
                && ([REPLACED, OTHER_BUILD].contains(&problem.as_str())
                    || rows.code.iter().any(|(code, ..)| is_file(recording, *code, &file.path)))
            {
                profile.attribution.notes.push(format!("{} has no names: {problem}.", file.path));
            }
        }
        for thread in recording.threads() {
            profile.threads.push(Thread {
                tid: thread.tid,
                pid: Some(thread.pid),
                name: thread.name.clone(),
                ..Thread::default()
            });
        }
        let module = |file: Option<u32>| file.map(ModuleIx);
        let sites = rows.sites(recording);
        let seen = rows.seen_with(&sites);
        let spreads = rows.divided_spreads(&sites);
        let (cells, moved) = rows.divided_cells(&sites);
        let mut frames = FrameRows::default();
        // A pointer whose samples all went to sites is no object.
        let mut places = vec![None; rows.objects.len()];
        for &(_, object, _) in cells.keys() {
            places[object as usize] = Some(ObjectIx(0));
        }
        // What holds memory is an object, whether anything was seen to touch it or not.
        let mut untouched: Vec<NamedObject> = Vec::new();
        for holder in holders {
            match rows.object_numbers.get(&holder) {
                Some(&number) => places[number as usize] = Some(ObjectIx(0)),
                None if untouched.contains(&holder) => {}
                None => untouched.push(holder),
            }
        }
        places.resize(rows.objects.len() + untouched.len(), Some(ObjectIx(0)));
        for (index, object) in rows.objects.iter().chain(&untouched).enumerate() {
            let Some(place) = &mut places[index] else { continue };
            *place = ObjectIx::from_index(profile.objects.len());
            let detail = object.site.map(|site| {
                let (_, sites) = self.namer.site_stack(site.site);
                sites
                    .iter()
                    .map(|&site| recording.heap().detail(site))
                    .fold(HeapSite::default(), HeapSite::with)
            });
            let site = object.site.map(|site| {
                let (keys, _) = self.namer.site_stack(site.site);
                frames.call_stack(&mut profile, recording, keys.get(site.own_frames..).unwrap_or_default())
            });
            profile.objects.push(Object {
                id: index as u32 + 1,
                kind: object.kind,
                name: object.name.clone(),
                type_name: object.type_name.clone(),
                declared: object.declared.clone().map(|(file, line)| SourceLine { file, line }),
                module: module(object.file),
                site,
                named_at: object.site.and_then(|site| site.named_at),
                blocks: detail
                    .as_ref()
                    .map_or(u64::from(object.bytes.is_some()), |detail| detail.blocks.round() as u64),
                bytes: detail.as_ref().map_or(object.bytes, |detail| Some(detail.bytes.round() as u64)),
                bursts: seen.get(&(index as u32)).map(|seen| seen.bursts()),
                backing: detail.and_then(|detail| detail.backing),
                access_path: object.access_path.clone(),
                unknown_reason: object.unknown_reason.clone(),
                ..Object::default()
            });
        }
        for (index, &(code, operand, kind, size_bytes)) in rows.code.iter().enumerate() {
            let stack = frames.stack(&mut profile, recording, code);
            if code.0.is_none() && recording.files().generated_function(code.1).is_none() {
                profile.attribution.unresolved_code += 1;
            }
            profile.code.push(CodeLocation {
                id: index as u32 + 1,
                stack: Some(stack),
                module: module(code.0),
                offset: code.1,
                operand,
                kind,
                size_bytes,
                counts: PackedCounts::default(),
            });
        }
        for ((code, object, thread), counts) in cells {
            let Some(object) = places[object as usize] else { continue };
            let (code, thread, counts) = (CodeIx(code), ThreadIx(thread), counts.into());
            profile.cells.push(Cell { code, object, thread, counts });
        }
        if let Some((bursts, _)) = &bursts {
            profile.machine = bursts.machine().clone();
            profile.translate_in_huge_pages();
        }
        let mut paths = PathRows::default();
        let mut path_cells: BTreeMap<(Option<PathIx>, ObjectIx), Sampled> = BTreeMap::new();
        for ((path, code, object), sampled) in rows.divided_paths(&sites) {
            let Some(object) = places[object as usize] else { continue };
            let mut code_frames = CodeFrames { profile: &mut profile, recording, frames: &mut frames };
            let path = path.and_then(|path| code_frames.path(&mut paths, path, code));
            *path_cells.entry((path, object)).or_default() += &sampled;
        }
        let path_uses = rows.divided_path_uses(&sites, |path, code, object| {
            let object = places[object as usize]?;
            let mut code_frames = CodeFrames { profile: &mut profile, recording, frames: &mut frames };
            Some((path.and_then(|path| code_frames.path(&mut paths, path, code)), object))
        });
        if !profile.paths.is_empty() {
            let sampled = path_cells.into_iter().filter(|(_, sampled)| *sampled != Sampled::default());
            let cells = sampled.map(|((path, object), sampled)| PathCell {
                path,
                object,
                counts: Counts { sampled, ..Counts::default() }.into(),
            });
            profile.path_cells = cells.collect();
        }
        profile.sum_cells();
        rows.add_fields(&mut profile, &places, &sites, recording.files(), &mut layouts);
        let attribution = &mut profile.attribution;
        for object in &profile.objects {
            let seen = observations(&object.counts);
            match object.kind {
                ObjectKind::Unknown => {
                    attribution.unknown_accesses += seen;
                    let reason = object.unknown_reason.clone().unwrap_or_default();
                    *attribution.unknown_reasons.entry(reason).or_default() += seen;
                }
                _ => attribution.attributed_accesses += seen,
            }
        }
        attribution.truncated_stacks = counts.cut_stacks + counts.cut_sites;
        if moved > 0 {
            attribution.notes.push(format!(
                "{moved} {} on heap blocks whose allocation was not watched were given to the allocation sites \
                 of watched blocks that were reached through the same pointers, or that have the same variable or type.",
                if bursts.is_some() { "accesses" } else { "samples" }
            ));
        }
        attribution.notes.extend(recording.paths().notes());
        if counts.without_registers > 0 {
            let note = format!("{} samples had no user registers.", counts.without_registers);
            attribution.notes.push(note);
        }
        if counts.processes > 1 {
            profile
                .run
                .notes
                .push(format!("{} processes were sampled, children included.", counts.processes));
        }
        profile.run.threads = profile.threads.len() as u32;
        profile.run.estimated = true;
        match bursts {
            Some((bursts, summary)) => {
                profile.run.mode = "burst".to_owned();
                profile.run.primary_cost = "wait_cycles".to_owned();
                add_patterns(&mut profile, bursts, &rows, (&places, &sites), recording.files());
                add_errors(&mut profile, &spreads, &places);
                if !profile.paths.is_empty() {
                    profile.divide_among_paths(|cell| path_uses.get(&(cell.code, cell.object)));
                }
                let effective = summary.effective_bursts();
                profile.run.effective_bursts = Some(effective);
                profile.run.spin_waits = self.spins.waits(bursts.spins(), recording.files());
                let mut notes = bursts.notes(profile.run.too_few_bursts());
                notes.extend(bursts.last_level_note(&summary));
                profile.run.notes.splice(0..0, notes);
            }
            None => {
                profile.run.mode = "sample".to_owned();
                profile.run.primary_cost = match sampling.unit {
                    SampleUnit::Nanoseconds => "time".to_owned(),
                    SampleUnit::Events => sampling.event.clone(),
                };
                profile.run.sampling = Some(sampling);
            }
        }
        let when = rows.divided_when(&sites);
        let is_heap = |place: &ObjectIx| profile.objects[place.index()].kind == ObjectKind::Heap;
        let heap: Vec<(ObjectIx, Vec<SiteId>)> = (rows.objects.iter().chain(&untouched).zip(&places))
            .filter_map(|(object, place)| Some((object.site?, place.filter(is_heap)?)))
            .map(|(site, place)| (place, self.namer.site_stack(site.site).1.to_vec()))
            .collect();
        add_slices(&mut profile, recording, (&when, &self.code_samples_when), &places, &heap);
        add_live(&mut profile, recording, &heap);
        self.layouts = layouts;
        profile.note_generated_code();
        profile
    }
}

/// How operands go through memory. `places`: the profile's rows of objects.
fn add_patterns(
    profile: &mut Profile,
    bursts: &Bursts,
    rows: &Rows,
    (places, sites): (&[Option<ObjectIx>], &Sites),
    files: &Files,
) {
    let (mut patterns, kept, number) = bursts.patterns();
    let operands: Vec<(u32, CodeIx)> = (rows.code.iter().enumerate())
        .filter_map(|(row, &(code, operand, ..))| Some((number(code, operand)?, CodeIx::from_index(row))))
        .collect();
    let sites_of = sites.of_each_pointer();
    let object_of = |instruction, spot| {
        let object = *rows.pattern_owners.get(&(instruction, spot))?;
        // What was reached through a pointer and is several sites' now is no object.
        let object = match sites_of.get(&object).map(Vec::as_slice) {
            Some(&[site]) => site,
            _ => object,
        };
        places.get(object as usize).copied().flatten()
    };
    let symbols_of = |module: ModuleIx| files.get(module.0)?.symbols();
    let mut sources = Sources::default();
    memlens_patterns::add_patterns(profile, &mut patterns, &operands, &object_of, &symbols_of, &mut sources);
    if let Some(parts) = memlens_patterns::stall_parts(profile, (kept, None), &operands, &symbols_of) {
        parts.add_to(profile, bursts.core_cycles());
    }
}

/// Samples, or accesses where there are no samples.
fn observations(counts: &Counts) -> u64 {
    if counts.sampled.samples > 0 { counts.sampled.samples } else { counts.accesses() }
}

impl Rows {
    /// The number of an object.
    fn number(&mut self, mut object: NamedObject) -> u32 {
        // Each unit of a file describes a type by itself: that makes no other object.
        let held = object.held.take();
        let next = self.objects.len() as u32;
        let number = *self.object_numbers.entry(object).or_insert_with_key(|object| {
            self.objects.push(object.clone());
            next
        });
        let kept = &mut self.objects[number as usize].held;
        *kept = kept.or(held);
        number
    }

    /// The row of an instruction and its operand.
    fn code_of(&mut self, (code, operand): (Code, Option<u8>), files: &Files) -> u32 {
        let (kind, size_bytes) = access_of(code, operand, files);
        self.code_at((code, operand.unwrap_or(0), kind, size_bytes))
    }

    /// The row of an access that is known: its code, operand, kind and bytes.
    fn code_at(&mut self, place: (Code, u8, AccessKind, u32)) -> u32 {
        let next = self.code.len() as u32;
        *self.code_numbers.entry(place).or_insert_with(|| {
            self.code.push(place);
            next
        })
    }

    /// Adds samples of an object, by number, at a row of code.
    fn add(&mut self, object: u32, code: u32, thread: u32, missing: Missing, counts: &Counts) {
        *self.cells.entry((code, object, thread, missing)).or_default() += counts;
    }

    /// The fields of the profile's objects. `places`: the profile's rows of objects.
    fn add_fields(
        &self,
        profile: &mut Profile,
        places: &[Option<ObjectIx>],
        sites: &Sites,
        files: &Files,
        layouts: &mut Layouts,
    ) {
        // What was reached through a pointer and is a site's now has that one's fields.
        let sites_of = sites.of_each_pointer();
        let mut seen: Vec<SeenField> = Vec::new();
        let mut parts = PartPlaces::default();
        for Offset { operand, object, bytes, times, is_run } in
            self.offsets.iter().chain(self.burst_offsets.iter().copied())
        {
            let moved = sites_of.get(&object).map(Vec::as_slice).unwrap_or_default();
            for &owner in std::iter::once(&object).chain(moved) {
                let Some(place) = places.get(owner as usize).copied().flatten() else { continue };
                if let Some(offset_bytes) = parts.offset_in((object, owner), bytes, &self.objects, files) {
                    seen.push(SeenField {
                        code: CodeIx(operand),
                        object: place,
                        offset_bytes,
                        times,
                        is_run,
                    });
                }
            }
        }
        seen.sort_unstable_by_key(|seen| (seen.object, seen.code, seen.offset_bytes));
        let mut held: Vec<Option<HeldType>> = vec![None; profile.objects.len()];
        for (object, place) in self.objects.iter().zip(places) {
            if let Some(place) = place {
                held[place.index()] = object.held;
            }
        }
        let type_of = |object: ObjectIx| {
            let Some(held) = held.get(object.index()).copied().flatten() else { return TypeOf::Unknown };
            let HeldType { file: number, type_ref, is_behind } = held;
            match files.get(number).and_then(|file| file.symbols()) {
                Some(module) => TypeOf::Known { number, module, type_ref, is_behind },
                None => TypeOf::Unknown,
            }
        };
        add_fields(profile, &seen, layouts, &type_of);
    }

    /// Bursts saw an object.
    fn saw(&mut self, object: u32, seen: Seen) {
        self.seen.entry(object).and_modify(|before| *before = before.or(seen)).or_insert(seen);
    }

    /// Which bursts saw each object, those of the pointers that are divided among sites included.
    fn seen_with(&self, sites: &Sites) -> FxHashMap<u32, Seen> {
        let mut all = self.seen.clone();
        for (pointer, sites) in sites.all() {
            let Some(&seen) = self.seen.get(&pointer) else { continue };
            for &(site, _) in sites {
                all.entry(site).and_modify(|before| *before = before.or(seen)).or_insert(seen);
            }
        }
        all
    }

    /// What each object waits in bursts, at each row of code, that of memory that was not watched divided among allocation
    /// sites.
    fn divided_spreads(&self, sites: &Sites) -> FxHashMap<(u32, u32), CostSpread> {
        let mut divided: FxHashMap<(u32, u32), CostSpread> = FxHashMap::default();
        for (&(code, object, missing), &spread) in &self.spreads {
            let whole = [(object, 1.0)];
            for &(site, part) in sites.of(code, object, missing).unwrap_or(&whole[..]) {
                *divided.entry((code, site)).or_default() += spread * part;
            }
        }
        divided
    }

    /// Adds the same samples by their call path.
    fn add_path(
        &mut self,
        path: Option<PathId>,
        code: Code,
        object: u32,
        missing: Missing,
        sampled: &Sampled,
    ) {
        // In which way they were found the cells say.
        let Sampled { samples, cost, .. } = *sampled;
        *self.paths.entry((path, code, object, missing)).or_default() +=
            &Sampled { samples, cost, ..Sampled::default() };
    }

    /// Takes in the sites of watched blocks that no sample fell on, where a pointer's samples might be of their blocks.
    fn know_sites(&mut self, namer: &mut Namer, recording: &Recording) {
        /// Each is named, which takes a millisecond or two once.
        const MOST_SITES: usize = 200;
        let is_unexplained = |&(_, object, _, missing): &CellKey| {
            missing != Missing::Nothing && self.unseen.sites(object, missing).is_empty()
        };
        if !self.cells.keys().any(is_unexplained) {
            return;
        }
        let heap = recording.heap();
        for site in heap.largest_sites(MOST_SITES) {
            let object = namer.of_site(site, recording.files(), heap);
            self.number(object);
        }
    }

    /// The allocation sites that samples of heap memory that was not watched go to, by their pointer: as `unseen.rs`
    /// says, and where no sample says anything, by `kin.rs`.
    fn sites(&self, recording: &Recording) -> Sites {
        let sampled: FxHashSet<u32> = self.cells.keys().map(|&(_, object, ..)| object).collect();
        let kin = Kin::new(&self.objects, recording.heap(), |object| sampled.contains(&object));
        // Few blocks may have been watched, and no sample fallen on them.
        let unsampled = Kin::new(&self.objects, recording.heap(), |object| !sampled.contains(&object));
        let moved: FxHashMap<u32, u32> = kin.moved().collect();
        let first = |object: u32| moved.get(&object).copied().unwrap_or(object);
        let pointers: BTreeSet<(u32, Missing)> = self
            .cells
            .keys()
            .map(|&(_, object, _, missing)| (object, missing))
            .filter(|(_, missing)| *missing != Missing::Nothing)
            .collect();
        let by_pointer = pointers
            .into_iter()
            .map(|(object, missing)| {
                let pointer = &self.objects[object as usize];
                let mut sites = self.unseen.sites(object, missing);
                let pages = match missing {
                    Missing::Watch(area) => self.unseen.pages(object, area),
                    Missing::Nothing | Missing::Address => 0.0,
                };
                let ways = [Kin::sites, Kin::sites_around];
                let mut searches = ways.iter().flat_map(|find| [(find, &kin), (find, &unsampled)]);
                if sites.is_empty() {
                    let found = searches.find_map(|(find, kin)| find(kin, pointer, missing, pages));
                    sites = found.unwrap_or_default();
                }
                sites.iter_mut().for_each(|(site, _)| *site = first(*site));
                ((object, missing), sites)
            })
            .filter(|(_, sites)| !sites.is_empty())
            .chain(moved.iter().map(|(&site, &first)| ((site, Missing::Nothing), vec![(first, 1.0)])))
            .collect();
        let of_operand = |&(code, object, _, missing): &CellKey| {
            let mut sites = self.unseen.sites_of_operand(object, code, missing);
            sites.iter_mut().for_each(|(site, _)| *site = first(*site));
            (!sites.is_empty()).then_some(((code, object, missing), sites))
        };
        let unknown = self.cells.keys().filter(|(.., missing)| *missing != Missing::Nothing);
        Sites { by_pointer, by_operand: unknown.filter_map(of_operand).collect() }
    }

    /// The cells, those of heap memory that was not watched divided among allocation sites; and how many samples
    /// were.
    fn divided_cells(&self, sites: &Sites) -> (BTreeMap<(u32, u32, u32), Counts>, u64) {
        let mut cells: BTreeMap<(u32, u32, u32), Counts> = BTreeMap::new();
        let mut moved = 0;
        for (&(code, object, thread, missing), counts) in &self.cells {
            let Some(sites) = sites.of(code, object, missing) else {
                *cells.entry((code, object, thread)).or_default() += counts;
                continue;
            };
            // Those of a site that moved blocks belong to the same blocks as before.
            moved += if missing == Missing::Nothing { 0 } else { observations(counts) };
            for (site, from, until) in pieces(sites) {
                let part = counts.piece(from, until);
                if part != Counts::default() {
                    *cells.entry((code, site, thread)).or_default() += &part;
                }
            }
        }
        (cells, moved)
    }

    /// Through which calls bursts' accesses came, divided in the same way. `place`: where a path that ends at some code is in the profile, and
    /// an object.
    fn divided_path_uses(
        &self,
        sites: &Sites,
        mut place: impl FnMut(Option<PathId>, Code, u32) -> Option<(Option<PathIx>, ObjectIx)>,
    ) -> PathUses {
        let mut sums: BTreeMap<(u32, ObjectIx, Option<PathIx>), PathAmount> = BTreeMap::new();
        let ordered: BTreeMap<_, _> = self.path_uses.iter().collect();
        for (&(row, object, missing, path), &amount) in ordered {
            let whole = [(object, 1.0)];
            for &(site, part) in sites.of(row, object, missing).unwrap_or(&whole[..]) {
                if let Some((path, object)) = place(path, self.code[row as usize].0, site) {
                    *sums.entry((row, object, path)).or_default() += amount * part;
                }
            }
        }
        let mut uses = PathUses::new();
        for ((row, object, path), PathAmount { accesses, misses }) in sums {
            uses.entry((CodeIx(row), object)).or_default().push(PathUse::new(path, accesses, misses));
        }
        uses.values_mut().for_each(|uses| *uses = PathUse::heaviest(std::mem::take(uses), MOST_PATHS));
        uses
    }

    /// When objects' cost was, divided in the same way.
    fn divided_when(&self, sites: &Sites) -> BTreeMap<u32, When> {
        let mut divided: BTreeMap<u32, When> = BTreeMap::new();
        let ordered: BTreeMap<_, _> = self.when.iter().collect();
        for (&(code, object, missing), when) in ordered {
            let whole = [(object, 1.0)];
            for &(site, part) in sites.of(code, object, missing).unwrap_or(&whole[..]) {
                divided.entry(site).or_default().add_all(when, part);
            }
        }
        divided
    }

    /// The samples by call path, divided in the same way.
    fn divided_paths(&self, sites: &Sites) -> BTreeMap<(Option<PathId>, Code, u32), Sampled> {
        // Paths know instructions, not operands: of several those with samples share.
        let mut of_code: FxHashMap<(Code, u32, Missing), BTreeMap<u32, f64>> = FxHashMap::default();
        for (&(row, object, _, missing), counts) in &self.cells {
            let whole = [(object, 1.0)];
            let parts = sites.of(row, object, missing).unwrap_or(&whole[..]);
            let of_code = of_code.entry((self.code[row as usize].0, object, missing)).or_default();
            for &(site, part) in parts {
                *of_code.entry(site).or_default() += part * counts.sampled.cost as f64;
            }
        }
        let parts_of = |code, object, missing| {
            let shares = of_code.get(&(code, object, missing))?;
            let sum: f64 = shares.values().sum();
            (sum > 0.0).then(|| shares.iter().map(|(&site, share)| (site, share / sum)).collect::<Vec<_>>())
        };
        let mut paths: BTreeMap<(Option<PathId>, Code, u32), Sampled> = BTreeMap::new();
        for (&(path, code, object, missing), &sampled) in &self.paths {
            match parts_of(code, object, missing) {
                None => *paths.entry((path, code, object)).or_default() += &sampled,
                Some(sites) => {
                    for (site, from, until) in pieces(&sites) {
                        let part = sampled.piece(from, until);
                        *paths.entry((path, code, site)).or_default() += &part;
                    }
                }
            }
        }
        paths
    }
}

/// How sure the wait of each object is, and its stall. `spreads`: by row of code and object. `places`: where that is in the profile.
fn add_errors(
    profile: &mut Profile,
    spreads: &FxHashMap<(u32, u32), CostSpread>,
    places: &[Option<ObjectIx>],
) {
    let mut of_cells: FxHashMap<(CodeIx, ObjectIx), Counts> = FxHashMap::default();
    for cell in &profile.cells {
        *of_cells.entry((cell.code, cell.object)).or_default() += &cell.counts.get();
    }
    // What is stalled of a wait is the part that is not hidden, the same in each burst: of an object's there, or where that is not told, of all
    // that the code waits for.
    let stalled = |profile: &Profile, code: u32, object: u32| {
        let of_cell = places[object as usize].and_then(|place| of_cells.get(&(CodeIx(code), place)));
        let counts = of_cell.copied().unwrap_or_else(|| profile.code[code as usize].counts.get());
        let wait = profile.wait_cycles(&counts);
        if wait > 0 { profile.stall_cycles(&counts) as f64 / wait as f64 } else { 0.0 }
    };
    let mut by_object: FxHashMap<u32, [CostSpread; 2]> = FxHashMap::default();
    let mut whole = [CostSpread::default(); 2];
    for (&(code, object), &wait) in spreads {
        let both = [wait, wait * stalled(profile, code, object)];
        let of_object = by_object.entry(object).or_default();
        for (at, spread) in both.into_iter().enumerate() {
            of_object[at] += spread;
            whole[at] += spread;
        }
    }
    for (object, [wait, stall]) in by_object {
        let Some(place) = places[object as usize] else { continue };
        let counts = profile.objects[place.index()].counts;
        let error = |spread: CostSpread, whole: &CostSpread, cycles: u64| {
            spread.error_of_share(whole).map(|part| (part * cycles as f64).round() as u64)
        };
        let wait = error(wait, &whole[0], profile.wait_cycles(&counts));
        // What does not stall does so in no burst.
        let stall = match profile.stall_cycles(&counts) {
            0 => Some(0),
            cycles => error(stall, &whole[1], cycles),
        };
        let stall = stall.filter(|_| profile.has_stalls());
        let object = &mut profile.objects[place.index()];
        (object.wait_error_cycles, object.stall_error_cycles) = (wait, stall);
    }
}

/// Pointers' samples among sites, in parts of 1.
struct Sites {
    by_pointer: FxHashMap<(u32, Missing), Vec<(u32, f64)>>,
    /// By row of code and pointer, where that says more.
    by_operand: FxHashMap<(u32, u32, Missing), Vec<(u32, f64)>>,
}

impl Sites {
    /// Of the samples of an object at a row of code; None: they are its.
    fn of(&self, code: u32, object: u32, missing: Missing) -> Option<&[(u32, f64)]> {
        let of_operand = self.by_operand.get(&(code, object, missing)).map(Vec::as_slice);
        of_operand.or_else(|| self.of_pointer(object, missing))
    }

    /// Of all samples of an object; None: they are its.
    fn of_pointer(&self, object: u32, missing: Missing) -> Option<&[(u32, f64)]> {
        self.by_pointer.get(&(object, missing)).map(Vec::as_slice)
    }

    /// Of each pointer its sites, by number.
    fn of_each_pointer(&self) -> FxHashMap<u32, Vec<u32>> {
        let mut sites_of: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (pointer, sites) in self.all() {
            sites_of.entry(pointer).or_default().extend(sites.iter().map(|&(site, _)| site));
        }
        sites_of.values_mut().for_each(|sites| {
            sites.sort_unstable();
            sites.dedup();
        });
        sites_of
    }

    /// All pointers and their sites.
    fn all(&self) -> impl Iterator<Item = (u32, &[(u32, f64)])> {
        let of_operands = self.by_operand.iter().map(|(&(_, pointer, _), sites)| (pointer, sites.as_slice()));
        self.by_pointer.iter().map(|(&(pointer, _), sites)| (pointer, sites.as_slice())).chain(of_operands)
    }
}

fn is_file(recording: &Recording, code: Code, path: &str) -> bool {
    code.0.and_then(|file| recording.files().get(file)).is_some_and(|file| file.path == path)
}
