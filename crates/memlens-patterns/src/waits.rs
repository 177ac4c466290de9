//! How much of their accesses' latency operands wait: `memlens-overlap`'s answer for a profile.

use memlens_overlap::{
    Code, CoreLimits, HeldToTime, LineRates, Operand, Place, Schedulers, Served, Service, Source, Waits,
    Windows, waits,
};
use memlens_profile::{CodeIx, CoreInfo, Level, MachineInfo, ModuleIx, NO_STALLS, Profile};
use memlens_symbols::Module;
use memlens_types::{AccessKind, Counts};
use rustc_hash::FxHashMap;

/// Accesses looked at that an answer needs.
const FEWEST: u64 = 16;
/// What is no more than this part of all cycles may be hidden or not.
const LITTLE: f64 = 0.01;

/// How much of its accesses' latency each row of code waits for.
#[derive(Clone, Debug)]
pub struct StallParts {
    /// By row of code, where the windows tell.
    parts: Vec<Option<Parts>>,
    /// The same part of all latency beyond the first level's; `None`: nothing in the windows missed.
    usual: Option<f64>,
    /// The same part of all translation.
    usual_of_translation: f64,
    /// Others than the windows of the whole run say what is usual.
    is_usual_elsewhere: bool,
    /// In the windows: cycles waited, all cycles, and accesses looked at.
    waited: f64,
    cycles: f64,
    /// If no access took time, of those looked at.
    instant: f64,
    looked_at: u64,
    /// None: they were held against no measured time.
    held: Option<HeldToTime>,
}

/// How much is waited for, 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    /// Of the latency.
    of_latency: f64,
    /// Of what translating addresses takes. None: in the windows it took nothing.
    of_translation: Option<f64>,
    /// The windows of the whole run say nothing of it, but others do.
    is_elsewhere: bool,
}

/// Goes through the windows; `None` if the machine's core is not described.
///
/// `windows`: those of the whole run, and others, more frequent ones of its begin: for what is in none of the first, if that waits for long
/// enough to matter. The tables of a program that then runs in its caches are filled there.
/// `operands`: which row of code each number of the windows' instructions is. `symbols_of`: a module of the profile as a file,
/// where it can be read. The counts of the rows of code must be there: they say what misses. Cells need not: going through windows
/// takes some tens of MB for a while where much code is executed.
pub fn stall_parts<'a>(
    profile: &Profile,
    (windows, others): (&Windows, Option<&Windows>),
    operands: &[(u32, CodeIx)],
    symbols_of: &dyn Fn(ModuleIx) -> Option<&'a Module>,
) -> Option<StallParts> {
    let core = limits(profile.machine.core?);
    // Most operands are in no window.
    let mut is_seen = vec![false; operands.iter().map(|&(number, _)| number as usize + 1).max().unwrap_or(0)];
    for number in [Some(windows), others].into_iter().flatten().flat_map(Windows::operands) {
        if let Some(is_seen) = is_seen.get_mut(number as usize) {
            *is_seen = true;
        }
    }
    let seen = operands.iter().filter(|&&(number, _)| is_seen[number as usize]);
    let with_place = seen.filter_map(|&(number, code)| {
        let location = &profile.code[code.index()];
        let place = Place { module: location.module?.0, svma: location.offset };
        let served = served(&profile.machine, &location.counts.get().without_coherence());
        Some((number, Operand { place, operand: location.operand, served }))
    });
    let described: FxHashMap<u32, Operand> = with_place.collect();
    let code_of = |place: Place| {
        let symbols = symbols_of(ModuleIx(place.module))?;
        let function = symbols.function_at(place.svma)?;
        let bytes = symbols.code(function.start, function.end)?;
        Some(Code { architecture: symbols.architecture()?, start: function.start, bytes })
    };
    let found = waits(windows, core, &described, &code_of);
    let mut parts: Vec<Option<Parts>> = vec![None; profile.code.len()];
    add_parts(&found, operands, false, &mut parts);
    let mut usual = Usual::of(&found, &profile.machine);
    let looked_at = found.operands.values().map(|operand| operand.accesses).sum();
    let waited = found.operands.values().map(|operand| operand.waited_cycles).sum();
    let Waits { cycles, instant_cycles: instant, held, .. } = found;
    // What all code waits beyond hits of which these windows say nothing.
    let rest = || {
        let of_code = profile.code.iter().zip(&parts).filter(|(_, parts)| parts.is_none());
        of_code.map(|(code, _)| beyond_hits(&profile.machine, &code.counts.get())).sum::<f64>()
    };
    let all: u64 = profile.code.iter().map(|code| code.counts.get().accesses()).sum();
    let times = all as f64 / (looked_at as f64).max(1.0);
    let mut is_usual_elsewhere = false;
    if let Some(others) = others
        && rest() > LITTLE * times * cycles
    {
        let found = waits(others, core, &described, &code_of);
        add_parts(&found, operands, true, &mut parts);
        let of_others = Usual::of(&found, &profile.machine);
        if of_others.of_latency.is_some() {
            (usual, is_usual_elsewhere) = (of_others, true);
        }
    }
    let Usual { of_latency: usual, of_translation: usual_of_translation } = usual;
    Some(StallParts {
        parts,
        usual,
        usual_of_translation,
        is_usual_elsewhere,
        waited,
        cycles,
        instant,
        looked_at,
        held,
    })
}

