// Shortest paths in a random graph: `dijkstra [VERTICES [SEARCHES]]`.
//
// edges are reached at random and then walked, distance is read and written at random, heap is a binary heap,
// first_edge is read once a vertex.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Edge {
    std::uint32_t to, length;
};

struct Entry {
    std::uint64_t distance;
    std::uint32_t vertex;
};

static std::uint64_t state = 7;

static std::uint64_t random_below(std::uint64_t bound)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % bound;
}

static void push(std::vector<Entry> &heap, Entry entry)
{
    std::size_t at = heap.size();
    heap.push_back(entry);
    while (at > 0 && heap[(at - 1) / 2].distance > entry.distance) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = entry;
}

static Entry pop(std::vector<Entry> &heap)
{
    const Entry least = heap[0], last = heap.back();
    heap.pop_back();
    const std::size_t size = heap.size();
    std::size_t at = 0;
    while (size > 0 && 2 * at + 1 < size) {
        std::size_t child = 2 * at + 1;
        if (child + 1 < size && heap[child + 1].distance < heap[child].distance)
            child++;
        if (heap[child].distance >= last.distance)
            break;
        heap[at] = heap[child];
        at = child;
    }
    if (size > 0)
        heap[at] = last;
    return least;
}

int main(int argc, char **argv)
{
    const std::uint32_t vertices = argc > 1 ? std::uint32_t(std::atol(argv[1])) : 200000;
    const int searches = argc > 2 ? std::atoi(argv[2]) : 1;
    const std::uint32_t degree = 6;
    std::vector<std::uint32_t> first_edge(vertices + 1);
    std::vector<Edge> edges(std::size_t(vertices) * degree);
    std::vector<std::uint64_t> distance(vertices);
    std::vector<Entry> heap;
    for (std::uint32_t v = 0; v <= vertices; v++)
        first_edge[v] = v * degree;
    for (Edge &edge : edges)
        edge = {std::uint32_t(random_below(vertices)), std::uint32_t(random_below(1000) + 1)};
    std::uint64_t checksum = 0;
    for (int search = 0; search < searches; search++) {
        for (std::uint64_t &one : distance)
            one = ~std::uint64_t(0);
        distance[0] = 0;
        push(heap, {0, 0});
        while (!heap.empty()) {
            const Entry here = pop(heap);
            if (here.distance != distance[here.vertex])
                continue;
            for (std::uint32_t e = first_edge[here.vertex]; e < first_edge[here.vertex + 1]; e++) {
                const std::uint64_t there = here.distance + edges[e].length;
                if (there < distance[edges[e].to]) {
                    distance[edges[e].to] = there;
                    push(heap, {there, edges[e].to});
                }
            }
        }
        for (std::uint64_t one : distance)
            checksum += one == ~std::uint64_t(0) ? 0 : one;
    }
    std::printf("dijkstra %u searches %d checksum %llu\n", vertices, searches, (unsigned long long)checksum);
    return 0;
}
