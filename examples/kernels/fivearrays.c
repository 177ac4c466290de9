/* Five arrays, five threads, from all-read to all-write: the micro-benchmark of Chen et al., section
 * IV.B (row O8 of what memlens implements).
 *
 *     fivearrays [BYTES [FLUSH_BYTES [PASSES [FILL]]]]      defaults: 1048576 0 1 0
 *
 * Thread k walks array k with stride 64, PASSES times: the first (4 - k) quarters of the walk read 8
 * bytes at each step, the last k quarters write 8. a0, a1, a2 are walked forward, a3, a4 backward.
 * FILL 1 fills the arrays by memset first, as the paper does; FILL 0 leaves them as the kernel gives
 * them, so that nothing but the walk touches them.
 *
 * What a model must find, with caches of 64-byte lines that together are smaller than BYTES, LRU,
 * write-back, write-allocate, for FILL 0 and n = BYTES / 64 (arrays are page-aligned, each step is a
 * line of its own):
 *
 *     array         a0        a1        a2        a3        a4
 *     loads         n         3/4 n     2/4 n     1/4 n     0
 *     stores        0         1/4 n     2/4 n     3/4 n     n
 *     DRAM reads    n         n         n         n         n          a pass
 *     DRAM writes   0         1/4 n     2/4 n     3/4 n     n          a pass, after the flush
 *
 * The paper's 268435456 bytes: n = 4194304. FILL 1 adds n stores' worth of bytes, n reads and n
 * writes to each array.
 *
 * A line that is written is written back when it is evicted, so those in the caches at the end are
 * missing from the writes. With FLUSH_BYTES at least twice the last-level cache, every thread walks
 * the array "flush" after its own, which empties its private caches, and the main thread walks it
 * twice after all have ended, which empties the shared one.
 *
 * With PASSES > 1 the lines that are left in the caches from one pass may hit in the next when BYTES
 * does not exceed the caches.
 *
 * What tests/programs.py checks, with caches of 4, 16 and 64 KiB: n = 16384, counts of loads and stores to
 * the unit, lines to 0.1 %.
 *
 * args: 1048576 131072
 * memlens: --cache l1d=4096,4,64 --cache l2=16384,4,64 --cache llc=65536,8,64
 * expect heap a0: loads=16384 stores=0 dram_reads=16368..16400 dram_writes=0
 * expect heap a1: loads=12288 stores=4096 dram_reads=16368..16400 dram_writes=4092..4100
 * expect heap a2: loads=8192 stores=8192 dram_reads=16368..16400 dram_writes=8184..8200
 * expect heap a3: loads=4096 stores=12288 dram_reads=16368..16400 dram_writes=12276..12300
 * expect heap a4: loads=0 stores=16384 dram_reads=16368..16400 dram_writes=16368..16400
 * prints: fivearrays 1048576 steps 16384 passes 1 sum 0
 */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "argument.h"

#define LINE 64

static long array_bytes, flush_bytes, passes;
static char *flush;

struct walk {
    char *array;
    long written_quarters;
    int backward;
    uint64_t sum;
};

static uint64_t read_all(const char *block, long bytes)
{
    uint64_t sum = 0;
    for (long at = 0; at < bytes; at += LINE)
        sum += *(const volatile uint64_t *)(block + at);
    return sum;
}

static void *run(void *argument)
{
    struct walk *walk = argument;
    long steps = array_bytes / LINE;
    long reads = steps / 4 * (4 - walk->written_quarters);
    long stride = walk->backward ? -LINE : LINE;
    uint64_t sum = 0;
    for (long pass = 0; pass < passes; pass++) {
        char *at = walk->backward ? walk->array + (steps - 1) * LINE : walk->array;
        long step = 0;
        for (; step < reads; step++, at += stride)
            sum += *(volatile uint64_t *)at;
        for (; step < steps; step++, at += stride)
            *(volatile uint64_t *)at = (uint64_t)step;
    }
    walk->sum = sum + read_all(flush, flush_bytes);
    return NULL;
}

int main(int argc, char **argv)
{
    array_bytes = argument(argc, argv, 1, 1 << 20, 4096, 1L << 34) / 4096 * 4096;
    flush_bytes = argument(argc, argv, 2, 0, 0, 1L << 34) / 4096 * 4096;
    passes = argument(argc, argv, 3, 1, 1, 1000000);
    int fill = (int)argument(argc, argv, 4, 0, 0, 1);
    size_t size = (size_t)array_bytes;
    char *a0 = must(aligned_alloc(4096, size));
    char *a1 = must(aligned_alloc(4096, size));
    char *a2 = must(aligned_alloc(4096, size));
    char *a3 = must(aligned_alloc(4096, size));
    char *a4 = must(aligned_alloc(4096, size));
    flush = must(aligned_alloc(4096, (size_t)flush_bytes + 4096));
    struct walk walks[5] = {{a0, 0, 0, 0}, {a1, 1, 0, 0}, {a2, 2, 0, 0}, {a3, 3, 1, 0}, {a4, 4, 1, 0}};
    if (fill) {
        for (int k = 0; k < 5; k++)
            memset(walks[k].array, 0, size);
    }
    pthread_t threads[5];
    for (int k = 0; k < 5; k++) {
        if (pthread_create(&threads[k], NULL, run, &walks[k]) != 0) {
            perror("pthread_create");
            return 1;
        }
    }
    uint64_t sum = 0;
    for (int k = 0; k < 5; k++) {
        pthread_join(threads[k], NULL);
        sum += walks[k].sum;
    }
    sum += read_all(flush, flush_bytes);
    sum += read_all(flush, flush_bytes);
    printf("fivearrays %ld steps %ld passes %ld sum %llu\n", array_bytes, array_bytes / LINE, passes,
           (unsigned long long)sum);
    free(a0);
    free(a1);
    free(a2);
    free(a3);
    free(a4);
    free(flush);
    return 0;
}
