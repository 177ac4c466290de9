//! Which machine code it is.

use crate::destination::Register;

/// An instruction set, and the conventions of its programs on Linux: what registers are for.
///
/// That of the code that is asked about, not that of the machine that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// AMD64 in 64-bit mode; System V ABI AMD64 1.0.
    X86_64,
    /// A64 of AArch64, little-endian; Procedure Call Standard for the Arm 64-bit Architecture (AAPCS64, 2023Q3).
    AArch64,
}

impl Architecture {
    /// That of the machine which runs this.
    pub const HOST: Self = if cfg!(target_arch = "aarch64") { Self::AArch64 } else { Self::X86_64 };

    /// That of a 64-bit ELF file by its field `e_machine` (System V ABI, "ELF header"); None: another one.
    pub const fn from_elf_machine(machine: u16) -> Option<Self> {
        match machine {
            62 => Some(Self::X86_64),
            183 => Some(Self::AArch64),
            _ => None,
        }
    }

    /// rsp or sp.
    pub const fn stack_pointer(self) -> Register {
        match self {
            Self::X86_64 => Register::RSP,
            Self::AArch64 => Register::SP,
        }
    }

    /// The register that holds a frame's record, or what a function likes: rbp or x29.
    pub const fn frame_pointer(self) -> Register {
        match self {
            Self::X86_64 => Register::RBP,
            Self::AArch64 => Register::X29,
        }
    }

    /// Whether variables of the frame are addressed by it, as far as the code alone tells.
    pub fn is_frame_base(self, register: Register) -> bool {
        register == self.stack_pointer() || register == self.frame_pointer()
    }

    /// The register of a function's result.
    pub const fn result(self) -> Register {
        match self {
            Self::X86_64 => Register::RAX,
            Self::AArch64 => Register::X0,
        }
    }

    /// The registers of a function's first integer arguments, in order (System V ABI AMD64 1.0, section 3.2.3;
    /// AAPCS64, section 6.8.2).
    pub const fn arguments(self) -> &'static [Register] {
        match self {
            Self::X86_64 => &[Register(5), Register(4), Register(1), Register(2), Register(8), Register(9)],
            Self::AArch64 => &[
                Register(0),
                Register(1),
                Register(2),
                Register(3),
                Register(4),
                Register(5),
                Register(6),
                Register(7),
            ],
        }
    }

    /// Whether functions leave a register as their callers had it: rbx, rbp, rsp and r12–r15; x19–x29 and sp (System V
    /// ABI AMD64 1.0, section 3.2.1; AAPCS64, section 6.1.1).
    pub const fn is_callee_saved(self, register: Register) -> bool {
        match self {
            Self::X86_64 => matches!(register.0, 3 | 6 | 7 | 12..=15),
            Self::AArch64 => matches!(register.0, 19..=29 | 31),
        }
    }

    /// How many general-purpose registers there are, the stack pointer included: their numbers are below.
    pub const fn register_count(self) -> u16 {
        match self {
            Self::X86_64 => 16,
            Self::AArch64 => 32,
        }
    }
}
