/* Threads on several memory nodes (NUMA), and where their memory comes from.
 *
 *     nodes [THREADS [PAGES [ROUNDS [PROCESSORS]]]]          defaults: 2 1024 4 0
 *
 * With PROCESSORS each thread stays on one of so many, as far apart as they can be: 0 and 2 for two threads on four.
 *
 * Each thread works on its own part of four arrays of as many pages, one load of each line of it a round, lines in an order in which no
 * prefetcher follows them. Barriers make each round one step.
 *
 *     serial     written by main before: all pages are main's node's, and the part of every other thread is remote
 *     parallel   each thread writes its part before: nothing is remote
 *     shared     written by main, read by all threads as a whole, one after another, so that none finds in a cache what another has just read:
 *                what is not main's node's is remote, wherever the pages lie
 *     returned   written by main, given back (MADV_DONTNEED), then written by the threads: nothing is remote
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096
#define LINE 64
#define LINES (PAGE / LINE)

static long threads, pages, rounds, processors;
static char *serial, *parallel, *shared, *returned;
static pthread_barrier_t step;
static long sums[64];

static void fill(char *array, long from, long to)
{
    for (long at = from * PAGE; at < to * PAGE; at += LINE)
        array[at] = (char)(at / PAGE);
}

/* Each line of the pages once: 41 is prime to the lines of a page, and 331 to a power of two of pages. */
static long sum(const char *array, long from, long to)
{
    long total = 0, count = to - from;
    for (long line = 0; line < LINES; line++)
        for (long page = 0; page < count; page++)
            total += array[(from + page * 331 % count) * PAGE + line * 41 % LINES * LINE];
    return total;
}

static void stay(long own)
{
    if (processors == 0)
        return;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(own * processors / threads, &only);
    if (sched_setaffinity(0, sizeof only, &only)) {
        perror("sched_setaffinity");
        exit(1);
    }
}

static void *work(void *number)
{
    long own = (long)number, from = own * pages / threads, to = (own + 1) * pages / threads, total = 0;
    stay(own);
    fill(parallel, from, to);
    fill(returned, from, to);
    pthread_barrier_wait(&step);
    for (long round = 0; round < rounds; round++) {
        total += sum(serial, from, to);
        total += sum(parallel, from, to);
        total += sum(returned, from, to);
        for (long reader = 0; reader < threads; reader++) {
            if (reader == own)
                total += sum(shared, 0, pages);
            pthread_barrier_wait(&step);
        }
    }
    sums[own] = total;
    return NULL;
}

static char *pages_of(long count)
{
    char *memory = mmap(NULL, (size_t)count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return memory;
}

int main(int argc, char **argv)
{
    threads = argc > 1 ? atol(argv[1]) : 2;
    pages = argc > 2 ? atol(argv[2]) : 1024;
    rounds = argc > 3 ? atol(argv[3]) : 4;
    processors = argc > 4 ? atol(argv[4]) : 0;
    if (threads < 1 || threads > 64 || pages < threads || rounds < 1 || processors < 0) {
        fprintf(stderr, "nodes [THREADS [PAGES [ROUNDS [PROCESSORS]]]]: 1 to 64 threads, a page each at least\n");
        return 2;
    }
    stay(0);
    serial = pages_of(pages);
    parallel = pages_of(pages);
    shared = pages_of(pages);
    returned = pages_of(pages);
    fill(serial, 0, pages);
    fill(shared, 0, pages);
    fill(returned, 0, pages);
    madvise(returned, (size_t)pages * PAGE, MADV_DONTNEED);
    pthread_barrier_init(&step, NULL, (unsigned)threads);
    pthread_t others[64];
    for (long other = 1; other < threads; other++)
        pthread_create(&others[other], NULL, work, (void *)other);
    work(NULL);
    long total = sums[0];
    for (long other = 1; other < threads; other++) {
        pthread_join(others[other], NULL);
        total += sums[other];
    }
    printf("%ld\n", total);
    return 0;
}
