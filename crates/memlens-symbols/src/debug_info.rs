//! The DWARF of a module: its own or a separate file's, with supplementary and split files.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use elsa::sync::FrozenVec;
use gimli::{Dwarf, DwarfPackage, DwarfSections, DwoId, LittleEndian, SectionId, UnitOffset};
use object::{Object, ObjectSection};
use self_cell::self_cell;

use crate::call_frames::CallFrames;
use crate::debug_search::{DebugSearch, has_dwarf};
use crate::dwarf_file::{Bytes, DwarfFile, UnitHandle, ranges};
use crate::error::Diagnostic;
use crate::image::Image;
use crate::inline_calls::InlineCalls;
use crate::locals::{FrameVariable, FunctionLocals};
use crate::static_variables::{LocationHints, StaticTable};

/// Owns what [`DebugInfo`] borrows: files and decompressed sections, added to at any time.
#[derive(Default)]
pub(crate) struct Arenas {
    images: FrozenVec<Box<Image>>,
    buffers: FrozenVec<Vec<u8>>,
}

self_cell!(
    /// A [`DebugInfo`] together with the bytes it borrows.
    pub(crate) struct DebugCell {
        owner: Arenas,
        #[not_covariant]
        dependent: DebugInfo,
    }
);

/// Path by file number, unit and index in the unit's line table.
type FileNames = HashMap<(u32, u32, u64), Option<Arc<str>>>;

/// A function: file number, unit, entry.
type FunctionKey = (u32, usize, UnitOffset);

/// The files that a module's debug information is read from.
pub(crate) struct DebugFiles {
    pub(crate) module: Image,
    pub(crate) module_path: Option<PathBuf>,
    pub(crate) debug: Option<(PathBuf, Image)>,
    pub(crate) search: DebugSearch,
}

/// The debug information of one module; everything in it is parsed when first asked for.
pub(crate) struct DebugInfo<'a> {
    arenas: &'a Arenas,
    pub(crate) main: Option<Arc<DwarfFile<'a>>>,
    pub(crate) sup: Option<Arc<DwarfFile<'a>>>,
    /// The path of the file with the DWARF, beside which a `.dwp` lies.
    dwarf_path: Option<PathBuf>,
    module_path: Option<PathBuf>,
    search: DebugSearch,
    split: RefCell<HashMap<u64, Option<UnitHandle<'a>>>>,
    package: OnceCell<Option<DwarfPackage<Bytes<'a>>>>,
    pub(crate) last_inline_calls: RefCell<Option<(FunctionKey, Arc<InlineCalls>)>>,
    unit_ranges: OnceCell<Vec<(u64, u64, u32)>>,
    pub(crate) frames: CallFrames<'a>,
    /// Of the functions where destinations were looked for: all of a function's locals are much more than
    /// [`Self::in_frame`].
    locals: RefCell<HashMap<FunctionKey, Arc<FunctionLocals<'a>>>>,
    in_frame: RefCell<HashMap<FunctionKey, Arc<[FrameVariable]>>>,
    pub(crate) statics: OnceCell<StaticTable<'a>>,
    pub(crate) location_hints: OnceCell<LocationHints>,
    pub(crate) diagnostics: RefCell<Vec<Diagnostic>>,
    next_file: RefCell<u32>,
    file_names: RefCell<FileNames>,
}

fn section<'a>(arenas: &'a Arenas, file: &object::File<'a>, name: &str) -> Bytes<'a> {
    let data = file.section_by_name(name).and_then(|section| section.uncompressed_data().ok()).map_or(
        &[][..],
        |data| match data {
            std::borrow::Cow::Borrowed(bytes) => bytes,
            std::borrow::Cow::Owned(bytes) => arenas.buffers.push_get(bytes),
        },
    );
    Bytes::new(data, LittleEndian)
}

fn load<'a>(arenas: &'a Arenas, file: &object::File<'a>) -> DwarfSections<Bytes<'a>> {
    let load = |id: SectionId| Ok::<_, std::convert::Infallible>(section(arenas, file, id.name()));
    match DwarfSections::load(load) {
        Ok(sections) => sections,
        Err(never) => match never {},
    }
}

