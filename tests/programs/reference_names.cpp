/* What a container makes for an element that a reference is bound to is the container's; what is made for a reference is the
 * reference's.
 *
 * table.entries: 100 nodes of a map from int to two longs: 32 bytes of the tree, 8 for the key and its padding, 16: 5600 bytes in all.
 * row: one vector of three pointers (24 bytes), which an optimiser leaves out, and its 50 longs (400 bytes).
 *
 * expect heap table.entries: blocks=100 bytes=5600
 * expect-absent heap entry
 * expect[-O0] heap row: bytes=24
 * expect heap row: blocks=1 bytes=400
 * prints: 200 1225
 */
#include <cstdio>
#include <map>
#include <vector>

struct entry {
    long seen, last;
};

struct table {
    std::map<int, entry> entries;
};

__attribute__((noinline)) static void see(table &table, int key)
{
    entry &entry = table.entries[key];
    entry.seen++;
    entry.last = key;
}

__attribute__((noinline)) static long fill(long count)
{
    auto &row = *new std::vector<long>(count);
    long sum = 0;
    for (long i = 0; i < count; i++)
        row[i] = i;
    for (long value : row)
        sum += value;
    return sum;
}

int main()
{
    table table;
    long seen = 0;
    for (int key = 0; key < 200; key++)
        see(table, key % 100);
    for (const auto &[key, entry] : table.entries)
        seen += entry.seen;
    std::printf("%ld %ld\n", seen, fill(50));
}
