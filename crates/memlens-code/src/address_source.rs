//! Where the address of a memory operand in a loop comes from: computed, loaded by another operand, or loaded by
//! itself.

use std::collections::VecDeque;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use rustc_hash::FxHashSet;

use crate::control_flow::ControlFlow;
use crate::loops::{Loops, NaturalLoop};

/// Loads that are told of one operand's address.
const MOST_LOADERS: usize = 4;
/// Steps back for one operand, over all ways.
const MOST_VISITS: usize = 4000;
/// Loads whose addresses are loaded, one behind the other.
const MOST_LOADS: usize = 8;

/// Where the address of a memory operand comes from, within the innermost loop around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// What is loaded there becomes, with constants added, the next address: a list, a tree.
    Chain,
    /// The value that the load at this address (svma) brings is an index or a pointer in it: `A[B[i]]`.
    LoadedBy(u64),
    /// From what the loop does not load: induction variables, invariant bases.
    Computed,
}

/// Where the iterations of a loop, and the times that it is come to, are to be counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopPlaces {
    /// The memory operands of the loop (svma), those of inner loops apart: what is met most is met once an iteration.
    pub inside: Vec<u64>,
    /// Memory operands (svma) that are met whenever the loop is come to, the nearest first. They may also be met where the loop then has
    /// nothing to do. Where the loop around it has none besides, those before that one: it only repeats this one.
    pub before: Vec<u64>,
    /// The function's returns (svma), if the loop is in no other: together they are met as often, if there is nothing in `before`.
    pub returns: Vec<u64>,
    /// Blocks from which the loop is left: a search has one where it has found something, and one where there is nothing more.
    pub exits: usize,
}

/// A function's loops, for questions about its operands. Cost: linear in the function, but for dominators.
#[derive(Debug)]
pub struct LoopCode {
    flow: ControlFlow,
    loops: Loops,
    /// By instruction.
    effects: Vec<Effects>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Effects {
    /// Registers read; those of address operands are not among them.
    reads: Registers,
    writes: Registers,
    /// Base and index of what it loads from, if it loads.
    address: Option<Registers>,
    is_frame: bool,
    is_call: bool,
    has_memory: bool,
}

/// Full general and vector registers, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Registers(u64);

/// The bit of the first vector register: the general ones come before.
const FIRST_VECTOR: usize = 16;
/// Registers that calls keep (System V ABI AMD64 1.0, section 3.2.1): rbx, rsp, rbp, r12 to r15.
const KEPT_IN_CALLS: Registers = Registers(1 << 3 | 1 << 4 | 1 << 5 | 0xf << 12);

impl Registers {
    fn insert(&mut self, register: Register) {
        let register = register.full_register();
        if register.is_gpr64() {
            self.0 |= 1 << register.number();
        } else if register.is_vector_register() {
            self.0 |= 1 << (FIRST_VECTOR + register.number());
        }
    }

    fn contains(self, bit: u32) -> bool {
        self.0 >> bit & 1 == 1
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The bits of its registers.
    fn bits(self) -> impl Iterator<Item = u32> {
        (0..u64::BITS).filter(move |&bit| self.contains(bit))
    }
}

impl LoopCode {
    /// The function, of x86-64, whose pieces these are; see [`ControlFlow::new`].
    pub fn new(parts: &[(u64, &[u8])]) -> Self {
        let flow = ControlFlow::new(parts);
        let loops = Loops::new(&flow);
        let mut factory = InstructionInfoFactory::new();
        let all = &flow.instructions;
        // A piece without the function's begin may have one that it does not show.
        let has_frame_pointer = all.iter().any(sets_frame_pointer) || !all.iter().any(sets_rbp);
        let effect = |it| Effects::of(it, has_frame_pointer, &mut factory);
        let effects = flow.instructions.iter().map(effect).collect();
        Self { flow, loops, effects }
    }

