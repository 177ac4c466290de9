//! Damaged files must give partial answers, never a panic.

mod support;

use memlens_symbols::{Content, DebugSearch, Module, block_type};
use object::{Object, ObjectSection};
use proptest::prelude::*;
use support::{folder, source, tool};

fn program(name: &str, options: &[&str]) -> Vec<u8> {
    let folder = folder(name);
    let c = source("frames.c");
    let mut arguments = options.to_vec();
    arguments.extend([c.to_str().unwrap_or("?"), "-o", "frames"]);
    tool(&folder, "gcc", &arguments);
    std::fs::read(folder.join("frames")).expect("read")
}

/// Asks every kind of question.
fn ask(bytes: Vec<u8>) {
    let Ok(module) = Module::from_bytes("damaged", bytes, &DebugSearch::nowhere()) else { return };
    let _ = module.entry_points(&["main", "work"]);
    let data = module.data_symbols();
    assert!(data.iter().all(|symbol| symbol.size > 0 && symbol.svma.checked_add(symbol.size).is_some()));
    for symbol in data.iter().take(50) {
        let _ = module.variable_info(symbol.svma);
    }
    let _ = module.data_sections();
    let _ = (module.build_id(), module.has_debug_info(), module.tls_segment());
    let texts: Vec<(u64, u64)> =
        module.sections().iter().filter(|s| !s.is_data()).map(|s| (s.start, s.end)).collect();
    for (start, end) in texts {
        for pc in (start..end).step_by(97).take(40) {
            let _ = module.function_at(pc);
            let _ = module.locate(pc);
            let _ = module.cfa_rule(pc);
            let _ = module.assignment(pc);
            for variable in module.frame_variables(pc).iter() {
                if let Some(type_ref) = variable.type_ref {
                    let _ = module.struct_field(type_ref, 9);
                    let _ = block_type([(0, &module, pc)], Some((0, &module, type_ref)));
                    for content in [module.content_of(type_ref), module.content_behind(type_ref)] {
                        if let Content::Structures(element) = content {
                            let _ = (module.fields(&element), module.field_at(element.type_ref, 9));
                        }
                    }
                }
            }
        }
    }
    let _ = module.diagnostics();
}

#[test]
fn truncation_at_every_kilobyte() {
    for options in [&["-O0", "-gdwarf-5"][..], &["-O2", "-gdwarf-4", "-gz"]] {
        let bytes = program("truncated", options);
        for length in (0..bytes.len()).step_by(1024) {
            ask(bytes[..length].to_vec());
        }
        // The section headers stay, what they point to is zeroed from some place on.
        let tail = bytes.len() - 64 * 40;
        for from in (64..tail).step_by(1024) {
            let mut damaged = bytes.clone();
            damaged[from..(from + 1024).min(tail)].fill(0);
            ask(damaged);
        }
    }
}

#[test]
fn variables_without_end() {
    let mut bytes = program("endless", &["-O0", "-gdwarf-5"]);
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let (start, length) = file.section_by_name(".symtab").and_then(|s| s.file_range()).expect("symbols");
    // `Elf64_Sym` (System V gABI, "Symbol Table"): 24 bytes, the type in the low half of the fifth, the size at 16.
    const OBJECT: u8 = 1;
    let symbols = bytes[start as usize..(start + length) as usize].as_chunks_mut::<24>().0;
    let variables: Vec<_> = symbols.iter_mut().filter(|symbol| symbol[4] & 15 == OBJECT).collect();
    assert!(!variables.is_empty());
    for variable in variables {
        variable[16..].fill(0xff);
    }
    ask(bytes);
}

#[test]
fn flipped_bits() {
    let bytes = program("flipped", &["-O2", "-gdwarf-5"]);
    let length = bytes.len();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&proptest::collection::vec((0..length, 0u8..=255), 1..40), |flips| {
            let mut damaged = bytes.clone();
            for (at, value) in flips {
                damaged[at] ^= value;
            }
            ask(damaged);
            Ok(())
        })
        .expect("no damage panics");
}
