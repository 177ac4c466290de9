/* Blocks that wrappers hand on are their callers', who are named without debug information, too: by their symbols.
 *
 * build keeps two blocks, from xmalloc and from xcalloc, which calls xmalloc and returns what memset and counted do:
 * "build": 100 longs, each stored and loaded once by build: 800 bytes, 100 stores, 100 loads.
 * "build": 50 longs, 400 bytes, cleared by memset, whose stores are as wide as the library likes, and used in the same way.
 * keep puts its block into a list besides returning it: "list", 10 blocks of 16 bytes, 2 stores each by keep; main loads both
 * words of each: 20 loads.
 *
 * flags: -g0 -fno-inline
 * expect heap build: blocks=1 bytes=800 loads=100 stores=100
 * expect heap build: blocks=1 bytes=400 loads=50 stores=51..
 * expect heap list: blocks=10 bytes=160 loads=20 stores=20
 * expect-absent heap xmalloc
 * expect-absent heap xcalloc
 * expect-absent heap main
 * prints: 4950 1225 45
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct item {
    struct item *next;
    long value;
};

static struct item *list;
static size_t total;

static void *xmalloc(size_t size)
{
    void *fresh = malloc(size);
    if (!fresh) {
        perror("malloc");
        exit(1);
    }
    return fresh;
}

/* A function that returns what it is given. */
__attribute__((noipa)) static void *counted(void *block, size_t size)
{
    total += size;
    return block;
}

static void *xcalloc(size_t count, size_t size)
{
    return counted(memset(xmalloc(count * size), 0, count * size), count * size);
}

static void build(void)
{
    volatile long *numbers = xmalloc(800), *cleared = xcalloc(50, 8);
    long all = 0, half = 0;
    for (long i = 0; i < 100; i++)
        numbers[i] = i;
    for (long i = 0; i < 50; i++)
        cleared[i] = i;
    for (long i = 0; i < 100; i++)
        all += numbers[i];
    for (long i = 0; i < 50; i++)
        half += cleared[i];
    printf("%ld %ld ", all, half);
}

static struct item *keep(long value)
{
    struct item *item = xmalloc(sizeof *item);
    item->next = list;
    item->value = value;
    list = item;
    return item;
}

int main(void)
{
    long listed = 0;
    build();
    for (long i = 0; i < 10; i++)
        keep(i);
    for (struct item *item = list; item; item = item->next)
        listed += item->value;
    printf("%ld\n", listed);
    return 0;
}
