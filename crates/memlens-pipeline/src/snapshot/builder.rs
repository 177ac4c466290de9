//! Rows of code, frames and stacks.

use crate::address_space::AddressSpace;
use memlens_objects::{SiteId, split_frame_key};
use memlens_profile::{
    CodeIx, CodeLocation, Frame, FrameIx, Module as ModuleRow, ModuleIx, ObjectIx, PackedCounts, Profile,
    Stack, StackIx, Texts,
};
use memlens_symbols::{Assignment, BlockType, GeneratedNames, Module, SourceFrame, TypeRef};
use memlens_types::AccessKind;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

/// Collects rows and joins equal ones.
pub(crate) struct Builder<'a> {
    pub(crate) space: &'a AddressSpace,
    pub(crate) profile: Profile,
    /// Names of code outside of all modules.
    pub(super) generated: GeneratedNames,
    frames: FxHashMap<(u64, bool), Vec<FrameIx>>,
    /// Of frames.
    texts: Texts,
    stacks: FxHashMap<Vec<FrameIx>, StackIx>,
    /// The place of the code row made last, its stack, and the first row there.
    place: Option<(u64, StackIx, usize)>,
    pub(crate) object_of: FxHashMap<u32, ObjectIx>,
    pub(super) assignments: FxHashMap<u64, Assignment>,
    /// Types of sites' blocks.
    pub(crate) block_types: FxHashMap<SiteId, BlockType>,
    /// The same of globals whose debug information was looked at, with its module, by module and address. That of one after the other
    /// in the order of addresses is together in the file; in any other order units are parsed again and again.
    pub(crate) variable_types: FxHashMap<(u32, u64), Option<(u32, TypeRef)>>,
}

impl<'a> Builder<'a> {
    /// Nothing yet but the modules.
    pub(super) fn new(space: &'a AddressSpace) -> Self {
        let modules = space.modules().iter().map(|module| {
            let symbols = module.symbols.as_ref();
            ModuleRow {
                path: module.path.clone(),
                build_id: symbols
                    .and_then(Module::build_id)
                    .map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect()),
                has_debug: symbols.is_some_and(Module::has_debug_info),
            }
        });
        let profile = Profile { modules: modules.collect(), ..Profile::default() };
        Self { profile, ..Self::for_names(space) }
    }

    /// For names only: without the modules' rows.
    pub(crate) fn for_names(space: &'a AddressSpace) -> Self {
        Self {
            space,
            profile: Profile::default(),
            generated: GeneratedNames::default(),
            frames: FxHashMap::default(),
            texts: Texts::default(),
            stacks: FxHashMap::default(),
            place: None,
            object_of: FxHashMap::default(),
            assignments: FxHashMap::default(),
            block_types: FxHashMap::default(),
            variable_types: FxHashMap::default(),
        }
    }

    pub(super) fn module_ix(number: u32) -> Option<ModuleIx> {
        (number > 0).then(|| ModuleIx(number - 1))
    }

    /// The row of a memory operand at a place. Those of one place are asked for one after another: what is remembered is
    /// of the last place only, for there are a hundred thousand.
    pub(super) fn code(&mut self, key: u64, operand: u8, kind: AccessKind, size_bytes: u32) -> CodeIx {
        let (stack, first) = match self.place {
            Some((place, stack, first)) if place == key => (stack, first),
            _ => {
                // No other place has these frames.
                let frames = self.new_frames(key, false);
                let stack = StackIx::from_index(self.profile.stacks.len());
                self.profile.stacks.push(Stack(frames));
                (stack, self.profile.code.len())
            }
        };
        self.place = Some((key, stack, first));
        let is_it =
            |row: &CodeLocation| (row.operand, row.kind, row.size_bytes) == (operand, kind, size_bytes);
        if let Some(known) = self.profile.code[first..].iter().position(is_it) {
            return CodeIx::from_index(first + known);
        }
        let (number, offset) = split_frame_key(key);
        let code = CodeIx::from_index(self.profile.code.len());
        self.profile.code.push(CodeLocation {
            id: code.0 + 1,
            stack: Some(stack),
            module: Self::module_ix(number.into()),
            offset,
            operand,
            kind,
            size_bytes,
            counts: PackedCounts::default(),
        });
        code
    }

    pub(super) fn stack(&mut self, frames: Vec<FrameIx>) -> StackIx {
        match self.stacks.entry(frames) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let stack = StackIx::from_index(self.profile.stacks.len());
                self.profile.stacks.push(Stack(new.key().clone()));
                *new.insert(stack)
            }
        }
    }

    /// The innermost frame of the code at a place.
    pub(crate) fn innermost_frame(&mut self, key: u64) -> Option<&Frame> {
        let first = self.frames_at(key, false).first().copied()?;
        self.profile.frames.get(first.index())
    }

    /// The frames at a place, innermost (inlined) first. Return addresses stand for the call before
    /// them.
    pub(crate) fn frames_at(&mut self, key: u64, is_return: bool) -> Vec<FrameIx> {
        if let Some(known) = self.frames.get(&(key, is_return)) {
            return known.clone();
        }
        let frames = self.new_frames(key, is_return);
        self.frames.insert((key, is_return), frames.clone());
        frames
    }

    /// As [`Self::frames_at`], of a place that is not asked for again.
    fn new_frames(&mut self, key: u64, is_return: bool) -> Vec<FrameIx> {
        let (number, offset) = split_frame_key(key);
        let svma = if is_return { offset.wrapping_sub(1) } else { offset };
        let symbols = self.space.module(number.into()).and_then(|module| module.symbols.as_ref());
        let mut located = symbols.map(|symbols| symbols.locate(svma)).unwrap_or_default();
        if located.is_empty() {
            let generated = if number == 0 { self.generated.function_at(svma) } else { None };
            located.push(SourceFrame { function: generated.map(str::to_owned), ..SourceFrame::default() });
        }
        let last = located.len() - 1;
        let mut frames = Vec::with_capacity(located.len());
        for (depth, place) in located.into_iter().enumerate() {
            let source_text = match (symbols, &place.file, place.line) {
                (Some(symbols), Some(file), Some(line)) => symbols.source_line(file, line),
                _ => None,
            };
            let frame = FrameIx::from_index(self.profile.frames.len());
            self.profile.frames.push(Frame {
                module: Self::module_ix(number.into()),
                offset,
                function: place.function.map(|name| self.texts.shared(&name)),
                file: place.file.map(|path| self.texts.shared(&path)),
                line: place.line,
                column: place.column,
                inlined: depth < last,
                source_text: source_text.map(|text| self.texts.shared(text.trim())),
            });
            frames.push(frame);
        }
        frames
    }
}
