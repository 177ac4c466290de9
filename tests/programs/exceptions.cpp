// C++ exceptions through frames with destructors, rethrown once, 2000 times.
//
// prints: caught 2000 destroyed 12000 last 1999
#include <cstdio>
#include <stdexcept>
#include <string>

static int destroyed;

struct Guard {
    ~Guard() { destroyed++; }
};

__attribute__((noinline)) static int descend(int depth, int value)
{
    Guard guard;
    if (depth == 0)
        throw std::runtime_error(std::to_string(value));
    return descend(depth - 1, value) + 1;
}

int main()
{
    int caught = 0, last = 0;
    for (int i = 0; i < 2000; i++) {
        try {
            try {
                // Depths 5 to 0: six guards.
                descend(5, i);
            } catch (const std::logic_error &) {
                return 1;
            } catch (...) {
                throw;
            }
        } catch (const std::exception &error) {
            caught++;
            last = std::stoi(error.what());
        }
    }
    std::printf("caught %d destroyed %d last %d\n", caught, destroyed, last);
    return 0;
}
