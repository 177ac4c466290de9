//! What the data of a tally is called.
//!
//! | spot | object |
//! |---|---|
//! | image | the variable by symbol or debug information, else the section |
//! | frame | the local that covers the bytes, else the frame |
//! | thread-local | the executable's variable at the distance from the thread pointer |
//! | heap, anonymous memory | `heap through POINTER`: the variable through which it was reached; of `malloc`, `free` and what works for them: the allocator's data |
//! | lost address | the same, if the code names a pointer or a variable |
//! | no access | `computation`, `jumps, calls and returns`, or `system calls`: no data's cost |
//!
//! Blocks whose allocation was watched are named after it, in `site_naming.rs`. Without that a block has no name
//! of its own. Its pointer has: the register that the access used is followed back to the one variable whose pointer
//! it was made from (`position` for a reference to `position[i]`, [`FunctionCode::root`]), else to the nearest that
//! it came from ([`FunctionCode::origin`]).

use std::collections::BTreeSet;
use std::rc::Rc;

use memlens_code::{Architecture, FunctionCode, IndexExtension, MemoryOperand, Origin, Register};
use memlens_objects::SiteId;
use memlens_profile::{ALLOCATOR_DATA, HEAP_THROUGH, HEAP_USED_BY, IN_KERNEL};
use memlens_static::{Identity, Part, StaticModule, Waited};
use memlens_symbols::{Module, NamedPointer, TypeRef};
use memlens_types::{AccessKind, ObjectKind, Sampled};
use rustc_hash::FxHashMap;

use crate::address_space::{Area, Code};
use crate::heap::Heap;
use crate::modules::{Files, MappedFile};
use crate::on_behalf::argument;
use crate::recording::{Tally, TallyKey};
use crate::site_naming::{NamedSite, SiteNamer};
use crate::spot::{HeapMemory, Spot};

/// An object's identity and description.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamedObject {
    /// Its class.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
    /// Type as the source spells it.
    pub type_name: Option<String>,
    /// File and line of its declaration.
    pub declared: Option<(String, u32)>,
    /// Number of the file it belongs to.
    pub file: Option<u32>,
    /// Size in bytes, where it is a variable.
    pub bytes: Option<u64>,
    /// The type that says what it consists of.
    pub held: Option<HeldType>,
    /// Where it was allocated, if that was watched.
    pub site: Option<NamedSite>,
    /// Where the variable is declared that its blocks were assigned to.
    pub variable: Option<(String, u32)>,
    /// The pointer it was reached through.
    pub access_path: Option<String>,
    /// Why nothing better is known.
    pub unknown_reason: Option<String>,
}

impl NamedObject {
    pub(crate) fn new(kind: ObjectKind, name: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
            type_name: None,
            declared: None,
            file: None,
            bytes: None,
            held: None,
            site: None,
            variable: None,
            access_path: None,
            unknown_reason: None,
        }
    }

    /// Whether it is memory of the heap of which it is known only what leads to it, so that other blocks to which that leads say more. An allocator's data
    /// are no blocks.
    pub fn has_pointer(&self) -> bool {
        self.kind == ObjectKind::Heap
    }

    fn unknown(reason: &str) -> Self {
        Self { unknown_reason: Some(reason.to_owned()), ..Self::new(ObjectKind::Unknown, reason) }
    }
}

/// A type of a file's debug information, and what it says of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeldType {
    /// The file.
    pub file: u32,
    /// The type.
    pub type_ref: TypeRef,
    /// Whether the object is what a variable of this type holds or points to, and not the variable.
    pub is_behind: bool,
}

impl HeldType {
    /// That of a variable.
    pub(crate) fn of_variable(file: Option<u32>, type_ref: Option<TypeRef>) -> Option<Self> {
        Some(Self { file: file?, type_ref: type_ref?, is_behind: false })
    }

    /// That of what a variable holds.
    pub(crate) fn behind(file: Option<u32>, type_ref: Option<TypeRef>) -> Option<Self> {
        Some(Self { is_behind: true, ..Self::of_variable(file, type_ref)? })
    }
}

