//! What a sample waits for: an access, or none.
//!
//! A sample's interrupt is taken between two instructions, when the older one retires, and an access that
//! waits holds up retirement. So the sampled address is that of the instruction executed *after* the
//! one that waited. Measured (`memlens calibrate`; Zen 3 and Zen 5, virtual machines): 99 % of the samples
//! of a loop whose one load misses fall on the instruction behind the load, 0 % on the load; stores that
//! miss, and loads inside of other instructions, behave alike (91 % and 98 %).
//!
//! It follows what a sample behind an instruction without memory operand means: every older access has
//! retired, so it waits for none. It is computation, or, behind a jump, a call or a return, code that
//! was not there yet. (A division holds up its successor just the same: 83 %.)
//!
//! [`SampleSkid`] says how far behind an instruction its samples land, for machines where this is
//! another distance than one.
//!
//! A repeated string instruction is interrupted between two of its rounds, with registers that say how far it is: a sample
//! on it waits for itself.
//!
//! Where several ways lead to an instruction, the jump that closes a loop is followed: loops are where time
//! goes. Else it is the instruction before: compilers put what is seldom out of the way, and jump back from there.

use std::collections::HashSet;

use crate::destination::Register;
use crate::function_code::{AddressExpression, FunctionCode, IndexExtension, MemoryOperand};
use crate::instructions::{Transfer, Width};

/// How far back the code is followed: more than any processor's skid.
pub const MAX_STEPS: usize = 16;

/// A loop is followed for so many instructions.
const MOST_OF_LOOP: usize = 64;

/// How many instructions after the one that waits its samples land.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleSkid {
    /// For what reads memory.
    pub loads: usize,
    /// For what only writes it.
    pub stores: usize,
}

impl Default for SampleSkid {
    /// One instruction, as measured; see the module's head.
    fn default() -> Self {
        Self { loads: 1, stores: 1 }
    }
}

/// What a sample waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// For an access.
    Access(WaitingAccess),
    /// For an instruction that touches no memory.
    Computation,
    /// For the code behind a jump, a call or a return: mispredicted, or not fetched yet.
    Transfer,
    /// The address is that of no instruction of the function.
    NoCode,
}

impl Waits {
    /// The access, if it is one.
    pub fn access(self) -> Option<WaitingAccess> {
        match self {
            Self::Access(access) => Some(access),
            _ => None,
        }
    }
}

/// The access that a sample waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingAccess {
    /// The operand.
    pub operand: MemoryOperand,
    /// What its address is made of: as the operand has it, or, where a register of that has been lost, what that register was computed from.
    pub address: AddressExpression,
    /// What to add to the base register's sampled value to get its value at the access; None if that
    /// value is lost.
    pub base_change: Option<i64>,
    /// The same for the index register.
    pub index_change: Option<i64>,
    /// The register that the access loaded and that still holds it: what a pointer points to.
    pub loaded: Option<Register>,
    /// Whether the access of the loop's next round goes through what this one loaded (`at = at->next`).
    pub is_chase: bool,
}

impl WaitingAccess {
    /// The address, from the registers as sampled; None if a register that made it has been lost.
    pub fn address(&self, sampled: impl FnMut(Register) -> Option<u64>) -> Option<u64> {
        self.value(&self.address, sampled)
    }

    /// How far from the thread pointer the address is, if it is relative to that.
    pub fn from_thread_pointer(&self, sampled: impl FnMut(Register) -> Option<u64>) -> Option<i64> {
        let expression = &self.address;
        let rest = AddressExpression { is_partial: false, ..*expression };
        expression.is_thread_local.then(|| self.value(&rest, sampled))?.map(u64::cast_signed)
    }

