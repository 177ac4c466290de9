/* A chain through an array of bodies, each reached through a pointer of its own into the array. */
#include <stdio.h>
#include <stdlib.h>

#define N (1u << 18)
struct body {
	unsigned next, mass[15];
};

__attribute__((noinline)) static unsigned long walk(const struct body *position, long steps)
{
	unsigned at = 0;
	unsigned long sum = 0;
	for (long i = 0; i < steps; i++) {
		const struct body *there = &position[at];
		sum += there->mass[3];
		at = there->next;
	}
	return sum;
}

int main(int argc, char **argv)
{
	long steps = argc > 1 ? atol(argv[1]) : 4000000;
	struct body *bodies = calloc(N, sizeof *bodies);
	if (!bodies)
		return 1;
	/* A full-period linear congruential sequence: all bodies in one cycle. */
	for (unsigned i = 0; i < N; i++)
		bodies[i].next = (i * 1664525u + 1013904223u) % N;
	printf("%lu\n", walk(bodies, steps));
	free(bodies);
	return 0;
}
