/* Instructions that load and store the same bytes: modifies, one load and one store each.
 *
 * lock xadd 100 times, lock cmpxchg 50 times that succeeds and 50 times that fails (the processor
 * writes back the old value then: Intel SDM volume 2, CMPXCHG), xchg 25 times, lock inc 25 times, add to
 * memory 50 times: 300 loads and 300 stores of 8 bytes, to five variables on pages of their own.
 *
 * expect global added: loads=100 stores=100 load_bytes=800 store_bytes=800
 * expect global compared: loads=100 stores=100 load_bytes=800 store_bytes=800
 * expect global exchanged: loads=25 stores=25
 * expect global incremented: loads=25 stores=25
 * expect global plain: loads=50 stores=50 l1_misses=1
 * prints: done
 */
#include <stdio.h>

#define OWN_PAGES __attribute__((aligned(4096)))
long added OWN_PAGES, compared OWN_PAGES, exchanged OWN_PAGES, incremented OWN_PAGES, plain OWN_PAGES;

int main(void)
{
    for (long i = 0; i < 100; i++) {
        long one = 1;
        __asm__ volatile("lock xaddq %0, %1" : "+r"(one), "+m"(added) : : "cc");
    }
    for (long i = 0; i < 100; i++) {
        /* compared counts up at each even i: it is then i / 2. */
        long expected = i % 2 == 0 ? i / 2 : -1;
        __asm__ volatile("lock cmpxchgq %2, %1" : "+a"(expected), "+m"(compared) : "r"(i / 2 + 1) : "cc");
    }
    for (long i = 0; i < 25; i++) {
        long other = i;
        __asm__ volatile("xchgq %0, %1" : "+r"(other), "+m"(exchanged));
        __asm__ volatile("lock incq %0" : "+m"(incremented) : : "cc");
    }
    for (long i = 0; i < 50; i++)
        __asm__ volatile("addq $1, %0" : "+m"(plain) : : "cc");
    puts("done");
    return 0;
}
