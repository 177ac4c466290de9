/* Waits in the way that its first word says, and prints what came of it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fenv.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t signals;
static void on_signal(int number) {
    (void)number;
    signals++;
}

static void ready(void) {
    printf("ready\n");
    fflush(stdout);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* A wait that ends by itself takes so many seconds as the second word says, and not many more. */
static struct timespec whole;
static double begin;
static const char *of_time(void) {
    double took = now() - begin;
    return took < whole.tv_sec - 0.01 ? "early" : took > whole.tv_sec + 2.5 ? "late" : "ok";
}

static const char *of(int is_right) {
    static char text[64];
    snprintf(text, sizeof text, "errno %d", errno);
    return is_right ? "ok" : text;
}

static int word_comes(int count) {
    char word[16];
    return count == 1 && read(0, word, sizeof word) > 0;
}

static const char *in_nanosleep(void) { return nanosleep(&whole, NULL) == 0 ? of_time() : of(0); }

static const char *in_clock_nanosleep(void) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += whole.tv_sec;
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == 0 ? of_time() : of(0);
}

static const char *in_futex(void) {
    static int word;
    long result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &whole, NULL, 0);
    return result < 0 && errno == ETIMEDOUT ? of_time() : of(0);
}

static const char *in_poll(void) {
    struct pollfd descriptor = {.fd = 0, .events = POLLIN};
    return of(word_comes(poll(&descriptor, 1, -1)));
}

static const char *in_timed_poll(void) {
    struct pollfd descriptor = {.fd = 0, .events = POLLIN};
    return poll(&descriptor, 1, whole.tv_sec * 1000) == 0 ? of_time() : of(0);
}

static const char *in_select(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(0, &set);
    return of(word_comes(select(1, &set, NULL, NULL, NULL)));
}

static const char *in_epoll(void) {
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(set, EPOLL_CTL_ADD, 0, &event);
    return of(word_comes(epoll_wait(set, &event, 1, -1)));
}

/* In and out of the wait all the time. */
static const char *often_in_epoll(void) {
    int set = epoll_create1(0), count;
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(set, EPOLL_CTL_ADD, 0, &event);
    while ((count = epoll_wait(set, &event, 1, 1)) == 0)
        ;
    return of(word_comes(count));
}

static const char *in_read(void) { return of(word_comes(1)); }

static const char *in_recv(void) {
    int ends[2];
    struct timeval limit = {60, 0};
    char word[16];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (fork() == 0) {
        sleep(whole.tv_sec);
        _exit(write(ends[1], "x", 1) != 1);
    }
    return of(recv(ends[0], word, sizeof word, 0) == 1);
}

static const char *in_semop(void) {
    int set = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf down = {0, -1, 0};
    long result = syscall(SYS_semtimedop, set, &down, 1, &whole);
    int error = errno;
    semctl(set, 0, IPC_RMID);
    errno = error;
    return of(result < 0 && errno == EAGAIN);
}

static const char *in_sigsuspend(void) {
    sigset_t set;
    sigemptyset(&set);
    return of(sigsuspend(&set) < 0 && errno == EINTR && signals == 1);
}

static const char *in_sigtimedwait(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    ready();
    return of(sigtimedwait(&set, NULL, &(struct timespec){60, 0}) == SIGUSR2);
}

/* All registers that are not needed for looping hold what is known, and are looked at now and then. */
static int word_is_there(void) {
    struct pollfd descriptor = {.fd = 0, .events = POLLIN};
    return poll(&descriptor, 1, 0) == 1;
}

