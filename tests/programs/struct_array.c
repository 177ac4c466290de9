/* An array of structures of which two fields of three are touched.
 *
 * 1000 elements of 24 bytes. For each: one load of a (4 bytes), one store to b (8 bytes); then every
 * tenth c is loaded (8 bytes): 100. So 1100 loads of 4000 + 800 bytes, 1000 stores of 8000 bytes. The
 * array, 24000 bytes, is page-aligned: 375 lines. Element i starts at byte 24 i; a and b (bytes 0 to
 * 15 of it) of consecutive elements leave no line out: 375 cold misses, and c lies in lines that were
 * touched before. The caches hold 24000 bytes, so nothing misses twice.
 *
 * expect global points: loads=1100 stores=1000 load_bytes=4800 store_bytes=8000 l1_misses=375 llc_misses=375 dram_reads=375
 * prints: 0
 */
#include <stdio.h>

struct point {
    int a;
    long b;
    double c;
};

volatile struct point points[1000] __attribute__((aligned(4096)));

int main(void)
{
    long sum = 0;
    for (int i = 0; i < 1000; i++) {
        sum += points[i].a;
        points[i].b = i;
    }
    for (int i = 0; i < 1000; i += 10)
        sum += (long)points[i].c;
    printf("%ld\n", sum);
    return 0;
}
