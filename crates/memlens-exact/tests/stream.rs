//! Tiny programs and what the stream must say of them, access by access.
//!
//! The programs are linked at fixed addresses (`-no-pie`), so that `nm` tells where their variables lie.

mod recording;

use memlens_events::{BlockFlags, EventKind, WordRole};
use memlens_exact::ExitOutcome;
use memlens_types::AccessKind::{Load, Modify, Store};
use recording::{Built, Recording, run};

/// `rep movsb` of 100 bytes: two starting addresses, then the destination's end.
#[test]
fn a_repeated_string_instruction_records_where_it_starts_and_ends() {
    let program = Built::new(
        "rep_movsb",
        "char from[128], to[128];
         int main(void) {
             void *target = to, *source = from; long count = 100;
             __asm__ volatile(\"rep movsb\" : \"+D\"(target), \"+S\"(source), \"+c\"(count) : : \"memory\");
             return 0;
         }",
        &["-O1"],
    );
    let recording = run(&program, &[]);
    assert_eq!(recording.outcome, Some(ExitOutcome::Code(0)));
    let (from, to) = (program.address("from"), program.address("to"));
    let words: Vec<_> = recording
        .words()
        .filter(|word| word.role != WordRole::Address)
        .filter(|word| (from..from + 128).contains(&word.value) || (to..to + 128).contains(&word.value))
        .map(|word| (word.role, word.attr.kind(), word.attr.size_bytes(), word.value))
        .collect();
    assert_eq!(
        words,
        [
            (WordRole::RepStart, Load, 1, from),
            (WordRole::RepStart, Store, 1, to),
            (WordRole::RepEnd, Store, 1, to + 100),
        ]
    );
}

/// One load, one store, one read-modify-write, a push and a pop of one variable's neighbours; the sizes
/// are those of the instructions.
#[test]
fn plain_accesses_have_their_kind_size_and_address() {
    let program = Built::new(
        "plain",
        "long value[4];
         int main(void) {
             __asm__ volatile(\"mov value, %%rax; mov %%al, value+8; lock addl $1, value+16; incw value+24\"
                              : : : \"rax\", \"memory\");
             return 0;
         }",
        &["-O1"],
    );
    let recording = run(&program, &[]);
    let value = program.address("value");
    assert_eq!(
        recording.accesses(value..value + 32),
        [(Load, 8, value), (Store, 1, value + 8), (Modify, 4, value + 16), (Modify, 2, value + 24)]
    );
}

/// A call pushes its return address and the return pops it from the same place; the word is named.
#[test]
fn calls_and_returns_name_their_slot() {
    let program = Built::new(
        "calls",
        "__attribute__((noinline)) static int leaf(int x) { __asm__ volatile(\"\"); return x + 1; }
         int main(void) { int sum = 0; for (int i = 0; i < 7; i++) sum = leaf(sum); return sum; }",
        &["-O1", "-fno-optimize-sibling-calls"],
    );
    let recording = run(&program, &[]);
    assert_eq!(recording.outcome, Some(ExitOutcome::Code(7)));
    let leaf = program.address("leaf");
    let mut pushed = Vec::new();
    let mut pairs = 0;
    let blocks: Vec<_> = recording.blocks_run().collect();
    for (index, (block, words)) in blocks.iter().enumerate() {
        if block.flags.contains(BlockFlags::CALL) && blocks.get(index + 1).is_some_and(|(b, _)| b.pc == leaf)
        {
            pushed.push(words[usize::from(block.slot_word)]);
        }
        if block.pc == leaf {
            assert!(block.flags.contains(BlockFlags::RETURN));
            assert_eq!(pushed.pop(), Some(words[usize::from(block.slot_word)]));
            pairs += 1;
        }
    }
    assert_eq!(pairs, 7);
}

/// Masked moves: the operand's address and the mask; a gather: one load for each active lane.
#[test]
fn vector_masks_and_gathers() {
    if !std::is_x86_feature_detected!("avx2") {
        return;
    }
    let program = Built::new(
        "masks",
        "#include <immintrin.h>
         int masked[8] __attribute__((aligned(64))), gathered[64] __attribute__((aligned(64)));
         int main(void) {
             __m256i first3 = _mm256_setr_epi32(-1, -1, -1, 0, 0, 0, 0, 0), data = _mm256_set1_epi32(5);
             __asm__ volatile(\"vpmaskmovd %0, %1, masked\" : : \"x\"(data), \"x\"(first3) : \"memory\");
             __m256i even = _mm256_setr_epi32(-1, 0, -1, 0, -1, 0, -1, 0);
             __m256i index = _mm256_setr_epi32(0, 8, 16, 24, 32, 40, 48, 56), got = data;
             __asm__ volatile(\"vpgatherdd %1, (%2,%3,4), %0\" : \"+&x\"(got), \"+&x\"(even)
                              : \"r\"(gathered), \"x\"(index) : \"memory\");
             return masked[2] + _mm256_extract_epi32(got, 1);
         }",
        &["-O1", "-mavx2"],
    );
    let recording = run(&program, &[]);
    assert_eq!(recording.outcome, Some(ExitOutcome::Code(10)));
    let (masked, gathered) = (program.address("masked"), program.address("gathered"));
    let words: Vec<_> = recording.words().collect();
    let at = words.iter().position(|word| word.value == masked && word.attr.kind() == Store).unwrap();
    assert_eq!((words[at].attr.size_bytes(), words[at].role), (32, WordRole::Address));
    assert_eq!(
        (words[at + 1].role, words[at + 1].value, words[at + 1].attr.size_bytes()),
        (WordRole::Mask, 7, 4)
    );
    let wanted: Vec<_> = [0, 16, 32, 48].map(|index| (Load, 4, gathered + 4 * index)).to_vec();
    assert_eq!(recording.accesses(gathered..gathered + 256), wanted);
}

/// Two thousand stores by each of four threads: all of them come, and the order between threads holds.
#[test]
fn no_access_of_any_thread_is_lost() {
    let program = Built::new(
        "threads",
        "#include <pthread.h>
         volatile long slots[4][16];
         static void *work(void *at) { volatile long *slot = at; for (int i = 0; i < 2000; i++) *slot = i; return 0; }
         int main(void) {
             for (int round = 0; round < 5; round++) {
                 pthread_t threads[4];
                 for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, (void *)slots[i]);
                 for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
             }
             return 0;
         }",
        &["-O1", "-pthread"],
    );
    let recording = run(&program, &[]);
    assert_eq!(recording.outcome, Some(ExitOutcome::Code(0)));
    let slots = program.address("slots");
    for index in 0..4 {
        let at = slots + 128 * index;
        assert_eq!(recording.accesses(at..at + 8).len(), 5 * 2000, "slot {index}");
    }
    let started = recording.events(EventKind::ThreadStart).filter(|payload| payload[1] != 0).count();
    assert_eq!(started, 21, "the first thread and four in each of five rounds");
    assert_eq!(recording.events(EventKind::ThreadExit).count(), 21);
}

/// A request's code and arguments travel, and the code after it runs.
#[test]
fn requests_arrive() {
    let program = Built::new(
        "request",
        "int main(void) {
             volatile unsigned long request[6] = {0x43540002, 11, 12, 13, 14, 15};
             unsigned long result = 3;
             __asm__ volatile(\"rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx\"
                              : \"+d\"(result) : \"a\"(request) : \"memory\", \"cc\");
             return (int)result;
         }",
        &["-O1"],
    );
    let recording = run(&program, &[]);
    assert_eq!(recording.outcome, Some(ExitOutcome::Code(3)));
    let requests: Vec<_> = recording.events(EventKind::Request).collect();
    let [request] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(request[..6], [0x4354_0002, 11, 12, 13, 14, 15]);
    assert!((1..200).contains(&(request[6] - program.address("main"))), "{request:x?}");
}

/// A block left by a fault in its middle says what it had recorded; the handler's frame follows.
#[test]
fn a_fault_ends_its_block_early() {
    let program = Built::new(
        "fault",
        "#include <setjmp.h>
         #include <signal.h>
         static sigjmp_buf back; long before; volatile long *nowhere;
         static void handler(int signal) { (void)signal; siglongjmp(back, 1); }
         int main(void) {
             signal(SIGSEGV, handler);
             if (sigsetjmp(back, 1)) return 9;
             __asm__ volatile(\"movq $1, before; movq $2, (%0); movq $3, before\" : : \"r\"(nowhere) : \"memory\");
             return 0;
         }",
        &["-O1"],
    );
    let recording = run(&program, &[]);
    assert_eq!(recording.outcome, Some(ExitOutcome::Code(9)));
    let before = program.address("before");
    let partial: Vec<_> = recording.events(EventKind::PartialBlock).collect();
    assert_eq!(partial.len(), 1);
    assert!(partial[0][2..].contains(&before), "{partial:x?}");
    assert_eq!(recording.accesses(before..before + 8), [], "the block never ended");
    assert_eq!(recording.events(EventKind::SignalFrame).count(), 1);
}

/// What a forked child does is its own affair; the parent's stream stays whole.
#[test]
fn a_forked_child_writes_nothing() {
    let program = Built::new(
        "forked",
        "#include <sys/wait.h>
         #include <unistd.h>
         volatile long count;
         int main(void) {
             for (int i = 0; i < 10; i++) {
                 pid_t pid = fork();
                 if (pid == 0) { for (int j = 0; j < 100000; j++) count = j; _exit(5); }
                 int status; waitpid(pid, &status, 0); count = WEXITSTATUS(status);
             }
             return (int)count;
         }",
        &["-O1"],
    );
    let recording = run(&program, &[]);
    assert_eq!(recording.outcome, Some(ExitOutcome::Code(5)));
    let count = program.address("count");
    let stores = recording.accesses(count..count + 8).iter().filter(|access| access.0 == Store).count();
    assert_eq!(stores, 10);
}

/// Signals ignored and blocked when memlens started are so in the program, and in what it executes.
#[test]
fn exec_keeps_ignored_and_blocked_signals() {
    let program = Built::new(
        "exec_signals",
        "#include <signal.h>
         #include <stdlib.h>
         #include <unistd.h>
         int main(int count, char **words) {
             sigset_t set; sigemptyset(&set); sigaddset(&set, SIGUSR1);
             if (count == 1) {
                 sigprocmask(SIG_BLOCK, &set, 0); signal(SIGUSR2, SIG_IGN);
                 execl(words[0], words[0], \"again\", (char *)0); return 99;
             }
             struct sigaction action; sigaction(SIGUSR2, 0, &action); sigprocmask(SIG_BLOCK, 0, &set);
             return (action.sa_handler == SIG_IGN) + 2 * sigismember(&set, SIGUSR1);
         }",
        &["-O1"],
    );
    let recording = run(&program, &[]);
    assert_eq!(recording.outcome, Some(ExitOutcome::Code(3)));
}

/// Definitions precede use, a thread's epochs do not fall, and epochs come in order: for every program
/// here, see [`Recording`]. A program with many short threads is the hardest case.
#[test]
fn epochs_come_in_order() {
    let program = Built::new(
        "epochs",
        "#include <pthread.h>
         #include <stdlib.h>
         static void *work(void *unused) { for (int i = 0; i < 50; i++) free(malloc(100)); return unused; }
         int main(void) {
             pthread_t threads[60];
             for (int i = 0; i < 60; i++) pthread_create(&threads[i], 0, work, 0);
             for (int i = 0; i < 60; i++) pthread_join(threads[i], 0);
             return 0;
         }",
        &["-O1", "-pthread"],
    );
    let recording: Recording = run(&program, &[]);
    assert_eq!(recording.outcome, Some(ExitOutcome::Code(0)));
    assert_eq!(recording.statistics.order_breaks, 0);
}

/// A thread's start says where its thread control block is: a thread-local variable of the program lies
/// the same distance below it in every thread (System V ABI, "ELF Handling for Thread-Local Storage",
/// variant II).
#[test]
fn thread_starts_name_the_thread_pointer() {
    let program = Built::new(
        "thread_pointers",
        "#include <pthread.h>
         static __thread volatile long mine; volatile long *places[4];
         static void *work(void *at) { mine = 77; *(volatile long **)at = &mine; return 0; }
         int main(void) {
             pthread_t threads[3];
             for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, (void *)&places[i]);
             for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
             work((void *)&places[3]);
             return 0;
         }",
        &["-O1", "-pthread"],
    );
    let recording = run(&program, &[]);
    let pointers: Vec<u64> = recording.events(EventKind::ThreadStart).map(|payload| payload[2]).collect();
    let places = program.address("places");
    let words: Vec<_> = recording.words().collect();
    // `work` stores to its variable, loads the thread pointer from its own place, and stores the sum.
    let mine = words.windows(3).filter(|three| (places..places + 32).contains(&three[2].value));
    let mine: Vec<u64> = mine.map(|three| three[0].value).collect();
    assert_eq!(mine.len(), 4);
    for address in mine {
        assert!(pointers.contains(&(address + 8)), "{address:x} is below none of {pointers:x?}");
    }
}

/// `close_range` up to the greatest number, as Python's subprocess calls it, takes no time, closes what it
/// shall, and leaves its registers alone.
#[test]
fn closing_all_descriptors_is_quick() {
    let program = Built::new(
        "close_range",
        "#include <fcntl.h>
         #include <sys/syscall.h>
         #include <unistd.h>
         int main(void) {
             int fd = open(\"/dev/null\", O_RDONLY);
             unsigned long result, last = 0xffffffffUL;
             __asm__ volatile(\"syscall\" : \"=a\"(result), \"+S\"(last) : \"a\"(SYS_close_range), \"D\"(3UL), \"d\"(0UL)
                              : \"rcx\", \"r11\", \"memory\");
             return (result == 0) + 2 * (last == 0xffffffffUL) + 4 * (fcntl(fd, F_GETFD) < 0);
         }",
        &["-O1"],
    );
    let started = std::time::Instant::now();
    let recording = run(&program, &[]);
    assert_eq!(recording.outcome, Some(ExitOutcome::Code(7)));
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}
