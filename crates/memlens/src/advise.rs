//! `memlens advise`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use memlens_analysis::{
    Advice, Finding, LEAST_GAIN, LEAST_TIME_GAIN, Level, Nodes, Remedy, Searched, SetConflict,
    advice as advice_for,
};
use memlens_apply::RefusedLoad;
use memlens_exact::{Program, SessionError};
use memlens_profile::place::{code_place, is_library, object_place, source_place};
use memlens_profile::{AccessPattern, CodeIx, FieldIx, Object, ObjectIx, PatternIndex, Prediction, Profile};
use memlens_report::{never_written, prediction_table, row_number, short_count};
use memlens_types::PatternKind;
use serde_json::{Value, json};

use crate::failure::{Failure, FailureKind};
use crate::family::open_profile;
use crate::machine_args::MachineArgs;
use crate::resimulate::{self, resimulate};
use crate::shell;
use crate::streams;

/// What the first key of the JSON says.
const SCHEMA: &str = "memlens-advice/1";
/// Findings shown if the user does not say how many.
const SHOWN: u64 = 5;
/// From this part of the core's time on stalls are much.
const MUCH_STALLED: f64 = 0.05;
/// Titles of hidden findings that are named.
const MOST_HIDDEN: usize = 3;

/// Arguments of `memlens advise`.
#[derive(Args, Debug)]
#[command(
    override_usage = "memlens advise [OPTIONS] PROFILE [-- PROGRAM [ARGUMENTS]...]",
    before_help = "\
Examples:
  memlens advise app.memlens                   what to do about which data, the largest possible gain first
  memlens advise app.memlens --top 20          more of it
  memlens advise app.memlens -- ./app 18       and what page walks would be left, by running the program once more
  memlens advise app.memlens --format json     for programs"
)]
pub struct AdviseArgs {
    /// A profile that counts misses: of exact or burst mode, or of a bus trace
    #[arg(value_name = "PROFILE")]
    pub profile: PathBuf,

    /// Text for people, or everything for programs
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,

    /// How many findings at most
    #[arg(long, value_name = "N", default_value_t = SHOWN, value_parser = clap::value_parser!(u64).range(1..))]
    pub top: u64,

    #[command(flatten)]
    pub machine: MachineArgs,

    /// Run this program in exact mode and model its page walks with the objects to blame in huge pages: on the machine
    /// of the profile, if --machine names no other. Its output goes nowhere; the prediction is kept with the profile
    #[arg(value_name = "PROGRAM", last = true)]
    pub command: Vec<OsString>,
}

/// How advice is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs: everything.
    Json,
}

/// Says what to do about the data of a profile.
pub fn advise(args: &AdviseArgs) -> Result<u8, Failure> {
    let profile = open_profile(&args.profile)?;
    if profile.run.sampling.is_some() {
        let message = format!(
            "samples of time count no misses, so there is nothing to advise from {}; record the program in burst mode (memlens run) or in exact mode",
            args.profile.display()
        );
        return Err(Failure::new(FailureKind::Usage, message));
    }
    let found = advice_for(&profile);
    let prediction = prediction(&profile, args)?;
    match args.format {
        Format::Json => {
            let mut document = document(&profile, &found);
            document["resimulation"] = json!(prediction);
            streams::write_json(&document)?;
        }
        Format::Text => {
            let refused = refused_prefetches(&profile, &found);
            let mut text = text(&profile, &found, &refused, args);
            if let Some(prediction) = prediction {
                text = text + "\n" + &prediction_table(&prediction);
            }
            streams::write_result(|out| out.write_all(text.as_bytes()))?;
        }
    }
    Ok(0)
}

/// How a gain in wait is to be read: how often lines go from core to core is known roughly, and how long that takes is no bound.
fn at_most(finding: &Finding) -> &'static str {
    match finding.remedy {
        Remedy::Separate { .. } | Remedy::PerThread { .. } => "roughly",
        _ => "at most",
    }
}

/// Whether `memlens apply --prefetch` might do what a finding says.
fn is_for_apply(profile: &Profile, finding: &Finding) -> bool {
    matches!(finding.remedy, Remedy::Prefetch { .. }) && has_steps(profile, finding)
}

/// Loads that `memlens apply --prefetch` would do nothing for, in the program's files as they are now; none where no finding is for it. Cost: reads
/// the debug information of the files with such loads.
fn refused_prefetches(profile: &Profile, advice: &Advice) -> Vec<RefusedLoad> {
    let Some(program) = profile.run.command.first() else { return Vec::new() };
    if !advice.findings.iter().any(|finding| is_for_apply(profile, finding)) {
        return Vec::new();
    }
    let words: Vec<OsString> = profile.run.command.iter().map(Into::into).collect();
    let file = Program::find(&words).map_or_else(|_| program.into(), |program| program.file);
    memlens_apply::choose_prefetches(profile, &file).refused
}

