//! A module: an executable, a shared library or the vDSO.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memlens_code::Architecture;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Object, ObjectSection, elf};

use crate::call_frames::CfaRule;
use crate::data_symbols::{self, DataKind, DataPlace, DataSymbol};
use crate::debug_info::{Arenas, DebugCell, DebugFiles, DebugInfo};
use crate::debug_search::{self, DebugSearch};
use crate::demangle::{demangle, demangle_or};
use crate::error::{Diagnostic, OpenError};
use crate::image::Image;
use crate::known_functions::KnownFunctions;
use crate::locals::FrameVariable;
use crate::section::{self, Section, SectionKind};
use crate::source_file::SourceFile;
use crate::static_variables::{DataExtent, StaticEntry, StaticTable, VariableInfo};
use crate::symbol_table::{Symbol, SymbolTable, SymbolType};
use crate::types::{StructField, TypeRef};

/// A place where a wanted function starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPoint {
    /// Index of the name in the list asked for.
    pub index: usize,
    /// Address (svma) of the first instruction.
    pub svma: u64,
    /// Whether the address is that of a resolver (`STT_GNU_IFUNC`) which returns the address of
    /// the function, rather than the function.
    pub is_ifunc: bool,
}

/// A function by address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionRef {
    /// First address (svma).
    pub start: u64,
    /// One past the last address (svma).
    pub end: u64,
    /// Source name; None if only unwind information knows the function.
    pub name: Option<Arc<str>>,
    /// Linker name.
    pub raw_name: Option<Arc<str>>,
}

/// A source position at an address; inlined calls have one each.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SourceFrame {
    /// Source name of the function.
    pub function: Option<String>,
    /// Path of the source file as compiled.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
}

/// The module's thread-local storage template (`PT_TLS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsSegment {
    /// Address (svma) of the template.
    pub svma: u64,
    /// Size of a thread's block in bytes.
    pub size_bytes: u64,
    /// Alignment of a thread's block in bytes.
    pub align_bytes: u64,
}

impl TlsSegment {
    /// Where the block of an executable begins, in bytes from the thread pointer (ELF Handling For Thread-Local Storage, U. Drepper
    /// 2013): before it on x86-64 (variant II), behind two words of the thread library on AArch64 (variant I).
    pub fn from_thread_pointer(&self, architecture: Architecture) -> Option<i64> {
        let align = self.align_bytes.max(1);
        match architecture {
            Architecture::X86_64 => {
                i64::try_from(self.size_bytes.checked_next_multiple_of(align)?).ok().map(|size| -size)
            }
            Architecture::AArch64 => i64::try_from(16u64.checked_next_multiple_of(align)?).ok(),
        }
    }
}

/// An ELF module and everything its files say about its addresses.
///
/// All methods take and give svmas. Opening reads headers and symbol tables; the debug information
/// is found and parsed when a question first needs it, unit by unit, and kept.
pub struct Module {
    name: String,
    path: Option<PathBuf>,
    architecture: Option<Architecture>,
    pub(crate) image: Image,
    search: DebugSearch,
    build_id: Option<Vec<u8>>,
    pub(crate) sections: Vec<Section>,
    /// Start, end (svma) and file offset of each code section.
    code: Vec<(u64, u64, u64)>,
    tls: Option<TlsSegment>,
    pub(crate) symbols: SymbolTable,
    diagnostics: Vec<Diagnostic>,
    has_dwarf: bool,
    has_symbol_table: bool,
    separate: Option<(PathBuf, Image)>,
    debug: OnceCell<DebugCell>,
    data: OnceCell<Vec<DataSymbol>>,
    functions: RefCell<KnownFunctions>,
    /// Cells with the addresses of functions that return their first argument.
    pub(crate) returning_cells: OnceCell<Vec<u64>>,
    sources: RefCell<HashMap<String, Option<SourceFile>>>,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Module {
    /// Opens the module at `path`. Its file, and debug files found through it, are mapped and must
    /// not be truncated or rewritten in place while the module is in use.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is no little-endian ELF file. Everything less is a
    /// [`Diagnostic`].
    pub fn open(path: &Path, search: &DebugSearch) -> Result<Self, OpenError> {
        Self::new(path.display().to_string(), Some(path.to_path_buf()), Image::map(path)?, search)
    }

    /// A module whose file is in memory already, as the vDSO's.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn from_bytes(name: &str, bytes: Vec<u8>, search: &DebugSearch) -> Result<Self, OpenError> {
        Self::new(name.to_owned(), None, Image::from_bytes(bytes), search)
    }

