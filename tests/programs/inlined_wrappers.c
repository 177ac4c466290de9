/* Blocks from a wrapper that an optimiser inlines are named by what its caller does with them.
 *
 * "rows[i]": the machine code tells no index, the source text does. It is in a caller of the wrapper:
 * 5 blocks of 240 bytes, 30 longs stored in each: 150 stores, and one load of each for the sum: 5.
 * "grid->cells": 100 longs stored once: 100 stores, one load by main. 800 bytes.
 * "plain": 40 longs stored and loaded once. 320 bytes.
 *
 * levels: -O0 -O1 -O2
 * expect heap rows[i]: blocks=5 bytes=1200 loads=5 stores=150
 * expect heap grid->cells: blocks=1 bytes=800 loads=1 stores=100
 * expect heap plain: blocks=1 bytes=320 loads=40 stores=40
 * expect-absent heap fresh
 * prints: 799
 */
#include <stdio.h>
#include <stdlib.h>

struct grid {
    long count;
    volatile long *cells;
};

static void *xmalloc(size_t size)
{
    void *fresh = malloc(size);
    if (!fresh) {
        perror("malloc");
        exit(1);
    }
    return fresh;
}

__attribute__((noinline)) static long sum_of_rows(volatile long **rows, int count)
{
    long sum = 0;
    for (int i = 0; i < count; i++) {
        rows[i] = xmalloc(240);
        for (int j = 0; j < 30; j++)
            rows[i][j] = j;
    }
    for (int i = 0; i < count; i++)
        sum += rows[i][3];
    return sum;
}

__attribute__((noinline)) static void fill(struct grid *grid, long count)
{
    grid->cells = xmalloc(count * 8);
    grid->count = count;
    for (long i = 0; i < count; i++)
        grid->cells[i] = i;
}

__attribute__((noinline)) static long sum_of_plain(int count)
{
    long sum = 0;
    volatile long *plain = xmalloc(count * 8);
    for (int i = 0; i < count; i++)
        plain[i] = i;
    for (int i = 0; i < count; i++)
        sum += plain[i];
    free((void *)plain);
    return sum;
}

int main(void)
{
    volatile long *rows[5];
    struct grid grid;
    fill(&grid, 100);
    /* 5 * 3 + (0 + 1 + ... + 39 = 780) + 4 */
    long sum = sum_of_rows(rows, 5) + sum_of_plain(40) + grid.cells[4];
    printf("%ld\n", sum);
    return 0;
}
