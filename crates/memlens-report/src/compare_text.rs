//! A comparison as a table, as JSON and as CSV.

use std::io::{self, Write};

use memlens_locality::DelinquentComparison;
use memlens_profile::{MERGED_FROM, Profile};
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use crate::Column;
use crate::View;
use crate::compare::{COST_SHARE, ComparedObject, Comparison, Overlap};
use crate::csv::quoted;
use crate::delinquent::{DELINQUENT_SHARE, delinquent_loads};
use crate::grid::{Elide, Grid, GridCell, GridColumn, Style, printable, wrap};
use crate::number::{UNKNOWN, count, percent, percent_of_share, plural, seconds, shown};
use crate::pair_header::{Compared, pair_header, times, totals_json};
use crate::table::{ALLOCATED_AT, cost_word};
use crate::unlike::{machine_differences, unlike};

/// What the first key of the JSON says.
pub const COMPARE_SCHEMA: &str = "memlens-compare/1";

/// Width of the labels at the left.
const INDENT: usize = 11;

/// The figures, then the objects. `view` tells width, colour and how many rows.
pub fn compare_table(a: &Profile, b: &Profile, comparison: &Comparison, view: &View) -> String {
    let (width, colour) = (view.width, view.colour);
    let mut out = String::new();
    let amount = Compared {
        amount: Some((comparison.by, [comparison.sum_a, comparison.sum_b])),
        unlike: unlike(a, b),
        runs: [1, 1],
    };
    out += &pair_header(["A", "B"], a, b, &amount, INDENT, view);
    let pieces = [
        format!("Spearman {}", coefficient(comparison.spearman)),
        format!("Kendall {}", coefficient(comparison.kendall)),
        format!(
            "of the {} that make {:.0} % of either",
            plural(comparison.ranked as u64, "object"),
            COST_SHARE * 100.0
        ),
    ];
    out += &wrap("ranking", INDENT, &pieces, width, colour);
    let top = |overlap: Overlap| {
        let order = if overlap.same_order { ", in the same order" } else { "" };
        format!("{} of the top {}{order}", overlap.common, overlap.of)
    };
    let mut tops = vec![top(comparison.top3)];
    if comparison.top10.of > comparison.top3.of {
        tops.push(top(comparison.top10));
    }
    out += &wrap("the same", INDENT, &tops, width, colour);
    let points = |share: f64| format!("{:.2}", share * 100.0);
    let mut pieces = vec![
        format!("{} points on average", points(comparison.mean_error)),
        format!("{} at most", points(comparison.largest_error)),
        format!("{} % of the cost on other objects", percent_of_share(comparison.misplaced)),
    ];
    for (name, share) in [("A", comparison.only_a), ("B", comparison.only_b)] {
        if share > 0.0 {
            pieces.push(format!("{} % of {name} on objects that only it has", percent_of_share(share)));
        }
    }
    out += &wrap("shares off", INDENT, &pieces, width, colour);
    if let Some(piece) = chance_piece(comparison) {
        out += &wrap("chance", INDENT, &[piece], width, colour);
    }
    let computation = [("A", comparison.computation_a), ("B", comparison.computation_b)];
    let pieces: Vec<String> = computation
        .into_iter()
        .filter(|(_, share)| *share > 0.0)
        .map(|(name, share)| format!("{} % of {name}: computation, no data", percent_of_share(share)))
        .collect();
    if !pieces.is_empty() {
        out += &wrap("left out", INDENT, &pieces, width, colour);
    }
    if let Some(found) = &comparison.delinquent {
        out += &wrap("delinquent", INDENT, &delinquent_pieces(a, found), width, colour);
    }
    out.push('\n');
    let touched: Vec<&ComparedObject> = comparison.objects.iter().filter(|object| has_cost(object)).collect();
    let rows = &touched[..view.top.unwrap_or(usize::MAX).min(touched.len())];
    out += &grid(rows, Amounts::of(a, b, comparison.by).as_ref()).render(width, colour);
    let mut footer = shown(rows.len(), touched.len(), "object", "");
    let whole = match comparison.by {
        Column::Share if cost_word(a) == cost_word(b) => format!("the {}", cost_word(a)),
        Column::Share => format!("A's {} and B's {}", cost_word(a), cost_word(b)),
        Column::StallCycles if cost_word(b) != cost_word(a) => {
            let word = |profile| if cost_word(profile) == "wait" { "stalls" } else { cost_word(profile) };
            format!("A's {} and B's {}", word(a), word(b))
        }
        by => by.as_str().replace('_', " "),
    };
    let shares = format!("shares are of {whole}");
    let is_one_line = footer.width() + 2 + shares.width() <= width;
    footer += if is_one_line { "; " } else { "\n" };
    footer += &shares;
    out += &Style::Dim.paint(&footer, colour);
    out.push('\n');
    out
}

