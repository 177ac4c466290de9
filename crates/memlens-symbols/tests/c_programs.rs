//! C programs compiled in many ways; the truth comes from running them.

mod support;

use std::path::{Path, PathBuf};

use memlens_symbols::{Assignment, Content, DataKind, DebugSearch, Evidence, Field, Module};
use support::{folder, hexadecimal, output, source, tool};

/// Ways to compile: compiler, label, options.
fn variants() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let mut list = Vec::new();
    for compiler in ["gcc", "clang"] {
        if compiler != "gcc" && !support::have(compiler) {
            continue;
        }
        for (label, options) in [
            ("O0-4", vec!["-O0", "-gdwarf-4"]),
            ("O0-5", vec!["-O0", "-gdwarf-5"]),
            ("O2-4", vec!["-O2", "-gdwarf-4"]),
            ("O2-5", vec!["-O2", "-gdwarf-5"]),
            ("O0-split4", vec!["-O0", "-gdwarf-4", "-gsplit-dwarf"]),
            ("O2-split5", vec!["-O2", "-gdwarf-5", "-gsplit-dwarf"]),
            ("O2-zlib", vec!["-O2", "-gdwarf-5", "-gz=zlib"]),
        ] {
            list.push((compiler, label, options));
        }
    }
    list
}

fn build(folder: &Path, compiler: &str, options: &[&str], program: &str) -> PathBuf {
    let c = source(&format!("{program}.c"));
    let hook = source("hook.c");
    let object = format!("{program}.o");
    let mut arguments = options.to_vec();
    arguments.extend(["-c", c.to_str().unwrap_or("?"), "-o", &object]);
    tool(folder, compiler, &arguments);
    tool(folder, compiler, &["-O1", "-c", hook.to_str().unwrap_or("?"), "-o", "hook.o"]);
    let mut link = vec!["-no-pie"];
    link.extend(options.iter().filter(|o| o.starts_with("-gz")));
    link.extend([&*object, "hook.o", "-o", program, "-Wl,--wrap=malloc,--wrap=calloc"]);
    tool(folder, compiler, &link);
    folder.join(program)
}

/// The names that the allocations of bfs.c have, in the order of the calls. `wrapped` and `tree`
/// are named one frame further out, so the innermost frame hands them on.
const NAMES: [Option<&str>; 11] = [
    Some("column"),
    Some("rowstarts"),
    Some("visited"),
    Some("pred"),
    Some("oldq"),
    Some("newq"),
    Some("global_table"),
    Some("g->column"),
    Some("g->rowstarts"),
    None,
    None,
];

fn check_bfs(module: &Module, text: &str, label: &str) {
    let returns: Vec<u64> = text.lines().map(hexadecimal).collect();
    // The twelfth and later are the C library's.
    assert!(returns.len() >= NAMES.len(), "{label}: {text}");
    for (&pc, name) in returns.iter().zip(NAMES) {
        let found = module.assignment(pc);
        match (name, &found) {
            (Some(name), Assignment::Variable(variable)) => {
                assert_eq!(variable.name, name, "{label} at {pc:#x}: {found:?}");
                assert_eq!(variable.how, Evidence::MachineCode, "{label}: {found:?}");
                let type_name = variable.type_name.as_deref();
                let wanted = match name {
                    "rowstarts" | "g->rowstarts" => "long int*",
                    "visited" => "char*",
                    _ => "int*",
                };
                // clang spells `long`, gcc `long int`.
                assert_eq!(
                    type_name.map(|t| t.replace("long*", "long int*")).as_deref(),
                    Some(wanted),
                    "{label}"
                );
                if name == "column" {
                    assert_eq!(variable.decl_line, Some(57), "{label}: {found:?}");
                    assert!(variable.decl_file.as_deref().is_some_and(|f| f.ends_with("bfs.c")), "{label}");
                }
            }
            (None, Assignment::HandedOn(_)) => {}
            _ => panic!("{label}: {name:?} at {pc:#x}: {found:?}, {:?}", module.diagnostics()),
        }
    }
}

