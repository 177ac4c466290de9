//! `memlens apply`: acts on a profile, and measures what that gains.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use memlens_apply::{
    Backing, Basis, Choice, Chosen, Command, HugePages, Method, Pairs, Placed, Placement, PlacementError,
    Setting, Variant, cpu, walks, wall,
};
use memlens_exact::{Program, SessionError};
use memlens_profile::Prediction;
use memlens_report::prediction_table;
use serde_json::{Value, json};

use crate::apply_measured::{
    FEWEST_RUNS, is_sure, must_be_same, sameness, times, times_document, too_few_runs,
};
use crate::apply_pages::{self, Pages, Reserved, bytes};
use crate::failure::{Failure, FailureKind, plain};
use crate::family::open_profile;
use crate::machine_args::MachineArgs;
use crate::observe::{self, Observation, observe};
use crate::processor::needs_x86_64;
use crate::resimulate::{self, resimulate};
use crate::run_progress::RunProgress;
use crate::sample::parse_seconds;
use crate::streams;

/// Arguments of `memlens apply`.
#[derive(Args, Debug)]
#[command(
    override_usage = "memlens apply [OPTIONS] PROFILE -- PROGRAM [ARGUMENTS]...
       memlens apply --prefetch --pid PID [OPTIONS] [PROFILE]",
    before_help = "\
Examples:
  memlens apply bfs.memlens -- ./bfs 22               what the profile blames for page walks, into huge pages
  memlens apply --object column bfs.memlens -- ./bfs  only this object
  memlens apply --runs 20 bfs.memlens -- ./bfs 22     a narrower interval
  memlens apply --prefetch spmv.memlens -- ./spmv     prefetches for the loads that miss, where they gain something
  memlens apply --prefetch --distance 32 spmv.memlens -- ./spmv   32 iterations ahead, nothing tried
  memlens apply --prefetch --pid 4711                 the same in a process that runs, recorded first
  memlens apply --prefetch --pid 4711 --withdraw      takes them out of it

The program runs several times with and without; it must bear that. Its output goes nowhere, but is compared."
)]
pub struct ApplyArgs {
    /// Put the objects with the most page walks into huge pages (the default)
    #[arg(long, conflicts_with = "prefetch")]
    pub huge_pages: bool,

    /// Put prefetches into the loops with the loads that the program waits for most
    #[arg(long, conflicts_with = "object")]
    pub prefetch: bool,

    /// Prefetch so many iterations ahead; may be repeated. Without: 8, 16, 32 and 64 are tried
    #[arg(long, value_name = "N", requires = "prefetch", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub distance: Vec<u32>,

    /// Put prefetches into this running process, try them there, keep them while it lives if they gain something. PROFILE is a
    /// recording of it, or of another run of the program; without, the process is recorded first, in burst mode
    #[arg(long, value_name = "PID", requires = "prefetch", conflicts_with_all = ["runs", "command"])]
    pub pid: Option<u32>,

    /// Take all prefetches out of the process of --pid
    #[arg(long, requires = "pid", conflicts_with_all = ["profile", "distance", "duration", "record"])]
    pub withdraw: bool,

    /// Try for so long what prefetches gain in the process of --pid; 10 if not given
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub duration: Option<Duration>,

    /// Record the process of --pid for so long if there is no PROFILE; 5 if not given
    #[arg(long, value_name = "SECONDS", conflicts_with = "profile", value_parser = parse_seconds)]
    pub record: Option<Duration>,

    /// Which huge pages: transparent ones (thp), those that the system has reserved as far as there are some (hugetlb), or
    /// reserved ones if there are enough for all objects, else transparent ones (auto)
    #[arg(long, value_name = "KIND", default_value = "thp", conflicts_with = "prefetch")]
    pub pages: Pages,

    /// Only this object: its number or name in `memlens report`; may be repeated
    #[arg(long, value_name = "ID|NAME")]
    pub object: Vec<String>,

    /// Pairs of runs, without and with; 0: only look at how the kernel backs the objects, without and with
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub runs: u32,

