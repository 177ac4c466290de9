//! The allocation functions: their linker names and what they do with their arguments.
//!
//! Sources: ISO C23 §7.24.3 (`aligned_alloc`, `free_sized`, `free_aligned_sized`), POSIX.1-2024
//! (`posix_memalign`, `reallocarray`), glibc 2.36 manual §3.2, Itanium C++ ABI §5.1 (mangled operator
//! names), the manuals of jemalloc 5, mimalloc 2, snmalloc and tcmalloc (gperftools) for their names.

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

const PREFIXES: &[&str] = &["", "je_", "_rjem_", "mi_", "tc_", "rp", "sn_"];

/// Prefixes, and how the names of other functions of their allocators begin.
const NAMESPACES: &[(&str, &str)] = &[
    ("je_", "je_"),
    ("_rjem_", "_rjem_"),
    ("mi_", "mi_"),
    ("mi_", "_mi_"),
    ("tc_", "tc_"),
    ("rp", "_rpmalloc"),
    ("sn_", "sn_"),
];

/// jemalloc's own, with its prefixes; `_rjem_` is that of the Rust crate `tikv-jemalloc-sys`.
const JEMALLOC_PREFIXES: &[&str] = &["", "je_", "_rjem_"];
const JEMALLOC_FUNCTIONS: &[(&str, Effect)] =
    &[("mallocx", NEW), ("rallocx", RESIZE), ("dallocx", Effect::Free), ("sdallocx", Effect::Free)];

const OTHER_FUNCTIONS: &[(&str, Effect)] = &[
    ("cfree", Effect::Free),
    // mimalloc's own.
    ("mi_zalloc", NEW),
    ("mi_malloc_small", NEW),
    ("mi_zalloc_small", NEW),
    ("mi_mallocn", ARRAY),
    ("mi_reallocn", RESIZE_ARRAY),
    ("mi_reallocf", RESIZE),
    ("mi_rezalloc", RESIZE),
    ("mi_recalloc", RESIZE_ARRAY),
    ("mi_malloc_aligned", NEW),
    ("mi_malloc_aligned_at", NEW),
    ("mi_zalloc_aligned", NEW),
    ("mi_zalloc_aligned_at", NEW),
    ("mi_calloc_aligned", ARRAY),
    ("mi_calloc_aligned_at", ARRAY),
    ("mi_recalloc_aligned", RESIZE_ARRAY),
    ("mi_new_reallocn", RESIZE_ARRAY),
    ("mi_realloc_aligned", RESIZE),
    ("mi_realloc_aligned_at", RESIZE),
    ("mi_rezalloc_aligned", RESIZE),
    ("mi_new", NEW),
    ("mi_new_n", ARRAY),
    ("mi_new_nothrow", NEW),
    ("mi_new_aligned", NEW),
    ("mi_new_aligned_nothrow", NEW),
    ("mi_new_realloc", RESIZE),
    ("mi_free_small", Effect::Free),
    ("mi_free_size", Effect::Free),
    ("mi_free_aligned", Effect::Free),
    ("mi_free_size_aligned", Effect::Free),
    // snmalloc's for Rust: alignment and size, the old size before the new one.
    ("sn_rust_alloc", ALIGNED),
    ("sn_rust_alloc_zeroed", ALIGNED),
    ("sn_rust_realloc", Effect::Reallocate { size: 3, count: None }),
    ("sn_rust_dealloc", Effect::Free),
    // tcmalloc's.
    ("tc_new", NEW),
    ("tc_new_nothrow", NEW),
    ("tc_newarray", NEW),
    ("tc_newarray_nothrow", NEW),
    ("tc_delete", Effect::Free),
    ("tc_delete_sized", Effect::Free),
    ("tc_delete_nothrow", Effect::Free),
    ("tc_deletearray", Effect::Free),
    ("tc_deletearray_sized", Effect::Free),
    ("tc_deletearray_nothrow", Effect::Free),
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
    let c = prefixed(PREFIXES, C_FUNCTIONS);
    let jemalloc = prefixed(JEMALLOC_PREFIXES, JEMALLOC_FUNCTIONS);
    let other = OTHER_FUNCTIONS.iter().map(|(name, effect)| ((*name).to_owned(), *effect));
    let standard =
        c.chain(jemalloc).chain(other).map(|(name, effect)| AllocFunction { name, effect, is_custom: false });
    standard.chain(custom.iter().map(|text| custom_function(text))).collect()
}

/// Each function with each prefix.
fn prefixed(
    prefixes: &'static [&str],
    functions: &'static [(&str, Effect)],
) -> impl Iterator<Item = (String, Effect)> {
    let with = |prefix: &'static str| {
        functions.iter().map(move |(name, effect)| (format!("{prefix}{name}"), *effect))
    };
    prefixes.iter().copied().flat_map(with)
}

/// How the names of an allocator's own functions begin, of the one that has this allocation function; names without a prefix say nothing.
pub fn namespaces(function: &str) -> impl Iterator<Item = &'static str> {
    NAMESPACES.iter().filter(move |(prefix, _)| function.starts_with(prefix)).map(|(_, begin)| *begin)
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
        assert_eq!(namespaces("mi_malloc").collect::<Vec<_>>(), ["mi_", "_mi_"]);
        assert_eq!(namespaces("malloc").chain(namespaces("free")).count(), 0);
        let has_prefix = |name: &str| PREFIXES.iter().any(|it| !it.is_empty() && name.starts_with(it));
        let unknown = |name: &&AllocFunction| has_prefix(&name.name) != (namespaces(&name.name).count() > 0);
        assert_eq!(functions.iter().find(unknown), None);
        assert_eq!(effect("mi_malloc_aligned"), Some(Effect::Allocate { size: 0, count: None }));
        assert_eq!(effect("_rjem_sdallocx"), Some(Effect::Free));
    }
}
