/* Children that use what they share with their parent.
 *
 * The parent stores 1,000 words to a block, forks three children one after the other, and then reads 200
 * words. Each child reads 500 words of the parent's block, stores 100 to it, and stores 300 to a block and
 * 50 to a global of its own copy. So, all processes together: `table` is stored to 1,000 + 3 * 100 times
 * and read 3 * 500 + 200 times; it was allocated once, by the parent; `own` was allocated three times,
 * stored to 3 * 300 times; `shared` 3 * 50 times. Objects are the same in all processes, none is unknown.
 *
 * memlens: --follow children
 * prints: 6
 * expect heap table: blocks=1 bytes=8000 stores=1300 loads=1700
 * expect heap own: blocks=3 bytes=7200 stores=900 loads=0
 * expect global shared: stores=150 loads=0
 * named: 100
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

volatile long shared[50];

int main(void)
{
    volatile long *table = malloc(1000 * sizeof *table);
    for (int i = 0; i < 1000; i++)
        table[i] = i;
    int sum = 0;
    for (int child = 1; child <= 3; child++) {
        pid_t id = fork();
        if (id == 0) {
            for (int i = 0; i < 500; i++)
                (void)table[i];
            for (int i = 0; i < 100; i++)
                table[i] = child;
            volatile long *own = malloc(300 * sizeof *own);
            for (int i = 0; i < 300; i++)
                own[i] = i;
            for (int i = 0; i < 50; i++)
                shared[i] = i;
            _exit(child);
        }
        int status = 0;
        waitpid(id, &status, 0);
        sum += WEXITSTATUS(status);
    }
    for (int i = 0; i < 200; i++)
        (void)table[i];
    printf("%d\n", sum);
    return 0;
}
