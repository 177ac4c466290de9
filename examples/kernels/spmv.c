/* Sparse matrix times dense vector, compressed sparse rows: y = A x, some times over.
 *
 *     spmv [ROWS [ENTRIES_A_ROW [TIMES]]]       defaults: 20000 16 5
 *
 * ax, columns and rows are walked in order; xhost (the vector, named as in the paper of Chen et al.)
 * is gathered from at random. */
#include <stdint.h>

#include "argument.h"

int main(int argc, char **argv)
{
    long n = argument(argc, argv, 1, 20000, 1, 50000000);
    long per_row = argument(argc, argv, 2, 16, 1, 1024);
    long times = argument(argc, argv, 3, 5, 1, 100000);
    double *ax = must(malloc((size_t)(n * per_row) * sizeof *ax));
    int *columns = must(malloc((size_t)(n * per_row) * sizeof *columns));
    long *rows = must(malloc((size_t)(n + 1) * sizeof *rows));
    double *xhost = must(malloc((size_t)n * sizeof *xhost));
    double *yhost = must(calloc((size_t)n, sizeof *yhost));
    uint64_t state = 1;
    rows[0] = 0;
    for (long row = 0; row < n; row++) {
        xhost[row] = (double)(row % 11);
        for (long k = rows[row]; k < rows[row] + per_row; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            columns[k] = (int)((state >> 33) % (uint64_t)n);
            ax[k] = (double)(k % 3);
        }
        rows[row + 1] = rows[row] + per_row;
    }
    for (long time = 0; time < times; time++) {
        for (long row = 0; row < n; row++) {
            double sum = 0;
            for (long k = rows[row]; k < rows[row + 1]; k++)
                sum += ax[k] * xhost[columns[k]];
            yhost[row] += sum;
        }
    }
    /* Integers throughout: exact. */
    double checksum = 0;
    for (long row = 0; row < n; row++)
        checksum += yhost[row] * (double)(row % 13);
    printf("spmv %ld entries %ld times %ld checksum %.0f\n", n, n * per_row, times, checksum);
    free(ax);
    free(columns);
    free(rows);
    free(xhost);
    free(yhost);
    return 0;
}
