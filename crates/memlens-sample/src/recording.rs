//! From records to tallies: which access each sample waits for, and what its address belongs to.
//!
//! Names are not looked up here, only numbers and svmas: that keeps up with the kernel.

use std::fs;
use std::ops::{AddAssign, Range};
use std::time::{Duration, Instant};

use memlens_code::{SampleSkid, Waits};
use memlens_events::agent::{Activity, Allocation, BurstHead};
use memlens_events::burst::{block_of, without_tag};
use memlens_objects::{SiteId, frame_key};
use memlens_profile::{CallPaths, ObjectBacking, PathId};
use memlens_symbols::GeneratedNames;
use memlens_types::Sampled;
use rustc_hash::FxHashMap;

use crate::address_space::{AddressSpace, Area, Code, Place, running_mappings};
use crate::bursts::{Bursts, Glance, Position, Surroundings};
use crate::distinct_pages::DistinctPages;
use crate::heap::{Heap, HeapEvent, Stored};
use crate::heap_blocks::BlockArea;
use crate::live_course::LiveCourse;
use crate::modules::{Files, Whereabouts};
use crate::process::thread_cpu_ns;
use crate::record::{NewMapping, Record, Sample, TimedRecord};
use crate::spot::{Found, HeapMemory, STACK_BYTES, SampleView, Spot};
use crate::unwinder::{RED_ZONE, StackFrame, UnwindCache, frame_around};
use crate::waiting_stack::{ThreadStack, WaitingStacks};
use crate::when::When;

/// The kernel keeps as much of names (proc(5), `/proc/PID/comm`).
const COMM_CHARACTERS: usize = 15;
/// A mapping that is larger is no thread's stack alone: as much, and a guard.
const LARGEST_STACK: u64 = STACK_BYTES + (64 << 10);
/// Allocation call stacks are kept to this depth, as in exact mode.
const MAX_SITE_FRAMES: usize = 256;
/// What lies further below a frame's canonical frame address is not thought to be in the frame.
const MAX_FRAME_BYTES: i64 = 1 << 20;
/// Distinct tallies before they are named and joined.
const MAX_TALLIES: usize = 1 << 18;

/// What samples are added up by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TallyKey {
    /// Which thread.
    pub thread: u32,
    /// The access's instruction; the sampled one if there is no access.
    pub code: Code,
    /// Which memory operand; None: no access.
    pub operand: Option<u8>,
    /// Where its data lies.
    pub spot: Spot,
    /// Through which calls; None: no call stack is known.
    pub path: Option<PathId>,
    /// How far into a watched block, in bytes, where that is known; of a module's variable, how far behind the spot.
    pub within: Option<u64>,
}

/// What the samples of a [`TallyKey`] add up to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// They themselves.
    pub sampled: Sampled,
    /// Cost that they stand for besides their own, on blocks like theirs that were not watched: of each
    /// sample on a block that was watched with probability p, (1 / p - 1) times its cost.
    pub unseen: f64,
    /// Where on the heap they are, if in no block that was watched.
    pub pages: DistinctPages,
    /// When their cost was.
    pub when: When,
}

impl AddAssign<&Tally> for Tally {
    fn add_assign(&mut self, other: &Tally) {
        self.sampled += &other.sampled;
        self.unseen += other.unseen;
        self.pages |= &other.pages;
        self.when.add_all(&other.when, 1.0);
    }
}

/// A thread that was sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledThread {
    /// Its process.
    pub pid: u32,
    /// Its id.
    pub tid: u32,
    /// Its name.
    pub name: Option<String>,
}

/// What was counted besides the tallies. Units: samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RecordingCounts {
    /// All.
    pub samples: u64,
    /// Their cost.
    pub cost: u64,
    /// Sum of the squares of their costs.
    pub squared_cost: f64,
    /// Stacks followed to their end.
    pub whole_stacks: u64,
    /// Others.
    pub cut_stacks: u64,
    /// Samples without user registers: taken while the kernel had none.
    pub without_registers: u64,
    /// Allocation call stacks that could not be followed to their end. Units: watched blocks.
    pub cut_sites: u64,
    /// Watched blocks that were allocated.
    pub watched_blocks: u64,
    /// Programs that were executed.
    pub programs: u64,
    /// Processes seen.
    pub processes: u32,
}

