//! Functions that return their first argument: what they are given, they hand on.

use memlens_code::{LINKAGE_STUB_BYTES, Target, linkage_cell, returns_first_argument};

use crate::module::Module;

/// Functions that return their first argument (ISO C23, 7.26; the last are glibc's, of `_FORTIFY_SOURCE`).
const RETURN_ARGUMENT: [&str; 14] = [
    "memset",
    "memcpy",
    "memmove",
    "strcpy",
    "strncpy",
    "strcat",
    "strncat",
    "__memset_chk",
    "__memcpy_chk",
    "__memmove_chk",
    "__strcpy_chk",
    "__strncpy_chk",
    "__strcat_chk",
    "__strncat_chk",
];

impl Module {
    /// Whether what is called returns its first argument, as far as its name tells, or its code. Linear in the relocations the
    /// first time.
    pub(crate) fn returns_argument(&self, target: Target) -> bool {
        let cell = match target {
            Target::Cell(cell) => cell,
            Target::Code(svma) => {
                let stub = self.code(svma, svma.saturating_add(LINKAGE_STUB_BYTES)).unwrap_or_default();
                match self.architecture().and_then(|of| linkage_cell(of, stub, svma)) {
                    Some(cell) => cell,
                    None => return self.function_returns_argument(svma),
                }
            }
        };
        let cells = self.returning_cells.get_or_init(|| {
            let (imports, _) = self.links();
            let returning = imports.iter().filter(|import| RETURN_ARGUMENT.contains(&&*import.name));
            returning.map(|import| import.cell).collect()
        });
        cells.contains(&cell)
    }

    fn function_returns_argument(&self, svma: u64) -> bool {
        let Some(function) = self.function_at(svma).filter(|function| function.start == svma) else {
            return false;
        };
        let code = self.code(svma, function.end).unwrap_or_default();
        function.raw_name.is_some_and(|name| RETURN_ARGUMENT.contains(&&*name))
            || self.architecture().is_some_and(|of| returns_first_argument(of, code, svma, &|_| false))
    }
}