/// Why `memlens apply` would prefetch none of a finding's loads; None: it would, or it is not known.
fn refusal<'r>(profile: &Profile, finding: &Finding, refused: &'r [RefusedLoad]) -> Option<&'r str> {
    // An instruction with two operands has two rows.
    let place = |code: CodeIx| profile.code.get(code.index()).map(|code| (code.module, code.offset));
    let reason = |&code: &CodeIx| refused.iter().find(|load| place(load.code) == place(code));
    let all: Option<Vec<&RefusedLoad>> = finding.code.iter().map(reason).collect();
    let first = all.filter(|_| is_for_apply(profile, finding))?.first().copied()?;
    Some(&first.reason)
}

/// What huge pages would do to the program that is named, if one is.
fn prediction(profile: &Profile, args: &AdviseArgs) -> Result<Option<Prediction>, Failure> {
    if args.command.is_empty() {
        return match args.machine.is_given() {
            true => {
                let message =
                    "--machine and --cache are for a program that is modelled once more: -- PROGRAM";
                Err(Failure::new(FailureKind::Usage, message))
            }
            false => Ok(None),
        };
    }
    let program = Program::find(&args.command).map_err(|error| Failure::from(SessionError::from(error)))?;
    let choice = memlens_apply::choose(profile, &[], &program.file);
    let machine = args.machine.or_of(&profile.machine.name)?;
    let prediction = resimulate(&choice, &machine, &args.command)?;
    resimulate::keep(&args.profile, &prediction);
    Ok(Some(prediction))
}

fn text(profile: &Profile, advice: &Advice, refused: &[RefusedLoad], args: &AdviseArgs) -> String {
    let Advice { findings, hidden, without_remedy } = advice;
    if profile.totals().accesses() == 0 {
        let mut text = "The profile holds no accesses: there is nothing to advise on.\n".to_owned();
        for note in profile.run.notes.iter().chain(&profile.attribution.notes) {
            text.push_str(note);
            text.push('\n');
        }
        return text;
    }
    if findings.is_empty() && hidden.is_empty() {
        let least = percent(LEAST_GAIN);
        let without = without_words(profile, without_remedy).map_or_else(String::new, |text| text + "\n");
        return format!(
            "Nothing that memlens knows a remedy for makes {least} of the wait. memlens report shows what there is.\n{without}"
        );
    }
    let mut out = never_written(profile).map_or_else(String::new, |note| note + "\n\n");
    // Where nothing else is to be done, they are told in full.
    let found = if findings.is_empty() { hidden } else { findings };
    let of_time = percent(LEAST_TIME_GAIN);
    let is_held = profile.has_more_stalls_than_time();
    let shown = usize::try_from(args.top).unwrap_or(usize::MAX);
    let is_prefetch = |finding: &Finding| matches!(finding.remedy, Remedy::Prefetch { .. });
    let measured = match hidden.iter().any(|finding| is_prefetch(finding) && has_steps(profile, finding)) {
        true => ", memlens apply --prefetch what a prefetch gains",
        false => "",
    };
    let caution = format!(
        "The model may hide too much: memlens run --mode sample shows whether the program spends time there{measured}."
    );
    // Writing to a String cannot fail.
    if findings.is_empty() {
        let hides = match stall_part(profile) {
            Some(part) if part >= MUCH_STALLED => {
                format!(
                    "what follows is behind other work there, and the {} that it stalls are something else's",
                    percent(part)
                )
            }
            _ => "it hides nearly all of what follows behind other work".to_owned(),
        };
        let _ = writeln!(
            out,
            "Nothing that is known here makes {of_time} of the modelled core's time: {hides}.\n{caution}\n"
        );
    }
    for (number, finding) in (1..).zip(found.iter().take(shown)) {
        let _ = writeln!(
            out,
            "{number}. {}: {} {} of the wait{}",
            title(profile, finding),
            at_most(finding),
            percent(finding.gain),
            finding
                .time_gain
                .map(|gain| format!(", about {} of the modelled time", percent(gain)))
                .unwrap_or_default()
        );
        for line in evidence(profile, finding) {
            let _ = writeln!(out, "   {line}");
        }
        if let Some((others, together)) = in_same_loops(profile, finding, found) {
            let _ = writeln!(
                out,
                "   the same loops go through {others} by such steps, too: one exchange is for all of them, {together}"
            );
        }
        let _ = writeln!(out, "   → {}", advice_text(profile, finding));
        let how = match refusal(profile, finding, refused) {
            Some(reason) => Some(format!("memlens apply cannot do it: {reason}")),
            None => command(profile, finding, &args.profile),
        };
        if let Some(how) = how {
            let _ = writeln!(out, "     {how}");
        }
        out.push('\n');
    }
    if found.len() > shown {
        let _ = writeln!(out, "{} more: --top {}", found.len() - shown, found.len());
    }
    if !findings.is_empty() && !hidden.is_empty() {
        let shown = hidden.iter().take(MOST_HIDDEN);
        let mut titles: Vec<String> = shown
            .map(|finding| format!("{} ({} of the wait)", title(profile, finding), percent(finding.gain)))
            .collect();
        if hidden.len() > MOST_HIDDEN {
            titles.push(format!("{} more", hidden.len() - MOST_HIDDEN));
        }
        let _ = writeln!(
            out,
            "Left out, since the modelled core hides all but {of_time} of its time: {}.\n{caution}\n",
            titles.join(", ")
        );
    }
    if let Some(text) = without_words(profile, without_remedy) {
        let _ = writeln!(out, "{text}\n");
    }
    let estimated = match profile.run.too_few_bursts() {
        Some(few) => format!(
            " Counts are estimates from bursts that tell as much as {:.0} of equal parts of the run: another run may say otherwise, \
             and a longer one or --overhead says more.",
            few.max(1.0)
        ),
        None if profile.run.estimated => " Counts are estimates.".to_owned(),
        None => String::new(),
    };
    let is_shared =
        |finding: &&Finding| matches!(finding.remedy, Remedy::Separate { .. } | Remedy::PerThread { .. });
    let shared = match found.iter().any(|finding| is_shared(&finding)) {
        true => format!(
            " A line from another core takes {} cycles here, more between sockets.",
            profile.machine.transfer_cycles()
        ),
        false => String::new(),
    };
    let time = match found.iter().any(|finding| finding.time_gain.is_some()) {
        true if is_held => {
            " Of the time they are what a modelled core saves, which stalls more by itself than the measured time has room for; real ones have saved \
             more and less."
        }
        true => " Of the time they are what a modelled core saves; real ones have saved more and less.",
        false => "",
    };
    let unexplained = profile.unexplained_part().map_or_else(String::new, |part| {
        format!(
            " The model has nothing for {} of the time that the code took by itself: what it says of the time is said of the rest, and remedies may \
             gain more than that, or nothing.",
            percent(part)
        )
    });
    let assumed = match profile.machine.has_assumed_latencies {
        true => {
            " Latencies are assumed: `memlens calibrate` measures this machine's, and runs after it go by them."
        }
        false => "",
    };
    let _ = writeln!(
        out,
        "Gains are upper bounds in modelled wait, where each access waits by itself; they do not add up.{shared}{time}{unexplained}{estimated}{assumed}"
    );
    out
}

