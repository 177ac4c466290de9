/* Simulated annealing that places the elements of a netlist, in the manner of PARSEC's canneal (Bienia,
 * Kumar, Singh, Li: The PARSEC benchmark suite, PACT 2008).
 *
 *     anneal [ELEMENTS [SWAPS [THREADS]]]              defaults: 16384, eight times the elements, 1
 *
 * Each element has a place, by a pointer into `locations`, and five neighbours. A step takes two elements at
 * random, sums the distances to their neighbours before and after an exchange, and exchanges their places if
 * that is better, or, ever more rarely, if it is worse. The arrays, and how they are walked:
 *
 *     elements   64 bytes each  at random, two and ten neighbours a step; written when a step is taken
 *     locations   8 bytes each  at random, through the elements' pointers; read only
 *
 * With one thread the output depends on nothing but the arguments. With several, each works on elements of its
 * own residue and reads the others' places without a lock, as canneal does. */
#include <pthread.h>
#include <stdint.h>

#include "argument.h"

#define NEIGHBOURS 5

struct location {
    int32_t x, y;
};

struct element {
    struct location *volatile place;
    int32_t neighbours[NEIGHBOURS];
    int32_t padding[9];
};

struct work {
    long thread, taken;
};

static struct element *elements;
static struct location *locations;
static long count, swaps, threads;

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static long distance(const struct location *a, const struct location *b)
{
    return labs((long)a->x - b->x) + labs((long)a->y - b->y);
}

static long cost(const struct element *element, const struct location *at)
{
    long sum = 0;
    for (int k = 0; k < NEIGHBOURS; k++)
        sum += distance(at, elements[element->neighbours[k]].place);
    return sum;
}

static void *run(void *argument)
{
    struct work *work = argument;
    uint64_t state = 1 + (uint64_t)work->thread;
    long mine = count / threads;
    for (long step = 0; step < swaps / threads; step++) {
        uint64_t draw = next_random(&state);
        struct element *a = &elements[(long)((draw & 0xffffffff) % (uint64_t)mine) * threads + work->thread];
        struct element *b = &elements[(long)((draw >> 32) % (uint64_t)mine) * threads + work->thread];
        struct location *at_a = a->place, *at_b = b->place;
        long before = cost(a, at_a) + cost(b, at_b);
        long after = cost(a, at_b) + cost(b, at_a);
        int is_hot = next_random(&state) % 64 > (uint64_t)(64 * step / (swaps / threads));
        if (after < before || (is_hot && after - before < 16)) {
            a->place = at_b;
            b->place = at_a;
            work->taken++;
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    count = argument(argc, argv, 1, 16384, 64, 1L << 30);
    swaps = argument(argc, argv, 2, count * 8, 0, 1L << 40);
    threads = argument(argc, argv, 3, 1, 1, 64);
    elements = must(malloc((size_t)count * sizeof *elements));
    locations = must(malloc((size_t)count * sizeof *locations));
    uint64_t state = 0;
    long side = 1;
    while (side * side < count)
        side++;
    for (long i = 0; i < count; i++) {
        locations[i] = (struct location){(int32_t)(i % side), (int32_t)(i / side)};
        elements[i].place = &locations[i];
        for (int k = 0; k < NEIGHBOURS; k++)
            elements[i].neighbours[k] = (int32_t)(next_random(&state) % (uint64_t)count);
    }
    pthread_t handles[64];
    struct work works[64];
    for (long k = 0; k < threads; k++) {
        works[k] = (struct work){k, 0};
        if (pthread_create(&handles[k], NULL, run, &works[k]) != 0) {
            perror("pthread_create");
            return 1;
        }
    }
    long taken = 0;
    for (long k = 0; k < threads; k++) {
        pthread_join(handles[k], NULL);
        taken += works[k].taken;
    }
    printf("anneal %ld swaps %ld threads %ld taken %s\n", count, swaps, threads,
           taken > 0 && taken <= swaps ? "some" : "none");
    free(elements);
    free(locations);
    return 0;
}
