/* One load a page, in order, once: one miss of each TLB a page (row T4), whatever their sizes.
 *
 * 2048 pages of 4 KB, 8 MiB. Consecutive pages' loads lie in the same set of a cache, so that all 2048
 * also miss every cache: they are the first access of their lines. A page walk reads at most 4 entries
 * and, with paging-structure caches, at least 1.
 *
 * expect global pages: loads=2048 stores=0 l1_misses=2048 llc_misses=2048 dtlb_misses=2048 stlb_misses=2048 page_walk_accesses=2048..8192
 * prints: 0
 */
#include <stdio.h>

char pages[2048][4096] __attribute__((aligned(4096)));

int main(void)
{
    int sum = 0;
    for (int i = 0; i < 2048; i++)
        sum += *(volatile char *)&pages[i][0];
    printf("%d\n", sum);
    return 0;
}
