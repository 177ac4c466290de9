//! Who is told what processes do to their memory.

use crate::format::ObjectEvent;
use crate::resimulation::{ObservedWalks, Resimulation};
use crate::system::{Advice, Mapping, System};
use memlens_sim::CoreId;
use memlens_types::AccessAttr;
use std::io::Write;
use std::ops::Range;

/// A model of memory that runs programs: it is told what their processes do.
///
/// Promises of the caller:
///
/// 1. Calls come in the order in which the processes did things, from one thread at a time.
/// 2. An object is described ([`ObjectEvent::Object`], `Site`) before memory is said to be its own.
/// 3. `prepare_fork` is followed by one `fork` or `cancel_fork` with its token.
///
/// What a model does not care about it need not take up.
pub trait MemorySystem: Send {
    /// A process accesses memory on a core.
    fn access(&mut self, pid: u32, core: CoreId, vaddr: u64, attr: AccessAttr);
    /// Object events happen together.
    fn tell_objects(&mut self, events: &[ObjectEvent]);
    /// Memory was mapped, by byte addresses; ends are taken to whole pages.
    fn map(&mut self, pid: u32, range: Range<u64>, mapping: Mapping);
    /// Memory that has not been seen as mapped before turns out to be; the heap grew.
    fn found(&mut self, pid: u32, range: Range<u64>, mapping: Mapping);
    /// Memory was unmapped.
    fn unmap(&mut self, pid: u32, range: Range<u64>);
    /// Memory was moved (`mremap`).
    fn remap(&mut self, pid: u32, old: Range<u64>, new: Range<u64>);
    /// A process advised the kernel of its memory (`madvise`).
    fn advise(&mut self, pid: u32, range: Range<u64>, advice: Advice) {
        let _ = (pid, range, advice);
    }
    /// A process is about to fork: its memory is copied now, for a child named later.
    fn prepare_fork(&mut self, parent: u32, token: u64);
    /// The forked process begins.
    fn fork(&mut self, parent: u32, token: u64, child: u32);
    /// The fork failed, or the child is not watched.
    fn cancel_fork(&mut self, parent: u32, token: u64);
    /// The process ended, or executes another program.
    fn end_process(&mut self, pid: u32);

    /// Whether anything is known to be mapped at an address: then it need not be `found`.
    fn knows(&self, pid: u32, addr: u64) -> bool {
        let _ = (pid, addr);
        true
    }

    /// So many instructions were executed.
    fn advance(&mut self, instructions: u64) {
        let _ = instructions;
    }

    /// So many threads run from now on.
    fn set_running(&mut self, threads: u64) {
        let _ = threads;
    }

    /// Whether what happens from now on is to be recorded.
    fn set_recording(&mut self, is_on: bool) {
        let _ = is_on;
    }
}

impl<W: Write + Send> MemorySystem for System<W> {
    #[inline]
    fn access(&mut self, pid: u32, core: CoreId, vaddr: u64, attr: AccessAttr) {
        Self::access(self, pid, core, vaddr, attr);
    }

    fn tell_objects(&mut self, events: &[ObjectEvent]) {
        Self::tell_objects(self, events);
    }

    fn map(&mut self, pid: u32, range: Range<u64>, mapping: Mapping) {
        Self::map(self, pid, range, mapping);
    }

    fn found(&mut self, pid: u32, range: Range<u64>, mapping: Mapping) {
        Self::found(self, pid, range, mapping);
    }

    fn unmap(&mut self, pid: u32, range: Range<u64>) {
        Self::unmap(self, pid, range);
    }

    fn remap(&mut self, pid: u32, old: Range<u64>, new: Range<u64>) {
        Self::remap(self, pid, old, new);
    }

    fn advise(&mut self, pid: u32, range: Range<u64>, advice: Advice) {
        Self::advise(self, pid, range, advice);
    }

    fn prepare_fork(&mut self, parent: u32, token: u64) {
        Self::prepare_fork(self, parent, token);
    }

    fn fork(&mut self, parent: u32, token: u64, child: u32) {
        Self::fork(self, parent, token, child);
    }

    fn cancel_fork(&mut self, parent: u32, token: u64) {
        Self::cancel_fork(self, parent, token);
    }

    fn end_process(&mut self, pid: u32) {
        Self::end_process(self, pid);
    }

    fn knows(&self, pid: u32, addr: u64) -> bool {
        Self::knows(self, pid, addr)
    }

    #[inline]
    fn advance(&mut self, instructions: u64) {
        Self::advance(self, instructions);
    }

    fn set_running(&mut self, threads: u64) {
        Self::set_running(self, threads);
    }

    fn set_recording(&mut self, is_on: bool) {
        Self::set_recording(self, is_on);
    }
}

impl MemorySystem for Resimulation {
    #[inline]
    fn access(&mut self, pid: u32, core: CoreId, vaddr: u64, attr: AccessAttr) {
        Self::access(self, pid, core, vaddr, attr);
    }

    fn tell_objects(&mut self, events: &[ObjectEvent]) {
        Self::tell_objects(self, events);
    }

    fn map(&mut self, pid: u32, range: Range<u64>, mapping: Mapping) {
        Self::map(self, pid, range, mapping);
    }

    fn found(&mut self, pid: u32, range: Range<u64>, mapping: Mapping) {
        if mapping.is_anonymous() {
            self.grow_heap(pid, range.start, range.end);
        }
    }

    fn unmap(&mut self, pid: u32, range: Range<u64>) {
        Self::unmap(self, pid, range);
    }

    fn remap(&mut self, pid: u32, old: Range<u64>, new: Range<u64>) {
        self.unmap(pid, old);
        self.map(pid, new, Mapping::default());
    }

    fn prepare_fork(&mut self, parent: u32, token: u64) {
        Self::prepare_fork(self, parent, token);
    }

    fn fork(&mut self, _: u32, token: u64, child: u32) {
        Self::fork(self, token, Some(child));
    }

    fn cancel_fork(&mut self, _: u32, token: u64) {
        Self::fork(self, token, None);
    }

    fn end_process(&mut self, pid: u32) {
        Self::end_process(self, pid);
    }
}

impl MemorySystem for ObservedWalks {
    #[inline]
    fn access(&mut self, pid: u32, core: CoreId, vaddr: u64, attr: AccessAttr) {
        Self::access(self, pid, core, vaddr, attr);
    }

    fn tell_objects(&mut self, events: &[ObjectEvent]) {
        Self::tell_objects(self, events);
    }

    fn map(&mut self, pid: u32, range: Range<u64>, _: Mapping) {
        self.change(pid, range);
    }

    fn found(&mut self, pid: u32, range: Range<u64>, _: Mapping) {
        self.change(pid, range);
    }

    fn unmap(&mut self, pid: u32, range: Range<u64>) {
        self.change(pid, range);
    }

    fn remap(&mut self, pid: u32, old: Range<u64>, new: Range<u64>) {
        self.change(pid, old);
        self.change(pid, new);
    }

    fn advise(&mut self, pid: u32, range: Range<u64>, _: Advice) {
        self.change(pid, range);
    }

    fn prepare_fork(&mut self, parent: u32, token: u64) {
        Self::prepare_fork(self, parent, token);
    }

    fn fork(&mut self, _: u32, token: u64, child: u32) {
        Self::fork(self, token, Some(child));
    }

    fn cancel_fork(&mut self, _: u32, token: u64) {
        Self::fork(self, token, None);
    }

    fn end_process(&mut self, pid: u32) {
        Self::end_process(self, pid);
    }
}
