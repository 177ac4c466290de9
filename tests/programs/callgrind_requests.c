/* Callgrind's client requests, which memlens honours (their codes are those of callgrind.h; the header
 * itself is not needed).
 *
 * "zeroed": 500 stores before everything is set to zero, 7 after: 7.
 * "toggled": 10 stores, then 1000 with collection toggled off, then 20 with it toggled on: 30.
 * "instrumented": 30 stores, 1000 with instrumentation stopped, 40 with it started again: 70.
 *
 * expect global zeroed: loads=0 stores=7 store_bytes=28
 * expect global toggled: loads=0 stores=30 store_bytes=120
 * expect global instrumented: loads=0 stores=70 store_bytes=280
 * prints: done
 */
#include "../../include/memlens.h"
#include <stdio.h>

enum { ZERO_STATS = 1, TOGGLE_COLLECT = 2, START_INSTRUMENTATION = 4, STOP_INSTRUMENTATION = 5 };

volatile int zeroed, toggled, instrumented;

static void callgrind(unsigned long request)
{
    memlens_request(0, ((unsigned long)'C' << 24 | (unsigned long)'T' << 16) + request, 0, 0, 0, 0, 0);
}

__attribute__((noinline)) static void store(volatile int *at, int times)
{
    for (int i = 0; i < times; i++)
        *at = i;
}

int main(void)
{
    store(&zeroed, 500);
    callgrind(ZERO_STATS);
    store(&zeroed, 7);

    store(&toggled, 10);
    callgrind(TOGGLE_COLLECT);
    store(&toggled, 1000);
    callgrind(TOGGLE_COLLECT);
    store(&toggled, 20);

    store(&instrumented, 30);
    callgrind(STOP_INSTRUMENTATION);
    store(&instrumented, 1000);
    callgrind(START_INSTRUMENTATION);
    store(&instrumented, 40);

    puts("done");
    return 0;
}
