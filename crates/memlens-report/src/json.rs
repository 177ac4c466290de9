//! The report for programs: schema `memlens-report/1`.
//!
//! Unknown is `null`, never 0. Fields may be added, but never change their meaning.

use std::collections::{BTreeMap, BTreeSet};

use memlens_profile::{
    Attribution, CacheInfo, Cell, CodeIx, CodeLocation, FieldIx, FieldShares, Frame, MachineInfo, Mark,
    ModuleIx, Object, ObjectIx, PathCell, Profile, TlbInfo,
};
use memlens_types::Counts;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};

use crate::delinquent::{DelinquentLoads, delinquent_loads};
use crate::field::{FieldCounts, NOT_LOOKED_AT};
use crate::interval::{self, Certainties, Certainty, MissedLevel};
use crate::known::{Costs, Known};
use crate::over_time::Slices;
use crate::pattern::PatternWords;
use crate::row::Whole;

/// What the first key says.
pub const SCHEMA: &str = "memlens-report/1";

/// The whole report, to be written. Objects and instructions come by falling cost, then by id or address, so equal
/// profiles give equal reports. Linear in the cells. One entry of each list is in memory at a time: those of a large program are gigabytes.
pub fn json_report(profile: &Profile) -> impl Serialize {
    Report { profile }
}

/// The same as a value: for small profiles.
pub fn json(profile: &Profile) -> Value {
    // There is nothing in it that JSON cannot say.
    serde_json::to_value(Report { profile }).unwrap_or_default()
}

struct Report<'a> {
    profile: &'a Profile,
}

impl Serialize for Report<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let profile = self.profile;
        let totals = profile.totals();
        let cost = Cost { profile, total: Whole::of(profile, &totals), patterns: PatternWords::new(profile) };
        let mut report = serializer.serialize_map(None)?;
        report.serialize_entry("schema", SCHEMA)?;
        report.serialize_entry("run", &run(profile))?;
        report.serialize_entry("machine", &machine(&profile.machine))?;
        report.serialize_entry("totals", &totals_object(&cost, &totals))?;
        report.serialize_entry("attribution", &attribution(&profile.attribution))?;
        report.serialize_entry("objects", &Entries(|| objects(&cost)))?;
        report.serialize_entry("instructions", &Entries(|| instructions(&cost)))?;
        report.serialize_entry("delinquent_loads", &delinquent(profile))?;
        report.serialize_entry("predictions", &profile.predictions)?;
        report.serialize_entry("over_time", &Slices::of(profile))?;
        report.serialize_entry("call_tree", &call_tree(&cost))?;
        report.end()
    }
}

/// A list that is made while it is written.
struct Entries<F>(F);

impl<F: Fn() -> I, I: Iterator<Item = Value>> Serialize for Entries<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0())
    }
}

fn attribution(attribution: &Attribution) -> Value {
    json!({
        "attributed_accesses": attribution.attributed_accesses,
        "unknown_accesses": attribution.unknown_accesses,
        "unknown_reasons": attribution.unknown_reasons,
        "lost_events": attribution.lost_events,
        "truncated_stacks": attribution.truncated_stacks,
        "unresolved_code": attribution.unresolved_code,
        "truncated": attribution.truncated,
        "notes": attribution.notes,
    })
}

struct Cost<'a> {
    profile: &'a Profile,
    total: Whole,
    patterns: PatternWords<'a>,
}