/// Finds names, and keeps those it found.
#[derive(Debug, Default)]
pub struct Namer {
    /// The pointer of each operand, and whether the code says that it points to anonymous memory.
    pointers: FxHashMap<(u32, u64, u8), Option<NamedPointer>>,
    /// By call and register.
    given: FxHashMap<(u32, u64, Register), Option<NamedPointer>>,
    /// What static analysis says that the operands of an instruction touch.
    claims: FxHashMap<(u32, u64), Vec<Vec<Identity>>>,
    sites: SiteNamer,
}

/// What [`ObjectKind::Computation`] is.
const COMPUTATION: &str = "computation";
const TRANSFER: &str = "jumps, calls and returns";
const IN_CALL: &str = "system calls";
const IN_AGENT: &str = "memlens's agent";
/// What thread-local data is called of which no variable is known.
const THREAD_LOCAL: &str = "thread-local memory";
/// Reasons for [`ObjectKind::Unknown`].
const NO_CODE: &str = "no function is known at the sampled address";
const GENERATED: &str = if cfg!(target_arch = "x86_64") {
    "generated code, whose data --mode burst tells"
} else {
    "generated code"
};
const NOT_HERE: &str = "generated code, or code of a file that is not here";
const NO_CLAIM: &str = "static analysis names no object";
const NO_FUNCTION: &str = "the code is in no function that static analysis reads";
const NO_REGISTERS: &str = "the sample came without user registers";
const NOT_MAPPED: &str = "nothing known is mapped at the address";
const ADDRESS_LOST: &str = "the address was overwritten before the sample, and the code names no variable";

impl Namer {
    /// See [`SiteNamer::mapped_by_allocators`].
    pub fn mapped_by_allocators(&mut self, heap: &Heap, files: &Files) -> Vec<SiteId> {
        self.sites.mapped_by_allocators(heap, files)
    }

    /// See [`SiteNamer::stack`].
    pub fn site_stack(&self, site: SiteId) -> (&[u64], &[SiteId]) {
        self.sites.stack(site)
    }

    /// The object of a site's blocks.
    pub fn of_site(&mut self, site: SiteId, files: &Files, heap: &Heap) -> NamedObject {
        self.sites.object(site, heap, files)
    }

    /// The object of a tally, and its samples with the way they were found set right.
    ///
    /// [`Self::prepare`] comes first.
    pub fn object(
        &mut self,
        key: &TallyKey,
        sampled: Sampled,
        files: &Files,
        heap: &Heap,
    ) -> (NamedObject, Sampled) {
        let by_code = Sampled { by_code: sampled.samples, by_registers: 0, by_hardware: 0, ..sampled };
        let operand = operand_of(key, files);
        match &key.spot {
            Spot::Image { file, svma } => (in_image(*file, *svma, files), sampled),
            Spot::Frame { file, svma, cfa_offset } => (in_frame(*file, *svma, *cfa_offset, files), sampled),
            Spot::Stack => (NamedObject::new(ObjectKind::Stack, "stack outside known frames"), sampled),
            Spot::Block { site, .. } => (self.sites.object(*site, heap, files), sampled),
            Spot::Heap(memory) => (self.in_heap(memory, key.code, operand, files), sampled),
            Spot::Area(area) => (self.in_area(area, key.code, operand, files), sampled),
            Spot::ThreadLocal { file, offset } => {
                let unnamed = || NamedObject::new(ObjectKind::Tls, THREAD_LOCAL);
                (in_thread_locals(*file, *offset, files).unwrap_or_else(unnamed), sampled)
            }
            Spot::ThreadPointer => {
                match operand.and_then(|operand| thread_local(key.code, &operand, files)) {
                    Some(object) => (object, by_code),
                    None => (NamedObject::new(ObjectKind::Tls, THREAD_LOCAL), by_code),
                }
            }
            Spot::Lost { points_to } => {
                self.lost(points_to.as_ref(), key.code, operand, files, sampled, by_code)
            }
            // It was accessed, so something is there: a mapping that was not recorded.
            Spot::Unmapped => match self.pointer(key.code, operand, files) {
                Some((pointer, symbols)) => (through(&pointer, &symbols, key.code.0), sampled),
                None => (NamedObject::unknown(NOT_MAPPED), sampled),
            },
            Spot::Computation => (NamedObject::new(ObjectKind::Computation, COMPUTATION), sampled),
            Spot::Transfer => (NamedObject::new(ObjectKind::Computation, TRANSFER), sampled),
            Spot::NoCode => (no_code(key.code, files), sampled),
            Spot::NoRegisters => (NamedObject::unknown(NO_REGISTERS), sampled),
            // Outside of every file; the others do not come here.
            Spot::CodeOnly => (no_code(key.code, files), sampled),
            Spot::InKernel => (NamedObject::unknown(IN_KERNEL), sampled),
            Spot::InAgent => (NamedObject::new(ObjectKind::Computation, IN_AGENT), sampled),
            Spot::InCall => (NamedObject::new(ObjectKind::Computation, IN_CALL), sampled),
        }
    }

