//! The agent's part of a recording: whether it can be inside of the program, what it reports, what it lost.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use memlens_agent_host::{
    Agent, AgentError, AgentLosses, AgentOptions, AgentRecord, Attached, BurstOptions, Event,
    check_preloadable,
};
use memlens_code::Architecture;
use memlens_events::burst::{REFERENCE_WORDS, Reference};

pub use memlens_agent_host::Watch;

use crate::address_space::{mappings_of, running_mappings};
use crate::heap::HeapEvent;
use crate::record::{Record, Sample, TimedRecord};
use crate::registers::Registers;
use crate::stack_walk::stack_walk;

/// Bytes of stack that are copied with an allocation: with [`MAX_STACK_BYTES`](memlens_events::agent), what call
/// stacks of ordinary depth need.
const STACK_BYTES: u32 = 8192;

/// How often a process is looked at for new libraries.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The agent of a recording, or why there is none.
#[derive(Debug)]
pub struct AllocationSource {
    agent: Option<Agent>,
    why_not: Option<String>,
    watch: Watch,
    /// Whether the agent takes the samples.
    has_tick: bool,
    lost_ends: u64,
    /// Records whose words make no sense.
    damaged: u64,
    attached: Option<Attached>,
    /// How long a thread was stopped when the agent left.
    leaving: Option<Duration>,
    /// Files of code that were mapped when the agent last looked, and when that was.
    libraries: BTreeSet<String>,
    looked: Instant,
    /// What did not work with an attached agent.
    problem: Option<String>,
}

/// The files of a process's code.
fn libraries_of(pid: u32) -> BTreeSet<String> {
    let mappings = running_mappings(pid).unwrap_or_default().into_iter();
    mappings.filter(|mapping| mapping.is_executable).map(|mapping| mapping.name).collect()
}

impl AllocationSource {
    /// No agent, and nobody asked for one.
    pub fn none() -> Self {
        Self {
            agent: None,
            why_not: None,
            watch: Watch::Nothing,
            has_tick: false,
            lost_ends: 0,
            damaged: 0,
            attached: None,
            leaving: None,
            libraries: BTreeSet::new(),
            looked: Instant::now(),
            problem: None,
        }
    }

    /// No agent can get in, for this reason.
    pub fn impossible(why_not: impl Into<String>) -> Self {
        Self { why_not: Some(why_not.into()), ..Self::none() }
    }

    /// An agent to be preloaded into a program, if its dynamic linker does that. `tick`: processor time between
    /// two samples that the agent takes itself. `bursts`: what these begin.
    pub fn preloaded(
        program: &Path,
        watch: Watch,
        tick: Option<Duration>,
        bursts: Option<BurstOptions>,
    ) -> Self {
        if watch == Watch::Nothing && tick.is_none() {
            return Self::none();
        }
        if let Err(reason) = check_preloadable(program) {
            return Self::impossible(reason.to_string());
        }
        match Agent::new(&AgentOptions { watch, tick, stack_bytes: STACK_BYTES, bursts }) {
            Ok(agent) => Self { agent: Some(agent), watch, has_tick: tick.is_some(), ..Self::none() },
            Err(error @ AgentError::Unpack(_)) => Self::impossible(error.to_string()),
            Err(error) => Self::impossible(format!("failed to {error}")),
        }
    }

    /// An agent in a process that runs already; the rest as [`Self::preloaded`].
    ///
    /// # Errors
    /// If it cannot be brought in.
    pub fn attached(
        pid: u32,
        watch: Watch,
        tick: Option<Duration>,
        bursts: Option<BurstOptions>,
    ) -> Result<Self, AgentError> {
        let options = AgentOptions { watch, tick, stack_bytes: STACK_BYTES, bursts };
        let agent = Agent::attach(pid, &options, stack_walk(pid))?;
        let attached = agent.attached().copied();
        let libraries = libraries_of(pid);
        let has_tick = tick.is_some();
        let looked = Instant::now();
        Ok(Self { agent: Some(agent), watch, has_tick, attached, libraries, looked, ..Self::none() })
    }

    /// Lets the agent look again if libraries have been loaded since it last did.
    pub fn follow_libraries(&mut self) {
        let (Some(agent), Some(attached)) = (&mut self.agent, &self.attached) else { return };
        if self.looked.elapsed() < LOOK_EVERY {
            return;
        }
        self.looked = Instant::now();
        let libraries = libraries_of(attached.pid);
        if libraries.is_subset(&self.libraries) {
            return;
        }
        match agent.look_again() {
            Ok(_) => self.problem = None,
            Err(error) => self.problem = Some(format!("failed to {error}")),
        }
        self.attached = agent.attached().copied().or(self.attached);
        self.libraries = libraries;
    }

    /// Takes an attached agent out of action. `is_there`: whether the process is.
    pub fn leave(&mut self, is_there: bool) {
        let Some(agent) = &mut self.agent else { return };
        match agent.detach() {
            Err(error) if is_there => self.problem = Some(format!("failed to {error}")),
            Err(_) => {}
            Ok(pause) => self.leaving = Some(pause),
        }
    }

