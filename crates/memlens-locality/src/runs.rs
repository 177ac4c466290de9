//! Since when code has been at work.
//!
//! A program that goes on to its next task uses data that the one before left: what it uses for the first time in it was
//! last used before it began, however often the task before used it. The bursts of one thread in which an instruction
//! is seen are taken for one *run* of it as long as it is not missed in [`ABSENT`] bursts in a row.

use crate::clock::Mark;

/// Bursts of the thread without an instruction after which it begins anew.
const ABSENT: u64 = 8;

/// A burst, in the time of its thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    /// The thread.
    pub(crate) thread: u64,
    /// Which of its bursts this is.
    pub(crate) burst: u64,
    /// When it begins.
    pub(crate) at: Mark,
    /// All that it made before, and those of them between the last burst and this one, as far as they are known.
    pub(crate) made: u64,
    pub(crate) unseen: u64,
}

/// The present run of an instruction or owner.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// Where it begins, and the last burst that saw it.
    begin: Option<Moment>,
    last_burst: u64,
    /// Whether several threads make it.
    is_shared: bool,
    /// As of the last burst that saw it.
    since: Option<Since>,
}

/// How long a run has lasted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Since {
    /// When it began.
    pub(crate) begin: Mark,
    /// All that it made from then to the begin of the present burst.
    pub(crate) made: u64,
    /// Whether the present burst is the first that sees the run.
    pub(crate) is_first: bool,
}

impl Run {
    /// It makes references in this burst. Since when this run goes; `None`: since the thread's begin, or it is the run of
    /// several threads.
    #[inline]
    pub(crate) fn seen(&mut self, now: &Moment) -> Option<Since> {
        match self.begin {
            Some(begin) if begin.thread == now.thread && self.last_burst == now.burst => {}
            _ => self.next_burst(now),
        }
        self.since
    }

    fn next_burst(&mut self, now: &Moment) {
        let begin = match self.begin {
            Some(begin) if begin.thread != now.thread => {
                (self.is_shared, self.since) = (true, None);
                return;
            }
            Some(begin) if now.burst - self.last_burst <= ABSENT => begin,
            _ => *now,
        };
        (self.begin, self.last_burst) = (Some(begin), now.burst);
        // It began somewhere between the last burst without it and the first with it.
        let made = now.made - begin.made + begin.unseen / 2;
        let since = Since { begin: begin.at, made, is_first: now.burst == begin.burst };
        self.since = (!self.is_shared && begin.at.seen > 0).then_some(since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(burst: u64) -> Mark {
        Mark::after(burst * 100)
    }

    fn moment(thread: u64, burst: u64) -> Moment {
        Moment { thread, burst, at: at(burst), made: burst * 1000, unseen: 900 }
    }

    #[test]
    fn a_run_ends_where_it_is_missed_for_long() {
        assert_eq!(Run::default().seen(&moment(1, 0)), None, "since the begin");
        let mut run = Run::default();
        for burst in [3, 4, 4 + ABSENT] {
            let since = Since { begin: at(3), made: (burst - 3) * 1000 + 450, is_first: burst == 3 };
            assert_eq!(run.seen(&moment(1, burst)), Some(since));
            assert_eq!(run.seen(&moment(1, burst)), Some(since));
        }
        let again = 4 + 2 * ABSENT + 1;
        let since = Since { begin: at(again), made: 450, is_first: true };
        assert_eq!(run.seen(&moment(1, again)), Some(since));
        assert_eq!(run.seen(&moment(2, 7)), None, "two threads'");
        assert_eq!(run.seen(&moment(1, again + 1)), None);
    }
}
