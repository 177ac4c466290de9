// Fields of structures in C++: a vector's elements, an array that `new` puts behind its length, nodes of a list, a
// base class, an empty one, and a string, which is one field.
//
// 100 particles in a vector, 100 from new[]: mass stored once each, and loaded 4 and 6 times. Their destructors load tag.
// A list of 50: mass stored once, and loaded 7 times.
//
// field heap particles mass: offset=16 bytes=8 loads=400 stores=100
// field heap array mass: offset=16 bytes=8 loads=600 stores=100
// field heap array tag: offset=24 bytes=4 loads=100 stores=100
// field heap array name: offset=32 bytes=32
// field heap array x: offset=0 bytes=8 loads=0 stores=0
// field heap listed _M_storage.mass: offset=32 bytes=8 loads=350 stores=50
// levels: -O2
// prints: 1350
#include <cstdio>
#include <list>
#include <string>
#include <vector>

struct Empty {};

struct Place {
    volatile double x, y;
    Place() {}
};

struct Particle : Empty, Place {
    volatile double mass;
    volatile int tag;
    std::string name;
    Particle() : tag(0) {}
    Particle(const Particle &other) : tag(other.tag), name(other.name) {}
    ~Particle()
    {
        if (tag == 1)
            puts("tagged");
    }
};

int main()
{
    std::vector<Particle> particles(100);
    Particle *array = new Particle[100];
    std::list<Particle> listed(50);
    double sum = 0;
    for (int i = 0; i < 100; i++) {
        particles[i].mass = 1;
        array[i].mass = 1;
    }
    for (Particle &particle : listed)
        particle.mass = 1;
    for (int round = 0; round < 4; round++)
        for (Particle &particle : particles)
            sum += particle.mass;
    for (int round = 0; round < 6; round++)
        for (int i = 0; i < 100; i++)
            sum += array[i].mass;
    for (int round = 0; round < 7; round++)
        for (Particle &particle : listed)
            sum += particle.mass;
    printf("%g\n", sum);
    delete[] array;
    return 0;
}
