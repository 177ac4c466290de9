/* A block that names every general register, with an instruction (mul) that writes rdx, which nobody reads afterwards; and a
 * carry that is only turned round (cmc) at the begin of a block. A recorder that keeps something in rdx across the mul, or takes
 * the carry to be unused, spoils either.
 *
 * 8 loads of 8 bytes by the mul block, 10000 times, from "numbers". Both results are known: each round adds
 * 3 + 5 + 7 + 11 + 13 + 17 + 19 + 23 = 98 by loads, and turning the carry round adds 1.
 *
 * levels: -O2
 * expect global numbers: loads=80000 load_bytes=640000
 * prints: 980000 10000
 */
#include <stdint.h>
#include <stdio.h>

uint64_t numbers[512] __attribute__((aligned(4096))) = {3, 5, 7, 11, 13, 17, 19, 23};

__attribute__((noinline)) static uint64_t sum_with_all(uint64_t sum)
{
    __asm__ volatile(
        "push %%rbp\n\tpush %%rbx\n\t"
        "mov 0(%%rsi), %%rcx\n\tmov 8(%%rsi), %%rdi\n\tmov 16(%%rsi), %%r8\n\tmov 24(%%rsi), %%r9\n\t"
        "mov 32(%%rsi), %%r10\n\tmov 40(%%rsi), %%r11\n\tmov 48(%%rsi), %%r12\n\tmov 56(%%rsi), %%r13\n\t"
        "mov %%rax, %%r14\n\tmov $1, %%r15d\n\tmov $0, %%ebx\n\tmov $0, %%ebp\n\t"
        "mov $1, %%eax\n\tmul %%r15\n\t"
        "lea (%%rcx,%%rdi), %%rbx\n\tlea (%%r8,%%r9), %%rbp\n\tadd %%r10, %%rbx\n\tadd %%r11, %%rbp\n\tadd %%r12, %%rbx\n\t"
        "add %%r13, %%rbp\n\tadd %%rbx, %%rbp\n\tmov $0, %%edx\n\tlea (%%r14,%%rbp), %%rax\n\t"
        "pop %%rbx\n\tpop %%rbp"
        : "+a"(sum)
        : "S"(numbers)
        : "rcx", "rdx", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
    return sum;
}

__attribute__((noinline)) static uint64_t turn_carry(uint64_t sum)
{
    __asm__ volatile("lea 1f(%%rip), %%rcx\n\tclc\n\tjmp *%%rcx\n\t1: cmc\n\tadc $0, %0" : "+r"(sum) : : "rcx", "cc");
    return sum;
}

int main(void)
{
    uint64_t sum = 0, carries = 0;
    for (int i = 0; i < 10000; i++) {
        sum = sum_with_all(sum);
        carries = turn_carry(carries);
    }
    printf("%lu %lu\n", (unsigned long)sum, (unsigned long)carries);
    return 0;
}
