//! What a sample's access goes to: from registers, frames and mappings to a place, without names.

use memlens_code::{Register, WaitingAccess};
use memlens_objects::SiteId;
use memlens_types::Sampled;

use crate::address_space::{AddressSpace, Area, Code, Place};
use crate::modules::Files;
use crate::naming::thread_locals_start;
use crate::on_behalf::is_on_behalf;
use crate::record::Sample;
use crate::registers::Registers;
use crate::unwinder::{RED_ZONE, StackFrame, frame_around};

/// The usual limit of the first thread's stack (setrlimit(2), `RLIMIT_STACK`).
pub const STACK_BYTES: u64 = 8 << 20;

/// Memory that blocks lie in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeapMemory {
    /// [`Area::Break`] or [`Area::Anonymous`].
    pub area: Area,
    /// The call that gave the memory to the function that accesses it, if that is one that works for its callers.
    pub user: Option<Code>,
}

/// Where a sample's data lies, as far as it can be said without names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Spot {
    /// In an image, at this svma.
    Image {
        /// The file.
        file: u32,
        /// The address.
        svma: u64,
    },
    /// In a frame of the thread's stack.
    Frame {
        /// The file of the frame's code; None: generated code.
        file: Option<u32>,
        /// The frame's instruction (svma), or the byte before its return address.
        svma: u64,
        /// From the canonical frame address, in bytes.
        cfa_offset: i64,
    },
    /// On the stack, in no frame that is known.
    Stack,
    /// In a heap block whose allocation was watched.
    Block {
        /// Who allocated it.
        site: SiteId,
        /// What it would be without that.
        memory: HeapMemory,
    },
    /// Where blocks lie, in none that was watched.
    Heap(HeapMemory),
    /// In other memory without a file of code.
    Area(Area),
    /// In the executable's thread-local storage.
    ThreadLocal {
        /// The executable.
        file: u32,
        /// Offset in its TLS segment.
        offset: u64,
    },
    /// At an offset from the thread pointer: code tells which.
    ThreadPointer,
    /// The address is lost; whether it loaded a pointer to anonymous memory.
    Lost {
        /// Area that the loaded pointer points to.
        points_to: Option<Area>,
    },
    /// Nothing is mapped there.
    Unmapped,
    /// The sample waits for an instruction that touches no memory.
    Computation,
    /// It waits for the code behind a jump, call or return.
    Transfer,
    /// Nothing is known of the code.
    NoCode,
    /// The sample came without user registers.
    NoRegisters,
    /// Only the sampled instruction is known, and nothing else is to be used.
    CodeOnly,
    /// It was taken while the kernel worked for the program.
    InKernel,
    /// It was due in a system call, or in what the kernel does in the program for one (vdso(7)).
    InCall,
    /// It was taken in the agent's code.
    InAgent,
}

impl Spot {
    /// An address in the frame of the function around a place in the code.
    pub fn in_frame((file, svma): Code, cfa: u64, address: u64) -> Self {
        Self::Frame { file, svma, cfa_offset: address.wrapping_sub(cfa) as i64 }
    }

    /// Whether it is a block or a variable, which has a begin. Bursts' spots in variables are their begins.
    pub fn has_start(&self) -> bool {
        matches!(
            self,
            Self::Block { .. } | Self::Image { .. } | Self::Frame { .. } | Self::ThreadLocal { .. }
        )
    }
}

/// A sample in its process: what its address can be found with.
#[derive(Clone, Copy, Debug)]
pub struct SampleView<'a> {
    /// It.
    pub sample: &'a Sample,
    /// What its process has mapped.
    pub space: &'a AddressSpace,
    /// The files of these mappings.
    pub files: &'a Files,
    /// Its call stack, the sampled function first.
    pub frames: &'a [StackFrame],
}

/// Where an access goes.
#[derive(Clone, Debug)]
pub struct Found {
    /// What lies there.
    pub spot: Spot,
    /// Its address, or one in the same object (see `within`), if it is known.
    pub address: Option<u64>,
    /// Where in the element, or in what a pointer in it is to, the access is, in bytes: where `address` is one in the same object.
    pub within: Option<u64>,
    /// Which way it was found.
    pub way: Sampled,
}

impl Found {
    /// A spot without an address.
    fn without_address(spot: Spot) -> Self {
        Self { spot, address: None, within: None, way: Sampled::default() }
    }
}

