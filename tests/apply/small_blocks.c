/* A chain of blocks of 64 bytes in an order that has nothing to do with their addresses: all walks are the heap's.
 * At the end it rests for a tenth of a second, in which whoever looks at it each 20 ms sees all of it. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct node {
    struct node *next;
    long value[7];
};

int main(void)
{
    enum { NODES = 200000 };
    struct node **order = malloc(NODES * sizeof *order);
    for (long i = 0; i < NODES; i++) {
        struct node *node = malloc(sizeof *node);
        node->value[0] = i;
        order[i] = node;
    }
    unsigned long long state = 1;
    for (long i = NODES - 1; i > 0; i--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        long other = (long)((state >> 33) % (unsigned long long)(i + 1));
        struct node *swap = order[i];
        order[i] = order[other];
        order[other] = swap;
    }
    for (long i = 0; i < NODES; i++)
        order[i]->next = order[(i + 1) % NODES];
    long sum = 0;
    struct node *at = order[0];
    for (long i = 0; i < 5L * NODES; i++) {
        sum = sum * 31 + at->value[0];
        at = at->next;
    }
    usleep(100000);
    printf("%lx\n", sum);
    return 0;
}
