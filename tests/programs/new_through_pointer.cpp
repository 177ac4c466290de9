// operator new that gets its blocks from a function which stores their addresses, as libstdc++'s own aligned one does
// since GCC 13: the block is called after the variable that operator new's result goes to.
//
// Each block gets as many stores of 4 bytes as it has elements that are set, once.
//
// expect heap wide: blocks=1 bytes=256 stores=1 store_bytes=4
// expect heap wider: blocks=1 bytes=512 stores=2 store_bytes=8
// prints: 64-aligned
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

void *operator new(std::size_t bytes, std::align_val_t alignment)
{
    void *stored = nullptr;
    if (posix_memalign(&stored, static_cast<std::size_t>(alignment), bytes) != 0)
        throw std::bad_alloc();
    return stored;
}

void operator delete(void *block, std::align_val_t) noexcept
{
    std::free(block);
}

void operator delete(void *block, std::size_t, std::align_val_t) noexcept
{
    std::free(block);
}

struct alignas(64) Wide {
    volatile int first;
    char rest[252];
};

int main()
{
    Wide *wide = new Wide;
    wide->first = 1;
    Wide *wider = new Wide[2];
    wider[0].first = 1;
    wider[1].first = 2;
    bool aligned = reinterpret_cast<std::uintptr_t>(wide) % 64 == 0;
    std::puts(aligned ? "64-aligned" : "not aligned");
    delete wide;
    operator delete[](wider, std::align_val_t{64});
    return 0;
}
