/* RandomAccess of the HPC Challenge benchmark, one process: xor into a table at random places.
 *
 *     gups [LOG2_WORDS [UPDATES]]               defaults: 20, four times the words
 *
 * The random sequence is HPCC's: x <- 2 x over GF(2) with the polynomial x^63 + x^2 + x + 1. Going
 * through it twice gives back the table, which the program checks, as HPCC does. */
#include <stdint.h>

#include "argument.h"

static uint64_t advance(uint64_t random)
{
    return random << 1 ^ ((int64_t)random < 0 ? 7 : 0);
}

int main(int argc, char **argv)
{
    long log2_words = argument(argc, argv, 1, 20, 1, 36);
    long words = 1L << log2_words;
    long updates = argument(argc, argv, 2, words * 4, 0, 1L << 40);
    uint64_t *table = must(malloc((size_t)words * sizeof *table));
    for (long i = 0; i < words; i++)
        table[i] = (uint64_t)i;
    uint64_t random = 1;
    for (long i = 0; i < updates; i++) {
        random = advance(random);
        table[random & (uint64_t)(words - 1)] ^= random;
    }
    uint64_t checksum = 0;
    for (long i = 0; i < words; i++)
        checksum = checksum * 31 + table[i];
    random = 1;
    for (long i = 0; i < updates; i++) {
        random = advance(random);
        table[random & (uint64_t)(words - 1)] ^= random;
    }
    long wrong = 0;
    for (long i = 0; i < words; i++)
        wrong += table[i] != (uint64_t)i;
    printf("gups %ld updates %ld wrong %ld checksum %016llx\n", words, updates, wrong,
           (unsigned long long)checksum);
    free(table);
    return wrong != 0;
}
