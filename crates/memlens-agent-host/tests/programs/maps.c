/* Maps anonymous memory in several ways: 64 pages, 16 of which end, the rest of which grows to 96; 64 shared ones; 64 for a stack, and
 * 64 of a file, which are nobody's business. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#define PAGE 4096L

int main(int argc, char **argv)
{
    int access = PROT_READ | PROT_WRITE;
    char *private = mmap(NULL, 64 * PAGE, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *shared = mmap(NULL, 63 * PAGE + 1, access, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *stack = mmap(NULL, 64 * PAGE, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    FILE *own = fopen(argv[0], "r");
    char *file = mmap(NULL, 64 * PAGE, PROT_READ, MAP_PRIVATE, fileno(own), 0);
    if (private == MAP_FAILED || shared == MAP_FAILED || stack == MAP_FAILED || file == MAP_FAILED)
        return 1;
    /* Refused: an offset inside of a page, no bytes, and more than there is. */
    errno = 0;
    if (mmap(NULL, PAGE, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 1) != MAP_FAILED || errno != EINVAL)
        return 2;
    errno = 0;
    if (mmap(NULL, 0, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED || errno != EINVAL)
        return 3;
    errno = 0;
    if (mmap(NULL, 1L << 60, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED || errno != ENOMEM)
        return 4;
    errno = 0;
    if (mremap(private, 64 * PAGE, 1L << 60, MREMAP_MAYMOVE) != MAP_FAILED || errno == 0)
        return 5;
    private[17 * PAGE] = 3;
    if (munmap(private, 16 * PAGE) != 0)
        return 6;
    char *moved = mremap(private + 16 * PAGE, 48 * PAGE, 96 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, stack - 1024 * PAGE);
    if (moved != stack - 1024 * PAGE || moved[PAGE] != 3)
        return 7;
    shared[PAGE] = stack[PAGE] = argc;
    printf("%d\n", moved[PAGE] + shared[PAGE] + stack[PAGE]);
    return 0;
}
