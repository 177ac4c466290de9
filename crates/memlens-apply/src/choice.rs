//! Which objects of a profile go into huge pages, how, and why others do not.
//!
//! Objects are ranked by the reads of their page-table entries (page walks), else by their TLB misses, else, in a
//! profile that counts neither, by their cost. One is chosen if it has at least [`LEAST_SHARE`] of that, at least one
//! huge page of memory at a time, and a place by which it can be found again: an allocation site whose files are still
//! the recorded ones, or a variable's symbol.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use memlens_placement::{HUGE_PAGE_BYTES, MAX_FRAMES, MAX_SITES, MAX_STATICS};
use memlens_profile::{Module, ModuleIx, Object, Profile};
use memlens_symbols::{DataKind, DebugSearch};
use memlens_types::{Counts, ObjectKind};

use crate::elf::ElfFacts;

/// Objects with a smaller share are left as they are.
pub const LEAST_SHARE: f64 = 0.05;

/// What objects are ranked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Page-table entries read by page walks.
    PageWalks,
    /// Last-level TLB misses.
    TlbMisses,
    /// The profile's cost: it has no page walks.
    Cost,
}

/// How an object's memory gets into huge pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// Each of its blocks is large: the blocks of its site are placed.
    Blocks,
    /// Its blocks are smaller than a huge page: the allocator's heap is placed, with whatever else lies there.
    Heap,
    /// A variable at this address (svma) of its module.
    Variable {
        /// Its file.
        module: PathBuf,
        /// First byte.
        svma: u64,
        /// Size.
        bytes: u64,
    },
}

/// An object that is put into huge pages.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// Its number in the profile.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Share of the basis, 0 to 1.
    pub share: f64,
    /// The most bytes of it at a time, as far as known.
    pub bytes: u64,
    /// Its blocks.
    pub blocks: u64,
    /// How.
    pub method: Method,
    /// Return addresses of its allocation, innermost first: file and module offset.
    pub frames: Vec<(PathBuf, u64)>,
}

/// An object that has a share and stays as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejected {
    /// Its number in the profile.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Share of the basis, 0 to 1.
    pub share: f64,
    /// Why.
    pub reason: String,
}

/// What a profile's objects come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// What they were ranked by.
    pub basis: Basis,
    /// The whole program's amount of it.
    pub total: u64,
    /// The program's accesses; 0: not counted.
    pub accesses: u64,
    /// Those to be put into huge pages, largest share first.
    pub chosen: Vec<Chosen>,
    /// Those with a share that are not, largest first.
    pub rejected: Vec<Rejected>,
}

/// Chooses. `named` are objects by number or name that the user wants, whatever their share; with none, all that the
/// profile blames. `program` is the file that will run, which may be a moved copy of the recorded one.
pub fn choose(profile: &Profile, named: &[String], program: &Path) -> Choice {
    let totals = profile.totals();
    let (basis, total) = match (totals.page_walk_accesses, totals.stlb_misses) {
        (0, 0) => (Basis::Cost, profile.objects.iter().map(|object| profile.cost(&object.counts)).sum()),
        (0, misses) => (Basis::TlbMisses, misses),
        (walks, _) => (Basis::PageWalks, walks),
    };
    let amount = |counts: &Counts| match basis {
        Basis::PageWalks => counts.page_walk_accesses,
        Basis::TlbMisses => counts.stlb_misses,
        Basis::Cost => profile.cost(counts),
    };
    let mut ranked: Vec<(&Object, f64)> = profile
        .objects
        .iter()
        .map(|object| (object, amount(&object.counts) as f64 / (total.max(1)) as f64))
        .collect();
    ranked.sort_by(|(_, first), (_, second)| second.total_cmp(first));
    let mut files = Files::new(program);
    let mut choice =
        Choice { basis, total, accesses: totals.accesses(), chosen: Vec::new(), rejected: Vec::new() };
    let mut variables = 0;
    for (object, share) in ranked {
        let is_named = named
            .iter()
            .any(|word| *word == object.name || word.parse().is_ok_and(|id: u32| id == object.id));
        if !is_named && (!named.is_empty() || share < LEAST_SHARE) {
            continue;
        }
        let found = place_of(profile, object, &mut files);
        let is_variable = matches!(found, Ok((Method::Variable { .. }, _)));
        let is_full = match is_variable {
            true => variables == MAX_STATICS,
            false => choice.chosen.len() - variables == MAX_SITES,
        };
        let (id, name) = (object.id, object.name.clone());
        match found {
            Ok(_) if is_full => {
                let reason = "too many objects at a time".to_owned();
                choice.rejected.push(Rejected { id, name, share, reason });
            }
            Ok((method, frames)) => {
                variables += usize::from(is_variable);
                let (bytes, blocks) = (live_bytes(object).unwrap_or(0), object.blocks);
                choice.chosen.push(Chosen { id, name, share, bytes, blocks, method, frames });
            }
            Err(reason) => choice.rejected.push(Rejected { id, name, share, reason }),
        }
    }
    if !named.is_empty() {
        // A pointer and what it points to have one name: who asks for that means the latter.
        let found = |name: &str| choice.chosen.iter().any(|chosen| chosen.name == name);
        choice.rejected.retain(|rejected| rejected.share >= LEAST_SHARE || !found(&rejected.name));
    }
    choice
}

