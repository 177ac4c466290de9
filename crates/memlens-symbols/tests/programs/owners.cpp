// An array of a library's structures that have empty members beside the data.
#include <memory>

std::unique_ptr<long> owners[4];

int main() {
    owners[0].reset(new long(1));
    return static_cast<int>(*owners[0]) - 1;
}