/// Of what windows missed, or whose code is not known, as much is taken to be hidden as of the rest: hits wait for nothing.
struct Usual {
    /// The part of all latency beyond the first level's that is waited for; `None`: nothing missed.
    of_latency: Option<f64>,
    /// The same of all translation.
    of_translation: f64,
}

impl Usual {
    fn of(found: &Waits, machine: &MachineInfo) -> Self {
        let hit_cycles = f64::from(machine.latencies.l1_cycles);
        let (mut waited, mut beyond, mut translation, mut for_translation) = (0.0, 0.0, 0.0, 0.0);
        for operand in found.operands.values() {
            waited += operand.waited_cycles;
            translation += operand.translation_cycles;
            for_translation += operand.translation_waited_cycles;
            beyond += (operand.latency_cycles - operand.accesses as f64 * hit_cycles).max(0.0);
        }
        Self {
            of_latency: part(waited, beyond),
            of_translation: part(for_translation, translation).unwrap_or(0.0),
        }
    }
}

/// The part that is waited for; `None` of nothing.
fn part(waited: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| (waited / of).min(1.0))
}

/// Fills the parts of the rows of code that have none yet, where the windows have enough of their accesses.
fn add_parts(found: &Waits, operands: &[(u32, CodeIx)], is_elsewhere: bool, parts: &mut [Option<Parts>]) {
    for &(number, code) in operands {
        let waited =
            found.operands.get(&number).filter(|it| it.accesses >= FEWEST && it.latency_cycles > 0.0);
        let (Some(waited), Some(into)) = (waited, parts.get_mut(code.index())) else { continue };
        // Of two operands in one row the last says it.
        if into.is_none_or(|known| known.is_elsewhere == is_elsewhere) {
            *into = Some(Parts {
                of_latency: waited.waited_cycles / waited.latency_cycles,
                of_translation: part(waited.translation_waited_cycles, waited.translation_cycles),
                is_elsewhere,
            });
        }
    }
}

/// What accesses wait by the model, what other cores take from them left out, beyond hits of the first level.
fn beyond_hits(machine: &MachineInfo, counts: &Counts) -> f64 {
    let (wait, _) = own_and_others(machine, counts);
    (wait - counts.waiting() as f64 * f64::from(machine.latencies.l1_cycles)).max(0.0)
}

