/* One loop goes along the rows of one array and down the columns of another: by itself it goes by two strides, through each array by
 * one.
 *
 * prints: 4186112 1046528
 * levels: -O2
 * expect heap rows: pattern=stream
 * expect heap columns: pattern=stride
 */
#include <stdio.h>
#include <stdlib.h>

enum { N = 512, ROUNDS = 8 };

static long __attribute__((noinline, noclone)) sum(const int *values, long step)
{
    long all = 0;
    for (long at = 0; at < N; at++)
        all += values[at * step];
    return all;
}

int main(void)
{
    int *rows = malloc(N * N * sizeof *rows), *columns = malloc(N * N * sizeof *columns);
    for (long at = 0; at < N * N; at++) {
        rows[at] = at % N * 4;
        columns[at] = at % N;
    }
    long of_rows = 0, of_columns = 0;
    for (int round = 0; round < ROUNDS; round++)
        for (long line = 0; line < N; line++) {
            of_rows += sum(rows + line * N, 1);
            of_columns += sum(columns + line, N);
        }
    printf("%ld %ld\n", of_rows / N, of_columns / N);
    free(rows);
    free(columns);
    return 0;
}
