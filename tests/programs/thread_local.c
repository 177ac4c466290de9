/* A thread-local variable in four threads: one object.
 *
 * Each of 3 threads adds to its own copy 100 times, main 50 times: 350 loads and stores by additions;
 * each thread and main loads its copy once more for the result: 354 loads, 350 stores of 8 bytes. The loader
 * and the C library initialise copies with up to two more stores.
 *
 * expect tls counter: loads=354 stores=350..352 load_bytes=2832 store_bytes=2800..2816
 * prints: 350
 */
#include <pthread.h>
#include <stdio.h>

static _Thread_local volatile long counter;

static void *run(void *argument)
{
    for (long i = 0; i < (long)argument; i++)
        counter += 1;
    return (void *)counter;
}

int main(void)
{
    pthread_t threads[3];
    long sum = 0;
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, run, (void *)100L);
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (long)result;
    }
    sum += (long)run((void *)50L);
    printf("%ld\n", sum);
    return 0;
}
