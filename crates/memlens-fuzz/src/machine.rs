//! Machine descriptions and overrides.

use memlens_sim::{MachineDescription, OverrideError};

fn base() -> MachineDescription {
    MachineDescription::named("e5504").expect("a machine that ships")
}

/// A machine with nothing that can be left out.
fn bare() -> MachineDescription {
    MachineDescription { l2: None, dtlb: None, stlb: None, ..base() }
}

pub(crate) fn toml_seeds() -> Vec<Vec<u8>> {
    MachineDescription::names()
        .filter(|name| *name != "host")
        .filter_map(|name| MachineDescription::named(name).ok())
        .filter_map(|machine| toml::to_string(&machine).ok())
        .map(String::into_bytes)
        .collect()
}

pub(crate) fn check_toml(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(machine) = MachineDescription::from_toml(text) else { return };
    machine.validate().expect("what was read is valid");
    let written = toml::to_string(&machine).expect("what was read can be written");
    let again = MachineDescription::from_toml(&written).expect("what was written can be read");
    assert_eq!(again, machine);
}

pub(crate) fn override_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "l1d=49152,12,64",
        "llc=32M,16,64,srrip",
        "d1=48K,12,64",
        "LL=1G , 16 , 64 , tree-plru",
        "llc.policy=random",
        "l2=none",
        "dtlb=64,4",
        "stlb.1g=16,4",
        "dtlb=96,96,lru",
        "stlb.2m = 1024,8 , clock",
        "walker=off",
        "prefetcher=16",
        "prefetcher=off",
        "inclusion=exclusive",
        "cores=8",
        "l2=18446744073709551615,4294967295,64",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

pub(crate) fn check_override(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut machine = base();
    if let Err(error) = machine.apply_override(text) {
        let OverrideError { text: said, offset, word, .. } = &error;
        assert_eq!(said, text);
        let rest = text.get(*offset..);
        assert!(rest.is_some_and(|rest| rest.starts_with(word.as_str())), "{error:?}");
        assert_eq!(machine, base(), "an override that fails changes nothing");
        let mut machine = bare();
        if machine.apply_override(text).is_err() {
            assert_eq!(machine, bare(), "an override that fails changes nothing");
        }
        return;
    }
    // The result, spelt plainly, part by part: at most one part differs, so that one override that is
    // applied to the base must give the same.
    let cache = |name: &str, cache: &memlens_sim::CacheDescription| {
        format!("{name}={},{},{},{}", cache.bytes, cache.ways, cache.line, cache.policy)
    };
    let before = base();
    let mut plain = Vec::new();
    for (name, was, is) in [
        ("l1i", &before.l1i, &machine.l1i),
        ("l1d", &before.l1d, &machine.l1d),
        ("llc", &before.llc, &machine.llc),
    ] {
        if was != is {
            plain.push(cache(name, is));
        }
    }
    match (&before.l2, &machine.l2) {
        (was, is) if was == is => {}
        (_, Some(is)) => plain.push(cache("l2", is)),
        (_, None) => plain.push("l2=none".to_owned()),
    }
    if before.cores != machine.cores {
        plain.push(format!("cores={}", machine.cores));
    }
    if before.inclusion != machine.inclusion {
        plain.push(format!("inclusion={}", machine.inclusion));
    }
    if before.walker.enabled != machine.walker.enabled {
        plain.push(format!("walker={}", if machine.walker.enabled { "on" } else { "off" }));
    }
    if before.prefetcher.streams != machine.prefetcher.streams {
        plain.push(format!("prefetcher={}", machine.prefetcher.streams));
    }
    for (name, was, is) in [("dtlb", &before.dtlb, &machine.dtlb), ("stlb", &before.stlb, &machine.stlb)] {
        match is {
            None if was.is_some() => plain.push(format!("{name}=none")),
            None => {}
            Some(is) => {
                for (size, entries) in ["4k", "2m", "1g"].into_iter().zip(is.by_page_size()) {
                    if let Some(entries) = entries
                        && was.as_ref().map(|was| was.by_page_size()) != Some(is.by_page_size())
                    {
                        let policy = entries.policy.map(|policy| format!(",{policy}")).unwrap_or_default();
                        plain.push(format!("{name}.{size}={},{}{policy}", entries.entries, entries.ways));
                    }
                }
            }
        }
    }
    let mut again = base();
    for text in &plain {
        again.apply_override(text).expect("a plain override is valid");
    }
    assert_eq!(without_sources(again), without_sources(machine), "{text:?} as {plain:?}");
}

/// Where a number comes from is the command line in either case, but for numbers that stay as they were.
fn without_sources(mut machine: MachineDescription) -> MachineDescription {
    let MachineDescription { l1i, l1d, l2, llc, dtlb, stlb, walker, .. } = &mut machine;
    [l1i, l1d, llc].into_iter().chain(l2).for_each(|cache| cache.source.clear());
    [dtlb, stlb].into_iter().flatten().for_each(|tlb| tlb.source.clear());
    walker.source.clear();
    machine
}
