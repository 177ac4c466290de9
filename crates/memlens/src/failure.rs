//! What ends memlens early, and with which exit code.

use std::fmt;
use std::io;

use memlens_profile::{OpenError, WriteError};

/// The reasons, each with an exit code of its own. The numbers are those of BSD's `sysexits.h` where
/// it has one for the reason; programs seldom use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The command line makes no sense.
    Usage,
    /// An input was read, but it is damaged or no input of that kind.
    BadData,
    /// An input is not there or cannot be opened.
    NoInput,
    /// This version cannot do what was asked for.
    Unavailable,
    /// A fault of memlens itself.
    Internal,
    /// An output cannot be created.
    CannotCreate,
    /// Reading or writing failed half-way.
    Io,
    /// The recording engine did not start.
    Engine,
    /// An input may not be read.
    Permission,
    /// The program may not be executed.
    NotExecutable,
    /// There is no such program.
    NotFound,
}

impl FailureKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [Self; 11] = [
        Self::Usage,
        Self::BadData,
        Self::NoInput,
        Self::Unavailable,
        Self::Internal,
        Self::CannotCreate,
        Self::Io,
        Self::Engine,
        Self::Permission,
        Self::NotExecutable,
        Self::NotFound,
    ];

    /// The exit code.
    pub fn exit_code(self) -> u8 {
        self.describe().0
    }

    /// What it means, for the help text and `docs/exit-codes.md`.
    pub fn meaning(self) -> &'static str {
        self.describe().1
    }

    fn describe(self) -> (u8, &'static str) {
        match self {
            Self::Usage => (
                64,
                "the command line is wrong: unknown option, machine, column …, or it asks for what a profile does not have",
            ),
            Self::BadData => (65, "a profile, trace or machine file is damaged or of another kind"),
            Self::NoInput => (66, "a profile, trace or machine file, or a process, is not there"),
            Self::Unavailable => (
                69,
                "this version does not have the mode or feature asked for, or not for such a process (`--pid`)",
            ),
            Self::Internal => (70, "a fault of memlens itself"),
            Self::CannotCreate => {
                (73, "the output cannot be created: it exists, another memlens writes it, or no permission")
            }
            Self::Io => (74, "reading or writing failed half-way, for instance on a full disk"),
            Self::Engine => (
                75,
                "the recording engine did not start (`memlens doctor` says why), a process cannot be changed just now, or calibration found the machine busy",
            ),
            Self::Permission => (77, "an input may not be read, or a process not be attached to"),
            Self::NotExecutable => (126, "the program cannot be executed"),
            Self::NotFound => (127, "the program does not exist, or its loader or interpreter"),
        }
    }
}

/// A failure: why, and what to tell the user. Messages start with a small letter and say what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    kind: FailureKind,
    message: String,
}

impl Failure {
    /// A failure with its message.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The exit code of its kind.
    pub fn exit_code(&self) -> u8 {
        self.kind.exit_code()
    }

    /// The same failure in other words.
    pub fn with_message(self, message: String) -> Self {
        Self { message, ..self }
    }

    /// The failure of reading or writing a file named by the user. `what` reads after "cannot".
    pub fn of_io(what: &str, place: &str, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => FailureKind::NoInput,
            io::ErrorKind::PermissionDenied => FailureKind::Permission,
            _ => FailureKind::Io,
        };
        Self::new(kind, format!("cannot {what} {place}: {}", plain(error)))
    }

    /// The failure of creating a file named by the user.
    pub fn of_creation(place: &str, error: &io::Error) -> Self {
        let hint = match error.kind() {
            io::ErrorKind::AlreadyExists => "; choose another name, or replace it with --force",
            _ => "",
        };
        let message = format!("cannot create {place}: {}{hint}", plain(error));
        Self::new(FailureKind::CannotCreate, message)
    }
}

/// The system's words without Rust's "(os error 2)".
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let kind = match &error {
            OpenError::NotFound { .. } => FailureKind::NoInput,
            OpenError::Permission { .. } => FailureKind::Permission,
            OpenError::Io { .. } => FailureKind::Io,
            _ => FailureKind::BadData,
        };
        Self::new(kind, format!("cannot open the profile: {error}"))
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        let kind = match &error {
            WriteError::Exists { .. }
            | WriteError::NotAProfile { .. }
            | WriteError::NoParent { .. }
            | WriteError::Permission { .. } => FailureKind::CannotCreate,
            WriteError::Encode { .. } => FailureKind::Internal,
            _ => FailureKind::Io,
        };
        Self::new(kind, format!("cannot write the profile: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_ordered_and_unlike_those_of_ordinary_programs() {
        let codes: Vec<u8> = FailureKind::ALL.iter().map(|kind| kind.exit_code()).collect();
        assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
        // Programs mostly use 0 to 63; shells use 126 to 255 for signals and missing commands.
        assert!(codes.iter().all(|code| (64..78).contains(code) || [126, 127].contains(code)));
    }

    #[test]
    fn the_document_has_every_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/exit-codes.md");
        let document = std::fs::read_to_string(path).expect("docs/exit-codes.md");
        for kind in FailureKind::ALL {
            let row = format!("| {} | {} |", kind.exit_code(), kind.meaning());
            assert!(document.contains(&row), "docs/exit-codes.md lacks the row\n{row}");
        }
    }

    #[test]
    fn messages_of_the_system_are_plain() {
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        assert_eq!(plain(&error), "no such file or directory");
    }
}
