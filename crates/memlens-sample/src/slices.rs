//! When objects cost what, in slices of the recording's time.

use std::collections::BTreeMap;

use memlens_objects::SiteId;
use memlens_profile::{Clock, ObjectIx, Profile, Slice, SliceIx, SliceSums, SliceUse};

use crate::live_course::Look;
use crate::recording::Recording;
use crate::when::{MOST_STEPS, When};

/// Gives a profile, whose counts are there, its slices: `when` has it by object, and `unnamed` of samples that have an object only as far as
/// code tells. `heap`: objects of the heap, with their allocation sites.
pub fn add_slices(
    profile: &mut Profile,
    recording: &Recording,
    (when, unnamed): (&BTreeMap<u32, When>, &When),
    places: &[Option<ObjectIx>],
    heap: &[(ObjectIx, Vec<SiteId>)],
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
    for (at, slice) in (0..).zip(&slices) {
        let Some(look) = recording.live().at(began_ns + slice.end).filter(|_| recording.live().is_known())
        else {
            continue;
        };
        let mut others = look.bytes();
        let mut live = |object, bytes: f64| {
            let (slice, live_bytes) = (SliceIx(at), Some(bytes.round() as u64));
            sums.add(SliceUse { slice, object, live_bytes, ..SliceUse::default() });
        };
        for (place, sites) in heap {
            let bytes: f64 = sites.iter().map(|&site| look.of(site)).sum();
            others -= bytes;
            if bytes >= 1.0 {
                live(Some(*place), bytes);
            }
        }
        live(None, others.max(0.0));
    }
    profile.run.clock = Some(Clock::Nanoseconds);
    profile.slices = slices;
    profile.slice_uses = sums.finish();
}

/// Says what of the heap was live when most was, and at the end.
pub fn add_live(profile: &mut Profile, recording: &Recording, heap: &[(ObjectIx, Vec<SiteId>)]) {
    let live = recording.live();
    if !live.is_known() {
        return;
    }
    profile.run.heap_peak_bytes = Some(live.most().bytes().round() as u64);
    for (place, sites) in heap {
        let bytes = |look: &Look| sites.iter().map(|&site| look.of(site)).sum::<f64>().round() as u64;
        let object = &mut profile.objects[place.index()];
        object.live_at_peak_bytes = Some(bytes(live.most()));
        object.live_at_end_bytes = Some(bytes(live.last()));
    }
}

/// As many slices as what was seen is good for.
fn slices(profile: &Profile, recording: &Recording) -> Vec<Slice> {
    /// Of so many samples a slice says something, and of so many bursts.
    const SAMPLES: u64 = 20;
    const BURSTS: u64 = 3;
    const LONGEST_NS: u64 = 1 << 58;
    let Some((began_ns, last_ns)) = recording.times_ns() else { return Vec::new() };
    let good_for = match recording.bursts() {
        Some(bursts) => bursts.counts().bursts / BURSTS,
        None => recording.counts().samples / SAMPLES,
    };
    let length = last_ns - began_ns;
    // More than steps that are told apart would say nothing more.
    let count = good_for.clamp(1, MOST_STEPS as u64);
    // Nothing is recorded for ten years: times of a damaged file are not.
    if length == 0 || length > LONGEST_NS || profile.objects.is_empty() {
        return Vec::new();
    }
    let edge = |at: u64| (u128::from(length) * u128::from(at) / u128::from(count)) as u64;
    (0..count).map(|at| Slice { begin: edge(at), end: edge(at + 1) }).collect()
}
