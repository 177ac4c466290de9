//! Processes that a process makes: forked ones start from its state.

use super::unmet_names::UnmetName;
use super::{PipelineError, Process, ProcessOptions};
use crate::address_space::AddressSpace;
use crate::block_table::{BlockTable, Switch};
use crate::shadow_stack::ShadowStack;
use crate::thread::{PendingAllocation, Thread};
use memlens_events::{EventKind, ExecHow};
use memlens_objects::SiteId;
use memlens_objects::alloc_functions::AllocFunction;
use memlens_sim::MachineDescription;
use rustc_hash::FxHashMap;

/// What a process did that concerns others, in order.
pub enum FamilyEvent {
    /// It is about to fork; the child starts from this state.
    Forking {
        /// Its number for the fork.
        token: u64,
        /// What the child starts from.
        child: Box<ForkedProcess>,
    },
    /// The fork with this token is over. 0: it failed.
    Forked {
        /// Its number for the fork.
        token: u64,
        /// The child's process id, as the process sees it.
        pid: u32,
    },
    /// It, or a child that shares its memory (vfork), is about to execute a program.
    Executing {
        /// What becomes of it.
        how: ExecHow,
        /// The program, where memlens does not follow.
        program: String,
    },
}

/// What a process keeps of its relatives.
#[derive(Default)]
pub(crate) struct Family {
    follows: bool,
    events: Vec<FamilyEvent>,
    answer: Option<u64>,
    /// The thread that forked, in a forked process, until its records come.
    pub(crate) first_thread: Option<Box<Thread>>,
    exit_status: Option<i32>,
}

/// The state from which a forked process starts: everything of its parent's but what it did. May be sent
/// to another thread, unlike a [`Process`].
pub struct ForkedProcess {
    machine: MachineDescription,
    blocks: BlockTable,
    space: AddressSpace,
    merge_sites: bool,
    functions: Vec<AllocFunction>,
    switches: Vec<(String, Switch)>,
    unmet: Vec<UnmetName>,
    switch_pcs: FxHashMap<u64, Switch>,
    collecting: bool,
    stack: ShadowStack,
    pending: Vec<PendingAllocation>,
    awaiting_pointer: Option<(PendingAllocation, SiteId)>,
}

impl ForkedProcess {
    /// The process itself, with a model of its own, whose caches are empty. Opens the modules' files.
    ///
    /// # Errors
    /// As [`Process::new`].
    pub fn begin(self) -> Result<Process, PipelineError> {
        let fetches = self.blocks.fetch_rule().is_some();
        let mut process = Process::new(ProcessOptions { fetches, ..ProcessOptions::new(self.machine) })?;
        process.merge_sites = self.merge_sites;
        process.blocks = self.blocks;
        process.space = self.space;
        process.space.open_modules();
        process.functions = self.functions;
        process.switches = self.switches;
        process.unmet = self.unmet;
        process.switch_pcs = self.switch_pcs;
        process.collecting = self.collecting;
        process.has_collected = self.collecting;
        process.generation = process.space.generation();
        // The first thread's stack is known.
        process.first_thread_seen = true;
        let mut thread = Box::new(Thread::new(0, self.stack));
        thread.pending = self.pending;
        thread.awaiting_pointer = self.awaiting_pointer;
        process.family = Family { follows: true, first_thread: Some(thread), ..Family::default() };
        Ok(process)
    }
}

impl Process {
    /// Prepares for the processes that this one makes; ask for them with [`Self::take_family_events`].
    pub fn follow_children(&mut self) {
        self.family.follows = true;
    }

    /// What happened since the last call.
    pub fn take_family_events(&mut self) -> Vec<FamilyEvent> {
        std::mem::take(&mut self.family.events)
    }

    /// The status that the process gave `exit_group`; `None` before, and when it ended otherwise.
    pub fn exit_status(&self) -> Option<i32> {
        self.family.exit_status
    }

    pub(super) fn take_fork_answer(&mut self) -> Option<u64> {
        self.family.answer.take()
    }

    pub(super) fn family_event(
        &mut self,
        (thread, number): (&Thread, usize),
        kind: EventKind,
        arguments: &[u64],
    ) {
        let word = |index: usize| arguments.get(index).copied();
        match (kind, word(0)) {
            (EventKind::ProcessExit, Some(status)) => self.family.exit_status = Some((status & 0xff) as i32),
            (EventKind::Fork, Some(token)) => match word(1) {
                Some(pid) => self.family.events.push(FamilyEvent::Forked { token, pid: pid as u32 }),
                None => {
                    self.family.answer = Some(token);
                    if self.family.follows {
                        let child = Box::new(self.fork(thread, number));
                        self.family.events.push(FamilyEvent::Forking { token, child });
                    }
                }
            },
            (EventKind::Exec, how) => {
                let how = ExecHow::from_word(how.unwrap_or(0));
                let bytes: Vec<u8> = arguments.iter().skip(2).flat_map(|word| word.to_le_bytes()).collect();
                let length = word(1).map_or(0, |length| length as usize).min(bytes.len());
                let program = String::from_utf8_lossy(&bytes[..length]).into_owned();
                self.family.events.push(FamilyEvent::Executing { how, program });
            }
            _ => {}
        }
    }

    /// What a process starts from that `thread` forks now, which has this number.
    fn fork(&self, thread: &Thread, number: usize) -> ForkedProcess {
        ForkedProcess {
            machine: self.machine.clone(),
            blocks: self.blocks.clone(),
            space: self.space.fork(number),
            merge_sites: self.merge_sites,
            functions: self.functions.clone(),
            switches: self.switches.clone(),
            unmet: self.unmet.clone(),
            switch_pcs: self.switch_pcs.clone(),
            collecting: self.collecting,
            stack: thread.stack.clone(),
            pending: thread.pending.clone(),
            awaiting_pointer: thread.awaiting_pointer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_process_can_go_to_another_thread() {
        fn is_sent<T: Send>() {}
        is_sent::<ForkedProcess>();
    }
}
