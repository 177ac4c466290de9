/* User-level threads that a timer's signal switches, each gathering at random places on a stack from the heap: where one goes
   on stands in a signal's frame there, on no stack that the kernel knows.

   coroutines SIZE: 2^SIZE values. Ends at SIGTERM, prints how many sums were right, and exits with 1 if one was not. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <ucontext.h>

enum { COROUTINES = 100, STACK_BYTES = 64 << 10 };
static uint64_t *table, expected;
static uint32_t *indices;
static size_t count;
static ucontext_t contexts[COROUTINES], first;
static volatile int current, is_over;
static volatile long right, wrong, switches;

__attribute__((noinline)) static uint64_t gather(const uint32_t *from, size_t length) {
    uint64_t sum = 0;
    for (size_t i = 0; i < length; i++) {
        uint64_t value = table[from[i]];
        value ^= value >> 29;
        sum += value * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 31;
    }
    return sum;
}

static void work(void) {
    for (;;) {
        if (gather(indices, count) == expected)
            right++;
        else
            wrong++;
    }
}

static void on_timer(int number) {
    (void)number;
    int before = current;
    if (is_over) setcontext(&first);
    switches++;
    current = (current + 1) % COROUTINES;
    swapcontext(&contexts[before], &contexts[current]);
}

static void on_end(int number) {
    (void)number;
    is_over = 1;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    count = (size_t)1 << atoi(argv[1]);
    table = malloc(count * sizeof *table);
    indices = malloc(count * sizeof *indices);
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < count; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        table[i] = state;
        indices[i] = (state >> 20) & (count - 1);
    }
    expected = gather(indices, count);
    for (int i = 0; i < COROUTINES; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = malloc(STACK_BYTES);
        contexts[i].uc_stack.ss_size = STACK_BYTES;
        makecontext(&contexts[i], work, 0);
    }
    signal(SIGTERM, on_end);
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    sigaction(SIGPROF, &action, NULL);
    puts("ready");
    fflush(stdout);
    volatile int has_begun = 0;
    getcontext(&first);
    if (!has_begun) {
        has_begun = 1;
        struct itimerval every = {{0, 1000}, {0, 1000}};
        setitimer(ITIMER_PROF, &every, NULL);
        setcontext(&contexts[0]);
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_PROF, &never, NULL);
    printf("%ld right, %ld wrong, %ld switches\n", right, wrong, switches);
    return wrong != 0;
}