    fn value(
        &self,
        expression: &AddressExpression,
        mut sampled: impl FnMut(Register) -> Option<u64>,
    ) -> Option<u64> {
        let (base, index) = (expression.base, expression.index);
        let (base_value, index_value) = (
            base.and_then(|register| Some(sampled(register)?.wrapping_add_signed(self.base_change?))),
            index.and_then(|register| Some(sampled(register)?.wrapping_add_signed(self.index_change?))),
        );
        if (base.is_some() && base_value.is_none()) || (index.is_some() && index_value.is_none()) {
            return None;
        }
        let mut is_base = base.is_some();
        // `value` asks for the base first.
        expression.value(|_| if std::mem::take(&mut is_base) { base_value } else { index_value })
    }

    /// An address in the object that the access of the loop's next round goes to, where this one's is lost: nodes of one kind follow each
    /// other.
    pub fn next_in_chase(&self, sampled: impl FnOnce(Register) -> Option<u64>) -> Option<u64> {
        sampled(self.loaded.filter(|_| self.is_chase)?)
    }

    /// An address in the same object, where the address itself is lost: the pointer of a pointer and an index of
    /// which only the index is gone (`mov eax, [r8+rax*4]`). What is added to a pointer does not lead out of its
    /// object (ISO C23, 6.5.7, paragraph 10). Of two unscaled registers nobody knows which is the pointer,
    /// unless only a part of one counts.
    pub fn address_in_object(&self, mut sampled: impl FnMut(Register) -> Option<u64>) -> Option<u64> {
        let expression = &self.address;
        let (base, Some(_)) = (expression.base?, expression.index) else { return None };
        let is_unscaled = expression.scale == 1 && expression.index_extension == IndexExtension::None;
        if expression.is_partial || is_unscaled || self.index_change.is_some() {
            return None;
        }
        Some(sampled(base)?.wrapping_add_signed(self.base_change?))
    }
}

impl FunctionCode {
    /// What a sample at `pc` waits for, if it lands `skid` behind.
    pub fn waits_for(&self, pc: u64, skid: SampleSkid) -> Waits {
        let Some(at) = self.position(pc) else { return Waits::NoCode };
        if self.instructions().is_repeated(at)
            && let Some(access) = self.own_access(at)
        {
            return Waits::Access(access);
        }
        let path = self.executed_before(at);
        let behind = |distance: usize| match distance.checked_sub(1) {
            None => self.own_access(at),
            Some(steps) => self.access_on(&path, self.fused(&path, steps)),
        };
        if let Some(load) = behind(skid.loads).filter(|access| access.operand.reads) {
            return Waits::Access(load);
        }
        if let Some(store) = behind(skid.stores).filter(|access| !access.operand.reads) {
            return Waits::Access(store);
        }
        // Nothing before it is known at the start of a function and behind a call.
        match path.first() {
            Some(&before) if !self.is_jump(before) => Waits::Computation,
            _ => Waits::Transfer,
        }
    }

    /// The access of the sampled instruction itself; for events that name their instruction.
    pub fn sampled_access(&self, pc: u64) -> Waits {
        match self.position(pc) {
            None => Waits::NoCode,
            Some(at) => self.own_access(at).map_or(Waits::Computation, Waits::Access),
        }
    }

    fn own_access(&self, at: usize) -> Option<WaitingAccess> {
        let operand = self.main_operand(at)?;
        let address = operand.address;
        let (base_change, index_change) = (Some(0), Some(0));
        Some(WaitingAccess { operand, address, base_change, index_change, loaded: None, is_chase: false })
    }

    /// A conditional jump is one operation with the comparison before it: that is what may wait.
    fn fused(&self, path: &[usize], steps: usize) -> usize {
        match (path.get(steps + 1), path.get(steps)) {
            (Some(&before), Some(&jump)) if self.instructions().is_fused(before, jump) => steps + 1,
            _ => steps,
        }
    }

