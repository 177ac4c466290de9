/* Structures of which a loop uses two fields, an index that leads to them, and a name that wants to be a page's. */
#include <stdio.h>
#include <stdlib.h>

struct record {
    double price;
    char comment[40];
    long count;
    char rest[16];
};

enum { RECORDS = 1 << 17 };

int main(void) {
    struct record *records = calloc(RECORDS, sizeof *records);
    unsigned *order = malloc(RECORDS * sizeof *order);
    double sum = 0;
    for (unsigned i = 0; i < RECORDS; i++) {
        records[i].price = i;
        records[i].count = i & 3;
        order[i] = (i * 40503u) % RECORDS;
    }
    for (int round = 0; round < 4; round++)
        for (unsigned i = 0; i < RECORDS; i++)
            sum += records[order[i]].price * (double)records[order[i]].count;
    printf("%g\n", sum);
    return 0;
}
