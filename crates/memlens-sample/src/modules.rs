//! The files that are mapped, each read once for all processes.

use std::cell::{OnceCell, RefCell};
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use memlens_code::{Architecture, FunctionCode, SampleSkid, Waits};
use memlens_symbols::{DebugSearch, GeneratedNames, Module};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, Object as _, ReadCache, elf};
use rustc_hash::FxHashMap;

use crate::unwinder::UnwindSections;

/// The problem of a file that is no more what was mapped.
pub const REPLACED: &str = "the file was replaced after it was mapped";
/// The same, by its build-id.
pub const OTHER_BUILD: &str = "the file here is another build than the one that was mapped";

/// A loadable segment: where the file says it is, and where in the file.
#[derive(Clone, Copy, Debug)]
struct Segment {
    svma: u64,
    memory_bytes: u64,
    file_offset: u64,
    file_bytes: u64,
    is_executable: bool,
}

/// What is needed of a file while the program runs.
#[derive(Debug, Default)]
struct Shape {
    architecture: Option<Architecture>,
    segments: Vec<Segment>,
    unwind: UnwindSections,
}

/// The smallest page of any kernel.
const PAGE_BYTES: u64 = 4 << 10;

impl Shape {
    /// The largest page that a kernel for the file's processor may have: of AArch64 there are kernels with 4, 16 and 64 KiB.
    fn most_page_bytes(&self) -> u64 {
        match self.architecture {
            Some(Architecture::AArch64) => 64 << 10,
            _ => PAGE_BYTES,
        }
    }

    /// As [`MappedFile::placements`].
    fn placements(&self, address: u64, file_offset: u64, is_executable: bool) -> Vec<Placement> {
        let page = |value: u64| value & !(PAGE_BYTES - 1);
        let first = self.segments.iter().map(|segment| page(segment.svma)).min();
        let last = self.segments.iter().filter_map(|s| s.svma.checked_add(s.memory_bytes)).max();
        let last = last.and_then(|last| last.checked_next_multiple_of(PAGE_BYTES));
        let Some((first, last)) = first.zip(last) else { return Vec::new() };
        let mut found: Vec<(bool, Placement)> = self
            .segments
            .iter()
            .filter(|segment| {
                let end = segment.file_offset.saturating_add(segment.file_bytes);
                // Mappings are of whole pages of the kernel's.
                let begin = segment.file_offset & !(self.most_page_bytes() - 1);
                (begin..end).contains(&file_offset)
            })
            .map(|segment| {
                let shift = file_offset.wrapping_sub(segment.file_offset);
                let bias = address.wrapping_sub(segment.svma.wrapping_add(shift));
                let placement =
                    Placement { bias, start: bias.wrapping_add(first), end: bias.wrapping_add(last) };
                (segment.is_executable != is_executable, placement)
            })
            .collect();
        found.sort_by_key(|(is_other, _)| *is_other);
        found.into_iter().map(|(_, placement)| placement).collect()
    }
}

/// A mapped file.
pub struct MappedFile {
    /// Path when it was mapped.
    pub path: String,
    /// Where it is read.
    place: PathBuf,
    /// Why its code and names are not known, if they are not.
    pub problem: Option<String>,
    /// Of the file that was mapped; 0: unknown.
    inode: u64,
    shape: Option<Shape>,
    symbols: OnceCell<Option<Module>>,
    functions: RefCell<FxHashMap<u64, Option<Rc<FunctionCode>>>>,
    waits: RefCell<FxHashMap<(u64, bool), Waits>>,
    /// Addresses in loops that wait, and others that were asked for.
    loops: RefCell<FxHashMap<u64, bool>>,
}

impl std::fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MappedFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Addresses that a file occupies in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// What to subtract from an address to get an svma.
    pub bias: u64,
    /// First address.
    pub start: u64,
    /// One past the last address, the zeroed part (`.bss`) included.
    pub end: u64,
}

impl MappedFile {
    /// Reads the file's headers and unwind information. `inode` is the one that was mapped, 0 if
    /// unknown: a file that was replaced since is not read, its addresses would be wrong.
    pub fn open(path: &str, inode: u64, found: Option<&Whereabouts>) -> Self {
        let build_id = found.and_then(|found| found.build_ids.get(path));
        let below = |root: &PathBuf| root.join(path.trim_start_matches('/'));
        let (place, inode) =
            match found.and_then(|found| found.sysroot.as_ref()).map(below).filter(|place| place.exists()) {
                Some(place) => (place, 0),
                // Inodes are one machine's, build-ids are any's.
                None => (PathBuf::from(path), if build_id.is_some() { 0 } else { inode }),
            };
        let mut file = Self {
            path: path.to_owned(),
            place,
            problem: None,
            inode,
            shape: None,
            symbols: OnceCell::new(),
            functions: RefCell::default(),
            waits: RefCell::default(),
            loops: RefCell::default(),
        };
        match read(&file.place, inode, build_id.map(Vec::as_slice)) {
            Ok(shape) => file.shape = Some(shape),
            Err(problem) => file.problem = Some(problem),
        }
        file
    }

