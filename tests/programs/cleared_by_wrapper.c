/* A wrapper that clears what it returns, by a call of memset whose result it returns, hands it on: with debug information the
 * variable of its caller names the block.
 *
 * "table": 64 longs, 512 bytes: main adds to each once, and loads each once: 128 loads, 64 stores besides those of memset, where the compiler calls no calloc instead.
 *
 * flags: -fno-inline
 * levels: -O1 -O2
 * expect heap table: blocks=1 bytes=512 loads=128 stores=64..
 * expect-absent heap memory
 * prints: 2016
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *xcalloc(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory)
        abort();
    memset(memory, 0, bytes);
    return memory;
}

int main(void)
{
    volatile long *table = xcalloc(64 * sizeof *table);
    long sum = 0;
    for (long i = 0; i < 64; i++)
        table[i] += i;
    for (long i = 0; i < 64; i++)
        sum += table[i];
    printf("%ld\n", sum);
    return 0;
}