/// Everything that was seen so far.
#[derive(Debug, Default)]
pub struct Recording {
    files: Files,
    spaces: FxHashMap<u32, AddressSpace>,
    threads: Vec<SampledThread>,
    thread_numbers: FxHashMap<(u32, u32), u32>,
    names: FxHashMap<u32, String>,
    /// Threads that have just begun, and may take a name.
    young: FxHashMap<u32, Instant>,
    heap: Heap,
    paths: CallPaths<Code>,
    /// By process: the mappings that `/proc` had last.
    looked_up: FxHashMap<u32, Vec<NewMapping>>,
    /// When it may be asked again; None: at once.
    next_look_up: Option<Instant>,
    /// By process and thread, what came since its last tick.
    glances: FxHashMap<(u32, u32), Vec<Glance>>,
    /// Processes of which `/proc` has none any more, and since when.
    gone: FxHashMap<u32, Instant>,
    /// Processes that are forgotten, but for the names of code that they generated.
    generators: Vec<u32>,
    tallies: FxHashMap<TallyKey, Tally>,
    /// What ticks in loops that wait for other threads found there: processor time in ns.
    spins: FxHashMap<TallyKey, u64>,
    counts: RecordingCounts,
    cache: UnwindCache,
    frames: Vec<StackFrame>,
    /// Whether `/proc` may be asked for what a live process has mapped.
    is_live: bool,
    skid: SampleSkid,
    way: AttributionWay,
    bursts: Option<Bursts>,
    /// When the first record came, and the last.
    times_ns: Option<(u64, u64)>,
    live: LiveCourse,
    /// By thread: stack pointer and frames at its last sample, where bursts begin.
    stacks: FxHashMap<u32, ThreadStack>,
    /// Those of first threads that have not been sampled since they wait.
    waiting: WaitingStacks,
}

/// What samples are attributed by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttributionWay {
    /// The addresses that the samples' registers give, else static analysis.
    #[default]
    Addresses,
    /// The sampled instructions and static analysis alone: no register, no address, no stack.
    Static,
}

impl Recording {
    /// Nothing yet. `is_live`: the processes are running on this machine now. `skid`: how far behind
    /// what waits samples land.
    pub fn new(is_live: bool, skid: SampleSkid, way: AttributionWay) -> Self {
        Self { is_live, skid, way, ..Self::default() }
    }

    /// Files are there.
    pub fn look_in(&mut self, whereabouts: Whereabouts) {
        self.files.look_in(whereabouts);
    }

    /// Bursts will be taken in, too.
    pub fn with_bursts(self, bursts: Bursts) -> Self {
        Self { bursts: Some(bursts), ..self }
    }

    /// The last bursts of all threads stand for what is known by now: before a profile is made.
    pub fn settle(&mut self) {
        self.look_at_heap();
        if let Some(bursts) = &mut self.bursts {
            bursts.settle(None);
        }
    }

    /// What was recorded has come so far. Recordings of others begin with what was there before, at no time.
    fn is_at(&mut self, record: &TimedRecord) {
        let at_ns = record.time_ns;
        let is_timed =
            matches!(record.record, Record::Sample(_) | Record::Burst { .. } | Record::Heap { .. });
        if at_ns == 0 || !is_timed {
            return;
        }
        let (first, last) = self.times_ns.unwrap_or((at_ns, at_ns));
        self.times_ns = Some((first.min(at_ns), last.max(at_ns)));
        if self.live.is_due(at_ns) {
            self.live.look(at_ns, self.heap.live_of_sites());
        }
    }

    /// How much of the heap is live now: before some of it, or what is known of it, is gone.
    fn look_at_heap(&mut self) {
        if let Some((_, last)) = self.times_ns.filter(|_| !self.heap.is_empty()) {
            self.live.look(last, self.heap.live_of_sites());
        }
    }

    /// What bursts told, if there are any.
    pub fn bursts(&self) -> Option<&Bursts> {
        self.bursts.as_ref()
    }

    /// How far behind what waits samples land.
    pub fn skid(&self) -> SampleSkid {
        self.skid
    }

    /// A process that runs already.
    pub fn add_running(&mut self, pid: u32, mappings: &[NewMapping]) {
        let space = self.spaces.entry(pid).or_default();
        for mapping in mappings {
            space.map(mapping, &mut self.files);
        }
    }

    /// The name of a thread that runs already.
    pub fn name_thread(&mut self, tid: u32, name: String) {
        self.names.insert(tid, name);
    }

