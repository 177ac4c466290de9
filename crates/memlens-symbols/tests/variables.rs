//! Variables looked up one by one, which reads as little debug information as possible, against the
//! list of all, which reads everything.

mod support;

use std::path::Path;

use memlens_symbols::{DataKind, DataPlace, DebugSearch, Module};
use support::{folder, have, source, tool};

/// Compares every variable of `path`, and the bytes beside it; returns how many variables there are and
/// of how many bytes of theirs the debug information knows whose they are.
fn compare(path: &Path) -> (usize, usize) {
    let open = || Module::open(path, &DebugSearch::default()).expect("an ELF module");
    let whole = open();
    let list = whole.data_symbols();
    let (single, lists) = (open(), open());
    let mut known = 0;
    for symbol in list.iter().filter(|symbol| !symbol.section.is_empty()) {
        let (start, end) = (symbol.svma, symbol.svma + symbol.size);
        let label = format!("{} {}", path.display(), symbol.name);
        let is_tls = symbol.kind == DataKind::Tls;
        if is_tls && whole.tls_segment().is_none_or(|tls| end > tls.size_bytes) {
            // gcc writes addresses instead of offsets for thread-local variables of split units.
            continue;
        }
        let place_at =
            |module: &Module, at| if is_tls { module.tls_place(at) } else { module.data_place(at) };
        let info_at = |module: &Module, at| {
            if is_tls { module.tls_variable_info(at) } else { module.variable_info(at) }
        };
        let found = if is_tls { single.tls_symbol(start) } else { single.data_symbol(start) };
        assert_eq!(found.as_ref(), Some(symbol), "{label}");
        assert!(symbol.size == 1 || single.data_symbol(start + 1).is_none() || is_tls, "{label}");
        for at in [start, start + symbol.size / 2, end - 1] {
            assert_eq!(place_at(&lists, at), DataPlace::Variable(start..end), "{label}");
            let info = info_at(&whole, at);
            known += usize::from(info.is_some());
            assert_eq!(info_at(&single, at), info, "{label} at {at:#x}");
        }
        // gcc writes addresses instead of offsets for thread-local variables of split units: only the
        // whole list has those beside the symbols.
        for at in [start.saturating_sub(1), end].into_iter().filter(|_| !is_tls) {
            assert_eq!(place_at(&single, at), place_at(&whole, at), "{label} beside at {at:#x}");
        }
    }
    (list.len(), known)
}

#[test]
fn one_by_one_as_in_the_list() {
    let folder = folder("variables");
    for (compiler, name, options) in [
        ("gcc", "bfs.c", &["-O0", "-gdwarf-4"][..]),
        ("gcc", "bfs.c", &["-O2", "-gdwarf-5"]),
        // Without local symbols only the debug information knows the statics.
        ("gcc", "bfs.c", &["-O2", "-g", "-Wl,--discard-all"]),
        ("gcc", "bfs.c", &["-O2", "-g", "-gsplit-dwarf"]),
        ("gcc", "bfs.c", &["-O2", "-g", "-flto"]),
        ("g++", "containers.cpp", &["-O2", "-g"]),
        ("clang", "bfs.c", &["-O2", "-gdwarf-4"]),
        ("clang", "bfs.c", &["-O2", "-gdwarf-5"]),
        ("gfortran", "grid.f90", &["-O0", "-g"]),
        ("gfortran", "grid.f90", &["-O2", "-g"]),
        ("rustc", "rust_program.rs", &["-g", "--edition", "2021"]),
    ] {
        if compiler != "gcc" && !have(compiler) {
            continue;
        }
        let text = source(name);
        let hook = source("hook.c");
        let mut arguments = options.to_vec();
        arguments.extend([text.to_str().unwrap_or("?"), "-o", "program"]);
        if name == "bfs.c" {
            arguments.extend([hook.to_str().unwrap_or("?"), "-Wl,--wrap=malloc,--wrap=calloc"]);
        }
        tool(&folder, compiler, &arguments);
        let (variables, known) = compare(&folder.join("program"));
        assert!(variables > 2 && known > 2, "{compiler} {name} {options:?}: {known}, {variables}");
    }
}
