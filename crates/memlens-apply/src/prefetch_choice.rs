//! Which loads of a profile get prefetches, and why others do not.
//!
//! Instructions are ranked by what they make the program wait: in a profile that counts misses, the wait cycles beyond
//! those of the first level's hits; in a sampled one, the samples' cost. Those with at least [`LEAST_SHARE`] are looked
//! at, in the code of the files as they are now.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use memlens_prefetch::{Detour, Function, Jump, Pattern};
use memlens_profile::{CodeIx, CodeLocation, ModuleIx, Profile};
use memlens_symbols::{DebugSearch, Module, SectionKind};

use crate::choice::Files;

/// Instructions with a smaller share are left as they are.
pub const LEAST_SHARE: f64 = 0.01;
/// Processors do not follow larger steps by themselves.
const LARGE_STEP_BYTES: u64 = 2048;
/// Instructions looked at, at most.
const MAX_LOADS: usize = 32;
/// Pieces of a function, at most.
const MAX_PARTS: usize = 8;

/// A load or store that is prefetched.
#[derive(Clone, Debug, PartialEq)]
pub struct ChosenLoad {
    /// The load.
    pub code: CodeIx,
    /// Its module offset (svma).
    pub svma: u64,
    /// Share of what the program waits, 0 to 1.
    pub share: f64,
    /// Function, source file and line, as far as known.
    pub place: String,
    /// `visited[column[i]]`: the objects that it and the loads that it depends on touch.
    pub pattern: String,
    /// How its address follows.
    pub kind: Pattern,
    /// Where its loop begins: function, file and line.
    pub looped: String,
}

/// A load for which nothing is done.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedLoad {
    /// The load.
    pub code: CodeIx,
    /// Its module offset (svma), or address.
    pub svma: u64,
    /// Share of what the program waits, 0 to 1.
    pub share: f64,
    /// Function, source file and line, as far as known.
    pub place: String,
    /// Why.
    pub reason: String,
}

/// Loads of a loop that share a detour: they are prefetched together or not at all.
#[derive(Clone, Debug)]
pub struct Group {
    /// The file.
    pub module: PathBuf,
    /// One past the last address (svma) of the file in memory.
    pub module_end: u64,
    /// The detour.
    pub detour: Detour,
    /// Its loads, those with the largest share first.
    pub loads: Vec<ChosenLoad>,
}

impl Group {
    /// The sum of its loads' shares.
    pub fn share(&self) -> f64 {
        self.loads.iter().map(|load| load.share).sum()
    }
}

/// What a profile's loads come to.
#[derive(Clone, Debug, Default)]
pub struct PrefetchChoice {
    /// What is done, the largest share first.
    pub groups: Vec<Group>,
    /// What is not.
    pub refused: Vec<RefusedLoad>,
}

/// Chooses. `program` is the file that will run, which may be a moved copy of the recorded one.
pub fn choose_prefetches(profile: &Profile, program: &Path) -> PrefetchChoice {
    let amount = |code: &CodeLocation| profile.cost_beyond_first_level(&code.counts.get());
    let total: u64 = profile.code.iter().map(amount).sum();
    // An instruction with two operands has two entries.
    let mut by_place: BTreeMap<(Option<ModuleIx>, u64), (u64, usize)> = BTreeMap::new();
    for (at, code) in profile.code.iter().enumerate() {
        let entry = by_place.entry((code.module, code.offset)).or_insert((0, at));
        entry.0 += amount(code);
    }
    let mut ranked: Vec<_> = by_place
        .into_iter()
        .map(|((module, svma), (amount, at))| {
            (module, svma, amount as f64 / total.max(1) as f64, CodeIx::from_index(at))
        })
        .filter(|load| load.2 >= LEAST_SHARE)
        .collect();
    ranked.sort_by(|first, second| second.2.total_cmp(&first.2));
    ranked.truncate(MAX_LOADS);

    let mut files = Files::new(program);
    let mut choice = PrefetchChoice::default();
    let mut modules: BTreeMap<PathBuf, Vec<(u64, f64, CodeIx)>> = BTreeMap::new();
    for (module, svma, share, code) in ranked {
        let path = match module {
            // Its hot loops have run before anything can be put into them.
            Some(module) if profile.module(Some(module)).is_some_and(|module| is_linker(module.name())) => {
                Err("it is the dynamic linker".to_owned())
            }
            Some(module) => files.of(profile, module),
            None => Err("it is in generated code".to_owned()),
        };
        match path {
            Ok(path) => modules.entry(path).or_default().push((svma, share, code)),
            Err(reason) => {
                let place = place_in(profile, code);
                choice.refused.push(RefusedLoad { code, svma, share, place, reason });
            }
        }
    }
    for (path, loads) in modules {
        plan_module(profile, &path, &loads, &mut choice);
    }
    leave_to_the_processor(&mut choice);
    choice.groups.sort_by(|first, second| second.share().total_cmp(&first.share()));
    choice.refused.sort_by(|first, second| second.share.total_cmp(&first.share));
    choice
}

