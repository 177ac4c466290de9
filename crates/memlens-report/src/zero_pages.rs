//! Memory that is read and was never written: a benchmark's that forgot to fill its array.
//!
//! The kernel maps one page of zeros wherever such memory is read (Linux, mm/memory.c, `do_anonymous_page`; mm/huge_memory.c for huge ones).
//! All its addresses are the same few lines then, which stay in the cache, while models by addresses let each line miss.

use memlens_profile::Profile;

use crate::number::{percent_of_share, size};

/// Part of an object's memory that must be the page of zeros …
const LEAST_PART: f64 = 0.5;
/// … and part of all misses that it must have, to be worth a word.
const LEAST_MISSES: f64 = 0.02;
/// Objects that are named.
const NAMED: usize = 3;

/// What is wrong with the misses modelled for data that was never written; `None`: nothing. Linear in the objects.
pub(crate) fn never_written(profile: &Profile) -> Option<String> {
    let all = profile.totals().l1_misses();
    let mut found = Vec::new();
    let (mut misses, mut bytes) = (0, 0);
    for object in &profile.objects {
        let zero = object.backing.as_ref().map_or(0, |backing| backing.zero_bytes);
        let resident = object.backing.as_ref().map_or(0, |backing| backing.resident_bytes());
        let own = object.counts.l1_misses();
        let is_much = own as f64 >= LEAST_MISSES * all as f64;
        if zero > 0 && own > 0 && is_much && zero as f64 >= LEAST_PART * resident as f64 {
            (misses, bytes) = (misses + own, bytes + zero);
            found.push((own, object.name.as_str()));
        }
    }
    found.sort_by_key(|&(own, _)| std::cmp::Reverse(own));
    found.dedup_by_key(|&mut (_, name)| name);
    let names: Vec<&str> = found.iter().take(NAMED).map(|&(_, name)| name).collect();
    let more = if found.len() > NAMED { " and others" } else { "" };
    (!found.is_empty()).then(|| {
        format!(
            "{} of {}{more} was read and never written: the kernel has one page of zeros for all of it, which stays in the cache. {} % of the \
             first-level misses are modelled for it and do not happen, nor do their stalls: let the program fill it, as real data would.",
            size(bytes),
            names.join(", "),
            percent_of_share(misses as f64 / all.max(1) as f64),
        )
    })
}

#[cfg(test)]
mod tests {
    use memlens_profile::{Object, ObjectBacking};
    use memlens_types::Counts;

    use super::*;

    fn object(name: &str, zero_bytes: u64, l1_load_misses: u64) -> Object {
        Object {
            name: name.into(),
            backing: Some(ObjectBacking { small_bytes: 8 << 20, zero_bytes, ..ObjectBacking::default() }),
            counts: Counts { loads: 1000, l1_load_misses, ..Counts::default() },
            ..Object::default()
        }
    }

    #[test]
    fn misses_of_pages_of_zeros_are_told() {
        let of = |objects: Vec<Object>| never_written(&Profile { objects, ..Profile::default() });
        let note = of(vec![object("a", 0, 100), object("b", 8 << 20, 300)]).expect("b is told of");
        assert!(note.starts_with("8 MiB of b was read and never written"), "{note}");
        assert!(note.contains("75.0 % of the first-level misses"), "{note}");
        assert_eq!(of(vec![object("a", 0, 100)]), None, "all of it was written");
        assert_eq!(of(vec![object("a", 3 << 20, 100)]), None, "most of it");
        assert_eq!(
            of(vec![object("a", 0, 1000), object("b", 8 << 20, 19)]),
            None,
            "next to nothing misses there"
        );
        assert_eq!(of(vec![object("a", 8 << 20, 0)]), None);
        assert_eq!(of(Vec::new()), None);
        let many = ["a", "b", "b", "c", "d"].map(|name| object(name, 8 << 20, 10)).to_vec();
        assert!(of(many).is_some_and(|note| note.contains("of a, b, c and others was")));
    }
}