/// What accesses wait by the model, in cycles: by themselves, and for lines of other cores.
fn own_and_others(machine: &MachineInfo, counts: &Counts) -> (f64, f64) {
    let all = machine.wait_cycles(counts);
    let of_others = counts.shared.coherence_misses.saturating_mul(machine.transfer_cycles().into()).min(all);
    ((all - of_others) as f64, of_others as f64)
}

impl StallParts {
    /// Fills the stall cycles of the profile's cells, and all other counts from these ([`Profile::sum_cells`]); and the core's cycles
    /// in all: as modelled, and no more than `measured_cycles` if the stalls have been held against what was measured.
    pub fn add_to(&self, profile: &mut Profile, measured_cycles: Option<f64>) {
        let measured = measured_cycles.zip(self.held);
        let mut cells = std::mem::take(&mut profile.cells);
        let (mut of_own, mut of_others, mut unknown, mut elsewhere) = (0.0, 0.0, 0.0, 0.0);
        let (mut accesses, mut left) = (0, 1.0);
        for cell in &mut cells {
            let mut counts = cell.counts.get();
            let stalls = self.of_cell(profile, cell.code, &counts);
            of_own += stalls.own;
            of_others += stalls.of_others;
            unknown += stalls.unknown;
            elsewhere += if stalls.is_elsewhere { stalls.own } else { 0.0 };
            accesses += counts.accesses();
            if measured.is_none() {
                stalls.fill(1.0, &mut counts);
                cell.counts = counts.into();
            }
        }
        // As many times as the windows' accesses are in the run's.
        let by_accesses = accesses as f64 / self.looked_at.max(1) as f64;
        if let Some((cycles, held)) = measured {
            // The run has no more room than the stretches, whatever bursts stand for; unless it has by its accesses.
            let room = (held.room * cycles).max(cycles - by_accesses * self.instant);
            left = (room / (of_own + of_others).max(1.0)).min(1.0);
            // What each cell waits is asked once more: kept, it would take more room than the cells.
            for cell in &mut cells {
                cell.counts.change(|counts| self.of_cell(profile, cell.code, counts).fill(left, counts));
            }
        }
        profile.cells = cells;
        profile.sum_cells();
        profile.run.has_translation_stalls = true;
        // As many times as the windows' stalls are in the run's, or their accesses where next to nothing waits.
        let times = match self.waited > LITTLE * self.cycles {
            true => (of_own - elsewhere - unknown) / self.waited,
            false => by_accesses,
        };
        // Where nothing in the windows missed, but other accesses did, it is not known how much of that is hidden.
        let is_known = unknown <= LITTLE * by_accesses * self.cycles && times > 0.0;
        if is_known && self.looked_at > 0 && self.cycles > 0.0 && self.waited <= self.cycles {
            // What nobody can explain of the measured time is as likely the code's as its stalls'.
            let cycles = match measured {
                Some((cycles, _)) => (times * self.instant + (of_own + of_others) * left).min(cycles),
                None => times * self.cycles + of_others + elsewhere,
            };
            profile.run.core_cycles = Some(cycles.round() as u64);
            let modelled = |(_, held): (f64, HeldToTime)| of_own * held.modelled_times + of_others;
            profile.run.measured_cycles = measured.map(|(cycles, _)| cycles.round() as u64);
            profile.run.modelled_stall_cycles = measured.map(|it| modelled(it).round() as u64);
        } else if accesses > 0 {
            profile.attribution.notes.push(format!(
                "How much of the wait other work hides is not known: what waits is code in no file (JIT), or was met too \
                 seldom. {NO_STALLS}"
            ));
        }
    }