    /// Where the address of the memory operand of the instruction at `pc` comes from; None: it is in no loop, there is
    /// no such instruction, or its operand has no registers.
    pub fn address_source(&self, pc: u64) -> Option<AddressSource> {
        let (at, around, first) = self.operand(pc)?;
        let Some(loader) = self.loader(at, around, first) else { return Some(AddressSource::Computed) };
        // A chain is closed where a load's address comes from itself.
        let (mut load, mut seen) = (loader, FxHashSet::default());
        for _ in 0..MOST_LOADS {
            if load == at || !seen.insert(load) {
                return Some(AddressSource::Chain);
            }
            let Some(registers) = self.effects[load].address else { break };
            match self.loader(load, around, registers) {
                Some(next) => load = next,
                None => break,
            }
        }
        Some(AddressSource::LoadedBy(self.flow.instructions[loader].ip()))
    }

    /// The loads in the loop that bring parts of the address of the memory operand of the instruction at `pc`, the nearest first: the one
    /// of [`AddressSource::LoadedBy`], and others beside it. A base that is loaded again in each iteration may be nearer than the index.
    pub fn loaders(&self, pc: u64) -> Vec<u64> {
        let Some((at, around, registers)) = self.operand(pc) else { return Vec::new() };
        let found = self.nearest_loads(at, around, registers, MOST_LOADERS);
        found.into_iter().map(|load| self.flow.instructions[load].ip()).collect()
    }

    /// How many links of a node lead on, of an operand of an [`AddressSource::Chain`]: one of a list or of a hash table's bucket, two and
    /// more of a tree or of a skip list; 0 of others.
    pub fn links(&self, pc: u64) -> usize {
        self.operand(pc).map_or(0, |operand| self.way(operand).0)
    }

    /// How many links lead on from a node that an operand touches, and the loop in which the way along them goes on: that around the operand, or the
    /// next, where that one chooses the links that the inner one follows, as for the levels of a skip list.
    fn way(&self, (at, around, registers): (usize, usize, Registers)) -> (usize, usize) {
        // The registers that links come in: another one is the base of an array that the nodes are in.
        let is_linked = |&one: &u32| self.loader(at, around, Registers(1 << one)).is_some();
        let linked = registers.bits().filter(is_linked).fold(0, |all, one| all | 1 << one);
        let loads = self.nearest_loads(at, around, Registers(linked), MOST_LOADERS);
        let loads: Vec<&Instruction> = loads.iter().map(|&load| &self.flow.instructions[load]).collect();
        // Of `child[side]` both change, the node and the side.
        let changes = |looped, register| register != Register::None && self.changes(looped, register);
        let chooses = |looped: &usize| {
            let is_choice = |load: &&Instruction| {
                changes(around, load.memory_base()) && changes(*looped, load.memory_index())
            };
            loads.iter().any(is_choice)
        };
        let offsets: FxHashSet<u64> = loads.iter().map(|load| load.memory_displacement64()).collect();
        let chooser = [Some(around), self.loops.loops[around].parent].into_iter().flatten().find(chooses);
        (offsets.len().max(if chooser.is_some() { 2 } else { 0 }), chooser.unwrap_or(around))
    }

    /// The address (svma) at which the innermost loop around the instruction at `pc` begins, or the next one, in which the way along links goes on that
    /// it follows; None: it is in none.
    pub fn loop_at(&self, pc: u64) -> Option<u64> {
        let around = match self.operand(pc) {
            Some(operand) => self.way(operand).1,
            None => self.loops.innermost[self.flow.block_of(self.flow.instruction_at(pc)?)]?,
        };
        Some(self.flow.blocks[self.loops.loops[around].header].start)
    }