/// The part of the modelled core's time that is stalls; None: no core was modelled.
fn stall_part(profile: &Profile) -> Option<f64> {
    let cycles = profile.run.core_cycles.filter(|&cycles| cycles > 0 && profile.has_stalls())?;
    Some(profile.totals().stall_cycles as f64 / cycles as f64)
}

/// What waits much and has no remedy here.
fn without_words(profile: &Profile, rows: &[(Vec<ObjectIx>, f64)]) -> Option<String> {
    let what = if profile.has_stalls() { "the stalls" } else { "the wait" };
    let word = |(row, share): &(Vec<ObjectIx>, f64)| {
        Some(format!("{} ({} of {what})", name(profile, *row.first()?), percent(*share)))
    };
    let words: Vec<String> = rows.iter().take(MOST_HIDDEN).filter_map(word).collect();
    let more = "memlens report --object NAME shows the code that touches it";
    (!words.is_empty()).then(|| {
        format!(
            "No remedy that gains {:.0} % is known here for {}; {more}.",
            100.0 * LEAST_GAIN,
            words.join(", ")
        )
    })
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// The row's costliest object.
fn object<'a>(profile: &'a Profile, finding: &Finding) -> Option<&'a Object> {
    profile.objects.get(finding.row.first()?.index())
}

fn ids(profile: &Profile, objects: &[ObjectIx]) -> Vec<u32> {
    objects.iter().filter_map(|object| Some(profile.objects.get(object.index())?.id)).collect()
}

/// What an object is called, with its row's number where others are called the same.
fn name(profile: &Profile, index: ObjectIx) -> String {
    let Some(object) = profile.objects.get(index.index()) else { return "an object".to_owned() };
    let row = profile.row_among_namesakes(index);
    let first = row.as_ref().and_then(|row| Some((profile.objects.get(row.first()?.index())?.id, row.len())));
    match first {
        Some((id, objects)) => format!("{} (#{})", object.name, row_number(id, objects - 1)),
        None => object.name.clone(),
    }
}

