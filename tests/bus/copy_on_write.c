/* A parent fills an array and forks; the child reads all of it, writes its second half and reads it again, while
 * the parent writes the first half. After the fork both map the same frames until one of them writes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (8L << 20)

static long sum(const volatile char *block)
{
    long all = 0;
    for (long at = 0; at < BYTES; at += 64)
        all += block[at];
    return all;
}

int main(void)
{
    char *inherited = malloc(BYTES);
    if (!inherited)
        return 1;
    memset(inherited, 1, BYTES);
    pid_t child = fork();
    if (child < 0)
        return 1;
    if (child == 0) {
        char *own = malloc(BYTES);
        if (!own || sum(inherited) != BYTES / 64)
            _exit(2);
        memset(inherited + BYTES / 2, 2, BYTES / 2);
        memset(own, 3, BYTES);
        _exit(sum(inherited) == BYTES / 64 * 3 / 2 && sum(own) == BYTES / 64 * 3 ? 0 : 3);
    }
    memset(inherited, 4, BYTES / 2);
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        return 4;
    printf("%ld\n", sum(inherited));
    return 0;
}