    /// What a watched block would be called if its allocation were not known: samples of blocks like it that were
    /// not watched have this name.
    pub fn unwatched(&mut self, key: &TallyKey, memory: &HeapMemory, files: &Files) -> NamedObject {
        self.in_heap(memory, key.code, operand_of(key, files), files)
    }

    fn in_area(
        &mut self,
        area: &Area,
        code: Code,
        operand: Option<MemoryOperand>,
        files: &Files,
    ) -> NamedObject {
        match area {
            Area::Kernel => NamedObject::new(ObjectKind::Kernel, "vDSO and vvar"),
            Area::Stack => NamedObject::new(ObjectKind::Stack, "stack outside known frames"),
            // As exact mode calls it.
            Area::File(name) => NamedObject::new(ObjectKind::Mmap, format!("mapping of {name}")),
            area => self.in_heap(&HeapMemory { area: area.clone(), user: None }, code, operand, files),
        }
    }

    /// Memory of the heap, by the pointer that an instruction uses, or that its user's call gives its function; else by the function.
    fn in_heap(
        &mut self,
        memory: &HeapMemory,
        code: Code,
        operand: Option<MemoryOperand>,
        files: &Files,
    ) -> NamedObject {
        if self.sites.is_allocators(memory.user.unwrap_or(code), files) {
            return allocators(&memory.area);
        }
        let (user, pointer) = match memory.user {
            Some(call) => {
                let stores = operand.is_none_or(|operand| operand.writes);
                (call, self.given(call, argument(code, stores, files), files))
            }
            None => (code, self.pointer(code, operand, files)),
        };
        match pointer {
            Some((pointer, symbols)) => through(&pointer, &symbols, user.0),
            None => {
                let function = function_name(user, files);
                NamedObject {
                    file: user.0,
                    ..NamedObject::new(ObjectKind::Heap, format!("{HEAP_USED_BY}{function}"))
                }
            }
        }
    }

    /// The address is gone: what the code says.
    fn lost(
        &mut self,
        points_to: Option<&Area>,
        code: Code,
        operand: Option<MemoryOperand>,
        files: &Files,
        sampled: Sampled,
        by_code: Sampled,
    ) -> (NamedObject, Sampled) {
        if let (Some(operand), Some(file)) = (operand, code.0)
            && let Some(mapped) = files.get(file)
            && let Some(svma) = fixed_base(mapped, &operand)
        {
            return (in_image(file, svma, files), by_code);
        }
        if self.sites.is_allocators(code, files) {
            return (allocators(points_to.unwrap_or(&Area::Break)), by_code);
        }
        match (self.pointer(code, operand, files), points_to) {
            (Some((pointer, symbols)), _) => (through(&pointer, &symbols, code.0), by_code),
            (None, points_to) => {
                let claimed = code.0.zip(operand).and_then(|(file, operand)| {
                    let claims = self.claims.get(&(file, operand.pc))?.get(usize::from(operand.operand))?;
                    // Of several nobody knows which.
                    let [identity] = claims.as_slice() else { return None };
                    Some(of_identity(file, identity, files))
                });
                match (claimed, points_to) {
                    (Some(object), _) => (object, by_code),
                    (None, Some(area)) => (self.in_area(area, code, operand, files), by_code),
                    (None, None) => (NamedObject::unknown(ADDRESS_LOST), sampled),
                }
            }
        }
    }

