//! A check for people: a line for whatever fails, one for each condition that does not.

use super::condition::{Limit, Subject};
use super::hold::{Check, Held, HeldCondition, Verdict};
use crate::column::Column;
use crate::grid::{Style, wrap};
use crate::number::{UNKNOWN, count, percent_of_share, plural, size};

/// Width of the words at the left.
const INDENT: usize = 8;

/// Verdicts, conditions and values, and at the end how many conditions stand how.
pub fn check_text(check: &Check, width: usize, colour: bool) -> String {
    let mut out = String::new();
    for held in &check.conditions {
        out += &of_condition(held, width, colour);
    }
    let all = plural(check.conditions.len() as u64, "condition");
    let [fails, unsure] = [Verdict::Fails, Verdict::Unsure].map(|verdict| check.count(verdict));
    let mut last = match fails {
        0 => format!("{all}: none fails"),
        1 => format!("{all}: 1 fails"),
        _ => format!("{all}: {fails} fail"),
    };
    if unsure > 0 {
        last += &format!(", {unsure} may fail by chance (longer runs, or several merged, are surer)");
    }
    out + &Style::Bold.paint(&last, colour) + "\n"
}

fn of_condition(held: &HeldCondition, width: usize, colour: bool) -> String {
    let column = held.condition.column;
    let bad = held.held.iter().filter(|held| matches!(held.verdict, Verdict::Fails | Verdict::Unsure));
    let shown: Vec<&Held> = match held.verdict() {
        Verdict::Fails | Verdict::Unsure => bad.collect(),
        // That which came nearest.
        _ => held.held.first().into_iter().collect(),
    };
    let mut out = String::new();
    for one in &shown {
        let (word, style) = word(one.verdict);
        let mut pieces = vec![held.condition.to_string()];
        let is_of_each = matches!(held.condition.subject, Subject::Each(_));
        let nearest = match is_of_each && matches!(one.verdict, Verdict::Passes | Verdict::Nothing) {
            true => format!("of {} the nearest is ", plural(held.held.len() as u64, "name")),
            false => String::new(),
        };
        pieces.extend(one.name.as_ref().map(|name| {
            let kind = one.kind.map_or(String::new(), |kind| format!(" ({})", kind.as_str()));
            format!("{nearest}{name}{kind}")
        }));
        pieces.extend(one.place.clone());
        pieces.extend(values(held.condition.limit, one, column));
        out += &wrap(&style.paint(&format!("{word:<INDENT$}"), colour), INDENT, &pieces, width, colour);
    }
    if shown.is_empty() {
        let pieces = [held.condition.to_string(), "no object has 1 % of the whole".to_owned()];
        out += &wrap(word(Verdict::Nothing).0, INDENT, &pieces, width, colour);
    }
    out
}

fn word(verdict: Verdict) -> (&'static str, Style) {
    match verdict {
        Verdict::Fails => ("FAIL", Style::Hot),
        Verdict::Unsure => ("unsure", Style::Warm),
        Verdict::Passes => ("ok", Style::Plain),
        Verdict::Nothing => ("none", Style::Dim),
    }
}

/// The value, the baseline's, and what would be too much.
fn values(limit: Limit, held: &Held, column: Column) -> Vec<String> {
    let mut pieces = Vec::new();
    let shown = |value: Option<f64>| value.map_or(UNKNOWN.to_owned(), |value| amount(value, column));
    if limit.is_relative() {
        let factor = held.value.zip(held.baseline).filter(|&(_, baseline)| baseline > 0.0);
        let change = match factor {
            _ if held.value == held.baseline => String::new(),
            Some((value, baseline)) if !column.is_ratio() => {
                let percent = (value / baseline - 1.0) * 100.0;
                // A change that is there is never shown as none.
                match percent.abs() {
                    0.1.. => format!(" ({percent:+.1} %)"),
                    0.001.. => format!(" ({percent:+.3} %)"),
                    _ => " (by less than 0.001 %)".to_owned(),
                }
            }
            Some((value, baseline)) => format!(" ({:+.1} points)", (value - baseline) * 100.0),
            None if held.baseline == Some(0.0) => " (new)".to_owned(),
            None => String::new(),
        };
        pieces.push(format!("{} → {}{change}", shown(held.baseline), shown(held.value)));
        pieces.extend(held.limit.map(|limit| format!("limit {}", amount(limit, column))));
    } else {
        pieces.push(shown(held.value));
    }
    if let (Some((low, high)), Some(limit)) = (held.excess_interval, held.limit) {
        pieces.push(match held.baseline {
            Some(_) => format!("beyond it by {:+.1} to {:+.1} points (95 %)", low * 100.0, high * 100.0),
            None => format!("95 %: {:.1} to {:.1} %", (limit + low) * 100.0, (limit + high) * 100.0),
        });
    }
    pieces
}

fn amount(value: f64, column: Column) -> String {
    if column.is_ratio() {
        return format!("{} %", percent_of_share(value.max(0.0)));
    }
    let whole = value.max(0.0).round() as u64;
    if column.is_bytes() { size(whole) } else { count(whole) }
}
