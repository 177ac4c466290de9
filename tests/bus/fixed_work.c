/* A fixed amount of work in the caches, divided among threads: as many times as fast as there are threads. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static long steps;
static volatile long sink[8][64];

static void *work(void *number)
{
    long sum = 0;
    for (long i = 0; i < steps; i++) {
        sum += i ^ (sum >> 3);
        sink[(long)number][i & 63] = sum;
    }
    return NULL;
}

int main(int count, char **words)
{
    int threads = count > 2 ? atoi(words[2]) : 1;
    pthread_t made[8];
    steps = atol(words[1]) / threads;
    for (long i = 0; i < threads; i++)
        pthread_create(made + i, NULL, work, (void *)i);
    for (int i = 0; i < threads; i++)
        pthread_join(made[i], NULL);
    puts("done");
    return 0;
}
