//! Advice for people.

use memlens_analysis::{Advice, Finding};
use memlens_profile::Profile;

use super::told::Told;

/// What to do about which data of a profile: `top` findings at most. `how` has the line of a finding that says what memlens itself can do
/// about it, or why it cannot.
pub fn advice_text(
    profile: &Profile,
    advice: &Advice,
    top: usize,
    how: &dyn Fn(&Finding) -> Option<String>,
) -> String {
    let Told { before, findings, after, caveat } = Told::new(profile, advice, how);
    let mut out = before.join(if findings.is_empty() { "\n" } else { "\n\n" }) + "\n";
    if findings.is_empty() {
        return out;
    }
    if before.is_empty() {
        out.clear();
    } else {
        out.push('\n');
    }
    for (number, finding) in (1..).zip(findings.iter().take(top)) {
        out += &format!("{number}. {}: {}\n", finding.title, finding.gain);
        for line in &finding.evidence {
            out += &format!("   {line}\n");
        }
        out += &format!("   → {}\n", finding.to_do);
        if let Some(how) = &finding.how {
            out += &format!("     {how}\n");
        }
        out.push('\n');
    }
    if findings.len() > top {
        out += &format!("{} more: --top {}\n", findings.len() - top, findings.len());
    }
    for paragraph in after {
        out += &format!("{paragraph}\n\n");
    }
    if let Some(caveat) = caveat {
        out += &format!("{caveat}\n");
    }
    out
}
