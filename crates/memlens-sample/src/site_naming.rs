//! What the blocks of an allocation site are called: as exact mode names them, after the variable that receives the
//! block.

use memlens_objects::{SiteId, alloc_functions, split_frame_key};
use memlens_symbols::{
    AssignedVariable, Assignment, FunctionRef, Module, NamingCode, Receiver, Recursion, block_type,
    naming_code, receiver, spelling_frame,
};
use memlens_types::ObjectKind;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

use crate::address_space::Code;
use crate::heap::{Heap, Stored};
use crate::modules::{Files, MappedFile};
use crate::naming::{HeldType, NamedObject, in_frame, in_image, place_in};
use crate::on_behalf::works_for_callers;

/// An allocation site as an object knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NamedSite {
    /// Its number.
    pub site: SiteId,
    /// How many of its innermost frames are allocation functions' own (`operator new` calls `malloc`).
    pub own_frames: usize,
    /// Which frame of the others, inlined ones counted, gave the object its name.
    pub named_at: Option<u32>,
}

/// So many calls away from an allocation function code still works for it. What is farther away prints complaints.
const HELPING_CALLS: usize = 2;

/// What of a file is an allocator's.
#[derive(Debug)]
struct Allocators {
    /// Where allocation functions begin.
    starts: FxHashSet<u64>,
    /// Where these begin, and what works for them: functions that they call, and that these call. In the C library
    /// `malloc` calls `_int_malloc`, and that `unlink_chunk`, which have no names there mostly.
    functions: FxHashSet<u64>,
    /// How names of other functions of theirs do.
    namespaces: Vec<&'static str>,
    /// Whether the file is an allocator and nothing else, by its name: `libjemalloc.so.2`.
    is_library: bool,
}

impl Allocators {
    fn of(symbols: &Module) -> Self {
        let table = alloc_functions::table(&[]);
        let names: Vec<&str> = table.iter().map(|function| function.name.as_str()).collect();
        let met = symbols.entry_points(&names);
        let namespaces: FxHashSet<&str> =
            met.iter().flat_map(|point| alloc_functions::namespaces(names[point.index])).collect();
        let starts: FxHashSet<u64> = met.iter().map(|point| point.svma).collect();
        let mut functions = starts.clone();
        let mut last: Vec<u64> = starts.iter().copied().collect();
        for _ in 0..HELPING_CALLS {
            let called = last.iter().flat_map(|&start| called_from(start, symbols));
            last = called.filter(|&function| functions.insert(function)).collect();
        }
        let name = symbols.name().rsplit('/').next().unwrap_or_default();
        let is_library = !starts.is_empty() && name.contains("malloc") && name.contains(".so");
        Self { starts, functions, namespaces: namespaces.into_iter().collect(), is_library }
    }

    /// Whether a function works for the allocator and for nobody else.
    fn has(&self, function: &FunctionRef) -> bool {
        let begins = |name: &Arc<str>| self.namespaces.iter().any(|begin| name.starts_with(begin));
        self.is_library
            || self.functions.contains(&function.start)
            || function.raw_name.as_ref().is_some_and(begins)
    }
}

/// The functions that the one beginning at `start` calls directly, but for those of the C library that work on whatever memory they are given.
fn called_from(start: u64, symbols: &Module) -> Vec<u64> {
    let code = || {
        let function = symbols.function_at(start).filter(|function| function.start == start)?;
        let code = symbols.code(start, function.end)?;
        Some(memlens_code::functions_called(symbols.architecture()?, code, start))
    };
    let mut called = code().unwrap_or_default();
    called.retain(|&target| !works_for_callers(symbols, target));
    called
}

/// Names sites, each once.
#[derive(Debug, Default)]
pub struct SiteNamer {
    names: FxHashMap<SiteId, NamedObject>,
    recursion: Recursion,
    /// By call stack without recursion: the sites that have it.
    folded: FxHashMap<Vec<u64>, Vec<SiteId>>,
    /// Of the first of these the stack.
    stacks: FxHashMap<SiteId, Vec<u64>>,
    allocators: FxHashMap<u32, Allocators>,
    /// Sites of mappings that were looked at for who made them.
    mappings: FxHashSet<SiteId>,
    assignments: FxHashMap<u64, Assignment>,
}

/// The file and svma of a frame key; None: code outside of every file.
pub fn code_of(key: u64) -> (Option<u32>, u64) {
    let (module, offset) = split_frame_key(key);
    (u32::from(module).checked_sub(1), offset)
}

fn file_of(key: u64, files: &Files) -> Option<(&MappedFile, u64)> {
    let (file, svma) = code_of(key);
    let mapped: &MappedFile = files.get(file?)?;
    Some((mapped, svma))
}