#ifdef __aarch64__
/* x0: how often. Returns what differs. */
long keeps_registers(long rounds);
__asm__(".text\n.balign 16\n.globl keeps_registers\nkeeps_registers:\n"
        "stp x29, x30, [sp, -224]!\n stp x19, x20, [sp, 16]\n stp x21, x22, [sp, 32]\n stp x23, x24, [sp, 48]\n"
        "stp x25, x26, [sp, 64]\n stp x27, x28, [sp, 80]\n stp d8, d9, [sp, 96]\n stp d10, d11, [sp, 112]\n"
        "stp d12, d13, [sp, 128]\n stp d14, d15, [sp, 144]\n"
        ".irp n, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,19,20,21,22,23,24,25,26,27,28,29,30\n"
        "mov x\\n, 0x1000 + \\n\n.endr\n"
        ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
        "movi v\\n\\().16b, 64 + \\n\n.endr\n"
        "1: subs x0, x0, 1\n"
        /* Flags: greater and not equal, with a carry, as long as the loop runs. */
        "b.eq 2f\n b.lo 3f\n b 1b\n"
        "2:\n"
        ".irp n, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,19,20,21,22,23,24,25,26,27,28,29,30\n"
        "sub x\\n, x\\n, 0x1000\n sub x\\n, x\\n, \\n\n orr x0, x0, x\\n\n.endr\n"
        ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
        "mov x1, v\\n\\().d[0]\n mov x2, v\\n\\().d[1]\n movi v\\n\\().16b, 64 + \\n\n mov x3, v\\n\\().d[0]\n"
        "eor x1, x1, x3\n eor x2, x2, x3\n orr x0, x0, x1\n orr x0, x0, x2\n.endr\n b 4f\n"
        "3: mov x0, 1\n"
        "4: ldp d14, d15, [sp, 144]\n ldp d12, d13, [sp, 128]\n ldp d10, d11, [sp, 112]\n ldp d8, d9, [sp, 96]\n"
        "ldp x27, x28, [sp, 80]\n ldp x25, x26, [sp, 64]\n ldp x23, x24, [sp, 48]\n ldp x21, x22, [sp, 32]\n"
        "ldp x19, x20, [sp, 16]\n ldp x29, x30, [sp], 224\n ret\n");

/* The same of long vectors and predicates. */
long keeps_long_vectors(long rounds);
__asm__(".arch_extension sve\n.text\n.balign 16\n.globl keeps_long_vectors\nkeeps_long_vectors:\n"
        "stp d8, d9, [sp, -64]!\n stp d10, d11, [sp, 16]\n stp d12, d13, [sp, 32]\n stp d14, d15, [sp, 48]\n"
        ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
        "dup z\\n\\().b, 64 + \\n\n.endr\n"
        "ptrue p0.b\n ptrue p1.h\n ptrue p2.s\n ptrue p3.d\n ptrue p15.h\n setffr\n"
        "1: subs x0, x0, 1\n b.ne 1b\n"
        "ptrue p4.b\n eors p5.b, p4/z, p0.b, p4.b\n cset x1, ne\n orr x0, x0, x1\n"
        "ptrue p4.h\n ptrue p6.b\n eors p5.b, p6/z, p1.b, p4.b\n cset x1, ne\n orr x0, x0, x1\n"
        "eors p5.b, p6/z, p15.b, p4.b\n cset x1, ne\n orr x0, x0, x1\n"
        "ptrue p4.s\n eors p5.b, p6/z, p2.b, p4.b\n cset x1, ne\n orr x0, x0, x1\n"
        "ptrue p4.d\n eors p5.b, p6/z, p3.b, p4.b\n cset x1, ne\n orr x0, x0, x1\n"
        "rdffrs p5.b, p6/z\n cset x1, hs\n orr x0, x0, x1\n"
        ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
        "mov w2, 64 + \\n\n"
        /* In all bytes the number that was written. */
        "umaxv b31, p6, z\\n\\().b\n.if \\n < 31\n umov w3, v31.b[0]\n cmp w3, w2\n cset x1, ne\n orr x0, x0, x1\n"
        "uminv b31, p6, z\\n\\().b\n umov w3, v31.b[0]\n cmp w3, w2\n cset x1, ne\n orr x0, x0, x1\n.endif\n.endr\n"
        "ldp d14, d15, [sp, 48]\n ldp d12, d13, [sp, 32]\n ldp d10, d11, [sp, 16]\n ldp d8, d9, [sp], 64\n ret\n");

static const char *computing_long(void) {
    if (!(getauxval(AT_HWCAP) & HWCAP_SVE))
        return in_read();
    while (!word_is_there())
        if (keeps_long_vectors(20 * 1000 * 1000) != 0)
            return "registers differ";
    return "ok";
}
#else
static long keeps_registers(long rounds) {
    double sum = 0, same = 0;
    for (long i = 1; i < rounds; i++)
        sum += 1.0 / i;
    for (long i = 1; i < rounds; i++)
        same += 1.0 / i;
    return sum != same;
}
static const char *computing_long(void) { return in_read(); }
#endif