    /// First run the program in exact mode and model its page walks with and without huge pages: what is to be expected,
    /// and what causes most walks afterwards. Takes 20 to 100 times as long as a run. Kept with the profile
    #[arg(long, conflicts_with = "prefetch")]
    pub predict: bool,

    /// Run the program twice more in exact mode, without and with, and model its page walks by object in the pages that
    /// the kernel really gives it: what is left, and what causes most walks now. Each takes 20 to 100 times as long as a run
    #[arg(long, conflicts_with = "prefetch")]
    pub observe: bool,

    #[command(flatten)]
    pub machine: MachineArgs,

    /// A table, or everything for programs (json)
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: ApplyFormat,

    /// The profile, as `memlens run`, `memlens record` or `memlens bus analyze --out` left it
    #[arg(value_name = "PROFILE", required_unless_present = "pid")]
    pub profile: Option<PathBuf>,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required_unless_present = "pid", last = true)]
    pub command: Vec<OsString>,
}

/// Forms of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ApplyFormat {
    /// For people.
    Table,
    /// Everything.
    Json,
}

/// All that was found out.
struct Found {
    choice: Choice,
    /// How the objects lie without, and with.
    backing: [Vec<Placed>; 2],
    /// The same of the process's anonymous memory as a whole.
    whole: [Option<Backing>; 2],
    /// Runs without and with, in pairs.
    pairs: Pairs,
    setting: HugePages,
    reserved: Reserved,
    /// What was to be expected, if that was asked for.
    prediction: Option<Prediction>,
    /// Page walks in the pages that the kernel gave, if that was asked for.
    observation: Option<Observation>,
}

/// Acts on a profile.
pub fn apply(args: &ApplyArgs) -> Result<u8, Failure> {
    if args.machine.is_given() && !args.predict && !args.observe {
        return Err(Failure::new(
            FailureKind::Usage,
            "--machine and --cache are for --predict and --observe",
        ));
    }
    needs_x86_64("memlens apply", "it acts on what bursts and exact mode have found there")?;
    if let Some(pid) = args.pid {
        return crate::apply_online::apply(args, pid);
    }
    if args.duration.is_some() || args.record.is_some() {
        return Err(Failure::new(
            FailureKind::Usage,
            "--duration and --record are for running processes: --pid PID",
        ));
    }
    if (1..FEWEST_RUNS).contains(&args.runs) {
        streams::say(&format!(
            "--runs {} is too few to tell a gain from chance, which takes {FEWEST_RUNS} or more",
            args.runs
        ));
    }
    // Without --pid there is one.
    let path = args.profile.clone().unwrap_or_default();
    let profile = open_profile(&path)?;
    let program = Program::find(&args.command).map_err(|error| Failure::from(SessionError::from(error)))?;
    if let Err(reason) = memlens_apply::check_preloadable(&program.file) {
        let message = format!("nothing can be done to it from outside: {reason}");
        return Err(Failure::new(FailureKind::Unavailable, message));
    }
    if args.prefetch {
        let command = Command { file: program.file, arguments: program.arguments };
        return crate::apply_prefetch::apply(args, &profile, &command);
    }
    let setting = HugePages::of_this_system();
    let choice = memlens_apply::choose(&profile, &args.object, &program.file);
    let reserved = Reserved::of(args.pages, &choice.chosen);
    if let Some(obstacle) = setting.obstacle().filter(|_| !reserved.are_taken) {
        return Err(Failure::new(FailureKind::Unavailable, obstacle));
    }
    if choice.chosen.is_empty() {
        return Err(Failure::new(FailureKind::Unavailable, nothing_to_do(&choice, &args.object)));
    }
    let machine = || args.machine.or_of(&profile.machine.name);
    let prediction = match args.predict {
        true => {
            let machine = machine()?;
            let prediction = resimulate(&choice, &machine, &args.command)?;
            resimulate::keep(&path, &prediction);
            Some(prediction)
        }
        false => None,
    };
    let observation = match args.observe {
        true => Some(observe(&machine()?, &args.command, &choice.chosen, reserved.are_taken)?),
        false => None,
    };
    let command = Command { file: program.file, arguments: program.arguments };
    let found = measure(choice, setting, reserved, &command, args.runs)?;
    let found = Found { prediction, observation, ..found };
    match args.format {
        ApplyFormat::Table => streams::write_result(|out| out.write_all(table(&found).as_bytes()))?,
        ApplyFormat::Json => streams::write_json(&document(&found))?,
    }
    must_be_same(&found.pairs, "huge pages")
}

