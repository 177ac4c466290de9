// C++'s allocation functions: plain, array, nothrow, aligned, sized.
//
// Each block gets as many stores of 4 bytes as its array has elements, once.
//
// expect heap plain: blocks=1 bytes=4 stores=1 store_bytes=4
// expect heap array: blocks=1 bytes=400 stores=100 store_bytes=400
// expect heap nothrow_array: blocks=1 bytes=800 stores=200 store_bytes=800
// expect heap over_aligned: blocks=1 bytes=256 stores=1 store_bytes=4
// expect heap element: blocks=10 stores=10 store_bytes=40
// prints: 64-aligned
#include <cstdint>
#include <cstdio>
#include <new>

struct alignas(64) Wide {
    volatile int first;
    char rest[252];
};

struct Small {
    volatile int value;
    int rest[3];
};

int main()
{
    volatile int *plain = new int;
    *plain = 1;
    volatile int *array = new int[100];
    for (int i = 0; i < 100; i++)
        array[i] = i;
    volatile int *nothrow_array = new (std::nothrow) int[200];
    for (int i = 0; i < 200; i++)
        nothrow_array[i] = i;
    Wide *over_aligned = new Wide;
    over_aligned->first = 1;
    for (int i = 0; i < 10; i++) {
        Small *element = new Small;
        element->value = i;
        delete element;
    }
    bool aligned = reinterpret_cast<std::uintptr_t>(over_aligned) % 64 == 0;
    delete plain;
    delete[] array;
    delete[] nothrow_array;
    delete over_aligned;
    std::puts(aligned ? "64-aligned" : "not aligned");
    return 0;
}
