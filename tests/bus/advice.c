/* What madvise(2) does to pages, and what the program sees of it: memory that was given back is zero again, memory
 * that was collapsed or advised keeps its contents. Prints "kept" and the number of bytes that are zero. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define HUGE (2L << 20)

static char *map(long bytes)
{
    char *block = mmap(NULL, (size_t)(bytes + HUGE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        exit(1);
    return (char *)(((unsigned long)block + HUGE - 1) & ~(unsigned long)(HUGE - 1));
}

static long touch(char *block, long bytes)
{
    long sum = 0;
    for (long at = 0; at < bytes; at += 64)
        sum += ((volatile char *)block)[at];
    return sum;
}

int main(void)
{
    /* Huge where it is asked for; a part of it goes, the rest is split. */
    char *huge = map(4 * HUGE);
    madvise(huge, 4 * HUGE, MADV_HUGEPAGE);
    memset(huge, 1, 4 * HUGE);
    madvise(huge + 16 * 4096, 4096 * 4096 / 8, MADV_DONTNEED);
    long sum = touch(huge, 4 * HUGE);
    /* Small where it is forbidden, filled at once, huge when it is collapsed. An old kernel does neither. */
    char *small = map(4 * HUGE);
    madvise(small, 2 * HUGE, MADV_NOHUGEPAGE);
    madvise(small, HUGE, MADV_POPULATE_WRITE);
    for (long at = 0; at < 4 * HUGE; at += 4096)
        memset(small + at, 1, 2048);
    madvise(small + 2 * HUGE, 2 * HUGE, MADV_COLLAPSE);
    sum += touch(small, 4 * HUGE);
    madvise(small, 4 * HUGE, MADV_FREE);
    long zeros = 4 * HUGE / 64 - touch(huge, 4 * HUGE);
    printf("%s %ld\n", sum > 0 ? "kept" : "lost", 64 * zeros);
    return 0;
}
