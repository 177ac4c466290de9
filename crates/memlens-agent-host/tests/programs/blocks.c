/* BLOCKS blocks of SIZE bytes, one after the other; every second one stays. With `fork`, a child frees one of its
 * parent's blocks and allocates one of 30000 bytes; the parent then one of 40000. With `threads`, so many threads
 * come and go, eight at a time, each of which computes for a while and allocates a block of 30000 bytes. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *compute(void *rounds)
{
    volatile unsigned long sum = 0;
    for (unsigned long i = 0; i < (unsigned long)rounds; i++)
        sum += i;
    free(malloc(30000));
    return (void *)sum;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "fork")) {
        char *shared = malloc(20000);
        pid_t child = fork();
        if (child == 0) {
            free(shared);
            char *own = malloc(30000);
            own[0] = 1;
            _exit(own[0]);
        }
        int status;
        waitpid(child, &status, 0);
        char *own = malloc(40000);
        own[0] = 1;
        printf("%d\n", WEXITSTATUS(status));
        return 0;
    }
    if (argc > 2 && !strcmp(argv[1], "threads")) {
        int left = atoi(argv[2]);
        while (left > 0) {
            pthread_t threads[8];
            int batch = left < 8 ? left : 8;
            for (int i = 0; i < batch; i++)
                if (pthread_create(&threads[i], NULL, compute, (void *)200000))
                    return 1;
            for (int i = 0; i < batch; i++)
                pthread_join(threads[i], NULL);
            left -= batch;
        }
        compute((void *)200000000);
        puts("done");
        return 0;
    }
    long blocks = atol(argv[1]), size = atol(argv[2]);
    for (long i = 0; i < blocks; i++) {
        char *block = malloc((size_t)size);
        block[0] = 1;
        if (i % 2)
            free(block);
    }
    return 0;
}
