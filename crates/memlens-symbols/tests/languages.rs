//! C++, Rust and Fortran programs.

mod support;

use std::path::Path;

use iced_x86::{Decoder, DecoderOptions};
use memlens_code::{Architecture, ControlFlow, Step};
use memlens_symbols::{Assignment, Content, DataKind, DebugSearch, Module};
use support::{folder, have, hexadecimal, output, source, tool};

/// What a collector does: the first variable from the inner to the outer frame.
fn name_of(module: &Module, returns: &[u64]) -> Option<String> {
    for &pc in returns {
        match module.assignment(pc) {
            Assignment::Variable(variable) => return Some(variable.name),
            Assignment::HandedOn(_) => {}
            _ => return None,
        }
    }
    None
}

/// The calls in some code, and where they return to.
fn calls(architecture: Option<Architecture>, code: &[u8], start: u64) -> Vec<(u64, u64)> {
    fn of(instructions: &[impl Step]) -> Vec<(u64, u64)> {
        let calls = instructions.iter().filter(|one| one.transfer().is_call());
        calls.map(|one| (one.pc(), one.next_pc())).collect()
    }
    match architecture {
        Some(Architecture::AArch64) => of(&ControlFlow::of_aarch64(&[(start, code)]).instructions),
        _ => of(&Decoder::with_ip(64, code, start, DecoderOptions::NONE).iter().collect::<Vec<_>>()),
    }
}

/// The names of what the calls in lines of `source` and in what is inlined there allocate, by the line, each once.
fn names_by_line(module: &Module, source: &Path) -> Vec<(u32, String)> {
    let mut names = Vec::new();
    for function in module.functions() {
        let Some(code) = module.code(function.start, function.end) else { continue };
        for (call, returns) in calls(module.architecture(), code, function.start) {
            let Assignment::Variable(variable) = module.assignment(returns) else { continue };
            let frames = module.locate(call);
            let here = frames.iter().filter(|frame| frame.file.as_deref().map(Path::new) == Some(source));
            names.extend(here.filter_map(|frame| Some((frame.line?, variable.name.clone()))));
        }
    }
    names.sort();
    names.dedup();
    names
}

/// Every line of a program that ends with a comment allocates for the variable that the comment names, and for none if
/// it is empty. Further names in it may be those of other calls' results.
fn check_names(program: &Path, file: &str, comment: &str) {
    let source = source(file);
    let module = Module::open(program, &DebugSearch::nowhere()).expect("opens");
    let names = names_by_line(&module, &source);
    let text = std::fs::read_to_string(&source).expect("source");
    let mut checked = 0;
    for (line, text) in (1..).zip(text.lines()) {
        let Some((code, name)) = text.split_once(comment).filter(|(code, _)| !code.trim().is_empty()) else {
            continue;
        };
        let found: Vec<&str> = names.iter().filter(|(at, _)| *at == line).map(|(_, name)| &**name).collect();
        let wanted: Vec<&str> = name.split(", ").map(str::trim).filter(|name| !name.is_empty()).collect();
        let is_right = found.iter().all(|name| wanted.contains(name))
            && wanted.first().is_none_or(|first| found.contains(first));
        assert!(is_right, "{}:{line}: {code}: {found:?}", program.display());
        checked += 1;
    }
    assert!(checked > 4, "{checked}");
}

#[test]
fn what_grows_in_cpp_is_named_and_no_argument_or_counter() {
    for compiler in ["g++", "clang++", "aarch64-linux-gnu-g++"] {
        if !have(compiler) {
            continue;
        }
        for level in ["-O0", "-O2"] {
            let folder = folder(&format!("growing-{compiler}{level}"));
            let file = source("growing.cpp");
            let arguments = [level, "-g", "-std=c++17", file.to_str().unwrap_or("?"), "-o", "growing"];
            tool(&folder, compiler, &arguments);
            check_names(&folder.join("growing"), "growing.cpp", "//");
        }
    }
}

#[test]
fn blocks_of_rust_are_not_named_after_what_comes_later() {
    if !have("rustc") {
        return;
    }
    for level in 0..=3 {
        let folder = folder(&format!("growing-rust-{level}"));
        let file = source("growing.rs");
        let option = format!("opt-level={level}");
        let arguments =
            ["-C", &option, "-g", "--edition", "2021", file.to_str().unwrap_or("?"), "-o", "growing"];
        tool(&folder, "rustc", &arguments);
        check_names(&folder.join("growing"), "growing.rs", "//");
    }
}

