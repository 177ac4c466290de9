// Particles and their neighbours: what a molecular dynamics step does. `particles [COUNT [STEPS]]`
//
// position is gathered from at random, neighbours and force are walked in order, table is looked up at
// random and small.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Vector3 {
    double x, y, z, mass;
};

static std::uint64_t state = 1;

static std::uint64_t random_below(std::uint64_t bound)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % bound;
}

int main(int argc, char **argv)
{
    const std::size_t count = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 400000;
    const int steps = argc > 2 ? std::atoi(argv[2]) : 3;
    const std::size_t neighbours_each = 8;
    std::vector<Vector3> position(count);
    std::vector<Vector3> force(count);
    std::vector<std::uint32_t> neighbours(count * neighbours_each);
    std::vector<double> table(1 << 15);
    for (std::size_t i = 0; i < table.size(); i++)
        table[i] = 1.0 / double(i + 1);
    for (std::size_t i = 0; i < count; i++)
        position[i] = {double(i % 97), double(i % 89), double(i % 83), 1.0};
    for (std::size_t i = 0; i < neighbours.size(); i++)
        neighbours[i] = std::uint32_t(random_below(count));
    for (int step = 0; step < steps; step++) {
        for (std::size_t i = 0; i < count; i++) {
            const Vector3 here = position[i];
            Vector3 sum = {0, 0, 0, 0};
            for (std::size_t k = 0; k < neighbours_each; k++) {
                const Vector3 &there = position[neighbours[i * neighbours_each + k]];
                const double dx = there.x - here.x, dy = there.y - here.y, dz = there.z - here.z;
                const double squared = dx * dx + dy * dy + dz * dz;
                const double pull = table[std::size_t(squared) & (table.size() - 1)] * there.mass;
                sum.x += dx * pull;
                sum.y += dy * pull;
                sum.z += dz * pull;
            }
            force[i].x += sum.x;
            force[i].y += sum.y;
            force[i].z += sum.z;
        }
    }
    double checksum = 0;
    for (const Vector3 &one : force)
        checksum += one.x + one.y + one.z;
    std::printf("particles %zu steps %d checksum %.6g\n", count, steps, checksum);
    return 0;
}
