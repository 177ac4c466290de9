// Job control as a shell does it: a process of the background takes the terminal, with SIGTTOU blocked, or ignored, or neither, when it
// is stopped. The terminal is the program's own.
//
// prints: blocked 3, ignored 3, neither stopped by 22
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum how { BLOCKED, IGNORED, NEITHER };

/* Runs in a process group of its own, which is not the terminal's. */
static void take_terminal(int terminal, enum how how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTTOU);
    if (how == BLOCKED)
        sigprocmask(SIG_BLOCK, &set, NULL);
    if (how == IGNORED)
        signal(SIGTTOU, SIG_IGN);
    setpgid(0, 0);
    int result = tcsetpgrp(terminal, getpid());
    /* What was blocked before the call is blocked after it, and nothing else. */
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    _exit(result == 0 && tcgetpgrp(terminal) == getpid() && sigismember(&now, SIGTTOU) == (how == BLOCKED) ? 3 : 4);
}

static int lead_session(const char *name)
{
    setsid();
    int terminal = open(name, O_RDWR);
    if (terminal < 0 || ioctl(terminal, TIOCSCTTY, 0) < 0)
        return 1;
    signal(SIGTTOU, SIG_IGN);
    const char *words[] = {"blocked", "ignored", "neither"};
    for (enum how how = BLOCKED; how <= NEITHER; how++) {
        tcsetpgrp(terminal, getpid());
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            signal(SIGTTOU, SIG_DFL);
            take_terminal(terminal, how);
        }
        int status;
        waitpid(child, &status, WUNTRACED);
        if (WIFSTOPPED(status)) {
            printf("%s stopped by %d", words[how], WSTOPSIG(status));
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
        } else {
            printf("%s %d", words[how], WEXITSTATUS(status));
        }
        printf(how == NEITHER ? "\n" : ", ");
    }
    fflush(stdout);
    return 0;
}

int main(void)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) || unlockpt(master))
        return 1;
    pid_t leader = fork();
    if (leader == 0) {
        const char *name = ptsname(master);
        /* The session ends with its leader, which would be hung up. */
        signal(SIGHUP, SIG_IGN);
        _exit(lead_session(name));
    }
    int status;
    waitpid(leader, &status, 0);
    return WEXITSTATUS(status);
}
