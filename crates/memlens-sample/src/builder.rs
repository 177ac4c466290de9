//! From tallies to a profile: names, source lines, sums.

use std::borrow::Cow;

use memlens_profile::{
    Cell, CodeIx, CodeLocation, Frame, FrameIx, Module as ModuleRow, ModuleIx, Object, ObjectIx, Profile,
    SamplingInfo, SourceLine, Stack, StackIx, Thread, ThreadIx,
};
use memlens_symbols::Module;
use memlens_types::{AccessKind, Counts, ObjectKind, Sampled};
use rustc_hash::FxHashMap;

use crate::modules::{Files, REPLACED};
use crate::naming::{NamedObject, Namer, access_of, of_part};
use crate::recording::{Code, Recording, Spot};
use crate::static_attribution::CodeSamples;

/// Rows that grow as tallies come; a profile can be taken at any time.
#[derive(Debug, Default)]
pub struct ProfileBuilder {
    namer: Namer,
    rows: Rows,
    /// Samples of which only the instruction is to be used.
    code_samples: CodeSamples,
}

/// Objects, code and the cells where they meet.
#[derive(Clone, Debug, Default)]
struct Rows {
    objects: Vec<NamedObject>,
    object_numbers: FxHashMap<NamedObject, u32>,
    code: Vec<(Code, u8, AccessKind, u32)>,
    code_numbers: FxHashMap<(Code, u8, AccessKind, u32), u32>,
    cells: FxHashMap<(u32, u32, u32), Sampled>,
}

impl ProfileBuilder {
    /// Names the tallies of a recording and takes them in.
    pub fn fold(&mut self, recording: &mut Recording) {
        let tallies = recording.take_tallies();
        let files = recording.files();
        self.namer.prepare(&tallies, files);
        for (key, sampled) in tallies {
            if let (Spot::CodeOnly, Some(file)) = (&key.spot, key.code.0) {
                self.code_samples.add(file, key.code.1, key.thread, sampled);
                continue;
            }
            let (object, sampled) = self.namer.object(&key, sampled, files);
            self.rows.add(object, key.code, key.operand, key.thread, &sampled, files);
        }
    }

    /// With what static analysis makes of samples that are known by their instruction only.
    fn rows(&self, recording: &Recording) -> Cow<'_, Rows> {
        if self.code_samples.is_empty() {
            return Cow::Borrowed(&self.rows);
        }
        let files = recording.files();
        let mut rows = self.rows.clone();
        self.code_samples.attribute(files, recording.skid(), |file, part, thread, sampled| {
            rows.add(
                of_part(file, part, files),
                (Some(file), part.pc),
                part.operand,
                thread,
                &sampled,
                files,
            );
        });
        Cow::Owned(rows)
    }

    /// The profile of what was taken in so far. `run` and what only the collector knows is left to
    /// the caller; `sampling` gets its counts.
    pub fn profile(&self, recording: &Recording, mut sampling: SamplingInfo) -> Profile {
        let counts = recording.counts();
        sampling.samples = counts.samples;
        sampling.cost = counts.cost;
        sampling.squared_cost = counts.squared_cost;
        sampling.whole_stacks = counts.whole_stacks;
        sampling.cut_stacks = counts.cut_stacks;
        let mut profile = Profile::default();
        let rows = self.rows(recording);
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
                && (problem == REPLACED
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
        for (index, object) in rows.objects.iter().enumerate() {
            profile.objects.push(Object {
                id: index as u32 + 1,
                kind: object.kind,
                name: object.name.clone(),
                type_name: object.type_name.clone(),
                declared: object.declared.clone().map(|(file, line)| SourceLine { file, line }),
                module: module(object.file),
                blocks: u64::from(object.bytes.is_some()),
                bytes: object.bytes,
                access_path: object.access_path.clone(),
                unknown_reason: object.unknown_reason.clone(),
                ..Object::default()
            });
        }
        let mut frames = FrameRows::default();
        for (index, &(code, operand, kind, size_bytes)) in rows.code.iter().enumerate() {
            let stack = frames.stack(&mut profile, recording, code);
            if code.0.is_none() {
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
                counts: Counts::default(),
            });
        }
        let mut cells: Vec<_> = rows.cells.iter().collect();
        cells.sort_unstable_by_key(|(key, _)| **key);
        for (&(code, object, thread), &sampled) in cells {
            profile.cells.push(Cell {
                code: CodeIx(code),
                object: ObjectIx(object),
                thread: ThreadIx(thread),
                counts: Counts { sampled, ..Counts::default() },
            });
        }
        profile.sum_cells();
        let attribution = &mut profile.attribution;
        for object in &profile.objects {
            let samples = object.counts.sampled.samples;
            match object.kind {
                ObjectKind::Unknown => {
                    attribution.unknown_accesses += samples;
                    let reason = object.unknown_reason.clone().unwrap_or_default();
                    *attribution.unknown_reasons.entry(reason).or_default() += samples;
                }
                _ => attribution.attributed_accesses += samples,
            }
        }
        attribution.truncated_stacks = counts.cut_stacks;
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
        profile.run.mode = "sample".to_owned();
        profile.run.estimated = true;
        profile.run.primary_cost = match sampling.unit {
            memlens_profile::SampleUnit::Nanoseconds => "time".to_owned(),
            memlens_profile::SampleUnit::Events => sampling.event.clone(),
        };
        profile.run.sampling = Some(sampling);
        profile
    }
}

