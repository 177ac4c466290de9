/* AVX-512: bits of a mask register above the instruction's lanes are none of its lanes.
 *
 * vmovdqu32 of 64 bytes has 16 lanes of 4 bytes, whatever the register's 64 bits say:
 * 10 times with mask 0xffffffffffff0003 a store of lanes 0 and 1: 10 stores, 80 bytes to "masked";
 * 10 times with mask 0xffffffffffff0000 nothing: 0 stores to "untouched".
 * vmovdqu64 of 64 bytes has 8 lanes of 8 bytes:
 * 10 times with mask 0xff80 a load of lane 7: 10 loads, 80 bytes of "quads".
 * main's loads for printing: 1 of 4 bytes from each of "masked" and "untouched".
 *
 * requires: avx512bw
 * expect global masked: loads=1 stores=10 load_bytes=4 store_bytes=80
 * expect global untouched: loads=1 stores=0
 * expect global quads: loads=10 stores=0 load_bytes=80
 * prints: 7 3 9
 */
#include <stdint.h>
#include <stdio.h>

volatile int masked[16] __attribute__((aligned(64))) = {1};
volatile int untouched[16] __attribute__((aligned(64))) = {3};
volatile long quads[8] __attribute__((aligned(64))) = {[7] = 9};

__attribute__((target("avx512f,avx512bw"), noinline)) static long run(void)
{
    long lane[8] __attribute__((aligned(64)));
    int seven = 7;
    uint64_t two = 0xffffffffffff0003, none = 0xffffffffffff0000, last = 0xff80;
    for (int i = 0; i < 10; i++)
        __asm__ volatile("vpbroadcastd %2, %%zmm0\n\t"
                         "kmovq %3, %%k1\n\t"
                         "kmovq %4, %%k2\n\t"
                         "kmovq %5, %%k3\n\t"
                         "vmovdqu32 %%zmm0, (%0)%{%%k1%}\n\t"
                         "vmovdqu32 %%zmm0, (%1)%{%%k2%}\n\t"
                         "vmovdqu64 (%6), %%zmm1%{%%k3%}%{z%}\n\t"
                         "vmovdqa64 %%zmm1, (%7)"
                         :
                         : "r"(masked), "r"(untouched), "r"(seven), "r"(two), "r"(none), "r"(last), "r"(quads), "r"(lane)
                         : "memory", "xmm0", "xmm1", "k1", "k2", "k3");
    return lane[7];
}

int main(void)
{
    long last = run();
    printf("%d %d %ld\n", masked[0], untouched[0], last);
    return 0;
}
