//! Frames that a running machine's kernel gave to pages, in place of modelled ones.
//!
//! ```text
//! 0 ........ real_bytes ........ + memory_bytes
//! real frames │ modelled ones: page tables, and pages whose own frame is not known
//! ```
//!
//! The model asks when it hands out a frame, which is some time after the program touched the page: the page may be
//! gone by then, or its frame may have been another page's that the model still has mapped. In both cases the page
//! gets a modelled frame; that is counted.

use std::ops::Range;

/// Where a page lies on the running machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealFrame {
    /// Number of the frame of 4 KiB.
    pub number: u64,
    /// The page is part of a larger one, mapped by one entry.
    pub is_large: bool,
    /// The page is a file's or shared memory.
    pub is_file: bool,
}

/// Knows where pages of running processes lie.
pub trait FrameSource: Send {
    /// Where a page of a process lies now; None: not in memory, or not told.
    fn frame(&mut self, pid: u32, page: u64) -> Option<RealFrame>;
    /// The process has ended or executes another program.
    fn forget(&mut self, pid: u32);
}

/// Where pages' frames came from, in pages of any size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// The running machine's, of 4 KiB, 2 MiB and 1 GiB.
    pub real: [u64; 3],
    /// Modelled, because the page was not in memory any more, or its frame not told.
    pub unknown: u64,
    /// Modelled, because another page still had the frame.
    pub taken: u64,
}

/// The frames of a running machine that pages of the model have.
pub(crate) struct RealFrames {
    source: Box<dyn FrameSource>,
    /// By frame: whether a page of the model has it.
    in_use: Vec<bool>,
    pub counts: FrameCounts,
}

impl RealFrames {
    /// None is in use.
    pub fn new(source: Box<dyn FrameSource>, real_bytes: u64) -> Self {
        Self { source, in_use: vec![false; (real_bytes >> 12) as usize], counts: FrameCounts::default() }
    }

    /// The first frame of a page and its level, if its frames are known and free. `is_file`: whether a file's page is
    /// meant; `levels`: those that fit, the largest first, with 1 among them.
    pub fn take(&mut self, pid: u32, page: u64, is_file: bool, levels: &[u8]) -> Option<(u64, u8)> {
        let found = self.source.frame(pid, page).filter(|found| found.is_file == is_file);
        let Some(found) = found else {
            self.counts.unknown += 1;
            return None;
        };
        let free = levels.iter().find_map(|&level| {
            let frames = frames_of(found, page, level)?;
            let place = usize::try_from(frames.start).ok()?..usize::try_from(frames.end).ok()?;
            let in_use = self.in_use.get_mut(place)?;
            (!in_use.contains(&true)).then(|| {
                in_use.fill(true);
                (frames.start, level)
            })
        });
        match free {
            Some((_, level)) => self.counts.real[usize::from(level) - 1] += 1,
            None => self.counts.taken += 1,
        }
        free
    }

    /// Whether a frame is the running machine's; then it is free again.
    pub fn release(&mut self, frames: Range<u64>) -> bool {
        let place = frames.start as usize..frames.end as usize;
        self.in_use.get_mut(place).map(|in_use| in_use.fill(false)).is_some()
    }

    pub fn forget(&mut self, pid: u32) {
        self.source.forget(pid);
    }
}

/// The frames of the page of a level around `page`; None: the page is not part of one.
fn frames_of(found: RealFrame, page: u64, level: u8) -> Option<Range<u64>> {
    let pages = 1 << (9 * (u32::from(level) - 1));
    let first = found.number.checked_sub(page % pages)?;
    (level == 1 || found.is_large && first % pages == 0).then_some(first..first + pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Page p lies in frame p + 512, from page 1024 on in large pages.
    struct Shifted;

    impl FrameSource for Shifted {
        fn frame(&mut self, _: u32, page: u64) -> Option<RealFrame> {
            Some(RealFrame { number: page + 512, is_large: page >= 1024, is_file: page == 7 })
        }

        fn forget(&mut self, _: u32) {}
    }

    #[test]
    fn a_frame_has_one_page_at_a_time() {
        let mut frames = RealFrames::new(Box::new(Shifted), 4096 << 12);
        assert_eq!(frames.take(1, 5, false, &[2, 1]), Some((517, 1)), "it lies in a small page");
        assert_eq!(frames.take(2, 5, false, &[1]), None, "in use");
        assert_eq!(frames.take(1, 7, false, &[1]), None, "a file's");
        assert_eq!(frames.take(1, 7, true, &[1]), Some((519, 1)));
        assert_eq!(frames.take(1, 1030, false, &[2, 1]), Some((1536, 2)));
        assert_eq!(frames.take(2, 1031, false, &[2, 1]), None);
        assert_eq!(frames.take(1, 4000, false, &[1]), None, "behind the machine's memory");
        assert_eq!(frames.counts, FrameCounts { real: [2, 1, 0], unknown: 1, taken: 3 });
        assert!(frames.release(1536..2048) && frames.release(517..518));
        assert!(!frames.release(4096..4097), "a modelled one");
        assert_eq!(frames.take(2, 1031, false, &[1]), Some((1543, 1)));
        assert_eq!(frames.take(2, 1030, false, &[2, 1]), Some((1542, 1)), "a part of it is in use");
    }
}
