/* Allocations through inlined wrappers, to members, elements, thread-locals and out parameters. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct point {
    double *x;
    double *y;
};

struct shape {
    long id;
    struct point center;
    char **labels;
};

static _Thread_local char *scratch;
static struct shape fixed_shape;
struct shape *shared_shape = &fixed_shape;

static inline __attribute__((always_inline)) void *xmalloc(size_t n)
{
    void *p = malloc(n);
    if (p == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

__attribute__((noinline)) static int make(int **out, int n)
{
    *out = malloc(n * sizeof(int));
    return *out == NULL;
}

__attribute__((noinline)) static void touch(void *p)
{
    __asm__ volatile("" ::"r"(p) : "memory");
}

int main(int argc, char **argv)
{
    int n = argc + 20;
    double *weights = xmalloc(n * sizeof(double));
    touch(weights);
    scratch = malloc(64);
    fixed_shape.labels = malloc(n * sizeof(char *));
    shared_shape->center.y = malloc(n * sizeof(double));
    struct shape local;
    touch(&local);
    local.center.x = malloc(n * sizeof(double));
    touch(&local);
    int *made;
    int failed = make(&made, n);
    char **lines = malloc(n * sizeof(char *));
    for (int i = 0; i < 2; i++) {
        lines[i] =
            malloc(80);
        touch(lines[i]);
    }
    fprintf(stderr, "%d %f %s %p\n", failed, weights[0] * 0, argv[0], (void *)local.center.x);
    touch(made);
    touch(scratch);
    touch(lines);
    struct point apart;
    apart.x = malloc(n * sizeof(double));
    apart.y = malloc(n * sizeof(double));
    touch(apart.x);
    touch(apart.y);
    touch(apart.x + 1);
    return 0;
}
