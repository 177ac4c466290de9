//! Prefetches put into a process that runs, tried there, and taken out again where they gain nothing.
//!
//! ```text
//!  insert:   place near each module ─► all detours' code, each for every task ─► jumps, while all threads are stopped
//!  measure:  slots ─► the process runs a stretch with, a stretch without, … ─► executions in its processor time
//!  keep:     the jumps lead straight to the code with prefetches, without counters        withdraw: the code as it was
//! ```
//!
//! The code of a detour is that of [`memlens_prefetch`]; what holds there holds here. A thread that was in the loop when
//! the jump was written goes on in the program's own code until it comes to the jump.
//!
//! # What a gain is
//!
//! With and without are compared in detours that count, and a detour costs something by itself. So in every round
//! there is a stretch in which the detours count and jump once more than they need to; what that costs is taken from the time without. The
//! change that is told is then that from the program's own code to detours *with* their counters: a little less than
//! is gained, since what stays has none.

mod meter;
mod region;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memlens_agent_host::{
    AgentError, Changed, CodeChange, InjectError, Made, WalkStack, change_code, map_code, proc_folder,
};
use memlens_prefetch::{EncodeError, Task};
use thiserror::Error;

use crate::elf::ElfFacts;
use crate::prefetch_choice::Group;
use crate::prefetching::Applied;
use crate::statistics::{Estimate, median};
use meter::{ProcessClock, Stretch, weights};
use region::{
    CODE_AT, DATA_BYTES, JUMP_BYTES, MOST_DETOURS, NAME, PAGE_BYTES, Region, changes, free_places, jump,
};

/// Places that are tried for a region.
const PLACES: usize = 16;
const ALIGNMENT: u64 = 16;
/// Of the time: until distances have been tried, and until detours have been left out one by one.
const PHASES: [f64; 2] = [0.3, 0.5];
/// Detours that are tried without, at most.
const MAX_LEFT_OUT: usize = 6;
/// A detour without which the process is faster by more is left out.
const LEAST_GAIN: f64 = 0.01;
/// Rounds that say something, at least.
const LEAST_ROUNDS: usize = 6;
/// Rounds of the last phase, at most.
const MOST_ROUNDS: usize = 500;

/// Why nothing can be put into a running process. Reads after "failed to".
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OnlineError {
    /// It cannot be let in.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// Its code cannot be changed.
    #[error(transparent)]
    Inject(#[from] InjectError),
    /// A detour cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// Its memory cannot be looked at.
    #[error("look at process {0}: {1}")]
    Look(u32, io::Error),
    /// Its code cannot be changed back.
    #[error(
        "{1}; its detours are still in place, and do nothing; take them out with: memlens apply --prefetch --pid {0} \
         --withdraw"
    )]
    Left(u32, InjectError),
    /// The processor cannot count without changing flags.
    #[error("measure prefetches in a running process: the processor has no BMI2")]
    Processor,
}

/// A part of a process's memory that a file backs.
struct Mapping {
    range: (u64, u64),
    is_start: bool,
    is_executable: bool,
    path: String,
}

fn mappings(pid: u32) -> Result<Vec<Mapping>, OnlineError> {
    // Names are bytes, of which not all are UTF-8.
    let text = fs::read(proc_folder(pid).join("maps")).map_err(|error| OnlineError::Look(pid, error))?;
    let mapping = |line: &str| {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let hexadecimal = |digits| u64::from_str_radix(digits, 16).ok();
        let is_executable = words.next()?.contains('x');
        let is_start = hexadecimal(words.next()?)? == 0;
        let path = words.nth(2).unwrap_or_default().trim_start().to_owned();
        Some(Mapping { range: (hexadecimal(start)?, hexadecimal(end)?), is_start, is_executable, path })
    };
    Ok(String::from_utf8_lossy(&text).lines().filter_map(mapping).collect())
}

fn memory(pid: u32) -> Result<File, OnlineError> {
    File::open(proc_folder(pid).join("mem")).map_err(|error| OnlineError::Look(pid, error))
}

/// A detour in a process.
#[derive(Debug)]
struct Inserted {
    /// Index of its group.
    group: usize,
    /// Index of its region, and of the detour there.
    region: usize,
    detour: usize,
    /// Where its jump is, what stood there, and what stands there now.
    place: u64,
    original: [u8; JUMP_BYTES],
    now: [u8; JUMP_BYTES],
    /// Where instructions began inside of that.
    inner: Vec<u64>,
    /// Addresses of its code by task: [`Job::index`].
    codes: Vec<u64>,
}

