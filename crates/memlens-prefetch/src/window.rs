//! Where detours go: loads that share a source share one, and none lie over each other.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};

use crate::detour::{Detour, Piece};
use crate::function::{Function, Loop};
use crate::slice::{Pattern, Refusal, Slice, needs_its_own};

/// Bytes of a jump to anywhere within 2 GiB.
pub(crate) const JUMP_BYTES: usize = 5;
/// Instructions that are displaced, at most.
const MAX_MOVED: usize = 6;

/// What is done for one load or store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefetch {
    /// Address (svma) of its instruction.
    pub target: u64,
    /// Where its loop begins.
    pub loop_start: u64,
    /// How its address follows from the iteration.
    pub pattern: Pattern,
}

/// What is done in a function.
#[derive(Debug, Default)]
pub struct Plan {
    /// Detours, by address.
    pub detours: Vec<Detour>,
    /// Loads for which nothing is done.
    pub refused: Vec<(u64, Refusal)>,
}

/// Plans prefetches for some instructions of a function, given by their addresses (svma), the most important first.
/// `jumps` are those of the module, by where they go, as [`jumps`] finds them.
pub fn plan(function: &Function, targets: &[u64], jumps: &[Jump]) -> Plan {
    let is_entered = |address: u64| -> bool {
        jumps.get(jumps.partition_point(|jump| jump.to < address)).is_some_and(|jump| jump.to == address)
    };
    let mut plan = Plan::default();
    // By loop and the last of the slice's loads.
    let mut groups: BTreeMap<(usize, Option<usize>), Vec<Found>> = BTreeMap::new();
    let mut order = Vec::new();
    for &target in targets {
        match find(function, target) {
            Ok(found) => {
                let key = (found.looped, found.after.or(found.strided_at));
                if !groups.contains_key(&key) {
                    order.push(key);
                }
                groups.entry(key).or_default().push(found);
            }
            Err(refusal) => plan.refused.push((target, refusal)),
        }
    }
    let mut taken: Vec<std::ops::Range<usize>> = Vec::new();
    for key in order {
        let found = groups.remove(&key).unwrap_or_default();
        let view = function.looped(key.0);
        match place(&view, &found, &taken, &is_entered) {
            Ok((detour, range)) => {
                taken.push(range);
                plan.detours.push(detour);
            }
            Err(refusal) => {
                plan.refused.extend(found.iter().map(|found| (found.prefetch.target, refusal.clone())));
            }
        }
    }
    plan.detours.sort_by_key(|detour| detour.address);
    plan
}

struct Found {
    looped: usize,
    prefetch: Prefetch,
    position: usize,
    slice: Slice,
    /// The last load that has to be made before.
    after: Option<usize>,
    /// Of a strided one: itself.
    strided_at: Option<usize>,
}

fn find(function: &Function, target: u64) -> Result<Found, Refusal> {
    let position = function.flow.instruction_at(target).ok_or(Refusal::NoAccess)?;
    if !function.facts[position].touches_memory {
        return Err(Refusal::NoAccess);
    }
    let mut looped = function.loops.innermost[function.flow.block_of(position)];
    let mut first = Err(Refusal::NoLoop);
    let mut is_first = true;
    // A load may be strided in the innermost loop, for a few iterations, and indirect in the one around it.
    while let Some(index) = looped {
        let found = find_in(function, index, position, target);
        match found {
            Ok(found) if matches!(found.prefetch.pattern, Pattern::Indirect { .. }) => return Ok(found),
            found if is_first => first = found,
            Ok(found) if first.is_err() => first = Ok(found),
            _ => {}
        }
        is_first = false;
        looped = function.loops.loops[index].parent;
    }
    first
}

fn find_in(function: &Function, index: usize, position: usize, target: u64) -> Result<Found, Refusal> {
    let view = function.looped(index);
    let (pattern, slice) = view.slice(position)?;
    let strided_at = matches!(pattern, Pattern::Strided { .. }).then_some(position);
    // Loads that the program must have made before they are repeated, or made for a later iteration.
    let flow = &function.flow;
    let mut needed: Vec<usize> = slice.roots.iter().map(|&(root, _)| root).collect();
    needed.extend(slice.reloads.iter().filter(|&&at| needs_its_own(&flow.instructions[at])));
    let mut after: Option<usize> = None;
    for &load in &needed {
        after = Some(match after {
            None => load,
            Some(last) if function.precedes(last, load) => load,
            Some(last) if function.precedes(load, last) => last,
            Some(_) => return Err(Refusal::SeveralPaths),
        });
    }
    let blocks = needed.iter().map(|&load| flow.block_of(load));
    if blocks.clone().min() != blocks.max() && view.calls() {
        return Err(Refusal::Call);
    }
    if let Some(first) = needed.iter().min()
        && let Some(last) = after
        && flow.block_of(*first) == flow.block_of(last)
        && (*first..last).any(|at| function.facts[at].is_call)
    {
        return Err(Refusal::Call);
    }
    // Without loads: in the block of the target.
    let strided_at = strided_at.or((after.is_none()).then_some(position));
    let prefetch = Prefetch { target, loop_start: view.address(), pattern };
    Ok(Found { looped: index, prefetch, position, slice, after, strided_at })
}

