/* What a gather leaves above its destination is zero (Intel SDM volume 2, VPGATHERDD: DEST[MAXVL-1:VL] := 0; of VPGATHERQD with
 * 128-bit indices what is above 64 bits), and so is all of its mask. What the mask leaves out is no access, however long the
 * program runs.
 *
 * Loads of "table": 4 + 4 + 4 + 8 + 2 elements once, of 4 bytes, those of the third of 8; then 100,000 times 3 of 8 elements:
 * 22 + 300,000 = 300,022 loads, 4 x 4 + 4 x 4 + 4 x 8 + 8 x 4 + 2 x 4 + 1,200,000 = 1,200,104 bytes.
 *
 * requires: avx2
 * levels: -O2
 * flags: -mavx2
 * expect global table: loads=300022 stores=0 load_bytes=1200104
 * prints: 80 of 80, 900000
 */
#include <immintrin.h>
#include <stdio.h>

int table[1024] __attribute__((aligned(4096))) = {1, 2, 3, 4, 5, 6, 7, 8};
/* Destination and mask of each gather. */
static int found[5][16];
static const int expected[5][16] = {
    {2, 1, 3, 4}, {4, 3, 2, 1}, {3, 4, 1, 2, 5, 6, 7, 8}, {2, 1, 3, 4, 5, 6, 7, 8}, {4, 3},
};

#define GATHER(AT, INSTRUCTION, INDEX)                                                                               \
    do {                                                                                                             \
        __m256i got = _mm256_set1_epi32(77), mask = _mm256_set1_epi32(-1), index = INDEX;                            \
        __asm__ volatile(INSTRUCTION : "+&x"(got), "+&x"(mask) : "r"(table), "x"(index) : "memory");                 \
        _mm256_storeu_si256((__m256i *)found[AT], got);                                                              \
        _mm256_storeu_si256((__m256i *)(found[AT] + 8), mask);                                                       \
    } while (0)

int main(void)
{
    __m256i of4 = _mm256_setr_epi32(1, 0, 2, 3, 4, 5, 6, 7), of8 = _mm256_setr_epi64x(3, 2, 1, 0);
    GATHER(0, "vpgatherdd %x1, (%2,%x3,4), %x0", of4);
    GATHER(1, "vpgatherqd %x1, (%2,%t3,4), %x0", of8);
    GATHER(2, "vpgatherdq %t1, (%2,%x3,8), %t0", of4);
    GATHER(3, "vpgatherdd %t1, (%2,%t3,4), %t0", of4);
    GATHER(4, "vpgatherqd %x1, (%2,%x3,4), %x0", of8);
    __m256i sum = _mm256_setzero_si256();
    for (int i = 0; i < 100000; i++) {
        __m256i got = _mm256_setzero_si256(), mask = _mm256_setr_epi32(0, -1, 0, 0, -1, 0, 0, -1);
        __asm__ volatile("vpgatherdd %t1, (%2,%t3,4), %t0" : "+&x"(got), "+&x"(mask)
                         : "r"(table), "x"(_mm256_set1_epi32(2)) : "memory");
        sum = _mm256_add_epi32(sum, got);
    }
    int sums[8], right = 0;
    _mm256_storeu_si256((__m256i *)sums, sum);
    for (int at = 0; at < 5 * 16; at++)
        right += found[at / 16][at % 16] == expected[at / 16][at % 16];
    printf("%d of 80, %d\n", right, sums[1] + sums[4] + sums[7]);
    return 0;
}