/// What a finding is about.
fn name_of(profile: &Profile, finding: &Finding) -> String {
    finding.row.first().map_or_else(|| "an object".to_owned(), |&index| name(profile, index))
}

fn title(profile: &Profile, finding: &Finding) -> String {
    let name_of_index = |index: &ObjectIx| name(profile, *index);
    let name = name_of(profile, finding);
    match &finding.remedy {
        Remedy::HugePages { .. } => format!("{name} in huge pages"),
        Remedy::Prefetch { index: Some(index), .. } => {
            format!("prefetch {name}[{}[…]]", name_of_index(index))
        }
        Remedy::Prefetch { index: None, .. } => format!("prefetch {name}"),
        Remedy::Sort { index, .. } => match name_of_index(index) {
            index if index != name => format!("{index} in the order of {name}"),
            _ => format!("what leads to {name} in its order"),
        },
        Remedy::Layout { .. } => format!("another order of {name}"),
        Remedy::Pad { .. } => format!("padding for {name}"),
        Remedy::Split { hot, .. } => {
            format!("{} of {name} apart from the rest", field_names(profile, hot).join(", "))
        }
        Remedy::Pack { nodes: Nodes::Blocks } => format!("the blocks of {name} side by side"),
        Remedy::Pack { nodes: Nodes::Parts } => format!("the nodes in {name} in the order of their walk"),
        Remedy::Shorten { searched: Searched::Lists, .. } => format!("fewer nodes for a search in {name}"),
        Remedy::Shorten { searched: Searched::Tree, .. } => format!("fewer levels for a search in {name}"),
        Remedy::Separate { .. } => format!("false sharing in {name}"),
        Remedy::PerThread { one_writer_each: true, .. } => format!("threads hand {name} to each other"),
        Remedy::PerThread { .. } => format!("threads compete for {name}"),
    }
}

fn object_names(profile: &Profile, objects: &[ObjectIx]) -> Vec<String> {
    objects.iter().map(|&object| name(profile, object)).collect()
}

fn field_names<'a>(profile: &'a Profile, fields: &[FieldIx]) -> Vec<&'a str> {
    fields.iter().filter_map(|field| profile.fields.get(field.index())?.name.as_deref()).collect()
}

fn element_name(profile: &Profile, finding: &Finding, element_bytes: u64) -> String {
    let objects = finding.objects.iter().filter_map(|object| profile.objects.get(object.index()));
    let mut elements = objects.filter_map(|object| object.element.as_ref());
    let element = elements.find(|element| element.bytes == element_bytes);
    element.map_or_else(|| "the structure".to_owned(), |element| element.type_name.clone())
}

/// Whether the code that a finding is about goes by one stride, or by several of which one is most.
fn goes_by_one_stride(profile: &Profile, finding: &Finding) -> bool {
    let patterns = &PatternIndex::new(profile);
    let of_code =
        |&code: &CodeIx| finding.objects.iter().filter_map(move |&object| patterns.of(code, object));
    !finding.code.iter().flat_map(of_code).any(|pattern| pattern.kind == PatternKind::MultiStride)
}

