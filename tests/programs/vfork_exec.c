/* vfork and exec of a program that prints, one that fails, and one that does not exist.
 *
 * prints: from the child|1|127
 */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int run(const char *path, char *const argv[])
{
    pid_t child = vfork();
    if (child == 0) {
        execv(path, argv);
        _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(void)
{
    char *print[] = {"printf", "from the child|", NULL}, *fail[] = {"false", NULL}, *none[] = {"none", NULL};
    if (run("/usr/bin/printf", print) != 0)
        return 1;
    int failed = run("/bin/false", fail), missing = run("/nonexistent/program", none);
    printf("%d|%d\n", failed, missing);
    return 0;
}
