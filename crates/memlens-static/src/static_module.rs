//! One module's operands with what they may touch.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use memlens_code::{
    Architecture, ControlFlow, FunctionParts, Object, ObjectIx, Pointer, PointsTo, Touched, points_to,
};
use memlens_symbols::{FunctionRef, Module, SectionKind};

use crate::Identity;
use crate::surroundings::ModuleSurroundings;

/// A memory operand.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// Address of its instruction (svma).
    pub pc: u64,
    /// Whether it reads.
    pub reads: bool,
    /// Whether it writes.
    pub writes: bool,
    /// What it may touch; empty if nothing is known.
    pub identities: Vec<Identity>,
    /// Tells elements of one object apart on a line: operands of equal identity and element are
    /// taken for the same memory.
    pub element: String,
}

/// The analysis of one module.
pub struct StaticModule {
    points_to: PointsTo,
    /// By function: operands in the order of addresses.
    operands: BTreeMap<u64, Vec<Operand>>,
}

impl StaticModule {
    /// Analyses all functions of a module: of x86-64, others have none. Functions without a symbol are not seen. Cost: see
    /// `memlens_code::points_to`.
    pub fn analyse(module: &Module) -> Self {
        let surroundings = ModuleSurroundings::new(module);
        Self::of(module, &functions(module, &surroundings), &surroundings)
    }

    /// Analyses the functions that hold the given addresses, and what they call directly or by one call
    /// more, as far as 256 KiB of code go. Pointers that come from other functions are known by the
    /// variable that holds them only. Cost: milliseconds for some dozen functions, however large the
    /// module is.
    pub fn analyse_around(module: &Module, addresses: &BTreeSet<u64>) -> Self {
        let surroundings = ModuleSurroundings::new(module);
        let mut all = Functions::new(module, &surroundings);
        let mut chosen: BTreeSet<u64> = addresses.iter().filter_map(|&address| all.around(address)).collect();
        let mut bytes: usize = 0;
        let mut outermost: Vec<u64> = chosen.iter().copied().collect();
        for _ in 0..CALL_DEPTH {
            let mut next = Vec::new();
            for start in std::mem::take(&mut outermost) {
                let Some(function) = all.by_start.get(&start) else { continue };
                bytes += function.parts.iter().map(|part| part.1.len()).sum::<usize>();
                if bytes > MOST_CODE_BYTES {
                    break;
                }
                let flow = ControlFlow::new(&function.parts);
                let callees = flow.instructions.iter().filter_map(memlens_code::call_target);
                next.extend(
                    callees.filter_map(|callee| all.around(callee)).filter(|&callee| chosen.insert(callee)),
                );
            }
            outermost = next;
        }
        let chosen: Vec<FunctionParts<'_>> =
            chosen.iter().filter_map(|start| all.by_start.get(start)).cloned().collect();
        Self::of(module, &chosen, &surroundings)
    }

    fn of(module: &Module, functions: &[FunctionParts<'_>], surroundings: &ModuleSurroundings<'_>) -> Self {
        let pointers: Vec<(u64, u64)> =
            module.links().1.into_iter().map(|pointer| (pointer.cell, pointer.target)).collect();
        let points_to = points_to(functions, &pointers, surroundings);
        let namer = Namer { module, points_to: &points_to };
        let operands = points_to
            .functions
            .iter()
            .map(|(&function, (_, touched))| {
                let mut known: HashMap<Pointer, Vec<Identity>> = HashMap::new();
                let all = touched.iter().map(|touched| namer.operand(function, touched, &mut known));
                (function, all.collect())
            })
            .collect();
        Self { points_to, operands }
    }

    /// The functions, by first address: their code, and their operands in the order of addresses.
    pub fn functions(&self) -> impl Iterator<Item = (u64, &ControlFlow, &[Operand])> {
        self.points_to.functions.iter().map(|(&start, (flow, _))| {
            (start, flow, self.operands.get(&start).map_or(&[][..], Vec::as_slice))
        })
    }

    /// Whether the analysis was ended before it was complete.
    pub fn is_cut_short(&self) -> bool {
        self.points_to.cut_short
    }
}

/// How many calls deep [`StaticModule::analyse_around`] follows.
const CALL_DEPTH: usize = 2;
/// How much code it reads for that, in bytes: sqlite3 has a megabyte, most programs less than this.
const MOST_CODE_BYTES: usize = 256 << 10;

/// The functions of a module: those with symbols, and others as they are met.
struct Functions<'a, 'm> {
    module: &'m Module,
    surroundings: &'a ModuleSurroundings<'m>,
    by_start: BTreeMap<u64, FunctionParts<'m>>,
    /// By a part's first address: its end, and its function's first address.
    parts: BTreeMap<u64, (u64, u64)>,
}

impl<'a, 'm> Functions<'a, 'm> {
    fn new(module: &'m Module, surroundings: &'a ModuleSurroundings<'m>) -> Self {
        let (by_start, parts) = (BTreeMap::new(), BTreeMap::new());
        let mut all = Self { module, surroundings, by_start, parts };
        functions(module, surroundings).into_iter().for_each(|function| all.add(function));
        all
    }