/// Which object, which code, which counts.
fn evidence(profile: &Profile, finding: &Finding) -> Vec<String> {
    let counts = &finding.counts;
    let accesses = short_count(counts.accesses());
    let part = |misses: u64| percent(misses as f64 / counts.accesses().max(1) as f64);
    let mostly = || if goes_by_one_stride(profile, finding) { "" } else { "mostly " };
    let mut lines = Vec::new();
    if let Some(object) = object(profile, finding) {
        let (all, about) = (finding.row.len(), finding.objects.len());
        let mut what =
            format!("#{} {} · {}", row_number(object.id, all.saturating_sub(1)), object.name, object.kind);
        if let Some(place) = object_place(profile, object) {
            what += &format!(" · {place}");
        }
        if about < all {
            what += &format!(" · {about} of {all} objects: {}", some_of(&ids(profile, &finding.objects)));
        }
        lines.push(what);
    }
    let mut code: Vec<String> = Vec::new();
    for place in finding.code.iter().map(|&code| place(profile, code)) {
        if !code.contains(&place) {
            code.push(place);
        }
    }
    if !code.is_empty() {
        lines.push(format!("accessed at {}", code.join(", ")));
    }
    lines.push(match &finding.remedy {
        Remedy::HugePages { pages, walks_saved } => format!(
            "{} page walks and {} TLB misses in {accesses} accesses; in 2-MiB pages, {pages} at most, {} fewer; page faults, which \
             they spare, too, are not in it",
            short_count(counts.stlb_misses),
            short_count(counts.dtlb_misses),
            percent(*walks_saved)
        ),
        Remedy::Layout { stride_bytes, used_bytes, .. } => format!(
            "{} of {accesses} accesses miss the first level, {} the TLB; each is {}{stride_bytes} bytes from the last and \
             uses {used_bytes} of a line's {} bytes",
            part(counts.l1_misses()),
            part(counts.dtlb_misses),
            mostly(),
            profile.machine.line_bytes
        ),
        Remedy::Pad { stride_bytes, lines, .. } => {
            let mostly = mostly();
            format!("each of {accesses} accesses is {mostly}{stride_bytes} bytes from its instruction's last; a walk has at least {lines} lines")
        }
        Remedy::Split { hot_bytes, element_bytes, .. } => format!(
            "{hot_bytes} of the {element_bytes} bytes of {} have nearly all of its waiting, the others fewer accesses; {} of \
             {accesses} miss the first level",
            element_name(profile, finding, *element_bytes),
            part(counts.l1_misses()),
        ),
        Remedy::Separate { false_sharing, users, writers, fields } => format!(
            "{} {} of {accesses} accesses wait for a line that another core has, which wrote other bytes of it; {}",
            if profile.run.estimated { "about" } else { "up to" },
            short_count(*false_sharing),
            who_shares(profile, *users, *writers, fields)
        ),
        Remedy::PerThread { true_sharing, writers, fields, one_writer_each } => format!(
            "{} {} of {accesses} accesses wait for a line that another core has, which wrote bytes of it that they use; {}",
            if profile.run.estimated { "about" } else { "up to" },
            short_count(*true_sharing),
            match one_writer_each {
                true => format!("each field is written by one of {writers} threads{}", named(profile, fields)),
                false => who_writes(profile, *writers, fields),
            }
        ),
        Remedy::Prefetch { .. } | Remedy::Sort { .. } | Remedy::Pack { .. } | Remedy::Shorten { .. } => format!(
            "of {accesses} accesses {} miss the first level, {} the second, {} the last{}",
            part(counts.l1_misses()),
            part(counts.l2_misses()),
            part(counts.llc_misses()),
            match &finding.remedy {
                Remedy::Shorten { nodes, searched } => {
                    let what = if *searched == Searched::Tree { "levels" } else { "nodes" };
                    format!("; a search goes through {nodes:.1} {what} on average")
                }
                Remedy::Sort { index, walks, .. } =>
                    format!("; {} is gone through {walks:.0} times", name(profile, *index)),
                _ => String::new(),
            }
        ),
    });
    if let Remedy::Pad { conflicts, .. } = &finding.remedy {
        lines.extend(conflicts.iter().map(in_few_sets));
    }
    lines
}

/// `#3, #4, #5 …`
fn some_of(ids: &[u32]) -> String {
    let mut text = ids.iter().take(3).map(|id| format!("#{id}")).collect::<Vec<_>>().join(", ");
    if ids.len() > 3 {
        text += " …";
    }
    text
}

fn in_few_sets(conflict: &SetConflict) -> String {
    let SetConflict { level, sets, of_sets, ways, misses, needed } = *conflict;
    let level = match level {
        Level::First => "first level",
        Level::Second => "second level",
        Level::Stlb => "second-level TLB",
    };
    format!(
        "all fall onto {sets} of the {level}'s {of_sets} sets, which keep {}: {} misses there, {} if it kept the walk",
        sets * ways,
        short_count(misses),
        short_count(needed)
    )
}

fn who_shares(profile: &Profile, users: usize, writers: usize, fields: &[FieldIx]) -> String {
    match (users, writers) {
        (_, 0) => "no thread writes it: what is written lies beside it".to_owned(),
        (1, _) => {
            format!("one thread alone uses it: others write what lies beside it{}", named(profile, fields))
        }
        _ => who_writes(profile, writers, fields),
    }
}

fn who_writes(profile: &Profile, writers: usize, fields: &[FieldIx]) -> String {
    let who = match writers {
        1 => "one thread writes it".to_owned(),
        _ => format!("{writers} threads write it"),
    };
    who + &named(profile, fields)
}

/// `: lock, count`, if there are fields.
fn named(profile: &Profile, fields: &[FieldIx]) -> String {
    match field_names(profile, fields) {
        names if names.is_empty() => String::new(),
        names => format!(": {}", names.join(", ")),
    }
}

