//! The plan that memlens and its placement library inside a target share: which allocation sites and variables are
//! meant, which places in code get detours, and what became of them.
//!
//! It knows the plan's layout, call stacks as words and lines of `/proc/PID/maps` as bytes. It deliberately knows
//! nothing of processes, files or system calls: both sides test what they rely on here.
//!
//! ```text
//! memlens ── writes ──► Plan { modules, sites, statics, patches, codes }      (shared memory, before the program starts)
//! library ── writes ──► processes, sites[..].blocks, blocks, patches[..].state   (while it runs)
//! ```
//!
//! Addresses in the plan are module offsets (svma), so that address space layout randomisation does not matter.
//! Units: bytes.
#![no_std]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The environment variable that holds the number of the plan's descriptor.
pub const VARIABLE: &str = "MEMLENS_PLACEMENT";
/// First word of a plan: "memlens" and a zero byte, as this machine orders bytes.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"memlens\0");
/// Changes with the layout.
pub const VERSION: u32 = 3;

/// Bytes of a transparent huge page on x86-64, and its alignment.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Modules of a plan, at most.
pub const MAX_MODULES: usize = 32;
/// Bytes of a module's path, at most; longer ones are left out.
pub const MAX_PATH_BYTES: usize = 512;
/// Sites of a plan, at most.
pub const MAX_SITES: usize = 64;
/// Frames of a site that are compared, at most: the innermost ones.
pub const MAX_FRAMES: usize = 12;
/// Variables of a plan, at most.
pub const MAX_STATICS: usize = 64;
/// In [`Plan::own_tunables_bytes`]: there was no such variable.
pub const NO_VARIABLE: u32 = u32::MAX;
/// A block that realloc(3) grows belongs to where it was first allocated: mostly a call near that of realloc, by so
/// many bytes of code at most.
pub const NEAR_BYTES: u64 = 256;
/// Places of blocks that are kept: the last ones.
pub const MAX_BLOCKS: usize = 1024;

/// Detours of a plan, at most.
pub const MAX_PATCHES: usize = 64;
/// Bytes of code that a jump displaces, at most.
pub const MAX_DISPLACED_BYTES: usize = 96;
/// Bytes of all detours' code, at most.
pub const MAX_CODE_BYTES: usize = 1 << 16;
/// Distances in it that depend on where it lies, at most.
pub const MAX_RELOCATIONS: usize = 1024;
/// Bytes of the jump that a detour begins with.
pub const JUMP_BYTES: usize = 5;

/// What became of a detour: [`Patch::state`].
pub mod state {
    /// Its module is not loaded yet.
    pub const WAITING: u32 = 0;
    /// It is in place.
    pub const APPLIED: u32 = 1;
    /// Other bytes than the plan's stand there.
    pub const OTHER_CODE: u32 = 2;
    /// No memory within 2 GiB of the code.
    pub const NO_MEMORY: u32 = 3;
    /// The kernel does not let code be changed.
    pub const FORBIDDEN: u32 = 4;
    /// There were threads already.
    pub const THREADS: u32 = 5;
}

/// The whole plan. All zero is a valid plan of nothing.
#[repr(C)]
pub struct Plan {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Whether memory is placed (1), or only what would be is noted (0).
    pub places: u32,
    /// Blocks and mappings of fewer bytes are not looked at.
    pub least_bytes: u64,
    /// Bytes that memlens put at the head of `GLIBC_TUNABLES`, the colon behind them not counted.
    pub tunables_bytes: u32,
    /// Bytes of the variable's value without memlens, behind that colon; [`NO_VARIABLE`]: it was not set.
    pub own_tunables_bytes: u32,
    /// Whether blocks go into the pages that the system has reserved (hugetlb) as far as there are some (1), or only into
    /// transparent huge pages (0).
    pub takes_reserved: u32,
    /// Used entries of the tables below.
    pub modules_used: u32,
    /// As above.
    pub sites_used: u32,
    /// As above.
    pub statics_used: u32,
    /// Processes that have the library at work.
    pub processes: AtomicU32,
    /// Blocks and variables noted in `blocks`, ever: the next one goes to this number modulo [`MAX_BLOCKS`].
    pub noted: AtomicU32,
    /// Modules.
    pub modules: [Module; MAX_MODULES],
    /// Sites.
    pub sites: [Site; MAX_SITES],
    /// Variables.
    pub statics: [Static; MAX_STATICS],
    /// Where blocks and variables lay.
    pub blocks: [Block; MAX_BLOCKS],
    /// Used entries of the tables below.
    pub patches_used: u32,
    /// As above.
    pub codes_used: u32,
    /// Whether libraries that the program loads while it runs are noticed (1).
    pub notices_libraries: AtomicU32,
    /// Jumps written, in all processes together.
    pub jumps_written: AtomicU32,
    /// Jumps to detours.
    pub patches: [Patch; MAX_PATCHES],
    /// The detours' code, by module.
    pub codes: [Detours; MAX_MODULES],
    /// Their bytes.
    pub code: [u8; MAX_CODE_BYTES],
    /// Offsets in `code` of 4-byte distances: what the code lies further up than planned is subtracted from them.
    pub relocations: [u32; MAX_RELOCATIONS],
}

