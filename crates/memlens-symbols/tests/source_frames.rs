//! Source positions and inlined calls against those that the crate `addr2line` finds, address by address.

mod support;

use std::path::Path;
use std::sync::Arc;

use gimli::{EndianSlice, LittleEndian};
use memlens_symbols::{DebugSearch, Module, SectionKind, SourceFrame};
use object::{Object, ObjectSection};
use support::{folder, source, tool};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// What a frame is compared by: whether a function is known, file, line, column.
type Place = (bool, Option<String>, Option<u32>, Option<u32>);

fn ours(frames: &[SourceFrame]) -> Vec<Place> {
    let place =
        |frame: &SourceFrame| (frame.function.is_some(), frame.file.clone(), frame.line, frame.column);
    frames.iter().map(place).collect()
}

fn theirs(context: &addr2line::Context<Bytes<'_>>, svma: u64) -> Vec<Place> {
    let mut places = Vec::new();
    let Ok(mut frames) = context.find_frames(svma).skip_all_loads() else { return places };
    while let Ok(Some(frame)) = frames.next() {
        let place = frame.location.as_ref();
        places.push((
            frame.function.is_some(),
            place.and_then(|place| place.file).map(str::to_owned),
            place.and_then(|place| place.line).filter(|&line| line > 0),
            place.and_then(|place| place.column).filter(|&column| column > 0),
        ));
    }
    places
}

/// Compares every `step`th address of the code of `path`; returns how many frames were compared and how
/// many of them are inlined.
fn compare(path: &Path, step: usize) -> (usize, usize) {
    let bytes = std::fs::read(path).expect("a compiled program");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let load = |id: gimli::SectionId| {
        let data = file.section_by_name(id.name()).and_then(|section| section.uncompressed_data().ok());
        Ok::<_, gimli::Error>(data.unwrap_or_default().into_owned())
    };
    let sections = gimli::DwarfSections::load(load).expect("sections");
    let dwarf = Arc::new(sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian)));
    let context = addr2line::Context::from_arc_dwarf(dwarf).expect("readable debug information");
    let module = Module::open(path, &DebugSearch::default()).expect("an ELF module");
    let (mut frames, mut inlined) = (0, 0);
    for section in module.sections().iter().filter(|section| section.kind == SectionKind::Text) {
        for svma in (section.start..section.end).step_by(step) {
            let expected = theirs(&context, svma);
            if expected.is_empty() {
                // Nothing in the debug information: ours may still have the symbol's name.
                continue;
            }
            let mut found = ours(&module.locate(svma));
            if let (Some(outer), Some(theirs)) = (found.last_mut(), expected.last()) {
                outer.0 &= theirs.0;
            }
            assert_eq!(found, expected, "{} {svma:#x}", path.display());
            frames += found.len();
            inlined += found.len() - 1;
        }
    }
    (frames, inlined)
}

#[test]
fn every_address_of_compiled_programs() {
    let folder = folder("source_frames");
    let mut inlined = 0;
    for (compiler, name, options) in [
        ("gcc", "bfs.c", &["-O0", "-gdwarf-4"][..]),
        ("gcc", "bfs.c", &["-O2", "-gdwarf-5"]),
        ("gcc", "wrappers.c", &["-O2", "-gdwarf-4", "-ffunction-sections"]),
        ("g++", "containers.cpp", &["-O2", "-gdwarf-5"]),
        ("clang", "bfs.c", &["-O2", "-gdwarf-5"]),
        ("clang", "wrappers.c", &["-O2", "-gdwarf-4"]),
        ("gfortran", "grid.f90", &["-O2", "-g"]),
    ] {
        if compiler != "gcc" && !support::have(compiler) {
            continue;
        }
        let text = source(name);
        let object = format!("{compiler}-{name}.o");
        let mut arguments = options.to_vec();
        arguments.extend(["-fPIC", "-c", text.to_str().unwrap_or("?"), "-o", &object]);
        tool(&folder, compiler, &arguments);
        // Linked without libraries: what is undefined stays so.
        tool(&folder, "ld", &["-shared", &object, "-o", &format!("{object}.so")]);
        let (frames, within) = compare(&folder.join(format!("{object}.so")), 1);
        assert!(frames > 100, "{compiler} {name}: {frames} frames");
        inlined += within;
    }
    assert!(inlined > 500, "{inlined} inlined frames");
}

#[test]
fn a_rust_program_here_and_there() {
    if !support::have("rustc") {
        return;
    }
    // Many units, the standard library's too; deeply inlined; with line tables only.
    let (folder, text) = (folder("rust_frames"), source("rust_program.rs"));
    let options =
        ["--edition", "2021", "-Copt-level=3", "-Ccodegen-units=16", "-Cdebuginfo=line-tables-only"];
    tool(&folder, "rustc", &[&options[..], &[text.to_str().unwrap_or("?"), "-o", "rust_program"]].concat());
    let (frames, inlined) = compare(&folder.join("rust_program"), 61);
    assert!(frames > 1000 && inlined > 500, "{frames} frames, {inlined} inlined");
}