    /// Static analysis of the functions with samples whose address is lost and whose pointer has no name.
    /// Code that was analysed once is not analysed again. Cost: see
    /// [`StaticModule::analyse_around`].
    pub fn prepare(&mut self, tallies: &[(TallyKey, Tally)], files: &Files) {
        let mut wanted: FxHashMap<u32, BTreeSet<u64>> = FxHashMap::default();
        for (key, _) in tallies.iter().filter(|(key, _)| matches!(key.spot, Spot::Lost { .. })) {
            let Some(file) = key.code.0 else { continue };
            let pc = key.code.1;
            if !self.claims.contains_key(&(file, pc))
                && self.pointer(key.code, operand_of(key, files), files).is_none()
            {
                wanted.entry(file).or_default().insert(pc);
            }
        }
        for (file, addresses) in wanted {
            let Some(symbols) = files.get(file).and_then(|mapped| mapped.symbols()) else { continue };
            let analysed = StaticModule::analyse_around(symbols, &addresses);
            for (_, _, operands) in analysed.functions() {
                for operand in operands.iter().filter(|operand| addresses.contains(&operand.pc)) {
                    let of = self.claims.entry((file, operand.pc)).or_default();
                    of.push(operand.identities.clone());
                }
            }
            // Those without an answer are not asked for again.
            addresses.into_iter().for_each(|pc| {
                self.claims.entry((file, pc)).or_default();
            });
        }
    }

    /// What a part of static attribution is called. Where the operand may mean several objects, or a block that no variable
    /// took, as a constructor's that is not inlined, the variable whose pointer the operand uses says more.
    pub fn of_part(&mut self, file: u32, part: &Part, files: &Files) -> NamedObject {
        let object = match (&part.identity, part.waited) {
            (Some(identity), _) => of_identity(file, identity, files),
            (None, Waited::Operand(_)) => NamedObject::unknown(NO_CLAIM),
            (None, Waited::Computation) => return NamedObject::new(ObjectKind::Computation, COMPUTATION),
            (None, Waited::Unknown) => return NamedObject::unknown(NO_FUNCTION),
        };
        let is_memory = matches!(object.kind, ObjectKind::Heap | ObjectKind::Unknown);
        if !is_memory || part.shared_by == 1 && object.access_path.is_some() {
            return object;
        }
        let code = (Some(file), part.pc);
        match self.pointer(code, operand_at(code, part.waited.operand(), files), files) {
            Some((pointer, symbols)) => through(&pointer, &symbols, Some(file)),
            None => object,
        }
    }

    /// The variable whose pointer a call gives in a register.
    fn given(
        &mut self,
        call: Code,
        register: Register,
        files: &Files,
    ) -> Option<(NamedPointer, Rc<MappedFile>)> {
        let (file, pc) = (call.0?, call.1);
        let mapped = files.get(file)?.clone();
        let found = self
            .given
            .entry((file, pc, register))
            .or_insert_with(|| {
                let function = mapped.function(pc)?;
                let call = function.instruction_around(pc)?;
                named_origin(&function, mapped.symbols()?, call, register)
            })
            .clone()?;
        Some((found, mapped))
    }

    /// The variable whose pointer an operand uses.
    fn pointer(
        &mut self,
        code: Code,
        operand: Option<MemoryOperand>,
        files: &Files,
    ) -> Option<(NamedPointer, Rc<MappedFile>)> {
        let (file, operand) = (code.0?, operand?);
        let mapped = files.get(file)?.clone();
        let found = self
            .pointers
            .entry((file, operand.pc, operand.operand))
            .or_insert_with(|| {
                let symbols = mapped.symbols()?;
                let function = mapped.function(operand.pc)?;
                let expression = operand.address;
                // An index that is not scaled may be the pointer, and the base the index.
                let is_whole = expression.index_extension == IndexExtension::None;
                let index = expression.index.filter(|_| expression.scale == 1 && is_whole);
                [expression.base, index]
                    .into_iter()
                    .flatten()
                    .find_map(|register| named_origin(&function, symbols, operand.pc, register))
            })
            .clone()?;
        Some((found, mapped))
    }
}

