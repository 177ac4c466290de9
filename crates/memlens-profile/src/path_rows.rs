//! Rows of call paths, out of the tree of return addresses that was kept while the program ran.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::{CallPath, CallPaths, Frame, FrameIx, ModuleIx, PathId, PathIx, Profile};

/// Knows the frames of code, and has the profile that they are rows of. `C` is what stands for a return address.
pub trait FramesOfCalls<C> {
    /// The profile.
    fn profile(&mut self) -> &mut Profile;

    /// The functions at a call, by its return address: inlined ones first.
    fn frames_of_call(&mut self, call: C) -> Vec<FrameIx>;
}

/// Call paths that were made already.
#[derive(Debug, Default)]
pub struct PathRows {
    nodes: HashMap<(Option<PathIx>, FrameIx), PathIx>,
    callers: HashMap<PathId, Option<PathIx>>,
    ends: HashMap<(PathId, FrameIx), PathIx>,
    frames: HashMap<SameFrame, FrameIx>,
}

/// What makes frames of paths one: module, function (else its code), file, the line of a call, whether it is inlined.
type SameFrame = (Option<ModuleIx>, Result<Arc<str>, u64>, Option<Arc<str>>, Option<u32>, bool);

impl PathRows {
    /// The path by these callers whose last frames are `end`, the functions at some code, inlined ones first; `None`: there are none. Linear in what
    /// is new of it.
    pub fn end<C: Copy + Default + Eq + Hash>(
        &mut self,
        tree: &CallPaths<C>,
        callers: PathId,
        end: &[FrameIx],
        frames: &mut impl FramesOfCalls<C>,
    ) -> Option<PathIx> {
        let innermost = *end.first()?;
        if let Some(&known) = self.ends.get(&(callers, innermost)) {
            return Some(known);
        }
        let mut at = self.callers(tree, callers, frames);
        for (depth, &frame) in end.iter().enumerate().rev() {
            let frame = self.frame(frames.profile(), frame, depth == 0);
            at = Some(self.node(frames.profile(), at, frame));
        }
        self.ends.insert((callers, innermost), at?);
        at
    }

    fn callers<C: Copy + Default + Eq + Hash>(
        &mut self,
        tree: &CallPaths<C>,
        path: PathId,
        frames: &mut impl FramesOfCalls<C>,
    ) -> Option<PathIx> {
        if let Some(&known) = self.callers.get(&path) {
            return known;
        }
        let (parent, call) = tree.node(path)?;
        // As deep as a path is long.
        let mut at = self.callers(tree, parent, frames);
        for frame in frames.frames_of_call(call).into_iter().rev() {
            let frame = self.frame(frames.profile(), frame, false);
            at = Some(self.node(frames.profile(), at, frame));
        }
        self.callers.insert(path, at);
        at
    }

    fn node(&mut self, profile: &mut Profile, parent: Option<PathIx>, frame: FrameIx) -> PathIx {
        *self.nodes.entry((parent, frame)).or_insert_with(|| {
            let path = PathIx::from_index(profile.paths.len());
            profile.paths.push(CallPath { parent, frame });
            path
        })
    }

    /// The frame that stands for all like it: two calls of a line are one, and at a path's end all of a function is, those inlined into it by their
    /// call.
    fn frame(&mut self, profile: &mut Profile, frame: FrameIx, is_end: bool) -> FrameIx {
        let Some(found) = profile.frames.get(frame.index()) else { return frame };
        let line = if is_end { None } else { found.line };
        let function = found.function.clone().ok_or(found.offset);
        let key = (found.module, function, found.file.clone(), line, found.inlined);
        if let Some(&known) = self.frames.get(&key) {
            return known;
        }
        let made = match is_end {
            false => frame,
            true => {
                let made = Frame { line: None, column: None, source_text: None, ..found.clone() };
                profile.frames.push(made);
                FrameIx::from_index(profile.frames.len() - 1)
            }
        };
        self.frames.insert(key, made);
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code is its function's number times a hundred, and a line.
    struct Known(Profile);

    impl FramesOfCalls<u64> for Known {
        fn profile(&mut self) -> &mut Profile {
            &mut self.0
        }

        fn frames_of_call(&mut self, call: u64) -> Vec<FrameIx> {
            let function: Arc<str> = format!("f{}", call / 100).into();
            let line = Some(call as u32 % 100 / 10);
            let frame = Frame { offset: call, function: Some(function), line, ..Frame::default() };
            self.0.frames.push(frame);
            vec![FrameIx::from_index(self.0.frames.len() - 1)]
        }
    }

    #[test]
    fn two_calls_of_a_line_are_one_and_a_function_is_one_end() {
        let (mut tree, mut rows, mut known) =
            (CallPaths::default(), PathRows::default(), Known(Profile::default()));
        let mut path = |calls: &[u64], end: u64| {
            let callers = tree.intern(calls.iter().rev().copied()).expect("room");
            let end = known.frames_of_call(end);
            rows.end(&tree, callers, &end, &mut known).expect("it has frames")
        };
        // f1 calls f2 at two places of line 1, and at line 2.
        let first = path(&[110], 205);
        assert_eq!(path(&[111], 217), first);
        let other = path(&[121], 205);
        assert_ne!(other, first);
        let frames = |path| -> Vec<(String, Option<u32>)> {
            let frames = known.0.path_frames(Some(path));
            frames
                .map(|frame| (frame.function.as_deref().unwrap_or_default().to_owned(), frame.line))
                .collect()
        };
        assert_eq!(frames(first), [("f2".to_owned(), None), ("f1".to_owned(), Some(1))]);
        assert_eq!(frames(other), [("f2".to_owned(), None), ("f1".to_owned(), Some(2))]);
        assert_eq!(known.0.paths.len(), 4);
    }
}