/// Where code is: the innermost line that is not a language's library's, and which of the library's is inlined there.
fn place(profile: &Profile, code: CodeIx) -> String {
    let Some(code) = profile.code.get(code.index()) else { return "unknown code".to_owned() };
    let Some(innermost) = code_place(profile, code) else {
        let module = profile.module(code.module).map_or("generated code", |module| module.name());
        return format!("{module}+{:#x}", code.offset);
    };
    let own = profile.stack_frames(code.stack).find(|frame| !is_library(frame)).and_then(source_place);
    match own {
        Some(own) if own != innermost => format!("{own} ({innermost})"),
        _ => innermost,
    }
}

fn advice_text(profile: &Profile, finding: &Finding) -> String {
    let text = match &finding.remedy {
        Remedy::Pad { stride_bytes, padding_bytes, conflicts, .. } => {
            let physical = match conflicts.iter().any(|one| one.level == Level::Second) {
                true => {
                    "; the second level takes physical addresses, which the kernel may have spread already where pages are small"
                }
                false => "",
            };
            // Its arrays lie column by column.
            let (what, further) = match finding.code.iter().any(|&code| is_fortran(profile, code)) {
                true => (
                    format!(
                        "allocate {padding_bytes} bytes more in the first dimension, so that the walks of the second"
                    ),
                    "for those of the third make the second one's size odd, too",
                ),
                false => (
                    format!("make each row {padding_bytes} bytes longer, so that its columns"),
                    "where rows make up planes, make their number odd, too",
                ),
            };
            let further = format!(
                "; {further}: the step of {} bytes must become an odd number of lines",
                stride_bytes.unsigned_abs()
            );
            return format!("{what} fall onto all sets{further}{physical}");
        }
        Remedy::HugePages { .. } => "one page-table entry then serves 512 times as much memory",
        Remedy::Prefetch { .. } if !has_steps(profile, finding) => {
            "hardware cannot know what is loaded next, the program can: take several items at a time and prefetch for all of them; what \
             leads there comes by no constant steps, so that memlens apply cannot do it"
        }
        Remedy::Prefetch { beside, .. } => {
            let with_it = match object_names(profile, beside)[..] {
                [] => String::new(),
                ref others => format!(", and {} with it, which the same index leads to", others.join(", ")),
            };
            return format!(
                "hardware cannot know what is loaded next, the program can: prefetch some iterations ahead{with_it}"
            );
        }
        Remedy::Sort { index, beside, .. } => {
            let index = name(profile, *index);
            let mut numbered = vec![name_of(profile, finding)];
            numbered.extend(object_names(profile, beside));
            return format!(
                "sort {index} by what it leads to where its order is free, now and then if what it leads to changes; where it is not free, number \
                 {} in the order in which {index} comes to it: a line is used up while it is there, and the next one prefetched in time",
                numbered.join(", ")
            );
        }
        Remedy::Layout { against: Some(other), .. } => {
            let other = name(profile, *other);
            return format!(
                "the loops go through {other} in order at the same time: exchange those that leave {other} in order or at one place (of a \
                 product of matrices the inner two); where none do, as in a transpose, go through both in blocks of some lines each way, \
                 which the first level holds"
            );
        }
        Remedy::Layout { stride_bytes, .. }
            if object(profile, finding)
                .and_then(|object| object.element.as_ref())
                .is_some_and(|element| element.bytes == stride_bytes.unsigned_abs()) =>
        {
            "each step is a structure: put the fields that this code uses side by side, or in arrays of their own, so that lines and pages are \
             used up"
        }
        Remedy::Layout { .. } => {
            "exchange the loops, or put the fields that are used together side by side, so that lines and pages are used up"
        }
        Remedy::Split { .. } => {
            "in an array of their own, or with the rest behind a pointer, more of them share a line, and more lines stay in a cache"
        }
        Remedy::Pack { nodes: Nodes::Blocks } => {
            "each access waits for the one before: allocate the blocks from a pool in the order of use, put several items \
             into a block, or follow several chains at a time"
        }
        Remedy::Pack { nodes: Nodes::Parts } => {
            "each access waits for the one before: where walks repeat, lay the nodes into this memory in the order in which they are \
             walked; else put several items into a node, or follow several chains at a time"
        }
        Remedy::Shorten { searched: Searched::Lists, .. } => {
            "each node waits for the one before: in a hash table a hash that spreads better, more buckets, or open addressing; else the nodes of a list \
             side by side, best in an array"
        }
        Remedy::Shorten { searched: Searched::Tree, .. } => {
            "each node waits for the one before, wherever it lies: a B-tree or a sorted array has several keys in a line; where no order is needed, a hash table has one or two lines to look at"
        }
        Remedy::Separate { .. } => {
            "align what each thread uses to lines of its own (alignas(64), padding), or let it work on a local variable and store that at \
             the end"
        }
        Remedy::PerThread { one_writer_each: true, .. } => {
            "put what each thread writes into lines of its own, away from what others write; look at the others' less often: keep a copy of \
             what was read last, and hand over several items at a time"
        }
        Remedy::PerThread { .. } => {
            "each update waits until the others have given the line away: of a sum or count give each thread a copy in lines of its own, \
             and join them at the end; of a lock, or a count of readers, take it less often, have several, or let readers go without \
             writing (versions that they check, RCU)"
        }
    };
    text.to_owned()
}

