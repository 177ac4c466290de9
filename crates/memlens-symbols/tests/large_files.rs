//! Large libraries must open in time linear in their symbols, and answer without a full pass.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use memlens_symbols::{DebugSearch, Module};

fn assert_send<T: Send>(value: T) -> T {
    value
}

/// The compiler's own library, which is there wherever the tests are built: some 100 MB.
fn large_library() -> Option<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let lib = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()).join("lib");
    let libraries = std::fs::read_dir(lib).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    libraries
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so")))
        .max_by_key(|path| path.metadata().map_or(0, |m| m.len()))
}

#[test]
fn a_large_library_opens_fast() {
    let Some(path) = large_library() else {
        eprintln!("skipped: no large library");
        return;
    };
    let begin = Instant::now();
    let module = assert_send(Module::open(&path, &DebugSearch::default()).expect("opens"));
    let opened = begin.elapsed();
    let text = module.sections().iter().find(|s| s.name == ".text").cloned().expect(".text");
    let begin = Instant::now();
    let entries = module.entry_points(&["malloc", "calloc", "free"]);
    let searched = begin.elapsed();
    let begin = Instant::now();
    let mut named = 0;
    for pc in (text.start..text.end).step_by(((text.end - text.start) / 1000).max(1) as usize) {
        named += usize::from(module.function_at(pc).is_some_and(|f| f.start <= pc && pc < f.end));
        let _ = module.locate(pc);
        let _ = module.frame_variables(pc);
        let _ = module.cfa_rule(pc);
        let _ = module.assignment(pc);
    }
    let asked = begin.elapsed();
    let begin = Instant::now();
    let data = module.data_symbols().len();
    let listed = begin.elapsed();
    eprintln!(
        "{}: open {opened:?}, {} entry points in {searched:?}, {named} of 1000 addresses in {asked:?}, {data} variables in {listed:?}",
        path.display(),
        entries.len(),
    );
    assert!(named >= 950, "{named}");
    // Bounds far above what was measured (200 MB: 21-51 ms to open), so that a loaded machine
    // and an unoptimised build pass, but a pass over everything at opening does not.
    assert!(opened < Duration::from_secs(2), "{opened:?}");
    assert!(asked < Duration::from_secs(20), "{asked:?}");
}

#[test]
fn the_c_library_has_its_entry_points() {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let Some(path) = maps
        .lines()
        .filter_map(|l| l.split_whitespace().nth(5))
        .find(|p| p.contains("libc.so") || p.contains("libc-"))
    else {
        eprintln!("skipped: this test is linked statically");
        return;
    };
    let begin = Instant::now();
    let module = Module::open(path.as_ref(), &DebugSearch::nowhere()).expect("opens");
    let opened = begin.elapsed();
    let names = ["malloc", "calloc", "realloc", "free", "posix_memalign", "memcpy"];
    let entries = module.entry_points(&names);
    for (index, name) in names.iter().enumerate() {
        assert!(entries.iter().any(|e| e.index == index), "{name}");
    }
    // malloc is a plain function wherever it comes from; its name is preferred to its aliases.
    let malloc = entries.iter().find(|e| e.index == 0).expect("malloc");
    assert!(!malloc.is_ifunc);
    let function = module.function_at(malloc.svma + 1).expect("malloc's range");
    assert_eq!((function.start, function.name.as_deref()), (malloc.svma, Some("malloc")));
    eprintln!("{path}: open {opened:?}, {entries:?}");
}
