/* Fields of structures: in an array on the heap, in blocks that an allocator of the program's own hands out behind a
 * header of 8 bytes, in a flexible array member, in a static array, and in a local.
 *
 * 1,000 rows: each key is stored once and each weight loaded 10 times; left is counted up 5 times, which loads and
 * stores it; one byte of name is stored once. right is never touched.
 * 200 nodes: value is stored once and loaded 3 times, next stored and loaded once each for the walk of each of 3 rounds.
 * A vector's 100 items are stored once and loaded twice, its length stored once and loaded 300 times (volatile).
 * The static array's 50 points: x stored once, y loaded twice.
 * The local's misses: stored once, counted up 20 times, loaded once more; hits: stored once. (With
 * -O2 its parts are apart, and no variable covers them.)
 *
 * field heap rows key: offset=0 bytes=8 loads=0 stores=1000
 * field heap rows left: offset=8 bytes=4 loads=5000 stores=5000
 * field heap rows right: offset=12 bytes=4 loads=0 stores=0
 * field heap rows name[]: offset=16 bytes=16 loads=0 stores=1000
 * field heap rows weight: offset=32 bytes=8 loads=10000 stores=0
 * field heap node value: offset=0 bytes=4 loads=600 stores=200
 * field heap node next: offset=8 bytes=8 loads=600 stores=200
 * field heap vector length: offset=0 bytes=4 loads=300 stores=1
 * field heap vector items[]: offset=8 loads=200 stores=100
 * field global points x: offset=0 bytes=4 loads=0 stores=50
 * field global points y: offset=4 bytes=4 loads=100 stores=0
 * field[-O0] local counters hits: offset=0 bytes=4 loads=0 stores=1
 * field[-O0] local counters misses: offset=4 bytes=4 loads=21 stores=21
 * prints: 1020
 */
#include <stdio.h>
#include <stdlib.h>

struct row {
    volatile long key;
    volatile int left, right;
    volatile char name[16];
    volatile double weight;
};

struct node {
    volatile int value;
    struct node *volatile next;
};

struct vector {
    volatile int length;
    volatile double items[];
};

struct point {
    volatile float x, y;
};

struct counters {
    volatile int hits, misses;
};

static struct point points[50];

/* Keeps the size before the block, as many allocators do. */
__attribute__((noinline)) static void *counted(size_t bytes)
{
    size_t *block = malloc(bytes + sizeof *block);
    *block = bytes;
    return block + 1;
}

int main(void)
{
    struct row *rows = malloc(1000 * sizeof *rows);
    for (int i = 0; i < 1000; i++) {
        rows[i].key = i;
        rows[i].name[i % 16] = 'x';
    }
    double sum = 0;
    for (int round = 0; round < 10; round++)
        for (int i = 0; i < 1000; i++)
            sum += rows[i].weight;
    for (int round = 0; round < 5; round++)
        for (int i = 0; i < 1000; i++)
            rows[i].left++;

    struct node *first = NULL;
    for (int i = 0; i < 200; i++) {
        struct node *node = counted(sizeof *node);
        node->value = 1;
        node->next = first;
        first = node;
    }
    for (int round = 0; round < 3; round++)
        for (struct node *at = first; at; at = at->next)
            sum += at->value;

    struct vector *vector = malloc(sizeof *vector + 100 * sizeof(double));
    vector->length = 100;
    for (int i = 0; i < 100; i++)
        vector->items[i] = 1;
    for (int i = 0; i < 200; i++)
        sum += vector->items[i % 100];
    for (int i = 0; i < 300; i++)
        sum += vector->length == 0;

    for (int i = 0; i < 50; i++)
        points[i].x = 1;
    for (int i = 0; i < 100; i++)
        sum += points[i % 50].y;

    struct counters counters;
    counters.hits = 0;
    counters.misses = 200;
    for (int i = 0; i < 20; i++)
        counters.misses++;
    printf("%g\n", sum + counters.misses);
    return 0;
}
