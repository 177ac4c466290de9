/* An allocator that knows nothing but sbrk: the break moves byte by byte, by gigabytes, and back.
 *
 * 1.5 GiB in steps of 64 MiB and a hundred bytes, of each its first word stored: 24 stores. What was given back and is
 * taken again is zero: 24 loads, of the steps' first words, whose pages were dropped (but for the page that the break goes back
 * to, where it began inside one). Everything counts for the break's mapping: at most 64 more accesses of the
 * library's.
 *
 * expect mmap allocator data (brk heap): stores=24..88 loads=24..88
 * prints: moved by 1610615136 bytes, 0 of them not zero
 */
#define _DEFAULT_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define STEPS 24
#define STEP ((64L << 20) + 100)

static char output[BUFSIZ];

int main(void)
{
    setvbuf(stdout, output, _IOFBF, sizeof output);
    char *first = sbrk(0);
    for (long step = 0; step < STEPS; step++) {
        char *block = sbrk(STEP);
        if (block == (char *)-1) {
            perror("sbrk");
            return 1;
        }
        if (block != first + step * STEP)
            printf("step %ld is not where the break was\n", step);
        *(volatile char *)block = 1;
    }
    long moved = (char *)sbrk(0) - first;
    if (sbrk(-moved) == (void *)-1 || sbrk(0) != first || sbrk(moved) != first)
        printf("back and forth failed\n");
    long left = 0;
    for (long step = 0; step < STEPS; step++) {
        char *block = first + step * STEP;
        /* The page that the break lies in stays. */
        long page_stays = (uintptr_t)first % 4096 && block < first + 4096;
        left += *(volatile char *)block != 0 && !page_stays;
    }
    printf("moved by %ld bytes, %ld of them not zero\n", moved, left);
    return 0;
}
