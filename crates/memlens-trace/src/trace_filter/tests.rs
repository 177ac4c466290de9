//! Filters by hand.

use memlens_types::AccessKind;

use super::*;

fn filter(conditions: &[&str]) -> TraceFilter {
    let mut filter = TraceFilter::default();
    for condition in conditions {
        filter.add(condition).unwrap();
    }
    filter
}

fn object(kind: ObjectKind, name: &str) -> ObjectInfo {
    ObjectInfo { id: 1, kind, name: name.into(), declared: None, site: 0 }
}

fn row(addr: u64, size: u32, thread: u32) -> TraceRow {
    let kind = AccessKind::Load;
    TraceRow { kind, addr, size, instructions: 0, thread, code: 0, object: 0, offset: 0, block: 0 }
}

#[test]
fn objects_fit_by_kind_or_name() {
    let only = filter(&["object=heap", "object=vis*"]);
    assert!(only.admits_object(&object(ObjectKind::Heap, "column")));
    assert!(only.admits_object(&object(ObjectKind::Global, "visited")));
    assert!(!only.admits_object(&object(ObjectKind::Global, "pred")));
    // A backslash makes the kind's word a name.
    let only = filter(&["object=\\heap"]);
    assert!(only.admits_object(&object(ObjectKind::Global, "heap")));
    assert!(!only.admits_object(&object(ObjectKind::Heap, "column")));
}

#[test]
fn ranges_fit_by_any_byte_touched() {
    let only = filter(&["range=0x1000-0x1010", "range=64+8"]);
    assert_eq!(only.ranges(), [0x1000..0x1010, 64..72]);
    // 8 bytes at 0xff8 end at 0xfff; at 0xff9 the last is 0x1000.
    for (addr, size, fits) in [
        (0xff8, 8, false),
        (0xff9, 8, true),
        (0x100f, 1, true),
        (0x1010, 8, false),
        (64, 0, true),
        (72, 0, false),
        (u64::MAX, 8, false),
    ] {
        assert_eq!(only.admits_place(&row(addr, size, 1)), fits, "{addr:#x}, {size}");
    }
}

#[test]
fn sorts_must_all_hold() {
    let only = filter(&["thread=2", "thread=3", "range=0-100"]);
    assert!(only.admits_place(&row(0, 1, 3)));
    assert!(!only.admits_place(&row(0, 1, 1)));
    assert!(!only.admits_place(&row(100, 1, 2)));
    let only = filter(&["function=next_*"]);
    let code = |function: &str| CodeInfo { function: function.into(), ..CodeInfo::default() };
    assert!(only.admits_code(&code("next_random")));
    assert!(!only.admits_code(&code("main")));
}

#[test]
fn errors_name_the_place() {
    for (condition, offset, length, nearest) in [
        ("", 0, 0, None),
        ("objects=x", 0, 7, Some("object")),
        ("thread", 6, 0, None),
        ("thread=", 7, 0, None),
        ("thread=4294967296", 7, 10, None),
        ("thread=-1", 7, 2, None),
        ("limit=+5", 6, 2, None),
        ("object=", 7, 0, None),
        ("function=a\\", 10, 1, None),
        ("range=5", 6, 1, None),
        ("range=5-5", 8, 1, None),
        ("range=0x-5", 6, 2, None),
        ("range=1+18446744073709551615", 8, 20, None),
        ("range=1+18446744073709551616", 8, 20, None),
    ] {
        let mut filter = TraceFilter::default();
        let error = filter.add(condition).unwrap_err();
        assert_eq!((error.offset, error.length, error.nearest), (offset, length, nearest), "{condition}");
        assert_eq!(filter, TraceFilter::default(), "{condition}");
    }
}
