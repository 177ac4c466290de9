/* Four walks through arrays of 4 MiB: each has its pattern, and a core hides what it waits for in three of them. And one by the C library.
 *
 *     walks ROUNDS
 *
 * "list" has its nodes in random order. The address of the next one is what was loaded, so that each miss is waited for. All other
 * addresses are known ahead: those of "table" follow each other, those of "columns" are a page apart, and those of "cells" are
 * computed from the numbers in "chosen". Each array's walks are in a function of its own; that through "text" is in the library. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 1 << 16, CELLS = 1 << 19, ROWS = 1024, COLUMNS = 512, TEXT_BYTES = 1 << 22 };

struct node {
    struct node *next;
    long rest[7];
};

long table[CELLS], columns[ROWS][COLUMNS], cells[CELLS];
unsigned chosen[NODES];
char text[TEXT_BYTES];

__attribute__((noipa)) static long streams(void)
{
    long sum = 0;
    for (int i = 0; i < CELLS; i++)
        sum += table[i];
    return sum;
}

__attribute__((noipa)) static long strides(void)
{
    long sum = 0;
    for (int column = 0; column < COLUMNS; column += 8)
        for (int row = 0; row < ROWS; row++)
            sum += columns[row][column];
    return sum;
}

__attribute__((noipa)) static long gathers(void)
{
    long sum = 0;
    for (int i = 0; i < NODES; i++)
        sum += cells[chosen[i]];
    return sum;
}

__attribute__((noipa)) static long follows(const struct node *list)
{
    long steps = 1;
    for (const struct node *at = list->next; at != list; at = at->next)
        steps++;
    return steps;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    struct node *list = malloc(NODES * sizeof *list);
    if (!list)
        return 1;
    for (unsigned i = 0; i < NODES; i++) {
        /* Every number once: D. E. Knuth, The Art of Computer Programming 2, section 3.2.1.2. */
        unsigned next = (i * 1664525u + 1013904223u) % NODES;
        list[i].next = &list[next];
        chosen[i] = next * (CELLS / NODES);
    }
    memset(text, 'a', TEXT_BYTES - 1);
    long sum = 0, steps = 0;
    size_t letters = 0;
    for (int round = 0; round < rounds; round++) {
        sum += streams() + strides() + gathers();
        steps += follows(list);
        letters += strlen(text);
    }
    printf("walks %ld %zu %ld\n", steps / NODES, letters / (TEXT_BYTES - 1), sum);
    free(list);
    return 0;
}