#[test]
fn heap_blocks_get_the_names_of_their_variables() {
    for (compiler, label, options) in variants() {
        let folder = folder(&format!("bfs-{compiler}-{label}"));
        let program = build(&folder, compiler, &options, "bfs");
        let module = Module::open(&program, &DebugSearch::nowhere()).expect("opens");
        assert!(module.has_debug_info());
        check_bfs(&module, &output(&program), &format!("{compiler} {label}"));
    }
}

/// Run by the emulator for one program.
#[test]
fn in_code_of_aarch64_they_get_the_same_names() {
    let (compiler, emulator) = ("aarch64-linux-gnu-gcc", "qemu-aarch64-static");
    if !support::have(compiler) || !support::have(emulator) {
        return;
    }
    for level in ["-O0", "-O1", "-O2", "-O3"] {
        let folder = folder(&format!("bfs-{compiler}{level}"));
        let program = build(&folder, compiler, &[level, "-gdwarf-5"], "bfs");
        let mut run = std::process::Command::new(emulator);
        // Where Debian's cross compilers have their libraries.
        let run = run.args(["-L", "/usr/aarch64-linux-gnu"]).arg(&program).output();
        let run = run.expect("cannot start the emulator");
        let module = Module::open(&program, &DebugSearch::nowhere()).expect("opens");
        assert_eq!(module.architecture(), Some(memlens_code::Architecture::AArch64));
        check_bfs(&module, &String::from_utf8_lossy(&run.stdout), level);
    }
}

/// System V ABI AMD64 1.0, section 3.1.2: a bit-field lies in one word of its type, as low as it can. `a` and `b` share
/// the first byte; `c` and `d` have whole ones; `e` does not fit behind them into 8 bytes. The flags have the bytes
/// before `n`; `x` and `y` share the second of their bytes.
#[test]
fn bit_fields_are_where_their_bits_are() {
    for compiler in ["gcc", "clang"] {
        if compiler != "gcc" && !support::have(compiler) {
            continue;
        }
        // Version 3 counts bits from the other end of a word.
        for version in ["-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
            let folder = folder(&format!("bits-{compiler}{version}"));
            let file = source("bits.c");
            let options = ["-O0", "-no-pie", version, "-gstrict-dwarf", file.to_str().unwrap_or("?")];
            tool(&folder, compiler, &[&options[..], &["-o", "bits"]].concat());
            let module = Module::open(&folder.join("bits"), &DebugSearch::nowhere()).expect("opens");
            let check = |variable: &str, wanted: &[(u64, u64, &str)]| {
                let symbol = module.data_symbols().iter().find(|symbol| symbol.name == variable);
                let info = symbol.and_then(|symbol| module.variable_info(symbol.svma)).expect("a variable");
                let Content::Structures(element) = module.content_of(info.type_ref.expect("a type")) else {
                    panic!("{variable}: structures")
                };
                let fields = module.fields(&element);
                let found: Vec<_> =
                    fields.iter().map(|it| (it.offset_bytes, it.size_bytes, it.name.as_str())).collect();
                assert_eq!(found, wanted, "{compiler} {version}");
                for field in &fields {
                    for offset in field.offset_bytes..field.offset_bytes + field.size_bytes {
                        let there = module.field_at(element.type_ref, offset);
                        assert_eq!(there.as_ref(), Some(field), "{compiler} {version}: {offset}");
                    }
                }
            };
            check("bits", &[(0, 1, "a|b"), (1, 1, "c"), (2, 2, "d"), (8, 5, "e"), (13, 3, "f")]);
            check("flags", &[(0, 1, "tag"), (1, 3, "f0|…|f4"), (4, 4, "n"), (8, 4, "x|y")]);
        }
    }
}