    fn new(
        name: String,
        path: Option<PathBuf>,
        image: Image,
        search: &DebugSearch,
    ) -> Result<Self, OpenError> {
        let mut diagnostics = Vec::new();
        let mut symbols = SymbolTable::default();
        let file = object::File::parse(&*image).map_err(OpenError::NotElf)?;
        if !file.is_little_endian() {
            return Err(OpenError::BigEndian);
        }
        symbols.add(&image, &file, &mut diagnostics);
        let has_own_dwarf = debug_search::has_dwarf(&file);
        let has_symtab = file.symbol_table().is_some();
        let separate = if has_own_dwarf && has_symtab {
            None
        } else {
            search.separate_file(&file, path.as_deref(), &mut diagnostics)
        };
        let (mut has_dwarf, mut has_symbol_table) = (has_own_dwarf, has_symtab);
        if let Some((debug_path, debug)) = &separate {
            match object::File::parse(&**debug) {
                Ok(file) => {
                    has_dwarf |= debug_search::has_dwarf(&file);
                    has_symbol_table |= file.symbol_table().is_some();
                    symbols.add(debug, &file, &mut diagnostics);
                }
                Err(error) => {
                    diagnostics.push(Diagnostic::DebugFileUnreadable(debug_path.clone(), error.to_string()));
                }
            }
        } else if !has_symtab && let Some(packed) = file.section_by_name(".gnu_debugdata") {
            match unpack(packed.data().unwrap_or_default()) {
                Ok(bytes) => {
                    let mini = Image::from_bytes(bytes);
                    match object::File::parse(&*mini) {
                        Ok(file) => {
                            has_symbol_table = true;
                            symbols.add(&mini, &file, &mut diagnostics);
                        }
                        Err(error) => diagnostics.push(Diagnostic::MiniDebugInfo(error.to_string())),
                    }
                }
                Err(error) => diagnostics.push(Diagnostic::MiniDebugInfo(error)),
            }
        }
        let build_id = file.build_id().ok().flatten().map(<[u8]>::to_vec);
        let sections = section::all(&file);
        let code = file
            .sections()
            .filter(|s| sections.iter().any(|k| k.kind == SectionKind::Text && k.index == s.index().0))
            .filter_map(|s| {
                let (offset, size) = s.file_range()?;
                Some((s.address(), s.address().checked_add(size)?, offset))
            })
            .collect();
        let tls = tls_segment(&file);
        let architecture = architecture(&file);
        Ok(Self {
            name,
            path,
            architecture,
            search: search.clone(),
            build_id,
            sections,
            code,
            tls,
            symbols,
            diagnostics,
            has_dwarf,
            has_symbol_table,
            separate,
            debug: OnceCell::new(),
            data: OnceCell::new(),
            functions: RefCell::default(),
            returning_cells: OnceCell::new(),
            sources: RefCell::default(),
            image,
        })
    }

    /// The path or name that the module was opened by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whose machine code it has; None: that of no architecture that `memlens-code` knows.
    pub fn architecture(&self) -> Option<Architecture> {
        self.architecture
    }