impl Cost<'_> {
    fn known(&self, counts: &Counts, write_backs: bool) -> Known {
        Known::new(self.profile, counts, write_backs)
    }

    fn insert(&self, fields: &mut Map<String, Value>, counts: &Counts) {
        self.insert_with(fields, counts, Certainties::of_part(self.profile, self.total));
    }

    fn insert_with(&self, fields: &mut Map<String, Value>, counts: &Counts, certainties: Certainties) {
        let Self { profile, total, .. } = self;
        let cost = profile.cost(counts);
        let is_sampled = profile.run.sampling.is_some();
        let Costs { wait_cycles, stall_cycles, translation_stall_cycles } = Costs::of(profile, counts);
        fields.insert("share".to_owned(), ratio(cost, total.cost));
        fields.insert("wait_cycles".to_owned(), wait_cycles.into());
        fields.insert("stall_cycles".to_owned(), stall_cycles.into());
        fields.insert("translation_stall_cycles".to_owned(), translation_stall_cycles.into());
        fields
            .insert("stall_share".to_owned(), stall_cycles.map_or(Value::Null, |it| ratio(it, total.stall)));
        let interval = |certainty: Option<Certainty>, share| {
            Value::from(certainty.and_then(|it| it.interval(share)).map(|(low, high)| json!([low, high])))
        };
        let is_of_bursts = profile.run.effective_bursts.is_some();
        if is_sampled || is_of_bursts {
            let share = part_of(cost, total.cost);
            fields.insert("share_ci95".to_owned(), interval(certainties.share, share));
        }
        if let Some(cycles) = stall_cycles.filter(|_| is_of_bursts) {
            let share = part_of(cycles, total.stall);
            fields.insert("stall_share_ci95".to_owned(), interval(certainties.stall, share));
        }
        if !is_sampled {
            return;
        }
        let sampled = &counts.sampled;
        let found = sampled.by_hardware + sampled.by_registers + sampled.by_code;
        fields.insert("samples".to_owned(), sampled.samples.into());
        fields.insert("sample_cost".to_owned(), sampled.cost.into());
        fields.insert(
            "found_by".to_owned(),
            json!({
                "hardware_address": sampled.by_hardware,
                "computed_address": sampled.by_registers,
                "code_analysis": sampled.by_code,
                "none": sampled.samples - found,
            }),
        );
    }
}

