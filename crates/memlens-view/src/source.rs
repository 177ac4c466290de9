//! Where profiles come from.

use memlens_profile::Profile;

/// A profile, and whether it will have a next state.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// What has been recorded so far.
    pub profile: Profile,
    /// Whether the program is being recorded still.
    pub is_running: bool,
}

/// What hands out a profile, and again when it has changed. Promises:
///
/// 1. [`renewed`](Source::renewed) is asked at most once a second, and costs little when nothing has changed.
/// 2. What cannot be read just now is `None`: the last state stays in sight.
/// 3. [`read`](Source::read) is asked when a reader wants it, and reads all of it, also where nothing seems to have changed.
/// 4. [`advice`](Source::advice) is asked when a reader wants it, of a profile that came from here.
pub trait Source {
    /// The present state, if it is another one than was handed out last.
    fn renewed(&mut self) -> Option<Recorded>;

    /// The present state.
    ///
    /// # Errors
    /// Why it cannot be read, in a sentence.
    fn read(&mut self) -> Result<Recorded, String>;

    /// What to do about the profile's data, or why nothing can be said of it.
    fn advice(&mut self, profile: &Profile) -> String;
}