    /// Bursts for which the agent found no room, so far.
    pub fn lost_bursts(&self) -> u64 {
        self.agent.as_ref().map_or(0, |agent| agent.losses().bursts)
    }

    /// What reports of drawn blocks have cost the program so far, in seconds of its processor time; None: no blocks are drawn.
    pub fn drawing_seconds(&self) -> Option<f64> {
        let agent = self.agent.as_ref().filter(|_| matches!(self.watch, Watch::Sampled))?;
        Some(agent.drawing_cost().as_secs_f64())
    }

    /// The part of each thread's time that bursts may take from now on, 0 to 1.
    pub fn set_burst_share(&self, share: f64) {
        if let Some(agent) = &self.agent {
            agent.set_burst_share(share);
        }
    }

    /// Programs in which an agent was started: the first, and those that were executed.
    pub fn programs(&self) -> u32 {
        self.agent.as_ref().map_or(0, Agent::programs)
    }

    /// The process that is sent prompts from now on; 0: none is any more.
    pub fn set_prompted(&self, pid: u32) {
        if let Some(agent) = &self.agent {
            agent.set_prompted(pid);
        }
    }

    /// The process that has a handler for prompts; 0: none has.
    pub fn promptable(&self) -> u32 {
        self.agent.as_ref().map_or(0, Agent::promptable)
    }

    /// Whether there is an agent.
    pub fn has_agent(&self) -> bool {
        self.agent.is_some()
    }

    /// Why there is no agent, if one was asked for.
    pub fn why_not(&self) -> Option<&str> {
        self.why_not.as_deref()
    }

    /// Waits until the agent is inside of the program, at most so long.
    pub fn wait_until_inside(&self, most: Duration) {
        let began = Instant::now();
        while self.agent.as_ref().is_some_and(|agent| agent.processes() == 0) && began.elapsed() < most {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What the program's environment needs in addition or instead.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let preload = std::env::var_os("LD_PRELOAD");
        self.agent.as_ref().map(|agent| agent.variables(preload).into()).unwrap_or_default()
    }

    /// The descriptor that the program must inherit.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.agent.as_ref().map(Agent::descriptor)
    }

    /// Takes what was reported, in no order of time. Returns whether ends of blocks were lost since the last call:
    /// then those that are known may be live no more.
    pub fn drain(&mut self, mut sink: impl FnMut(TimedRecord)) -> bool {
        let Some(agent) = &mut self.agent else { return false };
        let mut damaged = 0;
        agent.drain(|record| match timed(record) {
            Some(record) => sink(record),
            None => damaged += 1,
        });
        self.damaged += damaged;
        let lost_ends = agent.losses().ends;
        std::mem::replace(&mut self.lost_ends, lost_ends) != lost_ends
    }

    /// Records that were lost so far.
    pub fn lost(&self) -> u64 {
        let AgentLosses { allocations, ends, ticks, damaged, bursts, .. } =
            self.agent.as_ref().map(Agent::losses).unwrap_or_default();
        allocations + ends + ticks + damaged + bursts + self.damaged
    }

    /// What a reader of the profile has to know, one sentence each. `watched_blocks`: how many were reported;
    /// `programs`: how many were executed.
    pub fn notes(&self, watched_blocks: u64, programs: u64) -> Vec<String> {
        let mut notes = Vec::new();
        let Some(agent) = &self.agent else {
            notes.extend(self.why_not.as_ref().map(|why| format!("Allocations were not watched: {why}.")));
            return notes;
        };
        if let Some(attached) = &self.attached {
            let again = if attached.was_there { "was let in again" } else { "was let in" };
            let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
            let mut pauses =
                format!("a thread was stopped for {:.1} ms for that", milliseconds(attached.pause));
            if let Some(leaving) = self.leaving {
                pauses += &format!(" and for {:.1} ms at the end", milliseconds(leaving));
            }
            if !attached.other_pause.is_zero() {
                pauses += &format!(", others for up to {:.2} ms", milliseconds(attached.other_pause));
            }
            notes.push(format!(
                "The agent {again} while the process ran: {} calls in {} libraries lead through it; {pauses}. Blocks \
                 that were allocated before, or by code that is linked statically or calls through pointers, are not \
                 known.",
                attached.hooked, attached.modules
            ));
        }
        notes.extend(self.problem.as_ref().map(|problem| format!("The agent in the process: {problem}.")));
        notes.extend(agent.no_bursts().map(|why| format!("There were no bursts: {why}.")));
        if agent.processes() == 0 {
            notes.push("Allocations were not watched: the dynamic linker did not load the agent.".to_owned());
        } else if agent.own_allocators() > 0 {
            notes.push(format!(
                "Allocations were not watched in {} of {} processes: the program has an allocator of its own.",
                agent.own_allocators(),
                agent.processes()
            ));
        }
        let how = match self.watch {
            Watch::Nothing => None,
            Watch::Sampled => Some("drawn by their bytes".to_owned()),
            Watch::From(bytes) => Some(format!("all of {bytes} bytes and more")),
            Watch::All => Some("all".to_owned()),
        };
        if let Some(how) = how
            && watched_blocks > 0
        {
            let others = match self.watch {
                Watch::Sampled => {
                    " The others go by the pointers that lead to them (`heap through p`); --allocations all watches every block, if the program does not allocate often."
                }
                _ => "",
            };
            notes.push(format!("Heap blocks watched ({how}): {watched_blocks}.{others}"));
        }
        // Those that the kernel reported; else those that the agent saw being executed.
        let without =
            programs.saturating_sub(agent.programs().into()).max(agent.programs_without_agent().into());
        if without > 0 {
            let what = match (without, self.has_tick) {
                (1, true) => "program ran without the agent and was not recorded",
                (1, false) => "program ran without the agent, so its allocations are not known",
                (_, true) => "programs ran without the agent and were not recorded",
                (_, false) => "programs ran without the agent, so their allocations are not known",
            };
            notes.push(format!(
                "{without} {what}: linked statically, privileged, with another libc than glibc, or executed by \
                 system(3) or popen(3)."
            ));
        }
        if agent.restricted() > 0 {
            let lost =
                if self.has_tick { "and nothing was recorded" } else { "and allocations were not watched" };
            notes.push(format!(
                "The agent left {} of {} processes, {lost} from then on: they restrict their system calls (seccomp) and \
                 might have been killed for one of its own.",
                agent.restricted(),
                agent.processes()
            ));
        }
        let losses = agent.losses();
        let counted = [
            (losses.allocations, "allocations could not be reported: memlens did not keep up"),
            (
                losses.ends,
                "ends of watched blocks could not be reported; what was known of live blocks was dropped",
            ),
            (losses.without_room, "blocks were not watched for want of room in the agent's table"),
            (losses.bursts, "bursts could not be reported: memlens did not keep up"),
            (losses.damaged + self.damaged, "of the agent's records could not be read"),
            (losses.threads_without_timer, "threads got no timer and were not sampled"),
        ];
        notes.extend(
            counted.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}.")),
        );
        notes
    }
}

