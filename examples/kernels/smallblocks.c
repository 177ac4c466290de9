/* A table of the latest events, each in a block of 25 to 120 bytes, oldest thrown out: the cost of watching small
 * allocations.
 *
 *     smallblocks [BLOCKS [LIVE]]               defaults: 20000000, 65536
 *
 * Events hang in the lists of a hash table and in a queue by age. Every turn adds one event or replaces the one
 * with its key, and looks another key up. */
#include <stdint.h>
#include <string.h>

#include "argument.h"

struct event {
    struct event *next, *newer;
    uint32_t key;
    char text[];
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static struct event **link_of(struct event **lists, uint32_t mask, const struct event *event)
{
    struct event **link = &lists[event->key & mask];
    while (*link != event)
        link = &(*link)->next;
    return link;
}

int main(int argc, char **argv)
{
    long blocks = argument(argc, argv, 1, 20000000, 1, 2000000000);
    long live = argument(argc, argv, 2, 65536, 1, 10000000);
    uint32_t mask = 1;
    while (mask + 1 < (uint64_t)live)
        mask = mask * 2 + 1;
    struct event **lists = must(calloc((size_t)mask + 1, sizeof *lists));
    struct event *oldest = NULL, *newest = NULL;
    uint64_t state = 1, found = 0, letters = 0;
    for (long i = 0; i < blocks; i++) {
        uint64_t random = next_random(&state);
        if (i >= live) {
            struct event *gone = oldest;
            oldest = gone->newer;
            struct event **link = link_of(lists, mask, gone);
            *link = gone->next;
            free(gone);
        }
        size_t length = 1 + (random >> 50) % 96;
        struct event *event = must(malloc(sizeof *event + length));
        event->key = (uint32_t)random;
        event->newer = NULL;
        memset(event->text, 'a' + (int)(length % 26), length);
        event->next = lists[event->key & mask];
        lists[event->key & mask] = event;
        if (newest)
            newest->newer = event;
        else
            oldest = event;
        newest = event;
        for (struct event *seen = lists[(random >> 32) & mask]; seen; seen = seen->next) {
            found++;
            letters += (unsigned char)seen->text[0];
        }
    }
    printf("smallblocks %ld live %ld found %llu letters %llu\n", blocks, live, (unsigned long long)found,
           (unsigned long long)letters);
    while (oldest) {
        struct event *gone = oldest;
        oldest = gone->newer;
        free(gone);
    }
    free(lists);
    return 0;
}