/// Finds a place for some prefetches that need the same load, and makes their detour.
fn place(
    view: &Loop<'_>,
    found: &[Found],
    taken: &[std::ops::Range<usize>],
    is_entered: &impl Fn(u64) -> bool,
) -> Result<(Detour, std::ops::Range<usize>), Refusal> {
    let function = view.function;
    let anchor = found[0].after.or(found[0].strided_at).ok_or(Refusal::NoWindow)?;
    let needs_load = found[0].after.is_some();
    let block = &function.flow.blocks[function.flow.block_of(anchor)];
    let all = block.instructions.clone();
    // The code may stand in front of any instruction behind the load, as long as nothing is called.
    let first_place = if needs_load { anchor + 1 } else { all.start };
    let mut candidates = Vec::new();
    for begin in all.clone() {
        for end in begin + 1..=all.end.min(begin + MAX_MOVED) {
            let range = begin..end;
            if !is_movable(function, &range, is_entered) || taken.iter().any(|other| overlap(other, &range)) {
                continue;
            }
            for place in range.clone() {
                let called = needs_load && (anchor..place).any(|at| function.facts[at].is_call);
                if place < first_place || called {
                    continue;
                }
                let faults = range.clone().filter(|&at| function.facts[at].touches_memory).count();
                let branches =
                    usize::from(function.flow.instructions[end - 1].flow_control() != FlowControl::Next);
                let (_, has_flags) = function.live_at(place);
                // In a running process a thread may be between two instructions that the jump replaces.
                let is_split = function.flow.instructions[begin].len() < JUMP_BYTES;
                candidates.push((
                    (has_flags, 2 * faults + branches, is_split, range.len(), begin, place),
                    range.clone(),
                ));
            }
        }
    }
    candidates.sort_by_key(|candidate| candidate.0);
    let mut refusal = Refusal::NoWindow;
    for ((.., place), range) in candidates {
        let pieces: Vec<Piece<'_>> = found
            .iter()
            .map(|found| Piece { prefetch: &found.prefetch, position: found.position, slice: &found.slice })
            .collect();
        match Detour::new(view, &pieces, range.clone(), place) {
            Ok(detour) => return Ok((detour, range)),
            Err(other) => refusal = other,
        }
    }
    Err(refusal)
}

fn overlap(first: &std::ops::Range<usize>, second: &std::ops::Range<usize>) -> bool {
    first.start < second.end && second.start < first.end
}

/// Whether instructions can be displaced by a jump.
fn is_movable(
    function: &Function,
    range: &std::ops::Range<usize>,
    is_entered: &impl Fn(u64) -> bool,
) -> bool {
    let instructions = &function.flow.instructions[range.clone()];
    let bytes: usize = instructions.iter().map(|instruction| instruction.len()).sum();
    let last = range.end - 1;
    bytes >= JUMP_BYTES
        && range.clone().zip(instructions).all(|(at, instruction)| {
            let is_plain = instruction.flow_control() == FlowControl::Next;
            let is_jump = at == last
                && matches!(
                    instruction.flow_control(),
                    FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
                )
                // Those have no form with a long distance.
                && !instruction.is_loop()
                && !instruction.is_loopcc()
                && !instruction.is_jcx_short();
            (is_plain || is_jump)
                && !function.facts[at].is_call
                && !matches!(instruction.mnemonic(), Mnemonic::Pushfq | Mnemonic::Popfq)
                && (at == range.start || !is_entered(instruction.ip()))
        })
        // Nor the middle of one.
        && instructions.iter().all(|instruction| {
            (instruction.ip() + 1..instruction.next_ip()).all(|address| !is_entered(address))
        })
}

/// A direct jump or call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Jump {
    /// Where it goes (svma).
    pub to: u64,
    /// Where it is (svma).
    pub from: u64,
}

/// All direct jumps and calls in some code, by where they go. What is no instruction is passed over byte by byte. Linear.
pub fn jumps(start: u64, code: &[u8]) -> Vec<Jump> {
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut jumps = Vec::new();
    while decoder.can_decode() {
        let at = decoder.position();
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            if decoder.set_position(at + 1).is_err() {
                break;
            }
            decoder.set_ip(start + at as u64 + 1);
            continue;
        }
        if matches!(
            instruction.flow_control(),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch | FlowControl::Call
        ) {
            jumps.push(Jump { to: instruction.near_branch_target(), from: instruction.ip() });
        }
    }
    jumps.sort_unstable();
    jumps
}
