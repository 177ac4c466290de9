/* Lines written and then pushed out of small caches: each is written back once.
 *
 * The caches of this test hold 4, 16 and 64 KiB. "written" has 4096 lines (256 KiB): each gets one store,
 * a write-allocate that reads it from memory: 4096 DRAM reads. Then "reader", of 4096 lines too, is
 * loaded once, 4 times the last level, which under LRU leaves no line of "written" anywhere: 4096
 * write-backs. "reader" is clean: none.
 *
 * memlens: --cache l1d=4096,4,64 --cache l2=16384,4,64 --cache llc=65536,8,64
 * expect global written: loads=0 stores=4096 l1_misses=4096 l2_misses=4096 llc_misses=4096 dram_reads=4096 dram_writes=4096
 * expect global reader: loads=4096 stores=0 llc_misses=4096 dram_reads=4096 dram_writes=0
 * prints: 0
 */
#include <stdio.h>

#define LINES 4096
volatile char written[LINES * 64] __attribute__((aligned(4096)));
volatile char reader[LINES * 64] __attribute__((aligned(4096)));

int main(void)
{
    for (int i = 0; i < LINES; i++)
        written[i * 64] = 1;
    int sum = 0;
    for (int i = 0; i < LINES; i++)
        sum += reader[i * 64];
    printf("%d\n", sum);
    return 0;
}
