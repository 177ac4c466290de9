// A member of a class that is defined in a library: here its debug information has a declaration, without a size.
#include <memory_resource>

struct Engine {
    long before;
    std::pmr::unsynchronized_pool_resource pool;
    long behind[4];
};

Engine *engines;

int main()
{
    static Engine engine;
    engines = &engine;
    return 0;
}
