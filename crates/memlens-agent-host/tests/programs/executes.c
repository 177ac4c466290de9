/* Executes itself in every way that there is; each time it says what it was called with, how many words of environment and
   which descriptors it has, and allocates a block whose size is its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void tell(int argc, char **argv)
{
    int words = 0, descriptors = 0, ours = 0;
    for (char **word = environ; *word; word++, words++)
        ours += !strncmp(*word, "MEMLENS_", 8) || !strncmp(*word, "LD_PRELOAD=", 11);
    for (int descriptor = 0; descriptor < 256; descriptor++)
        descriptors += fcntl(descriptor, F_GETFD) >= 0;
    printf("%s", argc > 1 ? argv[1] : "first");
    for (int at = 2; at < argc; at++)
        printf(" %s", argv[at]);
    printf(": %d words, %d of memlens, %d descriptors, EXTRA=%s\n", words, ours, descriptors, getenv("EXTRA"));
    fflush(stdout);
    free(malloc(20000 + argc));
}

static void wait_for(pid_t child)
{
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 7 << 8)
        printf("wrong end: %x\n", status);
}

int main(int argc, char **argv)
{
    char *list[] = {argv[0], "list", "2", "3", 0}, *extra[] = {"EXTRA=1", "PATH=/nowhere", 0};
    char *path = argv[0], *name = strrchr(argv[0], '/') + 1;
    pid_t child;

    tell(argc, argv);
    if (argc > 1)
        return 7;
    if (!(child = vfork()))
        execve(path, list, extra), _exit(1);
    wait_for(child);
    if (!(child = fork()))
        execv(path, list), _exit(1);
    wait_for(child);
    if (!(child = fork()))
        execvp(name, list), _exit(1);
    wait_for(child);
    if (!(child = vfork()))
        execvpe(name, list, extra), _exit(1);
    wait_for(child);
    if (!(child = fork()))
        execl(path, path, "execl", "2", "3", "4", "5", "6", "7", (char *)0), _exit(1);
    wait_for(child);
    if (!(child = fork()))
        execlp(name, path, "execlp", (char *)0), _exit(1);
    wait_for(child);
    if (!(child = vfork()))
        execle(path, path, "execle", "2", "3", "4", "5", (char *)0, extra), _exit(1);
    wait_for(child);
    if (posix_spawn(&child, path, 0, 0, list, extra))
        puts("posix_spawn failed");
    wait_for(child);
    if (posix_spawnp(&child, name, 0, 0, list, environ))
        puts("posix_spawnp failed");
    wait_for(child);
    /* What fails, fails as it would. */
    if (execl("/no/such/program", "x", (char *)0) != -1 || errno != ENOENT)
        puts("wrong error");
    if (posix_spawn(&child, "/no/such/program", 0, 0, list, environ) != ENOENT)
        puts("wrong error");
    /* More words than fit the smallest array. */
    char *many[1002];
    for (int at = 0; at < 1000; at++)
        many[at] = "A=1";
    many[1000] = "LD_PRELOAD=", many[1001] = 0;
    fflush(stdout);
    execve(path, list, many);
    return 1;
}
