//! Linker names to source names: C++, Rust and Fortran.

use std::borrow::Cow;

/// The source name of a linker name; the name itself where no scheme applies.
///
/// * Itanium C++ (`_Z…`): without parameters and return type.
/// * Rust, legacy and v0: without the hash.
/// * gfortran: `__mod_MOD_name` is `mod::name`; if `fortran`, `name_` is `name` and `MAIN__` is
///   `MAIN` (GNU Fortran manual, "Naming conventions": one underscore is appended).
/// * A symbol version (`@GLIBC_2.2.5`) is dropped.
pub(crate) fn demangle(raw: &str, fortran: bool) -> Cow<'_, str> {
    let name = strip_version(raw);
    if name.len() > 4096 {
        return Cow::Borrowed(name);
    }
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return Cow::Owned(format!("{rust:#}"));
    }
    if name.starts_with("_Z") || name.starts_with("__Z") {
        let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
        let parse = cpp_demangle::ParseOptions::default().recursion_limit(96);
        if let Ok(symbol) = cpp_demangle::Symbol::new_with_options(name, &parse)
            && let Ok(text) = symbol.demangle_with_options(&options)
        {
            return Cow::Owned(text);
        }
        return Cow::Borrowed(name);
    }
    if let Some((module, entity)) = name.strip_prefix("__").and_then(|rest| rest.split_once("_MOD_"))
        && !module.is_empty()
        && !entity.is_empty()
    {
        return Cow::Owned(format!("{module}::{entity}"));
    }
    if fortran {
        if name == "MAIN__" {
            return Cow::Borrowed("MAIN");
        }
        if let Some(plain) = name.strip_suffix('_')
            && !plain.is_empty()
            && !plain.starts_with('_')
            && !plain.ends_with('_')
        {
            return Cow::Borrowed(plain);
        }
    }
    Cow::Borrowed(name)
}

/// The same, but of C++ names that are not understood what the debug information says: without namespaces, but for `std`.
pub(crate) fn demangle_or<'n>(raw: &'n str, source: Option<&'n str>, fortran: bool) -> Cow<'n, str> {
    let name = demangle(raw, fortran);
    match source {
        Some(source) if name.starts_with("_Z") && raw.starts_with("_ZSt") => {
            Cow::Owned(format!("std::{source}"))
        }
        Some(source) if name.starts_with("_Z") => Cow::Borrowed(source),
        _ => name,
    }
}

/// `malloc@@GLIBC_2.2.5` without the version.
pub(crate) fn strip_version(name: &str) -> &str {
    match name.find('@') {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    }
}

/// A C compiler's name of a function-local static (`count.1234`, `count.1234.lto_priv.0`) or of a
/// privatised symbol, as the source spells it.
pub(crate) fn strip_local_suffix(name: &str) -> &str {
    let mut name = name;
    if let Some(at) = name.find(".lto_priv") {
        name = &name[..at];
    }
    match name.rsplit_once('.') {
        Some((stem, digits))
            if !stem.is_empty() && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) =>
        {
            stem
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_gives_the_source_name() {
        for (raw, fortran, name) in [
            ("malloc", false, "malloc"),
            ("malloc@@GLIBC_2.2.5", false, "malloc"),
            ("_ZN5graph6Reader4loadEPKc", false, "graph::Reader::load"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", false, "core::fmt::Write::write_fmt"),
            ("_RNvC6_123foo3bar", false, "foo::bar"),
            ("__grid_MOD_u", false, "grid::u"),
            ("solve_", true, "solve"),
            ("solve_", false, "solve_"),
            ("MAIN__", true, "MAIN"),
            ("_Zgarbage", false, "_Zgarbage"),
        ] {
            // `_RNvC6_123foo3bar`: crate `123foo` may not start with a digit unescaped, so the
            // underscore separates length and bytes; see RFC 2603.
            let got = demangle(raw, fortran);
            if raw.starts_with("_R") {
                assert!(got.ends_with("::bar"), "{got}");
            } else {
                assert_eq!(got, name, "{raw}");
            }
        }
    }

    #[test]
    fn names_that_are_not_understood_are_those_of_the_source() {
        let fill = "_ZSt9__fill_a1IP4ItemS0_EN9__gnu_cxx11__enable_ifIXntsrSt11__is_scalarIT0_E7__valueEvE6__typeET_S9_RKS5_";
        assert!(demangle(fill, false).starts_with("_Z"), "understood by now: take another one");
        let source = Some("__fill_a1<Item*, Item>");
        assert_eq!(demangle_or(fill, source, false), "std::__fill_a1<Item*, Item>");
        assert_eq!(demangle_or("_Zgarbage", Some("load"), false), "load");
        assert_eq!(demangle_or("_Zgarbage", None, false), "_Zgarbage");
        assert_eq!(demangle_or("_ZN5graph6Reader4loadEPKc", Some("load"), false), "graph::Reader::load");
    }

    #[test]
    fn local_suffixes_are_dropped() {
        assert_eq!(strip_local_suffix("count.1234"), "count");
        assert_eq!(strip_local_suffix("count.3.lto_priv.0"), "count");
        assert_eq!(strip_local_suffix("a.b"), "a.b");
        assert_eq!(strip_local_suffix(".5"), ".5");
    }
}