impl SiteNamer {
    /// The object that a site's blocks are.
    pub fn object(&mut self, site: SiteId, heap: &Heap, files: &Files) -> NamedObject {
        if let Some(known) = self.names.get(&site) {
            return known.clone();
        }
        let mut keys = heap.stack(site).to_vec();
        self.recursion.fold(&mut keys, |key| {
            let symbols = file_of(key, files).and_then(|(mapped, svma)| Some((mapped.symbols()?, svma)));
            symbols.map(|(symbols, svma)| symbols.locate(svma.wrapping_sub(1))).unwrap_or_default()
        });
        let sites = self.folded.entry(keys.clone()).or_default();
        sites.push(site);
        if let Some(known) = self.names.get(&sites[0]).cloned() {
            self.names.insert(site, known.clone());
            return known;
        }
        self.stacks.insert(site, keys.clone());
        let own_frames = keys.iter().take_while(|&&key| self.is_allocator(key, files)).count();
        let detail = heap.detail(site);
        let kind = if detail.is_mapping { ObjectKind::Mmap } else { ObjectKind::Heap };
        // Where an allocation function has called another one, the address was stored in its own frame, and it returned it.
        let stored = detail.stored.filter(|_| own_frames == 0);
        let mut object = self.named(kind, &keys[own_frames..], stored, files);
        if let Some(found) = &mut object.site {
            (found.site, found.own_frames) = (site, own_frames);
        }
        self.names.insert(site, object.clone());
        object
    }

    /// The call stack of an object's site, without recursion; and all sites that have it.
    pub fn stack(&self, site: SiteId) -> (&[u64], &[SiteId]) {
        let stack = self.stacks.get(&site).map(Vec::as_slice).unwrap_or_default();
        (stack, self.folded.get(stack).map(Vec::as_slice).unwrap_or_default())
    }

    /// Sites of mappings, each once, that an allocation function made on its way to a block, of an allocator that is part of the program:
    /// the agent watches no calls that stay in one file.
    pub fn mapped_by_allocators(&mut self, heap: &Heap, files: &Files) -> Vec<SiteId> {
        let new: Vec<SiteId> = heap.mapping_sites().filter(|site| !self.mappings.contains(site)).collect();
        self.mappings.extend(&new);
        let mut is_one =
            |site: &SiteId| heap.stack(*site).iter().any(|&key| self.is_of_allocator(key, files));
        new.into_iter().filter(|site| is_one(site)).collect()
    }

    /// Whether a return address lies in any function of an allocator whose `malloc` has a prefix. What the program calls often jumps on to
    /// them, and is on no stack.
    fn is_of_allocator(&mut self, key: u64, files: &Files) -> bool {
        self.allocator_at(key, files).is_some_and(|(allocators, function)| {
            !allocators.namespaces.is_empty() && allocators.has(&function)
        })
    }

    /// Whether a return address lies in an allocation function.
    fn is_allocator(&mut self, key: u64, files: &Files) -> bool {
        self.allocator_at(key, files)
            .is_some_and(|(allocators, function)| allocators.starts.contains(&function.start))
    }

    /// Whether an instruction works for an allocator.
    pub fn is_allocators(&mut self, (file, svma): Code, files: &Files) -> bool {
        let Some(file) = file else { return false };
        let Some(symbols) = files.get(file).and_then(|mapped| mapped.symbols()) else { return false };
        let allocators = self.allocators.entry(file).or_insert_with(|| Allocators::of(symbols));
        symbols.function_at(svma).is_some_and(|function| allocators.has(&function))
    }

    /// The function that a return address lies in, and what of its file is an allocator's.
    fn allocator_at(&mut self, key: u64, files: &Files) -> Option<(&Allocators, FunctionRef)> {
        let ((Some(file), _), (mapped, svma)) = (code_of(key), file_of(key, files)?) else { return None };
        let symbols = mapped.symbols()?;
        let allocators = self.allocators.entry(file).or_insert_with(|| Allocators::of(symbols));
        Some((allocators, symbols.function_at(svma.saturating_sub(1))?))
    }

