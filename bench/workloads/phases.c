/* Phases of known size and very different speed, in turn: `phases [ROUNDS [MILLISECONDS]]`, defaults 4 and 10.
 *
 * `fill` touches 32 MB for the first time; then each round sweeps through them, updates words at random places, reads 8 KB again and
 * again, and follows addresses of which each depends on the one before. MILLISECONDS is about how long a round's sweeps last; the
 * others last some times as long. What is printed: how many accesses to the array each function makes, which is nearly all that
 * it does. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define WORDS (1L << 22)
#define PHASE __attribute__((noinline, noclone, optimize("no-tree-vectorize")))
/* What the compiler knows of memory is forgotten: equal calls are made each. */
#define FORGET() __asm__ volatile("" ::: "memory")

PHASE static void fill(uint64_t *words)
{
    for (long i = 0; i < WORDS; i++)
        words[i] = (uint64_t)i;
}

PHASE static uint64_t sweep(const uint64_t *words)
{
    uint64_t sum = 0;
    for (long i = 0; i < WORDS; i++)
        sum = sum * 31 + words[i];
    return sum;
}

/* The sequence of HPCC's RandomAccess, as in examples/kernels/gups.c. */
PHASE static void scatter(uint64_t *words, long count)
{
    uint64_t random = 1;
    for (long i = 0; i < count; i++) {
        random = random << 1 ^ ((int64_t)random < 0 ? 7 : 0);
        words[random & (WORDS - 1)] ^= random;
    }
}

PHASE static uint64_t repeat(const uint64_t *words, long count)
{
    uint64_t sum = 0;
    for (long i = 0; i < count; i++)
        sum += words[i & 1023];
    return sum;
}

PHASE static uint64_t chase(const uint64_t *words, long count)
{
    uint64_t at = 0;
    for (long i = 0; i < count; i++)
        at = (words[at & (WORDS - 1)] * 6364136223846793005u + at + 1442695040888963407u) >> 20;
    return at;
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 4;
    long milliseconds = argc > 2 ? atol(argv[2]) : 10;
    long sweeps = milliseconds / 4 + 1, scattered = milliseconds * 500000, repeated = milliseconds * 5000000;
    uint64_t *words = malloc(WORDS * sizeof *words);
    if (rounds < 1 || milliseconds < 1 || !words)
        return 1;
    fill(words);
    uint64_t sum = 0;
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < sweeps; i++) {
            sum += sweep(words);
            FORGET();
        }
        scatter(words, scattered);
        sum += repeat(words, repeated);
        sum += chase(words, scattered / 4);
        FORGET();
    }
    printf("fill %ld\nsweep %ld\nscatter %ld\nrepeat %ld\nchase %ld\nsum %llx\n", WORDS, WORDS * sweeps * rounds,
           scattered * rounds, repeated * rounds, scattered / 4 * rounds, (unsigned long long)sum);
    free(words);
    return 0;
}
