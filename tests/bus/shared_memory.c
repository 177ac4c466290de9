/* Two processes share an array: the parent writes it, the child reads it and writes the other half of each
 * element. Both have the same frames at the same addresses, and an array of their own each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT (1L << 17)

struct pair {
    int of_parent, of_child;
    char rest[56];
};

int main(void)
{
    size_t bytes = COUNT * sizeof(struct pair);
    volatile struct pair *pairs = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pairs == MAP_FAILED)
        return 1;
    for (long i = 0; i < COUNT; i++)
        pairs[i].of_parent = 1;
    pid_t child = fork();
    if (child < 0)
        return 1;
    if (child == 0) {
        long *own = malloc(COUNT * sizeof *own);
        if (!own)
            _exit(2);
        for (long i = 0; i < COUNT; i++) {
            own[i] = pairs[i].of_parent;
            pairs[i].of_child = (int)own[i] + 1;
        }
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        return 3;
    long sum = 0;
    for (long i = 0; i < COUNT; i++)
        sum += pairs[i].of_parent + pairs[i].of_child;
    printf("%ld\n", sum);
    return 0;
}