    /// The operand of an instruction that may wait: a read before a write. Calls and returns wait for
    /// other things than their stack slot.
    fn main_operand(&self, position: usize) -> Option<MemoryOperand> {
        let waits = matches!(
            self.place(position)?.transfer,
            Transfer::Next | Transfer::IndirectJump | Transfer::Leave
        );
        if !waits {
            return None;
        }
        let operands = self.operands_at(position);
        operands.iter().find(|operand| operand.reads).or(operands.first()).copied()
    }

    /// The access of `path[steps]`, with what became of its registers since.
    fn access_on(&self, path: &[usize], steps: usize) -> Option<WaitingAccess> {
        let position = *path.get(steps)?;
        let operand = self.main_operand(position)?;
        let instructions = self.instructions();
        let change_since = |steps: usize, register: Option<Register>, width: Width| {
            let Some(register) = register else { return Some(0) };
            // In the order of execution, what `steps` counts to included.
            path[..=steps].iter().rev().try_fold(0i64, |sum, &position| {
                Some(sum.wrapping_sub(instructions.constant_change(position, register, width)?))
            })
        };
        let changes = |steps, address: &AddressExpression| {
            let width = match address.index_extension {
                IndexExtension::None => Width::Whole,
                IndexExtension::Unsigned32 | IndexExtension::Signed32 => Width::Low,
            };
            (change_since(steps, address.base, Width::Whole), change_since(steps, address.index, width))
        };
        let mut address = operand.address;
        let mut change = changes(steps, &address);
        if change.0.is_none()
            && let Some((computed_at, computed)) = self.computed_base(path, steps, &address)
        {
            // The instruction that computed it changes nothing of what it was computed from, or that is lost, too.
            let known = changes(computed_at, &computed);
            if known.0.is_some() && known.1.is_some() {
                (address, change) = (computed, known);
            }
        }
        let still_holds =
            |register: &Register| path[..steps].iter().all(|&later| !instructions.writes(later, *register));
        let mut held = instructions.loaded(position).into_iter().flatten().filter(still_holds);
        let first = held.next();
        // Of two, the one that the next round goes by.
        let base = operand.address.base;
        let loaded = held.find(|&register| Some(register) == base).or(first);
        let is_chase = loaded.is_some_and(|register| {
            base == Some(register)
                && operand.address.index.is_none()
                && self.comes_round_unchanged(position, register)
        });
        let (base_change, index_change) = change;
        Some(WaitingAccess { operand, address, base_change, index_change, loaded, is_chase })
    }

    /// Where in the path, and from what, the base of an address was computed, if that is all that it is made of: by `lea` or `mov`, in the
    /// straight line of code that the access is in.
    fn computed_base(
        &self,
        path: &[usize],
        steps: usize,
        address: &AddressExpression,
    ) -> Option<(usize, AddressExpression)> {
        let base = address.base.filter(|_| address.index.is_none() && !address.is_partial)?;
        let mut at = steps;
        loop {
            // Nobody jumps to what follows it.
            let here = self.place(*path.get(at)?)?;
            if !self.jumps_to(here.pc).is_empty() {
                return None;
            }
            at += 1;
            let before = *path.get(at)?;
            if self.place(before)?.next != here.pc {
                return None;
            }
            if self.instructions().writes(before, base) {
                let computed = self.instructions().computed(before, base)?;
                return Some((
                    at,
                    AddressExpression { disp: computed.disp.wrapping_add(address.disp), ..computed },
                ));
            }
        }
    }

    /// Whether an instruction is in a loop that comes back to it without another that writes to a register.
    fn comes_round_unchanged(&self, position: usize, register: Register) -> bool {
        let mut here = position;
        for _ in 0..MOST_OF_LOOP {
            match self.predecessor(here) {
                Some(before) if before == position => return true,
                Some(before) if !self.instructions().writes(before, register) => here = before,
                _ => return false,
            }
        }
        false
    }

