// Structures inside of others: bases, a base's base, members.
struct Link {
    Link *prev, *next;
};

struct Base {
    long id;
    char tag[24];
};

struct Order : Base, Link {
    long price;
};

struct Special : Order {
    Link other;
};

Link *links;
Base *bases;
Order *orders;
Special *specials;

int main()
{
    return links || bases || orders || specials;
}
