/* 100 children, ten at a time; each computes, and exits with its number modulo 7; the last one dies by a
 * signal.
 *
 * 0 to 97 are fourteen times 0 to 6, of sum 21; 98 % 7 is 0; 99 is killed: 294.
 *
 * prints: exit codes 294 killed 1
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    int codes = 0, killed = 0;
    for (int batch = 0; batch < 10; batch++) {
        for (int i = 0; i < 10; i++) {
            int number = batch * 10 + i;
            pid_t child = fork();
            if (child < 0) {
                perror("fork");
                return 1;
            }
            if (child == 0) {
                volatile long *block = malloc(1000 * sizeof *block);
                for (int j = 0; j < 1000; j++)
                    block[j] = number;
                if (number == 99)
                    raise(SIGKILL);
                _exit((int)block[999] % 7);
            }
        }
        for (int i = 0; i < 10; i++) {
            int status;
            if (wait(&status) < 0)
                return 1;
            if (WIFEXITED(status))
                codes += WEXITSTATUS(status);
            else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
                killed++;
        }
    }
    printf("exit codes %d killed %d\n", codes, killed);
    return 0;
}
