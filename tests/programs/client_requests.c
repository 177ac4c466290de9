/* Client requests: what lies between stop and start is not counted, and a region can have a name.
 *
 * "arena" is a block of 4096 bytes, of which bytes 1024 to 2047 are called "token pool". With collection
 * on, main stores 10 times to arena's start and 30 times to the pool; with it off, 1000 times to both.
 * After the pool is freed, 5 stores to its place belong to "arena" again: 15 there. Of two regions that one line of
 * code makes, each has its own name: 7 and 8 stores.
 *
 * expect heap arena: stores=15
 * expect * token pool: stores=30 blocks=1
 * expect * keys: stores=7 blocks=1 bytes=256
 * expect * values: stores=8 blocks=1 bytes=256
 * prints: default
 */
#include "../../include/memlens.h"
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static void store(volatile int *at, int times)
{
    for (int i = 0; i < times; i++)
        *at = i;
}

static int tables[2][64];
static const char *const names[] = {"keys", "values"};

int main(void)
{
    for (int i = 0; i < 2; i++)
        memlens_region_is(tables[i], sizeof tables[i], names[i]);
    store(tables[0], 7);
    store(tables[1], 8);
    char *arena = malloc(4096);
    int *pool = (int *)(arena + 1024);
    memlens_region_is(pool, 1024, "token pool");
    store((int *)arena, 10);
    memlens_mark("between");
    store(pool, 30);
    memlens_stop_collection();
    store((int *)arena, 1000);
    store(pool, 1000);
    memlens_start_collection();
    memlens_region_freed(pool);
    store(pool, 5);
    free(arena);
    puts("default");
    return 0;
}
