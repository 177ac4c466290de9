/* Functions to be called in a running process. They use what they may: memory, the dynamic linker's lazy binding, errno,
 * vector registers. */
#include <errno.h>
#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct argument {
    uint64_t number;
    uint64_t answer;
};

void doubles(struct argument *argument) {
    char text[64];
    char *copy = malloc(200);
    memset(copy, 7, 200);
    snprintf(text, sizeof text, "%.1f", (double)argument->number * 2);
    argument->answer = strtoull(text, NULL, 10) + (copy[100] - 7);
    free(copy);
    errno = 77;
    fesetround(FE_UPWARD);
    feraiseexcept(FE_INEXACT);
#ifdef __aarch64__
    __asm__ volatile("movi v0.16b, 0xaa\n movi v7.16b, 0xaa\n movi v16.16b, 0xaa\n movi v31.16b, 0xaa\n mov x16, 1\n mov x17, 1\n"
                     "mov x18, 1\n cmp x16, x17" ::: "v0", "v7", "v16", "v31", "x16", "x17", "x18", "cc");
#endif
}

void takes_its_time(struct argument *argument) {
    /* Not by a sleep: then what is left of the thread's own would be forgotten. */
    struct timespec begin, time;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &time);
    while ((time.tv_sec - begin.tv_sec) * 1000 + (time.tv_nsec - begin.tv_nsec) / 1000000 < 400);
    doubles(argument);
}

void crashes(struct argument *argument) {
    *(volatile int *)argument->answer = 1;
}
