//! When objects cost what, in slices of the recording's time.

use std::collections::BTreeMap;

use memlens_objects::SiteId;
use memlens_profile::{Clock, MOST_SLICES, ObjectIx, Profile, Slice, SliceIx, SliceSums, SliceUse};
use memlens_types::ObjectKind;

use crate::recording::Recording;
use crate::when::When;

/// Gives a profile, whose counts are there, its slices: `when` has it by object, and `unnamed` of samples that have an object only as far as
/// code tells. `of_sites`: the allocation sites of an object.
pub fn add_slices(
    profile: &mut Profile,
    recording: &Recording,
    (when, unnamed): (&BTreeMap<u32, When>, &When),
    places: &[Option<ObjectIx>],
    of_sites: impl Fn(u32) -> Vec<SiteId>,
) {
    let slices = slices(profile, recording);
    let Some((began_ns, _)) = recording.times_ns().filter(|_| !slices.is_empty()) else { return };
    let mut sums = SliceSums::default();
    for (at, sum) in (0..).zip(unnamed.in_slices(began_ns, &slices)) {
        sums.add(SliceUse { slice: SliceIx(at), cost: sum.round() as u64, ..SliceUse::default() });
    }
    for (&object, when) in when {
        let Some(place) = places[object as usize] else { continue };
        // What is told over time is what is told in all.
        let cost = profile.cost_beyond_first_level(&profile.objects[place.index()].counts) as f64;
        let scale = if when.sum() > 0.0 { cost / when.sum() } else { 0.0 };
        for (at, sum) in (0..).zip(when.in_slices(began_ns, &slices)) {
            let (slice, cost) = (SliceIx(at), (sum * scale).round() as u64);
            if cost > 0 {
                sums.add(SliceUse { slice, object: Some(place), cost, ..SliceUse::default() });
            }
        }
    }
    if recording.live().is_known() {
        let sites: Vec<(ObjectIx, Vec<SiteId>)> = (0..)
            .zip(places)
            .filter_map(|(object, place)| Some((object, (*place)?)))
            .filter(|&(_, place)| profile.objects[place.index()].kind == ObjectKind::Heap)
            .map(|(object, place)| (place, of_sites(object)))
            .collect();
        for (at, slice) in (0..).zip(&slices) {
            let Some((live_of, all)) = recording.live().at(began_ns + slice.end) else { continue };
            let mut others = all;
            let mut live = |object, bytes: f64| {
                let (slice, live_bytes) = (SliceIx(at), Some(bytes.round() as u64));
                sums.add(SliceUse { slice, object, live_bytes, ..SliceUse::default() });
            };
            for (place, sites) in &sites {
                let bytes: f64 = sites.iter().map(|&site| live_of(site)).sum();
                others -= bytes;
                if bytes >= 1.0 {
                    live(Some(*place), bytes);
                }
            }
            live(None, others.max(0.0));
        }
    }
    profile.run.clock = Some(Clock::Nanoseconds);
    profile.slices = slices;
    profile.slice_uses = sums.finish();
}

/// As many slices as what was seen is good for.
fn slices(profile: &Profile, recording: &Recording) -> Vec<Slice> {
    /// Of so many samples a slice says something, and of so many bursts.
    const SAMPLES: u64 = 20;
    const BURSTS: u64 = 3;
    let Some((began_ns, last_ns)) = recording.times_ns() else { return Vec::new() };
    let good_for = match recording.bursts() {
        Some(bursts) => bursts.counts().bursts / BURSTS,
        None => recording.counts().samples / SAMPLES,
    };
    let length = last_ns - began_ns;
    let count = good_for.min(MOST_SLICES as u64);
    if length == 0 || count < 2 || profile.objects.is_empty() {
        return Vec::new();
    }
    let edge = |at: u64| (u128::from(length) * u128::from(at) / u128::from(count)) as u64;
    (0..count).map(|at| Slice { begin: edge(at), end: edge(at + 1) }).collect()
}
