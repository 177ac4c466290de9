// A program with its own allocator, which asks something of the kernel while it holds its lock: whoever allocates there waits for ever.
//
// prints: 3572
// flags: -fno-builtin-malloc -pthread
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Alignas(16) char heap[1 << 26];
static size_t used;
static long thread;

void *malloc(size_t size) {
    pthread_mutex_lock(&lock);
    if (!thread) {
        thread = syscall(SYS_gettid);
        prctl(PR_GET_DUMPABLE);
    }
    size_t *block = (size_t *)(heap + used);
    size_t bytes = (size + 31) & ~(size_t)15;
    if (bytes < size || bytes > sizeof heap - used) {
        block = NULL;
    } else {
        used += bytes;
        *block = size;
    }
    pthread_mutex_unlock(&lock);
    return block ? block + 2 : NULL;
}

void free(void *block) { (void)block; }

void *calloc(size_t count, size_t size) { return malloc(count * size); }

void *realloc(void *block, size_t size) {
    void *other = malloc(size);
    if (other && block) {
        size_t before = ((size_t *)block)[-2];
        memcpy(other, block, before < size ? before : size);
    }
    return other;
}

int main(void) {
    long sum = 0;
    for (int round = 0; round < 600; round++) {
        char *block = malloc(100000);
        memset(block, round, 100000);
        sum += block[round];
    }
    printf("%ld\n", sum);
    return 0;
}
