//! Samples by code address become amounts by identity.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use memlens_approx::{Code, Flow, LoopLines, Position, Read, Skid, THRESHOLD};
use memlens_code::{ControlFlow, Loops};
use memlens_symbols::Module;

use crate::{Identity, Operand, StaticModule};

/// A way of attribution. The first three are Rutar's and Hollingsworth's, at source lines; the other
/// two are ours, at instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Equal parts for the unique reads of a line.
    LineRaw,
    /// Then loop compensation.
    LineLoop,
    /// Skid negated by lines, then loop compensation.
    LineSkid,
    /// Equal parts for what the operands of an instruction may touch.
    Instruction,
    /// Skid undone along control flow, across calls and returns, then as [`Self::Instruction`].
    ControlFlow,
}

impl Stage {
    /// All, in order.
    pub const ALL: [Self; 5] =
        [Self::LineRaw, Self::LineLoop, Self::LineSkid, Self::Instruction, Self::ControlFlow];
}

/// How far samples land from what they belong to, in instructions: a Gaussian.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SkidModel {
    /// Mean.
    pub mean: f64,
    /// Variance.
    pub variance: f64,
}

impl SkidModel {
    /// No skid.
    pub const NONE: Self = Self { mean: 0.0, variance: 0.0 };

    /// The distribution over `per_position` instructions a position.
    pub fn skid(self, per_position: f64) -> Skid {
        let scale = per_position.max(1.0);
        Skid::gaussian(self.mean / scale, self.variance / (scale * scale)).unwrap_or_else(|_| Skid::none())
    }
}

/// What [`attribute`] found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributed {
    /// Amount by identity.
    pub by_identity: BTreeMap<Identity, f64>,
    /// Samples that found nothing that is read, or no identity of it.
    pub lost: f64,
}

/// Divides samples (amount by pc, svma) among identities.
///
/// Samples outside of all analysed functions are lost, as the result says. Cost: linear in the code
/// of functions with samples for the stages at lines; [`Stage::ControlFlow`] follows all code as far
/// as the skid reaches.
pub fn attribute(
    code: &StaticModule,
    module: &Module,
    samples: &HashMap<u64, f64>,
    skid: SkidModel,
    stage: Stage,
) -> Attributed {
    let mut result = Attributed::default();
    let mut seen = 0.0;
    if stage == Stage::ControlFlow {
        let graph = Graph::new(code);
        let amounts = graph.unskid(samples, &skid.skid(1.0), &mut result.lost);
        seen = samples.iter().filter(|(pc, _)| graph.at.contains_key(pc)).map(|(_, amount)| amount).sum();
        instructions(code, &amounts, &mut result);
    } else {
        for (_, flow, operands) in code.functions() {
            let of_function = || flow.instructions.iter().filter_map(|i| samples.get(&i.ip()));
            let here: f64 = of_function().sum();
            if here == 0.0 {
                continue;
            }
            seen += here;
            match stage {
                Stage::Instruction => {
                    let own: HashMap<u64, f64> = flow
                        .instructions
                        .iter()
                        .filter_map(|i| Some((i.ip(), *samples.get(&i.ip())?)))
                        .collect();
                    instruction_amounts(operands, &own, &mut result);
                }
                _ => lines(module, flow, operands, samples, skid, stage, &mut result),
            }
        }
    }
    result.lost += samples.values().sum::<f64>() - seen;
    result
}

/// What samples are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waited {
    /// Code of no function that was analysed.
    Unknown,
    /// An instruction that no access can have sent samples to.
    Computation,
    /// A memory operand of an instruction, from 0.
    Operand(u8),
}

impl Waited {
    /// The number of the operand.
    pub fn operand(self) -> Option<u8> {
        if let Self::Operand(number) = self { Some(number) } else { None }
    }
}

/// A part of the samples, and what it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The instruction that waited; the sampled one if none in reach touches memory.
    pub pc: u64,
    /// What of it.
    pub waited: Waited,
    /// Its object; `None`: nothing is known of it.
    pub identity: Option<Identity>,
    /// Objects that the operand may mean, of which this is one.
    pub shared_by: usize,
    /// How much, in the samples' unit.
    pub amount: f64,
}

