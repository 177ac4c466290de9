/* Dies by a signal it sends itself.
 *
 * signal: 15
 * prints: before the signal
 */
#include <signal.h>
#include <stdio.h>

int main(void)
{
    puts("before the signal");
    fflush(stdout);
    raise(SIGTERM);
    return 0;
}
