/* Loops that gather, scatter and probe at random, as candidates for prefetches.
 *
 *     kernels NAME LOG2_ELEMENTS PASSES
 *
 * The large table has 2^LOG2_ELEMENTS elements of 8 bytes (the hash table twice 16 bytes), the arrays that are walked
 * in order a quarter as many elements. All results are integers, printed as one number. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void *must(void *block)
{
    if (!block) {
        perror("kernels");
        exit(2);
    }
    return block;
}

struct data {
    uint64_t elements, walked;
    uint32_t *index;
    uint64_t *keys, *table;
};

/* A branch that depends on what is gathered: half of them are mispredicted, and each waits for memory. */
__attribute__((noinline)) static uint64_t select_sum(struct data *d)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < d->walked; i++) {
        uint64_t value = d->table[d->index[i]];
        if (value & 1)
            sum += value * 3;
        else
            sum ^= value;
    }
    return sum;
}

/* Probes of a hash join: open addressing, keys and payloads side by side. */
__attribute__((noinline)) static uint64_t hash_join(struct data *d, uint64_t *pairs, int bits)
{
    uint64_t sum = 0, mask = ((uint64_t)1 << bits) - 1;
    for (uint64_t i = 0; i < d->walked; i++) {
        uint64_t key = d->keys[i];
        uint64_t slot = key * 0x9e3779b97f4a7c15u >> (64 - bits);
        while (pairs[2 * slot] != 0) {
            if (pairs[2 * slot] == key) {
                sum += pairs[2 * slot + 1];
                break;
            }
            slot = (slot + 1) & mask;
        }
    }
    return sum;
}

__attribute__((noinline)) static uint64_t histogram(struct data *d)
{
    uint64_t mask = d->elements - 1;
    for (uint64_t i = 0; i < d->walked; i++)
        d->table[d->keys[i] & mask]++;
    return d->table[d->keys[0] & mask];
}

__attribute__((noinline)) static uint64_t scatter(struct data *d)
{
    for (uint64_t i = 0; i < d->walked; i++)
        d->table[d->index[i]] = d->keys[i];
    return d->table[d->index[0]];
}

/* Gather with some work on each value, in a chain: the processor cannot look far enough ahead. */
__attribute__((noinline)) static uint64_t chain(struct data *d)
{
    uint64_t hash = 14695981039346656037u;
    for (uint64_t i = 0; i < d->walked; i++) {
        uint64_t value = d->table[d->index[i]];
        for (int byte = 0; byte < 8; byte++)
            hash = (hash ^ (value >> 8 * byte & 255)) * 1099511628211u;
    }
    return hash;
}

/* What a vertex of a graph gets from its neighbours, 8 each. */
__attribute__((noinline)) static uint64_t neighbours(struct data *d)
{
    uint64_t total = 0;
    for (uint64_t v = 0; v + 8 <= d->walked; v += 8) {
        uint64_t best = 0;
        for (uint64_t e = v; e < v + 8; e++) {
            uint64_t value = d->table[d->index[e]];
            if (value > best)
                best = value;
        }
        total += best;
    }
    return total;
}

/* RandomAccess with its updates from an array. */
__attribute__((noinline)) static uint64_t updates(struct data *d)
{
    uint64_t mask = d->elements - 1;
    for (uint64_t i = 0; i < d->walked; i++) {
        uint64_t random = d->keys[i];
        random = random << 1 ^ ((int64_t)random < 0 ? 7 : 0);
        d->keys[i] = random;
        d->table[random & mask] ^= random;
    }
    return d->table[d->keys[0] & mask];
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: kernels NAME LOG2_ELEMENTS PASSES\n");
        return 2;
    }
    int bits = atoi(argv[2]);
    struct data d = {.elements = (uint64_t)1 << bits};
    d.walked = d.elements / 4;
    d.table = must(malloc(d.elements * 8));
    d.index = must(malloc(d.walked * 4));
    d.keys = must(malloc(d.walked * 8));
    for (uint64_t i = 0; i < d.elements; i++)
        d.table[i] = mix(i);
    for (uint64_t i = 0; i < d.walked; i++) {
        d.index[i] = (uint32_t)(mix(i + 7) & (d.elements - 1));
        d.keys[i] = mix(i + 1) | 1;
    }
    uint64_t *pairs = NULL;
    if (!strcmp(argv[1], "join")) {
        pairs = must(calloc(d.elements * 2, 16));
        for (uint64_t i = 0; i < d.elements / 2; i++) {
            uint64_t key = i < d.walked ? d.keys[i] : mix(i + 1) | 1;
            uint64_t slot = key * 0x9e3779b97f4a7c15u >> (64 - bits - 1);
            while (pairs[2 * slot])
                slot = (slot + 1) & (d.elements * 2 - 1);
            pairs[2 * slot] = key;
            pairs[2 * slot + 1] = i;
        }
        for (uint64_t i = d.walked - 1; i > 0; i--) {
            uint64_t j = mix(i) % (i + 1), key = d.keys[i];
            d.keys[i] = d.keys[j];
            d.keys[j] = key;
        }
    }
    uint64_t sum = 0;
    for (int pass = atoi(argv[3]); pass > 0; pass--) {
        if (pairs)
            sum += hash_join(&d, pairs, bits + 1);
        else if (!strcmp(argv[1], "select"))
            sum += select_sum(&d);
        else if (!strcmp(argv[1], "histogram"))
            sum += histogram(&d);
        else if (!strcmp(argv[1], "scatter"))
            sum += scatter(&d);
        else if (!strcmp(argv[1], "chain"))
            sum += chain(&d);
        else if (!strcmp(argv[1], "neighbours"))
            sum += neighbours(&d);
        else if (!strcmp(argv[1], "updates"))
            sum += updates(&d);
        else
            return 2;
    }
    printf("%s %llu\n", argv[1], (unsigned long long)sum);
    return 0;
}
