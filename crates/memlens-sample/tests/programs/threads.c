/* Threads that come and go: each walks a list of its own, on the heap. Runs until standard input
 * ends (or for argv[1] steps a thread), then prints how many threads ended as they should. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct link {
	struct link *next;
	long value;
	long padding[6];
};

static volatile int stop;
static long steps;

static void *walk(void *argument)
{
	long number = (long)argument, count = 1 << 15;
	struct link *links = malloc(count * sizeof *links), *here;
	char name[16];
	snprintf(name, sizeof name, "walker%ld", number);
	pthread_setname_np(pthread_self(), name);
	for (long i = 0; i < count; i++) {
		/* 5001 is coprime to the power of two: one ring through all links. */
		links[i].next = &links[(i + 5001) % count];
		links[i].value = i;
	}
	long sum = 0;
	here = links;
	for (long i = 0; steps ? i < steps : !stop; i++) {
		sum += here->value;
		here = here->next;
	}
	free(links);
	return sum < 0 ? NULL : argument;
}

int main(int argc, char **argv)
{
	pthread_t threads[3];
	long good = 0;
	char byte;
	steps = argc > 1 ? atol(argv[1]) : 0;
	for (long i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, walk, (void *)(i + 1));
	if (!steps) {
		puts("ready");
		fflush(stdout);
		while (read(0, &byte, 1) > 0)
			;
		stop = 1;
	}
	for (long i = 0; i < 3; i++) {
		void *result;
		pthread_join(threads[i], &result);
		good += (long)result == i + 1;
	}
	printf("%ld\n", good);
	return 0;
}