/// Which loads miss the last level, of A's found by B. Where hardly any does, which ones is chance.
fn delinquent_pieces(a: &Profile, found: &DelinquentComparison) -> Vec<String> {
    /// Part of the loads that must miss.
    const FEWEST: f64 = 0.001;
    let part = |part: Option<f64>| part.map_or(UNKNOWN.to_owned(), |part| format!("{part:.2}"));
    let (misses, loads) = (delinquent_loads(a).misses, a.totals().loads);
    if (misses as f64) < FEWEST * loads as f64 {
        return vec![format!(
            "hardly any: {} % of A's loads miss the last level, and which ones says little",
            percent(misses, loads)
        )];
    }
    vec![
        format!("B has {} of the {} of A", found.common, plural(found.exact as u64, "load")),
        format!("recall {}", part(found.recall())),
        format!("false positives {} of {}", part(found.false_positives()), found.predicted),
        format!(
            "{} % of A's last-level load misses covered ({} % of its loads miss)",
            percent_of_share(found.predicted_coverage),
            percent(misses, loads)
        ),
    ]
}

/// How many differ by more than their intervals allow; nothing where all was counted.
fn chance_piece(comparison: &Comparison) -> Option<String> {
    let verdicts = comparison.objects.iter().filter(|object| has_cost(object));
    let verdicts: Vec<bool> = verdicts.filter_map(ComparedObject::is_beyond_chance).collect();
    let beyond = verdicts.iter().filter(|is_beyond| **is_beyond).count() as u64;
    match (verdicts.is_empty(), beyond) {
        (true, _) => None,
        (_, 0) => {
            Some("no share differs by more than chance: 0 is in each difference's 95 % interval; amounts have none".to_owned())
        }
        (_, 1) => Some(
            "1 share differs by more than chance: 0 is not in the 95 % interval of its difference".to_owned(),
        ),
        (_, beyond) => Some(format!(
            "{beyond} of {} shares differ by more than chance: 0 is not in the 95 % intervals of their differences",
            verdicts.len()
        )),
    }
}

fn has_cost(object: &ComparedObject) -> bool {
    object.share_a > 0.0 || object.share_b > 0.0
}

fn coefficient(value: Option<f64>) -> String {
    value.map_or(UNKNOWN.to_owned(), |value| format!("{value:.3}"))
}

fn rank(rank: Option<f64>) -> String {
    match rank {
        Some(rank) if rank.fract() == 0.0 => format!("{rank:.0}"),
        Some(rank) => format!("{rank:.1}"),
        None => UNKNOWN.to_owned(),
    }
}

/// How much an object's value is.
struct Amounts {
    /// What a value of 1 is in A and in B, …
    of_a: f64,
    of_b: f64,
    /// … of this: cycles, or what the column counts.
    word: &'static str,
    are_nanoseconds: bool,
}

impl Amounts {
    /// None: the profiles count different things.
    fn of(a: &Profile, b: &Profile, by: Column) -> Option<Self> {
        let are_sampled = [a, b].map(|profile| profile.run.sampling.is_some());
        // Of samples that is their cost.
        if by == Column::StallCycles && are_sampled[0] != are_sampled[1] {
            return None;
        }
        let word = cost_word(a);
        if by != Column::Share {
            let are_nanoseconds = by == Column::StallCycles && word == "time";
            let word = if by == Column::StallCycles && word == "wait" { "cycles" } else { "" };
            return Some(Self { of_a: 1.0, of_b: 1.0, word, are_nanoseconds });
        }
        let whole = |profile: &Profile| profile.cost(&profile.totals()) as f64;
        (word == cost_word(b)).then(|| Self {
            of_a: whole(a),
            of_b: whole(b),
            word: if word == "wait" { "cycles" } else { word },
            are_nanoseconds: word == "time",
        })
    }

