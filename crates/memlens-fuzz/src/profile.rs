//! Stored profiles.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use memlens_profile::{
    Cell, CodeIx, CodeLocation, Existing, Frame, FrameIx, Module, ModuleIx, Object, ObjectIx, Profile,
    ProfileWriter, Stack, StackIx, Thread,
};
use memlens_types::{Counts, ObjectKind};
use tempfile::TempDir;

const MANIFEST: &str = "profile.json";

/// A small profile with a row in most tables.
fn sample() -> Profile {
    let counts = Counts { loads: 3, load_bytes: 12, ..Counts::default() };
    let mut profile = Profile::default();
    profile.modules.push(Module { path: "/bin/bfs".into(), ..Module::default() });
    let function = Some("main".into());
    profile.frames.push(Frame { module: Some(ModuleIx(0)), offset: 0x1180, function, ..Frame::default() });
    profile.stacks.push(Stack(vec![FrameIx(0)]));
    let site = Some(StackIx(0));
    let name = "column".to_owned();
    profile.objects.push(Object { id: 1, kind: ObjectKind::Heap, name, site, counts, ..Object::default() });
    profile.code.push(CodeLocation { id: 1, stack: site, counts: counts.into(), ..CodeLocation::default() });
    profile.threads.push(Thread::default());
    profile.cells.push(Cell {
        code: CodeIx(0),
        object: ObjectIx(0),
        counts: counts.into(),
        ..Cell::default()
    });
    profile.sum_cells();
    profile
}

/// The sample as stored: its files' names and contents, `profile.json` first.
fn stored() -> &'static [(String, Vec<u8>)] {
    static FILES: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let folder = TempDir::new().expect("a temporary folder");
        let path = folder.path().join("p");
        let mut writer = ProfileWriter::create(&path, Existing::Refuse).expect("a new profile");
        writer.flush(&sample(), true).expect("a written profile");
        let mut files: Vec<_> = fs::read_dir(&path)
            .expect("the profile's folder")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .map(|name| (name.clone(), fs::read(path.join(name)).expect("a file of the profile")))
            .collect();
        files.sort_by_key(|(name, _)| (name != MANIFEST, name.clone()));
        files
    })
}

/// Which file (the first byte; its highest bit: forge the checksum), then the file's content.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let seed = |forged: u8| {
        move |(index, (_, content)): (usize, &(String, Vec<u8>))| {
            let mut bytes = vec![index as u8 | forged];
            bytes.extend(content);
            bytes
        }
    };
    let files = || stored().iter().enumerate();
    files().map(seed(0)).chain(files().map(seed(0x80))).collect()
}

pub(crate) fn check(bytes: &[u8]) {
    let Some((&selector, content)) = bytes.split_first() else { return };
    let files = stored();
    let index = usize::from(selector & 0x7f) % files.len();
    let forge = selector & 0x80 != 0;
    let folder = TempDir::new().expect("a temporary folder");
    let put = |name: &str, content: &[u8]| {
        fs::write(folder.path().join(name), content).expect("space for a small file");
    };
    for (name, content) in files {
        put(name, content);
    }
    let (name, original) = &files[index];
    put(name, content);
    if forge && index != 0 {
        put(MANIFEST, &forged_manifest(&files[0].1, name, content));
    }
    let Ok(profile) = Profile::open(folder.path()) else {
        assert_ne!(content, original, "what was written can be read");
        return;
    };
    // Sums are the writer's affair; indices and counts that cannot be are not.
    profile.validate_references().expect("what opens refers to what is there");
    profile.validate_counts().expect("what opens has possible counts");
    if index != 0 && !forge {
        assert_eq!(content, original, "damage is noticed");
    }
    write_again(folder.path(), &profile);
}

/// The manifest with the size and checksum of a changed file.
fn forged_manifest(manifest: &[u8], name: &str, content: &[u8]) -> Vec<u8> {
    let mut document: serde_json::Value = serde_json::from_slice(manifest).expect("our own manifest");
    let tables = document["tables"].as_object_mut().expect("its tables");
    for table in tables.values_mut().filter(|table| table["file"] == name) {
        table["bytes"] = content.len().into();
        table["crc32"] = crc32fast::hash(content).into();
    }
    document.to_string().into_bytes()
}

/// What was read can be written, and then reads the same.
fn write_again(folder: &Path, profile: &Profile) {
    let path = folder.join("again");
    let mut writer = ProfileWriter::create(&path, Existing::Refuse).expect("a new profile");
    writer.flush(profile, !profile.attribution.truncated).expect("a written profile");
    let again = Profile::open(&path).expect("what was written can be read");
    assert_eq!(&again, profile);
}
