/* posix_spawn with a file action: 10 children whose output comes through a pipe.
 *
 * prints: 0123456789
 */
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(void)
{
    char text[64] = {0};
    size_t length = 0;
    for (int i = 0; i < 10; i++) {
        int ends[2];
        if (pipe(ends) != 0)
            return 1;
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
        posix_spawn_file_actions_addclose(&actions, ends[0]);
        char digit[] = {(char)('0' + i), 0};
        char *argv[] = {"printf", digit, NULL};
        pid_t child;
        if (posix_spawn(&child, "/usr/bin/printf", &actions, NULL, argv, environ) != 0)
            return 1;
        posix_spawn_file_actions_destroy(&actions);
        close(ends[1]);
        ssize_t got;
        while ((got = read(ends[0], text + length, sizeof text - 1 - length)) > 0)
            length += (size_t)got;
        close(ends[0]);
        waitpid(child, NULL, 0);
    }
    puts(text);
    return 0;
}
