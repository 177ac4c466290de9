/* A buffer that realloc makes larger and larger: one line, one object, whatever its address.
 *
 * It holds 16 longs at first and doubles to 4096. Each of its 4096 elements is stored once and loaded
 * once by main: 4096 stores, 4096 loads at least. Where realloc moves the block, it copies it: at most
 * 16 + 32 + ... + 2048 = 4080 longs, in accesses of at least 8 bytes: at most 4080 loads and stores
 * more. The header glibc keeps before a block is not part of it.
 *
 * expect heap buffer: loads=4096..8176 stores=4096..8176
 * prints: 8386560
 */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    volatile long *buffer = NULL;
    long capacity = 8;
    for (long i = 0; i < 4096; i++) {
        if (i == 0 || i == capacity) {
            capacity *= 2;
            buffer = realloc((void *)buffer, (size_t)capacity * sizeof *buffer);
        }
        buffer[i] = i;
    }
    long sum = 0;
    for (long i = 0; i < 4096; i++)
        sum += buffer[i];
    printf("%ld\n", sum);
    free((void *)buffer);
    return 0;
}
