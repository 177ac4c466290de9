//! Loads to which one index leads: `ex[c]` and `ey[c]`.
//!
//! Their misses are under way side by side, and the core waits for the first of them, which has the stall of all. By itself each prefetch
//! (and each order of the indices) would seem to gain all or nothing, by the order of two instructions; which one it is that
//! waits, no reader can change. So the stall is that of all of them, by what each waits, and each finding names the others.

use std::collections::BTreeMap;

use memlens_profile::CodeIx;

use crate::{Finding, Known, Remedy};

/// Lets findings about prefetches by one index share their stalls, and those about its order. Linear in the findings.
pub(crate) fn share_stalls(known: &Known<'_>, found: &mut [Finding]) {
    let mut by_loader: BTreeMap<(&str, CodeIx), Vec<usize>> = BTreeMap::new();
    for (at, finding) in found.iter().enumerate() {
        let loader = |code| known.patterns.of_code(code).and_then(|pattern| pattern.loaded_by);
        if let (Remedy::Prefetch { .. } | Remedy::Sort { .. }, Some(&code)) =
            (&finding.remedy, finding.code.first())
            && let Some(loader) = loader(code)
        {
            by_loader.entry((finding.remedy.as_str(), loader)).or_default().push(at);
        }
    }
    for together in by_loader.into_values().filter(|together| together.len() > 1) {
        let stalls: u64 = together.iter().map(|&at| found[at].counts.stall_cycles).sum();
        let wait = |finding: &Finding| known.profile.wait_cycles(&finding.counts);
        let waits: u64 = together.iter().map(|&at| wait(&found[at])).sum();
        let firsts: Vec<_> = together.iter().filter_map(|&at| found[at].objects.first().copied()).collect();
        for &at in &together {
            let part = wait(&found[at]) as f64 / waits.max(1) as f64;
            found[at].counts.stall_cycles = (stalls as f64 * part) as u64;
            let Finding { remedy, gain, counts, objects, time_gain, .. } = &mut found[at];
            *time_gain = known.time_gain(remedy, *gain, counts);
            if let Remedy::Prefetch { beside, .. } | Remedy::Sort { beside, .. } = remedy {
                *beside = firsts.iter().copied().filter(|object| !objects.contains(object)).collect();
            }
        }
    }
}