#[test]
fn globals_statics_and_thread_locals() {
    for (compiler, label, options) in variants() {
        let folder = folder(&format!("data-{compiler}-{label}"));
        let program = build(&folder, compiler, &options, "bfs");
        let module = Module::open(&program, &DebugSearch::nowhere()).expect("opens");
        let label = format!("{compiler} {label}");
        let find = |name: &str| {
            let all = module.data_symbols();
            all.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("{label}: no {name} in {all:#?}"))
        };
        let table = find("global_table");
        assert_eq!(
            (table.size, table.kind, table.section.as_str()),
            (8, DataKind::Global, ".bss"),
            "{label}"
        );
        // struct node: long + two pointers = 24 bytes; 16 of them.
        let nodes = find("nodes");
        assert_eq!((nodes.size, nodes.kind), (384, DataKind::Static), "{label}");
        assert_eq!((find("tls_count").size, find("tls_count").kind), (8, DataKind::Tls), "{label}");
        assert_eq!(find("bump::calls").kind, DataKind::Static, "{label}");
        let info = module.variable_info(nodes.svma + 2 * 24 + 8).expect("nodes[2].left has a variable");
        assert_eq!(info.name, "nodes", "{label}");
        assert_eq!(info.type_name.as_deref(), Some("struct node[16]"), "{label}");
        assert_eq!((info.decl_line, info.size), (Some(19), Some(384)), "{label}");
        let field = module.struct_field(info.type_ref.expect("a type"), 2 * 24 + 8).expect("a field");
        assert_eq!((field.path.as_str(), field.field_type.as_str()), ("[2].left", "struct node*"), "{label}");
        let Content::Structures(element) = module.content_of(info.type_ref.expect("a type")) else {
            panic!("{label}: an array of structures")
        };
        assert_eq!((element.type_name.as_str(), element.size_bytes), ("struct node", 24), "{label}");
        let fields: Vec<_> =
            module.fields(&element).into_iter().map(|it| (it.offset_bytes, it.size_bytes, it.name)).collect();
        let field = |offset, name: &str| (offset, 8, name.to_owned());
        assert_eq!(fields, [field(0, "key"), field(8, "left"), field(16, "right")], "{label}");
        // Each variable's structure: what is at each of its bytes is one of its fields.
        let mut structures = 0;
        for symbol in module.data_symbols().iter().filter(|symbol| symbol.kind != DataKind::Tls) {
            let held = module.variable_info(symbol.svma).and_then(|info| info.type_ref);
            let Some(Content::Structures(element)) = held.map(|held| module.content_of(held)) else {
                continue;
            };
            let fields = module.fields(&element);
            structures += 1;
            for offset in 0..element.size_bytes {
                let found = module.field_at(element.type_ref, offset);
                let covers =
                    |it: &&Field| (it.offset_bytes..it.offset_bytes + it.size_bytes).contains(&offset);
                match (&found, fields.iter().find(covers)) {
                    (Some(found), Some(field)) => assert_eq!(found.name, field.name, "{label}: {element:?}"),
                    // Of an array's structures the first stands for all.
                    (Some(found), None) => {
                        assert!(
                            fields.iter().any(|field| field.name == found.name),
                            "{label}: {found:?} of {element:?}"
                        );
                    }
                    (None, field) => assert_eq!(field, None, "{label}: {offset} of {element:?}"),
                }
            }
        }
        assert!(structures > 0, "{label}");
        assert_eq!(
            module.content_behind(info.type_ref.expect("a type")),
            Content::Bytes,
            "{label}: no pointer"
        );
        let function = module.function_at(module.entry_points(&["xmalloc"])[0].svma + 3).expect("xmalloc");
        assert_eq!(function.name.as_deref(), Some("xmalloc"));
        let frames = module.locate(function.start);
        assert_eq!(frames[0].function.as_deref(), Some("xmalloc"), "{label}");
        assert!(module.locate(u64::MAX).is_empty(), "{label}");
        assert!(matches!(frames[0].line, Some(23 | 24)), "{label}: {frames:?}");
        assert!(
            module
                .data_symbols()
                .windows(2)
                .all(|w| w[1].kind == DataKind::Tls || w[0].svma + w[0].size <= w[1].svma)
        );
    }
}

