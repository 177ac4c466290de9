/* A matrix of rows from one line and one call stack: one object (row V6).
 *
 * 64 rows of 32 longs (256 bytes). Each element is stored once and loaded once: 2048 of each. "rows",
 * the block of pointers, is one of 512 bytes; its loads depend on the compiler's mind, its 64 stores do
 * not.
 *
 * expect heap row: blocks=64 bytes=16384 loads=2048 stores=2048 load_bytes=16384 store_bytes=16384
 * expect heap rows: blocks=1 bytes=512 stores=64
 * prints: 2096128
 */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    volatile long **rows = malloc(64 * sizeof *rows);
    for (int i = 0; i < 64; i++) {
        volatile long *row = malloc(32 * sizeof *row);
        rows[i] = row;
    }
    for (int i = 0; i < 64; i++) {
        for (int j = 0; j < 32; j++)
            rows[i][j] = i * 32 + j;
    }
    long sum = 0;
    for (int i = 0; i < 64; i++) {
        for (int j = 0; j < 32; j++)
            sum += rows[i][j];
    }
    /* Sum of 0 to 2047. */
    printf("%ld\n", sum);
    return 0;
}