    /// Takes one record, in the order of time. Returns whether the tallies have become so many that
    /// [`Self::take_tallies`] should be called.
    pub fn take(&mut self, record: TimedRecord) -> bool {
        self.is_at(&record);
        match record.record {
            Record::Sample(sample) => self.sample(&sample, record.time_ns),
            Record::Mapping(mapping) => {
                self.spaces.entry(mapping.pid).or_default().map(&mapping, &mut self.files);
            }
            Record::Name { pid, tid, name, is_exec } => {
                if is_exec {
                    self.counts.programs += 1;
                    self.heap.forget(pid);
                    self.spaces.insert(pid, AddressSpace::default());
                }
                if let Some(&number) = self.thread_numbers.get(&(pid, tid))
                    && let Some(thread) = self.threads.get_mut(number as usize)
                {
                    thread.name = Some(name.clone());
                }
                self.names.insert(tid, name);
            }
            Record::Fork { pid, parent_pid, tid } => {
                if pid != parent_pid
                    && let Some(parent) = self.spaces.get(&parent_pid).cloned()
                {
                    self.spaces.entry(pid).or_insert(parent);
                    self.heap.forked(parent_pid, pid);
                }
                // A new thread has its parent's name until it takes another.
                self.names.remove(&tid);
            }
            Record::Exit { pid, tid } => {
                self.names.remove(&tid);
                if pid == tid {
                    self.thread_numbers.retain(|&(process, _), _| process != pid);
                }
            }
            Record::Heap { pid, tid, event } => match event {
                HeapEvent::Allocated(allocation, stack) => self.allocated(pid, tid, &allocation, &stack),
                HeapEvent::NewMapping(mapping, stack) => {
                    let (site, _) = self.site_of(pid, &mapping, &stack);
                    self.heap.mapped(pid, &mapping, site, record.time_ns);
                }
                HeapEvent::MappingEnded(extent) => self.heap.unmapped(pid, extent, record.time_ns),
                HeapEvent::MappingMoved { from, to } => self.heap.remapped(pid, from, to, record.time_ns),
                HeapEvent::Freed(address) => self.heap.freed(pid, address, record.time_ns),
                HeapEvent::Moving(address) => self.heap.moving(pid, tid, address, record.time_ns),
                HeapEvent::Kept(address) => self.heap.kept(pid, tid, address),
            },
            Record::Block { pid, head, references } => {
                if let Some(bursts) = &mut self.bursts {
                    bursts.block(pid, &head, references);
                }
            }
            Record::Burst { pid, tid, head, words } => self.burst(pid, tid, record.time_ns, &head, &words),
            Record::Look { pid, tid, period_ns, ip, activity } => {
                let thread = self.thread(pid, tid);
                tracing::trace!(pid, tid, record.time_ns, period_ns, ip, ?activity, "a look");
                let glances = self.glances.remove(&(pid, tid)).unwrap_or_default();
                if let Some(bursts) = &mut self.bursts {
                    bursts.glanced((pid, thread), glances);
                    let position = position(self.spaces.get(&pid), ip, activity);
                    bursts.look((pid, thread), record.time_ns, period_ns, position);
                }
            }
            Record::Glance { pid, tid, period_ns, ip } => {
                tracing::trace!(pid, tid, record.time_ns, ip, "a glance");
                let space = self.spaces.get(&pid);
                let in_loop = |(file, svma): (u32, u64)| {
                    self.files.get(file).is_some_and(|file| file.waits_in_loop(svma))
                };
                let activity = match space {
                    Some(space) if space.is_agents(ip) => Activity::Call,
                    Some(space) if space.in_image(ip).is_some_and(in_loop) => Activity::Spin,
                    _ => Activity::Code,
                };
                let position = position(space, ip, activity);
                self.glances.entry((pid, tid)).or_default().push(Glance {
                    time_ns: record.time_ns,
                    period_ns,
                    position,
                });
            }
            Record::Forked { pid, parent_pid } => self.forked(pid, parent_pid),
            Record::Started { pid, mappings } => self.started(pid, &mappings),
            Record::Mapped { pid, mappings } => self.add_running(pid, &mappings),
            Record::Aux(_) | Record::Lost(_) | Record::Throttled | Record::Other => {}
        }
        self.tallies.len() >= MAX_TALLIES
    }

    /// Another program runs in a process, of whose mappings nobody else reports anything.
    fn started(&mut self, pid: u32, mappings: &[NewMapping]) {
        self.counts.programs += 1;
        self.forget(&[pid]);
        self.spaces.insert(pid, AddressSpace::default());
        self.add_running(pid, mappings);
        // The first thread is the only one, and bears the program's name; what is mapped first is the program.
        let program = mappings.iter().find_map(|mapping| {
            let (_, name) = mapping.name.rsplit_once('/').filter(|_| mapping.name.starts_with('/'))?;
            Some(name.chars().take(COMM_CHARACTERS).collect())
        });
        if let Some(name) = program {
            self.names.insert(pid, name);
        }
        if let Some(&number) = self.thread_numbers.get(&(pid, pid)) {
            self.threads[number as usize].name = self.names.get(&pid).cloned();
            self.ask_name(number);
        }
    }

    /// A process was copied, of whose mappings nobody else reports anything: it has its parent's mappings and blocks, and may
    /// have ended before its own can be read.
    fn forked(&mut self, pid: u32, parent_pid: u32) {
        self.know_mappings(parent_pid);
        // An earlier process may have had its number.
        if self.spaces.contains_key(&pid) {
            self.forget(&[pid]);
        }
        if let Some(parent) = self.spaces.get(&parent_pid).cloned() {
            self.spaces.insert(pid, parent);
            self.heap.forked(parent_pid, pid);
        }
    }

