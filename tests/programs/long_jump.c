/* longjmp out of ten nested calls, 1000 times; and siglongjmp out of a signal handler, 100 times.
 *
 * prints: 1000 100
 */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

static jmp_buf top;
static sigjmp_buf before_signal;

__attribute__((noinline)) static int descend(int depth)
{
    volatile char frame[256];
    frame[0] = (char)depth;
    if (depth == 0)
        longjmp(top, 1);
    return descend(depth - 1) + frame[0];
}

static void handler(int signal)
{
    siglongjmp(before_signal, signal);
}

int main(void)
{
    volatile int jumps = 0, signals = 0;
    for (volatile int i = 0; i < 1000; i++) {
        if (setjmp(top) == 0)
            descend(10);
        else
            jumps++;
    }
    signal(SIGUSR1, handler);
    for (volatile int i = 0; i < 100; i++) {
        if (sigsetjmp(before_signal, 1) == 0)
            raise(SIGUSR1);
        else
            signals++;
    }
    printf("%d %d\n", jumps, signals);
    return 0;
}