    /// Of the loop that begins at `start` (svma).
    pub fn loop_places(&self, start: u64) -> Option<LoopPlaces> {
        let header = self.flow.block_of(self.flow.instruction_at(start)?);
        let around = self.loops.loops.iter().position(|one| one.header == header)?;
        let NaturalLoop { blocks, parent, .. } = &self.loops.loops[around];
        let innermost = |block: usize| self.loops.innermost[block];
        let place = |at: usize| self.flow.instructions[at].ip();
        let operands = |block: usize| {
            let has_memory = |at: &usize| self.effects[*at].has_memory;
            self.flow.blocks[block].instructions.clone().filter(has_memory).map(place)
        };
        let own = blocks.iter().copied().filter(|&block| innermost(block) == Some(around));
        // Loops around this one; another loop that comes before is gone through more often than once.
        let is_around = |mut one: Option<usize>, inner: Option<usize>| loop {
            match one {
                _ if one == inner => return true,
                Some(outer) => one = self.loops.loops[outer].parent,
                None => return false,
            }
        };
        let around_it = parent.map(|parent| self.loops.loops[parent].header);
        let (mut before, mut block) = (Vec::new(), header);
        // A loop around it that touches nothing else only repeats it: then what comes before that one is asked.
        while (before.is_empty() || Some(block) != around_it)
            && let Some(dominator) = self.loops.dominators[block].filter(|&dominator| dominator != block)
        {
            block = dominator;
            if is_around(*parent, innermost(block)) {
                before.extend(operands(block).rev());
            }
        }
        let is_inside = |block: &usize| blocks.binary_search(block).is_ok();
        let leaves = |&block: &usize| self.flow.blocks[block].successors.iter().any(|next| !is_inside(next));
        let exits = blocks.iter().filter(|block| leaves(block)).count();
        let is_return = |at: &usize| self.flow.instructions[*at].flow_control() == FlowControl::Return;
        let returns = match parent {
            None => (0..self.flow.instructions.len()).filter(is_return).map(place).collect(),
            Some(_) => Vec::new(),
        };
        Some(LoopPlaces { inside: own.flat_map(operands).collect(), before, returns, exits })
    }

    /// Whether a loop gives a register other values.
    fn changes(&self, around: usize, register: Register) -> bool {
        let mut one = Registers::default();
        one.insert(register);
        let blocks = self.loops.loops[around].blocks.iter();
        let mut all = blocks.flat_map(|&block| self.flow.blocks[block].instructions.clone());
        all.any(|it| self.effects[it].writes.0 & one.0 != 0)
    }

    /// An instruction in a loop, the loop, and the registers of its address.
    fn operand(&self, pc: u64) -> Option<(usize, usize, Registers)> {
        let at = self.flow.instruction_at(pc)?;
        let around = self.loops.innermost[self.flow.block_of(at)]?;
        let registers = self.effects[at].address.filter(|registers| !registers.is_empty())?;
        Some((at, around, registers))
    }

    /// The nearest load in the loop whose value reaches one of `registers` before instruction `at`.
    fn loader(&self, at: usize, around: usize, registers: Registers) -> Option<usize> {
        self.nearest_loads(at, around, registers, 1).pop()
    }

    /// Loads in the loop whose values reach some of `registers` before instruction `at`. Loads from the
    /// frame and from fixed addresses are variables that were spilled: none.
    fn nearest_loads(&self, at: usize, around: usize, registers: Registers, most: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let mut queue: VecDeque<(usize, u32)> = registers.bits().map(|one| (at, one)).collect();
        let mut seen: FxHashSet<(usize, u32)> = FxHashSet::default();
        let mut visits = 0;
        while let Some((at, register)) = queue.pop_front() {
            if !seen.insert((at, register)) {
                continue;
            }
            visits += 1;
            if visits > MOST_VISITS {
                break;
            }
            for before in self.before(at, around) {
                let effects = &self.effects[before];
                if effects.is_call {
                    // What a call loads is where it goes, not a register: not the stack pointer, which it moves.
                    queue.extend(KEPT_IN_CALLS.contains(register).then_some((before, register)));
                    continue;
                }
                if !effects.writes.contains(register) {
                    queue.push_back((before, register));
                    continue;
                }
                match effects.address {
                    Some(address) if !effects.is_frame && !address.is_empty() => {
                        if !found.contains(&before) {
                            found.push(before);
                        }
                        if found.len() == most {
                            return found;
                        }
                    }
                    _ => queue.extend(effects.reads.bits().map(|one| (before, one))),
                }
            }
        }
        found
    }

