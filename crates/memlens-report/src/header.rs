//! The lines above every table: what ran, on which machine, how much, how well attributed.

use memlens_profile::{
    BurstInfo, CacheInfo, IN_KERNEL, Latencies, MachineInfo, Mark, Profile, RunInfo, SampleUnit,
    SamplingInfo, TlbInfo,
};
use memlens_types::{Counts, ObjectKind, Sampled};
use unicode_width::UnicodeWidthStr;

use crate::View;
use crate::delinquent::{DelinquentLoads, delinquent_loads};
use crate::grid::{Elide, JOINT, Style, beginning, elide, paragraph, printable, wrapped};
use crate::interval;
use crate::known::Known;
use crate::number::{UNKNOWN, count, percent, percent_of_share, plural, seconds, size};
use crate::over_time;
use crate::own_pools;
use crate::place::base_name;
use crate::prediction;
use crate::styled::Layout;
use crate::table::modelled_word;
use crate::unnamed_code;
use crate::zero_pages;

/// Width of the labels at the left.
const INDENT: usize = 11;
/// Below this part of the loads, last-level misses are no reason to look at loads.
const WORTH: f64 = 0.001;
/// Notes shown; the JSON report has all.
const NOTES: usize = 2;
/// Lines that a note has at most, as long as not all are asked for.
const NOTE_LINES: usize = 2;
/// Marks shown; the JSON report has all.
const MARKS: usize = 6;
/// Below this many columns the header leaves out what the table's last line or the JSON report tells.
const ROOMY: usize = 120;
/// From this width on there is room for latencies beside sizes.
const WIDE: usize = 145;

