/* An executable at a fixed address that hands malloc on as a pointer: it has a symbol of that name with a value, and no allocator. */
#include <stdlib.h>

static __attribute__((noipa)) void *block_by(void *(*allocate)(size_t))
{
    return allocate(10001);
}

int main(void)
{
    void *block = block_by(malloc);
    free(block);
    return block == 0;
}