/// A jump to a detour.
#[repr(C)]
pub struct Patch {
    /// Index of its module.
    pub module: u32,
    /// [`state`], in the process that wrote last.
    pub state: AtomicU32,
    /// Module offset (svma) of the jump.
    pub svma: u64,
    /// Offset in its module's code of where it goes.
    pub target: u32,
    /// How much of `displaced` is used.
    pub displaced_bytes: u32,
    /// What must stand there.
    pub displaced: [u8; MAX_DISPLACED_BYTES],
}

/// The code of a module's detours.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Detours {
    /// Index of the module.
    pub module: u32,
    /// Where it begins in [`Plan::code`].
    pub start: u32,
    /// Length.
    pub bytes: u32,
    /// Where its distances begin in [`Plan::relocations`].
    pub relocations_start: u32,
    /// How many.
    pub relocations: u32,
    /// Fills up.
    pub reserved: u32,
    /// Module offset (svma) that it was made for.
    pub svma: u64,
}

/// An executable or library.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Module {
    /// Its path as `/proc/PID/maps` shows it.
    pub path: [u8; MAX_PATH_BYTES],
    /// Length of the path.
    pub path_bytes: u32,
    /// Fills up.
    pub reserved: u32,
    /// Address that its first loadable segment asks for, rounded down to a page: 0 where it is free to lie anywhere.
    pub first_svma: u64,
}

/// An allocation site: where the calls of a call stack return to, innermost first.
#[repr(C)]
pub struct Site {
    /// Frames.
    pub frames: [Frame; MAX_FRAMES],
    /// Used ones.
    pub frames_used: u32,
    /// The number of the object in memlens's profile.
    pub object: u32,
    /// Blocks and mappings that were placed, or would have been.
    pub blocks: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Those that the kernel refused.
    pub refused: AtomicU64,
    /// Bytes in reserved pages.
    pub reserved_bytes: AtomicU64,
    /// Blocks that were to lie in reserved pages and do not.
    pub unreserved: AtomicU64,
}

/// Where a call returns to.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Index of its module.
    pub module: u32,
    /// Fills up.
    pub reserved: u32,
    /// Module offset (svma).
    pub offset: u64,
}

/// A variable with static storage.
#[repr(C)]
pub struct Static {
    /// Index of its module.
    pub module: u32,
    /// The number of the object in memlens's profile.
    pub object: u32,
    /// Module offset (svma) of its first byte.
    pub svma: u64,
    /// Its size.
    pub bytes: u64,
}

/// Where a block or variable lay. Written in the order of the fields, `bytes` last.
#[repr(C)]
pub struct Block {
    /// Its process.
    pub process: AtomicU32,
    /// The number of its object.
    pub object: AtomicU32,
    /// First address.
    pub start: AtomicU64,
    /// Length; 0: nothing is noted here.
    pub bytes: AtomicU64,
}

impl Module {
    /// The path.
    pub fn path(&self) -> &[u8] {
        &self.path[..(self.path_bytes as usize).min(MAX_PATH_BYTES)]
    }
}

impl Plan {
    /// The modules in use.
    pub fn modules(&self) -> &[Module] {
        &self.modules[..(self.modules_used as usize).min(MAX_MODULES)]
    }

    /// The sites in use.
    pub fn sites(&self) -> &[Site] {
        &self.sites[..(self.sites_used as usize).min(MAX_SITES)]
    }

    /// The variables in use.
    pub fn statics(&self) -> &[Static] {
        &self.statics[..(self.statics_used as usize).min(MAX_STATICS)]
    }
}

impl Plan {
    /// The jumps in use.
    pub fn patches(&self) -> &[Patch] {
        &self.patches[..(self.patches_used as usize).min(MAX_PATCHES)]
    }

    /// The modules' code in use, with its bytes and distances. One that would lie outside of the tables has none.
    pub fn detours(&self) -> impl Iterator<Item = (&Detours, &[u8], &[u32])> {
        self.codes[..(self.codes_used as usize).min(MAX_MODULES)].iter().map(|detours| {
            let (start, first) = (detours.start as usize, detours.relocations_start as usize);
            let code = self.code.get(start..start + detours.bytes as usize);
            let relocations = self.relocations.get(first..first + detours.relocations as usize);
            (detours, code.unwrap_or_default(), relocations.unwrap_or_default())
        })
    }
}

impl Patch {
    /// What must stand there.
    pub fn displaced(&self) -> &[u8] {
        &self.displaced[..(self.displaced_bytes as usize).min(MAX_DISPLACED_BYTES)]
    }
}

impl Site {
    /// The frames in use.
    pub fn frames(&self) -> &[Frame] {
        &self.frames[..(self.frames_used as usize).min(MAX_FRAMES)]
    }
}

