//! A profile's frames and stacks, from positions in the code.

use memlens_profile::{
    Frame, FrameIx, FramesOfCalls, ModuleIx, PathId, PathIx, PathRows, Profile, Stack, StackIx, Texts,
};
use memlens_symbols::SourceFrame;
use rustc_hash::FxHashMap;

use crate::address_space::Code;
use crate::modules::Files;
use crate::recording::Recording;
use crate::site_naming::code_of;

/// The begin of a function that has no name, which stands for all of it; other code is itself.
fn function_of(code: Code, files: &Files) -> Code {
    let symbols = code.0.and_then(|file| files.get(file)).and_then(|mapped| mapped.symbols());
    let function = symbols.and_then(|symbols| symbols.function_at(code.1));
    function.filter(|function| function.name.is_none()).map_or(code, |function| (code.0, function.start))
}

/// The frames of code, in a profile under way.
pub struct CodeFrames<'a> {
    pub profile: &'a mut Profile,
    pub recording: &'a Recording,
    pub frames: &'a mut FrameRows,
}

impl FramesOfCalls<Code> for CodeFrames<'_> {
    fn profile(&mut self) -> &mut Profile {
        self.profile
    }

    fn frames_of_call(&mut self, call: Code) -> Vec<FrameIx> {
        self.frames.frames(self.profile, self.recording, call, true)
    }
}

impl CodeFrames<'_> {
    /// The path by some callers that ends in the function of some code.
    pub fn path(&mut self, paths: &mut PathRows, callers: PathId, code: Code) -> Option<PathIx> {
        let code = function_of(code, self.recording.files());
        let end = self.frames.frames(self.profile, self.recording, code, false);
        paths.end(self.recording.paths(), callers, &end, self)
    }
}

/// Frames and stacks that were made already.
#[derive(Default)]
pub struct FrameRows {
    /// By code position, and whether it is a return address.
    frames: FxHashMap<(Code, bool), Vec<FrameIx>>,
    stacks: FxHashMap<Vec<FrameIx>, StackIx>,
    texts: Texts,
}

impl FrameRows {
    /// The inlined functions at a code position, innermost first.
    pub fn stack(&mut self, profile: &mut Profile, recording: &Recording, code: Code) -> StackIx {
        let frames = self.frames(profile, recording, code, false);
        self.stack_of(profile, frames)
    }

    /// The call stack of an allocation site.
    pub fn call_stack(&mut self, profile: &mut Profile, recording: &Recording, keys: &[u64]) -> StackIx {
        let frames =
            keys.iter().flat_map(|&key| self.frames(profile, recording, code_of(key), true)).collect();
        self.stack_of(profile, frames)
    }

    fn stack_of(&mut self, profile: &mut Profile, frames: Vec<FrameIx>) -> StackIx {
        *self.stacks.entry(frames).or_insert_with_key(|frames| {
            let stack = StackIx::from_index(profile.stacks.len());
            profile.stacks.push(Stack(frames.clone()));
            stack
        })
    }

    /// The frames at a code position, inlined ones first. Return addresses stand for the call before them.
    fn frames(
        &mut self,
        profile: &mut Profile,
        recording: &Recording,
        code: Code,
        is_return: bool,
    ) -> Vec<FrameIx> {
        if let Some(known) = self.frames.get(&(code, is_return)) {
            return known.clone();
        }
        let symbols = code.0.and_then(|file| recording.files().get(file)).and_then(|mapped| mapped.symbols());
        let svma = if is_return { code.1.wrapping_sub(1) } else { code.1 };
        let mut located = symbols.map(|symbols| symbols.locate(svma)).unwrap_or_default();
        if located.is_empty() {
            let generated = if code.0.is_none() { recording.files().generated_function(svma) } else { None };
            located.push(SourceFrame { function: generated.map(str::to_owned), ..SourceFrame::default() });
        }
        let last = located.len() - 1;
        let mut list = Vec::with_capacity(located.len());
        for (depth, place) in located.into_iter().enumerate() {
            let source_text = match (symbols, &place.file, place.line) {
                (Some(symbols), Some(file), Some(line)) => symbols.source_line(file, line),
                _ => None,
            };
            list.push(FrameIx::from_index(profile.frames.len()));
            profile.frames.push(Frame {
                module: code.0.map(ModuleIx),
                offset: code.1,
                function: place.function.map(|name| self.texts.shared(&name)),
                file: place.file.map(|path| self.texts.shared(&path)),
                line: place.line,
                column: place.column,
                inlined: depth < last,
                source_text: source_text.map(|text| self.texts.shared(text.trim())),
            });
        }
        self.frames.insert((code, is_return), list.clone());
        list
    }
}
