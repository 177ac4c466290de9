/* A timer signal every 500 microseconds while the program computes, until 100 have come; handlers on a
 * stack of their own that change errno and floating point state. The result must not notice.
 *
 * prints: at least 100 signals, result intact
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static volatile sig_atomic_t signals;
static volatile double scratch;

static void handler(int signal)
{
    int saved = errno;
    (void)signal;
    for (int i = 0; i < 10; i++)
        scratch = scratch * 0.5 + i;
    signals++;
    errno = saved;
}

static unsigned long compute(unsigned long seed)
{
    static unsigned long table[256];
    for (int i = 0; i < 256; i++)
        table[i] = seed = seed * 6364136223846793005u + 1;
    double floating = 1;
    for (int i = 0; i < 256; i++)
        floating = floating * 1.0000001 + (double)(table[table[i] >> 56] >> 60);
    return seed ^ (unsigned long)(floating * 1000);
}

int main(void)
{
    unsigned long expected = compute(1);
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &every, NULL);
    int wrong = 0;
    while (signals < 100)
        wrong += compute(1) != expected;
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    puts(wrong ? "result changed" : "at least 100 signals, result intact");
    return 0;
}
