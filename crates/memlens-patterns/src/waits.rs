//! How much of their accesses' latency operands wait: `memlens-overlap`'s answer for a profile.

use memlens_overlap::{CoreLimits, LineRates, Operand, Place, Served, Service, Source, Windows, waits};
use memlens_profile::{CodeIx, CoreInfo, Level, MachineInfo, ModuleIx, Profile};
use memlens_symbols::Module;
use memlens_types::Counts;
use rustc_hash::FxHashMap;

/// Accesses looked at that an answer needs.
const FEWEST: u64 = 16;
/// What is no more than this part of all cycles may be hidden or not.
const LITTLE: f64 = 0.01;

/// How much of its accesses' latency each row of code waits for.
#[derive(Clone, Debug)]
pub struct StallParts {
    /// By row of code, where the windows tell: 0 to 1.
    parts: Vec<Option<f64>>,
    /// The same part of all latency beyond the first level's; `None`: nothing in the windows missed.
    usual: Option<f64>,
    /// In the windows: cycles waited, all cycles, and accesses looked at.
    waited: f64,
    cycles: f64,
    looked_at: u64,
}

/// Goes through the windows; `None` if the machine's core is not described.
///
/// `operands`: which row of code each number of the windows' instructions is. `symbols_of`: a module of the profile as a file,
/// where it can be read. The counts of the rows of code must be there: they say what misses. Cells need not: going through windows
/// takes some tens of MB for a while where much code is executed.
pub fn stall_parts<'a>(
    profile: &Profile,
    windows: &Windows,
    operands: &[(u32, CodeIx)],
    symbols_of: &dyn Fn(ModuleIx) -> Option<&'a Module>,
) -> Option<StallParts> {
    let core = limits(profile.machine.core?);
    let with_place = operands.iter().filter_map(|&(number, code)| {
        let location = &profile.code[code.index()];
        let place = Place { module: location.module?.0, svma: location.offset };
        let served = served(&profile.machine, &location.counts.get().without_coherence());
        Some((number, Operand { place, operand: location.operand, served }))
    });
    let described: FxHashMap<u32, Operand> = with_place.collect();
    let code_of = |place: Place| {
        let symbols = symbols_of(ModuleIx(place.module))?;
        let function = symbols.function_at(place.svma)?;
        Some((function.start, symbols.code(function.start, function.end)?))
    };
    let found = waits(windows, core, &described, &code_of);
    // Of what the windows missed, or whose code is not known, as much is taken to be hidden as of the rest: hits wait for nothing.
    let hit_cycles = f64::from(profile.machine.latencies.l1_cycles);
    let (mut waited, mut beyond) = (0.0, 0.0);
    for operand in found.operands.values() {
        waited += operand.waited_cycles;
        beyond += (operand.latency_cycles - operand.accesses as f64 * hit_cycles).max(0.0);
    }
    let usual = (beyond > 0.0).then(|| (waited / beyond).min(1.0));
    // By row of code: the part of the latency that is waited for.
    let mut parts: Vec<Option<f64>> = vec![None; profile.code.len()];
    for &(number, code) in operands {
        if let Some(waited) =
            found.operands.get(&number).filter(|it| it.accesses >= FEWEST && it.latency_cycles > 0.0)
        {
            parts[code.index()] = Some(waited.waited_cycles / waited.latency_cycles);
        }
    }
    let looked_at = found.operands.values().map(|operand| operand.accesses).sum();
    Some(StallParts { parts, usual, waited, cycles: found.cycles, looked_at })
}

impl StallParts {
    /// Fills the stall cycles of the profile's cells, and all other counts from these ([`Profile::sum_cells`]); and the core's cycles
    /// in all.
    pub fn add_to(&self, profile: &mut Profile) {
        let hit_cycles = f64::from(profile.machine.latencies.l1_cycles);
        let (mut of_own, mut of_all_others, mut unknown) = (0.0, 0.0, 0.0);
        let (machine, cells) = (&profile.machine, &mut profile.cells);
        for cell in cells {
            let counts = cell.counts.get();
            let all = machine.wait_cycles(&counts);
            let of_others =
                counts.shared.coherence_misses.saturating_mul(machine.transfer_cycles().into()).min(all);
            let wait = all - of_others;
            let stalled = match self.parts.get(cell.code.index()).copied().flatten() {
                Some(part) => wait as f64 * part,
                None => {
                    let beyond = (wait as f64 - counts.waiting() as f64 * hit_cycles).max(0.0);
                    unknown += if self.usual.is_none() { beyond } else { 0.0 };
                    beyond * self.usual.unwrap_or(1.0)
                }
            };
            of_own += stalled;
            // The windows are of one core. A line that another core wants is gone again before the next use of it, and stores are written one
            // behind the other: of what cores take from each other nothing is hidden.
            of_all_others += of_others as f64;
            let stall_cycles = stalled.round() as u64 + of_others;
            cell.counts.change(|counts| counts.stall_cycles = stall_cycles);
        }
        profile.sum_cells();
        // As many times as the windows' stalls are in the run's, or their accesses where nothing waits.
        let by_accesses = profile.totals().accesses() as f64 / self.looked_at.max(1) as f64;
        let times = if self.waited > 0.0 { (of_own - unknown) / self.waited } else { by_accesses };
        // Where nothing in the windows missed, but other accesses did, it is not known how much of that is hidden.
        let is_known = unknown <= LITTLE * by_accesses * self.cycles && times > 0.0;
        if is_known && self.looked_at > 0 && self.cycles > 0.0 && self.waited <= self.cycles {
            let cycles = times * self.cycles + of_all_others;
            profile.run.core_cycles = Some(cycles.round() as u64);
        } else if profile.totals().accesses() > 0 {
            profile.attribution.notes.push(
                "How much of the wait other work hides is not known: what waits is code in no file (JIT), or was met too \
                 seldom. There are no stalls, and rows are ranked by the wait."
                    .to_owned(),
            );
        }
    }
}

fn limits(core: CoreInfo) -> CoreLimits {
    CoreLimits {
        width: core.width,
        window: core.window,
        scheduled: core.scheduled,
        outstanding: core.outstanding,
        stores: core.stores,
        crowded_sets: CoreInfo::CROWDED_SETS,
        lines: LineRates {
            from_own_level: core.l1_line_cycles.into(),
            from_last_level: core.llc_line_cycles.into(),
            from_memory: core.line_cycles.into(),
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

    /// Windows in which nothing missed, of a program of which a few of a million accesses do, and more wait for another core.
    fn cycles(llc_load_misses: u64, coherence_misses: u64) -> Option<u64> {
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
        let windows =
            StallParts { parts: vec![None], usual: None, waited: 0.0, cycles: 500.0, looked_at: 1000 };
        windows.add_to(&mut profile);
        assert_eq!(profile.attribution.notes.is_empty(), profile.run.core_cycles.is_some());
        profile.run.core_cycles
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