/// Whether code is of a file that is called as Fortran's are: `.f`, `.for`, `.f90`.
fn is_fortran(profile: &Profile, code: CodeIx) -> bool {
    let code = profile.code.get(code.index());
    let file = code.and_then(|code| profile.stack_frames(code.stack).next()?.file.as_deref());
    let extension = file.and_then(|file| Path::new(file).extension()?.to_str());
    extension.is_some_and(|it| it.len() <= 3 && it.to_ascii_lowercase().starts_with('f'))
}

/// Other data that the loops of a finding go through in a wasteful order, the costliest first, and what one exchange gains with all of them.
fn in_same_loops(profile: &Profile, finding: &Finding, found: &[Finding]) -> Option<(String, String)> {
    let places = |finding: &Finding| -> Vec<String> {
        let code = finding.code.iter().filter_map(|code| profile.code.get(code.index()));
        code.filter_map(|code| code_place(profile, code)).collect()
    };
    let is_order = |finding: &Finding| matches!(finding.remedy, Remedy::Layout { against: None, .. });
    if !is_order(finding) {
        return None;
    }
    let own = places(finding);
    let shares_loops = |other: &&Finding| {
        is_order(other) && other.row != finding.row && places(other).iter().any(|place| own.contains(place))
    };
    let others: Vec<&Finding> = found.iter().filter(shares_loops).collect();
    let mut names: Vec<String> = others.iter().map(|other| name_of(profile, other)).collect();
    names.dedup();
    // They are about the accesses of different data, so they add up.
    let all = || std::iter::once(finding).chain(others.iter().copied());
    let of_time: Option<f64> = all().map(|one| one.time_gain).sum();
    let together = match of_time {
        Some(gain) => format!("about {} of the modelled time together", percent(gain.min(1.0))),
        None => format!(
            "at most {} of the wait together",
            percent(all().map(|one| one.gain).sum::<f64>().min(1.0))
        ),
    };
    (!names.is_empty()).then(|| (names.join(", "), together))
}

/// What memlens itself can do about it.
fn command(profile: &Profile, finding: &Finding, path: &Path) -> Option<String> {
    let option = match finding.remedy {
        Remedy::HugePages { .. } => "",
        Remedy::Prefetch { .. } if is_for_apply(profile, finding) => "--prefetch ",
        _ => return None,
    };
    let run = &profile.run;
    // Its end was not seen: it was recorded while it ran, and may run still.
    if let (Remedy::Prefetch { .. }, Some(pid), None, None) =
        (&finding.remedy, run.pid, run.exit_code, run.signal)
    {
        return Some(format!("memlens apply {option}--pid {pid} {}", shell::path(path)));
    }
    let is_title = run.command.first().is_some_and(|word| is_title(word));
    let command = if is_title { "PROGRAM".to_owned() } else { shell::command(&run.command) };
    Some(format!("memlens apply {option}{} -- {command}", shell::path(path)))
}

/// Whether what a process is called is a title that it gave itself, and not what it was started as: `redis-server *:6379`.
fn is_title(first_word: &str) -> bool {
    first_word.contains(' ') && !Path::new(first_word).exists()
}

/// Whether the indices or pointers of a prefetch come by constant steps, without which `memlens apply` knows none ahead.
fn has_steps(profile: &Profile, finding: &Finding) -> bool {
    // On whatever objects: which index goes with which data is not known.
    let all = || profile.patterns.iter().chain(profile.object_patterns.iter().map(|it| &it.pattern));
    let by_steps = |it: &AccessPattern| matches!(it.kind, PatternKind::Stream | PatternKind::Stride);
    let comes_by_steps = |loader: CodeIx| all().any(|it| it.code == loader && by_steps(it));
    let loader_of = |code: &CodeIx| all().find(|it| it.code == *code)?.loaded_by;
    // What is loaded elsewhere in order, where data is made say, has little of the gain.
    finding.code.first().and_then(loader_of).is_some_and(comes_by_steps)
}

