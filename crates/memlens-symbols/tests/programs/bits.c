/* Bit-fields. */
struct bits {
    unsigned a : 3, b : 5, c : 8, d : 16;
    unsigned long e : 40, f : 24;
};

struct flags {
    char tag;
    unsigned f0 : 1, f1 : 1, f2 : 1, f3 : 1, f4 : 1;
    int n;
    unsigned x : 12, y : 12;
};

struct bits bits[4];
struct flags flags[4];

int main(int argc, char **argv)
{
    bits[argc & 3].d = argc;
    flags[argc & 3].x = argc;
    return bits[1].a + flags[2].n;
}
