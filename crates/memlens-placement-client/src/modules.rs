//! Where the plan's modules lie in this process.
//!
//! From `/proc/self/maps`, by system calls only: asking the dynamic linker would take its lock, which a thread may hold
//! that waits for one of the program's. Modules that are loaded later are looked for when a large block is allocated.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memlens_inside::{number, syscall};
use memlens_placement::{MAX_MODULES, MAX_PATH_BYTES, Module, Plan, file_start};

/// A module that is not mapped, or not known to be.
const NOWHERE: u64 = u64::MAX;
/// The file is read so often at most: some 50 µs each.
const MAX_READS: u32 = 200;

static BIASES: [AtomicU64; MAX_MODULES] = [const { AtomicU64::new(NOWHERE) }; MAX_MODULES];
static READS: AtomicU32 = AtomicU32::new(0);

/// What is added to a module's offsets; None where it is not mapped.
pub fn bias(module: u32) -> Option<u64> {
    let bias = BIASES.get(module as usize)?.load(Ordering::Relaxed);
    (bias != NOWHERE).then_some(bias)
}

/// Looks for those of a plan's modules whose place is not known.
pub fn find(plan: &Plan) {
    let all_known = (0..plan.modules().len() as u32).all(|module| bias(module).is_some());
    if !all_known && READS.fetch_add(1, Ordering::Relaxed) < MAX_READS {
        find_now(plan);
    }
}

/// The same, however often it was done.
pub fn find_now(plan: &Plan) {
    each_mapping(|line| note(line, plan.modules()));
}

/// Hands out the lines of `/proc/self/maps`.
pub fn each_mapping(mut each: impl FnMut(&[u8])) {
    // SAFETY: a constant path; read-only, closed on execve.
    let descriptor = unsafe {
        const READ_ONLY_CLOSE_ON_EXEC: usize = 0o2_000_000;
        syscall(number::OPEN, [c"/proc/self/maps".as_ptr() as usize, READ_ONLY_CLOSE_ON_EXEC, 0, 0, 0, 0])
    };
    if descriptor < 0 {
        return;
    }
    let mut lines = Lines { buffer: [0; LINE_BYTES], used: 0 };
    let mut chunk = [0_u8; 1024];
    loop {
        let arguments = [descriptor as usize, chunk.as_mut_ptr() as usize, chunk.len(), 0, 0, 0];
        // SAFETY: room for that many bytes.
        let got = unsafe { syscall(number::READ, arguments) };
        if got <= 0 {
            break;
        }
        for &byte in &chunk[..got as usize] {
            lines.push(byte, &mut each);
        }
    }
    // SAFETY: the descriptor is ours.
    unsafe { syscall(number::CLOSE, [descriptor as usize, 0, 0, 0, 0, 0]) };
}

fn note(line: &[u8], modules: &[Module]) {
    let Some((start, path)) = file_start(line) else { return };
    for (bias, module) in BIASES.iter().zip(modules) {
        if bias.load(Ordering::Relaxed) == NOWHERE && module.path() == path {
            bias.store(start.wrapping_sub(module.first_svma), Ordering::Relaxed);
        }
    }
}

/// Addresses, permissions, offset, device and inode take no more than 100 bytes.
const LINE_BYTES: usize = MAX_PATH_BYTES + 128;

/// Puts lines together; longer ones are cut.
struct Lines {
    buffer: [u8; LINE_BYTES],
    used: usize,
}

impl Lines {
    fn push(&mut self, byte: u8, each: impl FnOnce(&[u8])) {
        if byte == b'\n' {
            each(&self.buffer[..self.used]);
            self.used = 0;
        } else if let Some(place) = self.buffer.get_mut(self.used) {
            *place = byte;
            self.used += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_and_long_ones_cut() {
        let mut lines = Lines { buffer: [0; LINE_BYTES], used: 0 };
        let mut seen = Vec::new();
        for byte in [&b"ab\n\n"[..], &[b'x'; 5000], b"\nc"].concat() {
            lines.push(byte, |line| seen.push(line.to_vec()));
        }
        assert_eq!(seen, [b"ab".to_vec(), Vec::new(), vec![b'x'; LINE_BYTES]]);
    }
}
