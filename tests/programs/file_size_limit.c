// Forbids itself files of more than a page, and works for a while: who makes a larger file in its place has it killed by
// SIGXFSZ.
//
// prints: 21474883786850176
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

int main(void) {
    struct rlimit limit = {4096, 4096};
    if (setrlimit(RLIMIT_FSIZE, &limit)) {
        perror("setrlimit");
        return 1;
    }
    unsigned long sum = 0;
    size_t count = 100000;
    unsigned *numbers = malloc(count * sizeof *numbers);
    for (int round = 0; round < 100; round++) {
        for (size_t i = 0; i < count; i++)
            numbers[i] = i * 2654435761u + round;
        for (size_t i = 0; i < count; i++)
            sum += numbers[numbers[i] % count];
    }
    printf("%lu\n", sum);
    return 0;
}
