/* Memory that the program maps by itself is called after the variable that gets it, as a block of the heap is, and has its fields.
 *
 * 512 nodes in a pool from a function of the program's own: key is stored once in each, and loaded twice by each of ten walks; next is
 * stored once, and loaded once by each.
 *
 * expect mmap pool: loads=15360 stores=1024
 * field mmap pool next: offset=0 bytes=8 loads=5120 stores=512
 * field mmap pool key: offset=8 bytes=8 loads=10240 stores=512
 * field mmap pool rest[]: offset=16 bytes=48 loads=0 stores=0
 * prints: 2616320
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

struct node {
    struct node *next;
    long key;
    char rest[48];
};

__attribute__((noinline)) static void *pages(size_t bytes)
{
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? exit(1), start : start;
}

int main(void)
{
    long sum = 0;
    struct node *pool = pages(512 * sizeof *pool);
    for (long i = 0; i < 512; i++) {
        volatile struct node *node = &pool[i * 5 % 512];
        node->key = i;
        node->next = &pool[(i + 1) * 5 % 512];
    }
    for (int walk = 0; walk < 10; walk++) {
        volatile struct node *node = pool;
        for (long i = 0; i < 512; i++) {
            sum += node->key;
            sum += node->key;
            node = node->next;
        }
    }
    printf("%ld\n", sum);
    return 0;
}
