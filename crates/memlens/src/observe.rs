//! Page walks in the pages that the kernel really gives a program, without and with a placement (row T7: which object is
//! the new main cause). The program runs twice more under the exact collector, the second time with the placement library.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write;

use memlens_apply::{Chosen, Placement};
use memlens_backing::PageSizeReader;
use memlens_bus::resimulation::{AskedPages, ObservedWalks, PageSizeSource, WalksByObject};
use memlens_exact::Extras;
use memlens_report::short_count;
use memlens_sim::MachineDescription;
use serde_json::{Value, json};

use crate::apply::{did_not_start, names};
use crate::bus_capture;
use crate::bus_table::{columns, printable};
use crate::failure::{Failure, FailureKind};
use crate::resimulate::{invalid, run_once_more};

/// Causes that are shown of each run.
const SHOWN: usize = 5;
/// Causes that the JSON has of each run.
const KEPT: usize = 10;

/// The two runs.
#[derive(Debug)]
pub struct Observation {
    /// Whose TLBs were modelled.
    machine: String,
    /// Without and with.
    runs: [Observed; 2],
}

impl Observation {
    /// Page walks without and with.
    pub fn page_walks(&self) -> [u64; 2] {
        [0, 1].map(|which| self.runs[which].walks.total.walks)
    }

    #[cfg(test)]
    pub fn with_walks(walks: [u64; 2]) -> Self {
        let mut runs = [Observed::default(), Observed::default()];
        runs.iter_mut().zip(walks).for_each(|(run, walks)| run.walks.total.walks = walks);
        Self { machine: "host".to_owned(), runs }
    }
}

/// One run.
#[derive(Debug, Default)]
pub struct Observed {
    walks: WalksByObject,
    asked: AskedPages,
    exit_code: u8,
}

/// Runs a program without and with these objects in huge pages.
pub fn observe(
    machine: &MachineDescription,
    command: &[OsString],
    chosen: &[Chosen],
    takes_reserved: bool,
) -> Result<Observation, Failure> {
    bus_capture::check(machine)?;
    let placement = Placement::new(chosen, true, takes_reserved)?;
    let variant = placement.variant();
    let with = Extras { environment: variant.environment, inherited: variant.inherited };
    let without = observed(machine, command, Extras::default())?;
    let with = observed(machine, command, with)?;
    match placement.processes() {
        0 => Err(did_not_start()),
        _ => Ok(Observation { machine: machine.name.clone(), runs: [without, with] }),
    }
}

fn observed(machine: &MachineDescription, command: &[OsString], extras: Extras) -> Result<Observed, Failure> {
    let Some(reader) = PageSizeReader::new() else {
        let message = "this kernel or container does not tell page sizes (PAGEMAP_SCAN, Linux 6.7): leave out --observe";
        return Err(Failure::new(FailureKind::Unavailable, message));
    };
    let system = ObservedWalks::new(machine, Box::new(KernelPages(reader)))
        .map_err(|error| invalid(machine, &error))?;
    let (system, exit_code) = run_once_more(machine, command, extras, system)?;
    let (walks, asked) = system.finish();
    Ok(Observed { walks, asked, exit_code })
}

/// Page sizes of this machine's running processes.
struct KernelPages(PageSizeReader);

impl PageSizeSource for KernelPages {
    fn is_huge(&mut self, pid: u32, page: u64) -> Option<bool> {
        self.0.is_huge(pid, page)
    }

    fn forget(&mut self, pid: u32) {
        self.0.forget(pid);
    }
}