fn part_of(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn ratio(part: u64, whole: u64) -> Value {
    if whole == 0 { Value::Null } else { (part as f64 / whole as f64).into() }
}

fn run(profile: &Profile) -> Value {
    let run = &profile.run;
    let tid = |mark: &Mark| profile.threads.get(mark.thread?.index()).map(|thread| thread.tid);
    let marks: Vec<Value> = (profile.marks.iter())
        .map(|mark| json!({ "name": mark.name, "instructions": mark.instructions, "tid": tid(mark) }))
        .collect();
    json!({
        "command": run.command,
        "mode": run.mode,
        "exit_code": run.exit_code,
        "signal": run.signal,
        "wall_seconds": run.wall_seconds,
        "instructions": run.instructions,
        "threads": run.threads,
        "estimated": run.estimated,
        "primary_cost": run.primary_cost,
        "started_unix_seconds": run.started_unix_seconds,
        "hostname": run.hostname,
        "pid": run.pid,
        "memlens_version": run.memlens_version,
        "notes": run.notes,
        "marks": marks,
        "bursts": run.bursts.as_ref().map(|bursts| json!({
            "bursts": bursts.bursts,
            "references": bursts.references,
            "program_seconds": bursts.program_seconds,
            "inside_seconds": bursts.inside_seconds,
            "cost_seconds": bursts.cost_seconds,
            "allocations_seconds": bursts.allocations_seconds,
            "overhead": bursts.overhead(),
        })),
        "spin_waits": run.spin_waits.iter().map(|wait| json!({
            "object": wait.object,
            "function": wait.function,
            "file": wait.file,
            "line": wait.line,
            "seconds": wait.seconds,
        })).collect::<Vec<Value>>(),
        "effective_bursts": run.effective_bursts,
        "heap_peak_bytes": run.heap_peak_bytes,
        "core_cycles": run.core_cycles,
        "measured_cycles": run.measured_cycles,
        "modelled_stall_cycles": run.modelled_stall_cycles,
        "sampling": run.sampling.as_ref().map(|sampling| json!({
            "event": sampling.event,
            "unit": sampling.unit.as_str(),
            "frequency_hz": sampling.frequency_hz,
            "samples": sampling.samples,
            "effective_samples": sampling.effective_samples(),
            "cost": sampling.cost,
            "lost": sampling.lost,
            "throttled": sampling.throttled,
            "whole_stacks": sampling.whole_stacks,
            "cut_stacks": sampling.cut_stacks,
            "own_cpu_seconds": sampling.own_cpu_seconds,
            "sample_cost_seconds": sampling.sample_cost_seconds,
            "overhead": sampling.overhead,
            "allocations_overhead": sampling.allocations_overhead,
            "frequency_changes": sampling.frequency_changes,
        })),
    })
}

fn machine(machine: &MachineInfo) -> Value {
    let cache = |cache: &Option<CacheInfo>| match cache {
        Some(cache) => json!({"bytes": cache.bytes, "ways": cache.ways, "policy": cache.policy}),
        None => Value::Null,
    };
    let tlb = |tlb: Option<TlbInfo>| match tlb {
        Some(tlb) => json!({"entries": tlb.entries, "ways": tlb.ways}),
        None => Value::Null,
    };
    let latencies = &machine.latencies;
    json!({
        "name": machine.name,
        "description": machine.description,
        "line_bytes": machine.line_bytes,
        "page_bytes": machine.page_bytes,
        "l1i": cache(&machine.l1i),
        "l1d": cache(&machine.l1d),
        "l2": cache(&machine.l2),
        "llc": cache(&machine.llc),
        "llc_told_bytes": machine.llc_told_bytes,
        "dtlb": tlb(machine.dtlb),
        "stlb": tlb(machine.stlb),
        "latencies": {
            "l1_cycles": latencies.l1_cycles,
            "l2_cycles": latencies.l2_cycles,
            "llc_cycles": latencies.llc_cycles,
            "dram_cycles": latencies.dram_cycles,
            "stlb_cycles": latencies.stlb_cycles,
            "walk_access_cycles": latencies.walk_access_cycles,
            "transfer_cycles": machine.transfer_cycles(),
            "remote_cycles": machine.has_nodes().then(|| machine.remote_cycles()),
        },
        "walk_tiers": machine.walk_tiers,
        "latencies_assumed": machine.has_assumed_latencies,
        "latencies_measured_briefly": machine.has_brief_latencies,
        "core": machine.core.map(|core| json!({
            "width": core.width,
            "window": core.window,
            "scheduled": core.scheduled,
            "integer_scheduled": core.integer_scheduled,
            "multiply_scheduled": core.multiply_scheduled,
            "vector_scheduled": core.vector_scheduled,
            "address_scheduled": core.address_scheduled,
            "outstanding": core.outstanding,
            "stores": core.stores,
            "line_cycles": core.line_cycles,
            "alone_line_cycles": core.alone_line_cycles,
            "l1_line_cycles": core.l1_line_cycles,
            "llc_line_cycles": core.llc_line_cycles,
            "set_load_cycles": core.set_load_cycles,
            "set_store_cycles": core.set_store_cycles,
            "set_modify_cycles": core.set_modify_cycles,
        })),
        "rules": machine.rules,
        "inclusion": machine.inclusion,
        "prefetcher_streams": machine.prefetcher_streams,
        "nodes": machine.nodes,
    })
}

/// Keys of the totals with the ranges of levels.
const MISS_RANGES: [(&str, MissedLevel); 3] = [
    ("l2_miss_ratio_ci90", MissedLevel::L2),
    ("llc_miss_ratio_ci90", MissedLevel::Llc),
    ("stlb_miss_ratio_ci90", MissedLevel::Stlb),
];

fn totals_object(cost: &Cost<'_>, totals: &Counts) -> Value {
    let known = cost.known(totals, true);
    let mut fields = counts(&known);
    let accesses = known.accesses();
    let ratio_of = |misses: Option<u64>| {
        misses.zip(accesses).map_or(Value::Null, |(misses, accesses)| ratio(misses, accesses))
    };
    fields.insert("accesses".to_owned(), accesses.into());
    fields.insert("l1_miss_ratio".to_owned(), ratio_of(known.l1_misses()));
    fields.insert("llc_miss_ratio".to_owned(), ratio_of(known.llc_misses()));
    cost.insert(&mut fields, totals);
    let ranges = interval::of_misses(cost.profile, &known);
    for (name, of) in MISS_RANGES {
        let range = ranges.iter().find(|(level, _)| *level == of).map(|(_, (low, high))| [low, high]);
        fields.insert(name.to_owned(), json!(range));
    }
    // All of it is no estimate.
    for interval in ["share_ci95", "stall_share_ci95"] {
        fields.entry(interval).and_modify(|interval| *interval = Value::Null);
    }
    Value::Object(fields)
}

/// All counts, those of the totals' list first.
fn counts(known: &Known) -> Map<String, Value> {
    known.by_word().into_iter().map(|(word, count)| (word.to_owned(), count.into())).collect()
}

fn objects<'c>(cost: &'c Cost<'c>) -> impl Iterator<Item = Value> + 'c {
    let profile = cost.profile;
    let mut cells: Vec<Vec<&Cell>> = vec![Vec::new(); profile.objects.len()];
    if !cost.patterns.is_empty() {
        for cell in &profile.cells {
            if let Some(of_object) = cells.get_mut(cell.object.index()) {
                of_object.push(cell);
            }
        }
    }
    let objects = profile.objects.iter().enumerate().map(|(at, object)| (ObjectIx::from_index(at), object));
    let mut order: Vec<((ObjectIx, &Object), Vec<&Cell>)> = objects.zip(cells).collect();
    order.sort_by_key(|((_, object), _)| (std::cmp::Reverse(profile.cost(&object.counts)), object.id));
    let fields = FieldEntries::new(cost);
    order.into_iter().map(move |((at, object), cells)| {
        let mut entry = object_entry(cost, object);
        entry["element"] = object
            .element
            .as_ref()
            .map_or(Value::Null, |element| json!({"type": element.type_name, "bytes": element.bytes}));
        entry["fields"] = fields.of(at);
        let shares = cost.patterns.shares(cells.into_iter()).into_iter();
        entry["patterns"] =
            shares.map(|(kind, share)| json!({"kind": kind.as_str(), "share": share})).collect();
        entry
    })
}

/// Objects' fields.
struct FieldEntries<'c> {
    cost: &'c Cost<'c>,
    counts: FieldCounts,
    /// By object.
    fields: BTreeMap<ObjectIx, Vec<FieldIx>>,
}

