/* Gathers of all widths under changing masks, and scatters where the processor has AVX-512: gathers N, where N are rounds.
   Does the same each time. */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { VALUES = 1 << 16 };
static uint64_t values[VALUES], scattered[VALUES];
static uint64_t state = 88172645463325252u;

static uint64_t draw(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

__attribute__((target("avx2"), noinline)) static uint64_t gather(uint64_t sum) {
    int32_t narrow[8], masks[8];
    int64_t wide[4], wide_masks[4];
    for (int i = 0; i < 8; i++) narrow[i] = draw() % VALUES, masks[i] = draw() % 3 ? -1 : 0;
    for (int i = 0; i < 4; i++) wide[i] = draw() % VALUES, wide_masks[i] = draw() % 3 ? -1 : 0;
    __m256i index = _mm256_loadu_si256((void *)narrow), mask = _mm256_loadu_si256((void *)masks);
    __m256i far = _mm256_loadu_si256((void *)wide), far_mask = _mm256_loadu_si256((void *)wide_masks);
    __m256i of_int = _mm256_mask_i32gather_epi32(_mm256_setzero_si256(), (const int *)values, index, mask, 4);
    __m256i of_long = _mm256_mask_i64gather_epi64(_mm256_setzero_si256(), (const long long *)values, far, far_mask, 8);
    __m256d of_double = _mm256_mask_i32gather_pd(_mm256_setzero_pd(), (const double *)values, _mm256_castsi256_si128(index),
                                                 _mm256_castsi256_pd(far_mask), 8);
    __m128i half = _mm256_mask_i64gather_epi32(_mm_setzero_si128(), (const int *)values, far, _mm256_castsi256_si128(mask), 8);
    __m256i all = _mm256_xor_si256(_mm256_xor_si256(of_int, of_long), _mm256_castpd_si256(of_double));
    uint64_t lanes[4];
    _mm256_storeu_si256((void *)lanes, _mm256_xor_si256(all, _mm256_castsi128_si256(half)));
    return sum * 31 + (lanes[0] ^ lanes[1]) + (lanes[2] ^ lanes[3]);
}

__attribute__((target("avx512f"), noinline)) static uint64_t scatter(uint64_t sum) {
    int32_t narrow[16];
    int64_t wide[8];
    for (int i = 0; i < 16; i++) narrow[i] = draw() % VALUES;
    for (int i = 0; i < 8; i++) wide[i] = draw() % VALUES;
    __m512i index = _mm512_loadu_si512(narrow), far = _mm512_loadu_si512(wide);
    __m512i got = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), (__mmask16)draw(), index, values, 4);
    _mm512_mask_i64scatter_epi64(scattered, (__mmask8)draw(), far, got, 8);
    return sum + scattered[wide[0]];
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    __builtin_cpu_init();
    int has_scatters = __builtin_cpu_supports("avx512f");
    for (int i = 0; i < VALUES; i++) values[i] = draw();
    uint64_t sum = 0;
    for (long round = atol(argv[1]); round > 0; round--) {
        sum = gather(sum);
        if (has_scatters) sum = scatter(sum);
    }
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
