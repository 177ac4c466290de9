/* Exits with a code of its own, from a function that atexit registered nothing for, after output that
 * only exit() flushes.
 *
 * exit: 42
 * prints: flushed at exit
 */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    fputs("flushed at exit", stdout);
    exit(42);
}
