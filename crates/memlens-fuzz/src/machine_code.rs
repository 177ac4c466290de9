//! Machine code: its control flow, what its instructions read and write, where addresses come from, results of calls, what operands
//! touch, and detours that prefetch. All bytes are taken for x86-64, and for AArch64.

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions, Instruction};
use memlens_code::{
    Architecture, Callee, ControlFlow, FunctionCode, FunctionParts, LoopCode, Loops, Register, RegisterSet,
    SampleSkid, Step, Surroundings, Transfer, calls_alike, effects, functions_called, immediate_dominators,
    linkage_cell, points_to, result_destinations, returns_first_argument, slot_destinations,
};
use memlens_prefetch::{Detour, Function, Jump, jumps, plan};

/// Functions with more blocks are not held against the slow twins.
const MOST_BLOCKS: usize = 48;
/// Code beyond this many bytes is cut off.
const MOST_BYTES: usize = 400;
/// Bytes of a jump to anywhere within 2 GiB.
const JUMP_BYTES: usize = 5;

/// Where the second part begins in the code, and where the first part lies; then the code.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    // sum += a[index[i]]; a hash table's probes; a list; a copy; an allocation whose result is stored and returned.
    let gather = b"\x8b\x10\x48\x83\xc0\x04\xf2\x0f\x58\x04\xd6\x48\x39\xc1\x75\xf0\xc3";
    let probes =
        b"\x48\x8b\x14\xc7\x81\xe2\xff\0\0\0\x48\x8b\x0c\xd6\x48\xff\xc2\x48\x85\xc9\x75\xf4\x48\xff\xc0\
                   \x4c\x39\xc8\x75\xe2\xc3";
    let list = b"\x48\x8b\x00\x48\x03\x50\x08\x48\x85\xc0\x75\xf4\xc3";
    let copy = b"\x55\x48\x89\xe5\x48\x83\xec\x20\xf3\x48\xa5\x48\x89\x75\xf8\x48\x8b\x45\xf8\xff\x24\xc1\x90\xc9\xc3";
    let allocates = b"\x53\xbf\x18\0\0\0\xe8\xf4\x0f\0\0\x48\x85\xc0\x74\x0b\x48\x89\x05\0\x20\0\0\x48\x89\x43\x08\x5b\xc3";
    // Where the index is loaded, a jump to a cold part and back.
    let cold = b"\x8b\x10\x48\x83\xc0\x04\x85\xd2\x0f\x84\x72\0\0\0\x48\x01\x14\xd6\x48\x39\xc1\x75\xe9\xc3\
                 \x31\xd2\xe9\x87\xff\xff\xff";
    // AArch64: sum += a[index[i]]; a list; a store to a variable, one of a thread, one on the stack.
    let gather64: [u32; 8] = [
        0xb840_4423,
        0xfc60_7841,
        0xfc63_d8a0,
        0x9100_0400,
        0x1f41_0802,
        0xeb04_001f,
        0x54ff_ff41,
        0xd65f_03c0,
    ];
    let list64: [u32; 4] = [0xa940_0400, 0x8b01_0042, 0xb5ff_ffc0, 0xd65f_03c0];
    let stores64: [u32; 12] = [
        0xa9be_7bfd,
        0x9000_0017,
        0x9102_42f7,
        0x9400_0010,
        0xb400_00a0,
        0xf900_0ee0,
        0xd53b_d041,
        0x9100_6021,
        0xf900_0020,
        0xf900_0fe0,
        0xa8c2_7bfd,
        0xd65f_03c0,
    ];
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let seed = |split: u8, place: u8, code: &[u8]| [&[split, place], code].concat();
    vec![
        seed(0, 0, &words(&gather64)),
        seed(0, 1, &words(&list64)),
        seed(16, 0, &words(&stores64)),
        seed(0, 0, gather),
        seed(0, 0, probes),
        seed(0, 1, list),
        seed(0, 0, copy),
        seed(0, 0, allocates),
        seed(24, 0, cold),
    ]
}