impl<'c> FieldEntries<'c> {
    fn new(cost: &'c Cost<'c>) -> Self {
        let profile = cost.profile;
        let mut fields: BTreeMap<ObjectIx, Vec<FieldIx>> = BTreeMap::new();
        for (at, field) in profile.fields.iter().enumerate() {
            fields.entry(field.object).or_default().push(FieldIx::from_index(at));
        }
        let cells = profile.cells.iter().filter(|_| !fields.is_empty());
        Self { cost, counts: FieldCounts::of(&FieldShares::of(profile), cells), fields }
    }

    /// `null` where nothing is known of fields.
    fn of(&self, object: ObjectIx) -> Value {
        let Some(fields) = self.fields.get(&object) else { return Value::Null };
        let fields = fields.iter().filter_map(|&at| {
            let field = self.cost.profile.fields.get(at.index())?;
            let mut entry = Map::new();
            entry.insert("offset".to_owned(), field.offset_bytes.into());
            entry.insert("bytes".to_owned(), field.size_bytes.into());
            entry.insert("name".to_owned(), field.name.as_deref().into());
            entry.insert("type".to_owned(), field.type_name.as_deref().into());
            Some(self.with(entry, &self.counts.get(at)))
        });
        let elsewhere = self.counts.elsewhere.get(&object).map(|rest| {
            let mut entry = Map::new();
            for key in ["offset", "bytes", "type"] {
                entry.insert(key.to_owned(), Value::Null);
            }
            entry.insert("name".to_owned(), NOT_LOOKED_AT.into());
            self.with(entry, rest)
        });
        fields.chain(elsewhere).collect()
    }

    fn with(&self, mut entry: Map<String, Value>, counts: &Counts) -> Value {
        self.cost.insert(&mut entry, counts);
        entry.extend(self::counts(&self.cost.known(counts, false)));
        entry.into()
    }
}

/// The fewest instructions with most of the last-level load misses; see [`delinquent_loads`].
fn delinquent(profile: &Profile) -> Value {
    let DelinquentLoads { loads, of, covered, .. } = delinquent_loads(profile);
    let entries = loads.iter().map(|code| {
        let code = &profile.code[code.index()];
        let (module, offset) = (module_name(profile, code.module), format!("{:#x}", code.offset));
        json!({"module": module, "offset": offset})
    });
    json!({"loads": entries.collect::<Vec<_>>(), "of": of, "covered": covered})
}

