/* Two blocks of different lines at one address, one after the other: each access belongs to the block
 * that lived when it was made.
 *
 * first_block: 100 stores of 4 bytes, freed. second_block, of the same size: glibc's thread cache gives
 * the same place; 100 stores, 300 loads. 20 rounds: 2000 stores; 2000 stores and 6000 loads. glibc's
 * thread cache writes two words into a freed block, after its end of life, and clears one when it
 * gives it out again: not accesses of a live block, so they belong to neither.
 *
 * expect heap first_block: blocks=20 loads=0 stores=2000 store_bytes=8000
 * expect heap second_block: blocks=20 loads=6000 stores=2000 load_bytes=24000
 * prints: same address 20 of 20
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    int same = 0;
    for (int round = 0; round < 20; round++) {
        volatile int *first_block = malloc(400);
        for (int i = 0; i < 100; i++)
            first_block[i] = i;
        uintptr_t before = (uintptr_t)first_block;
        free((void *)first_block);
        volatile int *second_block = malloc(400);
        same += (uintptr_t)second_block == before;
        for (int i = 0; i < 100; i++)
            second_block[i] = i;
        for (int i = 0; i < 300; i++)
            (void)second_block[i % 100];
        free((void *)second_block);
    }
    printf("same address %d of 20\n", same);
    return 0;
}