/// Divides samples (amount by pc, svma) among instructions, operands and identities: along control flow
/// by `skid`, then in equal parts. What lands where no access can have sent it is computation. Linear in the analysed
/// code and the samples.
pub fn attribute_parts(code: &StaticModule, samples: &HashMap<u64, f64>, skid: &Skid) -> Vec<Part> {
    let mut graph = Graph::new(code);
    graph.fuse(code);
    let (reached, computation): (HashMap<u64, f64>, HashMap<u64, f64>) =
        samples.iter().partition(|(pc, _)| graph.is_reached(**pc, skid));
    let mut parts: Vec<Part> = computation
        .into_iter()
        .map(|(pc, amount)| {
            let is_known = graph.at.contains_key(&pc);
            let waited = if is_known { Waited::Computation } else { Waited::Unknown };
            Part::without_access(pc, waited, amount)
        })
        .collect();
    let mut lost = 0.0;
    let amounts = graph.unskid(&reached, skid, &mut lost);
    for (_, _, operands) in code.functions() {
        let mut of: BTreeMap<u64, Vec<&Operand>> = BTreeMap::new();
        for operand in operands {
            of.entry(operand.pc).or_default().push(operand);
        }
        for (pc, operands) in of {
            let Some(&amount) = amounts.get(&pc) else { continue };
            let amount = amount / operands.len() as f64;
            for (number, operand) in (0..).zip(operands) {
                let mut part = |identity: Option<Identity>, amount| {
                    let shared_by = operand.identities.len();
                    let waited = Waited::Operand(number);
                    parts.push(Part { pc, waited, identity, shared_by, amount });
                };
                if operand.identities.is_empty() {
                    part(None, amount);
                }
                for identity in &operand.identities {
                    part(Some(identity.clone()), amount / operand.identities.len() as f64);
                }
            }
        }
    }
    parts.sort_by(|a, b| (a.pc, a.waited, &a.identity).cmp(&(b.pc, b.waited, &b.identity)));
    parts
}

/// Each instruction's amount goes to its operands' identities in equal parts.
fn instructions(code: &StaticModule, amounts: &HashMap<u64, f64>, result: &mut Attributed) {
    for (_, _, operands) in code.functions() {
        let mut own = HashMap::new();
        for operand in operands {
            if let Some(&amount) = amounts.get(&operand.pc) {
                own.insert(operand.pc, amount);
            }
        }
        if !own.is_empty() {
            instruction_amounts(operands, &own, result);
        }
    }
}

fn instruction_amounts(operands: &[Operand], amounts: &HashMap<u64, f64>, result: &mut Attributed) {
    let mut of: HashMap<u64, Vec<&Operand>> = HashMap::new();
    for operand in operands {
        of.entry(operand.pc).or_default().push(operand);
    }
    for (pc, &amount) in amounts {
        let operands = of.get(pc).map_or(&[][..], Vec::as_slice);
        // An operand of which nothing is known keeps its part, as lost.
        let part = amount / operands.len().max(1) as f64;
        if operands.is_empty() {
            result.lost += amount;
        }
        for operand in operands {
            if operand.identities.is_empty() {
                result.lost += part;
            }
            for identity in &operand.identities {
                *result.by_identity.entry(identity.clone()).or_default() +=
                    part / operand.identities.len() as f64;
            }
        }
    }
}

type Line = (String, u32);

