// Allocations of C++ programs; `operator new` prints the addresses on its call stack as far as
// frame pointers tell.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

static void *logged(std::size_t size)
{
    void **frame = static_cast<void **>(__builtin_frame_address(0));
    for (int depth = 0; depth < 10 && frame; depth++) {
        std::printf("%p ", frame[1]);
        void **next = static_cast<void **>(frame[0]);
        if (next <= frame || reinterpret_cast<char *>(next) - reinterpret_cast<char *>(frame) > 4096)
            break;
        frame = next;
    }
    std::printf("\n");
    return std::malloc(size);
}

__attribute__((noinline)) void *operator new(std::size_t size) { return logged(size); }
__attribute__((noinline)) void *operator new[](std::size_t size) { return logged(size); }
void operator delete(void *p) noexcept { std::free(p); }
void operator delete[](void *p) noexcept { std::free(p); }
void operator delete(void *p, std::size_t) noexcept { std::free(p); }
void operator delete[](void *p, std::size_t) noexcept { std::free(p); }

namespace graphs {
struct Graph {
    int n;
    int *column;
    __attribute__((noinline)) explicit Graph(int count) : n(count), column(new int[count]) {}
    ~Graph() { delete[] column; }
};
template <typename T> struct Table {
    T cells[4];
    static int uses;
};
template <typename T> int Table<T>::uses = 7;
Table<double> table;
} // namespace graphs

__attribute__((noipa)) static int sixth(const std::vector<int> &numbers) { return numbers[5]; }

static int run(int argc)
{
    graphs::Graph graph(argc + 10);
    int *plain = new int[argc + 3];
    asm volatile("" ::"r"(plain) : "memory"); // keeps the allocation from being optimised away
    std::vector<int> numbers(argc + 100);
    numbers[0] = plain[0] = graph.column[0] = argc;
    graphs::table.cells[argc & 3] = graphs::Table<double>::uses;
    int sum = numbers[0] + sixth(numbers) + plain[0] + graph.column[0];
    delete[] plain;
    return sum;
}

int main(int argc, char **)
{
    std::setvbuf(stdout, nullptr, _IONBF, 0);
    return run(argc) == -1;
}
