//! The runs that one side of a difference is of.

use memlens_profile::{MERGED_FROM, MergeError, Merger, Profile};

/// One run, or several of one program, which are shown as the mean of them and tell by how much runs differ.
#[derive(Clone, Debug)]
pub struct Runs {
    /// All of them in one, counts added up.
    whole: Profile,
    /// Each by itself, if there are several.
    each: Vec<Profile>,
}

impl Runs {
    /// Of at least one profile.
    ///
    /// # Errors
    /// When there is none, or they were collected in other modes or modelled on other machines.
    pub fn new(mut profiles: Vec<Profile>) -> Result<Self, MergeError> {
        if profiles.len() < 2 {
            let whole = profiles.pop().ok_or(MergeError::Empty)?;
            return Ok(Self { whole, each: Vec::new() });
        }
        let mut merger = Merger::new(&profiles[0]).apart();
        for profile in &profiles {
            merger.add(profile)?;
        }
        let mut whole = merger.finish();
        // They are divided by their number again.
        whole.run.notes.retain(|note| !note.starts_with(MERGED_FROM));
        let seconds = profiles.iter().map(|profile| profile.run.wall_seconds).sum::<Option<f64>>();
        whole.run.wall_seconds = seconds.map(|seconds| seconds / profiles.len() as f64);
        Ok(Self { whole, each: profiles })
    }

    /// What their rows are of.
    pub(crate) fn whole(&self) -> &Profile {
        &self.whole
    }

    /// Each run, if there are several.
    pub(super) fn each(&self) -> &[Profile] {
        &self.each
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.each.len().max(1)
    }
}
