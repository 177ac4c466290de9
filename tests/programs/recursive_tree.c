/* Nodes that a function allocates in its own calls, from two of its lines, are one object however deep they are.
 *
 * expect heap root: blocks=1000 bytes=24000 max_live_bytes=24000
 * prints: 1000
 */
#include <stdio.h>
#include <stdlib.h>

struct node {
    unsigned key;
    struct node *left, *right;
};

__attribute__((noinline)) static struct node *insert(struct node *root, unsigned key)
{
    if (!root) {
        struct node *made = calloc(1, sizeof *made);
        made->key = key;
        return made;
    }
    if (key < root->key)
        root->left = insert(root->left, key);
    else
        root->right = insert(root->right, key);
    return root;
}

static unsigned count(const struct node *root)
{
    return root ? 1 + count(root->left) + count(root->right) : 0;
}

int main(void)
{
    struct node *root = NULL;
    unsigned key = 1;
    for (int i = 0; i < 1000; i++) {
        key = key * 1664525 + 1013904223;
        root = insert(root, key);
    }
    printf("%u\n", count(root));
}