/// None: it makes no sense.
fn timed(record: &AgentRecord<'_>) -> Option<TimedRecord> {
    let &AgentRecord { time_ns, pid, tid, .. } = record;
    let event = match record.event {
        Event::Allocated(allocation, stack) => HeapEvent::Allocated(allocation, stack.to_vec()),
        Event::NewMapping(mapping, stack) => HeapEvent::NewMapping(mapping, stack.to_vec()),
        Event::MappingEnded(extent) => HeapEvent::MappingEnded(extent),
        Event::MappingMoved { from, to } => HeapEvent::MappingMoved { from, to },
        Event::Freed(address) => HeapEvent::Freed(address),
        Event::Moving(address) => HeapEvent::Moving(address),
        Event::Kept(address) => HeapEvent::Kept(address),
        Event::Tick { period_ns, registers, ip, activity, stack } => {
            let sample = Sample {
                pid,
                tid,
                ip,
                period: period_ns,
                is_user: true,
                activity,
                registers: Some(Registers::new(Architecture::HOST, &registers, ip)),
                stack: stack.to_vec(),
                ..Sample::default()
            };
            return Some(TimedRecord { time_ns, record: Record::Sample(Box::new(sample)) });
        }
        Event::Block { head, references } => {
            let references = references_of(references)?;
            return Some(TimedRecord { time_ns, record: Record::Block { pid, head, references } });
        }
        Event::Burst { head, words } => {
            let record = Record::Burst { pid, tid, head: Box::new(head), words: words_of(words).collect() };
            return Some(TimedRecord { time_ns, record });
        }
        Event::Look { period_ns, ip, activity } => {
            let record = Record::Look { pid, tid, period_ns, ip, activity };
            return Some(TimedRecord { time_ns, record });
        }
        Event::Named { name } => {
            let name = String::from_utf8_lossy(name).into_owned();
            return Some(TimedRecord { time_ns, record: Record::Name { pid, tid, name, is_exec: false } });
        }
        Event::Forked { parent_pid } => {
            return Some(TimedRecord { time_ns, record: Record::Forked { pid, parent_pid } });
        }
        Event::Started { mappings } => {
            // It may have mapped more by now, or have ended.
            let mappings = running_mappings(pid)
                .unwrap_or_else(|_| mappings_of(&String::from_utf8_lossy(mappings), pid));
            return Some(TimedRecord { time_ns, record: Record::Started { pid, mappings } });
        }
        Event::Mapped { mappings } => {
            let mappings = mappings_of(&String::from_utf8_lossy(mappings), pid);
            return Some(TimedRecord { time_ns, record: Record::Mapped { pid, mappings } });
        }
    };
    Some(TimedRecord { time_ns, record: Record::Heap { pid, tid, event } })
}

fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks().0.iter().map(|&word| u64::from_ne_bytes(word))
}

fn references_of(bytes: &[u8]) -> Option<Vec<Reference>> {
    let words: Vec<u64> = words_of(bytes).collect();
    words.as_chunks::<REFERENCE_WORDS>().0.iter().map(|&words| Reference::of(words)).collect()
}
