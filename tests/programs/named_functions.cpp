// Functions that options name as the source, and reports, do: a method of a class template switches counting on, a function of
// a namespace off, and a method is the program's own allocator.
//
// Counted: 5 sweeps that load 1,000 longs each. What is stored before and after is not.
//
// memlens: --start-on store::Shelf<long>::sweep --stop-on store::done --alloc-fn store::Arena::take=1
// expect heap shelf: loads=5000 stores=0
// levels: -O0
// prints: 5000
#include <cstddef>
#include <cstdio>

namespace store {
alignas(64) char room[1 << 16];

struct Arena {
    std::size_t used = 0;
    void *take(std::size_t bytes) {
        void *block = room + used;
        used += bytes;
        return block;
    }
};

template <typename T> struct Shelf {
    T *cells;
    std::size_t count;
    T sweep() const {
        T sum = 0;
        for (int round = 0; round < 5; round++)
            for (std::size_t i = 0; i < count; i++)
                sum += cells[i];
        return sum;
    }
};

void done() {}
}

int main() {
    store::Arena arena;
    long *shelf = static_cast<long *>(arena.take(1000 * sizeof(long)));
    for (int i = 0; i < 1000; i++)
        shelf[i] = 1;
    store::Shelf<long> all{shelf, 1000};
    long sum = all.sweep();
    store::done();
    for (int i = 0; i < 1000; i++)
        shelf[i] = 2;
    std::printf("%ld\n", sum);
    return 0;
}
