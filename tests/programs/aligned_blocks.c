/* The aligned allocation functions, each with a block of its own.
 *
 * Block number k gets 10 k stores of 4 bytes: 10, 20, 30, 40, 50, 60. calloc's zeroes are of no
 * account: the block comes from memory that the kernel has just cleared, or libc clears it with
 * stores that the interval allows for (60 bytes at most: 64 stores of a byte).
 *
 * expect heap by_posix: blocks=1 bytes=1024 stores=10 store_bytes=40
 * expect heap by_aligned: blocks=1 bytes=1024 stores=20 store_bytes=80
 * expect heap by_memalign: blocks=1 bytes=1024 stores=30 store_bytes=120
 * expect heap by_valloc: blocks=1 bytes=1024 stores=40 store_bytes=160
 * expect heap by_array: blocks=1 bytes=1024 stores=50 store_bytes=200
 * expect heap by_calloc: blocks=1 bytes=256 stores=60..316
 * prints: aligned
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static void store(volatile int *block, int times)
{
    for (int i = 0; i < times; i++)
        block[i] = i;
}

int main(void)
{
    void *by_posix;
    if (posix_memalign(&by_posix, 256, 1024) != 0)
        return 1;
    void *by_aligned = aligned_alloc(512, 1024);
    void *by_memalign = memalign(128, 1024);
    void *by_valloc = valloc(1024);
    void *by_array = reallocarray(NULL, 128, 8);
    void *by_calloc = calloc(64, 4);
    store(by_posix, 10);
    store(by_aligned, 20);
    store(by_memalign, 30);
    store(by_valloc, 40);
    store(by_array, 50);
    store(by_calloc, 60);
    int aligned = (uintptr_t)by_posix % 256 == 0 && (uintptr_t)by_aligned % 512 == 0
                  && (uintptr_t)by_memalign % 128 == 0 && (uintptr_t)by_valloc % 4096 == 0;
    free(by_posix);
    free(by_aligned);
    free(by_memalign);
    free(by_valloc);
    free(by_array);
    free(by_calloc);
    puts(aligned ? "aligned" : "not aligned");
    return 0;
}
