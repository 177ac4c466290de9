/* Loops that are prefetched, with the array of indices right before a page that may not be touched. Prints sums; with
 * MODE `threads` it computes them in two threads, with `fork` in a child, with `library` in a library loaded by name.
 *
 *     prefetched LOG2_ELEMENTS MODE [LIBRARY] */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef uint64_t gather_function(const uint32_t *index, const uint64_t *table, uint64_t count);

#ifdef LIBRARY
#define LINKAGE
#else
#define LINKAGE static
#endif

LINKAGE __attribute__((noinline)) uint64_t gather(const uint32_t *index, const uint64_t *table, uint64_t count)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t value = table[index[i]];
        sum = (sum ^ value) * 0x9e3779b97f4a7c15u;
    }
    return sum;
}

#ifndef LIBRARY
static const uint32_t *all_indices;
static const uint64_t *all_values;
static uint64_t elements;
static gather_function *chosen;

static void *in_thread(void *result)
{
    for (int again = 0; again < 4; again++)
        *(uint64_t *)result += chosen(all_indices, all_values, elements);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    elements = (uint64_t)1 << atoi(argv[1]);
    chosen = gather;
    if (argc > 3) {
        void *library = dlopen(argv[3], RTLD_NOW);
        chosen = library ? (gather_function *)dlsym(library, "gather") : NULL;
        if (!chosen) {
            fprintf(stderr, "%s\n", dlerror());
            return 3;
        }
    }
    char *memory = mmap(NULL, elements * 4 + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t *values = malloc(elements * 8);
    if (memory == MAP_FAILED || !values || munmap(memory + elements * 4, 4096))
        return 4;
    uint32_t *indices = (uint32_t *)memory;
    uint64_t state = 1;
    for (uint64_t i = 0; i < elements; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        indices[i] = (uint32_t)((state >> 33) & (elements - 1));
        values[i] = state;
    }
    all_indices = indices;
    all_values = values;
    uint64_t sums[2] = {0, 0};
    if (!strcmp(argv[2], "threads")) {
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            pthread_create(&threads[i], NULL, in_thread, &sums[i]);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
    } else if (!strcmp(argv[2], "fork")) {
        pid_t child = fork();
        if (child == 0) {
            in_thread(&sums[0]);
            printf("child %llu\n", (unsigned long long)sums[0]);
            fflush(stdout);
            _exit(7);
        }
        int status;
        waitpid(child, &status, 0);
        printf("ended %d\n", WEXITSTATUS(status));
        in_thread(&sums[1]);
    } else {
        in_thread(&sums[0]);
    }
    const char *preloaded = getenv("LD_PRELOAD"), *plan = getenv("MEMLENS_PLACEMENT");
    printf("%llu %llu %s %s\n", (unsigned long long)sums[0], (unsigned long long)sums[1],
           preloaded ? preloaded : "none", plan ? plan : "none");
    return 0;
}
#endif