    /// Where the file may lie, if its part from `file_offset` on is mapped at `address`. Segments share
    /// pages of the file, so there can be several answers; those for a segment that is executable if
    /// the mapping is come first.
    pub fn placements(&self, address: u64, file_offset: u64, is_executable: bool) -> Vec<Placement> {
        self.shape
            .as_ref()
            .map_or_else(Vec::new, |shape| shape.placements(address, file_offset, is_executable))
    }

    /// For the unwinder.
    pub fn unwind_sections(&self) -> Option<&UnwindSections> {
        self.shape.as_ref().map(|shape| &shape.unwind)
    }

    /// Names, types, lines; read at the first question.
    pub fn symbols(&self) -> Option<&Module> {
        self.symbols
            .get_or_init(|| {
                self.shape.as_ref()?;
                match Module::open(&self.place, &DebugSearch::default()) {
                    Ok(module) => Some(module),
                    Err(error) => {
                        tracing::debug!(path = self.path, %error, "no symbols");
                        None
                    }
                }
            })
            .as_ref()
    }

    /// The decoded function that holds `svma`.
    pub fn function(&self, svma: u64) -> Option<Rc<FunctionCode>> {
        let symbols = self.symbols()?;
        let function = symbols.function_at(svma)?;
        let mut functions = self.functions.borrow_mut();
        functions
            .entry(function.start)
            .or_insert_with(|| {
                let code = symbols.code(function.start, function.end)?;
                Some(Rc::new(FunctionCode::new(symbols.architecture()?, code, function.start)))
            })
            .clone()
    }

    /// What a sample waits for; see [`FunctionCode::waits_for`]. `skid` is `None` for samples that name
    /// the instruction itself. Kept for each address; one skid a file.
    pub fn waits_for(&self, svma: u64, skid: Option<SampleSkid>) -> Waits {
        let key = (svma, skid.is_none());
        if let Some(&known) = self.waits.borrow().get(&key) {
            return known;
        }
        let found = self.function(svma).map_or(Waits::NoCode, |function| match skid {
            None => function.sampled_access(svma),
            Some(skid) => function.waits_for(svma, skid),
        });
        self.waits.borrow_mut().insert(key, found);
        found
    }

    /// Whether a thread that is about to execute the instruction there waits in a loop for another one, as the agent has it at
    /// ticks. Reads nothing of the file but the code around; kept for each address. This processor's code only, as bursts are.
    pub fn waits_in_loop(&self, svma: u64) -> bool {
        *self.loops.borrow_mut().entry(svma).or_insert_with(|| {
            let around = self.code_around(svma, memlens_burst::WAITING_AROUND);
            around.is_some_and(|(start, code)| memlens_burst::code_waits(&code, start, svma))
        })
    }

    /// The code up to so many bytes to both sides of an address, and where it begins.
    fn code_around(&self, svma: u64, bytes: u64) -> Option<(u64, Vec<u8>)> {
        let is_there = |segment: &&Segment| {
            let end = segment.svma.saturating_add(segment.file_bytes);
            segment.is_executable && (segment.svma..end).contains(&svma)
        };
        let segment = self.shape.as_ref()?.segments.iter().find(is_there)?;
        let start = svma.saturating_sub(bytes).max(segment.svma);
        let end = svma.saturating_add(bytes).min(segment.svma + segment.file_bytes);
        let mut code = vec![0; (end - start) as usize];
        let offset = segment.file_offset.checked_add(start - segment.svma)?;
        let file = File::open(&self.place).ok()?;
        let is_it = self.inode == 0 || file.metadata().is_ok_and(|status| status.ino() == self.inode);
        file.read_exact_at(&mut code, offset).ok().filter(|()| is_it)?;
        Some((start, code))
    }
}

/// Where files of a recording from elsewhere are, and how they are known again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whereabouts {
    /// A folder with another machine's files, in which they are looked for first.
    pub sysroot: Option<PathBuf>,
    /// What the recording says that their build-ids are, by path.
    pub build_ids: FxHashMap<String, Vec<u8>>,
}

fn read(path: &Path, inode: u64, build_id: Option<&[u8]>) -> Result<Shape, String> {
    let status = fs::metadata(path).map_err(|error| error.to_string())?;
    if inode != 0 && status.ino() != inode {
        return Err(REPLACED.to_owned());
    }
    if !status.is_file() {
        return Err("it is no regular file".to_owned());
    }
    // Libraries can have gigabytes of code; here their headers, symbol tables and unwind tables are read.
    let parts = ReadCache::new(File::open(path).map_err(|error| error.to_string())?);
    let file = object::File::parse(&parts).map_err(|error| error.to_string())?;
    let object::File::Elf64(elf64) = &file else { return Err("it is no 64-bit ELF file".to_owned()) };
    if let Some(wanted) = build_id
        && !matches!(file.build_id(), Ok(Some(own)) if is_same_build(wanted, own))
    {
        return Err(OTHER_BUILD.to_owned());
    }
    let endian = Endianness::Little;
    let segments = elf64
        .elf_program_headers()
        .iter()
        .filter(|header| header.p_type(endian) == elf::PT_LOAD)
        .map(|header| Segment {
            svma: header.p_vaddr(endian),
            memory_bytes: header.p_memsz(endian),
            file_offset: header.p_offset(endian),
            file_bytes: header.p_filesz(endian),
            is_executable: header.p_flags(endian).contains(elf::PF_X),
        })
        .collect();
    let architecture = Architecture::from_elf_machine(elf64.elf_header().e_machine(endian).0);
    Ok(Shape { architecture, segments, unwind: UnwindSections::of(&file, architecture) })
}

