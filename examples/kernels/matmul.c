/* Dense matrix multiplication, the textbook's three loops: c = a b.
 *
 *     matmul [N]                                default: 200
 *
 * a is walked by rows (sequential), b by columns (stride 8 N bytes: the costly one), c once. */
#include "argument.h"

int main(int argc, char **argv)
{
    long n = argument(argc, argv, 1, 200, 1, 8192);
    double *a = must(malloc((size_t)(n * n) * sizeof *a));
    double *b = must(malloc((size_t)(n * n) * sizeof *b));
    double *c = must(malloc((size_t)(n * n) * sizeof *c));
    /* Small integers: every sum is exact, whatever its order. */
    for (long i = 0; i < n * n; i++) {
        a[i] = (double)(i % 7);
        b[i] = (double)(i % 5);
    }
    for (long i = 0; i < n; i++) {
        for (long j = 0; j < n; j++) {
            double sum = 0;
            for (long k = 0; k < n; k++)
                sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
    }
    double checksum = 0;
    for (long i = 0; i < n * n; i++)
        checksum += c[i] * (double)(i % 3 + 1);
    printf("matmul %ld checksum %.0f\n", n, checksum);
    free(a);
    free(b);
    free(c);
    return 0;
}
