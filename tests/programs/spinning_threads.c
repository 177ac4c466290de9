/* The program ends while its other threads are busy: with memlens slower than they are, they wait for room for their
 * records just then.
 *
 * "told" is stored 1000 times by main, whatever the others do.
 *
 * expect global told: loads=0 stores=1000 load_bytes=0 store_bytes=8000
 * prints: bye
 */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static volatile long counters[6][8];
static volatile long told;

static void *spin(void *counter)
{
    for (;;)
        ++*(volatile long *)counter;
}

int main(void)
{
    pthread_t thread;
    for (int i = 0; i < 6; i++)
        pthread_create(&thread, 0, spin, (void *)counters[i]);
    usleep(300000);
    for (int i = 0; i < 1000; i++)
        told = i;
    puts("bye");
    return 0;
}
