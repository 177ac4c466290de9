/* A static program: there is no dynamic loader to be loaded by.
 *
 * 500 stores of 8 bytes to "block", 500 loads from it.
 *
 * flags: -static
 * expect heap block: blocks=1 bytes=4000 loads=500 stores=500
 * prints: 124750
 */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    volatile long *block = malloc(500 * sizeof *block);
    long sum = 0;
    for (long i = 0; i < 500; i++)
        block[i] = i;
    for (long i = 0; i < 500; i++)
        sum += block[i];
    printf("%ld\n", sum);
    return 0;
}
