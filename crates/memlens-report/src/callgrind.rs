//! The export for KCachegrind and `callgrind_annotate`: data objects as entries of their own.
//!
//! Valgrind's format (its manual, "Callgrind Format Specification", version 1) knows functions with
//! self cost and calls with inclusive cost. Here
//!
//! - a data object is a function of the ELF object `heap`, `global`, `local` … with **all** of the
//!   object's cost as self cost, at the line of its allocation or declaration;
//! - a function of the program has no self cost; each of its lines "calls" the objects it touches, as
//!   often as it accesses them, with the accesses' cost as inclusive cost.
//!
//! So nothing is counted twice: self costs add up to the profile's totals, and a function's inclusive
//! cost is what its accesses cost. Write-backs (`DramW`) have no accessing function: an object's self
//! cost has them, no call does.
//!
//! Events of levels that were not modelled are left out, and those of instruction fetches where there are none: these
//! are "called", too, in the object of the code.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use memlens_profile::{MachineInfo, Object, Profile};
use memlens_types::{Counts, Fetched};

use crate::place::function_name;

/// Writes the profile. Linear in the cells.
///
/// # Errors
/// Those of `out`.
pub fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let totals = profile.totals();
    let events = events(&profile.machine, totals.fetched != Fetched::default());
    write_header(profile, &events, &totals, out)?;
    let mut names = Names::default();
    let targets: Vec<Target> = profile.objects.iter().map(|object| Target::new(profile, object)).collect();
    for (object, target) in profile.objects.iter().zip(&targets) {
        writeln!(out, "ob={}", names.of("ob", &target.ob))?;
        writeln!(out, "fl={}", names.of("fl", &target.file))?;
        writeln!(out, "fn={}", names.of("fn", &target.function))?;
        writeln!(out, "{} {}\n", target.line, costs(&events, &object.counts))?;
    }
    for (caller, calls) in calls(profile) {
        writeln!(out, "ob={}", names.of("ob", &caller.ob))?;
        writeln!(out, "fl={}", names.of("fl", &caller.file))?;
        writeln!(out, "fn={}", names.of("fn", &caller.function))?;
        for ((line, object), counts) in calls {
            let Some(target) = targets.get(object) else { continue };
            writeln!(out, "cob={}", names.of("ob", &target.ob))?;
            writeln!(out, "cfi={}", names.of("fl", &target.file))?;
            writeln!(out, "cfn={}", names.of("fn", &target.function))?;
            writeln!(out, "calls={} {}", counts.accesses() + counts.fetched.fetches, target.line)?;
            writeln!(out, "{line} {}", costs(&events, &counts))?;
        }
        writeln!(out)?;
    }
    writeln!(out, "totals: {}", costs(&events, &totals))
}

/// A cost column: its name, its name in full, its value.
struct Event {
    name: &'static str,
    long_name: &'static str,
    value: fn(&Counts) -> u64,
}

/// The names that KCachegrind knows where there are any, with the same meaning.
fn events(machine: &MachineInfo, fetches: bool) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let mut add = |modelled: bool, name, long_name, value| {
        if modelled {
            events.push(Event { name, long_name, value });
        }
    };
    let (l1, l2, llc) = (machine.l1d.is_some(), machine.l2.is_some(), machine.llc.is_some());
    add(fetches, "Ir", "Instruction Fetch", |counts| counts.fetched.fetches);
    add(fetches, "I1mr", "L1 Instr. Fetch Miss", |counts| counts.fetched.l1i_misses);
    add(fetches && l2, "L2ir", "L2 Instr. Fetch Miss", |counts| counts.fetched.l2i_misses);
    add(fetches, "ILmr", "LL Instr. Fetch Miss", |counts| counts.fetched.llci_misses);
    add(true, "Dr", "Data Read Access", |counts| counts.loads);
    add(true, "Dw", "Data Write Access", |counts| counts.stores);
    add(l1, "D1mr", "L1 Data Read Miss", |counts| counts.l1_load_misses);
    add(l1, "D1mw", "L1 Data Write Miss", |counts| counts.l1_store_misses);
    add(l2, "L2mr", "L2 Data Read Miss", |counts| counts.l2_load_misses);
    add(l2, "L2mw", "L2 Data Write Miss", |counts| counts.l2_store_misses);
    add(llc, "DLmr", "LL Data Read Miss", |counts| counts.llc_load_misses);
    add(llc, "DLmw", "LL Data Write Miss", |counts| counts.llc_store_misses);
    add(machine.dtlb.is_some(), "Tlb", "Data TLB Miss", |counts| counts.dtlb_misses);
    add(machine.stlb.is_some(), "Walk", "Page Walk", |counts| counts.stlb_misses);
    add(l1 || l2 || llc, "DramR", "Line Read from Memory", |counts| counts.dram_reads);
    add(l1 || l2 || llc, "DramW", "Line Written to Memory", |counts| counts.dram_writes);
    events
}

