/* Touches N pages of PAGE bytes once in order, twice: first by writing, so that all are mapped, then, after
 * everything that a TLB could hold has gone through it, by reading from the function `walk`. What a card sees
 * of `walk` is known: a TLB miss for each page, in order. Neighbouring pages are touched at different lines: those
 * at one offset in huge pages are all of one set of a cache, and would drive out the page table's line of that set.
 *
 *     page_walk N PAGE */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static volatile char *array, *sweep;
static long sum;

static long offset(long page, long bytes)
{
    return page * bytes + page % 64 * 64;
}

__attribute__((noinline)) void walk(long pages, long bytes)
{
    for (long at = 0; at < pages; at++)
        sum += array[offset(at, bytes)];
}

__attribute__((noinline)) void walked(void)
{
    sum++;
}

static char *map(long bytes, long align)
{
    /* Aligned to the page by hand, to 2 MiB at least. */
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *block = mmap(NULL, (size_t)(bytes + align), PROT_READ | PROT_WRITE, flags, -1, 0);
    if (block == MAP_FAILED)
        exit(1);
    return (char *)(((unsigned long)block + (unsigned long)align - 1) & ~((unsigned long)align - 1));
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    long pages = atol(argv[1]), bytes = atol(argv[2]);
    long align = bytes > 2L << 20 ? bytes : 2L << 20;
    array = map(pages * bytes, align);
    sweep = map(pages * bytes, align);
    for (long at = 0; at < pages; at++)
        array[offset(at, bytes)] = 1;
    for (long at = 0; at < pages; at++)
        sweep[offset(at, bytes)] = 1;
    walk(pages, bytes);
    walked();
    printf("%ld\n", sum);
    return 0;
}