/// Withdraws what is only walked in small steps, where something else is to be done: the processor prefetches such by
/// itself (Intel optimisation reference manual, "Data Prefetching": within a page).
fn leave_to_the_processor(choice: &mut PrefetchChoice) {
    let is_small = |load: &ChosenLoad| matches!(load.kind, Pattern::Strided { step_bytes } if step_bytes.unsigned_abs() < LARGE_STEP_BYTES);
    if choice.groups.iter().all(|group| group.loads.iter().all(is_small)) {
        return;
    }
    let small = choice.groups.extract_if(.., |group| group.loads.iter().all(is_small));
    choice.refused.extend(small.flat_map(|group| group.loads).map(|load| RefusedLoad {
        code: load.code,
        svma: load.svma,
        share: load.share,
        place: load.place,
        reason: "it goes on in small steps, which the processor follows by itself".to_owned(),
    }));
}

/// Whether a file's name is one of those that dynamic linkers have (ld.so(8)).
fn is_linker(name: &str) -> bool {
    name.starts_with("ld-linux")
        || name.starts_with("ld-musl")
        || name.starts_with("ld.so")
        || name.starts_with("ld-2.")
}

fn plan_module(profile: &Profile, path: &Path, loads: &[(u64, f64, CodeIx)], choice: &mut PrefetchChoice) {
    let mut refuse = |load: &(u64, f64, CodeIx), reason: String| {
        let (svma, share, code) = *load;
        let place = place_in(profile, code);
        let load = RefusedLoad { code, svma, share, place, reason };
        choice.refused.push(load);
    };
    let symbols = match Module::open(path, &DebugSearch::default()) {
        Ok(symbols) => symbols,
        Err(error) => {
            loads.iter().for_each(|load| refuse(load, format!("{} cannot be read: {error}", path.display())));
            return;
        }
    };
    let mut jumps: Vec<Jump> = Vec::new();
    for section in symbols.sections().iter().filter(|section| section.kind == SectionKind::Text) {
        if let Some(code) = symbols.code(section.start, section.end) {
            jumps.extend(memlens_prefetch::jumps(section.start, code));
        }
    }
    jumps.sort_unstable();
    let module_end = symbols.sections().iter().map(|section| section.end).max().unwrap_or(0);
    let mut functions: BTreeMap<u64, Vec<(u64, f64, CodeIx)>> = BTreeMap::new();
    for load in loads {
        match symbols.function_at(load.0) {
            Some(function) => functions.entry(function.start).or_default().push(*load),
            None => refuse(load, "no function is known there".to_owned()),
        }
    }
    for (start, loads) in functions {
        let function = Function::new(&parts(&symbols, start, &jumps), &jumps);
        let function = match function {
            Ok(function) => function,
            Err(reason) => {
                loads.iter().for_each(|load| refuse(load, reason.to_string()));
                continue;
            }
        };
        let targets: Vec<u64> = loads.iter().map(|load| load.0).collect();
        let plan = memlens_prefetch::plan(&function, &targets, &jumps);
        for (svma, reason) in plan.refused {
            if let Some(load) = loads.iter().find(|load| load.0 == svma) {
                refuse(load, reason.to_string());
            }
        }
        for detour in plan.detours {
            let mut chosen: Vec<ChosenLoad> = detour
                .prefetches
                .iter()
                .filter_map(|prefetch| {
                    let &(svma, share, code) = loads.iter().find(|load| load.0 == prefetch.target)?;
                    Some(ChosenLoad {
                        code,
                        svma,
                        share,
                        place: place_in(profile, code),
                        pattern: pattern(profile, code, &prefetch.pattern),
                        kind: prefetch.pattern.clone(),
                        looped: place_of(&symbols, prefetch.loop_start),
                    })
                })
                .collect();
            chosen.sort_by(|first, second| second.share.total_cmp(&first.share));
            choice.groups.push(Group { module: path.to_owned(), module_end, detour, loads: chosen });
        }
    }
}

