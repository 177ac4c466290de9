/* Threads that look keys up in a table that all share and keep lists of blocks of their own: a server's work.
 *
 *     lookups [THREADS [LOOKUPS]]          defaults: 1 1000000; as many lookups for each thread
 *
 * Each thread works as long as one would alone, as far as the machine has processors and bandwidth. What is printed
 * depends on nothing but the arguments. */
#include <pthread.h>
#include <stdint.h>

#include "../../examples/kernels/argument.h"

#define SLOTS (1 << 20)
#define KEPT 4096
#define MOST_THREADS 256

struct slot {
    uint64_t key, value;
};

struct session {
    struct session *previous;
    uint64_t sum;
    char text[80];
};

static struct slot *table;
static long lookups;
static uint64_t sums[MOST_THREADS];

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t find(uint64_t key)
{
    uint64_t at = key * 0x9e3779b97f4a7c15u >> 44;
    while (table[at % SLOTS].key != key && table[at % SLOTS].key)
        at++;
    return table[at % SLOTS].value;
}

static void *serve(void *number)
{
    uint64_t state = (uintptr_t)number + 1, sum = 0;
    struct session **kept = must(calloc(KEPT, sizeof *kept));
    for (long i = 0; i < lookups; i++) {
        uint64_t drawn = next_random(&state);
        sum += find(drawn % (SLOTS / 2) + 1);
        if (i % 8)
            continue;
        struct session **list = &kept[drawn >> 32 & (KEPT - 1)];
        struct session *session = must(malloc(sizeof *session));
        session->sum = sum;
        session->previous = *list;
        if (session->previous && session->previous->sum & 1) {
            session->previous = (*list)->previous;
            sum ^= (*list)->sum;
            free(*list);
        }
        *list = session;
    }
    for (int i = 0; i < KEPT; i++) {
        while (kept[i]) {
            struct session *session = kept[i];
            kept[i] = session->previous;
            sum += session->sum;
            free(session);
        }
    }
    free(kept);
    sums[(uintptr_t)number] = sum;
    return NULL;
}

int main(int argc, char **argv)
{
    long threads = argument(argc, argv, 1, 1, 1, MOST_THREADS);
    lookups = argument(argc, argv, 2, 1000000, 1, 1l << 40);
    table = must(calloc(SLOTS, sizeof *table));
    for (uint64_t key = 1; key <= SLOTS / 2; key++) {
        uint64_t at = key * 0x9e3779b97f4a7c15u >> 44;
        while (table[at % SLOTS].key)
            at++;
        table[at % SLOTS] = (struct slot) { key, key ^ key >> 7 };
    }
    pthread_t ids[MOST_THREADS];
    for (uintptr_t i = 0; i < (uintptr_t)threads; i++) {
        if (pthread_create(&ids[i], NULL, serve, (void *)i)) {
            perror("thread");
            return 1;
        }
    }
    uint64_t all = 0;
    for (long i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        all += sums[i];
    }
    printf("%016llx\n", (unsigned long long)all);
    free(table);
    return 0;
}