/// What a detour does in a stretch, or for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    /// Nothing.
    Idle,
    /// Counts.
    Count,
    /// Counts, and does once more what a detour costs.
    Twice,
    /// Counts and prefetches, with the distance of this index.
    Prefetch(usize),
    /// Prefetches.
    Only(usize),
}

impl Job {
    fn index(self) -> usize {
        match self {
            Self::Idle => 0,
            Self::Count => 1,
            Self::Twice => 2,
            Self::Prefetch(at) => 3 + 2 * at,
            Self::Only(at) => 4 + 2 * at,
        }
    }

    fn all(distances: usize) -> impl Iterator<Item = Self> {
        let ahead = (0..distances).flat_map(|at| [Self::Prefetch(at), Self::Only(at)]);
        [Self::Idle, Self::Count, Self::Twice].into_iter().chain(ahead)
    }
}

/// Detours in a running process. Where they are not kept, they are taken out again when this is dropped.
#[derive(Debug)]
pub struct Online {
    pid: u32,
    clock: ProcessClock,
    distances: Vec<u32>,
    shares: Vec<f64>,
    applied: Vec<Applied>,
    inserted: Vec<Inserted>,
    regions: Vec<Region>,
    stops: Stops,
}

/// How the process's threads were stopped, all at once, so that its code could be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stops {
    /// How often.
    pub count: u32,
    /// For how long at most.
    pub longest: Duration,
}

impl Stops {
    fn add(&mut self, changed: &Changed) {
        self.count += changed.tries;
        self.longest = self.longest.max(changed.pause);
    }
}

/// What has become of prefetches that were to be kept, or taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// How many of their jumps were found and changed.
    pub changed: usize,
    /// How many were not there any more: the process executes another program, or somebody else has taken them out.
    pub missing: usize,
    /// All stops since the begin.
    pub stops: Stops,
}

/// What trying came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trying {
    /// Processor time with each distance, as a part of that without.
    pub tried: BTreeMap<u32, f64>,
    /// The one that was taken.
    pub distance: u32,
    /// Groups that were measured in the end, and those left out because the process was faster without.
    pub kept: Vec<usize>,
    /// As above.
    pub left_out: Vec<usize>,
    /// What detours that count cost, at most, over the processor time with them: taken from the time without. From 1 on
    /// nothing can be told.
    pub own_cost: f64,
    /// Change of the processor time, from the program's own code.
    pub change: Option<Estimate>,
    /// Rounds that it comes from.
    pub rounds: usize,
    /// Executions of each group's detour.
    pub executions: Vec<u64>,
    /// Processor time in all stretches, in seconds.
    pub cpu_seconds: f64,
    /// Whether the process ended.
    pub has_ended: bool,
}

/// Whether the processor has what detours are made of.
fn can_run_detours() -> bool {
    #[cfg(target_arch = "x86_64")]
    let can = std::arch::is_x86_feature_detected!("bmi2");
    #[cfg(not(target_arch = "x86_64"))]
    let can = false;
    can
}

impl Trying {
    /// Whether the prefetches are a gain that can be told from chance.
    pub fn is_gain(&self) -> bool {
        self.change.is_some_and(|change| change.coverage >= 0.95 && change.high < 0.0)
    }
}

