// A container's blocks are called after the container, not after the iterator or pointer to an element that a statement keeps of its
// growth; of several declared on one line each has its own.
//
// Nodes of trees have 32 bytes, a key of 8 and a level of 16: 56 bytes asked for.
//
// expect heap Book::bids: blocks=50 bytes=2800
// expect heap Book::asks: blocks=40 bytes=2240
// expect heap Book::halts: blocks=30 bytes=1680
// expect heap first: blocks=1 bytes=4000
// expect heap second: blocks=1 bytes=8000
// prints: 120 0
#include <cstdint>
#include <cstdio>
#include <map>
#include <vector>

struct Level {
    int64_t price;
    uint64_t total = 0;
    explicit Level(int64_t price) : price(price) {}
};

struct Order {
    Level *level;
    uint64_t quantity;
};

struct Book {
    std::map<int64_t, Level> bids, asks, halts;
    Level *last = nullptr;

    __attribute__((noinline)) void bid(Order *order, int64_t price)
    {
        auto [place, is_new] = bids.try_emplace(price, price);
        order->level = &place->second;
    }

    __attribute__((noinline)) void ask(Order *order, int64_t price)
    {
        auto place = asks.try_emplace(price, price).first;
        place->second.total += order->quantity;
    }

    __attribute__((noinline)) void halt(int64_t price)
    {
        auto place = halts.emplace(price, Level(price)).first;
        last = &place->second;
    }
};

int main(int argc, char **)
{
    Book book;
    Order order{nullptr, 1};
    for (int64_t price = 0; price < 50; price++)
        book.bid(&order, price);
    for (int64_t price = 0; price < 40; price++)
        book.ask(&order, price);
    for (int64_t price = 0; price < 30; price++)
        book.halt(price);
    unsigned long n = 999 + argc;
    std::vector<uint32_t> first(n), second(2 * n);
    printf("%zu %u\n", book.bids.size() + book.asks.size() + book.halts.size(), first[7] + second[7]);
    return 0;
}