/// The published method on one function.
fn lines(
    module: &Module,
    flow: &ControlFlow,
    operands: &[Operand],
    samples: &HashMap<u64, f64>,
    skid: SkidModel,
    stage: Stage,
    result: &mut Attributed,
) {
    let line_of: Vec<Option<Line>> = flow
        .instructions
        .iter()
        .map(|instruction| {
            let frame = module.locate(instruction.ip()).into_iter().next()?;
            Some((frame.file?, frame.line?))
        })
        .collect();
    let all: BTreeSet<&Line> = line_of.iter().flatten().collect();
    let number: HashMap<&Line, usize> = all.iter().enumerate().map(|(at, line)| (*line, at)).collect();
    let position = |instruction: usize| line_of[instruction].as_ref().map(|line| number[line]);

    let mut positions = vec![Position::default(); all.len()];
    let mut amounts = vec![0.0; all.len()];
    let mut identities: BTreeMap<Identity, usize> = BTreeMap::new();
    let mut locations: HashMap<(usize, &str), usize> = HashMap::new();
    for operand in operands.iter().filter(|operand| operand.reads) {
        let Some(at) = flow.instruction_at(operand.pc).and_then(position) else { continue };
        for identity in &operand.identities {
            let next = identities.len();
            let variable = *identities.entry(identity.clone()).or_insert(next);
            let next = locations.len();
            let location = *locations.entry((variable, &operand.element)).or_insert(next);
            positions[at].reads.push(Read { location, variable });
        }
    }
    for (at, instruction) in flow.instructions.iter().enumerate() {
        if let Some(&amount) = samples.get(&instruction.ip()) {
            match position(at) {
                Some(line) => amounts[line] += amount,
                None => result.lost += amount,
            }
        }
    }
    let loops = Loops::new(flow);
    let mut loop_lines = Vec::with_capacity(loops.loops.len());
    let mut depth = vec![0; positions.len()];
    for (index, natural) in loops.loops.iter().enumerate() {
        let mut lines = BTreeSet::new();
        for &block in &natural.blocks {
            for at in flow.blocks[block].instructions.clone().filter_map(position) {
                lines.insert(at);
                // A line belongs to the deepest loop that any of its code is in.
                if natural.depth > depth[at] {
                    depth[at] = natural.depth;
                    positions[at].innermost = Some(index);
                }
            }
        }
        loop_lines.push(LoopLines { positions: lines.into_iter().collect() });
    }
    let code = Code::new(positions, loop_lines);
    let per_line = flow.instructions.len() as f64 / code.len().max(1) as f64;
    let assigned = match stage {
        Stage::LineSkid => code.negate_skid(&amounts, &skid.skid(per_line)),
        _ => code.raw(&amounts),
    };
    let assigned = match stage {
        Stage::LineRaw => assigned,
        _ => code.compensate(&assigned, THRESHOLD),
    };
    let sums = assigned.by_variable(identities.len());
    for (identity, variable) in identities {
        *result.by_identity.entry(identity).or_default() += sums[variable];
    }
    result.lost += assigned.lost;
}

/// All instructions of a module with the edges between them, calls and returns included.
struct Graph {
    at: HashMap<u64, usize>,
    pcs: Vec<u64>,
    successors: Vec<Vec<usize>>,
    predecessors: Vec<Vec<usize>>,
    /// How much each instruction is expected to wait for memory, before any sample is seen.
    prior: Vec<f64>,
    /// The first instruction of each one's block.
    block_start: Vec<usize>,
}

/// Beside data of its own a frame is nearly always in the first-level cache.
const FRAME_PRIOR: f64 = 0.25;
/// Richardson and Lucy's iterations: where another hundred change shares by less than a percent.
const ITERATIONS: usize = 200;
/// How much the evidence for an edge is doubted, in parts of the mean evidence.
const DOUBT: f64 = 0.5;

impl Part {
    /// Samples at an instruction that are of no access.
    pub fn without_access(pc: u64, waited: Waited, amount: f64) -> Self {
        Self { pc, waited, identity: None, shared_by: 0, amount }
    }
}

impl Graph {
    fn new(code: &StaticModule) -> Self {
        let mut graph = Self {
            at: HashMap::new(),
            pcs: Vec::new(),
            successors: Vec::new(),
            predecessors: Vec::new(),
            prior: Vec::new(),
            block_start: Vec::new(),
        };
        for (_, flow, _) in code.functions() {
            for instruction in &flow.instructions {
                graph.at.insert(instruction.ip(), graph.pcs.len());
                graph.pcs.push(instruction.ip());
            }
        }
        graph.prior = vec![0.0; graph.pcs.len()];
        graph.successors = vec![Vec::new(); graph.pcs.len()];
        graph.block_start = vec![0; graph.pcs.len()];
        // Where the callers of each function go on, and where each function returns.
        let mut behind_calls: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut returns: Vec<(u64, usize)> = Vec::new();
        for (start, flow, operands) in code.functions() {
            for operand in operands {
                let frame =
                    operand.identities.iter().all(|identity| matches!(identity, Identity::Frame { .. }));
                let expected = if frame && !operand.identities.is_empty() { FRAME_PRIOR } else { 1.0 };
                let at = graph.at[&operand.pc];
                graph.prior[at] = graph.prior[at].max(expected);
            }
            for block in &flow.blocks {
                let first = graph.at[&block.start];
                for at in block.instructions.clone() {
                    let instruction = &flow.instructions[at];
                    let here = graph.at[&instruction.ip()];
                    graph.block_start[here] = first;
                    let next = graph.at.get(&instruction.next_ip()).copied();
                    let last = at + 1 == block.instructions.end;
                    let callee = memlens_code::call_target(instruction);
                    match callee.and_then(|callee| graph.at.get(&callee).map(|&entry| (callee, entry))) {
                        Some((callee, entry)) => {
                            graph.successors[here].push(entry);
                            behind_calls.entry(callee).or_default().extend(next);
                        }
                        None if memlens_code::is_return(instruction) => returns.push((start, here)),
                        None if last => {
                            let blocks = block.successors.iter();
                            graph.successors[here] =
                                blocks.map(|&b| graph.at[&flow.blocks[b].start]).collect();
                            // A tail call.
                            if let Some(target) = memlens_code::jump_target(instruction)
                                && flow.instruction_at(target).is_none()
                                && let Some(&entry) = graph.at.get(&target)
                            {
                                graph.successors[here].push(entry);
                            }
                        }
                        None => graph.successors[here].extend(next),
                    }
                }
            }
        }
        for (function, at) in returns {
            if let Some(sites) = behind_calls.get(&function) {
                graph.successors[at] = sites.clone();
            }
        }
        graph
    }