fn document(profile: &Profile, advice: &Advice) -> Value {
    let entry = |finding: &Finding| {
        let mut entry = json!({
            "remedy": finding.remedy.as_str(),
            "title": title(profile, finding),
            "gain_at_most": finding.gain,
            "time_gain_at_most": finding.time_gain,
            "object": object(profile, finding).map(|object| object.id),
            "objects": ids(profile, &finding.objects),
            "accesses": finding.counts.accesses(),
            "l1_misses": finding.counts.l1_misses(),
            "llc_misses": finding.counts.llc_misses(),
            "page_walks": finding.counts.stlb_misses,
            "code": finding.code.iter().filter_map(|code| {
                let code = profile.code.get(code.index())?;
                let module = profile.module(code.module).map(|module| module.name());
                Some(json!({"module": module, "offset": format!("{:#x}", code.offset)}))
            }).collect::<Vec<_>>(),
        });
        let names = |fields| field_names(profile, fields);
        match &finding.remedy {
            Remedy::HugePages { pages, walks_saved } => {
                entry["huge_pages"] = (*pages).into();
                entry["walks_saved"] = (*walks_saved).into();
            }
            Remedy::Prefetch { index, beside } => {
                let id = |object: &ObjectIx| profile.objects.get(object.index()).map(|object| object.id);
                entry["index_object"] = index.as_ref().and_then(id).into();
                entry["beside"] = beside.iter().filter_map(id).collect::<Vec<_>>().into();
            }
            Remedy::Sort { index, walks, beside } => {
                let id = |object: &ObjectIx| profile.objects.get(object.index()).map(|object| object.id);
                entry["index_object"] = id(index).into();
                entry["walks"] = (*walks).into();
                entry["beside"] = beside.iter().filter_map(id).collect::<Vec<_>>().into();
            }
            Remedy::Layout { stride_bytes, used_bytes, against } => {
                entry["against"] = against.map(|object| profile.objects[object.index()].id).into();
                entry["stride_bytes"] = (*stride_bytes).into();
                entry["used_bytes"] = (*used_bytes).into();
            }
            Remedy::Pad { stride_bytes, lines, padding_bytes, conflicts } => {
                entry["stride_bytes"] = (*stride_bytes).into();
                entry["lines"] = (*lines).into();
                entry["padding_bytes"] = (*padding_bytes).into();
                let level = |one: &SetConflict| {
                    json!({
                        "level": one.level.number(),
                        "sets": one.sets,
                        "of_sets": one.of_sets,
                        "ways": one.ways,
                        "misses": one.misses,
                        "misses_needed": one.needed,
                    })
                };
                let of_caches = conflicts.iter().filter(|one| one.level != Level::Stlb);
                entry["conflicts"] = of_caches.map(level).collect();
                let of_pages = conflicts.iter().find(|one| one.level == Level::Stlb);
                entry["stlb_conflict"] = of_pages.map(level).into();
            }
            Remedy::Split { hot, hot_bytes, element_bytes } => {
                entry["hot_fields"] = names(hot).into();
                entry["hot_bytes"] = (*hot_bytes).into();
                entry["element_bytes"] = (*element_bytes).into();
            }
            Remedy::Pack { nodes } => {
                entry["nodes"] = match nodes {
                    Nodes::Blocks => "blocks",
                    Nodes::Parts => "parts",
                }
                .into();
            }
            Remedy::Shorten { searched, nodes } => {
                entry["searched"] = match searched {
                    Searched::Lists => "lists",
                    Searched::Tree => "tree",
                }
                .into();
                entry["nodes_per_search"] = (*nodes).into();
            }
            Remedy::Separate { false_sharing, users, writers, fields } => {
                entry["false_sharing"] = (*false_sharing).into();
                entry["users"] = (*users).into();
                entry["writers"] = (*writers).into();
                entry["fields"] = names(fields).into();
            }
            Remedy::PerThread { true_sharing, writers, fields, one_writer_each } => {
                entry["one_writer_each"] = (*one_writer_each).into();
                entry["true_sharing"] = (*true_sharing).into();
                entry["writers"] = (*writers).into();
                entry["fields"] = names(fields).into();
            }
        }
        entry
    };
    json!({
        "schema": SCHEMA,
        "estimated": profile.run.estimated,
        "least_gain": LEAST_GAIN,
        "least_time_gain": LEAST_TIME_GAIN,
        "findings": advice.findings.iter().map(entry).collect::<Vec<_>>(),
        "hidden": advice.hidden.iter().map(entry).collect::<Vec<_>>(),
        "without_remedy": advice.without_remedy.iter().map(|(row, share)| {
            json!({"objects": ids(profile, row), "stall_share": share})
        }).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_no_program() {
        assert!(is_title("redis-server *:6379") && is_title("postgres: checkpointer"));
        assert!(!is_title("./server") && !is_title("python3"));
    }
}