    /// What was known of these processes holds no more.
    fn forget(&mut self, pids: &[u32]) {
        self.look_at_heap();
        for pid in pids {
            self.heap.forget(*pid);
            self.spaces.remove(pid);
            self.looked_up.remove(pid);
            self.glances.retain(|(of, _), _| of != pid);
            self.gone.remove(pid);
            self.waiting.forget(*pid);
            if let Some(bursts) = &mut self.bursts {
                bursts.forget(*pid);
            }
        }
        let threads = &self.threads;
        let is_forgotten =
            |number: u32| threads.get(number as usize).is_some_and(|thread| pids.contains(&thread.pid));
        self.stacks.retain(|&number, _| !is_forgotten(number));
    }

    /// Processes that something is known of, in no order.
    pub fn processes(&self) -> impl Iterator<Item = u32> {
        self.spaces.keys().copied()
    }

    /// Lets go of processes that have ended so long ago that no record of them can come any more: a server may have one
    /// for each request.
    pub fn forget_gone(&mut self) {
        const LONG_AGO: Duration = Duration::from_secs(1);
        self.young.retain(|_, since| since.elapsed() < LONG_AGO);
        let is_over = |(pid, since): (&u32, &Instant)| (since.elapsed() >= LONG_AGO).then_some(*pid);
        let over: Vec<u32> = self.gone.iter().filter_map(is_over).collect();
        if !over.is_empty() {
            // Their files outlive them, and are read when names are given.
            let has_names = |pid: &u32| GeneratedNames::of_process(*pid) != GeneratedNames::default();
            self.generators.extend(over.iter().copied().filter(has_names));
            self.forget(&over);
        }
    }

    fn burst(&mut self, pid: u32, tid: u32, time_ns: u64, head: &BurstHead, words: &[u64]) {
        tracing::debug!(pid, tid, ?head, words = words.len(), "a burst");
        self.know_mappings(pid);
        if self.is_live && self.has_unknown_memory(pid, words) {
            self.refresh_mappings(pid);
        }
        let began_reading_ns = thread_cpu_ns();
        let thread = self.thread(pid, tid);
        let glances = self.glances.remove(&(pid, tid)).unwrap_or_default();
        let Self { bursts: Some(bursts), spaces, files, heap, stacks, threads, waiting, cache, .. } = self
        else {
            return;
        };
        let space = spaces.entry(pid).or_default();
        if self.is_live && tid != pid {
            waiting.look(pid, space, cache);
        }
        let (stack, first) = (stacks.get(&thread), waiting.get(pid).filter(|_| tid != pid));
        let is_other = |number: u32| {
            let is_of = |other: &SampledThread| other.pid == pid && (first.is_none() || other.tid != pid);
            number != thread && threads.get(number as usize).is_some_and(is_of)
        };
        let sampled = stacks.iter().filter(|&(&number, _)| is_other(number)).map(|(_, stack)| stack);
        let others: Vec<&ThreadStack> = first.into_iter().chain(sampled).collect();
        // It is told of at its end, and blocks may have ended in it.
        let began_ns = time_ns.saturating_sub(head.own_ns);
        let thread_pointer = head.thread_pointer;
        let surroundings =
            Surroundings { pid, began_ns, space, files, heap, stack, others: &others, thread_pointer };
        bursts.glanced((pid, thread), glances);
        bursts.burst(thread, time_ns, head, words, &surroundings);
        bursts.took_to_read(thread_cpu_ns().saturating_sub(began_reading_ns));
    }

    /// Whether a burst was somewhere where nothing is known to be mapped, as far as some of its addresses tell.
    fn has_unknown_memory(&self, pid: u32, words: &[u64]) -> bool {
        /// Of so many words one is looked at.
        const EACH: usize = 61;
        /// Numbers of elements are no addresses; nothing is mapped below this (`vm.mmap_min_addr`).
        const LOWEST: u64 = 1 << 16;
        let space = self.spaces.get(&pid);
        let mut addresses =
            words.iter().step_by(EACH).filter(|&&word| word >= LOWEST && block_of(word).is_none());
        addresses.any(|&address| space.is_none_or(|space| !space.is_known(without_tag(address))))
    }

