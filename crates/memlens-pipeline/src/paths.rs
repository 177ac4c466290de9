//! Through which calls the accesses of windows came: the shadow stack at a window's begin, followed through the window's calls and returns.
//!
//! An access to a line, or page, that windows did not use lately is taken for one that misses.

use std::collections::BTreeMap;
use std::ops::Range;

use memlens_locality::{StandInSizes, StandIns};
use memlens_objects::frame_key;
use memlens_profile::{
    CallPaths, Cell, CodeIx, CodeLocation, FrameIx, FramesOfCalls, LevelMisses, MAX_PATH_FRAMES, ObjectIx,
    PathAmount, PathAmounts, PathId, PathIx, PathRows, PathUse, Profile,
};
use memlens_sim::{MachineDescription, TlbDescription};
use rustc_hash::FxHashMap;

use crate::shadow_stack::{Frame, ShadowStack};
use crate::snapshot::Builder;

/// Triples of an operand, an owner and a path at most, some 80 bytes each.
const MOST_TRIPLES: usize = 1 << 16;

/// Elements of string instructions after which the next one is looked at, on average: by chance, so that no copies keep step with it.
const ELEMENTS: u64 = 1 << 16;

/// The numbers of an operand and of an object, as windows have them, with a path; `None`: it is not known.
type Triple = (u32, u32, Option<PathId>);

/// For how much paths of a profile stand.
type PathSums = BTreeMap<Option<PathIx>, PathAmount>;

/// The heaviest paths of these.
fn uses(sums: PathSums, most: usize) -> Vec<PathUse> {
    let uses =
        sums.into_iter().map(|(path, PathAmount { accesses, misses })| PathUse::new(path, accesses, misses));
    PathUse::heaviest(uses.collect(), most)
}

/// What was seen of call paths.
#[derive(Debug)]
pub struct Paths {
    tree: CallPaths<u64>,
    triples: PathAmounts<Triple>,
    stand_ins: StandIns,
    /// What the present window's accesses are of, and how likely they miss.
    seen: Vec<(Triple, LevelMisses)>,
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
}

