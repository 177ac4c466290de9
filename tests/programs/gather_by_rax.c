/* AVX2: gathers whose base is rax, with flags that are used behind them, under masks that leave out the first element, others,
 * and all.
 *
 * 6 gathers of 8 elements with 7, 4, 0, 8, 1 and 4 of them in the mask: 24 loads of 4 bytes, 1000 times: 24,000 loads and
 * 96,000 bytes of "gathered". The carry of the comparison before each is set: 6,000 of them.
 *
 * requires: avx2
 * levels: -O2
 * expect global gathered: loads=24000 stores=0 load_bytes=96000
 * prints: 24000 6000
 */
#include <immintrin.h>
#include <stdio.h>

int gathered[1024] __attribute__((aligned(4096))) = {[0 ... 1023] = 1};
static const int masks[6][8] = {
    {0, -1, -1, -1, -1, -1, -1, -1}, {0, -1, 0, -1, 0, -1, 0, -1}, {0}, {-1, -1, -1, -1, -1, -1, -1, -1},
    {0, 0, 0, 0, 0, 0, 0, -1}, {-1, -1, -1, -1},
};

__attribute__((target("avx2"), noinline)) static void run(long *sum, long *carries)
{
    __m256i index = _mm256_setr_epi32(0, 128, 256, 384, 512, 640, 768, 896);
    for (int i = 0; i < 6; i++) {
        __m256i got = _mm256_setzero_si256(), mask = _mm256_loadu_si256((const void *)masks[i]);
        long one = 1, carry = 0;
        __asm__ volatile("cmp $2, %[one]\n\tvpgatherdd %[mask], (%%rax,%[index],4), %[got]\n\tadc $0, %[carry]"
                         : [got] "+&x"(got), [mask] "+&x"(mask), [carry] "+&r"(carry)
                         : [one] "r"(one), "a"(gathered), [index] "x"(index) : "memory", "cc");
        int lanes[8];
        _mm256_storeu_si256((__m256i *)lanes, got);
        for (int lane = 0; lane < 8; lane++) *sum += lanes[lane];
        *carries += carry;
    }
}

int main(void)
{
    long sum = 0, carries = 0;
    for (int i = 0; i < 1000; i++) run(&sum, &carries);
    printf("%ld %ld\n", sum, carries);
    return 0;
}
