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

use crate::shadow_stack::{Frame, ShadowStack};
use crate::snapshot::Builder;

/// Triples of an operand, an owner and a path at most, some 40 bytes each. What there is no room for has no path.
const MOST_TRIPLES: usize = 1 << 18;
/// What an access that hits counts among those that miss: where nothing does, all count alike.
const OF_A_HIT: f64 = 1.0 / 1024.0;

/// Elements of string instructions after which the next one is looked at, on average: by chance, so that no copies keep step with it.
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
    /// Elements of string instructions since one was looked at, and after how many the next one is.
    elements: u64,
    due: u64,
    random: u64,
    /// Accesses that were looked at, and for which there was no room.
    without_room: u64,
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
            due: ELEMENTS / 2,
            random: 0,
            without_room: 0,
        }
    }

    /// A window begins, with these calls under way.
    pub fn begin(&mut self, stack: &ShadowStack) {
        let Self { tree, calls, .. } = self;
        calls.clear();
        let frames = stack.frames();
        let left_out = first_kept(frames);
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
        self.elements >= self.due
    }

    /// The operands of a string instruction that is due, while these calls are under way. What objects they went through is not looked at.
    pub fn ran(&mut self, operands: impl Iterator<Item = u32>, owner: u32, stack: &ShadowStack) {
        let elements = std::mem::take(&mut self.elements) as f64;
        // The high bits of a linear congruential generator (Knuth's MMIX).
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.due = ELEMENTS / 2 + (self.random >> 32) % ELEMENTS;
        self.begin(stack);
        for operand in operands {
            self.add((operand, owner, self.path()), Amount { accesses: elements, misses: elements });
        }
    }

    fn add(&mut self, (operand, owner, path): Triple, more: Amount) {
        let has_room =
            self.triples.len() < MOST_TRIPLES || self.triples.contains_key(&(operand, owner, path));
        self.without_room += u64::from(!has_room);
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
        let mut notes = self.tree.notes();
        if self.without_room > 0 {
            notes.push(format!(
                "{} accesses whose callers were looked at have no call path: there were more than {MOST_TRIPLES} of instructions, objects and paths.",
                self.without_room
            ));
        }
        notes
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

/// Where the frames begin that a path keeps: the innermost, of those of one call in a row one.
fn first_kept(frames: &[Frame]) -> usize {
    let mut kept = 0;
    for at in (0..frames.len()).rev() {
        let is_again = frames.get(at + 1).is_some_and(|called| called.return_key == frames[at].return_key);
        kept += usize::from(!is_again);
        if kept > MAX_PATH_FRAMES {
            return at + 1;
        }
    }
    0
}

/// What paths say of a profile's cells.
#[derive(Default)]
pub(crate) struct PathsOfCells {
    /// By row of code and object.
    of_objects: FxHashMap<(CodeIx, ObjectIx), Vec<PathUse>>,
    /// By row of code, of objects that windows do not tell apart.
    of_others: FxHashMap<CodeIx, Vec<PathUse>>,
    /// The same of all objects.
    of_all: FxHashMap<CodeIx, Vec<PathUse>>,
}

impl PathsOfCells {
    /// What was seen of a cell's operand and object, else of the operand and objects that are not told apart, else of all that it accesses.
    pub(crate) fn of(&self, cell: &Cell) -> Option<&Vec<PathUse>> {
        let of_object = self.of_objects.get(&(cell.code, cell.object));
        of_object.or_else(|| self.of_others.get(&cell.code)).or_else(|| self.of_all.get(&cell.code))
    }
}

/// Adds what was seen of a path, which may stand there already.
fn add(uses: &mut Vec<PathUse>, more: PathUse) {
    match uses.iter_mut().find(|known| known.path == more.path) {
        Some(known) => {
            known.accesses += more.accesses;
            known.misses += more.misses;
        }
        None => uses.push(more),
    }
}

impl Builder<'_> {
    /// The call paths of the code of these operands, by the operands' numbers; rows of paths and frames are added to the profile.
    pub(crate) fn paths_of_cells(&mut self, paths: &Paths, operands: &[(u32, CodeIx)]) -> PathsOfCells {
        let by_cell = paths.by_cell();
        let mut rows_of: FxHashMap<u32, Vec<CodeIx>> = FxHashMap::default();
        operands.iter().for_each(|&(operand, code)| rows_of.entry(operand).or_default().push(code));
        let mut found = PathsOfCells::default();
        let mut rows = PathRows::default();
        let mut keys: Vec<(u32, u32)> = by_cell.keys().copied().collect();
        keys.sort_unstable();
        for (operand, owner) in keys {
            let mut codes = rows_of.get(&operand).cloned().unwrap_or_default();
            codes.sort_unstable();
            codes.dedup();
            for code in codes {
                let end = self.frames_of_function(code);
                let of_all = found.of_all.entry(code).or_default();
                let of_owner = match self.object_of.get(&owner) {
                    Some(&object) => found.of_objects.entry((code, object)).or_default(),
                    None => found.of_others.entry(code).or_default(),
                };
                for &(path, Amount { accesses, misses }) in &by_cell[&(operand, owner)] {
                    let path = path.and_then(|path| rows.end(&paths.tree, path, &end, self));
                    add(of_owner, PathUse { path, accesses, misses });
                    add(of_all, PathUse { path, accesses, misses });
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
        let function = symbols.and_then(|symbols| symbols.function_at(offset));
        match function.zip(u16::try_from(number).ok()) {
            Some((function, number)) => self.frames_at(frame_key(number, function.start), false),
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

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: Range<u64> = 0x1000..0x9000;

    fn stack(calls: &[(u64, u64)]) -> ShadowStack {
        let mut stack = ShadowStack::new(STACK.end, STACK);
        calls.iter().for_each(|&(slot, key)| stack.call(slot, key, key));
        stack
    }

    /// The return addresses of the present path, innermost first.
    fn path(paths: &Paths) -> Option<Vec<u64>> {
        let mut at = paths.path()?;
        let mut keys = Vec::new();
        while let Some((parent, key)) = paths.tree.node(at) {
            keys.push(key);
            at = parent;
        }
        Some(keys)
    }

    #[test]
    fn calls_and_returns_of_a_window_are_followed() {
        let mut paths = Paths::new(64);
        paths.begin(&stack(&[(0x8f00, 1), (0x8e00, 2)]));
        assert_eq!(path(&paths), Some(vec![2, 1]));
        paths.enter_or_leave(true, 0x8d00, 3);
        paths.enter_or_leave(true, 0x8c00, 4);
        assert_eq!(path(&paths), Some(vec![4, 3, 2, 1]));
        paths.enter_or_leave(false, 0x8c00, 0);
        assert_eq!(path(&paths), Some(vec![3, 2, 1]));
        // A jump past two frames, and a call from there.
        paths.enter_or_leave(true, 0x8e80, 5);
        assert_eq!(path(&paths), Some(vec![5, 1]));
        // Out of all that was under way.
        paths.enter_or_leave(false, 0x8f00, 0);
        assert_eq!(path(&paths), Some(vec![]));
        // Another stack: nothing is known from there on.
        paths.enter_or_leave(true, 0x20_0000, 6);
        assert_eq!(path(&paths), None);
        paths.enter_or_leave(true, 0x8d00, 7);
        assert_eq!(path(&paths), None);
    }

    #[test]
    fn a_function_that_calls_itself_keeps_its_callers() {
        let mut paths = Paths::new(64);
        let recursion = (0..500).map(|depth| (0x8e00 - 16 * depth, 9));
        let calls: Vec<_> = [(0x8f00, 1)].into_iter().chain(recursion).collect();
        paths.begin(&stack(&calls));
        assert_eq!(path(&paths), Some(vec![9, 1]));
        assert!(paths.notes().is_empty());
        // Two that call each other.
        let calls: Vec<_> = (0..300).map(|depth| (0x8e00 - 16 * depth, depth % 2)).collect();
        paths.begin(&stack(&calls));
        assert_eq!(path(&paths).map(|keys| keys.len()), Some(MAX_PATH_FRAMES));
        assert_eq!(paths.notes().len(), 1);
    }

    #[test]
    fn both_operands_of_copies_have_paths() {
        let mut paths = Paths::new(64);
        for copy in 0..1000 {
            if paths.is_due(4096) {
                paths.ran([7, 8].into_iter(), 0, &stack(&[(0x8f00, copy % 2)]));
            }
        }
        let found = paths.by_cell();
        let of = |operand| -> f64 { found[&(operand, 0)].iter().map(|(_, amount)| amount.accesses).sum() };
        assert!(of(7) == of(8) && (of(7) / (4096.0 * 1000.0) - 1.0).abs() < 0.05, "{found:?}");
        // Two callers in turn have as much each.
        assert_eq!(found[&(7, 0)].len(), 2);
        let [first, second] = [0, 1].map(|at: usize| found[&(7, 0)][at].1.accesses);
        assert!((0.5..2.0).contains(&(first / second)), "{found:?}");
    }
}