    fn sample(&mut self, sample: &Sample, time_ns: u64) {
        self.counts.samples += 1;
        self.counts.cost = self.counts.cost.saturating_add(sample.period);
        self.counts.squared_cost += (sample.period as f64) * (sample.period as f64);
        self.know_mappings(sample.pid);
        let thread = self.thread(sample.pid, sample.tid);
        if let Some(bursts) = self.bursts.as_mut().filter(|_| sample.activity != Activity::Code) {
            let glances = self.glances.remove(&(sample.pid, sample.tid)).unwrap_or_default();
            bursts.glanced((sample.pid, thread), glances);
            let position = position(self.spaces.get(&sample.pid), sample.ip, sample.activity);
            bursts.look((sample.pid, thread), time_ns, sample.period, position);
        }
        let (key, mut sampled, probability, address) = self.locate(thread, sample);
        if sample.activity == Activity::Spin {
            *self.spins.entry(key).or_default() += sample.period;
            return;
        }
        sampled.samples = 1;
        sampled.cost = sample.period;
        let unseen = sample.period as f64 * (1.0 / probability - 1.0);
        let mut pages = DistinctPages::default();
        if let (Spot::Heap(_), Some(address)) = (&key.spot, address) {
            pages.add(address);
        }
        let tally = self.tallies.entry(key).or_default();
        *tally += &Tally { sampled, unseen, pages, when: When::default() };
        tally.when.add(time_ns, sample.period as f64);
    }

    /// As [`Self::refresh_mappings`], unless that was done a moment ago. The kernel takes 0.85 ms to tell 200 mappings: at each of 50 looks a second
    /// they took as much of a processor as all else that was done for a server under load.
    pub fn follow_mappings(&mut self, pid: u32) {
        /// Asking takes one in so many of memlens's moments …
        const SELDOM: u64 = 200;
        /// … but they are not older than this.
        const OLDEST: Duration = Duration::from_millis(500);
        if self.next_look_up.is_none_or(|next| Instant::now() >= next) {
            let began_ns = thread_cpu_ns();
            self.refresh_mappings(pid);
            let took_ns = thread_cpu_ns().saturating_sub(began_ns);
            self.next_look_up = Some(Instant::now() + Duration::from_nanos(SELDOM * took_ns).min(OLDEST));
        }
    }

    /// Looks up the mappings of a process of which nobody reports them, and of those that were sampled besides.
    pub fn refresh_mappings(&mut self, pid: u32) {
        let others =
            self.spaces.keys().copied().filter(|other| *other != pid && !self.gone.contains_key(other));
        let others: Vec<u32> = others.collect();
        for pid in others.into_iter().chain([pid]) {
            let Ok(mappings) = running_mappings(pid) else {
                self.gone.entry(pid).or_insert_with(Instant::now);
                continue;
            };
            if self.looked_up.get(&pid) != Some(&mappings) {
                self.add_running(pid, &mappings);
                self.looked_up.insert(pid, mappings);
            }
        }
    }

    /// Asks for the mappings of a process that were not reported, because they are older than the events.
    fn know_mappings(&mut self, pid: u32) {
        if self.is_live && self.spaces.get(&pid).is_none_or(AddressSpace::is_empty) {
            let mappings = running_mappings(pid).unwrap_or_default();
            self.add_running(pid, &mappings);
        }
    }

    /// A watched block came into being.
    fn allocated(&mut self, pid: u32, tid: u32, allocation: &Allocation, stack: &[u8]) {
        let (site, area) = self.site_of(pid, allocation, stack);
        self.counts.watched_blocks += 1;
        self.heap.allocated(pid, tid, allocation, area, site);
    }

    /// The site of a watched block, and what the block lies in.
    fn site_of(&mut self, pid: u32, allocation: &Allocation, stack: &[u8]) -> (SiteId, BlockArea) {
        self.know_mappings(pid);
        let space = self.spaces.entry(pid).or_default();
        let caller = &allocation.caller;
        let is_whole = space.unwinder().unwind_call(caller, stack, &mut self.cache, &mut self.frames);
        self.counts.cut_sites += u64::from(!is_whole);
        let key = |frame: &StackFrame| match space.in_image(frame.pc) {
            Some((file, svma)) => frame_key(u16::try_from(file + 1).unwrap_or(0), svma),
            None => frame_key(0, frame.pc),
        };
        let mut keys: Vec<u64> = self.frames.iter().take(MAX_SITE_FRAMES).map(key).collect();
        // Direct recursion is folded, as exact mode does it.
        keys.dedup();
        let stored = (allocation.stored_at != 0).then(|| {
            let cfa = self.frames.first().and_then(|frame| frame.cfa);
            let offset = cfa.map(|cfa| allocation.stored_at.wrapping_sub(cfa) as i64);
            match offset.filter(|offset| (-MAX_FRAME_BYTES..0).contains(offset)) {
                Some(offset) => Some(Stored::Frame(offset)),
                None => match space.find(allocation.stored_at) {
                    Place::Image { file, svma } => Some(Stored::Image { file, svma }),
                    _ => None,
                },
            }
        });
        let site = self.heap.site(&keys, stored.flatten());
        let area = match space.find(allocation.address) {
            Place::Area(area) => BlockArea::of(&area),
            // A large one's own mapping, which is not known yet.
            _ => BlockArea::Mapping,
        };
        (site, area)
    }