    fn add(&mut self, function: FunctionParts<'m>) {
        let Some(&(start, _)) = function.parts.first() else { return };
        for &(at, code) in &function.parts {
            self.parts.insert(at, (at + code.len() as u64, start));
        }
        self.by_start.insert(start, function);
    }

    /// The first address of the function that has code at `address`: also of one that only debug information or
    /// unwind information knows.
    fn around(&mut self, address: u64) -> Option<u64> {
        let before = self.parts.range(..=address).next_back();
        if let Some((_, &(end, start))) = before
            && address < end
        {
            return Some(start);
        }
        let FunctionRef { start, end, .. } = self.module.function_at(address)?;
        if !is_text(self.module, start) || self.surroundings.is_known(start) {
            return None;
        }
        let code = self.module.code(start, end)?;
        if !self.by_start.contains_key(&start) {
            self.add(FunctionParts { parts: vec![(start, code)] });
        }
        Some(start)
    }
}

/// Whether there is a function's code that can be analysed: linkage tables have code, but no functions.
fn is_text(module: &Module, svma: u64) -> bool {
    let is_known = module.architecture() == Some(Architecture::X86_64);
    is_known
        && module.sections().iter().any(|section| {
            section.kind == SectionKind::Text && section.contains(svma) && !section.name.starts_with(".plt")
        })
}

/// The functions with symbols, with their cold parts.
fn functions<'m>(module: &'m Module, surroundings: &ModuleSurroundings<'_>) -> Vec<FunctionParts<'m>> {
    let all: Vec<_> = module.linker_functions().collect();
    let mut parts: HashMap<&str, usize> = HashMap::new();
    let mut list: Vec<FunctionParts<'m>> = Vec::new();
    for cold in [false, true] {
        for &(Range { start, end }, name) in &all {
            let stem = name.strip_suffix(".cold");
            if stem.is_some() != cold || !is_text(module, start) || surroundings.is_known(start) {
                continue;
            }
            let Some(code) = module.code(start, end) else { continue };
            match stem.and_then(|stem| parts.get(stem)) {
                Some(&at) => list[at].parts.push((start, code)),
                None => {
                    parts.insert(name, list.len());
                    list.push(FunctionParts { parts: vec![(start, code)] });
                }
            }
        }
    }
    list
}

/// Turns pointers into identities.
struct Namer<'m> {
    module: &'m Module,
    points_to: &'m PointsTo,
}

