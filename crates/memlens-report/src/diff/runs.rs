//! The runs that one side of a difference is of.

use std::slice;

use memlens_profile::{MERGED_FROM, MergeError, Merger, ObjectIx, Profile};

/// Why profiles are not the runs of one side. Reads after the profiles' names and a colon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunsError {
    /// They are of other modes or machines, or there is none.
    #[error("{0}")]
    Unlike(#[from] MergeError),
    /// One is of several runs itself, whose counts are added up.
    #[error("profile {position} is {note}: give these by themselves, they are in its folder ‘processes’")]
    Merged {
        /// Which, from 1.
        position: usize,
        /// What it says of itself.
        note: String,
    },
}

/// One run, or several of one program, which are shown as the mean of them and tell by how much runs differ.
#[derive(Clone, Debug)]
pub struct Runs {
    /// All of them in one, counts added up.
    whole: Profile,
    /// Each by itself, if there are several, and where its objects are in the whole.
    each: Vec<Profile>,
    objects: Vec<Vec<ObjectIx>>,
}

impl Runs {
    /// Of at least one profile.
    ///
    /// # Errors
    /// When there is none, or they were collected in other modes or modelled on other machines.
    pub fn new(mut profiles: Vec<Profile>) -> Result<Self, RunsError> {
        if profiles.len() < 2 {
            let whole = profiles.pop().ok_or(MergeError::Empty)?;
            return Ok(Self { whole, each: Vec::new(), objects: Vec::new() });
        }
        let mut merger = Merger::new(&profiles[0]).apart();
        let mut objects = Vec::new();
        for (profile, position) in profiles.iter().zip(1..) {
            let is_of_runs = |note: &&String| note.starts_with(MERGED_FROM) && note.ends_with("runs");
            if let Some(note) = profile.run.notes.iter().find(is_of_runs).cloned() {
                return Err(RunsError::Merged { position, note });
            }
            merger.add(profile)?;
            objects.push(merger.objects_of_last().to_vec());
        }
        let mut whole = merger.finish();
        let seconds = profiles.iter().map(|profile| profile.run.wall_seconds).sum::<Option<f64>>();
        whole.run.wall_seconds = seconds.map(|seconds| seconds / profiles.len() as f64);
        Ok(Self { whole, each: profiles, objects })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.each().len()
    }

    /// All runs in one.
    pub(super) fn whole(&self) -> &Profile {
        &self.whole
    }

    /// Each run.
    pub(super) fn each(&self) -> &[Profile] {
        if self.each.is_empty() { slice::from_ref(&self.whole) } else { &self.each }
    }

    /// Where an object of a run is in the whole.
    pub(super) fn object_in_whole(&self, run: usize, object: usize) -> usize {
        self.objects.get(run).map_or(object, |objects| objects[object].index())
    }
}