/// Each step of a prologue that probes pages has a rule of its own for the frame address.
#[test]
fn locals_of_large_frames_are_in_one_place() {
    for compiler in ["gcc", "clang"] {
        if compiler != "gcc" && !support::have(compiler) {
            continue;
        }
        for level in ["-O0", "-O2"] {
            let folder = folder(&format!("large-frame-{compiler}{level}"));
            let file = source("large_frame.c");
            let options = [level, "-g", "-fstack-clash-protection", file.to_str().unwrap_or("?")];
            tool(&folder, compiler, &[&options[..], &["-o", "large_frame"]].concat());
            let module = Module::open(&folder.join("large_frame"), &DebugSearch::nowhere()).expect("opens");
            let function = module.functions().into_iter().find(|f| f.name.as_deref() == Some("f"));
            let variables = module.function_variables(function.expect("f").start);
            for (name, size) in [("big", 20000), ("second", 2400)] {
                let found: Vec<_> = variables
                    .iter()
                    .filter(|v| &*v.name == name)
                    .map(|v| (v.size_bytes, v.cfa_offset + (v.size_bytes as i64) < 0))
                    .collect();
                assert_eq!(found, [(size, true)], "{compiler} {level}: {name} of {variables:#?}");
            }
        }
    }
}

#[test]
fn locals_are_where_the_running_program_says() {
    for (compiler, label, options) in variants() {
        let folder = folder(&format!("frames-{compiler}-{label}"));
        for extra in ["-fomit-frame-pointer", "-fno-omit-frame-pointer"] {
            let mut options = options.clone();
            options.push(extra);
            let program = build(&folder, compiler, &options, "frames");
            let module = Module::open(&program, &DebugSearch::nowhere()).expect("opens");
            let mut seen = 0;
            for line in output(&program).lines().filter(|l| !l.starts_with('#') && !l.starts_with("0x")) {
                let mut words = line.split(' ');
                let name = words.next().unwrap_or_default();
                let offset: i64 = words.next().unwrap_or_default().parse().expect("an offset");
                let pc = hexadecimal(words.next().unwrap_or_default()) - 1;
                let variables = module.frame_variables(pc);
                let found = variables.iter().find(|v| &*v.name == name && v.cfa_offset == offset);
                // gcc 12 at -O2 describes the spilled parameter only up to the second call, and
                // there relative to rdx: nothing in the DWARF says where it is at this pc.
                if found.is_none() && name == "count" && label.starts_with("O2") {
                    continue;
                }
                let found = found.unwrap_or_else(|| {
                    panic!("{compiler} {label} {extra}: no {name} at CFA{offset:+}, {pc:#x}: {variables:#?}")
                });
                // int[4], struct pair[3] of 16 bytes, char[40], long, long[2], struct pair
                let (size, type_name) = match name {
                    "inner" => (16, "int[4]"),
                    "pairs" => (48, "struct pair[3]"),
                    "text" => (40, "char[40]"),
                    "count" => (8, "long int"),
                    "shadow" => (16, "long int[2]"),
                    _ => (16, "struct pair"),
                };
                assert_eq!(found.size_bytes, size, "{compiler} {label}: {name}");
                let spelled = found.type_name.as_deref().unwrap_or_default();
                let spelled = if spelled.starts_with("long") && !spelled.contains("int") {
                    spelled.replacen("long", "long int", 1)
                } else {
                    spelled.to_owned()
                };
                assert_eq!(spelled, type_name, "{compiler} {label}: {name}");
                assert_eq!(found.is_parameter, name == "count");
                assert_eq!(found.inlined_from.as_deref(), (name == "inner").then_some("inlined"));
                assert!(module.cfa_rule(pc).is_some());
                seen += 1;
            }
            assert!(seen == 6 || (seen == 5 && label.starts_with("O2")), "{compiler} {label}: {seen}");
        }
    }
}

