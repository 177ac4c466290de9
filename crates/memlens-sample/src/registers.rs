//! A thread's registers, and how perf and the kernel number and name them.

use memlens_code::{Architecture, Register};

/// As many as any architecture has, the stack pointer included.
pub const MOST_REGISTERS: usize = 32;

/// General-purpose registers by DWARF number (System V ABI AMD64 1.0, figure 3.36; DWARF for the Arm 64-bit
/// Architecture, 2023Q3, section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Whose they are.
    pub architecture: Architecture,
    /// rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 … r15; or x0 … x30, sp. What the architecture does not have is 0.
    pub values: [u64; MOST_REGISTERS],
    /// The instruction pointer.
    pub ip: u64,
}

impl Registers {
    /// Those of `values`, by DWARF number, and the instruction pointer.
    pub fn new(architecture: Architecture, values: &[u64], ip: u64) -> Self {
        let mut all = [0; MOST_REGISTERS];
        all.iter_mut().zip(values).for_each(|(to, value)| *to = *value);
        Self { architecture, values: all, ip }
    }

    /// One of them, if the architecture has it.
    pub fn get(&self, register: Register) -> Option<u64> {
        let has = register.0 < self.architecture.register_count();
        self.values.get(usize::from(register.0)).copied().filter(|_| has)
    }

    /// rsp or sp.
    pub fn stack_pointer(&self) -> u64 {
        self.values[usize::from(self.architecture.stack_pointer().0)]
    }

    /// rbp or x29.
    pub fn frame_pointer(&self) -> u64 {
        self.values[usize::from(self.architecture.frame_pointer().0)]
    }

    /// x30, where a call leaves its return address; 0 on architectures that put it on the stack.
    pub fn link(&self) -> u64 {
        match self.architecture {
            Architecture::X86_64 => 0,
            Architecture::AArch64 => self.values[30],
        }
    }
}

/// How perf_event_open(2) numbers an architecture's registers, and perf names them.
#[derive(Clone, Copy, Debug)]
pub struct PerfRegisters {
    architecture: Architecture,
    /// perf's number of each register of DWARF's order.
    numbers: &'static [u8],
    /// perf's number of the instruction pointer.
    ip: u8,
    /// perf's names, by its numbers.
    names: &'static [&'static str],
}

/// arch/x86/include/uapi/asm/perf_regs.h; names: tools/perf/util/perf-regs-arch (Linux 6.12), here and below.
static X86_64: PerfRegisters = PerfRegisters {
    architecture: Architecture::X86_64,
    numbers: &[0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23],
    ip: 8,
    names: &[
        "AX", "BX", "CX", "DX", "SI", "DI", "BP", "SP", "IP", "FLAGS", "CS", "SS", "DS", "ES", "FS", "GS",
        "R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15",
    ],
};

/// arch/arm64/include/uapi/asm/perf_regs.h.
static AARCH64: PerfRegisters = PerfRegisters {
    architecture: Architecture::AArch64,
    numbers: &[
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
        28, 29, 30, 31,
    ],
    ip: 32,
    names: &[
        "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
        "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29",
        "lr", "sp", "pc",
    ],
};

impl PerfRegisters {
    /// Those of an architecture.
    pub fn of(architecture: Architecture) -> &'static Self {
        match architecture {
            Architecture::X86_64 => &X86_64,
            Architecture::AArch64 => &AARCH64,
        }
    }

    /// Whose register perf names so, and the number that it has there. No name is of two architectures: their case differs.
    pub fn named(name: &str) -> Option<(&'static Self, usize)> {
        let number = |all: &'static Self| Some((all, all.names.iter().position(|known| *known == name)?));
        [&X86_64, &AARCH64].into_iter().find_map(number)
    }

    /// What is asked of `sample_regs_user`: all general-purpose registers and the instruction pointer.
    pub fn mask(&self) -> u64 {
        self.numbers.iter().chain([&self.ip]).fold(0, |mask, number| mask | 1 << number)
    }

    /// Registers by perf's numbers; None if one is missing.
    pub fn gathered(&self, by_perf: impl Fn(usize) -> Option<u64>) -> Option<Registers> {
        let mut registers = Registers::new(self.architecture, &[], by_perf(self.ip.into())?);
        for (value, &number) in registers.values.iter_mut().zip(self.numbers) {
            *value = by_perf(number.into())?;
        }
        Some(registers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_architecture_has_its_registers() {
        for architecture in [Architecture::X86_64, Architecture::AArch64] {
            let perf = PerfRegisters::of(architecture);
            assert_eq!(perf.numbers.len(), usize::from(architecture.register_count()), "{architecture:?}");
            let all = perf.gathered(|number| Some(number as u64)).expect("all are there");
            assert_eq!(all.ip, u64::from(perf.ip));
            let name = |value: u64| perf.names[value as usize];
            assert!(["SP", "sp"].contains(&name(all.stack_pointer())));
            assert!(["BP", "x29"].contains(&name(all.frame_pointer())));
            assert!(["IP", "pc"].contains(&name(all.ip)));
            for (number, name) in perf.names.iter().enumerate() {
                let (owner, its) = PerfRegisters::named(name).expect("known");
                assert_eq!((owner.architecture, its), (architecture, number), "{name}");
            }
            assert_eq!(all.get(Register(architecture.register_count())), None);
            for missing in perf.numbers {
                let some = |number: usize| (number != usize::from(*missing)).then_some(1);
                assert_eq!(perf.gathered(some), None, "{missing} is missing");
            }
        }
        assert_eq!(X86_64.mask(), 0x1ff | (0xff << 16));
        assert_eq!(AARCH64.mask(), (1 << 33) - 1);
        assert!(PerfRegisters::named("vg").is_none());
    }
}