impl Online {
    /// Puts detours for some groups into a process, which count and do nothing else. `walk` follows stacks of its threads.
    ///
    /// # Errors
    /// See [`OnlineError`]; the process is as it was then, but for some memory.
    pub fn insert(
        pid: u32,
        groups: &[Group],
        distances: &[u32],
        walk: &mut WalkStack<'_>,
    ) -> Result<Self, OnlineError> {
        if !can_run_detours() {
            return Err(OnlineError::Processor);
        }
        let mut online = Self {
            pid,
            clock: ProcessClock::of(pid).map_err(|error| OnlineError::Look(pid, error))?,
            distances: distances.to_vec(),
            shares: groups.iter().map(Group::share).collect(),
            applied: vec![Applied::NotLoaded; groups.len()],
            inserted: Vec::new(),
            regions: Vec::new(),
            stops: Stops::default(),
        };
        let mut modules: BTreeMap<&Path, Vec<usize>> = BTreeMap::new();
        for (at, group) in groups.iter().enumerate() {
            modules.entry(&group.module).or_default().push(at);
        }
        for (module, wanted) in modules {
            online.lay_out(module, &wanted, groups, walk)?;
        }
        let wanted: Vec<CodeChange> = online
            .inserted
            .iter()
            .map(|inserted| CodeChange {
                address: inserted.place,
                before: inserted.original.to_vec(),
                after: inserted.now.to_vec(),
                inner: inserted.inner.clone(),
            })
            .collect();
        if wanted.is_empty() {
            return Ok(online);
        }
        // Nothing is to be taken out again if that fails.
        let inserted = std::mem::take(&mut online.inserted);
        let changed = change_code(pid, &wanted)?;
        online.stops.add(&changed);
        for (inserted, made) in inserted.into_iter().zip(changed.made) {
            online.applied[inserted.group] = match made {
                Made::Yes => Applied::Yes,
                Made::OtherCode => Applied::OtherCode,
                Made::TooMuchMemory => Applied::TooMuchMemory,
            };
            if made == Made::Yes {
                online.inserted.push(inserted);
            }
        }
        Ok(online)
    }

    /// Writes the code of a module's groups to a new region near it.
    fn lay_out(
        &mut self,
        module: &Path,
        wanted: &[usize],
        groups: &[Group],
        walk: &mut WalkStack<'_>,
    ) -> Result<(), OnlineError> {
        let pid = self.pid;
        let all = mappings(pid)?;
        let of_module: Vec<&Mapping> =
            all.iter().filter(|mapping| Path::new(&mapping.path) == module).collect();
        let Some(start) = of_module.iter().find(|mapping| mapping.is_start) else { return Ok(()) };
        let facts = ElfFacts::of(module).map_err(|error| OnlineError::Look(pid, error))?;
        let bias = start.range.0.wrapping_sub(facts.first_svma);
        let end = of_module.iter().map(|mapping| mapping.range.1).max().unwrap_or(start.range.1);
        let memory = memory(pid)?;
        let mut fitting = Vec::new();
        for &at in wanted {
            let detour = &groups[at].detour;
            let place = bias.wrapping_add(detour.address);
            let mut found = vec![0; detour.displaced.len()];
            let is_same = memory.read_exact_at(&mut found, place).is_ok() && found == detour.displaced;
            self.applied[at] = if facts.moves_threads {
                Applied::MovingThreads
            } else if !is_same {
                Applied::OtherCode
            } else if place % PAGE_BYTES + JUMP_BYTES as u64 > PAGE_BYTES {
                Applied::PageEnd
            } else if fitting.len() == MOST_DETOURS {
                Applied::NoMemory
            } else {
                fitting.push(at);
                Applied::NoMemory
            };
        }
        if fitting.is_empty() {
            return Ok(());
        }
        // Once for the length.
        let mut length = CODE_AT;
        for &at in &fitting {
            for job in Job::all(self.distances.len()) {
                let far = groups[at].module_end + memlens_prefetch::TRAMPOLINE_GAP;
                let code = groups[at].detour.encode_for(self.task(job, [far; 2]), far)?;
                length = (length + code.bytes.len() as u64).next_multiple_of(ALIGNMENT);
            }
        }
        // What a shorter jump here and there makes longer elsewhere.
        let code_bytes = (length + 64 * fitting.len() as u64).next_multiple_of(PAGE_BYTES);
        let taken: Vec<(u64, u64)> = all.iter().map(|mapping| mapping.range).collect();
        let places = free_places(&taken, (start.range.0, end), code_bytes + DATA_BYTES);
        let mut tries = places.into_iter().take(PLACES);
        let (region, file) = loop {
            let Some(address) = tries.next() else { return Ok(()) };
            let sizes = [code_bytes as u32, DATA_BYTES as u32];
            if let Some(file) = map_code(pid, NAME, address, sizes, walk)? {
                break (address, file);
            }
        };
        let region = Region::new(region, code_bytes, &file).map_err(|error| OnlineError::Look(pid, error))?;
        let mut used = CODE_AT;
        for (detour, &at) in fitting.iter().enumerate() {
            let group = &groups[at];
            let place = bias.wrapping_add(group.detour.address);
            let mut codes = Vec::new();
            for job in Job::all(self.distances.len()) {
                let address = region.address + used;
                let tables = region.tables(detour).map(|table| table.wrapping_sub(bias));
                let code = group.detour.encode_for(self.task(job, tables), address.wrapping_sub(bias))?;
                region.write(used, &code.bytes);
                codes.push(address);
                used = (used + code.bytes.len() as u64).next_multiple_of(ALIGNMENT);
            }
            region.lead(detour, codes[Job::Count.index()]);
            let Some(now) = jump(place, region.stub(detour)) else { continue };
            region.note(detour, place, &group.detour.displaced);
            let mut original = [0; JUMP_BYTES];
            original.copy_from_slice(&group.detour.displaced[..JUMP_BYTES]);
            let region = self.regions.len();
            let inner = group.detour.inner().into_iter().map(|start| bias.wrapping_add(start)).collect();
            self.inserted.push(Inserted { group: at, region, detour, place, original, now, inner, codes });
        }
        self.regions.push(region);
        Ok(())
    }

