/* Breadth-first search by several threads over an R-MAT graph, in the manner of the program of
 * Chen et al., section IV.D (row O7 of what memlens implements).
 *
 *     bfsthreads [SCALE [EDGE_FACTOR [THREADS [SEARCHES]]]]          defaults: 14 16 1 1
 *
 * The graph is of the kind of examples/bfs (Chakrabarti, Zhan, Faloutsos: R-MAT: a recursive model for
 * graph mining, SDM 2004), and so are the arrays. A level's frontier is dealt to the threads in pieces of
 * 64 vertices; a neighbour belongs to the thread that sets its byte in `visited` first. `search` is entered
 * for each search and `count_reached` after it, so that a trace can leave out the rest (--start-on search
 * --stop-on count_reached).
 *
 * With one thread everything depends on nothing but the arguments; with several, who finds a vertex first
 * does not, but what is printed does. */
#include <pthread.h>
#include <stdint.h>

#include "argument.h"

#define PIECE 64

static long n, threads, frontier, found, next_piece, traversed;
static long *rowstarts;
static int *column, *pred, *oldq, *newq;
static unsigned char *visited;
static pthread_barrier_t level_ends;

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* One edge: a quadrant of the adjacency matrix for each bit of the vertex numbers, four of them from a draw,
 * without branches: a profiler that follows each block of code should not spend its time here. */
static void rmat_edge(int scale, uint64_t *state, int *from, int *to)
{
    const unsigned a = 65536 * 57 / 100, ab = 65536 * 76 / 100, abc = 65536 * 95 / 100;
    int start = 0, end = 0;
    for (int bits = 0; bits < scale; bits += 4) {
        uint64_t draws = next_random(state);
        for (int bit = 0; bit < 4; bit++) {
            unsigned draw = (unsigned)(draws >> 16 * bit) & 0xffff;
            start = start << 1 | (draw >= ab);
            end = end << 1 | ((draw >= a) ^ (draw >= ab) ^ (draw >= abc));
        }
    }
    /* The last draw may have given some bits too many. */
    *from = start & (int)(n - 1);
    *to = end & (int)(n - 1);
}

/* Two passes with the same random numbers: count the degrees, then place the neighbours. */
static void make_graph(int scale, long m)
{
    uint64_t state = 1;
    int from, to;
    for (long edge = 0; edge < m; edge++) {
        rmat_edge(scale, &state, &from, &to);
        rowstarts[from]++;
        rowstarts[to]++;
    }
    for (long v = 1; v <= n; v++)
        rowstarts[v] += rowstarts[v - 1];
    state = 1;
    for (long edge = 0; edge < m; edge++) {
        rmat_edge(scale, &state, &from, &to);
        column[--rowstarts[from]] = to;
        column[--rowstarts[to]] = from;
    }
}

/* The neighbours of a piece of the frontier. */
static long visit(long first, long end)
{
    long edges = 0;
    for (long i = first; i < end; i++) {
        int u = oldq[i];
        for (long k = rowstarts[u]; k < rowstarts[u + 1]; k++) {
            int v = column[k];
            edges++;
            if (!visited[v] && !__atomic_exchange_n(&visited[v], 1, __ATOMIC_RELAXED)) {
                pred[v] = u;
                newq[__atomic_fetch_add(&found, 1, __ATOMIC_RELAXED)] = v;
            }
        }
    }
    return edges;
}

static void *run(void *nothing)
{
    long edges = 0;
    while (frontier > 0) {
        for (;;) {
            long first = __atomic_fetch_add(&next_piece, PIECE, __ATOMIC_RELAXED);
            if (first >= frontier)
                break;
            edges += visit(first, first + PIECE < frontier ? first + PIECE : frontier);
        }
        /* One of the threads prepares the next level while the others wait. */
        if (pthread_barrier_wait(&level_ends) == PTHREAD_BARRIER_SERIAL_THREAD) {
            int *swap = oldq;
            oldq = newq;
            newq = swap;
            frontier = found;
            found = next_piece = 0;
        }
        pthread_barrier_wait(&level_ends);
    }
    __atomic_fetch_add(&traversed, edges, __ATOMIC_RELAXED);
    return nothing;
}

__attribute__((noinline)) void search(int root)
{
    for (long v = 0; v < n; v++) {
        pred[v] = -1;
        visited[v] = 0;
    }
    visited[root] = 1;
    pred[root] = root;
    oldq[0] = root;
    frontier = 1;
    found = next_piece = traversed = 0;
    pthread_t handles[64];
    for (long k = 0; k < threads; k++) {
        if (pthread_create(&handles[k], NULL, run, NULL) != 0) {
            perror("pthread_create");
            exit(1);
        }
    }
    for (long k = 0; k < threads; k++)
        pthread_join(handles[k], NULL);
}

__attribute__((noinline)) long count_reached(void)
{
    long reached = 0;
    for (long v = 0; v < n; v++)
        reached += pred[v] >= 0;
    return reached;
}

int main(int argc, char **argv)
{
    int scale = (int)argument(argc, argv, 1, 14, 1, 28);
    long m = argument(argc, argv, 2, 16, 1, 64) << scale;
    threads = argument(argc, argv, 3, 1, 1, 64);
    long searches = argument(argc, argv, 4, 1, 1, 1000000);
    n = 1L << scale;
    rowstarts = must(calloc((size_t)n + 1, sizeof *rowstarts));
    column = must(malloc((size_t)m * 2 * sizeof *column));
    visited = must(calloc((size_t)n, sizeof *visited));
    pred = must(malloc((size_t)n * sizeof *pred));
    oldq = must(malloc((size_t)n * sizeof *oldq));
    newq = must(malloc((size_t)n * sizeof *newq));
    make_graph(scale, m);
    if (pthread_barrier_init(&level_ends, NULL, (unsigned)threads) != 0) {
        perror("pthread_barrier_init");
        return 1;
    }
    /* Roots spread over the vertices, by the golden ratio, that have a neighbour. */
    int root = 0;
    for (long at = 0; at < searches; at++) {
        root = (int)((root + (long)(0.618 * (double)n)) % n);
        while (rowstarts[root] == rowstarts[root + 1])
            root = (int)((root + 1) % n);
        search(root);
        printf("root %d reached %ld traversed %ld\n", root, count_reached(), traversed);
    }
    free(rowstarts);
    free(column);
    free(visited);
    free(pred);
    free(oldq);
    free(newq);
    return 0;
}
