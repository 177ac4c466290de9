/* Thread A allocates, thread B uses, thread C frees; then A allocates again elsewhere in the program
 * what may lie at the same place.
 *
 * "shared": 10 blocks of 800 bytes; B stores 100 longs in each and loads them: 1000 stores, 1000 loads.
 * "later": 10 blocks of 800 bytes; B stores 50 longs in each: 500 stores.
 *
 * expect heap shared: blocks=10 bytes=8000 loads=1000 stores=1000
 * gcc -O2 finds that allocate_later and allocate are the same code and drops the second one's body with
 * its variable: what is left of the name there is the array that the blocks go to.
 * expect[-O0] heap later: blocks=10 bytes=8000 loads=0 stores=500
 * expect[-O2] heap blocks[]: blocks=10 bytes=8000 loads=0 stores=500
 * prints: 49500
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static long *volatile blocks[10];
static long total;

static void run(void *(*body)(void *))
{
    pthread_t thread;
    pthread_create(&thread, NULL, body, NULL);
    pthread_join(thread, NULL);
}

static void *allocate(void *unused)
{
    for (int i = 0; i < 10; i++) {
        long *shared = malloc(800);
        blocks[i] = shared;
    }
    return unused;
}

static void *allocate_later(void *unused)
{
    for (int i = 0; i < 10; i++) {
        long *later = malloc(800);
        blocks[i] = later;
    }
    return unused;
}

static void *use(void *unused)
{
    for (int i = 0; i < 10; i++) {
        volatile long *block = blocks[i];
        for (long j = 0; j < 100; j++)
            block[j] = j;
        for (long j = 0; j < 100; j++)
            total += block[j];
    }
    return unused;
}

static void *use_later(void *unused)
{
    for (int i = 0; i < 10; i++) {
        volatile long *block = blocks[i];
        for (long j = 0; j < 50; j++)
            block[j] = j;
    }
    return unused;
}

static void *release(void *unused)
{
    for (int i = 0; i < 10; i++)
        free(blocks[i]);
    return unused;
}

int main(void)
{
    run(allocate);
    run(use);
    run(release);
    run(allocate_later);
    run(use_later);
    run(release);
    printf("%ld\n", total);
    return 0;
}
