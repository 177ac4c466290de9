/* System V shared memory: a segment that is attached twice, detached once, and another mapping in its place.
 *
 * 10 stores of 8 bytes through the first address and 20 through the second, each an object by the line that attached
 * it. Then the first one is detached, and 5 stores go to an anonymous mapping there.
 *
 * expect mmap mapping of /SYSV00000000: stores=10 store_bytes=80 loads=0
 * expect mmap mapping of /SYSV00000000: stores=20 store_bytes=160 loads=0
 * expect mmap other: stores=5 store_bytes=40
 * prints: done
 */
#include <stdio.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>

#define BYTES (16 * 4096)

__attribute__((noinline)) static void store(volatile long *at, int times)
{
    for (int i = 0; i < times; i++)
        at[64 * i] = i;
}

int main(void)
{
    int id = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
    long *first = shmat(id, NULL, 0);
    long *second = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    if (first == (void *)-1 || second == (void *)-1)
        return 1;
    store(first, 10);
    store(second, 20);
    shmdt(first);
    int private = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    long *other = mmap(first, BYTES, PROT_READ | PROT_WRITE, private, -1, 0);
    if (other != first)
        return 2;
    store(other, 5);
    puts("done");
    return 0;
}
