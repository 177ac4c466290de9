/* Loops of some 50 ms, one after the other, each many times over an array of its own that a cache of 4 MB holds: few bursts meet each,
 * and next to none of them the same place twice. Other data, read once, is much larger.
 *
 *     rounds MEGABYTES ROUNDS
 *
 * The arrays have MEGABYTES MB; each is gone through ROUNDS times. */
#include <stdio.h>
#include <stdlib.h>

enum { ARRAYS = 8, INPUT_WORDS = 8 << 20 };

__attribute__((noinline)) static long added(const long *array, long words, long sum)
{
    for (long at = 0; at < words; at++)
        sum = (sum ^ array[at]) + (sum >> 7);
    return sum;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: rounds MEGABYTES ROUNDS\n");
        return 2;
    }
    long words = atol(argv[1]) << 17, rounds = atol(argv[2]), sum = 0;
    long *input = malloc(INPUT_WORDS * sizeof *input);
    if (!input)
        return 1;
    for (long at = 0; at < INPUT_WORDS; at++)
        input[at] = at;
    for (int number = 0; number < ARRAYS; number++) {
        long *array = malloc(words * sizeof *array);
        if (!array)
            return 1;
        for (long at = 0; at < words; at++)
            array[at] = input[(at * ARRAYS + number) % INPUT_WORDS];
        for (long round = 0; round < rounds; round++)
            sum = added(array, words, sum);
        free(array);
    }
    free(input);
    printf("%ld\n", sum);
    return 0;
}
