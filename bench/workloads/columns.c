// Sums by columns and transposes, of matrices whose rows are a page and of such whose rows are a line longer: where a walk's lines all fall
// into one set of the first level, they come one behind the other, from wherever.
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 256, PAGE = 4096 / sizeof(double), LINE = 64 / sizeof(double) };

static double *matrix(size_t row) {
    double *m = aligned_alloc(4096, ROWS * row * sizeof *m);
    if (!m) exit(1);
    for (size_t at = 0; at < ROWS * row; at++) m[at] = (double)(at % 7);
    return m;
}

__attribute__((noinline)) static double sum(const double *m, size_t row) {
    double all = 0;
    for (size_t column = 0; column < PAGE; column++)
        for (size_t at = 0; at < ROWS; at++) all += m[at * row + column];
    return all;
}

__attribute__((noinline)) static double sum_padded(const double *m, size_t row) {
    double all = 1;
    for (size_t column = 0; column < PAGE; column++)
        for (size_t at = 0; at < ROWS; at++) all += m[at * row + column];
    return all;
}

__attribute__((noinline)) static void transpose(double *to, const double *from, size_t row) {
    for (size_t line = 0; line < ROWS; line++)
        for (size_t at = 0; at < ROWS; at++) to[at * row + line] = from[line * row + at];
}

__attribute__((noinline)) static void transpose_padded(double *to, const double *from, size_t row) {
    for (size_t line = 0; line < ROWS; line++)
        for (size_t at = 0; at < ROWS; at++) to[at * row + line] = from[line * row + at] + 1;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    double *summed = matrix(PAGE), *summed_padded = matrix(PAGE + LINE);
    double *source = matrix(PAGE), *target = matrix(PAGE);
    double *source_padded = matrix(PAGE + LINE), *target_padded = matrix(PAGE + LINE);
    double all = 0;
    for (int round = 0; round < rounds; round++) {
        all += sum(summed, PAGE) + sum_padded(summed_padded, PAGE + LINE);
        transpose(target, source, PAGE);
        transpose_padded(target_padded, source_padded, PAGE + LINE);
        all += target[round] + target_padded[round];
    }
    printf("%g\n", all);
    return 0;
}