impl Namer<'_> {
    fn operand(
        &self,
        function: u64,
        touched: &Touched,
        known: &mut HashMap<Pointer, Vec<Identity>>,
    ) -> Operand {
        let mut identities: Vec<Identity> = Vec::new();
        for &pointer in &touched.pointers {
            let frame = matches!(self.object(pointer.object), Object::Frame { .. });
            if frame {
                // Locals share slots: which one it is depends on the place.
                identities.extend(self.identities(pointer, touched.pc, function));
            } else {
                let named =
                    known.entry(pointer).or_insert_with(|| self.identities(pointer, touched.pc, function));
                identities.extend(named.iter().cloned());
            }
        }
        identities.sort();
        identities.dedup();
        let element = match touched.pointers.as_slice() {
            [Pointer { offset: Some(offset), .. }] => offset.to_string(),
            _ => format!("{:?}{:+}", touched.registers, touched.displacement),
        };
        Operand { pc: touched.pc, reads: touched.reads, writes: touched.writes, identities, element }
    }

    fn object(&self, object: ObjectIx) -> &Object {
        &self.points_to.objects[object.0 as usize]
    }

    fn identities(&self, pointer: Pointer, pc: u64, function: u64) -> Vec<Identity> {
        match self.object(pointer.object) {
            Object::Heap { calls } => vec![Identity::Heap { calls: calls.clone() }],
            Object::Global { svma } => {
                let at = pointer.offset.map_or(*svma, |offset| svma.wrapping_add_signed(offset));
                vec![Identity::Global {
                    svma: *svma,
                    name: self.global_name(at).or_else(|| self.global_name(*svma)),
                }]
            }
            Object::Frame { function: frame } => self.in_frame(*frame, pointer.offset, pc, function),
            Object::Thread => vec![Identity::ThreadLocal { name: self.thread_local(pointer.offset) }],
            Object::Pointee { of, offset } => self
                .cell_name(*of, *offset, pc)
                .map(|name| Identity::PointedBy { name })
                .into_iter()
                .collect(),
            Object::Argument { function, register } => self
                .argument_name(*function, *register)
                .map(|name| Identity::PointedBy { name })
                .into_iter()
                .collect(),
            _ => Vec::new(),
        }
    }

    fn global_name(&self, svma: u64) -> Option<String> {
        let by_dwarf = self.module.variable_info(svma).map(|variable| variable.name);
        by_dwarf
            .or_else(|| Some(self.module.data_symbol_over(svma)?.name))
            .or_else(|| Some(self.module.sections().iter().find(|s| s.contains(svma))?.name.clone()))
    }

    /// What lies in a function's frames at an offset from the canonical frame address. In the
    /// function itself one variable at most lives there at a time; a pointer handed to another may
    /// be to any that shares the slot.
    fn in_frame(&self, frame: u64, offset: Option<i64>, pc: u64, function: u64) -> Vec<Identity> {
        let variables = self.module.function_variables(frame);
        let holds = |v: &&memlens_symbols::FrameVariable| {
            let size = i64::try_from(v.size_bytes.max(1)).unwrap_or(i64::MAX);
            let here = frame != function || v.pc_ranges.iter().any(|range| range.contains(&pc));
            let at = |offset| (v.cfa_offset..v.cfa_offset.saturating_add(size)).contains(&offset);
            here && offset.is_some_and(at)
        };
        let found = variables.iter().filter(holds).map(|v| Identity::Local {
            function: frame,
            name: v.name.to_string(),
            line: v.decl_line,
        });
        let found: Vec<Identity> = found.take(if frame == function { 1 } else { usize::MAX }).collect();
        if found.is_empty() { vec![Identity::Frame { function: frame }] } else { found }
    }

    /// Offset from the thread pointer of the main executable (TLS variant II).
    fn thread_local(&self, offset: Option<i64>) -> Option<String> {
        let tls = self.module.tls_segment()?;
        let size = tls.size_bytes.checked_next_multiple_of(tls.align_bytes.max(1))?;
        let at = size.checked_add_signed(offset?)?;
        let by_dwarf = self.module.tls_variable_info(at).map(|variable| variable.name);
        by_dwarf.or_else(|| Some(self.module.tls_symbol_over(at)?.name))
    }

    /// The variable that a cell is, with the member for a member.
    fn cell_name(&self, of: ObjectIx, offset: Option<i64>, pc: u64) -> Option<String> {
        match self.object(of) {
            Object::Global { svma } => {
                self.global_name(offset.map_or(*svma, |offset| svma.wrapping_add_signed(offset)))
            }
            Object::Frame { function } => match self.in_frame(*function, offset, pc, *function).pop() {
                Some(Identity::Local { name, .. }) => Some(name),
                _ => None,
            },
            Object::Thread => self.thread_local(offset),
            Object::Pointee { of, offset } => self.cell_name(*of, *offset, pc),
            Object::Argument { function, register } => self.argument_name(*function, *register),
            _ => None,
        }
    }

    /// The parameter that comes in a register; integer arguments in order (System V ABI AMD64 1.0,
    /// section 3.2.3), which holds where no argument is passed otherwise before it.
    fn argument_name(&self, function: u64, register: u8) -> Option<String> {
        let order = [7u8, 6, 2, 1, 8, 9];
        let position = order.iter().position(|&number| number == register)?;
        self.module.parameter_names(function).get(position).cloned().flatten()
    }
}