    fn text(&self, amount: f64) -> String {
        if self.are_nanoseconds { seconds(amount / 1e9) } else { count(amount.round() as u64) }
    }
}

/// A difference of percentages; one that rounds to nothing has no sign.
fn points(off: f64) -> String {
    if off.abs() < 0.005 { "0".to_owned() } else { format!("{off:+.2}") }
}

fn grid(rows: &[&ComparedObject], amounts: Option<&Amounts>) -> Grid {
    let (number, text) = (GridColumn::number, GridColumn::text);
    let share = |has: bool, share: f64| match has {
        true => GridCell::new(percent_of_share(share), Style::Plain),
        false => GridCell::new(UNKNOWN, Style::Dim),
    };
    let mut columns = vec![number(["A", "%"], 0), number(["B", "%"], 0), number(["B − A", "points"], 0)];
    let have_intervals = rows.iter().any(|object| object.difference_interval().is_some());
    if have_intervals {
        columns.extend([number(["95 %", "from"], 1), number(["95 %", "to"], 1)]);
    }
    if let Some(Amounts { word, .. }) = amounts {
        columns.extend([number(["A", word], 1), number(["B", word], 1), number(["B ÷ A", ""], 0)]);
    }
    columns.extend([
        number(["A", "rank"], 3),
        number(["B", "rank"], 3),
        text(["", "object"], 0, (12, 48), Elide::BeforeLastComponent),
        text(["", "kind"], 1, (6, 8), Elide::End),
        text(ALLOCATED_AT, 2, (18, 60), Elide::BeforeLastWord),
    ]);
    Grid {
        targets: Vec::new(),
        columns,
        rows: rows
            .iter()
            .map(|object| {
                let off = object.difference() * 100.0;
                let heat = match off.abs() {
                    _ if object.is_beyond_chance() == Some(false) => Style::Dim,
                    off if off >= 5.0 => Style::Hot,
                    off if off >= 1.0 => Style::Warm,
                    _ => Style::Plain,
                };
                let mut cells = vec![
                    share(!object.ids_a.is_empty(), object.share_a),
                    share(!object.ids_b.is_empty(), object.share_b),
                    GridCell::new(points(off), heat),
                ];
                if have_intervals {
                    let end = |end: Option<f64>| match end {
                        Some(end) => GridCell::new(points(end * 100.0), Style::Dim),
                        None => GridCell::new(UNKNOWN, Style::Dim),
                    };
                    let interval = object.difference_interval();
                    cells.extend([end(interval.map(|it| it.0)), end(interval.map(|it| it.1))]);
                }
                if let Some(amounts) = amounts {
                    let (of_a, of_b) = (object.value_a * amounts.of_a, object.value_b * amounts.of_b);
                    let amount = |has: bool, amount: f64| match has {
                        true => GridCell::new(amounts.text(amount), Style::Plain),
                        false => GridCell::new(UNKNOWN, Style::Dim),
                    };
                    cells.extend([
                        amount(!object.ids_a.is_empty(), of_a),
                        amount(!object.ids_b.is_empty(), of_b),
                        GridCell::new(times(of_a, of_b), Style::Plain),
                    ]);
                }
                cells.extend([
                    GridCell::new(rank(object.rank_a), Style::Plain),
                    GridCell::new(rank(object.rank_b), Style::Plain),
                    GridCell::new(printable(&object.name), Style::Bold),
                    GridCell::new(object.kind.as_str(), Style::Dim),
                    GridCell::new(object.place.as_deref().unwrap_or(""), Style::Dim),
                ]);
                cells
            })
            .collect(),
        footer: None,
    }
}

