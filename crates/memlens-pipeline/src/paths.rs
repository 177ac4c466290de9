//! Through which calls the accesses of windows came: the shadow stack at a window's begin, followed through the window's calls and returns.
//!
//! An access to a line that windows did not use lately is taken for one that misses.

use std::ops::Range;

use memlens_locality::Lately;
use memlens_objects::frame_key;
use memlens_profile::{
    CallPaths, Cell, CodeIx, CodeLocation, FrameIx, FramesOfCalls, MAX_PATH_FRAMES, ObjectIx, PathId,
    PathRows, PathUse, Profile,
};
use rustc_hash::FxHashMap;

use crate::shadow_stack::ShadowStack;
use crate::snapshot::Builder;

/// Triples of an operand, an owner and a path at most: some 40 bytes each. What there is no room for has no path.
const MOST_TRIPLES: usize = 1 << 18;
/// What an access that hits counts among those that miss: where nothing does, all count alike.
const OF_A_HIT: f64 = 1.0 / 1024.0;

/// Elements of string instructions after which the next one is looked at.
const ELEMENTS: u64 = 1 << 16;

/// The numbers of an operand and of an object, as windows have them, with a path; `None`: it is not known.
type Triple = (u32, u32, Option<PathId>);

/// What was seen of the paths of an operand and an object.
type SeenPaths = Vec<(Option<PathId>, Amount)>;

/// For how much a triple stands.
#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    accesses: f64,
    misses: f64,
}

/// What was seen of call paths.
#[derive(Debug)]
pub struct Paths {
    tree: CallPaths<u64>,
    triples: FxHashMap<Triple, Amount>,
    lately: Lately,
    /// The calls under way in the present window, outermost first: where the return address lies, and the path of what was called.
    calls: Vec<(u64, Option<PathId>)>,
    /// Path of what made the first of them.
    outermost: Option<PathId>,
    /// The stack that they are on.
    stack: Range<u64>,
    /// Elements of string instructions since one was looked at.
    elements: u64,
}

impl Paths {
    /// None yet, with lines of so many bytes, a power of two.
    pub fn new(line_bytes: u32) -> Self {
        Self {
            tree: CallPaths::default(),
            triples: FxHashMap::default(),
            lately: Lately::new(line_bytes),
            calls: Vec::new(),
            outermost: None,
            stack: 0..0,
            elements: 0,
        }
    }

    /// A window begins, with these calls under way.
    pub fn begin(&mut self, stack: &ShadowStack) {
        let Self { tree, calls, .. } = self;
        calls.clear();
        let frames = stack.frames();
        let left_out = frames.len().saturating_sub(MAX_PATH_FRAMES);
        if left_out > 0 {
            tree.shorten();
        }
        let mut path = Some(PathId::ROOT);
        for frame in &frames[left_out..] {
            path = path.and_then(|path| tree.child(path, frame.return_key));
            calls.push((frame.slot, path));
        }
        self.outermost = (left_out == 0).then_some(PathId::ROOT);
        self.stack = stack.range().clone();
    }

    /// Through which calls what runs now was reached.
    fn path(&self) -> Option<PathId> {
        self.calls.last().map_or(self.outermost, |(_, path)| *path)
    }

    /// An operand's access of an owner, which stands for so many.
    pub fn saw(&mut self, (operand, owner): (u32, u32), address: u64, weight: f64) {
        let misses = if self.lately.is_new(address) { weight } else { weight * OF_A_HIT };
        self.add((operand, owner, self.path()), Amount { accesses: weight, misses });
    }

    /// Whether a string instruction that has gone through so many elements is to be looked at.
    #[inline]
    pub fn is_due(&mut self, elements: u64) -> bool {
        self.elements += elements;
        self.elements >= ELEMENTS
    }

    /// A string instruction's operand has gone through an owner, while these calls are under way. It stands for all since the last one.
    pub fn ran(&mut self, (operand, owner): (u32, u32), stack: &ShadowStack) {
        let elements = std::mem::take(&mut self.elements) as f64;
        self.begin(stack);
        self.add((operand, owner, self.path()), Amount { accesses: elements, misses: elements });
    }

    fn add(&mut self, (operand, owner, path): Triple, more: Amount) {
        let has_room =
            self.triples.len() < MOST_TRIPLES || self.triples.contains_key(&(operand, owner, path));
        let amount = self.triples.entry((operand, owner, if has_room { path } else { None })).or_default();
        amount.accesses += more.accesses;
        amount.misses += more.misses;
    }