impl SampleView<'_> {
    /// What an address belongs to: a frame if it lies between the stack pointer and the outermost frame that was found,
    /// else what is mapped.
    pub fn at(&self, address: u64) -> Spot {
        if let Some(frame) = self.frame_at(address) {
            return frame;
        }
        match self.space.find(address) {
            Place::Image { file, svma } => Spot::Image { file, svma },
            Place::Area(Area::Stack) => Spot::Stack,
            Place::Area(area @ (Area::Break | Area::Anonymous)) => {
                let called = self.frames.first().zip(self.frames.get(1));
                let user = called.filter(|(callee, _)| is_on_behalf(self.space.code(callee.pc), self.files));
                let user = user.map(|(_, caller)| self.space.code(caller.pc.wrapping_sub(1)));
                Spot::Heap(HeapMemory { area, user })
            }
            Place::Area(area) => Spot::Area(area),
            Place::Unmapped => {
                // The first thread's stack grows without a record, by its limit at most.
                let pointer = self.sample.registers.map_or(0, |registers| registers.stack_pointer());
                match pointer.checked_sub(RED_ZONE).and_then(|low| address.checked_sub(low)) {
                    Some(above) if above < STACK_BYTES => Spot::Stack,
                    _ => Spot::Unmapped,
                }
            }
        }
    }

    fn frame_at(&self, address: u64) -> Option<Spot> {
        let pointer = self.sample.registers?.stack_pointer();
        let (_, pc, cfa) = frame_around(pointer, self.frames, address)?;
        Some(Spot::in_frame(self.space.code(pc), cfa, address))
    }

    /// Where an access goes whose address the processor reported.
    pub fn reported(&self, address: u64) -> Found {
        let way = Sampled { by_hardware: 1, ..Sampled::default() };
        Found { spot: self.at(address), address: Some(address), within: None, way }
    }

    /// Where an access goes, by the registers that were sampled at `pc` behind it.
    pub fn computed(&self, access: &WaitingAccess, registers: &Registers, pc: u64) -> Found {
        let value = |register: Register| registers.get(register);
        let expression = &access.address;
        if let Some(address) = access.address(value) {
            let address = match expression.is_svma() {
                true => self.space.address_of(pc, address).unwrap_or(address),
                false => address,
            };
            let way = Sampled { by_registers: 1, ..Sampled::default() };
            return Found { spot: self.at(address), address: Some(address), within: None, way };
        }
        if let Some(found) = self.in_object(access, value).or_else(|| self.next_in_chase(access, value)) {
            return found;
        }
        // Only of the executable it is known where its variables are; in other code registers may hold any distance.
        let file = self.space.code(pc).0.filter(|&file| self.space.executable() == Some(file));
        if expression.is_thread_local && (!expression.has_registers() || file.is_some()) {
            let found = file.and_then(|file| self.thread_local(file, access.from_thread_pointer(value)?));
            let way = Sampled { by_registers: u64::from(found.is_some()), ..Sampled::default() };
            return Found { way, ..Found::without_address(found.unwrap_or(Spot::ThreadPointer)) };
        }
        let points_to = access.loaded.and_then(value).and_then(|pointer| match self.space.find(pointer) {
            Place::Area(area @ (Area::Break | Area::Anonymous)) => Some(area),
            _ => None,
        });
        Found::without_address(Spot::Lost { points_to })
    }

    /// Where an access goes of whose address only the object is known, not which element it is. Where in the element,
    /// or in which member of what the pointer is to, is known.
    fn in_object(&self, access: &WaitingAccess, value: impl FnMut(Register) -> Option<u64>) -> Option<Found> {
        let address = access.address_in_object(value)?;
        let displacement = access.operand.address.disp;
        let way = Sampled { by_code: 1, ..Sampled::default() };
        match self.at(address) {
            Spot::Unmapped => None,
            // A frame's pointer is to no variable.
            Spot::Frame { .. } => {
                let begin = address.wrapping_add_signed(displacement);
                Some(Found { spot: self.at(begin), address: Some(begin), within: None, way })
            }
            spot => Some(Found { spot, address: Some(address), within: Some(displacement as u64), way }),
        }
    }

    /// Where an access goes through which the loop's next round will find its node, if that is no list's end.
    fn next_in_chase(
        &self,
        access: &WaitingAccess,
        value: impl FnOnce(Register) -> Option<u64>,
    ) -> Option<Found> {
        let address = access.next_in_chase(value)?;
        let way = Sampled { by_code: 1, ..Sampled::default() };
        match self.at(address) {
            Spot::Unmapped | Spot::Frame { .. } | Spot::Stack | Spot::Area(Area::Kernel) => None,
            spot => {
                let within = Some(access.operand.address.disp as u64);
                Some(Found { spot, address: Some(address), within, way })
            }
        }
    }

    /// The executable's thread-local storage so far from the thread pointer.
    fn thread_local(&self, file: u32, distance: i64) -> Option<Spot> {
        let symbols = self.files.get(file)?.symbols()?;
        let segment = symbols.tls_segment()?;
        let offset = u64::try_from(distance.checked_sub(thread_locals_start(symbols)?)?).ok()?;
        (offset < segment.size_bytes).then_some(Spot::ThreadLocal { file, offset })
    }
}
