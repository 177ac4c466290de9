/* A program that looks at, and executes, itself by the kernel's links to it.
 *
 * Each of three spellings is read (the whole name, and cut to two bytes without a zero behind), opened and
 * looked at: it is the file that the first argument names. Then the program is executed three times, after
 * fork and vfork by name and after fork by descriptor; it returns 7.
 *
 * prints: 3 links, 21
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int is_own(const char *link, const char *own)
{
    char name[4096] = {0}, cut[4] = "zzz";
    struct stat wanted, opened, followed;
    int fd = open(link, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &opened) != 0 || stat(link, &followed) != 0 || stat(own, &wanted) != 0)
        return 0;
    close(fd);
    return readlink(link, name, sizeof name) == (ssize_t)strlen(own) && strcmp(name, own) == 0 &&
           readlink(link, cut, 2) == 2 && cut[2] == 'z' && readlink(link, cut, 0) == -1 &&
           opened.st_ino == wanted.st_ino && followed.st_ino == wanted.st_ino && access(link, X_OK) == 0;
}

int main(int count, char **words)
{
    if (count > 1)
        return 7;
    char own[4096], by_id[64];
    snprintf(by_id, sizeof by_id, "/proc/%d/exe", getpid());
    if (!realpath(words[0], own))
        return 1;
    int links = is_own("/proc/self/exe", own) + is_own("/proc/thread-self/exe", own) + is_own(by_id, own);
    int sum = 0;
    for (int way = 0; way < 3; way++) {
        char *arguments[] = {words[0], "again", NULL};
        pid_t child = way == 1 ? vfork() : fork();
        if (child == 0) {
            if (way < 2)
                execv("/proc/self/exe", arguments);
            else
                fexecve(open("/proc/self/exe", O_PATH | O_CLOEXEC), arguments, environ);
            _exit(1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        sum += WEXITSTATUS(status);
    }
    printf("%d links, %d\n", links, sum);
    return 0;
}