    /// A block ended with a call that returns to `return_key`, or with a return; the return address is at `slot`.
    pub fn enter_or_leave(&mut self, is_call: bool, slot: u64, return_key: u64) {
        if !self.stack.contains(&slot) {
            // Another stack: which calls are under way there is not known here.
            (self.stack, self.outermost) = (0..0, None);
            self.calls.clear();
            return;
        }
        while self.calls.last().is_some_and(|(last, _)| *last <= slot) {
            self.calls.pop();
        }
        if is_call {
            let path = self.path().and_then(|path| self.tree.child(path, return_key));
            self.calls.push((slot, path));
        }
    }

    /// What was cut, one sentence each.
    pub fn notes(&self) -> Vec<String> {
        self.tree.notes("windows")
    }

    /// What was seen of each operand and owner.
    fn by_cell(&self) -> FxHashMap<(u32, u32), SeenPaths> {
        let mut triples: Vec<(&Triple, &Amount)> = self.triples.iter().collect();
        triples.sort_unstable_by_key(|(triple, _)| **triple);
        let mut found: FxHashMap<(u32, u32), SeenPaths> = FxHashMap::default();
        for (&(operand, owner, path), &amount) in triples {
            found.entry((operand, owner)).or_default().push((path, amount));
        }
        found
    }
}

/// What paths say of a profile's cells.
pub(crate) struct PathsOfCells {
    /// By row of code and object.
    of_objects: FxHashMap<(CodeIx, ObjectIx), Vec<PathUse>>,
    /// By row of code, of objects that windows do not tell apart.
    of_others: FxHashMap<CodeIx, Vec<PathUse>>,
}

impl PathsOfCells {
    /// What was seen of a cell's operand and object, else of the operand and whatever it accesses.
    pub(crate) fn of(&self, cell: &Cell) -> Option<&Vec<PathUse>> {
        self.of_objects.get(&(cell.code, cell.object)).or_else(|| self.of_others.get(&cell.code))
    }
}

impl Builder<'_> {
    /// The call paths of the code of these operands, by the operands' numbers; rows of paths and frames are added to the profile.
    pub(crate) fn paths_of_cells(&mut self, paths: &Paths, operands: &[(u32, CodeIx)]) -> PathsOfCells {
        let by_cell = paths.by_cell();
        let mut rows_of: FxHashMap<u32, Vec<CodeIx>> = FxHashMap::default();
        operands.iter().for_each(|&(operand, code)| rows_of.entry(operand).or_default().push(code));
        let mut found = PathsOfCells { of_objects: FxHashMap::default(), of_others: FxHashMap::default() };
        let mut rows = PathRows::default();
        let mut keys: Vec<(u32, u32)> = by_cell.keys().copied().collect();
        keys.sort_unstable();
        for (operand, owner) in keys {
            let seen = &by_cell[&(operand, owner)];
            let mut codes = rows_of.get(&operand).cloned().unwrap_or_default();
            codes.sort_unstable();
            codes.dedup();
            for code in codes {
                let end = self.frames_of_function(code);
                let uses = seen.iter().map(|&(path, Amount { accesses, misses })| {
                    let path = path.map(|path| rows.end(&paths.tree, path, &end, self));
                    PathUse { path, accesses, misses }
                });
                let uses: Vec<PathUse> = uses.collect();
                match self.object_of.get(&owner) {
                    Some(&object) => found.of_objects.entry((code, object)).or_default().extend(uses),
                    None => found.of_others.entry(code).or_default().extend(uses),
                }
            }
        }
        found
    }

    /// The functions at a row of code, inlined ones first; of one without a name its begin stands for all of it.
    fn frames_of_function(&mut self, code: CodeIx) -> Vec<FrameIx> {
        let CodeLocation { stack, module, offset, .. } = self.profile.code[code.index()];
        let stack = stack.and_then(|stack| self.profile.stacks.get(stack.index()));
        let frames = stack.map(|stack| stack.0.clone()).unwrap_or_default();
        let has_name = |frame: &FrameIx| self.profile.frames[frame.index()].function.is_some();
        if frames.iter().any(has_name) {
            return frames;
        }
        let number = module.map_or(0, |module| module.0 + 1);
        let symbols = self.space.module(number).and_then(|module| module.symbols.as_ref());
        match symbols.and_then(|symbols| symbols.function_at(offset)) {
            Some(function) => self.frames_at(frame_key(number as u16, function.start), false),
            None => frames,
        }
    }
}

impl FramesOfCalls<u64> for Builder<'_> {
    fn profile(&mut self) -> &mut Profile {
        &mut self.profile
    }

    fn frames_of_call(&mut self, call: u64) -> Vec<FrameIx> {
        self.frames_at(call, true)
    }
}
