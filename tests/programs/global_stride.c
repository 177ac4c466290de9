/* A global array walked with the stride of a line: 64 bytes, 8 longs.
 *
 * 65536 / 8 = 8192 loads of 8 bytes; the array is page-aligned, so each load is the first and only
 * one of its line: 8192 cold misses at every level, 8192 lines read from memory, none written. 524288
 * bytes are 128 pages of 4096: 128 cold misses of each TLB, as long as pages are 4 KB.
 * "total" is 8 bytes: one store.
 *
 * expect global table: loads=8192 stores=0 load_bytes=65536 l1_misses=8192 l2_misses=8192 llc_misses=8192 dram_reads=8192 dram_writes=0 dtlb_misses=128 stlb_misses=128
 * expect global total: loads=0 stores=1 store_bytes=8
 * prints: 0
 */
#include <stdio.h>

volatile long table[65536] __attribute__((aligned(4096)));
volatile long total;

int main(void)
{
    long sum = 0;
    for (int i = 0; i < 65536; i += 8)
        sum += table[i];
    total = sum;
    puts(sum ? "not 0" : "0");
    return 0;
}
