/* A conditional move from memory loads whether it moves or not (Intel SDM volume 2, CMOVcc: the
 * source is read in any case).
 *
 * 200 of them, of which every second moves: 200 loads of 8 bytes.
 *
 * expect global source: loads=200 stores=0 load_bytes=1600
 * prints: 100
 */
#include <stdio.h>

long source __attribute__((aligned(4096))) = 1;

int main(void)
{
    long sum = 0;
    for (long i = 0; i < 200; i++) {
        long value = 0;
        __asm__ volatile("testq $1, %2\n\tcmovneq %1, %0" : "+r"(value) : "m"(source), "r"(i) : "cc");
        sum += value;
    }
    printf("%ld\n", sum);
    return 0;
}
