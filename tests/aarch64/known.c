/* Four arrays, accessed by known parts of the instructions.
 *
 *     known [ROUNDS [THREADS [CHILDREN]]]      defaults: 100 1 0
 *
 * A round adds up N elements: four loads of a heap block, three of a global, two of an array on the stack and one of a thread-local
 * one. Where each instruction takes the same time, so are the shares of time: 40, 30, 20 and 10 % of that of the loads. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 4096 };

static long in_globals[N];
static __thread long in_thread[N];
static long rounds = 100;

struct pair {
    long first, second;
};

/* A cell of any of them, read each time that it is named. */
#define CELL(array, i) (*(volatile long *)&(array)[(i) & (N - 1)])

static long sum(struct pair *in_heap, long *on_stack)
{
    long total = 0;
    for (long i = 0; i < N; i++) {
        total += *(volatile long *)&in_heap[i].first;
        total += CELL(in_globals, i);
        total += *(volatile long *)&in_heap[i].second;
        total += CELL(on_stack, i);
        total += CELL(in_globals, i + 1);
        total += *(volatile long *)&in_heap[i].first;
        total += CELL(in_thread, i);
        total += CELL(in_globals, i + 2);
        total += *(volatile long *)&in_heap[i].second;
        total += CELL(on_stack, i + 1);
    }
    return total;
}

static void *work(void *unused)
{
    (void)unused;
    long on_stack[N] = {0};
    struct pair *in_heap = calloc(N, sizeof *in_heap);
    if (!in_heap)
        abort();
    long total = 0;
    for (long round = 0; round < rounds; round++) {
        total += sum(in_heap, on_stack);
        /* Whoever attaches sees the next one. */
        if (round % 256 == 255) {
            free(in_heap);
            in_heap = calloc(N, sizeof *in_heap);
            if (!in_heap)
                abort();
        }
    }
    free(in_heap);
    return (void *)total;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        rounds = atol(argv[1]);
    int threads = argc > 2 ? atoi(argv[2]) : 1, children = argc > 3 ? atoi(argv[3]) : 0;
    for (int child = 0; child < children; child++)
        if (fork() == 0) {
            work(NULL);
            _exit(3);
        }
    pthread_t all[64];
    for (int at = 1; at < threads; at++)
        if (pthread_create(&all[at], NULL, work, NULL))
            abort();
    long total = (long)work(NULL);
    for (int at = 1; at < threads; at++)
        pthread_join(all[at], NULL);
    int status, ended = 0;
    while (wait(&status) > 0)
        ended += WIFEXITED(status) && WEXITSTATUS(status) == 3;
    printf("known rounds %ld threads %d children %d sum %ld\n", rounds, threads, ended, total);
    return ended == children ? 7 : 1;
}