/// The whole comparison; schema [`COMPARE_SCHEMA`]. Unknown is `null`.
pub fn compare_json(a: &Profile, b: &Profile, comparison: &Comparison) -> Value {
    let amounts = Amounts::of(a, b, comparison.by);
    let overlap = |overlap: Overlap| json!({"common": overlap.common, "of": overlap.of, "same_order": overlap.same_order});
    let run = |profile: &Profile, sum: f64, only: f64, computation: f64| {
        json!({
            "command": profile.run.command,
            "mode": profile.run.mode,
            "estimated": profile.run.estimated,
            "merged": profile.run.notes.iter().find(|note| note.starts_with(MERGED_FROM)),
            "sum": sum,
            // Without the sign of a difference that is 0.
            "share_only_here": only + 0.0,
            "share_computation": computation + 0.0,
        })
    };
    let interval = |interval: Option<(f64, f64)>| interval.map(|(low, high)| [low, high]);
    json!({
        "schema": COMPARE_SCHEMA,
        "by": comparison.by.as_str(),
        "a": run(a, comparison.sum_a, comparison.only_a, comparison.computation_a),
        "b": run(b, comparison.sum_b, comparison.only_b, comparison.computation_b),
        "unlike": unlike(a, b),
        "machine_differences": machine_differences(a, b),
        "totals": totals_json(a, b, [1, 1]),
        "ranked_share": COST_SHARE,
        "ranked_objects": comparison.ranked,
        "spearman": comparison.spearman,
        "kendall": comparison.kendall,
        "top3": overlap(comparison.top3),
        "top10": overlap(comparison.top10),
        "share_error": {
            "mean": comparison.mean_error,
            "largest": comparison.largest_error,
            "misplaced": comparison.misplaced,
        },
        "delinquent_loads": comparison.delinquent.map(|found| json!({
            "share": DELINQUENT_SHARE,
            "a": found.exact,
            "b": found.predicted,
            "common": found.common,
            "recall": found.recall(),
            "false_positives": found.false_positives(),
            "covered": found.predicted_coverage,
            "covered_by_common": found.common_coverage,
        })),
        "objects": comparison.objects.iter().map(|object| json!({
            "name": object.name,
            "kind": object.kind.as_str(),
            "where": object.place,
            "ids_a": object.ids_a,
            "ids_b": object.ids_b,
            "value_a": (!object.ids_a.is_empty()).then_some(object.value_a),
            "value_b": (!object.ids_b.is_empty()).then_some(object.value_b),
            "share_a": (!object.ids_a.is_empty()).then_some(object.share_a),
            "share_b": (!object.ids_b.is_empty()).then_some(object.share_b),
            "share_a_ci95": interval(object.interval_a),
            "share_b_ci95": interval(object.interval_b),
            "share_difference": object.difference(),
            "share_difference_ci95": interval(object.difference_interval()),
            "beyond_chance": object.is_beyond_chance(),
            "amount_a": amounts.as_ref().filter(|_| !object.ids_a.is_empty()).map(|it| object.value_a * it.of_a),
            "amount_b": amounts.as_ref().filter(|_| !object.ids_b.is_empty()).map(|it| object.value_b * it.of_b),
            "rank_a": object.rank_a,
            "rank_b": object.rank_b,
            "ranked": object.matters,
        })).collect::<Vec<_>>(),
    })
}

/// One row for each object: RFC 4180, shares 0 to 1, empty where a profile does not have the object.
///
/// # Errors
/// Those of `out`.
pub fn compare_csv(comparison: &Comparison, top: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    write!(
        out,
        "name,kind,share_a,share_b,share_difference,rank_a,rank_b,value_a,value_b,ranked,where,difference_low,difference_high,ids_a,ids_b\r\n"
    )?;
    for object in comparison.objects.iter().take(top.unwrap_or(usize::MAX)) {
        let of_a = |text: String| if object.ids_a.is_empty() { String::new() } else { text };
        let of_b = |text: String| if object.ids_b.is_empty() { String::new() } else { text };
        let end = |end: Option<f64>| end.map_or(String::new(), |end| format!("{end:.6}"));
        let ids = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        let interval = object.difference_interval();
        let fields = [
            quoted(&object.name),
            object.kind.as_str().to_owned(),
            of_a(format!("{:.6}", object.share_a)),
            of_b(format!("{:.6}", object.share_b)),
            format!("{:.6}", object.difference()),
            object.rank_a.map_or(String::new(), |rank| rank.to_string()),
            object.rank_b.map_or(String::new(), |rank| rank.to_string()),
            of_a(object.value_a.to_string()),
            of_b(object.value_b.to_string()),
            object.matters.to_string(),
            quoted(object.place.as_deref().unwrap_or("")),
            end(interval.map(|(low, _)| low)),
            end(interval.map(|(_, high)| high)),
            ids(&object.ids_a),
            ids(&object.ids_b),
        ];
        write!(out, "{}\r\n", fields.join(","))?;
    }
    Ok(())
}
