/* A program that maps memory, writes code into it, and runs it; then unmaps it and does so again, often
 * at the same address with other code. The generated function n gives its argument plus n.
 *
 * prints: 1275
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int main(void)
{
    long sum = 0;
    for (int n = 1; n <= 50; n++) {
        /* lea eax, [rdi + n]; ret */
        unsigned char code[4] = {0x8d, 0x47, (unsigned char)n, 0xc3};
        void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
            return 1;
        memcpy(page, code, sizeof code);
        mprotect(page, 4096, PROT_READ | PROT_EXEC);
        int (*function)(int);
        memcpy(&function, &page, sizeof function);
        for (int call = 0; call < 100; call++)
            sum += function(call) - call;
        munmap(page, 4096);
    }
    printf("%ld\n", sum / 100);
    return 0;
}
