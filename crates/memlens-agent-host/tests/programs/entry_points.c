/* Each allocation function once, with a size that no other has; then the blocks end in turn. What must be reported
 * is in tests/agent.rs. With the argument `environment`, prints the environment and the open descriptors instead. */
#define _GNU_SOURCE
#include <dirent.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "environment")) {
        for (char **word = environ; *word; word++)
            puts(*word);
        DIR *folder = opendir("/proc/self/fd");
        for (struct dirent *entry; (entry = readdir(folder));)
            puts(entry->d_name);
        return 0;
    }
    void *blocks[16];
    int count = 0;
    blocks[count++] = malloc(10001);
    blocks[count++] = calloc(10, 1001);
    blocks[count++] = memalign(64, 10003);
    blocks[count++] = aligned_alloc(64, 10048);
    if (posix_memalign(&blocks[count++], 4096, 10005))
        return 1;
    blocks[count++] = valloc(10006);
    blocks[count++] = pvalloc(10007);
    blocks[count++] = realloc(NULL, 10008);
    blocks[count++] = reallocarray(NULL, 12, 1111);
    /* Moved, grown in place or not, and refused. */
    blocks[0] = realloc(blocks[0], 50001);
    volatile size_t all = PTRDIFF_MAX;
    if (realloc(blocks[1], all) || reallocarray(blocks[1], all, all) || malloc(all) || calloc(all, all))
        return 2;
    for (int i = 0; i < count; i++)
        free(blocks[i]);
    free(NULL);
    puts("done");
    return 5;
}