/// Whether two build-ids are one: perf has room for 20 bytes, and older ones of it filled shorter ones up with zeros.
fn is_same_build(recorded: &[u8], own: &[u8]) -> bool {
    recorded.strip_prefix(own).is_some_and(|rest| rest.iter().all(|&byte| byte == 0))
}

/// The kernel's code that is mapped in every process (vdso(7)), as its map calls it.
pub const VDSO: &str = "[vdso]";

/// All files, by path and inode.
#[derive(Debug, Default)]
pub struct Files {
    list: Vec<Rc<MappedFile>>,
    by_name: FxHashMap<(String, u64), u32>,
    generated: GeneratedNames,
    /// Of a recording from elsewhere, where they are.
    whereabouts: Option<Whereabouts>,
    /// Where processes have the kernel's code for them.
    vdsos: Vec<Range<u64>>,
}

impl Files {
    /// The kernel's code for a process lies here.
    pub fn add_vdso(&mut self, range: Range<u64>) {
        if !self.vdsos.contains(&range) {
            self.vdsos.push(range);
        }
    }

    /// The recording is from elsewhere, and files that are met from now on are there.
    pub fn look_in(&mut self, whereabouts: Whereabouts) {
        self.whereabouts = Some(whereabouts);
    }

    /// Whether some may not be here, because the recording is from elsewhere.
    pub fn may_be_elsewhere(&self) -> bool {
        self.whereabouts.is_some()
    }

    /// The number of a file; it is read at first sight.
    pub fn number(&mut self, path: &str, inode: u64) -> u32 {
        if let Some(&known) = self.by_name.get(&(path.to_owned(), inode)) {
            return known;
        }
        let number = self.list.len() as u32;
        self.list.push(Rc::new(MappedFile::open(path, inode, self.whereabouts.as_ref())));
        self.by_name.insert((path.to_owned(), inode), number);
        number
    }

    /// The file with a number that [`Self::number`] gave out.
    pub fn get(&self, number: u32) -> Option<&Rc<MappedFile>> {
        self.list.get(number as usize)
    }

    /// Reads the names that these processes have written of the code that they generated.
    pub fn read_generated(&mut self, pids: impl Iterator<Item = u32>) {
        self.generated = GeneratedNames::default();
        pids.for_each(|pid| self.generated.extend(GeneratedNames::of_process(pid)));
    }

    /// The name of a function in generated code; as exact mode has it, that of the kernel's code.
    pub fn generated_function(&self, address: u64) -> Option<&str> {
        let in_vdso = || self.vdsos.iter().any(|range| range.contains(&address)).then_some(VDSO);
        self.generated.function_at(address).or_else(in_vdso)
    }

    /// All files.
    pub fn iter(&self) -> impl Iterator<Item = &Rc<MappedFile>> {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_of_pages_of_any_size() {
        const BASE: u64 = 0xffff_a000_0000;
        let segment = |svma, file_offset, file_bytes, is_executable| Segment {
            svma,
            memory_bytes: file_bytes,
            file_offset,
            file_bytes,
            is_executable,
        };
        // As Debian's libc.so.6 for AArch64, and a small program: code, then data.
        for (code_end, data_offset, data_svma) in
            [(0x18_664e, 0x18_cdc0, 0x19_cdc0), (0x848, 0xfdc8, 0x1_fdc8)]
        {
            let segments = vec![segment(0, 0, code_end, true), segment(data_svma, data_offset, 0x300, false)];
            let shape = Shape { architecture: Some(Architecture::AArch64), segments, ..Shape::default() };
            for page in [4 << 10, 16 << 10, 64 << 10] {
                let first = |svma: u64, offset: u64, is_executable| {
                    let (address, offset) = (BASE + (svma & !(page - 1)), offset & !(page - 1));
                    shape.placements(address, offset, is_executable).first().map(|placement| placement.bias)
                };
                assert_eq!(first(0, 0, true), Some(BASE), "code, {page}");
                assert_eq!(
                    first(data_svma, data_offset, false),
                    Some(BASE),
                    "data at {data_svma:#x}, {page}"
                );
            }
        }
    }

    #[test]
    fn build_ids_may_have_been_filled_up() {
        assert!(is_same_build(&[1, 2, 3], &[1, 2, 3]) && is_same_build(&[1, 2, 3, 0, 0], &[1, 2, 3]));
        assert!(!is_same_build(&[1, 2, 3, 4], &[1, 2, 3]) && !is_same_build(&[1, 2], &[1, 2, 3]));
        assert!(!is_same_build(&[1, 2, 4], &[1, 2, 3]));
    }
}
