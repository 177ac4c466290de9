//! For programs: slices as they are.

use memlens_profile::{Profile, SliceUse, Timeline};
use serde::Serialize;

/// When what was done.
#[derive(Serialize)]
pub(crate) struct Slices<'a> {
    /// `instructions` or `nanoseconds`.
    clock: &'static str,
    slices: Vec<OneSlice<'a>>,
}

#[derive(Serialize)]
struct OneSlice<'a> {
    begin: u64,
    end: u64,
    #[serde(flatten)]
    all: Amounts,
    objects: Vec<OfObject<'a>>,
}

#[derive(Serialize)]
struct OfObject<'a> {
    id: u32,
    name: &'a str,
    #[serde(flatten)]
    amounts: Amounts,
}

#[derive(Serialize)]
struct Amounts {
    cost: u64,
    dram_reads: Option<u64>,
    live_bytes: Option<u64>,
}

impl From<&SliceUse> for Amounts {
    fn from(part: &SliceUse) -> Self {
        Self { cost: part.cost, dram_reads: part.dram_reads, live_bytes: part.live_bytes }
    }
}

impl<'a> Slices<'a> {
    /// Of a profile; None: it has no slices.
    pub(crate) fn of(profile: &'a Profile) -> Option<Self> {
        let timeline = Timeline::of(profile)?;
        let both = timeline.slices.iter().zip(&timeline.whole);
        let mut slices: Vec<OneSlice<'_>> = both
            .map(|(slice, whole)| OneSlice {
                begin: slice.begin,
                end: slice.end,
                all: whole.into(),
                objects: Vec::new(),
            })
            .collect();
        for part in &profile.slice_uses {
            let object = part.object.and_then(|object| profile.objects.get(object.index()));
            if let (Some(object), Some(slice)) = (object, slices.get_mut(part.slice.index())) {
                slice.objects.push(OfObject { id: object.id, name: &object.name, amounts: part.into() });
            }
        }
        Some(Self { clock: profile.run.clock?.as_str(), slices })
    }
}
