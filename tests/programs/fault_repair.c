/* A SIGSEGV handler that makes the page accessible and lets the instruction run again: what garbage
 * collectors and databases do. 200 pages, each written by a faulting store, then read; and the handler
 * sees the address that faulted.
 *
 * prints: faults 200 sum 19900
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGES 200
static char *region;
static volatile int faults;

static void handler(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    char *page = (char *)((unsigned long)info->si_addr & ~4095UL);
    if (page < region || page >= region + PAGES * 4096L)
        abort();
    faults++;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

int main(void)
{
    struct sigaction action = {0};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    region = mmap(NULL, PAGES * 4096L, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED)
        return 1;
    for (long i = 0; i < PAGES; i++)
        *(volatile int *)(region + i * 4096 + 8 * i) = (int)i;
    long sum = 0;
    for (long i = 0; i < PAGES; i++)
        sum += *(volatile int *)(region + i * 4096 + 8 * i);
    printf("faults %d sum %ld\n", faults, sum);
    return 0;
}
