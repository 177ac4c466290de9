/* A signal that comes once, in a loop that makes many accesses and no system call: its handler ends the loop. Natively it
 * is there at once. A recorder that is in its own code when the signal comes must not keep it for longer.
 *
 * prints: over
 */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t is_over;
static volatile long values[512];

static void on_alarm(int number)
{
    (void)number;
    is_over = 1;
}

static long work(long sum)
{
    for (int i = 0; i < 512; i++) sum += values[i];
    return sum;
}

int main(void)
{
    signal(SIGALRM, on_alarm);
    alarm(1);
    long sum = 0;
    while (!is_over) sum += work(sum);
    puts(sum == 0 ? "over" : "wrong");
    return 0;
}
