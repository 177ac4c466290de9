//! Functions of the C library that work on whatever memory their callers give them: who called says more of that than they do.

use memlens_code::{Architecture, Register};
use memlens_symbols::Module;

use crate::address_space::Code;
use crate::modules::Files;

/// Their names (ISO C23, 7.26 and 7.31; POSIX.1-2024 `<string.h>`; those that GNU adds). Implementations for a processor have
/// more behind it: `__memset_avx512_unaligned_erms`.
const NAMES: [&str; 38] = [
    "memset",
    "memcpy",
    "memmove",
    "mempcpy",
    "memccpy",
    "memchr",
    "memrchr",
    "rawmemchr",
    "memcmp",
    "memcmpeq",
    "memmem",
    "bcmp",
    "bcopy",
    "bzero",
    "strlen",
    "strnlen",
    "strcpy",
    "strncpy",
    "strlcpy",
    "stpcpy",
    "stpncpy",
    "strcat",
    "strncat",
    "strcmp",
    "strncmp",
    "strcasecmp",
    "strncasecmp",
    "strchr",
    "strchrnul",
    "strrchr",
    "strstr",
    "strspn",
    "strcspn",
    "strpbrk",
    "wmemset",
    "wmemcpy",
    "wcslen",
    "wcscpy",
];
/// Of these the first argument is where they store, the second where they load.
const COPY: [&str; 14] = [
    "memcpy", "memmove", "mempcpy", "memccpy", "strcpy", "strncpy", "strlcpy", "stpcpy", "stpncpy", "strcat",
    "strncat", "wmemcpy", "wcscpy", "bcopy",
];
/// The function's name without what tells its implementation; None: it is not one of them.
fn plain_name(name: &str) -> Option<&'static str> {
    let name = name.trim_start_matches('_');
    NAMES
        .into_iter()
        .find(|plain| name.strip_prefix(plain).is_some_and(|rest| rest.is_empty() || rest.starts_with('_')))
}

fn plain_name_in(symbols: &Module, svma: u64) -> Option<&'static str> {
    plain_name(symbols.function_at(svma)?.name.as_deref()?)
}

fn plain_name_at((file, svma): Code, files: &Files) -> Option<&'static str> {
    plain_name_in(files.get(file?)?.symbols()?, svma)
}

/// Whether code is of one of them.
pub fn is_on_behalf(code: Code, files: &Files) -> bool {
    plain_name_at(code, files).is_some()
}

/// The same of code of a file.
pub fn works_for_callers(symbols: &Module, svma: u64) -> bool {
    plain_name_in(symbols, svma).is_some()
}

/// The register in which the caller of one of them, whose code this is, gave it a pointer to what it stores, or else loads.
pub fn argument(code: Code, stores: bool, files: &Files) -> Register {
    let name = plain_name_at(code, files).unwrap_or_default();
    let symbols = code.0.and_then(|file| files.get(file)).and_then(|mapped| mapped.symbols());
    let architecture = symbols.and_then(|symbols| symbols.architecture()).unwrap_or(Architecture::X86_64);
    let number = match (name, stores) {
        // Its arguments stand the other way round.
        ("bcopy", true) => 1,
        ("bcopy", false) => 0,
        (name, false) if COPY.contains(&name) => 1,
        _ => 0,
    };
    architecture.arguments()[number]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn implementations_have_the_functions_name() {
        assert_eq!(plain_name("__memset_avx512_unaligned_erms"), Some("memset"));
        assert_eq!(plain_name("__memmove_avx_unaligned"), Some("memmove"));
        assert_eq!(plain_name("strlen"), Some("strlen"));
        assert_eq!(plain_name("__strncpy_evex"), Some("strncpy"));
        for other in ["stream_read", "memory", "string_append", "strlength", "my_memcpy", "malloc"] {
            assert_eq!(plain_name(other), None, "{other}");
        }
    }
}
