/* Local variables of several frames at once (row V4).
 *
 * "outer_sum" lives in main's frame: one store there, and 10 loads and 10 stores by add() through a
 * pointer, then one load for printing: 11 loads, 11 stores.
 * "here" lives in recurse()'s frames, 21 of them at once (depths 20 to 0): one store and one load each.
 *
 * expect local outer_sum: loads=11 stores=11 load_bytes=88 store_bytes=88
 * expect local here: loads=21 stores=21 load_bytes=168 store_bytes=168
 * prints: 55 210
 */
#include <stdio.h>

__attribute__((noinline)) static void add(volatile long *target, long value)
{
    *target += value;
}

__attribute__((noinline)) static long recurse(long depth)
{
    volatile long here = depth;
    long below = depth > 0 ? recurse(depth - 1) : 0;
    return below + here;
}

int main(void)
{
    volatile long outer_sum = 0;
    for (long i = 1; i <= 10; i++)
        add(&outer_sum, i);
    printf("%ld ", outer_sum);
    printf("%ld\n", recurse(20));
    return 0;
}
