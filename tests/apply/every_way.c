/* Memory from every function that allocates, and what must be the same with and without huge pages:
 * zeroed where it has to be, aligned as asked, kept by realloc, the environment as the parent made it.
 *
 *     every_way [MIB [FILE]]                   default: 8, of each array
 *
 * Each array is walked page by page, so each causes page walks. Once all is touched it rests for a tenth of a second,
 * in which whoever looks at it each 20 ms sees all of it; and what the kernel says of the reserved pages in use goes to
 * the end of FILE, in KiB. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static unsigned char in_bss[16 << 20];

/* Touches a byte of each page again and again; returns a sum. */
static uint64_t walk(unsigned char *bytes, size_t size)
{
    uint64_t sum = 0;
    for (int round = 1; round <= 20; round++)
        for (size_t at = 0; at < size; at += 4096)
            sum = sum * 31 + (bytes[at] += (unsigned char)(round + at / 4096));
    return sum;
}

static int is_zero(const unsigned char *bytes, size_t size)
{
    for (size_t at = 0; at < size; at++)
        if (bytes[at])
            return 0;
    return 1;
}

/* A wrapper: whoever calls it is the site. */
static __attribute__((noinline)) void *wrapped(size_t size)
{
    void *block = malloc(size);
    if (!block)
        abort();
    return block;
}

static int note_reserved_pages(const char *path)
{
    char line[256];
    long found = 0;
    FILE *from = fopen("/proc/self/smaps_rollup", "r"), *to = fopen(path, "a");
    if (!from || !to)
        return 0;
    while (fgets(line, sizeof line, from))
        sscanf(line, "Private_Hugetlb: %ld kB", &found);
    fclose(from);
    fprintf(to, "%ld\n", found);
    return fclose(to) == 0;
}

int main(int argc, char **argv)
{
    size_t size = (size_t)(argc > 1 ? atoi(argv[1]) : 8) << 20;
    /* Not on a page's end, so that the last page is another one's, too. */
    size_t odd = size - 123;

    unsigned char *from_malloc = malloc(size);
    unsigned char *from_wrapper = wrapped(size);
    unsigned char *from_calloc = calloc(odd, 1);
    unsigned char *from_aligned = aligned_alloc(64, size);
    unsigned char *from_posix = NULL;
    int status = posix_memalign((void **)&from_posix, 4096, size);
    unsigned char *from_realloc = realloc(malloc(100), size);
    unsigned char *from_mmap = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!from_malloc || !from_calloc || !from_aligned || status || !from_realloc || from_mmap == MAP_FAILED)
        return 1;

    printf("zero %d", is_zero(from_calloc, odd));
    memset(from_calloc, 7, odd);
    free(from_calloc);
    /* What was just given back must be zero again. */
    from_calloc = calloc(odd, 1);
    printf(" %d %d %d\n", is_zero(from_calloc, odd), is_zero(from_mmap, size), is_zero(in_bss, sizeof in_bss));
    printf("aligned %d %d\n", (uintptr_t)from_aligned % 64 == 0, (uintptr_t)from_posix % 4096 == 0);
    /* Refused with and without. */
    printf("refused %d %d\n", posix_memalign((void **)&status, 3, size) != 0, calloc(SIZE_MAX / 2, (size_t)argc + 2) == NULL);

    memset(from_malloc, 1, size);
    memset(from_wrapper, 1, size);
    memset(from_aligned, 2, size);
    memset(from_posix, 3, size);
    memset(from_realloc, 4, size);
    printf("sums %016llx %016llx %016llx %016llx", (unsigned long long)walk(from_malloc, size),
           (unsigned long long)walk(from_wrapper, size), (unsigned long long)walk(from_calloc, odd),
           (unsigned long long)walk(from_aligned, size));
    printf(" %016llx %016llx %016llx %016llx\n", (unsigned long long)walk(from_posix, size),
           (unsigned long long)walk(from_realloc, size), (unsigned long long)walk(from_mmap, size),
           (unsigned long long)walk(in_bss, sizeof in_bss));
    usleep(100000);
    if (argc > 2 && !note_reserved_pages(argv[2]))
        return 2;
    /* It keeps what it holds when it grows and when it shrinks. */
    from_realloc = realloc(from_realloc, 2 * size);
    printf("kept %016llx\n", (unsigned long long)walk(from_realloc, size));
    from_realloc = realloc(from_realloc, size / 2);
    printf("kept %016llx\n", (unsigned long long)walk(from_realloc, size / 2));

    for (char **word = environ; *word; word++)
        if (strstr(*word, "PRELOAD") || strstr(*word, "TUNABLES") || strstr(*word, "MEMLENS"))
            puts(*word);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        unsigned char *in_child = malloc(size);
        memset(in_child, 5, size);
        printf("child %016llx %016llx\n", (unsigned long long)walk(in_child, size),
               (unsigned long long)walk(from_malloc, size));
        free(in_child);
        free(from_malloc);
        return 0;
    }
    waitpid(child, &status, 0);
    free(from_malloc);
    free(from_wrapper);
    free(from_calloc);
    free(from_aligned);
    free(from_posix);
    free(from_realloc);
    munmap(from_mmap, size);
    return WEXITSTATUS(status);
}
