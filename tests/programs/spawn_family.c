/* The same program executed by children made in four ways: fork, vfork, posix_spawn, and fork with a script
 * in between.
 *
 * The parent stores to `rounds` once a child, so 4 times. Each of the four executed programs (the script's
 * one by the shell that runs the script) stores 250 words to a block of its own. The shell is
 * recorded, too, but has no variable of these names: 4 * 250 stores, 4 blocks.
 *
 * memlens: --follow children
 * prints: 40
 * expect heap work: blocks=4 bytes=8000 stores=1000 loads=0
 * expect global rounds: stores=4 loads=0
 */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
volatile long rounds;

int main(int count, char **words)
{
    if (count > 1) {
        volatile long *work = malloc(250 * sizeof *work);
        for (int i = 0; i < 250; i++)
            work[i] = i;
        return 10;
    }
    char script[4096], line[4200];
    snprintf(script, sizeof script, "%s.sh", words[0]);
    snprintf(line, sizeof line, "#!/bin/sh\n'%s' again\nexit $?\n", words[0]);
    FILE *file = fopen(script, "w");
    if (!file || fputs(line, file) < 0 || fclose(file) != 0 || chmod(script, 0755) != 0)
        return 1;
    char *again[] = {words[0], "again", NULL}, *by_script[] = {script, NULL};
    int sum = 0;
    for (int way = 0; way < 4; way++) {
        pid_t child;
        rounds = way;
        if (way == 2) {
            if (posix_spawn(&child, words[0], NULL, NULL, again, environ) != 0)
                return 1;
        } else {
            child = way == 1 ? vfork() : fork();
            if (child == 0) {
                execv(way == 3 ? script : words[0], way == 3 ? by_script : again);
                _exit(1);
            }
        }
        int status = 0;
        waitpid(child, &status, 0);
        sum += WEXITSTATUS(status);
    }
    remove(script);
    printf("%d\n", sum);
    return 0;
}