    fn thread(&mut self, pid: u32, tid: u32) -> u32 {
        /// When a thread has the name that it keeps, mostly.
        const NAMED_AFTER: Duration = Duration::from_millis(100);
        if let Some(&known) = self.thread_numbers.get(&(pid, tid)) {
            if self.young.get(&known).is_some_and(|since| since.elapsed() >= NAMED_AFTER) {
                self.young.remove(&known);
                self.ask_name(known);
            }
            return known;
        }
        let number = self.threads.len() as u32;
        let name = self.names.get(&tid).cloned();
        if !self.threads.iter().any(|thread| thread.pid == pid) {
            self.counts.processes += 1;
        }
        self.threads.push(SampledThread { pid, tid, name });
        self.thread_numbers.insert((pid, tid), number);
        if self.is_live {
            self.young.insert(number, Instant::now());
            self.ask_name(number);
        }
        number
    }

    /// The name of a thread that nobody reports, from `/proc`, if it is still there.
    fn ask_name(&mut self, number: u32) {
        if let Some(thread) = self.threads.get_mut(number as usize)
            && let Ok(name) = fs::read(format!("/proc/{}/task/{}/comm", thread.pid, thread.tid))
        {
            thread.name = Some(String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned());
        }
    }

    /// Finds access, address and spot of a sample. The second value says which way it was found, the third how
    /// probable it was that a spot like this one is found, the fourth is the address, if it is known.
    fn locate(&mut self, thread: u32, sample: &Sample) -> (TallyKey, Sampled, f64, Option<u64>) {
        let (key, way, address) = self.spot(thread, sample);
        let (spot, within, probability) = match (key.spot, address) {
            (spot @ (Spot::Heap(_) | Spot::Unmapped), Some(address)) => {
                match self.heap.owner(sample.pid, address) {
                    Some(owner) => {
                        let (start, end) = owner.range;
                        let accessed = address.wrapping_add(key.within.unwrap_or(0));
                        let within = (start..end).contains(&accessed).then(|| accessed - start);
                        // A large block has a mapping for itself, which may be younger than what is known.
                        let memory = match spot {
                            Spot::Heap(memory) => memory,
                            _ => HeapMemory { area: Area::Anonymous, user: None },
                        };
                        (Spot::Block { site: owner.site, memory }, within, owner.probability)
                    }
                    None if self.is_on_stack_of(sample, &spot, address) => (Spot::Stack, None, 1.0),
                    None => (spot, None, 1.0),
                }
            }
            (spot, _) => (spot, key.within, 1.0),
        };
        (TallyKey { spot, within, ..key }, way, probability, address)
    }

    /// Whether an address of anonymous memory lies above the stack pointer in the same mapping: a stack that a thread was given.
    fn is_on_stack_of(&self, sample: &Sample, spot: &Spot, address: u64) -> bool {
        let is_anonymous = matches!(spot, Spot::Heap(HeapMemory { area: Area::Anonymous, .. }));
        let Some(registers) = sample.registers.as_ref().filter(|_| is_anonymous) else { return false };
        let low = registers.stack_pointer().wrapping_sub(RED_ZONE);
        let area = self.spaces.get(&sample.pid).and_then(|space| space.area(address));
        // Stacks that a program takes from its heap share a mapping with other data, a much larger one mostly.
        let is_of_thread = |area: &Range<u64>| area.end - area.start <= LARGEST_STACK;
        low <= address
            && area.filter(is_of_thread).is_some_and(|area| area.contains(&registers.stack_pointer()))
    }

