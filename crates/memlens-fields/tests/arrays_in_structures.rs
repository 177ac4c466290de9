//! Structures with an array of structures in them, as hash tables' buckets are: all of its elements are fields.

use std::path::Path;
use std::process::Command;

use memlens_fields::{Layouts, Seen, TypeOf, add_fields};
use memlens_profile::{CodeIx, CodeLocation, FieldUse, Object, ObjectIx, Profile};
use memlens_symbols::{DebugSearch, Module};
use memlens_types::ObjectKind;

const SOURCE: &str = "
struct tuple { unsigned key, a; char mark[8]; };
struct bucket { unsigned n; struct tuple t[3]; struct bucket *next; };
struct bucket *buckets;
struct node { long key, seq; char value[40]; int height; struct node *next[1]; };
struct node *nodes;
int main(void) { return buckets != 0; }
";

/// A module with the variable `buckets`, for a test of this name.
fn module(test: &str) -> Module {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join(format!("{test}.c")), folder.join(test));
    std::fs::write(&source, SOURCE).expect("written");
    let compiled = Command::new("cc").args(["-g", "-o"]).arg(&program).arg(&source).status();
    assert!(compiled.expect("there is a C compiler").success());
    Module::open(&program, &DebugSearch::default()).expect("an ELF module")
}

/// The names of the fields in which operands of 4 bytes were seen at these offsets of a block of 100 buckets, each as
/// often as the others; in the order of the offsets.
fn names(test: &str, offsets: &[u64]) -> Vec<Option<String>> {
    let seen: Vec<_> = offsets.iter().enumerate().map(|(at, &offset)| (at, offset, 1)).collect();
    names_in(test, "buckets", (1, 6400), 4, &seen)
}

/// The same in so many blocks of so many bytes in all, which a variable points to: by operand, offset and how often.
fn names_in(
    test: &str,
    variable: &str,
    (blocks, bytes): (u64, u64),
    size_bytes: u32,
    seen_of: &[(usize, u64, u64)],
) -> Vec<Option<String>> {
    let module = module(test);
    let variable = module.data_symbols().iter().find(|symbol| symbol.name == variable).expect("there");
    let type_ref = module.variable_info(variable.svma).and_then(|info| info.type_ref).expect("typed");
    let heap = Object { kind: ObjectKind::Heap, blocks, bytes: Some(bytes), ..Object::default() };
    let code = |_| CodeLocation { size_bytes, ..CodeLocation::default() };
    let mut profile =
        Profile { objects: vec![heap], code: seen_of.iter().map(code).collect(), ..Profile::default() };
    let seen = |&(operand, offset_bytes, times)| Seen {
        code: CodeIx::from_index(operand),
        object: ObjectIx(0),
        offset_bytes,
        times,
        is_run: false,
    };
    let seen: Vec<Seen> = seen_of.iter().map(seen).collect();
    let held = TypeOf::Known { number: 1, module: &module, type_ref, is_behind: true };
    add_fields(&mut profile, &seen, &mut Layouts::default(), &|_| held);
    let name = |one: &FieldUse| profile.fields[one.field.index()].name.as_deref().map(str::to_owned);
    profile.field_uses.iter().map(name).collect()
}

#[test]
fn all_elements_of_an_array_are_the_field_of_the_first() {
    // Most accesses go to other elements than the first. t[i] is at 4 + 16 i.
    let of = |names: &[&str]| names.iter().map(|name| Some((*name).to_owned())).collect::<Vec<_>>();
    assert_eq!(
        names("elements", &[64, 68 + 16, 128 + 36, 64 + 20, 24, 192 + 40]),
        of(&["n", "t[].key", "t[].key", "t[].key", "t[].a", "t[].a"])
    );
}

#[test]
fn what_is_askew_in_an_element_is_in_no_field() {
    // Two bytes into `key` of t[1] and t[2], and over the end of `mark` of t[0]: not what the block consists of.
    let all = names("askew", &[64 + 22, 64 + 38, 128 + 22, 192 + 18, 0]);
    assert!(all.iter().all(|name| name.as_deref() != Some("t[].key")), "{all:?}");
}

#[test]
fn what_goes_on_behind_a_structure_is_no_array_by_chance() {
    // Nodes with links behind their end, one of them for most, more for some: the sum of all sizes is by chance one of whole structures, or
    // of such behind 8 bytes each.
    let links = [(0, 64, 300), (0, 72, 80), (0, 80, 60), (0, 88, 20)];
    let all: Vec<_> = links.into_iter().chain([(1, 0, 480), (2, 8, 5), (3, 0, 5)]).collect();
    for more_links in [107, 108, 109, 110] {
        let test = format!("behind{more_links}");
        let names = names_in(&test, "nodes", (100, 100 * 72 + 8 * more_links), 8, &all);
        assert_eq!(
            names.iter().flatten().collect::<Vec<_>>(),
            ["next[]", "key", "seq", "key"],
            "{more_links}"
        );
    }
}
