// Containers that grow in loops: their blocks bear their names, not those of counters, arguments and later variables.
//
// libstdc++ doubles a vector's room: 1000 numbers take 11 blocks for 1, 2, … 1024, 2047 numbers of 4 bytes in all. A set's
// node has 32 bytes before the number, a hash table's 8 before the key and the number. 500 circles (pointer to the
// class's table and a radius) are made, and 500 rectangles with two sides; the vector that owns them is one more.
//
// expect heap list: blocks=11 bytes=8188
// expect heap unique: blocks=100 bytes=4000
// expect heap hashed: blocks=100 bytes=2400
// expect heap shapes: blocks=500 bytes=8000
// expect heap shapes: blocks=500 bytes=12000
// expect heap later: blocks=1 bytes=64
// expect-absent heap i
// expect-absent heap n
// expect-absent heap this
// prints: 1000 100 100 1000 1
#include <cstdio>
#include <deque>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

struct Shape {
    virtual double area() const = 0;
    virtual ~Shape() {}
};

struct Circle : Shape {
    double radius;
    Circle(double radius) : radius(radius) {}
    double area() const override { return radius * radius; }
};

struct Rectangle : Shape {
    double width, height;
    Rectangle(double width, double height) : width(width), height(height) {}
    double area() const override { return width * height; }
};

int main()
{
    int n = 1000;
    std::vector<int> list;
    for (int i = 0; i < n; i++)
        list.push_back(i);
    std::set<long> unique;
    for (int i = 0; i < n; i++)
        unique.insert(i % 100);
    std::unordered_map<long, long> hashed;
    for (int i = 0; i < n; i++)
        hashed[i % 100] = i;
    std::vector<std::unique_ptr<Shape>> shapes;
    shapes.reserve(n);
    for (int i = 0; i < n; i++) {
        if (i % 2 == 0)
            shapes.emplace_back(new Circle(i));
        else
            shapes.push_back(std::make_unique<Rectangle>(i, i));
    }
    std::deque<int> later;
    later.push_back(n);
    printf("%zu %zu %zu %zu %zu\n", list.size(), unique.size(), hashed.size(), shapes.size(), later.size());
}