fn nothing_to_do(choice: &Choice, named: &[String]) -> String {
    let mut text = match named {
        [] => format!(
            "no object to put into huge pages: none has 5 % of the {} and can be moved",
            choice.basis_name()
        ),
        _ => "none of the objects named can be put into huge pages".to_owned(),
    };
    for object in &choice.rejected {
        let _ = write!(text, "\n  {} ({:.1} %): {}", object.name, object.share * 100.0, object.reason);
    }
    if choice.rejected.is_empty() && !named.is_empty() {
        text += ": the profile has no such object";
    }
    text
}

trait Words {
    fn basis_name(&self) -> &'static str;
}

impl Words for Choice {
    fn basis_name(&self) -> &'static str {
        match self.basis {
            Basis::PageWalks => "page walks' reads",
            Basis::TlbMisses => "TLB misses",
            Basis::Cost => "cost",
        }
    }
}

/// Runs the program: once each way while looking at its memory, then in pairs with nothing in the way.
fn measure(
    choice: Choice,
    setting: HugePages,
    reserved: Reserved,
    command: &Command,
    runs: u32,
) -> Result<Found, Failure> {
    let failed = |error| cannot_run(command, &error);
    let plain_run = Variant::default();
    let mut pairs = Pairs::default();
    let mut backing = [Vec::new(), Vec::new()];
    let mut whole = [None, None];
    let mut progress = RunProgress::new(2 + 2 * runs as usize);
    for (at, places) in [false, true].into_iter().enumerate() {
        let mut placement = Placement::new(&choice.chosen, places, reserved.are_taken)?;
        let variant = placement.variant();
        progress.next();
        let trial =
            memlens_apply::run(command, &variant, Some(&mut |pid| placement.look(pid))).map_err(failed)?;
        pairs.others[at].push(trial);
        if placement.processes() == 0 {
            return Err(did_not_start());
        }
        (backing[at], whole[at]) = (placement.placed(), placement.whole());
    }
    let placement = Placement::new(&choice.chosen, true, reserved.are_taken)?;
    pairs.run(command, [&plain_run, &placement.variant()], runs, || progress.next()).map_err(failed)?;
    Ok(Found { choice, backing, whole, pairs, setting, reserved, prediction: None, observation: None })
}

pub(crate) fn did_not_start() -> Failure {
    let message = "the placement library did not start in the program; `memlens doctor` may say why";
    Failure::new(FailureKind::Engine, message)
}

pub(crate) fn cannot_run(command: &Command, error: &std::io::Error) -> Failure {
    let message = format!("cannot run {}: {}", command.file.display(), plain(error));
    Failure::new(FailureKind::Io, message)
}

impl From<PlacementError> for Failure {
    fn from(error: PlacementError) -> Self {
        Self::new(FailureKind::Engine, format!("failed to {error}"))
    }
}

fn share(backing: Option<Backing>) -> String {
    match backing.and_then(|backing| backing.huge_share()) {
        Some(share) => format!("{:.0} %", share * 100.0),
        None => "?".to_owned(),
    }
}

