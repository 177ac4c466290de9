// Restricts its system calls to what it needs itself: for any other the kernel kills it. Then it works for a while.
//
// prints: 17178129083710752
// exit: 4
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int main(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_write),
        ALLOW(SYS_exit_group),
        ALLOW(SYS_brk),
        ALLOW(SYS_mmap),
        ALLOW(SYS_munmap),
        ALLOW(SYS_fstat),
        ALLOW(SYS_newfstatat),
        ALLOW(SYS_getrandom),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("seccomp");
        return 1;
    }
    unsigned long sum = 0;
    for (int round = 0; round < 400; round++) {
        size_t count = 20000;
        unsigned *numbers = malloc(count * sizeof *numbers);
        for (size_t i = 0; i < count; i++)
            numbers[i] = i * 2654435761u + round;
        for (size_t i = 0; i < count; i++)
            sum += numbers[numbers[i] % count];
        free(numbers);
    }
    printf("%lu\n", sum);
    return 4;
}
