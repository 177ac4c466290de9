/* Two arrays with known shares of the waiting time. `known [ROUNDS [A [B [BLOCK]]]]`
 *
 * Both are chains of lines in random order, together far larger than the caches (16 MB for each step of a
 * round), and their sizes are as A to B: so every line is visited equally often, has the same chance to be
 * in a cache or a TLB, and each step costs the same. A round walks A steps of the first and then B steps of the second, BLOCK
 * times as many of each: shares A / (A + B) and B / (A + B). BLOCK sets whether a round is much shorter
 * than the interval between samples, or longer. Each step's address needs the step before, of either
 * array: nothing overlaps. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define LINES (1L << 18)

struct line {
    struct line *next;
    uint64_t rest[7];
};

static uint64_t state = 88172645463325252u;

/* The line behind `at`; the address seems to depend on `before`, whose low bits are 0. */
static inline struct line *step(struct line *at, struct line *before)
{
    struct line *here = (struct line *)((char *)at + ((uintptr_t)before & 63));
    return here->next;
}

static uint64_t random_below(uint64_t bound)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % bound;
}

static struct line *linked(long count)
{
    struct line *lines = aligned_alloc(4096, sizeof *lines * (size_t)count);
    uint32_t *order = malloc(sizeof *order * (size_t)count);
    if (!lines || !order)
        exit(1);
    for (long i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    for (long i = count - 1; i > 0; i--) {
        long other = (long)random_below((uint64_t)i + 1);
        uint32_t kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (long i = 0; i < count; i++)
        lines[order[i]].next = &lines[order[(i + 1) % count]];
    free(order);
    return lines;
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 400000;
    long first_steps = argc > 2 ? atol(argv[2]) : 3;
    long second_steps = argc > 3 ? atol(argv[3]) : 1;
    long block = argc > 4 ? atol(argv[4]) : 1;
    struct line *first = linked(LINES * first_steps);
    struct line *second = linked(LINES * second_steps);
    puts("ready");
    fflush(stdout);
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < first_steps * block; i++)
            first = step(first, second);
        for (long i = 0; i < second_steps * block; i++)
            second = step(second, first);
    }
    printf("known %ld rounds\n", rounds + (first == second));
    return 0;
}