    /// The GNU build-id.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// What was found missing or damaged so far. Grows as debug information is read.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        let mut list = self.diagnostics.clone();
        if let Some(cell) = self.debug.get() {
            cell.with_dependent(|_, debug| list.extend(debug.diagnostics.borrow().iter().cloned()));
        }
        list
    }

    /// Whether DWARF units are there, in the module or its separate debug file.
    pub fn has_debug_info(&self) -> bool {
        self.has_dwarf
    }

    /// Whether there is a whole symbol table, in the module, its separate debug file or its mini debug information: then
    /// functions that are not exported have names, too.
    pub fn has_symbol_table(&self) -> bool {
        self.has_symbol_table
    }

    /// The thread-local storage template, if there is one.
    pub fn tls_segment(&self) -> Option<TlsSegment> {
        self.tls
    }

    /// Every place where one of `names` starts: exported and local symbols, all aliases, versions
    /// ignored; sorted by name, then address; an address comes once for each name. Linear in the
    /// symbols.
    pub fn entry_points(&self, names: &[&str]) -> Vec<EntryPoint> {
        entry_points(self.symbols.named_code(names))
    }

    /// As [`Self::entry_points`], of copies that the compiler has made of these functions: they do what the functions do, but with
    /// other arguments (`work.constprop.0`, `work.isra.0`).
    pub fn clone_entry_points(&self, names: &[&str]) -> Vec<EntryPoint> {
        entry_points(self.symbols.named_clones(names))
    }

    /// As [`Self::entry_points`], of functions that the source, and reports, call so: `md::spmv`, `Stack<int>::push`.
    /// Besides, for each name the longer one of a function whose last component it is. Linear in the symbols.
    pub fn source_entry_points(&self, names: &[&str]) -> (Vec<EntryPoint>, Vec<Option<String>>) {
        let (found, longer) = self.symbols.named_in_source(names);
        (entry_points(found), longer)
    }

    /// The function that holds `svma`: by symbol, else by DWARF, else its bare range by unwind
    /// information. Kept for each address asked.
    pub fn function_at(&self, svma: u64) -> Option<FunctionRef> {
        if let Some(known) = self.functions.borrow().get(svma) {
            return known;
        }
        let found = self.find_function(svma);
        self.functions.borrow_mut().insert(svma, found.clone());
        found
    }

    fn find_function(&self, svma: u64) -> Option<FunctionRef> {
        if !self.sections.iter().any(|s| s.kind == SectionKind::Text && s.contains(svma)) {
            return None;
        }
        if let Some((start, end, symbol)) = self.symbols.function_at(svma, &self.sections) {
            let raw = self.symbols.name(&symbol);
            let name = demangle(raw, self.symbols.fortran);
            return Some(FunctionRef {
                start,
                end,
                name: Some(Arc::from(&*name)),
                raw_name: Some(Arc::from(raw)),
            });
        }
        self.with_debug(|debug| {
            let by_dwarf = debug.function_at(svma).and_then(|(unit, die)| {
                let (start, end, _) = unit.summary()?.function_at(svma)?;
                let (name, _) = debug.qualified_name(&unit, die)?;
                let name: Arc<str> = Arc::from(name.as_str());
                Some(FunctionRef { start, end, name: Some(name.clone()), raw_name: Some(name) })
            });
            by_dwarf.or_else(|| {
                let (start, end) = debug.frames.range_at(svma)?;
                Some(FunctionRef { start, end, name: None, raw_name: None })
            })
        })
    }

    /// The source position of `svma`, innermost inlined call first. Without debug information one
    /// frame with the function's name. For a return address ask for the byte before it.
    pub fn locate(&self, svma: u64) -> Vec<SourceFrame> {
        let mut frames = Vec::new();
        if svma == u64::MAX {
            // No code's.
            return frames;
        }
        self.with_debug(|debug| {
            frames.extend(debug.frames_at(svma).into_iter().map(|frame| SourceFrame {
                function: frame.function.map(|name| {
                    demangle_or(name.linker, name.source, is_fortran(name.language)).into_owned()
                }),
                file: frame.file.map(|file| file.to_string()),
                line: (frame.line > 0).then_some(frame.line),
                column: (frame.column > 0).then_some(frame.column),
            }));
        });
        if frames.last().is_none_or(|outermost| outermost.function.is_none())
            && let Some(function) = self.function_at(svma)
        {
            let name = function.name.map(|name| name.to_string());
            match frames.last_mut() {
                Some(outermost) => outermost.function = name,
                None => frames.push(SourceFrame { function: name, ..SourceFrame::default() }),
            }
        }
        frames
    }

    /// The variables with fixed places: sorted by address, thread-local ones (by offset) last,
    /// none overlapping. The first call reads every unit of the debug information once.
    pub fn data_symbols(&self) -> &[DataSymbol] {
        self.data.get_or_init(|| {
            self.with_debug(|debug| data_symbols::build(&self.symbols, &self.sections, Some(debug)))
        })
    }

    /// The sections that hold data, by address; for parts that no symbol covers.
    pub fn data_sections(&self) -> Vec<Section> {
        self.sections.iter().filter(|section| section.is_data()).cloned().collect()
    }

    /// All loaded sections, by address.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// What variable, or gap between variables, `svma` lies in. As [`Self::data_symbols`] has it, but
    /// where the symbol tables are whole the debug information is not asked.
    pub fn data_place(&self, svma: u64) -> DataPlace {
        self.place_of(svma, false)
    }

    /// As [`Self::data_place`], for an offset in the TLS segment.
    pub fn tls_place(&self, offset: u64) -> DataPlace {
        self.place_of(offset, true)
    }

    fn place_of(&self, address: u64, tls: bool) -> DataPlace {
        if self.data.get().is_none() {
            let (addressed, thread_local) = self.symbols.data();
            let list = if tls { thread_local } else { addressed };
            let range = |at: usize| list.get(at).map(|s| s.svma..s.svma.saturating_add(s.size));
            let after = list.partition_point(|symbol| symbol.svma <= address);
            let place = data_symbols::place(range, after, address);
            if matches!(place, DataPlace::Variable(_)) || self.symbols.lists_locals {
                return place;
            }
        }
        let list = self.data_list(tls);
        let range = |at: usize| list.get(at).map(|s| s.svma..s.svma.saturating_add(s.size));
        data_symbols::place(range, list.partition_point(|symbol| symbol.svma <= address), address)
    }

    /// The variables with addresses, or the thread-local ones, of [`Self::data_symbols`].
    fn data_list(&self, tls: bool) -> &[DataSymbol] {
        let list = self.data_symbols();
        let (addressed, thread_local) =
            list.split_at(list.partition_point(|symbol| symbol.kind != DataKind::Tls));
        if tls { thread_local } else { addressed }
    }

    /// The variable that starts at `svma`, as [`Self::data_symbols`] has it.
    pub fn data_symbol(&self, svma: u64) -> Option<DataSymbol> {
        self.symbol_over(svma, false).filter(|symbol| symbol.svma == svma)
    }

    /// The thread-local variable that starts at `offset` of the TLS segment.
    pub fn tls_symbol(&self, offset: u64) -> Option<DataSymbol> {
        self.symbol_over(offset, true).filter(|symbol| symbol.svma == offset)
    }

    /// The variable that `svma` lies in. As [`Self::data_symbols`] has it, but where the symbol tables are whole
    /// no more of the debug information is read than that variable's.
    pub fn data_symbol_over(&self, svma: u64) -> Option<DataSymbol> {
        self.symbol_over(svma, false)
    }

    /// As [`Self::data_symbol_over`], for an offset in the TLS segment.
    pub fn tls_symbol_over(&self, offset: u64) -> Option<DataSymbol> {
        self.symbol_over(offset, true)
    }

    pub(crate) fn symbol_over(&self, address: u64, tls: bool) -> Option<DataSymbol> {
        let DataPlace::Variable(range) = self.place_of(address, tls) else { return None };
        if self.data.get().is_some() {
            let list = self.data_list(tls);
            return list.binary_search_by_key(&range.start, |s| s.svma).ok().map(|at| list[at].clone());
        }
        let (addressed, thread_local) = self.symbols.data();
        let list = if tls { thread_local } else { addressed };
        let symbol = &list[list.binary_search_by_key(&range.start, |symbol| symbol.svma).ok()?];
        let scoped = symbol.local.then(|| {
            self.with_debug(|debug| {
                let entry = self.static_entry(debug, symbol.svma, tls)?;
                data_symbols::scoped_name(debug, Some(&entry).filter(|entry| entry.start == symbol.svma)?)
            })
        });
        Some(data_symbols::named(&self.symbols, symbol, scoped.flatten(), &self.sections))
    }

    /// What DWARF says of the variable that covers `address`.
    pub(crate) fn static_entry<'a>(
        &self,
        debug: &DebugInfo<'a>,
        address: u64,
        tls: bool,
    ) -> Option<StaticEntry<'a>> {
        let range = match self.place_of(address, tls) {
            DataPlace::Variable(range) => range,
            // Two variables may share an address that the symbols do not cover.
            DataPlace::Gap(_) if self.symbols.lists_locals => return None,
            DataPlace::Gap(_) => 0..address.saturating_add(1),
        };
        let list = debug.statics_in(range, tls, &self.data_extent());
        StaticTable::covering(&list, address).map(|at| list[at].clone())
    }

    fn data_extent(&self) -> DataExtent {
        let data = self.sections.iter().filter(|section| section.is_data());
        let start = data.clone().map(|section| section.start).min().unwrap_or(0);
        let end = data.map(|section| section.end).max().unwrap_or(0);
        DataExtent { data: start..end, tls_bytes: self.tls.map_or(0, |tls| tls.size_bytes) }
    }

    /// The global or static variable that covers `svma`, by DWARF. Ask in the order of addresses:
    /// then each unit is read once.
    pub fn variable_info(&self, svma: u64) -> Option<VariableInfo> {
        self.with_debug(|debug| debug.variable_info(&self.static_entry(debug, svma, false)?))
    }

    /// The thread-local variable that covers `offset` of the TLS segment, by DWARF.
    pub fn tls_variable_info(&self, offset: u64) -> Option<VariableInfo> {
        self.with_debug(|debug| debug.variable_info(&self.static_entry(debug, offset, true)?))
    }

    /// The locals and parameters that lie in memory of the frame of the physical function that
    /// holds `pc`, at that pc: nested blocks and inlined calls included, those of the innermost
    /// scope last among equals. For a caller's frame give its return address minus 1. Sorted by
    /// offset. The function's variables are kept, their selection is not.
    pub fn frame_variables(&self, pc: u64) -> Arc<[FrameVariable]> {
        let all = self.function_variables(pc);
        let here = |v: &FrameVariable| v.pc_ranges.iter().any(|range| range.contains(&pc));
        if all.iter().all(here) { all } else { all.iter().filter(|v| here(v)).cloned().collect() }
    }

    /// As [`Self::frame_variables`], but for every pc of the function: the caller compares
    /// `pc_ranges` itself.
    pub fn function_variables(&self, pc: u64) -> Arc<[FrameVariable]> {
        self.with_debug(|debug| match debug.function_at(pc) {
            Some((unit, die)) => debug.variables_in_frame(&unit, die),
            None => Arc::from([]),
        })
    }

    /// How the canonical frame address is found at `pc`; None without unwind information or where
    /// it is an expression.
    pub fn cfa_rule(&self, pc: u64) -> Option<CfaRule> {
        self.with_debug(|debug| debug.frames.rule_at(pc))
    }

    /// The member at byte `offset` of a type.
    pub fn struct_field(&self, type_ref: TypeRef, offset: u64) -> Option<StructField> {
        self.with_debug(|debug| {
            let id = debug.type_id(type_ref)?;
            let (path, field, offset_in_field) = debug.member_at(&id, offset)?;
            Some(StructField {
                type_name: debug.type_name(Some(&id)),
                path,
                field_type: debug.type_name(field.as_ref()),
                size_bytes: field.as_ref().and_then(|field| debug.size_of(field)),
                offset_in_field,
            })
        })
    }

    /// What a pointer or reference type points to.
    pub fn pointee(&self, type_ref: TypeRef) -> Option<TypeRef> {
        self.with_debug(|debug| {
            let target = debug.pointee(&debug.type_id(type_ref)?)?;
            Some(debug.type_ref(&target))
        })
    }

    /// The C spelling of a type.
    pub fn type_name(&self, type_ref: TypeRef) -> Option<String> {
        self.with_debug(|debug| Some(debug.type_name(Some(&debug.type_id(type_ref)?))))
    }

    /// Line `line` (from 1) of a source file, without its end; None if the file is not there.
    pub fn source_line(&self, file: &str, line: u32) -> Option<String> {
        let mut sources = self.sources.borrow_mut();
        if !sources.contains_key(file) {
            let path = self.with_debug(|debug| debug.substituted(Path::new(file)));
            sources.insert(file.to_owned(), SourceFile::read(&path));
        }
        sources.get(file)?.as_ref()?.line(line).map(str::to_owned)
    }

    /// Lets the system take back the memory that parts of the mapped files read so far take; they are read
    /// again when needed.
    pub fn release_pages(&self) {
        self.image.release_pages();
        if let Some((_, image)) = &self.separate {
            image.release_pages();
        }
    }

    /// The machine code at `[start, end)`, cut off at the end of its section.
    pub fn code(&self, start: u64, end: u64) -> Option<&[u8]> {
        let &(section, section_end, offset) = self.code.iter().find(|c| (c.0..c.1).contains(&start))?;
        let from = usize::try_from(offset.checked_add(start - section)?).ok()?;
        let length = usize::try_from(end.min(section_end).checked_sub(start)?).ok()?;
        self.image.get(from..from.checked_add(length)?)
    }

    pub(crate) fn with_debug<T>(&self, ask: impl for<'a> FnOnce(&DebugInfo<'a>) -> T) -> T {
        let cell = self.debug.get_or_init(|| {
            let files = DebugFiles {
                module: self.image.clone(),
                module_path: self.path.clone(),
                debug: self.separate.clone(),
                search: self.search.clone(),
            };
            DebugCell::new(Arenas::default(), |arenas| DebugInfo::new(arenas, files))
        });
        cell.with_dependent(|_, debug| ask(debug))
    }
}