/// rustc without optimisation counts locals of a frame of more than a page from `DW_OP_call_frame_cfa; DW_OP_consts;
/// DW_OP_plus`.
#[test]
fn locals_of_large_frames_of_rust_are_found() {
    if !have("rustc") {
        return;
    }
    let folder = folder("large-frame-rust");
    let file = source("large_frame.rs");
    tool(&folder, "rustc", &["-g", "--edition", "2021", file.to_str().unwrap_or("?"), "-o", "large_frame"]);
    let module = Module::open(&folder.join("large_frame"), &DebugSearch::nowhere()).expect("opens");
    let function = module
        .functions()
        .into_iter()
        .find(|f| f.name.as_deref() == Some("large_frame::main"))
        .expect("main");
    let variables = module.function_variables(function.start);
    let numbers: Vec<_> = variables.iter().filter(|v| &*v.name == "numbers").collect();
    // 600 numbers of 8 bytes, below the return address.
    assert!(
        matches!(numbers[..], [v] if v.size_bytes == 4800 && v.cfa_offset <= -4808 && v.cfa_offset > -8192),
        "{variables:#?}"
    );
}

#[test]
fn arrays_of_fortran_are_named_without_an_index() {
    if !have("gfortran") {
        return;
    }
    for level in ["-O0", "-O2", "-O3"] {
        let folder = folder(&format!("arrays{level}"));
        let file = source("arrays.f90");
        tool(&folder, "gfortran", &[level, "-g", file.to_str().unwrap_or("?"), "-o", "arrays"]);
        check_names(&folder.join("arrays"), "arrays.f90", "!");
    }
}

#[test]
fn containers_and_members_of_cpp() {
    if !have("g++") {
        return;
    }
    for level in ["-O0", "-O2"] {
        let folder = folder(&format!("cpp{level}"));
        let file = source("containers.cpp");
        let arguments = [
            level,
            "-g",
            "-no-pie",
            "-fno-omit-frame-pointer",
            file.to_str().unwrap_or("?"),
            "-o",
            "containers",
        ];
        tool(&folder, "g++", &arguments);
        let program = folder.join("containers");
        let module = Module::open(&program, &DebugSearch::nowhere()).expect("opens");
        let mut names = Vec::new();
        for line in output(&program).lines() {
            // Frame 0 of the list returns into `operator new`, whose result is handed on.
            let returns: Vec<u64> = line.split_whitespace().map(hexadecimal).collect();
            if returns.is_empty() || module.function_at(returns[0]).is_none() {
                continue;
            }
            names.push(name_of(&module, &returns));
        }
        let names: Vec<&str> = names.iter().map(|n| n.as_deref().unwrap_or("?")).collect();
        assert_eq!(names[..3], ["graphs::Graph::column", "plain", "numbers"], "{level}");
        let data = module.data_symbols();
        let table = data.iter().find(|s| s.name == "graphs::table").expect("graphs::table");
        assert_eq!((table.size, table.kind), (32, DataKind::Global));
        assert!(data.iter().any(|s| s.name == "graphs::Table<double>::uses"), "{data:#?}");
        let info = module.variable_info(table.svma + 8).expect("a variable");
        assert_eq!(info.type_name.as_deref(), Some("graphs::Table<double>"));
        let field = module.struct_field(info.type_ref.expect("a type"), 16).expect("a field");
        assert_eq!((field.path.as_str(), field.field_type.as_str()), ("cells[2]", "double"));
        if level == "-O2" {
            pointers_in_classes(&module);
        }
    }
}

/// What a container's pointer points to bears the container's name, a class's own pointer the class's.
fn pointers_in_classes(module: &Module) {
    let first_argument = |function: &str| {
        let starts = module.functions().into_iter();
        let found = starts.filter(|f| f.name.as_deref().is_some_and(|name| name.starts_with(function)));
        let start = found.map(|f| f.start).next().unwrap_or_else(|| panic!("{function}"));
        // rdi, by DWARF's numbers.
        module.pointer_in_register(start, 5).unwrap_or_else(|| panic!("{function}"))
    };
    let numbers = first_argument("sixth");
    // The last two are of other vectors than the first, if it is one of an array.
    for (offset, indexed, name) in
        [(0, false, "numbers"), (8, false, "numbers"), (24, false, "numbers[]"), (0, true, "numbers[]")]
    {
        let held = module.pointer_through(&numbers, offset, indexed).map(|pointer| pointer.name);
        assert_eq!(held.as_deref(), Some(name), "{offset} {indexed}");
    }
    let graph = first_argument("graphs::Graph::Graph");
    let held = module.pointer_through(&graph, 8, false).map(|pointer| pointer.name);
    assert_eq!(held.as_deref(), Some("graphs::Graph::column"));
}

