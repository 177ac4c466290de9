/* What a core waits for and what it hides. Both halves touch 65,536 lines in the same random order, 4 MB, and nearly all of them come from
 * memory: a wait of 65,536 x 330 = 21.6 million cycles each, and page walks. Along "list" the next address is what was loaded,
 * so each access is waited for. Those of "table" are computed: as many are under way as there are places for lines, 24, and each
 * is waited for a twenty-fourth of its latency, 0.9 million cycles and some for what fills the window.
 *
 * memlens: --machine amd-zen4 --cache l2=64K,8,64 --cache llc=256K,16,64
 * expect heap list: wait_cycles=20000000..40000000 stall_cycles=18000000..40000000
 * expect heap table: wait_cycles=20000000..40000000 stall_cycles=500000..4000000
 * prints: 65536 0
 */
#include <stdio.h>
#include <stdlib.h>

enum { LINES = 1 << 16 };

struct node {
    struct node *next;
    long rest[7];
};

static unsigned next_line(unsigned line)
{
    /* Every line once: D. E. Knuth, The Art of Computer Programming 2, section 3.2.1.2. */
    return (line * 1664525u + 1013904223u) % LINES;
}

int main(void)
{
    struct node *list = malloc(LINES * sizeof *list);
    long *table = calloc(LINES, sizeof *list);
    if (!list || !table)
        return 1;
    for (unsigned line = 0; line < LINES; line++)
        list[line].next = &list[next_line(line)];
    long steps = 0;
    for (struct node *at = list->next; at != list; at = at->next)
        steps++;
    long sum = 0;
    for (unsigned line = 0, count = 0; count < LINES; count++) {
        line = next_line(line);
        sum += table[line * (sizeof *list / sizeof *table)];
    }
    printf("%ld %ld\n", steps + 1, sum);
    return 0;
}
