/* A program that is linked to a fixed address (not position-independent).
 *
 * "values" is loaded 300 times and stored 200 times, 4 bytes each.
 *
 * flags: -no-pie -fno-pie
 * expect global values: loads=300 stores=200 load_bytes=1200 store_bytes=800
 * Each of the 100 values ends at 100 to 199, so all 300 loads see a positive one.
 *
 * prints: 300
 */
#include <stdio.h>

static volatile int values[100];

int main(void)
{
    int sum = 0;
    for (int i = 0; i < 200; i++)
        values[i % 100] = i;
    for (int i = 0; i < 300; i++)
        sum += values[i % 100] > 0;

    printf("%d\n", sum);
    return 0;
}