/// Mini debug information larger than this is taken for damage.
const MAX_MINI_DEBUG_BYTES: usize = 256 << 20;

fn is_fortran(language: gimli::DwLang) -> bool {
    matches!(
        language,
        gimli::DW_LANG_Fortran77
            | gimli::DW_LANG_Fortran90
            | gimli::DW_LANG_Fortran95
            | gimli::DW_LANG_Fortran03
            | gimli::DW_LANG_Fortran08
            | gimli::DW_LANG_Fortran18
    )
}

fn architecture(file: &object::File<'_>) -> Option<Architecture> {
    let object::File::Elf64(file) = file else { return None };
    Architecture::from_elf_machine(file.elf_header().e_machine(object::Endianness::Little).0)
}

fn tls_segment(file: &object::File<'_>) -> Option<TlsSegment> {
    let object::File::Elf64(file) = file else { return None };
    let endian = object::Endianness::Little;
    let header = file.elf_program_headers().iter().find(|header| header.p_type(endian) == elf::PT_TLS)?;
    Some(TlsSegment {
        svma: header.p_vaddr(endian),
        size_bytes: header.p_memsz(endian),
        align_bytes: header.p_align(endian),
    })
}

fn unpack(packed: &[u8]) -> Result<Vec<u8>, String> {
    /// Refuses to grow beyond [`MAX_MINI_DEBUG_BYTES`].
    struct Bounded(Vec<u8>);
    impl std::io::Write for Bounded {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.0.len() + bytes.len() > MAX_MINI_DEBUG_BYTES {
                return Err(std::io::Error::other("larger than 256 MB"));
            }
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut bytes = Bounded(Vec::new());
    let mut input = packed;
    lzma_rs::xz_decompress(&mut input, &mut bytes).map_err(|error| format!("{error:?}"))?;
    Ok(bytes.0)
}

fn entry_points(found: Vec<(usize, Symbol)>) -> Vec<EntryPoint> {
    let entry = |(index, symbol): (usize, Symbol)| EntryPoint {
        index,
        svma: symbol.svma,
        is_ifunc: symbol.kind == SymbolType::IndirectFunction,
    };
    found.into_iter().map(entry).collect()
}
