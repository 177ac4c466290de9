/* A program that asks whether it runs on valgrind hears what it hears natively: no. Asked by memlens's own request,
 * memlens says that it is there.
 *
 * expect-absent global valgrind
 * expect global memlens: stores=7 store_bytes=28
 * prints: 0
 */
#include "../../include/memlens.h"
#include <stdio.h>

enum { RUNNING_ON_VALGRIND = 0x1001 };

volatile int valgrind, memlens;

int main(void)
{
    unsigned long answer = memlens_request(0, RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0);
    for (int i = 0; answer != 0 && i < 7; i++)
        valgrind = i;
    for (int i = 0; memlens_is_profiled() && i < 7; i++)
        memlens = i;
    /* What nobody knows has the default as its result, whatever is in the registers. */
    printf("%lu\n", answer + memlens_request(42, RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0) - 42);
    return 0;
}