    fn task(&self, job: Job, [counters, other]: [u64; 2]) -> Task {
        let ahead = |at: usize| Some(self.distances[at]);
        match job {
            Job::Idle => Task::default(),
            Job::Count => Task { counters: Some(counters), ..Task::default() },
            Job::Twice => Task { counters: Some(counters), twice: Some(other), distance: None },
            Job::Prefetch(at) => Task { counters: Some(counters), distance: ahead(at), twice: None },
            Job::Only(at) => Task { distance: ahead(at), ..Task::default() },
        }
    }

    /// What became of each group.
    pub fn applied(&self) -> &[Applied] {
        &self.applied
    }

    /// From now on each detour does this.
    fn lead(&self, job: impl Fn(usize) -> Job) {
        for inserted in &self.inserted {
            let code = inserted.codes[job(inserted.group).index()];
            self.regions[inserted.region].lead(inserted.detour, code);
        }
    }

    fn lead_all(&self, inserted: &[Inserted], job: Job) {
        for inserted in inserted {
            self.regions[inserted.region].lead(inserted.detour, inserted.codes[job.index()]);
        }
    }

    fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.shares.len()];
        for inserted in &self.inserted {
            counts[inserted.group] = self.regions[inserted.region].count(inserted.detour);
        }
        counts
    }

    /// Lets the process run in turns with each of some ways to do it, each once a round. False: it has ended.
    fn rounds<J: Fn(usize) -> Job>(&self, ways: &[J], limits: &mut Limits<'_>) -> (Vec<Vec<Stretch>>, bool) {
        let mut rounds: Vec<Vec<Stretch>> = Vec::new();
        let mut number = 0;
        while !limits.are_reached(rounds.len()) {
            let mut round: Vec<Option<Stretch>> = vec![None; ways.len()];
            for step in 0..ways.len() {
                // Each is first once in a while, and the order turns round.
                let at = (number + step) % ways.len();
                let at = if number % 2 == 0 { at } else { ways.len() - 1 - at };
                self.lead(&ways[at]);
                let Some(stretch) = self.clock.stretch(|| self.counts()) else { return (rounds, false) };
                round[at] = Some(stretch);
            }
            number += 1;
            let round: Vec<Stretch> = round.into_iter().flatten().collect();
            // Idle, or busy with something else: nothing is lost by it but time.
            if round.iter().all(|stretch| stretch.tells() && stretch.counts.iter().any(|&count| count > 0)) {
                rounds.push(round);
            }
        }
        (rounds, true)
    }

    /// Tries distances, then without each group, then measures, for so long. `is_over` ends it sooner.
    pub fn measure(&self, time: Duration, mut is_over: impl FnMut() -> bool) -> Trying {
        let begun = Instant::now();
        let mut trying = Trying {
            kept: self.inserted.iter().map(|inserted| inserted.group).collect(),
            ..Trying::default()
        };
        trying.kept.sort_unstable();
        trying.executions = vec![0; self.shares.len()];
        let mut all: Vec<Stretch> = Vec::new();
        let mut take = |trying: &mut Trying, (rounds, is_alive): &(Vec<Vec<Stretch>>, bool)| {
            trying.has_ended |= !is_alive;
            all.extend(rounds.iter().flatten().cloned());
            weights(&all, &self.shares)
        };
        let mut limits = Limits { soft: begun, hard: begun + time, is_over: &mut is_over };
        let mut best = 0;
        if self.distances.len() > 1 {
            let ways: Vec<_> = std::iter::once(Job::Count)
                .chain((0..self.distances.len()).map(Job::Prefetch))
                .map(|job| move |_| job)
                .collect();
            let tried = self.rounds(&ways, limits.until(begun + time.mul_f64(PHASES[0])));
            let (weights, rounds) = (take(&mut trying, &tried), tried.0);
            for (at, &distance) in self.distances.iter().enumerate() {
                let ratio = median(&ratios(&rounds, at + 1, 0, &weights)).unwrap_or(1.0);
                trying.tried.insert(distance, ratio);
            }
            let price = |at: &usize| trying.tried[&self.distances[*at]];
            best = (0..self.distances.len())
                .min_by(|first, second| price(first).total_cmp(&price(second)))
                .unwrap_or(0);
        }
        trying.distance = self.distances.get(best).copied().unwrap_or(0);
        let candidates = trying.kept.clone();
        if !trying.has_ended && candidates.len() > 1 && candidates.len() <= MAX_LEFT_OUT {
            let without = |left_out: Option<usize>| {
                move |group: usize| if Some(group) == left_out { Job::Count } else { Job::Prefetch(best) }
            };
            let ways: Vec<_> =
                std::iter::once(None).chain(candidates.iter().copied().map(Some)).map(without).collect();
            let tried = self.rounds(&ways, limits.until(begun + time.mul_f64(PHASES[1])));
            let (weights, rounds) = (take(&mut trying, &tried), tried.0);
            for (at, &group) in candidates.iter().enumerate() {
                let ratio = median(&ratios(&rounds, at + 1, 0, &weights)).unwrap_or(1.0);
                if ratio < 1.0 - LEAST_GAIN {
                    trying.left_out.push(group);
                }
            }
            if trying.left_out.len() == candidates.len() {
                trying.left_out.remove(0);
            }
            trying.kept.retain(|group| !trying.left_out.contains(group));
        }
        if !trying.has_ended && !trying.kept.is_empty() {
            let kept = trying.kept.clone();
            let of_kept = |job: Job| {
                let kept = &kept;
                move |group: usize| if kept.contains(&group) { job } else { Job::Count }
            };
            let ways = [Job::Count, Job::Twice, Job::Prefetch(best)].map(of_kept);
            let tried = self.rounds(&ways, limits.until(begun + time));
            let (weights, rounds) = (take(&mut trying, &tried), tried.0);
            // What did not run is not known to gain anything.
            trying.kept.retain(|&group| rounds.iter().flatten().any(|stretch| stretch.counts[group] > 0));
            let cost = Estimate::of_ratios(&ratios(&rounds, 1, 0, &weights));
            // The most that it can be.
            trying.own_cost = cost.map_or(0.0, |cost| cost.high.max(0.0));
            let without = 1.0 - trying.own_cost;
            if without > 0.0 {
                let with: Vec<f64> =
                    ratios(&rounds, 2, 0, &weights).into_iter().map(|ratio| ratio / without).collect();
                trying.rounds = with.len();
                trying.change = Estimate::of_ratios(&with);
            }
        }
        self.lead(|_| Job::Idle);
        for stretch in &all {
            trying.cpu_seconds += stretch.cpu;
            trying.executions.iter_mut().zip(&stretch.counts).for_each(|(sum, count)| *sum += count);
        }
        trying
    }

    /// Leaves prefetches of some groups in the process for as long as it lives, and takes the others out.
    ///
    /// # Errors
    /// If its code cannot be changed: then the detours are there, and do nothing.
    pub fn keep(mut self, trying: &Trying) -> Result<Left, OnlineError> {
        let at = self.distances.iter().position(|&distance| distance == trying.distance).unwrap_or(0);
        let is_kept = |group: usize| trying.kept.contains(&group);
        // Forked children have jumps of their own, which lead to what stays, or to nothing.
        self.lead(|group| if is_kept(group) { Job::Only(at) } else { Job::Idle });
        self.replace(|inserted| {
            let code = inserted.codes[Job::Only(at).index()];
            // Where that is too far the stub leads there.
            let straight = jump(inserted.place, code).unwrap_or(inserted.now);
            if is_kept(inserted.group) { straight } else { inserted.original }
        })
    }

    /// Takes all detours out of the process. What stays is some memory, and what children have that it forked meanwhile:
    /// detours that do nothing.
    ///
    /// # Errors
    /// If its code cannot be changed: then the detours are there, and do nothing.
    pub fn withdraw(mut self) -> Result<Left, OnlineError> {
        self.take_out()
    }

    fn take_out(&mut self) -> Result<Left, OnlineError> {
        self.lead(|_| Job::Idle);
        self.replace(|inserted| inserted.original)
    }

    /// Puts something else in the place of all jumps. Whatever becomes of that, it is not tried again.
    fn replace(&mut self, by: impl Fn(&Inserted) -> [u8; JUMP_BYTES]) -> Result<Left, OnlineError> {
        let inserted = std::mem::take(&mut self.inserted);
        if inserted.is_empty() {
            return Ok(Left { stops: self.stops, ..Left::default() });
        }
        let changes: Vec<CodeChange> = inserted
            .iter()
            .map(|inserted| CodeChange {
                address: inserted.place,
                before: inserted.now.to_vec(),
                after: by(inserted).to_vec(),
                inner: Vec::new(),
            })
            .collect();
        let changed = match change_code(self.pid, &changes) {
            Ok(changed) => changed,
            // With the process its code is gone.
            Err(error) if error.is_gone() => {
                return Ok(Left { changed: 0, missing: inserted.len(), stops: self.stops });
            }
            Err(error) => {
                self.lead_all(&inserted, Job::Idle);
                return Err(OnlineError::Left(self.pid, error));
            }
        };
        self.stops.add(&changed);
        let made = changed.made.iter().filter(|&&made| made == Made::Yes).count();
        Ok(Left { changed: made, missing: changes.len() - made, stops: self.stops })
    }
}