    /// As [`Self::locate`], without the heap; the third value is the address, if it is known.
    fn spot(&mut self, thread: u32, sample: &Sample) -> (TallyKey, Sampled, Option<u64>) {
        let space = self.spaces.entry(sample.pid).or_default();
        let mut key = TallyKey {
            thread,
            code: space.code(sample.ip),
            operand: None,
            spot: Spot::CodeOnly,
            path: None,
            within: None,
        };
        let pc = sample.registers.map_or(sample.ip, |registers| registers.ip);
        if !sample.is_user {
            // The registers are those of the system call, or of whatever was interrupted.
            (key.code, key.spot) = (space.code(pc), Spot::InKernel);
            return (key, Sampled::default(), None);
        }
        if self.way == AttributionWay::Static && sample.activity == Activity::Code {
            return (key, Sampled::default(), None);
        }
        let is_whole = space.unwinder().unwind(sample, &mut self.cache, &mut self.frames);
        if let (Some(frame), Some(registers)) = (self.frames.first_mut(), &sample.registers)
            && frame.cfa.is_none()
        {
            frame.cfa = innermost_cfa(space, frame.pc, &registers.values, &self.files);
        }
        if self.bursts.is_some()
            && let Some(registers) = &sample.registers
        {
            self.stacks.insert(thread, (registers.stack_pointer(), self.frames.clone()));
        }
        let is_first = sample.tid == sample.pid;
        if is_first {
            self.waiting.runs(sample.pid);
        }
        match (is_whole, &sample.registers) {
            (true, _) => self.counts.whole_stacks += 1,
            (false, Some(_)) => self.counts.cut_stacks += 1,
            // There was none to follow.
            (false, None) => {}
        }
        // Bursts have paths of their own.
        let callers = self.frames.get(1..).filter(|_| self.bursts.is_none());
        key.path =
            callers.and_then(|callers| self.paths.intern(callers.iter().map(|frame| space.code(frame.pc))));
        let pc = if sample.is_exact { sample.ip } else { pc };
        key.code = space.code(pc);
        let in_vdso = || space.find(pc) == Place::Area(Area::Kernel);
        if space.is_agents(pc) || sample.activity == Activity::Call || in_vdso() {
            key.spot = if space.is_agents(pc) { Spot::InAgent } else { Spot::InCall };
            return (key, Sampled::default(), None);
        }
        let is_exact = sample.is_exact || sample.data_address != 0;
        let waits = space.in_image(pc).and_then(|(file, svma)| {
            Some(self.files.get(file)?.waits_for(svma, (!is_exact).then_some(self.skid)))
        });
        let waits = waits.unwrap_or(Waits::NoCode);
        let access = waits.access();
        if let Some(access) = access {
            (key.code.1, key.operand) = (access.operand.pc, Some(access.operand.operand));
        }
        let view = SampleView { sample, space, files: &self.files, frames: &self.frames };
        let found = match (sample.data_address, &sample.registers, access) {
            (0, None, _) => {
                self.counts.without_registers += 1;
                key.spot = Spot::NoRegisters;
                return (key, Sampled::default(), None);
            }
            (0, Some(registers), Some(access)) => view.computed(&access, registers, pc),
            (0, Some(_), None) => {
                key.spot = match waits {
                    Waits::Transfer => Spot::Transfer,
                    Waits::NoCode => Spot::NoCode,
                    Waits::Access(_) | Waits::Computation => Spot::Computation,
                };
                return (key, Sampled::default(), None);
            }
            (address, ..) => {
                key.operand = key.operand.or(Some(0));
                view.reported(address)
            }
        };
        let Found { mut spot, address, within, way } = found;
        if let (Spot::Stack, Some(address), true) = (&spot, address, self.is_live && !is_first) {
            self.waiting.look(sample.pid, space, &mut self.cache);
            let around = |(pointer, frames): &ThreadStack| frame_around(*pointer, frames, address);
            if let Some((_, pc, cfa)) = self.waiting.get(sample.pid).and_then(around) {
                spot = Spot::in_frame(space.code(pc), cfa, address);
            }
        }
        (TallyKey { spot, within, ..key }, way, address)
    }

    /// The call paths of the bursts' accesses, if there are bursts, else of the samples.
    pub fn paths(&self) -> &CallPaths<Code> {
        self.bursts.as_ref().map_or(&self.paths, Bursts::call_paths)
    }

    /// The files that were mapped.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// The threads that were sampled, by number.
    pub fn threads(&self) -> &[SampledThread] {
        &self.threads
    }

    /// When the first record came, and the last; None: there is none.
    pub fn times_ns(&self) -> Option<(u64, u64)> {
        self.times_ns
    }

    /// How much of the heap was live.
    pub fn live(&self) -> &LiveCourse {
        &self.live
    }

    /// What was counted.
    pub fn counts(&self) -> RecordingCounts {
        self.counts
    }

    /// The watched blocks.
    pub fn heap(&self) -> &Heap {
        &self.heap
    }

    /// What these sites map is an allocator's: see [`Heap::note_allocators`].
    pub fn note_allocators(&mut self, sites: &[SiteId]) {
        sites.iter().for_each(|&site| self.heap.note_allocators(site));
    }

    /// How the kernel backed the blocks of a site: see [`Heap::note_backing`].
    pub fn note_backing(&mut self, site: u32, backing: ObjectBacking) {
        self.heap.note_backing(site, backing);
    }

    /// The ends of watched blocks were lost: none of those that are known may be live.
    pub fn forget_blocks(&mut self) {
        self.heap.forget_all();
    }

    /// What threads look at in loops in which they wait for other threads, and for how long: processor time in ns, since the last call, in no
    /// order. In burst mode.
    pub fn take_spins(&mut self) -> Vec<(TallyKey, u64)> {
        self.spins.drain().collect()
    }

    /// The tallies since the last call, in no order.
    pub fn take_tallies(&mut self) -> Vec<(TallyKey, Tally)> {
        if self.is_live {
            // They are named next.
            self.files.read_generated(self.generators.iter().chain(self.spaces.keys()).copied());
        }
        self.tallies.drain().collect()
    }
}

