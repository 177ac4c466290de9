//! How instructions go through memory: a profile's patterns from windows of accesses and machine code.
//!
//! ```text
//!  windows of a thread's accesses ──► memlens-locality: differences, strides, entropy ──┐
//!                                                                                       ├──► rows of `patterns`, `object_patterns`
//!  code of the costly operands ──► memlens-code: does a load bring the address? ────────┤
//!  counts inside and before loops ──► iterations each time a loop is come to ───────────┘
//! ```
//!
//! Addresses alone cannot tell a list from chance; code alone cannot tell a list whose blocks lie in order from one
//! that does not. So both are asked. Knows neither collectors nor terminals.
#![forbid(unsafe_code)]

mod waits;

pub use waits::{StallParts, stall_parts};

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

use memlens_code::{AddressSource as CodeSource, LoopCode, LoopPlaces};
use memlens_locality::{AddressSource, FoundPattern, Pattern, PatternKind, Patterns};
use memlens_profile::{AccessPattern, CodeIx, CodeLocation, ModuleIx, ObjectIx, ObjectPattern, Profile};
use memlens_symbols::Module;
use rustc_hash::{FxHashMap, FxHashSet};

/// Operands whose code is looked at, the costliest ones: a function costs some milliseconds once.
const MOST_OPERANDS: usize = 500;
/// A chain whose loads bring a smaller part of an operand's addresses is mostly left at its first link: of a hash table's buckets most are short,
/// and where the first node is does not come from another one.
const CHAINED: f64 = 0.5;
/// A stride with a smaller share of the differences is no stride.
const RARELY: f64 = 0.2;