impl<'a> DebugInfo<'a> {
    /// Reads section headers; decompresses the compressed DWARF sections.
    pub(crate) fn new(arenas: &'a Arenas, files: DebugFiles) -> Self {
        let mut diagnostics = Vec::new();
        let module: &'a [u8] = arenas.images.push_get(Box::new(files.module));
        // The module's bytes were parsed once at opening; a failure now is impossible, but costs
        // nothing to survive.
        let module_file = object::File::parse(module).ok();
        let mut dwarf_path = files.module_path.clone();
        let mut dwarf_file = module_file.as_ref().filter(|f| has_dwarf(f));
        let separate = files.debug.and_then(|(path, image)| {
            let image: &'a Image = arenas.images.push_get(Box::new(image));
            match object::File::parse(&**image) {
                Ok(file) => Some((path, file)),
                Err(error) => {
                    diagnostics.push(Diagnostic::DebugFileUnreadable(path, error.to_string()));
                    None
                }
            }
        });
        if dwarf_file.is_none()
            && let Some((path, file)) = separate.as_ref()
            && has_dwarf(file)
        {
            dwarf_file = Some(file);
            dwarf_path = Some(path.clone());
        }
        let mut sup = None;
        let main = dwarf_file.map(|file| {
            let mut dwarf = load(arenas, file).borrow(|bytes| *bytes);
            if let Some((_, image)) =
                files.search.supplementary_file(file, dwarf_path.as_deref(), &mut diagnostics)
            {
                let image: &'a Image = arenas.images.push_get(Box::new(image));
                if let Ok(file) = object::File::parse(&**image) {
                    let loaded = load(arenas, &file);
                    dwarf.set_sup(loaded.borrow(|bytes| *bytes));
                    sup = Some(Arc::new(DwarfFile::new(1, Arc::new(loaded.borrow(|bytes| *bytes)))));
                }
            }
            let main = DwarfFile::new(0, Arc::new(dwarf));
            if let Some(error) = main.damage {
                diagnostics.push(Diagnostic::Dwarf(format!("list of units: {error}")));
            }
            Arc::new(main)
        });
        let debug_frame = dwarf_file
            .into_iter()
            .chain(separate.as_ref().map(|(_, file)| file))
            .map(|file| section(arenas, file, ".debug_frame").slice())
            .find(|data| !data.is_empty());
        let frames = match &module_file {
            Some(file) => CallFrames::new(file, debug_frame),
            None => CallFrames::empty(),
        };
        Self {
            arenas,
            main,
            sup,
            dwarf_path,
            module_path: files.module_path,
            search: files.search,
            split: RefCell::default(),
            package: OnceCell::new(),
            last_inline_calls: RefCell::default(),
            unit_ranges: OnceCell::new(),
            frames,
            locals: RefCell::default(),
            in_frame: RefCell::default(),
            statics: OnceCell::new(),
            location_hints: OnceCell::new(),
            diagnostics: RefCell::new(diagnostics),
            next_file: RefCell::new(2),
            file_names: RefCell::default(),
        }
    }

    fn report(&self, diagnostic: Diagnostic) {
        let mut list = self.diagnostics.borrow_mut();
        if !list.contains(&diagnostic) {
            list.push(diagnostic);
        }
    }

    /// All units, split ones in place of their skeletons.
    pub(crate) fn units(&self) -> impl Iterator<Item = UnitHandle<'a>> + '_ {
        let main = self.main.iter();
        main.flat_map(move |file| {
            (0..file.len()).map(move |slot| self.whole(UnitHandle { file: file.clone(), slot }))
        })
    }

