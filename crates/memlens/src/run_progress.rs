//! How far the runs of a program are that `apply` tries, told on a terminal: some of them take minutes.

use std::time::Instant;

use crate::streams::{self, Stream};

/// One line that is written anew before each run, and is gone in the end.
#[derive(Debug)]
pub struct RunProgress {
    /// Runs in all, as far as is known.
    all: usize,
    begun: usize,
    started: Instant,
    is_shown: bool,
}

impl RunProgress {
    /// Of so many runs.
    pub fn new(all: usize) -> Self {
        Self { all, begun: 0, started: Instant::now(), is_shown: Stream::Stderr.is_terminal() }
    }

    /// There are so many fewer after all.
    pub fn spare(&mut self, runs: usize) {
        self.all = self.all.saturating_sub(runs);
    }

    /// The next run begins.
    pub fn next(&mut self) {
        self.begun += 1;
        if self.is_shown {
            streams::write_to_stderr(&format!(
                "\r\x1b[K{} ",
                self.text(self.started.elapsed().as_secs_f64())
            ));
        }
    }

    fn text(&self, seconds: f64) -> String {
        let all = self.all.max(self.begun);
        let text = format!("memlens: run {} of {all}", self.begun);
        match self.begun - 1 {
            0 => text,
            done => format!("{text}, about {:.0} s more", seconds / done as f64 * (all - done) as f64),
        }
    }
}

impl Drop for RunProgress {
    fn drop(&mut self) {
        if self.is_shown && self.begun > 0 {
            streams::write_to_stderr("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_takes_as_long_as_what_was() {
        let mut progress = RunProgress { is_shown: false, ..RunProgress::new(20) };
        progress.next();
        assert_eq!(progress.text(0.0), "memlens: run 1 of 20");
        progress.next();
        progress.next();
        assert_eq!(progress.text(5.0), "memlens: run 3 of 20, about 45 s more");
        progress.spare(10);
        assert_eq!(progress.text(5.0), "memlens: run 3 of 10, about 20 s more");
        progress.spare(10);
        assert_eq!(progress.text(5.0), "memlens: run 3 of 3, about 2 s more");
    }
}