    /// What a cell of this row of code waits, by its other counts.
    fn of_cell(&self, profile: &Profile, code: CodeIx, counts: &Counts) -> Stalls {
        let machine = &profile.machine;
        // A prefetch may walk page tables, but nothing waits for it.
        if profile.code.get(code.index()).is_some_and(|row| row.kind == AccessKind::Prefetch) {
            return Stalls::default();
        }
        let (wait, of_others) = own_and_others(machine, counts);
        let parts = self.parts.get(code.index()).copied().flatten();
        let (own, unknown, is_elsewhere) = match parts {
            Some(parts) => (wait * parts.of_latency, 0.0, parts.is_elsewhere),
            None => {
                let beyond = beyond_hits(machine, counts);
                let unknown = if self.usual.is_none() { beyond } else { 0.0 };
                (beyond * self.usual.unwrap_or(1.0), unknown, self.is_usual_elsewhere)
            }
        };
        // The windows are of one core. A line that another core wants is gone again before the next use of it, and stores are written one
        // behind the other: of what cores take from each other nothing is hidden.
        let part = parts.and_then(|parts| parts.of_translation).unwrap_or(self.usual_of_translation);
        let of_translation = (machine.translation_cycles(counts) as f64 * part).min(own);
        Stalls { own, of_others, of_translation, unknown, is_elsewhere }
    }
}

/// What a cell's accesses wait, in cycles.
#[derive(Clone, Copy, Debug, Default)]
struct Stalls {
    own: f64,
    /// Of its own for addresses that are translated.
    of_translation: f64,
    /// For lines of other cores.
    of_others: f64,
    /// Of its own so much of which it is not known how much is hidden.
    unknown: f64,
    /// Others than the windows of the whole run say it of its own.
    is_elsewhere: bool,
}

impl Stalls {
    /// Notes this part of them, which is left, in the counts.
    fn fill(&self, left: f64, counts: &mut Counts) {
        counts.stall_cycles = ((self.own + self.of_others) * left).round() as u64;
        counts.translation_stall_cycles = (self.of_translation * left).round() as u64;
    }
}

fn limits(core: CoreInfo) -> CoreLimits {
    CoreLimits {
        width: core.width,
        window: core.window,
        scheduled: core.scheduled,
        schedulers: Schedulers {
            integer: core.integer_scheduled,
            multiply: core.multiply_scheduled,
            vector: core.vector_scheduled,
            address: core.address_scheduled,
        },
        outstanding: core.outstanding,
        stores: core.stores,
        crowded_sets: CoreInfo::CROWDED_SETS,
        lines: LineRates {
            from_own_level: core.l1_line_cycles.into(),
            from_last_level: core.llc_line_cycles.into(),
            from_memory: core.line_cycles.into(),
            from_memory_alone: core.alone_line_cycles.into(),
            into_set_by_load: core.set_load_cycles.into(),
            into_set_by_store: core.set_store_cycles.into(),
            into_set_by_both: core.set_modify_cycles.into(),
        },
    }
}

/// How an operand's accesses were served, each miss with its part of what translation took.
fn served(machine: &MachineInfo, counts: &Counts) -> Served {
    let accesses = counts.waiting() as f64;
    if accesses == 0.0 {
        return Served::default();
    }
    // Where the lines were, whatever was prefetched.
    let levels = machine.served(&Counts { l2_prefetched: 0, llc_prefetched: 0, ..*counts });
    let [first, others @ ..] = &levels[..] else { return Served::default() };
    let misses: u64 = others.iter().map(|level| level.accesses).sum();
    let translation = machine.translation_cycles(counts) as f64 / misses.max(1) as f64;
    let of_memory = counts.llc_prefetched.min(counts.llc_misses());
    let of_last_level = counts.l2_prefetched.saturating_sub(of_memory);
    // The last level is the one before memory.
    let last_level = others.len().checked_sub(2);
    let service = |(at, level): (usize, &Level)| {
        let source = match level.is_memory {
            true => Source::Memory,
            false if Some(at) == last_level => Source::LastLevel,
            false => Source::OwnLevel,
        };
        let of_them = match source {
            Source::Memory => of_memory,
            Source::LastLevel if at > 0 => of_last_level,
            Source::LastLevel | Source::OwnLevel => 0,
        };
        Service {
            share: level.accesses as f64 / accesses,
            prefetched: (of_them as f64 / level.accesses.max(1) as f64).min(1.0),
            cycles: f64::from(level.latency_cycles) + translation,
            translation_cycles: translation,
            source,
        }
    };
    let second = others.first().map(|level| f64::from(level.latency_cycles) + translation);
    Served {
        hit_cycles: first.latency_cycles.into(),
        prefetched_cycles: second.filter(|_| machine.prefetcher_streams > 0),
        misses: others.iter().enumerate().map(service).filter(|service| service.share > 0.0).collect(),
    }
}