/// The pattern of an instruction's operand that was executed most; `null` where none is known.
fn pattern_entry(cost: &Cost<'_>, operands: &[CodeIx]) -> Value {
    let patterns = operands.iter().filter_map(|&code| cost.patterns.of_code(code));
    let Some(pattern) = patterns.max_by_key(|pattern| pattern.executions) else { return Value::Null };
    let permille = |value: u32| f64::from(value) / 1000.0;
    let loader = pattern.loaded_by.and_then(|code| cost.profile.code.get(code.index()));
    json!({
        "kind": pattern.kind.as_str(),
        "stride_bytes": pattern.stride_bytes,
        "stride_share": permille(pattern.stride_permille),
        "loaded_by": loader.map(|code| {
            json!({"module": module_name(cost.profile, code.module), "offset": format!("{:#x}", code.offset)})
        }),
        "entropy_bits": permille(pattern.entropy_millibits),
        "span_bytes": pattern.span_bytes,
        "walk_steps": pattern.walk_steps,
        "links": pattern.links,
        "exits": pattern.exits,
        "trips": pattern.trips_permille.map(|trips| trips as f64 / 1000.0),
        "accesses_apart": pattern.accesses_apart,
        "executions": pattern.executions,
        "confidence": permille(pattern.confidence_permille),
    })
}

fn object_entry(cost: &Cost<'_>, object: &Object) -> Value {
    let profile = cost.profile;
    let site = object.site.map(|_| {
        profile.stack_frames(object.site).map(|frame| frame_entry(profile, frame)).collect::<Vec<_>>()
    });
    let declared =
        object.declared.as_ref().map(|declared| json!({"file": declared.file, "line": declared.line}));
    let entry = json!({
        "id": object.id,
        "kind": object.kind.as_str(),
        "name": object.name,
        "type": object.type_name,
        "blocks": object.blocks,
        "bytes": object.bytes,
        "max_live_bytes": object.max_live_bytes,
        "live_at_peak_bytes": object.live_at_peak_bytes,
        "live_at_end_bytes": object.live_at_end_bytes,
        "wait_error_cycles": object.wait_error_cycles,
        "stall_error_cycles": object.stall_error_cycles,
        "backing": object.backing.as_ref().map(|backing| json!({
            "small_bytes": backing.small_bytes,
            "transparent_bytes": backing.transparent_bytes,
            "hugetlb_bytes": backing.hugetlb_bytes,
            "untold_huge_bytes": backing.untold_huge_bytes,
            "gigantic_bytes": backing.gigantic_bytes,
            "zero_bytes": backing.zero_bytes,
            "swapped_bytes": backing.swapped_bytes,
            "node_bytes": (!backing.node_bytes.is_empty()).then_some(&backing.node_bytes),
        })),
        "module": module_name(profile, object.module),
        "site": site,
        "declared": declared,
        "access_path": object.access_path,
        "unknown_reason": object.unknown_reason,
    });
    let mut fields = entry.as_object().cloned().unwrap_or_default();
    fields.extend(counts(&cost.known(&object.counts, true)));
    let certainties = Certainties::of_objects(profile, std::iter::once(object), cost.total);
    cost.insert_with(&mut fields, &object.counts, certainties);
    Value::Object(fields)
}

fn frame_entry(profile: &Profile, frame: &Frame) -> Value {
    json!({
        "function": frame.function.as_deref(),
        "file": frame.file.as_deref(),
        "line": frame.line,
        "column": frame.column,
        "module": module_name(profile, frame.module),
        "offset": format!("{:#x}", frame.offset),
        "inlined": frame.inlined,
        "source_text": frame.source_text.as_deref(),
    })
}

fn module_name(profile: &Profile, module: Option<ModuleIx>) -> Value {
    profile.module(module).map_or(Value::Null, |module| module.name().into())
}

