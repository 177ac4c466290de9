//! The agent's entry points (`x86_64/entry.rs`, `aarch64/entry.rs`), by their own names' hidden twins: the names themselves may be others'.

unsafe extern "C" {
    #[link_name = "memlens_agent_own_malloc"]
    pub fn malloc();
    #[link_name = "memlens_agent_own_calloc"]
    pub fn calloc();
    #[link_name = "memlens_agent_own_realloc"]
    pub fn realloc();
    #[link_name = "memlens_agent_own_reallocarray"]
    pub fn reallocarray();
    #[link_name = "memlens_agent_own_memalign"]
    pub fn memalign();
    #[link_name = "memlens_agent_own_aligned_alloc"]
    pub fn aligned_alloc();
    #[link_name = "memlens_agent_own_posix_memalign"]
    pub fn posix_memalign();
    #[link_name = "memlens_agent_own_valloc"]
    pub fn valloc();
    #[link_name = "memlens_agent_own_pvalloc"]
    pub fn pvalloc();
    #[link_name = "memlens_agent_own_free"]
    pub fn free();
    #[link_name = "memlens_agent_own_free_sized"]
    pub fn free_sized();
    #[link_name = "memlens_agent_own_free_aligned_sized"]
    pub fn free_aligned_sized();
    #[link_name = "memlens_agent_own_mmap"]
    pub fn mmap();
    #[link_name = "memlens_agent_own_mmap64"]
    pub fn mmap64();
    #[link_name = "memlens_agent_own_munmap"]
    pub fn munmap();
    #[link_name = "memlens_agent_own_mremap"]
    pub fn mremap();
    #[link_name = "memlens_agent_own_pthread_create"]
    pub fn pthread_create();
    #[link_name = "memlens_agent_own_fork"]
    pub fn fork();
    #[link_name = "memlens_agent_own__Fork"]
    pub fn plain_fork();
    #[link_name = "memlens_agent_own_syscall"]
    pub fn syscall();
    #[link_name = "memlens_agent_own_prctl"]
    pub fn prctl();

    // Those that only bursts need.
    #[link_name = "memlens_agent_own_sigaction"]
    pub fn sigaction();
    #[link_name = "memlens_agent_own_signal"]
    pub fn signal();
    #[link_name = "memlens_agent_own_bsd_signal"]
    pub fn bsd_signal();
    #[link_name = "memlens_agent_own_ssignal"]
    pub fn ssignal();
    #[link_name = "memlens_agent_own_sysv_signal"]
    pub fn sysv_signal();
    #[link_name = "memlens_agent_own___sysv_signal"]
    pub fn __sysv_signal();
    #[link_name = "memlens_agent_own_sigset"]
    pub fn sigset();
    #[link_name = "memlens_agent_own_dlclose"]
    pub fn dlclose();
}