#[test]
fn stripped_programs_find_their_debug_files() {
    let folder = folder("debuglink");
    let program = build(&folder, "gcc", &["-O2", "-g"], "bfs");
    tool(&folder, "objcopy", &["--only-keep-debug", "bfs", "bfs.debug"]);
    tool(&folder, "strip", &["bfs"]);
    // A copy: the module reads its file when it is asked, and the program is changed below.
    let copy = folder.join("bare");
    std::fs::copy(&program, &copy).expect("copies");
    let bare = Module::open(&copy, &DebugSearch::nowhere()).expect("opens");
    assert!(!bare.has_debug_info());
    assert!(bare.entry_points(&["xmalloc"]).is_empty());
    // Unwind information still knows where functions begin and end.
    tool(&folder, "objcopy", &["--add-gnu-debuglink=bfs.debug", "bfs"]);
    let linked = Module::open(&program, &DebugSearch::nowhere()).expect("opens");
    assert!(linked.has_debug_info(), "{:?}", linked.diagnostics());
    check_bfs(&linked, &output(&program), "debuglink");
    let svma = linked.entry_points(&["xmalloc"])[0].svma;
    let nameless = bare.function_at(svma).expect("an FDE");
    assert_eq!((nameless.start, nameless.name), (svma, None));
    // The build-id folder.
    let id: String = linked.build_id().unwrap_or_default().iter().map(|b| format!("{b:02x}")).collect();
    if id.len() > 2 {
        let dir = folder.join("debug/.build-id").join(&id[..2]);
        std::fs::create_dir_all(&dir).expect("a folder");
        std::fs::rename(folder.join("bfs.debug"), dir.join(format!("{}.debug", &id[2..]))).expect("renamed");
        let search = DebugSearch { debug_dirs: vec![folder.join("debug")], ..DebugSearch::nowhere() };
        let by_id = Module::open(&program, &search).expect("opens");
        check_bfs(&by_id, &output(&program), "build-id");
        // What debuginfod-find has fetched; an empty file says that there is none.
        let cache = folder.join("cache");
        let fetched = cache.join(&id).join("debuginfo");
        std::fs::create_dir_all(cache.join(&id)).expect("a folder");
        std::fs::write(&fetched, b"").expect("written");
        let search = DebugSearch { debuginfod_cache: Some(cache), ..DebugSearch::nowhere() };
        let none = Module::open(&program, &search).expect("opens");
        assert!(!none.has_debug_info());
        std::fs::rename(dir.join(format!("{}.debug", &id[2..])), &fetched).expect("renamed");
        check_bfs(&Module::open(&program, &search).expect("opens"), &output(&program), "debuginfod");
    }
    // A debug file of another build is refused.
    let search = DebugSearch::nowhere();
    std::fs::write(
        folder.join("bfs.debug"),
        std::fs::read(std::env::current_exe().expect("me")).expect("read"),
    )
    .expect("written");
    let refused = Module::open(&program, &search).expect("opens");
    assert!(!refused.has_debug_info());
    assert!(!refused.diagnostics().is_empty());
}

#[test]
fn split_units_are_read_from_a_package() {
    for (tool_name, version) in [("dwp", "-gdwarf-4"), ("llvm-dwp", "-gdwarf-5")] {
        if !support::have(tool_name) {
            continue;
        }
        let folder = folder(&format!("package{version}"));
        let program = build(&folder, "gcc", &["-O2", version, "-gsplit-dwarf"], "bfs");
        tool(&folder, tool_name, &["-e", "bfs", "-o", "bfs.dwp"]);
        std::fs::remove_file(folder.join("bfs.dwo")).expect("the split file is there");
        let module = Module::open(&program, &DebugSearch::nowhere()).expect("opens");
        check_bfs(&module, &output(&program), tool_name);
        // Without either the module answers from its symbols and says what is missing.
        std::fs::remove_file(folder.join("bfs.dwp")).expect("the package is there");
        let module = Module::open(&program, &DebugSearch::nowhere()).expect("opens");
        let svma = module.entry_points(&["xmalloc"])[0].svma;
        assert!(module.frame_variables(svma).is_empty());
        assert_eq!(module.locate(svma)[0].function.as_deref(), Some("xmalloc"));
        assert!(!module.diagnostics().is_empty());
    }
}