/// Fills `profile.patterns` and `profile.object_patterns`. `operands`: which row of code each number of `patterns` is. `object_of`: which
/// row of objects an owner is, of the operand with a number. `symbols_of`: a module of the profile as a file, where it can be read. The
/// profile's counts must be there: they say what is costly. `sources` is what earlier profiles of the same modules have found out of their
/// code.
pub fn add_patterns<'a>(
    profile: &mut Profile,
    patterns: &mut Patterns,
    operands: &[(u32, CodeIx)],
    object_of: &dyn Fn(u32, u32) -> Option<ObjectIx>,
    symbols_of: &dyn Fn(ModuleIx) -> Option<&'a Module>,
    sources: &mut Sources,
) {
    let mut costly: Vec<(u32, CodeIx)> = operands.to_vec();
    costly.sort_by_cached_key(|(_, code)| Reverse(profile.cost(&profile.code[code.index()].counts.get())));
    costly.truncate(MOST_OPERANDS);
    let numbers: FxHashMap<CodeIx, u32> = operands.iter().map(|&(number, code)| (code, number)).collect();
    // The operand of an instruction that loads, by place.
    let places: FxHashMap<(Option<ModuleIx>, u64), CodeIx> = profile
        .code
        .iter()
        .enumerate()
        .filter(|(_, code)| code.kind.reads())
        .map(|(at, code)| ((code.module, code.offset), CodeIx::from_index(at)))
        .collect();
    let mut accesses_at: FxHashMap<(Option<ModuleIx>, u64), u64> = FxHashMap::default();
    for code in &profile.code {
        let most = accesses_at.entry((code.module, code.offset)).or_default();
        *most = (*most).max(code.counts.get().accesses());
    }
    sources.look_at(profile, costly.iter().map(|&(_, code)| code), symbols_of);
    for &(number, code) in &costly {
        let location = &profile.code[code.index()];
        let Some(source) = sources.of(location) else { continue };
        let source = match source {
            CodeSource::Chain => {
                let accesses = |code: &CodeLocation| code.counts.get().accesses();
                let of_place = |&pc: &u64| places.get(&(location.module, pc));
                let loaders = sources.loaders(location).iter().filter_map(of_place);
                let came: u64 = loaders.map(|code| accesses(&profile.code[code.index()])).sum();
                match came as f64 >= CHAINED * accesses(location) as f64 {
                    true => AddressSource::Itself,
                    false => AddressSource::Computed,
                }
            }
            CodeSource::Computed => AddressSource::Computed,
            CodeSource::LoadedBy(_) => {
                // A load that was never met loads nothing; one of the same place each time loads what the loop does not change, mostly.
                let met = |&pc: &u64| numbers.get(places.get(&(location.module, pc))?).copied();
                let varies = |&number: &u32| {
                    patterns.of(number).is_none_or(|pattern| pattern.kind != PatternKind::Constant)
                };
                let loader = sources.loaders(location).iter().filter_map(met).find(varies);
                loader.map_or(AddressSource::Computed, AddressSource::LoadedBy)
            }
        };
        patterns.set_source(number, source);
    }
    let rows: FxHashMap<u32, CodeIx> = operands.iter().copied().collect();
    let (mut wholes, mut parts): (FxHashMap<u32, Pattern>, FxHashMap<u32, Vec<_>>) = Default::default();
    for FoundPattern { instruction, owner, pattern } in patterns.all() {
        match owner {
            None => drop(wholes.insert(instruction, pattern)),
            Some(owner) => parts.entry(instruction).or_default().push((owner, pattern)),
        }
    }
    let trips = |code: &CodeIx| {
        let location = &profile.code[code.index()];
        let (module, start) = (location.module?, sources.get(location)?.in_loop?);
        let places = sources.loops.get(&(module, start))?;
        let met = |&place: &u64| accesses_at.get(&(Some(module), place)).copied().unwrap_or(0);
        let LoopPlaces { inside, before, beside, returns, .. } = places;
        if before.is_empty() && beside.is_empty() && returns.is_empty() {
            return None;
        }
        let times = before.iter().map(met).find(|&met| met > 0);
        let times = times.max(beside.iter().map(met).max().filter(|&met| met > 0));
        // What bursts never saw come to its begin is as long as all that they saw of it.
        let times = times.unwrap_or_else(|| returns.iter().map(met).sum::<u64>().max(1));
        let permille = u128::from(inside.iter().map(met).max()?) * 1000;
        Some(u64::try_from(permille / u128::from(times)).unwrap_or(u64::MAX))
    };
    let of_code: FxHashMap<CodeIx, OfCode> = costly
        .iter()
        .map(|(_, code)| {
            let source = sources.get(&profile.code[code.index()]);
            let links = source.map(|source| source.links).filter(|&links| links > 0);
            let start = source.and_then(|source| source.in_loop).filter(|_| links.is_some());
            let places = profile.code[code.index()].module.zip(start).and_then(|key| sources.loops.get(&key));
            let exits = places.and_then(|places| u32::try_from(places.exits).ok());
            (*code, OfCode { links, exits, trips_permille: trips(code) })
        })
        .collect();
    let row = |code, pattern: &Pattern| row(code, pattern, &rows, of_code.get(&code));
    let mut of_objects: Vec<ObjectPattern> = Vec::new();
    // Operands that have several patterns.
    let mut differ: FxHashSet<CodeIx> = FxHashSet::default();
    for (number, code) in operands {
        let Some(whole) = wholes.get(number) else { continue };
        let whole = row(*code, whole);
        let apart = |(owner, pattern): &(u32, Pattern)| {
            let pattern = row(*code, pattern);
            Some(ObjectPattern { object: object_of(*number, *owner)?, pattern })
        };
        let known = |it: &ObjectPattern| it.pattern.kind != PatternKind::Unknown;
        let apart: Vec<_> = parts.get(number).into_iter().flatten().filter_map(apart).filter(known).collect();
        if apart.iter().any(|it| !is_alike(&whole, &it.pattern)) {
            differ.insert(*code);
        }
        of_objects.extend(apart);
        if whole.kind != PatternKind::Unknown {
            profile.patterns.push(whole);
        }
    }
    profile.patterns.sort_by_key(|row| row.code);
    profile.patterns.dedup_by_key(|row| row.code);
    // Of several owners that are one object the one that was accessed most.
    of_objects.retain(|row| differ.contains(&row.pattern.code));
    of_objects.sort_by_key(|row| (row.pattern.code, row.object, Reverse(row.pattern.executions)));
    of_objects.dedup_by_key(|row| (row.pattern.code, row.object));
    profile.object_patterns = of_objects;
}

/// Whether two patterns read alike.
fn is_alike(one: &AccessPattern, other: &AccessPattern) -> bool {
    (one.kind, one.stride_bytes, one.walk_steps) == (other.kind, other.stride_bytes, other.walk_steps)
}

/// What the code of functions says of their operands, as far as it was looked at.
#[derive(Debug, Default)]
pub struct Sources {
    /// None: of an operand of which it says nothing.
    operands: FxHashMap<(ModuleIx, u64), Option<Source>>,
    /// By the loop's begin.
    loops: FxHashMap<(ModuleIx, u64), LoopPlaces>,
}