pub(crate) fn check(bytes: &[u8]) {
    let Some((&[split, place], code)) = bytes.split_first_chunk() else { return };
    let code = &code[..code.len().min(MOST_BYTES)];
    let (first, second) = code.split_at(usize::from(split).min(code.len()));
    let (first, second) = if first.is_empty() { (second, first) } else { (first, second) };
    // Low, or as high as addresses go.
    let start = if place & 1 == 0 { 0x1000 } else { u64::MAX - 0x1000 };
    let mut parts = vec![(start, first)];
    if !second.is_empty() {
        parts.push((start + 0x80 + first.len() as u64, second));
    }
    let flow = ControlFlow::new(&parts);
    check_flow(&flow, &parts);
    if flow.blocks.len() <= MOST_BLOCKS {
        check_loops(&flow);
    }
    check_loop_code(Architecture::X86_64, &flow, &parts);
    check_points_to(&flow, &parts);
    check_detours(&parts);
    let pcs = flow.instructions.iter().map(Instruction::ip);
    check_questions(Architecture::X86_64, pcs, &parts);
    let flow = ControlFlow::of_aarch64(&parts);
    check_flow(&flow, &parts);
    if flow.blocks.len() <= MOST_BLOCKS {
        check_loops(&flow);
    }
    check_loop_code(Architecture::AArch64, &flow, &parts);
    check_questions(Architecture::AArch64, flow.instructions.iter().map(|one| one.pc), &parts);
}

/// Instructions lie in their parts; blocks partition them; edges are the same from both ends, and those that jumps name.
fn check_flow<I: Step>(flow: &ControlFlow<I>, parts: &[(u64, &[u8])]) {
    let inside = |from: u64, to: u64| {
        parts.iter().any(|&(start, code)| start <= from && to <= start + code.len() as u64)
    };
    for (at, instruction) in flow.instructions.iter().enumerate() {
        assert!(inside(instruction.pc(), instruction.next_pc()));
        assert_eq!(flow.instruction_at(instruction.pc()), Some(at));
    }
    let mut next = 0;
    for (index, block) in flow.blocks.iter().enumerate() {
        assert!(block.instructions.start == next && block.instructions.end > next, "a gap before {block:?}");
        next = block.instructions.end;
        let instructions = &flow.instructions[block.instructions.clone()];
        let (last, before) = instructions.split_last().expect("not empty");
        assert_eq!((block.start, block.end), (instructions[0].pc(), last.next_pc()));
        assert!(block.instructions.clone().all(|at| flow.block_of(at) == index));
        assert!(before.windows(2).all(|pair| pair[0].next_pc() == pair[1].pc()));
        assert!(before.iter().all(|one| {
            let transfer = one.transfer();
            transfer.target().is_none() && !matches!(transfer, Transfer::IndirectJump | Transfer::Leave)
        }));
        assert!(block.successors.is_sorted_by(|a, b| a < b) && block.predecessors.is_sorted_by(|a, b| a < b));
        for &successor in &*block.successors {
            assert!(flow.blocks[successor].predecessors.contains(&index));
        }
        for &predecessor in &*block.predecessors {
            assert!(flow.blocks[predecessor].successors.contains(&index));
        }
        if let Some(target) = last.transfer().target()
            && let Some(target) = flow.instruction_at(target)
        {
            let to = flow.block_of(target);
            assert_eq!(flow.blocks[to].instructions.start, target, "a jump into a block");
            assert!(block.successors.contains(&to));
        }
    }
    assert_eq!(next, flow.instructions.len());
}

/// Blocks that can be reached from `from` along edges, without `removed`.
fn reached<I: Step>(flow: &ControlFlow<I>, from: usize, removed: Option<usize>) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut open: Vec<usize> =
        Some(from).filter(|&from| from < flow.blocks.len() && removed != Some(from)).into_iter().collect();
    while let Some(block) = open.pop() {
        if found.insert(block) {
            open.extend(flow.blocks[block].successors.iter().filter(|&&next| removed != Some(next)));
        }
    }
    found
}