impl Rows {
    fn add(
        &mut self,
        object: NamedObject,
        code: Code,
        operand: Option<u8>,
        thread: u32,
        sampled: &Sampled,
        files: &Files,
    ) {
        let next = self.objects.len() as u32;
        let object = match self.object_numbers.get(&object) {
            Some(&known) => known,
            None => {
                self.object_numbers.insert(object.clone(), next);
                self.objects.push(object);
                next
            }
        };
        let (kind, size_bytes) = access_of(code, operand, files);
        let place = (code, operand.unwrap_or(0), kind, size_bytes);
        let next = self.code.len() as u32;
        let code = *self.code_numbers.entry(place).or_insert_with(|| {
            self.code.push(place);
            next
        });
        *self.cells.entry((code, object, thread)).or_default() += sampled;
    }
}

fn is_file(recording: &Recording, code: Code, path: &str) -> bool {
    code.0.and_then(|file| recording.files().get(file)).is_some_and(|file| file.path == path)
}

/// Frames and stacks that were made already.
#[derive(Default)]
struct FrameRows {
    stacks: FxHashMap<Code, StackIx>,
}

impl FrameRows {
    /// The inlined functions at a code position, innermost first.
    fn stack(&mut self, profile: &mut Profile, recording: &Recording, code: Code) -> StackIx {
        if let Some(&known) = self.stacks.get(&code) {
            return known;
        }
        let symbols = code.0.and_then(|file| recording.files().get(file)).and_then(|mapped| mapped.symbols());
        let mut located = symbols.map(|symbols| symbols.locate(code.1)).unwrap_or_default();
        if located.is_empty() {
            located.push(Default::default());
        }
        let last = located.len() - 1;
        let mut list = Vec::with_capacity(located.len());
        for (depth, place) in located.into_iter().enumerate() {
            let source_text = match (symbols, &place.file, place.line) {
                (Some(symbols), Some(file), Some(line)) => symbols.source_line(file, line),
                _ => None,
            };
            list.push(FrameIx::from_index(profile.frames.len()));
            profile.frames.push(Frame {
                module: code.0.map(ModuleIx),
                offset: code.1,
                function: place.function,
                file: place.file,
                line: place.line,
                column: place.column,
                inlined: depth < last,
                source_text: source_text.map(|text| text.trim().to_owned()),
            });
        }
        let stack = StackIx::from_index(profile.stacks.len());
        profile.stacks.push(Stack(list));
        self.stacks.insert(code, stack);
        stack
    }
}
