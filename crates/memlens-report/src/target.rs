//! What a row is of, in words that hold for the profile's next state, too: a recording that is under way writes it
//! again and again, and rows of its tables get other places then.

use memlens_profile::{CodeLocation, Frame, ObjectIx, Profile};
use memlens_types::ObjectKind;

use crate::namesakes::Namesakes;

/// What a row is of, where there is more to see of it than the row: see [`target_page`](crate::target_page).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// Objects that are one row.
    Objects {
        /// Their numbers, the costliest first.
        ids: Vec<u32>,
        /// The costliest one's name.
        name: String,
    },
    /// The objects of a place where they are allocated or declared, as its row is called.
    Site(String),
    /// The objects of a kind.
    Kind(ObjectKind),
    /// A function by its name; inlined ones by theirs.
    Function(String),
    /// A source line.
    Line {
        /// The file as debug information has it.
        file: String,
        /// The line's number.
        line: u32,
    },
    /// An instruction.
    Instruction {
        /// Path of its module; None: generated code.
        module: Option<String>,
        /// Where in the module.
        offset: u64,
    },
    /// A field in all objects that have it, as its row is called.
    Field(String),
    /// A thread.
    Thread {
        /// Its process; None: that of the run.
        pid: Option<u32>,
        /// Its number.
        tid: u32,
    },
    /// A process by its number; None: it is not known.
    Process(Option<u32>),
    /// A call path.
    Path {
        /// The innermost frame first: each as its module's path and the offset there. Empty: none is known.
        frames: Vec<(Option<String>, u64)>,
        /// The objects that it is looked at for ([`Target::Objects`]); None: all.
        only: Option<Box<Target>>,
    },
}

impl Target {
    /// Of an instruction.
    pub(crate) fn instruction(profile: &Profile, code: &CodeLocation) -> Self {
        let module = profile.module(code.module).map(|module| module.path.clone());
        Self::Instruction { module, offset: code.offset }
    }

    /// Of a call path.
    pub(crate) fn path<'a>(profile: &Profile, frames: impl Iterator<Item = &'a Frame>) -> Self {
        let frame = |frame: &Frame| (profile.module(frame.module).map(|it| it.path.clone()), frame.offset);
        Self::Path { frames: frames.map(frame).collect(), only: None }
    }

    /// Of a call path as far as it leads to some objects; anything else as it is.
    pub(crate) fn only_of(self, objects: Option<Self>) -> Self {
        match self {
            Self::Path { frames, .. } => Self::Path { frames, only: objects.map(Box::new) },
            other => other,
        }
    }

    /// The objects that it means; None: it means none, or they are no longer there. Numbers that mean something else by
    /// now are passed over, and with all of them gone the name counts.
    pub(crate) fn objects<'a>(&self, profile: &'a Profile) -> Option<Namesakes<'a>> {
        let Self::Objects { ids, name } = self else { return None };
        let all = || (0..profile.objects.len()).map(ObjectIx::from_index).zip(&profile.objects);
        let indices = |wanted: &dyn Fn(u32) -> bool| -> Vec<ObjectIx> {
            let found = all().filter(|(_, object)| object.name == *name && wanted(object.id));
            found.map(|(index, _)| index).collect()
        };
        let mut members = indices(&|id| ids.contains(&id));
        if members.is_empty() {
            members = indices(&|_| true);
        }
        (!members.is_empty()).then(|| Namesakes::of(profile, members))
    }
}