    /// `keys`: the callers of the allocation function, innermost first.
    fn named(
        &mut self,
        kind: ObjectKind,
        keys: &[u64],
        stored: Option<Stored>,
        files: &Files,
    ) -> NamedObject {
        // The number is the caller's to set.
        let place = SiteId::new(1).map(|site| NamedSite { site, own_frames: 0, named_at: None });
        let unnamed = |name: String| NamedObject {
            file: keys.first().and_then(|&key| code_of(key).0),
            site: place,
            ..NamedObject::new(kind, name)
        };
        let innermost = keys.first().and_then(|&key| Some((file_of(key, files)?, code_of(key).0)));
        let mut first = None;
        if let (Some(stored), Some(((mapped, svma), file))) = (stored, innermost) {
            let (assignment, variable) = match stored {
                Stored::Frame(offset) => (
                    mapped.symbols().map(|symbols| symbols.slot_assignment(svma, offset)),
                    in_frame(file, svma.saturating_sub(1), offset, files),
                ),
                Stored::Image { file, svma } => (Some(Assignment::Unknown), in_image(file, svma, files)),
            };
            let is_variable =
                matches!(variable.kind, ObjectKind::Local | ObjectKind::Global | ObjectKind::Tls);
            if is_variable && !matches!(assignment, Some(Assignment::HandedOn(_))) {
                return NamedObject {
                    type_name: variable.type_name,
                    variable: variable.declared,
                    held: variable.held.map(|held| HeldType { is_behind: true, ..held }),
                    ..unnamed(variable.name)
                };
            }
            first = Some(assignment.unwrap_or(Assignment::Unknown));
        }
        let assignments = &mut self.assignments;
        let Receiver { level, variable } = receiver(keys.iter().map_while(|&key| {
            let (mapped, svma) = file_of(key, files)?;
            let symbols = mapped.symbols()?;
            Some(match first.take() {
                Some(first) => first,
                None => assignments.entry(key).or_insert_with(|| symbols.assignment(svma)).clone(),
            })
        }));
        let calls = || {
            keys.iter().map_while(|&key| {
                let (mapped, svma) = file_of(key, files)?;
                Some((code_of(key).0?, mapped.symbols()?, svma))
            })
        };
        let held_by = |variable| {
            block_type(calls(), variable).map(|found| HeldType {
                file: found.module,
                type_ref: found.type_ref,
                is_behind: found.is_behind,
            })
        };
        let named_at = naming_frame(keys, level, variable.as_ref(), files);
        let place = place.map(|place| NamedSite { named_at: Some(named_at), ..place });
        match variable {
            Some(variable) => {
                let holder = calls()
                    .nth(level)
                    .and_then(|(file, symbols, _)| Some((file, symbols, variable.type_ref?)));
                NamedObject {
                    held: held_by(holder),
                    type_name: variable.type_name,
                    variable: variable.decl_file.as_deref().map(str::to_owned).zip(variable.decl_line),
                    site: place,
                    ..unnamed(variable.name)
                }
            }
            None => NamedObject {
                held: held_by(None),
                site: place,
                ..unnamed(match kind {
                    ObjectKind::Mmap => mapping_by_code(keys.get(level..).unwrap_or_default(), files),
                    _ => name_by_code(keys.get(level..).unwrap_or_default(), files),
                })
            },
        }
    }
}

/// The frame in which the result of call number `level` is kept, in a variable if one is known.
fn naming_frame(keys: &[u64], level: usize, variable: Option<&AssignedVariable>, files: &Files) -> u32 {
    let frames = |key: u64| {
        let symbols = file_of(key, files).and_then(|(mapped, svma)| Some((mapped.symbols()?, svma)));
        symbols.map_or_else(|| vec![None], |(symbols, svma)| source_texts(symbols, svma))
    };
    let inside: usize = keys.iter().take(level).map(|&key| frames(key).len()).sum();
    let Some(variable) = variable else { return inside as u32 };
    let texts = keys.get(level).map(|&key| frames(key)).unwrap_or_default();
    (inside + spelling_frame(&variable.name, texts.iter().map(Option::as_deref))) as u32
}

/// The source lines of the call that returns to `svma`, one for each inlined function; one at least.
fn source_texts(symbols: &Module, svma: u64) -> Vec<Option<String>> {
    let mut located = symbols.locate(svma.wrapping_sub(1));
    if located.is_empty() {
        located.push(Default::default());
    }
    located.iter().map(|place| symbols.source_line(place.file.as_deref()?, place.line?)).collect()
}

/// After which code blocks are called that are kept by the first of these calls.
fn naming_code_of(keys: &[u64], files: &Files) -> NamingCode<String> {
    naming_code(keys.iter().map(|&key| {
        let located = file_of(key, files)
            .and_then(|(mapped, svma)| Some(mapped.symbols()?.locate(svma.wrapping_sub(1))));
        let frames = located.unwrap_or_default().into_iter().map(|place| (place.function, place.file));
        (code_of(key).0, frames.collect::<Vec<_>>())
    }))
}

/// A mapping that no variable is known of, as exact mode calls it.
fn mapping_by_code(keys: &[u64], files: &Files) -> String {
    match naming_code_of(keys, files) {
        NamingCode::Function(function) if !keys.is_empty() => format!("mapping by {function}"),
        _ => "anonymous mapping".to_owned(),
    }
}

/// The function that keeps the block, past those of libraries, or the place of its call.
fn name_by_code(keys: &[u64], files: &Files) -> String {
    let Some(&innermost) = keys.first() else { return "block allocated outside known code".to_owned() };
    let key = match naming_code_of(keys, files) {
        NamingCode::Function(function) => return function,
        NamingCode::Call(call) => keys.get(call).copied().unwrap_or(innermost),
    };
    match file_of(key, files) {
        // Without a symbol the return address, as exact mode has it.
        Some((mapped, svma)) => place_in(mapped, svma),
        None => "block allocated by generated code".to_owned(),
    }
}