#[test]
fn rust_names_and_locals() {
    if !have("rustc") {
        return;
    }
    for level in ["0", "2"] {
        let folder = folder(&format!("rust-{level}"));
        let file = source("rust_program.rs");
        let option = format!("opt-level={level}");
        tool(
            &folder,
            "rustc",
            &["-C", &option, "-g", "--edition", "2021", file.to_str().unwrap_or("?"), "-o", "program"],
        );
        let module = Module::open(&folder.join("program"), &DebugSearch::nowhere()).expect("opens");
        let data = module.data_symbols();
        let counter = data.iter().find(|s| s.name == "rust_program::COUNTER" || s.name == "program::COUNTER");
        assert_eq!(counter.map(|c| c.size), Some(8), "{level}");
        let area = module
            .sections()
            .iter()
            .filter(|s| s.name == ".text")
            .flat_map(|s| (s.start..s.end).step_by(16))
            .find_map(|pc| {
                module
                    .function_at(pc)
                    .filter(|f| f.name.as_deref().is_some_and(|n| n.ends_with("shapes::area")))
            })
            .expect("area");
        let variables = module.function_variables(area.start + 8);
        let corners = variables.iter().find(|v| &*v.name == "corners");
        let corners = corners.unwrap_or_else(|| panic!("{level}: {variables:#?}"));
        assert_eq!(
            (corners.type_name.as_deref(), corners.size_bytes),
            (Some("double[4]").map(|_| "f64[4]"), 32)
        );
        assert!(corners.decl_line == Some(12));
        let frames = module.locate(area.start + 8);
        assert!(
            frames.last().is_some_and(|f| f.file.as_deref().is_some_and(|f| f.ends_with("rust_program.rs")))
        );
    }
}

/// The deleter of a `std::unique_ptr` stands where its pointer does, under the same name, and has no data.
#[test]
fn empty_members_are_no_fields() {
    if !have("g++") {
        return;
    }
    let folder = folder("owners");
    let file = source("owners.cpp");
    tool(&folder, "g++", &["-O2", "-g", file.to_str().unwrap_or("?"), "-o", "owners"]);
    let module = Module::open(&folder.join("owners"), &DebugSearch::nowhere()).expect("opens");
    let owners = module.data_symbols().iter().find(|symbol| symbol.name == "owners").expect("a variable");
    let type_ref = module.variable_info(owners.svma).and_then(|info| info.type_ref).expect("a type");
    let Content::Structures(owner) = module.content_of(type_ref) else { panic!("it has no fields") };
    let fields = module.fields(&owner);
    let [pointer] = &fields[..] else { panic!("{fields:?}") };
    assert_eq!((pointer.offset_bytes, pointer.size_bytes), (0, 8));
    assert!(pointer.type_name.ends_with('*'), "{pointer:?}");
    for offset in [0, 7] {
        assert_eq!(module.field_at(owner.type_ref, offset).as_ref(), Some(pointer));
    }
}

/// A pointer to a base leads into the middle of a structure.
#[test]
fn parts_of_structures_have_one_place_or_none() {
    if !have("g++") {
        return;
    }
    let folder = folder("parts");
    let file = source("parts.cpp");
    tool(&folder, "g++", &["-O2", "-g", file.to_str().unwrap_or("?"), "-o", "parts"]);
    let module = Module::open(&folder.join("parts"), &DebugSearch::nowhere()).expect("opens");
    let [link, base, order, special] = ["links", "bases", "orders", "specials"].map(|name| {
        let symbol = module.data_symbols().iter().find(|symbol| symbol.name == name).expect("a variable");
        let info = module.variable_info(symbol.svma).expect("a variable");
        match module.content_behind(info.type_ref.expect("a type")) {
            Content::Structures(element) => element,
            other => panic!("{name}: {other:?}"),
        }
    });
    assert_eq!(module.part_offset(&order, &link), Some(32));
    assert_eq!(module.part_offset(&special, &base), Some(0));
    assert_eq!(module.part_offset(&special, &order), Some(0));
    assert_eq!(module.part_offset(&order, &order), Some(0));
    assert_eq!(module.part_offset(&special, &link), None, "there are two");
    assert_eq!(module.part_offset(&link, &order), None);
}