#[test]
fn mini_debug_information_names_local_functions() {
    if !support::have("xz") {
        return;
    }
    // The steps of GDB's manual, "Debugging information in a special section".
    let folder = folder("mini");
    let program = build(&folder, "gcc", &["-O2"], "bfs");
    let symbols = Module::open(&program, &DebugSearch::nowhere()).expect("opens");
    let svma = symbols.entry_points(&["xmalloc"])[0].svma;
    tool(&folder, "objcopy", &["-S", "--remove-section=.comment", "--keep-symbol=xmalloc", "bfs", "mini"]);
    tool(&folder, "xz", &["mini"]);
    // Each step makes another file: a module has its own mapped.
    tool(&folder, "strip", &["-o", "bare", "bfs"]);
    let bare = Module::open(&folder.join("bare"), &DebugSearch::nowhere()).expect("opens");
    assert_eq!(bare.function_at(svma).and_then(|f| f.name), None);
    tool(&folder, "objcopy", &["--add-section", ".gnu_debugdata=mini.xz", "bare", "with-mini"]);
    let module = Module::open(&folder.join("with-mini"), &DebugSearch::nowhere()).expect("opens");
    assert_eq!(module.diagnostics(), []);
    assert_eq!(module.entry_points(&["xmalloc"])[0].svma, svma);
    assert_eq!(module.function_at(svma + 1).and_then(|f| f.name).as_deref(), Some("xmalloc"));
}

#[test]
fn members_elements_and_inlined_wrappers() {
    for (compiler, label, options) in variants() {
        let folder = folder(&format!("wrappers-{compiler}-{label}"));
        let program = build(&folder, compiler, &options, "wrappers");
        let module = Module::open(&program, &DebugSearch::nowhere()).expect("opens");
        let names: Vec<String> = output(&program)
            .lines()
            .map(|line| match module.assignment(hexadecimal(line)) {
                Assignment::Variable(variable) => variable.name,
                other => format!("{other:?}"),
            })
            .take(11)
            .collect();
        // The wrapper is inlined at -O0 too; its `p` must not win over `weights`.
        let wanted = [
            "weights",
            "scratch",
            "fixed_shape.labels",
            "shared_shape->center.y",
            "local.center.x",
            "*out",
            "lines",
            "lines[i]",
            "lines[i]",
            // Optimised, each is in a register.
            "apart.x",
            "apart.y",
        ];
        assert_eq!(names, wanted, "{compiler} {label}");
    }
}

#[test]
fn supplementary_files_of_dwz_are_read() {
    if !support::have("dwz") {
        return;
    }
    let folder = folder("dwz");
    let bfs = build(&folder, "gcc", &["-O2", "-gdwarf-4"], "bfs");
    build(&folder, "gcc", &["-O2", "-gdwarf-4"], "wrappers");
    std::fs::copy(folder.join("bfs"), folder.join("bfs2")).expect("copied");
    // What both have in common moves to common.debug.
    tool(&folder, "dwz", &["-m", "common.debug", "bfs", "bfs2", "wrappers"]);
    if !folder.join("common.debug").is_file() {
        eprintln!("skipped: dwz found nothing to share");
        return;
    }
    let module = Module::open(&bfs, &DebugSearch::nowhere()).expect("opens");
    check_bfs(&module, &output(&bfs), "dwz");
    assert_eq!(module.diagnostics(), []);
    std::fs::remove_file(folder.join("common.debug")).expect("removed");
    let partial = Module::open(&bfs, &DebugSearch::nowhere()).expect("opens");
    let _ = partial.data_symbols();
    assert!(!partial.diagnostics().is_empty());
}
