//! The allocation functions: their linker names and what they do with their arguments.
//!
//! Sources: ISO C23 §7.24.3 (`aligned_alloc`, `free_sized`, `free_aligned_sized`), POSIX.1-2024
//! (`posix_memalign`, `reallocarray`), glibc 2.36 manual §3.2, Itanium C++ ABI §5.1 (mangled operator
//! names), the manuals of jemalloc 5, mimalloc 2 and tcmalloc for their prefixed names.

/// What a call does; the numbers are positions of integer arguments, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Returns a new block of `size` bytes (times `count`, where there is one).
    Allocate {
        /// Position of the size.
        size: u8,
        /// Position of the number of elements.
        count: Option<u8>,
    },
    /// Stores the address of a new block where argument 0 points; returns 0 on success.
    AllocateThroughPointer {
        /// Position of the size.
        size: u8,
    },
    /// Changes the size of the block at argument 0, perhaps moving it.
    Reallocate {
        /// Position of the size.
        size: u8,
        /// Position of the number of elements.
        count: Option<u8>,
    },
    /// Ends the block at argument 0.
    Free,
}

/// An allocation function by its linker name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocFunction {
    /// Linker name.
    pub name: String,
    /// What it does.
    pub effect: Effect,
    /// Named by the user: a pool or wrapper of the program's own.
    pub is_custom: bool,
}

const NEW: Effect = Effect::Allocate { size: 0, count: None };
const ALIGNED: Effect = Effect::Allocate { size: 1, count: None };
const ARRAY: Effect = Effect::Allocate { size: 1, count: Some(0) };
const RESIZE: Effect = Effect::Reallocate { size: 1, count: None };
const RESIZE_ARRAY: Effect = Effect::Reallocate { size: 2, count: Some(1) };
const THROUGH_POINTER: Effect = Effect::AllocateThroughPointer { size: 2 };

/// C names that allocators also offer with prefixes.
const C_FUNCTIONS: &[(&str, Effect)] = &[
    ("malloc", NEW),
    ("calloc", ARRAY),
    ("realloc", RESIZE),
    ("reallocarray", RESIZE_ARRAY),
    ("free", Effect::Free),
    ("posix_memalign", THROUGH_POINTER),
    ("aligned_alloc", ALIGNED),
    ("memalign", ALIGNED),
    ("valloc", NEW),
    ("pvalloc", NEW),
    ("free_sized", Effect::Free),
    ("free_aligned_sized", Effect::Free),
];

const PREFIXES: &[&str] = &["", "je_", "mi_", "tc_", "rp"];

const OTHER_FUNCTIONS: &[(&str, Effect)] = &[
    ("cfree", Effect::Free),
    // C++: plain, nothrow, aligned, aligned nothrow; then arrays.
    ("_Znwm", NEW),
    ("_ZnwmRKSt9nothrow_t", NEW),
    ("_ZnwmSt11align_val_t", NEW),
    ("_ZnwmSt11align_val_tRKSt9nothrow_t", NEW),
    ("_Znam", NEW),
    ("_ZnamRKSt9nothrow_t", NEW),
    ("_ZnamSt11align_val_t", NEW),
    ("_ZnamSt11align_val_tRKSt9nothrow_t", NEW),
    ("_ZdlPv", Effect::Free),
    ("_ZdlPvm", Effect::Free),
    ("_ZdlPvRKSt9nothrow_t", Effect::Free),
    ("_ZdlPvSt11align_val_t", Effect::Free),
    ("_ZdlPvmSt11align_val_t", Effect::Free),
    ("_ZdlPvSt11align_val_tRKSt9nothrow_t", Effect::Free),
    ("_ZdaPv", Effect::Free),
    ("_ZdaPvm", Effect::Free),
    ("_ZdaPvRKSt9nothrow_t", Effect::Free),
    ("_ZdaPvSt11align_val_t", Effect::Free),
    ("_ZdaPvmSt11align_val_t", Effect::Free),
    ("_ZdaPvSt11align_val_tRKSt9nothrow_t", Effect::Free),
];

/// All known functions, then the user's, given as `NAME`, `NAME=SIZE_ARGUMENT` or `NAME=free`.
pub fn table(custom: &[String]) -> Vec<AllocFunction> {
    let c = PREFIXES.iter().flat_map(|prefix| {
        C_FUNCTIONS.iter().map(move |(name, effect)| (format!("{prefix}{name}"), *effect))
    });
    let other = OTHER_FUNCTIONS.iter().map(|(name, effect)| ((*name).to_owned(), *effect));
    let standard = c.chain(other).map(|(name, effect)| AllocFunction { name, effect, is_custom: false });
    standard.chain(custom.iter().map(|text| custom_function(text))).collect()
}

fn custom_function(text: &str) -> AllocFunction {
    let (name, what) = text.split_once('=').unwrap_or((text, "0"));
    let effect = match what {
        "free" => Effect::Free,
        number => Effect::Allocate { size: number.parse().unwrap_or(0).min(3), count: None },
    };
    AllocFunction { name: name.to_owned(), effect, is_custom: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_entry_point_once() {
        let functions = table(&["pool_get=1".into(), "pool_put=free".into(), "xmalloc".into()]);
        let mut names: Vec<&str> = functions.iter().map(|function| function.name.as_str()).collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before, "a name twice");
        let effect = |name: &str| functions.iter().find(|f| f.name == name).map(|f| f.effect);
        assert_eq!(effect("calloc"), Some(Effect::Allocate { size: 1, count: Some(0) }));
        assert_eq!(effect("pool_get"), Some(Effect::Allocate { size: 1, count: None }));
        assert_eq!(effect("pool_put"), Some(Effect::Free));
        assert_eq!(effect("xmalloc"), Some(Effect::Allocate { size: 0, count: None }));
        assert_eq!(effect("_ZdaPvm"), Some(Effect::Free));
        assert_eq!(effect("mi_free"), Some(Effect::Free));
    }
}
