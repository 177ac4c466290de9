/* Memory that grows in place or moves (mremap), is unmapped in parts, and mapped again at the same addresses. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MIB (1L << 20)

static long touch(volatile char *block, long bytes, char value)
{
    long all = 0;
    for (long at = 0; at < bytes; at += 64) {
        all += block[at];
        block[at] = value;
    }
    return all;
}

static char *map(void *where, long bytes, int more)
{
    char *block = mmap(where, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | more, -1, 0);
    return block == MAP_FAILED ? NULL : block;
}

int main(void)
{
    long all = 0;
    char *block = map(NULL, 4 * MIB, 0);
    char *wall = map(block ? block + 4 * MIB : NULL, 1 * MIB, 0);
    if (!block || !wall)
        return 1;
    touch(block, 4 * MIB, 1);
    for (long bytes = 4; bytes < 16; bytes *= 2) {
        block = mremap(block, (size_t)(bytes * MIB), (size_t)(2 * bytes * MIB), MREMAP_MAYMOVE);
        if (block == MAP_FAILED)
            return 1;
        all += touch(block, 2 * bytes * MIB, 1);
    }
    /* A hole in the middle, and other memory in the hole. */
    if (munmap(block + 4 * MIB, 4 * MIB) != 0)
        return 1;
    char *other = map(block + 4 * MIB, 4 * MIB, MAP_FIXED);
    if (!other)
        return 1;
    all += touch(other, 4 * MIB, 2);
    all += touch(block, 16 * MIB, 3);
    block = mremap(block, 16 * MIB, 2 * MIB, 0);
    if (block == MAP_FAILED)
        return 1;
    all += touch(block, 2 * MIB, 4);
    printf("%ld\n", all);
    return 0;
}