fn table(found: &Found) -> String {
    let mut text = String::new();
    let choice = &found.choice;
    let _ = writeln!(
        text,
        "{:<24} {:>9} {:>10} {:>7}   in huge pages  memory in huge pages",
        "object", "share of", "", ""
    );
    let _ = writeln!(
        text,
        "{:<24} {:>9} {:>10} {:>7}   {:<14} {:>7} {:>7}",
        "",
        match choice.basis {
            Basis::PageWalks => "walks",
            Basis::TlbMisses => "misses",
            Basis::Cost => "cost",
        },
        "bytes",
        "blocks",
        "by",
        "without",
        "with"
    );
    for object in &choice.chosen {
        let placed = |which: usize| found.backing[which].iter().find(|placed| placed.id == object.id);
        let seen = |which: usize| share(placed(which).and_then(|placed| placed.backing));
        let _ = writeln!(
            text,
            "{:<24} {:>7.1} % {:>10} {:>7}   {:<14} {:>7} {:>7}",
            object.name,
            object.share * 100.0,
            bytes(object.bytes),
            object.blocks,
            method(object),
            seen(0),
            seen(1),
        );
    }
    let _ = writeln!(
        text,
        "{:<67}   {:>7} {:>7}",
        "all of the program's own memory",
        share(found.whole[0]),
        share(found.whole[1])
    );
    for object in &choice.rejected {
        let _ = writeln!(text, "not {} ({:.1} %): {}", object.name, object.share * 100.0, object.reason);
    }
    text.push('\n');
    if let Some(prediction) = &found.prediction {
        text += &prediction_table(prediction);
        text.push('\n');
    }
    if let Some(observation) = &found.observation {
        text += &observe::table(observation, &choice.chosen);
        text.push('\n');
    }
    if !found.pairs.pairs.is_empty() {
        text += &times(&found.pairs);
        text.push('\n');
    }
    if let Some([without, with]) = relative_errors(found) {
        let _ = writeln!(
            text,
            "Page walks modelled against those counted (1 - modelled / counted): {without:+.3} without, {with:+.3} with."
        );
    }
    for line in verdict(found) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// The relative error of the page walks that were modelled, against the processor's counters, without and with (row T6:
/// 1 − modelled ÷ counted). None: one of them is missing, or nothing was counted.
fn relative_errors(found: &Found) -> Option<[f64; 2]> {
    let modelled = found.observation.as_ref().filter(|_| found.pairs.are_walks_counted())?.page_walks();
    let counted = [0, 1].map(|which| found.pairs.median(which, walks));
    (counted.iter().all(|&walks| walks > 0.0))
        .then(|| [0, 1].map(|which| 1.0 - modelled[which] as f64 / counted[which]))
}

fn method(object: &Chosen) -> &'static str {
    match object.method {
        Method::Blocks => "its blocks",
        Method::Heap => "the whole heap",
        Method::Variable { .. } => "its pages",
    }
}

/// What it comes to, in sentences.
fn verdict(found: &Found) -> Vec<String> {
    let mut lines = Vec::new();
    let gain = found.pairs.change(wall).map(|time| match time {
        time if !is_sure(&time) => too_few_runs(),
        time if time.high < 0.0 => format!(
            "With huge pages for {} the program takes {:.1} % less time ({:.2} times the speed).",
            names(&found.choice.chosen),
            -time.change * 100.0,
            1.0 / (1.0 + time.change)
        ),
        time if time.low > 0.0 => {
            format!("No gain: the program takes {:.1} % longer with huge pages.", time.change * 100.0)
        }
        _ => "No gain that could be told from chance.".to_owned(),
    });
    lines.extend(gain);
    if let (Some(time), Some(processor)) = (found.pairs.change(wall), found.pairs.change(cpu))
        && is_sure(&processor)
        && time.low <= 0.0
        && time.high >= 0.0
        && processor.high < 0.0
    {
        let less = -processor.change * 100.0;
        lines.push(format!(
            "It takes {less:.1} % less processor time, though: the machine may be busy, or the program waits."
        ));
    }
    for object in &found.choice.chosen {
        let placed =
            found.backing[1].iter().find(|placed| placed.id == object.id).copied().unwrap_or_default();
        let before =
            found.backing[0].iter().find(|placed| placed.id == object.id).and_then(|placed| placed.backing);
        let name = &object.name;
        if object.method != Method::Heap && placed.blocks == 0 {
            lines.push(format!(
                "{name}: the program itself made no block of 2 MiB or more at its place in this run; programs that it starts, as mpirun \
                 does, are not reached."
            ));
        } else if placed.refused > 0 {
            lines.push(format!("{name}: the kernel refused huge pages for {} blocks.", placed.refused));
        } else if let Some(got) = placed.backing.and_then(|backing| backing.huge_share())
            && got < 0.5
        {
            lines.push(match found.setting.makes_room_at_fault {
                true => format!("{name}: the kernel had few huge pages free: memory is fragmented or short."),
                false => format!(
                    "{name}: the kernel had few huge pages free and does not make room when memory is first touched: \
                     echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/defrag"
                ),
            });
        }
        if found.reserved.are_taken && object.method == Method::Blocks {
            lines.push(apply_pages::in_reserved(name, &placed));
        }
        if before.and_then(|backing| backing.huge_share()).is_some_and(|share| share > 0.5) {
            lines.push(format!(
                "{name}: it lies in huge pages without memlens, too{}.",
                if found.setting.setting == Setting::Always {
                    " (the kernel is set to `always`)"
                } else {
                    ""
                }
            ));
        }
    }
    lines.extend(found.reserved.why_not.clone());
    lines.extend(sameness(&found.pairs, "huge pages"));
    lines
}

