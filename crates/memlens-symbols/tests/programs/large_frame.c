/* A frame of several pages, each of which the prologue may touch. */
#include <stdio.h>

__attribute__((noinline)) long f(int n)
{
    volatile long big[2500];
    volatile long second[300];
    long s = 0;
    for (int i = 0; i < n; i++)
        big[i] = second[i] = i;
    for (int i = 0; i < n; i++)
        s += big[i] + second[i];
    return s;
}

int main(int argc, char **argv)
{
    printf("%ld\n", f(argc + 299));
}
