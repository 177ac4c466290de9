/* Prints, for each local in memory: name, its address minus the canonical frame address, pc. */
#include <stdio.h>
#include <string.h>

struct pair {
    int first;
    double second;
};

__attribute__((noinline)) static void report(const char *name, void *address, void *cfa)
{
    printf("%s %ld %p\n", name, (long)((char *)address - (char *)cfa), __builtin_return_address(0));
}

static inline __attribute__((always_inline)) void inlined(int seed, void *cfa)
{
    int inner[4] = {seed, 1, 2, 3};
    report("inner", inner, cfa);
    printf("# %d\n", inner[seed & 3]);
}

__attribute__((noinline)) static long work(long count, struct pair *out)
{
    void *cfa = __builtin_dwarf_cfa();
    struct pair pairs[3];
    char text[40];
    memset(pairs, 0, sizeof pairs);
    memset(text, 0, sizeof text);
    report("pairs", pairs, cfa);
    report("text", text, cfa);
    report("count", &count, cfa);
    if (count > 1) {
        long shadow[2] = {count, count};
        report("shadow", shadow, cfa);
        inlined((int)count, cfa);
        *out = pairs[shadow[0] & 1];
    }
    return count + text[3];
}

int main(int argc, char **argv)
{
    struct pair result;
    long value = work(argc + 1, &result);
    report("result", &result, __builtin_dwarf_cfa());
    printf("# %ld %d %s\n", value, result.first, argv[0] ? "" : "?");
    return 0;
}