/// Dominators and loops by their definitions.
fn check_loops<I: Step>(flow: &ControlFlow<I>) {
    let reachable = reached(flow, 0, None);
    let order = flow.reverse_postorder();
    assert_eq!(order.len(), reachable.len(), "each block once");
    assert!(order.first().is_none_or(|&first| first == 0));
    assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), reachable);
    let without: Vec<BTreeSet<usize>> = (0..flow.blocks.len()).map(|b| reached(flow, 0, Some(b))).collect();
    let dominates = |a: usize, b: usize| reachable.contains(&b) && !without[a].contains(&b);
    let immediate = immediate_dominators(flow);
    for block in 0..flow.blocks.len() {
        let mut chain = BTreeSet::new();
        let mut at = Some(block).filter(|_| immediate[block].is_some());
        while let Some(dominator) = at.filter(|&at| chain.insert(at)) {
            at = immediate[dominator];
        }
        let expected: BTreeSet<_> = (0..flow.blocks.len()).filter(|&other| dominates(other, block)).collect();
        assert_eq!(chain, expected, "dominators of {block}");
    }
    let loops = Loops::new(flow);
    let mut expected = vec![BTreeSet::new(); flow.blocks.len()];
    for &header in &reachable {
        for &from in flow.blocks[header].predecessors.iter().filter(|&&from| dominates(header, from)) {
            // All that reaches the jump back without passing the header.
            let reaches =
                |&block: &usize| block == header || reached(flow, block, Some(header)).contains(&from);
            expected[header].extend(reachable.iter().copied().filter(reaches));
        }
    }
    let mut found = vec![BTreeSet::new(); flow.blocks.len()];
    for (index, one) in loops.loops.iter().enumerate() {
        assert!(one.blocks.is_sorted() && found[one.header].is_empty());
        found[one.header].extend(one.blocks.iter().copied());
        assert!(one.parent.is_none_or(|parent| parent < index));
    }
    assert_eq!(found, expected, "loops by header");
    for (block, innermost) in loops.innermost.iter().enumerate() {
        let around = loops.loops.iter().filter(|one| one.blocks.contains(&block)).map(|one| one.depth).max();
        assert_eq!(innermost.map(|index| loops.loops[index].depth), around);
        assert!(innermost.is_none_or(|index| loops.loops[index].blocks.contains(&block)));
    }
}

/// Loads that bring addresses are instructions of the function; effects are those of its instructions, and their registers have numbers.
fn check_loop_code<I: Step>(of: Architecture, flow: &ControlFlow<I>, parts: &[(u64, &[u8])]) {
    let loop_code = LoopCode::new(of, parts);
    for pc in flow.instructions.iter().map(Step::pc) {
        if let Some(memlens_code::AddressSource::LoadedBy(load)) = loop_code.address_source(pc) {
            assert!(flow.instruction_at(load).is_some());
            assert!(loop_code.loaders(pc).contains(&load));
        }
        let links = loop_code.links(pc);
        assert!(links <= parts.iter().map(|part| part.1.len()).sum(), "{links} links");
        if let Some(start) = loop_code.loop_at(pc) {
            assert!(loop_code.loop_places(start).is_some());
        }
    }
    for &(start, code) in parts {
        let found = effects(of, code, start);
        assert!(found.is_sorted_by(|one, other| one.next <= other.at));
        for it in found {
            assert!(start <= it.at && it.next <= start + code.len() as u64);
            let sets = [it.address, it.reads, it.writes, it.moves];
            assert!(sets.into_iter().flat_map(RegisterSet::iter).all(|number| number < RegisterSet::COUNT));
            assert!(it.touches_memory || it.moves == RegisterSet::default() || of == Architecture::AArch64);
        }
    }
}

/// What is told of a place is about instructions of the function.
fn check_questions(of: Architecture, pcs: impl Iterator<Item = u64>, parts: &[(u64, &[u8])]) {
    let &(start, code) = parts.first().expect("one part at least");
    let function = FunctionCode::new(of, code, start);
    for pc in pcs {
        let operands = function.operands(pc);
        assert!(operands.iter().all(|operand| operand.pc == pc && (operand.reads || operand.writes)));
        for waits in [function.waits_for(pc, SampleSkid::default()), function.sampled_access(pc)] {
            if let Some(access) = waits.access() {
                assert!(function.operands(access.operand.pc).contains(&access.operand));
                let _ = (access.address(|_| Some(u64::MAX)), access.address_in_object(|_| Some(u64::MAX)));
                let _ = access.from_thread_pointer(|_| Some(u64::MAX));
                if let Some(base) = access.address.base {
                    let _ = function.origin(pc, base, &mut |_, _| None::<()>);
                    let _ = function.root(pc, base, &mut |_, _| None::<()>, &mut |_| Some(()));
                }
            }
        }
        let _ = result_destinations(of, code, start, pc, &|_| pc % 2 == 0);
        let _ = returns_first_argument(of, code, start, &|_| pc % 2 == 0);
        let _ = slot_destinations(of, code, start, pc, (of.stack_pointer(), 24), &|_| false);
        let _ = (
            linkage_cell(of, code, start),
            calls_alike(of, code, start, pc),
            functions_called(of, code, start),
        );
        let _ = function.origin(pc, Register(1), &mut |_, _| None::<()>);
    }
}

/// A program of which nothing is known but that some code allocates.
struct Nothing;