impl Drop for Online {
    fn drop(&mut self) {
        // Nobody is left to be told: the detours are there, and do nothing.
        let _ = self.take_out();
    }
}

/// How long rounds go on.
struct Limits<'a> {
    /// If there are enough rounds.
    soft: Instant,
    /// In any case.
    hard: Instant,
    is_over: &'a mut dyn FnMut() -> bool,
}

impl Limits<'_> {
    fn until(&mut self, soft: Instant) -> &mut Self {
        self.soft = soft;
        self
    }

    fn are_reached(&mut self, rounds: usize) -> bool {
        let now = Instant::now();
        (self.is_over)()
            || rounds >= MOST_ROUNDS
            || now >= self.hard
            || now >= self.soft && rounds >= LEAST_ROUNDS
    }
}

/// What one way took in each round over what another took.
fn ratios(rounds: &[Vec<Stretch>], way: usize, other: usize, weights: &[f64]) -> Vec<f64> {
    let price = |round: &[Stretch], way: usize| round[way].price(weights);
    let ratio = |round: &Vec<Stretch>| Some(price(round, way)? / price(round, other)?);
    rounds.iter().filter_map(ratio).filter(|ratio| ratio.is_finite() && *ratio > 0.0).collect()
}

/// Takes all detours out of a process, whoever put them there. How many there were.
///
/// # Errors
/// If its code cannot be changed: then they stay, all of them.
pub fn withdraw_all(pid: u32) -> Result<usize, OnlineError> {
    memlens_agent_host::check_attachable(pid)?;
    let memory = memory(pid)?;
    let ours = format!("/memfd:{NAME} ");
    let mut all = Vec::new();
    for mapping in mappings(pid)? {
        if !mapping.is_executable || !mapping.is_start || !mapping.path.starts_with(&ours) {
            continue;
        }
        let read = |address, into: &mut [u8]| memory.read_exact_at(into, address).is_ok();
        all.extend(changes(mapping.range, read).into_iter().map(|(address, now, original)| CodeChange {
            address,
            before: now.to_vec(),
            after: original.to_vec(),
            inner: Vec::new(),
        }));
    }
    if all.is_empty() {
        return Ok(0);
    }
    let changed = change_code(pid, &all)?;
    Ok(changed.made.into_iter().filter(|&made| made == Made::Yes).count())
}

/// The file that a process executes.
///
/// # Errors
/// When the kernel does not tell.
pub fn program_of(pid: u32) -> Result<PathBuf, OnlineError> {
    fs::read_link(proc_folder(pid).join("exe")).map_err(|error| OnlineError::Look(pid, error))
}