/// A function's code: its own, and parts elsewhere (`NAME.cold`) from which jumps come back into it.
fn parts<'a>(symbols: &'a Module, start: u64, jumps: &[Jump]) -> Vec<(u64, &'a [u8])> {
    let mut parts: Vec<(u64, &[u8])> = Vec::new();
    let mut open = vec![start];
    while let Some(address) = open.pop() {
        let Some(function) = symbols.function_at(address) else { continue };
        if parts.len() == MAX_PARTS || parts.iter().any(|part| part.0 == function.start) {
            continue;
        }
        let Some(code) = symbols.code(function.start, function.end) else { continue };
        parts.push((function.start, code));
        let first = jumps.partition_point(|jump| jump.to <= function.start);
        let into = jumps[first..].iter().take_while(|jump| jump.to < function.end);
        open.extend(
            into.filter(|jump| !(function.start..function.end).contains(&jump.from)).map(|jump| jump.from),
        );
    }
    parts
}

/// Where an instruction is, for people.
fn place_in(profile: &Profile, code: CodeIx) -> String {
    let code = &profile.code[code.index()];
    let frames: Vec<_> = profile.stack_frames(code.stack).collect();
    let function = frames.iter().find_map(|frame| frame.function.as_deref());
    let line = frames.first().and_then(|frame| Some((frame.file.as_deref()?, frame.line?)));
    named(
        function,
        line,
        profile.module(code.module).map_or("generated code", |module| module.name()),
        code.offset,
    )
}

fn place_of(symbols: &Module, svma: u64) -> String {
    let frames = symbols.locate(svma);
    let function = frames.iter().find_map(|frame| frame.function.as_deref());
    let line = frames.first().and_then(|frame| Some((frame.file.as_deref()?, frame.line?)));
    let module = symbols.name().rsplit('/').next().unwrap_or_default();
    named(function, line, module, svma)
}

fn named(function: Option<&str>, line: Option<(&str, u32)>, module: &str, svma: u64) -> String {
    let function = function.unwrap_or("?");
    match line {
        Some((file, line)) => format!("{function} {}:{line}", file.rsplit('/').next().unwrap_or(file)),
        None => format!("{function} {module}+{svma:#x}"),
    }
}

/// The object that an instruction touches most; `?`: none is known.
fn object_at(profile: &Profile, module: Option<ModuleIx>, svma: u64) -> String {
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for cell in &profile.cells {
        let code = profile.code.get(cell.code.index());
        if code.is_some_and(|code| (code.module, code.offset) == (module, svma)) {
            let counts = cell.counts.get();
            *sums.entry(cell.object.0).or_default() += counts.accesses().max(counts.sampled.samples);
        }
    }
    let most = sums.into_iter().max_by_key(|&(_, sum)| sum);
    let object = most.and_then(|(object, _)| profile.objects.get(object as usize));
    object.map_or_else(|| "?".to_owned(), |object| object.name.clone())
}

/// `visited[column[i]]`.
fn pattern(profile: &Profile, code: CodeIx, kind: &Pattern) -> String {
    let code = &profile.code[code.index()];
    let own = object_at(profile, code.module, code.offset);
    match kind {
        Pattern::Strided { .. } => format!("{own}[i]"),
        Pattern::Indirect { roots } if roots.is_empty() => format!("{own}[f(i)]"),
        Pattern::Indirect { roots } => {
            let mut names: Vec<String> =
                roots.iter().map(|&root| format!("{}[i]", object_at(profile, code.module, root))).collect();
            names.dedup();
            format!("{own}[{}]", names.join(", "))
        }
    }
}
