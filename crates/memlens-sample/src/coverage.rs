//! Whether what the agent's ticks tell is about most of the program.
//!
//! A tick stands for the processor time of its thread since the last one. Where the sum of them falls far short of what the
//! kernel says the program has used, something ran unseen, and a profile that looks whole would be wrong.

/// Less than this part of the processor time is worth a note.
const ENOUGH: f64 = 0.5;
/// Programs that used less have too few ticks to tell, in seconds.
const LEAST_SECONDS: f64 = 0.1;

/// Processor time in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coverage {
    /// That ticks or bursts stand for.
    pub told: f64,
    /// That the program and the children it waited for used: user and system time (getrusage(2)).
    pub used: f64,
}

impl Coverage {
    /// What a reader of the profile has to know; None: most was seen. `what` tells: "bursts", "samples".
    pub fn note(self, what: &str) -> Option<String> {
        let is_seen = self.used < LEAST_SECONDS || self.told >= ENOUGH * self.used;
        (!is_seen).then(|| {
            format!(
                "The {what} stand for {:.2} of {:.2} s of processor time; nothing is known of the rest. It may be code made at \
                 run time, threads that were not made by pthread_create (those of Go's runtime, clone), threads and processes \
                 shorter than a few milliseconds, children by other ways than fork (clone, vfork, daemon) until they allocate, \
                 or the kernel's work for them.",
                self.told, self.used
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_of_less_than_half_says_so() {
        let note = |told, used| Coverage { told, used }.note("bursts");
        assert!(note(0.0, 4.75).is_some_and(|note| note.starts_with("The bursts stand for 0.00 of 4.75 s")));
        assert!(note(1.9, 4.0).is_some());
        assert_eq!(note(2.1, 4.0), None);
        assert_eq!(note(0.0, 0.05), None, "too short to tell");
        assert_eq!(note(4.1, 4.0), None);
    }
}
