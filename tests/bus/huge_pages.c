/* Memory in transparent huge pages, in small ones next to them, and a huge page that the kernel has to split. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#define MIB (1L << 20)

static long touch(volatile char *block, long bytes, long step)
{
    long all = 0;
    for (long at = 0; at < bytes; at += step) {
        all += block[at];
        block[at] = (char)(at / step);
    }
    return all;
}

int main(void)
{
    char *block = mmap(NULL, 12 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return 1;
    char *aligned = (char *)(((uintptr_t)block + 2 * MIB - 1) & ~(uintptr_t)(2 * MIB - 1));
    /* Whether there are huge pages is the kernel's to decide. */
    madvise(aligned, 6 * MIB, MADV_HUGEPAGE);
    long all = 0;
    for (int round = 0; round < 3; round++)
        all += touch(aligned, 8 * MIB, 64);
    munmap(aligned + 3 * MIB, MIB);
    all += touch(aligned, 3 * MIB, 64) + touch(aligned + 4 * MIB, 4 * MIB, 64);
    printf("%ld\n", all);
    return 0;
}
