//! Holds static analysis and approximation against what exact mode saw.
//!
//! `cargo run --release -p memlens-static --example evaluate -- PROFILE…` prints one JSON object for
//! each exact profile: how many of the (instruction, object) pairs that were seen the analysis
//! names, how many of its claims are true, and how close each stage of attribution comes, with the
//! modelled wait of each instruction as its samples: as they are, and with artificial skid.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::process::ExitCode;

use memlens_approx::Flow;
use memlens_profile::{Module as ProfileModule, ModuleIx, Object, Profile};
use memlens_report::rank::{kendall, spearman};
use memlens_static::{Attributed, Identity, SkidModel, Stage, StaticModule, attribute};
use memlens_symbols::{DebugSearch, Module};
use memlens_types::ObjectKind;

/// Artificial skid, in instructions: like a present core's retirement skid for ordinary counters.
const SKID: SkidModel = SkidModel { mean: 6.0, variance: 4.0 };
/// The part of the cost whose objects are ranked.
const COST_SHARE: f64 = 0.95;

fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for path in std::env::args().skip(1) {
        match evaluate(Path::new(&path)) {
            Ok(text) => println!("{text}"),
            Err(error) => {
                eprintln!("evaluate: failed to evaluate {path}: {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// Which objects of the profile an identity means.
struct Matcher<'p> {
    profile: &'p Profile,
    module: ModuleIx,
    functions: HashMap<u64, String>,
    known: HashMap<Identity, BTreeSet<usize>>,
}

impl Matcher<'_> {
    fn objects(&mut self, identity: &Identity) -> BTreeSet<usize> {
        if let Some(known) = self.known.get(identity) {
            return known.clone();
        }
        let objects = self.profile.objects.iter().enumerate();
        let mut found: BTreeSet<usize> =
            objects.filter(|(_, object)| self.is(identity, object)).map(|(at, _)| at).collect();
        // A large block's mapping has the block's stack; what code touches is the block.
        let heap = |at: &usize| self.profile.objects[*at].kind == ObjectKind::Heap;
        if found.iter().any(heap) {
            found.retain(heap);
        }
        self.known.insert(identity.clone(), found);
        self.known[identity].clone()
    }

    fn is(&self, identity: &Identity, object: &Object) -> bool {
        let here = object.module == Some(self.module);
        match identity {
            Identity::Heap { calls } => {
                // The allocation's stack, as far as it is in this module.
                let frames = self.profile.stack_frames(object.site).filter(|frame| !frame.inlined);
                let mut offsets = frames.filter(|f| f.module == Some(self.module)).map(|f| f.offset);
                matches!(object.kind, ObjectKind::Heap | ObjectKind::Mmap)
                    && calls.iter().all(|&call| offsets.next() == Some(call))
            }
            Identity::Global { name, .. } => {
                let section = |name: &String| {
                    object.name.strip_prefix(name.as_str()).is_some_and(|n| n.starts_with(" of "))
                };
                here && object.kind == ObjectKind::Global
                    && name.as_ref().is_some_and(|name| *name == object.name || section(name))
            }
            Identity::ThreadLocal { name } => {
                here && object.kind == ObjectKind::Tls && name.as_ref() == Some(&object.name)
            }
            Identity::Local { name, line, .. } => {
                here && object.kind == ObjectKind::Local
                    && *name == object.name
                    && object.declared.as_ref().is_none_or(|declared| Some(declared.line) == *line)
            }
            Identity::Frame { function } => {
                here && object.kind == ObjectKind::Stack
                    && self
                        .functions
                        .get(function)
                        .is_some_and(|name| object.name == format!("frame of {name}"))
            }
            Identity::PointedBy { name } => object.kind == ObjectKind::Heap && *name == object.name,
            _ => false,
        }
    }
}

fn evaluate(path: &Path) -> Result<String, String> {
    let profile = Profile::open(path).map_err(|error| error.to_string())?;
    let program = profile.run.command.first().ok_or("the profile has no command")?;
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let at = profile.modules.iter().position(|m: &ProfileModule| m.name() == name);
    let at = at.ok_or_else(|| format!("no module is called {name}"))?;
    let module = Module::open(Path::new(&profile.modules[at].path), &DebugSearch::default())
        .map_err(|error| error.to_string())?;
    let start = std::time::Instant::now();
    let code = StaticModule::analyse(&module);
    let seconds = start.elapsed().as_secs_f64();
    let main = ModuleIx::from_index(at);
    let functions =
        module.functions().into_iter().map(|f| (f.start, f.name.unwrap_or_default().to_string())).collect();
    let mut matcher = Matcher { profile: &profile, module: main, functions, known: HashMap::new() };

    // What was seen: accesses and cost by instruction and object.
    let mut seen: BTreeMap<u64, BTreeMap<usize, (u64, f64)>> = BTreeMap::new();
    for cell in &profile.cells {
        let place = &profile.code[cell.code.index()];
        if place.module == Some(main) {
            let entry = seen.entry(place.offset).or_default().entry(cell.object.index()).or_default();
            let counts = cell.counts.get();
            entry.0 += counts.accesses();
            entry.1 += profile.wait_cycles(&counts) as f64;
        }
    }
    let mut claims: BTreeMap<u64, BTreeSet<Identity>> = BTreeMap::new();
    for (_, _, operands) in code.functions() {
        for operand in operands {
            claims.entry(operand.pc).or_default().extend(operand.identities.iter().cloned());
        }
    }
    // Frames and what was allocated tell different things: data, and everything.
    let (mut all, mut data) = (Tally::default(), Tally::default());
    let mut worst: Vec<(u64, String)> = Vec::new();
    for (pc, objects) in &seen {
        let identities = claims.get(pc).cloned().unwrap_or_default();
        let means: Vec<BTreeSet<usize>> = identities.iter().map(|i| matcher.objects(i)).collect();
        let is_data = |at: &usize| profile.objects[*at].kind != ObjectKind::Stack;
        for tally in [&mut all, &mut data] {
            tally.instructions += 1;
            tally.nothing += usize::from(identities.is_empty());
        }
        for (identity, means) in identities.iter().zip(&means) {
            let right = means.iter().any(|at| objects.contains_key(at));
            all.claim(right);
            if !matches!(identity, Identity::Frame { .. }) {
                data.claim(right);
            }
        }
        for (at, &(accesses, _)) in objects {
            let found = means.iter().any(|means| means.contains(at));
            all.pair(found, accesses);
            if is_data(at) {
                data.pair(found, accesses);
            }
            if !found {
                let object = &profile.objects[*at];
                worst.push((accesses, format!("{pc:#x} {} {} {identities:?}", object.kind, object.name)));
            }
        }
    }
    if std::env::var_os("EVALUATE_MISSES").is_some() {
        worst.sort();
        worst.iter().rev().take(12).for_each(|(accesses, what)| eprintln!("{accesses:>12} {what}"));
        let mut hot: Vec<_> = seen
            .iter()
            .map(|(pc, objects)| (objects.values().map(|v| v.1 as u64).sum::<u64>(), *pc))
            .collect();
        hot.sort();
        for (cost, pc) in hot.into_iter().rev().take(12) {
            let operands = code.functions().flat_map(|(_, _, operands)| operands).filter(|o| o.pc == pc);
            let seen: Vec<_> = seen[&pc].keys().map(|&at| &profile.objects[at].name).collect();
            eprintln!("{cost:>12} {pc:#x} {seen:?} {:?}", operands.collect::<Vec<_>>());
        }
    }

    // What exact mode gives each object of this module's code, and what each stage would.
    let mut truth = vec![0.0; profile.objects.len()];
    let mut samples: HashMap<u64, f64> = HashMap::new();
    for (&pc, objects) in &seen {
        for (&at, &(_, cost)) in objects {
            truth[at] += cost;
            *samples.entry(pc).or_default() += cost;
        }
    }
    let skidded = skid(&code, &seen, &samples);
    let mut stages = String::new();
    for (label, samples, skid) in [("no_skid", &samples, SkidModel::NONE), ("skid", &skidded, SKID)] {
        for stage in Stage::ALL {
            if skid == SkidModel::NONE && matches!(stage, Stage::LineSkid | Stage::ControlFlow) {
                continue;
            }
            let found = attribute(&code, &module, samples, skid, stage);
            stages += &format!(",\"{label}.{stage:?}\":{}", closeness(&mut matcher, &truth, &found));
        }
    }
    Ok(format!(
        "{{\"program\":\"{name}\",\"seconds\":{seconds:.2},\"functions\":{},\"cut_short\":{},\"all\":{},\"data\":{}{stages}}}",
        code.functions().count(),
        code.is_cut_short(),
        all.json(),
        data.json(),
    ))
}

#[derive(Default)]
struct Tally {
    instructions: usize,
    nothing: usize,
    claims: usize,
    right: usize,
    pairs: usize,
    found: usize,
    accesses: u64,
    found_accesses: u64,
}

impl Tally {
    fn claim(&mut self, right: bool) {
        self.claims += 1;
        self.right += usize::from(right);
    }

    fn pair(&mut self, found: bool, accesses: u64) {
        self.pairs += 1;
        self.found += usize::from(found);
        self.accesses += accesses;
        self.found_accesses += if found { accesses } else { 0 };
    }

    fn json(&self) -> String {
        let ratio = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        format!(
            "{{\"instructions\":{},\"without_claim\":{},\"claims\":{},\"precision\":{:.4},\"pairs\":{},\"recall\":{:.4},\"recall_by_accesses\":{:.4}}}",
            self.instructions,
            self.nothing,
            self.claims,
            ratio(self.right as f64, self.claims as f64),
            self.pairs,
            ratio(self.found as f64, self.pairs as f64),
            ratio(self.found_accesses as f64, self.accesses as f64),
        )
    }
}

/// How close estimated shares come to true ones, over the objects that make 95 % of either.
fn closeness(matcher: &mut Matcher<'_>, truth: &[f64], found: &Attributed) -> String {
    let mut estimate = vec![0.0; truth.len()];
    let mut nowhere = found.lost;
    for (identity, amount) in &found.by_identity {
        let objects = matcher.objects(identity);
        if objects.is_empty() {
            nowhere += amount;
        }
        // Objects that the identity does not tell apart share it.
        objects.iter().for_each(|&at| estimate[at] += amount / objects.len() as f64);
    }
    let shares = |values: &[f64]| -> Vec<f64> {
        let sum: f64 = values.iter().sum();
        values.iter().map(|value| if sum > 0.0 { value / sum } else { 0.0 }).collect()
    };
    let total: f64 = estimate.iter().sum::<f64>() + nowhere;
    let (truth, estimate) = (shares(truth), shares(&estimate));
    let order = |values: &[f64]| -> Vec<usize> {
        let mut order: Vec<usize> = (0..values.len()).filter(|&at| values[at] > 0.0).collect();
        order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
        order
    };
    let mut ranked = BTreeSet::new();
    for values in [&truth, &estimate] {
        let mut covered = 0.0;
        for at in order(values) {
            if covered >= COST_SHARE {
                break;
            }
            covered += values[at];
            ranked.insert(at);
        }
    }
    let pick = |values: &[f64]| ranked.iter().map(|&at| values[at]).collect::<Vec<_>>();
    let (a, b) = (pick(&truth), pick(&estimate));
    let top = |values: &[f64]| order(values).into_iter().take(3).collect::<BTreeSet<_>>();
    let misplaced: f64 = truth.iter().zip(&estimate).map(|(a, b)| (a - b).abs()).sum::<f64>() / 2.0;
    let number = |value: Option<f64>| value.map_or("null".to_owned(), |value| format!("{value:.3}"));
    format!(
        "{{\"spearman\":{},\"kendall\":{},\"ranked\":{},\"top3\":{},\"misplaced\":{misplaced:.4},\"lost\":{:.4}}}",
        number(spearman(&a, &b)),
        number(kendall(&a, &b)),
        ranked.len(),
        top(&truth).intersection(&top(&estimate)).count(),
        if total > 0.0 { nowhere / total } else { 0.0 },
    )
}

/// Moves samples forward along the edges that the program took, as skid would. How often each block
/// ran is read from the accesses that exact mode counted in it.
fn skid(
    code: &StaticModule,
    seen: &BTreeMap<u64, BTreeMap<usize, (u64, f64)>>,
    samples: &HashMap<u64, f64>,
) -> HashMap<u64, f64> {
    let mut pcs = Vec::new();
    let mut at: HashMap<u64, usize> = HashMap::new();
    for (_, flow, _) in code.functions() {
        for instruction in &flow.instructions {
            at.insert(instruction.ip(), pcs.len());
            pcs.push(instruction.ip());
        }
    }
    let mut successors = vec![Vec::new(); pcs.len()];
    let mut ran = vec![0.0; pcs.len()];
    for (_, flow, _) in code.functions() {
        for block in &flow.blocks {
            let accesses =
                |i: usize| seen.get(&flow.instructions[i].ip()).map(|o| o.values().map(|v| v.0).max());
            let most = block.instructions.clone().filter_map(accesses).flatten().max().unwrap_or(0);
            for i in block.instructions.clone() {
                let here = at[&flow.instructions[i].ip()];
                ran[here] = most as f64;
                // Calls are passed over: what the callee does is not what is tested.
                if i + 1 == block.instructions.end {
                    successors[here] =
                        block.successors.iter().map(|&b| at[&flow.blocks[b].start]).collect::<Vec<_>>();
                } else {
                    successors[here].push(here + 1);
                }
            }
        }
    }
    // A block without accesses ran at least as often as the rarer of what is before and behind it.
    for _ in 0..4 {
        let mut before = vec![0.0f64; pcs.len()];
        for (from, targets) in successors.iter().enumerate() {
            targets.iter().for_each(|&to| before[to] = before[to].max(ran[from]));
        }
        for at in 0..pcs.len() {
            if ran[at] == 0.0 {
                let behind = successors[at].iter().map(|&to| ran[to]).fold(0.0, f64::max);
                ran[at] = if behind > 0.0 { before[at].min(behind) } else { 0.0 };
            }
        }
    }
    let flow = Flow::new(&successors, &ran, 0.001);
    let skid = SKID.skid(1.0);
    let mut moved: HashMap<u64, f64> = HashMap::new();
    for (pc, amount) in samples {
        let Some(&from) = at.get(pc) else { continue };
        for (to, probability) in flow.landing(from, &skid) {
            *moved.entry(pcs[to]).or_default() += amount * probability;
        }
    }
    moved
}
