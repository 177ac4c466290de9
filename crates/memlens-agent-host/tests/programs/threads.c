/* Threads that allocate, compute and wait, until the first word on standard input; every wait that ends early, and
 * every block whose content is not what was written, counts as a fault. Prints rounds and faults. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static atomic_int stops;
static atomic_long faults, rounds, alarms;
static int nothing[2];

static void fault(const char *what) {
    fprintf(stderr, "fault: %s, errno %d\n", what, errno);
    faults++;
}

/* With -DMAY_BE_INTERRUPTED the stop of somebody who died may be seen, as SIGCONT is (signal(7)). */
#ifndef MAY_BE_INTERRUPTED
#define MAY_BE_INTERRUPTED 0
#endif
static void wait_for(int set, struct epoll_event *event) {
    int count;
    while ((count = epoll_wait(set, event, 1, -1)) < 0 && MAY_BE_INTERRUPTED && errno == EINTR)
        ;
    if (count != 1)
        fault("epoll_wait");
}

static void *allocate(void *unused) {
    (void)unused;
    unsigned seed = 1;
    char *blocks[512] = {0};
    size_t sizes[512] = {0};
    while (!stops) {
        seed = seed * 1664525 + 1013904223;
        int at = seed >> 23;
        if (blocks[at]) {
            for (size_t i = 0; i < sizes[at]; i += 61)
                if (blocks[at][i] != (char)at)
                    fault("a block's content");
            free(blocks[at]);
        }
        sizes[at] = 16 + (seed >> 8) % 3000;
        blocks[at] = malloc(sizes[at]);
        memset(blocks[at], at, sizes[at]);
        rounds++;
    }
    for (int at = 0; at < 512; at++)
        free(blocks[at]);
    return NULL;
}

static void *wait_in_epoll(void *unused) {
    (void)unused;
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(set, EPOLL_CTL_ADD, nothing[0], &event);
    wait_for(set, &event);
    return NULL;
}

static void *wait_in_read(void *unused) {
    (void)unused;
    struct pollfd descriptor = {.fd = nothing[0], .events = POLLIN};
    if (poll(&descriptor, 1, -1) != 1)
        fault("poll");
    return NULL;
}

static void *sleep_often(void *unused) {
    (void)unused;
    while (!stops) {
        struct timespec time = {0, 30 * 1000 * 1000}, begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        if (nanosleep(&time, NULL) != 0)
            fault("nanosleep");
        clock_gettime(CLOCK_MONOTONIC, &end);
        if ((end.tv_sec - begin.tv_sec) * 1000000000L + end.tv_nsec - begin.tv_nsec < time.tv_nsec)
            fault("a sleep's length");
    }
    return NULL;
}

static void *begin_threads(void *unused);
static void *end_at_once(void *argument) {
    free(malloc(100));
    return argument;
}

static void *begin_threads(void *unused) {
    (void)unused;
    while (!stops) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, end_at_once, NULL) == 0)
            pthread_join(thread, NULL);
        usleep(1000);
    }
    return NULL;
}

static void *compute(void *unused) {
    (void)unused;
    double sum = 0;
    long count = 0;
    while (!stops) {
        double part = 0;
        for (int i = 1; i < 100000; i++)
            part += 1.0 / i;
        sum += part;
        count++;
        if (part != sum / count && count == 1)
            fault("arithmetic");
    }
    return NULL;
}

static void on_alarm(int signal) {
    (void)signal;
    alarms++;
}

/* One thread that waits, and is told that it may end by what it waits for. */
static int wait_alone(void) {
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    char word[16];
    epoll_ctl(set, EPOLL_CTL_ADD, 0, &event);
    printf("ready\n");
    fflush(stdout);
    wait_for(set, &event);
    if (read(0, word, sizeof word) < 1)
        fault("read");
    printf("rounds 1 faults %ld alarms 1\n", (long)faults);
    return 7;
}

int main(int count, char **words) {
    if (count > 1 && strcmp(words[1], "alone") == 0)
        return wait_alone();
    void *(*kinds[])(void *) = {allocate,    allocate,      wait_in_epoll, wait_in_read,
                                sleep_often, begin_threads, compute};
    enum { COUNT = sizeof kinds / sizeof *kinds };
    pthread_t threads[COUNT];
    sigset_t alarm_only;
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 3000}, {0, 3000}};
    char word[16];
    if (pipe(nothing) != 0)
        return 2;
    sigaction(SIGALRM, &action, NULL);
    /* The threads' waits may end with a signal of the program's own: that is for the first thread. */
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_only, NULL);
    for (int i = 0; i < COUNT; i++)
        pthread_create(&threads[i], NULL, kinds[i], NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    printf("ready\n");
    fflush(stdout);
    if (read(0, word, sizeof word) < 1)
        fault("read");
    /* On a busy machine the word may come before any thread has run. */
    while (!rounds || !alarms)
        usleep(1000);
    stops = 1;
    if (write(nothing[1], "x", 1) != 1)
        fault("write");
    for (int i = 0; i < COUNT; i++)
        pthread_join(threads[i], NULL);
    printf("rounds %d faults %ld alarms %d\n", rounds > 0, (long)faults, alarms > 0);
    return 7;
}