/// The most bytes of an object at a time; where only their sum is known, that.
fn live_bytes(object: &Object) -> Option<u64> {
    object.max_live_bytes.or(object.bytes)
}

type Place = (Method, Vec<(PathBuf, u64)>);

/// How an object can be put into huge pages, and where it is allocated; else why it cannot.
fn place_of(profile: &Profile, object: &Object, files: &mut Files<'_>) -> Result<Place, String> {
    let known = live_bytes(object);
    let bytes = known.unwrap_or(0);
    let is_small = || match known {
        Some(bytes) => format!("its {bytes} bytes do not fill a huge page of {HUGE_PAGE_BYTES} bytes"),
        None => "the profile does not know its size; one of exact mode does".to_owned(),
    };
    match object.kind {
        ObjectKind::Heap | ObjectKind::Mmap => {
            if bytes < HUGE_PAGE_BYTES {
                return Err(is_small());
            }
            let frames: Vec<_> = profile.stack_frames(object.site).filter(|frame| !frame.inlined).collect();
            let mut places = Vec::new();
            for frame in frames {
                let Some(module) = frame.module else { break };
                places.push((files.of(profile, module)?, frame.offset));
                if places.len() == MAX_FRAMES {
                    break;
                }
            }
            if places.is_empty() {
                return Err("the profile does not say where it is allocated".to_owned());
            }
            let mean = object.bytes.unwrap_or(bytes) / object.blocks.max(1);
            let is_large = mean >= HUGE_PAGE_BYTES || object.kind == ObjectKind::Mmap;
            Ok((if is_large { Method::Blocks } else { Method::Heap }, places))
        }
        ObjectKind::Global => {
            let module = object.module.ok_or("the profile does not say which file it belongs to")?;
            let path = files.of(profile, module)?;
            let symbols = memlens_symbols::Module::open(&path, &DebugSearch::default())
                .map_err(|error| format!("the symbols of {} cannot be read: {error}", path.display()))?;
            let mut found = symbols
                .data_symbols()
                .iter()
                .filter(|symbol| symbol.kind != DataKind::Tls && symbol.name == object.name);
            let (Some(symbol), None) = (found.next(), found.next()) else {
                return Err(format!("{} has no one symbol of its name", path.display()));
            };
            if memlens_placement::whole(symbol.svma, symbol.size, HUGE_PAGE_BYTES).is_none() {
                return Err(format!("its {} bytes hold no aligned huge page", symbol.size));
            }
            if !symbol.section.starts_with(".bss") {
                return Err(format!("it lies in {}, whose pages are the file's", symbol.section));
            }
            let (svma, bytes) = (symbol.svma, symbol.size);
            Ok((Method::Variable { module: path, svma, bytes }, Vec::new()))
        }
        ObjectKind::Stack | ObjectKind::Local => Err("stacks are not moved".to_owned()),
        kind => Err(format!("objects of kind {kind} are not moved")),
    }
}

/// The files of a profile's modules, as they are now.
pub(crate) struct Files<'a> {
    program: &'a Path,
    known: HashMap<ModuleIx, Result<PathBuf, String>>,
}

impl<'a> Files<'a> {
    pub fn new(program: &'a Path) -> Self {
        Self { program, known: HashMap::new() }
    }

    pub fn of(&mut self, profile: &Profile, module: ModuleIx) -> Result<PathBuf, String> {
        if let Some(known) = self.known.get(&module) {
            return known.clone();
        }
        let found = profile.module(Some(module)).ok_or_else(|| "its file is not in the profile".to_owned());
        let found = found.and_then(|module| self.find(module));
        self.known.insert(module, found.clone());
        found
    }