/// The frame address at `pc`, where the frame is larger than what was copied of the stack, so that the return address is not known.
fn innermost_cfa(space: &AddressSpace, pc: u64, registers: &[u64], files: &Files) -> Option<u64> {
    let (file, svma) = space.in_image(pc)?;
    let rule = files.get(file)?.symbols()?.cfa_rule(svma)?;
    Some(registers.get(usize::from(rule.register))?.wrapping_add_signed(rule.offset))
}

/// Where a thread of a process is.
fn position(space: Option<&AddressSpace>, ip: u64, activity: Activity) -> Position {
    match activity {
        Activity::Code => Position::Code(ip),
        Activity::Call => Position::Waiting,
        Activity::Spin => Position::Spinning(space.map_or((None, ip), |space| space.code(ip))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_events::agent::Caller;

    /// Where an access so far behind a block's begin, while it lives or after, is thought to go. No mapping is known.
    fn spot_at(offset: u64, is_live: bool) -> Spot {
        const PID: u32 = 0x7fff_fff0;
        const START: u64 = 0x7000_0000;
        let mut recording = Recording::new(false, SampleSkid::default(), AttributionWay::default());
        let mut take = |record| recording.take(TimedRecord { time_ns: 5, record });
        let caller = Caller { ip: 0, sp: 0, bp: 0 };
        let allocation = Allocation {
            address: START,
            size_bytes: 4096,
            gap_bytes: 0,
            old_address: 0,
            stored_at: 0,
            caller,
        };
        take(Record::Heap { pid: PID, tid: PID, event: HeapEvent::Allocated(allocation, Vec::new()) });
        if !is_live {
            take(Record::Heap { pid: PID, tid: PID, event: HeapEvent::Freed(START) });
        }
        let sample = Sample {
            pid: PID,
            tid: PID,
            is_user: true,
            is_exact: true,
            data_address: START + offset,
            ..Sample::default()
        };
        take(Record::Sample(Box::new(sample)));
        recording.take_tallies().remove(0).0.spot
    }

    #[test]
    fn time_begins_with_what_has_one() {
        let mut recording = Recording::new(false, SampleSkid::default(), AttributionWay::default());
        let name = |name: &str| Record::Name { pid: 7, tid: 7, name: name.into(), is_exec: false };
        let sample = || Record::Sample(Box::new(Sample { pid: 7, tid: 7, period: 5, ..Sample::default() }));
        // As perf's files begin: what was there before has no time.
        for (time_ns, record) in
            [(0, name("a")), (3, name("b")), (900, sample()), (950, sample()), (990, name("c"))]
        {
            recording.take(TimedRecord { time_ns, record });
        }
        assert_eq!(recording.times_ns(), Some((900, 950)));
    }

    #[test]
    fn threads_that_nobody_names_have_the_name_that_the_kernel_knows() {
        let name_of = |pid: u32, tid: u32, is_live: bool, started: Option<&str>| {
            let mut recording = Recording::new(is_live, SampleSkid::default(), AttributionWay::default());
            if let Some(name) = started {
                let (length, name) = (4096, name.to_owned());
                let mapping = NewMapping {
                    pid,
                    start: 0x1000,
                    length,
                    file_offset: 0,
                    inode: 0,
                    is_executable: false,
                    is_reserved: false,
                    name,
                };
                let record = Record::Started { pid, mappings: vec![mapping] };
                recording.take(TimedRecord { time_ns: 5, record });
            }
            let number = recording.thread(pid, tid);
            recording.threads[number as usize].name.clone()
        };
        let own = std::thread::Builder::new().name("some-work".into());
        let named = own.spawn(move || {
            let own = fs::read_link("/proc/thread-self").expect("this thread");
            let tid = own.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a number");
            (name_of(std::process::id(), tid, true, None), name_of(std::process::id(), tid, false, None))
        });
        let named = named.expect("a thread").join().expect("it ends");
        assert_eq!(named, (Some("some-work".to_owned()), None));
        // There is no such process any more.
        const GONE: u32 = 0x7fff_fff0;
        assert_eq!(name_of(GONE, GONE, true, Some("/usr/bin/cc")).as_deref(), Some("cc"));
        assert_eq!(name_of(GONE, GONE + 1, true, Some("/usr/bin/cc")), None);
    }

    #[test]
    fn a_block_owns_its_addresses_before_its_mapping_is_known() {
        assert!(matches!(
            spot_at(4095, true),
            Spot::Block { memory: HeapMemory { area: Area::Anonymous, .. }, .. }
        ));
        assert_eq!((spot_at(4096, true), spot_at(4095, false)), (Spot::Unmapped, Spot::Unmapped));
    }
}