impl Paths {
    /// None yet, of a machine.
    pub fn new(machine: &MachineDescription) -> Self {
        let pages = |tlb: &Option<TlbDescription>| {
            tlb.as_ref().and_then(|tlb| tlb.by_page_size()[0]).map_or(0, |size| u64::from(size.entries))
        };
        let lines = |bytes: u64| bytes / u64::from(machine.line_bytes.max(1));
        let sizes = StandInSizes {
            line_bytes: machine.line_bytes,
            page_bytes: machine.page_bytes,
            l1: lines(machine.l1d.bytes),
            l2: machine.l2.as_ref().map_or(0, |l2| lines(l2.bytes)),
            llc: lines(machine.llc.bytes),
            dtlb: pages(&machine.dtlb),
            stlb: pages(&machine.stlb),
        };
        Self {
            tree: CallPaths::default(),
            triples: PathAmounts::with_room(MOST_TRIPLES),
            stand_ins: StandIns::new(&sizes),
            seen: Vec::new(),
            calls: Vec::new(),
            outermost: None,
            stack: 0..0,
            elements: 0,
            due: ELEMENTS / 2,
            random: 0,
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

    /// An operand's access of an owner.
    pub fn saw(&mut self, (operand, owner): (u32, u32), address: u64) {
        let misses = self.stand_ins.access(address);
        self.seen.push(((operand, owner, self.path()), misses));
    }

    /// The window ends; its accesses stand for so many. Windows of threads that take turns are shorter than others.
    pub fn end(&mut self, accesses: u64) {
        let weight = accesses as f64 / self.seen.len().max(1) as f64;
        self.triples.add_all(&self.seen, |&misses| PathAmount { accesses: 1.0, misses } * weight);
        self.seen.clear();
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
            let amount = PathAmount { accesses: elements, misses: [elements; 5] };
            self.triples.add((operand, owner, self.path()), amount);
        }
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
        notes.extend(self.triples.note());
        notes
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

/// Paths of an operand and an object at most …
const MOST_PATHS: usize = 32;
/// … and of what an operand accesses that no window met.
const MOST_PATHS_OF_OTHERS: usize = 2;

/// What paths say of a profile's cells.
#[derive(Default)]
pub(crate) struct PathsOfCells {
    /// By row of code and object.
    of_objects: FxHashMap<(CodeIx, ObjectIx), Vec<PathUse>>,
    /// By row of code: of objects that windows do not tell apart, if there are any, else of all.
    of_others: FxHashMap<CodeIx, Vec<PathUse>>,
}

impl PathsOfCells {
    /// What was seen of a cell's operand and object, else of the operand and objects that are not told apart, else of all that it accesses.
    pub(crate) fn of(&self, cell: &Cell) -> Option<&Vec<PathUse>> {
        self.of_objects.get(&(cell.code, cell.object)).or_else(|| self.of_others.get(&cell.code))
    }
}

impl Builder<'_> {
    /// The call paths of the code of these operands, by the operands' numbers; rows of paths and frames are added to the profile.
    pub(crate) fn paths_of_cells(&mut self, paths: &Paths, operands: &[(u32, CodeIx)]) -> PathsOfCells {
        // By operand's number.
        let mut rows_of: Vec<(u32, CodeIx)> = operands.to_vec();
        rows_of.sort_unstable();
        rows_of.dedup();
        let mut triples: Vec<(Triple, PathAmount)> = paths.triples.iter().collect();
        triples.sort_unstable_by_key(|(triple, _)| *triple);
        let mut found = PathsOfCells::default();
        let mut rows = PathRows::default();
        for of_operand in triples.chunk_by(|((one, ..), _), ((other, ..), _)| one == other) {
            let operand = of_operand[0].0.0;
            let first = rows_of.partition_point(|(number, _)| *number < operand);
            let codes = rows_of[first..].iter().take_while(|(number, _)| *number == operand);
            for &(_, code) in codes {
                let end = self.frames_of_function(code);
                let (mut of_all, mut of_others) = (PathSums::default(), PathSums::default());
                for of_owner in of_operand.chunk_by(|((_, one, _), _), ((_, other, _), _)| one == other) {
                    let object = self.object_of.get(&of_owner[0].0.1).copied();
                    let mut of_object = PathSums::default();
                    for &((.., path), amount) in of_owner {
                        let path = path.and_then(|path| rows.end(&paths.tree, path, &end, self));
                        let of_this = if object.is_some() { &mut of_object } else { &mut of_others };
                        *of_this.entry(path).or_default() += amount;
                        *of_all.entry(path).or_default() += amount;
                    }
                    if let Some(object) = object {
                        found.of_objects.insert((code, object), uses(of_object, MOST_PATHS));
                    }
                }
                // Locals are among what is not told apart.
                let others = match of_others.is_empty() {
                    true => uses(of_all, MOST_PATHS_OF_OTHERS),
                    false => uses(of_others, MOST_PATHS),
                };
                found.of_others.insert(code, others);
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
        let mut paths = Paths::new(&MachineDescription::named("e5504").expect("shipped"));
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
        let mut paths = Paths::new(&MachineDescription::named("e5504").expect("shipped"));
        let recursion = (0..500).map(|depth| (0x8e00 - 16 * depth, 9));
        let calls: Vec<_> = [(0x8f00, 1)].into_iter().chain(recursion).collect();
        paths.begin(&stack(&calls));
        assert_eq!(path(&paths), Some(vec![9, 1]));
        assert!(paths.notes().is_empty());
        // Two that call each other.
        let calls: Vec<_> = (0..300).map(|depth| (0x8e00 - 16 * depth, depth % 2)).collect();
        paths.begin(&stack(&calls));
        assert_eq!(path(&paths), Some(vec![1, 0]));
        assert!(paths.notes().is_empty());
        // All of them different.
        let calls: Vec<_> = (0..2000).map(|depth| (0x8e00 - 8 * depth, depth)).collect();
        paths.begin(&stack(&calls));
        assert_eq!(path(&paths).map(|keys| keys.len()), Some(MAX_PATH_FRAMES));
        assert_eq!(paths.notes().len(), 1);
    }

    #[test]
    fn both_operands_of_copies_have_paths() {
        let mut paths = Paths::new(&MachineDescription::named("e5504").expect("shipped"));
        for copy in 0..1000 {
            if paths.is_due(4096) {
                paths.ran([7, 8].into_iter(), 0, &stack(&[(0x8f00, copy % 2)]));
            }
        }
        let of = |operand| -> Vec<f64> {
            let of_operand = paths.triples.iter().filter(|((number, ..), _)| *number == operand);
            of_operand.map(|(_, amount)| amount.accesses).collect()
        };
        let (from, to) = (of(7), of(8));
        let (sum, other): (f64, f64) = (from.iter().sum(), to.iter().sum());
        assert!((sum - other).abs() < 1.0 && (sum / (4096.0 * 1000.0) - 1.0).abs() < 0.05, "{from:?} {to:?}");
        // Two callers in turn have as much each.
        assert!(from.len() == 2 && (0.5..2.0).contains(&(from[0] / from[1])), "{from:?}");
    }
}