#[cfg(test)]
mod tests {
    use memlens_profile::{CacheInfo, Cell, CodeLocation, Latencies, Object, ObjectIx, Thread, ThreadIx};

    use super::*;

    /// A million loads of one operand, with misses.
    fn profile(llc_load_misses: u64, coherence_misses: u64) -> Profile {
        let latencies = Latencies { l1_cycles: 4, llc_cycles: 50, dram_cycles: 200, ..Latencies::default() };
        let level = |bytes| Some(CacheInfo { bytes, ways: 8, ..CacheInfo::default() });
        let (l1d, l2, llc) = (level(32 << 10), level(1 << 20), level(32 << 20));
        let machine = MachineInfo { latencies, l1d, l2, llc, ..MachineInfo::default() };
        let mut profile = Profile { machine, ..Profile::default() };
        profile.objects = vec![Object::default()];
        profile.code = vec![CodeLocation::default()];
        profile.threads = vec![Thread::default()];
        let mut counts = Counts { loads: 1_000_000, llc_load_misses, ..Counts::default() };
        (counts.l1_load_misses, counts.l2_load_misses) =
            (llc_load_misses + coherence_misses, llc_load_misses + coherence_misses);
        counts.shared.coherence_misses = coherence_misses;
        let (code, object, thread) = (CodeIx(0), ObjectIx(0), ThreadIx(0));
        profile.cells = vec![Cell { code, object, thread, counts: counts.into() }];
        profile
    }

    /// Windows in which nothing missed.
    fn without_misses() -> StallParts {
        StallParts {
            parts: vec![None],
            usual: None,
            usual_of_translation: 0.0,
            is_usual_elsewhere: false,
            waited: 0.0,
            cycles: 500.0,
            instant: 500.0,
            looked_at: 1000,
            held: None,
        }
    }

    /// Of a program of which a few of a million accesses miss all the same, and more wait for another core.
    fn cycles(llc_load_misses: u64, coherence_misses: u64) -> Option<u64> {
        let mut profile = profile(llc_load_misses, coherence_misses);
        without_misses().add_to(&mut profile, None);
        assert_eq!(profile.attribution.notes.is_empty(), profile.run.core_cycles.is_some());
        profile.run.core_cycles
    }

    #[test]
    fn nobody_waits_for_a_prefetch() {
        let mut profile = profile(100_000, 0);
        let windows = StallParts { usual: Some(0.5), waited: 100.0, ..without_misses() };
        windows.add_to(&mut profile, None);
        assert!(profile.totals().stall_cycles > 0);
        profile.code[0].kind = AccessKind::Prefetch;
        windows.add_to(&mut profile, None);
        assert_eq!(profile.totals().stall_cycles, 0);
    }

    #[test]
    fn translation_is_as_much_of_the_stalls_as_the_windows_say() {
        let mut before = profile(100_000, 0);
        before.cells[0]
            .counts
            .change(|counts| (counts.stlb_misses, counts.walk_cycles) = (50_000, 5_000_000));
        let of = |of_latency, of_translation, usual_of_translation| {
            let mut profile = before.clone();
            let parts = vec![Some(Parts { of_latency, of_translation, is_elsewhere: false })];
            let windows = StallParts { parts, usual_of_translation, waited: 100.0, ..without_misses() };
            windows.add_to(&mut profile, None);
            let totals = profile.totals();
            assert!(profile.run.has_translation_stalls);
            totals.translation_stall_cycles
        };
        assert_eq!(of(0.9, Some(0.25), 0.0), 1_250_000);
        assert_eq!(of(0.9, None, 0.5), 2_500_000, "as that of others");
        let all = of(0.01, Some(1.0), 0.0);
        assert!(all > 0 && all < 500_000, "no more than it waits: {all}");
    }

