/* Breadth-first search over a graph in compressed sparse row form.
 *
 *     bfs [SCALE [EDGE_FACTOR [SEED [SEARCHES]]]]          defaults: 16 16 1 1
 *
 * The graph has 2^SCALE vertices and EDGE_FACTOR * 2^SCALE undirected edges from the R-MAT generator
 * (Chakrabarti, Zhan, Faloutsos: R-MAT: a recursive model for graph mining, SDM 2004) with the
 * Graph500 benchmark's probabilities 0.57, 0.19, 0.19, 0.05. Self-loops and parallel edges stay, as in
 * Graph500. The first search starts at the vertex of the highest degree, each further one at the vertex
 * that the one before found last. The output depends on nothing but the arguments.
 *
 * The arrays, and how they are walked:
 *
 *     rowstarts  long  n + 1   where a vertex's neighbours start; in frontier order: irregular
 *     column     int   2 m     all neighbours, vertex after vertex; runs of one vertex's neighbours
 *     visited    byte  n       by neighbour: irregular
 *     pred       int   n       the vertex each was found from; written once a vertex: irregular
 *     oldq, newq int   n       the frontier and the next one; sequential
 *
 * What tests/programs.py checks: column is stored 2 m = 1048576 times while the graph is built, and loaded
 * once for each traversed edge, which the program prints; nearly all accesses have an object with a name.
 * (visited and pred are cleared by wider stores at -O2, rowstarts is kept in registers here and there.)
 *
 * args: 15
 * levels: -O2
 * named: 99
 * expect heap column: blocks=1 bytes=4194304 loads=1048572 stores=1048576 load_bytes=4194288 store_bytes=4194304
 * expect heap rowstarts: blocks=1 bytes=262152
 * expect heap visited: blocks=1 bytes=32768
 * expect heap pred: blocks=1 bytes=131072
 * expect heap oldq: blocks=1 bytes=131072
 * expect heap newq: blocks=1 bytes=131072
 * prints: root 0 levels 5 reached 24261 traversed 1048572 parents 1d7f113075fbe2e1
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* One edge: a quadrant of the adjacency matrix for each bit of the vertex numbers. */
static void rmat_edge(int scale, uint64_t *state, int *from, int *to)
{
    const uint64_t unit = UINT64_C(1) << 32;
    *from = *to = 0;
    for (int bit = 0; bit < scale; bit++) {
        uint64_t draw = next_random(state) >> 32;
        int quadrant = draw < unit * 57 / 100 ? 0 : draw < unit * 76 / 100 ? 1 : draw < unit * 95 / 100 ? 2 : 3;
        *from = *from << 1 | quadrant >> 1;
        *to = *to << 1 | (quadrant & 1);
    }
}

static long argument(int argc, char **argv, int index, long otherwise, long least, long most)
{
    if (index >= argc)
        return otherwise;
    char *end;
    long value = strtol(argv[index], &end, 10);
    if (*argv[index] == '\0' || *end != '\0' || value < least || value > most) {
        fprintf(stderr, "bfs: %s: not a number from %ld to %ld\nusage: bfs [SCALE [EDGE_FACTOR [SEED [SEARCHES]]]]\n",
                argv[index], least, most);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    int scale = (int)argument(argc, argv, 1, 16, 1, 28);
    long edge_factor = argument(argc, argv, 2, 16, 1, 64);
    uint64_t seed = (uint64_t)argument(argc, argv, 3, 1, 0, INT32_MAX);
    long searches = argument(argc, argv, 4, 1, 1, 1000000);
    long n = 1L << scale;
    long m = edge_factor << scale;

    long *rowstarts = calloc((size_t)n + 1, sizeof *rowstarts);
    int *column = malloc((size_t)m * 2 * sizeof *column);
    unsigned char *visited = calloc((size_t)n, sizeof *visited);
    int *pred = malloc((size_t)n * sizeof *pred);
    int *oldq = malloc((size_t)n * sizeof *oldq);
    int *newq = malloc((size_t)n * sizeof *newq);
    if (!rowstarts || !column || !visited || !pred || !oldq || !newq) {
        perror("bfs");
        return 1;
    }

    /* Two passes with the same random numbers: count the degrees, then place the neighbours. After the
     * running sum rowstarts[v] is the end of v's row, and placing from the end makes it its start. */
    uint64_t state = seed;
    for (long edge = 0; edge < m; edge++) {
        int from, to;
        rmat_edge(scale, &state, &from, &to);
        rowstarts[from]++;
        rowstarts[to]++;
    }
    int root = 0;
    for (long v = 1; v < n; v++) {
        if (rowstarts[v] > rowstarts[root])
            root = (int)v;
    }
    for (long v = 1; v <= n; v++)
        rowstarts[v] += rowstarts[v - 1];
    state = seed;
    for (long edge = 0; edge < m; edge++) {
        int from, to;
        rmat_edge(scale, &state, &from, &to);
        column[--rowstarts[from]] = to;
        column[--rowstarts[to]] = from;
    }

    for (long search = 0; search < searches; search++) {
        for (long v = 0; v < n; v++) {
            pred[v] = -1;
            visited[v] = 0;
        }
        visited[root] = 1;
        pred[root] = root;
        oldq[0] = root;
        long frontier = 1, reached = 1, traversed = 0;
        int levels = 0, last = root;
        while (frontier > 0) {
            long found = 0;
            for (long i = 0; i < frontier; i++) {
                int u = oldq[i];
                for (long k = rowstarts[u]; k < rowstarts[u + 1]; k++) {
                    int v = column[k];
                    traversed++;
                    if (!visited[v]) {
                        visited[v] = 1;
                        pred[v] = u;
                        newq[found++] = v;
                    }
                }
            }
            if (found > 0)
                last = newq[found - 1];
            levels++;
            reached += found;
            frontier = found;
            int *swap = oldq;
            oldq = newq;
            newq = swap;
        }
        uint64_t parents = 0;
        for (long v = 0; v < n; v++)
            parents = parents * 31 + (uint64_t)(pred[v] + 1);
        printf("root %d levels %d reached %ld traversed %ld parents %016" PRIx64 "\n", root, levels, reached,
               traversed, parents);
        root = last;
    }

    free(rowstarts);
    free(column);
    free(visited);
    free(pred);
    free(oldq);
    free(newq);
    return 0;
}
