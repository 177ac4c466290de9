/* One chain of dependent loads: three through `often`, one through `seldom`. Every load waits for the
 * one before, and the three parts of `often` are as large as `seldom` and used as densely, so their
 * loads miss as much: three quarters of the time go to `often`. */
#include <stdio.h>
#include <stdlib.h>

#define N (1u << 20)
static unsigned often[3][N], seldom[N];

static void shuffle(unsigned *table, unsigned long state)
{
	for (unsigned i = 0; i < N; i++)
		table[i] = i;
	for (unsigned i = N - 1; i > 0; i--) {
		state = state * 6364136223846793005ul + 1442695040888963407ul;
		unsigned j = (unsigned)(state >> 33) % (i + 1), old = table[i];
		table[i] = table[j];
		table[j] = old;
	}
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 4000000;
	unsigned at = 0;
	for (int part = 0; part < 3; part++)
		shuffle(often[part], part + 1);
	shuffle(seldom, 4);
	for (long i = 0; i < rounds; i++) {
		at = often[0][at];
		at = often[1][at];
		at = often[2][at];
		at = seldom[at];
	}
	printf("%u\n", at);
	return 7;
}
