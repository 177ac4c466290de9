//! What makes two profiles' figures unlike each other, besides their programs.

use memlens_profile::{CacheInfo, MERGED_FROM, MachineInfo, Profile, TlbInfo};

use crate::number::{UNKNOWN, size};

/// How a profile's program ended.
pub(crate) fn end(profile: &Profile) -> String {
    match (profile.run.signal, profile.run.exit_code) {
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, Some(code)) => format!("ended with exit code {code}"),
        (None, None) => "went on".to_owned(),
    }
}

/// What a profile's counts are of: counts of merged ones are added up.
pub(crate) fn merged(profile: &Profile) -> String {
    let note = profile.run.notes.iter().find(|note| note.starts_with(MERGED_FROM));
    note.map_or("one run".to_owned(), |note| note[MERGED_FROM.len()..].trim().to_owned())
}

/// What a reader of a comparison has to know before its figures; mostly nothing.
pub(crate) fn unlike(a: &Profile, b: &Profile) -> Vec<String> {
    let mut pieces = Vec::new();
    let (of_a, of_b) = (merged(a), merged(b));
    if of_a != of_b {
        pieces
            .push(format!("A's counts are of {of_a}, B's of {of_b}, added up: only shares can be compared"));
    }
    let arguments = |profile: &Profile| profile.run.command.get(1..).map(<[String]>::to_vec);
    if arguments(a) != arguments(b) {
        pieces.push("the programs had other arguments".to_owned());
    }
    let (of_a, of_b) = (end(a), end(b));
    if of_a != of_b {
        pieces.push(format!("A {of_a}, B {of_b}"));
    }
    let mut too_few = false;
    for (name, profile) in [("A", a), ("B", b)] {
        if profile.attribution.truncated {
            pieces.push(format!("{name} ends before its program did"));
        }
        if let Some(bursts) = profile.run.too_few_bursts() {
            pieces.push(format!(
                "{name}'s bursts tell as much as {bursts:.0} of equal weight: not to be relied on"
            ));
            too_few = true;
        }
    }
    if too_few {
        pieces.push("longer runs, --overhead 10% or --mode exact tell more".to_owned());
    }
    pieces
}

/// Whether a machine's caches were modelled: samples tell time, and a bus has no caches.
pub(crate) fn is_modelled(profile: &Profile) -> bool {
    profile.run.sampling.is_none() && !profile.is_of_bus()
}

/// What is different of the machines that were modelled, A's → B's; nothing where one was not.
pub(crate) fn machine_differences(a: &Profile, b: &Profile) -> Vec<String> {
    if !is_modelled(a) || !is_modelled(b) || a.machine == b.machine {
        return Vec::new();
    }
    let (of_a, of_b) = (&a.machine, &b.machine);
    let cache = |cache: &Option<CacheInfo>| {
        cache.as_ref().map_or(UNKNOWN.to_owned(), |cache| format!("{} {}-way", size(cache.bytes), cache.ways))
    };
    let tlb = |tlb: &Option<TlbInfo>| {
        tlb.as_ref().map_or(UNKNOWN.to_owned(), |tlb| format!("{} {}-way", tlb.entries, tlb.ways))
    };
    let cycles = |cycles: u32| format!("{cycles} cycles");
    let remote = |machine: &MachineInfo| match machine.has_nodes() {
        true => cycles(machine.remote_cycles()),
        false => UNKNOWN.to_owned(),
    };
    let (latencies_a, latencies_b) = (of_a.latencies, of_b.latencies);
    let figures = [
        ("L1d", cache(&of_a.l1d), cache(&of_b.l1d)),
        ("L2", cache(&of_a.l2), cache(&of_b.l2)),
        ("LLC", cache(&of_a.llc), cache(&of_b.llc)),
        ("dTLB", tlb(&of_a.dtlb), tlb(&of_b.dtlb)),
        ("STLB", tlb(&of_a.stlb), tlb(&of_b.stlb)),
        ("L1", cycles(latencies_a.l1_cycles), cycles(latencies_b.l1_cycles)),
        ("L2", cycles(latencies_a.l2_cycles), cycles(latencies_b.l2_cycles)),
        ("LLC", cycles(latencies_a.llc_cycles), cycles(latencies_b.llc_cycles)),
        ("memory", cycles(latencies_a.dram_cycles), cycles(latencies_b.dram_cycles)),
        ("STLB", cycles(latencies_a.stlb_cycles), cycles(latencies_b.stlb_cycles)),
        ("walk", cycles(latencies_a.walk_access_cycles), cycles(latencies_b.walk_access_cycles)),
        ("another core", cycles(of_a.transfer_cycles()), cycles(of_b.transfer_cycles())),
        ("nodes", of_a.nodes.max(1).to_string(), of_b.nodes.max(1).to_string()),
        ("another node's memory", remote(of_a), remote(of_b)),
    ];
    let differ = figures.into_iter().filter(|(_, a, b)| a != b);
    let mut pieces: Vec<String> = differ.map(|(name, a, b)| format!("{name} {a} → {b}")).collect();
    if of_a.core != of_b.core {
        pieces.push("another core, or other rates of lines".to_owned());
    }
    if pieces.is_empty() && of_a.name != of_b.name {
        pieces.push(format!("{} → {}", of_a.name, of_b.name));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unlike_is_told() {
        let a = Profile::default();
        assert!(unlike(&a, &a).is_empty());
        let mut b = Profile::default();
        b.run.notes.push(format!("{MERGED_FROM} 3 runs"));
        b.run.command = vec!["app".into(), "more".into()];
        b.run.signal = Some(6);
        b.run.effective_bursts = Some(3.2);
        b.attribution.truncated = true;
        let told = unlike(&a, &b);
        let parts = [
            "A's counts are of one run, B's of 3 runs",
            "other arguments",
            "A went on, B was ended by signal 6",
            "B ends before its program did",
            "B's bursts tell as much as 3 of equal weight",
            "longer runs",
        ];
        assert_eq!(told.len(), parts.len(), "{told:?}");
        assert!(parts.iter().zip(&told).all(|(part, told)| told.contains(part)), "{told:?}");
    }
}