    /// Lets samples of comparisons land behind the jumps that follow them, too: processors make one operation of both,
    /// but not of all kinds (with some memory operands they do not, and samples land on the jump). Then links back.
    fn fuse(&mut self, code: &StaticModule) {
        for (_, flow, _) in code.functions() {
            for pair in flow.instructions.windows(2) {
                if memlens_code::is_fused(&pair[0], &pair[1]) {
                    let (before, jump) = (self.at[&pair[0].ip()], self.at[&pair[1].ip()]);
                    let behind = self.successors[jump].clone();
                    let reached = &mut self.successors[before];
                    reached.extend(behind);
                    reached.sort_unstable();
                    reached.dedup();
                }
            }
        }
        self.predecessors = vec![Vec::new(); self.pcs.len()];
        for (from, targets) in self.successors.iter().enumerate() {
            targets.iter().for_each(|&to| self.predecessors[to].push(from));
        }
    }

    /// Whether some instruction with a memory operand sends samples to `pc`.
    fn is_reached(&self, pc: u64, skid: &Skid) -> bool {
        let Some(&at) = self.at.get(&pc) else { return false };
        let mut here = BTreeSet::from([at]);
        let mut step = 0;
        for (displacement, _) in skid.parts().filter(|part| part.0 >= 0) {
            while step < displacement {
                let before = |&to: &usize| self.predecessors.get(to).into_iter().flatten().copied();
                here = here.iter().flat_map(before).collect();
                step += 1;
            }
            if here.iter().any(|&from| self.prior[from] > 0.0) {
                return true;
            }
        }
        false
    }

    /// The amounts that belong to instructions, from the samples that landed on them. Two rounds: in
    /// the second, edges are believed to be taken as the first one's amounts say.
    fn unskid(&self, samples: &HashMap<u64, f64>, skid: &Skid, lost: &mut f64) -> HashMap<u64, f64> {
        let mut landed = vec![0.0; self.pcs.len()];
        for (pc, amount) in samples {
            if let Some(&at) = self.at.get(pc) {
                landed[at] += amount;
            }
        }
        let mut amounts = landed.clone();
        let mut missed = 0.0;
        for _ in 0..2 {
            // The samples of a block say how often it runs.
            let mut evidence = vec![0.0; self.pcs.len()];
            for (at, amount) in amounts.iter().enumerate() {
                evidence[self.block_start[at]] += amount;
            }
            for at in 0..evidence.len() {
                evidence[at] = evidence[self.block_start[at]];
            }
            let some: Vec<f64> = evidence.iter().copied().filter(|&amount| amount > 0.0).collect();
            let doubt = DOUBT * some.iter().sum::<f64>() / some.len().max(1) as f64;
            let flow = Flow::new(&self.successors, &evidence, doubt.max(f64::MIN_POSITIVE));
            (amounts, missed) = flow.unskid(&landed, &self.prior, skid, ITERATIONS);
        }
        *lost += missed;
        let found = amounts.into_iter().enumerate().filter(|(_, amount)| *amount > 0.0);
        found.map(|(at, amount)| (self.pcs[at], amount)).collect()
    }
}