    /// The instructions executed before `at`, the last first: at most [`MAX_STEPS`], jumps included.
    fn executed_before(&self, at: usize) -> Vec<usize> {
        let mut path = Vec::new();
        let mut here = at;
        while path.len() < MAX_STEPS {
            let Some(before) = self.predecessor(here) else { break };
            if path.contains(&before) || before == at {
                break;
            }
            path.push(before);
            here = before;
        }
        path
    }

    fn predecessor(&self, at: usize) -> Option<usize> {
        let pc = self.place(at)?.pc;
        let falls = at.checked_sub(1).filter(|&before| {
            self.place(before).is_some_and(|place| {
                place.next == pc && matches!(place.transfer, Transfer::Next | Transfer::Branch(_))
            })
        });
        let jumps = self.jumps_to(pc);
        // The nearest jump from below closes the innermost loop, or comes back from what was put out of the way.
        let back = jumps.iter().copied().filter(|&jump| jump >= at).min();
        match jumps {
            _ if back.is_some_and(|back| falls.is_none() || !self.is_reached_without(back, at)) => back,
            [only] if falls.is_none() => Some(*only),
            _ => falls,
        }
    }

    /// Whether a way from the function's begin leads to an instruction without `other`, as far as jumps say where they lead. Linear
    /// in the function.
    fn is_reached_without(&self, position: usize, other: usize) -> bool {
        let mut is_seen = HashSet::from([other]);
        let mut ways = vec![0];
        while let Some(at) = ways.pop() {
            if !is_seen.insert(at) {
                continue;
            }
            if at == position {
                return true;
            }
            let Some(place) = self.place(at) else { continue };
            let goes_on = matches!(place.transfer, Transfer::Next | Transfer::Call(_) | Transfer::Branch(_));
            ways.extend(self.position(place.next).filter(|_| goes_on));
            ways.extend(place.transfer.target().and_then(|target| self.position(target)));
        }
        false
    }

