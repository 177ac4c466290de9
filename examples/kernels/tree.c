/* A binary search tree with a block of its own for each node: pointer chasing.
 *
 *     tree [NODES [LOOKUPS]]                    defaults: 50000, four times NODES
 *
 * All nodes come from one line, so they are one object in a profile. */
#include <stdint.h>

#include "argument.h"

struct node {
    uint64_t key;
    struct node *left, *right;
    long hits;
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Finds the link that holds the key or should. */
static struct node **link_of(struct node **link, uint64_t key)
{
    while (*link && (*link)->key != key)
        link = key < (*link)->key ? &(*link)->left : &(*link)->right;
    return link;
}

/* Sums hits by depth and frees the nodes. The tree of random keys is about 2.5 log2(n) deep. */
static uint64_t consume(struct node *node, uint64_t depth)
{
    if (!node)
        return 0;
    uint64_t sum = (uint64_t)node->hits * depth + consume(node->left, depth + 1) + consume(node->right, depth + 1);
    free(node);
    return sum;
}

int main(int argc, char **argv)
{
    long nodes = argument(argc, argv, 1, 50000, 1, 100000000);
    long lookups = argument(argc, argv, 2, nodes * 4, 0, 1000000000);
    struct node *root = NULL;
    uint64_t state = 1;
    for (long i = 0; i < nodes; i++) {
        uint64_t key = next_random(&state) % (uint64_t)(nodes * 2);
        struct node **link = link_of(&root, key);
        if (!*link) {
            struct node *node = must(calloc(1, sizeof *node));
            node->key = key;
            *link = node;
        }
    }
    long found = 0;
    for (long i = 0; i < lookups; i++) {
        struct node **link = link_of(&root, next_random(&state) % (uint64_t)(nodes * 2));
        if (*link) {
            (*link)->hits++;
            found++;
        }
    }
    printf("tree %ld lookups %ld found %ld ", nodes, lookups, found);
    printf("depth sum %llu\n", (unsigned long long)consume(root, 1));
    return 0;
}
