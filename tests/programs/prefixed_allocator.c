// An allocator that is part of the program and has mimalloc's names: its entry jumps on to a function that maps memory, so that
// no call stack has the entry.
//
// The list's nodes get two stores each, the table one of each element.
//
// expect heap table: blocks=1 bytes=8000 stores=1000 store_bytes=8000
// expect heap node: blocks=100 bytes=1600 stores=200 store_bytes=1600
// prints: 4950
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static char *arena;
static size_t used;

__attribute__((noinline)) static void *_mi_malloc_generic(size_t bytes, size_t alignment)
{
    if (arena == NULL)
        arena = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    used = (used + alignment - 1) / alignment * alignment;
    void *block = arena + used;
    used += bytes;
    return block;
}

__attribute__((noinline)) void *mi_malloc_aligned(size_t bytes, size_t alignment)
{
    return _mi_malloc_generic(bytes, alignment);
}

struct node {
    long value;
    struct node *next;
};

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1;
    long *table = mi_malloc_aligned(1000 * sizeof(long), 64);
    struct node *list = NULL;
    for (long n = 0; n < 100; n++) {
        struct node *node = mi_malloc_aligned(sizeof(struct node), 16);
        node->value = n;
        node->next = list;
        list = node;
    }
    long sum = 0;
    for (long round = 0; round < rounds; round++) {
        for (long n = 0; n < 1000; n++)
            table[n] = n + round;
        sum = 0;
        for (struct node *node = list; node != NULL; node = node->next)
            sum += node->value;
    }
    printf("%ld\n", sum);
    return 0;
}
