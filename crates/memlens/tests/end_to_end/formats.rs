//! `docs/formats.md` has every field that memlens writes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::{small_profile, succeeding, write_small_profile};
use serde_json::Value;

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    fs::read_to_string(path).expect("docs/formats.md")
}

fn keys_of(value: &Value, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                keys.insert(key.clone());
                keys_of(value, keys);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| keys_of(element, keys)),
        _ => {}
    }
}

#[test]
fn every_key_of_the_json_report_is_documented() {
    assert!(!small_profile().objects.is_empty());
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_small_profile(&folder.path().join("p"));
    let text = succeeding(folder.path(), &["report", "p", "--format", "json"]);
    let mut keys = BTreeSet::new();
    keys_of(&serde_json::from_str(&text).expect("valid JSON"), &mut keys);
    let document = document();
    let (_, chapter) = document.split_once("## Report as JSON").expect("the chapter");
    for key in keys {
        assert!(chapter.contains(&format!("`{key}`")), "docs/formats.md lacks the key {key}");
    }
}
