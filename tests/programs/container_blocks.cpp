// What blocks of containers consist of is told by what allocates them: nodes by their links and values, what pointers in a
// container own by its own fields. libstdc++'s nodes have 32 bytes before a tree's value, 8 before a hash table's.
//
// 100 numbers are counted 10 times each, so that each count is written as 0, read and written 10 times, and read at the
// end: 1,000 + 1,000 + 3 * 100.
//
// expect heap hits: blocks=100 bytes=2400
// field heap hits _M_storage.second: offset=16 loads=1100 stores=1100
// expect heap Census::tree: blocks=100 bytes=4800
// field heap Census::tree _M_storage.second: offset=40 loads=1100 stores=1100
// expect heap owned: blocks=100 bytes=1600
// field heap owned weight: offset=8 loads=100 stores=100
// expect heap raw: blocks=100 bytes=2400
// field heap raw area: offset=16 loads=100 stores=100
// expect heap shared: blocks=100
// field heap shared _M_impl._M_storage.weight: loads=100
// prints: 2300
#include <cstdio>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

struct Node {
    double key;
    long weight;
};

struct Room {
    long width, height, area;
};

struct Census {
    std::map<int, long> tree;
    __attribute__((noinline)) void count(int number) { tree[number]++; }
};

int main()
{
    Census census;
    std::unordered_map<int, long> hits;
    for (int i = 0; i < 1000; i++) {
        hits[i % 100]++;
        census.count(i % 100);
    }
    long sum = 0;
    for (auto &hit : hits)
        sum += hit.second;
    for (auto &entry : census.tree)
        sum += entry.second;
    std::vector<std::unique_ptr<Node>> owned;
    std::vector<Room *> raw;
    std::vector<std::shared_ptr<Node>> shared;
    for (int i = 0; i < 100; i++) {
        owned.push_back(std::make_unique<Node>(Node{0, 1}));
        raw.push_back(new Room{1, 1, 1});
        shared.push_back(std::make_shared<Node>(Node{0, 1}));
    }
    for (auto &node : owned)
        sum += node->weight;
    for (auto *room : raw)
        sum += room->area;
    for (auto &node : shared)
        sum += node->weight;
    printf("%ld\n", sum);
    for (auto *room : raw)
        delete room;
}
