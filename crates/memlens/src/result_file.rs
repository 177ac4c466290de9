//! Results that go into a file of their own.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::failure::Failure;
use crate::streams;

/// Writes a file as a whole or not at all; one that exists is only replaced if that is wanted (`force`). `-` is stdout, and what is
/// no ordinary file (a pipe, a terminal) is written to.
///
/// # Errors
/// When the file exists, or cannot be written.
pub fn write(
    path: &Path,
    force: bool,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        return streams::write_result(write);
    }
    let place = path.display().to_string();
    let cannot_create = |error: &io::Error| Failure::of_creation(&place, error);
    let cannot_write = |error: &io::Error| Failure::of_io("write", &place, error);
    let found = fs::metadata(path).ok();
    if found.as_ref().is_some_and(|found| !found.is_file() && !found.is_dir()) {
        let mut out =
            BufWriter::new(File::options().write(true).open(path).map_err(|it| cannot_create(&it))?);
        return write(&mut out).and_then(|()| out.flush()).map_err(|it| cannot_write(&it));
    }
    if found.is_some() && !force {
        return Err(cannot_create(&io::ErrorKind::AlreadyExists.into()));
    }
    if found.is_some_and(|found| found.is_dir()) {
        return Err(cannot_create(&io::ErrorKind::IsADirectory.into()));
    }
    // What a link leads to is replaced, and not the link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // As any new file: the caller's mask takes away what others may not.
    let made = tempfile::Builder::new()
        .prefix(".memlens-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder);
    let mut out = BufWriter::new(made.map_err(|it| cannot_create(&it))?);
    write(&mut out).and_then(|()| out.flush()).map_err(|it| cannot_write(&it))?;
    let made = out.into_inner().map_err(|it| cannot_write(it.error()))?;
    let persisted = if force { made.persist(&target) } else { made.persist_noclobber(&target) };
    persisted.map(drop).map_err(|it| cannot_create(&it.error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_as_a_whole_or_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, link) = (folder.path().join("page"), folder.path().join("link"));
        let put = |path: &Path, force, text: &str| write(path, force, |out| out.write_all(text.as_bytes()));
        put(&path, false, "first").expect("there is none");
        assert!(put(&path, false, "second").is_err_and(|failure| failure.exit_code() == 73));
        let cut = write(&path, true, |out| {
            out.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert!(cut.is_err_and(|failure| failure.exit_code() == 74));
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "first");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        put(&link, true, "third").expect("it may be replaced");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "third");
        assert!(link.is_symlink());
        assert!(put(folder.path(), true, "no").is_err_and(|failure| failure.exit_code() == 73));
        put(Path::new("/dev/null"), false, "gone").expect("it takes everything");
        assert!(put(Path::new("/dev/full"), true, "no").is_err_and(|failure| failure.exit_code() == 74));
        // Nothing else is left.
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
    }
}