/// What static analysis found, in the words of a profile.
pub fn of_identity(file: u32, identity: &Identity, files: &Files) -> NamedObject {
    let symbols = files.get(file).and_then(|mapped| mapped.symbols());
    let kept = |kind, name: String| NamedObject { file: Some(file), ..NamedObject::new(kind, name) };
    match identity {
        Identity::Heap { calls } => {
            // The first call, from the allocation outwards, whose result a variable takes.
            let variable =
                symbols.and_then(|symbols| calls.iter().find_map(|&call| symbols.assigned_variable(call)));
            match variable {
                Some(variable) => NamedObject {
                    declared: variable.decl_file.as_deref().map(str::to_owned).zip(variable.decl_line),
                    access_path: Some(variable.name.clone()),
                    ..kept(ObjectKind::Heap, format!("{HEAP_THROUGH}{}", variable.name))
                },
                None => {
                    let code = (Some(file), calls.first().map_or(0, |call| call.saturating_sub(1)));
                    let function = function_name(code, files);
                    kept(ObjectKind::Heap, format!("{HEAP_USED_BY}{function}"))
                }
            }
        }
        Identity::Global { svma, .. } => in_image(file, *svma, files),
        Identity::ThreadLocal { name } => {
            kept(ObjectKind::Tls, name.clone().unwrap_or_else(|| THREAD_LOCAL.to_owned()))
        }
        Identity::Local { name, .. } => kept(ObjectKind::Local, name.clone()),
        Identity::Frame { function } => {
            let function = function_name((Some(file), *function), files);
            kept(ObjectKind::Stack, format!("frame of {function}"))
        }
        Identity::PointedBy { name } => NamedObject {
            access_path: Some(name.clone()),
            ..kept(ObjectKind::Heap, format!("{HEAP_THROUGH}{name}"))
        },
        _ => NamedObject::unknown(NO_CLAIM),
    }
}

/// What an allocator keeps between blocks, and in those that are free: their links, their sizes. As exact mode calls it.
fn allocators(area: &Area) -> NamedObject {
    let where_it_lies = if *area == Area::Break { "brk heap" } else { "mapped" };
    NamedObject::new(ObjectKind::Mmap, format!("{ALLOCATOR_DATA} ({where_it_lies})"))
}

/// `heap through column`.
fn through(pointer: &NamedPointer, mapped: &MappedFile, file: Option<u32>) -> NamedObject {
    NamedObject {
        type_name: mapped.symbols().and_then(|symbols| symbols.pointee_name(pointer)),
        declared: pointer.decl_file.as_deref().map(str::to_owned).zip(pointer.decl_line),
        file,
        held: HeldType::behind(file, pointer.type_ref),
        access_path: Some(pointer.name.clone()),
        ..NamedObject::new(ObjectKind::Heap, format!("{HEAP_THROUGH}{}", pointer.name))
    }
}

fn named_origin(
    function: &FunctionCode,
    symbols: &Module,
    pc: u64,
    register: Register,
) -> Option<NamedPointer> {
    let mut known = |pc: u64, register: Register| {
        // The stack pointer and a frame pointer hold no data's address.
        let of = function.architecture();
        let is_frame = register == of.stack_pointer()
            || (register == of.frame_pointer()
                && symbols.cfa_rule(pc).is_some_and(|rule| rule.register == register.0));
        if is_frame { None } else { symbols.pointer_in_register(pc, register.0) }
    };
    // The variable that owns what a reference, or a pointer of a loop, points into.
    let root = function.root(pc, register, &mut known, &mut |origin| name_of(origin, symbols));
    root.or_else(|| name_of(&function.origin(pc, register, &mut known)?, symbols))
}

fn name_of(origin: &Origin<NamedPointer>, symbols: &Module) -> Option<NamedPointer> {
    match origin {
        Origin::Known(pointer) => Some(pointer.clone()),
        Origin::Loaded { pc, address, base } => {
            if address.is_svma() {
                return symbols.pointer_at(address.disp as u64);
            }
            let is_frame = |base: &Register| symbols.architecture().is_some_and(|of| of.is_frame_base(*base));
            if let Some(frame) = address.base.filter(is_frame)
                && address.index.is_none()
                && let Some(found) = symbols.pointer_in_slot(*pc, frame.0, address.disp)
            {
                return Some(found);
            }
            // An array of pointers at a fixed address: its index is in a register.
            let pointer = name_of(base.as_deref()?, symbols)?;
            let offset = u64::try_from(address.disp).ok()?;
            symbols.pointer_through(&pointer, offset, address.index.is_some())
        }
        Origin::Fixed(svma) => symbols.pointer_at(*svma),
        Origin::Returned { pc } => {
            let variable = symbols.assigned_variable(*pc)?;
            Some(NamedPointer {
                name: variable.name,
                type_ref: variable.type_ref,
                decl_file: variable.decl_file,
                decl_line: variable.decl_line,
            })
        }
        _ => None,
    }
}