static const char *computing(void) {
    fesetround(FE_DOWNWARD);
    feclearexcept(FE_ALL_EXCEPT);
    errno = 5;
    while (!word_is_there()) {
        if (keeps_registers(2 * 1000 * 1000) != 0)
            return "registers differ";
        if (fegetround() != FE_DOWNWARD || errno != 5)
            return "rounding or errno differ";
    }
    return "ok";
}

static void *sleep_often(void *unused) {
    (void)unused;
    while (!signals)
        if (nanosleep(&(struct timespec){0, 3000 * 1000}, NULL) != 0)
            return "a sleep ended early";
    return NULL;
}

static void *allocate(void *unused) {
    (void)unused;
    while (!signals) {
        char *block = malloc(3000);
        memset(block, 1, 3000);
        free(block);
    }
    return NULL;
}

static const char *with_threads(void) {
    pthread_t threads[4];
    void *result, *(*kinds[])(void *) = {sleep_often, allocate, sleep_often, allocate};
    const char *faults = NULL;
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, kinds[i], NULL);
    const char *own = often_in_epoll();
    signals = 1;
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &result);
        faults = result ? result : faults;
    }
    return faults ? faults : own;
}

static void *end_at_once(void *argument) {
    free(malloc(100));
    return argument;
}

/* Threads begin and end all the time; the first one is where it cannot be borrowed, or begins them. */
static const char *making_threads(void) {
    enum { COUNT = 50 };
    pthread_t threads[COUNT];
    while (!word_is_there()) {
        for (int i = 0; i < COUNT; i++)
            pthread_create(&threads[i], NULL, end_at_once, NULL);
        for (int i = 0; i < 20 * 1000; i++)
            free(malloc(3000 + i));
        for (int i = 0; i < COUNT; i++)
            pthread_join(threads[i], NULL);
    }
    return "ok";
}

/* Waits that a signal with a handler ends, or does not. */
static const char *ended(int result) { return of(result < 0 && errno == EINTR && signals == 1); }
static const char *nanosleep_until_signal(void) { return ended(nanosleep(&(struct timespec){60, 0}, NULL)); }
static const char *poll_until_signal(void) { return ended(poll(NULL, 0, 60 * 1000)); }
static const char *epoll_until_signal(void) {
    return ended(epoll_wait(epoll_create1(0), &(struct epoll_event){0}, 1, 60 * 1000));
}
static const char *read_until_signal(void) {
    char word[16];
    return ended(read(0, word, sizeof word));
}
static const char *read_beyond_signal(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    char word[16];
    sigaction(SIGUSR1, &action, NULL);
    return of(read(0, word, sizeof word) > 0 && signals == 1);
}

int main(int count, char **words) {
    static const struct {
        const char *name, *(*function)(void);
    } kinds[] = {
        {"nanosleep", in_nanosleep},
        {"clock_nanosleep", in_clock_nanosleep},
        {"futex", in_futex},
        {"poll", in_poll},
        {"timed_poll", in_timed_poll},
        {"select", in_select},
        {"epoll", in_epoll},
        {"often_epoll", often_in_epoll},
        {"read", in_read},
        {"recv", in_recv},
        {"semop", in_semop},
        {"sigsuspend", in_sigsuspend},
        {"sigtimedwait", in_sigtimedwait},
        {"computing", computing},
        {"computing_long", computing_long},
        {"threads", with_threads},
        {"making_threads", making_threads},
        {"nanosleep_until_signal", nanosleep_until_signal},
        {"poll_until_signal", poll_until_signal},
        {"epoll_until_signal", epoll_until_signal},
        {"read_until_signal", read_until_signal},
        {"read_beyond_signal", read_beyond_signal},
    };
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    whole.tv_sec = count > 2 ? atoi(words[2]) : 0;
    for (size_t i = 0; count > 2 && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, words[1]) == 0) {
            if (kinds[i].function != in_sigtimedwait)
                ready();
            begin = now();
            printf("%s\n", kinds[i].function());
            return 7;
        }
    return 2;
}
