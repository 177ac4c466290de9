//! ELF files and their debug information.

use std::fs;
use std::process::Command;

use memlens_static::StaticModule;
use memlens_symbols::{Content, DebugSearch, Module, block_type};
use tempfile::TempDir;

/// A program with the shapes that debug information has most ways to say.
const PROGRAM: &str = "
struct point { int x, y[3]; struct point *next; };
static struct point table[4];
__thread int counter = 3;
const char *name = \"fuzz\";
static inline int inner(struct point *p) { int sum = 0; for (int i = 0; i < 3; i++) sum += p->y[i]; return sum; }
int outer(int n) { volatile struct point local = {n, {1, 2, 3}, 0}; counter += local.x; return inner(&table[n & 3]); }
int _start(void) { return outer(1); }
";

/// The program compiled in a few ways, where there is a C compiler; else only an ELF header.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec()];
    let Ok(folder) = TempDir::new() else { return seeds };
    let (source, output) = (folder.path().join("p.c"), folder.path().join("p"));
    if fs::write(&source, PROGRAM).is_err() {
        return seeds;
    }
    for options in [["-gdwarf-4", "-O0"], ["-gdwarf-5", "-O2"], ["-g0", "-O1"]] {
        let compiled = Command::new("cc")
            .args(options)
            .args(["-nostdlib", "-static", "-o"])
            .args([&output, &source])
            .output()
            .is_ok_and(|compiled| compiled.status.success());
        if compiled && let Ok(bytes) = fs::read(&output) {
            seeds.push(bytes);
        }
    }
    seeds
}

/// Addresses asked for in one module.
const QUESTIONS: usize = 24;

pub(crate) fn check(bytes: &[u8]) {
    let Ok(module) = Module::from_bytes("fuzz", bytes.to_vec(), &DebugSearch::nowhere()) else { return };
    let sections = module.sections().to_vec();
    let mut questions = vec![0, u64::MAX - 1, u64::MAX];
    for section in sections.iter().take(QUESTIONS / 3) {
        let middle = section.start + section.end.saturating_sub(section.start) / 2;
        questions.extend([section.start, middle, section.end.saturating_sub(1)]);
    }
    for entry in module.entry_points(&["_start", "outer"]) {
        assert!(entry.index < 2);
        questions.push(entry.svma);
    }
    for &svma in &questions {
        ask(&module, svma);
    }
    let symbols = module.data_symbols();
    for symbol in symbols.iter().take(QUESTIONS) {
        assert!(symbol.size >= 1 && symbol.svma.checked_add(symbol.size).is_some());
        let _ = (module.variable_info(symbol.svma), module.tls_variable_info(symbol.svma));
    }
    let _ = (module.tls_segment(), module.build_id(), module.has_debug_info(), module.diagnostics());
    // Operands that are given variables are instructions of the functions that they are in.
    let analysed = StaticModule::analyse_around(&module, &questions.into_iter().collect());
    for (start, flow, operands) in analysed.functions() {
        assert!(module.function_at(start).is_some(), "no function begins at {start:#x}");
        for operand in operands {
            assert!(flow.instruction_at(operand.pc).is_some() && (operand.reads || operand.writes));
        }
    }
}

fn ask(module: &Module, svma: u64) {
    if let Some(function) = module.function_at(svma) {
        assert!(function.start <= svma && svma < function.end, "{function:?} does not hold {svma:#x}");
    }
    let _ = module.locate(svma);
    for variable in module.frame_variables(svma).iter() {
        assert!(variable.pc_ranges.iter().any(|range| range.contains(&svma)), "{variable:?} at {svma:#x}");
        if let Some(type_ref) = variable.type_ref {
            let _ = (module.type_name(type_ref), module.struct_field(type_ref, 4), module.pointee(type_ref));
            let _ = block_type([(0, module, svma)], Some((0, module, type_ref)));
            for content in [module.content_of(type_ref), module.content_behind(type_ref)] {
                if let Content::Structures(element) = content {
                    assert!(element.size_bytes > 0);
                    let _ = (module.fields(&element), module.field_at(element.type_ref, 4));
                }
            }
        }
    }
    assert!(module.function_variables(svma).len() >= module.frame_variables(svma).len());
    let _ = module.cfa_rule(svma);
    if let Some(code) = module.code(svma, svma.saturating_add(16)) {
        assert!(code.len() <= 16);
    }
}