/// The svma of the global that an operand's base register points to, if the code fixes it.
fn fixed_base(mapped: &MappedFile, operand: &MemoryOperand) -> Option<u64> {
    if operand.address.is_svma() {
        return Some(operand.address.disp as u64);
    }
    let function = mapped.function(operand.pc)?;
    let mut nothing = |_: u64, _: Register| None::<()>;
    match function.origin(operand.pc, operand.address.base?, &mut nothing)? {
        Origin::Fixed(svma) => Some(svma),
        _ => None,
    }
}

/// The operand of a tally.
fn operand_of(key: &TallyKey, files: &Files) -> Option<MemoryOperand> {
    operand_at(key.code, key.operand, files)
}

fn operand_at(code: Code, number: Option<u8>, files: &Files) -> Option<MemoryOperand> {
    let (file, number) = (code.0?, number?);
    let function = files.get(file)?.function(code.1)?;
    function.operands(code.1).into_iter().find(|operand| operand.operand == number)
}

/// What an operand does, and how many bytes it touches.
pub fn access_of(code: Code, operand: Option<u8>, files: &Files) -> (AccessKind, u32) {
    match operand_at(code, operand, files) {
        None => (AccessKind::Fetch, 0),
        Some(MemoryOperand { reads: true, writes: true, size_bytes, .. }) => (AccessKind::Modify, size_bytes),
        Some(MemoryOperand { writes: true, size_bytes, .. }) => (AccessKind::Store, size_bytes),
        Some(operand) => (AccessKind::Load, operand.size_bytes),
    }
}

/// What waits at code that nothing is known of.
fn no_code((file, _): Code, files: &Files) -> NamedObject {
    NamedObject::unknown(match file {
        Some(_) => NO_CODE,
        None if files.may_be_elsewhere() => NOT_HERE,
        None => GENERATED,
    })
}

pub(crate) fn in_image(file: u32, svma: u64, files: &Files) -> NamedObject {
    let Some(mapped) = files.get(file) else { return NamedObject::unknown(NOT_MAPPED) };
    let module_name = mapped.path.rsplit('/').next().unwrap_or_default();
    let Some(symbols) = mapped.symbols() else {
        return NamedObject {
            file: Some(file),
            ..NamedObject::new(ObjectKind::Global, format!("data of {module_name}"))
        };
    };
    if let Some(symbol) = symbols.data_symbol_over(svma) {
        let info = symbols.variable_info(symbol.svma);
        return NamedObject {
            type_name: info.as_ref().and_then(|info| info.type_name.clone()),
            declared: info
                .as_ref()
                .and_then(|info| info.decl_file.as_deref().map(str::to_owned).zip(info.decl_line)),
            file: Some(file),
            bytes: Some(symbol.size),
            held: HeldType::of_variable(Some(file), info.as_ref().and_then(|info| info.type_ref)),
            ..NamedObject::new(ObjectKind::Global, symbol.name)
        };
    }
    let section = symbols.sections().iter().find(|section| section.contains(svma));
    let (kind, name) = match section {
        Some(section) if section.is_data() => {
            (ObjectKind::Global, format!("{} of {module_name}", section.name))
        }
        Some(_) => (ObjectKind::Code, format!("code of {module_name}")),
        None => (ObjectKind::Global, format!("headers of {module_name}")),
    };
    NamedObject { file: Some(file), ..NamedObject::new(kind, name) }
}

pub(crate) fn in_frame(file: Option<u32>, svma: u64, cfa_offset: i64, files: &Files) -> NamedObject {
    let symbols = file.and_then(|file| files.get(file)).and_then(|mapped| mapped.symbols());
    if let Some(symbols) = symbols {
        let variables = symbols.frame_variables(svma);
        // Those of the innermost scope come last among equals.
        let found = variables.iter().rev().find(|variable| {
            cfa_offset
                .checked_sub(variable.cfa_offset)
                .and_then(|within| u64::try_from(within).ok())
                .is_some_and(|within| within < variable.size_bytes)
        });
        if let Some(variable) = found {
            return NamedObject {
                type_name: variable.type_name.as_deref().map(str::to_owned),
                declared: variable.decl_file.as_deref().map(str::to_owned).zip(variable.decl_line),
                file,
                held: HeldType::of_variable(file, variable.type_ref),
                bytes: Some(variable.size_bytes),
                ..NamedObject::new(ObjectKind::Local, variable.name.to_string())
            };
        }
    }
    let function = function_name((file, svma), files);
    NamedObject { file, ..NamedObject::new(ObjectKind::Stack, format!("frame of {function}")) }
}

