//! What the machine code's analysis asks about a file.

use std::collections::HashMap;

use memlens_code::{Callee, LINKAGE_STUB_BYTES, Surroundings};
use memlens_symbols::{DataPlace, Module, SectionKind};

/// Answers from one module's symbols and relocations.
pub(crate) struct ModuleSurroundings<'m> {
    module: &'m Module,
    /// What the dynamic linker puts into cells.
    imports: HashMap<u64, Callee>,
    /// Functions of the module itself that are known by name.
    own: HashMap<u64, Callee>,
    /// Sections of data.
    sections: Vec<(u64, u64)>,
}

impl<'m> ModuleSurroundings<'m> {
    pub(crate) fn new(module: &'m Module) -> Self {
        let (imports, pointers) = module.links();
        let imports = imports.into_iter().map(|import| {
            let callee = match (known(&import.name), import.defined_at) {
                (Callee::Unknown, Some(svma)) => Callee::Function(svma),
                (callee, _) => callee,
            };
            (import.cell, callee)
        });
        let mut imports: HashMap<u64, Callee> = imports.collect();
        let mut own = HashMap::new();
        for (addresses, name) in module.linker_functions() {
            let callee = known(name);
            if callee != Callee::Unknown {
                own.insert(addresses.start, callee);
            }
        }
        // Rust calls its allocator through a cell with its address.
        for pointer in pointers {
            if let Some(&callee) = own.get(&pointer.target) {
                imports.insert(pointer.cell, callee);
            }
        }
        let data = |kind: SectionKind| kind != SectionKind::Text;
        let sections =
            module.data_sections().iter().filter(|s| data(s.kind)).map(|s| (s.start, s.end)).collect();
        Self { module, imports, own, sections }
    }

    /// Whether a function is one of those known by name, which are not analysed.
    pub(crate) fn is_known(&self, start: u64) -> bool {
        self.own.contains_key(&start)
    }
}

impl Surroundings for ModuleSurroundings<'_> {
    /// A stub of the linkage table jumps through a cell that the dynamic linker fills.
    fn callee(&self, svma: u64) -> Callee {
        if let Some(&callee) = self.own.get(&svma) {
            return callee;
        }
        let Some(code) = self.module.code(svma, svma.saturating_add(LINKAGE_STUB_BYTES)) else {
            return Callee::Unknown;
        };
        let architecture = self.module.architecture();
        match architecture.and_then(|of| memlens_code::linkage_cell(of, code, svma)) {
            Some(cell) => self.imports.get(&cell).copied().unwrap_or(Callee::Unknown),
            None => Callee::Unknown,
        }
    }

    fn imported(&self, cell: u64) -> Option<Callee> {
        self.imports.get(&cell).copied()
    }

    fn data_start(&self, svma: u64) -> Option<u64> {
        match self.module.data_place(svma) {
            DataPlace::Variable(range) => Some(range.start),
            // An unnamed part begins where the variable before it ends.
            DataPlace::Gap(gap) => {
                let &(start, _) = self.sections.iter().find(|&&(start, end)| (start..end).contains(&svma))?;
                Some(gap.start.max(start))
            }
        }
    }
}

/// What a function does, by its linker name. Sources: ISO C23 §7.24 and §7.26, POSIX.1-2024, Itanium
/// C++ ABI §5.1, libgomp's manual, Rust's `alloc` crate.
fn known(name: &str) -> Callee {
    // Rust's allocator shims carry a crate hash in their mangled names since 1.87.
    if name.contains("__rust_alloc") || name.contains("__rust_realloc") || name.contains("__rdl_alloc") {
        return if name.contains("error_handler") || name.contains("no_alloc_shim") {
            Callee::Unknown
        } else {
            Callee::Allocates
        };
    }
    match name {
        "malloc" | "calloc" | "realloc" | "reallocarray" | "aligned_alloc" | "memalign" | "valloc"
        | "pvalloc" | "mmap" | "mmap64" => Callee::Allocates,
        "posix_memalign" => Callee::AllocatesThroughPointer,
        "memset" | "strcpy" | "strncpy" | "strcat" | "strncat" | "__memset_chk" | "__cxa_begin_catch"
        | "__dynamic_cast" => Callee::ReturnsFirst,
        "memcpy" | "memmove" | "__memcpy_chk" | "__memmove_chk" => Callee::Copies,
        "pthread_create" => Callee::Calls { function: 2, first: 3, second: None },
        "GOMP_parallel" => Callee::Calls { function: 0, first: 1, second: None },
        "qsort" => Callee::Calls { function: 3, first: 0, second: Some(0) },
        "bsearch" => Callee::Calls { function: 4, first: 0, second: Some(1) },
        "exit"
        | "_exit"
        | "_Exit"
        | "abort"
        | "quick_exit"
        | "__assert_fail"
        | "__stack_chk_fail"
        | "err"
        | "errx"
        | "verr"
        | "verrx"
        | "longjmp"
        | "siglongjmp"
        | "__longjmp_chk"
        | "pthread_exit"
        | "_Unwind_Resume"
        | "__cxa_throw"
        | "__cxa_rethrow"
        | "__cxa_bad_cast"
        | "__chk_fail"
        | "__fortify_fail"
        | "_ZSt9terminatev"
        | "_gfortran_stop_string"
        | "_gfortran_error_stop_string"
        | "_gfortran_runtime_error"
        | "_gfortran_runtime_error_at"
        | "_gfortran_os_error"
        | "_gfortran_os_error_at" => Callee::Never,
        _ if name.starts_with("_ZSt") && name.contains("__throw_") => Callee::Never,
        _ if name.starts_with("_Znwm") || name.starts_with("_Znam") => Callee::Allocates,
        _ => Callee::Unknown,
    }
}
