/* Allocates in the ways that C programs do. Each allocation prints its return address through
 * hook.c; the test knows the variables by the order of the calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
    long key;
    struct node *left, *right;
};

struct graph {
    int n;
    int *column;
    long *rowstarts;
};

int *global_table;
static struct node nodes[16];
_Thread_local long tls_count = 3;

__attribute__((noinline)) static void *xmalloc(size_t n)
{
    void *p = malloc(n);
    if (!p)
        abort();
    return p;
}

__attribute__((noinline)) static struct node *make_node(long key)
{
    struct node *fresh = malloc(sizeof *fresh);
    if (fresh == NULL)
        return NULL;
    fresh->key = key;
    fresh->left = fresh->right = NULL;
    return fresh;
}

__attribute__((noinline)) static long bump(void)
{
    static long calls;
    return ++calls;
}

__attribute__((noinline)) static void fill(struct graph *g, int n)
{
    g->n = n;
    g->column = malloc(n * sizeof(int));
    g->rowstarts = calloc(n, sizeof(long));
    memset(g->column, 0, n * sizeof(int));
}

int main(int argc, char **argv)
{
    int n = argc + 99;
    int *column = malloc(n * sizeof(int));
    long *rowstarts = malloc((n + 1) * sizeof(long));
    char *visited = calloc(n, 1);
    int *pred = malloc(n * sizeof(int));
    int *oldq = malloc(n * sizeof(int));
    int *newq = malloc(n * sizeof(int));
    if (!column || !rowstarts || !visited || !pred || !oldq || !newq)
        return 1;
    global_table = malloc(n * sizeof(int));
    struct graph g;
    fill(&g, n);
    long *wrapped = xmalloc(n * sizeof(long));
    struct node *tree = make_node(5);
    for (int i = 0; i < n; i++) {
        column[i] = (i * 7) % n;
        rowstarts[i] = i;
        pred[i] = -1;
        oldq[i] = newq[i] = wrapped[i] = global_table[i] = i;
    }
    rowstarts[n] = n;
    int head = 0, tail = 1;
    oldq[0] = 0;
    visited[0] = 1;
    while (head < tail) {
        int v = oldq[head++];
        for (long e = rowstarts[v]; e < rowstarts[v + 1]; e++)
            if (!visited[column[e]]) {
                visited[column[e]] = 1;
                pred[column[e]] = v;
                newq[tail] = column[e];
                oldq[tail] = newq[tail];
                tail++;
            }
    }
    nodes[2].key = tail + bump() + tls_count;
    tree->left = &nodes[2];
    fprintf(stderr, "%d %ld %ld %d %d\n", tail, wrapped[3], tree->left->key, g.column[2], pred[argc] + newq[0]);
    return argv[0] == NULL;
}
