/* Threads that gather at random places until they are told to stop, and check each sum, while signals interrupt them.

   running SIZE THREADS MILLISECONDS: 2^SIZE values; SIGPROF so often in processor time, whose handler gathers, too.
   Ends at SIGTERM, prints how many sums were right, and exits with 1 if one was not. The indices end where nothing is
   mapped. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

static uint64_t *table;
static uint32_t *indices;
static size_t count;
static atomic_int is_over;
static atomic_long right, wrong, signals;
static uint64_t expected, expected_of_few;
static size_t few;

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

static void *work(void *unused) {
    (void)unused;
    while (!is_over) {
        if (gather(indices, count) == expected)
            right++;
        else
            wrong++;
    }
    return NULL;
}

static void on_profile(int number) {
    (void)number;
    signals++;
    if (gather(indices + count - few, few) != expected_of_few) wrong++;
}

static void on_end(int number) {
    (void)number;
    is_over = 1;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    count = (size_t)1 << atoi(argv[1]);
    int threads = atoi(argv[2]), milliseconds = atoi(argv[3]);
    size_t page = sysconf(_SC_PAGESIZE), bytes = count * sizeof *indices;
    char *area = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    table = malloc(count * sizeof *table);
    if (area == MAP_FAILED || !table || mprotect(area + bytes, page, PROT_NONE)) return 2;
    indices = (uint32_t *)area;
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < count; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        table[i] = state;
        indices[i] = (state >> 20) & (count - 1);
    }
    few = count < 64 ? count : 64;
    expected = gather(indices, count);
    expected_of_few = gather(indices + count - few, few);
    signal(SIGTERM, on_end);
    if (milliseconds) {
        struct sigaction action = {.sa_handler = on_profile, .sa_flags = SA_RESTART};
        sigaction(SIGPROF, &action, NULL);
        struct itimerval every = {{0, milliseconds * 1000}, {0, milliseconds * 1000}};
        setitimer(ITIMER_PROF, &every, NULL);
    }
    pthread_t ids[64];
    for (int i = 1; i < threads && i < 64; i++) pthread_create(&ids[i], NULL, work, NULL);
    puts("ready");
    fflush(stdout);
    work(NULL);
    for (int i = 1; i < threads && i < 64; i++) pthread_join(ids[i], NULL);
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_PROF, &never, NULL);
    printf("%ld right, %ld wrong, %ld signals\n", right, wrong, signals);
    return wrong != 0;
}
