/* Linked with --wrap=malloc,--wrap=calloc: prints the return address of each allocation. */
#include <stddef.h>
#include <stdio.h>
void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__wrap_malloc(size_t n)
{
    printf("%p\n", __builtin_return_address(0));
    fflush(stdout);
    return __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t m)
{
    printf("%p\n", __builtin_return_address(0));
    fflush(stdout);
    return __real_calloc(n, m);
}