    /// The instructions of the loop that may come just before one.
    fn before(&self, at: usize, around: usize) -> Vec<usize> {
        let block = self.flow.block_of(at);
        let known = &self.flow.blocks[block];
        if at > known.instructions.start {
            return vec![at - 1];
        }
        let members = &self.loops.loops[around].blocks;
        let inside = known.predecessors.iter().filter(|block| members.binary_search(block).is_ok());
        inside.filter_map(|&block| self.flow.blocks[block].instructions.end.checked_sub(1)).collect()
    }
}

impl Effects {
    /// `has_frame_pointer`: the function's rbp is one.
    fn of(instruction: &Instruction, has_frame_pointer: bool, factory: &mut InstructionInfoFactory) -> Self {
        let info = factory.info(instruction);
        let mut effects = Self {
            is_call: matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall | FlowControl::Interrupt
            ),
            ..Self::default()
        };
        let has_memory = (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory);
        let is_load = info.used_memory().iter().any(|memory| {
            matches!(memory.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite)
        });
        effects.has_memory = !info.used_memory().is_empty();
        if has_memory {
            let registers = [instruction.memory_base(), instruction.memory_index()];
            let [base, index] = registers;
            let is_of_frame = base == Register::RSP || base == Register::RBP && has_frame_pointer;
            // With an index it is an element of an array there.
            effects.is_frame =
                is_of_frame && index == Register::None || instruction.is_ip_rel_memory_operand();
            let of_address = registers.into_iter().filter(|one| one.is_gpr64() || one.is_gpr32());
            // `lea` computes an address and loads nothing: its registers are read as any other's.
            if effects.has_memory {
                let mut address = Registers::default();
                of_address.for_each(|one| address.insert(one));
                effects.address = Some(address);
            }
        }
        for used in info.used_registers() {
            let register = used.register();
            let (reads, writes) = match used.access() {
                OpAccess::Read | OpAccess::CondRead => (true, false),
                OpAccess::Write | OpAccess::CondWrite => (used.access() == OpAccess::CondWrite, true),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
                OpAccess::None | OpAccess::NoMemAccess => (false, false),
            };
            if writes {
                effects.writes.insert(register);
            }
            if reads {
                effects.reads.insert(register);
            }
        }
        if !is_load {
            // A store's address registers are no source of what it writes: it writes no register.
            effects.is_frame = true;
        }
        effects
    }
}

/// Whether an instruction gives rbp another value than the caller's.
fn sets_rbp(instruction: &Instruction) -> bool {
    const KEEPING: [Mnemonic; 4] = [Mnemonic::Pop, Mnemonic::Push, Mnemonic::Cmp, Mnemonic::Test];
    instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().full_register() == Register::RBP
        && !KEEPING.contains(&instruction.mnemonic())
}

/// Whether an instruction makes rbp the function's frame pointer (System V ABI AMD64 1.0, section 3.2.2).
fn sets_frame_pointer(instruction: &Instruction) -> bool {
    let is_of_rbp = instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RBP;
    match instruction.mnemonic() {
        Mnemonic::Enter => true,
        Mnemonic::Mov => is_of_rbp && instruction.op1_register() == Register::RSP,
        Mnemonic::Lea => is_of_rbp && instruction.memory_base() == Register::RSP,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(bytes: &[u8], pc: u64) -> Option<AddressSource> {
        LoopCode::new(&[(0x1000, bytes)]).address_source(pc)
    }

    #[test]
    fn registers_have_a_bit_each() {
        use Register::{EAX, EBX, R12D, R13, R14, R15, RBP, RSP, XMM0, ZMM31};
        let set = |registers: &[Register]| {
            let mut set = Registers::default();
            registers.iter().for_each(|&one| set.insert(one));
            set
        };
        assert_eq!(set(&[EBX, RSP, RBP, R12D, R13, R14, R15]), KEPT_IN_CALLS);
        assert_eq!(set(&[EAX, XMM0, ZMM31, Register::RIP]).bits().collect::<Vec<_>>(), [0, 16, 47]);
    }

    #[test]
    fn an_array_indexed_by_another() {
        // 1000 mov ecx,[rsi+rax*4]  1003 add [rdi+rcx*8],1  1008 inc rax  100b cmp rax,rdx  100e jne 1000  1010 ret
        let code = [
            0x8b, 0x0c, 0x86, 0x48, 0x83, 0x04, 0xcf, 0x01, 0x48, 0xff, 0xc0, 0x48, 0x39, 0xd0, 0x75, 0xf0,
            0xc3,
        ];
        assert_eq!(source(&code, 0x1003), Some(AddressSource::LoadedBy(0x1000)));
        assert_eq!(source(&code, 0x1000), Some(AddressSource::Computed));
        assert_eq!(source(&code, 0x1010), None, "in no loop");
        assert_eq!(source(&code, 0x1001), None, "no instruction");
    }

    #[test]
    fn rbp_is_a_frame_pointer_where_the_function_makes_it_one() {
        // 1000 movslq rdx,[rbp+rax*4]  1005 addsd xmm0,[rbx+rdx*8]  100a inc rax  100d cmp rax,rcx  1010 jne 1000  1012 ret
        let loop_code = [
            0x48, 0x63, 0x54, 0x85, 0x00, 0xf2, 0x0f, 0x58, 0x04, 0xd3, 0x48, 0xff, 0xc0, 0x48, 0x39, 0xc8,
            0x75, 0xee, 0xc3,
        ];
        assert_eq!(source(&loop_code, 0x1005), Some(AddressSource::LoadedBy(0x1000)));
        // 1000 mov rax,[rbp+8]  1004 add rcx,[rax]  1007 add rbp,16  100b cmp rbp,rdx  100e jne 1000  1010 ret
        let pointers = [
            0x48, 0x8b, 0x45, 0x08, 0x48, 0x03, 0x08, 0x48, 0x83, 0xc5, 0x10, 0x48, 0x39, 0xd5, 0x75, 0xf0,
            0xc3,
        ];
        assert_eq!(source(&pointers, 0x1004), Some(AddressSource::LoadedBy(0x1000)));
        // Behind `mov rbp,rsp` it is a variable of the frame.
        let framed = [&[0x48, 0x89, 0xe5][..], &pointers].concat();
        assert_eq!(source(&framed, 0x1007), Some(AddressSource::Computed));
    }

    #[test]
    fn a_base_that_is_loaded_again_hides_no_index() {
        // 1000 mov rcx,[rdi+rax*8]  1004 mov rdx,[rsi+8]  1008 mov r8,[rdx+rcx*8]  100c inc rax  100f cmp rax,r9
        // 1012 jne 1000  1014 ret
        let code = [
            0x48, 0x8b, 0x0c, 0xc7, 0x48, 0x8b, 0x56, 0x08, 0x4c, 0x8b, 0x04, 0xca, 0x48, 0xff, 0xc0, 0x4c,
            0x39, 0xc8, 0x75, 0xec, 0xc3,
        ];
        let code = LoopCode::new(&[(0x1000, &code)]);
        assert_eq!(code.loaders(0x1008), [0x1004, 0x1000]);
        assert_eq!(code.address_source(0x1008), Some(AddressSource::LoadedBy(0x1004)));
        assert_eq!((code.loaders(0x1000), code.loaders(0x1014)), (vec![], vec![]));
    }

    #[test]
    fn a_list_and_what_hangs_on_it() {
        // 1000 add rcx,[rax+8]  1004 mov rax,[rax]  1007 test rax,rax  100a jne 1000  100c ret
        let code = [0x48, 0x03, 0x48, 0x08, 0x48, 0x8b, 0x00, 0x48, 0x85, 0xc0, 0x75, 0xf4, 0xc3];
        assert_eq!(source(&code, 0x1004), Some(AddressSource::Chain));
        assert_eq!(source(&code, 0x1000), Some(AddressSource::Chain), "its address is a link of the chain");
    }

    #[test]
    fn a_call_through_memory_loads_no_stack_pointer() {
        // 1000 mov rax,[rbx]  1003 call [rax+10h]  1006 inc qword [rsp+8]  100b add rbx,8  100f cmp rbx,r12  1012 jne 1000
        // 1014 ret
        let code = [
            0x48, 0x8b, 0x03, 0xff, 0x50, 0x10, 0x48, 0xff, 0x44, 0x24, 0x08, 0x48, 0x83, 0xc3, 0x08, 0x4c,
            0x39, 0xe3, 0x75, 0xec, 0xc3,
        ];
        assert_eq!(source(&code, 0x1006), Some(AddressSource::Computed));
        assert_eq!(source(&code, 0x1003), Some(AddressSource::LoadedBy(0x1000)));
    }

    #[test]
    fn a_base_loaded_before_the_loop_and_a_spilled_index_are_no_sources() {
        // 1000 mov rsi,[rdi]  1003 mov rax,[rsp+8]  1008 mov ecx,[rsi+rax*4]  100b inc qword [rsp+8]
        // 1010 cmp ecx,edx  1012 jne 1003  1014 ret
        let code = [
            0x48, 0x8b, 0x37, 0x48, 0x8b, 0x44, 0x24, 0x08, 0x8b, 0x0c, 0x86, 0x48, 0xff, 0x44, 0x24, 0x08,
            0x39, 0xd1, 0x75, 0xef, 0xc3,
        ];
        assert_eq!(source(&code, 0x1008), Some(AddressSource::Computed));
    }

    #[test]
    fn a_buckets_nodes_are_counted_by_those_of_its_loop_and_what_comes_before() {
        // 1000 mov rax,[rdi+rcx*8]  1004 test rax,rax  1007 je 1017  1009 cmp [rax+8],rdx  100d je 1017  100f mov rax,[rax]
        // 1012 test rax,rax  1015 jne 1009  1017 inc rcx  101a cmp rcx,rsi  101d jne 1000  101f ret
        let code = [
            0x48, 0x8b, 0x04, 0xcf, 0x48, 0x85, 0xc0, 0x74, 0x0e, 0x48, 0x39, 0x50, 0x08, 0x74, 0x08, 0x48,
            0x8b, 0x00, 0x48, 0x85, 0xc0, 0x75, 0xf2, 0x48, 0xff, 0xc1, 0x48, 0x39, 0xf1, 0x75, 0xe1, 0xc3,
        ];
        let code = LoopCode::new(&[(0x1000, &code)]);
        assert_eq!([0x1009, 0x100f].map(|pc| code.links(pc)), [1, 1]);
        assert_eq!([0x1000, 0x100f, 0x101f].map(|pc| code.loop_at(pc)), [Some(0x1000), Some(0x1009), None]);
        let places = |inside: &[u64], before: &[u64], returns: &[u64], exits| {
            let [inside, before, returns] = [inside, before, returns].map(<[u64]>::to_vec);
            Some(LoopPlaces { inside, before, returns, exits })
        };
        assert_eq!(code.loop_places(0x1009), places(&[0x1009, 0x100f], &[0x1000], &[], 2));
        assert_eq!(code.loop_places(0x1000), places(&[0x1000], &[], &[0x101f], 1));
        assert_eq!(code.loop_places(0x100f), None, "no loop begins there");
    }

    #[test]
    fn a_loop_that_only_repeats_another_is_looked_past() {
        // 1000 mov rdx,[rsi]  1003 xor eax,eax  1005 add rdx,[rdi+rax*8]  1009 inc rax  100c cmp rax,rcx  100f jne 1005
        // 1011 dec r8  1014 jne 1003  1016 ret
        let code = [
            0x48, 0x8b, 0x16, 0x31, 0xc0, 0x48, 0x03, 0x14, 0xc7, 0x48, 0xff, 0xc0, 0x48, 0x39, 0xc8, 0x75,
            0xf4, 0x49, 0xff, 0xc8, 0x75, 0xed, 0xc3,
        ];
        let places = LoopCode::new(&[(0x1000, &code)]).loop_places(0x1005).expect("a loop");
        assert_eq!((places.inside, places.before, places.exits), (vec![0x1005], vec![0x1000], 1));
    }

    #[test]
    fn trees_have_several_links() {
        let links = |bytes: &[u8], pc| LoopCode::new(&[(0x1000, bytes)]).links(pc);
        // 1000 cmp [rax+20],rdx  1004 jl 100c  1006 mov rax,[rax+10]  100a jmp 1010  100c mov rax,[rax+18]  1010 test rax,rax
        // 1013 jne 1000  1015 ret
        let sides = [
            0x48, 0x39, 0x50, 0x20, 0x7c, 0x06, 0x48, 0x8b, 0x40, 0x10, 0xeb, 0x04, 0x48, 0x8b, 0x40, 0x18,
            0x48, 0x85, 0xc0, 0x75, 0xeb, 0xc3,
        ];
        assert_eq!(links(&sides, 0x1000), 2);
        // 1000 xor ecx,ecx  1002 cmp [rax+10],rdx  1006 setl cl  1009 mov rax,[rax+rcx*8]  100d test rax,rax  1010 jne 1000  1012 ret
        let chosen = [
            0x31, 0xc9, 0x48, 0x39, 0x50, 0x10, 0x0f, 0x9c, 0xc1, 0x48, 0x8b, 0x04, 0xc8, 0x48, 0x85, 0xc0,
            0x75, 0xee, 0xc3,
        ];
        assert_eq!(links(&chosen, 0x1009), 2);
        // 1000 mov eax,[rdi+rax*4]  1003 test eax,eax  1005 jne 1000  1007 ret
        assert_eq!(links(&[0x8b, 0x04, 0x87, 0x85, 0xc0, 0x75, 0xf9, 0xc3], 0x1000), 1, "a list in an array");
        // 1000 mov rax,[r8+rcx*8+40]  1005 test rax,rax  1008 je 1017  100a cmp [rax],rdi  100d jae 1017  100f mov r8,rax  1012 jmp 1000
        // 1017 dec rcx  101a jns 1000: one loop for both; 1000 again from 1012 as from 101a
        let levels = [
            0x49, 0x8b, 0x44, 0xc8, 0x40, 0x48, 0x85, 0xc0, 0x74, 0x0d, 0x48, 0x39, 0x38, 0x73, 0x08, 0x49,
            0x89, 0xc0, 0xeb, 0xec, 0x90, 0x90, 0x90, 0x48, 0xff, 0xc9, 0x79, 0xe4, 0xc3,
        ];
        assert_eq!(links(&levels, 0x100a), 2, "a skip list");
        // 1000 mov rax,[r8+rcx*8+40]  1005 test rax,rax  1008 je 101b  100a cmp [rax],rdi  100d jae 101b  100f mov r8,rax
        // 1012 mov rax,[r8+rcx*8+40]  1017 test eax,eax  1019 jne 100a  101b dec rcx  101e jns 1000  1020 ret
        let levels = [
            0x49, 0x8b, 0x44, 0xc8, 0x40, 0x48, 0x85, 0xc0, 0x74, 0x11, 0x48, 0x39, 0x38, 0x73, 0x0c, 0x49,
            0x89, 0xc0, 0x49, 0x8b, 0x44, 0xc8, 0x40, 0x85, 0xc0, 0x75, 0xef, 0x48, 0xff, 0xc9, 0x79, 0xe0,
            0xc3,
        ];
        assert_eq!(links(&levels, 0x100a), 2, "with a loop for each level");
        assert_eq!(LoopCode::new(&[(0x1000, &levels)]).loop_at(0x100a), Some(0x1000), "that of the levels");
        // 1000 mov rdx,[rdi+rax*8]  1004 inc rax  1007 cmp rax,rcx  100a jne 1000  100c ret
        let stream = [0x48, 0x8b, 0x14, 0xc7, 0x48, 0xff, 0xc0, 0x48, 0x39, 0xc8, 0x75, 0xf4, 0xc3];
        assert_eq!(links(&stream, 0x1000), 0);
    }
}