    /// The unit that holds the code at `svma`. First use reads the list of ranges, and the root entry
    /// of every unit that is not in it.
    pub(crate) fn unit_at(&self, svma: u64) -> Option<UnitHandle<'a>> {
        let file = self.main.as_ref()?;
        let list = self.unit_ranges.get_or_init(|| {
            let (mut list, listed) = file.listed_ranges();
            for slot in (0..file.len()).filter(|&slot| !listed[slot]) {
                let handle = UnitHandle { file: file.clone(), slot };
                if handle.is_type_unit() {
                    continue;
                }
                let Some(unit) = handle.unit() else {
                    self.report(Diagnostic::Dwarf("a unit cannot be parsed".into()));
                    continue;
                };
                let root = unit.header.root_offset();
                let mut stated = handle
                    .entry(root)
                    .map(|(_, attributes)| ranges(handle.dwarf(), &unit, &attributes))
                    .unwrap_or_default();
                if stated.is_empty() && unit.dwo_id.is_none() {
                    // Old compilers and assemblers leave the ranges out: ask the functions.
                    stated = handle
                        .summary()
                        .map(|summary| summary.functions.iter().map(|f| (f.0, f.1)).collect())
                        .unwrap_or_default();
                }
                list.extend(stated.into_iter().map(|(start, end)| (start, end, slot as u32)));
            }
            list.sort_unstable();
            list
        });
        let after = list.partition_point(|&(start, _, _)| start <= svma);
        let &(_, _, slot) = list[..after].iter().rev().take(32).find(|&&(_, end, _)| svma < end)?;
        Some(self.whole(UnitHandle { file: file.clone(), slot: slot as usize }))
    }

    /// The function whose code holds `svma`: its unit and entry.
    pub(crate) fn function_at(&self, svma: u64) -> Option<(UnitHandle<'a>, UnitOffset)> {
        let handle = self.unit_at(svma)?;
        let (_, _, die) = handle.summary()?.function_at(svma)?;
        Some((handle, die))
    }

    /// The file numbered `id`.
    pub(crate) fn file(&self, id: u32) -> Option<Arc<DwarfFile<'a>>> {
        if let Some(file) = self.main.iter().chain(&self.sup).find(|file| file.id == id) {
            return Some(file.clone());
        }
        self.split.borrow().values().flatten().find(|unit| unit.file.id == id).map(|unit| unit.file.clone())
    }

    /// The locals of the function at `die` of `unit`.
    pub(crate) fn function_locals(&self, unit: &UnitHandle<'a>, die: UnitOffset) -> Arc<FunctionLocals<'a>> {
        let key = (unit.file.id, unit.slot, die);
        if let Some(known) = self.locals.borrow().get(&key) {
            return known.clone();
        }
        let locals = Arc::new(FunctionLocals::read(self, unit, die));
        self.locals.borrow_mut().insert(key, locals.clone());
        locals
    }

    /// Those of them that lie in memory of its frame.
    pub(crate) fn variables_in_frame(&self, unit: &UnitHandle<'a>, die: UnitOffset) -> Arc<[FrameVariable]> {
        let key = (unit.file.id, unit.slot, die);
        if let Some(known) = self.in_frame.borrow().get(&key) {
            return known.clone();
        }
        // A function split in a hot and a cold part has unwind rows for each.
        let mut rows = Vec::new();
        let parts = unit
            .unit()
            .zip(unit.entry(die))
            .map(|(parsed, (_, attributes))| ranges(unit.dwarf(), &parsed, &attributes))
            .unwrap_or_default();
        for start in parts.iter().map(|&(start, _)| start) {
            if let Some(table) = self.frames.table_at(start) {
                rows.extend_from_slice(&table.rows);
            }
        }
        let variables = FunctionLocals::read(self, unit, die).in_frame(self, &rows);
        self.in_frame.borrow_mut().insert(key, variables.clone());
        variables
    }

    /// The path of file number `index` of a unit's line table.
    pub(crate) fn file_name(&self, handle: &UnitHandle<'a>, index: u64) -> Option<Arc<str>> {
        let key = (handle.file.id, handle.slot as u32, index);
        if let Some(known) = self.file_names.borrow().get(&key) {
            return known.clone();
        }
        let name = self.read_file_name(handle, index).map(Arc::from);
        self.file_names.borrow_mut().insert(key, name.clone());
        name
    }

    /// The unit with the line table of `handle`: a split unit's is that of its skeleton.
    pub(crate) fn line_unit(&self, handle: &UnitHandle<'a>) -> Option<UnitHandle<'a>> {
        match handle.unit().filter(|unit| unit.line_program.is_some()) {
            Some(_) => Some(handle.clone()),
            None => handle.file.skeleton.get().cloned(),
        }
    }

    fn read_file_name(&self, handle: &UnitHandle<'a>, index: u64) -> Option<String> {
        let handle = self.line_unit(handle)?;
        let (dwarf, unit) = (handle.dwarf(), handle.unit()?);
        let header = unit.line_program.as_ref()?.header();
        let file = header.file(index)?;
        let text = |value| {
            let bytes = dwarf.attr_string(&*unit, value).ok()?;
            Some(String::from_utf8_lossy(bytes.slice()).into_owned())
        };
        let mut path = PathBuf::new();
        if let Some(dir) = unit.comp_dir {
            path.push(String::from_utf8_lossy(dir.slice()).as_ref());
        }
        // Directory 0 is the compilation directory.
        if file.directory_index() != 0
            && let Some(dir) = file.directory(header).and_then(text)
        {
            path.push(dir);
        }
        path.push(text(file.path_name())?);
        Some(path.to_string_lossy().into_owned())
    }

    /// `handle`, or the split unit it is the skeleton of.
    fn whole(&self, handle: UnitHandle<'a>) -> UnitHandle<'a> {
        let Some(unit) = handle.unit() else { return handle };
        let Some(id) = unit.dwo_id else { return handle };
        // A skeleton has no children; a unit of `-fno-split…` with an id is whole already.
        if unit.dwo_name().ok().flatten().is_none() {
            return handle;
        }
        if let Some(split) = self.split.borrow().get(&id.0) {
            return split.clone().unwrap_or(handle);
        }
        let split = self.load_split(&handle, id);
        if split.is_none() {
            self.report(Diagnostic::DebugFileMissing(self.dwo_label(&handle, id)));
        }
        self.split.borrow_mut().insert(id.0, split.clone());
        split.unwrap_or(handle)
    }

    fn dwo_label(&self, handle: &UnitHandle<'a>, id: DwoId) -> String {
        handle
            .unit()
            .and_then(|unit| unit.dwo_name().ok().flatten())
            .and_then(|name| handle.string(name))
            .map_or_else(|| format!("split unit {:#x}", id.0), str::to_owned)
    }

    fn load_split(&self, skeleton: &UnitHandle<'a>, id: DwoId) -> Option<UnitHandle<'a>> {
        let unit = skeleton.unit()?;
        let dwarf = self.split_dwarf(
            id,
            unit.dwo_name().ok().flatten().and_then(|name| skeleton.string(name)).map(str::as_bytes),
            unit.comp_dir.map(|dir| dir.slice()),
            &skeleton.file.dwarf,
        )?;
        let number = {
            let mut next = self.next_file.borrow_mut();
            *next += 1;
            *next
        };
        let file = Arc::new(DwarfFile::new(number, Arc::new(dwarf)));
        let slot = file.adopt_skeleton(&unit, id)?;
        let _ = file.skeleton.set(skeleton.clone());
        Some(UnitHandle { file, slot })
    }

    /// Loads the DWARF of a split unit from a package beside the module or a `.dwo` file.
    fn split_dwarf(
        &self,
        id: DwoId,
        name: Option<&[u8]>,
        comp_dir: Option<&[u8]>,
        parent: &Dwarf<Bytes<'a>>,
    ) -> Option<Dwarf<Bytes<'a>>> {
        let package = self.package.get_or_init(|| self.find_package());
        if let Some(package) = package
            && let Ok(Some(dwarf)) = package.find_cu(id, parent)
        {
            return Some(dwarf);
        }
        let name = Path::new(OsStr::from_bytes(name?));
        let comp_dir = comp_dir.map(|dir| Path::new(OsStr::from_bytes(dir)));
        for path in self.search.dwo_candidates(name, comp_dir, self.module_path.as_deref()) {
            if !path.is_file() {
                continue;
            }
            let Ok(image) = Image::map(&path) else { continue };
            let image: &'a Image = self.arenas.images.push_get(Box::new(image));
            let file = match object::File::parse(&**image) {
                Ok(file) => file,
                Err(error) => {
                    self.report(Diagnostic::DebugFileUnreadable(path, error.to_string()));
                    continue;
                }
            };
            let load = |id: SectionId| {
                let data = id
                    .dwo_name()
                    .map_or(Bytes::new(&[], LittleEndian), |name| section(self.arenas, &file, name));
                Ok::<_, std::convert::Infallible>(data)
            };
            let mut dwarf = match Dwarf::load(load) {
                Ok(dwarf) => dwarf,
                Err(never) => match never {},
            };
            dwarf.make_dwo(parent);
            return Some(dwarf);
        }
        None
    }

    fn find_package(&self) -> Option<DwarfPackage<Bytes<'a>>> {
        let mut paths = Vec::new();
        for path in [&self.module_path, &self.dwarf_path].into_iter().flatten() {
            let mut name = path.as_os_str().to_owned();
            name.push(".dwp");
            paths.push(PathBuf::from(&name));
            if let Some(file) = Path::new(&name).file_name() {
                paths.extend(self.search.extra_dirs.iter().map(|dir| dir.join(file)));
            }
        }
        let path = paths.into_iter().find(|path| path.is_file())?;
        let image: &'a Image = self.arenas.images.push_get(Box::new(Image::map(&path).ok()?));
        let file = object::File::parse(&**image).ok()?;
        let load = |id: SectionId| {
            let data =
                id.dwo_name().map_or(Bytes::new(&[], LittleEndian), |name| section(self.arenas, &file, name));
            Ok::<_, gimli::Error>(data)
        };
        match DwarfPackage::load(load, Bytes::new(&[], LittleEndian)) {
            Ok(package) => Some(package),
            Err(error) => {
                self.report(Diagnostic::DebugFileUnreadable(path, error.to_string()));
                None
            }
        }
    }

    pub(crate) fn substituted(&self, path: &Path) -> PathBuf {
        self.search.substituted(path)
    }
}
