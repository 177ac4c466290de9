/* A store of records of 4 to 16 KiB, each in a block of its own, that are replaced again and again: the cost of
 * watching allocations of a page and more.
 *
 *     bigblocks [BLOCKS [SLOTS [PASSES]]]       defaults: 1250000, 1024, 0
 *
 * Every turn frees the record of one slot, allocates another, fills it, and adds up two other records. With PASSES it
 * uses what it has stored: each pass takes every word of the new record into a hash, 4 instructions for each of 1,280
 * words on average. */
#include <stdint.h>
#include <string.h>

#include "argument.h"

struct record {
    uint64_t bytes;
    unsigned char *content;
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* One byte of each cache line. */
static uint64_t sum_of(const struct record *record)
{
    uint64_t sum = 0;
    for (uint64_t at = 0; at < record->bytes; at += 64)
        sum += record->content[at];
    return sum;
}

static uint64_t hash_of(const struct record *record, uint64_t hash)
{
    for (uint64_t at = 0; at + 8 <= record->bytes; at += 8) {
        uint64_t word;
        memcpy(&word, record->content + at, sizeof word);
        hash = (hash ^ word) * 0x100000001b3u;
    }
    return hash;
}

int main(int argc, char **argv)
{
    long blocks = argument(argc, argv, 1, 1250000, 1, 1000000000);
    long slots = argument(argc, argv, 2, 1024, 1, 1000000);
    long passes = argument(argc, argv, 3, 0, 0, 1000000);
    struct record *store = must(calloc((size_t)slots, sizeof *store));
    uint64_t state = 1, sum = 0;
    for (long i = 0; i < blocks; i++) {
        uint64_t random = next_random(&state);
        struct record *record = &store[random % (uint64_t)slots];
        free(record->content);
        record->bytes = 4096 + (random >> 32) % 12289;
        record->content = must(malloc(record->bytes));
        memset(record->content, (int)(i & 0xff), record->bytes);
        for (long pass = 0; pass < passes; pass++)
            sum += hash_of(record, sum);
        sum += sum_of(&store[(random >> 20) % (uint64_t)slots]) + sum_of(&store[(random >> 40) % (uint64_t)slots]);
    }
    printf("bigblocks %ld slots %ld sum %llu\n", blocks, slots, (unsigned long long)sum);
    for (long i = 0; i < slots; i++)
        free(store[i].content);
    free(store);
    return 0;
}