/// A table, and what it comes to.
pub fn table(observation: &Observation, chosen: &[Chosen]) -> String {
    let Observation { machine, runs: [without, with] } = observation;
    let mut text = format!(
        "The program twice more, its page walks modelled for {} in the pages that the kernel gave it.\n",
        printable(machine)
    );
    let mut rows = vec![["page walks of", "", "without", "with", "change"].map(str::to_owned).to_vec()];
    let mut add = |name: &str, kind: &str, before: u64, after: u64| {
        let change = match before {
            0 => String::new(),
            before => format!("{:+.1} %", (after as f64 / before as f64 - 1.0) * 100.0),
        };
        rows.push(vec![printable(name), kind.to_owned(), short_count(before), short_count(after), change]);
    };
    add("all", "", without.walks.total.walks, with.walks.total.walks);
    let by_name = [without, with].map(Observed::by_name);
    let mut shown: Vec<&Cause> = Vec::new();
    for causes in &by_name {
        let fresh = causes.iter().take(SHOWN).filter(|cause| cause.walks > 0);
        for cause in fresh {
            if !shown.iter().any(|known| known.is_same(cause)) {
                shown.push(cause);
            }
        }
    }
    for cause in shown {
        let of = |causes: &[Cause]| {
            causes.iter().find(|known| known.is_same(cause)).map_or(0, |known| known.walks)
        };
        add(&cause.name, &cause.kind, of(&by_name[0]), of(&by_name[1]));
    }
    text += &columns(&rows);
    let placed = names(chosen);
    let most = |observed: &Observed| match observed.by_name().first() {
        Some(cause) if cause.walks > 0 => format!(
            "{} ({}) causes most page walks, {:.1} %",
            printable(&cause.name),
            cause.kind,
            100.0 * cause.walks as f64 / observed.walks.total.walks.max(1) as f64
        ),
        _ => "there are no page walks".to_owned(),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "Without, {}; with {} in huge pages, {}.",
        most(without),
        printable(&placed),
        most(with)
    );
    for (observed, which) in [(without, "without"), (with, "with")] {
        let AskedPages { huge, small, unknown } = observed.asked;
        if unknown * 100 > huge + small + unknown {
            let _ = writeln!(
                text,
                "In the run {which} {} accesses came to pages that were gone when the kernel was asked: counted as small.",
                short_count(unknown)
            );
        }
        if observed.exit_code != 0 {
            let _ =
                writeln!(text, "The program ended with exit code {} in the run {which}.", observed.exit_code);
        }
    }
    text
}

/// Everything, for programs.
pub fn document(observation: &Observation) -> Value {
    let run = |observed: &Observed| {
        let causes = observed.by_name().into_iter().take(KEPT).map(|cause| {
            json!({"name": cause.name, "kind": cause.kind, "page_walks": cause.walks,
                   "page_walk_accesses": cause.entries})
        });
        json!({
            "page_walks": observed.walks.total.walks,
            "page_walk_accesses": observed.walks.total.entries,
            "causes": causes.collect::<Vec<_>>(),
            "asked": {"huge": observed.asked.huge, "small": observed.asked.small, "unknown": observed.asked.unknown},
            "exit_code": observed.exit_code,
        })
    };
    let [without, with] = &observation.runs;
    json!({"machine": observation.machine, "without": run(without), "with": run(with)})
}

/// Objects of one name and kind.
struct Cause {
    name: String,
    kind: String,
    walks: u64,
    entries: u64,
}

impl Cause {
    fn is_same(&self, other: &Self) -> bool {
        (&self.name, &self.kind) == (&other.name, &other.kind)
    }
}

impl Observed {
    /// Who causes walks, most first. Numbers of objects differ from run to run, so names are what is compared.
    fn by_name(&self) -> Vec<Cause> {
        let mut places: HashMap<(&str, &str), usize> = HashMap::new();
        let mut causes: Vec<Cause> = Vec::new();
        for (object, counts) in &self.walks.objects {
            let (name, kind) = (object.name.as_str(), object.kind.as_str());
            let at = *places.entry((name, kind)).or_insert(causes.len());
            if at == causes.len() {
                causes.push(Cause { name: name.to_owned(), kind: kind.to_owned(), walks: 0, entries: 0 });
            }
            causes[at].walks += counts.walks;
            causes[at].entries += counts.entries;
        }
        causes.sort_by_key(|cause| std::cmp::Reverse(cause.walks));
        causes
    }
}
