/* AVX2: gathers and masked moves touch only the elements whose mask is set.
 *
 * vpgatherdd of 8 elements, mask on the even ones: 4 loads of 4 bytes, 10 times: 40 loads, 160 bytes
 * from "gathered".
 * vpmaskmovd store of 8 elements, mask on the first 3: 10 executions, each one access of the operand or
 * one of each element: 10 to 30 stores to "masked", 120 (10 x 3 x 4) to 320 (10 x 32) bytes. The two loads
 * are main's, for printing.
 *
 * requires: avx2
 * expect global gathered: loads=40 stores=0 load_bytes=160
 * expect global masked: loads=2 stores=10..30 store_bytes=120..320
 * prints: 12 3
 */
#include <immintrin.h>
#include <stdio.h>

#define OWN_PAGES __attribute__((aligned(4096)))
int gathered[1024] OWN_PAGES = {[0] = 1, [256] = 2, [512] = 4, [768] = 5};
int masked[8] OWN_PAGES = {[7] = 1};

__attribute__((target("avx2"), noinline)) static int run(void)
{
    __m256i index = _mm256_setr_epi32(0, 128, 256, 384, 512, 640, 768, 896);
    __m256i even = _mm256_setr_epi32(-1, 0, -1, 0, -1, 0, -1, 0);
    __m256i first3 = _mm256_setr_epi32(-1, -1, -1, 0, 0, 0, 0, 0);
    __m256i sum = _mm256_setzero_si256();
    for (int i = 0; i < 10; i++) {
        __m256i got = _mm256_setzero_si256(), mask = even;
        __asm__ volatile("vpgatherdd %1, (%2,%3,4), %0" : "+&x"(got), "+&x"(mask) : "r"(gathered), "x"(index) : "memory");
        sum = _mm256_add_epi32(sum, got);
        __asm__ volatile("vpmaskmovd %0, %1, (%2)" : : "x"(_mm256_set1_epi32(1)), "x"(first3), "r"(masked) : "memory");
    }
    int lanes[8];
    _mm256_storeu_si256((__m256i *)lanes, sum);
    return (lanes[0] + lanes[2] + lanes[4] + lanes[6]) / 10;
}

int main(void)
{
    int sum = run();
    printf("%d %d\n", sum, *(volatile int *)&masked[0] + 2 * *(volatile int *)&masked[2]);
    return 0;
}