#[test]
fn a_member_of_unknown_size_ends_where_the_next_begins() {
    if !have("g++") {
        return;
    }
    let folder = folder("declared");
    let file = source("declared_only.cpp");
    tool(&folder, "g++", &["-std=c++17", "-O2", "-g", file.to_str().unwrap_or("?"), "-o", "declared"]);
    let module = Module::open(&folder.join("declared"), &DebugSearch::nowhere()).expect("opens");
    let engines = module.data_symbols().iter().find(|symbol| symbol.name == "engines").expect("a variable");
    let type_ref = module.variable_info(engines.svma).and_then(|info| info.type_ref).expect("a type");
    let Content::Structures(engine) = module.content_behind(type_ref) else { panic!("it has no fields") };
    let at = |offset| module.field_at(engine.type_ref, offset).map(|field| field.name);
    let last = engine.size_bytes - 8;
    assert_eq!(
        [0, last - 24, last].map(at),
        ["before", "behind[]", "behind[]"].map(|name| Some(name.to_owned()))
    );
    assert_eq!(at(last - 32).as_deref(), Some("pool"));
}

#[test]
fn fortran_modules_and_common_blocks() {
    if !have("gfortran") {
        return;
    }
    for level in ["-O0", "-O2"] {
        let folder = folder(&format!("fortran{level}"));
        let file = source("grid.f90");
        tool(&folder, "gfortran", &[level, "-g", file.to_str().unwrap_or("?"), "-o", "grid"]);
        let module = Module::open(&folder.join("grid"), &DebugSearch::nowhere()).expect("opens");
        let data = module.data_symbols();
        let find =
            |name: &str| data.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("{name}: {data:#?}"));
        assert_eq!(find("grid::u").size, 10 * 20 * 8);
        assert_eq!(find("box_block").size, 4);
        // A common block consists of its variables, in whatever subprogram it stands.
        let state = find("state");
        // Rounded up to whole numbers of its first variable by some versions of gfortran.
        assert!((2004..=2008).contains(&state.size), "{}", state.size);
        let info = module.variable_info(state.svma).expect("a variable");
        assert_eq!((info.name.as_str(), info.type_name.as_deref()), ("state", Some("common /state/")));
        let Content::Structures(block) = module.content_of(info.type_ref.expect("a type")) else {
            panic!("{info:?} has no fields");
        };
        assert_eq!(block.size_bytes, 2004);
        let fields = module.fields(&block).into_iter();
        let fields: Vec<_> = fields.map(|field| (field.name, field.offset_bytes, field.size_bytes)).collect();
        let expected = [("temp[]", 0, 800), ("vel[][]", 800, 1200), ("steps", 2000, 4)];
        assert_eq!(fields, expected.map(|(name, at, size)| (name.to_owned(), at, size)));
        let at = |offset| module.field_at(block.type_ref, offset).map(|field| field.name);
        assert_eq!([0, 1999, 2000].map(at), ["temp[]", "vel[][]", "steps"].map(|name| Some(name.to_owned())));
        // What is behind a descriptor has fields, and not the descriptor.
        let zones = module.variable_info(find("grid::zones").svma).and_then(|info| info.type_ref);
        let zones = zones.expect("a type");
        assert_eq!(module.content_of(zones), Content::Values);
        let Content::Structures(zone) = module.content_behind(zones) else { panic!("zones are structures") };
        let fields = module.fields(&zone).into_iter();
        let fields: Vec<_> = fields.map(|field| (field.name, field.offset_bytes, field.size_bytes)).collect();
        let expected = [("heat", 0, 8), ("parts", 8, 64), ("tag", 72, 4)];
        assert_eq!(fields, expected.map(|(name, at, size)| (name.to_owned(), at, size)));
        let outer = module.entry_points(&["outer_"])[0].svma;
        assert_eq!(module.function_at(outer).and_then(|f| f.name).as_deref(), Some("outer"));
        let fill = module.entry_points(&["__grid_MOD_fill"])[0].svma;
        assert_eq!(module.function_at(fill).and_then(|f| f.name).as_deref(), Some("grid::fill"));
        // The `allocate` is the only call of malloc in `fill` (or, inlined, elsewhere): its source
        // line names the array where the machine code does not.
        if level == "-O0" {
            let function = module.function_at(fill).expect("fill");
            let code = module.code(function.start, function.end).expect("code");
            let names: Vec<String> = (0..code.len().saturating_sub(5))
                .filter(|&at| code[at] == 0xe8)
                .filter_map(|at| module.assigned_variable(function.start + at as u64 + 5))
                .map(|v| v.name)
                .collect();
            assert!(names.iter().any(|n| n.contains("cells")), "{names:?}");
        }
    }
}
