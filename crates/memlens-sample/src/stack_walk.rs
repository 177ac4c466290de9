//! Stacks of a running process's threads, followed so that one can be borrowed (`memlens-inject`).

use memlens_agent_host as host;
use memlens_agent_host::WalkStack;
use memlens_code::Architecture;

use crate::address_space::{AddressSpace, running_mappings};
use crate::modules::Files;
use crate::record::Sample;
use crate::registers::Registers;
use crate::unwinder::UnwindCache;

/// Bytes of a stack that are looked at.
const STACK_BYTES: usize = 256 << 10;

/// Follows stacks of a process. The files are read now, so that no thread has to wait for that later.
pub fn stack_walk(pid: u32) -> Box<WalkStack<'static>> {
    let (mut space, mut files) = (AddressSpace::default(), Files::default());
    let (mut cache, mut frames) = (UnwindCache::default(), Vec::new());
    let look = move |space: &mut AddressSpace, files: &mut Files| {
        for mapping in running_mappings(pid).unwrap_or_default() {
            space.map(&mapping, files);
        }
    };
    look(&mut space, &mut files);
    Box::new(move |registers: &host::Registers, stack: &[u8]| {
        let sample = Sample {
            pid,
            ip: registers.ip(),
            registers: Some(Registers::new(Architecture::HOST, &registers.by_number(), registers.ip())),
            stack: stack[..stack.len().min(STACK_BYTES)].to_vec(),
            ..Sample::default()
        };
        let mut is_whole = space.unwinder().unwind(&sample, &mut cache, &mut frames);
        if !is_whole && space.in_image(registers.ip()).is_none() {
            // Perhaps a library that is new.
            look(&mut space, &mut files);
            is_whole = space.unwinder().unwind(&sample, &mut cache, &mut frames);
        }
        is_whole.then(|| frames.iter().map(|frame| frame.pc).collect())
    })
}