fn write_header(
    profile: &Profile,
    events: &[Event],
    totals: &Counts,
    out: &mut impl Write,
) -> io::Result<()> {
    let run = &profile.run;
    writeln!(out, "# callgrind format")?;
    writeln!(out, "version: 1")?;
    writeln!(out, "creator: memlens-{}", one_line(&run.memlens_version))?;
    if let Some(pid) = run.pid {
        writeln!(out, "pid: {pid}")?;
    }
    writeln!(out, "cmd: {}", one_line(&run.command.join(" ")))?;
    writeln!(out, "part: 1")?;
    let machine = &profile.machine;
    let caches = [("D1", &machine.l1d), ("L2", &machine.l2), ("LL", &machine.llc)];
    for (name, cache) in caches.into_iter().filter_map(|(name, cache)| Some((name, cache.as_ref()?))) {
        let (bytes, ways, line) = (cache.bytes, cache.ways, machine.line_bytes);
        writeln!(out, "desc: {name} cache: {bytes} B, {line} B, {ways}-way associative")?;
    }
    writeln!(out, "desc: Trigger: Program termination")?;
    writeln!(out, "positions: line")?;
    for event in events {
        writeln!(out, "event: {} : {}", event.name, event.long_name)?;
    }
    let names: Vec<&str> = events.iter().map(|event| event.name).collect();
    writeln!(out, "events: {}", names.join(" "))?;
    writeln!(out, "summary: {}\n", costs(events, totals))
}

fn costs(events: &[Event], counts: &Counts) -> String {
    events.iter().map(|event| (event.value)(counts).to_string()).collect::<Vec<_>>().join(" ")
}

/// An object's entry.
struct Target {
    ob: String,
    file: String,
    function: String,
    line: u32,
}

impl Target {
    fn new(profile: &Profile, object: &Object) -> Self {
        let site =
            profile.stack_frames(object.site).find(|frame| frame.file.is_some() && frame.line.is_some());
        let (file, line) = match (site, &object.declared) {
            (Some(frame), _) => (frame.file.as_deref(), frame.line),
            (None, Some(declared)) => (Some(declared.file.as_str()), Some(declared.line)),
            (None, None) => (None, None),
        };
        Self {
            ob: object.kind.as_str().to_owned(),
            file: one_line(file.unwrap_or("???")),
            // The id keeps objects of the same name apart.
            function: one_line(&format!("{} (#{})", object.name, object.id)),
            line: line.unwrap_or(0),
        }
    }
}

/// A function of the program.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Caller {
    ob: String,
    file: String,
    function: String,
}

/// Per line and object: what the line's accesses of the object cost.
type Calls = BTreeMap<(u32, usize), Counts>;

fn calls(profile: &Profile) -> BTreeMap<Caller, Calls> {
    let callers: Vec<(Caller, u32)> = profile
        .code
        .iter()
        .map(|code| {
            let frame = profile.stack_frames(code.stack).next();
            let ob = profile.module(code.module).map_or("???", |module| module.path.as_str());
            let file = frame.and_then(|frame| frame.file.as_deref()).unwrap_or("???");
            let caller = Caller {
                ob: one_line(ob),
                file: one_line(file),
                function: one_line(&function_name(profile, code)),
            };
            (caller, frame.and_then(|frame| frame.line).unwrap_or(0))
        })
        .collect();
    let mut calls: BTreeMap<Caller, Calls> = BTreeMap::new();
    for cell in &profile.cells {
        let Some((caller, line)) = callers.get(cell.code.index()) else { continue };
        let key = (*line, cell.object.index());
        *calls.entry(caller.clone()).or_default().entry(key).or_default() += &cell.counts.get();
    }
    calls
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The format's name compression: `(7) name` once, `(7)` from then on. It is used for every name, so
/// that none that starts with a number in brackets is mistaken for one.
#[derive(Default)]
struct Names {
    seen: HashMap<(&'static str, String), usize>,
    next: HashMap<&'static str, usize>,
}

impl Names {
    fn of(&mut self, space: &'static str, name: &str) -> String {
        if let Some(id) = self.seen.get(&(space, name.to_owned())) {
            return format!("({id})");
        }
        let next = self.next.entry(space).or_default();
        *next += 1;
        let id = *next;
        self.seen.insert((space, name.to_owned()), id);
        format!("({id}) {name}")
    }
}
