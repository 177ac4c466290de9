/* Programs with something wrong with their data, and the same with what `memlens advise` calls the remedy.
 *
 *     remedies CASE REMEDY|none [ROUNDS]
 *
 * All remedies of a case print the same; those that it does not have change nothing. bench/advice.py holds what is told to be gained against
 * what they gain. Huge pages are the environment's: GLIBC_TUNABLES=glibc.malloc.hugetlb=1. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "../../examples/kernels/argument.h"

/* Called each time that the program says so, with what it says. */
#define CALLED __attribute__((noipa))

static const char *remedy;

static bool has(const char *name)
{
    return strcmp(remedy, name) == 0;
}

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The numbers below `n` in random order. */
static uint32_t *shuffled(size_t n)
{
    uint32_t *order = must(malloc(n * sizeof *order));
    uint64_t state = 1;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    for (size_t i = n - 1; i > 0; i--) {
        size_t j = next_random(&state) % (i + 1);
        uint32_t kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    return order;
}

/* --- Reads at random of a table of 256 MiB; `walk` needs each one before the next, `gather` does not. --- */

static uint64_t gather(long rounds)
{
    size_t words = 1ul << 25;
    uint64_t *table = must(malloc(words * sizeof *table)), state = 1, sum = 0;
    for (size_t i = 0; i < words; i++)
        table[i] = i;
    for (long i = 0; i < rounds * 1000000; i++)
        sum += table[next_random(&state) % words];
    return sum;
}

static uint64_t walk(long rounds)
{
    size_t words = 1ul << 25;
    uint64_t *table = must(malloc(words * sizeof *table)), at = 1;
    for (size_t i = 0; i < words; i++)
        table[i] = i * 0x9e3779b97f4a7c15u >> 3;
    for (long i = 0; i < rounds * 1000000; i++)
        at = table[(at + (uint64_t)i * 0x2545f4914f6cdd1du) % words];
    return at;
}

/* --- Matrices by columns. --- */

static double *matrix(size_t rows, size_t width)
{
    double *m = must(aligned_alloc(4096, rows * width * sizeof *m));
    for (size_t i = 0; i < rows * width; i++)
        m[i] = (double)(i / width % 7);
    return m;
}

static CALLED double sum_by_columns(const double *m, size_t rows, size_t columns, size_t width)
{
    double sum = 0;
    for (size_t column = 0; column < columns; column++)
        for (size_t row = 0; row < rows; row++)
            sum += m[row * width + column];
    return sum;
}

static CALLED double sum_by_rows(const double *m, size_t rows, size_t columns, size_t width)
{
    double sum = 0;
    for (size_t row = 0; row < rows; row++)
        for (size_t column = 0; column < columns; column++)
            sum += m[row * width + column];
    return sum;
}

static uint64_t columns(long rounds)
{
    size_t width = has("pad") ? 3080 : 3072;
    double *grid = matrix(3072, width), sum = 0;
    for (long round = 0; round < rounds; round++)
        sum += has("layout") ? sum_by_rows(grid, 3072, 3072, width) : sum_by_columns(grid, 3072, 3072, width);
    return (uint64_t)sum;
}

static uint64_t padding(long rounds)
{
    size_t width = has("pad") ? 1032 : 1024;
    double *grid = matrix(1024, width), sum = 0;
    for (long round = 0; round < rounds; round++)
        sum += has("layout") ? sum_by_rows(grid, 1024, 1024, width) : sum_by_columns(grid, 1024, 1024, width);
    return (uint64_t)sum;
}

static CALLED void transpose(double *to, const double *from, size_t n, size_t width)
{
    for (size_t row = 0; row < n; row++)
        for (size_t column = 0; column < n; column++)
            to[column * width + row] = from[row * width + column];
}

static CALLED void transpose_by_blocks(double *to, const double *from, size_t n, size_t width)
{
    for (size_t down = 0; down < n; down += 8)
        for (size_t right = 0; right < n; right += 8)
            for (size_t row = down; row < down + 8; row++)
                for (size_t column = right; column < right + 8; column++)
                    to[column * width + row] = from[row * width + column];
}

static uint64_t blocks(long rounds)
{
    size_t n = 2048, width = has("pad") ? 2056 : 2048;
    double *from = matrix(n, width), *to = matrix(n, width), sum = 0;
    for (long round = 0; round < rounds; round++) {
        (has("layout") ? transpose_by_blocks : transpose)(to, from, n, width);
        sum += to[(size_t)round % n];
    }
    return (uint64_t)sum;
}

/* --- Some fields apart: one of sixteen words is used. --- */

struct record {
    uint64_t key, rest[15];
};

static CALLED uint64_t sum_keys(const struct record *records, const uint32_t *order, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += records[order[i]].key;
    return sum;
}

static CALLED uint64_t sum_words(const uint64_t *keys, const uint32_t *order, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += keys[order[i]];
    return sum;
}

static uint64_t fields(long rounds)
{
    size_t n = 500000;
    struct record *records = must(calloc(n, sizeof *records));
    uint64_t *keys = must(calloc(n, sizeof *keys)), sum = 0;
    uint32_t *order = shuffled(n);
    for (size_t i = 0; i < n; i++)
        records[i].key = keys[i] = i * i;
    for (long round = 0; round < rounds; round++)
        sum += has("split") ? sum_words(keys, order, n) : sum_keys(records, order, n);
    return sum;
}

/* --- A list whose nodes lie anywhere. --- */

struct node {
    struct node *next;
    uint64_t key, value[2];
};

/* The first fields of a node. */
struct link {
    struct node *next;
    uint64_t key;
};

static CALLED uint64_t sum_list(const struct node *node)
{
    uint64_t sum = 0;
    for (; node; node = node->next)
        sum += node->key;
    return sum;
}

static uint64_t list(long rounds)
{
    size_t n = 1000000;
    struct node **nodes = must(calloc(n, sizeof *nodes)), *head = NULL;
    uint32_t *order = shuffled(n);
    for (size_t i = 0; i < n; i++) {
        nodes[i] = must(malloc(sizeof **nodes));
        nodes[i]->key = i;
    }
    for (size_t i = 0; i < n; i++) {
        struct node *node = nodes[has("pack") ? i : order[i]];
        node->next = head;
        head = node;
    }
    free(nodes);
    uint64_t sum = 0;
    for (long round = 0; round < rounds; round++)
        sum += sum_list(head);
    return sum;
}

/* --- A hash table with chains of sixteen nodes. --- */

static CALLED struct node *find(struct node *const *buckets, uint64_t at, uint64_t key)
{
    for (struct node *node = buckets[at]; node; node = node->next)
        if (node->key == key)
            return node;
    return NULL;
}

static uint64_t bucket_of(uint64_t key, size_t n)
{
    return has("shorten") ? key * 0x9e3779b97f4a7c15u >> 44 & (n - 1) : (key & (n - 1)) >> 4;
}

static uint64_t hash(long rounds)
{
    size_t n = 1 << 19;
    struct node **buckets = must(calloc(n, sizeof *buckets));
    uint32_t *order = shuffled(n);
    struct link *links = must(calloc(n, sizeof *links));
    for (size_t i = 0; i < n; i++) {
        uint64_t at = bucket_of(order[i], n);
        struct node *node = has("split") ? (struct node *)&links[i] : must(malloc(sizeof *node));
        *(struct link *)node = (struct link) { buckets[at], order[i] };
        buckets[at] = node;
    }
    uint64_t sum = 0, state = 7;
    for (long i = 0; i < rounds * 100000; i++) {
        uint64_t key = next_random(&state) & (n - 1);
        sum += find(buckets, bucket_of(key, n), key)->key;
    }
    return sum;
}

/* --- Threads: counters in one line, and one counter for all. --- */

struct counter {
    _Atomic uint64_t count;
    char rest[120];
};

enum { THREADS = 2 };
static _Atomic uint64_t *counter_of[THREADS];
static long additions;

static void *count(void *number)
{
    _Atomic uint64_t *counter = counter_of[(uintptr_t)number];
    uint64_t state = (uintptr_t)number;
    for (long i = 0; i < additions; i++)
        if (next_random(&state) & 1)
            atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
    return NULL;
}

static uint64_t counted(long rounds, size_t distance)
{
    pthread_t threads[THREADS];
    char *counters = must(aligned_alloc(128, THREADS * sizeof(struct counter)));
    memset(counters, 0, THREADS * sizeof(struct counter));
    additions = rounds * 1000000;
    for (uintptr_t i = 0; i < THREADS; i++) {
        counter_of[i] = (_Atomic uint64_t *)(counters + i * (has("separate") || has("per-thread") ? sizeof(struct counter) : distance));
        if (pthread_create(&threads[i], NULL, count, (void *)i))
            exit(1);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    uint64_t sum = 0;
    for (size_t i = 0; i < THREADS * sizeof(struct counter) / 8; i++)
        sum += ((uint64_t *)counters)[i];
    return sum;
}

static uint64_t false_sharing(long rounds) { return counted(rounds, sizeof(uint64_t)); }
static uint64_t competition(long rounds) { return counted(rounds, 0); }

/* --- Items in the order of what they lead to: a matrix by coordinates. --- */

struct entry {
    uint32_t row, column;
    double value;
};

static int by_place(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->row != y->row ? (x->row > y->row ? 1 : -1) : (x->column > y->column) - (x->column < y->column);
}

static CALLED void multiply(double *y, const double *x, const struct entry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[entries[i].row] += entries[i].value * x[entries[i].column];
}

static uint64_t coordinates(long rounds)
{
    size_t n = 1 << 21, m = 1 << 20;
    struct entry *entries = must(malloc(n * sizeof *entries));
    double *x = must(malloc(m * sizeof *x)), *y = must(calloc(m, sizeof *y));
    uint64_t state = 3;
    for (size_t i = 0; i < n; i++) {
        uint64_t drawn = next_random(&state);
        uint32_t row = (uint32_t)(drawn % m);
        /* Near the diagonal, as a matrix is whose unknowns are numbered well. */
        entries[i] = (struct entry) { row, (uint32_t)((row + (drawn >> 32) % 1024) % m), 1 };
    }
    for (size_t i = 0; i < m; i++)
        x[i] = (double)(i % 5);
    if (has("sort"))
        qsort(entries, n, sizeof *entries, by_place);
    for (long round = 0; round < rounds; round++)
        multiply(y, x, entries, n);
    double sum = 0;
    for (size_t i = 0; i < m; i++)
        sum += y[i];
    return (uint64_t)sum;
}

/* --- Prefetch: much is done with each value, so that the core does not come to the next loads by itself. --- */

static CALLED uint64_t mix(const uint64_t *table, const uint32_t *index, size_t n, bool ahead)
{
    uint64_t state = 1;
    for (size_t i = 0; i < n; i++) {
        if (ahead)
            __builtin_prefetch(&table[index[i + 16 < n ? i + 16 : i]]);
        uint64_t value = table[index[i]] ^ state;
#pragma GCC unroll 12
        for (int j = 0; j < 12; j++)
            value = (value ^ value >> 29) * 0xbf58476d1ce4e5b9u;
        state = value;
    }
    return state;
}

static uint64_t prefetch(long rounds)
{
    size_t n = 1 << 22;
    uint64_t *table = must(malloc(n * sizeof *table)), state = 0;
    uint32_t *index = shuffled(n);
    for (size_t i = 0; i < n; i++)
        table[i] = i;
    for (long round = 0; round < rounds; round++)
        state += mix(table, index, n, has("prefetch"));
    return state;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        uint64_t (*run)(long);
        long rounds;
    } cases[] = {
        { "gather", gather, 150 },         { "walk", walk, 12 },       { "columns", columns, 40 },         { "padding", padding, 900 },
        { "blocks", blocks, 80 },         { "fields", fields, 500 },   { "list", list, 20 },               { "hash", hash, 80 },
        { "false-sharing", false_sharing, 100 }, { "competition", competition, 100 }, { "coordinates", coordinates, 120 }, { "prefetch", prefetch, 8 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc < 3 || strcmp(argv[1], cases[i].name) != 0)
            continue;
        remedy = argv[2];
        printf("%llu\n", (unsigned long long)cases[i].run(argument(argc, argv, 3, cases[i].rounds, 1, 1000000)));
        return 0;
    }
    fprintf(stderr, "remedies CASE REMEDY|none [ROUNDS]; cases:");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        fprintf(stderr, " %s", cases[i].name);
    fprintf(stderr, "\n");
    return 2;
}
