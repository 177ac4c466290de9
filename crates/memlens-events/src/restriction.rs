//! Which calls restrict a process's system calls from then on (seccomp(2)), so that a system call of ours might end it.
//! Libraries make others of them only to ask what the kernel has.

/// `__NR_prctl`.
pub const PRCTL: usize = if cfg!(target_arch = "aarch64") { 167 } else { 157 };
/// `__NR_seccomp`.
pub const SECCOMP: usize = if cfg!(target_arch = "aarch64") { 277 } else { 317 };
/// `PR_SET_SECCOMP` (prctl(2)).
pub const SET_SECCOMP: usize = 22;

/// Whether seccomp(2) with these arguments restricts anything.
pub fn by_seccomp(operation: usize, flags: usize, arguments: usize) -> bool {
    const STRICT: u32 = 0;
    const FILTER: u32 = 1;
    match operation as u32 {
        STRICT => flags == 0 && arguments == 0,
        FILTER => arguments != 0,
        _ => false,
    }
}

/// Whether prctl(2) with these arguments does.
pub fn by_prctl(option: usize, mode: usize, filter: usize) -> bool {
    const STRICT: usize = 1;
    const FILTER: usize = 2;
    let restricts = match mode {
        STRICT => true,
        FILTER => filter != 0,
        _ => false,
    };
    option as u32 as usize == SET_SECCOMP && restricts
}

#[cfg(test)]
mod tests {
    use super::{SET_SECCOMP, by_prctl, by_seccomp};

    #[test]
    fn what_only_asks_restricts_nothing() {
        assert!(by_seccomp(0, 0, 0), "strict");
        assert!(by_seccomp(1, 1, 0x1000), "a filter for all threads");
        // As libseccomp asks for what there is.
        assert!(!by_seccomp(0, 1, 0));
        assert!(!by_seccomp(1, 1, 0));
        assert!(!by_seccomp(2, 0, 0x1000), "is there such an action");
        assert!(by_prctl(SET_SECCOMP, 1, 0) && by_prctl(SET_SECCOMP, 2, 0x1000));
        assert!(!by_prctl(SET_SECCOMP, 2, 0) && !by_prctl(21, 1, 0), "PR_GET_SECCOMP");
    }
}