/// Whether the return addresses `expected`, innermost first, stand on a stack in that order. `stack` holds its words
/// from the top up; other words may stand between. An empty list is on no stack. The innermost may differ by `slack`
/// bytes: 0, or [`NEAR_BYTES`].
///
/// Unwinding would need tables that have no place in the target; a site's own return addresses suffice. What may
/// go wrong: words left over from calls that have ended can stand for a frame, so that a block of another site is
/// taken for one of this, if all inner frames are the same. Linear in `stack`.
pub fn is_on_stack(expected: impl IntoIterator<Item = Option<u64>>, stack: &[u64], slack: u64) -> bool {
    let mut rest = stack;
    let (mut any, mut slack) = (false, slack);
    for address in expected {
        let at = address.and_then(|address| rest.iter().position(|&word| word.abs_diff(address) <= slack));
        let Some(at) = at else { return false };
        rest = &rest[at + 1..];
        (any, slack) = (true, 0);
    }
    any
}

/// A mapping's start, and the file that begins there: a line of `/proc/PID/maps` (proc_pid_maps(5)) with offset 0.
pub fn file_start(line: &[u8]) -> Option<(u64, &[u8])> {
    let mut words = line.splitn(6, |&byte| byte == b' ');
    let range = words.next()?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let start = hexadecimal(&range[..dash])?;
    let offset = hexadecimal(words.nth(1)?)?;
    let path = words.nth(2)?.trim_ascii_start();
    (offset == 0 && path.first() == Some(&b'/')).then_some((start, path))
}

/// The place of a mapping of reserved pages (hugetlb) without a file: start and end, of a line of `/proc/PID/maps`.
pub fn reserved_mapping(line: &[u8]) -> Option<(u64, u64)> {
    let mut words = line.splitn(6, |&byte| byte == b' ');
    let range = words.next()?;
    (words.nth(4)?.trim_ascii_start() == b"/anon_hugepage (deleted)").then_some(())?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    Some((hexadecimal(&range[..dash])?, hexadecimal(&range[dash + 1..])?))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |number, &byte| Some(number << 4 | u64::from((byte as char).to_digit(16)?)))
}

/// The part of `start..start + bytes` that consists of whole units of `unit` bytes (a power of two), as start and
/// length; None if there is none.
pub fn whole(start: u64, bytes: u64, unit: u64) -> Option<(u64, u64)> {
    let first = start.checked_add(unit - 1)? & !(unit - 1);
    let last = start.checked_add(bytes)? & !(unit - 1);
    (first < last).then(|| (first, last - first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_in_their_order_only() {
        let stack = [9, 1, 7, 2, 1, 3];
        let found = |expected: &[u64]| is_on_stack(expected.iter().map(|&address| Some(address)), &stack, 0);
        assert!(found(&[1, 2, 3]));
        assert!(found(&[9, 1, 1, 3]));
        assert!(!found(&[2, 7]), "in the wrong order");
        assert!(!found(&[3, 3]), "only once there");
        assert!(!found(&[]));
        assert!(!is_on_stack([Some(1), None], &stack, 0), "a module that is not mapped");
        assert!(is_on_stack([Some(8), Some(7)], &stack, 1) && !is_on_stack([Some(8), Some(8)], &stack, 1));
    }

    #[test]
    fn lines_of_maps_name_the_start_of_files() {
        let line = b"55d0c0a00000-55d0c0a01000 r--p 00000000 fe:00 1234   /usr/bin/a b";
        assert_eq!(file_start(line), Some((0x55d0_c0a0_0000, &b"/usr/bin/a b"[..])));
        for other in [
            &b"55d0c0a01000-55d0c0a02000 r-xp 00001000 fe:00 1234   /usr/bin/a"[..],
            b"7ffc0000-7ffd0000 rw-p 00000000 00:00 0   [stack]",
            b"7ffc0000-7ffd0000 rw-p 00000000 00:00 0 ",
            b"",
            b"zz-1 r--p 00000000 fe:00 1 /a",
        ] {
            assert_eq!(file_start(other), None, "{other:?}");
        }
    }

    #[test]
    fn lines_of_maps_name_reserved_pages() {
        let line = b"7f5d4c400000-7f5d4cc00000 rw-p 00000000 00:0f 77    /anon_hugepage (deleted)";
        assert_eq!(reserved_mapping(line), Some((0x7f5d_4c40_0000, 0x7f5d_4cc0_0000)));
        for other in [
            &b"7f5d4c400000-7f5d4cc00000 rw-p 00000000 00:00 0 "[..],
            b"7f5d4c400000-7f5d4cc00000 rw-p 00000000 00:0f 77    /tmp/a /anon_hugepage (deleted)",
            b" /anon_hugepage (deleted)",
            b"",
        ] {
            assert_eq!(reserved_mapping(other), None, "{other:?}");
        }
    }

    #[test]
    fn only_whole_pages_are_meant() {
        const MIB: u64 = 1 << 20;
        assert_eq!(whole(MIB, 4 * MIB, 2 * MIB), Some((2 * MIB, 2 * MIB)));
        assert_eq!(whole(2 * MIB, 2 * MIB, 2 * MIB), Some((2 * MIB, 2 * MIB)));
        assert_eq!(whole(MIB, 2 * MIB, 2 * MIB), None);
        assert_eq!(whole(u64::MAX - 5, 5, 4096), None);
        assert_eq!(whole(5, u64::MAX, 4096), None);
    }
}
