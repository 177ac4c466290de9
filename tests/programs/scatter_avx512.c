/* AVX-512: a scatter stores the elements whose mask is set; a masked load of no element loads nothing.
 *
 * vpscatterdd of 16 elements, mask 0x00ff: 8 stores of 4 bytes, 10 times: 80 stores, 320 bytes to
 * "scattered"; main's two loads for printing.
 * vmovdqu32 with an empty mask from "skipped", a page without access: executes without a fault, which
 * a tool must keep so.
 *
 * requires: avx512f
 * expect global scattered: loads=2 stores=80 store_bytes=320
 * prints: 7 7
 */
#include <immintrin.h>
#include <stdio.h>
#include <sys/mman.h>

int scattered[4096] __attribute__((aligned(4096))) = {[4095] = 1};

__attribute__((target("avx512f"), noinline)) static int run(void)
{
    __m512i index = _mm512_mullo_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_epi32(128));
    for (int i = 0; i < 10; i++) {
        __mmask16 mask = 0x00ff;
        __asm__ volatile("vpscatterdd %2, (%1,%3,4)%{%0%}"
                         : "+&Yk"(mask)
                         : "r"(scattered), "v"(_mm512_set1_epi32(7)), "v"(index)
                         : "memory");
    }
    void *skipped = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __m512i nothing = _mm512_set1_epi32(3);
    __asm__ volatile("vmovdqu32 (%1), %0%{%2%}" : "+v"(nothing) : "r"(skipped), "Yk"((__mmask16)0) : "memory");
    munmap(skipped, 4096);
    return _mm512_reduce_add_epi32(nothing);
}

int main(void)
{
    int sum = run();
    volatile int *view = scattered;
    printf("%d %d\n", sum == 48 ? view[0] : -1, view[7 * 128]);
    return 0;
}