/// The call paths of samples or accesses as a tree, parents first; `null` where there are none. Figures are of what was done at the node itself;
/// what has no path is in no node.
fn call_tree(cost: &Cost<'_>) -> Value {
    let profile = cost.profile;
    if profile.path_cells.is_empty() {
        return Value::Null;
    }
    let mut parts: Vec<Vec<&PathCell>> = vec![Vec::new(); profile.paths.len()];
    for part in &profile.path_cells {
        if let Some(list) = part.path.and_then(|path| parts.get_mut(path.index())) {
            list.push(part);
        }
    }
    let figures = |fields: &mut Map<String, Value>, counts: &Counts| {
        let known = cost.known(counts, false);
        let stall_cycles = profile.has_stalls().then_some(counts.stall_cycles);
        fields.insert("samples".to_owned(), known.samples.into());
        fields.insert("share".to_owned(), ratio(profile.cost(counts), cost.total.cost));
        fields.insert(
            "stall_share".to_owned(),
            stall_cycles.map_or(Value::Null, |it| ratio(it, cost.total.stall)),
        );
        fields.insert("loads".to_owned(), known.loads.into());
        fields.insert("stores".to_owned(), known.stores.into());
        fields.insert("llc_misses".to_owned(), known.llc_misses().into());
    };
    let nodes = profile.paths.iter().zip(&mut parts).map(|(node, parts)| {
        let mut all = Counts::default();
        let mut objects: Vec<(u64, &PathCell, Counts)> = Vec::with_capacity(parts.len());
        for part in parts {
            let counts = part.counts.get();
            all += &counts;
            objects.push((profile.cost(&counts), part, counts));
        }
        objects.sort_by_key(|(cost, part, _)| (std::cmp::Reverse(*cost), part.object));
        let objects = objects.iter().filter_map(|(_, part, counts)| {
            let id = profile.objects.get(part.object.index())?.id;
            let mut fields = Map::from_iter([("id".to_owned(), Value::from(id))]);
            figures(&mut fields, counts);
            Some(Value::Object(fields))
        });
        let mut fields = Map::new();
        fields.insert("parent".to_owned(), node.parent.map_or(Value::Null, |parent| parent.0.into()));
        if let Some(frame) = profile.frames.get(node.frame.index())
            && let Value::Object(frame) = frame_entry(profile, frame)
        {
            fields.extend(frame);
        }
        let objects: Value = objects.collect();
        figures(&mut fields, &all);
        fields.insert("objects".to_owned(), objects);
        Value::Object(fields)
    });
    nodes.collect()
}

/// What the operands of one instruction do together.
struct Instruction<'a> {
    first: &'a CodeLocation,
    operands: Vec<CodeIx>,
    counts: Counts,
    objects: BTreeSet<u32>,
}

/// One entry for each instruction: its operands are added.
fn instructions<'c>(cost: &'c Cost<'c>) -> impl Iterator<Item = Value> + 'c {
    let profile = cost.profile;
    let mut at: BTreeMap<(Option<ModuleIx>, u64), usize> = BTreeMap::new();
    let mut instructions: Vec<Instruction<'_>> = Vec::new();
    let mut instruction_of_code = Vec::with_capacity(profile.code.len());
    for (row, code) in profile.code.iter().enumerate() {
        let next = instructions.len();
        let index = *at.entry((code.module, code.offset)).or_insert(next);
        if index == next {
            instructions.push(Instruction {
                first: code,
                operands: Vec::new(),
                counts: Counts::default(),
                objects: BTreeSet::new(),
            });
        }
        instructions[index].counts += &code.counts.get();
        instructions[index].operands.push(CodeIx::from_index(row));
        instruction_of_code.push(index);
    }
    for cell in &profile.cells {
        let index = instruction_of_code.get(cell.code.index());
        let object = profile.objects.get(cell.object.index());
        if let (Some(&index), Some(object)) = (index, object) {
            instructions[index].objects.insert(object.id);
        }
    }
    instructions.sort_by_key(|instruction| {
        let cost = profile.cost(&instruction.counts);
        (std::cmp::Reverse(cost), instruction.first.module, instruction.first.offset)
    });
    instructions.into_iter().map(|instruction| instruction_entry(cost, &instruction))
}

fn instruction_entry(cost: &Cost<'_>, instruction: &Instruction<'_>) -> Value {
    let profile = cost.profile;
    let code = instruction.first;
    let frame = profile.stack_frames(code.stack).next();
    let entry = json!({
        "module": module_name(profile, code.module),
        "offset": format!("{:#x}", code.offset),
        "function": frame.and_then(|frame| frame.function.as_deref()),
        "file": frame.and_then(|frame| frame.file.as_deref()),
        "line": frame.and_then(|frame| frame.line),
        "kind": code.kind.as_str(),
        "size_bytes": if code.size_bytes == 0 { Value::Null } else { code.size_bytes.into() },
    });
    let mut fields = entry.as_object().cloned().unwrap_or_default();
    fields.extend(counts(&cost.known(&instruction.counts, false)));
    cost.insert(&mut fields, &instruction.counts);
    fields.insert("pattern".to_owned(), pattern_entry(cost, &instruction.operands));
    fields.insert("objects".to_owned(), instruction.objects.iter().copied().collect());
    Value::Object(fields)
}