impl Surroundings for Nothing {
    fn callee(&self, svma: u64) -> Callee {
        if svma == 0x2000 { Callee::Allocates } else { Callee::Unknown }
    }

    fn imported(&self, _: u64) -> Option<Callee> {
        None
    }

    fn data_start(&self, svma: u64) -> Option<u64> {
        (0x3000..0x4000).contains(&svma).then_some(0x3000)
    }
}

/// Operands are in the order of the code, and what they touch has been made an object.
fn check_points_to(flow: &ControlFlow, parts: &[(u64, &[u8])]) {
    // The parts once as one function, once as two.
    let whole = vec![FunctionParts { parts: parts.to_vec() }];
    let apart = parts.iter().map(|&part| FunctionParts { parts: vec![part] }).collect();
    for functions in [whole, apart] {
        let found = points_to(&functions, &[(0x3008, parts[0].0)], &Nothing);
        assert_eq!(found.functions.len(), functions.len());
        for (_, touched) in found.functions.values() {
            for touched in touched {
                assert!(flow.instruction_at(touched.pc).is_some(), "no instruction at {:#x}", touched.pc);
                assert!(touched.reads || touched.writes);
                assert!(touched.pointers.iter().all(|to| (to.object.0 as usize) < found.objects.len()));
            }
        }
    }
}

/// Detours stand where nothing jumps to, replace whole instructions, and are the same code wherever they lie.
fn check_detours(parts: &[(u64, &[u8])]) {
    let mut all: Vec<Jump> = parts.iter().flat_map(|&(start, code)| jumps(start, code)).collect();
    all.sort_unstable();
    let Ok(function) = Function::new(parts, &all) else { return };
    let flow = ControlFlow::new(parts);
    let targets: Vec<u64> = flow.instructions.iter().map(Instruction::ip).collect();
    let plan = plan(&function, &targets, &all);
    let done = plan.detours.iter().flat_map(|detour| detour.prefetches.iter().map(|one| one.target));
    let mut answered: Vec<u64> = done.chain(plan.refused.iter().map(|refused| refused.0)).collect();
    answered.sort_unstable();
    let mut asked = targets;
    asked.sort_unstable();
    assert_eq!(answered, asked, "each is prefetched or refused");
    let mut end = 0;
    for detour in &plan.detours {
        assert!(detour.address >= end, "detours lie over each other");
        end = detour.address + detour.displaced.len() as u64;
        check_detour(detour, &flow, parts, &all);
    }
}

fn check_detour(detour: &Detour, flow: &ControlFlow, parts: &[(u64, &[u8])], jumps: &[Jump]) {
    let end = detour.address + detour.displaced.len() as u64;
    assert!(detour.displaced.len() >= JUMP_BYTES);
    let holds = |part: &&(u64, &[u8])| part.0 <= detour.address && end <= part.0 + part.1.len() as u64;
    let (start, code) = *parts.iter().find(holds).expect("in one part");
    let from = (detour.address - start) as usize;
    assert_eq!(code[from..from + detour.displaced.len()], detour.displaced);
    let block = flow.block_of(flow.instruction_at(detour.address).expect("where an instruction begins"));
    assert!(end <= flow.blocks[block].end, "in one block");
    assert!(!jumps.iter().any(|jump| detour.address < jump.to && jump.to < end), "nothing jumps into it");
    // At two places, the code differs in distances to places outside only.
    let place = end.wrapping_add(1 << 20);
    let (moved_by, distance) = (0x1230_u64, detour.max_distance);
    let (Ok(here), Ok(there)) =
        (detour.encode(distance, place), detour.encode(distance, place.wrapping_add(moved_by)))
    else {
        return;
    };
    let mut moved = here.bytes.clone();
    for &at in &here.relocations {
        let field = &mut moved[at as usize..at as usize + 4];
        let value = u32::from_le_bytes([field[0], field[1], field[2], field[3]]);
        field.copy_from_slice(&value.wrapping_sub(moved_by as u32).to_le_bytes());
    }
    assert_eq!((&moved, &here.relocations), (&there.bytes, &there.relocations));
    // What it displaces is in it, in order.
    let mnemonics = |bytes: &[u8], at: u64| -> Vec<_> {
        Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).iter().map(|one| one.mnemonic()).collect()
    };
    let mut inside = mnemonics(&here.bytes, place).into_iter();
    for mnemonic in mnemonics(&detour.displaced, detour.address) {
        assert!(inside.any(|one| one == mnemonic), "{mnemonic:?} is lost");
    }
}
