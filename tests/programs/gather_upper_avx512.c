/* AVX-512: what a gather leaves above its destination is zero, also in the registers that only AVX-512 names.
 *
 * Loads of "table", of 4 bytes: 4, 8, 4 and 2 elements, each with half of the mask's bits set: 2 + 4 + 2 + 1 = 9.
 *
 * requires: avx512vl
 * levels: -O2
 * flags: -mavx512vl -mavx512f
 * expect global table: loads=9 stores=0 load_bytes=36
 * prints: 64 of 64
 */
#include <immintrin.h>
#include <stdio.h>

int table[1024] __attribute__((aligned(4096))) = {1, 2, 3, 4, 5, 6, 7, 8};
static int found[4][16];
/* What the mask leaves out stays what it was: 77. */
static const int expected[4][16] = {
    {2, 77, 3, 77}, {2, 77, 3, 77, 5, 77, 7, 77}, {4, 77, 2, 77}, {4, 77},
};

#define GATHER(AT, INSTRUCTION, INDEX)                                                                               \
    do {                                                                                                             \
        __m512i got = _mm512_set1_epi32(77);                                                                         \
        __asm__ volatile("vmovdqa64 %0, %%zmm17\n\tvmovdqa64 %1, %%zmm19\n\tmovl $0x5555, %%eax\n\tkmovw %%eax, %%k1\n\t" \
                         INSTRUCTION "\n\tvmovdqa64 %%zmm17, %0"                                                     \
                         : "+v"(got) : "v"(INDEX), "r"(table) : "memory", "eax", "k1", "xmm17", "xmm19");            \
        _mm512_storeu_si512(found[AT], got);                                                                         \
    } while (0)

int main(void)
{
    __m512i of4 = _mm512_setr_epi32(1, 0, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0, 0);
    __m512i of8 = _mm512_setr_epi64(3, 2, 1, 0, 0, 0, 0, 0);
    GATHER(0, "vpgatherdd (%2,%%xmm19,4), %%xmm17%{%%k1%}", of4);
    GATHER(1, "vpgatherdd (%2,%%ymm19,4), %%ymm17%{%%k1%}", of4);
    GATHER(2, "vpgatherqd (%2,%%ymm19,4), %%xmm17%{%%k1%}", of8);
    GATHER(3, "vpgatherqd (%2,%%xmm19,4), %%xmm17%{%%k1%}", of8);
    int right = 0;
    for (int at = 0; at < 4 * 16; at++)
        right += found[at / 16][at % 16] == expected[at / 16][at % 16];
    printf("%d of 64\n", right);
    return 0;
}