/// How far into its block or variable an access is, in bytes, as far as its address or its code tell.
pub(crate) fn offset_in(key: &TallyKey, files: &Files) -> Option<u64> {
    match key.spot {
        Spot::Block { .. } => key.within,
        Spot::Image { file, svma } => {
            let symbol = files.get(file)?.symbols()?.data_symbol_over(svma)?;
            let within = svma.wrapping_add(key.within.unwrap_or(0)).checked_sub(symbol.svma)?;
            (within < symbol.size).then_some(within)
        }
        Spot::ThreadLocal { file, offset } => {
            let symbol = files.get(file)?.symbols()?.tls_symbol_over(offset)?;
            offset.checked_sub(symbol.svma)
        }
        Spot::Frame { file, svma, cfa_offset } => {
            let variables = files.get(file?)?.symbols()?.frame_variables(svma);
            let within = |start: i64| u64::try_from(cfa_offset.checked_sub(start)?).ok();
            let mut all =
                variables.iter().rev().map(|variable| (within(variable.cfa_offset), variable.size_bytes));
            all.find_map(|(within, size)| within.filter(|&within| within < size))
        }
        // Reached through a pointer to it: what is added to that.
        Spot::Heap(_) | Spot::Lost { .. } | Spot::Unmapped => {
            let address = operand_of(key, files)?.address;
            (address.base.is_some() && address.index.is_none()).then(|| u64::try_from(address.disp).ok())?
        }
        _ => None,
    }
}

/// A thread-local variable of the executable, by its offset from the thread pointer. What is added to that in registers does not
/// lead out of the variable.
fn thread_local(code: Code, operand: &MemoryOperand, files: &Files) -> Option<NamedObject> {
    let file = code.0?;
    let symbols = files.get(file)?.symbols()?;
    let address = operand.address;
    // The whole distance may be in registers of x86-64, where those of variables are negative.
    let is_whole = |disp: &i64| {
        *disp < 0 || !address.has_registers() || symbols.architecture() == Some(Architecture::AArch64)
    };
    let distance = Some(address.disp).filter(is_whole)?;
    let offset = u64::try_from(distance.checked_sub(thread_locals_start(symbols)?)?).ok()?;
    in_thread_locals(file, offset, files)
}

/// Where the executable's thread-local variables begin, from the thread pointer.
pub(crate) fn thread_locals_start(symbols: &Module) -> Option<i64> {
    symbols.tls_segment()?.from_thread_pointer(symbols.architecture()?)
}

/// The variable at an offset in a file's TLS segment.
fn in_thread_locals(file: u32, offset: u64, files: &Files) -> Option<NamedObject> {
    let symbols = files.get(file)?.symbols()?;
    let symbol = symbols.tls_symbol_over(offset)?;
    let info = symbols.tls_variable_info(offset);
    let type_ref = info.as_ref().and_then(|info| info.type_ref);
    Some(NamedObject {
        type_name: info.as_ref().and_then(|info| info.type_name.clone()),
        declared: info.and_then(|info| info.decl_file.as_deref().map(str::to_owned).zip(info.decl_line)),
        file: Some(file),
        bytes: Some(symbol.size),
        held: HeldType::of_variable(Some(file), type_ref),
        ..NamedObject::new(ObjectKind::Tls, symbol.name)
    })
}

/// The function's name, or `module+offset`.
pub(crate) fn function_name(code: Code, files: &Files) -> String {
    let Some(mapped) = code.0.and_then(|file| files.get(file)) else {
        return files.generated_function(code.1).unwrap_or("generated code").to_owned();
    };
    let function = mapped.symbols().and_then(|symbols| symbols.function_at(code.1));
    let start = function.as_ref().map_or(code.1, |function| function.start);
    match function.and_then(|function| function.name) {
        Some(name) => name.to_string(),
        None => place_in(mapped, start),
    }
}

/// `libc.so.6+0x1234`.
pub(crate) fn place_in(mapped: &MappedFile, svma: u64) -> String {
    format!("{}+{svma:#x}", mapped.path.rsplit('/').next().unwrap_or_default())
}
