//! Recursion in call stacks: what a function allocates in its own calls belongs together, however deep they are.

use rustc_hash::FxHashMap;

use crate::module::SourceFrame;

/// A function, by its name and file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Function(u32);

/// A call in a function: line and column, where they are known.
type Call = (Function, Option<u32>, Option<u32>);

/// What is known of a return address.
#[derive(Clone, Copy, Debug)]
struct ReturnAddress {
    /// The address that stands for it: of the copies of one call that a compiler makes where it inlines a function into
    /// itself, the first that was met.
    stands_for: u64,
    /// The function that all of the inlined calls there are of.
    only: Option<Function>,
    /// The function of the code.
    outermost: Option<Function>,
}

/// Folds the direct recursion of call stacks: where a function was called by itself, from whatever line, only the
/// innermost of these calls stays; and where it is inlined into itself, the copies of a call count as one.
///
/// Recursion through other functions stays as it is, as does that of code whose functions are not known, but
/// for calls from one and the same place.
///
/// Cost: for each address of a stack one look into a table, and at its first time what `locate` costs.
#[derive(Debug, Default)]
pub struct Recursion {
    addresses: FxHashMap<u64, ReturnAddress>,
    functions: FxHashMap<(String, Option<String>), Function>,
    /// By the calls of an address, innermost first and without recursion: which address stands for them, and whether only
    /// copies do so yet.
    calls: FxHashMap<Vec<Call>, (u64, bool)>,
}

impl Recursion {
    /// Folds a stack of return addresses, innermost first, each as a key; `locate` knows the source frames of a key's call,
    /// innermost first.
    pub fn fold(&mut self, keys: &mut Vec<u64>, mut locate: impl FnMut(u64) -> Vec<SourceFrame>) {
        let mut inside = None;
        let mut last = None;
        keys.retain_mut(|key| {
            if last == Some(*key) {
                return false;
            }
            last = Some(*key);
            let address = match self.addresses.get(key) {
                Some(&address) => address,
                None => self.look_up(*key, &locate(*key)),
            };
            *key = address.stands_for;
            let is_recursion = address.only.is_some() && address.only == inside;
            if !is_recursion {
                inside = address.outermost;
            }
            !is_recursion
        });
    }

    fn look_up(&mut self, key: u64, frames: &[SourceFrame]) -> ReturnAddress {
        let function_of = |frame: &SourceFrame, functions: &mut FxHashMap<_, _>| {
            let next = Function(functions.len() as u32);
            Some(*functions.entry((frame.function.clone()?, frame.file.clone())).or_insert(next))
        };
        let functions: Option<Vec<Function>> =
            frames.iter().map(|frame| function_of(frame, &mut self.functions)).collect();
        let address = match functions.filter(|functions| !functions.is_empty()) {
            Some(functions) => {
                let mut folded: Vec<Call> = Vec::new();
                for (function, frame) in functions.iter().zip(frames) {
                    if folded.last().is_none_or(|(inner, ..)| inner != function) {
                        folded.push((*function, frame.line, frame.column));
                    }
                }
                let only = (folded.len() == 1).then_some(functions[0]);
                let outermost = functions.last().copied();
                let is_copy = folded.len() < frames.len();
                let known = folded.iter().all(|(_, line, _)| line.is_some());
                let stands_for = match self.calls.get_mut(&folded) {
                    // Two calls of one line are no copies of each other.
                    Some((first, only_copies)) if is_copy || *only_copies => {
                        *only_copies &= is_copy;
                        *first
                    }
                    None if known => self.calls.entry(folded).or_insert((key, is_copy)).0,
                    _ => key,
                };
                ReturnAddress { stands_for, only, outermost }
            }
            None => ReturnAddress { stands_for: key, only: None, outermost: None },
        };
        self.addresses.insert(key, address);
        address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames spelled as `function:line`, innermost first.
    fn frames(text: &str) -> Vec<SourceFrame> {
        text.split_whitespace()
            .map(|frame| {
                let (function, line) = frame.split_once(':').expect("a line");
                SourceFrame {
                    function: Some(function.into()),
                    file: Some("tree.c".into()),
                    line: line.parse().ok(),
                    column: None,
                }
            })
            .collect()
    }

    fn folded(recursion: &mut Recursion, stack: &[(u64, &str)]) -> Vec<u64> {
        let mut keys: Vec<u64> = stack.iter().map(|(key, _)| *key).collect();
        recursion.fold(&mut keys, |key| {
            stack.iter().find(|(of, _)| *of == key).map(|(_, text)| frames(text)).unwrap_or_default()
        });
        keys
    }

    #[test]
    fn a_function_that_calls_itself_from_two_lines_stands_once() {
        let mut recursion = Recursion::default();
        let (alloc, left, right) = ((1, "insert:5"), (2, "insert:6"), (3, "insert:7"));
        let main = (9, "main:20");
        assert_eq!(folded(&mut recursion, &[alloc, main]), [1, 9]);
        assert_eq!(folded(&mut recursion, &[alloc, left, right, left, left, right, main]), [1, 9]);
        // Through another function it is other work.
        let visit = (4, "visit:30");
        assert_eq!(folded(&mut recursion, &[alloc, left, visit, right, left, main]), [1, 4, 3, 9]);
    }

    #[test]
    fn copies_of_a_call_that_was_inlined_into_itself_are_one() {
        let mut recursion = Recursion::default();
        let main = (9, "main:20");
        assert_eq!(folded(&mut recursion, &[(1, "insert:5"), main]), [1, 9]);
        assert_eq!(
            folded(&mut recursion, &[(7, "insert:5 insert:6 insert:7"), (8, "insert:6 insert:6"), main]),
            [1, 9]
        );
        assert_eq!(folded(&mut recursion, &[(10, "grow:5 grow:6"), main]), [10, 9]);
        assert_eq!(folded(&mut recursion, &[(11, "grow:5"), main]), [10, 9]);
        // Two calls in one line are two.
        assert_eq!(folded(&mut recursion, &[(5, "make:3"), main]), [5, 9]);
        assert_eq!(folded(&mut recursion, &[(6, "make:3"), main]), [6, 9]);
    }

    #[test]
    fn of_code_without_names_equal_calls_are_folded() {
        let mut recursion = Recursion::default();
        assert_eq!(folded(&mut recursion, &[(1, ""), (2, ""), (2, ""), (2, ""), (3, "")]), [1, 2, 3]);
        let mut keys = vec![];
        recursion.fold(&mut keys, |_| Vec::new());
        assert!(keys.is_empty());
    }
}