    /// The recorded file or, where the program has moved, the one that will run.
    fn find(&self, module: &Module) -> Result<PathBuf, String> {
        let recorded = Path::new(&module.path);
        let is_same = |path: &Path| {
            ElfFacts::of(path)
                .is_ok_and(|facts| module.build_id.is_none() || facts.build_id == module.build_id)
        };
        let program = std::fs::canonicalize(self.program);
        if let Ok(program) = &program
            && program.file_name() == recorded.file_name()
            && program != recorded
            && is_same(program)
        {
            return Ok(program.clone());
        }
        match recorded.exists() {
            false => Err(format!("{} is not there any more", module.path)),
            true if is_same(recorded) => {
                std::fs::canonicalize(recorded).map_err(|error| format!("{}: {error}", module.path))
            }
            true => Err(format!("{} is another build than the recorded one: record again", module.path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_profile::{Frame, FrameIx, Stack, StackIx};

    const MIB: u64 = 1 << 20;

    fn object(id: u32, kind: ObjectKind, bytes: u64, blocks: u64, walks: u64) -> Object {
        Object {
            id,
            kind,
            name: format!("object {id}"),
            site: Some(StackIx(0)),
            bytes: Some(bytes),
            max_live_bytes: Some(bytes),
            blocks,
            counts: Counts { page_walk_accesses: walks, ..Counts::default() },
            ..Object::default()
        }
    }

    /// A program of this test's own file, with a site of two frames, the inner one inlined.
    fn profile(objects: Vec<Object>) -> (Profile, PathBuf) {
        let own = std::fs::canonicalize(std::env::current_exe().expect("known")).expect("there");
        let frame =
            |offset, inlined| Frame { module: Some(ModuleIx(0)), offset, inlined, ..Frame::default() };
        let profile = Profile {
            modules: vec![Module { path: own.display().to_string(), ..Module::default() }],
            frames: vec![frame(0x10, true), frame(0x10, false), frame(0x20, false)],
            stacks: vec![Stack([0, 1, 2].map(FrameIx).to_vec())],
            objects,
            ..Profile::default()
        };
        (profile, own)
    }

    #[test]
    fn what_causes_the_walks_is_chosen() {
        let (profile, own) = profile(vec![
            object(1, ObjectKind::Heap, 8 * MIB, 1, 50),
            object(2, ObjectKind::Heap, 8 * MIB, 1000, 30),
            object(3, ObjectKind::Heap, MIB, 1, 10),
            object(4, ObjectKind::Stack, 8 * MIB, 1, 6),
            object(5, ObjectKind::Heap, 8 * MIB, 1, 4),
        ]);
        let choice = choose(&profile, &[], &own);
        assert_eq!((choice.basis, choice.total), (Basis::PageWalks, 100));
        let chosen: Vec<_> = choice.chosen.iter().map(|object| (object.id, object.method.clone())).collect();
        assert_eq!(chosen, [(1, Method::Blocks), (2, Method::Heap)]);
        assert_eq!(choice.chosen[0].frames, [(own.clone(), 0x10), (own.clone(), 0x20)]);
        let rejected: Vec<_> = choice.rejected.iter().map(|object| object.id).collect();
        assert_eq!(rejected, [3, 4], "too small, and a stack; 5 has too small a share");
        let named = choose(&profile, &["object 5".into(), "3".into()], &own);
        assert_eq!(named.chosen.iter().map(|object| object.id).collect::<Vec<_>>(), [5]);
        assert_eq!(named.rejected.iter().map(|object| object.id).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn another_build_is_noticed() {
        let (mut profile, own) = profile(vec![object(1, ObjectKind::Heap, 8 * MIB, 1, 50)]);
        profile.modules[0].build_id = Some("00ff".into());
        let choice = choose(&profile, &[], &own);
        assert!(choice.chosen.is_empty());
        assert!(choice.rejected[0].reason.contains("another build"), "{:?}", choice.rejected);
    }

    #[test]
    fn without_walks_the_cost_counts() {
        let mut large = object(1, ObjectKind::Heap, 8 * MIB, 1, 0);
        large.counts.stlb_misses = 7;
        let (mut profile, own) = profile(vec![large]);
        let choice = choose(&profile, &[], &own);
        assert_eq!((choice.basis, choice.total, choice.chosen.len()), (Basis::TlbMisses, 7, 1));
        profile.objects[0].counts.stlb_misses = 0;
        assert_eq!(choose(&profile, &[], &own).basis, Basis::Cost);
    }
}