/// Their names, as a list.
pub(crate) fn names(chosen: &[Chosen]) -> String {
    let names: Vec<&str> = chosen.iter().map(|object| object.name.as_str()).collect();
    names.join(", ")
}

fn document(found: &Found) -> Value {
    let backing = |backing: Option<Backing>| {
        backing.map(|backing| {
            json!({"resident_bytes": backing.resident, "huge_bytes": backing.huge,
                   "hugetlb_bytes": backing.hugetlb, "swapped_bytes": backing.swapped})
        })
    };
    let objects: Vec<Value> = found
        .choice
        .chosen
        .iter()
        .map(|object| {
            let placed = |which: usize| {
                found.backing[which].iter().find(|placed| placed.id == object.id).copied().unwrap_or_default()
            };
            json!({
                "id": object.id, "name": object.name, "share": object.share, "bytes": object.bytes,
                "blocks": object.blocks,
                "method": match object.method {
                    Method::Blocks => "blocks", Method::Heap => "heap", Method::Variable { .. } => "variable",
                },
                "placed_blocks": placed(1).blocks, "placed_bytes": placed(1).bytes, "refused_blocks": placed(1).refused,
                "reserved_bytes": placed(1).reserved_bytes, "unreserved_blocks": placed(1).unreserved,
                "backing_without": backing(placed(0).backing), "backing_with": backing(placed(1).backing),
            })
        })
        .collect();
    let rejected = found.choice.rejected.iter().map(|object| {
        json!({"id": object.id, "name": object.name, "share": object.share, "reason": object.reason})
    });
    json!({
        "schema": "memlens-apply/1",
        "ranked_by": match found.choice.basis {
            Basis::PageWalks => "page_walk_accesses", Basis::TlbMisses => "stlb_misses", Basis::Cost => "cost",
        },
        "objects": objects,
        "rejected": rejected.collect::<Vec<_>>(),
        "whole_without": backing(found.whole[0]),
        "whole_with": backing(found.whole[1]),
        "wall_seconds": times_document(&found.pairs, wall),
        "cpu_seconds": times_document(&found.pairs, cpu),
        "page_walks": found.pairs.are_walks_counted().then(|| times_document(&found.pairs, walks)),
        "modelled_walks_relative_error": relative_errors(found),
        "max_resident_bytes": {
            "without": found.pairs.values(0, |trial| trial.max_resident_bytes as f64),
            "with": found.pairs.values(1, |trial| trial.max_resident_bytes as f64),
        },
        "resimulation": found.prediction,
        "observation": found.observation.as_ref().map(observe::document),
        "same_output": found.pairs.is_deterministic().then(|| found.pairs.is_same()),
        "verdict": verdict(found),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_apply::{End, Output, Trial};
    use std::time::Duration;

    fn trial(milliseconds: u64, hash: u64) -> Trial {
        Trial {
            wall: Duration::from_millis(milliseconds),
            cpu: Duration::from_millis(milliseconds / 2),
            max_resident_bytes: 1 << 20,
            page_walks: None,
            end: End::Code(0),
            output: [Some(Output { bytes: 3, hash }), Some(Output::default())],
        }
    }

    fn found(pairs: Vec<[Trial; 2]>) -> Found {
        let chosen = Chosen {
            id: 7,
            name: "column".into(),
            share: 0.9,
            bytes: 64 << 20,
            blocks: 1,
            method: Method::Blocks,
            frames: Vec::new(),
        };
        let placed = |huge| Placed {
            id: 7,
            blocks: 1,
            bytes: 64 << 20,
            backing: Some(Backing { resident: 64 << 20, huge, ..Backing::default() }),
            ..Placed::default()
        };
        Found {
            choice: Choice {
                basis: Basis::PageWalks,
                total: 10,
                accesses: 100,
                chosen: vec![chosen],
                rejected: Vec::new(),
            },
            backing: [vec![placed(0)], vec![placed(64 << 20)]],
            whole: [None, None],
            pairs: Pairs { pairs, ..Pairs::default() },
            setting: HugePages {
                setting: Setting::Madvise,
                makes_room_at_fault: true,
                is_disabled_here: false,
            },
            reserved: Reserved::default(),
            prediction: None,
            observation: None,
        }
    }

    #[test]
    fn a_gain_a_loss_and_chance_are_told_apart() {
        let runs = |with: [u64; 6]| found(with.map(|with| [trial(1000, 1), trial(with, 1)]).to_vec());
        let first = |found: &Found| verdict(found)[0].clone();
        let faster = runs([700, 710, 690, 800, 750, 720]);
        assert!(
            first(&faster).contains("for column the program takes 28.0 % less time"),
            "{}",
            first(&faster)
        );
        let mut busy = runs([990, 1010, 1000, 950, 1050, 1000]);
        busy.pairs.pairs.iter_mut().for_each(|pair| pair[1].cpu = Duration::from_millis(400));
        assert!(verdict(&busy)[1].contains("20.0 % less processor time"), "{:?}", verdict(&busy));
        assert!(first(&runs([1100, 1090, 1200, 1300, 1100, 1050])).starts_with("No gain: the program takes"));
        assert!(first(&runs([990, 1010, 1000, 950, 1050, 1000])).starts_with("No gain that"));
        let few = found(vec![[trial(1000, 1), trial(500, 1)]]);
        assert!(first(&few).starts_with("Too few runs"));
        let text = table(&faster);
        assert!(text.contains("-28.0 % (-31.0 to -20.0 %, 97 % interval)"), "{text}");
        assert!(
            text.lines().any(|line| line.starts_with("column") && line.ends_with("0 %   100 %")),
            "{text}"
        );
    }

    #[test]
    fn walks_that_the_processor_counts_are_held_against_the_modelled_ones() {
        let mut found = found(vec![[trial(1000, 1), trial(500, 1)]; 6]);
        assert!(!table(&found).contains("counted") && document(&found)["page_walks"].is_null());
        for [without, with] in &mut found.pairs.pairs {
            (without.page_walks, with.page_walks) = (Some(2_000_000), Some(1000));
        }
        found.observation = Some(Observation::with_walks([1_800_000, 1100]));
        let text = table(&found);
        assert!(text.contains("page walks, counted"), "{text}");
        assert!(text.contains("+0.100 without, -0.100 with"), "{text}");
        let change = document(&found)["page_walks"]["change"]["estimate"].as_f64().expect("a number");
        assert!((change - -0.9995).abs() < 1e-12, "{change}");
        found.pairs.pairs[3][1].page_walks = None;
        assert!(!table(&found).contains("counted"), "one run without a counter");
    }

    #[test]
    fn the_document_has_the_numbers() {
        let document = document(&found(vec![[trial(1000, 1), trial(500, 1)]; 6]));
        assert_eq!(document["schema"], "memlens-apply/1");
        let change = document["wall_seconds"]["change"]["estimate"].as_f64().expect("a number");
        assert!((change - -0.5).abs() < 1e-12, "{change}");
        assert_eq!(document["objects"][0]["backing_with"]["huge_bytes"], 64 << 20);
        assert_eq!(document["same_output"], true);
    }
}
