/* posix_memalign stores the block's address instead of returning it: the block is named by where it goes
 * from there, and never by the variable that takes the status.
 *
 * "kept": from a wrapper that returns the address; 10 stores of 4 bytes.
 * "shared": into a global; 30 stores.
 *
 * expect heap kept: blocks=1 bytes=1024 stores=10 store_bytes=40
 * expect heap shared: blocks=1 bytes=1024 stores=30 store_bytes=120
 * expect-absent heap status
 * expect-absent heap fresh
 * prints: 0
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

void *shared;

__attribute__((noinline)) static void store(volatile int *block, int times)
{
    for (int i = 0; i < times; i++)
        block[i] = i;
}

__attribute__((noinline)) static void *aligned(size_t size)
{
    void *fresh;
    int status = posix_memalign(&fresh, 64, size);
    if (status != 0)
        exit(1);
    return fresh;
}

int main(void)
{
    void *kept = aligned(1024);
    store(kept, 10);
    int status = posix_memalign(&shared, 64, 1024);
    store(shared, 30);
    printf("%d\n", status);
    free(kept);
    return 0;
}
