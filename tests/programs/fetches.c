/* Instruction fetches: 64 KiB of code that the program writes itself, run three times from end to end.
 *
 * 16,383 instructions of 4 bytes and a return (1 byte): 16,384 fetches a run, 49,152 in all.
 * The code has 1,024 lines, twice what the instruction cache of 32 KiB holds, and least recently used lines go
 * first: every line misses in every run, 3,072 in all. The second level, of 256 KiB, was given the lines by the
 * stores that wrote them, so no fetch goes further, but for a few lines of which start-up code of the same sets
 * was more recent. The memory has 4 KiB pages of its own: the stores are 4 bytes each, 65,536 / 4 in all.
 *
 * memlens: --fetches --machine e5504
 * expect mmap code: fetches=49152 l1i_misses=3072 l2i_misses=0..64 llci_misses=0 stores=16384 store_bytes=65536
 * prints: 3 runs
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { CODE_BYTES = 65536 };

int main(void)
{
    /* nopl 0(%rax); ret, and three bytes that are not run. */
    const uint32_t nop = 0x00401f0f, ret = 0x000000c3;
    uint32_t *code = mmap(NULL, CODE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        return 1;
    volatile uint32_t *word = code;
    for (int i = 0; i < CODE_BYTES / 4; i++)
        word[i] = i + 1 < CODE_BYTES / 4 ? nop : ret;
    if (mprotect(code, CODE_BYTES, PROT_READ | PROT_EXEC) != 0)
        return 1;
    void (*function)(void);
    memcpy(&function, &code, sizeof function);
    int runs = 0;
    for (; runs < 3; runs++)
        function();
    printf("%d runs\n", runs);
    return 0;
}
