/* Blocks whose statements have several lines are called after what is to the left of the sign, in whichever of the lines
 * the call is. Five arrays of 0 to 9,999 add up to 5 * 49,995,000.
 *
 * expect heap plain: blocks=1 bytes=40000
 * expect heap called: blocks=1 bytes=40000
 * expect heap graph->column: blocks=1 bytes=40000
 * expect heap graph->row: blocks=1 bytes=40000
 * expect heap table: blocks=1 bytes=40000
 * prints: 249975000
 */
#include <stdio.h>
#include <stdlib.h>

struct graph {
    long nodes;
    int *column;
    int *row;
};

static int *table;

static void *make(size_t n, size_t size) { return calloc(n, size); }

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 10000;
    int *plain =
        /* as many as that */
        malloc(n * sizeof *plain);
    int *called = make(
        n,
        sizeof *called);
    struct graph *graph = malloc(sizeof *graph);
    graph->column
        = malloc(n * sizeof(int));
    graph->row = (int *)
        malloc(
            n * sizeof(int));
    table =
        n == 3
            ? NULL
            : malloc(n * sizeof(int));
    for (int i = 0; i < n; i++) {
        plain[i] = called[i] = graph->column[i] = graph->row[i] = i;
        table[i] = i;
    }
    long sum = 0;
    for (int i = 0; i < n; i++) sum += plain[i] + called[i] + graph->column[i] + graph->row[i] + table[i];
    printf("%ld\n", sum);
}
