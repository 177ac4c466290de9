//! Where debug information lives when it is not in the module itself.
//!
//! Sources: GDB manual, "Debugging Information in Separate Files" (build-id and debug link search
//! order); DWARF 5, section 7.3.6 (supplementary files); the dwz manual (`.gnu_debugaltlink`); elfutils,
//! debuginfod_find_debuginfo(3) (its cache).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection};

use crate::error::Diagnostic;
use crate::image::Image;

/// Where to look for separate debug files and sources.
#[derive(Clone, Debug)]
pub struct DebugSearch {
    /// Global debug directories; default `/usr/lib/debug`.
    pub debug_dirs: Vec<PathBuf>,
    /// Where `debuginfod-find` and debuggers keep what they have fetched. Nothing is fetched by us.
    pub debuginfod_cache: Option<PathBuf>,
    /// Further directories in which a `.dwo`, `.dwp` or debug file may lie by its bare file name.
    pub extra_dirs: Vec<PathBuf>,
    /// Pairs (from, to) of path prefixes: source files and `.dwo` files recorded under `from` are
    /// opened under `to`, as gdb's `set substitute-path`.
    pub path_substitutions: Vec<(PathBuf, PathBuf)>,
}

impl Default for DebugSearch {
    fn default() -> Self {
        Self {
            debug_dirs: vec![PathBuf::from("/usr/lib/debug")],
            debuginfod_cache: debuginfod_cache(|name| std::env::var_os(name)),
            extra_dirs: Vec::new(),
            path_substitutions: Vec::new(),
        }
    }
}

impl DebugSearch {
    /// A search that looks nowhere but in the module itself.
    pub fn nowhere() -> Self {
        Self {
            debug_dirs: Vec::new(),
            debuginfod_cache: None,
            extra_dirs: Vec::new(),
            path_substitutions: Vec::new(),
        }
    }

    /// `path` after [`Self::path_substitutions`].
    pub(crate) fn substituted(&self, path: &Path) -> PathBuf {
        for (from, to) in &self.path_substitutions {
            if let Ok(rest) = path.strip_prefix(from) {
                return to.join(rest);
            }
        }
        path.to_path_buf()
    }

    /// Finds the separate debug file of `module`, by build-id first, then by debug link.
    pub(crate) fn separate_file(
        &self,
        module: &object::File<'_>,
        path: Option<&Path>,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Option<(PathBuf, Image)> {
        let build_id = module.build_id().ok().flatten();
        if let Some(id) = build_id {
            for candidate in self.of_build_id(id) {
                if let Some(image) = accept(&candidate, Some(id), None, diagnostics) {
                    return Some((candidate, image));
                }
            }
        }
        let (name, crc) = module.gnu_debuglink().ok().flatten()?;
        let name = Path::new(OsStr::from_bytes(name));
        let folder = path.and_then(Path::parent).map(Path::to_path_buf).unwrap_or_default();
        let canonical = path.and_then(|p| p.canonicalize().ok());
        let mut candidates = vec![folder.join(name), folder.join(".debug").join(name)];
        if let Some(real) = canonical.as_deref().and_then(Path::parent) {
            candidates.push(real.join(name));
            candidates.push(real.join(".debug").join(name));
            for dir in &self.debug_dirs {
                candidates.push(dir.join(real.strip_prefix("/").unwrap_or(real)).join(name));
            }
        }
        candidates.extend(self.extra_dirs.iter().map(|dir| dir.join(name)));
        for candidate in candidates {
            if canonical.is_some() && candidate.canonicalize().ok() == canonical {
                continue;
            }
            if let Some(image) = accept(&candidate, build_id, Some(crc), diagnostics) {
                return Some((candidate, image));
            }
        }
        diagnostics.push(Diagnostic::DebugFileMissing(name.display().to_string()));
        None
    }

    /// Finds the supplementary file (dwz) that `debug`, read from `path`, refers to.
    pub(crate) fn supplementary_file(
        &self,
        debug: &object::File<'_>,
        path: Option<&Path>,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Option<(PathBuf, Image)> {
        let (name, id) = debug.gnu_debugaltlink().ok().flatten()?;
        let name = Path::new(OsStr::from_bytes(name));
        let mut candidates = Vec::new();
        if name.is_absolute() {
            candidates.push(name.to_path_buf());
        }
        if let Some(folder) = path.and_then(|p| p.canonicalize().ok()).as_deref().and_then(Path::parent) {
            candidates.push(folder.join(name));
        }
        candidates.extend(self.of_build_id(id));
        if let Some(file) = name.file_name() {
            candidates.extend(self.debug_dirs.iter().map(|dir| dir.join(".dwz").join(file)));
        }
        for candidate in candidates {
            if let Some(image) = accept(&candidate, Some(id), None, diagnostics) {
                return Some((candidate, image));
            }
        }
        diagnostics.push(Diagnostic::DebugFileMissing(name.display().to_string()));
        None
    }

    /// The places where the debug file with this build-id may lie.
    fn of_build_id(&self, id: &[u8]) -> impl Iterator<Item = PathBuf> {
        let installed = self.debug_dirs.iter().filter_map(|dir| build_id_path(dir, id));
        let fetched = self.debuginfod_cache.iter().map(|dir| dir.join(hexadecimal(id)).join("debuginfo"));
        // An empty file says that no server had it.
        let is_there = |path: &PathBuf| path.metadata().is_ok_and(|known| known.len() > 0);
        installed.chain(fetched.filter(is_there))
    }

    /// The places where the split DWARF file `name` (with compilation directory `comp_dir`) of
    /// `module` may lie.
    pub(crate) fn dwo_candidates(
        &self,
        name: &Path,
        comp_dir: Option<&Path>,
        module: Option<&Path>,
    ) -> Vec<PathBuf> {
        let recorded = match comp_dir {
            Some(dir) => dir.join(name),
            None => name.to_path_buf(),
        };
        let mut candidates = vec![self.substituted(&recorded)];
        if let Some(folder) = module.and_then(Path::parent) {
            candidates.push(folder.join(name));
            if let Some(file) = name.file_name() {
                candidates.push(folder.join(file));
            }
        }
        if let Some(file) = name.file_name() {
            candidates.extend(self.extra_dirs.iter().map(|dir| dir.join(file)));
        }
        candidates
    }
}

/// Where elfutils' debuginfod client keeps files. `variable`: of the environment.
fn debuginfod_cache(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // What older versions made goes on being used.
    let old = || set("HOME").map(|dir| dir.join(".debuginfod_client_cache")).filter(|dir| dir.is_dir());
    set("DEBUGINFOD_CACHE_PATH")
        .or_else(old)
        .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("debuginfod_client")))
        .or_else(|| set("HOME").map(|dir| dir.join(".cache/debuginfod_client")))
}

