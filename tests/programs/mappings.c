/* An anonymous mapping: mapped, made larger, partly and then wholly unmapped. It is one object, wherever it is.
 *
 * One store of 8 bytes a page: 16 in the first form, 32 in the grown one, 24 after a quarter is gone:
 * 72 stores. Each is the first of its page's first line, or a hit of it: 32 lines in all when mremap
 * keeps the place; when it moves the mapping, lines are new and at most 16 more.
 *
 * expect mmap region: stores=72 store_bytes=576
 * prints: 72
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>

#define PAGE 4096L

__attribute__((noinline)) static long touch(volatile char *block, long from, long to)
{
    for (long page = from; page < to; page++)
        *(volatile long *)(block + page * PAGE) = page;
    return to - from;
}

int main(void)
{
    int private = MAP_PRIVATE | MAP_ANONYMOUS;
    char *region = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, private, -1, 0);
    if (region == MAP_FAILED)
        return 1;
    long stores = touch(region, 0, 16);
    region = mremap(region, 16 * PAGE, 32 * PAGE, MREMAP_MAYMOVE);
    if (region == MAP_FAILED)
        return 1;
    stores += touch(region, 0, 32);
    munmap(region, 8 * PAGE);
    stores += touch(region, 8, 32);
    munmap(region + 8 * PAGE, 24 * PAGE);
    printf("%ld\n", stores);
    return 0;
}