    /// 100,000 misses of 196 cycles beyond a hit, in code that only more frequent windows met, of which it waits for a quarter.
    #[test]
    fn what_other_windows_say_is_beside_what_those_of_the_run_take() {
        let wait = {
            let profile = profile(100_000, 0);
            profile.machine.wait_cycles(&profile.cells[0].counts.get())
        };
        let of = |windows: StallParts| {
            let mut profile = profile(100_000, 0);
            windows.add_to(&mut profile, None);
            (profile.totals().stall_cycles, profile.run.core_cycles)
        };
        let parts = Parts { of_latency: 0.25, of_translation: None, is_elsewhere: true };
        let told = StallParts { parts: vec![Some(parts)], ..without_misses() };
        assert_eq!(of(told.clone()), (wait / 4, Some(500_000 + wait / 4)));
        // Next to nothing waits in the run's: that is no measure of how often they are in it.
        assert_eq!(of(StallParts { waited: 1e-6, ..told }), (wait / 4, Some(500_000 + wait / 4)));
        // Nor does any window say anything of it but what others say is usual.
        let usual = StallParts { usual: Some(0.5), is_usual_elsewhere: true, ..without_misses() };
        let beyond = 100_000 * 196;
        assert_eq!(of(usual), (beyond / 2, Some(500_000 + beyond / 2)));
    }

    #[test]
    fn what_the_measured_time_has_no_room_for_goes() {
        // 100,000 misses of 196 cycles beyond a hit; a quarter of the stalls is left of a model that has half of the latency.
        let held = Some(HeldToTime { modelled_times: 4.0, room: 0.9 });
        let windows = StallParts {
            parts: vec![Some(Parts { of_latency: 0.125, ..Parts::default() })],
            usual: Some(0.125),
            usual_of_translation: 0.0,
            waited: 100.0,
            cycles: 500.0,
            held,
            ..without_misses()
        };
        let before = profile(100_000, 0);
        let wait = before.machine.wait_cycles(&before.cells[0].counts.get());
        let of = |measured_cycles| {
            let mut profile = before.clone();
            windows.add_to(&mut profile, measured_cycles);
            let totals = profile.totals();
            (totals.stall_cycles, profile.run.core_cycles, profile.run.modelled_stall_cycles)
        };
        assert_eq!(of(Some(9e6)), (wait / 8, Some(9_000_000), Some(wait / 2)));
        // It has more, which nothing explains.
        assert_eq!(of(Some(1e9)), (wait / 8, Some(6 * (wait / 8)), Some(wait / 2)));
        // Whatever stretches say: nine tenths of the time, or what the code leaves of it.
        assert_eq!(of(Some(1e6)), (900_000, Some(1_000_000), Some(wait / 2)));
        // Of another machine nothing is measured.
        let (stalls, cycles, modelled) = of(None);
        assert_eq!((stalls, modelled), (wait / 8, None));
        assert!(cycles.is_some_and(|cycles| cycles > 9_000_000), "{cycles:?}");
    }

    #[test]
    fn the_cores_cycles_are_known_where_little_else_than_other_cores_is_waited_for() {
        assert_eq!(cycles(0, 0), Some(500_000));
        // A hundredth of them: nearly nothing, whether or not it is hidden.
        assert_eq!(cycles(20, 10_000), Some(500_000 + 10_000 * 100));
        assert_eq!(cycles(20, 0), Some(500_000));
        assert_eq!(cycles(1000, 10_000), None, "1000 reads of memory may wait or not");
    }
}
