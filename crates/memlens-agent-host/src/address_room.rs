//! Whether a process with a limit of its address space (setrlimit(2), `RLIMIT_AS`) has room for the agent: what the agent takes, the program's
//! own allocations may not get any more, for as long as the process lives.

use std::fs;

use memlens_events::agent::SEGMENT_BYTES;

/// The segment, the table of watched blocks, code and data.
const AGENT_BYTES: u64 = SEGMENT_BYTES as u64 + (96 << 20);
/// The code of bursts, mapped twice, what decodes it …
const BURSTS_BYTES: u64 = 192 << 20;
/// … and for each thread what it records and runs on.
const THREAD_BYTES: u64 = 9 << 20;

/// A process that has too little, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLittle {
    /// What it may use.
    pub limit: u64,
    /// Of that, what is used.
    pub used: u64,
    /// What the agent takes.
    pub needed: u64,
}

/// In a program that this process starts. `has_bursts`: whether they are asked for, besides blocks or ticks.
///
/// # Errors
/// If it has too little.
pub fn check_child(has_bursts: bool) -> Result<(), TooLittle> {
    check(limit_of_process("self"), 0, 1, has_bursts)
}

/// In a process that runs.
///
/// # Errors
/// As [`check_child`]. Nothing is wrong with one of which nothing can be read.
pub fn check_process(pid: u32, has_bursts: bool) -> Result<(), TooLittle> {
    let pages = |text: String| text.split_ascii_whitespace().next()?.parse::<u64>().ok();
    // SAFETY: only asks.
    let page_bytes = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0);
    let pages = fs::read_to_string(format!("/proc/{pid}/statm")).ok().and_then(pages).unwrap_or(0);
    let used = pages.saturating_mul(page_bytes);
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(1, Iterator::count);
    check(limit_of_process(&pid.to_string()), used, threads as u64, has_bursts)
}

fn limit_of_process(pid: &str) -> Option<u64> {
    limit_of(&fs::read_to_string(format!("/proc/{pid}/limits")).ok()?)
}

fn check(limit: Option<u64>, used: u64, threads: u64, has_bursts: bool) -> Result<(), TooLittle> {
    let Some(limit) = limit else { return Ok(()) };
    let needed = AGENT_BYTES + if has_bursts { BURSTS_BYTES + threads * THREAD_BYTES } else { 0 };
    // As much again is the program's to grow into.
    if limit.saturating_sub(used) >= 2 * needed { Ok(()) } else { Err(TooLittle { limit, used, needed }) }
}

/// The soft limit of the address space in a process's limits (proc_pid_limits(5)).
fn limit_of(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_tells_the_limit() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max file locks            unlimited            unlimited            locks\n\
                    Max address space         204800000            unlimited            bytes\n";
        assert_eq!(limit_of(text), Some(204_800_000));
        assert_eq!(limit_of(&text.replace("204800000", "unlimited")), None);
        assert_eq!(limit_of(""), None);
    }

    #[test]
    fn the_program_keeps_as_much_as_the_agent_takes() {
        assert_eq!(check(None, 1 << 40, 500, true), Ok(()));
        assert_eq!(check(Some(4 << 30), 1 << 30, 4, true), Ok(()));
        let few = check(Some(1 << 30), 600 << 20, 4, true).expect_err("424 MiB are left");
        assert_eq!(few.needed, AGENT_BYTES + BURSTS_BYTES + 4 * THREAD_BYTES);
        assert_eq!(check(Some(1 << 30), 500 << 20, 4, false), Ok(()));
        assert!(check(Some(64 << 30), 0, 4000, true).is_err(), "each thread takes some");
    }
}