fn hexadecimal(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `DIR/.build-id/ab/cdef….debug`.
fn build_id_path(dir: &Path, id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first()?;
    if rest.is_empty() {
        return None;
    }
    let (first, rest) = (hexadecimal(&[*first]), hexadecimal(rest));
    Some(dir.join(".build-id").join(first).join(format!("{rest}.debug")))
}

/// Maps `path` if it is there and is the debug file meant: equal build-ids settle it (cheap), else
/// the CRC-32 of the whole file (GDB manual, "Debug Link"; the polynomial is that of IEEE 802.3).
fn accept(
    path: &Path,
    build_id: Option<&[u8]>,
    crc: Option<u32>,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<Image> {
    if !path.is_file() {
        return None;
    }
    let image = match Image::map(path) {
        Ok(image) => image,
        Err(error) => {
            diagnostics.push(Diagnostic::DebugFileUnreadable(path.to_path_buf(), error.to_string()));
            return None;
        }
    };
    let file = match object::File::parse(&*image) {
        Ok(file) if file.is_little_endian() => file,
        Ok(_) => return None,
        Err(error) => {
            diagnostics.push(Diagnostic::DebugFileUnreadable(path.to_path_buf(), error.to_string()));
            return None;
        }
    };
    let same_id = match (build_id, file.build_id().ok().flatten()) {
        (Some(wanted), Some(found)) => Some(wanted == found),
        _ => None,
    };
    let accepted = match (same_id, crc) {
        (Some(same), _) => same,
        (None, Some(crc)) => crc32fast::hash(&image) == crc,
        // A supplementary file's id sits in `.gnu_debugaltlink` of its users only if it has a
        // build-id itself, so a file without one is not the file meant.
        (None, None) => false,
    };
    if !accepted {
        diagnostics.push(Diagnostic::DebugFileMismatch(path.to_path_buf()));
        return None;
    }
    Some(image)
}

/// Whether `file` carries DWARF units of its own.
pub(crate) fn has_dwarf(file: &object::File<'_>) -> bool {
    file.section_by_name(".debug_info")
        .is_some_and(|section| section.size() > 0 && section.file_range().is_some_and(|(_, size)| size > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_of_debuginfod_is_where_its_client_has_it() {
        let cache = |known: &[(&str, &str)]| {
            let value = |name: &str| known.iter().find(|it| it.0 == name).map(|it| OsString::from(it.1));
            debuginfod_cache(value).map(|path| path.display().to_string())
        };
        assert_eq!(cache(&[]), None);
        assert_eq!(cache(&[("HOME", "/h")]).as_deref(), Some("/h/.cache/debuginfod_client"));
        let xdg = [("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), ("DEBUGINFOD_CACHE_PATH", "")];
        assert_eq!(cache(&xdg).as_deref(), Some("/x/debuginfod_client"));
        let own = [("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), ("DEBUGINFOD_CACHE_PATH", "/own")];
        assert_eq!(cache(&own).as_deref(), Some("/own"));
    }
}
