/* Spends 0.3 s of its processor time in system calls, or in loops of its own: as its argument says. */
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char bytes[1 << 20];

int main(int argc, char **argv)
{
    int zero = open("/dev/zero", O_RDONLY), calls = argc > 1 && !strcmp(argv[1], "calls");
    if (zero < 0)
        return 1;
    while (clock() < 3 * CLOCKS_PER_SEC / 10)
        for (volatile int i = 0; i < (calls ? 20 : 1000000); i++)
            if (calls && read(zero, bytes, sizeof bytes) < 0)
                return 2;
    return 0;
}