/// Where an operand's address comes from, and the loads that bring it.
#[derive(Debug)]
struct Source {
    source: CodeSource,
    loaders: Vec<u64>,
    /// Of [`CodeSource::Chain`] how many links of a node lead on, of others 0.
    links: u32,
    /// Where the innermost loop around it begins.
    in_loop: Option<u64>,
}

/// What a pattern has besides what windows show.
#[derive(Clone, Copy, Debug, Default)]
struct OfCode {
    links: Option<u32>,
    exits: Option<u32>,
    trips_permille: Option<u64>,
}

impl Sources {
    fn get(&self, location: &CodeLocation) -> Option<&Source> {
        self.operands.get(&(location.module?, location.offset))?.as_ref()
    }

    fn of(&self, location: &CodeLocation) -> Option<CodeSource> {
        Some(self.get(location)?.source)
    }

    fn loaders(&self, location: &CodeLocation) -> &[u64] {
        self.get(location).map_or(&[], |source| &source.loaders)
    }

    /// Looks at the code of those rows of code that are new. One function at a time: large ones take megabytes.
    fn look_at<'a>(
        &mut self,
        profile: &Profile,
        operands: impl Iterator<Item = CodeIx>,
        symbols_of: &dyn Fn(ModuleIx) -> Option<&'a Module>,
    ) {
        let mut by_function: BTreeMap<(ModuleIx, u64, u64), Vec<u64>> = BTreeMap::new();
        for location in operands.map(|code| &profile.code[code.index()]) {
            let Some(module) = location.module else { continue };
            if let Entry::Vacant(new) = self.operands.entry((module, location.offset)) {
                new.insert(None);
                let function = symbols_of(module).and_then(|symbols| symbols.function_at(location.offset));
                let Some(function) = function else { continue };
                by_function.entry((module, function.start, function.end)).or_default().push(location.offset);
            }
        }
        for ((module, start, end), offsets) in by_function {
            let Some(symbols) = symbols_of(module) else { continue };
            let Some((architecture, code)) = symbols.architecture().zip(symbols.code(start, end)) else {
                continue;
            };
            let code = LoopCode::new(architecture, &[(start, code)]);
            let source = |at| {
                let source = code.address_source(at)?;
                let is_loaded = source != CodeSource::Computed;
                let loaders = if is_loaded { code.loaders(at) } else { Vec::new() };
                let links = if source == CodeSource::Chain { code.links(at) } else { 0 };
                let links = u32::try_from(links).unwrap_or(u32::MAX);
                Some(Source { source, loaders, links, in_loop: code.loop_at(at) })
            };
            for at in offsets {
                let source = source(at);
                if let Some(start) = source.as_ref().and_then(|source| source.in_loop)
                    && let Entry::Vacant(new) = self.loops.entry((module, start))
                {
                    new.insert(code.loop_places(start).unwrap_or_default());
                }
                self.operands.insert((module, at), source);
            }
        }
    }
}

fn row(
    code: CodeIx,
    pattern: &Pattern,
    rows: &FxHashMap<u32, CodeIx>,
    of_code: Option<&OfCode>,
) -> AccessPattern {
    let permille = |share: f64| (share * 1000.0).round() as u32;
    let stride = pattern.strides.first().filter(|stride| stride.share >= RARELY);
    let of_code = of_code.copied().unwrap_or_default();
    AccessPattern {
        code,
        kind: pattern.kind,
        stride_bytes: stride.map(|stride| stride.bytes),
        stride_permille: stride.map_or(0, |stride| permille(stride.share)),
        loaded_by: match pattern.source {
            Some(AddressSource::LoadedBy(number)) => rows.get(&number).copied(),
            _ => None,
        },
        entropy_millibits: permille(pattern.entropy_bits),
        span_bytes: pattern.span_bytes.round() as u64,
        walk_steps: pattern.walk_steps.filter(|_| stride.is_some()),
        links: of_code.links.filter(|_| pattern.kind == PatternKind::PointerChase),
        exits: of_code.exits.filter(|_| pattern.kind == PatternKind::PointerChase),
        trips_permille: of_code.trips_permille,
        accesses_apart: pattern.references_apart.round() as u32,
        executions: pattern.executions,
        confidence_permille: permille(pattern.confidence),
    }
}
