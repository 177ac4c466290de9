/* Structures of which a loop uses two fields, four times or as often as the second argument says, an index that leads to them,
 * and two blocks that one line allocates for two callers. */
#include <stdio.h>
#include <stdlib.h>

struct record {
    double price;
    char comment[40];
    long count;
    char rest[16];
};

enum { RECORDS = 1 << 17 };

__attribute__((noinline)) static double sum_of_twins(int length) {
    double *twins = malloc((size_t)length * sizeof *twins), sum = 0;
    for (int i = 0; i < length; i++)
        twins[i] = i;
    for (int i = 0; i < length; i++)
        sum += twins[i * 7919L % length];
    free(twins);
    return sum;
}

int main(int argc, char **argv) {
    int rounds = argc > 2 ? atoi(argv[2]) : 4;
    struct record *records = calloc(RECORDS, sizeof *records);
    unsigned *order = malloc(RECORDS * sizeof *order);
    double sum = 0;
    for (unsigned i = 0; i < RECORDS; i++) {
        records[i].price = i;
        records[i].count = i & 3;
        order[i] = (i * 40503u) % RECORDS;
    }
    for (int round = 0; round < rounds; round++)
        for (unsigned i = 0; i < RECORDS; i++)
            sum += records[order[i]].price * (double)records[order[i]].count;
    sum += sum_of_twins(300000);
    sum += sum_of_twins(200000);
    printf("%g\n", sum);
    return 0;
}