    fn is_jump(&self, position: usize) -> bool {
        self.place(position).is_some_and(|place| place.transfer.target().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::Architecture;

    /// Instructions at 0x1000 on; see the comment at each test.
    fn code(bytes: &[u8]) -> FunctionCode {
        FunctionCode::new(Architecture::X86_64, bytes, 0x1000)
    }

    fn waits(code: &FunctionCode, pc: u64) -> Waits {
        code.waits_for(pc, SampleSkid::default())
    }

    #[test]
    fn the_instruction_before_is_the_one_that_waited() {
        // 1000 mov (%rdx,%rcx,8),%rax   1004 add $8,%rdx   1008 nop
        let code = code(&[0x48, 0x8b, 0x04, 0xca, 0x48, 0x83, 0xc2, 0x08, 0x90]);
        let access = waits(&code, 0x1004).access().expect("a load");
        assert_eq!((access.operand.pc, access.operand.size_bytes), (0x1000, 8));
        // rdx = 0x5000, rcx = 3: 0x5000 + 3 · 8.
        let registers =
            |register: Register| [(1, 0x5000), (2, 3)].iter().find(|r| r.0 == register.0).map(|r| r.1);
        assert_eq!(access.address(registers), Some(0x5018));
        // At 1008 the load has retired: the addition held it up.
        assert_eq!(waits(&code, 0x1008), Waits::Computation);
        // Nothing is known to come before the first instruction.
        assert_eq!(waits(&code, 0x1000), Waits::Transfer);
        assert_eq!(waits(&code, 0x1001), Waits::NoCode);
    }

    #[test]
    fn a_repeated_instruction_waits_for_itself() {
        // 1000 mov (%rdx),%rax   1003 rep movsb   1005 movsb   1006 nop
        let code = code(&[0x48, 0x8b, 0x02, 0xf3, 0xa4, 0xa4, 0x90]);
        let access = waits(&code, 0x1003).access().expect("an access");
        assert_eq!((access.operand.pc, access.operand.reads), (0x1003, true));
        // By rsi, as far as it has come.
        assert_eq!(access.address(|register| (register.0 == 4).then_some(0x5040)), Some(0x5040));
        let behind = waits(&code, 0x1006).access().expect("an access");
        assert_eq!(behind.operand.pc, 0x1005);
    }

    #[test]
    fn another_distance_finds_another_instruction() {
        // 1000 mov (%rdx),%eax   1002 add $4,%rdx   1006 mov %eax,(%rsi)   1008 nop
        let code = code(&[0x8b, 0x02, 0x48, 0x83, 0xc2, 0x04, 0x89, 0x06, 0x90]);
        let at = |pc, loads, stores| {
            code.waits_for(pc, SampleSkid { loads, stores }).access().map(|access| access.operand.pc)
        };
        // Two back from 1006 is the load, constants added since are taken back: rdx is 0x5004 now.
        assert_eq!(at(0x1006, 2, 0), Some(0x1000));
        let load = code.waits_for(0x1006, SampleSkid { loads: 2, stores: 0 }).access().expect("a load");
        assert_eq!(load.address(|register| (register.0 == 1).then_some(0x5004)), Some(0x5000));
        // A store that holds up itself; one that holds up what follows.
        assert_eq!((at(0x1006, 1, 0), at(0x1008, 1, 1)), (Some(0x1006), Some(0x1006)));
        assert_eq!(at(0x1006, 1, 1), None);
    }

    #[test]
    fn a_pointer_that_overwrites_itself_is_lost_but_says_what_it_loaded() {
        // 1000 mov (%rbx),%rbx   1003 nop
        let code = code(&[0x48, 0x8b, 0x1b, 0x90]);
        let access = waits(&code, 0x1003).access().expect("a load");
        assert_eq!((access.base_change, access.loaded), (None, Some(Register(3))));
        assert_eq!(access.address(|_| Some(1)), None);
        assert_eq!(access.next_in_chase(|_| Some(0x5000)), None, "in no loop");
        // 1000 mov 8(%rbx),%rbx   1004 test %rbx,%rbx   1007 jne 1000
        let looped = FunctionCode::new(
            Architecture::X86_64,
            &[0x48, 0x8b, 0x5b, 0x08, 0x48, 0x85, 0xdb, 0x75, 0xf7],
            0x1000,
        );
        let access = waits(&looped, 0x1004).access().expect("a load");
        assert_eq!(access.next_in_chase(|register| (register.0 == 3).then_some(0x5000)), Some(0x5000));
        // 1000 mov (%rsi),%rbx   1003 mov 8(%rbx),%rbx   1007 add $8,%rsi   100b jmp 1000: from elsewhere each time.
        let code = FunctionCode::new(
            Architecture::X86_64,
            &[0x48, 0x8b, 0x1e, 0x48, 0x8b, 0x5b, 0x08, 0x48, 0x83, 0xc6, 0x08, 0xeb, 0xf3],
            0x1000,
        );
        let access = waits(&code, 0x1007).access().expect("a load");
        assert_eq!((access.operand.pc, access.is_chase), (0x1003, false));
    }

    #[test]
    fn a_register_that_is_lost_was_computed_from_others() {
        // 1000 lea 16(%rdi,%rax,4),%rdx   1005 movzbl 2(%rdx),%edx   1009 add $4,%rax   100d nop
        let bytes = [0x48, 0x8d, 0x54, 0x87, 0x10, 0x0f, 0xb6, 0x52, 0x02, 0x48, 0x83, 0xc0, 0x04, 0x90];
        let access = waits(&code(&bytes), 0x1009).access().expect("a load");
        // rdi = 5, rax = 0.
        let registers = |rax: u64| {
            move |register: Register| [(5, 0x5000), (0, rax)].iter().find(|r| r.0 == register.0).map(|r| r.1)
        };
        assert_eq!(access.address(registers(3)), Some(0x5000 + 12 + 16 + 2));
        // Two back, rax has been added to.
        let late =
            code(&bytes).waits_for(0x100d, SampleSkid { loads: 2, stores: 1 }).access().expect("a load");
        assert_eq!(late.address(registers(7)), Some(0x5000 + 12 + 16 + 2));
        // 1000 mov (%rcx),%rdx   1003 mov (%rdx),%edx   1005 nop: from memory.
        let access = waits(&code(&[0x48, 0x8b, 0x11, 0x8b, 0x12, 0x90]), 0x1005).access().expect("a load");
        assert_eq!(access.address(|_| Some(1)), None);
        // 1000 lea (%rdi,%rdx),%rdx   1004 mov (%rdx),%edx   1006 nop: what it was computed from is lost, too.
        let access =
            waits(&code(&[0x48, 0x8d, 0x14, 0x17, 0x8b, 0x12, 0x90]), 0x1006).access().expect("a load");
        assert_eq!(access.address(|_| Some(1)), None);
    }

    #[test]
    fn the_head_of_a_loop_comes_after_its_end() {
        // 1000 nop   1001 xor %ecx,%ecx   1003 add (%rsi),%rcx   1006 cmp %rsi,%rdi   1009 jne 1001
        let code = code(&[0x90, 0x31, 0xc9, 0x48, 0x03, 0x0e, 0x48, 0x39, 0xf7, 0x75, 0xf6]);
        // Before 1001 went the jump with its comparison of registers.
        assert_eq!(waits(&code, 0x1001), Waits::Transfer);
        assert_eq!(waits(&code, 0x1006).access().map(|access| access.operand.pc), Some(0x1003));
        // 2000 mov (%rax),%rbx   2003 cmp %rbx,(%rdx)   2006 jne 2000: fused, so it is cmp that waited.
        let code = FunctionCode::new(
            Architecture::X86_64,
            &[0x48, 0x8b, 0x18, 0x48, 0x39, 0x1a, 0x75, 0xf8],
            0x2000,
        );
        assert_eq!(waits(&code, 0x2000).access().map(|access| access.operand.pc), Some(0x2003));
    }

    #[test]
    fn a_jump_back_from_what_is_out_of_the_way_closes_no_loop() {
        // 1000 test %ecx,%ecx   1002 js 100c   1004 add 16(%rbx,%rdx),%r8   1009 nop   100a jmp 1000
        // 100c add (%rdi),%r8   100f jmp 1009
        let code = code(&[
            0x85, 0xc9, 0x78, 0x08, 0x4c, 0x03, 0x44, 0x13, 0x10, 0x90, 0xeb, 0xf4, 0x4c, 0x03, 0x07, 0xeb,
            0xf8,
        ]);
        assert_eq!(waits(&code, 0x1009).access().map(|access| access.operand.pc), Some(0x1004));
        assert_eq!(waits(&code, 0x100f).access().map(|access| access.operand.pc), Some(0x100c));
        assert_eq!(waits(&code, 0x1000), Waits::Transfer, "the loop's end");
    }

    #[test]
    fn fixed_addresses_are_svmas() {
        // 1000 mov 0x2000(%rip),%rax   1007 nop: 0x1007 + 0x2000
        let code = code(&[0x48, 0x8b, 0x05, 0x00, 0x20, 0x00, 0x00, 0x90]);
        let access = waits(&code, 0x1007).access().expect("a load");
        assert!(access.operand.address.is_svma());
        assert_eq!(access.address(|_| None), Some(0x3007));
    }

    #[test]
    fn nothing_panics_on_bytes_that_are_no_code() {
        for seed in 0..2000u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let bytes: Vec<u8> = (0..48)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            let code = code(&bytes);
            for pc in 0x1000..0x1030 {
                if let Waits::Access(access) = waits(&code, pc) {
                    assert!((0x1000..0x1030).contains(&access.operand.pc));
                }
            }
        }
    }
}
