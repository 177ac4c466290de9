/* 200 threads at once: all wait at a barrier, then each adds to its own slot and to a common counter.
 *
 * "slots" has 200 longs, each stored 100 times by its thread, and loaded once by main: 20000 stores (and
 * as many loads by the additions, and 200).
 *
 * expect global slots: loads=20200 stores=20000 load_bytes=161600 store_bytes=160000
 * prints: 20000 20000
 */
#include <pthread.h>
#include <stdio.h>

static volatile long slots[200];
static long common;
static pthread_barrier_t barrier;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *run(void *argument)
{
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 100; i++)
        slots[(long)argument] += 1;
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(&mutex);
        common++;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[200];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 * 1024);
    pthread_barrier_init(&barrier, NULL, 200);
    for (long i = 0; i < 200; i++) {
        if (pthread_create(&threads[i], &attributes, run, (void *)i) != 0) {
            perror("pthread_create");
            return 1;
        }
    }
    for (int i = 0; i < 200; i++)
        pthread_join(threads[i], NULL);
    long sum = 0;
    for (int i = 0; i < 200; i++)
        sum += slots[i];
    printf("%ld %ld\n", sum, common);
    return 0;
}
