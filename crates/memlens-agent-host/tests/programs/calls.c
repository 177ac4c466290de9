/* System calls that Linux ends with EINTR whenever a handler runs. While the first thread waits in each, the agent's signal comes to it
   twice, as a tick does. Prints each call that ended by it, then `done`. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { SIGNAL = 32, MS = 1000 };
static int first;
static volatile int waits;

static void *interrupt(void *nothing)
{
    for (;;) {
        while (!waits)
            usleep(MS);
        for (int i = 0; i < 2; i++) {
            usleep(10 * MS);
            syscall(SYS_tgkill, getpid(), first, SIGNAL);
        }
        waits = 0;
    }
    return nothing;
}

#define TRY(call, expected)                                     \
    do {                                                        \
        errno = 0;                                              \
        waits = 1;                                              \
        long got = (long)(call);                                \
        if (got != (expected) || errno == EINTR)                \
            printf("%s: %ld, %s\n", #call, got, strerror(errno)); \
        while (waits)                                           \
            usleep(MS);                                         \
    } while (0)

int main(void)
{
    first = syscall(SYS_gettid);
    pthread_t thread;
    pthread_create(&thread, 0, interrupt, 0);
    int ends[2], epoll = epoll_create1(0), sem = semget(IPC_PRIVATE, 1, 0600);
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    struct timeval limit = { 0, 50 * MS };
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    struct epoll_event event = { EPOLLIN };
    epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event);
    struct pollfd polled = { ends[0], POLLIN };
    struct timespec time = { 0, 50 * MS * 1000 };
    struct sembuf take = { 0, -1, 0 };
    char byte;
    TRY(epoll_wait(epoll, &event, 1, 50), 0);
    TRY(poll(&polled, 1, 50), 0);
    TRY(ppoll(&polled, 1, &time, 0), 0);
    TRY(select(0, 0, 0, 0, &limit), 0);
    TRY(nanosleep(&time, 0), 0);
    TRY(clock_nanosleep(CLOCK_MONOTONIC, 0, &time, 0), 0);
#ifdef __x86_64__
    /* Elsewhere nothing has the first argument any more. */
    TRY(semtimedop(sem, &take, 1, &time), -1);
#endif
    TRY(recv(ends[0], &byte, 1, 0), -1);
    TRY(read(ends[0], &byte, 1), -1);
    semctl(sem, 0, IPC_RMID);
    puts("done");
    return 0;
}
