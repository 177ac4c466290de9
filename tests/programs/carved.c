/* A block that begins with a structure, with bytes and numbers of the program's own behind it: none of these are the
 * structure's fields, although the block's size is a multiple of its size.
 *
 * 65,536 bytes are set and read one by one; each time the header's mask is read, and its size is counted up;
 * the size is printed in the end.
 *
 * field heap h size: offset=0 bytes=8 loads=65537 stores=65536
 * field heap h mask: offset=8 bytes=8 loads=65536 stores=1
 * prints: 65536 8323072
 */
#include <stdio.h>
#include <stdlib.h>

struct header {
    unsigned long size, mask;
};

/* Keeps the compiler from joining accesses. */
#define SEEN() __asm__ volatile("" ::: "memory")

int main(void)
{
    enum { BYTES = 1 << 16 };
    struct header *h = calloc(1, sizeof *h + BYTES);
    unsigned char *tags = (unsigned char *)(h + 1);
    h->mask = 127;
    unsigned long sum = 0;
    for (unsigned long i = 0; i < BYTES; i++) {
        SEEN();
        tags[i * 40503 % BYTES] = (unsigned char)(i & h->mask);
        SEEN();
        h->size++;
    }
    for (unsigned long i = 0; i < BYTES; i++) {
        SEEN();
        sum += tags[i] * 2ul;
    }
    printf("%lu %lu\n", h->size, sum);
    free(h);
    return 0;
}