/// A line of facts: its label, and the pieces that follow it.
pub(crate) type Fact = (&'static str, Vec<String>);

/// The header. Every figure says whether it was counted or modelled.
pub(crate) fn header(profile: &Profile, view: &View) -> Layout {
    let width = view.width;
    let mut out = command_line(profile, width);
    for (label, pieces) in facts(profile, width) {
        out.append(wrapped(label, INDENT, &pieces, width));
    }
    let notes = notes(profile);
    if view.all_notes {
        notes.iter().for_each(|note| out.append(paragraph("note", INDENT, note, width)));
        return out;
    }
    let mut is_cut = false;
    for note in notes.iter().take(NOTES) {
        let beginning = beginning(note, width.saturating_sub(INDENT), NOTE_LINES);
        is_cut |= beginning.is_some();
        out.append(paragraph("note", INDENT, beginning.as_ref().unwrap_or(note), width));
    }
    if is_cut || notes.len() > NOTES {
        let rest = if is_cut { vec!["the rest of these".to_owned()] } else { Vec::new() };
        let others = notes.len().saturating_sub(NOTES);
        let others = (others > 0).then(|| plural(others as u64, "note") + " more");
        let more = others.into_iter().chain(rest).collect::<Vec<_>>().join(" and ");
        out.append(wrapped("", INDENT, &[format!("{more}: memlens report PROFILE --notes")], width));
    }
    out
}

/// What ran.
fn command_line(profile: &Profile, width: usize) -> Layout {
    let mut out = Layout::default();
    out.push(Style::Dim, format!("{:INDENT$}", "memlens"));
    let command = elide(&printable(&command(profile)), width.saturating_sub(INDENT), Elide::End);
    out.push(Style::Bold, command);
    out.push(Style::Plain, "\n");
    out
}

/// What ran and how it ended, in two lines; what has no room there is left out.
pub(crate) fn summary(profile: &Profile, width: usize) -> Layout {
    let mut out = command_line(profile, width);
    let mut pieces = run_pieces(profile);
    pieces.insert(
        1,
        if profile.run.estimated || profile.run.sampling.is_some() { "estimated" } else { "counted" }
            .to_owned(),
    );
    let room = width.saturating_sub(INDENT);
    while pieces.len() > 1 && pieces.join(JOINT).width() > room {
        pieces.pop();
    }
    out.append(wrapped("run", INDENT, &pieces, width));
    out
}

/// What is said of a profile above its tables; some pieces are shorter, or left out, where there is little `width`. What has no pieces does
/// not apply.
pub(crate) fn facts(profile: &Profile, width: usize) -> Vec<Fact> {
    let run = &profile.run;
    let mut facts = vec![("run", run_pieces(profile))];
    if run.sampling.is_none() {
        facts.push(("machine", machine_pieces(profile, width)));
    }
    let totals = profile.totals();
    let known = Known::new(profile, &totals, true);
    // Where nothing was recorded a line of zeros would tell of a program without misses.
    let is_empty = totals == Counts::default();
    if !is_empty {
        facts.push((if run.estimated { "estimated" } else { "counted" }, counted_pieces(&known)));
    }
    facts.push(("recorded", run.bursts.as_ref().map(recorded_pieces).unwrap_or_default()));
    facts.push(("waiting", waiting_pieces(run)));
    if let Some(sampling) = &run.sampling {
        facts.push(("sampled", sampled_pieces(profile, sampling)));
        facts.push(("found by", found_pieces(&totals.sampled, computation(profile))));
    }
    if !is_empty {
        facts.push((modelled_word(profile), modelled_pieces(profile, &known, width)));
    }
    facts.push(("likely", likely_pieces(profile, &known)));
    facts.push(("stalls", stall_pieces(profile, &totals)));
    facts.push(("measured", measured_pieces(profile)));
    facts.push(("delinquent", delinquent_pieces(profile)));
    facts.push(("attributed", attribution_pieces(profile)));
    facts.push(over_time::facts(profile, None));
    facts.push(("marks", mark_pieces(profile)));
    facts.extend(profile.predictions.iter().map(|prediction| ("predicted", prediction::pieces(prediction))));
    facts
}

/// What the reader should know of a profile besides, the weightiest first.
pub(crate) fn notes(profile: &Profile) -> Vec<String> {
    let of_the_run = profile.run.notes.iter().chain(&profile.attribution.notes).cloned();
    let mut notes: Vec<String> = zero_pages::never_written(profile).into_iter().chain(of_the_run).collect();
    // What a reader can mend, before what only says how it was recorded.
    let place = notes.iter().position(|note| note.starts_with(RunInfo::RECORDED)).unwrap_or(notes.len());
    let mendable = own_pools::hidden_in_pools(profile).into_iter();
    notes.splice(place..place, mendable.chain(unnamed_code::without_debug_information(profile)));
    notes
}

/// Which moments the program named, and how many instructions it had executed by then.
fn mark_pieces(profile: &Profile) -> Vec<String> {
    let marks = &profile.marks;
    let piece = |mark: &Mark| {
        let instructions = plural(mark.instructions, "instruction");
        format!("{} at {instructions}", printable(&mark.name))
    };
    let mut pieces: Vec<String> = marks.iter().take(MARKS).map(piece).collect();
    if marks.len() > MARKS {
        pieces.push(format!("{} more in the JSON report", plural((marks.len() - MARKS) as u64, "mark")));
    }
    pieces
}

/// The command line that was run.
pub(crate) fn command(profile: &Profile) -> String {
    match profile.run.command.join(" ") {
        command if command.is_empty() => "unknown program".to_owned(),
        command => command,
    }
}

fn run_pieces(profile: &Profile) -> Vec<String> {
    let run = &profile.run;
    let mut pieces = vec![format!("{} mode", run.mode)];
    pieces.extend(run.wall_seconds.map(seconds));
    if run.threads > 0 {
        pieces.push(plural(run.threads.into(), "thread"));
    }
    pieces.extend(run.instructions.map(|instructions| plural(instructions, "instruction")));
    match (run.exit_code, run.signal) {
        (_, Some(signal)) => pieces.push(format!("ended by signal {signal}")),
        (Some(code), None) => pieces.push(format!("exit code {code}")),
        (None, None) => {}
    }
    if profile.attribution.truncated {
        pieces.push("profile ends before the program did".to_owned());
    }
    pieces
}

fn machine_pieces(profile: &Profile, width: usize) -> Vec<String> {
    let machine = &profile.machine;
    let mut pieces = vec![match &machine.description {
        Some(description) if width >= 100 => format!("{} ({description})", machine.name),
        _ => machine.name.clone(),
    }];
    let cache = |name: &str, cache: &Option<CacheInfo>| {
        cache.as_ref().map(|cache| match width < ROOMY {
            true => format!("{name} {}", size(cache.bytes)),
            false => format!("{name} {} {}-way", size(cache.bytes), cache.ways),
        })
    };
    pieces.extend(cache("L1d", &machine.l1d));
    pieces.extend(cache("L2", &machine.l2));
    let llc = cache("LLC", &machine.llc);
    pieces.extend(llc.map(|llc| match machine.llc_told_bytes {
        Some(told) => format!("{llc}, of {}", size(told)),
        None => llc,
    }));
    let tlb = |name: &str, tlb: Option<TlbInfo>| tlb.map(|tlb| format!("{name} {}", tlb.entries));
    pieces.extend(tlb("dTLB", machine.dtlb));
    pieces.extend(tlb("STLB", machine.stlb));
    if machine.has_nodes() {
        pieces.push(format!("{} memory nodes", machine.nodes));
    }
    if width >= WIDE {
        pieces.push(latencies(machine));
    }
    if machine.has_assumed_latencies {
        pieces.push("latencies assumed (memlens calibrate)".to_owned());
    }
    if machine.has_brief_latencies {
        pieces.push("latencies measured briefly (memlens calibrate)".to_owned());
    }
    pieces
}

/// What a hit in each level costs, and what memory does: it differs with `memlens calibrate`.
fn latencies(machine: &MachineInfo) -> String {
    let Latencies { l1_cycles, l2_cycles, llc_cycles, dram_cycles, .. } = machine.latencies;
    let levels = [(&machine.l1d, l1_cycles), (&machine.l2, l2_cycles), (&machine.llc, llc_cycles)];
    let cycles = levels.into_iter().filter(|(level, _)| level.is_some()).map(|(_, cycles)| cycles);
    let all: Vec<String> = cycles.chain([dram_cycles]).map(|cycles| cycles.to_string()).collect();
    format!("latencies {} cycles", all.join(", "))
}

fn counted_pieces(known: &Known) -> Vec<String> {
    let piece = |count: Option<u64>, noun, bytes: Option<u64>| {
        Some(format!("{} ({})", plural(count?, noun), size(bytes?)))
    };
    let loads = piece(known.loads, "load", known.load_bytes);
    let stores = piece(known.stores, "store", known.store_bytes);
    let fetches = known.fetches.map(|fetches| format!("{} instructions fetched", count(fetches)));
    loads.into_iter().chain(stores).chain(fetches).collect()
}

/// What a sample is, and how many there are.
fn sampled_pieces(profile: &Profile, sampling: &SamplingInfo) -> Vec<String> {
    let kernels = profile.objects.iter().filter(|object| object.unknown_reason.as_deref() == Some(IN_KERNEL));
    let in_kernel: u64 = kernels.map(|object| object.counts.sampled.cost).sum();
    let mut pieces = vec![match sampling.unit {
        SampleUnit::Nanoseconds => {
            let time = |cost: u64| seconds(cost as f64 / 1e9);
            match in_kernel {
                0 => format!("time in user mode ({}): {}", sampling.event, time(sampling.cost)),
                _ => format!(
                    "processor time ({}): {}, of which {} in the kernel",
                    sampling.event,
                    time(sampling.cost),
                    time(in_kernel)
                ),
            }
        }
        SampleUnit::Events => format!("{}: {} events", sampling.event, count(sampling.cost)),
    }];
    pieces.push(plural(sampling.samples, "sample"));
    pieces.extend(sampling.frequency_hz.map(|frequency| match sampling.frequency_changes {
        0 => format!("{frequency} a second"),
        changes => format!("{frequency} a second at the end (changed {})", plural(changes, "time")),
    }));
    if let (Some(overhead), Some(cost)) = (sampling.overhead, sampling.sample_cost_seconds) {
        let allocations = sampling.allocations_overhead;
        pieces.push(cost_piece(overhead, &format!("samples ({:.0} µs each)", 1e6 * cost), allocations));
    }
    pieces.push(plural(sampling.lost, "lost sample"));
    if sampling.throttled > 0 {
        pieces.push(format!("slowed down by the kernel {}", plural(sampling.throttled, "time")));
    }
    pieces
}

/// How much bursts recorded, and at what price.
fn recorded_pieces(bursts: &BurstInfo) -> Vec<String> {
    if bursts.bursts == 0 {
        return Vec::new();
    }
    let cost = bursts.cost_seconds / bursts.program_seconds.max(1e-9);
    let allocations = bursts.allocations_seconds.map(|seconds| seconds / bursts.program_seconds.max(1e-9));
    vec![
        format!(
            "{} with {}, in {:.1} % of {} of processor time",
            plural(bursts.bursts, "burst"),
            plural(bursts.references, "access"),
            100.0 * bursts.inside(),
            seconds(bursts.program_seconds)
        ),
        cost_piece(cost, "bursts", allocations),
    ]
}

/// Where threads waited for others in loops, if that is worth a line.
fn waiting_pieces(run: &RunInfo) -> Vec<String> {
    /// Of the program's processor time.
    const WORTHWHILE: f64 = 0.02;
    /// The others are in JSON.
    const MOST: usize = 4;
    let Some(all) = run.bursts.map(|bursts| bursts.program_seconds) else { return Vec::new() };
    let part = |seconds: f64| seconds / all.max(1e-9);
    let percent = |seconds: f64| format!("{:.0} %", 100.0 * part(seconds));
    let sum: f64 = run.spin_waits.iter().map(|wait| wait.seconds).sum();
    if part(sum) < WORTHWHILE {
        return Vec::new();
    }
    let shown = run.spin_waits.iter().filter(|wait| part(wait.seconds) >= WORTHWHILE / 2.0).take(MOST);
    let places = shown.map(|wait| {
        let file = wait.file.as_deref().map(base_name);
        let place = match (file, wait.line) {
            (Some(file), Some(line)) => format!(" {file}:{line}"),
            (Some(file), None) => format!(" {file}"),
            (None, _) => String::new(),
        };
        let function = wait.function.as_deref().unwrap_or("code without a name");
        let object = wait.object.as_ref().map(|object| format!(" for {object}")).unwrap_or_default();
        format!("{} in {function}{place}{object}", percent(wait.seconds))
    });
    let all =
        format!("{} of the processor time in loops that look whether another thread is ready", percent(sum));
    std::iter::once(all).chain(places).collect()
}

/// What recording cost the program, and what of that. Parts of its processor time.
fn cost_piece(main: f64, what: &str, allocations: Option<f64>) -> String {
    let percent = |part: f64| format!("{:.1}", 100.0 * part);
    match allocations.filter(|&part| part >= 0.0005) {
        Some(part) => {
            let both = percent(main + part);
            format!(
                "cost the program about {both} %: {what} {}, watched allocations {}",
                percent(main),
                percent(part)
            )
        }
        None => format!("cost the program about {} %: {what}", percent(main)),
    }
}

/// Samples that wait for no data.
fn computation(profile: &Profile) -> u64 {
    let objects = profile.objects.iter().filter(|object| object.kind == ObjectKind::Computation);
    objects.map(|object| object.counts.sampled.samples).sum()
}

/// How the samples' objects were found.
fn found_pieces(sampled: &Sampled, computation: u64) -> Vec<String> {
    let found = sampled.by_hardware + sampled.by_registers + sampled.by_code + computation;
    let none = sampled.samples.saturating_sub(found);
    let ways = [
        (sampled.by_hardware, "the processor's address"),
        (sampled.by_registers, "an address computed from registers"),
        (sampled.by_code, "static analysis of the code"),
        (computation, "computation, no data"),
        (none, "nothing"),
    ];
    ways.iter()
        .filter(|(samples, _)| *samples > 0)
        .map(|(samples, way)| format!("{way}: {} %", percent(*samples, sampled.samples)))
        .collect()
}

fn modelled_pieces(profile: &Profile, known: &Known, width: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    if profile.run.sampling.is_some() {
        return pieces;
    }
    let accesses = known.accesses().unwrap_or(0);
    let misses = |name: &str, misses: Option<u64>| {
        misses.map(|misses| match accesses {
            0 => format!("{name} {}", count(misses)),
            _ if width < ROOMY => format!("{name} {} %", percent(misses, accesses)),
            _ => format!("{name} {} ({} %)", count(misses), percent(misses, accesses)),
        })
    };
    pieces.extend(misses("misses L1", known.l1_misses()));
    pieces.extend(misses("L2", known.l2_misses()));
    pieces.extend(misses("LLC", known.llc_misses()));
    pieces.extend(known.llc_prefetched_ratio().map(of_them_prefetched));
    pieces.extend(known.remote_ratio().map(of_them_remote));
    pieces.extend(misses("TLB", known.dtlb_misses));
    pieces.extend(known.l1i_misses.map(|misses| format!("L1i {}", count(misses))));
    pieces.extend(known.stlb_misses.map(|walks| plural(walks, "page walk")));
    let line_bytes = u64::from(profile.machine.line_bytes);
    if let Some(reads) = known.dram_reads {
        let traffic = |lines: u64| size(lines.saturating_mul(line_bytes));
        let written = known.dram_writes.map(|writes| format!(", {} written", traffic(writes)));
        pieces.push(format!("DRAM {} read{}", traffic(reads), written.unwrap_or_default()));
    }
    pieces
}

/// Where the misses that bursts tell of are likely to be.
fn likely_pieces(profile: &Profile, known: &Known) -> Vec<String> {
    let percent = |share: f64| match 100.0 * share {
        0.0 => "0".to_owned(),
        percent if percent < 0.01 => "<0.01".to_owned(),
        percent if percent < 1.0 => format!("{percent:.2}"),
        percent => format!("{percent:.1}"),
    };
    let ranges = interval::of_misses(profile, known);
    let piece = |(level, (low, high)): (interval::MissedLevel, (f64, f64))| {
        format!("{} {} to {} %", level.name(), percent(low), percent(high))
    };
    let mut pieces: Vec<String> = ranges.into_iter().map(piece).collect();
    if let Some(first) = pieces.first_mut() {
        *first = format!("of the accesses, nine times of ten: {first}");
    }
    pieces
}

/// How much of the wait the core waits for, if a core was modelled.
fn stall_pieces(profile: &Profile, totals: &Counts) -> Vec<String> {
    let (wait, stall) = (profile.cost(totals), profile.stall_cycles(totals));
    if !profile.has_stalls() || wait == 0 {
        return Vec::new();
    }
    let mut pieces = Vec::new();
    // What they are of the time comes first: whether memory is worth work at all.
    match profile.run.core_cycles.filter(|&cycles| cycles > 0) {
        Some(cycles) => {
            let at_most = if profile.has_more_stalls_than_time() { "at most " } else { "" };
            let part = |stalls: u64| format!("{:.0} %", 100.0 * stalls as f64 / cycles as f64);
            let (stalls, all) = (count(stall), count(cycles));
            pieces.push(format!("{at_most}{} of the core's time, {stalls} of {all} cycles", part(stall)));
            let translation = profile.translation_stall_cycles(totals).unwrap_or(0);
            if translation as f64 >= 0.01 * cycles as f64 {
                pieces.push(format!("{} for TLB misses", part(translation)));
            }
        }
        None => pieces.push(format!("{} cycles", count(stall))),
    }
    pieces.push(match wait.checked_sub(stall) {
        Some(hidden) => format!("other work hides {} % of a wait of {}", percent(hidden, wait), count(wait)),
        // Latencies are not all there is to wait for: lines take turns, in sets of the first level above all.
        None => format!("more than the wait of {}: lines take turns", count(wait)),
    });
    pieces
}

/// Where the model and the measured time differ much.
fn measured_pieces(profile: &Profile) -> Vec<String> {
    let run = &profile.run;
    let mut pieces = Vec::new();
    if let (Some(measured), Some(explained)) = (run.measured_cycles, profile.of_measured_time(1.0)) {
        let stalls = percent(profile.totals().stall_cycles, measured);
        // Of some stretches the model has more stalls than they took, and of others less than they did: that is not one bound and another.
        let stalls = match profile.has_more_stalls_than_time() {
            true => format!("about {stalls} %"),
            false => format!("{stalls} % or more"),
        };
        pieces.push(format!(
            "the code took {} cycles; the model has nothing for {} % of them: stalls are {stalls} of that time",
            count(measured),
            percent_of_share(1.0 - explained)
        ));
    } else if let Some(modelled) = run.modelled_stall_cycles.filter(|_| profile.has_more_stalls_than_time()) {
        pieces.push(format!(
            "the time has no room for the {} cycles of stalls that the model has by itself",
            count(modelled)
        ));
        pieces.push("it has too many misses, or too few of them hidden".to_owned());
    }
    pieces
}

/// How many misses a hardware prefetcher covers, said behind them.
pub(crate) fn of_them_prefetched(part: f64) -> String {
    format!("{} % of them prefetched", percent_of_share(part))
}

pub(crate) fn of_them_remote(part: f64) -> String {
    format!("{} % of them from another node", percent_of_share(part))
}

/// The loads that are worth work, if few of many are.
fn delinquent_pieces(profile: &Profile) -> Vec<String> {
    let DelinquentLoads { loads, of, covered, misses } = delinquent_loads(profile);
    let totals = profile.totals();
    match loads.len() {
        _ if (misses as f64) < WORTH * totals.loads as f64 => Vec::new(),
        0 => Vec::new(),
        few => vec![format!(
            "{} of {} {} {} % of the last-level load misses",
            plural(few as u64, "load"),
            count(of as u64),
            if few == 1 { "makes" } else { "make" },
            percent_of_share(covered)
        )],
    }
}

fn attribution_pieces(profile: &Profile) -> Vec<String> {
    let attribution = &profile.attribution;
    let what = match () {
        _ if profile.run.sampling.is_some() => "samples",
        _ if profile.is_of_bus() => "lines",
        _ => "accesses",
    };
    let known = attribution.attributed_accesses;
    let all = known.saturating_add(attribution.unknown_accesses);
    let mut pieces = vec![match percent(known, all) {
        share if share == UNKNOWN => format!("no {what}"),
        share => format!("{share} % of {what}"),
    }];
    let mut reasons: Vec<_> = attribution.unknown_reasons.iter().collect();
    reasons.sort_by_key(|&(reason, &accesses)| (std::cmp::Reverse(accesses), reason.clone()));
    let mut unknown = reasons
        .iter()
        .take(3)
        .map(|(reason, accesses)| format!("{} {reason}", count(**accesses)))
        .collect::<Vec<_>>()
        .join(", ");
    if reasons.len() > 3 {
        unknown += ", …";
    }
    if attribution.unknown_accesses > 0 {
        pieces.push(match unknown.is_empty() {
            true => format!("unknown: {}", count(attribution.unknown_accesses)),
            false => format!("unknown: {unknown}"),
        });
    }
    pieces.push(plural(attribution.lost_events, "lost event"));
    if attribution.truncated_stacks > 0 {
        pieces.push(plural(attribution.truncated_stacks, "cut stack"));
    }
    if attribution.unresolved_code > 0 {
        pieces.push(plural(attribution.unresolved_code, "code address") + " without a function");
    }
    pieces
}
