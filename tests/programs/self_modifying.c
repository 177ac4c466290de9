/* A program that changes its code while it runs: the constant that a function returns, 200 times.
 *
 * prints: 19900
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int main(void)
{
    int protection = PROT_READ | PROT_WRITE | PROT_EXEC;
    unsigned char *page = mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return 1;
    /* mov eax, imm32; ret */
    unsigned char code[6] = {0xb8, 0, 0, 0, 0, 0xc3};
    memcpy(page, code, sizeof code);
    int (*function)(void);
    memcpy(&function, &page, sizeof function);
    long sum = 0;
    for (int i = 0; i < 200; i++) {
        memcpy(page + 1, &i, sizeof i);
        sum += function();
    }
    printf("%ld\n", sum);
    return 0;
}
