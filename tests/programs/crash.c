/* Dies by a fault that nobody handles: stores to address 16.
 *
 * signal: 11
 * prints: before the fault
 */
#include <stdio.h>
#include <sys/resource.h>

int main(void)
{
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    puts("before the fault");
    fflush(stdout);
    *(volatile int *)16 = 1;
    return 0;
}
